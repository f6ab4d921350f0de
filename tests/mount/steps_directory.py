#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mount --steps all of a directory that is moved away, replaced, removed or unreadable, or
cannot be watched, and how often it is looked at.

What was opened stays readable, .reshardfs/steps says in one sentence what is wrong, and
the steps come back with the directory.
"""

import contextlib
import json
import os
import signal
import stat
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

from demands import check, content, demand, within, write  # noqa: E402
from privileges import program_is, where_modes_count, wrapper  # noqa: E402
from rsh_mount import (Mounted, Skipped, Tests, hash_tree, mount_command,  # noqa: E402
                       require_mount, tree_difference)
from s3_trial import Server, set_environment  # noqa: E402
from savers import Ranks, TorchFiles, Trainer  # noqa: E402

# A namespace has a copy of each mount of other tests, which then does not end.
OWN_MOUNTS = [os.path.join(HERE, "lib", "own_mounts.sh")] if os.geteuid() == 0 else []
STEPS = ["--steps", "all", "--steps-interval", "1"]
SLOWLY = ["--steps", "all", "--steps-interval", "3600"]
test = Tests("steps")


def shown(mount):
    return sorted(os.listdir(mount.path))


def look_anew(mount):
    os.path.exists(os.path.join(mount.path, "absent"))


def status_of(path):
    return json.loads(content(os.path.join(path, ".reshardfs", "steps")))


def wrong_with(mount):
    return status_of(mount.path)["error"] or ""


def why(mount, name):
    return next(s["why"] or "" for s in status_of(mount.path)["steps"] if s["name"] == name)


def first_file(path):
    return min(os.path.join(at, name) for at, _, names in os.walk(path) for name in names)


def mounted(saver, *more, steps=STEPS):
    return Mounted(saver.source, extra=[*steps, *more], **saver.options())


@contextlib.contextmanager
def opened(mount, name):
    """A file of a step, which must have the same bytes at the end."""
    with open(first_file(os.path.join(mount.path, name)), "rb") as f:
        before = f.read()
        check(before, "an empty file")
        yield
        f.seek(0)
        check(f.read() == before, "an open file has other bytes")


def demand_shown(mount, *names):
    within(20, lambda: shown(mount) == sorted(names), f"{names}: {shown(mount)}, "
           f"{status_of(mount.path)}\n{mount.log()}")


# ---- the place of the directory ----

def is_confined(mount):
    return "own files only" in mount.log()


def demand_replaced(saver, *more):
    """The directory is moved away, and another one is made in its place."""
    first, second = saver.name(20), saver.name(30)
    away = saver.source + "-away"
    saver.all_of(20)
    with mounted(saver, "--log-level", "info", *more) as mount, opened(mount, first):
        os.rename(saver.source, away)
        os.mkdir(saver.source)
        saver.all_of(30)
        if is_confined(mount):
            within(20, lambda: wrong_with(mount), "nothing is said")
            demand(wrong_with(mount), f"{saver.source}: another directory has its place now, "
                   "which the sandbox of this mount does not allow: mount it again, or with "
                   "--sandbox off")
            check(shown(mount) == sorted([first, "latest"]), str(shown(mount)))
        else:
            demand_shown(mount, second, "latest")
            check(not wrong_with(mount), wrong_with(mount))
            check(hash_tree(os.path.join(mount.path, second)), "a step without files")
        os.rename(saver.source, saver.source + "-other")
        os.rename(away, saver.source)
        look_anew(mount)
        demand_shown(mount, first, "latest")
        within(20, lambda: not wrong_with(mount), wrong_with(mount))
        saver.all_of(40)
        demand_shown(mount, first, saver.name(40), "latest")
        check(mount.log().count("another directory has its place") <= 1, mount.log())


@test
def the_directory_is_replaced(directory):
    for kind in (Ranks, Trainer):
        demand_replaced(kind(os.path.join(directory, kind.__name__)))


@test
def the_directory_is_replaced_without_a_sandbox(directory):
    for kind in (Ranks, Trainer):
        demand_replaced(kind(os.path.join(directory, kind.__name__)), "--sandbox", "off")


@test
def the_directory_goes_and_comes_back(directory):
    for kind in (Ranks, Trainer):
        saver = kind(os.path.join(directory, kind.__name__))
        saver.all_of(20)
        with mounted(saver) as mount, opened(mount, saver.name(20)):
            os.rename(saver.source, saver.source + "-away")
            demand_shown(mount)
            demand(wrong_with(mount), f"{saver.source}: No such file or directory")
            os.rename(saver.source + "-away", saver.source)
            demand_shown(mount, saver.name(20), "latest")
            within(20, lambda m=mount: not wrong_with(m), wrong_with(mount))
            check(hash_tree(os.path.join(mount.path, saver.name(20))), "no files")
            demand(mount.log(), f"{saver.source}: it can be listed again")
            check(mount.log().count("No such file") == 1, mount.log())


# ---- permission ----

@contextlib.contextmanager
def unreadable(path):
    mode = stat.S_IMODE(os.stat(path).st_mode)
    os.chmod(path, 0)
    try:
        yield
    finally:
        os.chmod(path, mode)


def has_files(mount, name):
    """An error is returned again for the interval."""
    try:
        return hash_tree(os.path.join(mount.path, name))
    except PermissionError:
        return False


def demand_unreadable(kind, directory):
    saver = kind(directory)
    for step in (20, 30):
        saver.all_of(step)
    both = saver.name(20), saver.name(30), "latest"
    with mounted(saver) as mount, opened(mount, both[0]):
        with unreadable(saver.source):
            look_anew(mount)
            demand(wrong_with(mount), f"{saver.source}: Permission denied")
            demand_shown(mount, *both)
            try:
                os.listdir(os.path.join(mount.path, both[1]))
            except PermissionError:
                demand(why(mount, both[1]), "Permission denied")
            else:
                check(False, "a step is planned that cannot be read")
        look_anew(mount)
        check(not wrong_with(mount), wrong_with(mount))
        within(20, lambda: has_files(mount, both[1]), "a step does not come back")


@test
def permission_is_denied(directory):
    for kind in (Ranks, Trainer):
        at = os.path.join(directory, kind.__name__)
        where_modes_count(directory, lambda k=kind, a=at: demand_unreadable(k, a))


@test
def permission_is_denied_to_one_directory(directory):
    """The other steps are shown, and new ones come."""
    def run():
        saver = Trainer(os.path.join(directory, "trainer"))
        for step in (20, 30):
            saver.all_of(step)
        with mounted(saver) as mount:
            with unreadable(saver.path("checkpoint-20")):
                saver.all_of(40)
                demand_shown(mount, "checkpoint-30", "checkpoint-40", "latest")
                demand(why(mount, "checkpoint-20"), f"{saver.source}: a directory with files of "
                       "step checkpoint-20 cannot be read")
            look_anew(mount)
            demand_shown(mount, "checkpoint-20", "checkpoint-30", "checkpoint-40", "latest")
        # It was unreadable before.
        with unreadable(saver.path("checkpoint-20")), mounted(saver) as mount:
            demand_shown(mount, "checkpoint-30", "checkpoint-40", "latest")
            demand(why(mount, "checkpoint-20"), "checkpoint-20: Permission denied")
        ranks = Ranks(os.path.join(directory, "ranks"))
        ranks.all_of(20)
        with mounted(ranks) as mount:
            with unreadable(ranks.path("rank_3")):
                # It is the newest: no older one may take its place.
                look_anew(mount)
                demand_shown(mount, "1_20", "latest")
            look_anew(mount)
            demand_shown(mount, "1_20", "latest")
            check(hash_tree(os.path.join(mount.path, "1_20")), "no files")
    where_modes_count(directory, run)


# ---- inotify ----

@contextlib.contextmanager
def mounted_with_limit(saver, limit, directory):
    """A mount in a user namespace with this limit; yields the directory and the log."""
    point = tempfile.mkdtemp(dir=directory)
    command = mount_command(saver.source, point, extra=STEPS, **saver.options())
    with open(point + ".log", "wb") as log, subprocess.Popen(
            [*OWN_MOUNTS, "unshare", "--user", "--map-root-user", "--mount", "sh", "-c",
             f'echo {limit[1]} >/proc/sys/user/{limit[0]} && exec "$@"', "sh", *command],
            stdout=log, stderr=log) as daemon:
        path = f"/proc/{daemon.pid}/root{point}"
        try:
            within(60, lambda: daemon.poll() is not None or
                   os.path.exists(os.path.join(path, ".reshardfs", "steps")), "no mount")
            check(daemon.poll() is None, content(point + ".log").decode())
            yield path, lambda: content(point + ".log").decode()
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(60)


@test
def limits_of_inotify(directory):
    """The directory is looked at in intervals then; one line of the log says so."""
    if subprocess.run(["unshare", "--user", "--map-root-user", "--mount", "test", "-w",
                       "/proc/sys/user/max_inotify_watches"], stderr=subprocess.DEVNULL,
                      check=False).returncode:
        raise Skipped("no user namespace with limits")
    for limit, said in ((("max_inotify_instances", 0),
                         "fs.inotify.max_user_instances is used up"),
                        (("max_inotify_watches", 2),
                         "fs.inotify.max_user_watches is used up")):
        saver = Trainer(os.path.join(directory, limit[0]))
        for step in (20, 30, 40):
            saver.all_of(step)
        with mounted_with_limit(saver, limit, directory) as (path, log):
            saver.all_of(50)
            within(20, lambda p=path: "checkpoint-50" in os.listdir(p), "a step does not come")
            for _ in saver.remove(20):
                pass
            within(20, lambda p=path: "checkpoint-20" not in os.listdir(p), "a step does not go")
            sentence = f"{saver.source}: new steps are found only each --steps-interval: {said}"
            check(log().count(sentence) == 1, log())


# ---- how often files are asked for ----

@contextlib.contextmanager
def traced(log):
    """The program under strace, with which LeakSanitizer does not work."""
    program = wrapper(os.path.dirname(log), f"strace -f -o '{log}' -e trace=file,getdents64 "
                      "-e signal=none ", "export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0")
    with program_is(program):
        yield


def need_strace():
    if not shutil.which("strace") or subprocess.run(
            ["strace", "true"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            check=False).returncode:
        raise Skipped("no strace")


@test
def visits_do_not_list_the_directory_of_all_steps(directory):
    """Rank files of all steps lie in the same directories; a visit asks for its own."""
    need_strace()
    saver, log = Ranks(directory), os.path.join(directory, "strace")
    for step in range(10):
        saver.all_of(step)
    others = [saver.name(step) for step in range(10) if step != 5]
    with traced(log), mounted(saver, "--sandbox", "off", steps=SLOWLY) as mount:
        demand_shown(mount, *others, saver.name(5), "latest")
        look_anew(mount)
        before = content(log).count(b"\n")
        for name in others:
            check(os.listdir(os.path.join(mount.path, name)), "no files")
        calls = content(log).decode().splitlines()[before:]
    check(any("net-1_6.ckpt" in line for line in calls), "the files of a step are not opened")
    found = [line for line in calls if "net-1_5.ckpt" in line]
    # The thread may look once more, but not at each visit.
    check(len(found) < len(others) * saver.job.n_ranks,
          f"{len(found)} calls for a step that nobody visits, such as {found[:1]}")


@contextlib.contextmanager
def in_bucket(directory):
    """A job, and the server that shows it as s3://job."""
    root, saver = os.path.join(directory, "s3"), TorchFiles(os.path.join(directory, "job"))
    os.mkdir(root)
    os.rename(saver.source, os.path.join(root, "job"))
    saver.source = os.path.join(root, "job")
    with Server(root) as server:
        set_environment(server.port, directory)
        yield saver, server


@test
def other_files_are_looked_into_once(directory):
    """In a bucket each of these is a request: files with numbers that are no steps."""
    with in_bucket(directory) as (saver, server):
        for i in range(20):
            write(saver.path(f"event-{i}.log"), b"x" * i)
        saver.all_of(1)

        def asked():
            return {f"event-{i}.log" for line in server.requests() for i in range(20)
                    if f"/event-{i}.log" in line}
        with Mounted("s3://job", extra=SLOWLY, described=True) as mount:
            demand_shown(mount, "epoch_1.pt", "latest")
            check(len(asked()) == 20, "they are not looked into")
            saver.all_of(2)
            check(os.path.isdir(os.path.join(mount.path, "epoch_2.pt")), "no new step")
            found = asked()
            check(not found, f"asked for again: {sorted(found)}")
            # One of them becomes a step.
            write(saver.path("event-7.log"), saver.bytes_of(1))
            check(os.path.isdir(os.path.join(mount.path, "event-7.log")), "no step")
            check(asked() == {"event-7.log"}, "others are asked for again")
            different = tree_difference(hash_tree(os.path.join(mount.path, "epoch_1.pt")),
                                        hash_tree(os.path.join(mount.path, "event-7.log")))
            check(not different, str(different))


def demand_looks(interval, count):
    """So often, and not more often, while nobody looks into the mount."""
    count()
    begun = time.monotonic()
    time.sleep(5)
    looks, seconds = count(), time.monotonic() - begun
    # At most one more than the intervals that have passed.
    check(5 // (2 * interval) <= looks <= seconds / interval + 1,
          f"{looks} looks in {seconds:.1f} s, one each {interval} s are wanted")


@test
def an_idle_directory_is_looked_at_each_interval(directory):
    saver, log = TorchFiles(directory), os.path.join(directory, "strace")
    saver.all_of(1)

    def looks():
        nonlocal seen
        lines, before = content(log).decode().splitlines(), seen
        seen = len(lines)
        return sum("inotify_add_watch" in line for line in lines[before:])
    need_strace()
    for interval, words in (1, STEPS), (2, STEPS[:2]), (3600, SLOWLY):
        seen = 0
        with traced(log), mounted(saver, "--sandbox", "off", steps=words) as mount:
            demand_shown(mount, "epoch_1.pt", "latest")
            demand_looks(interval, looks)


@test
def an_idle_bucket_is_looked_at_each_interval(directory):
    with in_bucket(directory) as (saver, server):
        saver.all_of(1)
        for interval, words in (1, STEPS), (30, STEPS[:2]):
            with Mounted("s3://job", extra=words, described=True) as mount:
                demand_shown(mount, "epoch_1.pt", "latest")
                demand_looks(interval,
                             lambda: sum("list-type=" in r for r in server.requests()))


if __name__ == "__main__":
    require_mount()
    sys.exit(test.run())
