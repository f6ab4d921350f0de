#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One torch.save() file per rank as a source of a whole model: genuine directories of verl,
FSDP2, HSDP, tensor parallel, FSDP1 and torch_checkpointing, with ranks lost, exchanged and
damaged.  unit/test_formats_shown_ranks has what pickles are refused for.

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
from rank_pickles import TorchFile, expected, named, unpack  # noqa: E402
from rank_trees import random_tree  # noqa: E402
from rsh_cli import GOOD, NO, USAGE, good, run, run_json  # noqa: E402
from rsh_mount import Alone, Mounted, Tap, expect_failure, require_mount  # noqa: E402
from shown_model import (demand_cover, extra_state, model_hashes, same,  # noqa: E402
                         values_of_model)
from whole_sources import (KEEP, compare_libraries, copied, exported_model,  # noqa: E402
                           exported_as_file, no_good, no_good_at_all, run_random, sentence,
                           shown_as_dcp, shown_by, verified)

REFUSED = {
    "experts-2.15": ["tensor mlp.experts.w: it is distributed over several groups of ranks, and "
                     "differs between", "nothing says how these are joined"],
    "partial-2.15": ["tensor w", "Partial"],
}
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
            no_good_at_all(source, *REFUSED[name])
        return
    with tap.test(f"{name}: mounted"):
        found, beside, _ = shown_by(source)
        same(found, case["tensors"], name)
        check(beside == case.get("files", []), beside)
    with tap.test(f"{name}: mounted, with the optimizer"):
        same(shown_by(source, *KEEP)[0], whole_of(name), name)
    with tap.test(f"{name}: as a distributed checkpoint"):
        same(shown_as_dcp(source), whole_of(name), name)
    with tap.test(f"{name}: exported"):
        same(exported_model(source, *KEEP), whole_of(name), name)
        same(exported_as_file(source), whole_of(name), name)
    with tap.test(f"{name}: listed, verified and planned"):
        got = good("ls", source)
        demand(got.out, f"{world} ranks", "reshardfs mount")
        # Of the directory of all steps the steps are listed.
        step = os.path.join(source, "global_step_20") if name == "verl" else source
        said = run_json("ls", step)
        check({t["name"]: t["shape"] for t in said["tensors"]} ==
              {n: e[1] for n, e in whole_of(name).items()} and said["whole"], said)
        for t in said["tensors"]:
            demand_cover(t)
        verified(source)
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
        good("steps", "--wait", "30", mount.path)
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


# ---- what is refused ----

def edited(trees, case, directory, rank, change, kind="model"):
    """A copy whose rank has a changed value in its file."""
    root = copy_of(trees, case, directory)
    path = model_file(root, CASES[case]["world"], rank, kind)
    file = TorchFile(path)
    change(file.value)
    file.write(path)
    return root


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


def run_lost_item(tap, trees, directory):
    root = copy_of(trees, "tc-pt", directory)
    with tap.test("torch_checkpointing, all files of one item are lost"):
        check("is there" not in run("plan", root).err, "a warning")
        for path in glob.glob(os.path.join(root, "optimizer_*.pt")):
            os.unlink(path)
        demand(run("plan", root).err, f'warning: {root}/metadata.pkl: no file of "optimizer" is '
               "there: nothing of it is shown")


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
                (run_damage, (trees, directory)), (run_calls, (trees, directory)),
                (run_lost_item, (trees, directory)),
                (run_library, (trees, directory)), (run_objects, (trees, directory)),
                (run_random, (directory, "ranks", range(words.seed, words.seed + words.cases),
                              40, expect_random))):
            if not words.only or function.__name__ in words.only:
                function(tap, *arguments)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
