#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The bytes of a mount do not depend on how it reads and keeps its source.

A random tree is mounted in every mode of reading; whole files, odd reads and
mappings of both kinds must be what was cut from whole tensors.  Then directories
of blocks: new, used again, shared, spoilt, vanishing, full, and after a daemon
that was killed.

    engine.py [SEED]
"""

import concurrent.futures
import contextlib
import mmap
import os
import random
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import make_tree  # noqa: E402
import reader  # noqa: E402
import read_modes  # noqa: E402
from demands import check, content, flip, within, write  # noqa: E402
from read_modes import figures  # noqa: E402
from rsh_mount import (MountError, Mounted, Tap, expect_failure, hash_tree,  # noqa: E402
                       require_mount)
from run_seed import run_seed  # noqa: E402

INFO = ["--log-level", "info"]


class Tree:
    """A random tree with the files that a mount must show."""

    def __init__(self, directory, numbers, n_params=7, largest=3 << 19):
        make_tree.write_tree(directory, *make_tree.random_tree(
            numbers, n_params, largest), numbers)
        self.directory = directory
        self.source = os.path.join(directory, "source")
        self.expected = hash_tree(os.path.join(directory, "expected"))

    def path(self, name):
        return os.path.join(self.directory, name)

    def mounted(self, *words):
        return Mounted(self.source, src_strategy=self.path("source.ckpt"),
                       dst_strategy=self.path("wanted.ckpt"), extra=INFO + list(words))

    def shown(self, *words):
        """Mounts, checks all bytes, and returns the figures."""
        with self.mounted(*words) as mount:
            mount.demand_tree(self.expected)
        return figures(mount.log())


# ---- modes ----

def can_map_shared(io_mode):
    """Kernels before 6.6 cannot where the page cache is passed by."""
    release = os.uname().release.split(".")
    return io_mode != "direct" or (int(release[0]), int(release[1])) >= (6, 6)


def read_in_many_ways(tree, mount, io_mode, numbers):
    ways = [lambda path, data: reader.mapped(path, data, mmap.MAP_PRIVATE),
            reader.preadv, reader.threads, reader.sendfile,
            lambda path, data: reader.random_reads(path, data, 0, numbers.random())]
    if can_map_shared(io_mode):
        ways.append(lambda path, data: reader.mapped(path, data, mmap.MAP_SHARED))
    numbers.shuffle(ways)
    for i, way in enumerate(ways):
        name = numbers.choice(sorted(tree.expected))
        data = content(tree.path(os.path.join("expected", name)))
        try:
            with contextlib.redirect_stdout(None):
                way(os.path.join(mount.path, name), data)
        except SystemExit as error:
            raise MountError(f"way {i}: {error}") from None


def test_modes(tap, tree, numbers):
    for io_mode in read_modes.IO_MODES:
        for cache in read_modes.CACHES:
            blocks = tempfile.mkdtemp(prefix="blocks-", dir=tree.directory)
            words = read_modes.mode(io_mode, cache, numbers.choice(read_modes.SIZES),
                                    numbers.choice((None, blocks)))
            with tap.test(" ".join(words[:6]) + (" --cache-dir" if len(words) > 6 else "")):
                with tree.mounted(*words) as mount:
                    read_in_many_ways(tree, mount, io_mode, numbers)
                    mount.demand_tree(tree.expected, odd_blocks=True)


def mebibytes(size):
    return {"KiB": 1 / 1024, "MiB": 1, "GiB": 1024}.get(size[-3:], 0) * int(size.rstrip("KMGiB"))


def test_sizes(tap, tree, numbers):
    """Through the cache; files are read again from behind, where blocks are
    still there."""
    for size in read_modes.SIZES:
        with tap.test(f"--cache on, size {size}"):
            with tree.mounted("--io-mode", "direct", "--cache", "on",
                              "--cache-size", size) as mount:
                mount.demand_tree(tree.expected)
                read_in_many_ways(tree, mount, "direct", numbers)
            said = figures(mount.log())
            check(said["failed"] == 0 and said["peak"] <= mebibytes(size), said)


# ---- directories of blocks ----

def through(blocks, *words):
    return ["--io-mode", "direct", "--cache", "on", "--cache-dir", blocks, *words]


def block_files(blocks):
    """Without those that are being written."""
    return [os.path.join(blocks, name) for name in os.listdir(blocks)
            if not name.endswith(".tmp")]


def a_directory_is_made_and_used_again(tree, blocks):
    first = tree.shown(*through(blocks))
    check(first["disk"] == 0 and block_files(blocks), first)

    def half_of_it_is_there():
        again = tree.shown(*through(blocks))
        check(again["disk"] > 0, again)
        return 2 * again["read"] <= first["read"]
    # What the disk does not take in time is left for the next mount.
    within(120, half_of_it_is_there, f"too little is used again; at first {first}")


def used_by_two_mounts_at_once(tree, blocks):
    with tree.mounted(*through(blocks, "--cache-size", "600KiB")) as one, \
            tree.mounted(*through(blocks, "--cache-size", "600KiB")) as two, \
            concurrent.futures.ThreadPoolExecutor(4) as pool:
        def read_until_blocks_are_found():
            for done in [pool.submit(mount.demand_tree, tree.expected)
                         for mount in (one, two) * 2]:
                done.result()
            return any(mount.stats()["cache"]["hits_disk"] for mount in (one, two))
        # A slow disk takes few of them, which may be those that are still in memory.
        within(120, read_until_blocks_are_found, "none is found on disk")


def wait_for_blocks(blocks):
    within(60, lambda: os.path.isdir(blocks) and block_files(blocks), "nothing was written")


def every_block_flipped(tree, blocks):
    tree.shown(*through(blocks))
    before = block_files(blocks)
    for path in before:
        flip(path, os.path.getsize(path) // 2)
    said = tree.shown(*through(blocks))
    check(before and said["disk"] == 0, said)
    check(tree.shown(*through(blocks))["disk"] > 0, "they were not written again")


def every_block_cut(tree, blocks):
    tree.shown(*through(blocks))
    for i, path in enumerate(block_files(blocks)):
        os.truncate(path, (0, 1, os.path.getsize(path) - 1)[i % 3])
    said = tree.shown(*through(blocks))
    check(said["disk"] == 0, said)


def blocks_of_files_that_changed(tree, blocks):
    """The same names, sizes and inodes, and other bytes."""
    changed = tempfile.mkdtemp(prefix="changed-", dir=tree.directory)
    twin = Tree(changed, random.Random("another"))
    twin.shown(*through(blocks))
    held = {}
    for folder, _, names in os.walk(twin.source):
        for name in names:
            path = os.path.join(folder, name)
            held[path] = os.stat(path)
            # A byte of the largest tensor, which is content for certain.
            flip(path, held[path].st_size // 2)
    for path, was in held.items():
        check(os.stat(path).st_ino == was.st_ino and
              os.stat(path).st_size == was.st_size, path)
    with twin.mounted("--cache", "off") as mount:
        now = hash_tree(mount.path)
    check(now != twin.expected, "nothing has changed")
    twin.expected = now
    twin.shown(*through(blocks))


def deleted_while_mounted(tree, blocks):
    with tree.mounted(*through(blocks, "--cache-size", "600KiB")) as mount:
        mount.demand_tree(tree.expected)
        wait_for_blocks(blocks)
        while os.path.exists(blocks):  # a block may be written meanwhile
            shutil.rmtree(blocks, ignore_errors=True)
        mount.demand_tree(tree.expected)
        mount.demand_tree(tree.expected)
    check("it is not used" in mount.log(), mount.log())


def emptied_while_mounted(tree, blocks):
    with tree.mounted(*through(blocks, "--cache-size", "600KiB")) as mount:
        mount.demand_tree(tree.expected)
        for path in block_files(blocks):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        mount.demand_tree(tree.expected)


def on_a_full_file_system(tree, blocks):
    os.mkdir(blocks)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k,mode=700", "none", blocks],
                   check=True)
    try:
        with tree.mounted(*through(blocks, "--cache-size", "600KiB")) as mount:
            mount.demand_tree(tree.expected)
            within(60, lambda: mount.demand_tree(tree.expected) or "No space left" in mount.log(),
                   "nothing did not fit")
        check(tree.shown(*through(blocks)).get("disk"), "what fitted is not used")
    finally:
        subprocess.run(["umount", blocks], check=True)


def kept_to_its_size(tree, blocks):
    for _ in range(2):
        tree.shown(*through(blocks, "--cache-disk-size", "1MiB"))
    used = sum(os.stat(path).st_blocks * 512 for path in block_files(blocks))
    check(0 < used <= 1 << 20, f"{used} bytes")


def only_read_with_size_0(tree, blocks):
    tree.shown(*through(blocks, "--cache-disk-size", "0"))
    check(not block_files(blocks), "something was written")


def after_the_daemon_was_killed(tree, blocks):
    with tree.mounted(*through(blocks)) as mount:
        mount.demand_tree(tree.expected)
        wait_for_blocks(blocks)
        mount.kill()
    said = tree.shown(*through(blocks))
    check(said["disk"] > 0, said)


def killed_in_the_middle(tree, blocks):
    with tree.mounted(*through(blocks, "--cache-size", "600KiB")) as mount, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(mount.demand_tree, tree.expected) for _ in range(2)]
        wait_for_blocks(blocks)
        mount.kill()
        for done in readers:
            done.exception()
    check(tree.shown(*through(blocks)).get("disk"), "nothing of it is used")


def strangers_files_are_left_alone(tree, blocks):
    os.mkdir(blocks, 0o700)
    strange = {"notes.txt": b"mine", "0123-456": b"mine as well"}
    for name, data in strange.items():
        write(os.path.join(blocks, name), data)
    tree.shown(*through(blocks, "--cache-disk-size", "1MiB"))
    for name, data in strange.items():
        check(content(os.path.join(blocks, name)) == data, name)


def one_that_others_can_write_to_is_refused(tree, blocks):
    os.mkdir(blocks)
    os.chmod(blocks, 0o777)
    _, said = expect_failure(tree.source, src_strategy=tree.path("source.ckpt"),
                             dst_strategy=tree.path("wanted.ckpt"), extra=through(blocks))
    errors = [line for line in said.splitlines() if ": error: " in line]
    check(len(errors) == 1 and blocks in errors[0], said)


DIRECTORIES = (
    a_directory_is_made_and_used_again, used_by_two_mounts_at_once, every_block_flipped,
    every_block_cut, blocks_of_files_that_changed, deleted_while_mounted,
    emptied_while_mounted, on_a_full_file_system, kept_to_its_size, only_read_with_size_0,
    after_the_daemon_was_killed, killed_in_the_middle, strangers_files_are_left_alone,
    one_that_others_can_write_to_is_refused)


def main():
    require_mount()
    tap = Tap()
    seed = sys.argv[1] if len(sys.argv) > 1 else str(run_seed())
    tap.diag(f"seed {seed}")
    numbers = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="reshardfs-engine-") as directory:
        tree = Tree(directory, numbers)
        test_modes(tap, tree, numbers)
        test_sizes(tap, tree, numbers)
        for function in DIRECTORIES:
            name = "blocks on disk: " + function.__name__.replace("_", " ")
            if function is on_a_full_file_system and os.geteuid() != 0:
                tap.skip(name, "needs root")
                continue
            with tap.test(name):
                function(tree, os.path.join(directory, function.__name__))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
