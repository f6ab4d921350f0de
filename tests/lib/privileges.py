# SPDX-License-Identifier: Apache-2.0
"""The program with less than root has, with limits, and with mounts of its own."""

import contextlib
import os
import stat
import subprocess

from rsh_mount import Skipped, reshardfs_program

# Root that is refused what the mode of a file refuses.
WITHOUT_OVERRIDE = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"]


def wrapper(directory, before, setting=":"):
    """The program after `setting`, run through the command `before`."""
    path = os.path.join(directory, "program")
    with open(path, "w", encoding="utf-8") as f:
        f.write(f"#!/bin/sh\n{setting}\n"
                f"exec {before}'{reshardfs_program()}' \"$@\"\n")
    os.chmod(path, stat.S_IRWXU)
    return path


def own_mounts(setting, *command):
    """A command that runs another one after `setting`, of a shell, in a mount namespace."""
    alone = os.path.join(os.path.dirname(os.path.abspath(__file__)), "own_mounts.sh")
    if subprocess.run([alone, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
        raise Skipped("no mount namespace")
    return [alone, "sh", "-c", setting, "sh", *command]


@contextlib.contextmanager
def program_is(program):
    """What the block starts is this program."""
    bare = os.environ["RESHARDFS"]
    os.environ["RESHARDFS"] = program
    try:
        yield
    finally:
        os.environ["RESHARDFS"] = bare


def with_program(program, run):
    with program_is(program):
        return run()


def where_modes_count(directory, run):
    """Runs it with a program to which permission can be denied."""
    if os.geteuid() != 0:
        return run()
    if subprocess.run(WITHOUT_OVERRIDE + ["true"], stderr=subprocess.DEVNULL,
                      check=False).returncode:
        raise Skipped("root cannot give up its privileges over files")
    return with_program(wrapper(directory, " ".join(WITHOUT_OVERRIDE) + " "), run)
