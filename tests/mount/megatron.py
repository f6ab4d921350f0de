#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trees of Megatron-LM (a directory for each model parallel rank) as a source of a whole
model: genuine ones of Megatron-LM and MindSpeed-LLM, with files lost, mixed and changed.
unit/test_formats_shown_megatron has what files and args are refused for.

The yardstick is data/megatron/expected.json: what the software itself joins.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
TOP = os.environ.get("top_srcdir", os.path.join(HERE, ".."))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(TOP, "python")]

from dcp_reader import Checkpoint  # noqa: E402
from dcp_trees import Called  # noqa: E402
from demands import check, content, demand, write  # noqa: E402
from megatron_random import Tree  # noqa: E402
from megatron_trees import (DATA, FILE, TRACKER, expected, files_of,  # noqa: E402
                            model_bytes, step_of, unpack)
from rank_pickles import TorchFile, named  # noqa: E402
from rsh_cli import GOOD, INPUT, good, run, run_json  # noqa: E402
from rsh_mount import Alone, Tap, require_mount  # noqa: E402
from shown_model import hashes, model_hashes, same, values_of_model  # noqa: E402
from torch_damage import ran  # noqa: E402
from whole_sources import (compare_libraries, copied, exported_model, no_good,  # noqa: E402
                           run_random, shown_as_dcp, verified)

CASES = expected()
# What is said, beside the word in expected.json.
SAID = {
    "odd-no-args": "it has no args, which say the tensor and pipeline parallel sizes",
    "odd-version1": "its checkpoint_version is 1.0, and only 3.0 is supported",
}


def copy_of(trees, case, directory):
    return copied(os.path.join(trees, CASES[case]["path"]), directory)


def changed(root, change, which=slice(None)):
    """Changes the pickles of files."""
    for path in files_of(root)[which]:
        file = TorchFile(path)
        change(file.value)
        file.write(path)
    return root


def args_of(value):
    return value["args"].state


# ---- genuine ones ----

def run_case(tap, name, case, trees):
    source = os.path.join(trees, case["path"])
    with tap.test(f"{name}: mounted"), Alone(source) as mount:
        same(model_hashes(mount.path), case["whole"], name)
    with tap.test(f"{name}: its iteration is a source too"), Alone(step_of(source)) as mount:
        same(model_hashes(mount.path), case["whole"], name)
    everything = {**case["whole"], **case.get("states", {})}
    with tap.test(f"{name}: as a distributed checkpoint"):
        same(shown_as_dcp(source), everything, name)
    with tap.test(f"{name}: exported"):
        same(exported_model(source), case["whole"], name)
    with tap.test(f"{name}: listed and verified"):
        mesh = case.get("mesh", {"tp": 2, "pp": 1, "ep": 1})
        got = good("ls", step_of(source))
        demand(got.out, f"mesh: tensor {mesh['tp']}, pipeline {mesh['pp']}",
               f"expert {mesh['ep']};", "reshardfs mount")
        said = run_json("ls", step_of(source))
        check({t["name"]: t["shape"] for t in said["tensors"]} ==
              {n: e[1] for n, e in everything.items()} and said["whole"], said)
        check(all(t["chunks"] for t in said["tensors"]), "a tensor without chunks")
        for t in said["tensors"]:
            if t["name"].endswith("experts.weight1"):
                ranks = mesh["ep"] * (mesh.get("etp") or 1)
                check(len({c["file"] for c in t["chunks"]}) >= ranks and
                      all(c["from"] is c["size"] is None and c["file"]
                          for c in t["chunks"]), t)
        verified(source)


def run_genuine(tap, trees):
    for name, case in CASES.items():
        source = os.path.join(trees, case["path"])
        if "whole" in case:
            run_case(tap, name, case, trees)
        elif "refuse" in case:
            with tap.test(f"{name}: {case['why']}"):
                no_good(source, case["refuse"], SAID.get(name, ""))
                check(run("ls", source).status != GOOD, "ls takes it")
                got = run("verify", source)
                check(got.status != GOOD, "verify takes it")
                demand(got.out + got.err, case["refuse"])


# ---- states of the optimizer ----

def optimizers_of(root):
    return [os.path.join(os.path.dirname(path), "distrib_optim.pt") for path in files_of(root)]


def buffers_of(value):
    """The dictionaries of flat tensors, of one optimizer or a list of them."""
    for one in value if isinstance(value, list) else [value]:
        for key, of_types in (one or {}).items():
            if key != "buckets_coalesced":
                yield from of_types.values()


def without_states(trees, case, directory, change, said, which=slice(None)):
    """The weights are shown, and why the states are not is said."""
    copy = copy_of(trees, case, directory)
    for path in optimizers_of(copy)[which]:
        file = TorchFile(path)
        change(file.value)
        file.write(path)
    with Alone(copy, extra=["--format", "dcp"]) as mount:
        same(hashes(Checkpoint(mount.path).values()), CASES[case]["whole"], case)
        demand(mount.log(), "the states of the optimizer are left out", "distrib_optim.pt",
               said)
    with Alone(copy) as mount:
        check("left out" not in mount.log(), mount.log())
    demand(run("ls", copy).out, "optimizer: not shown")
    shutil.rmtree(copy)


def more_padding(value):
    for buffer in buffers_of(value):
        buffer["numel_unpadded"] -= 1


def run_states(tap, trees, directory):
    two = "mg-vpp-distopt", "mg-moe-distopt"
    for case in two:
        source = os.path.join(trees, case)
        with tap.test(f"{case}: --optimizer keep"), \
                Alone(source, extra=["--optimizer", "keep"]) as mount:
            same(model_hashes(mount.path), {**CASES[case]["whole"], **CASES[case]["states"]},
                 case)
            values = json.loads(content(os.path.join(mount.path, "extra_state.json")))
            check(values["iteration"] == int(CASES[case]["step"][5:]) and
                  values["opt_param_scheduler.num_steps"] == 8 and any(
                      name.endswith("param_groups.0.lr") for name in values) and not any(
                      name.split(".")[0] in ("args", "rng_state") for name in values), values)
        with tap.test(f"{case}: states are listed"):
            demand(run("ls", source).out, "optimizer: distributed")
        with tap.test(f"{case}: several buckets"):
            without_states(trees, case, directory, more_padding, "several buckets")
        for how, lose in (("lost", os.remove), ("cut", lambda path: os.truncate(path, 900))):
            with tap.test(f"{case}: a file of states is {how}"):
                copy = copy_of(trees, case, directory)
                lose(optimizers_of(copy)[0])
                with Alone(copy) as mount:
                    same(model_hashes(mount.path), CASES[case]["whole"], case)
                    demand(mount.log(), "the optimizer's state is not complete: tensor "
                           "optimizer.state.")
                no_good(copy, "tensor optimizer.state.", "; `reshardfs mount --drop '^optimizer' "
                        f"{copy} MNT` shows the weights", extra=["--format", "dcp"])
                with Alone(copy, extra=["--format", "dcp", "--drop", "^optimizer"]) as mount:
                    same(hashes(Checkpoint(mount.path).values()), CASES[case]["whole"], case)
                shutil.rmtree(copy)
    with tap.test("states without a distributed optimizer"):
        copy = changed(copy_of(trees, "mg-few-groups", directory), lambda tree: tree.update(
            optimizer={"state": {0: next(iter(tree["model"].values()))}}))
        with Alone(copy, extra=["--format", "dcp"]) as mount:
            same(hashes(Checkpoint(mount.path).values()), CASES["mg-few-groups"]["whole"], copy)
            demand(mount.log(), "they have numbers in place of names")


def converted(case):
    return ["--convert", os.path.join(DATA, "tables", case["table"] + ".rules"),
            "--from", "mindspore",
            "--config", os.path.join(DATA, "configs", case["hf"] + ".json")]


def run_one_rank(trees):
    """What is shown of several ranks is written as the file of one rank, which has to be
    shown and converted alike."""
    case = CASES["ms-qwen3moe-etp1"]
    source = os.path.join(trees, case["path"])
    with tempfile.TemporaryDirectory() as own:
        with Alone(source) as mount:
            whole = values_of_model(mount.path)
        args = dict(args_of(TorchFile(files_of(source)[0]).value))
        args.update(tensor_model_parallel_size=1, expert_model_parallel_size=1,
                    expert_tensor_parallel_size=None)
        path = os.path.join(own, "iter_0000001", "mp_rank_00", FILE)
        write(path, model_bytes({n: v for n, v in args.items()
                                 if v is None or isinstance(v, (bool, int, float, str))},
                                {"model": whole}))
        with Alone(own) as mount:
            same(model_hashes(mount.path), case["whole"], own)
        with Alone(own, extra=converted(case)) as mount:
            same(model_hashes(mount.path), case["hf tensors"], own)


def run_convert(tap, trees):
    for name, case in CASES.items():
        if "hf" not in case:
            continue
        with tap.test(f"{name}: converted to Hugging Face's form"):
            with Alone(os.path.join(trees, case["path"]), extra=converted(case)) as mount:
                same(model_hashes(mount.path), case["hf tensors"], name)
    with tap.test("weight1 and weight2 of one rank, in any number of ranks"):
        run_one_rank(trees)


def run_tables(tap, trees):
    with tap.test("ls says which tables have the names"):
        for name, tables in (("ms-qwen3moe-gemm", ["megatron-glm4_moe", "megatron-moe"]),
                             ("ms-qwen3moe-te", ["megatron-moe-te"]),
                             ("ms-deepseek3-gemm-mtp", ["megatron-deepseek3-mtp"]),
                             ("mg-qwen-bias-qknorm", ["megatron-dense", "megatron-glm4_moe",
                                                      "megatron-moe", "megatron-moe-local"]),
                             ("mg-gpt2-tied", None)):
            source = os.path.join(trees, CASES[name]["path"])
            notes = [line for line in run("ls", source).out.splitlines() if "note: " in line]
            said = "" if len(tables or ()) < 2 else " (the model says which one is right)"
            wanted = [] if tables is None else [
                f"note: tables that have its names: {', '.join(tables)}{said}; --convert TABLE "
                "--config CONFIG shows Hugging Face's form"]
            check(notes == wanted, f"{name}: {notes}")


def run_padded(tap, trees, directory):
    source = os.path.join(trees, CASES["mg-few-groups"]["path"])
    with tap.test("rows of padding that the arguments say are cut off"):
        args = args_of(TorchFile(files_of(source)[0]).value)
        shown = {}
        for words in (args["padded_vocab_size"], args["padded_vocab_size"] - 3):
            config = os.path.join(directory, f"{words}", "config.json")
            write(config, json.dumps({
                "architectures": ["LlamaForCausalLM"], "vocab_size": words,
                "hidden_size": args["hidden_size"], "head_dim": args["kv_channels"],
                "num_attention_heads": args["num_attention_heads"],
                "num_key_value_heads": args["num_query_groups"],
                "num_hidden_layers": args["num_layers"]}).encode())
            with Alone(source, extra=["--convert", "megatron-dense", "--config", config]) as mount:
                shown[words] = values_of_model(mount.path)
                check(("has rows of padding, which are cut off" in mount.log()) ==
                      (words < args["padded_vocab_size"]), mount.log())
        whole, cut = shown.values()
        for name, (kind, shape, data) in whole.items():
            if name in ("model.embed_tokens.weight", "lm_head.weight"):
                data = data[:len(data) // shape[0] * words]
                shape = (words, *shape[1:])
            check(cut[name] == (kind, tuple(shape), data), name)


def run_differs(tap, trees):
    source = os.path.join(trees, "odd-differs")
    name = CASES["odd-differs"]["verify"]
    with tap.test("a norm that differs between ranks"):
        no_good(source, name, "should be the same", "mp_rank_00", "mp_rank_01")
        got = run("verify", source)
        check(got.status != GOOD, repr(got))
        demand(got.out + got.err, name)
        with Alone(source, extra=["--drop", name.replace(".", r"\.")]) as mount:
            check(name not in model_hashes(mount.path), "shown")


def shifted_norm(tree):
    """It begins at other elements of its buffer."""
    norm = tree["model1"]["decoder.final_layernorm.weight"]
    function, args = norm.call
    norm.call = (function, (args[0], args[1] - 64, *args[2:]))


def run_uncompared(tap, trees, directory):
    """Without checksums only verify compares, and the first copy is shown."""
    case = "mg-vpp-distopt"
    for changed_file in 1, 3:
        with tap.test(f"{case}: a norm differs between ranks, file {changed_file} is changed"):
            copy = changed(copy_of(trees, case, directory), shifted_norm,
                           slice(changed_file, changed_file + 1))
            with Alone(copy) as mount:
                found = model_hashes(mount.path)
            different = [n for n, value in CASES[case]["whole"].items() if found[n] != value]
            check(different == (["decoder.final_layernorm.weight"] if changed_file == 1 else []),
                  different)
            got = run("verify", copy)
            check(got.status != GOOD, repr(got))
            demand(got.out + got.err, "tensor decoder.final_layernorm.weight", "and differs")


# ---- steps ----

def run_steps(tap, trees, directory):
    whole = CASES["odd-half-written"]["whole"]
    source = os.path.join(trees, "odd-half-written")
    with tap.test("a newer iteration than the tracker's is not taken"), \
            Alone(source) as mount:
        same(model_hashes(mount.path), whole, source)
        demand(mount.log(), "it names step 4; iter_0000005 is newer and is not taken")
    with tap.test("without a tracker the newest complete one is taken"):
        copy = copy_of(trees, "odd-half-written", directory)
        os.remove(os.path.join(copy, TRACKER))
        with Alone(copy) as mount:
            same(model_hashes(mount.path), whole, copy)
    with tap.test("a tracker that names an iteration that is gone"):
        copy = copy_of(trees, "mg-few-groups", directory)
        write(os.path.join(copy, TRACKER), b"12")
        with Alone(copy) as mount:
            same(model_hashes(mount.path), whole, copy)
            demand(mount.log(), "it names step 12, which is not there",
                   "the newest complete step before it is taken")
    with tap.test("a tracker that names an iteration before all that are there"):
        copy = copy_of(trees, "mg-few-groups", directory)
        write(os.path.join(copy, TRACKER), b"3")
        for command in ("plan", "ls", "export"):
            got = run(command, copy, *([copy + "-out"] if command == "export" else []))
            check(got.status == INPUT and got.err == f"reshardfs: error: {copy}/{TRACKER}: it "
                  "names step 3, which is not there; iter_0000004 is newer and may not be "
                  f"complete: give {copy}/iter_0000004 as SOURCE to take it\n", got)
        with Alone(os.path.join(copy, "iter_0000004")) as mount:
            same(model_hashes(mount.path), whole, copy)
    for named in "release", "4":
        with tap.test(f"a release beside iterations: the tracker names {named}"):
            copy = copy_of(trees, "mg-few-groups", directory)
            os.rename(os.path.join(shutil.copytree(os.path.join(trees, "mg-uneven"),
                                                   copy + "-uneven"), "release"),
                      os.path.join(copy, "release"))
            write(os.path.join(copy, TRACKER), named.encode())
            with Alone(copy) as mount:
                same(model_hashes(mount.path), CASES["mg-uneven"]["whole"]
                     if named == "release" else CASES["mg-few-groups"]["whole"], named)
    for what, text, said in (("without a number", b"newest", "does not name a step"),
                             ("that is too long", b"4" + b" " * 5000, "too large for a tracker")):
        with tap.test(f"a tracker {what}"):
            copy = copy_of(trees, "mg-few-groups", directory)
            write(os.path.join(copy, TRACKER), text)
            with Alone(copy) as mount:
                same(model_hashes(mount.path), whole, copy)
                demand(mount.log(), TRACKER, said, "the newest complete step is taken")
    with tap.test("--steps all"):
        with Alone(source, extra=["--steps", "all"]) as mount:
            same(model_hashes(os.path.join(mount.path, "iter_0000004")), whole, source)
            check("iter_0000005" not in os.listdir(mount.path), os.listdir(mount.path))
    with tap.test("--resume shows the files as they are"):
        with Alone(os.path.join(trees, "mg-few-groups"), extra=["--resume"]) as mount:
            check(os.path.exists(os.path.join(mount.path, "latest", "mp_rank_01", FILE)),
                  os.listdir(mount.path))


# ---- lost, mixed and changed ----

def one_is_lost(copy, case, path, of_expert):
    whole = CASES[case]["whole"]
    dense = {name: value for name, value in whole.items() if of_expert not in name}
    name = os.path.relpath(path, copy)
    with Alone(copy, extra=["--drop", of_expert.replace(".", r"\.")]) as mount:
        same(model_hashes(mount.path), dense, case)
        demand(mount.log(), "1 of 4 files of the mesh cannot be read, such as " + name,
               "what they have is read from other files")
    no_good(copy, name, "tensor decoder.layers.")
    with Alone(copy, extra=["--allow-missing"]) as mount:
        found = model_hashes(mount.path)
        check(set(dense) <= set(found) < set(whole), found.keys())
        same(found, {n: whole[n] for n in found}, case)
    got = run("ls", copy)
    check(got.status != GOOD, repr(got))
    demand(got.err, name, "which has a part of it")
    got = run("verify", copy)
    check(got.status != GOOD, repr(got))
    demand(got.out + got.err, name)


def run_lost(tap, trees, directory):
    for case in "mg-vpp-distopt", "mg-moe-etp1", "mg-moe-local", "mg-uneven":
        with tap.test(f"{case}: without any one of its directories"):
            for path in files_of(os.path.join(trees, case)):
                copy = copy_of(trees, case, directory)
                lost = os.path.join(step_of(copy), path.split(os.sep)[-2])
                shutil.rmtree(lost)
                no_good(copy, os.path.join(lost, FILE) +
                        " is missing, which the mesh in args has")
                shutil.rmtree(copy)
    for case, of_expert in (("mg-moe-local", ".experts.local"), ("mg-moe-etp1", ".experts.local"),
                            ("mg-moe-grouped", ".experts.weight")):
        with tap.test(f"{case}: other expert ranks have what a lost or cut file had"):
            for number in range(4):
                copy = copy_of(trees, case, directory)
                path = files_of(copy)[number]
                if number % 2:
                    os.remove(path)
                else:
                    os.truncate(path, 900)
                one_is_lost(copy, case, path, of_expert)
                shutil.rmtree(copy)
    with tap.test("a file that ends too early"):
        copy = copy_of(trees, "mg-few-groups", directory)
        os.truncate(files_of(copy)[1], 1000)
        no_good(copy, "mp_rank_01", "cannot be read")


def damaged(path):
    with open(path, "r+b") as f:
        f.seek(os.path.getsize(path) // 2)
        f.write(b"other bytes" * 9)


def replaced(path):
    write(path + ".new", bytes(os.path.getsize(path)))
    os.rename(path + ".new", path)


def read_tensors(path):
    """{name: its bytes, or the error of reading them} of a mounted model."""
    found = {}
    part, = [n for n in os.listdir(path) if n.endswith(".safetensors")]
    fd = os.open(os.path.join(path, part), os.O_RDONLY)
    try:
        size = int.from_bytes(os.pread(fd, 8, 0), "little")
        for name, of in json.loads(os.pread(fd, size, 8)).items():
            if name != "__metadata__":
                begin, end = of["data_offsets"]
                try:
                    found[name] = os.pread(fd, end - begin, 8 + size + begin)
                except OSError as error:
                    found[name] = error.errno
    finally:
        os.close(fd)
    return found


def run_while_mounted(tap, trees, directory):
    """Right bytes of another expert rank, or an error with its reason."""
    case, of_expert = "mg-moe-local", ".experts.local"
    source = os.path.join(trees, case)
    with Alone(source, extra=["--cache", "off"]) as mount:
        whole = read_tensors(mount.path)
    for what, change in (("damaged", damaged), ("cut", lambda path: os.truncate(path, 900)),
                         ("replaced", replaced), ("removed", os.remove)):
        for number in range(4):
            copy = copy_of(trees, case, directory)
            path = files_of(copy)[number]
            with tap.test(f"{case}: file {number} is {what} while mounted"), \
                    Alone(copy, extra=["--cache", "off"]) as mount:
                change(path)
                found = read_tensors(mount.path)
                lost = [n for n in whole if found[n] != whole[n]]
                check(all(isinstance(found[n], int) and of_expert in n for n in lost), lost)
                # A file that is open stays as it was.
                check(bool(lost) == (what in ("damaged", "cut")), lost)
                said = [line for line in mount.log().splitlines()
                        if os.path.relpath(path, copy) in line]
                check(len(said) <= 2 and bool(said) == bool(lost), mount.log())
            shutil.rmtree(copy)


def run_mixed(tap, trees, directory):
    with tap.test("a file of another iteration: an older one is taken"):
        copy = copy_of(trees, "mg-qwen-bias-qknorm", directory)
        older = os.path.join(copy, "iter_0000005")
        shutil.copytree(step_of(copy), older)
        os.remove(os.path.join(copy, TRACKER))
        for name in os.listdir(older):
            path = os.path.join(older, name, FILE)
            file = TorchFile(path)
            file.value["iteration"] = 5
            file.write(path)
        shutil.copy(path, os.path.join(copy, "iter_0000007", name, FILE))
        with Alone(copy) as mount:
            same(model_hashes(mount.path), CASES["mg-qwen-bias-qknorm"]["whole"], copy)
            demand(mount.log(), "iter_0000007 cannot be used, using iter_0000005 instead",
                   "is of iteration ", "taking iter_0000005")
        demand(run("ls", copy).out, "is of iteration ")
        with Alone(copy, extra=["--steps", "all"]) as mount:
            check("iter_0000007" not in os.listdir(mount.path), os.listdir(mount.path))


def run_calls(tap, trees, directory):
    with tap.test("a pickle that calls"):
        copy = copy_of(trees, "odd-extra-state", directory)
        no_good(changed(copy, lambda tree: tree.update(
            extra=Called(named("os", "system"), "true"))), "cannot be read")


# ---- elsewhere: objects, the library, Python ----

ELSEWHERE = "mg-vpp-distopt", "ms-qwen3moe-gemm", "mg-moe-etp1"


def run_objects(tap, trees, directory):
    import s3_trial
    if "built without" in run("ls", "s3://bucket/x").err:
        return
    root = os.path.join(directory, "s3")
    for name in ELSEWHERE:
        shutil.copytree(os.path.join(trees, name), os.path.join(root, "bucket", name))
    with s3_trial.Server(root) as server:
        s3_trial.set_environment(server.port, directory)
        for name in ELSEWHERE:
            with tap.test(f"s3://: {name}"), Alone(f"s3://bucket/{name}") as mount:
                same(model_hashes(mount.path), CASES[name]["whole"], name)
        with tap.test("s3://: a tree takes few requests"):
            server.requests()
            got = s3_trial.run("plan", "s3://bucket/mg-moe-etp1")
            check(got.status == GOOD, repr(got))
            asked = [line for line in server.requests() if "list-type" not in line]
            print(f"# {len(asked)} requests for 4 files")
            check(len(asked) <= 4 * 6, asked)


def run_library(tap, trees, directory):
    compare_libraries(tap, trees, directory, ELSEWHERE,
                      {name: {**CASES[name]["whole"], **CASES[name].get("states", {})}
                       for name in ELSEWHERE})


# ---- many tensors ----

def made_up(root, count, name):
    """A file of `count` small tensors."""
    args = {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1,
            "num_layers": count if "layers.{" in name else 1, "num_experts": count,
            "untie_embeddings_and_output_weights": True}
    tensors = {name.format(i): ("BF16", (2, 2), bytes(8)) for i in range(count)}
    write(os.path.join(root, "iter_0000001", "mp_rank_00", FILE),
          model_bytes(args, {"model": tensors}))
    return root


def run_many(tap, trees, directory):
    if "sanitize" in os.environ.get("SANITIZER_FLAGS", ""):
        return  # they take memory themselves
    base = ran("plan", os.path.join(trees, "mg-uneven"))[3]
    for count, name in ((20000, "decoder.layers.{}.mlp.linear_fc2.weight"),
                        (16000, "decoder.layers.0.mlp.experts.local_experts.{}.linear_fc2."
                         "weight")):
        with tap.test(f"{count} tensors in one file take less than 40 MiB"):
            status, said, _, memory = ran("plan", made_up(os.path.join(directory, str(count)),
                                                          count, name))
            check(status == GOOD and memory < base + (40 << 10), f"{memory} KiB: {said}")


# ---- random ones ----

def expect_random(seed, directory):
    """The whole of a random tree, and what becomes of it without one of its files."""
    tree = Tree(seed)
    what = f"seed {seed}: {tree.describe()}"
    root, out = (os.path.join(directory, n) for n in ("source", "out"))
    tree.write(root)
    got = run("export", "--optimizer", "keep", root, out)
    check(got.status == GOOD, f"{what}: {got!r}")
    same(values_of_model(out), {**tree.tensors, **tree.states}, what)
    said = run_json("ls", root)
    check(said["whole"] and {t["name"] for t in said["tensors"]} ==
          {*tree.tensors, *tree.states}, f"{what}: ls")
    check(run_json("verify", root)["good"], f"{what}: verify")
    if len(files_of(root)) == 1:
        return
    os.remove(random.Random(seed).choice(files_of(root)))
    shutil.rmtree(out)
    got = run("export", "--allow-missing", root, out)
    what += " without a file"
    if got.status == GOOD:
        found = values_of_model(out)
        same(found, {n: tree.tensors[n] for n in found}, what)
    else:
        demand(got.err, FILE)


# ---- mutations ----

def run_mutations(tap, trees, directory, seed, cases):
    """One file of a tree with a mutated pickle: refused, or shown as it was.  With one tensor
    parallel rank a name may be any name."""
    names = [n for n, c in CASES.items() if "whole" in c and c.get("mesh", {}).get("tp") == 2]
    for number in range(seed, seed + cases):
        with tap.test(f"mutations, --seed {number} --cases 1"):
            chance = random.Random(number)
            case = chance.choice(names)
            copy = copy_of(trees, case, directory)
            path = chance.choice([p for p in (*files_of(copy), *optimizers_of(copy))
                                  if os.path.exists(p)])
            file = TorchFile(path)
            data = bytearray(file.pickle())
            for _ in range(chance.choice((1, 1, 2, 4))):
                at = chance.randrange(len(data))
                if chance.random() < 0.7:
                    data[at] ^= 1 << chance.randrange(8)
                else:
                    del data[at:at + chance.randrange(1, 9)]
            file.write(path, bytes(data))
            out = os.path.join(directory, "shown")
            got = run("export", "--optimizer", chance.choice(("keep", "auto")), copy, out)
            check(got.status in (GOOD, INPUT) and out not in got.err, repr(got))
            if got.status == GOOD:
                found = model_hashes(out)
                same({n: found[n] for n in found if not n.startswith("optimizer.")},
                     CASES[case]["whole"], case)
                shutil.rmtree(out)
            shutil.rmtree(copy)


def main():
    require_mount()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--only", help="names of functions below")
    words = parser.parse_args()
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        trees = unpack(os.path.join(directory, "trees"))
        for function, arguments in (
                (run_genuine, (trees,)), (run_states, (trees, directory)),
                (run_convert, (trees,)), (run_tables, (trees,)),
                (run_padded, (trees, directory)),
                (run_differs, (trees,)),
                (run_uncompared, (trees, directory)),
                (run_steps, (trees, directory)), (run_lost, (trees, directory)),
                (run_while_mounted, (trees, directory)),
                (run_mixed, (trees, directory)), (run_calls, (trees, directory)),
                (run_many, (trees, directory)),
                (run_objects, (trees, directory)), (run_library, (trees, directory)),
                (run_random, (directory, "trees", range(words.seed, words.seed + words.cases),
                              20, expect_random)),
                (run_mutations, (trees, directory, words.seed, words.cases))):
            if not words.only or function.__name__ in words.only:
                function(tap, *arguments)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
