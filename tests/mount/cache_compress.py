#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mounts whose cache compresses: what shrinks takes less memory, disk and less of a
server, what does not is left alone, and no byte is another one for it."""

import json
import math
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import compressible  # noqa: E402
import memcached  # noqa: E402
from demands import check, content  # noqa: E402
from memcached import Memcached  # noqa: E402
from ms_formats import Record  # noqa: E402
from layouts import model_position, splits  # noqa: E402
from rsh_mount import Mounted, Skipped, Tap, require_mount  # noqa: E402
from small_job import LAYOUTS, Job  # noqa: E402

STEP = (1, 5)
MIB = 1 << 20
# Each slice is a few blocks.
SHAPES = {"up.weight": (2048, 1024), "down.weight": (640, 3072), "norm.gamma": (5000,)}


def trained(numbers, dims):
    return Record(dims, "BFloat16", compressible.bf16(numbers, math.prod(dims)))


def widened(numbers, dims):
    return Record(dims, "Float32", compressible.widened(numbers, math.prod(dims)))


def moments(numbers, dims):
    rows, columns = dims if len(dims) == 2 else (1, dims[0])
    return Record(dims, "Float32", compressible.moments(numbers, rows, columns))


class Trained(Job):
    """A job whose tensors have what `make` gives."""

    def __init__(self, directory, name, make):
        self.make = make
        super().__init__(os.path.join(directory, name), shapes=SHAPES)
        self.save(*STEP)
        self.wanted = self.expected(*STEP)
        self.bytes = sum(size for size, _ in self.wanted.values())

    def records(self, rank, epoch, step):
        result = super().records(rank, epoch, step)
        for name, layout in LAYOUTS.items():
            dims = tuple(d // s for d, s in zip(SHAPES[name], splits(layout)))
            numbers = random.Random(f"{name} {model_position(layout, rank)}")
            result[name] = self.make(numbers, dims)
        return result

    def mounted(self, *extra):
        return Mounted(self.source, src_strategy=self.strategy,
                       dst_strategy=self.strategy,
                       extra=["--io-mode", "direct", "--cache", "on", "--log-level",
                              "info", *extra])

    def read(self, *extra):
        """The figures of a mount that has been read through, which must be right."""
        with self.mounted(*extra) as mount:
            mount.demand_tree(self.wanted)
            return figures(mount)


def figures(mount, name="stats"):
    return json.loads(content(os.path.join(mount.path, ".reshardfs", name)))["cache"]


def demand(true, what, *seen):
    check(true, " ".join(map(str, (what, *seen))))


def mostly(part, whole):
    """All but what headers and the last blocks of files have."""
    return part >= 0.85 * whole


def what_shrinks(job):
    with job.mounted("--cache-size", "64MiB") as mount:
        mount.demand_tree(job.wanted)
        f = figures(mount)
        metrics = open(os.path.join(mount.path, ".reshardfs/metrics"),
                       encoding="utf-8").read()
        demand(figures(mount, "config")["compress"] == "auto", "config")
    ratio = f["compressed_to_bytes"] / f["compressed_from_bytes"]
    demand(mostly(f["compressed_from_bytes"], job.bytes), "compressed", f)
    demand(ratio <= 0.55, "ratio", ratio)
    for name in ("compressed_blocks", "compressed_from_bytes", "compressed_to_bytes",
                 "uncompressed_blocks", "uncompressed_bytes", "unpacked_bytes"):
        demand(f"reshardfs_cache_{name}_total {f[name]}\n" in metrics, name, metrics)
    demand(f"reshardfs_cache_held_bytes {f['held_bytes']}\n" in metrics, metrics)
    demand("MiB compressed to" in mount.log(), mount.log())


def what_does_not(job):
    f = job.read("--cache-size", "64MiB")
    demand(f["compressed_blocks"] == 0, "compressed", f)
    demand(f["uncompressed_bytes"] == f["bytes_loaded"] >= job.bytes, "left", f)


def what_is_off(job):
    with job.mounted("--cache-compress", "off") as mount:
        mount.demand_tree(job.wanted)
        f = figures(mount)
        demand(figures(mount, "config")["compress"] == "off", "config")
    demand(f["compressed_blocks"] == f["uncompressed_blocks"] == 0, f)


def rows_of_zeros(job):
    f = job.read("--cache-size", "64MiB")
    ratio = f["compressed_to_bytes"] / f["compressed_from_bytes"]
    demand(mostly(f["compressed_from_bytes"], job.bytes), "compressed", f)
    demand(0.4 < ratio < 0.75, "ratio", ratio)


def memory_holds_more(job):
    """A cache of two thirds of the files has all of them when they are read again."""
    size = job.bytes * 2 // 3
    loaded = {}
    for when in ("auto", "off"):
        with job.mounted("--cache-size", str(size), "--cache-compress", when) as mount:
            skim(job, mount)
            before = figures(mount)
            skim(job, mount)
            after = figures(mount)
        loaded[when] = after["bytes_loaded"] - before["bytes_loaded"]
        demand(after["memory_peak_bytes"] <= size, "memory", after)
    demand(loaded["auto"] == 0 and loaded["off"] > 0, "loaded again", loaded)
    demand(after["held_bytes"] <= size, "held", after)


def skim(job, mount):
    """Read some of each block, so that nobody takes it for spent."""
    for name in job.wanted:
        with open(os.path.join(mount.path, name), "rb", buffering=0) as f:
            for at in range(0, os.fstat(f.fileno()).st_size, 200_000):
                f.seek(at)
                f.read(4096)


def directory_holds_less(job, directory):
    blocks = os.path.join(directory, "blocks")
    words = ("--cache-dir", blocks, "--cache-size", "64MiB")
    # What waits too long for a slow disk is not written.
    f = job.read(*words)
    while f["bytes_loaded"]:
        demand(f["disk_written_bytes"] <= 0.6 * f["bytes_loaded"], "written", f)
        f = job.read(*words)
    demand(f["compressed_blocks"] == 0, "compressed what was found compressed", f)
    lies = sum(e.stat().st_size for e in os.scandir(blocks))
    demand(lies <= 0.6 * job.bytes, "lies there", lies)
    # Another one may do without.
    f = job.read(*words, "--cache-compress", "off")
    demand(f["bytes_loaded"] == 0, "loaded", f)


def spoilt_blocks(job, directory):
    """Of each block in the directory some byte is another one."""
    blocks = os.path.join(directory, "blocks")
    numbers = random.Random("spoilt")
    n = 0
    for entry in os.scandir(blocks):
        with open(entry.path, "r+b") as f:
            f.seek(numbers.randrange(os.path.getsize(entry.path)))
            byte = f.read(1)[0]
            f.seek(-1, os.SEEK_CUR)
            f.write(bytes([byte ^ 1 << numbers.randrange(8)]))
        n += 1
    f = job.read("--cache-dir", blocks)
    demand(f["disk_rejected"] == n, "rejected", n, f)


def servers_carry_less(job):
    if not memcached.PROGRAM:
        raise Skipped("there is no memcached")
    with Memcached() as server:
        words = ("--cache-servers", server.address, "--cache-size", "64MiB")
        f = job.read(*words)
        demand(mostly(f["compressed_from_bytes"], job.bytes), "compressed", f)
        demand(0 < f["shared_written_bytes"] <= 0.6 * job.bytes, "stored", f)
        f = job.read(*words)
        demand(f["bytes_loaded"] == 0, "loaded", f)


def any_mode(jobs, directory):
    """Whatever the memory, bytes are right."""
    for size in ("300KiB", "1MiB", "5MiB"):
        for job in jobs:
            job.read("--cache-size", size)
            job.read("--cache-size", size, "--cache-dir",
                     os.path.join(directory, "any"))


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        kept = Trained(directory, "trained", trained)
        wide = Trained(directory, "widened", widened)
        rows = Trained(directory, "moments", moments)
        for name, test, *words in (
                ("what was bfloat16 is compressed, and figures tell it", what_shrinks, wide),
                ("of what was trained nothing is, and figures tell it", what_does_not,
                 kept),
                ("with off nothing is", what_is_off, wide),
                ("rows that no step has changed are", rows_of_zeros, rows),
                ("memory holds more", memory_holds_more, wide),
                ("a directory holds less", directory_holds_less, wide, directory),
                ("spoilt blocks are refused", spoilt_blocks, wide, directory),
                ("servers carry less", servers_carry_less, wide),
                ("with any memory bytes are right", any_mode, (kept, wide, rows),
                 directory)):
            with tap.test(name):
                test(*words)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
