#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mounts for a reshardfs without privileges, and sends it the descriptor.

    fuse_fd.py open MOUNTPOINT SOCKET

runs as root.  It opens /dev/fuse, mounts at the directory MOUNTPOINT, which it creates
if necessary, and sends the descriptor to the process that connects to SOCKET.  It reads
no checkpoint.  When that process has ended it unmounts, and mounts for the next one.
SIGTERM unmounts and ends it.  If it was killed, the mount stays while the other process
lives, and the next one to connect gets a new mount in its place.

    fuse_fd.py take SOCKET reshardfs mount --foreground [OPTION...] SOURCE

runs as any user, in any user namespace, without capabilities and without
/dev/fuse.  It gets the descriptor from SOCKET and runs the command with /dev/fd/N
as MOUNTPOINT.  Python 3.9.
"""

import ctypes
import os
import signal
import socket
import sys
import time

MS_RDONLY, MS_NOSUID, MS_NODEV = 1, 2, 4
MNT_DETACH = 2
CONNECT_SECONDS = 60
libc = ctypes.CDLL(None, use_errno=True)


def check(status, what):
    if status:
        error = ctypes.get_errno()
        raise OSError(error, f"{what}: {os.strerror(error)}")


def mount(where):
    """Mount, and return the descriptor of the FUSE connection.

    The connection ends when all copies of the descriptor are closed."""
    device = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    said = (f"fd={device},rootmode=40000,user_id=0,group_id=0,"
            "default_permissions,allow_other")
    check(libc.mount(b"reshardfs", os.fsencode(where), b"fuse.reshardfs",
                     MS_RDONLY | MS_NOSUID | MS_NODEV, said.encode()), where)
    return device


def is_mounted(where):
    """Whether the mount that is seen in that directory is one of this program."""
    # The directory itself cannot be looked at if its mount is dead.
    above, name = os.path.split(os.path.abspath(where))
    where, kind = os.path.join(os.path.realpath(above), name), None
    with open("/proc/self/mountinfo", "rb") as f:
        for line in f:
            fields = line.split()
            place = fields[4].decode("unicode_escape").encode("latin-1")
            if place == os.fsencode(where):
                kind = fields[fields.index(b"-") + 1]
    return kind == b"fuse.reshardfs"


def unmount(where):
    """Also what was mounted before this process was killed and started again."""
    while is_mounted(where):
        check(libc.umount2(os.fsencode(where), MNT_DETACH), where)


def stop(*_):
    sys.exit(0)


def serve_one(listener, where):
    taker, _ = listener.accept()
    unmount(where)
    device = mount(where)
    try:
        socket.send_fds(taker, [b"fuse"], [device])
        os.close(device)
        # The other process keeps its end open and sends nothing.
        taker.recv(1)
    finally:
        unmount(where)
        taker.close()


def open_for(where, path):
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    if not is_mounted(where):
        os.makedirs(where, exist_ok=True)
    if os.path.exists(path):
        os.unlink(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        # Permissions of the socket's directory decide which users can connect.  The
        # socket has its mode from the start, since one may connect at once.
        mask = os.umask(0o111)
        listener.bind(path)
        os.umask(mask)
        listener.listen(1)
        try:
            while True:
                serve_one(listener, where)
        finally:
            unmount(where)


def connect(path):
    taker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    end = time.monotonic() + CONNECT_SECONDS
    while True:
        try:
            taker.connect(path)
            return taker
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def take_and_run(path, command):
    taker = connect(path)
    _, devices, _, _ = socket.recv_fds(taker, 16, 1)
    if not devices:
        sys.exit(f"{path}: no descriptor was sent")
    # The connection stays open until the program ends, which the other side notices.
    for fd in (taker.fileno(), devices[0]):
        os.set_inheritable(fd, True)
    os.execvp(command[0], [*command, f"/dev/fd/{devices[0]}"])


def main(argv):
    if len(argv) == 4 and argv[1] == "open":
        open_for(argv[2], argv[3])
    elif len(argv) > 4 and argv[1] == "take":
        take_and_run(argv[2], argv[3:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv)
