# SPDX-License-Identifier: Apache-2.0
"""Memory control groups of either version, made by root for a test."""

import contextlib
import os

from privileges import program_is, wrapper


def cgroup_parent():
    """(directory below which a memory cgroup may be made, its limit's name)."""
    with open("/proc/self/cgroup", encoding="utf-8") as f:
        lines = [line.rstrip("\n").split(":", 2) for line in f]
    for _, controllers, path in lines:
        if "memory" in controllers.split(","):
            return "/sys/fs/cgroup/memory" + path, "memory.limit_in_bytes"
    for number, _, path in lines:
        if number == "0":
            return "/sys/fs/cgroup" + path, "memory.max"
    return None, None


@contextlib.contextmanager
def memory_cgroup(limit):
    """Its directory, or None where there can be none or no limit is wanted."""
    if not limit:
        yield None
        return
    parent, name = cgroup_parent()
    made = None
    try:
        made = os.path.join(parent, f"reshardfs-test-{os.getpid()}")
        os.mkdir(made)
        with open(os.path.join(made, name), "w", encoding="ascii") as f:
            f.write(str(limit))
    except (OSError, TypeError):
        with contextlib.suppress(OSError, TypeError):
            os.rmdir(made)
        made = None
    try:
        yield made
    finally:
        if made:
            os.rmdir(made)


@contextlib.contextmanager
def program_in(cgroup, directory):
    """RESHARDFS starts in the cgroup."""
    if not cgroup:
        yield
        return
    with program_is(wrapper(directory, "", f"echo $$ >'{cgroup}/cgroup.procs' || exit")):
        yield
