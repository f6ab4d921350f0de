#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sources on the file systems of lib/engines.py: the bytes are those of a local
tree; the engine is killed while files are read and comes back, other files come
back, and it hangs for good.

    distributed.py [NAME...]        of these engines alone

NFS, which may take another kernel, is for nfs.py.
"""

import errno
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from coming_and_going import (BEGIN, demand_bytes, demand_logged, demand_well,  # noqa: E402
                              error_of, fetched, log_lines, read_by_many)
from demands import change, check, content, demand, within  # noqa: E402
from engines import ENGINES, Gluster, Nfs  # noqa: E402
from rsh_mount import (Mounted, Tap, hash_tree, require_mount,  # noqa: E402
                       reshardfs_program, tree_difference)
from small_job import Job, mounted  # noqa: E402

STEP = (1, 5)
SHAPES = {"up.weight": (1024, 301), "down.weight": (257, 512), "norm.gamma": (700,)}
# Each read is one of the source.
DIRECT = ("--io-mode", "direct", "--cache", "off")


def shown(mount, rank):
    return f"{mount.path}/rank_{rank}/checkpoint_{rank}.ckpt"


def source_file(rank, top):
    return os.path.join(top, "source", f"rank_{rank}", f"net-{STEP[0]}_{STEP[1]}.ckpt")


def forget(path):
    """What the kernel has of a file would be read though the engine hangs."""
    fd = os.open(path, os.O_RDONLY)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def the_bytes_of_a_local_tree(engine, job):
    """Also of one rank, which takes rows of all files."""
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as directory:
        local = Job(directory, shapes=SHAPES)
        local.save(*STEP)
        for strategy in (job.strategy, None):
            trees = []
            for source in (local.source, job.source):
                with Mounted(source, src_strategy=job.strategy, dst_strategy=strategy) as m:
                    trees.append(hash_tree(m.path, odd_blocks=True))
            check(not tree_difference(*trees), "\n".join(tree_difference(*trees)))


def killed_while_files_are_read(engine, job):
    """Who reads meanwhile gets right bytes or EIO; afterwards all is as before."""
    with mounted(job, *DIRECT) as m:
        demand_bytes(m, job.expected(*STEP))
        with read_by_many(m, job, STEP):
            for i in (1, 2):
                engine.kill()
                within(60, lambda: fetched(m)["unreachable"], "it is noticed\n" + m.log())
                if i == 1:
                    # Who asks at once is answered out of what had been read before.
                    within(60, lambda: error_of(shown(m, 0))[0] == errno.EIO, "EIO\n" + m.log())
                engine.restart()
                demand_well(m, i)
                demand_logged(m, i)
        demand_bytes(m, job.expected(*STEP))
        demand_logged(m, 2)
        demand(log_lines(m, BEGIN)[0], "error: ", engine.path)
        check("changed since" not in m.log(), m.log())


def waited_out(engine, job):
    """Nobody is told that the server was away."""
    with mounted(job, *DIRECT) as m:
        demand_bytes(m, job.expected(*STEP))
        with read_by_many(m, job, STEP) as counts:
            for _ in (1, 2):
                engine.kill()
                engine.restart()
                demand_bytes(m, job.expected(*STEP))
        check(not any(bad for _, bad in counts), counts)
        check(not log_lines(m, BEGIN), m.log())


def a_file_was_replaced_meanwhile(engine, job):
    """By one of the same size."""
    with mounted(job, *DIRECT, "--replicas", "off") as m:
        demand_bytes(m, job.expected(*STEP))
        engine.kill()
        with engine.outside() as top:
            path = source_file(2, top)
            data = content(path)
            change(path + ".new", data[:-1000] + bytes(1000))
            os.rename(path + ".new", path)
        engine.restart()
        within(60, lambda: error_of(shown(m, 2))[0] == errno.ESTALE, "ESTALE\n" + m.log())
        for rank in (0, 1, 3, 4, 5, 6, 7):
            check(error_of(shown(m, rank))[0] == 0, m.log())
        check(len(log_lines(m, "changed since it was mounted")) == 1, m.log())


def hung_for_good(engine, job):
    """The mount goes at once; its daemon, as soon as the kernel lets it."""
    with mounted(job, *DIRECT) as m:
        for rank in range(8):
            forget(source_file(rank, engine.path))
        engine.hang()
        try:
            reader = subprocess.Popen(["cat", shown(m, 3)], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
            time.sleep(0.3)  # it may as well come too late
            force = subprocess.Popen([reshardfs_program(), "umount", "--force", m.path])
            within(30, lambda: not os.path.ismount(m.path), "the mount is gone")
            reader.wait(60)
        finally:
            engine.wake()
        check(force.wait(60) == 0, m.log())


# ---- GlusterFS ----

def a_brick_is_killed_and_healed(engine, job):
    """What was written meanwhile comes to it; the volume stays, and so do all bytes."""
    with mounted(job, *DIRECT) as m:
        with read_by_many(m, job, STEP) as counts:
            engine.kill_brick(0)
            demand_bytes(m, job.expected(*STEP))
            change(os.path.join(engine.path, "written"), bytes(100000))
            engine.start_brick(0)
            within(120, lambda: engine.connected(0) and healed(engine), "it is healed")
        demand_bytes(m, job.expected(*STEP))
        check(not any(bad for _, bad in counts), counts)
        check(not log_lines(m, BEGIN) and "changed since" not in m.log(), m.log())


def healed(engine):
    """Clients heal what they look at, and surely what they have not looked at before."""
    with engine.outside() as top:
        os.listdir(top)
        content(os.path.join(top, "written"))
        time.sleep(1.1)  # for it to come to that
        content(os.path.join(top, "written"))
    path = os.path.join(engine.directory, "brick0", "written")
    return os.path.exists(path) and content(path) == bytes(100000)


def tests_of(engine):
    return [the_bytes_of_a_local_tree,
            *[a_brick_is_killed_and_healed] * (engine is Gluster),
            waited_out if engine.waits else killed_while_files_are_read,
            hung_for_good,
            a_file_was_replaced_meanwhile]


def run(tap, engine_class):
    tests = tests_of(engine_class)
    names = [f"{engine_class.name()}: {function.__name__.replace('_', ' ')}"
             for function in tests]
    lacks = engine_class.lacks()
    if lacks:
        for name in names:
            tap.skip(name, lacks)
        return
    with tempfile.TemporaryDirectory(prefix="reshardfs-engine-") as directory:
        engine = engine_class(directory)
        try:
            engine.begin()
            job = Job(engine.store, shapes=SHAPES)
            job.save(*STEP)
            job.source = os.path.join(engine.path, "source")
            for name, function in zip(names, tests):
                with tap.test(name):
                    function(engine, job)
        finally:
            engine.end()


def main():
    require_mount()
    names = sys.argv[1:] or [name for name in ENGINES if name != Nfs.name()]
    engines = [ENGINES[name] for name in names]
    tap = Tap(sum(len(tests_of(engine)) for engine in engines))
    for engine in engines:
        run(tap, engine)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
