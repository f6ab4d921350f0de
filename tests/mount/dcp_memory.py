#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's memory while many ranks load a mount of --format dcp at once.

Its own memory stays within 64 MiB and the cache: of rank files cut along the first or the
last axis, of tensors that the source has transposed, which stay so or are turned, and of
one that is cast.  Eight readers ask for items as torch does, half of them for every second one: their ends,
their heads, then all of each, in orders of their own; what they read is compared.  With RSH_HF_PYTHON, four processes of torch
load the same mounts as well.
"""

import concurrent.futures
import os
import random
import struct
import subprocess
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

from big_tree import MIB, BigTree  # noqa: E402
from daemon_use import Peak, is_sanitized  # noqa: E402
from dcp_reader import Checkpoint  # noqa: E402
from dcp_trees import Tensor, Tree  # noqa: E402
from demands import check, write  # noqa: E402
from rsh_cli import good  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402
from safetensors_format import safetensors_bytes  # noqa: E402

OWN_MIB = 64
CACHE_MIB = 32
# With a sanitizer there is no figure: two items and half of the readers are enough.
SANITIZED = "sanitize" in os.environ.get("SANITIZER_FLAGS", "")
SOURCE_MIB = 96 if SANITIZED else 160
READERS = 4 if SANITIZED else 8
LOADERS = 4
PAGE = 4096


# ---- sources: (words, SOURCE, function of a chunk: the elements as they are stored) ----

def inner(directory):
    tree = BigTree(directory, SOURCE_MIB)
    return ["--src-strategy", tree.strategy], tree.source, lambda start, size: tree.content(
        start[0] * tree.columns, size[0] * tree.columns)


def contiguous(directory):
    tree = BigTree(directory, SOURCE_MIB)
    out = os.path.join(directory, "rows")
    good("export", "--src-strategy", tree.strategy, "--dst-strategy", tree.rows, tree.source, out)
    return ["--src-strategy", tree.rows], out, lambda start, size: tree.content(
        start[0] * tree.columns, size[0] * tree.columns)


class Stored(Tensor):
    """Its `content` is in the order of its one chunk's strides."""
    strides = None

    def stored(self, number):
        return self.content, self.strides


def distributed(directory, shape, strides, content):
    tensor = Stored("F16", shape, content, [((0,) * len(shape), shape)], {})
    tensor.strides = strides
    source = os.path.join(directory, "source")
    Tree("torch", {"w": tensor}, {}, random.Random(1)).write(source)
    return source


def transposed(directory):
    """Matrices that stay as they are: items have whole ones."""
    shape = (SOURCE_MIB // 4, 1024, 2048)
    content = random.Random(3).randbytes(MIB) * SOURCE_MIB
    source = distributed(directory, shape, (1024 * 2048, 1, 1024), content)
    return [], source, lambda start, size: content[start[0] * 4 * MIB:
                                                  (start[0] + size[0]) * 4 * MIB]


def turned(directory):
    """A matrix whose columns lie one after the other, of which items need rows."""
    rows, columns, side = SOURCE_MIB << 7, 4096, 256
    block = random.Random(3).randbytes(2 * side * side)
    elements = [block[at:at + 2] for at in range(0, len(block), 2)]
    across = b"".join(block[2 * side * i:2 * side * (i + 1)] * (columns // side)
                      for i in range(side))
    down = b"".join(b"".join(elements[j::side]) * (rows // side) for j in range(side))
    source = distributed(directory, (rows, columns), (1, rows), down * (columns // side))

    def stored(start, size):
        check(start[0] % side == 0 and size[0] % side == 0, f"{start}, {size}")
        return across * (size[0] // side)
    return [], source, stored


def cast(directory):
    """float32 whose values bfloat16 has as well."""
    halves = [h for (h,) in struct.iter_unpack("<H", random.Random(4).randbytes(MIB))]
    halves = [h & 0xbfff for h in halves]     # neither infinite nor NaN
    wide = struct.pack(f"<{2 * len(halves)}H", *(x for h in halves for x in (0, h)))
    narrow, rows = struct.pack(f"<{len(halves)}H", *halves), SOURCE_MIB
    shape = (rows, len(halves))
    source = os.path.join(directory, "wide")
    write(os.path.join(source, "model.safetensors"), safetensors_bytes(
        {"w": ("F32", shape, wide * rows)}, {"format": "pt"}))
    return ["--cast", "bfloat16"], source, lambda start, size: narrow * size[0]


# ---- loading ----

def elements_at(head):
    """Where the elements of an item begin, of which this is the first page."""
    name = head.index(b"archive/data/0")
    at = name - 30
    check(head[at:at + 4] == b"PK\x03\x04", "the item has no elements in its first page")
    return name + sum(int.from_bytes(head[at + i:at + i + 2], "little") for i in (26, 28))


def read_into(fd, buffer, offset):
    left = memoryview(buffer)
    while left:
        got = os.preadv(fd, [left[:16 * MIB]], offset)
        check(got > 0, f"nothing at {offset}")
        left, offset = left[got:], offset + got


def load(path, chunks, stored, seed):
    chunks = list(chunks)[seed % 2::2]
    random.Random(seed).shuffle(chunks)
    # One for all items: memory that is new each time costs more than to read into it.
    elements = bytearray()
    for start, size, file, offset, length in chunks:
        fd = os.open(os.path.join(path, file), os.O_RDONLY)
        try:
            os.pread(fd, PAGE, offset)
            end = os.pread(fd, PAGE, offset + length - PAGE)
            head = os.pread(fd, PAGE, offset)
            begin, wanted = elements_at(head), stored(start, size)
            if len(elements) != len(wanted):
                elements = bytearray(len(wanted))
            elements[:PAGE - begin] = head[begin:]
            read_into(fd, memoryview(elements)[PAGE - begin:], offset + PAGE)
            rest = bytearray(length - begin - len(wanted))
            read_into(fd, rest, offset + begin + len(wanted))
        finally:
            os.close(fd)
        check(elements == wanted and (elements[-PAGE:] + rest).endswith(end),
              f"{file} at {offset}: other elements")


def load_many(mount, stored):
    ((_, _, chunks),) = Checkpoint(mount.path).tensors.values()
    check(len(chunks) > 1, f"{len(chunks)} items")
    with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
        for done in [pool.submit(load, mount.path, chunks, stored, i) for i in range(READERS)]:
            done.result()


def load_by_torch(mount, _):
    words = [os.environ["RSH_HF_PYTHON"], os.path.join(HERE, "bench", "bench_torch.py"),
             "load", mount.path]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
               for _ in range(LOADERS)]
    for process in running:
        _, err = process.communicate()
        check(process.returncode == 0, err.decode()[-3000:])


def run_case(tap, what, made, cache, loads):
    words, source, stored = made
    own = OWN_MIB + (CACHE_MIB if cache == "on" else 0)
    name, peak = f"{what}, --cache {cache}", None
    with tap.test(f"{name}: {loads.__name__}, all elements right"):
        with Mounted(source, described=True, dst_strategy=None, extra=[
                *words, "--format", "dcp", "--cache", cache, "--cache-size",
                f"{CACHE_MIB}MiB"]) as mount:
            with Peak(mount.process.pid) as peak:
                loads(mount, stored)
            if is_sanitized(mount.process.pid):
                peak = None
    if peak is None:
        tap.skip(f"{name}: memory", "no figure of a build with a sanitizer")
        return
    tap.ok(peak.mib <= own, f"{name}: {loads.__name__}, at most {own} MiB", f"{peak.mib:.0f} MiB")
    tap.diag(f"{peak.mib:.0f} MiB")


def main():
    require_mount()
    tap = Tap()
    words = sys.argv[1:]
    for make in contiguous, inner, transposed, turned, cast:
        if words and make.__name__ not in words:
            continue
        with tempfile.TemporaryDirectory(prefix="reshardfs-memory-") as directory:
            made = make(directory)
            for cache in "off", "on":
                run_case(tap, make.__name__, made, cache, load_many)
            if os.environ.get("RSH_HF_PYTHON"):
                run_case(tap, make.__name__, made, "off", load_by_torch)
    if not os.environ.get("RSH_HF_PYTHON"):
        tap.skip("torch loads them", "RSH_HF_PYTHON does not name a Python that has torch")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
