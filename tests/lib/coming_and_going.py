# SPDX-License-Identifier: Apache-2.0
"""What a mount shows while its source goes away and comes back."""

import json
import os
import time

from demands import check, within
from rsh_mount import hash_tree, tree_difference

BEGIN = ": cannot be reached ("
END = ": reachable again after "


def fetched(mount):
    with open(os.path.join(mount.path, ".reshardfs", "stats"), encoding="utf-8") as f:
        return json.load(f)["fetched"]


def log_lines(mount, words):
    return [line for line in mount.log().splitlines() if words in line]


def demand_logged(mount, n):
    """So many outages, each with its beginning and its end."""
    within(15, lambda: len(log_lines(mount, END)) >= n, "the line of the end\n" + mount.log())
    for words in (BEGIN, END):
        check(len(log_lines(mount, words)) == n, f"{n} of {words!r} in\n{mount.log()}")


def demand_well(mount, outages):
    """The gauges have come down, without anybody reading."""
    within(15, lambda: fetched(mount)["failed_files"] == 0, "no file fails\n" + mount.log())
    found = fetched(mount)
    check((found["unreachable"], found["outages"]) == (0, outages), found)


def demand_bytes(mount, expected):
    different = tree_difference(expected, hash_tree(mount.path))
    check(not different, "\n".join(different) + "\n" + mount.log())


def error_of(path):
    """The errno of reading the file, 0 if it can be read, and the time it took."""
    start = time.monotonic()
    try:
        with open(path, "rb", buffering=0) as f:
            while f.read(1 << 16):
                pass
    except OSError as error:
        return error.errno, time.monotonic() - start
    return 0, time.monotonic() - start
