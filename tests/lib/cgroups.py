# SPDX-License-Identifier: Apache-2.0
"""Memory control groups of either version, made by root for a test."""

import contextlib
import os

from rsh_mount import reshardfs_program


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
    program = reshardfs_program()
    if not cgroup:
        yield
        return
    wrapper = os.path.join(directory, "in-cgroup")
    with open(wrapper, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\necho $$ >'{cgroup}/cgroup.procs' && exec '{program}' \"$@\"\n")
    os.chmod(wrapper, 0o700)
    os.environ["RESHARDFS"] = wrapper
    try:
        yield
    finally:
        os.environ["RESHARDFS"] = program
