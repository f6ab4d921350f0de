#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which of several checkpoints is mounted, and what is valid.

Every tree is that of a job whose steps have no byte in common, mounted under
its own strategy: what the mount shows tells the step, and a mixture of two
would be none of them.
"""

import json
import os
import shutil
import sys
import threading

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import change, check, content, demand, error_line, flip, write  # noqa: E402
from ms_formats import Layout, checkpoint_bytes  # noqa: E402
from privileges import where_modes_count, with_program, wrapper  # noqa: E402
from rsh_cli import GOOD, INPUT, NO, run, run_json  # noqa: E402
from rsh_mount import (MountError, Mounted, Tests, expect_failure, hash_tree,  # noqa: E402
                       require_mount)
from small_job import Job, mounted, refuses, shows  # noqa: E402

test = Tests("select")


# ---- the newest ----

@test
def the_newest_step_by_number(job):
    for step in (9, 10, 2):
        job.save(1, step)
    said = shows(job, (1, 10), words=["several checkpoints per rank",
                                      "epoch 1 step 10", "rank_0/net-1_10.ckpt"])
    check("warning" not in said, said)


@test
def an_epoch_counts_before_a_step(job):
    job.save(2, 1)
    job.save(1, 100)
    shows(job, (2, 1))


@test
def a_half_written_save_from_which_all_can_be_had(job):
    job.save(1, 5)
    job.save(1, 10, ranks=(0, 5, 2, 7))
    shows(job, (1, 10), words=["4 ranks with checkpoints have none "
                               "of epoch 1 step 10: 1 3 4 6"])
    shows(job, (1, 5), "--replicas", "off", words=["epoch 1 step 10 cannot be used"])


@test
def a_half_written_save_from_which_not_all_can_be_had(job):
    job.save(1, 5)
    job.save(1, 10, ranks=(0, 1, 2, 4, 5, 6))
    shows(job, (1, 5), words=["epoch 1 step 10 cannot be used, using epoch 1 step 5 instead: "
                              "6 of 8 ranks have a valid file of it; ranks 3 7 have no"])
    shows(job, (1, 5), "--log-level", "info", words=["the slice of ranks 3 7"])


@test
def two_halves_of_two_steps_are_no_checkpoint(job):
    job.save(1, 5, ranks=(0, 1, 4, 5))
    job.save(1, 10, ranks=(2, 3, 6, 7))
    refuses(job, words=["tried 2", "epoch 1 step 10: ", "epoch 1 step 5: ",
                        "parameter"])


@test
def directories_of_another_name_are_not_silently_older_or_newer(job):
    job.save(1, 5)
    job.save(2, 7, folder="ckpt_{rank}")
    save = "tft_saved_checkpoints-step_9"
    job.save(3, 9, folder=save + "/rank_{rank}")
    said = shows(job, (1, 5), words=[
        "ckpt_0 is ignored, since there are directories rank_N; use --rank-dir 'ckpt_{rank}' for "
        "it (and 7 more)",
        f"{save} is ignored, since there are directories of ranks; it can be mounted separately"])
    check(said.count("warning") == 2, said)
    shows(job, (2, 7), "--rank-dir", "ckpt_{rank}")
    shows(job, (3, 9), source=os.path.join(job.source, save))
    got = run("plan", "--src-strategy", job.strategy, "--dst-strategy", job.strategy, job.source)
    check(got.status == GOOD and got.err.count("is ignored, since there are") == 2, repr(got))


# ---- how much is said of it ----

def job_of(job, n_ranks):
    """Each rank has its own slices of some parameters."""
    layouts = {f"layer.{i}.weight": Layout([n_ranks], [0, -1]) for i in range(4)}
    return Job(f"{job.directory}-{n_ranks}", layouts,
               {name: (n_ranks, 2) for name in layouts}, n_ranks)


def lines_of(said, *words):
    """How many lines a log has, that on files shown as they are aside; some one
    of them has all the words."""
    lines = [line for line in said.splitlines()
             if not line.startswith("Try ") and "cut everything in the same way" not in line]
    if not any(all(word in line for word in words) for line in lines):
        raise MountError(f"no line with {words} in\n{said[:4000]}")
    return len(lines)


@test
def one_stray_file_is_one_line(job):
    """However many ranks and parameters there are."""
    for n_ranks in (16, 1024):
        big = job_of(job, n_ranks)
        big.save(1, 5)
        big.save(2, 5, ranks=[3])
        few = f"1 of {n_ranks} ranks has "
        example = "rank 0 has no valid checkpoint file"
        both = ["--src-strategy", big.strategy, "--dst-strategy", big.strategy]
        for command in (["plan", big.source], ["export", big.source, f"{big.directory}/out"]):
            got = run(*command, *both)
            check(got.status == GOOD and lines_of(
                got.err, "epoch 2 step 5 cannot be used", "using epoch 1 step 5 instead", few,
                example) == 1, got)
        got = run("ls", big.source)
        check(got.status == GOOD and not got.err and len(got.out.splitlines()) == 4 and
              f"and {n_ranks - 7} more" in got.out, got)
        with mounted(big) as m:
            check(lines_of(m.log(), "epoch 2 step 5 cannot be used", few, example) == 2 and
                  lines_of(m.log(), "taking epoch 1 step 5") == 2, m.log())
        with Mounted(big.source, resume=True) as m:
            check(lines_of(m.log(), "net-2_5.ckpt cannot be used, using net-1_5.ckpt instead",
                           few, "rank_0 has none") == 2, m.log())
        got = run("plan", big.source, *both, "--log-level=info")
        check(lines_of(got.err, "lost: parameter layer.3.weight, the slice of ranks 15") >=
              4 * (n_ranks - 1), got.err[:4000])


@test
def a_step_of_damaged_files_is_one_line(job):
    big = job_of(job, 64)
    big.save(1, 5)
    for rank, path in big.save(2, 5).items():
        if rank % 2:
            os.truncate(path, 70)
    both = ["--src-strategy", big.strategy, "--dst-strategy", big.strategy]
    got = run("plan", big.source, *both)
    check(got.status == GOOD and lines_of(
        got.err, "using epoch 1 step 5 instead", "32 of 64 ranks have ", "rank_1/net-2_5.ckpt: ",
        "and 31 other files cannot be used") == 1, got)
    with Mounted(big.source, resume=True) as m:
        check(lines_of(m.log(), "64 of 64 ranks have it; ", "rank_1/net-2_5.ckpt: ") == 2, m.log())


@test
def files_that_others_make_up_for_are_one_line(job):
    job.save(1, 5)
    for rank in (0, 1, 6, 7):
        os.truncate(job.path(rank, "net-1_5.ckpt"), 60)
    said = shows(job, (1, 5))
    check(lines_of(said, "rank_0/net-1_5.ckpt: ", "the file is left out",
                   "3 others of 8") == 2, said)
    said = shows(job, (1, 5), "--log-level", "info", words=[
        f"rank_{rank}/net-1_5.ckpt: " for rank in (0, 1, 6, 7)])


@test
def a_refusal_is_one_line(job):
    big = job_of(job, 64)
    big.save(1, 5, ranks=range(1, 64))
    both = ["--src-strategy", big.strategy, "--dst-strategy", big.strategy]
    got = run("plan", big.source, *both)
    check(got.status == INPUT and lines_of(
        got.err, "error: ", "rank 0 has no valid checkpoint file",
        "4 slices of 4 parameters") == 1, got)
    big.save(2, 5, ranks=range(2, 64))
    got = run("plan", big.source, *both)
    check(got.status == INPUT and lines_of(got.err, "error: ", "epoch 2 step 5", "epoch 1 step 5",
                                           "tried 2") == 1, got)
    got = run("plan", big.source, *both, "--allow-missing")
    check(got.status == GOOD and lines_of(
        got.err, "slices are lost: ranks 0 1 have no", "layer.0.weight",
        "8 slices of 4 parameters are lost") == 1, got)


# ---- what is not valid ----

def truncate_to(job, new, size):
    """Cuts both replicas of a slice; returns the step that is then shown."""
    for rank in (1, 5):
        change(new[rank], job.file_bytes(rank, 1, 10)[:size])
    with mounted(job) as m:
        found = hash_tree(m.path)
        said = m.log()
    step = next((s for s in (5, 10) if found == job.expected(1, s)), None)
    check(step is not None, f"cut at {size}: neither step\n{said}")
    if step == 5:
        demand(said, "epoch 1 step 10 cannot be used", "rank_1/net-1_10.ckpt")
    return step


@test
def truncated_anywhere(job):
    job.save(1, 5)
    new = job.save(1, 10)
    records = job.records(1, 1, 10)
    ends = [len(checkpoint_bytes(dict(list(records.items())[:n])))
            for n in range(1, len(records) + 1)]
    for size in range(0, ends[-1], 23):
        if size not in ends and truncate_to(job, new, size) != 5:
            raise MountError(f"cut at {size}: the newer step")
    # The end of a record may be the end of a file, which then lacks slices
    # that no other rank has (down.weight), or that others have (norm.gamma).
    if truncate_to(job, new, ends[0]) != 5 or truncate_to(job, new, ends[1]) != 10:
        raise MountError("cut between records")


@test
def zeroed(job):
    job.save(1, 5)
    new = job.save(1, 10)
    for rank in (2, 6):
        change(new[rank], bytes(len(content(new[rank]))))
    shows(job, (1, 5), words=["rank_2/net-1_10.ckpt", "not a checkpoint"])


@test
def a_bit_flipped_under_a_crc(job):
    job.save(1, 5, crc=True)
    new = job.save(1, 10, crc=True)
    at = content(new[3]).index(b"Float32") + 40
    for rank in (3, 7):
        flip(new[rank], at)
    shows(job, (1, 5), "--check", "full",
          words=["rank_3/net-1_10.ckpt: damaged: its CRC is"])
    with mounted(job, "--check", "structure") as m:
        found = hash_tree(m.path)
        check(found["rank_0/checkpoint_0.ckpt"] == job.expected(1, 10)["rank_0/checkpoint_0.ckpt"],
              m.log())


@test
def a_bit_flipped_where_a_replica_has_it(job):
    job.save(1, 5, crc=True)
    new = job.save(1, 10, crc=True)
    flip(new[3], content(new[3]).index(b"Float32") + 40)
    shows(job, (1, 10), "--check", "full", words=["rank_3/net-1_10.ckpt"])
    shows(job, (1, 5), "--check", "full", "--replicas", "off")


@test
def a_bit_flipped_in_the_trailer(job):
    job.save(1, 5, crc=True)
    new = job.save(1, 10, crc=True)
    for rank in (0, 4):
        flip(new[rank], len(content(new[rank])) - 1)
    shows(job, (1, 5), "--check", "full", words=["its CRC is"])


@test
def cut_at_the_end_of_a_record_under_a_crc(job):
    job.save(1, 5, crc=True)
    new = job.save(1, 10, crc=True)
    whole = job.file_bytes(1, 1, 10)
    for rank in (1, 5):
        change(new[rank], whole[:whole.index(b"step_num") - 4])
    shows(job, (1, 5), "--check", "full", words=["rank_1/net-1_10.ckpt: it has no CRC"])


@test
def without_a_trailer_full_is_structure(job):
    job.save(1, 10)
    shows(job, (1, 10), "--check", "full")


@test
def fallbacks(job):
    for step in range(1, 9):
        new = job.save(1, step)
        if step > 1:
            for rank in (0, 4):
                change(new[rank], content(new[rank])[:50])
    said = refuses(job, words=["tried 6 (2 older not tried)"] +
                   [f"epoch 1 step {step}: " for step in range(3, 9)])
    check("epoch 1 step 2" not in error_line(said), said)
    refuses(job, "--fallbacks", "0", words=["tried 1 (7 older not tried)"])
    shows(job, (1, 1), "--fallbacks", "7")


@test
def permission_denied(job):
    job.save(1, 5)
    new = job.save(1, 10)

    def run():
        os.chmod(new[1], 0)
        shows(job, (1, 10), words=["rank_1/net-1_10.ckpt: Permission denied"])
        said = ["epoch 1 step 10 cannot be read now", "--select name=GLOB"]
        refuses(job, "--replicas", "off", words=[*said, "net-1_10.ckpt: Permission denied"])
        os.chmod(new[5], 0)
        refuses(job, words=said)
        shows(job, (1, 5), "--select", "name=net-1_5.ckpt")
        os.chmod(os.path.dirname(new[1]), 0)
        refuses(job, words=said)
        os.chmod(os.path.dirname(new[1]), 0o755)

    where_modes_count(job.directory, run)


# ---- names with one number ----

@test
def one_number_is_the_step(job):
    for form in ("e{}.ckpt", "LeNet5_{}_step.ckpt", "net_iter_{}.ckpt", "v2-ema-{}.ckpt"):
        if os.path.isdir(job.source):
            shutil.rmtree(job.source)
        os.makedirs(job.source)
        for step in (2, 9, 10):
            saved = job.save(1, step, name=form.format(step))
        for path in saved.values():
            shutil.copy(path, os.path.join(os.path.dirname(path), "best.ckpt"))
        shows(job, (1, 10))
        got = run("ls", job.source)
        check(got.status == GOOD and "newest complete: step 10" in got.out, f"{form}: {got}")
        shows(job, (1, 9), "--select", "name=" + form.format(9))
        os.truncate(saved[1], 20)
        os.truncate(saved[5], 20)
        shows(job, (1, 9), words=["step 10 cannot be used"])


@test
def the_number_of_the_rank_is_no_step(job):
    for rank, path in job.save(1, 5).items():
        os.rename(path, os.path.join(os.path.dirname(path), f"checkpoint_{rank}.ckpt"))
    shows(job, (1, 5))


# ---- --select ----

@test
def select_a_step(job):
    for step in (5, 10, 15):
        job.save(1, step)
    shows(job, (1, 10), "--select", "1_10")
    shows(job, (1, 15), "--select", "newest")
    refuses(job, "--select", "1_11", words=["epoch 1 step 11", "net-1_15.ckpt"])


@test
def select_a_step_without_its_epoch(job):
    for epoch, step in ((1, 10), (1, 20), (2, 20), (2, 30)):
        job.save(epoch, step)
    shows(job, (1, 10), "--select", "step=10")
    shows(job, (2, 30), "--select", "step=30")
    refuses(job, "--select", "step=20", words=[
        "several epochs have a step 20: use --select EPOCH_STEP with "
        "one of 1_20, 2_20"])
    refuses(job, "--select", "step=40", words=["no checkpoint of step 40", "net-1_10.ckpt"])
    job.save(4, 40, name="net-4_40_breakpoint.ckpt")
    refuses(job, "--select", "step=40", words=["breakpoints count with --breakpoint"])
    shows(job, (4, 40), "--select", "step=40", "--breakpoint", "only")


@test
def a_selected_step_is_never_another(job):
    job.save(1, 5)
    new = job.save(1, 10)
    for rank in (0, 4):
        os.unlink(new[rank])
    refuses(job, "--select", "1_10", words=["rank 0", "parameter"])


@test
def select_by_mtime(job):
    for age, step in enumerate((5, 15, 10)):
        for path in job.save(1, step).values():
            os.utime(path, (1000 - age, 1000 - age))
    shows(job, (1, 5), "--select", "mtime")
    for rank in (0, 4):
        os.truncate(job.path(rank, "net-1_5.ckpt"), 60)
    shows(job, (1, 15), "--select", "mtime")


@test
def select_by_mtime_without_steps(job):
    for age, name in enumerate(("x{rank}.ckpt", "x{rank}y.ckpt")):
        for path in job.save(1, age + 1, name=name).values():
            os.utime(path, (1000 - age, 1000 - age))
    shows(job, (1, 1), "--select", "mtime")
    refuses(job, words=["several checkpoints match", "rank_0", "x0.ckpt", "x0y.ckpt",
                        "use --select name=GLOB or --select mtime"])


@test
def select_by_name(job):
    job.save(1, 5, name="a-1_5.ckpt")
    job.save(1, 4, name="a-1_4.ckpt")
    job.save(1, 6, name="b-1_6.ckpt")
    shows(job, (1, 5), "--select", "name=a-*")
    refuses(job, "--select", "name=c*", words=["no checkpoint named c*", "b-1_6.ckpt"])


@test
def select_as_mindspore(job):
    for step in (9, 10):
        job.save(1, step)
    shows(job, (1, 9), "--select", "mindspore")
    shows(job, (1, 9), "--compat", "mindspore")
    shows(job, (1, 10), "--compat", "mindspore", "--select", "newest")


@test
def breakpoints(job):
    job.save(1, 5)
    job.save(1, 8, name="net-1_8_breakpoint.ckpt")
    shows(job, (1, 5))
    shows(job, (1, 8), "--breakpoint", "include")
    shows(job, (1, 8), "--breakpoint", "only")
    for selected in ("1_8", "name=net-1_8*"):
        refuses(job, "--select", selected, words=["breakpoints count with --breakpoint",
                                                  "rank_0 contains net-1_5.ckpt, net-1_8_"])
        shows(job, (1, 8), "--select", selected, "--breakpoint", "include")
        shows(job, (1, 8), "--select", selected, "--breakpoint", "only")
    refuses(job, "--select", "1_5", "--breakpoint", "only", words=["no checkpoint of epoch 1"])
    job.save(2, 1)
    shows(job, (2, 1), "--breakpoint", "include")
    shows(job, (1, 8), "--breakpoint", "only")


@test
def breakpoints_where_there_is_nothing_else(job):
    job.save(1, 8, name="net-1_8_breakpoint.ckpt")
    refuses(job, words=["breakpoints count with --breakpoint", "rank_0 contains net-1_8_"])
    shows(job, (1, 8), "--breakpoint", "include")


@test
def unfinished_and_hidden_files(job):
    job.save(1, 5)
    job.save(1, 6, name="net-1_6.tmp")
    job.save(1, 7, name="net-1_7.ckpt.tmp")
    job.save(1, 8, name=".net-1_8.ckpt")
    shows(job, (1, 5))
    shows(job, (1, 5), "--file", "*")
    shows(job, (1, 5), "--file", "net*")


# ---- trees and names ----

@test
def names_of_files(job):
    job.save(1, 5, name="net-1_5.ckpt")
    job.save(1, 6, name="net_2-1_5.ckpt")
    job.save(1, 7, name="net_10-1_5.ckpt")
    shows(job, (1, 7), words=["of run 10"])


@test
def a_name_without_a_step(job):
    job.save(1, 7, name="checkpoint_{rank}.ckpt")
    shows(job, (1, 7))


@test
def names_with_a_step_win(job):
    """Where every rank has them; one line says so, and `ls` shows both."""
    for step in (4, 5):
        job.save(2, step)
    job.save(9, 9, name="best.ckpt")
    line = "taking epoch 2 step 5 (rank_0/net-2_5.ckpt); best.ckpt has no step in its name and " \
        "is ignored: use --select name=GLOB to select it"
    said = shows(job, (2, 5), words=[line])
    check(lines_of(said, line) == 1, said)
    shows(job, (9, 9), "--select", "name=best*")
    shows(job, (9, 9), "--select", "mtime")
    shows(job, (2, 4), "--select", "2_4")
    with Mounted(job.source, resume=True) as m:
        found = content(os.path.join(m.path, "rank_3", "latest.ckpt"))
        check(found == job.file_bytes(3, 2, 5) and lines_of(
            m.log(), "; best.ckpt has no step in its name", "--select name=GLOB") == 1, m.log())
    steps = run_json("ls", job.source)["steps"]
    check([(s["name"], s["tried"], s["whole"], s["step"]) for s in steps] ==
          [("epoch 2 step 5", True, True, 5), ("epoch 2 step 4", True, True, 4),
           ("best.ckpt", False, True, None)], steps)
    got = run("ls", job.source)
    check("best.ckpt" in got.out and "without a step: use --select name=GLOB" in got.out and
          "newest complete: epoch 2 step 5" in got.out, got)
    # Not of older ones, nor of those beside them, whatever becomes of the steps.
    for rank in (0, 4):
        for step in (4, 5):
            os.truncate(job.path(rank, f"net-2_{step}.ckpt"), 50)
    refuses(job, words=["tried 2; epoch 2 step 5: ", "epoch 2 step 4: "])
    check(run_json("ls", job.source, status=NO)["newest_whole"] is None, "best.ckpt is no newest")


@test
def some_ranks_have_a_name_with_a_step(job):
    job.save(2, 5, ranks=range(7))
    job.save(9, 9, name="best.ckpt")
    refuses(job, words=["rank_0: several checkpoints match", "net-2_5.ckpt, best.ckpt",
                        "--select name=GLOB"])
    status, said = expect_failure(job.source, resume=True)
    demand(error_line(said), "rank_0: several checkpoints match",
           "net-2_5.ckpt, best.ckpt", "--select name=GLOB")
    check(status == INPUT, said)
    shows(job, (9, 9), "--select", "name=best.ckpt")
    shows(job, (2, 5), "--select", "name=net*")


@test
def cannot_tell_names_an_option(job):
    job.save(1, 5, name="a-1_5.ckpt")
    job.save(1, 6, name="b-1_5.ckpt")
    refuses(job, words=["several checkpoints of rank 0 match", "a-1_5.ckpt and", "b-1_5.ckpt",
                        "use --select name=GLOB"])
    _, said = expect_failure(job.source, resume=True)
    demand(error_line(said), "several checkpoints match", "use --select name=GLOB")
    shows(job, (1, 6), "--select", "name=b*")


@test
def checkpoint_directories(job):
    job.save(1, 5, folder="rank_{rank}/checkpoint")
    job.save(1, 6, folder="rank_{rank}/checkpoint_2")
    shows(job, (1, 6))


@test
def directories_named_ckpt(job):
    job.save(1, 5, folder="ckpt_{rank}")
    job.save(1, 6, folder="ckpt_{rank}")
    shows(job, (1, 6))


@test
def directories_by_template(job):
    job.save(1, 5, folder="out/device{rank}/kept")
    job.save(1, 6, folder="out/device{rank}/spoilt")
    shows(job, (1, 5), "--rank-dir", "out/device{rank}/kept")
    shows(job, (1, 6), "--rank-dir", "o*/device{rank}/s*")
    refuses(job, words=["no rank_N directory"])
    refuses(job, "--rank-dir", "in/device{rank}", words=["in/device{rank}"])
    status, said = expect_failure(job.source, src_strategy=job.strategy,
                                  dst_strategy=job.strategy, extra=["--rank-dir", "out"])
    check(status == 2, f"exit status {status}\n{said}")
    demand(said, "--rank-dir \"out\": \"{rank}\", the placeholder")


@test
def files_by_template(job):
    job.save(1, 5, folder=".", name="net_{rank}-1_5.ckpt")
    job.save(1, 6, folder=".", name="net_{rank}-1_6.ckpt")
    job.save(1, 9, folder=".", name="other_{rank}-1_9.ckpt")
    shows(job, (1, 6), "--rank-dir", ".", "--file", "net_{rank}-*.ckpt")
    job.save(1, 7, folder="flat", name="net_{rank}.model")
    shows(job, (1, 7), "--file", "flat/net_{rank}.model")
    job.save(1, 5)
    refuses(job, "--file", "net*.safetensors",
            words=[job.source + ": no rank has a file named net*.safetensors"])
    refuses(job, "--file", "flat/other_{rank}*", words=["it contains no file named flat/other_"])


@test
def a_map_of_files(job):
    job.save(1, 5, folder="somewhere", name="{rank}.bin")
    job.save(2, 5)
    maps = os.path.join(job.source, "maps")
    os.mkdir(maps)
    path = os.path.join(maps, "map.json")
    entries = {str(r): f"../somewhere/{r}.bin" for r in range(8)}
    entries["3"] = os.path.join(job.source, "somewhere", "3.bin")

    def write():
        with open(path, "w", encoding="utf-8") as f:
            json.dump(entries, f)

    write()
    shows(job, (1, 5), "--source-map", path)
    entries["8"] = entries["0"]
    write()
    refuses(job, "--source-map", path, words=["9 ranks have a checkpoint, but", "of 8 ranks"])
    del entries["8"]
    entries["2"] += ".gone"
    write()
    shows(job, (1, 5), "--source-map", path, words=["2.bin.gone"])
    refuses(job, "--replicas", "off", "--source-map", path, words=["2.bin.gone"])
    entries["2"] = "../rank_2/net-2_5.ckpt"
    entries["1"] = "../rank_1/net-1_5.ckpt"
    write()
    refuses(job, "--source-map", path, words=["two steps"])
    entries["x"] = "y"
    write()
    refuses(job, "--source-map", path, words=[path, '"x"'])
    change(path, b"[1]")
    refuses(job, "--source-map", path, words=[path, "not a map"])
    change(path, b"{")
    refuses(job, "--source-map", path, words=[path, "not JSON"])


# ---- while it is mounted ----

def few_descriptors(job):
    """A program that keeps one source file open at a time."""
    return wrapper(job.directory, "", "ulimit -n 100")


def read_all(job, path):
    """The step of every file, 'error' where reading failed."""
    found = {}
    for rank in range(8):
        try:
            data = content(os.path.join(path, f"rank_{rank}",
                                        f"checkpoint_{rank}.ckpt"))
        except OSError:
            found[rank] = "error"
            continue
        found[rank] = next((s for s in (5, 10) if
                            data == job.file_bytes(rank, 1, s)), "mixture")
    return found


@test
def rotated_away_while_open(job):
    old = job.save(1, 5)
    with mounted(job) as m:
        job.save(1, 10)
        for path in old.values():
            os.unlink(path)
        check(set(read_all(job, m.path).values()) == {5}, str(read_all(job, m.path)))


@test
def rotated_away_while_closed(job):
    old = job.save(1, 5)

    def run():
        with mounted(job) as m:
            job.save(1, 10)
            for path in old.values():
                os.unlink(path)
            found = read_all(job, m.path)
            if "error" not in found.values() or \
                    set(found.values()) - {5, "error"}:
                raise MountError(f"{found}\n{m.log()}")
            demand(m.log(), "No such file")

    with_program(few_descriptors(job), run)


@test
def replaced_during_reads(job):
    old = job.save(1, 5)
    stop = threading.Event()

    def replace():
        step = 10
        while not stop.is_set():
            for rank, path in old.items():
                change(path + ".new", job.file_bytes(rank, 1, step))
                os.rename(path + ".new", path)
            step = 15 - step

    def run():
        seen = set()
        with mounted(job) as m:
            writer = threading.Thread(target=replace)
            writer.start()
            try:
                for _ in range(40):
                    seen |= set(read_all(job, m.path).values())
            finally:
                stop.set()
                writer.join()
            if seen - {5, "error"}:
                raise MountError(f"{seen}\n{m.log()}")

    with_program(few_descriptors(job), run)


@test
def damaged_in_the_middle_of_reads(job):
    old = job.save(1, 5)
    with mounted(job) as m:
        os.truncate(old[2], 40)
        check(set(read_all(job, m.path).values()) == {5}, m.log())
        demand(m.log(), "rank_2/net-1_5.ckpt")


@test
def damaged_where_no_replica_is_left(job):
    old = job.save(1, 5)
    with mounted(job) as m:
        os.truncate(old[2], 40)
        os.truncate(old[6], 40)
        found = read_all(job, m.path)
        check(found == {r: "error" if r in (2, 6) else 5 for r in range(8)}, f"{found}\n{m.log()}")


@test
def damaged_in_the_middle_of_reads_without_replicas(job):
    old = job.save(1, 5)
    with mounted(job, "--replicas", "off") as m:
        os.truncate(old[2], 40)
        found = read_all(job, m.path)
        check(found == {r: "error" if r == 2 else 5 for r in range(8)}, f"{found}\n{m.log()}")


@test
def ranks_in_names_of_files(job):
    """They may be those of the directories, of a node, or of one rank; others show that files
    were copied or directories renamed."""
    saved = job.save(1, 5)
    options = "--rank-dir", "rank_{rank}"

    def renamed(number):
        for rank, path in saved.items():
            name = f"net_rank_{number(rank)}-1_5.ckpt"
            saved[rank] = os.path.join(os.path.dirname(path), name)
            os.rename(path, saved[rank])

    for number in (lambda r: r, lambda r: r % 4, lambda r: r % 2, lambda _: 0, lambda _: 3):
        renamed(number)
        check("warning" not in shows(job, (1, 5)), "a warning")
    renamed(lambda r: r)
    lost = [saved[1], saved[6]]
    for path in lost:
        os.rename(path, path + ".away")
    shows(job, (1, 5))
    for path in lost:
        os.rename(path + ".away", path)
    for number in (lambda r: (r + 1) % 8, lambda r: r ^ 4, lambda r: r // 2,
                   lambda r: r if r != 2 else 3):
        renamed(number)
        refuses(job, words=[" in its name, and is in the directory of rank ",
                            "--rank-dir 'rank_{rank}'"])
        shows(job, (1, 5), *options)
    renamed(lambda r: r ^ 4)
    with Mounted(job.source, resume=True) as mount:
        demand(mount.log(), "has rank 4 in its name, and is in the directory of rank 0")


# ---- what files say of their step ----

TWO_SAVES = ["rank_3/", ": the files are not of one save: its step_num is 20, and that of ",
             "rank_0/", " is 10"]


def of_two_saves(job, name):
    """Rank 3 has the file of another step under the name of the others."""
    job.save(1, 10, name=name)
    job.save(1, 20, ranks=[3], name=name)


@test
def names_without_a_step_of_two_saves(job):
    of_two_saves(job, "net.ckpt")
    refuses(job, words=TWO_SAVES)
    refuses(job, "--check", "full", words=TWO_SAVES)
    refuses(job, "--file", "net.ckpt", words=TWO_SAVES)
    with mounted(job, "--check", "structure"):
        pass
    _, said = expect_failure(job.source, resume=True)
    demand(said, *TWO_SAVES)
    step = run_json("ls", job.source, status=NO)["steps"][0]
    check(not step["whole"], "it is called complete")
    demand(step["reason"], *TWO_SAVES)
    got = run("verify", "--src-strategy", job.strategy, job.source)
    check(got.status == NO, repr(got))
    demand(got.out, *TWO_SAVES)
    got = run("plan", "--src-strategy", "none", "--dst-strategy", "none", "--dst-ranks", "8",
              job.source)
    check(got.status == INPUT, repr(got))
    demand(got.err, *TWO_SAVES)
    job.save(1, 20, name="net.ckpt")
    shows(job, (1, 20))


@test
def a_source_map_of_two_saves(job):
    of_two_saves(job, "net.ckpt")
    places = os.path.join(job.directory, "map.json")
    with open(places, "w", encoding="utf-8") as f:
        json.dump({str(r): job.path(r, "net.ckpt") for r in range(job.n_ranks)}, f)
    got = run("plan", "--source-map", places, "--src-strategy", job.strategy,
              "--dst-strategy", job.strategy, job.source)
    check(got.status == INPUT, repr(got))
    demand(got.err, *TWO_SAVES)


@test
def a_name_with_a_step_of_two_saves(job):
    """The name counts, with a warning."""
    job.save(1, 5)
    of_two_saves(job, "net-1_10.ckpt")
    said = [*TWO_SAVES, "; they are shown as one"]
    for _ in range(2):
        with mounted(job) as mount:
            demand(mount.log(), *said)
    with Mounted(job.source, resume=True) as mount:
        demand(mount.log(), *said)
    got = run("verify", "--src-strategy", job.strategy, job.source)
    demand(got.err, *said)
    check([step["whole"] for step in run_json("ls", job.source)["steps"]] == [True, True],
          "ls")


@test
def a_lost_rank_and_a_rank_that_says_nothing(job):
    """What is not there contradicts nothing, and the file's name may say another step."""
    saved = job.save(1, 10, name="net.ckpt")
    os.unlink(saved[2])
    records = job.records(5, 1, 10)
    del records["step_num"], records["epoch_num"]
    write(saved[5], checkpoint_bytes(records))
    with mounted(job):
        pass
    shutil.rmtree(job.source)
    job.save(7, 70, name="net-1_10.ckpt")
    shows(job, (7, 70))


if __name__ == "__main__":
    require_mount()
    sys.exit(test.run(lambda directory: Job(os.path.join(directory, "job"))))
