#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulate what a start of a job reads from its storage, from real plans.

    RESHARDFS=PROGRAM cluster_model.py [--pair SOURCE:DESTINATION] [--scale N]
        [--larger F] [--cards N...] [--cards-per-node N] [--rate MB] [--shared]
        [--measured FILE]

`reshardfs plan --json --slices` says where in the source all bytes of all files lie:
here of a genuine strategy set of tests/data/strategies that is loaded as another one,
where card n loads the file of rank n modulo that set's ranks, as jobs do that were
made larger by more data parallel ranks.  Each node reads its files from front to back
by blocks, some at a time; the storage gives RATE in all, and a block that some node has
fetched need not be fetched again by the same node, nor, with --shared, by another one.

--larger F takes all tensors for F times as large, by making blocks smaller, which is
the same.  --measured holds the prediction against what cluster.py --json has found.
Standard library only.
"""
import argparse
import collections
import heapq
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                os.pardir, "lib"))

from cluster import Shape, save  # noqa: E402
from genuine_sets import GenuineSet  # noqa: E402
from rsh_mount import reshardfs_program  # noqa: E402

BLOCK = 256 * 1024   # of the block cache
AT_ONCE = 5          # neighbouring blocks that one request fetches
DEPTH = 8            # requests of a node under way
STRETCH = re.compile(r"(\d+):(\d+)\+(\d+)(?:\*(\d+)/(\d+))?")
ABSENT, CLAIMED, PRESENT = range(3)


# ---- the plan ----

def plans(pair, scale):
    """Of each rank the slices in the order of its file, and its bytes."""
    directory = tempfile.mkdtemp(prefix="reshardfs-model-")
    try:
        source = save(directory, Shape(*pair, scale=scale))
        src, dst = (GenuineSet(name, directory).directory() for name in pair)
        out = subprocess.run(
            [reshardfs_program(), "plan", "-q", "--json", "--slices", "--src-strategy", src,
             "--dst-strategy", dst, source], check=True, stdout=subprocess.PIPE,
            env={**os.environ, "XDG_CACHE_HOME": directory}).stdout
    finally:
        shutil.rmtree(directory)
    return [([s[2] for s in f["slices"]], f["bytes"]) for f in json.loads(out)["files"]]


def blocks_of(text, block):
    """(file, block) of a slice, in the order in which a reader comes to them."""
    found = []
    for rank, at, length, n, stride in STRETCH.findall(text):
        n, stride, at, length = int(n or 1), int(stride or 0), int(at), int(length)
        for row in range(n):
            first = at + row * stride
            for b in range(int(first // block), int((first + length - 1) // block) + 1):
                # Of one run, how much of it lies before the block.
                before = max(0.0, b * block - first) / length
                found.append(((row + before) / n, int(rank), b))
    return [(rank, b) for _, rank, b in sorted(found)]


def blocks_of_node(files, block):
    """The blocks that a node comes to, each once, its files side by side."""
    lists = [list(dict.fromkeys(itertools.chain.from_iterable(
        blocks_of(text, block) for text in slices))) for slices, _ in files]
    together = itertools.chain.from_iterable(itertools.zip_longest(*lists))
    return list(dict.fromkeys(b for b in together if b))


# ---- the machines ----

class Line:
    """Something that serves one after the other."""

    def __init__(self, rate, latency=0.0):
        self.rate, self.latency, self.free = rate, latency, 0.0

    def done(self, now, n):
        self.free = max(self.free, now) + (n / self.rate if self.rate else 0)
        return self.free + self.latency


class Node:
    def __init__(self, blocks, line):
        self.line = line
        self.requests = collections.deque(grouped(blocks))
        self.under_way = 0


def grouped(blocks):
    """Requests: neighbours in a file, as they come."""
    group = []
    for b in blocks:
        if group and (len(group) == AT_ONCE or b != (group[-1][0], group[-1][1] + 1)):
            yield group
            group = []
        group.append(b)
    if group:
        yield group


class Simulation:
    """`storage` and the nodes' own lines serve bytes; blocks have `size` bytes."""

    def __init__(self, nodes, storage, size, shared):
        self.nodes, self.storage, self.size, self.shared = nodes, storage, size, shared
        self.state = collections.defaultdict(lambda: ABSENT)
        self.waiting = collections.defaultdict(list)
        self.events, self.count = [], itertools.count()
        self.read, self.distinct, self.end = 0, set(), 0.0

    def at(self, when, what, *arguments):
        heapq.heappush(self.events, (when, next(self.count), what, arguments))

    def run(self):
        for node in self.nodes:
            for _ in range(DEPTH):
                self.at(0.0, self.next, node)
        while self.events:
            self.now, _, what, arguments = heapq.heappop(self.events)
            what(*arguments)
        return self

    def next(self, node):
        if not node.requests:
            return
        group = node.requests.popleft()
        state = [self.state[b] if self.shared else ABSENT for b in group]
        fetched = [b for b, s in zip(group, state) if s == ABSENT]
        request = [node, len(group), len(group) - len(fetched) - state.count(CLAIMED)]
        for b, s in zip(group, state):
            if s == CLAIMED:
                self.waiting[b].append(request)
        if fetched:
            for b in fetched:
                self.state[b] = CLAIMED
            self.distinct.update(fetched)
            self.read += len(fetched) * self.size
            self.at(self.storage.done(self.now, len(fetched) * self.size), self.fetched,
                    request, fetched)
        self.advance(request, 0)

    def fetched(self, request, blocks):
        for b in blocks:
            self.state[b] = PRESENT
            for other in self.waiting.pop(b, ()):
                self.advance(other, 1)
        self.advance(request, len(blocks))

    def advance(self, request, n):
        request[2] += n
        if request[2] == request[1]:
            done = request[0].line.done(self.now, request[1] * self.size)
            self.end = max(self.end, done)
            self.at(done, self.next, request[0])


def simulate(files, o, cards, shared):
    per_node = min(o.cards_per_node, cards)
    ranks = [card % len(files) for card in range(cards)]
    on_node = [tuple(sorted(set(ranks[i:i + per_node]))) for i in range(0, cards, per_node)]
    size = BLOCK / o.larger
    blocks = {of: blocks_of_node([files[r] for r in of], size) for of in set(on_node)}
    host = Line(o.host_rate * 1e6) if o.one_host else None
    nodes = [Node(blocks[of], host or Line(o.host_rate * 1e6)) for of in on_node]
    s = Simulation(nodes, Line(o.rate * 1e6, o.latency / 1e3), BLOCK, shared).run()
    return {"cards": cards, "nodes": len(nodes), "shared": shared,
            "shown": sum(files[r][1] for r in ranks) * o.larger, "read": s.read,
            "distinct": len(s.distinct) * BLOCK, "seconds": s.end}


# ---- what is said ----

def tell(found):
    print(f"{found['cards']} cards, {found['nodes']} nodes, "
          f"{'one cache' if found['shared'] else 'each for itself'}: "
          f"{found['read'] / 1e9:.3f} GB read for {found['shown'] / 1e9:.3f} GB shown, "
          f"{found['read'] / found['distinct']:.2f} bytes per distinct byte, "
          f"{found['seconds']:.2f} s", flush=True)


def compare(found, path):
    """Holds it against all measurements of a file; returns the largest deviation."""
    with open(path, encoding="utf-8") as f:
        measured = json.load(f)["found"]
    worst = 0.0
    for m in measured:
        if m["shared"] != found["shared"] or m.get("fault"):
            continue
        off = {"read": found["read"] / m["served"] - 1,
               "seconds": found["seconds"] / m["seconds"] - 1}
        print(f"  measured {m['served'] / 1e9:.3f} GB, {m['seconds']:.2f} s: predicted "
              f"{off['read']:+.1%} bytes, {off['seconds']:+.1%} time")
        worst = max(worst, *map(abs, off.values()))
    return worst


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pair", default="dp4mp2_opt:infer_mp2")
    parser.add_argument("--scale", type=int, default=16, help="of every dimension")
    parser.add_argument("--larger", type=float, default=1, help="times all tensors")
    parser.add_argument("--cards", type=int, nargs="+", default=[8])
    parser.add_argument("--cards-per-node", type=int, default=1)
    parser.add_argument("--rate", type=float, default=200, help="MB/s of the storage")
    parser.add_argument("--latency", type=float, default=1, help="ms to the first byte")
    parser.add_argument("--host-rate", type=float, default=1000,
                        help="MB/s that a node handles")
    parser.add_argument("--one-host", action="store_true",
                        help="all nodes are on one machine, which handles that in all")
    parser.add_argument("--shared", action="store_true", help="only with one cache")
    parser.add_argument("--alone", action="store_true", help="only each for itself")
    parser.add_argument("--measured", help="what cluster.py has found")
    return parser.parse_args()


def main():
    o = options()
    files = plans(o.pair.split(":"), o.scale)
    worst = 0.0
    for cards in o.cards:
        for shared in [False] * (not o.shared) + [True] * (not o.alone):
            found = simulate(files, o, cards, shared)
            tell(found)
            if o.measured:
                worst = max(worst, compare(found, o.measured))
    return worst > 0.2


if __name__ == "__main__":
    sys.exit(main())
