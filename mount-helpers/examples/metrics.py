#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the metrics of all mounts of this user where Prometheus finds them: into the
directory of node_exporter's textfile collector.

    metrics.py DIRECTORY           each minute, from cron or a systemd timer

A mount that cannot be read has only reshardfs_mount_ready, which is 0.
"""

import json
import os
import re
import subprocess
import sys

READY = "reshardfs_mount_ready"


def metrics_of(mount):
    """The lines of its metrics; None: it does not answer, was unmounted just now, or has a
    name that is not UTF-8, which is escaped in the list."""
    if mount["state"] != "ready":
        return None
    try:
        with open(os.path.join(mount["mountpoint"], ".reshardfs", "metrics"),
                  encoding="utf-8") as f:
            return f.read().splitlines()
    except OSError:
        return None


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    mounts = json.loads(subprocess.check_output(["reshardfs", "list", "--json"]))["mounts"]
    heads = {READY: [f"# HELP {READY} Whether the mount can be read.", f"# TYPE {READY} gauge"]}
    samples = {READY: []}
    for mount in mounts:
        where = mount["mountpoint"].replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        label = f'mountpoint="{where}"'
        lines = metrics_of(mount)
        samples[READY].append(f"{READY}{{{label}}} {int(lines is not None)}")
        for line in lines or []:
            head = re.match(r"# (?:HELP|TYPE) (\w+)", line)
            if head:
                known = heads.setdefault(head[1], [])
                if line not in known:
                    known.append(line)
                continue
            name, labels, value = re.fullmatch(r"(\w+)(?:\{(.*)\})? (\S+)", line).groups()
            both = f"{label},{labels}" if labels else label
            samples.setdefault(name, []).append(f"{name}{{{both}}} {value}")
    path = os.path.join(sys.argv[1], "reshardfs.prom")
    try:
        with open(path + ".new", "w", encoding="utf-8") as f:
            for name, lines in samples.items():
                f.write("\n".join([*heads[name], *lines, ""]))
        # The collector never sees half of it.
        os.rename(path + ".new", path)
    except OSError as e:
        sys.exit(f"{path}: {e.strerror}")


if __name__ == "__main__":
    main()
