#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon in less memory than one source file has, with 32 readers.

Its own memory stays within 64 MiB and the cache; where a memory cgroup can be
made (as root, of either version), it runs in one with little more than that,
page cache included, and is not killed.  RSH_MEMORY_MIB is the size of the source
(496, in two files).

Of a checkpoint of very many tensors, what is known of a tensor has a few hundred bytes,
in any form.
"""

import concurrent.futures
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import rsh_mount  # noqa: E402
from big_tree import MIB, BigTree  # noqa: E402
from cgroups import memory_cgroup, program_in  # noqa: E402
from daemon_use import Peak, field, is_sanitized  # noqa: E402
from dcp_trees import torch_bytes  # noqa: E402
from demands import check, write  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402
from safetensors_format import safetensors_bytes  # noqa: E402

SOURCE_MIB = int(os.environ.get("RSH_MEMORY_MIB", "496"))
OWN_MIB = 64
CACHE_MIB = 32
# Beside what is counted as the daemon's own: its code, page tables, the kernel's
# buffers, and pages of the source, of which it needs some at a time.
BESIDE_MIB = 48
READERS = 32
# Of each reader, and where each read of the source takes 10 ms.
READER_MIB = 40
SLOW_MIB = 10
MANY = 60000  # tensors
MODES = (("direct", "off", ""), ("direct", "on", ""), ("cached", "on", ""),
         ("direct", "off", "delay=10ms"), ("direct", "on", "delay=10ms"))


def read(tree, path, number, mib):
    """From front to back, beginning anywhere, or at random."""
    numbers = random.Random(number)
    fd = os.open(path, os.O_RDONLY)
    try:
        at = numbers.randrange(tree.bytes)
        left = mib * MIB
        while left > 0:
            length = MIB if number % 2 else numbers.randrange(1, 300000)
            length = min(length, tree.bytes - at)
            check(tree.is_right(fd, at, length), f"wrong bytes at {at}")
            left -= length
            at = (at + length) % tree.bytes if number % 2 else numbers.randrange(tree.bytes)
    finally:
        os.close(fd)


def run(tree, io_mode, cache, fault):
    """The peak of the daemon's own memory in MiB, None if it says nothing."""
    words = ["--io-mode", io_mode, "--cache", cache, "--cache-size", f"{CACHE_MIB}MiB"]
    words += ["--fault", fault] if fault else []
    mib = SLOW_MIB if fault else READER_MIB
    with Mounted(tree.source, src_strategy=tree.strategy, extra=words) as mount:
        path = mount.rank_file(0)
        with Peak(mount.process.pid) as peak, \
                concurrent.futures.ThreadPoolExecutor(READERS) as pool:
            for done in [pool.submit(read, tree, path, i, mib) for i in range(READERS)]:
                done.result()
        return None if is_sanitized(mount.process.pid) else peak.mib


def peak_of(path):
    """The most KiB that a mount of it had."""
    with Mounted(path, described=True) as mount:
        return field(mount.process.pid, "VmHWM")


def many_tensors(tap, directory):
    names = [f"layers.{i // 100}.mlp.experts.{i % 100}.w" for i in range(MANY)]
    # The objects of a pickle are all needed at once.
    for name, make, most in (("model.safetensors", safetensors_bytes, 800),
                             ("model.pt", torch_bytes, 2000)):
        few, many = (os.path.join(directory, f"{n} in {name}") for n in (1, MANY))
        for path, n in ((few, 1), (many, MANY)):
            write(os.path.join(path, name),
                  make({x: ("F32", (2,), b"abcdefgh") for x in names[:n]}))
        grown = peak_of(many) - peak_of(few)
        tap.ok(rsh_mount.is_sanitized() or grown * 1024 < MANY * most,
               f"{name} of {MANY} tensors: {most} bytes for each at most",
               f"{grown * 1024 / MANY:.0f} bytes")
        tap.diag(f"{grown * 1024 / MANY:.0f} bytes")


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-memory-") as directory:
        many_tensors(tap, directory)
    with tempfile.TemporaryDirectory(prefix="reshardfs-memory-") as directory:
        tree = BigTree(directory, SOURCE_MIB)
        for io_mode, cache, fault in MODES:
            own = OWN_MIB + (CACHE_MIB if cache == "on" else 0)
            name = f"--io-mode {io_mode}, --cache {cache}" + (", slow" if fault else "")
            peak = None
            limit = None if rsh_mount.is_sanitized() else (own + BESIDE_MIB) * MIB
            with memory_cgroup(limit) as cgroup, program_in(cgroup, directory):
                where = f"in a cgroup of {own + BESIDE_MIB} MiB" if cgroup else "unlimited"
                with tap.test(f"{name}: all bytes right {where}"):
                    peak = run(tree, io_mode, cache, fault)
            if peak is None:
                tap.skip(f"{name}: memory", "no figure of a build with a sanitizer")
                continue
            tap.ok(peak <= own, f"{name}: at most {own} MiB of its own", f"{peak:.0f} MiB")
            tap.diag(f"{peak:.0f} MiB")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
