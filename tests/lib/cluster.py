# SPDX-License-Identifier: Apache-2.0
"""Several nodes on one machine: daemons that each mount the same source, by way of a
server with a limited rate, and load the file of a rank of their own.

    with Cluster(directory, Shape("dp4mp2_opt", "infer_mp2"), rate=200e6) as c:
        found = c.start_job()       # a Start: bytes, distinct bytes, seconds

The job is that of a genuine strategy set of tests/data/strategies whose dimensions
were all made larger, and is loaded as another set of its family says; where that has
fewer ranks than there are nodes, several nodes load the same rank.
"""
import concurrent.futures
import contextlib
import ctypes
import functools
import math
import mmap
import os
import random
import re
import subprocess
import sys
import time
from dataclasses import dataclass, field

from demands import write  # noqa: E402
from layouts import region
from ms_formats import ELEMENT_BYTES, Record, checkpoint_bytes
from rsh_mount import Mounted, reshardfs_program

LIB = os.path.dirname(os.path.abspath(__file__))
sys.path.append(os.path.join(LIB, os.pardir, "oracle"))

from genuine_sets import GenuineSet, in_dimensions_of  # noqa: E402

MIB = 1 << 20
MEMCMP = ctypes.CDLL(None).memcmp
MEMCMP.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
RANGE = re.compile(r"^GET (\S+) bytes=(\d+)-(\d+)$")


@dataclass
class Shape:
    source: str       # the sets
    destination: str
    nodes: int = 8
    scale: int = 1    # of every dimension


@dataclass
class Start:
    """What a start of the job cost."""
    seconds: float
    served: int     # bytes that the storage gave
    distinct: int   # of these, each place once
    requests: int
    stats: list = field(default_factory=list)

    @property
    def reads_per_byte(self):
        return self.served / self.distinct


def record(layout, name, shape, dtype, rank):
    """What a rank has of a parameter; those that have the same, have the same bytes."""
    part = region(in_dimensions_of(layout, shape), shape, rank)
    dims = [s.stop - s.start for s in part]
    return Record(dims, dtype, drawn(f"{name} {[s.start for s in part]}",
                                     math.prod(dims) * ELEMENT_BYTES[dtype]))


@functools.lru_cache(None)
def drawn(what, length):
    return random.Random(what).randbytes(length)


def save(directory, shape):
    """Writes the tree that the source's job saved, and gives its path."""
    job = GenuineSet(shape.source, directory)
    layouts = job.stages[0]
    source = os.path.join(directory, "bucket", "job")
    for rank in range(job.device_count):
        path = write(f"{source}/rank_{rank}/net-1_10.ckpt", checkpoint_bytes({
            name: record(layouts[name], name, [n * shape.scale for n in dims], dtype, rank)
            for name, dims, dtype in job.parameters if name in layouts}))
        os.utime(path, (1e9, 1e9))  # what is new is in no index cache
    return source


def load_and_compare(path, expected):
    """Reads a file as load_checkpoint does, from front to back, and says how many of
    its MiB are wrong; this is a process of its own."""
    buffer = bytearray(MIB)
    address = ctypes.addressof((ctypes.c_char * MIB).from_buffer(buffer))
    wrong, at = 0, 0
    with open(path, "rb", buffering=0) as f, open(expected, "rb") as e, \
            mmap.mmap(e.fileno(), 0, flags=mmap.MAP_PRIVATE) as right:
        base = ctypes.addressof(ctypes.c_char.from_buffer(right))
        while n := f.readinto(buffer):
            wrong += MEMCMP(address, base + at, n) != 0
            at += n
        wrong += at != len(right)
    return wrong


def file_of(rank):
    return f"rank_{rank}/checkpoint_{rank}.ckpt"


class Server:
    def __init__(self, root, rate):
        self.root, self.log = root, os.path.join(root, ".requests")
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(LIB, "s3_server.py"),
             *(["--total", str(rate)] if rate else []), root],
            stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def ranges(self):
        """(object, begin, end) of all ranges that were asked for so far."""
        with open(self.log, encoding="utf-8") as f:
            found = [RANGE.match(line.rstrip("\n")) for line in f]
        return [(m[1], int(m[2]), min(int(m[3]) + 1, os.path.getsize(self.root + m[1])))
                for m in found if m]

    def count(self):
        return len(self.ranges())


def distinct_bytes(ranges):
    total, end, of = 0, 0, None
    for name, first, last in sorted(ranges):
        if name != of:
            of, end = name, 0
        total += max(0, last - max(first, end))
        end = max(end, last)
    return total


class Cluster:
    """`options` are the mounts' own.  Nothing that the user has is looked at."""

    def __init__(self, directory, shape, rate=0, options=()):
        self.directory, self.shape, self.rate = directory, shape, rate
        self.options = list(options)
        self.source = save(directory, shape)
        self.src = GenuineSet(shape.source, directory).directory()
        loads = GenuineSet(shape.destination, directory)
        self.dst = loads.directory()
        self.ranks = [n % (loads.device_count * len(loads.stage_files))
                      for n in range(shape.nodes)]
        self.expected = self._export()

    def _export(self):
        """What the nodes must find, by the files on disk."""
        out = os.path.join(self.directory, "expected")
        subprocess.run([reshardfs_program(), "export", "-q", "--src-strategy", self.src,
                        "--dst-strategy", self.dst, self.source, out,
                        *map(str, sorted(set(self.ranks)))],
                       check=True, env={**os.environ, "XDG_CACHE_HOME": self.directory})
        return [f"{out}/{file_of(rank)}" for rank in self.ranks]

    def __enter__(self):
        self.server = Server(self.directory, self.rate)
        return self

    def __exit__(self, *_):
        self.server.stop()

    def environment(self):
        return {"AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.server.port}",
                "AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": "secret",
                "AWS_REGION": "here", "HOME": self.directory, "no_proxy": "127.0.0.1"}

    def mounts(self, stack, options):
        return [stack.enter_context(Mounted(
            "s3://bucket/job", src_strategy=self.src, dst_strategy=self.dst,
            env=self.environment(), extra=[*self.options, *options]))
            for _ in range(self.shape.nodes)]

    def start_job(self, options=(), meanwhile=None, first=None):
        """Mounts on all nodes, and then loads all files at once; what mounting and
        `first(mounts)` took does not count.  `meanwhile(mounts)` is called once readers
        are under way."""
        with contextlib.ExitStack() as stack:
            mounts = self.mounts(stack, options)
            pool = stack.enter_context(concurrent.futures.ProcessPoolExecutor(len(mounts)))
            list(pool.map(abs, range(len(mounts))))  # they are there
            if first:
                first(mounts)
            before = self.server.count()
            begin = time.monotonic()
            loads = [pool.submit(load_and_compare, f"{m.path}/{file_of(rank)}", right)
                     for m, rank, right in zip(mounts, self.ranks, self.expected)]
            if meanwhile:
                meanwhile(mounts)
            wrong = [load.result() for load in loads]
            seconds = time.monotonic() - begin
            if any(wrong):
                raise AssertionError(f"wrong bytes: {wrong}")
            ranges = self.server.ranges()[before:]
            return Start(seconds, sum(e - b for _, b, e in ranges), distinct_bytes(ranges),
                         len(ranges), [m.stats() for m in mounts])


def under_way(mounts):
    """Waits until the first node has an eighth of its file."""
    sizes = [os.path.getsize(os.path.join(top, name))
             for top, _, names in os.walk(mounts[0].path) for name in names]
    while mounts[0].stats()["shown"]["bytes"] < max(sizes) / 8:
        time.sleep(0.02)
