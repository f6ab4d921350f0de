#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--fault: what each kind does, what is refused, and what readers see of it.

The job has two replicas of everything (small_job.py) and is mounted under its
own strategy, so that what a virtual file holds lies at nearly the same place in
the source file of its rank.
"""

import concurrent.futures
import contextlib
import errno
import os
import random
import re
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, content, demand  # noqa: E402
from read_modes import CACHES, figures  # noqa: E402
from rsh_cli import INPUT, NO, USAGE, good, refused, run, run_json  # noqa: E402
from rsh_mount import (TIMEOUT_SCALE, Mounted, Tests, expect_failure, hash_tree,  # noqa: E402
                       require_mount, tree_difference)
from small_job import Job  # noqa: E402

SHAPES = {"up.weight": (2048, 700), "down.weight": (500, 1024), "norm.gamma": (700,)}
STEP = (1, 10)
SLOW_US = 400  # SLOW_NS of storage/store/cache_policy.c
# Just the bytes that are asked for.
BARE = ["--io-mode", "direct", "--cache", "off"]
test = Tests("faults")


def mounted(job, fault, *words):
    return Mounted(job.source, src_strategy=job.strategy, dst_strategy=job.strategy,
                   extra=["--log-level", "info", "--fault", fault, *words])


def shown(job, fault, *words):
    """All bytes are right; the log."""
    with mounted(job, fault, *words) as mount:
        mount.demand_tree(job.expected(*STEP))
    return mount.log()


def name_of(rank):
    return f"rank_{rank}/checkpoint_{rank}.ckpt"


@contextlib.contextmanager
def opened(mount, rank):
    fd = os.open(os.path.join(mount.path, name_of(rank)), os.O_RDONLY)
    try:
        yield fd
    finally:
        os.close(fd)


def outcome(fd, length, offset, data):
    """None, or the name of the error; bytes that come have to be right."""
    try:
        got = os.pread(fd, length, offset)
    except OSError as error:
        return errno.errorcode[error.errno]
    check(got == data[offset:offset + length], f"wrong bytes at {offset}")
    return None


def outcomes(job, mount, rank, seed=1):
    """{offset: outcome} of 4000 bytes each, at every 8000 in random order."""
    data = job.file_bytes(rank, *STEP)
    places = list(range(0, len(data), 8000))
    random.Random(seed).shuffle(places)
    with opened(mount, rank) as fd:
        return {at: outcome(fd, 4000, at, data) for at in places}


# ---- the grammar ----

WRONG = ("eoi", "EIO", "eio;", ";eio", "eio,", "eio,p=", "eio,p=2", "eio,p=-1",
         "eio,p=half", "eio,p=nan", "eio,rate=5M", "eio@rank_0/:5", "eio@rank_0/:5-",
         "eio@rank_0/:-5", "eio@rank_0/:9-5", "eio@rank_0/:5-5", "eio@rank_0/:a-b",
         "eio@rank_0/:1-99999999999999999999", "delay", "delay=", "delay=5", "delay=5m",
         "delay=-5ms", "delay=5ms,rate=0", "delay=5ms,rate=", "delay=5ms,rate=5X",
         "delay=99999999999999s", "short=5", "eio p=1", "eio;delay=5", "flip=3",
         "flip,seed=", "flip,times=3", "eio,times=", "eio,times=-1", "flip,seed=-1",
         "eio,after=", "flip,after=1", "flip,seed=1K", "eio,seed=1", "flip,rate=5M", "delay=5ms,crowd=",
         "delay=5ms,crowd=0.9", "delay=5ms,crowd=1001", "delay=5ms,crowd=nan",
         "delay=5ms,crowd=2x", "eio,crowd=2")

RIGHT = ("eio@nowhere", "short@rank_1/;delay=1us@rank_2/:5-7,p=0.5", "delay=0s,rate=5G",
         "delay=2ms@rank_1/,rate=800M,crowd=2.5,p=1", "eio,p=0", "truncate,p=0.0",
         "eio@:99999999-100000000", "eio,times=0", "eio@rank_2/,times=1", "eio@rank_2/,after=2,times=1", "flip,p=0",
         "flip@nowhere,seed=18446744073709551615")


@test
def wrong_ones_are_refused_with_one_sentence(job):
    for fault in WRONG:
        wrong = next((f for f in fault.split(";") if f in ("", "delay=5")), fault)
        refused(run("mount", f"--fault={fault}", "--src-strategy", job.strategy,
                    "--dst-strategy", job.strategy, job.source, "/nonexistent"),
                USAGE, f'fault: "{wrong}"')


@test
def right_ones_are_taken(job):
    for fault in RIGHT:
        shown(job, fault)


# ---- kinds ----

@test
def eio_with_replicas_gives_right_bytes(job):
    for cache in CACHES:
        log = shown(job, "eio@rank_2/", "--cache", cache)
        lines = [line for line in log.splitlines() if ": error: " in line]
        check(len(lines) == 1 and "rank_2/" in lines[0] and os.strerror(errno.EIO) in lines[0],
              log)
        check(figures(log)["failed"] > 0, log)


@test
def eio_without_replicas_gives_eio(job):
    for words in (["--replicas", "off"], ["--replicas", "auto"]):
        # Rank 6 holds what rank 2 holds.
        fault = "eio@rank_2/" if words[1] == "off" else "eio@rank_2/;eio@rank_6/"
        for cache in CACHES:
            with mounted(job, fault, "--cache", cache, "--io-mode", "direct",
                         *words) as mount:
                found = outcomes(job, mount, 2)
                check(set(found.values()) <= {"EIO", None} and
                      list(found.values()).count("EIO") > len(found) // 2, str(found))
                check(set(outcomes(job, mount, 1).values()) == {None}, mount.log())


@test
def eio_in_a_range_spares_other_bytes(job):
    with mounted(job, "eio@rank_2/:400000-400001", "--replicas", "off", *BARE) as mount:
        for at, said in outcomes(job, mount, 2).items():
            # Headers may be of other lengths than in the source.
            if abs(at + 2000 - 400000) > 3000:
                check(said is None, f"{said} at {at}")
        data = job.file_bytes(2, *STEP)
        with opened(mount, 2) as fd:
            check(outcome(fd, 4000, 398000, data) == "EIO", "no error in the range")


@test
def truncate_gives_errors_and_never_zeroes(job):
    for cache in CACHES:
        with mounted(job, "truncate@rank_2/:300000-300001", "--replicas", "off",
                     "--io-mode", "direct", "--cache", cache) as mount:
            found = outcomes(job, mount, 2)
            behind = {said for at, said in found.items() if at > 301000}
            before = {said for at, said in found.items() if at < 1000}
            check(behind <= {"ESTALE", "EIO"} and behind, f"{behind} in {found}")
            check(cache == "on" or before == {None}, f"{before}")


@test
def truncate_with_replicas_gives_right_bytes(job):
    for cache in CACHES:
        shown(job, "truncate@rank_2/:300000-300001;truncate@rank_5/", "--cache", cache)


@test
def short_reads_give_right_bytes(job):
    for cache in CACHES:
        check(figures(shown(job, "short", "--cache", cache))["failed"] == 0, cache)


@test
def probability(job):
    """Reads that fail are made again; what fails now and then comes through."""
    for p, least, most in ((0, 0, 0), (0.3, 0, 0.3), (1, 1, 1)):
        with mounted(job, f"eio@rank_2/,p={p}", "--replicas", "off", *BARE) as mount:
            found = list(outcomes(job, mount, 2).values())
            # Headers are not read from the source.
            share = found.count("EIO") / len(found)
            check(least - 0.05 <= share <= most, f"p={p}: {share} of {len(found)}")
        failed = figures(mount.log())["failed"]
        check(failed >= len(found) * p / 2 and (p or not failed), f"p={p}: {failed} failed")


@test
def several_faults_and_replicas(job):
    for cache in CACHES:
        shown(job, "eio@rank_0/,p=0.5;short,p=0.5;truncate@rank_5/:100000-100001;"
              "delay=100us,p=0.2", "--cache", cache)


# ---- bytes that are turned over ----

def place(job, rank, name):
    """Where the content of a record begins in the file of the rank."""
    return job.file_bytes(rank, *STEP).index(job.records(rank, *STEP)[name].content)


def flips(rank, at, n=1):
    return f"flip@rank_{rank}/:{at}-{at + n}"


def refused_mount(job, fault, *words):
    status, said = expect_failure(job.source, src_strategy=job.strategy,
                                  dst_strategy=job.strategy,
                                  extra=["--fault", fault, *words])
    check(status == INPUT, f"{status} {said}")
    return said


@test
def flips_of_content_without_a_checksum_are_shown(job):
    """Each byte of the range is another one, in every read the same; no other
    byte is."""
    data, at = job.file_bytes(2, *STEP), place(job, 2, "up.weight") + 100000
    for cache in CACHES:
        with mounted(job, flips(2, at, 3), "--cache", cache) as mount, \
                opened(mount, 2) as fd:
            got = os.pread(fd, 5, at - 1)
            check([a == b for a, b in zip(got, data[at - 1:])] ==
                  [True, False, False, False, True], f"{got} {data[at - 1:at + 4]}")
            check(all(bin(a ^ b).count("1") <= 1 for a, b in zip(got, data[at - 1:])), str(got))
            check(os.pread(fd, 200000, at - 100000)[99999:100004] == got, "another time")
            check(outcome(fd, 100000, at + 3, data) is None, "an error")
            for rank in (1, 3):
                check(set(outcomes(job, mount, rank).values()) == {None}, mount.log())


@test
def flips_that_a_sample_meets_refuse_the_mount(job):
    """All of a tensor on one of two ranks that hold the same."""
    at = place(job, 4, "down.weight")
    n = len(job.records(4, *STEP)["down.weight"].content)
    demand(refused_mount(job, flips(4, at, n)), "down.weight", "ranks 0 and 4 should hold the "
           "same slice, but their bytes differ", "a file is damaged, or of another save")


@test
def flips_of_headers_are_errors_or_right_bytes(job):
    """The type, the dimensions, the lengths of messages."""
    data = job.file_bytes(2, *STEP)
    for at in (0, 1, data.index(b"Float32") - 1, data.index(b"Float32"),
               data.index(b"Float32") + 6, place(job, 2, "up.weight") - 1,
               place(job, 2, "norm.gamma") - 1, data.index(b"Int64") + 2):
        demand(shown(job, flips(2, at)), "are read from replicas")
        # Rank 6 holds what rank 2 holds.
        refused_mount(job, f"{flips(2, at)};{flips(6, at)}")


@test
def flips_under_a_crc_are_errors_or_right_bytes(_):
    with tempfile.TemporaryDirectory(prefix="reshardfs-crc-") as directory:
        job = Job(os.path.join(directory, "job"))
        job.save(*STEP, crc=True)
        for name in job.records(2, *STEP):
            at = place(job, 2, name) + 1
            demand(shown(job, flips(2, at), "--check", "full"), "rank_2/", "CRC",
                   "the file is left out")
            demand(refused_mount(job, f"{flips(2, at)};{flips(6, at)}", "--check", "full"),
                   "rank_2/", "CRC")


@test
def flips_are_found_by_a_manifest(job):
    with tempfile.TemporaryDirectory(prefix="reshardfs-manifest-") as directory:
        manifest = os.path.join(directory, "manifest")
        words = ["--src-strategy", job.strategy, "--dst-strategy", job.strategy]
        good("verify", job.source, *words, "--write-manifest", manifest)
        for name in job.records(2, *STEP):
            fault = flips(2, place(job, 2, name) + 1)
            said = run_json("verify", job.source, manifest, *words, "--fault", fault, status=NO)
            found = {(p["path"][-len(name_of(2)):], p["record"]) for p in said["problems"]}
            check((name_of(2), name) in found and {p[1] for p in found} == {name} and
                  not said["another_conversion"], f"{name}: {said}")


@test
def drills_with_flips_leave_nothing_behind(job):
    """Neither in a directory of blocks nor in the index cache."""
    with tempfile.TemporaryDirectory(prefix="reshardfs-kept-") as directory:
        kept = ["--cache", "on", "--cache-dir", os.path.join(directory, "blocks"),
                "--index-cache", os.path.join(directory, "index")]
        at = place(job, 0, "up.weight")
        # What replicas hold in common goes with the bits that are turned over.
        with mounted(job, f"flip@:{at}-{at + 1000000}", *kept, "--check=structure") as mount:
            different = tree_difference(job.expected(*STEP), hash_tree(mount.path))
            check(len(different) == job.n_ranks, str(different))
        check(os.listdir(os.path.join(directory, "blocks")), "no blocks were kept")
        refused_mount(job, f"flip@:0-{at}", *kept)
        check(not os.listdir(os.path.join(directory, "index")), "an index was kept")
        with Mounted(job.source, src_strategy=job.strategy, dst_strategy=job.strategy,
                     extra=kept) as mount:
            mount.demand_tree(job.expected(*STEP))
        check(os.listdir(os.path.join(directory, "index")), "no index is ever kept")


# ---- a slow source ----

@test
def delay_and_rate_take_their_time(job):
    data = job.file_bytes(0, *STEP)
    with mounted(job, "delay=300ms@rank_0/", *BARE) as mount, opened(mount, 0) as fd:
        start = time.monotonic()
        check(outcome(fd, 100, 200000, data) is None, "an error")
        check(time.monotonic() - start >= 0.3, "no delay")
    with mounted(job, "delay=0s@rank_0/,rate=4M", *BARE) as mount:
        start = time.monotonic()
        check(content(os.path.join(mount.path, name_of(0))) == data, "wrong bytes")
        took = time.monotonic() - start
        check(took >= len(data) / 4.2e6, f"{len(data)} bytes in {took} s")


@test
def a_slow_source_takes_the_cache(job):
    slow = shown(job, "delay=5ms")
    check(": read through the cache" in slow and "cache:" in slow, slow)
    # This source is as fast as the machine has time for it: the log says.
    local = shown(job, "eio@nowhere")
    took = [int(us) for us in re.findall(r": read again in (\d+) us", local)]
    check(took, local)
    if max(took) < SLOW_US:
        check(": read straight" in local and "cache:" not in local, local)
    if min(took) > SLOW_US:
        check(": read through the cache" in local and "cache:" in local, local)
    off = shown(job, "delay=5ms", "--cache", "off")
    check(": read straight" in off and "cache:" not in off, off)


@test
def eight_readers_share_the_loads_of_a_slow_file(job):
    big = Job(tempfile.mkdtemp(prefix="big-", dir=job.directory), shapes={
        "up.weight": (4096, 4096), "down.weight": (512, 16384), "norm.gamma": (7,)})
    big.save(*STEP, (0, 1, 2, 3))
    data = big.file_bytes(0, *STEP)

    # Who falls behind by more windows than are kept reads anew, so nobody does.
    together = threading.Barrier(8, timeout=60 * TIMEOUT_SCALE)

    def read(path):
        at, part = 0, 8 << 20
        with open(path, "rb", buffering=0) as f:
            while at < len(data):
                if at % part == 0:
                    together.wait()
                got = f.read(min(1 << 20, part - at % part))
                check(got and got == data[at:at + len(got)], f"wrong bytes at {at}")
                at += len(got)
            check(not f.read(1), "there is more")

    for io_mode in ("direct", "cached"):
        with mounted(big, "delay=5ms", "--io-mode", io_mode) as mount, \
                concurrent.futures.ThreadPoolExecutor(8) as pool:
            path = os.path.join(mount.path, name_of(0))
            for done in [pool.submit(read, path) for _ in range(8)]:
                done.result()
        took = figures(mount.log())["read"]
        check(took <= 1.1 * len(data) / (1 << 20) + 1,
              f"{took} MiB of {len(data) >> 20}\n{mount.log()}")


def main():
    require_mount()
    with tempfile.TemporaryDirectory(prefix="reshardfs-faults-") as directory:
        job = Job(directory, shapes=SHAPES)
        job.save(*STEP)
        return test.run(lambda _: job)


if __name__ == "__main__":
    sys.exit(main())
