#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What reading through a mount does to the page cache, and to the disk.

--keep-free: source pages are given back or left, by mincore.  A file read through
the mount then takes no more pages than a plain file of that size does.  Each byte
that is needed is read from the disk once.  All of this needs a source on a disk:
TMPDIR must be no tmpfs.
"""

import ctypes
import mmap
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from big_tree import MIB, BigTree  # noqa: E402
from daemon_use import bytes_read  # noqa: E402
from demands import check  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount, skip_all  # noqa: E402

SOURCE_MIB = 256
# What the kernel may have read ahead behind the last read, of all files.
AHEAD_MIB = 40
PAGE = mmap.PAGESIZE
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.mmap.restype = ctypes.c_void_p
LIBC.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int,
                      ctypes.c_int, ctypes.c_long]
LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
PROT_READ, MAP_PRIVATE = 1, 2


def resident(path):
    """The share of a file's pages that is in the page cache."""
    fd = os.open(path, os.O_RDONLY)
    try:
        size = os.fstat(fd).st_size
        at = LIBC.mmap(None, size, PROT_READ, MAP_PRIVATE, fd, 0)
        pages = ctypes.create_string_buffer((size + PAGE - 1) // PAGE)
        if LIBC.mincore(at, size, pages):
            raise OSError(ctypes.get_errno(), "mincore")
        LIBC.munmap(at, size)
    finally:
        os.close(fd)
    return sum(byte & 1 for byte in pages.raw) / len(pages)


def drop(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def source_files(tree):
    return [tree.path(rank) for rank in range(tree.n_ranks)]


def drop_source(tree):
    for path in source_files(tree):
        drop(path)


def share_of_source(tree):
    return sum(map(resident, source_files(tree))) / tree.n_ranks


def read_file(path, length=MIB):
    with open(path, "rb", buffering=0) as f:
        while f.read(length):
            pass


def left_by(tree, dst, *words):
    """The share of the source in the page cache once all ranks were read."""
    drop_source(tree)
    with Mounted(tree.source, src_strategy=tree.strategy, dst_strategy=dst,
                 extra=["--cache", "off", *words]) as mount:
        for rank in range(tree.n_ranks if dst else 1):
            read_file(mount.rank_file(rank))
        return share_of_source(tree)


def test_keep_free(tap, tree):
    # What the kernel has read ahead after the last read may stay.
    for name, io_mode, keep, low, high in (
            ("rows, more than there is", "direct", "100TiB", 0, 0.1),
            ("rows, 0", "direct", "0", 0.98, 1),
            ("all that is read, more than there is", "cached", "100TiB", 0, 0.1),
            ("all that is read, 0", "cached", "0", 0.98, 1)):
        share = left_by(tree, tree.rows, "--io-mode", io_mode, "--keep-free", keep)
        tap.ok(low <= share <= high, f"--keep-free: {name}",
               f"{share:.2f} of the source is in the page cache")
    same = left_by(tree, tree.strategy, "--io-mode", "direct", "--keep-free", "100TiB")
    tap.ok(same >= 0.98, "--keep-free: long runs read past the mount's pages stay", f"{same:.2f}")
    same = left_by(tree, tree.strategy, "--io-mode", "cached", "--keep-free", "100TiB")
    tap.ok(same <= 0.1, "and those that the mount holds itself do not", f"{same:.2f}")


# ---- what a loader finds free ----

def test_memory_taken(tap, tree):
    """Pages of the source and of the mount together are no more than those of a
    plain file of that size, when memory is short."""
    for dst, what in ((None, "columns"), (tree.rows, "rows")):
        for io_mode in ("direct", "cached"):
            drop_source(tree)
            with Mounted(tree.source, src_strategy=tree.strategy, dst_strategy=dst,
                         extra=["--io-mode", io_mode, "--keep-free", "100TiB"]) as mount:
                path = mount.rank_file(0)
                read_file(path)
                size = os.stat(path).st_size
                taken = resident(path) * size + share_of_source(tree) * tree.bytes
            tap.ok(taken <= 1.05 * size + AHEAD_MIB * MIB, f"pages taken, {what} to one file, --io-mode {io_mode}",
                   f"{taken / MIB:.0f} MiB for a file of {size / MIB:.0f}")
            tap.diag(f"{taken / MIB:.0f} MiB for a file of {size / MIB:.0f}")


# ---- cold sources ----

def cold(tree, dst, *words):
    """Bytes from the disk per byte needed, all ranks read once."""
    drop_source(tree)
    check(share_of_source(tree) <= 0.01, "the source does not leave the page cache")
    with Mounted(tree.source, src_strategy=tree.strategy, dst_strategy=dst,
                 extra=words) as mount:
        for rank in range(tree.n_ranks):
            read_file(mount.rank_file(rank))
        return bytes_read(mount.process.pid) / tree.bytes


def test_cold(tap, tree):
    for dst, what in ((tree.rows, "columns to rows"), (tree.strategy, "as it is")):
        # In auto mode the kernel may read what needs no resharding by itself.
        for words in (("--io-mode", "direct"), ("--io-mode", "cached"),
                      ("--io-mode", "direct", "--cache", "on")):
            name = f"cold, {what}, {' '.join(words)}"
            with tap.test(name):
                share = cold(tree, dst, *words)
                tap.diag(f"{share:.3f} bytes read for each")
                check(0.98 <= share <= 1.05, f"{share:.3f} bytes read for each that is needed")


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-pages-") as directory:
        tree = BigTree(directory, SOURCE_MIB)
        drop_source(tree)
        if share_of_source(tree) > 0.01:
            skip_all(f"{directory} is on a file system that holds its pages")
        test_keep_free(tap, tree)
        test_cold(tap, tree)
        test_memory_taken(tap, tree)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
