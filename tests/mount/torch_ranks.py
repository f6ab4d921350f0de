#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One torch.save() file per rank as a source of a whole model: genuine directories of verl,
FSDP2, HSDP, tensor parallel, FSDP1 and torch_checkpointing, with ranks lost, exchanged and
damaged, and what each of them is refused for.

The yardstick is data/torch_ranks/expected.json: type, shape and hash of the tensors before
they were cut.  Random ones come from lib/rank_trees.py; --seed S --cases N repeats some.
"""

import glob
import argparse
import json
import os
import random
import shutil
import struct
import sys
import tempfile
import zipfile

HERE = os.environ.get("srcdir", ".")
TOP = os.environ.get("top_srcdir", os.path.join(HERE, ".."))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(TOP, "python")]

from dcp_reader import Checkpoint  # noqa: E402
from dcp_trees import Called  # noqa: E402
from demands import check, content, demand, flip, write  # noqa: E402
from rank_pickles import Object, TorchFile, expected, named, unpack  # noqa: E402
from rank_trees import random_tree  # noqa: E402
from rsh_cli import GOOD, INPUT, NO, USAGE, run, run_json  # noqa: E402
from rsh_mount import Alone, Mounted, Tap, expect_failure, require_mount  # noqa: E402
from safetensors_format import SUFFIX, Tensors  # noqa: E402
from shown_model import (demand_cover, extra_state, hashes, model_hashes, same,  # noqa: E402
                         values_of_model)
from whole_sources import (compare_libraries, copied, no_good, replaced, sentence,  # noqa: E402
                           shown_by)

# All that a checkpoint has, in the form of a model.
KEEP = ("--optimizer", "keep")
REFUSED = {
    "experts-2.15": ["tensor mlp.experts.w: it is distributed over several groups of ranks, and "
                     "differs between", "nothing says how these are joined"],
    "partial-2.15": ["tensor w", "Partial"],
}
RANDOM_A_TEST = 40
CASES = expected()


def without_crcs(archive):
    """A file of torch.save() as it is after set_crc32_options(False)."""
    entry = b"PK\1\2"
    first, *rest = archive.split(entry)
    return entry.join([first, *(e[:12] + bytes(4) + e[16:] for e in rest)])


def copy_of(trees, case, directory):
    return copied(os.path.join(trees, CASES[case]["path"]), directory)


def model_file(root, world, rank, kind="model"):
    return os.path.join(root, f"{kind}_world_size_{world}_rank_{rank}.pt")


def whole_of(case):
    return {**CASES[case]["tensors"], **CASES[case].get("optimizer", {})}


# ---- genuine ones ----

def run_case(tap, name, case, trees):
    source, world = os.path.join(trees, case["path"]), case["world"]
    if case.get("refuse"):
        with tap.test(f"{name}: refused; {case['note']}"):
            no_good(source, *REFUSED[name])
            check(run("ls", source).status != GOOD and
                  run("verify", source).status not in (GOOD, USAGE), "ls or verify takes it")
        return
    with tap.test(f"{name}: mounted"):
        found, beside, _ = shown_by(source)
        same(found, case["tensors"], name)
        check(beside == case.get("files", []), beside)
    with tap.test(f"{name}: mounted, with the optimizer"):
        same(shown_by(source, *KEEP)[0], whole_of(name), name)
    with tap.test(f"{name}: as a distributed checkpoint"), \
            Alone(source, extra=["--format", "dcp"]) as mount:
        found = Checkpoint(mount.path).values()
        same(hashes(found), whole_of(name), name)
    with tap.test(f"{name}: exported"), tempfile.TemporaryDirectory() as own:
        out = os.path.join(own, "out")
        got = run("export", *KEEP, source, out)
        check(got.status == GOOD, repr(got))
        same(model_hashes(out), whole_of(name), name)
        got = run("verify", *KEEP, source, os.path.join(out, "reshardfs-manifest.jsonl"))
        check(got.status == GOOD, repr(got))
        shutil.rmtree(out)
        got = run("export", "--dst-strategy", "none", "--format", "safetensors", source, out)
        check(got.status == GOOD, repr(got))
        file = os.path.join(out, "rank_0", "checkpoint_0" + SUFFIX)
        same(hashes(Tensors(content(file)).values()), whole_of(name), name)
    with tap.test(f"{name}: listed, verified and planned"):
        got = run("ls", source)
        check(got.status == GOOD, repr(got))
        demand(got.out, f"{world} ranks", "reshardfs mount")
        # Of the directory of all steps the steps are listed.
        step = os.path.join(source, "global_step_20") if name == "verl" else source
        said = run_json("ls", step)
        check({t["name"]: t["shape"] for t in said["tensors"]} ==
              {n: e[1] for n, e in whole_of(name).items()} and said["whole"], said)
        for t in said["tensors"]:
            demand_cover(t)
        for how in "structure", "full":
            check(run_json("verify", "--check", how, source)["good"], how)
        text = json.dumps(run_json("plan", source))
        check(any(n in text for _, _, names in os.walk(source) for n in names), text)


def run_values(tap, trees):
    with tap.test("values of the trainer are no tensors"):
        with Alone(os.path.join(trees, "nested-2.15"), extra=KEEP) as mount:
            check(extra_state(mount.path).get("step") == 40, extra_state(mount.path))
        with Alone(os.path.join(trees, "fsdp2-2.15"), extra=["--format", "dcp"]) as mount:
            found = Checkpoint(mount.path).beside()
            check("rng" not in str(sorted(found)), sorted(found))


def run_sums(tap, trees):
    with tap.test("only archives of torch.save() have checksums"):
        for name, files in ("tc-pt", 8), ("tc-safetensors", 0):
            said = run_json("verify", os.path.join(trees, name))
            check(said["by_crc"] == files and (said["uncompared"] == 0) == bool(files), said)


def run_genuine(tap, trees):
    for name, case in CASES.items():
        run_case(tap, name, case, trees)
    run_values(tap, trees)
    run_sums(tap, trees)


# ---- a single file, lost ranks, files of others ----

def run_single(tap, trees):
    for name, file, rank in (("fsdp2-2.15", "model_world_size_2_rank_1.pt", 1),
                             ("hand-2.4", "model_2.pt", 2), ("fsdp1-2.15",
                              "model_world_size_2_rank_0.pt", 0),
                             ("nested-2.4", "rank1/ckpt.pt", 1)):
        path = os.path.join(trees, name, file)
        with tap.test(f"one file of {name} is a part"):
            for command in "plan", "ls", "verify":
                got = run(command, path)
                check(got.status != GOOD, f"{command}: {got!r}")
            _, said = expect_failure(path, described=True)
            demand(sentence(said), f"it is the part of rank {rank} of {CASES[name]['world']}: "
                   "SOURCE is the directory with the files of all ranks")


def run_lost(tap, trees, directory):
    for name in "hsdp-2.15", "hsdp-2.8":
        for lost in range(4):
            root = copy_of(trees, name, directory)
            for kind in "model", "optim":
                os.unlink(model_file(root, 4, lost, kind))
            with tap.test(f"{name} without rank {lost} is whole"):
                found, _, said = shown_by(root, *KEEP)
                same(found, whole_of(name), name)
                demand(said, f"rank {lost}")
                check(run_json("ls", root)["whole"], "ls does not call it whole")
        os.unlink(model_file(root, 4, 1))
        with tap.test(f"{name} without ranks 1 and 3 is not"):
            no_good(root, "embed.weight lacks its box [10,12] at [11,0]", "rank_1.pt",
                    "boxes of 12 tensors are lacking in all")
    for name in "fsdp2-2.15", "fsdp2-2.4", "fsdp1-2.15":
        for lost in 0, 1:
            root = copy_of(trees, name, directory)
            os.unlink(model_file(root, 2, lost))
            with tap.test(f"{name} without rank {lost}: what is missing"):
                got = run("ls", root)
                check(got.status == NO, repr(got))
                demand(got.err, f"rank_{lost}.pt, which has a part of it, is missing")
                got = run("verify", root)
                check(got.status not in (GOOD, USAGE), repr(got))
                no_good(root, f"rank_{lost}.pt, which is missing")
    name = "fsdp2-2.15"
    root = copy_of(trees, name, directory)
    os.unlink(model_file(root, 2, 1, "optim"))
    with tap.test("without a file of the optimizer the model is shown"):
        found, _, said = shown_by(root)
        same(found, CASES[name]["tensors"], name)
        demand(said, "the optimizer's state is not complete", "rank_1")
        no_good(root, "optimizer.state", "rank_1", extra=KEEP)


def run_mixed(tap, trees, directory):
    name = "fsdp2-2.15"
    root = copy_of(trees, name, directory)
    files = [model_file(root, 2, rank) for rank in range(2)]
    with tap.test("the file of another rank under this name"):
        kept = content(files[1])
        shutil.copyfile(files[0], files[1])
        no_good(root, "model_world_size_2_rank_1.pt", "rank 0", "not 1")
        # Exchanged, each contradicts its name.
        write(files[0], kept)
        no_good(root, "model_world_size_2_rank_", "rank")
    for name in "fsdp2-2.15", "named-2.15":
        with tap.test(f"{name}: a rank's optimizer of another step"):
            root = copy_of(trees, name, directory)
            file = TorchFile(model_file(root, 2, 1, "optim"))
            keys = {f"data/{s['step'].call[1][0].words[2]}" for s in file.value["state"].values()}
            file.entries = [(n, struct.pack("<f", 41) if n in keys else data)
                            for n, data in file.entries]
            file.write(model_file(root, 2, 1, "optim"))
            for extra in (), KEEP:
                no_good(root, "optim_world_size_2_rank_1.pt: it is of another step of the "
                        "optimizer than optim_world_size_2_rank_0.pt: they differ in "
                        "optimizer.state.", extra=extra)
            check(run("ls", root).status != GOOD, "ls takes it")
            for rank in range(2):
                os.unlink(model_file(root, 2, rank, "optim"))
            same(shown_by(root)[0], CASES[name]["tensors"], name)
    with tap.test("a rank of another save that has the part of another rank"):
        root, weight = copy_of(trees, "hsdp-2.15", directory), "layers.0.up.bias"
        file = TorchFile(model_file(root, 4, 2))
        number = next(t.call[1][3][1]["_local_tensor"].call[1][0].words[2]
                      for n, t in file.value.items() if n == weight)
        file.entries = [(n, bytes(b ^ 1 for b in data) if n == f"data/{number}" else data)
                        for n, data in file.entries]
        file.write(model_file(root, 4, 2))
        no_good(root, f"tensor {weight}: model_world_size_4_rank_0.pt and "
                "model_world_size_4_rank_2.pt have the same part of it, and their bytes differ")
        check(run_json("verify", root, status=NO)["problems"], "verify says so")
        check(weight not in shown_by(root, "--drop", weight)[0], "the others")
        # Without checksums only verify, which reads all bytes, can know it.
        for rank in 0, 2:
            path = model_file(root, 4, rank)
            write(path, without_crcs(content(path)))
        check(weight in shown_by(root)[0], "nothing shows it")
        os.unlink(model_file(root, 4, 2))
        same(shown_by(root)[0], CASES["hsdp-2.15"]["tensors"], "hsdp-2.15")
    name = "fsdp2-2.15"
    root = copy_of(trees, "hand-2.15", directory)
    with tap.test("two files of one rank"):
        shutil.copyfile(os.path.join(root, "model_1.pt"), os.path.join(root, "model_3.pt"))
        no_good(root, "model_3.pt: the file is of rank 1, not 3")
        os.rename(os.path.join(root, "model_3.pt"), os.path.join(root, "model_x.pt"))
    with tap.test("a rank of another job, of as many ranks"):
        root = copy_of(trees, "uneven-2.15", directory)
        shutil.copyfile(model_file(os.path.join(trees, "hsdp-2.15"), 4, 2),
                        model_file(root, 4, 2))
        no_good(root, "rank")
    with tap.test("worlds of 2 and 4 ranks side by side: the one that fsdp_config.json names"):
        root = copy_of(trees, name, directory)
        for rank in range(4):
            shutil.copyfile(model_file(os.path.join(trees, "uneven-2.15"), 4, rank),
                            model_file(root, 4, rank))
        same(shown_by(root)[0], CASES[name]["tensors"], name)
        write(os.path.join(root, "fsdp_config.json"),
              b'{"FSDP_version": 2, "world_size": 4}')
        same(shown_by(root)[0], CASES["uneven-2.15"]["tensors"], name)
        demand(run("plan", root).err, "warning", "several jobs are side by side; those of 4 ranks")
    with tap.test("a world that fsdp_config.json names, and of which there is no file"):
        write(os.path.join(root, "fsdp_config.json"), b'{"world_size": 16}')
        no_good(root, "fsdp_config.json says that there are 16 ranks, and the files are of 2 "
                "and others")
    with tap.test("without it the world that is whole"):
        os.unlink(os.path.join(root, "fsdp_config.json"))
        no_good(root, "files of 2 and of 4 ranks are side by side, and no fsdp_config.json")
        os.unlink(model_file(root, 4, 3))
        same(shown_by(root)[0], CASES[name]["tensors"], name)
    with tap.test("a config that says another number of ranks"):
        root = copy_of(trees, name, directory)
        write(os.path.join(root, "fsdp_config.json"),
              b'{"FSDP_version": 2, "world_size": 8}')
        no_good(root, "fsdp_config.json says that there are 8 ranks, and the files are of 2")
    for what, data in (("no JSON", b"{"), ("an array", b"[]"), ("no number", b'{"world_size":"x"}'),
                       ("nothing", b"")):
        with tap.test(f"a config that is {what}"):
            write(os.path.join(root, "fsdp_config.json"), data)
            got = run("plan", root)
            check(got.status in (GOOD, INPUT), repr(got))


# ---- steps ----

def run_steps(tap, trees, directory):
    verl = os.path.join(trees, "verl")
    before = model_hashes_of(os.path.join(verl, "global_step_10", "actor"))
    with tap.test("the directories above and below"):
        for below in "global_step_20", "global_step_20/actor":
            found, beside, _ = shown_by(os.path.join(verl, below))
            same(found, CASES["verl"]["tensors"], below)
            check(beside == CASES["verl"]["files"], beside)
        check(before != CASES["verl"]["tensors"], "both steps are one")
    with tap.test("the step that is chosen, and what is said of the others"):
        said = shown_by(verl)[2]
        demand(said, "global_step_20",
               "it names step 20; global_step_30 is newer and is not taken")
        job = copy_of(trees, "verl", directory)
        os.unlink(os.path.join(job, "latest_checkpointed_iteration.txt"))
        demand(run("plan", job).err, "warning",
               "global_step_30 cannot be used, using global_step_20 instead")
        got = run("ls", verl)
        demand(got.out + got.err, "20", "30", "10")
    with tap.test("--select"):
        same(shown_by(verl, "--select", "step=10")[0], before, "step 10")
        no_good(verl, "global_step_30", extra=["--select", "step=30"])
    with tap.test("--steps all"), Alone(verl, extra=["--steps", "all"]) as mount:
        names = [n for n in os.listdir(mount.path) if not n.startswith(".")]
        check({"global_step_10", "global_step_20", "latest"} >= set(names) and
              "global_step_30" not in names, names)
        same(model_hashes(os.path.join(mount.path, "global_step_10")), before, "step 10")
        same(model_hashes(os.path.join(mount.path, "latest")), CASES["verl"]["tensors"], "20")
    job = copy_of(trees, "verl", directory)
    with tap.test("--resume takes the newest step that is whole"), \
            Mounted(job, resume=True) as mount:
        check(os.readlink(os.path.join(mount.path, "latest")) == "global_step_20",
              os.listdir(mount.path))
        demand(mount.log(), "global_step_30")
        shown = os.path.join(mount.path, "latest", "actor")
        for name in os.listdir(shown):
            if name.endswith(".pt"):
                check(content(os.path.join(shown, name)) == content(
                    os.path.join(job, "global_step_20", "actor", name)), name)
    with tap.test("--resume counts directories, which are not those of ranks"):
        for step in 10, 20:
            step = os.path.join(job, f"global_step_{step}")
            shutil.copytree(os.path.join(step, "actor"), os.path.join(step, "critic"))
        with Mounted(job, resume=True) as mount:
            demand(mount.log(), "verl, 3 directories, taking global_step_20 of several",
                   "1 of 3 directories has it; critic has none")
        for step in 10, 20:
            shutil.rmtree(os.path.join(job, f"global_step_{step}", "critic"))
    with tap.test("--resume says that the values of a rank have no CRCs"):
        values = os.path.join(job, "global_step_20", "actor", "extra_state_world_size_2_rank_1.pt")
        kept = content(values)
        write(values, without_crcs(kept))
        with Mounted(job, resume=True, extra=["--check", "full"]) as mount:
            check(os.readlink(os.path.join(mount.path, "latest")) == "global_step_20", "not 20")
            check(mount.log().count("the file has no CRCs") == 1, mount.log())
        write(values, kept)
    with tap.test("the newest step becomes whole while it is shown"), \
            Alone(job, extra=["--steps", "all", "--steps-interval", "1"]) as mount:
        check("global_step_30" not in os.listdir(mount.path), "it is shown")
        for rank in range(2):
            shutil.copyfile(*(model_file(os.path.join(job, f"global_step_{step}", "actor"), 2, rank)
                              for step in (20, 30)))
        got = run("steps", "--wait", "30", mount.path)
        check(got.status == GOOD, repr(got))
        same(model_hashes(os.path.join(mount.path, "global_step_30")),
             CASES["verl"]["tensors"], "step 30")
    tracker = os.path.join(job, "latest_checkpointed_iteration.txt")
    with tap.test("the tracker names the step that is tried first"):
        write(tracker, b"10")
        same(shown_by(job)[0], before, "step 10")
        write(tracker, b"")    # it is opened with truncation
        same(shown_by(job)[0], CASES["verl"]["tensors"], "an empty tracker")
        write(tracker, b"77")
        same(shown_by(job)[0], CASES["verl"]["tensors"], "a step that is gone")
        os.rename(tracker, os.path.join(job, "latest_ckpt_global_step.txt"))
        write(os.path.join(job, "latest_ckpt_global_step.txt"), b"10")
        same(shown_by(job)[0], before, "SkyRL's tracker")
    with tap.test("a step whose actor was removed is none"):
        shutil.rmtree(os.path.join(job, "global_step_10", "actor"))
        same(shown_by(job)[0], CASES["verl"]["tensors"], "step 10 is gone")
    with tap.test("critic and policy"):
        step = os.path.join(job, "global_step_20")
        shutil.copytree(os.path.join(trees, "verl-model-only"), os.path.join(step, "critic"))
        same(shown_by(step)[0], CASES["verl"]["tensors"], "the actor")
        same(shown_by(os.path.join(step, "critic"))[0], CASES["verl-model-only"]["tensors"],
             "the critic")
        demand(run("ls", step).out, "critic is another model")
        os.rename(os.path.join(step, "actor"), os.path.join(step, "policy"))
        same(shown_by(step)[0], CASES["verl"]["tensors"], "the policy")


def model_hashes_of(source):
    return shown_by(source)[0]


# ---- damage ----

def elements_of(path, number):
    """Where the elements of a storage lie."""
    with zipfile.ZipFile(path) as z:
        (entry,) = [i for i in z.infolist() if i.filename.endswith(f"/data/{number}")]
    data = content(path)
    n_name, n_extra = struct.unpack_from("<HH", data, entry.header_offset + 26)
    return entry.header_offset + 30 + n_name + n_extra


def run_damage(tap, trees, directory):
    name = "hsdp-2.15"
    root = copy_of(trees, name, directory)
    path = model_file(root, 4, 0)
    number = next(t.call[1][3][1]["_local_tensor"].call[1][0].words[2]
                  for n, t in TorchFile(path).value.items() if n == "embed.weight")
    flip(path, elements_of(path, number))
    with tap.test("a bit of a storage: its CRC tells"):
        got = run_json("verify", "--check", "full", root, status=NO)
        check("rank_0.pt" in json.dumps(got["problems"]), got)
    with tap.test("a bit of a storage: a replica serves"):
        same(shown_by(root, "--check", "full")[0], CASES[name]["tensors"], name)
    with tap.test("a bit of a storage that has no replica"):
        root = copy_of(trees, "fsdp2-2.15", directory)
        path = model_file(root, 2, 1)
        flip(path, elements_of(path, 6))
        check(run_json("verify", "--check", "full", root, status=NO)["problems"], "not found")
        no_good(root, "rank_1.pt", "CRC", extra=["--check", "full"])
    for what, spoil in (("cut in half", lambda d: d[:len(d) // 2]), ("empty", lambda d: b""),
                        ("all zeros", lambda d: bytes(len(d))),
                        ("without its end", lambda d: d[:-22])):
        for name, words in (("fsdp2-2.15", ()), ("hsdp-2.15", ("whole",))):
            root = copy_of(trees, name, directory)
            world = CASES[name]["world"]
            path = model_file(root, world, world - 1)
            write(path, spoil(content(path)))
            with tap.test(f"{name}: the last rank's file is {what}"):
                if words:
                    found, _, said = shown_by(root)
                    same(found, CASES[name]["tensors"], name)
                    demand(said, os.path.basename(path))
                else:
                    no_good(root, os.path.basename(path))
                got = run("verify", root)
                check(got.status != GOOD, repr(got))
                demand(got.out + got.err, os.path.basename(path))
    root = copy_of(trees, "fsdp2-2.15", directory)
    path = model_file(root, 2, 0)
    with tap.test("a plain tensor that differs between ranks"):
        file = TorchFile(path)
        key = file.value["rope"].call[1][0].words[2]
        file.entries = [(n, b"\1" * len(c) if n == f"data/{key}" else c) for n, c in file.entries]
        file.write(path)
        no_good(root, "tensor rope: it is a plain tensor, and differs between "
                "model_world_size_2_rank_0.pt and model_world_size_2_rank_1.pt: nothing says")


# ---- what is refused ----

def edited(trees, case, directory, rank, change, kind="model"):
    """A copy whose rank has a changed value in its file."""
    root = copy_of(trees, case, directory)
    path = model_file(root, CASES[case]["world"], rank, kind)
    if not os.path.exists(path):
        path = os.path.join(root, f"model_{rank}.pt")
    file = TorchFile(path)
    changed = change(file.value)
    if changed is not None:
        file.value = changed
    file.write(path)
    return root


def spec_of(value, name):
    return value[name].call[1][3][1]["_spec"]


def run_refusals(tap, trees, directory):
    def case(what, tree, rank, change, *words, kind="model"):
        with tap.test(f"refused: {what}"):
            no_good(edited(trees, tree, directory, rank, change, kind), *words)

    name, key = "fsdp2-2.15", "embed.weight"

    def local_of(value, n=key):
        return value[n].call[1][3][1]["_local_tensor"]

    def meta(value, size, n=key):
        spec = spec_of(value, n)
        old = spec["tensor_meta"]
        spec["tensor_meta"] = Object(old.cls, (Called(named("torch", "Size"), size),
                                               *old.args[1:]))
        set_outer(value, size, n)

    def set_outer(value, size, n=key):
        outer = list(value[n].call[1])
        outer[2] = outer[2][:2] + (size,) + outer[2][3:]
        value[n].call = value[n].call[0], tuple(outer)

    def set_mesh(value, n=key, **state):
        spec_of(value, n)["mesh"].state.update(state)

    def shard(**state):
        return Object(named("torch.distributed.tensor.placement_types",
                            state.pop("kind", "Shard")), (), state)

    case("the local size is not that of the placement", name, 1,
         lambda v: replaced(local_of(v), 2, (9, 12)), "tensor embed.weight: model_world_size_2_rank_1.pt has [9,12] of it, and its placement "
         "says [10,12]")
    case("the whole shapes of two ranks differ", name, 1, lambda v: meta(v, (22, 12)), key,
         "rank")
    def other_type(value):
        function, cls, outer, state = value[key].call[1]
        integer, spec = named("torch", "int32"), state[1]["_spec"]
        stored = local_of(value).call[1][0]
        stored.words = (stored.words[0], named("torch", "IntStorage"), *stored.words[2:])
        old = spec["tensor_meta"]
        spec["tensor_meta"] = Object(old.cls, (*old.args[:2], integer))
        value[key].call = value[key].call[0], (
            function, cls, (outer[0], integer, *outer[2:]), state)

    case("the types of two ranks differ", "uneven-2.15", 3, other_type,
         "tensor embed.weight: model_world_size_4_rank_0.pt and model_world_size_4_rank_3.pt "
         "contradict each other: they have different types of it")
    case("a tensor that leaves its storage", name, 1, lambda v: replaced(
        v["rope"], 2, (4,)), "damaged: rope: a tensor that leaves its storage")
    for what, more, why in (
            ("whose key is not a string", lambda v: {("x", 1): v["rope"]}, "its key is not a string"),
            ("in parts, whose key is not a string", lambda v: {("x", 1): v[key]},
             "its key is not a string"),
            ("whose name another one has", lambda v: {"a.b": v["rope"], "a": {"b": v[key]}},
             "another value has its name")):
        case(f"a tensor {what}", name, 1, lambda v, m=more: v.update(m(v)),
             "model_world_size_2_rank_1.pt: ", f" is a tensor that cannot be shown ({why})")
    case("a name on one rank only", name, 1, lambda v: v.pop(key) and None,
         "embed.weight lacks its box [10,12] at [11,0]", "rank_1.pt, which has no tensor embed.weight")
    with tap.test("a plain tensor that one rank has is whole"):
        root = edited(trees, name, directory, 1, lambda v: v.pop("rope") and None)
        same(shown_by(root)[0], CASES[name]["tensors"], name)
    case("a tensor that is plain on one rank", name, 1, lambda v: v.update(
        {key: local_of(v)}),
         "contradict each other: one has a part of it, and the other all")
    case("a placement that is Partial", name, 0, lambda v: spec_of(v, key).state.update(
        placements=(shard(kind="Partial", reduce_op="sum"),), shard_order=()), key, "Partial")
    case("an order whose use is not said", "order-2.15", 0, lambda v: spec_of(
        v, "w").state.update(use_strided_shard_as_shard_order=()), "tensor w")
    case("an axis beyond the tensor", name, 0, lambda v: spec_of(v, key).state.update(
        placements=(shard(dim=2),)), key, "it is cut over an axis that it does not have")
    case("an axis below the tensor", name, 0, lambda v: spec_of(v, key).state.update(
        placements=(shard(dim=-3),)), key)
    case("a placement that is no class of torch", name, 0, lambda v: spec_of(v, key).state.update(
        placements=(shard(kind="Scattered", dim=0),)), key)
    case("fewer placements than dimensions", name, 0,
         lambda v: spec_of(v, key).state.update(placements=()), key)
    case("a strided shard without its factor", name, 0, lambda v: spec_of(v, key).state.update(
        placements=(shard(kind="_StridedShard", dim=0),)), key, "factor")
    for factor in 0, -1, 10 ** 9, 1 << 62, 1 << 63:
        case(f"a strided shard of factor {factor}", name, 0,
             lambda v, f=factor: spec_of(v, key).state.update(placements=(
                 shard(kind="_StridedShard", dim=0, split_factor=f),)), key)
    case("a coordinate beyond the mesh", name, 1,
         lambda v: set_mesh(v, _coordinate_on_dim=(2,)), "damaged: a coordinate outside its mesh")
    case("a coordinate below 0", name, 1,
         lambda v: set_mesh(v, _coordinate_on_dim=(-1,)), "a coordinate outside its mesh")
    case("a coordinate of two dimensions", name, 1,
         lambda v: set_mesh(v, _coordinate_on_dim=(1, 0)),
         "damaged: its mesh has a coordinate of other dimensions")
    case("no coordinate", name, 1, lambda v: set_mesh(v, _coordinate_on_dim="x"),
         "damaged: its mesh has no coordinate")
    case("another rank's coordinate", name, 1, lambda v: set_mesh(v, _coordinate_on_dim=(0,)),
         "damaged: its mesh has another rank at its coordinate")
    case("no mesh", name, 1, lambda v: spec_of(v, key).state.update(mesh=None),
         "damaged: it has no mesh")
    case("a mesh without ranks", name, 1,
         lambda v: set_mesh(v, _flatten_rank_map=(), _rank_map=None),
         "damaged: its mesh has no")
    case("a mesh without a shape", name, 1, lambda v: set_mesh(v, _layout=None),
         "damaged: its mesh has no shape")
    case("a mesh with a rank twice", name, 0,
         lambda v: set_mesh(v, _flatten_rank_map=(0, 0)), "rank")
    case("a layout that has more ranks than the map", name, 0, lambda v: spec_of(v, key)[
        "mesh"]["_layout"]["axes"][0].state.update(shape=(3,)), "mesh")
    case("a layout of 2^40 ranks", name, 0, lambda v: spec_of(v, key)[
        "mesh"]["_layout"]["axes"][0].state.update(shape=(1 << 40,)), "mesh")
    case("a wrapper in a wrapper", name, 0, lambda v: v[key].call[1][3][1].update(
        _local_tensor=v["gate"]), key)
    case("no local tensor", name, 0, lambda v: v[key].call[1][3][1].pop("_local_tensor") and None,
         "tensor embed.weight: damaged: a DTensor without its parts")
    case("no spec", name, 0, lambda v: v[key].call[1][3][1].pop("_spec") and None,
         "damaged: a DTensor without its parts")
    case("two whole sizes", name, 0, lambda v: spec_of(v, key).state.update(
        tensor_meta=spec_of(v, "gate")["tensor_meta"]), "damaged: it has two whole shapes")
    case("no whole size", name, 0, lambda v: set_outer(v, None), "damaged: it has no whole shape")
    for size in ((1 << 60, 12), (1 << 62, 12), (1 << 63, 12), (1 << 31, 1 << 31), (-21, 12)):
        case(f"a whole size of {size}", name, 0, lambda v, s=size: meta(v, s), key)
    # In both ranks' files, so that they agree.
    for size in ((1 << 60, 12), (1 << 31, 1 << 40)):
        root = edited(trees, name, directory, 0, lambda v, s=size: meta(v, s))
        file = TorchFile(model_file(root, 2, 1))
        meta(file.value, size)
        file.write(model_file(root, 2, 1))
        with tap.test(f"refused: a whole size of {size} on all ranks"):
            no_good(root, key)
    run_calls(tap, trees, directory)
    state_of = "torch.distributed._shard.sharded_tensor.api"
    for module, cls, attribute in ((state_of, "ShardedTensor", "__init__"),
                                   (state_of, "Other", "ProcessGroupState"), ("os", "system", "x")):
        def change(value, m=module, c=cls, a=attribute):
            group = next(t for t in value.values()
                         if len(t.call[1]) == 4).call[1][3][2]
            group.cls.call = group.cls.call[0], (named(m, c), a)
        case(f"getattr of {cls}, {attribute}", "fsdp1-2.15", 1, change, "getattr")
    case("a ShardedTensor without its parts", "fsdp1-2.15", 1, lambda v: replaced(
        v["embed.weight"], 3, ()), "damaged: a ShardedTensor without its parts")
    run_tc_refusals(tap, trees, directory)
    run_box_refusals(tap, trees, directory)


def run_calls(tap, trees, directory):
    """In any file of any rank: nothing is called, and it is said."""
    name = "fsdp2-2.15"

    def evil(value, at=None):
        (value if at is None else value).update(
            {at or "evil": Called(named("os", "system"), "true")})

    for rank in 0, 1:
        with tap.test(f"a call in the model of rank {rank}"):
            no_good(edited(trees, name, directory, rank, evil), "os.system")
        with tap.test(f"a call in the optimizer of rank {rank}"):
            root = edited(trees, name, directory, rank, lambda v: evil(v, "lr"), "optim")
            found, _, said = shown_by(root)
            same(found, CASES[name]["tensors"], name)
            demand(said, "the optimizer's state is not complete", f"rank_{rank}.pt")
            no_good(root, f"optim_world_size_2_rank_{rank}.pt", "os.system", extra=KEEP)
    with tap.test("a call in the values of the trainer"):
        root = edited(trees, name, directory, 0, lambda v: evil(v, "rng"), "extra_state")
        found, _, said = shown_by(root)
        same(found, CASES[name]["tensors"], name)
        demand(said, "extra_state_world_size_2_rank_0.pt", "os.system", "are not shown")


def run_box_refusals(tap, trees, directory):
    """Boxes of a ShardedTensor."""
    def box(value):
        shard = value["embed.weight"].call[1][3][0][0]
        return shard.state[1]["metadata"].state[1]
    for what, change, said in (
            ("beyond the tensor", lambda v: box(v).update(shard_offsets=[6, 0]),
             "damaged: a shard outside the tensor"),
            ("overlapping", lambda v: box(v).update(shard_offsets=[4, 0]),
             "the boxes of ranks 0 and 1 overlap, but are not equal"),
            ("below 0", lambda v: box(v).update(shard_offsets=[-1, 0]),
             "damaged: a size that cannot be"),
            ("of another size", lambda v: box(v).update(shard_sizes=[3, 6]),
             "has another shape of its shard than it says"),
            ("of 2^62 rows", lambda v: box(v).update(shard_offsets=[1 << 62, 0]),
             "a shard outside the tensor"),
            ("of another rank's place", lambda v: box(v).update(shard_offsets=[0, 0]),
             "ranks 0 and 1 overlap")):
        with tap.test(f"refused: a box {what}"):
            no_good(edited(trees, "fsdp1-2.15", directory, 1, change), "embed.weight", said)


def run_tc_refusals(tap, trees, directory):
    import pickle

    def case(what, tree, change, *words):
        root = copy_of(trees, tree, directory)
        path = os.path.join(root, "metadata.pkl")
        value = pickle.loads(content(path))
        value = change(value) or value
        write(path, pickle.dumps(value, 4))
        with tap.test(f"refused: torch_checkpointing, {what}"):
            no_good(root, *words)

    def item(value, name="model"):
        return value["metadata"][name]

    def entry(value, name='["embed.weight"]'):
        return item(value)["nested_path_to_metadata"][name][0]["sharding_metadata"]["data"]

    case("version 1.0", "tc-pt", lambda v: v.update(version="1.0"), "its version is not 2.0")
    case("another version", "tc-pt", lambda v: v.update(version="9"), "its version is not 2.0")
    for path in "../x.safetensors", "/etc/passwd", "model/../../x":
        case(f"a path {path}", "tc-safetensors", lambda v, p=path: item(v)[
            "rank_to_layout_info"][1].update(file_path=p), path)
    case("a name that no file has", "tc-safetensors", lambda v: item(v)[
        "nested_path_to_metadata"].update({'["more"]': item(v)["nested_path_to_metadata"][
            '["embed.weight"]']}), "it lacks tensor more, which metadata.pkl says is in it")
    case("another kind of file", "tc-safetensors", lambda v: item(v)["rank_to_layout_info"][
        1].update(file_path="model/rank1.json", serialization_format={
            "type": "JsonSerialization"}),
         "the file model/rank1.json is neither one of torch.save() nor of safetensors")
    case("no version", "tc-pt", lambda v: v.pop("version") and None, "it is not of "
         "torch_checkpointing")
    case("a file that is not there", "tc-safetensors", lambda v: item(v)[
        "rank_to_layout_info"][1].update(file_path="model/x.safetensors"), "x.safetensors")
    case("a mesh whose product is not its list", "tc-safetensors",
         lambda v: entry(v)["mesh_spec"].update(mesh_shape=(3,)),
         "it does not say how the tensor is distributed")
    case("a mesh with a rank twice", "tc-safetensors",
         lambda v: entry(v)["mesh_spec"].update(mesh_data=(0, 0)), "a rank is in its mesh twice")
    case("another whole size", "tc-safetensors", lambda v: entry(v).update(global_shape=[25, 8]),
         "embed.weight")
    case("a whole size of 2^62", "tc-safetensors", lambda v: entry(v).update(global_shape=[1 << 62, 8]),
         "embed.weight")
    case("a placement that is none", "tc-safetensors", lambda v: entry(v).update(
        placements=[{"type": "Ragged", "dim": 0}]), "embed.weight")
    case("an axis beyond the tensor", "tc-safetensors", lambda v: entry(v).update(
        placements=[{"type": "Shard", "dim": 7}]), "embed.weight")
    root = copy_of(trees, "tc-pt", directory)
    os.unlink(os.path.join(root, "model_2.pt"))
    with tap.test("refused: torch_checkpointing, a rank's file is lost"):
        no_good(root, "model_2.pt")
    with tap.test("torch_checkpointing, all files of one item are lost"):
        root = copy_of(trees, "tc-pt", directory)
        check("is there" not in run("plan", root).err, "a warning")
        for path in glob.glob(os.path.join(root, "optimizer_*.pt")):
            os.unlink(path)
        demand(run("plan", root).err, f'warning: {root}/metadata.pkl: no file of "optimizer" is '
               "there: nothing of it is shown")
    with tap.test("refused: a metadata.pkl that calls"):
        root = copy_of(trees, "tc-pt", directory)
        write(os.path.join(root, "metadata.pkl"), b"\x80\x04cos\nsystem\n\x8c\x04true\x85R.")
        no_good(root, "metadata.pkl")


# ---- elsewhere: objects, the library, Python ----

def run_objects(tap, trees, directory):
    import s3_trial
    got = run("ls", "s3://bucket/x")
    if "built without" in got.err:
        return
    root = os.path.join(directory, "s3")
    os.makedirs(os.path.join(root, "bucket"))
    for name in "fsdp2-2.15", "verl", "tc-safetensors", "nested-2.15":
        shutil.copytree(os.path.join(trees, CASES[name]["path"]),
                        os.path.join(root, "bucket", name))
    with s3_trial.Server(root) as server:
        s3_trial.set_environment(server.port, directory)
        for name in "fsdp2-2.15", "verl", "tc-safetensors", "nested-2.15":
            with tap.test(f"s3://: {name}"):
                found, beside, _ = shown_by(f"s3://bucket/{name}", *KEEP)
                same(found, whole_of(name), name)
                check(beside == CASES[name].get("files", []), beside)
        with tap.test("s3://: the parts of storages that are read are few requests"):
            server.requests()
            got = s3_trial.run("plan", "s3://bucket/fsdp2-2.15")
            check(got.status == GOOD, repr(got))
            asked = [line for line in server.requests() if "list-type" not in line]
            print(f"# {len(asked)} requests for the 6 files of 2 ranks")


def run_library(tap, trees, directory):
    compare_libraries(tap, trees, directory,
                      ("fsdp2-2.15", "tp-2.15", "fsdp1-2.4", "tc-pt", "verl"),
                      {name: whole_of(name) for name in ("fsdp2-2.15", "tp-2.8", "verl")})


# ---- random ones ----

def expect_random(seed, directory):
    """The whole of a random tree, and what becomes of it without one of its ranks."""
    tree = random_tree(seed)
    root, out = (os.path.join(directory, n) for n in ("source", "out"))
    tree.write(root)
    what = f"seed {seed}: {tree.describe()}"
    wanted = {**tree.expected(), **tree.expected_optimizer()}
    got = run("export", *KEEP, root, out)
    check(got.status == GOOD, f"{what}: {got!r}")
    found = values_of_model(out)
    different = sorted(n for n in set(found) | set(wanted) if found.get(n) != wanted.get(n))
    check(not different, f"{what}: {different} differ")
    said = run_json("ls", root)
    check(said["whole"] and {t["name"] for t in said["tensors"]} == set(wanted), f"{what}: ls")
    for t in said["tensors"]:
        demand_cover(t)
    numbers = random.Random(seed)
    lost = numbers.randrange(tree.world)
    for path in tree.files(lost):
        path = os.path.join(root, path)
        os.unlink(path)
        if os.path.dirname(path) != root:
            os.rmdir(os.path.dirname(path))
    left = [r for r in range(tree.world) if r != lost]
    shutil.rmtree(out)
    got = run("export", root, out)
    what += f" without rank {lost}"
    if tree.missing(left):
        check(got.status not in (GOOD, USAGE), f"{what}: {got!r}")
        return
    # A rank of FSDP1 that has nothing is in no metadata; one file is no group.
    if all(t.boxes is None for t in tree.tensors.values()) and (
            tree.layout == "verl" or lost < tree.world - 1 and len(left) > 1):
        check(got.status == GOOD, f"{what}: {got!r}")
        found, wanted = values_of_model(out), tree.expected()
        different = sorted(n for n in set(found) | set(wanted)
                           if found.get(n) != wanted.get(n))
        check(not different, f"{what}: {different} differ")


def run_random(tap, directory, first, count):
    for begin in range(first, first + count, RANDOM_A_TEST):
        end = min(begin + RANDOM_A_TEST, first + count)
        with tap.test(f"random ranks {begin} to {end - 1}"):
            for seed in range(begin, end):
                with tempfile.TemporaryDirectory(dir=directory) as own:
                    expect_random(seed, own)


def main():
    require_mount()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--only", help="names of functions below")
    words = parser.parse_args()
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        trees = unpack(os.path.join(directory, "trees"))
        for function, arguments in (
                (run_genuine, (trees,)), (run_single, (trees,)), (run_lost, (trees, directory)),
                (run_mixed, (trees, directory)), (run_steps, (trees, directory)),
                (run_damage, (trees, directory)), (run_refusals, (trees, directory)),
                (run_library, (trees, directory)), (run_objects, (trees, directory)),
                (run_random, (directory, words.seed, words.cases))):
            if not words.only or function.__name__ in words.only:
                function(tap, *arguments)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
