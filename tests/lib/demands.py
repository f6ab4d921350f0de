"""Changing the files of a test, and demanding words of what was said."""

import os
import stat

from rsh_mount import MountError


def content(path):
    with open(path, "rb") as f:
        return f.read()


def change(path, data):
    with open(path, "wb") as f:
        f.write(data)


def flip(path, at):
    """One bit of one byte, also of a file that MindSpore has left read-only."""
    data = bytearray(content(path))
    data[at] ^= 0x10
    os.chmod(path, os.stat(path).st_mode | stat.S_IWUSR)
    change(path, data)


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
