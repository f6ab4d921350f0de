#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a service manager is told through NOTIFY_SOCKET, and the unit that
asks for it."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import make_tree  # noqa: E402
from demands import check, content, write  # noqa: E402
from rsh_mount import TIMEOUT_SCALE, Tap, mount_command, reshardfs_program  # noqa: E402

UNIT = os.path.join(os.path.dirname(reshardfs_program()), "..", "mount-helpers",
                    "reshardfs@.service")


def listen(name):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(name)
    s.settimeout(30 * TIMEOUT_SCALE)
    return s


def start(top, mountpoint, name, **options):
    command = mount_command(os.path.join(top, "source"), mountpoint,
                            src_strategy=os.path.join(top, "source.ckpt"),
                            dst_strategy=os.path.join(top, "wanted.ckpt"),
                            **options)
    return subprocess.Popen(command, env={**os.environ, "NOTIFY_SOCKET": name},
                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True)


def ready_and_stopping(top, address, name):
    mountpoint = tempfile.mkdtemp(dir=top)
    with listen(address) as s:
        daemon = start(top, mountpoint, name)
        try:
            said = s.recv(100)
            check(said == b"READY=1", said)
            # Ready means that no waiting is needed.
            check("rank_3" in os.listdir(mountpoint), "READY=1 before it answers")
            daemon.send_signal(signal.SIGTERM)
            said = s.recv(100)
            check(said == b"STOPPING=1", said)
            check(daemon.wait(30 * TIMEOUT_SCALE) == 0, daemon.returncode)
            check(os.listdir(mountpoint) == [], "still mounted")
        finally:
            end(daemon, mountpoint)


def in_the_background(top):
    mountpoint = tempfile.mkdtemp(dir=top)
    name = os.path.join(top, "background")
    with listen(name) as s:
        command = start(top, mountpoint, name, foreground=False)
        try:
            # A daemon keeps no stderr of others.
            check(command.wait(60 * TIMEOUT_SCALE) == 0, command.returncode)
            check(s.recv(100) == b"READY=1", "not ready")
        finally:
            subprocess.run([reshardfs_program(), "umount", mountpoint], check=False)
        check(s.recv(100) == b"STOPPING=1", "not stopping")


def not_ready_if_it_fails(top):
    name = os.path.join(top, "fails")
    with listen(name) as s:
        daemon = start(top, os.path.join(top, "nowhere"), name)
        check(daemon.wait(60 * TIMEOUT_SCALE) == 3, daemon.returncode)
        s.setblocking(False)
        try:
            check(False, f"it said {s.recv(100)}")
        except BlockingIOError:
            pass


def nobody_listens(top):
    """The mount is there all the same, with a warning."""
    mountpoint = tempfile.mkdtemp(dir=top)
    daemon = start(top, mountpoint, os.path.join(top, "nobody"))
    try:
        line = next((line for line in daemon.stderr if "NOTIFY" in line), "")
        check("warning: NOTIFY_SOCKET" in line and "No such file" in line, line)
        check("rank_3" in os.listdir(mountpoint), "not mounted")
    finally:
        end(daemon, mountpoint)


def end(daemon, mountpoint):
    if daemon.poll() is None:
        daemon.terminate()
        daemon.wait(30 * TIMEOUT_SCALE)
    if os.path.ismount(mountpoint):
        subprocess.run(["fusermount3", "-u", "-z", mountpoint], check=False)


def unit():
    """It names the installed program and asks for what is sent."""
    text = content(UNIT).decode()
    check("@" not in re.sub(r"reshardfs@", "", text), "something is not filled in")
    check(re.search(r"^Type=notify$", text, re.M), "no Type=notify")
    check(re.search(r"^ExecStart=/\S*/reshardfs mount --foreground ", text, re.M),
          "no ExecStart")


def unit_verified(top):
    """systemd itself takes it, with the program where it was built."""
    text = re.sub(r"/\S*/bin/reshardfs\b", reshardfs_program(), content(UNIT).decode())
    copy = os.path.join(top, "reshardfs@.service")
    write(copy, text.encode())
    done = subprocess.run(["systemd-analyze", "verify", "--man=no",
                           os.path.join(top, "reshardfs@a.service")],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    said = [line for line in done.stdout.splitlines() if "reshardfs" in line]
    check(done.returncode == 0 and not said, done.stdout)


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-notify-") as top:
        make_tree.main(top)
        with tap.test("READY=1 when it answers, STOPPING=1 when it ends"):
            name = os.path.join(top, "socket")
            ready_and_stopping(top, name, name)
        with tap.test("a socket with an abstract name"):
            name = f"reshardfs-test-{os.getpid()}"
            ready_and_stopping(top, "\0" + name, "@" + name)
        with tap.test("without --foreground"):
            in_the_background(top)
        with tap.test("a mount that fails is never ready"):
            not_ready_if_it_fails(top)
        with tap.test("a socket that is not there does not keep it from mounting"):
            nobody_listens(top)
        with tap.test("the unit"):
            unit()
        verified = "systemd-analyze verify takes the unit"
        if shutil.which("systemd-analyze"):
            with tap.test(verified):
                unit_verified(top)
        else:
            tap.skip(verified, "there is no systemd-analyze")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
