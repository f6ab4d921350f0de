#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of DeepSpeed as a source of a whole model: genuine ones of ZeRO 0 to 3, of the
universal form and of the Trainer, with ranks lost and files of others.
unit/test_formats_shown_deepspeed has what files are refused for.

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
from rsh_cli import GOOD, good, run, run_json  # noqa: E402
from rsh_mount import Alone, Mounted, Tap, expect_failure, require_mount  # noqa: E402
from shown_model import extra_state, hashes, model_hashes, same  # noqa: E402
from whole_sources import (KEEP, compare_libraries, copied, exported_model,  # noqa: E402
                           exported_as_file, no_good, no_good_at_all, sentence, shown_as_dcp,
                           shown_by, verified)

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
            no_good_at_all(source, *REFUSED[name])
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
    with tap.test(f"{name}: as a distributed checkpoint"):
        found = shown_as_dcp(source)
        same({n: e for n, e in found.items() if n in whole_of(name)}, whole_of(name), name)
    with tap.test(f"{name}: exported"):
        same(exported_model(source), case["model"], name)
        found = exported_as_file(source)
        same({n: e for n, e in found.items() if n in whole_of(name)}, whole_of(name), name)
    with tap.test(f"{name}: verified and planned"):
        verified(source)
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
            got = good("ls", os.path.join(trees, CASES[name]["path"]))
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
    with tap.test("no warning has the name of a record"):
        for name in "z3-bf16", "z1-bf16", "z2-fp16":
            got = run("export", copy_of(trees, name, directory), os.path.join(directory, name))
            check(got.status == GOOD and "one element" not in got.err, got)
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
        good("steps", "--wait", "2", mount.path)
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
    change(file.value)
    file.write(path)
    return root


def run_refusals(tap, trees, directory):
    with tap.test("a state that one rank does not have"):
        root = edited(trees, "z2-fp16", directory, lambda r: optimizer_of(r, 1),
                      lambda v: state_of(v)[0].pop("exp_avg"))
        same(shown_by(root)[0], CASES["z2-fp16"]["model"], "z2-fp16")
        no_good(root, "optimizer.state.embed.weight.exp_avg",
                "exp_avg of group 0 is not on all ranks", extra=KEEP)
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
            run_two_steps(tap, trees, directory)
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
