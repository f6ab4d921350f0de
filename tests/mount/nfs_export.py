#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A mount that the kernel's server of NFS exports, in a guest with a kernel of Debian's where
this one has none: the bytes of its files, also of handles that the server has forgotten."""

import os
import shutil
import subprocess
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

import guest  # noqa: E402
from demands import check, content, write  # noqa: E402
from rsh_mount import (TIMEOUT_SCALE, Mounted, Tap, hash_tree, require_mount,  # noqa: E402
                       require_named, skip_all)

PROGRAMS = ["exportfs", "rpc.mountd", "rpc.nfsd", "mount.nfs4"]
DEMO = os.path.join(HERE, "data", "demo")
# A guest's processors are programs.
SLOW = 4


def do(*words):
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


def forget():
    """The kernel keeps no file, name or page that nobody uses."""
    os.sync()
    write("/proc/sys/vm/drop_caches", b"3")


class Server:
    """Of one directory, for this machine."""

    def __init__(self, path):
        do("mount", "-t", "tmpfs", "state", "/var/lib/nfs")
        for name in ("etab", "rmtab"):
            write(f"/var/lib/nfs/{name}", b"")
        os.makedirs("/var/lib/nfs/v4recovery")
        do("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
        for name in ("nfsv4leasetime", "nfsv4gracetime"):
            write(f"/proc/fs/nfsd/{name}", b"10")
        do("exportfs", "-i", "-o", "ro,fsid=0,insecure,no_subtree_check", f"127.0.0.1:{path}")
        do("rpc.mountd", "-N", "3", "-u")
        self.start()

    def start(self):
        do("rpc.nfsd", "-N", "3", "-U", "2")

    def stop(self):
        do("rpc.nfsd", "0")


def exported(tap, directory):
    seen = os.path.join(directory, "seen")
    os.mkdir(seen)
    with Mounted(os.path.join(DEMO, "checkpoint"), extra=["-o", "allow_other"],
                 src_strategy=os.path.join(DEMO, "strategy_8_cards.ckpt"),
                 dst_strategy=os.path.join(DEMO, "strategy_4_cards.ckpt")) as mount:
        shown = mount.path
        wanted, server = hash_tree(shown), Server(shown)
        do("mount", "-i", "-t", "nfs4", "-o", "vers=4.2,addr=127.0.0.1,clientaddr=127.0.0.1",
           "127.0.0.1:/", seen)
        try:
            with tap.test("the files of the mount"):
                check(hash_tree(seen) == wanted, hash_tree(seen))
            with tap.test("after all was forgotten"):
                forget()
                check(hash_tree(seen) == wanted, hash_tree(seen))
            with tap.test("a file that stays open while the server starts again"):
                path = os.path.join("rank_1", "checkpoint_1.ckpt")
                with open(os.path.join(seen, path), "rb") as f:
                    head = f.read(100)
                    server.stop()
                    forget()
                    server.start()
                    check(head + f.read() == content(os.path.join(shown, path)), "other bytes")
        finally:
            do("umount", "-f", "-l", seen)
            server.stop()
            do("exportfs", "-ua")


def main():
    require_mount()
    served = "\tnfsd\n" in content("/proc/filesystems").decode() and os.environ.get("RSH_IN_GUEST")
    lacks = [p for p in PROGRAMS + ([] if served else guest.PROGRAMS) if not shutil.which(p)]
    if served and not lacks:
        tap = Tap()
        with tempfile.TemporaryDirectory() as directory:
            exported(tap, directory)
        return tap.finish()
    kernel = require_named("RSH_GUEST_KERNEL", "a kernel with NFS")
    if lacks:
        skip_all(f"there is no {lacks[0]}")
    # What the server is told stays in the guest.
    os.environ.update(RSH_TIMEOUT_SCALE=str(SLOW * TIMEOUT_SCALE), RSH_IN_GUEST="yes")
    return guest.run(kernel, ["nfsv4", "nfsd"],
                     [sys.executable, "-B", os.path.join(HERE, "mount", "nfs_export.py")])


if __name__ == "__main__":
    sys.exit(main())
