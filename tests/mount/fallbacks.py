#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How many older steps are tried if the newest is not complete: --fallbacks means the same,
and the same is said, for every kind of source that has steps."""

import os
import re
import shutil
import sys

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import deepspeed_trees  # noqa: E402
import megatron_trees  # noqa: E402
import rank_pickles  # noqa: E402
import version_chains  # noqa: E402
from demands import check, demand  # noqa: E402
from rsh_cli import GOOD, good, run  # noqa: E402
from rsh_mount import Tests, require_mount  # noqa: E402
from whole_sources import sentence  # noqa: E402

DATA = os.path.join(os.environ.get("srcdir", "."), "data")
test = Tests("fallbacks")


def limited(source, newest, older):
    """`newest` is not complete, and `older` is the next one."""
    got = good("plan", source)
    demand(got.err, f"warning: {source}: {newest} cannot be used, using {older} instead: ")
    for command in ("plan", source), ("export", source, source + "-out"):
        got = run(command[0], "--fallbacks", "0", *command[1:])
        check(got.status != GOOD, repr(got))
        check(re.search(re.escape(f"{source}: no checkpoint that can be mounted; tried 1 (") +
                        r"\d+ older not tried\)" + re.escape(f"; {newest}: "),
                        sentence(got.err)), repr(got))
        check(not os.path.exists(source + "-out"), "an export")
    good("plan", "--fallbacks", "1", source)


@test
def deepspeed(directory):
    trees = deepspeed_trees.unpack(os.path.join(directory, "trees"))
    job = os.path.join(trees, "z3-bf16")
    newest = os.path.join(job, "global_step2")
    for name in os.listdir(newest):
        if "rank_1" in name and "optim" in name:
            os.unlink(os.path.join(newest, name))
    limited(job, "global_step2", "global_step1")


@test
def deepspeed_without_a_limit_is_not_the_default(directory):
    """Five older steps are tried."""
    trees = deepspeed_trees.unpack(os.path.join(directory, "trees"))
    job = os.path.join(trees, "z3-bf16")
    os.unlink(os.path.join(job, "latest"))
    newest = os.path.join(job, "global_step2")
    for name in os.listdir(newest):
        if "rank_1" in name and "optim" in name:
            os.unlink(os.path.join(newest, name))
    for step in range(3, 8):
        shutil.copytree(newest, os.path.join(job, f"global_step{step}"))
    got = run("plan", job)
    check(got.status != GOOD, repr(got))
    demand(sentence(got.err), "tried 6 (1 older not tried); global_step7: ")
    got = run("plan", "--fallbacks", "6", job)
    check(got.status == GOOD and got.err.count("using global_step1 instead") == 6, repr(got))


@test
def verl(directory):
    trees = rank_pickles.unpack(os.path.join(directory, "trees"))
    job = os.path.join(trees, "verl")
    os.unlink(os.path.join(job, "latest_checkpointed_iteration.txt"))
    limited(job, "global_step_30", "global_step_20")


@test
def megatron(directory):
    trees = megatron_trees.unpack(os.path.join(directory, "trees"))
    job = os.path.join(trees, "odd-half-written")
    os.unlink(os.path.join(job, megatron_trees.TRACKER))
    limited(job, "iter_0000005", "iter_0000004")


@test
def weight_versions(directory):
    model = {"model.a.weight": ("F32", (2,), bytes(8))}
    job = os.path.join(directory, "run")
    for number in 1, 2, 3:
        version_chains.write_full(os.path.join(job, version_chains.version_name(number)), model)
    os.unlink(os.path.join(job, version_chains.version_name(3), version_chains.INDEX))
    limited(job, version_chains.version_name(3), version_chains.version_name(2))


@test
def checkpoint_2(directory):
    """A source with its own strategy, of which the plan finds what is not complete."""
    job = os.path.join(directory, "steps")
    for step in 8, 16:
        shutil.copytree(os.path.join(DATA, "checkpoint2", "dp4mp2_opt", "iteration_00000008"),
                        os.path.join(job, f"iteration_{step:08}"))
    newest = os.path.join(job, "iteration_00000016")
    for name in os.listdir(newest):
        if name.endswith(".safetensors"):
            os.chmod(newest, 0o755)
            os.unlink(os.path.join(newest, name))
            break
    got = run("plan", "--replicas", "off", "--fallbacks", "0", job)
    check(got.status != GOOD, repr(got))
    demand(sentence(got.err), "no checkpoint that can be mounted; tried 1 (1 older not tried); ")


if __name__ == "__main__":
    require_mount()
    sys.exit(test.run())
