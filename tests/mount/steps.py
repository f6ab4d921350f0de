#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mount --steps all: every step of a job in a directory of its own, while it saves.

A step is written in the order of its framework, one operation after the other.  After
each of them the mount must show the step if it is complete, and not show it otherwise,
with the bytes that a mount of this step alone shows.  A lookup of a name that is not
there looks at the source again, so no test has to wait for that.
"""

import errno
import json
import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

from daemon_use import (field, is_sanitized, n_descriptors,  # noqa: E402
                        processor_seconds)
from demands import check, content, demand, within, write  # noqa: E402
from framework_formats import torch_zip  # noqa: E402
from rsh_cli import GOOD, INPUT, IO, NO, USAGE, good, run  # noqa: E402
from rsh_mount import (MountError, Mounted, Tests, expect_failure, hash_tree,  # noqa: E402
                       require_mount, reshardfs_program, tree_difference)
from s3_trial import Server, set_environment  # noqa: E402
from savers import (DATA, SEED, Checkpoint2, Dcp, Fsdp, Megatron, Ranks,  # noqa: E402
                    RanksInSteps, Saver, TorchFiles, Trainer, TrainerInParts)
STEPS = ("--steps", "all", "--steps-interval", "1")
test = Tests("steps")


SAVERS = (Ranks, RanksInSteps, Checkpoint2, Dcp, Fsdp, Megatron, Trainer, TrainerInParts,
          TorchFiles)


def mounted(saver, *more):
    return Mounted(saver.url or saver.source, extra=STEPS + more, **saver.options())


def shown(mount):
    return sorted(os.listdir(mount.path))


def status_of(mount):
    return json.loads(content(os.path.join(mount.path, ".reshardfs", "steps")))


def why(mount, name):
    return {s["name"]: s["why"] for s in status_of(mount)["steps"]}.get(name)


def demand_step(saver, mount, name):
    """The step has the bytes of a mount of it alone."""
    words, more = saver.alone(name)
    with Mounted(*words, **more) as alone:
        expected = hash_tree(alone.path)
    found = hash_tree(os.path.join(mount.path, name), odd_blocks=True)
    check(expected, f"{name}: a mount of it alone has no file")
    different = tree_difference(expected, found)
    check(not different, f"{name}: {different}")


def each_operation(saver, tap_name):
    """Two steps come and the first one goes, with a look after each operation."""
    del tap_name
    with mounted(saver) as mount:
        check(shown(mount) == [], f"an empty directory: {shown(mount)}")
        for step in (20, 30):
            name = saver.name(step)
            for i, complete in enumerate(saver.save(step)):
                there = os.path.isdir(os.path.join(mount.path, name))
                check(there == complete, f"{name}, operation {i}: shown: {there}, "
                      f"complete: {complete}\n{why(mount, name)}")
                if not complete and os.path.isdir(saver.path(name)):
                    check(why(mount, name), f"{name}, operation {i}: it is not said why")
            # A look of the other thread may have begun before the last operation.
            within(10, lambda n=name: why(mount, n) is None, f"{name}: it is said to lack files")
            demand_step(saver, mount, name)
            check(os.readlink(os.path.join(mount.path, "latest")) == name, "latest")
        check(shown(mount) == sorted([saver.name(20), saver.name(30), "latest"]),
              str(shown(mount)))
        demand_step(saver, mount, saver.name(20))
        removal = saver.remove(20)
        next(removal)
        within(10, lambda: saver.name(20) not in shown(mount), "a step that goes is shown")
        check(why(mount, saver.name(20)) in (None, saver.gone(20)), why(mount, saver.name(20)))
        for _ in removal:
            pass
        demand_step(saver, mount, saver.name(30))
        check(shown(mount) == sorted([saver.name(30), "latest"]), str(shown(mount)))


for _saver in SAVERS:
    def _case(directory, kind=_saver):
        each_operation(kind(directory), kind.__name__)
    _case.__name__ = f"each operation of {_saver.__name__}"
    _case.__doc__ = _saver.__doc__
    test(_case)


# ---- object storage ----

@test
def steps_in_object_storage(directory):
    """The directories of a bucket; the server shows files as they are on disk."""
    os.mkdir(os.path.join(directory, "s3"))
    with Server(os.path.join(directory, "s3")) as server:
        set_environment(server.port, directory)
        for kind, below in ((Ranks, ""), (Checkpoint2, ""), (Dcp, "/runs/1"), (Trainer, ""),
                            (Fsdp, ""), (TorchFiles, ""), (TorchFiles, "/runs/1")):
            place = kind.__name__.lower() + below
            bucket = os.path.join(directory, "s3", place)
            saver = kind(os.path.join(directory, place))
            os.makedirs(os.path.dirname(bucket), exist_ok=True)
            os.rename(saver.source, bucket)
            os.symlink(bucket, saver.source)
            write(os.path.join(bucket, "README-1"), b"x")
            saver.url = f"s3://{place}"
            operations = list(saver.save(10))
            check(operations[-1], "the save does not end")
            with mounted(saver) as mount:
                check(shown(mount) == sorted([saver.name(10), "latest"]),
                      f"{kind.__name__}: {shown(mount)}: {status_of(mount)}")
                for complete in saver.save(20):
                    there = os.path.isdir(os.path.join(mount.path, saver.name(20)))
                    check(there == complete, f"{kind.__name__}: {complete}, "
                          f"{why(mount, saver.name(20))}")
                for step in (10, 20):
                    demand_step(saver, mount, saver.name(step))
                for _ in saver.remove(10):
                    pass
                within(10, lambda kept=saver, m=mount: kept.name(10) not in shown(m),
                       "the step does not go")
    status, err = expect_failure("https://localhost/model/", extra=STEPS, described=True)
    check(status == USAGE, err)
    demand(err, "--steps all needs a directory or s3://")


# ---- files that options name, which are read again for each step ----

WEIGHTS = os.path.join(DATA, "weights")


class Models(Saver):
    """Hugging Face models without their config.json."""

    origin = os.path.join(WEIGHTS, "models", "qwen3")

    def name(self, step):
        return f"step-{step}"

    def save(self, step):
        for name in sorted(os.listdir(self.origin), key=lambda n: n.endswith(".json")):
            if "safetensors" in name:
                for _ in self.put(f"{self.name(step)}/{name}",
                                  content(os.path.join(self.origin, name))):
                    yield False


class Genuine(Models):
    """A whole model of MindSpore."""

    origin = os.path.join(WEIGHTS, "mindspore", "qwen3")


def files_of_options(directory):
    """Files and directories outside of SOURCE, and a link in one of them."""
    os.makedirs(os.path.join(directory, "model"))
    config = content(os.path.join(WEIGHTS, "models", "qwen3", "config.json"))
    write(os.path.join(directory, "model", "config.json"), config)
    write(os.path.join(directory, "blobs", "t"), b'{"tokens": 3}')
    write(os.path.join(directory, "model", "tokenizer.json"), b'{"tokens": 3}')
    write(os.path.join(directory, "own.rules"), content(os.path.join(
        HERE, "..", "tables", "qwen3.rules")))
    write(os.path.join(directory, "names.json"), b'{"up.weight": "down.proj"}')
    os.makedirs(os.path.join(directory, "strategies"))


def options_with_files(directory):
    """(saver, options of a mount with paths below the directory)"""
    ranks = Ranks(os.path.join(directory, "ranks"))
    os.symlink(ranks.job.strategy, os.path.join(directory, "strategies", "s.ckpt"))
    strategy = os.path.relpath(ranks.job.strategy, directory)
    yield ranks, ["--src-strategy", "strategies", "--dst-strategy", "none"]
    yield ranks, ["--src-strategy", strategy, "--dst-strategy", "strategies",
                  "--rename", "names.json"]
    models = Models(os.path.join(directory, "models"))
    for table in ("auto", "qwen3", "own.rules"):
        yield models, ["--convert", table, "--from", "hf", "--config", "model/config.json"]
    yield models, ["--format", "hf", "--model-files", "model"]
    genuine = Genuine(os.path.join(directory, "genuine"))
    for config in ("model", "model/config.json"):
        yield genuine, ["--convert", "auto", "--from", "mindspore", "--config", config]


def hashes_in(words, where, below=""):
    """Mounts in the background, from the directory of the options' files."""
    point = tempfile.mkdtemp(dir=where)
    done = subprocess.run([reshardfs_program(), "mount", "--log-to", "file:log", *words, point],
                          cwd=where, check=False)
    check(done.returncode == 0, content(os.path.join(where, "log")).decode())
    try:
        return hash_tree(os.path.join(point, below))
    finally:
        check(run("umount", point).status == GOOD, "it cannot be unmounted")


@test
def files_of_options_are_found_when_a_step_is_planned(directory):
    """A daemon in its sandbox reads them again, by relative paths too."""
    files_of_options(directory)
    for saver, words in options_with_files(directory):
        saver.all_of(10)
        alone = hashes_in(words + [saver.alone(saver.name(10))[0][0]], directory)
        check(alone, f"{words}: a mount of one step has no file")
        try:
            found = hashes_in(words + ["--steps", "all", saver.source], directory,
                              saver.name(10))
        except OSError:
            check(False, f"{words}: " + content(os.path.join(directory, "log")).decode())
        check(not tree_difference(alone, found), f"{words}: {tree_difference(alone, found)}")


# ---- ranks without a file ----

def inode(mount, name):
    return os.stat(os.path.join(mount.path, name)).st_ino


@test
def ranks_that_save_later_do_not_change_a_step(directory):
    """What was opened, and a working directory, stay valid when the last ranks save."""
    saver = Ranks(directory)
    steps = saver.save(20)
    while not next(steps):
        pass
    rest = sorted(os.listdir(saver.source))
    check(len(rest) < saver.job.n_ranks + 1, str(rest))
    with mounted(saver) as mount:
        check(shown(mount) == ["1_20", "latest"], f"{shown(mount)}: {status_of(mount)}")
        number = inode(mount, "1_20")
        demand_step(saver, mount, "1_20")
        for _ in steps:
            os.path.exists(os.path.join(mount.path, "absent"))
            check(inode(mount, "1_20") == number, "the step has become another one")
        demand_step(saver, mount, "1_20")
        for _ in saver.remove(20):
            os.path.exists(os.path.join(mount.path, "absent"))
            check(shown(mount) in ([], ["1_20", "latest"]), str(shown(mount)))
        check(shown(mount) == [], str(shown(mount)))


@test
def a_step_that_is_removed_is_not_shown_again(directory):
    """The ranks that still have their files hold all slices, but the step is going."""
    saver = Ranks(directory)
    saver.all_of(20)
    with mounted(saver) as mount:
        demand_step(saver, mount, "1_20")
        os.unlink(saver.path(saver.file(3, 20)))
        os.path.exists(os.path.join(mount.path, "absent"))
        check(shown(mount) == [] and saver.is_saved(20), str(shown(mount)))
        demand(why(mount, "1_20"), ": files were removed of step 1_20")
        os.unlink(saver.path(saver.file(4, 20)))
        os.path.exists(os.path.join(mount.path, "absent"))
        check(shown(mount) == [], str(shown(mount)))
    with mounted(saver) as mount:
        demand_step(saver, mount, "1_20")


@test
def lost_slices_are_shown_only_if_allowed(directory):
    """With --allow-missing a step without both holders of a slice is shown when a later
    one is saved: until then the ranks may be writing it."""
    saver = Ranks(directory)
    for rank in (0, 2, 3, 6, 7):
        for _ in saver.save_rank(rank, 20):
            pass
    allowed = {**saver.options(), "extra": STEPS + ("--allow-missing",)}
    with mounted(saver) as strict, Mounted(saver.source, **allowed) as mount:
        for each in (strict, mount):
            check(shown(each) == [], str(shown(each)))
            demand(why(each, "1_20"), "rank 1 has no file of this step")
        for _ in saver.save_rank(5, 30):
            pass
        check(not os.path.exists(os.path.join(strict.path, "1_20")), "slices are lost")
        check(os.path.exists(os.path.join(mount.path, "1_20")), str(status_of(mount)))
        check(shown(mount) == ["1_20", "latest"], str(shown(mount)))
        folder = os.path.join(mount.path, "1_20", "rank_0")
        try:
            content(os.path.join(folder, os.listdir(folder)[0]))
        except OSError as e:
            check(e.errno == errno.EIO, str(e))
        else:
            check(False, "a file with lost slices can be read")


@test
def other_ranks_do_not_stand_in_without_replicas(directory):
    saver = Ranks(directory)
    for rank in range(1, 8):
        for _ in saver.save_rank(rank, 20):
            pass
    with mounted(saver, "--replicas", "off") as mount:
        check(shown(mount) == [], str(shown(mount)))
        demand(why(mount, "1_20"), "rank 0 has no file of this step")
        for _ in saver.save_rank(0, 20):
            pass
        check(os.path.exists(os.path.join(mount.path, "1_20")), str(status_of(mount)))
        demand_step(saver, mount, "1_20")


# ---- Checkpoint 2.0, and directories that are saved into again ----

@test
def the_last_file_of_the_trainer_is_missing(directory):
    saver = Trainer(directory)
    saver.all_of(5)
    os.unlink(saver.path("checkpoint-5", "trainer_state.json"))
    with mounted(saver) as mount:
        check(shown(mount) == [], str(shown(mount)))
        demand(why(mount, "checkpoint-5"),
               "it has no trainer_state.json yet, which is written last")


@test
def the_last_file_is_written_in_place(directory):
    """Which the Trainer and Megatron-Core do: a step is shown when it has its end."""
    for saver, marker, whole in (
            (Trainer(os.path.join(directory, "a")), "trainer_state.json",
             b'{"log_history": [{"loss": NaN, "note": "}"}], "epoch": 1.0}'),
            (TrainerInParts(os.path.join(directory, "b")), "trainer_state.json", b"{}\n"),
            (Megatron(os.path.join(directory, "c")), "metadata.json",
             b'{"sharded_backend": "torch_dist", "common": {}}')):
        saver.all_of(5)
        path = saver.path(saver.name(5), marker)
        # The file has the times of its end: only its bytes tell.
        for n in (0, 1, len(whole) // 2, len(whole.strip()) - 1, len(whole)):
            write(path, whole[:n])
            with mounted(saver) as mount:
                check(os.path.isdir(os.path.join(mount.path, saver.name(5))) ==
                      (n == len(whole)), f"{marker}, {n} bytes: {shown(mount)}")
                if n < len(whole):
                    demand(why(mount, saver.name(5)), f"its {marker}, which is written last, "
                           "does not end: the save has not ended, or it was cut off")


@test
def latest_is_gone_while_no_step_is_shown(directory):
    saver = Ranks(directory)
    saver.all_of(5)
    with mounted(saver) as mount:
        name = os.path.join(mount.path, "latest")
        fd = os.open(name, os.O_PATH | os.O_NOFOLLOW)
        check(os.readlink("", dir_fd=fd) == "1_5", "the link")
        for _ in saver.remove(5):
            pass
        within(20, lambda: shown(mount) == [], "the step stays")
        try:
            os.readlink("", dir_fd=fd)
            check(False, "a link to no step")
        except OSError as e:
            check(e.errno == errno.ESTALE, f"{e}")
        os.close(fd)
        check(not os.path.lexists(name), "latest stays")


@test
def metadata_before_the_files(directory):
    saver = Checkpoint2(directory)
    with mounted(saver) as mount:
        name = saver.name(7)
        for complete in saver.save(7, early=True):
            check(os.path.isdir(os.path.join(mount.path, name)) == complete,
                  f"complete: {complete}, {why(mount, name)}")
        demand_step(saver, mount, name)


@test
def a_distributed_checkpoint_is_saved_again(directory):
    """torch overwrites the files of ranks while the old .metadata is still there; their
    sizes stay the same."""
    saver = Dcp(directory)
    saver.all_of(5)
    name = saver.name(5)
    items = [n for n in sorted(os.listdir(saver.path(name))) if n != ".metadata"]
    with mounted(saver) as mount:
        demand_step(saver, mount, name)
        time.sleep(0.05)
        for item in items:
            write(saver.path(name, item), content(saver.path(name, item)))
            within(10, lambda: name not in shown(mount), "a mixture is shown")
            check(not os.path.isdir(os.path.join(mount.path, name)), "a mixture is shown")
            demand(why(mount, name), "is younger than .metadata")
        time.sleep(0.05)
        data = content(saver.path(name, ".metadata"))
        write(saver.path(name, ".metadata.tmp"), data)
        os.rename(saver.path(name, ".metadata.tmp"), saver.path(name, ".metadata"))
        check(os.path.isdir(os.path.join(mount.path, name)), str(why(mount, name)))
        demand_step(saver, mount, name)


@test
def latest_is_the_greatest_step_of_a_name(directory):
    """Of a name with a loss in front of it, too."""
    saver = Dcp(directory)
    saver.all_of(5)
    names = ["loss1.99_step1000", "loss2.31_step900"]
    shutil.copytree(saver.path("step-5"), saver.path(names[1]))
    os.rename(saver.path("step-5"), saver.path(names[0]))
    with mounted(saver) as mount:
        check(shown(mount) == ["latest", *names], f"{shown(mount)}: {status_of(mount)}")
        check(os.readlink(os.path.join(mount.path, "latest")) == names[0], "latest")
        check([s["step"] for s in status_of(mount)["steps"]] == [900, 1000], status_of(mount))


@test
def a_step_that_is_saved_again_is_shown_alone(directory):
    """A warning, unless the times may be those of a copy."""
    saver = Dcp(directory)
    saver.all_of(5)
    root = saver.path(saver.name(5))
    said = "s younger than .metadata, and other files are older: what is shown may be of two saves"

    def demand_warnings(number):
        with Mounted(root) as mount:
            log = mount.log()
        for words in (["export", root, tempfile.mkdtemp(dir=directory)],
                      ["verify", root], ["plan", root]):
            got = run(*words)
            check(got.status == GOOD and got.err.count(said) == number, repr(got))
        check(log.count(said) == number, log)

    demand_warnings(0)
    items = sorted(name for name in os.listdir(root) if name != ".metadata")
    mark = os.stat(os.path.join(root, ".metadata")).st_mtime_ns

    def younger(name, seconds):
        os.utime(os.path.join(root, name), ns=(mark, mark + seconds * 10**9))

    younger(items[0], 59)
    demand_warnings(0)
    younger(items[0], 61)
    demand_warnings(1)
    for name in items:
        younger(name, 61)
    demand_warnings(0)


@test
def a_copy_without_times_needs_a_new_marker(directory):
    """Its files are younger than .metadata, which no directory that is saved into again
    is told apart from; who knows that the copy is complete touches .metadata."""
    saver = Dcp(directory)
    saver.all_of(5)
    copy, original = saver.path("step-6"), saver.path("step-5")
    os.makedirs(copy)
    for name in sorted(os.listdir(original), key=".metadata".__ne__):
        shutil.copyfile(os.path.join(original, name), os.path.join(copy, name))
        time.sleep(0.01)
    with mounted(saver) as mount:
        check(shown(mount) == ["latest", "step-5"], str(shown(mount)))
        demand(why(mount, "step-6"), "is younger than .metadata: it is being saved again, "
               "or was copied without its times")
        os.utime(os.path.join(copy, ".metadata"))
        check(os.path.isdir(os.path.join(mount.path, "step-6")), str(status_of(mount)))
        demand_step(saver, mount, "step-6")


# ---- what was opened ----

@test
def opened_files_stay_of_their_step(directory):
    saver = Ranks(directory)
    saver.all_of(20)
    with mounted(saver) as mount:
        path = os.path.join(mount.path, "latest", "rank_0")
        name = os.listdir(path)[0]
        with open(os.path.join(path, name), "rb") as f:
            before = f.read()
            folder = os.open(os.path.join(mount.path, "latest"), os.O_RDONLY)
            saver.all_of(30)
            within(10, lambda: os.readlink(os.path.join(mount.path, "latest")) == "1_30",
                   "the link does not move")
            after = content(os.path.join(path, name))
            check(before != after, "both steps have the same bytes")
            for _ in saver.remove(20):
                pass
            within(10, lambda: "1_20" not in shown(mount), "the step does not go")
            f.seek(0)
            check(f.read() == before, "an open file has bytes of another step")
            # An open directory keeps its step.
            inner = os.open(f"rank_0/{name}", os.O_RDONLY, dir_fd=folder)
            check(os.read(inner, len(before) + 1) == before, "an open directory moves")
            os.close(inner)
            os.close(folder)


@test
def a_step_that_was_not_opened_is_stale(directory):
    """A process whose working directory is a step that has gone gets an error, never
    another step."""
    saver = Ranks(directory)
    saver.all_of(20)
    with mounted(saver) as mount:
        reader = subprocess.Popen(
            [sys.executable, "-c", "import os, sys\nos.chdir(sys.argv[1])\nprint(1, flush=True)"
             "\nsys.stdin.readline()\ntry:\n os.listdir('.')\nexcept OSError as e:\n"
             " print(e.errno)", os.path.join(mount.path, "1_20")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        reader.stdout.readline()
        for _ in saver.remove(20):
            pass
        within(10, lambda: shown(mount) == [], "the step does not go")
        said = reader.communicate("\n", timeout=60)[0].strip()
        check(said == str(errno.ESTALE), f"the reader got {said}")


@test
def changes_are_noticed_at_once(directory):
    """On a local file system nobody has to wait for the interval, nor to look up a name."""
    saver = Checkpoint2(directory)
    with Mounted(saver.source, extra=("--steps", "all", "--steps-interval", "3600"),
                 described=True) as mount:
        for step in (1, 2):
            saver.all_of(step)
            within(20, lambda s=step: saver.name(s) in shown(mount), "it is not noticed")
        for _ in saver.remove(1):
            pass
        within(20, lambda: saver.name(1) not in shown(mount), "it is not noticed")


@test
def many_steps_beside_many_other_files(directory):
    """The time of mounting, and of a look, grows as the number of files does: each file
    whose name has a number is looked into, without another listing of the directory."""
    def seconds_of(n):
        saver = TorchFiles(os.path.join(directory, f"{n}"))
        for step in range(n):
            saver.all_of(step)
        for i in range(10 * n):
            write(saver.path(f"event-{i}.log"), b"x")
        first, look = [], []
        for _ in range(3):
            with Mounted(saver.source, extra=("--steps", "all", "--steps-interval", "3600"),
                         described=True) as mount:
                check(len(shown(mount)) >= n + 1, f"{len(shown(mount))} steps of {n}")
                first.append(processor_seconds(mount.process.pid))
                saver.all_of(n)
                check(os.path.exists(os.path.join(mount.path, saver.name(n))), "no new step")
                look.append(processor_seconds(mount.process.pid) - first[-1])
            for _ in saver.remove(n):
                pass
        return min(first), min(look)
    few, many = seconds_of(100), seconds_of(200)
    print(f"# 100 steps: {few[0]:.3f} s, a look {few[1]:.3f} s; "
          f"200: {many[0]:.3f} s, {many[1]:.3f} s")
    # A clock tick is 0.01 s, and on a busy machine some come too often.
    for one, two in zip(few, many):
        check(two < 3 * max(one, 0.05),
              f"twice as many files take {two:.3f} s and not {one:.3f} s")


# ---- the command ----

@test
def the_command_lists_and_waits(directory):
    saver = Ranks(directory)
    saver.all_of(20)
    with mounted(saver) as mount:
        waits = [subprocess.Popen([reshardfs_program(), "steps", "--wait", word, mount.path])
                 for word in ("1_40", "40")]
        for rank in range(3):
            for _ in saver.save_rank(rank, 40):
                pass
        os.path.isdir(os.path.join(mount.path, "1_40"))
        got = good("steps", mount.path)
        demand(got.out, "1_20  complete", "1_40  not shown",
               ": rank 3 has no file of this step")
        check(all(w.poll() is None for w in waits), "a wait has ended too early")
        saver.all_of(40)
        for w in waits:
            check(w.wait(60) == 0, "a wait fails")
        got = run("steps", "--json", mount.path)
        check(json.loads(got.out)["latest"] == "1_40", repr(got))
        check(run("stats", mount.path).status == GOOD, "stats fails")
        check(run("steps", "--wait", "20", mount.path).status == GOOD, "a step is there")
    got = run("steps", directory)
    check(got.status == INPUT and "reshardfs is not mounted there" in got.err, repr(got))


def wait_for(mount, word):
    return run("steps", "--wait", word, mount.path)


@test
def plans_of_steps(directory):
    """.reshardfs/plan has the command that prints the plan of each step, as for a mount of
    it alone."""
    ranks, trainer = Ranks(os.path.join(directory, "a")), Trainer(os.path.join(directory, "b"))
    for saver in ranks, trainer:
        for step in (20, 30):
            saver.all_of(step)
        with mounted(saver, "--cast", "float16", "--cache", "off") as mount:
            said = content(os.path.join(mount.path, ".reshardfs", "plan")).decode().splitlines()
            check(said[0] == "Each step has a plan of its own, which is printed by" and
                  len(said) == 3, str(said))
            for step, line in zip((20, 30), said[1:]):
                words, more = saver.alone(saver.name(step))
                with Mounted(*words, **{**more, "extra": (*more.get("extra", ()), "--cast",
                                                          "float16")}) as alone:
                    wanted = json.loads(content(os.path.join(
                        alone.path, ".reshardfs", "plan", "rank_0.json")))
                got = good(*shlex.split(line)[1:], "--json", "--slices")
                check([f["slices"] for f in json.loads(got.out)["files"]] ==
                      [f["slices"] for f in wanted["files"]], line)
    for command in ("plan", "ls", "export"):
        got = run(command, "--steps", "all", trainer.source)
        check(got.status == USAGE, repr(got))
        demand(got.err, f"{command} has no option --steps; it is an option of mount: give one "
               "step as SOURCE, or of rank files by --select")
    for command in ("plan", "ls"):
        got = run(command, trainer.source)
        check(got.status == INPUT, repr(got))
        demand(got.err, "checkpoint-30 in it is a checkpoint: did you mean that, or mount "
               "--steps all, which shows each step?")


@test
def a_step_that_does_not_come_is_not_waited_for(directory):
    """It was removed before somebody asked for it, and a later one is complete."""
    trainer, ranks = Trainer(os.path.join(directory, "a")), Ranks(os.path.join(directory, "b"))
    for saver, words, later in ((trainer, ("20", "checkpoint-20"), "checkpoint-30"),
                                (ranks, ("1_20",), "1_30")):
        saver.all_of(20)
        with Mounted(saver.source, extra=("--steps", "all", "--steps-interval", "3600"),
                     **saver.options()) as mount:
            check(wait_for(mount, words[0]).status == GOOD, "the step is there")
            for _ in saver.remove(20):
                pass
            saver.all_of(30)
            within(20, lambda m=mount, n=later: n in shown(m), "it is not noticed")
            for word in words:
                got = wait_for(mount, word)
                check(got.status == NO, repr(got))
                demand(got.err, f"step {word} is not there, but the later step {later} is: "
                       "it was removed or never saved")
            # What is being saved is waited for, and what comes later.
            comes = saver.save(20)
            for _ in range(2):
                next(comes)
            waits = [subprocess.Popen([reshardfs_program(), "steps", "--wait", word, mount.path],
                                      stderr=subprocess.DEVNULL)
                     for word in (words[0], saver.name(40))]
            for _ in comes:
                pass
            check(waits[0].wait(60) == 0, "a step that is saved late is not waited for")
            check(waits[1].poll() is None, "a wait has ended too early")
            mount.kill()
            check(waits[1].wait(60) in (INPUT, IO), f"the mount has ended: {waits[1].returncode}")


@test
def plans_are_given_back(directory):
    """Of nine steps that were looked into at most four keep their plans."""
    saver = Ranks(directory)
    for step in range(9):
        saver.all_of(step)
    with mounted(saver) as mount:
        for step in range(9):
            demand_step(saver, mount, saver.name(step))

        def planned():
            return [s["name"] for s in status_of(mount)["steps"] if s["planned"]]
        check(planned(), "no step is planned")
        within(10, lambda: len(planned()) <= 4, f"planned: {planned()}")
        demand_step(saver, mount, saver.name(0))


@test
def plans_are_given_back_between_looks(directory):
    """Each of many steps is visited once, before the mount looks at its source again."""
    saver = TorchFiles(directory)
    for step in range(60):
        saver.all_of(step)
    with Mounted(saver.source, extra=("--steps", "all", "--steps-interval", "3600"),
                 described=True) as mount:
        before = n_descriptors(mount.process.pid)
        for step in range(60):
            check(hash_tree(os.path.join(mount.path, saver.name(step))), "no files")
        planned = sum(s["planned"] for s in status_of(mount)["steps"])
        # The kernel releases a file some time after it is closed, so a few more
        # than the four that are kept may be in use still.
        check(0 < planned <= 12, f"{planned} of 60 steps are planned")
        more = n_descriptors(mount.process.pid) - before
        check(more < 45, f"60 visits: {more} more descriptors")


@test
def memory_and_descriptors_are_bounded(directory):
    """Of 500 steps, the last 400 that are visited leave no more than the first 100."""
    for kind in Ranks, TorchFiles:
        saver = kind(os.path.join(directory, kind.__name__))
        for step in range(500):
            saver.all_of(step)
        with Mounted(saver.source, extra=("--steps", "all", "--steps-interval", "3600"),
                     **saver.options()) as mount:
            pid, kept = mount.process.pid, []
            for first, last in (0, 100), (100, 500):
                for step in range(first, last):
                    check(hash_tree(os.path.join(mount.path, saver.name(step))), "no files")
                kept.append((n_descriptors(pid), field(pid, "RssAnon")))
            (descriptors, kib), (more_descriptors, more_kib) = kept[0], kept[-1]
            print(f"# {kind.__name__}: {descriptors} and {more_descriptors} descriptors, "
                  f"{kib} and {more_kib} KiB")
            # The kernel releases files some time after they are closed.
            within(10, lambda p=pid, d=descriptors: n_descriptors(p) <= d + 8,
                   f"{descriptors} descriptors became {more_descriptors}")
            if not is_sanitized(pid):
                check(more_kib < kib + 4096, f"{kib} KiB became {more_kib}")


# ---- wrong use ----

@test
def options_are_refused(directory):
    saver = Ranks(directory)
    saver.all_of(20)
    for words, said in (
            (("--select", "newest"), "--steps and --select cannot be used together"),
            (("--fallbacks", "2"), "--steps and --fallbacks cannot be used together"),
            (("--compat", "mindspore"), "--steps and --compat cannot be used together"),
            (("--io-mode", "passthrough"), "--steps and --io-mode=passthrough cannot be used together"),
            (("--steps", "some"), "steps: \"some\"")):
        status, err = expect_failure(saver.source, extra=STEPS + words, **saver.options())
        check(status == USAGE, f"{words}: {status}\n{err}")
        demand(err, said)
    status, err = expect_failure(saver.source, resume=True, extra=STEPS)
    check(status == USAGE, err)
    demand(err, "--resume and --steps=all cannot be used together")
    status, err = expect_failure(saver.source, extra=("--steps-interval", "3"),
                                 **saver.options())
    check(status == USAGE, err)
    demand(err, "--steps-interval needs --steps=all")
    status, err = expect_failure(saver.source, extra=STEPS, described=True)
    demand(err, "--src-strategy is missing")


@test
def one_step_is_refused(directory):
    saver = Checkpoint2(directory)
    saver.all_of(20)
    status, err = expect_failure(saver.path(saver.name(20)), extra=STEPS, described=True)
    check(status == INPUT, err)
    demand(err, "this is one checkpoint, but --steps all needs the directory above it")
    os.makedirs(os.path.join(directory, "empty"))
    with Mounted(os.path.join(directory, "empty"), extra=STEPS, described=True) as mount:
        check(shown(mount) == [], str(shown(mount)))
        demand(mount.log(), "it contains no step yet")
    status, err = expect_failure(os.path.join(directory, "none"), extra=STEPS,
                                 described=True)
    check(status == INPUT, err)


@test
def other_directories_are_explained(directory):
    saver = Dcp(directory)
    saver.all_of(3)
    write(saver.path("logs", "events"), b"x")
    shutil.copytree(saver.path("step-3"), saver.path("step-4_tmp"))
    shutil.copytree(os.path.join(DATA, "checkpoint2", "dcp_dp1tp2_per_rank"),
                    saver.path("step-9"))
    with mounted(saver) as mount:
        check(shown(mount) == ["latest", "step-3"], str(shown(mount)))
        demand(why(mount, "logs"), "no rank_N directory in it")
        for name, marker in (("iter_0000005", "metadata.json"),
                            ("checkpoint-8", "trainer_state.json")):
            file = "common.pt" if marker == "metadata.json" else "weights.pt"
            write(saver.path(name, file), torch_zip([b"x" * 64]))
            check(not os.path.isdir(os.path.join(mount.path, name)), f"{name} is shown")
            demand(why(mount, name), f"it has no {marker} yet, which is written last")
        demand(why(mount, "step-4_tmp"), "its name says that it is not finished")
        demand(why(mount, "step-9"), "nothing says when all ranks have saved, for it has no .metadata: mount")
        good("ls", os.path.join(mount.path, "step-3"))


# ---- many readers ----

STEPS_REUSED = 8  # a job saves the same steps again, in any order
STEPS_KEPT = 3
LOADS = 6           # at least
OWN_KB = 96 * 1024  # of a daemon, beside the cache
OWN_FDS = 64        # and beside the files of the trees that are planned


class Crowd:
    """A job that saves and removes steps, readers of all files, and lookups of names.

    Readers load `latest` through a directory that they have opened, or a step by its
    name.  All files must be of one step that was complete.
    """

    def __init__(self, saver, readers, pause):
        self.saver, self.readers, self.pause = saver, readers, pause
        self.problems, self.stop, self.there = [], threading.Event(), []
        self.loads = self.lookups = self.saves = 0
        self.whole = {}
        for step in range(STEPS_REUSED):
            saver.all_of(step)
            words, more = saver.alone(saver.name(step))
            with Mounted(*words, **more) as alone:
                self.whole[saver.name(step)] = hash_tree(alone.path)
            self.remove(step)

    def remove(self, step):
        for _ in self.saver.remove(step):
            pass

    def load(self, name):
        fd = os.open(os.path.join(self.mount.path, name), os.O_RDONLY | os.O_DIRECTORY)
        try:
            found = hash_tree(f"/proc/self/fd/{fd}/")
        finally:
            os.close(fd)
        if name == "latest":
            check(found in self.whole.values(), "latest shows no step that was saved")
        else:
            check(found == self.whole[name], f"{name}: "
                  f"{tree_difference(self.whole[name], found)}")
        self.loads += 1

    def look(self, number):
        rng = random.Random(f"{SEED} {number}")
        names = sorted(self.whole) + ["latest", "latest", "absent"]
        while not self.stop.is_set():
            name = rng.choice(names)
            try:
                if number == 0:
                    os.stat(os.path.join(self.mount.path, name))
                    self.lookups += 1
                else:
                    self.load(name)
            except OSError as e:
                self.lookups += number == 0
                if e.errno not in (errno.ENOENT, errno.ESTALE):
                    self.problems.append(f"{name}: {e}")
            except MountError as e:
                self.problems.append(str(e))
            time.sleep(self.pause * (1 if number else 0.1))

    def save(self):
        rng = random.Random(SEED)
        while not self.stop.is_set() and not self.problems:
            step = rng.choice([s for s in range(STEPS_REUSED) if s not in self.there])
            self.saver.all_of(step)
            self.saves += 1
            self.there.append(step)
            if len(self.there) > STEPS_KEPT:
                self.remove(self.there.pop(0))
            time.sleep(0.02 + self.pause)

    def run(self, seconds, lookups):
        """Ends after this time, but not before so many lookups, and a few loads if they
        come in ten times as long."""
        with mounted(self.saver) as self.mount:
            threads = [threading.Thread(target=self.look, args=(i,))
                       for i in range(self.readers + 1)]
            threads.append(threading.Thread(target=self.save))
            for thread in threads:
                thread.start()
            begun, pid = time.monotonic(), self.mount.process.pid
            early = 0
            try:
                while not self.problems and (
                        time.monotonic() < begun + seconds or self.lookups < lookups or
                        self.loads < LOADS and time.monotonic() < begun + 10 * seconds):
                    time.sleep(0.2)
                    if not early and time.monotonic() > begun + seconds / 3:
                        early = field(pid, "RssAnon")
                sanitized = is_sanitized(pid)
                self.memory, self.files = field(pid, "RssAnon"), n_descriptors(pid)
                self.grown = self.memory - early
            finally:  # a daemon that has ended has no such fields
                self.stop.set()
                for thread in threads:
                    thread.join()
            check(not self.problems, "\n".join(self.problems[:5]) + f"\n{self.mount.log()[-4000:]}")
            check(self.loads >= LOADS, f"only {self.loads} loads")
            for step in self.there:
                name = self.saver.name(step)
                check(os.path.isdir(os.path.join(self.mount.path, name)), name)
        check(sanitized or self.memory < OWN_KB, f"the daemon has {self.memory} KiB")
        check(sanitized or seconds < 60 or self.grown < OWN_KB // 8,
              f"the daemon grew by {self.grown} KiB")
        check(self.files < OWN_FDS + (6 if self.pause else 30) * 16, f"the daemon has {self.files} descriptors")

    def __str__(self):
        return (f"{type(self.saver).__name__}: {self.saves} saves, {self.loads} loads, "
                f"{self.lookups} lookups; daemon {self.memory} KiB ({self.grown:+d}), "
                f"{self.files} descriptors")


@test
def steps_come_and_go_while_many_look(directory):
    """Readers never see a file with bytes of another step, nor an unexpected error."""
    crowd = Crowd(Ranks(directory), 3, 0)
    crowd.run(float(os.environ.get("RSH_STRESS_SECONDS", "2")),
              int(os.environ.get("RSH_STEPS_LOOKUPS", "100")))
    print(f"# {crowd}")


@test
def jobs_of_all_frameworks_save_for_long(directory):
    """RSH_SOAK_SECONDS: memory and descriptors of the daemons stay bounded."""
    seconds = float(os.environ.get("RSH_SOAK_SECONDS", "2"))
    pause = 0.5 if seconds > 60 else 0.05
    crowds = [Crowd(kind(os.path.join(directory, kind.__name__)), 1, pause)
              for kind in (Ranks, Dcp, Trainer, TorchFiles)]
    failed = []

    def run_one(crowd):
        try:
            crowd.run(seconds, 0)
        except Exception as e:  # pylint: disable=broad-except
            failed.append(f"{type(crowd.saver).__name__}: {e}")
    threads = [threading.Thread(target=run_one, args=(c,)) for c in crowds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not failed, "\n".join(failed))
    for crowd in crowds:
        print(f"# {crowd}")


if __name__ == "__main__":
    require_mount()
    sys.exit(test.run())
