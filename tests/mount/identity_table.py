#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A source file that becomes another one is never mixed with it: on each kind of
file system, for each way of changing it, and for everything that remembers files.

Both versions of the file have equal sizes and the same tensors in another order.
A reader may get an error.  All bytes that it gets are those of one version, and
who mounts after the change gets the new one.  The table is printed.  mount/nfs.py has NFS, in a guest.

    identity_table.py [--quick] [NAME ...]
"""

import concurrent.futures
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import memcached  # noqa: E402
from demands import write  # noqa: E402
from ms_formats import Record, checkpoint_bytes  # noqa: E402
from rsh_mount import Skipped, Tap, require_mount, reshardfs_program  # noqa: E402

TENSOR = 256 << 10
FILE = os.path.join("rank_0", "net-1_1.ckpt")
OLD = 1_500_000_000_123_456_789  # the mtime of files, in ns
CHANGES = ("replaced", "in place", "times restored", "mounted anew")
STORED = ("index cache", "cache-dir", "servers")
RUNNING = ("running", "steps", "resume")
# Files that changed a moment ago are not stored.  Kernels ask FUSE servers for
# attributes once a second, and --steps looks as often.
SETTLED = 3.2
TOLD = 2.5
QUICK = ("ext4", "tmpfs", "overlay", "reshardfs")
# sshfs returns the mtime as ctime.  Nothing tells such a change there, and the
# manual says so.
UNTOLD = {("sshfs", "times restored", use) for use in RUNNING}


def content(version):
    """The file in a version, 1 or 2."""
    part = [hashlib.shake_128(b"%d %d" % (version, i)).digest(TENSOR) for i in (0, 1)]
    names = ("aaaa", "bbbb") if version == 1 else ("bbbb", "aaaa")
    return checkpoint_bytes({name: Record((TENSOR // 4,), "Float32", data)
                      for name, data in zip(names, part)})


BYTES = {version: content(version) for version in (1, 2)}


def run(*command, **how):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          check=False, timeout=60, **how)
    if done.returncode:
        raise OSError(f"{command[0]}: {done.stdout.strip()}")
    return done.stdout


def write_tree(root, version):
    path = os.path.join(root, FILE)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write(path, BYTES[version])
    os.utime(path, ns=(OLD, OLD))
    return path


# ---- file systems ----

class Place:
    """A directory with version 1 on some file system."""

    needs = ()        # programs
    changes = CHANGES
    uses = STORED + RUNNING
    may_lack = True  # a machine may not have it
    keeps_ctime = True  # None: it depends on the file

    def __init__(self, directory):
        self.directory = directory
        self.root = os.path.join(directory, "root")
        self.source = self.root
        os.makedirs(self.root)
        for program in self.needs:
            if not shutil.which(program):
                raise Skipped(f"there is no {program}")
        try:
            self.put(1)
        except OSError as why:
            if not self.may_lack:
                raise
            raise Skipped(str(why)) from why

    def put(self, version):
        """Mounts what has the version."""
        raise NotImplementedError

    def take_away(self):
        if os.path.ismount(self.root):
            run("umount", "-l", self.root)

    def writable(self):
        """The root of a tree that can be written."""
        return self.root

    def change(self, how):
        path = os.path.join(self.writable(), FILE)
        if how == "replaced":
            write(path + ".new", BYTES[2])
            os.rename(path + ".new", path)
        elif how != "mounted anew":
            with open(path, "r+b") as f:
                f.write(BYTES[2])
            if how == "times restored":
                os.utime(path, ns=(OLD, OLD))
        else:
            self.take_away()
            self.put(2)


class Image(Place):
    make = ()
    size = 64 << 20

    def image(self):
        path = os.path.join(self.directory, "image")
        if os.path.exists(path):
            os.unlink(path)  # a mount that stays may still have it
        with open(path, "wb") as f:
            f.truncate(self.size)
        return path

    def put(self, version):
        path = self.image()
        self.format(path)
        run("mount", "-o", "loop", path, self.root)
        write_tree(self.root, version)

    def format(self, path):
        """mkfs.btrfs looks at all mounts, and other tests may have one whose server is dead."""
        end = time.monotonic() + 60
        while True:
            try:
                return run(*self.make, path)
            except OSError as error:
                if "mount status" not in str(error) or time.monotonic() > end:
                    raise
                time.sleep(0.2)


class Ext4(Image):
    needs = ("mkfs.ext4",)
    make = ("mkfs.ext4", "-q", "-F")


class Xfs(Image):
    needs = ("mkfs.xfs",)
    make = ("mkfs.xfs", "-q", "-f")
    size = 320 << 20


class Btrfs(Image):
    needs = ("mkfs.btrfs",)
    make = ("mkfs.btrfs", "-q", "-f")
    size = 128 << 20


class Fixed(Place):
    """An image whose files all have the same times."""

    changes = ("mounted anew",)
    options = ("-o", "ro,loop")

    def put(self, version):
        tree = os.path.join(self.directory, f"tree_{version}")
        write_tree(tree, version)
        image = os.path.join(self.directory, "image")
        if os.path.exists(image):
            os.unlink(image)
        self.pack(tree, image)
        self.mount(image)

    def mount(self, image):
        run("mount", *self.options, image, self.root)


class Ext4Fixed(Fixed):
    needs = ("mke2fs",)

    def pack(self, tree, image):
        run("mke2fs", "-q", "-t", "ext4", "-d", tree, image, "16M",
            env={**os.environ, "E2FSPROGS_FAKE_TIME": "1500000000"})


class Squashfs(Fixed):
    needs = ("mksquashfs",)
    keeps_ctime = False

    def pack(self, tree, image):
        run("mksquashfs", tree, image, "-all-time", "0", "-mkfs-time", "0", "-quiet")


class Erofs(Fixed):
    needs = ("mkfs.erofs",)
    keeps_ctime = False

    def pack(self, tree, image):
        run("mkfs.erofs", "-T0", image, tree)


class Squashfuse(Squashfs):
    needs = ("mksquashfs", "squashfuse")

    def mount(self, image):
        run("squashfuse", image, self.root)


class OverlayFixed(Squashfs):
    """Its lower layer has files with fixed times."""

    def mount(self, image):
        lower = os.path.join(self.directory, "lower")
        for name in (lower, "upper", "work"):
            os.makedirs(os.path.join(self.directory, name), exist_ok=True)
        if os.path.ismount(lower):
            run("umount", "-l", lower)
        run("mount", "-o", "ro,loop", image, lower)
        run("mount", "-t", "overlay", "-o", f"lowerdir={lower},upperdir="
            f"{self.directory}/upper,workdir={self.directory}/work", "none", self.root)

    def take_away(self):
        super().take_away()
        lower = os.path.join(self.directory, "lower")
        if os.path.ismount(lower):
            run("umount", "-l", lower)


class Tmpfs(Place):
    def put(self, version):
        run("mount", "-t", "tmpfs", "-o", "size=8m", "none", self.root)
        write_tree(self.root, version)


class Overlay(Place):
    def put(self, version):
        at = os.path.join(self.directory, f"layers_{version}")
        for name in ("upper", "work"):
            os.makedirs(os.path.join(at, name))
        write_tree(os.path.join(at, "lower"), version)
        run("mount", "-t", "overlay", "-o", f"lowerdir={at}/lower,upperdir={at}/upper,"
            f"workdir={at}/work", "none", self.root)


class Shown(Place):
    """A FUSE server that shows a directory."""

    keeps_ctime = None

    def put(self, version):
        shown = os.path.join(self.directory, f"shown_{version}")
        write_tree(shown, version)
        self.show(shown)

    def writable(self):
        return os.path.join(self.directory, "shown_1")


class Bindfs(Shown):
    needs = ("bindfs",)

    def show(self, shown):
        run("bindfs", shown, self.root)


class FuseOverlayfs(Shown):
    needs = ("fuse-overlayfs",)

    def show(self, shown):
        at = f"{shown}_"
        for name in ("upper", "work"):
            os.makedirs(at + name)
        run("fuse-overlayfs", "-o", f"lowerdir={shown},upperdir={at}upper,"
            f"workdir={at}work", self.root)

    def writable(self):
        return self.root


class Sshfs(Shown):
    """It keeps attributes for 20 s by default, and the manual says what that means."""

    needs = ("sshfs", "/usr/lib/openssh/sftp-server")
    keeps_ctime = False

    def show(self, shown):
        server = os.path.join(self.directory, "server")
        write(server, b"#!/bin/sh\nexec /usr/lib/openssh/sftp-server\n")
        os.chmod(server, 0o755)
        run("sshfs", f"x:{shown}", self.root, "-o", f"ssh_command={server}",
            "-o", "dcache_timeout=1")


class Reshardfs(Place):
    """One of our own mounts: both versions have the same times."""

    may_lack = False
    changes = ("mounted anew",)
    uses = (*STORED, "running")

    def put(self, version):
        shown = os.path.join(self.directory, f"shown_{version}")
        write_tree(shown, version)
        run(reshardfs_program(), "mount", "--index-cache", "off", "--src-strategy",
            "none", "--dst-strategy", "none", shown, self.root)


class ReshardfsSteps(Reshardfs):
    """A step that another mount shows."""

    changes = CHANGES

    def put(self, version):
        self.shown = os.path.join(self.directory, f"shown_{version}")
        write_tree(self.shown, version)
        run(reshardfs_program(), "mount", "--index-cache", "off", "--steps", "all",
            "--steps-interval", "1", "--src-strategy", "none", "--dst-strategy",
            "none", self.shown, self.root)
        self.source = os.path.join(self.root, "1_1")

    def writable(self):
        return self.shown


PLACES = {
    "ext4": Ext4, "ext4, fixed times": Ext4Fixed, "xfs": Xfs, "btrfs": Btrfs,
    "tmpfs": Tmpfs, "overlay": Overlay, "overlay on squashfs": OverlayFixed,
    "squashfs": Squashfs, "erofs": Erofs, "bindfs": Bindfs,
    "fuse-overlayfs": FuseOverlayfs, "squashfuse": Squashfuse, "sshfs": Sshfs,
    "reshardfs": Reshardfs, "reshardfs --steps": ReshardfsSteps,
}


# ---- uses ----

class Use:
    """One mount of a place, before and after it changes."""

    def __init__(self, place, name, servers):
        self.place, self.name = place, name
        self.at = os.path.join(place.directory, name.replace(" ", "_"))
        os.makedirs(self.at)
        self.source = getattr(place, "source", place.root)
        self.servers = servers
        self.mounted = False

    def words(self):
        kept = os.path.join(self.place.directory, "kept")
        ways = {
            "index cache": ("--index-cache", kept, "--cache", "off"),
            "cache-dir": ("--index-cache", "off", "--cache", "on", "--cache-dir", kept),
            "servers": ("--index-cache", "off", "--cache", "on", "--cache-servers",
                        self.servers),
            "steps": ("--steps", "all", "--steps-interval", "1"),
        }
        words = ways.get(self.name, ("--index-cache", "off", "--cache", "off"))
        if self.name == "resume":
            return ("--resume", *words)
        return ("--src-strategy", "none", "--dst-strategy", "none", *words)

    def mount(self):
        run(reshardfs_program(), "mount", "--io-mode", "direct", "--log-level", "info",
            "--log-to", f"file:{self.at}.log", *self.words(), self.source, self.at)
        self.mounted = True

    def unmount(self):
        if self.mounted:
            run(reshardfs_program(), "umount", "--force", self.at)
        self.mounted = False

    def says(self):
        """What the log says about a file system without ctimes."""
        with open(f"{self.at}.log", encoding="utf-8") as f:
            said = f.read()
        return [words for words in (
            "the index cache is not used: the file system does not keep",
            "blocks are cached in memory alone, since the file system does not keep",
        ) if words in said]

    def file(self):
        for at, _, names in sorted(os.walk(self.at)):
            for name in names:
                if name.endswith(".ckpt") and ".reshardfs" not in at and \
                        "latest" not in at:
                    return os.path.join(at, name)
        raise OSError("it shows no file")

    def whole(self):
        with open(self.file(), "rb", buffering=0) as f:
            got = b""
            while part := f.read(64 << 10):
                got += part
        return got

    def before(self):
        """Reads the old version; a running mount keeps a file open."""
        self.mount()
        self.expected = self.whole()
        if self.name in STORED:
            self.unmount()
            return
        self.fd = os.open(self.file(), os.O_RDONLY)
        self.head = os.pread(self.fd, 4096, 0)

    def after(self, new):
        """Returns what a reader gets; `new` is the whole new version."""
        if self.name in STORED:
            try:
                self.mount()
                return "right" if self.whole() == new else "WRONG"
            except (OSError, subprocess.TimeoutExpired):
                return "error"
        # The open file goes on: old bytes or an error.
        try:
            tail = os.pread(self.fd, 4096, len(self.expected) - 4096)
            said = "right" if tail == self.expected[-4096:] else "WRONG"
        except OSError:
            said = "error"
        finally:
            os.close(self.fd)
        try:
            got = self.whole()
        except OSError:
            return said if said == "WRONG" else "error"
        return said if got == self.expected or \
            self.name == "steps" and got == new else "WRONG"


class Row:
    """A file system and a way of changing a file.  What is stored and what runs are
    tried in places of their own: a mount that runs keeps the old file system."""

    def __init__(self, directory, name, how, servers):
        self.how = how
        self.cells = {}
        self.uses, self.places = [], []
        for kind in (STORED, RUNNING):
            place = PLACES[name](os.path.join(directory, kind[0].replace(" ", "_")))
            self.places.append(place)
            self.uses.append([Use(place, use, servers) for use in kind
                              if use in place.uses and (servers or use != "servers")])

    def before(self):
        for uses in self.uses:
            for use in uses:
                use.before()

    def change(self):
        for place in self.places:
            place.change(self.how)

    def after(self, new):
        for use in (use for uses in self.uses for use in uses):
            self.cells[use.name] = use.after(new)
        for use in self.uses[0]:
            if use.place.keeps_ctime is bool(use.says()):
                self.cells[use.name] = "WRONG: " + str(use.says())

    def clean(self):
        for place, uses in zip(self.places, self.uses):
            for use in uses:
                use.unmount()
            place.take_away()


def new_content(directory):
    """What a mount shows of the new version on a plain directory."""
    class Plain:
        pass
    Plain.directory = os.path.join(directory, "plain")
    Plain.root = os.path.join(Plain.directory, "root")
    write_tree(Plain.root, 2)
    fresh = Use(Plain, "fresh", None)
    fresh.mount()
    got = fresh.whole()
    fresh.unmount()
    return got


def rows_of(tap, directory, names, servers):
    rows = {}
    for name in names:
        for how in PLACES[name].changes:
            try:
                rows[name, how] = Row(os.path.join(directory, f"{name} {how}".replace(
                    ",", "").replace(" ", "_")), name, how, servers)
            except Skipped as why:
                tap.skip(name, why)
                break
    return rows


def trial(tap, directory, names, servers):
    new = new_content(directory)
    rows = rows_of(tap, directory, names, servers)
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        def each(what):
            for done in [pool.submit(what, row) for row in rows.values()]:
                done.result()
        try:
            time.sleep(SETTLED)  # so that files are old enough to be stored
            each(Row.before)
            each(Row.change)
            time.sleep(TOLD)
            each(lambda row: row.after(new))
        finally:
            each(Row.clean)
    width = max(len(f"{name}, {how}") for name, how in rows) + 1
    uses = [*STORED, *RUNNING]
    tap.diag(" " * width + "".join(f"{use:12}" for use in uses))
    for (name, how), row in rows.items():
        tap.diag(f"{name + ', ' + how:{width}}" +
                 "".join(f"{row.cells.get(use, '-'):12}" for use in uses))
        wrong = [use for use, said in row.cells.items()
                 if said.startswith("WRONG") and (name, how, use) not in UNTOLD]
        tap.ok(row.cells and not wrong, f"{name}, {how}", f"wrong bytes: {wrong}")


def main():
    require_mount()
    names = [n for n in sys.argv[1:] if n in PLACES] or (
        QUICK if "--quick" in sys.argv else PLACES)
    tap = Tap()
    if os.geteuid() != 0:
        tap.skip("all file systems", "only root mounts file systems")
        return tap.finish()
    with tempfile.TemporaryDirectory(prefix="rsh-identity-") as directory:
        if shutil.which("memcached"):
            with memcached.Memcached() as server:
                trial(tap, directory, names, server.address)
        else:
            trial(tap, directory, names, None)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
