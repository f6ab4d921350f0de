#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Read a file in the ways that programs do and compare it with another.

    reader.py WAY FILE REFERENCE [SECONDS [SEED]]
    reader.py spoilt FILE REFERENCE ERROR
    reader.py crowd TREE REFERENCE SECONDS SEED READERS

WAY: whole private shared sendfile splice preadv threads random
`random` reads stretches of random place and length until SECONDS have passed
(default: 300 reads).  `spoilt`: reads may fail with ERROR (ESTALE, ...), and
one must, but all bytes that come are right.  `crowd`: so many processes read
files of a tree at random and from front to back, and each must have read.  Exits
1 with the first difference.
"""

import concurrent.futures
import errno
import mmap
import multiprocessing
import os
import random
import sys
import tempfile
import time

from run_seed import run_seed


def differ(what, got, expected):
    if got == expected:
        return
    at = next((i for i, (a, b) in enumerate(zip(got, expected)) if a != b),
              min(len(got), len(expected)))
    sys.exit(f"{what}: {len(got)} bytes, expected {len(expected)}; "
             f"first difference at byte {at}")


def whole(path, reference):
    with open(path, "rb") as f:
        differ("whole file", f.read(), reference)


def mapped(path, reference, flags):
    with open(path, "rb") as f, \
            mmap.mmap(f.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as m:
        # Backwards first, so that pages are not faulted in file order.
        step = 65536
        for start in range(len(m) // step * step, -1, -step):
            differ(f"mapping at {start}", m[start:start + step],
                   reference[start:start + step])
        differ("whole mapping", m[:], reference)


def sendfile(path, reference):
    with open(path, "rb") as f, tempfile.TemporaryFile() as out:
        at = 0
        while n := os.sendfile(out.fileno(), f.fileno(), at, 1 << 30):
            at += n
        out.seek(0)
        differ("sendfile", out.read(), reference)


def splice(path, reference):
    got = bytearray()
    incoming, outgoing = os.pipe()
    with open(path, "rb") as f:
        while n := os.splice(f.fileno(), outgoing, 65536):
            while n:
                data = os.read(incoming, n)
                got += data
                n -= len(data)
    differ("splice", bytes(got), reference)


def preadv(path, reference):
    fd = os.open(path, os.O_RDONLY)
    sizes = (1, 4096, 3, 70001, 17, 1 << 20)
    at = 0
    while at < len(reference):
        buffers = [bytearray(n) for n in sizes]
        n = os.preadv(fd, buffers, at)
        differ(f"preadv at {at}", b"".join(buffers)[:n], reference[at:at + n])
        if n == 0:
            sys.exit(f"preadv: end of file at {at} of {len(reference)}")
        at += n
    os.close(fd)


def random_reads(path, reference, seconds, seed):
    print(f"seed {seed}")
    numbers = random.Random(seed)
    size = len(reference)
    fd = os.open(path, os.O_RDONLY)
    end = time.monotonic() + seconds if seconds else None
    count = 0
    while time.monotonic() < end if end else count < 300:
        # As many short reads as long ones, some of them past the end.
        length = int(2 ** numbers.uniform(0, 21))
        offset = numbers.randrange(size + 5000)
        if end and count % 64 == 0:
            # Or else the page cache would soon answer everything.
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        differ(f"{length} bytes at {offset}", os.pread(fd, length, offset),
               reference[offset:offset + length])
        count += 1
    os.close(fd)
    print(f"{count} reads")


def threads(path, reference):
    """Many threads of one process on one descriptor."""
    fd = os.open(path, os.O_RDONLY)
    step = 100003

    def check(start):
        differ(f"thread at {start}", os.pread(fd, step, start),
               reference[start:start + step])

    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(check, start)
                     for start in range(0, len(reference), step)]:
            done.result()
    os.close(fd)


MOST_READS = 250


def spoilt(path, reference, wanted):
    """Some reads fail, all others give what they should; at least one fails
    with the error `wanted` (a name of module errno)."""
    fd = os.open(path, os.O_RDONLY)
    seen = set()
    for step in (65536, 4096, 999983):
        starts = range(0, len(reference), step)
        # All bytes are read by the longer steps; a read that fails may take 40 ms.
        for start in starts[::max(1, len(starts) // MOST_READS)]:
            try:
                got = os.pread(fd, step, start)
            except OSError as error:
                seen.add(errno.errorcode[error.errno])
            else:
                differ(f"at {start}", got, reference[start:start + len(got)])
                if not got:
                    sys.exit(f"end of file at {start}")
    os.close(fd)
    print(f"errors: {seen}")
    if seen != {wanted}:
        sys.exit(f"expected {wanted}")


def in_turn(tree, reference, seconds, seed):
    """One file after the other from front to back."""
    numbers = random.Random(seed)
    names = [os.path.relpath(os.path.join(folder, name), reference)
             for folder, _, names in os.walk(reference) for name in names]
    end = time.monotonic() + seconds
    count = 0
    while not count or time.monotonic() < end:
        name = numbers.choice(names)
        length = numbers.choice((1 << 20, 1 << 17, 70001))
        with open(os.path.join(tree, name), "rb", buffering=0) as f, \
                open(os.path.join(reference, name), "rb") as g:
            while data := f.read(length):
                differ(f"{name} before {f.tell()}", data, g.read(len(data)))
                count += 1
                # A whole turn of a slow build may take minutes.
                if time.monotonic() > end + 10:
                    break
            else:
                differ(f"the end of {name}", b"", g.read(1))
    print(f"{count} reads")


def at_random(tree, reference, seconds, seed):
    """One file, of which others read other places."""
    numbers = random.Random(seed)
    folder, _, names = numbers.choice([entry for entry in os.walk(reference) if entry[2]])
    path = os.path.join(folder, numbers.choice(names))
    with open(path, "rb") as f:
        random_reads(os.path.join(tree, os.path.relpath(path, reference)), f.read(), seconds,
                     seed)


def crowd(tree, reference, seconds, seed, n):
    context = multiprocessing.get_context("fork")
    readers = [context.Process(target=(in_turn, at_random)[i % 2],
                               args=(tree, reference, seconds, seed + i)) for i in range(n)]
    for r in readers:
        r.start()
    for r in readers:
        r.join()
    failed = sum(r.exitcode != 0 for r in readers)
    if failed:
        sys.exit(f"{failed} of {n} readers failed")


def main(way, path, reference_path, seconds="0", seed=None, n="0"):
    if way == "crowd":
        return crowd(path, reference_path, float(seconds), int(seed), int(n))
    with open(reference_path, "rb") as f:
        reference = f.read()
    if way == "random":
        random_reads(path, reference, float(seconds),
                     int(seed) if seed else run_seed())
    elif way == "spoilt":
        spoilt(path, reference, seconds)
    elif way in ("private", "shared"):
        mapped(path, reference,
               mmap.MAP_PRIVATE if way == "private" else mmap.MAP_SHARED)
    else:
        {"whole": whole, "sendfile": sendfile, "splice": splice,
         "preadv": preadv, "threads": threads}[way](path, reference)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
