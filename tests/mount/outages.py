#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A source that goes away and comes back: what readers get meanwhile, that all is
as before afterwards, without a new mount, and what the log and the figures say.

The source is a FUSE file system (mirror.c) that is killed, taken away and mounted
anew, or one that goes on running and fails.  The job has two replicas of everything
(small_job.py).
"""

import concurrent.futures
import contextlib
import errno
import json
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from coming_and_going import (BEGIN, END, MIRROR, Mirror,  # noqa: E402
                              demand_logged,
                              demand_well, error_of, fetched, log_lines)
from demands import check, content, demand, within, write  # noqa: E402
from rsh_cli import run_json  # noqa: E402
from rsh_mount import TIMEOUT_SCALE, MountError, Mounted, Tests, require_mount  # noqa: E402
from small_job import Job, mounted, refuses  # noqa: E402

STEP = (1, 5)
SHAPES = {"up.weight": (1024, 301), "down.weight": (257, 512), "norm.gamma": (700,)}
# Each read is one of the source.
BARE = ["--io-mode", "direct", "--cache", "off", "--replicas", "off"]
# A read gives up after 3 s, and the machine may be busy.
PATIENCE = 20 * TIMEOUT_SCALE
test = Tests("outage")


@contextlib.contextmanager
def mirrored(job, *options):
    job.save(*STEP)
    mirror = Mirror(job, *options)
    mirror.come()
    try:
        yield mirror
    finally:
        mirror.end()
        job.source = mirror.real


def demand_eio(mount, rank):
    code, took = error_of(mount.rank_file(rank))
    check(code == errno.EIO, f"{errno.errorcode.get(code, code)}\n{mount.log()}")
    check(took < PATIENCE, f"{took} s")


def demand_ill(mount, outages):
    found = fetched(mount)
    check(found["failed_files"] >= 1 and found["unreachable"] == 1 and
          found["outages"] == outages, found)


def again_and_again(job, mirror, times, *words):
    """Each time a reader waits for 3 s."""
    expected = job.expected(*STEP)
    with mounted(job, *BARE, *words) as m:
        m.demand_tree(expected)
        for i in range(1, times + 1):
            mirror.die()
            demand_eio(m, i % 8)
            demand_ill(m, i)
            mirror.unmount()
            # Nor is a mount point without a mount a changed source.
            demand_eio(m, (i + 1) % 8)
            mirror.come()
            if i % 2:
                demand_well(m, i)
                m.demand_tree(expected)
            else:
                m.demand_tree(expected)
                demand_well(m, i)
            demand_logged(m, i)
        check("changed since" not in m.log(), m.log())
        demand(log_lines(m, BEGIN)[0], "error: ", os.strerror(errno.ENOTCONN), mirror.path)
        demand(log_lines(m, END)[0], "notice: ", f"{mirror.path}: ", " s; it hit ", " reads")


# ---- many outages ----

@test
def killed_and_mounted_anew(job):
    with mirrored(job, "stable") as mirror:
        again_and_again(job, mirror, 10)


@test
def the_same_with_other_inodes(job):
    with mirrored(job) as mirror:
        again_and_again(job, mirror, 3, "--cache", "on")


@test
def the_same_without_a_sandbox(job):
    with mirrored(job) as mirror:
        again_and_again(job, mirror, 3, "--sandbox", "off")


@test
def sick_and_well_again(job):
    """The mount of the source stays, as that of GlusterFS and rclone does."""
    expected = job.expected(*STEP)
    words = ["ENOTCONN", "EIO", "ESTALE"]
    with mirrored(job, "stable") as mirror, mounted(job, *BARE) as m:
        m.demand_tree(expected)
        for i in range(1, 7):
            word = words[i % 3]
            mirror.sick(word)
            for rank in range(3):
                demand_eio(m, rank)
            demand_ill(m, i)
            mirror.well()
            m.demand_tree(expected)
            demand_well(m, i)
            demand_logged(m, i)
            demand(log_lines(m, BEGIN)[-1], os.strerror(getattr(errno, word)))
        check("changed since" not in m.log(), m.log())


@test
def under_load(job):
    """Right bytes or EIO, and no error once all is well."""
    expected = job.expected(*STEP)
    data = {rank: job.file_bytes(rank, *STEP) for rank in range(8)}
    stop = []

    def read(m, number):
        """How often bytes came, and how often EIO."""
        counts = [0, 0]
        while not stop:
            rank = (number + sum(counts)) % 8
            try:
                with open(m.rank_file(rank), "rb", buffering=0) as f:
                    at = sum(counts) * 4099 % len(data[rank])
                    got = os.pread(f.fileno(), 70000, at)
                    check(data[rank].startswith(got, at) and got, f"wrong bytes at {at}")
                counts[0] += 1
            except OSError as error:
                check(error.errno == errno.EIO, error)
                counts[1] += 1
        return counts

    with mirrored(job) as mirror, mounted(job, "--io-mode", "direct", "--cache", "off") as m, \
            concurrent.futures.ThreadPoolExecutor(12) as pool:
        readers = [pool.submit(read, m, number) for number in range(12)]
        try:
            for i in range(3):
                time.sleep(0.5)
                mirror.die()
                # Beyond the time that readers wait for.
                time.sleep(4 if i == 0 else 0.2)
                mirror.unmount()
                mirror.come()
                demand_well(m, i + 1)
        finally:
            stop.append(True)
        counts = [reader.result() for reader in readers]
        check(all(good for good, _ in counts) and any(bad for _, bad in counts), counts)
        m.demand_tree(expected)
        demand_logged(m, 3)


# ---- when mounting ----

@test
def out_of_reach_when_mounting(job):
    """What cannot even be looked at is named, with the reason."""
    with mirrored(job) as mirror:
        mirror.sick("EIO rank_3/net")
        with mounted(job) as m:
            m.demand_tree(job.expected(*STEP))
            demand(m.log(), "rank_3/net-1_5.ckpt: Input/output error")
        mirror.sick("EIO rank_3")
        with mounted(job) as m:
            demand(m.log(), "rank_3: Input/output error: the directory is left out")
        mirror.sick("EIO rank_")
        demand(refuses(job), "Input/output error: the directory is left out, and so are 7 "
               "others, which --log-level info lists")
        mirror.sick("ESTALE net-1_5")
        refuses(job, words=["rank_0/net-1_5.ckpt: Stale file handle (and 7 other files"])
        mirror.sick("ENOTCONN")
        refuses(job, words=[f"source {mirror.path}: Transport endpoint is not connected"])
        mirror.well()
        mirror.die()
        refuses(job, words=[f"source {mirror.path}: Transport endpoint is not connected"])


# ---- readers ----

@test
def a_short_one_is_waited_out(job):
    with mirrored(job) as mirror, mounted(job, *BARE) as m, \
            concurrent.futures.ThreadPoolExecutor(4) as pool:
        m.demand_tree(job.expected(*STEP))
        mirror.die()
        readers = [pool.submit(error_of, m.rank_file(rank)) for rank in range(4)]
        within(20, lambda: fetched(m)["unreachable"], "it is noticed")
        states = {at["mountpoint"]: at["state"] for at in run_json("list")["mounts"]}
        check(states[m.path] == "SOURCE is unreachable", states)
        mirror.unmount()
        mirror.come()
        check([reader.result()[0] for reader in readers] == [0] * 4, m.log())
        demand_logged(m, 1)


@test
def others_do_not_wait(job):
    """Who reads the file waits for the beginning of an outage to end; on a busy
    machine others may take as long by chance."""
    good = [rank for rank in range(8) if rank != 2]
    with mirrored(job) as mirror, mounted(job, *BARE) as m, \
            concurrent.futures.ThreadPoolExecutor(20) as pool:
        for n in range(1, 9):
            mirror.sick("ENOTCONN /rank_2/")
            waiting = [pool.submit(error_of, m.rank_file(2)) for _ in range(20)]
            within(20, lambda: fetched(m)["failed_files"] == 1, "it is noticed")
            check([error_of(m.rank_file(rank))[0] for rank in good] == [0] * 7, m.log())
            waited = all(reader.done() for reader in waiting)
            check({reader.result()[0] for reader in waiting} == {errno.EIO}, m.log())
            mirror.well()
            demand_well(m, n)
            check(error_of(m.rank_file(2))[0] == 0, m.log())
            demand_logged(m, n)
            if not waited:
                return
        raise MountError("they waited each time")


@test
def replicas_stand_in_and_stand_back(job):
    expected = job.expected(*STEP)
    with mirrored(job) as mirror, \
            mounted(job, "--io-mode", "direct", "--cache", "off") as m:
        for i in range(1, 4):
            mirror.sick("EIO /rank_2/")
            m.demand_tree(expected)
            check(fetched(m)["failed_files"] == 1, fetched(m))
            m.demand_tree(expected)
            mirror.well()
            demand_well(m, i)
            demand_logged(m, i)
        # Rank 6 holds what rank 2 does, which is asked again.
        mirror.sick("EIO /rank_6/")
        check(error_of(m.rank_file(2))[0] == 0, m.log())
        check(fetched(m)["failed_files"] == 0, fetched(m))


# ---- what has changed meanwhile ----

def rewrite(path, keep_times):
    before = os.stat(path)
    data = content(path)
    write(path + ".new", data[:-1000] + bytes(1000))
    os.rename(path + ".new", path)
    if keep_times:
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def changed(job, mirror, change, words):
    """Rank 2's file was changed while the source was away."""
    path = os.path.join(mirror.real, "rank_2", f"net-{STEP[0]}_{STEP[1]}.ckpt")
    with mounted(job, *BARE) as m:
        m.demand_tree(job.expected(*STEP))
        mirror.die()
        demand_eio(m, 2)
        mirror.unmount()
        change(path)
        mirror.come()
        within(15, lambda: error_of(m.rank_file(2))[0] == errno.ESTALE, "ESTALE\n" + m.log())
        for rank in (0, 1, 3, 4, 5, 6, 7):
            check(error_of(m.rank_file(rank))[0] == 0, m.log())
        demand_logged(m, 1)
        check(len(log_lines(m, words)) == 1, m.log())
        demand(log_lines(m, words)[0], "error: ", "rank_2/")
        check(fetched(m)["failed_files"] == 1 and fetched(m)["unreachable"] == 0, fetched(m))


@test
def written_anew_meanwhile(job):
    for options in ([], ["stable"]):
        with mirrored(job, *options) as mirror:
            changed(job, mirror, lambda path: rewrite(path, False), "changed since it was mounted")


@test
def of_the_same_size_and_time(job):
    for options in ([], ["stable"]):
        with mirrored(job, *options) as mirror:
            changed(job, mirror, lambda path: rewrite(path, True), "changed since it was mounted")


@test
def removed_meanwhile(job):
    with mirrored(job) as mirror:
        changed(job, mirror, os.remove, os.strerror(errno.ENOENT))


# ---- other mounts ----

@test
def a_resumed_job(job):
    with mirrored(job) as mirror, \
            Mounted(job.source, resume=True, extra=["--io-mode", "direct"]) as m:
        path = os.path.join(m.path, "rank_3", f"net-{STEP[0]}_{STEP[1]}.ckpt")
        check(error_of(path)[0] == 0, m.log())
        for i in (1, 2):
            mirror.die()
            check(error_of(path)[0] == errno.EIO, m.log())
            mirror.unmount()
            mirror.come()
            demand_well(m, i)
            check(error_of(path)[0] == 0, m.log())
            demand_logged(m, i)


@test
def files_of_a_map(job):
    with mirrored(job) as mirror:
        where = os.path.join(job.directory, "map.json")
        write(where, json.dumps({str(rank): os.path.join(mirror.path, f"rank_{rank}",
                                                         f"net-{STEP[0]}_{STEP[1]}.ckpt")
                                 for rank in range(8)}).encode())
        with mounted(job, *BARE, "--source-map", where) as m:
            m.demand_tree(job.expected(*STEP))
            mirror.die()
            demand_eio(m, 2)
            mirror.unmount()
            mirror.come()
            # Who looked meanwhile found no file, which only a reader takes back.
            m.demand_tree(job.expected(*STEP))
            demand_well(m, 1)
            demand_logged(m, 1)


@test
def it_ends_in_the_middle(job):
    """While the source is away, and while it hangs the thread that looks for it: then
    the kernel lets no process end before its request has."""
    for word in ("ENOTCONN", "HANG"):
        with mirrored(job) as mirror, mounted(job, *BARE) as m:
            mirror.sick("EIO")
            demand_eio(m, 1)
            mirror.sick(word)
            time.sleep(1)
            subprocess.run(["fusermount3", "-u", m.path], check=True)
            if word == "HANG":
                time.sleep(3)
                mirror.well()
            # It has ended, with status 0.
            m.stop()


def main():
    require_mount()
    if not os.access(MIRROR, os.X_OK):
        print("Bail out! mount/mirror is not built")
        return 1
    return test.run(lambda directory: Job(directory, shapes=SHAPES))


if __name__ == "__main__":
    sys.exit(main())
