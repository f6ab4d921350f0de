# SPDX-License-Identifier: Apache-2.0
"""Making and changing the files of a test, and what is demanded of a mount."""

import errno
import os
import stat
import time

from rsh_mount import TIMEOUT_SCALE, MountError


def content(path):
    with open(path, "rb") as f:
        return f.read()


def write(path, data):
    """A file that may be the first of its directory; its path."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)
    return path


def change(path, data):
    with open(path, "wb") as f:
        f.write(data)


def flip(path, at):
    """One bit of one byte, also of a file that MindSpore has left read-only."""
    data = bytearray(content(path))
    data[at] ^= 0x10
    os.chmod(path, os.stat(path).st_mode | stat.S_IWUSR)
    change(path, data)


def check(passed, said):
    if not passed:
        raise MountError(said)


def within(seconds, done, said):
    """Waits until done() is true."""
    deadline = time.monotonic() + seconds * TIMEOUT_SCALE
    while not done():
        check(time.monotonic() < deadline, said)
        time.sleep(0.001)


def settle(folder):
    """Waits until all files are old enough for the index cache to store them."""
    newest = max(os.stat(os.path.join(root, name)).st_ctime
                 for root, _, names in os.walk(folder) for name in names)
    time.sleep(max(0, newest + 3.1 - time.time()))


def demand(said, *words):
    missing = [word for word in words if word not in said]
    if missing:
        raise MountError(f"no {missing} in\n{said}")


def error_line(said):
    """The one line of a log that is an error."""
    lines = [line for line in said.splitlines() if ": error: " in line]
    if len(lines) != 1:
        raise MountError(f"{len(lines)} lines of error\n{said}")
    return lines[0]


def error_of(call):
    """The name of the error with which it fails, or None."""
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return None
