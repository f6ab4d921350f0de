#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A mount that a privileged process makes for a daemon without privileges, as
mount-helpers/examples/fuse_fd.py does it; and what `mount` says where it cannot mount."""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, content, within  # noqa: E402
from rsh_mount import (TIMEOUT_SCALE, Tap, hash_tree, is_mount_point,  # noqa: E402
                       require_mount, reshardfs_program, skip_all)

TOP = os.path.abspath(os.environ.get("top_srcdir",
                                     os.path.join(os.environ.get("srcdir", "."), "..")))
FUSE_FD = os.path.join(TOP, "mount-helpers", "examples", "fuse_fd.py")
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
NO_RIGHTS = [*NOBODY, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
# That of the tests may be in a home that others cannot enter.
PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
CONTAINER = ("in a container, start it with --device /dev/fuse --cap-add SYS_ADMIN; "
             "export and the Python module need no mount\n")


class Place:
    """The demo, where nobody may read, and a copy of the program, which nobody may run."""

    def __init__(self, directory):
        os.chmod(directory, 0o755)
        self.directory = directory
        self.socket = self.at("run", "socket")
        self.path = self.at("mnt")
        self.program = shutil.copy(reshardfs_program(), self.at("reshardfs"))
        self.tool = shutil.copy(FUSE_FD, self.at("fuse_fd.py"))
        shutil.copytree(os.path.join(TOP, "tests/data/demo"), self.at("demo"))
        subprocess.run(["chmod", "-R", "a+rX", directory], check=True)
        os.mkdir(self.path)
        os.mkdir(self.at("run"))
        os.mkdir(self.at("home"), 0o777)
        self.expected = dict(reversed(line.split()) for line in
                             content(self.at("demo", "SHA256SUMS")).decode().splitlines())

    def at(self, *names):
        return os.path.join(self.directory, *names)

    def mount_command(self, *last, strategy="strategy_8_cards.ckpt"):
        return [self.program, "mount", "--foreground",
                "--src-strategy", self.at("demo", strategy),
                "--dst-strategy", self.at("demo", "strategy_4_cards.ckpt"),
                self.at("demo", "checkpoint"), *last]

    def start(self, *command):
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                stderr=subprocess.STDOUT, text=True, cwd="/",
                                env={**os.environ, "HOME": self.at("home"),
                                     "XDG_CACHE_HOME": self.at("home")})

    def opener(self):
        return self.start(sys.executable, self.tool, "open", self.path, self.socket)

    def taker(self, *around):
        return self.start(*around, PYTHON, self.tool, "take", self.socket,
                          *self.mount_command())

    def refused(self, *command, **keywords):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False, **keywords)
        return done.returncode, done.stdout


@contextlib.contextmanager
def ended(process):
    """Ends with the block, however that ends."""
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        said = process.communicate()[0]
        if said:
            print("# " + said.replace("\n", "\n# "), flush=True)


def status_of(pid):
    return dict(re.findall(r"^(\w+):\s*(.*)$", content(f"/proc/{pid}/status").decode(), re.M))


def test_taker(tap, p, name, *around):
    with tap.test(f"{name}: the bytes are the converter's"), ended(p.taker(*around)) as taker:
        within(30, lambda: is_mount_point(p.path), "no mount")
        found = {name: digest for name, (_, digest) in hash_tree(p.path).items()}
        check(found == p.expected, found)
        said = status_of(taker.pid)
        check(said["Uid"].split()[0] == "65534" and said["NoNewPrivs"] == "1", said)
        if "unshare" not in around:
            check(int(said["CapEff"], 16) == 0, said)
        taker.send_signal(signal.SIGTERM)
        check(taker.wait(30 * TIMEOUT_SCALE) == 0, "it failed")
    with tap.test(f"{name}: the opener unmounts when the daemon has ended"):
        within(30, lambda: not is_mount_point(p.path), "it is mounted")


def test_opener(tap, p):
    with ended(p.opener()) as opener:
        test_taker(tap, p, "a user without capabilities", *NO_RIGHTS)
        name = "a user namespace"
        if subprocess.run([*NOBODY, "unshare", "-Ur", "true"], check=False).returncode:
            tap.skip(name, "there are no user namespaces")
        else:
            test_taker(tap, p, name, *NOBODY, "unshare", "-Ur")
        with tap.test("the end of the opener ends the mount"), \
                ended(p.taker(*NO_RIGHTS)) as taker:
            within(30, lambda: is_mount_point(p.path), "no mount")
            check(os.listdir(p.path), "it is empty")
            opener.send_signal(signal.SIGTERM)
            check(opener.wait(30 * TIMEOUT_SCALE) == 0, "it failed")
            check(taker.wait(30 * TIMEOUT_SCALE) == 0, "the daemon failed")
            check(not is_mount_point(p.path), "it is mounted")


def test_wrong_descriptors(tap, p):
    with tap.test("a descriptor that is closed"):
        status, said = p.refused(*p.mount_command("/dev/fd/77"))
        check(status == 4 and said == "reshardfs: error: mount point /dev/fd/77: Bad file "
              "descriptor\n", said)
    with tap.test("a descriptor of something else"):
        status, said = p.refused(*p.mount_command("/dev/fd/0"))
        check(status == 4 and said == "reshardfs: error: mount point /dev/fd/0: the "
              "descriptor is not one of /dev/fuse\n", said)


def test_cannot_mount(tap, p):
    """In a mount namespace, since /dev and /usr/bin are covered."""
    run = p.at("setpriv")
    shutil.copy(shutil.which("setpriv"), run)
    cover = [os.path.join(os.environ.get("srcdir", "."), "lib", "own_mounts.sh"), "sh", "-c",
             'mount -t tmpfs none "$0" && exec "$@"']
    nowhere = {"env": {"PATH": "/sbin:/usr/sbin:/bin:/usr/bin", "HOME": p.at("home")}}
    if p.refused(*cover, "/usr/bin", "/sbin/ldconfig", "-V")[0]:
        tap.skip("what a machine says that cannot mount", "no mount namespace")
        return
    with tap.test("no /dev/fuse"):
        status, said = p.refused(*cover, "/dev", *p.mount_command(p.path), **nowhere)
        check(status == 4 and said == "reshardfs: error: there is no /dev/fuse: load the "
              f"kernel module (modprobe fuse); {CONTAINER}", said)
    with tap.test("root without the right to mount, and no fusermount3"):
        status, said = p.refused(*cover, "/usr/bin", run, "--bounding-set=-sys_admin",
                                 *p.mount_command(p.path), **nowhere)
        check(status == 4 and said == f"reshardfs: error: this process may not mount; {CONTAINER}",
              said)
    with tap.test("a user, and no fusermount3"):
        status, said = p.refused(*cover, "/usr/bin", run, *NOBODY[1:],
                                 *p.mount_command(p.path), **nowhere)
        check(status == 4 and said == "reshardfs: error: there is no fusermount3, which mounts "
              "for users: install the package fuse3, or mount as root\n", said)
    with tap.test("nothing is read for a mount that cannot be"):
        _, said = p.refused(*cover, "/dev", *p.mount_command(p.path,
                                                               strategy="SHA256SUMS"),
                            **nowhere)
        check("no /dev/fuse" in said, said)


def main():
    require_mount()
    if os.getuid():
        skip_all("needs root")
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-handed-") as directory:
        p = Place(directory)
        test_opener(tap, p)
        test_wrong_descriptors(tap, p)
        test_cannot_mount(tap, p)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
