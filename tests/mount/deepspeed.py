#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of DeepSpeed as a source of a whole model: genuine ones of ZeRO 0 to 3, of the
universal form and of the Trainer, with ranks lost and files of others, and what each of them
is refused for.

The yardstick is data/deepspeed/expected.json: type, shape and hash of the tensors in the live
engine.  Random ones come from lib/deepspeed_trees.py; --seed S --cases N repeats some.
"""

import argparse
import glob
import json
import os
import shutil
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
TOP = os.environ.get("top_srcdir", os.path.join(HERE, ".."))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(TOP, "python")]

from dcp_reader import Checkpoint  # noqa: E402
from dcp_trees import Called  # noqa: E402
from deepspeed_trees import Archive, expected, random_tree, unpack  # noqa: E402
from demands import check, content, demand, write  # noqa: E402
from rank_pickles import TorchFile, named  # noqa: E402
from rsh_cli import GOOD, USAGE, run, run_json  # noqa: E402
from rsh_mount import Alone, Mounted, Tap, expect_failure, require_mount  # noqa: E402
from safetensors_format import SUFFIX, Tensors  # noqa: E402
from shown_model import extra_state, hashes, model_hashes, same  # noqa: E402
from whole_sources import (compare_libraries, copied, no_good, replaced, sentence,  # noqa: E402
                           shown_by)

KEEP = ("--optimizer", "keep")
CASES = expected()
RANDOM_A_TEST = 25
BESIDE = {"trainer-z2": ["config.json", "generation_config.json"],
          "trainer-z3": ["config.json", "generation_config.json"],
          "trainer-z3-run": ["config.json", "generation_config.json"]}
# Not a checkpoint of DeepSpeed to the program: the model.safetensors beside it.
OTHER = ("trainer-z2-whole",)


def whole_of(name):
    return {**CASES[name]["model"], **CASES[name].get("optimizer", {})}


def copy_of(trees, case, directory):
    return copied(os.path.join(trees, CASES[case]["path"]), directory)


def file_of(root, pattern):
    (found,) = glob.glob(os.path.join(root, "*", pattern))
    return found


def optimizer_of(root, rank):
    return file_of(root, f"*zero_pp_rank_{rank}_mp_rank_00_optim_states.pt")


def model_of(root, rank=None):
    return file_of(root, "mp_rank_00_model_states.pt" if rank is None else
                   f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt")


# ---- genuine ones ----

REFUSED = {
    "z3-lost": ("rank 1 of 2 has no file of the optimizer",),
    "z3-cut": ("zero_pp_rank_1_mp_rank_00_optim_states.pt: damaged", "it cannot be read"),
    "z1-nomodel": ("mp_rank_00_model_states.pt: damaged",),
}
TRAINED = {"BF16": "bfloat16", "F16": "float16"}


def run_case(tap, name, case, trees):
    source = os.path.join(trees, case["path"])
    if case.get("refuse"):
        with tap.test(f"{name}: refused; {case['note']}"):
            no_good(source, *REFUSED[name])
            check(run("ls", source).status != GOOD and
                  run("verify", source).status not in (GOOD, USAGE), "ls or verify takes it")
        return
    with tap.test(f"{name}: mounted"):
        found, beside, _ = shown_by(source)
        same(found, case["model"], name)
        check(name in OTHER or beside == BESIDE.get(name, []), beside)
    if name in OTHER:
        return
    with tap.test(f"{name}: mounted, with the optimizer"):
        if "optimizer" in case:
            same(shown_by(source, *KEEP)[0], whole_of(name), name)
    with tap.test(f"{name}: as a distributed checkpoint"), \
            Alone(source, extra=["--format", "dcp"]) as mount:
        found = hashes(Checkpoint(mount.path).values())
        same({n: e for n, e in found.items() if n in whole_of(name)}, whole_of(name), name)
    with tap.test(f"{name}: exported"), tempfile.TemporaryDirectory() as own:
        out = os.path.join(own, "out")
        got = run("export", source, out)
        check(got.status == GOOD, repr(got))
        same(model_hashes(out), case["model"], name)
        got = run("verify", source, os.path.join(out, "reshardfs-manifest.jsonl"))
        check(got.status == GOOD, repr(got))
        shutil.rmtree(out)
        got = run("export", "--dst-strategy", "none", "--format", "safetensors", source, out)
        check(got.status == GOOD, repr(got))
        found = hashes(Tensors(content(os.path.join(out, "rank_0", "checkpoint_0" + SUFFIX))).values())
        same({n: e for n, e in found.items() if n in whole_of(name)}, whole_of(name), name)
    with tap.test(f"{name}: verified and planned"):
        for how in "structure", "full":
            check(run_json("verify", "--check", how, source)["good"], how)
        text = json.dumps(run_json("plan", source))
        check("_states.pt" in text or "fp32.pt" in text, text)
    if "module" in case:
        run_module(tap, name, case, source)


def run_module(tap, name, case, source):
    with tap.test(f"{name}: the file of the model alone"):
        same(shown_by(model_of(source))[0], case["module"], name)
    dtype = TRAINED.get(case["module"]["embed.weight"][0])
    with tap.test(f"{name}: cast, the masters are the module"):
        if dtype:
            found = shown_by(source, "--cast", dtype)[0]
            # A buffer is cast too.
            same({n: e for n, e in found.items() if n != "count"},
                 {n: e for n, e in case["module"].items() if n != "count"}, name)


def run_genuine(tap, trees):
    for name, case in CASES.items():
        run_case(tap, name, case, trees)


def run_left_out(tap, trees):
    with tap.test("what is asked for and cannot be shown is a warning, also of a plan"):
        root = os.path.join(trees, "z0-bf16")
        said = "numbers in place of names, and are not shown"
        check(said not in run("plan", root).err, "weights alone")
        got = run("plan", "--optimizer", "keep", root)
        demand(got.err, "warning", said)


def run_listed(tap, trees):
    for name, words in (
            ("z1-bf16", ("DeepSpeed 0.19.8, ZeRO 1 of 2 ranks, step 2; 3 frozen; 1 tied; "
                         "optimizer: exp_avg, exp_avg_sq, step",)),
            ("z3-fp16", ("ZeRO 3 of 2 ranks",)),
            ("z0-bf16", ("ZeRO 0 of 2 ranks", "numbers in place of names")),
            ("z3-bf16-w1", ("global_step2", "ZeRO 3 of 1 rank, step 2")),
            ("universal-z1", ("universal form of 2 ranks",)),
            ("moe-z2", ("the model has experts: masters and the optimizer are not shown",
                        "only DeepSpeed itself resumes with the masters")),
            ("trainer-z2-whole", ("LlamaForCausalLM: 12 tensors",
                                  "global_step2 is a checkpoint of DeepSpeed: reshardfs mount ",
                                  "/global_step2 mnt")),
            ("z2-lost", ("files of the optimizer are missing",)),
            ("trainer-z3-run", ("checkpoint-2", "checkpoint-1", "ZeRO 3")),
            ("z3-torn", ("global_step2", "rank 0 of 2 has no file of the optimizer"))):
        with tap.test(f"ls {name}"):
            got = run("ls", os.path.join(trees, CASES[name]["path"]))
            check(got.status == GOOD, repr(got))
            demand(got.out + got.err, *words, "reshardfs mount")
    with tap.test("ls: type and shape of each tensor"):
        said = run_json("ls", os.path.join(trees, "z2-fp16"))
        check({t["name"]: t["shape"] for t in said["tensors"]} ==
              {n: e[1] for n, e in whole_of("z2-fp16").items()} and said["whole"], said)


def run_values(tap, trees):
    with tap.test("values of the step and of the caller"):
        with Alone(os.path.join(trees, "z2-fp16"), extra=KEEP) as mount:
            found = extra_state(mount.path)
        flat = json.dumps(found)
        check(found.get("epoch") == 3 and "von uns" in flat and "global_steps" in flat, flat)
        check("0.1" in flat and "weight_decay" in flat, flat)
        for word in "ds_config", "loss_scaler", "param_slice", "paddings", "param_shapes":
            check(word not in flat, flat)
    for name in "z3-fp16", "z1-elastic", "universal-z1":
        with tap.test(f"{name}: groups of the optimizer"):
            with Alone(os.path.join(trees, name), extra=KEEP) as mount:
                flat = json.dumps(extra_state(mount.path))
            check(name == "z1-elastic" or "betas" in flat, flat)
    with tap.test("paths of states in a distributed checkpoint"):
        with Alone(os.path.join(trees, "z3-fp16"), extra=["--format", "dcp"]) as mount:
            check("optimizer.state.embed.weight.exp_avg" in Checkpoint(mount.path).values(), "")


# ---- lost ranks, files of others ----

def run_lost(tap, trees, directory):
    for name, rank, remove, words in (
            ("z3-fp16", 0, "optim", "rank 0 of 2 has no file of the optimizer"),
            ("z3-fp16", 1, "model", "rank 1 of 2 has no file of the model"),
            ("z3-fp16", 0, "model", "rank 0 has no file of the model")):
        root = copy_of(trees, name, directory)
        os.unlink(optimizer_of(root, rank) if remove == "optim" else model_of(root, rank))
        with tap.test(f"{name} without the {remove} of rank {rank}"):
            no_good(root, words)
            check(run("ls", root).status != GOOD, "ls")
    for rank in 0, 1:
        root = copy_of(trees, "z2-fp32", directory)
        os.unlink(optimizer_of(root, rank))
        with tap.test(f"ZeRO 2 without the optimizer of rank {rank}: the module"):
            found, _, said = shown_by(root, *KEEP)
            same(found, CASES["z2-fp32"]["module"], rank)
            demand(said, "warning", "files of the optimizer are missing: the weights are those of "
                   "the module")
            check("4294967295" not in said, said)
    with tap.test("no warning has the name of a record"):
        for name in "z3-bf16", "z1-bf16", "z2-fp16":
            got = run("export", copy_of(trees, name, directory), os.path.join(directory, name))
            check(got.status == GOOD and "one element" not in got.err, got)
    for name in "z1-bf16", "z2-fp32":
        root = copy_of(trees, name, directory)
        os.unlink(model_of(root))
        with tap.test(f"{name} without the file of the model"):
            no_good(root, "")
    for what, spoil in (("cut", lambda d: d[:len(d) // 2]), ("empty", lambda d: b""),
                        ("zeros", lambda d: bytes(len(d)))):
        for name, find in (("z1-bf16", lambda r: optimizer_of(r, 1)),
                           ("z1-bf16", lambda r: optimizer_of(r, 0)),
                           ("z3-fp32", lambda r: model_of(r, 1)),
                           ("z2-fp16", model_of)):
            root = copy_of(trees, name, directory)
            path = find(root)
            write(path, spoil(content(path)))
            with tap.test(f"{name}: {os.path.basename(path)} is {what}"):
                no_good(root, os.path.basename(path))
                got = run("verify", root)
                check(got.status != GOOD, repr(got))
    root = copy_of(trees, "universal-z1", directory)
    os.unlink(os.path.join(root, "global_step2_universal", "zero", "embed.weight", "fp32.pt"))
    with tap.test("universal form without the masters of a parameter"):
        no_good(root, "zero/embed.weight/fp32.pt is missing")
    root = copy_of(trees, "moe-z2", directory)
    path = file_of(root, "layer_0_expert_2_*")
    shutil.copyfile(path, path.replace("layer_0_", "layer_00_"))
    with tap.test("an expert in two files"):
        no_good(root, "expert 2 of layer 0 is in two files")
        os.unlink(path.replace("layer_0_", "layer_00_"))
        os.unlink(path)
        no_good(root, "expert 2 of layer 0 is missing")
        file = TorchFile(model_of(root))
        del file.value["num_experts"]
        file.write(model_of(root))
        no_good(root, "nothing says how many experts there are")


def run_mixed(tap, trees, directory):
    root = copy_of(trees, "z1-bf16", directory)
    path = optimizer_of(root, 1)
    with tap.test("two files of one rank"):
        shutil.copyfile(path, path.replace("bf16_", ""))
        no_good(root, "another file is of rank 1, too")
        os.unlink(path.replace("bf16_", ""))
    with tap.test("files of a larger world are left there"):
        shutil.copyfile(path, path.replace("rank_1", "rank_3"))
        no_good(root, "2 ranks wrote the checkpoint, and this is a file of rank 3")
    root = copy_of(trees, "z1-bf16", directory)
    with tap.test("the file of another rank"):
        kept = content(optimizer_of(root, 0))
        shutil.copyfile(optimizer_of(root, 1), optimizer_of(root, 0))
        no_good(root, "_optim_states.pt: the file is of rank 1, not 0")
        write(optimizer_of(root, 1), kept)
        no_good(root, "_optim_states.pt: the file is of rank")
    root = copy_of(trees, "z1-bf16", directory)
    with tap.test("a file of a job of one rank"):
        shutil.copyfile(optimizer_of(os.path.join(trees, "z1-bf16-w1"), 0), optimizer_of(root, 0))
        no_good(root, "it is of 1 ranks, and the model of 2")
    root = copy_of(trees, "z3-fp16", directory)
    with tap.test("a file of another step, of ZeRO 3"):
        file = TorchFile(model_of(root, 1))
        file.value["global_steps"] = 1
        file.write(model_of(root, 1))
        first = os.path.basename(model_of(root, 0))
        no_good(root, os.path.basename(model_of(root, 1)),
                f"it is of global step 1, and {first} is of global step 2")
    root = copy_of(trees, "z3-fp16", directory)
    with tap.test("files of two stages"):
        step = os.path.dirname(model_of(root, 0))
        shutil.copy(model_of(os.path.join(trees, "z1-bf16")), step)
        no_good(root, "files of models of ZeRO 3 and of another stage are side by side")
        os.unlink(model_of(root, 0))
        os.unlink(model_of(root, 1))
        no_good(root, "its stage of ZeRO is not that of the model")
    root = copy_of(trees, "z1-bf16", directory)
    with tap.test("a tensor parallel rank"):
        shutil.copyfile(model_of(root), model_of(root).replace("mp_rank_00", "mp_rank_01"))
        no_good(root, "it is of a tensor parallel model: convert it with ds_to_universal.py")
    with tap.test("a part of a pipeline"):
        write(os.path.join(os.path.dirname(model_of(root)), "layer_01-model_00-model_states.pt"),
              b"x")
        no_good(root, "convert it with ds_to_universal.py")
    root = copy_of(trees, "z3-fp16", directory)
    with tap.test("offloaded tensors"):
        os.mkdir(os.path.join(os.path.dirname(model_of(root, 0)), "offloaded_tensors"))
        no_good(root, "offloaded_tensors: tensors are in files of NVMe offload")


# ---- files of two steps ----

STATED = "it is of step {} of the optimizer, and {} is of step {}"


def state_of(value):
    """The steps that each group of an optimizer's file states, as dictionaries."""
    of = value["optimizer_state_dict"]
    states = of.get("base_optimizer_state", of.get("optimizer_state_dict"))
    return states if isinstance(states, list) else list(states["state"].values())


def state_step(root, rank, step):
    """The file of a rank has a number in place of the tensor of its steps; None: nothing."""
    file = TorchFile(optimizer_of(root, rank))
    for state in state_of(file.value):
        del state["step"]
        if step is not None:
            state["step"] = step
    file.write(optimizer_of(root, rank))


def step_of(root, number):
    return os.path.join(root, f"global_step{number}")


def mixed(trees, directory, case, rank):
    """A run of two steps, the newer of which has a file of the older one."""
    root = copied(os.path.join(trees, case), directory)
    for checkpoint in glob.glob(os.path.join(root, "checkpoint-*")):
        shutil.move(glob.glob(os.path.join(checkpoint, "global_step*"))[0], root)
    for path in glob.glob(os.path.join(step_of(root, 1), f"*_rank_{rank}_*optim_states.pt")):
        shutil.copy(path, step_of(root, 2))
    return root


def run_two_steps(tap, trees, directory):
    for case in "z3-bf16", "trainer-z2":
        for rank in 0, 1:
            root = mixed(trees, directory, case, rank)
            words = STATED.format(
                2 - rank, "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", 1 + rank)
            with tap.test(f"{case}: rank {rank} has a file of another step"):
                no_good(step_of(root, 2), "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt: " +
                        words)
                got = run("ls", step_of(root, 2))
                check(got.status != GOOD, repr(got))
            with tap.test(f"{case}, rank {rank}: an older step is taken, and shown"):
                first = shown_by(step_of(root, 1))[0]
                found, _, said = shown_by(root)
                same(found, first, "fallback")
                demand(said, "global_step2 cannot be used, using global_step1 instead",
                       "taking global_step1")
                demand(run("ls", root).out, "is of step 2" if rank else "is of step 1")
                with Alone(root, extra=["--steps", "all"]) as mount:
                    check("global_step2" not in os.listdir(mount.path) and
                          "global_step1" in os.listdir(mount.path), os.listdir(mount.path))
            with tap.test(f"{case}, rank {rank}: --resume takes an older step"), \
                    Mounted(root, resume=True) as mount:
                check(content(os.path.join(mount.path, "latest")) == b"global_step1", "latest")
                demand(mount.log(), "of the optimizer, and ")
    first = "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt"
    for case in "z1-bf16", "z1-elastic", "z1-bf16opt":
        with tap.test(f"{case}: steps that are numbers"):
            root = copy_of(trees, case, directory)
            state_step(root, 1, 2)
            same(shown_by(root)[0], CASES[case]["model"], case)
            state_step(root, 0, 2)
            same(shown_by(root)[0], CASES[case]["model"], case)
            state_step(root, 1, 1)
            no_good(root, "_rank_1_mp_rank_00_optim_states.pt: " + STATED.format(1, first, 2))
            state_step(root, 1, 3)
            no_good(root, "_rank_1_mp_rank_00_optim_states.pt: " + STATED.format(3, first, 2))
            state_step(root, 1, None)
            same(shown_by(root)[0], CASES[case]["model"], case)
    with tap.test("steps of groups of parameters"):
        root = copy_of(trees, "z2-fp32", directory)
        for rank, step in (0, 2), (1, 1):
            state_step(root, rank, None)
            file = TorchFile(optimizer_of(root, rank))
            for group in file.value["optimizer_state_dict"]["base_optimizer_state"][
                    "param_groups"]:
                group["step"] = step
            file.write(optimizer_of(root, rank))
        no_good(root, STATED.format(1, "zero_pp_rank_0_mp_rank_00_optim_states.pt", 2))
    with tap.test("a model of an older step than its optimizer"):
        root = copy_of(trees, "z1-bf16", directory)
        for step, said in ((1, None), (40, None), (3, None), (
                42, "it is of step 42 of the optimizer, and mp_rank_00_model_states.pt is of "
                "global step 40")):
            file = TorchFile(model_of(root))
            file.value["global_steps"] = 2 if step == 1 else step if step == 3 else 40
            file.write(model_of(root))
            for rank in 0, 1:
                file = TorchFile(optimizer_of(root, rank))
                for state in state_of(file.value):
                    state["step"] = step
                file.write(optimizer_of(root, rank))
            if said:
                no_good(root, said)
            else:
                same(shown_by(root)[0], CASES["z1-bf16"]["model"], step)


def swapped(directory, *paths):
    a, b = paths
    os.rename(a, a + ".x")
    os.rename(b, a)
    os.rename(a + ".x", b)


def run_swapped(tap, trees, directory):
    for case, find in (("z3-fp16", optimizer_of), ("z3-fp16", model_of),
                       ("z2-fp16", optimizer_of), ("z1-elastic", optimizer_of)):
        with tap.test(f"{case}: {find.__name__} has files under the names of each other"):
            root = copy_of(trees, case, directory)
            swapped(directory, find(root, 0), find(root, 1))
            no_good(root, os.path.basename(find(root, 0)), "the file is of rank 1, not 0")
    with tap.test("a file that was written without its name"):
        root = copy_of(trees, "z3-fp16", directory)
        for rank in 0, 1:
            file = TorchFile(optimizer_of(root, rank))
            file.root = "archive"
            file.write(optimizer_of(root, rank))
        same(shown_by(root)[0], CASES["z3-fp16"]["model"], "archive")


# ---- steps ----

def run_checkpoint(steps, first, directory):
    """Trackers of a checkpoint-N are judged as those beside steps."""
    root = tempfile.mkdtemp(dir=directory)
    inside = shutil.copytree(steps, os.path.join(root, "checkpoint-10"))
    newest = CASES["z3-bf16"]["model"]
    latest, universal = (os.path.join(inside, n) for n in ("latest", "latest_universal"))
    for text, wanted, words in (
            (b"global_step1", first, "it names global_step1; global_step2 is newer and is not "
                                     "taken, since it may not be complete"),
            (b"global_step9", newest, "it names global_step9, which is not there; global_step2 "
                                      "is taken"),
            (b"v1.0", newest, "it names v1.0, which is not there; global_step2 is taken"),
            (b"../x", newest, "it does not name a step")):
        write(latest, text)
        found, _, said = shown_by(root)
        same(found, wanted, text)
        demand(said, f"{root}/checkpoint-10/latest: {words}")
    for text in b"global_step9", None:
        if text is None:
            os.unlink(latest)
        else:
            write(latest, text)
        write(universal, b"global_step1")
        found, _, said = shown_by(root)
        same(found, first, "latest_universal")
        demand(said, f"{root}/checkpoint-10/latest_universal: it names global_step1; ")
    os.mkdir(os.path.join(inside, "global_step3"))
    write(latest, b"global_step3")
    os.unlink(universal)
    found, _, said = shown_by(root)
    same(found, newest, "a step without files")
    demand(said, "it names global_step3, which is not there; global_step2 is taken")


def run_steps(tap, trees, directory):
    run_dir = os.path.join(trees, "z3-bf16")
    with tap.test("a step alone, and the one that latest names"):
        first = shown_by(os.path.join(run_dir, "global_step1"))[0]
        check(first != CASES["z3-bf16"]["model"], "both steps are one")
        demand(shown_by(run_dir)[2], "taking global_step2")
        job = copy_of(trees, "z3-bf16", directory)
        write(os.path.join(job, "latest"), b"global_step1")
        found, _, said = shown_by(job)
        same(found, first, "latest")
        demand(said, "latest: it names global_step1; global_step2 is newer and is not taken, since "
                     "it may not be complete")
        for text in b"", b"global_step9", b"../x", b"x" * 300, b".":
            write(os.path.join(job, "latest"), text)
            same(shown_by(job)[0], CASES["z3-bf16"]["model"], text)
        write(os.path.join(job, "latest"), b"../x")
        demand(shown_by(job)[2], "it does not name a step")
        write(os.path.join(job, "latest"), b"global_step9")
        demand(shown_by(job)[2], "it names global_step9, which is not there")
        os.unlink(os.path.join(job, "latest"))
        same(shown_by(job)[0], CASES["z3-bf16"]["model"], "no tracker")
    with tap.test("a tag of any name"):
        os.rename(os.path.join(job, "global_step1"), os.path.join(job, "best"))
        write(os.path.join(job, "latest"), b"best\n")
        same(shown_by(job)[0], first, "best")
        write(os.path.join(job, "latest"), b"global_step2")
    with tap.test("trackers in checkpoint-N"):
        run_checkpoint(os.path.join(trees, "z3-bf16"), first, directory)
    with tap.test("--select"):
        same(shown_by(run_dir, "--select", "step=1")[0], first, "step 1")
    with tap.test("--steps all"), Alone(run_dir, extra=["--steps", "all"]) as mount:
        names = [n for n in os.listdir(mount.path) if not n.startswith(".")]
        check(sorted(names) == ["global_step1", "global_step2", "latest"], names)
        same(model_hashes(os.path.join(mount.path, "global_step1")), first, "step 1")
        same(model_hashes(os.path.join(mount.path, "latest")), CASES["z3-bf16"]["model"], "2")
    with tap.test("--steps all of the Trainer"), \
            Alone(os.path.join(trees, "trainer-z3"), extra=["--steps", "all"]) as mount:
        check("config.json" in os.listdir(os.path.join(mount.path, "checkpoint-2")), "config")
        same(model_hashes(os.path.join(mount.path, "checkpoint-2")),
             CASES["trainer-z3"]["model"], "checkpoint-2")
    job = copy_of(trees, "z3-torn", directory)
    with tap.test("a half-written step becomes whole while it is shown"), \
            Alone(job, extra=["--steps", "all", "--steps-interval", "1"]) as mount:
        check("global_step2" not in os.listdir(mount.path), "it is shown")
        for path in glob.glob(os.path.join(run_dir, "global_step2", "*")):
            shutil.copy(path, os.path.join(job, "global_step2"))
        got = run("steps", "--wait", "2", mount.path)
        check(got.status == GOOD, repr(got))
        same(model_hashes(os.path.join(mount.path, "global_step2")),
             CASES["z3-bf16"]["model"], "step 2")
    with tap.test("--resume shows what DeepSpeed loads"), \
            Mounted(run_dir, resume=True) as mount:
        check(content(os.path.join(mount.path, "latest")) == b"global_step2", "latest")
        for path in glob.glob(os.path.join(run_dir, "global_step2", "*")):
            shown = os.path.join(mount.path, "global_step2", os.path.basename(path))
            check(content(shown) == content(path), path)
    job = copy_of(trees, "z3-torn", directory)
    with tap.test("--resume takes the newest step that is whole"), \
            Mounted(job, resume=True) as mount:
        check(content(os.path.join(mount.path, "latest")) == b"global_step1", "latest")
        demand(mount.log(), "rank 0 of 2 has no such file")
    job = copy_of(trees, "z2-lost", directory)
    with tap.test("a step without files of the optimizer, whose tracker is newer"):
        old = os.path.join(job, "global_step2")
        shutil.copytree(old, os.path.join(job, "global_step1"))
        write(os.path.join(job, "latest"), b"global_step2")
        same(shown_by(job)[0], CASES["z2-lost"]["model"], "z2-lost")
        os.utime(model_of(job.rstrip("/") + "/.", None) if False else
                 os.path.join(old, "mp_rank_00_model_states.pt"), (4e9, 4e9))
        os.utime(os.path.join(job, "global_step1", "mp_rank_00_model_states.pt"), (4e9, 4e9))
        no_good(job, "no checkpoint that can be mounted; tried 2; ")


# ---- what is refused ----

def edited(trees, case, directory, find, change):
    """A copy with a changed value in a file."""
    root = copy_of(trees, case, directory)
    path = find(root)
    file = TorchFile(path)
    changed = change(file.value)
    if changed is not None:
        file.value = changed
    file.write(path)
    return root


def sized(value, group, name, size):
    shape = value["param_shapes"][group][name]
    shape.call = shape.call[0], (tuple(size),)


def run_refusals(tap, trees, directory):
    def case(what, name, find, change, *words):
        with tap.test(f"refused: {what}"):
            no_good(edited(trees, name, directory, find, change), *words)

    def rank(n):
        return lambda root: optimizer_of(root, n)

    def part(n):
        return lambda root: model_of(root, n)

    def zero(value):
        return value["optimizer_state_dict"]

    for key, size in (("mp_world_size", 2),):
        case(f"{key} of 2", "z1-bf16", model_of, lambda v, k=key: v.update({k: 2}),
             "it is tensor or pipeline parallel: convert it with ds_to_universal.py")
    case("pp_degree of 2", "z1-bf16", model_of, lambda v: v[
        "checkpoint_parallel_dimensions"].update(pp_degree=2), "tensor or pipeline parallel")
    case("AutoEP", "z3-fp16", part(0), lambda v: v.update(ds_autoep_layers=[1]),
         "its experts were divided by AutoEP")
    case("no module", "z1-bf16", model_of, lambda v: v.update(module=None),
         "it has no dictionary of a module")
    case("param_shapes that are no list", "z1-bf16", model_of, lambda v: v.update(
        param_shapes={}), "param_shapes is not a list")
    case("a group that is no dictionary", "z1-bf16", model_of, lambda v: v.update(
        param_shapes=[1]), "shapes of parameters are not a dictionary")
    case("no param_shapes", "z1-bf16", model_of, lambda v: v.update(param_shapes=None),
         "it has no param_shapes")
    case("a name that is no text", "z1-bf16", model_of, lambda v: v["param_shapes"][0].update(
        {3: v["param_shapes"][0]["scale"]}), "damaged: the name of a parameter")
    case("a name with a control character", "z1-bf16", model_of, lambda v: v["param_shapes"][
        0].update({"a\2b": v["param_shapes"][0]["scale"]}), "damaged: the name of a parameter")
    case("a shape that is none", "z1-bf16", model_of, lambda v: v["param_shapes"][0].update(
        scale="x"), "damaged: the shape of a parameter")
    case("a parameter in two groups", "z2-fp16", model_of, lambda v: v["param_shapes"][1].update(
        {"embed.weight": v["param_shapes"][0]["embed.weight"]}),
         "damaged: it has parameter embed.weight twice")
    case("shared_params that are no dictionary", "z1-bf16", model_of, lambda v: v.update(
        shared_params=[1]), "shared_params is not a dictionary")
    case("the name of a shared parameter", "z1-bf16", model_of, lambda v: v.update(
        shared_params={"a": 1}), "damaged: the name of a shared parameter")
    case("the name of a buffer", "z1-bf16", model_of, lambda v: v.update(buffer_names=[1]),
         "damaged: the name of a buffer")
    case("the number of experts", "z1-bf16", model_of, lambda v: v.update(num_experts=["x"]),
         "damaged: the number of experts")
    for size in (1 << 62, 6), (1 << 62, 1 << 62), (-1, 6), (1 << 63, 1):
        case(f"a shape of {size}", "z2-fp16", model_of, lambda v, s=size: sized(
            v, 0, "embed.weight", s), "damaged: a parameter has more elements than can be")
    case("a shape that the module does not have", "z2-fp16", model_of, lambda v: sized(
        v, 0, "embed.weight", (6, 11)), "tensor embed.weight",
        "has another shape of it than its param_shapes says")
    case("more elements than the group", "z2-fp16", model_of, lambda v: sized(
        v, 0, "embed.weight", (110, 6)), "does not have the length of its flat tensors")
    case("ZeRO 3: other elements than the flat tensor", "z3-fp16", part(0), lambda v: sized(
        v, 0, "embed.weight", (12, 6)), "does not have the length of its flat tensor")
    case("a group more than the optimizer has", "z2-fp16", model_of, lambda v: v[
        "param_shapes"].append({}), "the optimizer has 2 groups of parameters, and the model 3")
    case("two tensors of one name", "z3-fp16", part(0), lambda v: v["shared_params"].update(
        {"scale": "idle"}) , "damaged: two tensors have the name scale")
    case("tied to nothing", "z3-fp16", part(0), lambda v: v.update(
        shared_params={"more.weight": "nobody"}), "tensor more.weight", "it is tied to nobody")

    case("another stage", "z2-fp16", rank(0), lambda v: zero(v).update(zero_stage=3),
         "zero_stage is not that of its groups")
    case("a stage that is no number", "z2-fp16", rank(0), lambda v: zero(v).update(
        zero_stage="x"), "zero_stage is not that of its groups")
    case("flat groups that are no list", "z2-fp16", rank(0), lambda v: zero(v).update(
        single_partition_of_fp32_groups={}), "flat groups are not a list")
    case("no flat groups", "z2-fp16", rank(0), lambda v: zero(v).pop(
        "single_partition_of_fp32_groups") and None, "it has no flat groups of parameters")
    case("a group without a flat tensor", "z2-fp16", rank(0), lambda v: zero(v)[
        "single_partition_of_fp32_groups"].__setitem__(0, "x"),
        "damaged: a group has no flat tensor")
    for world in 0, -2, "x", [], [1 << 40]:
        case(f"a partition count of {world}", "z2-fp16", rank(0), lambda v, w=world: zero(
            v).update(partition_count=w), "partition_count does not say the number of ranks")
    for world in 3, 65536, [2, 5]:
        case(f"{world} partitions", "z2-fp16", rank(0), lambda v, w=world: zero(v).update(
            partition_count=w), "ranks, and the model of 2")
    case("paddings of another number of groups", "z2-fp16", rank(0), lambda v: zero(v).update(
        param_alignment_paddings=[[0]]), "param_alignment_paddings has another number of groups")
    case("paddings of another number of parameters", "z2-fp16", rank(0), lambda v: zero(
        v).update(param_alignment_paddings=[[0], [0]]),
        "does not have as many paddings as parameters")
    for padding in -1, 1 << 62, "x":
        case(f"a padding of {padding}", "z2-fp16", rank(0), lambda v, p=padding: zero(
            v).update(param_alignment_paddings=[[p] * 5, [0] * 8]), "damaged")
    case("another number of ranks in one file", "z3-fp32", rank(1), lambda v: zero(v).update(
        partition_count=3), "it is of another save than other files: its stage, its groups")

    def masters(value, n):
        tensor = zero(value)["single_partition_of_fp32_groups"][0]
        replaced(tensor, 2, (n,))

    case("masters that are too short", "z2-fp16", rank(1), lambda v: masters(v, 139),
         "masters of group 0 are not on all ranks of one type and length")
    with tap.test("masters with all of their padding"):
        root = edited(trees, "z2-fp16", directory, rank(1), lambda v: masters(v, 142))
        same(shown_by(root)[0], CASES["z2-fp16"]["model"], "z2-fp16")

    def state(value, group=0):
        return zero(value)["base_optimizer_state"]["state"][group]

    with tap.test("a state that one rank does not have"):
        root = edited(trees, "z2-fp16", directory, rank(1),
                      lambda v: state(v).pop("exp_avg") and None)
        same(shown_by(root)[0], CASES["z2-fp16"]["model"], "z2-fp16")
        no_good(root, "optimizer.state.embed.weight.exp_avg",
                "exp_avg of group 0 is not on all ranks", extra=KEEP)
    with tap.test("a state of another length is left out"):
        root = edited(trees, "z2-fp16", directory, rank(1),
                      lambda v: replaced(state(v)["exp_avg"], 2, (5,)))
        found, _, said = shown_by(root, *KEEP)
        same(found, {n: e for n, e in whole_of("z2-fp16").items()
                     if not (n.endswith(".exp_avg") and n.split(".state.")[1][:-8] in
                             [k for k in CASES["z2-fp16"]["model"]] and
                             len(CASES["z2-fp16"]["model"][n.split(".state.")[1][:-8]][1]) == 2)},
             "z2-fp16")
        demand(said, "exp_avg of the optimizer does not have the length of its group")
    with tap.test("no step was made yet"):
        root = copy_of(trees, "z2-fp16", directory)
        for n in 0, 1:
            file = TorchFile(optimizer_of(root, n))
            zero(file.value)["base_optimizer_state"]["state"] = {}
            file.write(optimizer_of(root, n))
        same(shown_by(root, *KEEP)[0], CASES["z2-fp16"]["model"], "z2-fp16")
    case("two groups of one number", "z2-fp16", rank(1), lambda v: zero(v)[
        "base_optimizer_state"]["state"].update({"00": {"exp_avg": state(v)["exp_avg"]}}),
        "has two tensors of one name")
    with tap.test("refused: a share of a frozen parameter that is too short"):
        root = edited(trees, "z3-bf16", directory, lambda root: os.path.join(
            root, "global_step2", "zero_pp_rank_1_mp_rank_00_model_states.pt"),
            lambda v: replaced(v["frozen_param_fragments"]["fixed.weight"], 2, (14,)))
        no_good(os.path.join(root, "global_step2"), "tensor fixed.weight",
                "does not have its share of it")
    case("a tensor of another kind", "z1-bf16", model_of, lambda v: v["module"].update(
        {"fixed.weight": Called(named("torch._utils", "_rebuild_sparse_tensor"),
                                v["module"]["fixed.weight"])}),
        "tensor module.fixed.weight is of a kind that is not supported")
    with tap.test("a tensor of the module that no list has"):
        def renamed(value):
            value["param_shapes"][0]["other"] = value["param_shapes"][0].pop(
                next(reversed(value["param_shapes"][0])))
        root = edited(trees, "z2-fp16", directory, model_of, renamed)
        found, _, said = shown_by(root)
        check(found["layers.1.up.weight"] == CASES["z2-fp16"]["module"]["layers.1.up.weight"] and
              found["other"] == CASES["z2-fp16"]["model"]["layers.1.up.weight"], found)
        demand(said, "tensor layers.1.up.weight is in no list of parameters, and is shown as the "
               "module has it")
    run_universal(tap, trees, directory)
    run_calls(tap, trees, directory)


def run_universal(tap, trees, directory):
    root = copy_of(trees, "universal-z1", directory)
    path = os.path.join(root, "global_step2_universal", "zero", "scale", "fp32.pt")
    kept = content(path)
    with tap.test("universal form: a file without a tensor"):
        Archive().write(path, {"cat_dim": 0})
        no_good(root, "tensor scale", "has no tensor")
    with tap.test("universal form: a damaged file"):
        write(path, kept[:100])
        no_good(root, "scale/fp32.pt")
        write(path, kept)
        same(shown_by(root)[0], CASES["universal-z1"]["model"], "universal-z1")
    with tap.test("universal form: what other directories have is not believed"):
        write(os.path.join(root, "global_step2_universal", "tmp", "0", "x.pt"), b"x")
        same(shown_by(root)[0], CASES["universal-z1"]["model"], "universal-z1")
    with tap.test("universal form: a parameter that the model does not name"):
        path = os.path.join(root, "global_step2_universal", "zero", "nobody", "fp32.pt")
        write(path, b"x")
        no_good(root, "nobody/fp32.pt")
        shutil.copy(os.path.join(root, "global_step2_universal", "zero", "embed.weight",
                                 "fp32.pt"), path)
        shown = shown_by(root)[0]
        check(shown.pop("nobody") == shown["embed.weight"], "its values")
        same(shown, CASES["universal-z1"]["model"], "universal-z1")
    root = copy_of(trees, "universal-z2", directory)
    with tap.test("universal form: masters that were mixed up"):
        demand(shown_by(root)[2], "DeepSpeed's conversion mixed up the masters")
        file = TorchFile(model_of(root))
        file.value["ds_config"]["zero_optimization"]["round_robin_gradients"] = False
        file.write(model_of(root))
        check(shown_by(root)[0]["embed.weight"][0] == "F32", "the masters are not shown")


def run_calls(tap, trees, directory):
    """In any file of any rank: nothing is called, and it is said."""
    def evil(value):
        value["evil"] = Called(named("os", "system"), "true")

    for name, find in (("z1-bf16", model_of), ("z1-bf16", lambda r: optimizer_of(r, 0)),
                       ("z1-bf16", lambda r: optimizer_of(r, 1)),
                       ("z3-fp32", lambda r: model_of(r, 0)), ("z3-fp32", lambda r: model_of(r, 1)),
                       ("z3-fp32", lambda r: optimizer_of(r, 1)),
                       ("moe-z2", lambda r: file_of(r, "layer_0_expert_3_*"))):
        root = edited(trees, name, directory, find, evil)
        with tap.test(f"a call in {os.path.basename(find(root))} of {name}"):
            no_good(root, "os.system")
    root = copy_of(trees, "universal-z1", directory)
    path = os.path.join(root, "global_step2_universal", "zero", "scale", "exp_avg.pt")
    with tap.test("a call in a file of the universal form"):
        Archive().write(path, {"param": Called(named("os", "system"), "true")})
        no_good(root, "os.system")


# ---- single files, objects, the library, Python ----

def run_single(tap, trees):
    for name, file, words in (
            ("z3-fp16", "zero_pp_rank_1_mp_rank_00_model_states.pt", "it is the part of rank 1"),
            ("z1-bf16", "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt",
             "it is the part of rank 0"),
            ("moe-z2", "layer_0_expert_1_mp_rank_00_model_states.pt", "it is a part of"),
            ("moe-z2", "mp_rank_00_model_states.pt", "experts of the model are in other files")):
        with tap.test(f"one file of {name} is a part: {file}"):
            path = file_of(os.path.join(trees, name), file)
            for command in "plan", "ls", "verify":
                got = run(command, path)
                check(got.status != GOOD, f"{command}: {got!r}")
            demand(sentence(expect_failure(path, described=True)[1]), words,
                   "SOURCE is the directory with")


def run_objects(tap, trees, directory):
    import s3_trial
    got = run("ls", "s3://bucket/x")
    if "built without" in got.err:
        return
    root = os.path.join(directory, "s3")
    os.makedirs(os.path.join(root, "bucket"))
    names = "z1-bf16", "z3-bf16", "universal-z3", "trainer-z3"
    for name in names:
        shutil.copytree(os.path.join(trees, name), os.path.join(root, "bucket", name))
    with s3_trial.Server(root) as server:
        s3_trial.set_environment(server.port, directory)
        for name in names:
            with tap.test(f"s3://: {name}"):
                found, beside, _ = shown_by(f"s3://bucket/{CASES[name]['path']}", *KEEP)
                same(found, whole_of(name), name)
                check(beside == BESIDE.get(name, []), beside)


def run_library(tap, trees, directory):
    compare_libraries(tap, trees, directory, ("z2-fp16", "z3-fp16", "universal-z1", "z3-bf16"),
                      {name: whole_of(name) for name in ("z2-fp16", "z3-bf16")})


# ---- random ones ----

def run_random(tap, directory, seeds):
    for first in range(0, len(seeds), RANDOM_A_TEST):
        some = seeds[first:first + RANDOM_A_TEST]
        with tap.test(f"random ones, --seed {some[0]} --cases {len(some)}"):
            for seed in some:
                tree = random_tree(seed)
                root = tree.write(tempfile.mkdtemp(dir=directory))
                wanted = hashes({**tree.model(), **tree.optimizer()})
                with Alone(root, extra=KEEP) as mount:
                    same(model_hashes(mount.path), wanted, f"{seed}: {tree.describe()}")
                shutil.rmtree(root)


def main():
    from run_seed import run_seed, share
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--cases", type=int, default=None)
    args = parser.parse_args()
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-deepspeed-") as directory:
        if args.seed is None:
            trees = unpack(os.path.join(directory, "trees"))
            run_genuine(tap, trees)
            run_left_out(tap, trees)
            run_listed(tap, trees)
            run_values(tap, trees)
            run_lost(tap, trees, directory)
            run_mixed(tap, trees, directory)
            run_two_steps(tap, trees, directory)
            run_swapped(tap, trees, directory)
            run_steps(tap, trees, directory)
            run_refusals(tap, trees, directory)
            run_single(tap, trees)
            run_objects(tap, trees, directory)
            run_library(tap, trees, directory)
        first = run_seed() if args.seed is None else args.seed
        run_random(tap, directory, range(first, first + (args.cases or share(100))))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
