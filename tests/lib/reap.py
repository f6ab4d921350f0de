#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Run a command and wait for the daemon that it leaves behind.

    reap.py COMMAND_STATUS DAEMON_STATUS COMMAND...

Writes the exit status of the command and the number of the daemon (or "none")
to the first file and, when the daemon ends, its exit status to the second.
Linux hands orphans to a "subreaper", which this program is; nobody else could
learn how a daemon ended.
"""

import ctypes
import os
import subprocess
import sys

PR_SET_CHILD_SUBREAPER = 36


def write(path, status):
    with open(path + ".new", "w", encoding="ascii") as f:
        f.write(f"{status}\n")
    os.rename(path + ".new", path)  # whoever sees the file sees all of it


def child():
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat", encoding="ascii") as f:
                parent = int(f.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue  # no process, or gone
        if parent == os.getpid():
            return name
    return "none"


def main(command_status, daemon_status, *command):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    status = subprocess.run(command, check=False).returncode
    write(command_status, f"{status} {child()}")
    try:
        _, status = os.wait()
    except ChildProcessError:
        write(daemon_status, "none")
    else:
        write(daemon_status,
              os.WEXITSTATUS(status) if os.WIFEXITED(status) else -os.WTERMSIG(status))


if __name__ == "__main__":
    main(*sys.argv[1:])
