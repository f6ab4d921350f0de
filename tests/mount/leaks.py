#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Nothing grows with the number of opens or of mounts.

One mount is opened and read RSH_LEAK_OPENS (2000) times, in each mode: its
descriptors, threads and memory are then what they were after the first quarter.
RSH_LEAK_MOUNTS (20) mounts come and go as daemons and leave no process, no
mount and no file behind.
"""

import concurrent.futures
import mmap
import os
import random
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import make_tree  # noqa: E402
from daemon_use import (daemons_of, field, is_sanitized, mounts_below,  # noqa: E402
                        n_descriptors)
from rsh_mount import (TIMEOUT_SCALE, MountError, Mounted, Tap,  # noqa: E402
                       hash_tree, mount_command, require_mount, tree_difference)

OPENS = int(os.environ.get("RSH_LEAK_OPENS", "2000"))
MOUNTS = int(os.environ.get("RSH_LEAK_MOUNTS", "20"))
# Those that serve and those that read ahead, at most, and the rest.
MOST_THREADS = 20 + 16 + 4
# Windows and the like are kept once they are had, as many as ever were in use at
# once.
MOST_GROWTH_KB = 12 * 1024

MODES = (("--io-mode", "direct", "--cache", "off"),
         ("--io-mode", "cached", "--cache", "off"),
         ("--io-mode", "direct", "--cache", "on", "--cache-size", "2MiB"),
         ("--io-mode", "direct", "--cache", "on", "--cache-size", "2MiB",
          "--fault", "eio@rank_1/,p=0.1;short,p=0.2"))


def open_and_read(root, names, number, faulty):
    """One of the ways in which a file is opened, read a little and closed; none
    is mapped where a fault would come as a signal."""
    numbers = random.Random(number)
    path = os.path.join(root, numbers.choice(names))
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        kind = number % 8
        if kind == 0:
            return
        if kind == 1 and not faulty:
            with mmap.mmap(fd, 0, mmap.MAP_PRIVATE, mmap.PROT_READ) as mapped:
                mapped[numbers.randrange(size)]
            return
        if kind == 2:
            # Leaves while windows are being prepared.
            for at in range(0, min(size, 1 << 20), 1 << 17):
                os.pread(fd, 1 << 17, at)
            return
        os.pread(fd, numbers.randrange(1, 200000), numbers.randrange(size))
    except OSError:
        if not faulty:
            raise
    finally:
        os.close(fd)


def opens(mount, names, first, n):
    faulty = "--fault" in mount.command
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(open_and_read, mount.path, names, i, faulty)
                     for i in range(first, first + n)]:
            done.result()


def use(mount):
    """(descriptors, kB of memory) once releases have come."""
    time.sleep(0.3 * TIMEOUT_SCALE)
    pid = mount.process.pid
    return n_descriptors(pid), field(pid, "RssAnon")


def test_opens(tap, directory, words):
    name = f"{OPENS} opens, {' '.join(words)}"
    with Mounted(os.path.join(directory, "source"),
                 src_strategy=os.path.join(directory, "source.ckpt"),
                 dst_strategy=os.path.join(directory, "wanted.ckpt"), extra=words) as mount:
        names = sorted(hash_tree(os.path.join(directory, "expected")))
        opens(mount, names, 0, OPENS // 4)
        first = use(mount)
        opens(mount, names, OPENS // 4, OPENS - OPENS // 4)
        last = use(mount)
        n_threads = field(mount.process.pid, "Threads")
        sanitized = is_sanitized(mount.process.pid)
    said = f"descriptors {first[0]} -> {last[0]}, RssAnon {first[1]} -> {last[1]} kB, " \
        f"{n_threads} threads"
    tap.diag(said)
    tap.ok(last[0] <= first[0], f"{name}: descriptors", said)
    # clone_fd is off, and sanitizers have a thread of their own.
    tap.ok(n_threads <= MOST_THREADS, f"{name}: threads", said)
    if sanitized:
        tap.skip(f"{name}: memory", "no figure of a build with a sanitizer")
    else:
        tap.ok(last[1] <= first[1] + MOST_GROWTH_KB, f"{name}: memory", said)


# ---- mounts ----

def come_and_go(command, point, expected):
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    try:
        different = expected and tree_difference(expected, hash_tree(point))
        if different or not os.listdir(point):
            raise MountError("\n".join(different or ["empty"]))
    finally:
        subprocess.run(["fusermount3", "-u", point], check=True)


def test_mounts(tap, directory):
    point = os.path.join(directory, "mnt")
    os.mkdir(point)
    source = os.path.join(directory, "source")
    blocks = os.path.join(directory, "blocks")
    command = mount_command(
        source, point, src_strategy=os.path.join(directory, "source.ckpt"),
        dst_strategy=os.path.join(directory, "wanted.ckpt"), foreground=False,
        extra=["--quiet", "--cache", "on", "--cache-dir", blocks])
    expected = hash_tree(os.path.join(directory, "expected"))
    with tap.test(f"{MOUNTS} mounts come and go"):
        for i in range(MOUNTS):
            come_and_go(command, point, expected if i in (0, MOUNTS - 1) else None)
    deadline = time.monotonic() + 30 * TIMEOUT_SCALE
    while daemons_of(point) and time.monotonic() < deadline:
        time.sleep(0.05)
    tap.equal(daemons_of(point), [], "no daemon is left")
    tap.equal(mounts_below(directory), [], "and no mount")
    names = os.listdir(blocks)
    tap.ok(names and not any(name.endswith(".tmp") for name in names),
           "and no temporary file", " ".join(names))


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-growth-") as directory:
        numbers = random.Random(3)
        make_tree.write_tree(directory, *make_tree.random_tree(numbers, 6, 1 << 21), numbers)
        for words in MODES:
            test_opens(tap, directory, words)
        test_mounts(tap, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
