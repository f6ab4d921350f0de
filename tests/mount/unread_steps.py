#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A newest step that cannot be read now ends the command, with the cause and how to take
another step; one that is absent, cut or damaged is replaced by an older one.  Causes,
with kinds of source that have steps and with commands that take one."""

import contextlib
import os
import shutil
import subprocess
import sys

LIB = os.path.abspath(os.path.join(os.environ.get("srcdir", "."), "lib"))
sys.path.insert(0, LIB)

from demands import check, content, write  # noqa: E402
from privileges import where_modes_count  # noqa: E402
from rsh_cli import GOOD, IO, run  # noqa: E402
from rsh_mount import Mounted, expect_failure  # noqa: E402
from s3_trial import run_trials  # noqa: E402

ORIGIN = os.path.join(os.path.dirname(LIB), "data", "checkpoint2", "dp4mp2_opt",
                      "iteration_00000008")
NOW, ADVICE = "cannot be read now", "--select name=GLOB"
SERVER = {"403": IO, "503": IO, "stall": IO, "lie": IO, "404": GOOD}
# The modes of the files and of the directory of the newest step.
MODES = {"files 0000": (0, None), "directory 0700": (None, 0o000),
         "directory 0711": (None, 0o111), "directory 0744": (None, 0o444)}
TABLE = []


def row(tap, kind, cause, got, expected):
    """What happens: an older step is taken (GOOD), or the command ends."""
    TABLE.append(f"{kind:34} {cause:16} " + ("an older step" if got.status == GOOD else
                                             f"ends: {got.err.strip()[-130:]}"))
    right = got.status == expected and (expected == GOOD or
                                        (NOW in got.err and ADVICE in got.err))
    tap.ok(right, f"{kind}, {cause}", f"{got}")


def take(trial, command, source, *more):
    """Run a command that takes a step of the job's rank files."""
    out = os.path.join(trial.directory, "out")
    got = run(command, "--src-strategy", trial.job.strategy, "--dst-strategy",
              trial.job.strategy, "--index-cache", "off", *more, source,
              *([out] if command == "export" else []), env=os.environ)
    shutil.rmtree(out, ignore_errors=True)
    return got


def of_servers(tap, trial):
    trial.job.save(1, 20)
    for command in ("plan", "export"):
        for cause, status in SERVER.items():
            with trial.server.failing(("*1_20*", cause)):
                got = take(trial, command, trial.url, "--source-timeout", "2",
                           "--replicas", "off")
            row(tap, f"rank files, s3://, {command}", cause, got, status)


def of_rank_files(tap, trial):
    """Without replicas each file is needed; with them the other has the same bytes."""
    newest = [os.path.join(trial.job.source, f"rank_{rank}", "net-1_20.ckpt")
              for rank in range(trial.job.n_ranks)]
    for cause, paths, replicas, status in (
            ("all files 0000", newest, "auto", IO), ("two files 0000", newest[1::4], "auto", IO),
            ("one file 0000", newest[1:2], "off", IO)):
        for path in paths:
            os.chmod(path, 0)
        for command in ("plan", "export"):
            row(tap, f"rank files, {command}", cause,
                take(trial, command, trial.job.source, "--replicas", replicas), status)
        for path in paths:
            os.chmod(path, 0o644)
    os.chmod(newest[1], 0)
    got = take(trial, "export", trial.job.source, "--replicas", "auto")
    os.chmod(newest[1], 0o644)
    TABLE.append(f"{'rank files, export':34} {'one file 0000':16} its replica of the same step")
    tap.ok(got.status == GOOD and "step 20" in got.out and
           got.err.count("Permission denied") == 1,
           "one file of two replicas: the same step, and the log says so once", f"{got}")


@contextlib.contextmanager
def hidden(directory, modes):
    of_files, of_directory = modes
    paths = [os.path.join(directory, name) for name in os.listdir(directory)]
    if of_files is not None:
        for path in paths:
            os.chmod(path, of_files)
    if of_directory is not None:
        os.chmod(directory, of_directory)
    yield
    os.chmod(directory, 0o755)
    for path in paths:
        os.chmod(path, 0o644)


def checkpoint2(root, tracker=False):
    for step in (8, 16):
        shutil.copytree(ORIGIN, os.path.join(root, f"iteration_{step:08}"))
    if tracker:
        write(os.path.join(root, "latest_checkpointed_iteration.txt"), b"16")
    subprocess.run(["chmod", "-R", "u+rwX", root], check=True)
    return os.path.join(root, "iteration_00000016")


def of_checkpoint2(tap, trial):
    for tracker in (False, True):
        root = os.path.join(trial.directory, f"c2-{tracker}")
        newest = checkpoint2(root, tracker)
        kind = "Checkpoint 2.0, tracker" if tracker else "Checkpoint 2.0"
        for cause, modes in MODES.items():
            with hidden(newest, modes):
                row(tap, f"{kind}, plan", cause, run("plan", root), IO)
                row(tap, f"{kind}, export", cause,
                    run("export", root, os.path.join(trial.directory, "out2")), IO)
                got = run("plan", "--select", "name=*0008*", root)
            tap.ok(got.status == GOOD, f"{kind}, {cause}: an older step by name", f"{got}")
        if tracker:
            path = os.path.join(root, "latest_checkpointed_iteration.txt")
            os.chmod(path, 0)
            got = run("plan", root)
            os.chmod(path, 0o644)
            tap.ok(got.status == IO and "try again, or select a step (--select name=GLOB)" in got.err,
                   "the tracker itself", f"{got}")
        of_lost(tap, root, newest, kind)


def of_lost(tap, root, newest, kind):
    one = os.path.join(newest, sorted(os.listdir(newest))[-1])
    data = content(one)
    for cause, new in (("absent", None), ("cut", data[:100]),
                       ("damaged", b"x" * len(data))):
        os.unlink(one)
        if new is not None:
            write(one, new)
        row(tap, f"{kind}, plan", cause, run("plan", "--replicas", "off", root), GOOD)
        write(one, data)


def of_directories(tap, trial):
    root = os.path.join(trial.directory, "steps")
    newest = checkpoint2(root)
    for cause in ("directory 0700", "directory 0711"):
        with hidden(newest, MODES[cause]):
            for words, how in (("--steps all", {"extra": ["--steps", "all"]}),
                               ("--resume", {"resume": True})):
                status, said = expect_failure(root, **how)
                TABLE.append(f"{'Checkpoint 2.0, mount ' + words:34} {cause:16} "
                             f"ends: {said.strip()[-130:]}")
                tap.ok(status == IO and "Permission denied" in said, f"{words}, {cause}", said)
    with Mounted(root, extra=["--steps", "all", "--steps-interval", "1"]) as m:
        latest = os.path.join(m.path, "latest")
        before = os.readlink(latest)
        with hidden(newest, MODES["directory 0700"]):
            os.path.exists(os.path.join(m.path, "other"))  # a lookup looks again
            during = os.readlink(latest)
        tap.ok(before == during == "iteration_00000016", "`latest` does not go back",
               f"{before} {during}\n{m.log()}")


def of_modes(tap, trial):
    def all_of_them():
        of_rank_files(tap, trial)
        of_checkpoint2(tap, trial)
        of_directories(tap, trial)

    where_modes_count(trial.directory, all_of_them)


def tell(tap, trial):
    del trial
    check(TABLE, "no row")
    for line in TABLE:
        print(f"# {line}")
    tap.ok(True, f"{len(TABLE)} causes with sources and commands")


if __name__ == "__main__":
    sys.exit(run_trials(of_servers, of_modes, tell))
