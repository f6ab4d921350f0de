# SPDX-License-Identifier: Apache-2.0
"""The rows of a cache that compresses what shrinks and leaves alone what does not."""

import contextlib
import os
import shutil
import statistics

import memcached
from daemon_use import processor_seconds
from memcached import Memcached

from bench_rows import SLOW, SLOW_RATE, rates, row
from bench_saved import RANKS
from bench_tools import Broken, Measured, Skip

OFF = ("--cache-compress", "off")
BLOCK = 256 << 10


@contextlib.contextmanager
def cached(bench, tree, size, *extra):
    """A mount whose cache has so much memory, and nothing in it yet."""
    if not bench.offers("--cache-compress"):
        raise Skip("this reshardfs has no --cache-compress")
    with bench.mounted(tree, ranks=RANKS, extra=[
            "--cache", "on", "--io-mode", "direct", "--cache-size", str(size),
            *extra]) as mount:
        yield mount


def read_all(bench, mount, tree):
    return bench.read(bench.forget(bench.files(mount, tree, RANKS)))


# ---- what does not shrink ----

def trained(bench, cost):
    """What a mount that compresses costs, as a part of one that does not: both read
    all, with memory for a quarter of it."""
    tree = bench.tree("saved_bf16")
    result = Measured()

    def through(*extra):
        with cached(bench, tree, tree.content // 4, *extra) as mount:
            began = processor_seconds(mount.process.pid)
            sample = read_all(bench, mount, tree)
            spent = processor_seconds(mount.process.pid) - began
            if mount.stats()["cache"]["compressed_blocks"]:
                raise Broken("what was trained was compressed")
        return sample, cost(sample, spent)

    with cached(bench, tree, tree.content // 4) as mount:
        bench.verify(mount, tree, RANKS)
    for i in bench.each_repeat():
        # Who comes second has the warmer machine.
        sides = [(), OFF] if i % 2 else [OFF, ()]
        found = {side: through(*side) for side in sides}
        result.mount.append(found[()][0])
        result.peer.append(found[OFF][0])
        result.values.append(found[()][1] / found[OFF][1])
    return rates(result, peer="off")


@row("cache_trained", "time through the cache, a trained bf16 model",
     "--cache-compress off", ("<=", 1.02), tree="saved_bf16")
def cache_trained(bench):
    return trained(bench, lambda sample, _: sample.seconds)


@row("cache_trained_processor", "the same: processor time of the mount",
     "--cache-compress off", ("<=", 1.02), tree="saved_bf16")
def cache_trained_processor(bench):
    return trained(bench, lambda _, spent: spent)


# ---- what does ----

def held(bench, name):
    """How much more of the files memory for a quarter of them holds."""
    tree = bench.tree(name)
    result = Measured()

    def through(*extra):
        with cached(bench, tree, tree.content // 4, *extra) as mount:
            if not extra:
                bench.verify(mount, tree, RANKS)
            sample = read_all(bench, mount, tree)
            return sample, mount.stats()["cache"]

    for _ in bench.each_repeat(most=3):
        (sample, auto), (peer, off) = through(), through(*OFF)
        result.mount.append(sample)
        result.peer.append(peer)
        result.values.append(auto["held_bytes"] / off["held_bytes"])
        whole = auto["compressed_from_bytes"]
        result.note(f"{auto['compressed_to_bytes'] / whole:.2f} of what was compressed is "
                    f"left, {whole / (whole + auto['uncompressed_bytes']):.0%} was")
    return result


row("cache_holds", "bytes that the cache holds of bf16 saved as fp32",
    "--cache-compress off", (">=", 1.8), "x", tree="saved_fp32", by=(held, "saved_fp32"))
row("cache_holds_moments", "the same of AdamW's states, a third of whose embedding's "
    "rows is zero", "--cache-compress off", None, "x", tree="saved_moments",
    by=(held, "saved_moments"))


def held_again(bench, name):
    """Reads of what memory for 0.62 of the files holds, which is all of them."""
    tree = bench.tree(name)
    result = Measured()
    for _ in bench.each_repeat(most=3):
        with cached(bench, tree, tree.content * 62 // 100, "--fault", SLOW) as mount:
            read_all(bench, mount, tree)
            before = mount.stats()["cache"]
            result.mount.append(read_all(bench, mount, tree))
            after = mount.stats()["cache"]
            bench.verify(mount, tree, RANKS)
        result.values.append(result.mount[-1].rate / SLOW_RATE)
        loaded = after["bytes_loaded"] - before["bytes_loaded"]
        unpacked = after["unpacked_bytes"] - before["unpacked_bytes"]
        result.note(f"{loaded / tree.content:.0%} loaded again, "
                    f"{unpacked / tree.content:.0%} unpacked")
    return rates(result)


row("cache_again", "reads of it when it is held, in memory for 0.62 of it",
    "a source of 5 ms and 200 MB/s", (">=", 3), "x", tree="saved_fp32",
    by=(held_again, "saved_fp32"))


@row("cache_disk", "bytes of it in a directory for blocks", "bytes of the blocks",
     ("<=", 0.6), tree="saved_fp32")
def cache_disk(bench):
    tree = bench.tree("saved_fp32")
    directory = os.path.join(bench.work, "blocks")
    result = Measured()
    for _ in bench.each_repeat(most=3):
        with cached(bench, tree, tree.content // 4, "--cache-dir", directory) as mount:
            result.mount.append(read_all(bench, mount, tree))
        sizes = [e.stat().st_size for e in os.scandir(directory)]
        with cached(bench, tree, tree.content // 4, "--cache-dir", directory) as mount:
            bench.verify(mount, tree, RANKS)
        shutil.rmtree(directory)
        result.note(f"{len(sizes) * BLOCK / tree.content:.0%} of the blocks were written")
        result.values.append(statistics.mean(sizes) / BLOCK)
    return rates(result)


@row("cache_servers", "bytes of it that servers carry", "bytes of the blocks",
     ("<=", 0.6), tree="saved_fp32")
def cache_servers(bench):
    if not memcached.PROGRAM:
        raise Skip("there is no memcached (Debian package memcached)")
    tree = bench.tree("saved_fp32")
    result = Measured()
    for _ in bench.each_repeat(most=3):
        with Memcached("-m", str(tree.content >> 20)) as server:
            words = ("--cache-servers", server.address)
            with cached(bench, tree, tree.content // 4, *words) as mount:
                result.mount.append(read_all(bench, mount, tree))
                f = mount.stats()["cache"]
            with cached(bench, tree, tree.content // 4, *words) as mount:
                bench.verify(mount, tree, RANKS)
        stored = f["bytes_loaded"] - f["shared_dropped"] * BLOCK
        result.values.append(f["shared_written_bytes"] / stored)
    return rates(result)
