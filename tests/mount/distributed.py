#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sources on the file systems of lib/engines.py: the bytes are those of a local
tree; the engine is killed while files are read and comes back, other files come
back, and it hangs for good.  Ceph's gateway, a real server of S3, stands among them.

    distributed.py [NAME...]        of these engines alone

NFS, which may take another kernel, is for nfs.py.
"""

import errno
import hashlib
import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from coming_and_going import (BEGIN, demand_logged, demand_well,  # noqa: E402
                              error_of, fetched, give_ctimes, log_lines, read_by_many)
from demands import change, check, content, demand, within  # noqa: E402
from engines import ENGINES, Bindfs, Gluster, Nfs, Radosgw  # noqa: E402
from rsh_cli import GOOD, IO, refused  # noqa: E402
from rsh_mount import (Mounted, Tap, hash_tree, require_mount,  # noqa: E402
                       reshardfs_program, tree_difference)
from s3_trial import run as run_program  # noqa: E402
from s3_trial import write_model  # noqa: E402
from savers import Checkpoint2, Dcp, TrainerInParts  # noqa: E402
from small_job import Job, mounted  # noqa: E402

STEP = (1, 5)
# What is written into their store is a write of another client.
SHOWN_AT_ONCE = (Nfs, Bindfs)
SHAPES = {"up.weight": (1024, 301), "down.weight": (257, 512), "norm.gamma": (700,)}
# Each read is one of the source.
DIRECT = ("--io-mode", "direct", "--cache", "off")


def source_file(rank, top):
    return os.path.join(top, "source", f"rank_{rank}", f"net-{STEP[0]}_{STEP[1]}.ckpt")


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
        m.demand_tree(job.expected(*STEP))
        with read_by_many(m, job, STEP):
            for i in (1, 2):
                engine.kill()
                within(60, lambda: fetched(m)["unreachable"], "it is noticed\n" + m.log())
                if i == 1:
                    # Who asks at once is answered out of what had been read before.
                    within(60, lambda: error_of(m.rank_file(0))[0] == errno.EIO, "EIO\n" + m.log())
                engine.restart()
                demand_well(m, i)
                demand_logged(m, i)
        m.demand_tree(job.expected(*STEP))
        demand_logged(m, 2)
        demand(log_lines(m, BEGIN)[0], "error: ", engine.path)
        check("changed since" not in m.log(), m.log())


def killed_and_not_known_again(engine, job):
    """The mtime is also the ctime of these files: nothing tells that they are the same after
    the server has been started anew, so reads of them fail until the next mount."""
    with mounted(job, *DIRECT) as m:
        m.demand_tree(job.expected(*STEP))
        engine.kill()
        within(60, lambda: error_of(m.rank_file(0))[0] == errno.EIO, "EIO\n" + m.log())
        engine.restart()
        for rank in (0, 5):
            within(60, lambda r=rank: error_of(m.rank_file(r))[0] == errno.ESTALE,
                   "ESTALE\n" + m.log())
        demand(m.log(), "changed since it was mounted")
    with mounted(job, *DIRECT) as m:
        m.demand_tree(job.expected(*STEP))


def waited_out(engine, job):
    """Nobody is told that the server was away."""
    with mounted(job, *DIRECT) as m:
        m.demand_tree(job.expected(*STEP))
        with read_by_many(m, job, STEP) as counts:
            for _ in (1, 2):
                engine.kill()
                engine.restart()
                m.demand_tree(job.expected(*STEP))
        check(not any(bad for _, bad in counts), counts)
        check(not log_lines(m, BEGIN), m.log())


def a_file_was_replaced_meanwhile(engine, job):
    """By one of the same size."""
    with mounted(job, *DIRECT, "--replicas", "off") as m:
        m.demand_tree(job.expected(*STEP))
        engine.kill()
        with engine.outside() as top:
            path = source_file(2, top)
            data = content(path)
            change(path + ".new", data[:-1000] + bytes(1000))
            os.rename(path + ".new", path)
        engine.restart()
        within(60, lambda: error_of(m.rank_file(2))[0] == errno.ESTALE, "ESTALE\n" + m.log())
        for rank in (0, 1, 3, 4, 5, 6, 7) if engine.keeps_ctime else ():
            check(error_of(m.rank_file(rank))[0] == 0, m.log())
        check(len(log_lines(m, "changed since it was mounted")) == 1, m.log())


def hung_for_good(engine, job):
    """The mount goes at once; its daemon, as soon as the kernel lets it."""
    with mounted(job, *DIRECT) as m:
        for rank in range(8):
            engine.forget(source_file(rank, engine.path))
        engine.hang()
        try:
            reader = subprocess.Popen(["cat", m.rank_file(3)], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
            time.sleep(0.3)  # it may as well come too late
            force = subprocess.Popen([reshardfs_program(), "umount", "--force", m.path])
            within(30, lambda: not os.path.ismount(m.path), "the mount is gone")
            reader.wait(60)
        finally:
            engine.wake()
        check(force.wait(60) == 0, m.log())


# ---- steps that another client saves ----

INTERVAL = 1
SOON = 60  # an emulated guest is slow


def steps_shown(mount):
    return sorted(name for name in os.listdir(mount.path) if name != "latest")


def read_or_gone(read):
    """What it returns; None if the step has gone."""
    try:
        return read()
    except OSError as error:
        check(error.errno in (errno.ENOENT, errno.ESTALE), str(error))
        return None


def steps_of(engine, saver):
    """A mount of the directory into which another client saves."""
    return Mounted(os.path.join(engine.remembering(), os.path.basename(saver.source)),
                   described=True,
                   extra=("--steps", "all", "--steps-interval", str(INTERVAL), *DIRECT))


def saved_by_another(engine, kind):
    """A job whose directory another client has."""
    saver = kind(tempfile.mkdtemp(dir=engine.directory))
    os.rmdir(saver.source)
    saver.source = tempfile.mkdtemp(dir=engine.another())
    os.chmod(saver.source, 0o755)
    return saver


def steps_come_and_go(engine, job):
    """Nobody looks up their names."""
    for kind in (Checkpoint2, Dcp, TrainerInParts):
        saver = saved_by_another(engine, kind)
        with steps_of(engine, saver) as m:
            for step in (1, 2):
                name = saver.name(step)
                for complete in saver.save(step):
                    check(complete or name not in steps_shown(m), f"{name} is not complete")
                within(SOON, lambda: name in steps_shown(m), f"{name} is shown\n" + m.log())
                with Mounted(saver.path(name), described=True) as local:
                    demand_bytes_of(os.path.join(m.path, name), hash_tree(local.path))
            folder = os.open(os.path.join(m.path, saver.name(1)), os.O_RDONLY)
            before = hash_tree(f"/proc/self/fd/{folder}/")
            for _ in saver.remove(1):
                after = read_or_gone(lambda: hash_tree(f"/proc/self/fd/{folder}/"))
                check(after in (None, before), "a step that goes has other bytes")
            os.close(folder)
            within(SOON, lambda: steps_shown(m) == [saver.name(2)], "the step goes\n" + m.log())


def demand_bytes_of(path, expected):
    different = tree_difference(expected, hash_tree(path))
    check(not different, "\n".join(different))


class LargeParts(TrainerInParts):
    """Readahead does not read a whole part."""

    rows = 1 << 18


def a_step_is_overwritten_in_place(engine, job):
    """Files keep their names and sizes, and the client remembers their old times.  What was
    opened never has bytes of the new save."""
    saver = saved_by_another(engine, LargeParts)
    saver.all_of(1)
    name = saver.name(1)
    parts = [n for n in os.listdir(saver.path(name)) if n.endswith(".safetensors")]
    with Mounted(saver.path(name), described=True) as local:
        before = hash_tree(local.path)
    with steps_of(engine, saver) as m:
        folder = os.open(os.path.join(m.path, name), os.O_RDONLY)
        for part in before:
            with open(f"/proc/self/fd/{folder}/{part}", "rb") as f:
                f.read(4096)
        for part in parts:
            with open(saver.path(name, part), "r+b") as f:
                f.seek(-(1 << 20), os.SEEK_END)
                f.write(bytes(1 << 20))
        for part in before:
            path = f"/proc/self/fd/{folder}/{part}"
            data = read_or_gone(lambda at=path: content(at))
            check(data is None or hashlib.sha256(data).hexdigest() == before[part][1],
                  f"{part} has bytes of two saves\n" + m.log())
        os.close(folder)
        within(SOON, lambda: steps_shown(m) == [], "an incomplete save goes\n" + m.log())
        change(saver.path(name, "trainer_state.json"), b"{}")
        within(SOON, lambda: steps_shown(m) == [name], "the new save is shown\n" + m.log())
        with Mounted(saver.path(name), described=True) as local:
            demand_bytes_of(os.path.join(m.path, name), hash_tree(local.path))


# ---- GlusterFS ----

def a_brick_is_killed_and_healed(engine, job):
    """What was written meanwhile comes to it; the volume stays, and so do all bytes."""
    with mounted(job, *DIRECT) as m:
        with read_by_many(m, job, STEP) as counts:
            engine.kill_brick(0)
            m.demand_tree(job.expected(*STEP))
            change(os.path.join(engine.path, "written"), bytes(100000))
            engine.start_brick(0)
            within(120, lambda: engine.connected(0) and healed(engine), "it is healed")
        m.demand_tree(job.expected(*STEP))
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


# ---- Ceph's server of S3 ----

def more_objects_than_a_page_has(engine, job):
    """Below a name whose characters have to be signed in other ones."""
    top = "odd ä~!'()*+&=;@,/percent%2F"
    many = Job(os.path.join(engine.store, top))
    for step in range(130):
        many.save(1, step)
    engine.publish()
    source = os.path.join(engine.path, top, "source")
    got, local = (run_program("ls", where) for where in (source, many.source))
    check(got.status == GOOD and got.out == local.out, f"{got}\n{local}")
    within(60, lambda: any("continuation-token=" in line for line in engine.requests()),
           "there is one page")
    with mounted(many, "--select", "1_7", source=source) as m:
        m.demand_tree(many.expected(1, 7))


def a_model_whose_objects_came_in_parts(engine, job):
    """What such an object's ETag is tells nothing of its bytes."""
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as directory:
        large = Job(directory, shapes={**SHAPES, "up.weight": (8192, 1111)})
        write_model(os.path.join(engine.store, "model"), large.records(0, *STEP))
    engine.publish()
    with Mounted(os.path.join(engine.store, "model")) as local, \
            Mounted(os.path.join(engine.path, "model")) as m:
        m.demand_tree(hash_tree(local.path))


def keys_that_are_wrong(engine, job):
    for name, value, words in (("AWS_SECRET_ACCESS_KEY", "other", "SignatureDoesNotMatch"),
                               ("AWS_ACCESS_KEY_ID", "other", "InvalidAccessKeyId")):
        right = os.environ[name]
        os.environ[name] = value
        try:
            refused(run_program("ls", job.source), IO, words)
        finally:
            os.environ[name] = right


def tests_of(engine):
    return [the_bytes_of_a_local_tree,
            *[steps_come_and_go, a_step_is_overwritten_in_place] * (engine in SHOWN_AT_ONCE),
            *[a_brick_is_killed_and_healed] * (engine is Gluster),
            *[more_objects_than_a_page_has, a_model_whose_objects_came_in_parts,
              keys_that_are_wrong] * (engine is Radosgw),
            waited_out if engine.waits else
            killed_while_files_are_read if engine.keeps_ctime else killed_and_not_known_again,
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
            give_ctimes(engine.store)
            engine.publish()
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
