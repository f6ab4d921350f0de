# SPDX-License-Identifier: Apache-2.0
"""The rows of sources behind HTTP: nginx, or else a server of the tests' own, on the
loopback, whose answers begin after 30 ms and whose connections give 100 MB/s each."""

import contextlib
import os
import re
import shutil
import subprocess

import nginx
from s3_trial import Server

from bench_rows import rates, row, the_tree
from bench_tools import Broken, Measured, Sample, Skip, timed

DELAY_MS, RATE = 30, 100_000_000


def server_of(tree, root):
    """One that has the tree's source as s3://bucket."""
    if nginx.can_delay():
        return nginx.Nginx(tree.source, root, delay=DELAY_MS / 1000, rate=RATE)
    os.makedirs(root)
    os.symlink(tree.source, os.path.join(root, "bucket"))
    return Server(root, "--delay", str(DELAY_MS), "--rate", str(RATE))


@contextlib.contextmanager
def served(tree):
    """With keys for it in the environment."""
    root = os.path.join(tree.directory, "served")
    before = dict(os.environ)
    with server_of(tree, root) as server:
        os.environ.update(AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.port}",
                          AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret",
                          AWS_REGION="here", no_proxy="127.0.0.1")
        try:
            yield server
        finally:
            os.environ.clear()
            os.environ.update(before)
            shutil.rmtree(root)


def connections(server):
    """How many clients are connected to it."""
    with open("/proc/net/tcp", encoding="ascii") as f:
        return sum(words[2].endswith(f":{server.port:04X}") and words[3] == "01"
                   for words in map(str.split, f))


def lengths(requests):
    """Of the ranges that were asked for."""
    ranges = (re.search(r"bytes=(\d+)-(\d+)$", line) for line in requests)
    return [int(found[2]) - int(found[1]) + 1 for found in ranges if found]


@contextlib.contextmanager
def mounted(bench, tree, *extra):
    """A mount that has nothing of the source but its index."""
    with bench.mounted_at("s3://bucket", tree.src_strategy, tree.dst_strategy,
                          ["--check", "structure", *extra]) as mount:
        mount.bench_key = (tree.directory, "s3", extra)
        yield mount


def pieces(tree, n):
    """(name, first, last) of about n stretches as long, which are all of the source."""
    length = -(-sum(map(os.path.getsize, tree.source_files())) // n)
    for path in tree.source_files():
        size = os.path.getsize(path)
        for first in range(0, size, length):
            yield os.path.relpath(path, tree.source), first, min(first + length, size) - 1


def curl(server, tree, n):
    """All of the source by so many connections, each of which asks once or twice."""
    told = "".join(f'url = "http://127.0.0.1:{server.port}/bucket/{name}"\n'
                   f'range = "{first}-{last}"\noutput = "/dev/null"\n'
                   for name, first, last in pieces(tree, n))
    seconds, _ = timed(lambda: subprocess.run(
        ["curl", "--silent", "--parallel", "--parallel-immediate",
         "--parallel-max", str(n), "--config", "-"],
        input=told, text=True, check=True, stderr=subprocess.DEVNULL))
    return Sample(seconds, sum(map(os.path.getsize, tree.source_files())))


def against_curl(bench, *words):
    """One reader of a mount with such options, and curl with the connections that it
    had."""
    if not shutil.which("curl"):
        raise Skip("there is no curl (Debian package curl)")
    tree = the_tree(bench, "contiguous")
    result = Measured()
    with served(tree) as server:
        with mounted(bench, tree) as mount:
            bench.verify(mount, tree)
        for _ in bench.each_repeat():
            with mounted(bench, tree, *words) as mount:
                result.mount.append(bench.read(bench.files(mount, tree)))
                used = connections(server)
            result.peer.append(curl(server, tree, used))
            result.note(f"{used} connections to {server.name}")
            result.values.append(result.mount[-1].rate / result.peer[-1].rate)
    return rates(result, peer="curl")


# So many connections do not keep the processors of a small machine busy.
row("s3", "one reader of a source 30 ms away, 4 requests at a time",
    "curl with as many connections", (">=", 0.8), by=(against_curl, "--source-requests", "4"))
row("s3_many", "the same with as many requests as it likes",
    "curl with as many connections", None, by=(against_curl,))


@row("s3_inner", "one reader of it for rows of 1 KiB, bytes fetched for each byte shown",
     "", ("<=", 1.05), tree="inner")
def s3_inner(bench):
    tree = the_tree(bench, "inner")
    result = Measured()
    with served(tree) as server:
        for _ in bench.each_repeat(most=3):
            with mounted(bench, tree) as mount:
                server.requests()
                result.mount.append(bench.read(bench.files(mount, tree)))
                asked = lengths(server.requests())
            if not asked:
                raise Broken("nothing was asked for")
            result.note(f"{len(asked)} requests of {sum(asked) // len(asked) >> 10} KiB")
            result.values.append(sum(asked) / result.mount[-1].bytes)
    return rates(result)
