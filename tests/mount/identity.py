#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files that need no resharding: the bytes of one source file, which the kernel
reads by itself where the kernel and our rights allow it.

What is tested of that ("passed through") is skipped where it cannot be; content,
mappings and sources that change are tested everywhere.
"""

import concurrent.futures
import contextlib
import errno
import mmap
import os
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, content, write  # noqa: E402
from ms_formats import Record  # noqa: E402
from privileges import program_is, wrapper  # noqa: E402
from rsh_mount import (MountError, Mounted, Skipped, Tests, hash_tree, require_mount,  # noqa: E402
                       reshardfs_program)
from small_job import LAYOUTS, SHAPES, Job  # noqa: E402

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
MODES = ("auto", "passthrough", "direct", "cached")
STEP = (1, 5)
test = Tests("identity")


class CannotPass(Skipped):
    """Why files cannot be passed through here."""


def may_not_pass(said):
    """Raise CannotPass if the log gives a reason that is one of this machine,
    MountError if it gives another one."""
    mark = "files are not passed through: "
    if mark not in said:
        return
    why = said.split(mark)[1].splitlines()[0]
    release = [int(n) for n in os.uname().release.split("-")[0].split(".")[:2]]
    if (why == "the kernel does not offer it"
            or "not permitted" in why and os.geteuid() != 0
            or release < [6, 9]):
        raise CannotPass(why)
    raise MountError(said)


def mounted(job, *extra, **how):
    return Mounted(job.source, src_strategy=job.strategy, dst_strategy=job.strategy,
                   extra=["--log-level", "debug", *extra], **how)


def passed(m, rank):
    """Whether the file's next open is passed through."""
    opened = m.log().count("passed through")
    with open(m.rank_file(rank), "rb"):
        return m.log().count(", passed through") > opened


def demand_passed(m, rank):
    may_not_pass(m.log())
    if passed(m, rank):
        return
    may_not_pass(m.log())
    raise MountError("a file is not passed through\n" + m.log())


@contextlib.contextmanager
def few_descriptors(job):
    """Mounts that are made here keep one source file open at most."""
    with program_is(wrapper(job.directory, "", "ulimit -n 100")):
        yield


def stale(path, good):
    """Opening or reading fails with ESTALE; what is read before is right."""
    got = b""
    try:
        with open(path, "rb", buffering=0) as f:
            while part := f.read(4096):
                got += part
    except OSError as error:
        check(error.errno == errno.ESTALE, f"errno {error.errno}")
        check(good.startswith(got), "wrong bytes before ESTALE")
        return
    raise MountError("neither open nor read failed")


# ---- everywhere ----

@test
def all_bytes_in_every_mode(job):
    job.save(*STEP)
    for mode in MODES:
        with mounted(job, "--io-mode", mode) as m:
            for _ in range(2):
                m.demand_tree(job.expected(*STEP), odd_blocks=True)


@test
def read_as_programs_do(job):
    saved = job.save(*STEP)
    for mode in ("auto", "cached"):
        with mounted(job, "--io-mode", mode) as m:
            for way in ("whole", "private", "shared", "sendfile", "splice", "preadv",
                        "threads", "random"):
                subprocess.run([sys.executable, os.path.join(LIB, "reader.py"), way,
                                m.rank_file(3), saved[3]], check=True,
                               stdout=subprocess.DEVNULL)


@test
def opened_many_times(job):
    saved = job.save(*STEP)
    good = content(saved[1])
    with mounted(job, "--io-mode", "auto") as m:
        files = [open(m.rank_file(1), "rb") for _ in range(20)]
        for f in files[::2]:
            check(f.read() == good, "wrong bytes")
            f.close()
        check(content(m.rank_file(1)) == good, "wrong bytes of another reader")
        for f in files[1::2]:
            check(f.read() == good, "wrong bytes after others closed")
            f.close()
        check(content(m.rank_file(1)) == good, "wrong bytes after all closed")


@test
def opened_by_many_at_a_time(job):
    """Two files of which one is lost, so that both may be the same one."""
    saved = job.save(*STEP)
    good = {rank: content(saved[rank]) for rank in (1, 2, 6)}
    os.unlink(saved[2])

    def read(number):
        rank = (1, 2, 6)[number % 3]
        check(content(m.rank_file(rank)) == good[rank], f"wrong bytes of rank {rank}")

    with mounted(job, "--io-mode", "auto") as m, \
            concurrent.futures.ThreadPoolExecutor(16) as pool:
        for done in [pool.submit(read, number) for number in range(2000)]:
            done.result()


@test
def nothing_stays_open(job):
    job.save(*STEP)
    with mounted(job) as m:
        def descriptors():
            return len(os.listdir(f"/proc/{m.process.pid}/fd"))

        content(m.rank_file(0))
        before = descriptors()
        for _ in range(300):
            with open(m.rank_file(0), "rb"):
                pass
        # The last ones may be closed a little later than their files.
        check(descriptors() < before + 20, "descriptors stay")


@test
def replaced_by_another(job):
    """Found as the daemon may keep but one source file open."""
    saved = job.save(*STEP)
    good = content(saved[2])
    for mode in ("auto", "passthrough", "direct"):
        with few_descriptors(job):
            m = mounted(job, "--replicas", "off", "--io-mode", mode)
        with m:
            content(m.rank_file(2))
            content(m.rank_file(5))
            shutil.copy(saved[3], saved[2] + ".new")
            os.rename(saved[2] + ".new", saved[2])
            stale(m.rank_file(2), good)
            stale(m.rank_file(2), good)
            check("changed since it was mounted" in m.log(), m.log())
        job.save(*STEP)


@test
def written_over(job):
    saved = job.save(*STEP)
    good = content(saved[2])
    for mode in MODES:
        for seen_before in (False, True):
            if mode == "cached" and seen_before:
                continue  # it is the kernel that keeps the right bytes
            with mounted(job, "--replicas", "off", "--io-mode", mode) as m:
                if seen_before:
                    content(m.rank_file(2))
                write(saved[2], bytes(len(good)))
                stale(m.rank_file(2), good)
            job.save(*STEP)


@test
def written_over_with_replicas(job):
    """Rank 6 holds what rank 2 holds."""
    saved = job.save(*STEP)
    good = content(saved[2])
    with mounted(job) as m:
        check(content(m.rank_file(2)) == good, "wrong bytes before")
        write(saved[2], bytes(len(good)))
        check(content(m.rank_file(2)) == good, "wrong bytes after")


@test
def written_over_while_it_is_open(job):
    """Who opens it afterwards is told."""
    saved = job.save(*STEP)
    good = content(saved[2])
    with mounted(job, "--replicas", "off") as m:
        with open(m.rank_file(2), "rb"):
            write(saved[2], bytes(len(good)))
            stale(m.rank_file(2), good)
        stale(m.rank_file(2), good)


@test
def replaced_while_it_is_open(job):
    """Its readers keep the old file."""
    saved = job.save(*STEP)
    good = content(saved[2])
    with mounted(job) as m, open(m.rank_file(2), "rb") as f:
        shutil.copy(saved[3], saved[2] + ".new")
        os.rename(saved[2] + ".new", saved[2])
        check(f.read() == good, "wrong bytes")
        check(content(m.rank_file(2)) == good, "wrong bytes of another reader")


# ---- passed through ----

@test
def the_daemon_is_not_asked(job):
    saved = job.save(*STEP)
    good = content(saved[4])
    with mounted(job) as m:
        demand_passed(m, 4)
        with open(m.rank_file(4), "rb", buffering=0) as f:
            m.process.send_signal(signal.SIGSTOP)
            # Should it be asked all the same, the daemon has to answer: a
            # reader that waits for it cannot be killed.
            helper = subprocess.Popen(
                [sys.executable, "-c", "import os, signal, time; time.sleep(20); "
                 f"os.kill({m.process.pid}, signal.SIGCONT)"])
            try:
                check(f.read() == good, "wrong bytes")
                for flags in (mmap.MAP_PRIVATE, mmap.MAP_SHARED):
                    with mmap.mmap(f.fileno(), 0, flags=flags,
                                   prot=mmap.PROT_READ) as mapping:
                        check(mapping[:] == good, "wrong bytes in a mapping")
                waited = helper.poll() is not None
            finally:
                helper.kill()
                helper.wait()
                m.process.send_signal(signal.SIGCONT)
        check(not waited, "the daemon was needed")
        check("read node" not in m.log(), m.log())


@test
def only_where_it_is_wanted(job):
    job.save(*STEP)
    with mounted(job) as m:
        demand_passed(m, 0)
    for extra in (("--io-mode", "direct"), ("--io-mode", "cached"), ("--cache", "on"),
                  ("--fault", "short")):
        with mounted(job, *extra) as m:
            content(m.rank_file(0))
            check(not passed(m, 0), " ".join(extra) + "\n" + m.log())


class Trained(Job):
    """As training leaves it: states of the optimizer, and records that no strategy
    lists between the others, of which one differs from rank to rank."""

    def __init__(self, directory):
        states = ("", "adam_m.", "adam_v.")
        super().__init__(directory, *({s + n: v for s in states for n, v in table.items()}
                                      for table in (LAYOUTS, SHAPES)))

    def records(self, rank, epoch, step):
        saved = super().records(rank, epoch, step)
        names = sorted(saved, key=lambda name: name[::-1])
        saved["bn.moving_mean"] = Record((3,), "Float32", bytes([rank] * 12))
        return {name: saved[name] for name in [*names[:4], "bn.moving_mean", *names[4:]]}


@test
def as_training_leaves_it(job):
    job = Trained(os.path.join(job.directory, "trained"))
    job.save(*STEP, crc=True)
    expected = job.expected(*STEP)
    with mounted(job) as m:
        m.demand_tree(expected)
        for rank in range(job.n_ranks):
            demand_passed(m, rank)
    with mounted(job, compat=True) as m:
        check(not set(hash_tree(m.path).items()) & set(expected.items()),
               "the converter's order is the files'")
        check(not passed(m, 0), m.log())


@test
def with_a_crc_at_its_end(job):
    job.save(*STEP, crc=True)
    with mounted(job) as m:
        m.demand_tree(job.expected(*STEP))
        demand_passed(m, 0)


@test
def only_what_is_the_same(job):
    """What is left out, renamed, given another type or form is no longer it."""
    saved = job.save(*STEP)
    for words in (("--drop", "step_num"), ("--only", "weight"), ("--unlisted", "drop"),
                  ("--cast", "bfloat16"), ("--remove-redundancy",)):
        with mounted(job, *words) as m:
            check(content(m.rank_file(0)) != content(saved[0]), f"{words} changes nothing")
            check(not passed(m, 0), m.log())
    for words in (("--drop", "nothing.of.it"), ("--cast", "float32")):
        with mounted(job, *words) as m:
            demand_passed(m, 0)
    with mounted(job, "--format", "safetensors") as m:
        with open(os.path.join(m.path, "rank_0", "checkpoint_0.safetensors"), "rb"):
            check(", passed through" not in m.log(), m.log())
    with mounted(job, "--drop", "norm.gamma") as m:
        check(not passed(m, 0), m.log())
    with mounted(job, "--rename", rename(job)) as m:
        check(not passed(m, 0), m.log())
        check(content(m.rank_file(0)) ==
              content(saved[0]).replace(b"norm.gamma", b"norm.omega"), "wrong bytes")
    with mounted(job) as m:
        demand_passed(m, 0)


def rename(job):
    """Names of equal length: all but the headers is as it was."""
    path = os.path.join(job.directory, "rename.json")
    write(path, b'{"norm.gamma": "norm.omega"}')
    return path


@test
def a_lost_rank_is_its_replica(job):
    saved = job.save(*STEP)
    good = content(saved[2])
    os.unlink(saved[2])
    with mounted(job) as m:
        check(content(m.rank_file(2)) == good, "wrong bytes")
        # One backing for both.
        with open(m.rank_file(6), "rb") as other, open(m.rank_file(2), "rb") as f:
            check(other.read() == f.read() == good, "wrong bytes of one of two")
        demand_passed(m, 2)


@test
def what_is_resumed(job):
    saved = job.save(*STEP)
    with Mounted(job.source, resume=True, extra=["--log-level", "debug"]) as m:
        path = os.path.join(m.path, "rank_2", "latest.ckpt")
        check(content(path) == content(saved[2]), "wrong bytes")
        may_not_pass(m.log())
        check(", passed through" in m.log(), m.log())


@contextlib.contextmanager
def overlay(job, lower):
    """A writable layer on a directory."""
    root = os.path.join(job.directory, "overlay")
    for name in ("upper", "work", "merged"):
        os.makedirs(os.path.join(root, name))
    merged = os.path.join(root, "merged")
    options = f"lowerdir={lower},upperdir={root}/upper,workdir={root}/work"
    done = subprocess.run(["mount", "-t", "overlay", "-o", options, "none", merged],
                          check=False, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        raise CannotPass("no overlay: " + done.stderr.strip())
    try:
        yield merged
    finally:
        subprocess.run(["umount", merged], check=True)
        shutil.rmtree(root)


@test
def below_an_overlay(job):
    saved = job.save(*STEP)
    with overlay(job, job.source):
        pass  # or the system has none
    with mounted(job) as m:
        try:
            with overlay(job, m.path) as merged:
                check(content(os.path.join(merged, "rank_2", "checkpoint_2.ckpt")) ==
                       content(saved[2]), "wrong bytes")
        except CannotPass as why:
            raise MountError(why) from why


@test
def on_an_overlay(job):
    saved = job.save(*STEP)
    with overlay(job, job.source) as merged:
        job.source = merged
        with mounted(job) as m:
            demand_passed(m, 2)
            check(content(m.rank_file(2)) == content(saved[2]), "wrong bytes")


@test
def without_the_right_to(job):
    """As root of a user namespace, who may mount but not pass through."""
    saved = job.save(*STEP)
    if subprocess.run(["unshare", "-Urm", "true"], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        raise CannotPass("there are no user namespaces")
    where = os.path.join(job.directory, "mnt")
    log = os.path.join(job.directory, "log")
    os.mkdir(where)
    alone = [os.path.join(LIB, "own_mounts.sh")] if os.geteuid() == 0 else []
    done = subprocess.run(
        [*alone, "unshare", "-Urm", "sh", "-c", '''
         "$1" mount --src-strategy "$2" --dst-strategy "$2" --log-level debug \
             --log-to "file:$3" "$4" "$5" || exit 3
         cmp "$5/rank_2/checkpoint_2.ckpt" "$6" && cmp "$5/rank_3/checkpoint_3.ckpt" "$7"
         status=$?
         umount "$5" && exit $status''',
         "sh", reshardfs_program(), job.strategy, log, job.source, where, saved[2],
         saved[3]], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True)
    if done.returncode == 3 and "fuse" in done.stdout:
        raise CannotPass("a user namespace may not mount: " + done.stdout.strip())
    said = content(log).decode()
    check(done.returncode == 0, done.stdout + said)
    check(said.count("files are not passed through: ") == 1, said)
    check(", passed through" not in said and "error: " not in said, said)


def main():
    require_mount()
    return test.run(lambda directory: Job(os.path.join(directory, "job")))


if __name__ == "__main__":
    sys.exit(main())
