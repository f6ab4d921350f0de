#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lost ranks, group_info.pb and what a job saved when its power went."""

import errno
import math
import os
import resource
import shutil
import sys

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import change, check, content, demand  # noqa: E402
from layouts import splits  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        read_checkpoint, read_strategy_file, strategy_bytes)
from rsh_cli import GOOD, good, run  # noqa: E402
from rsh_mount import (MountError, Mounted, Tests, expect_failure, hash_tree,  # noqa: E402
                       require_mount, tree_difference)
from small_job import LAYOUTS, Job, mounted, refuses, shows  # noqa: E402

GENUINE = os.path.join(os.environ.get("srcdir", "."), "data", "strategies",
                       "fault_recover_8")
test = Tests("lost")


def group_info(ranks):
    """A ParallelGroupMap with nothing but the restore list."""
    body = b"".join(bytes([0x08, rank]) for rank in ranks)
    return bytes([0x12, len(body)]) + body


# ---- lost ranks ----

@test
def the_fault_recovery_tutorial(job):
    """Eight ranks, group_info.pb says [0, 4], rank 0 is deleted."""
    layouts = read_strategy_file(os.path.join(
        GENUINE, "strategy_stage_0.ckpt")).layouts
    # The tutorial's whole tensors, one column each to keep files small.
    shapes = {"fc1_weight": (784, 4), "fc2_weight": (512, 2), "fc3_weight": (512, 1)}
    job = Job(job.directory + "-tutorial", layouts,
              {name: shapes[name.split(".")[-1]] for name in layouts})
    shutil.copy(os.path.join(GENUINE, "strategy_stage_0.ckpt"), job.strategy)
    saved = job.save(1, 1, name="checkpoint-1_1.ckpt")
    for rank in range(8):
        shutil.copy(os.path.join(GENUINE, f"rank_{rank}", "group_info.pb"),
                    os.path.dirname(saved[rank]))
    original = content(saved[0])
    os.unlink(saved[0])
    with mounted(job, "--log-level", "info") as m:
        found = content(m.rank_file(0))
        demand(m.log(), "8 files of group information agree")
    check(found == original, "rank 0's file is another one")
    shutil.rmtree(os.path.dirname(saved[0]))
    shows(job, (1, 1))


@test
def weights_that_no_rank_saved(job):
    """A warning, unless the options do not want them; nothing of an optimizer."""
    warned = "{} parameters of the strategy were not saved, such as {}: no file has them"
    lone = Layout([2, 4], [-1])
    job.save(1, 5)
    with open(job.strategy, "wb") as f:
        f.write(strategy_bytes(StageFile(0, {
            **LAYOUTS, "adapter.weight": lone, "base.weight": lone,
            "adam_m.up.weight": lone, "accu_grads.up.weight": lone})))
    shows(job, (1, 5), words=[warned.format(2, "adapter.weight")])
    with mounted(job, "--drop", "adapter.weight") as m:
        demand(m.log(), warned.format(1, "base.weight"))
    with mounted(job, "--only", "gamma$") as m:
        if "were not saved" in m.log():
            raise MountError(m.log())


@test
def a_step_that_was_saved_again_and_not_ended(job):
    """Files of two times, hours apart; those of a slow copy have many."""
    said = "{} of 8 files, such as {}, are 10800 s younger than the others: a job may have " \
        "saved the step again and not ended it"
    saved = list(job.save(1, 5).values())

    def at(*seconds):
        for path, time in zip(saved, seconds):
            os.utime(path, (1.7e9 + time,) * 2)
        return shows(job, (1, 5))

    for later in 1, 4, 7:
        demand(at(*[0] * (8 - later), *[10800] * later),
               said.format(later, os.path.relpath(saved[8 - later], job.source)))
    for times in range(0, 8 * 5000, 5000), [0] * 8, [0, 3000] * 4, [0, 5000, 10000, 15000] * 2:
        if "saved the step again" in at(*times):
            raise MountError(f"a warning of {list(times)}")


@test
def two_of_eight_lost(job):
    saved = job.save(1, 5)
    for rank in (2, 7):
        shutil.rmtree(os.path.dirname(saved[rank]))
    shows(job, (1, 5))
    refuses(job, "--replicas", "off", words=["rank 2 has no valid checkpoint file"])


@test
def a_whole_replica_group_lost(job):
    saved = job.save(1, 5)
    for rank in (0, 4):
        os.unlink(saved[rank])
    said = refuses(job, "--log-level", "info", words=[
        ": ranks 0 4 have no valid checkpoint file: 2 slices of 2 parameters are lost; the first: "
        "rank 0 has no valid checkpoint file, but rank 0 needs its slice of parameter ",
        "; --allow-missing shows the rest"])
    demand(said, "up.weight, the slice of ranks 0 4", "down.weight, the slice of ranks 0 4")
    check("norm.gamma" not in said, said)
    with mounted(job, "--allow-missing") as m:
        for rank in range(8):
            path = m.rank_file(rank)
            try:
                right = content(path) == job.file_bytes(rank, 1, 5)
            except OSError as error:
                right = rank in (0, 4) and error.errno == errno.EIO
            else:
                right = right and rank not in (0, 4)
            check(right, f"rank {rank}\n{m.log()}")


@test
def lost_slices_of_a_whole_model(job):
    """Just the parts that need them cannot be read."""
    saved = job.save(1, 5)
    for rank in (0, 4):
        os.unlink(saved[rank])
    with Mounted(job.source, src_strategy=job.strategy,
                 extra=["--format", "hf", "--optimizer", "keep", "--part-size", "200",
                        "--allow-missing"]) as m:
        failed = []
        for name in sorted(os.listdir(m.path)):
            try:
                content(os.path.join(m.path, name))
            except OSError as error:
                failed.append((name, error.errno))
        if failed != [(f"model-0000{n}-of-00003.safetensors", errno.EIO) for n in (1, 2)]:
            raise MountError(f"{failed}\n{m.log()}")
        demand(m.log(), *(f"{name} needs slices that are lost" for name, _ in failed))


@test
def a_file_of_which_nothing_is_left(job):
    """Two stages, and nobody saved the second: what its file would hold is not
    known, yet it does not pass for an empty one."""
    strategy = os.path.join(job.directory, "stages")
    os.mkdir(strategy)
    for stage, name in enumerate(("first.weight", "second.weight")):
        change(os.path.join(strategy, f"stage_{stage}.ckpt"),
               strategy_bytes(StageFile(stage, {name: Layout([1], [-1, -1])})))
    data = checkpoint_bytes({"first.weight": job.records(0, 1, 5)["up.weight"]})
    os.mkdir(os.path.join(job.source, "rank_0"))
    change(os.path.join(job.source, "rank_0", "net-1_5.ckpt"), data)
    with Mounted(job.source, src_strategy=strategy, dst_strategy=strategy,
                 extra=["--allow-missing", "--unlisted", "drop", "--log-level", "info"]) as m:
        demand(m.log(), "slices are lost: rank 1 has no valid checkpoint file, but parameter "
               "second.weight is needed from it",
               "lost: parameter second.weight")
        if content(m.rank_file(0)) != data:
            raise MountError("rank 0 differs")
        try:
            content(m.rank_file(1))
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        else:
            raise MountError(f"rank 1 can be read\n{m.log()}")


@test
def an_older_whole_step_before_a_newer_part(job):
    job.save(1, 5)
    saved = job.save(1, 10)
    for rank in (0, 4):
        os.unlink(saved[rank])
    shows(job, (1, 5), "--allow-missing")
    for rank in (1, 5):
        os.unlink(job.path(rank, "net-1_5.ckpt"))
    with mounted(job, "--allow-missing") as m:
        if content(m.rank_file(3)) != job.file_bytes(3, 1, 10):
            raise MountError(m.log())


@test
def no_file_that_is_valid(job):
    saved = job.save(1, 5)
    for path in saved.values():
        change(path, b"nothing")
    refuses(job, words=["rank_0/net-1_5.ckpt", "7 other files cannot be used", "no rank has"])
    _, said = expect_failure(job.source, extra=["--dst-ranks", "2"])
    demand(said, "no rank has a valid checkpoint file")
    for path in saved.values():
        os.unlink(path)
    _, said = expect_failure(job.source, extra=["--allow-missing"])
    demand(said, "no rank has a valid checkpoint file")


# ---- files that are valid and lack one record ----

def without(job, name, ranks):
    for rank in ranks:
        records = job.records(rank, 1, 5)
        del records[name]
        change(job.path(rank, "net-1_5.ckpt"), checkpoint_bytes(records))


@test
def a_record_that_a_file_lacks(job):
    """It is told of the file, with the record's name; no word of a file that is
    missing or damaged."""
    job.save(1, 5)
    without(job, "up.weight", [1])
    said = shows(job, (1, 5), words=["records that valid files lack",
                                     "rank_1/net-1_5.ckpt lacks up.weight"])
    check("without a valid file" not in said, said)
    lacks = "rank_1/net-1_5.ckpt: the file is valid, but lacks parameter up.weight"
    refuses(job, "--replicas", "off", words=[lacks])
    without(job, "up.weight", [5])
    refuses(job, words=[lacks])
    copied = os.path.join(job.directory, "copied.ckpt")
    change(copied, strategy_bytes(StageFile(0, {"down.weight": Layout([8], [-1, 0])})))
    status, said = expect_failure(job.source, src_strategy=job.strategy, dst_strategy=copied)
    demand(said, lacks)
    if status != 3 or "no valid file of" in said or "which no valid file" in said:
        raise MountError(said)


# ---- jobs without a strategy ----

def shows_names(source, expected, *extra):
    """Each rank's file has these records, in this order; returns them."""
    with Mounted(source, extra=["--dst-ranks", str(len(expected)), *extra]) as m:
        found = [read_checkpoint(m.rank_file(r)) for r in range(len(expected))]
        if [list(records) for records in found] != expected:
            raise MountError(f"{[list(records) for records in found]}\n{m.log()}")
    return found


@test
def redundancy_removed_of_a_data_parallel_job(job):
    """Each parameter lies with one rank, the appended records with all."""
    whole = job.records(0, 1, 5)
    dealt = [["up.weight", "norm.gamma"], ["down.weight"], []]
    appended = ["epoch_num", "step_num"]
    for rank, names in enumerate(dealt):
        path = job.path(rank, "net-1_5.ckpt")
        os.makedirs(os.path.dirname(path))
        change(path, checkpoint_bytes({n: whole[n] for n in names + appended}))
    order = ["up.weight", "norm.gamma", "down.weight"]
    for ranks in (1, 3, 4):
        for found in shows_names(job.source, [order + appended] * ranks):
            check(not any(found[name] != record for name, record in whole.items()), "other values")
    shows_names(job.source, [names + appended for names in dealt], "--replicas", "off")
    shows_names(job.source, [["up.weight"]] * 2, "--only", "^up")


def save_whole(job, step, ranks):
    """A data-parallel job: whole tensors, the same with all ranks."""
    cut = {name: splits(layout) for name, layout in job.layouts.items()}
    records = {name: Record(job.shapes[name], record.dtype,
                            record.content * math.prod(cut[name]))
               for name, record in job.records(0, 1, step).items() if name in cut}
    records["step_num"] = job.records(0, 1, step)["step_num"]
    for rank in ranks:
        path = job.path(rank, f"net-1_{step}.ckpt")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        change(path, checkpoint_bytes(records))
    return records


def sharded_for_the_job(job, *extra):
    with Mounted(job.source, dst_strategy=job.strategy, extra=extra) as m:
        return hash_tree(m.path), m.log()


@test
def a_data_parallel_job_sharded_from_any_rank(job):
    """What the converter takes from rank 0 alone."""
    save_whole(job, 5, range(3))
    whole, _ = sharded_for_the_job(job)
    for rank in (1, 2):
        os.truncate(job.path(rank, "net-1_5.ckpt"), 60)
    for extra in ((), ("--replicas", "off")):
        check(sharded_for_the_job(job, *extra)[0] == whole, "rank 0 alone gives another tree")
    save_whole(job, 5, range(3))
    os.unlink(job.path(0, "net-1_5.ckpt"))
    found, said = sharded_for_the_job(job)
    if found != whole:
        raise MountError("\n".join(tree_difference(whole, found)) + said)
    for extra in (("--replicas", "off"), ("--compat", "mindspore")):
        expect_failure(job.source, dst_strategy=job.strategy, extra=extra)
    save_whole(job, 5, [0])
    with Mounted(job.source, dst_strategy=job.strategy) as m:
        os.truncate(job.path(0, "net-1_5.ckpt"), 60)
        check(hash_tree(m.path) == whole, f"not from rank 1\n{m.log()}")
        demand(m.log(), "rank_0/net-1_5.ckpt: changed")


@test
def redundancy_removed_of_a_data_parallel_job_and_sharded(job):
    records = save_whole(job, 5, [0])
    whole, _ = sharded_for_the_job(job)
    for rank, names in enumerate((["up.weight"], ["down.weight", "norm.gamma"])):
        path = job.path(rank, "net-1_5.ckpt")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        change(path, checkpoint_bytes({n: records[n] for n in [*names, "step_num"]}))
    with Mounted(job.source, dst_strategy=job.strategy) as m:
        for rank in range(8):
            path = os.path.join(f"rank_{rank}", f"checkpoint_{rank}.ckpt")
            found = read_checkpoint(os.path.join(m.path, path))
            if set(found) != set(records) or os.stat(os.path.join(m.path, path)).st_size != \
                    whole[path][0]:
                raise MountError(f"rank {rank}: {list(found)}\n{m.log()}")


@test
def a_file_that_has_all_keeps_its_order(job):
    records = job.records(0, 1, 5)
    for rank, names in enumerate((list(records), list(reversed(records)), ["norm.gamma"])):
        path = job.path(rank, "net-1_5.ckpt")
        os.makedirs(os.path.dirname(path))
        change(path, checkpoint_bytes({n: records[n] for n in names}))
    shows_names(job.source, [list(records), list(reversed(records))])


@test
def nothing_of_a_rank_that_holds_something_else(job):
    """Ranks of a sharded job, shown without strategies: each has its own file, and no other
    rank has what one lacks."""
    own = ["--src-strategy", "none", "--dst-strategy", "none", "--dst-ranks", "8"]
    saved = job.save(1, 5)
    with Mounted(job.source, extra=own) as m:
        m.demand_tree(job.expected(1, 5))

    def refused():
        for extra in ([], ["--check", "full"]):
            status, said = expect_failure(job.source, extra=own + extra)
            check(status == 3, repr(status))
            demand(said, "it was saved under a strategy", "their bytes differ")

    without(job, "up.weight", [3])
    refused()
    for extra in (["--replicas", "off"], ["--check", "structure"]):
        with Mounted(job.source, extra=own + extra) as m:
            check(len(os.listdir(m.path)) == 8, "ranks")
    for name in ("net-1_5.ckpt", "net.ckpt"):
        for lost in (2, 0, 7):
            shutil.rmtree(job.source)
            os.unlink(job.save(1, 5, name=name)[lost])
            refused()


@test
def without_replicas_each_rank_needs_its_own_file(job):
    job.save(1, 5, ranks=(0, 2))
    for ranks in ("2", "4"):
        status, said = expect_failure(job.source,
                                      extra=["--dst-ranks", ranks, "--replicas", "off"])
        demand(said, job.source, "rank 1 has no checkpoint file")
        check(status == 3, f"exit status {status}")
    job.save(1, 5)
    with Mounted(job.source, extra=["--dst-ranks", "8", "--replicas", "off"]) as m:
        m.demand_tree(job.expected(1, 5))


# ---- a job that names many ranks and has one file ----

# Seconds of processor time that a plan may take in any case.
PLAN_ANYWAY = 0.05


def plan_of_many(directory, ranks, src_map, dst, *options, names="w"):
    """(processor seconds, what the program said) of a plan of that many."""
    os.makedirs(os.path.join(directory, "source", "rank_0"), exist_ok=True)
    paths = [os.path.join(directory, name) for name in ("src.ckpt", "dst.ckpt")]
    for path, layout in zip(paths, (Layout([ranks], [src_map]), dst)):
        if layout:
            change(path, strategy_bytes(StageFile(0, {name: layout for name in names})))
    change(os.path.join(directory, "source", "rank_0", "net-1_1.ckpt"),
           checkpoint_bytes({name: Record((2,), "Float32", bytes(8)) for name in names}))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = run("plan", "--src-strategy", paths[0], "--dst-strategy",
               paths[1] if dst else "none", *options, os.path.join(directory, "source"))
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime, said


@test
def time_grows_as_the_ranks_do(job):
    """Sixteen times the ranks; a walk over ranks within one over ranks would
    take 256 times as long."""
    for number, (src_map, dst, options) in enumerate((
            (0, lambda n: None, ["--allow-missing"]),
            (-1, lambda n: None, []),
            (-1, lambda n: Layout([2], [0]), []),
            (-1, lambda n: Layout([n], [-1]), []),
            (0, lambda n: Layout([n], [-1]), ["--allow-missing"]))):
        took = []
        for ranks in (1 << 13, 1 << 17):
            seconds, said = plan_of_many(f"{job.directory}-{number}-{ranks}", ranks,
                                         src_map, dst(ranks), *options)
            check(said.status == GOOD, repr(said))
            took.append(max(seconds, PLAN_ANYWAY))
        check(took[1] <= 64 * took[0], f"case {number}: {took}")


@test
def a_rank_that_no_job_has(job):
    """Without strategies any number counts, and tables go by it."""
    job = Job(os.path.join(job.directory, "whole"),
              {name: Layout([8], [-1] * len(shape)) for name, shape in job.shapes.items()})
    saved = job.save(1, 5)
    last = os.path.join(job.source, "rank_1048575")
    os.rename(os.path.dirname(saved[7]), last)
    options = ("plan", "--src-strategy", "none", "--dst-strategy", "none", "--check",
               "structure", job.source)
    good(*options)
    os.rename(last, os.path.join(job.source, "rank_4000000000"))
    said = run(*options)
    demand(said.err, "rank_4000000000/", "rank 4000000000 is too large: a job has at most 1048576 ranks")


@test
def many_losses_are_told_in_few_lines(job):
    """Each parameter, but not each slice of it."""
    _, said = plan_of_many(job.directory, 3000, 0, None, "--allow-missing", names="wxyz")
    if len(said.err.splitlines()) != 1 or "11996 slices of 4 parameters are lost;" not in said.err:
        raise MountError(said.err)
    _, said = plan_of_many(job.directory, 3000, 0, None, "--allow-missing", "--log-level=info",
                           names="wxyz")
    lines = [line.split(": lost: ")[1] for line in said.err.splitlines()
             if "info: " in line and ": lost: " in line]
    slices = {name: [f"parameter {name}, the slice of ranks {rank}"
                     for rank in range(1, 3000)] for name in "wx"}
    expected = [*slices["w"], *slices["x"][:4096 - 2999],
                f"parameter x, {2 * 2999 - 4096} more slices",
                "parameter y, 2999 slices", "parameter z, 2999 slices"]
    check(lines == expected, f"{len(lines)} lines, the last {lines[-5:]}")
    _, said = plan_of_many(job.directory, 1000, 0, None)
    demand(said.err, "ranks 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 and 983 more have no valid "
           "checkpoint file: 999 slices of 1 parameters are lost; the first: rank 1 has no")
    _, said = plan_of_many(job.directory, 1000, 0, Layout([1000], [-1]))
    demand(said.err, "999 slices of 1 parameters are lost")


@test
def ranks_of_one_slice_are_not_all_named(job):
    plan_of_many(job.directory, 1000, 0, None)
    path = os.path.join(job.directory, "src.ckpt")
    change(path, strategy_bytes(StageFile(0, {"w": Layout([2, 500], [1])})))
    said = run("plan", "--src-strategy", path, "--dst-strategy", "none", "--log-level=info",
               os.path.join(job.directory, "source"))
    demand(said.err, "the slice of ranks 500 501 502", " and 436 more")


# ---- group_info.pb ----

@test
def group_info_of_another_rank(job):
    saved = job.save(1, 5)
    path = os.path.join(os.path.dirname(saved[1]), "group_info.pb")
    change(path, group_info([0, 4]))
    refuses(job, words=[path, "ranks 1 and 0", "parameter"])
    change(path, group_info([5]))
    refuses(job, words=[path, "rank 1, which is not among"])


@test
def group_info_that_contradicts_the_strategy(job):
    saved = job.save(1, 5)
    path = os.path.join(os.path.dirname(saved[1]), "group_info.pb")
    change(path, group_info([1, 2]))
    refuses(job, words=[path, "ranks 1 and 2", job.strategy, "weight"])
    change(path, group_info([1, 9]))
    refuses(job, words=[path, "rank 9", "0 to 7"])
    change(path, group_info([1, 5]))
    shows(job, (1, 5))
    change(path, group_info([1]))
    shows(job, (1, 5))


@test
def group_info_that_is_damaged(job):
    saved = job.save(1, 5)
    path = os.path.join(os.path.dirname(saved[1]), "group_info.pb")
    change(path, b"\x12\x99nothing")
    shows(job, (1, 5), words=[path, "the file is ignored"])
    refuses(job, "--group-info", path, words=[path])


@test
def group_info_elsewhere(job):
    job.save(1, 5)
    folder = os.path.join(job.directory, "groups")
    for rank in range(8):
        os.makedirs(os.path.join(folder, f"rank_{rank}"))
        change(os.path.join(folder, f"rank_{rank}", "group_info.pb"),
               group_info([rank % 4, rank % 4 + 4]))
    template = os.path.join(folder, "rank_{rank}", "group_info.pb")
    one = os.path.join(folder, "rank_3", "group_info.pb")
    for given in (folder, template, one):
        shows(job, (1, 5), "--group-info", given)
    change(one, group_info([3, 6]))
    for given in (folder, template, one):
        refuses(job, "--group-info", given, words=[one, "ranks 3 and 6"])
    refuses(job, "--group-info", folder + "/x{rank}", words=["no rank has such a file"])
    refuses(job, "--group-info", one + ".gone", words=["No such file"])


# ---- power-off saves ----

def save_power_off(job, directory, epoch, step, ranks, name="ttp_rank_{rank}"):
    return job.save(epoch, step, ranks, folder=directory + "/rank_{rank}",
                    name=f"{name}-{epoch}_{step}.ckpt")


@test
def a_power_off_save(job):
    for directory, name in (("tft_saved_checkpoints-step_20", "ttp_rank_{rank}"),
                            ("ttp_saved_checkpoints-step_20", "ttp_rank_{rank}"),
                            ("ttp_saved_checkpoints-2_20", "iteration")):
        save_power_off(job, directory, 2, 5, (0, 5, 2, 7), name)
        shows(job, (2, 5), source=os.path.join(job.source, directory))
        shows(job, (2, 5))
        shutil.rmtree(os.path.join(job.source, directory))


@test
def several_power_off_saves(job):
    """Steps of a file count from the epoch's beginning, those of a directory
    from the job's."""
    save_power_off(job, "tft_saved_checkpoints-step_9", 1, 9, (0, 5, 2, 7))
    new = save_power_off(job, "ttp_saved_checkpoints-step_20", 2, 5, (4, 1, 2, 3))
    save_power_off(job, "ttp_saved_checkpoints-step_30_tmp", 2, 15, range(8))
    shows(job, (2, 5), words=["step_30_tmp: the save is incomplete"])
    os.truncate(new[2], 50)
    shows(job, (1, 9), words=["step_20 epoch 2 step 5 cannot be used"])
    refuses(job, "--fallbacks", "0", words=["ttp_saved_checkpoints-step_20"])


@test
def two_power_off_saves_of_one_step(job):
    """Of two versions of MindSpore; half of a save and half of another are no
    checkpoint."""
    save_power_off(job, "tft_saved_checkpoints-step_20", 2, 5, (0, 5))
    kept = save_power_off(job, "ttp_saved_checkpoints-step_20", 2, 5, (2, 7))
    refuses(job, words=["tried 2", "ttp_saved_checkpoints-step_20 epoch 2 step 5: ",
                        "tft_saved_checkpoints-step_20 epoch 2 step 5: "])
    save_power_off(job, "tft_saved_checkpoints-step_20", 2, 5, (2, 7))
    for rank, path in kept.items():
        change(path, job.file_bytes(rank, 2, 15))
    shows(job, (2, 5))
    save_power_off(job, "ttp_saved_checkpoints-step_20", 2, 5, (0, 1, 2, 7))
    shows(job, (2, 5), words=["taking ttp_saved_checkpoints-step_20"])


@test
def a_power_off_save_beside_ranks(job):
    job.save(1, 5)
    save_power_off(job, "tft_saved_checkpoints-step_20", 2, 5, range(8))
    shows(job, (1, 5), words=["tft_saved_checkpoints-step_20 is ignored"])


@test
def power_off_saves_that_were_not_completed(job):
    directory = "tft_saved_checkpoints-step_30_tmp"
    save_power_off(job, directory, 2, 15, range(8))
    refuses(job, words=[job.source, "it contains no complete save"])
    refuses(job, source=os.path.join(job.source, directory),
            words=[directory, "incomplete"])
    link = os.path.join(job.directory, "link")
    os.symlink(os.path.join(job.source, directory), link)
    for given in (link, os.path.join(job.source, directory) + "/", link + "/."):
        refuses(job, source=given, words=[directory, "incomplete"])


@test
def a_power_off_save_for_fewer_cards(job):
    save_power_off(job, "tft_saved_checkpoints-step_20", 2, 5, (4, 1, 6, 3))
    layouts = {name: Layout([2], [-1 if e < 0 else 0 for e in layout.tensor_map])
               for name, layout in job.layouts.items()}
    wanted = os.path.join(job.directory, "wanted.ckpt")
    change(wanted, strategy_bytes(StageFile(0, layouts)))
    whole = Job(os.path.join(job.directory, "all"))
    whole.save(2, 5)
    trees = []
    for source in (job.source, whole.source):
        with Mounted(source, src_strategy=job.strategy, dst_strategy=wanted) as m:
            trees.append(hash_tree(m.path))
    if trees[0] != trees[1] or len(trees[0]) != 2:
        raise MountError("\n".join(tree_difference(*trees)))


@test
def a_power_off_save_of_a_data_parallel_job(job):
    records = job.records(0, 2, 5)
    for name, value in (("cur_rank", 2), ("batch_num", 15)):
        records[name] = records["epoch_num"].__class__(
            (), "Int64", value.to_bytes(8, "little"))
    data = checkpoint_bytes(records)
    path = job.path(2, "tft_saved_checkpoints-step_20/rank_{rank}/"
                    "ttp_rank_{rank}-2_5.ckpt", "")
    os.makedirs(os.path.dirname(path))
    change(path, data)
    with Mounted(job.source, extra=["--dst-ranks", "4"]) as m:
        for rank in range(4):
            if content(m.rank_file(rank)) != data:
                raise MountError(f"rank {rank}\n{m.log()}")
        if sorted(os.listdir(m.path)) != [f"rank_{r}" for r in range(4)]:
            raise MountError(str(os.listdir(m.path)))


# ---- replicas that differ ----

@test
def an_export_says_which_replicas_differ(job):
    """Only a mount said so."""
    layouts, shapes = dict(job.layouts), dict(job.shapes)
    layouts["bn.moving_mean"], shapes["bn.moving_mean"] = Layout([2, 4], [-1]), (64,)
    job = Job(job.directory + "-differ", layouts, shapes)
    for rank, path in job.save(1, 1).items():
        records = job.records(rank, 1, 1)
        records["bn.moving_mean"] = Record((64,), "Float32",
                                           bytes((rank + i) % 251 for i in range(256)))
        change(path, checkpoint_bytes(records))
    got = good("export", "--src-strategy", job.strategy, "--dst-strategy", "none",
               "--format", "hf", job.source, os.path.join(job.directory, "out"))
    demand(got.err, ": warning: ", "parameter bn.moving_mean: ranks 0 and ",
           "should hold the same, but their bytes differ; they count as what each rank keeps")


if __name__ == "__main__":
    require_mount()
    sys.exit(test.run(lambda directory: Job(os.path.join(directory, "job"))))
