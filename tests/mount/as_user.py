#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A user without privileges mounts, asks about the mount and unmounts it, also when its
daemon does not answer; mounts of others are refused."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

LIB = os.path.abspath(os.path.join(os.environ.get("srcdir", "."), "lib"))
sys.path.insert(0, LIB)

from demands import check  # noqa: E402
from privileges import own_mounts  # noqa: E402
from rsh_cli import GOOD  # noqa: E402
from rsh_mount import (TIMEOUT_SCALE, Mounted, Skipped, Tap, is_mount_point,  # noqa: E402
                       require_mount, reshardfs_program, skip_all)

TOP = os.path.abspath(os.environ.get("top_srcdir",
                                     os.path.join(os.environ.get("srcdir", "."), "..")))
USER = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class Place:
    """The demo and the program, where another user can use them."""

    def __init__(self, directory):
        os.chmod(directory, 0o755)
        self.directory = directory
        self.program = shutil.copy(reshardfs_program(), self.at("reshardfs"))
        shutil.copytree(os.path.join(TOP, "tests/data/demo"), self.at("demo"))
        subprocess.run(["chmod", "-R", "a+rX", directory], check=True)
        self.path = self.at("user", "mnt")
        os.makedirs(self.path)
        for path in (self.at("user"), self.path):
            os.chown(path, 65534, 65534)
        self.sides = ["--src-strategy", self.at("demo", "strategy_8_cards.ckpt"),
                      "--dst-strategy", self.at("demo", "strategy_4_cards.ckpt")]

    def at(self, *names):
        return os.path.join(self.directory, *names)

    def run(self, command, *words):
        done = subprocess.run(
            [*USER, self.program, command, *words], stdin=subprocess.DEVNULL, cwd="/",
            env={"PATH": os.environ["PATH"], "HOME": self.at("user")}, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        return done.returncode, done.stdout

    def mount(self):
        return self.run("mount", "-q", *self.sides, self.at("demo", "checkpoint"), self.path)


def good(got, *words):
    check(got[0] == GOOD and all(word in got[1] for word in words), got)


def test_own(tap, p):
    with tap.test("a user mounts"):
        good(p.mount())
        check(is_mount_point(p.path), "nothing is mounted")
    with tap.test("ls, stats, warm and verify answer"):
        good(p.run("ls", p.path), "complete")
        got = p.run("stats", p.path)
        good(got, p.at("demo", "checkpoint"))
        good(p.run("warm", p.path))
        good(p.run("verify", p.path))
    with tap.test("what cp -r makes of it can be removed"):
        subprocess.run([*USER, "sh", "-ec", 'cp -r "$0" "$1" && rm -rf "$1" && test ! -e "$1"',
                        p.path, p.at("user", "copied")], check=True)
    with tap.test("the user unmounts it"):
        good(p.run("umount", p.path))
        check(not is_mount_point(p.path), "it is still mounted")


def test_stopped(tap, p):
    with tap.test("umount of a mount whose daemon is stopped ends and says how"):
        good(p.mount())
        pid = int(re.search(r'"pid": *(\d+)',
                            subprocess.run([*USER, "cat", f"{p.path}/.reshardfs/config"],
                                           check=True, capture_output=True, text=True).stdout)[1])
        os.kill(pid, signal.SIGSTOP)
        began = time.monotonic()
        status, said = p.run("umount", "--force", p.path)
        took = time.monotonic() - began
        check(status == GOOD and "by force" in said, (status, said))
        check(took < 40 * TIMEOUT_SCALE, f"{took:.0f} s")
        check(not is_mount_point(p.path), "it is still mounted")


def test_of_others(tap, p):
    with Mounted(p.at("demo", "checkpoint"), src_strategy=p.sides[1], dst_strategy=p.sides[3],
                 mountpoint=p.at("roots")) as mount:
        for command in ("ls", "stats", "warm", "verify"):
            with tap.test(f"{command} of root's mount: one sentence"):
                status, said = p.run(command, mount.path)
                check(status != GOOD and said.count("\n") == 1 and
                      re.search("access denied|[Pp]ermission denied", said), (status, said))
        with tap.test("umount of root's mount: one sentence, and it stays"):
            status, said = p.run("umount", mount.path)
            check(status != GOOD and said.count("error:") == 1, (status, said))
            check(is_mount_point(mount.path), "it is gone")


def open_fuse():
    """Distributions let everybody open /dev/fuse.  Where this machine does not, the
    program runs again in a mount namespace with such a device."""
    if os.getuid() or not shutil.which("setpriv"):
        skip_all("root is needed to become another user")
    if not subprocess.run([*USER, "test", "-w", "/dev/fuse"], check=False).returncode:
        return
    if "FUSE_IS_OPEN" in os.environ:
        skip_all("users cannot open /dev/fuse here")
    os.environ["FUSE_IS_OPEN"] = "tried"
    try:
        again = own_mounts('RSH_OPEN_FUSE=namespace; . "$1"; shift; exec "$@"',
                           os.path.join(LIB, "open_fuse.sh"), sys.executable, *sys.argv)
    except Skipped as skipped:
        skip_all(str(skipped))
    os.execv(again[0], again)


def main():
    require_mount()
    open_fuse()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-user-") as directory:
        p = Place(directory)
        test_own(tap, p)
        test_stopped(tap, p)
        test_of_others(tap, p)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
