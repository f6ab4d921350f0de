#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--format megatron: any model as the tree of a mesh.

What is shown of the trees in data/megatron has file by file the tensors that Megatron-LM and
MindSpeed-LLM saved, for their own meshes and for those of the same model; models that are
made up are joined again by tests/lib/megatron_files.py, and by the program.
"""

import argparse
import os
import random
import re
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
TOP = os.environ.get("top_srcdir", os.path.join(HERE, ".."))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(TOP, "python")]

import random_models  # noqa: E402
from dcp_reader import Checkpoint  # noqa: E402
from demands import check, content, demand, write  # noqa: E402
from megatron_files import Joined, read_step, same_files  # noqa: E402
from megatron_trees import DATA, TRACKER, expected, step_of, unpack  # noqa: E402
from rsh_cli import GOOD, INPUT, USAGE, good, run, run_json  # noqa: E402
from rsh_mount import Alone, Tap, require_mount  # noqa: E402
from shown_model import same, values_of_model  # noqa: E402

CASES = expected()
TABLES = os.path.abspath(os.path.join(TOP, "tables"))
ENV = {"RESHARDFS_TABLES": TABLES}
# Its second chunks are in reverse order, and its experts are cut over tensor ranks too.
NOT_SHOWN = "ms-llama-dualpipev", "ms-qwen3moe-extend"
WORDS = ["--format", "megatron"]


def mesh_words(mesh):
    """The options for a mesh of expected.json."""
    axes = [f"{axis}={mesh[axis]}" for axis in ("tp", "pp", "ep", "etp", "vp")
            if mesh.get(axis, 1) > 1 or axis == "etp" and "etp" in mesh]
    layers = mesh["layers of chunks"]
    return ["--dst-mesh", ",".join(axes) or "tp=1"] + (
        ["--pipeline-layers", ",".join(map(str, layers))] if len(set(layers)) > 1 else [])


def exported(source, directory, *words):
    out = tempfile.mkdtemp(dir=directory)
    good("export", *WORDS, *words, source, out, env=ENV)
    return out


# ---- genuine trees ----

def families():
    """Cases of one model with the same names."""
    found = {}
    for name, case in CASES.items():
        if "mesh" in case:
            key = (case["hf"], case["table"]) if "hf" in case else name
            found.setdefault(key, []).append(name)
    return found.values()


def run_genuine(tap, trees, directory):
    for family in families():
        for source in family:
            for to in family:
                if to in NOT_SHOWN:
                    continue
                with tap.test(f"{source} for the mesh of {to}"):
                    shown = exported(os.path.join(trees, CASES[source]["path"]), directory,
                                     *mesh_words(CASES[to]["mesh"]))
                    same_files(read_step(step_of(shown)),
                               read_step(step_of(os.path.join(trees, CASES[to]["path"]))), to)


def run_schedules(tap, trees):
    for name, said in (("ms-llama-noop", "noop_layers"), ("ms-llama-dualpipev", "dualpipev"),
                       ("ms-llama-tp2pp2", "")):
        with tap.test(f"{name}: what the shown tree has not"):
            got = run("plan", *WORDS, "--dst-mesh", "pp=2", os.path.join(trees, name))
            check(got.status == GOOD and (f"SOURCE has {said}, and the tree that is shown has not:"
                                          in got.out if said else "SOURCE has" not in got.out),
                  repr(got))


def run_mounted(tap, trees):
    source = os.path.join(trees, "mg-moe-local")
    words = [*WORDS, *mesh_words(CASES["mg-moe-local"]["mesh"])]
    with tap.test("mounted, as a release"), Alone(source, extra=words) as mount:
        check(sorted(os.listdir(mount.path)) == [TRACKER, "release"], os.listdir(mount.path))
        check(content(os.path.join(mount.path, TRACKER)) == b"release", "tracker")
        files = read_step(step_of(mount.path))
        same_files(files, read_step(step_of(source)), source)
        for file in files.values():
            check(file.value["checkpoint_version"] == 3.0 and file.value["iteration"] == 0,
                  file.value.keys())
    with tap.test("mounted, as an iteration"), \
            Alone(source, extra=[*words, "--prefix", "iter_0000100"]) as mount:
        check(content(os.path.join(mount.path, TRACKER)) == b"100", "tracker")
        files = read_step(step_of(mount.path))
        same_files(files, read_step(step_of(source)), source)
        check(all(f.value["iteration"] == 100 for f in files.values()), "iteration")
    with tap.test("the tree is a source again"), Alone(source, extra=words) as mount:
        said = run_json("ls", mount.path)
        check({t["name"]: t["shape"] for t in said["tensors"]} ==
              {n: e[1] for n, e in CASES["mg-moe-local"]["whole"].items()}, said)
        check(run_json("verify", "--check", "full", mount.path)["good"], mount.path)
    with tap.test("a plan has the names of directories"):
        named = [f["name"] for f in run_json("plan", "--slices", *words,
                                           source)["files"]]
        check(named == [f"mp_rank_{t:02}_{e:03}/model_optim_rng.pt"
                        for e in range(2) for t in range(2)], named)
    with tap.test("another mesh is another conversion"):
        with tempfile.TemporaryDirectory() as own:
            for mesh, status in ("tp=2", GOOD), ("tp=2", GOOD), ("tp=2,ep=2", INPUT):
                got = run("export", *WORDS, "--dst-mesh", mesh, source, own)
                check(got.status == status, repr(got))
            demand(got.err, "is not of this conversion")
            for layers in "2", "1,1":
                got = run("export", *WORDS, "--dst-mesh", "tp=2", "--pipeline-layers", layers,
                          source, own)
                check(got.status != GOOD, repr(got))
    with tap.test("without a number of heads there are no args"):
        with tempfile.TemporaryDirectory() as own:
            good("export", "--format", "dcp", os.path.join(trees, "mg-moe-local"), own)
            with Alone(own, extra=words) as mount:
                demand(mount.log(), "the files have no args, since nothing says the number of "
                       "heads")
                files = read_step(step_of(mount.path))
                check(all("args" not in f.value for f in files.values()), "args")
                same_files(files, read_step(step_of(source)), source)
    for more in [], ["--drop", "nothing"]:
        with tap.test(f"the optimizer's states are left out {' '.join(more)}"), \
                Alone(os.path.join(trees, "mg-vpp-distopt"), extra=[*WORDS, *more]) as mount:
            check(os.listdir(os.path.join(mount.path, "release")) == ["mp_rank_00"], mount.path)
            for file in read_step(step_of(mount.path)).values():
                check("optimizer" not in str(file.chunks), file.chunks)
            demand(mount.log(), "tensors of an optimizer, ", "are left out, such as "
                   "optimizer.state.exp_avg.", "(--format dcp has them)")


def run_converted(tap, trees, directory):
    for name, case in CASES.items():
        if case.get("table") not in ("dense", "dense-te", "moe-local", "moe-te", "phi3",
                                     "deepseek3-split") or name in NOT_SHOWN:
            continue
        table = "megatron-" + case["table"]
        with tap.test(f"{name}: to Hugging Face's form and back by {table}"):
            config = os.path.join(DATA, "configs", case["hf"] + ".json")
            hf = tempfile.mkdtemp(dir=directory)
            good("export", "--convert", table, "--from", "mindspore", "--config", config,
                 os.path.join(trees, case["path"]), hf, env=ENV)
            shown = exported(hf, directory, *mesh_words(case["mesh"]), "--convert", table,
                             "--config", config)
            files = read_step(step_of(shown))
            same_files(files, read_step(step_of(os.path.join(trees, case["path"]))), name)
            check_args(files, case["mesh"], config)


def check_args(files, mesh, config):
    said = random_models.json.loads(content(config))
    for file in files.values():
        wanted = {"tensor_model_parallel_size": mesh["tp"],
                  "pipeline_model_parallel_size": mesh["pp"],
                  "expert_model_parallel_size": mesh["ep"],
                  "num_layers": sum(mesh["layers of chunks"]),
                  "hidden_size": said["hidden_size"],
                  "num_attention_heads": said["num_attention_heads"],
                  "untie_embeddings_and_output_weights": not mesh["tied"],
                  "add_position_embedding": True}
        for arg, value in wanted.items():
            check(file.args[arg] == value, f"{arg}: {file.args[arg]}, not {value}")


# ---- rank files of MindSpore ----

DEMO = os.path.abspath(os.path.join(HERE, "data", "demo"))
LAYER = {"ln1.gamma": "input_layernorm.weight", "ln1.beta": "input_layernorm.bias",
         "qkv": "self_attention.linear_qkv", "proj": "self_attention.linear_proj",
         "ln2.gamma": "pre_mlp_layernorm.weight", "ln2.beta": "pre_mlp_layernorm.bias",
         "up": "mlp.linear_fc1", "down": "mlp.linear_fc2"}


def renamed(directory):
    """The names of the demonstration as those of Megatron."""
    names = {}
    for tensor in run_json("ls", os.path.join(DEMO, "checkpoint", "rank_0",
                                                "gpt-1_20.ckpt"))["records"]:
        name = tensor["name"]
        match = re.match(r"blocks\.(\d+)\.(.*)", name)
        if match:
            for old, new in LAYER.items():
                if match.group(2).startswith(old):
                    names[name] = f"decoder.layers.{match.group(1)}." + \
                        match.group(2).replace(old, new, 1)
        elif name == "emb.embedding_table":
            names[name] = "embedding.word_embeddings.weight"
        elif name.startswith("head."):
            names[name] = name.replace("head.", "output_layer.")
        elif name.startswith("ln_f."):
            names[name] = "decoder.final_layernorm." + \
                {"gamma": "weight", "beta": "bias"}[name.split(".")[-1]]
    path = os.path.join(directory, "names.json")
    write(path, random_models.json.dumps(names).encode())
    return path


def run_ranks(tap, directory):
    names = renamed(directory)
    source = ["--src-strategy", os.path.join(DEMO, "strategy_8_cards.ckpt"), "--rename", names,
              "--drop", "step|rate|epoch", os.path.join(DEMO, "checkpoint")]
    plain = os.path.join(directory, "whole")
    good("export", "--format", "dcp", *source, plain)
    whole = {n: (v[0], tuple(v[1]), bytes(v[2])) for n, v in Checkpoint(plain).values().items()}
    for mesh in {"tp": 2, "pp": 1, "vp": 1}, {"tp": 4, "pp": 2, "vp": 2}, {"tp": 1, "pp": 4,
                                                                             "vp": 1}:
        mesh.update(ep=1, etp=mesh["tp"])
        with tap.test(f"rank files of MindSpore for {mesh}"):
            out = tempfile.mkdtemp(dir=directory)
            good("export", *WORDS, "--dst-mesh", ",".join(f"{a}={n}" for a, n in
                                                          mesh.items()), *source, out)
            found = Joined(read_step(step_of(out)), mesh, gated=False).values
            same({n: (kind, tuple(shape), data) for n, (kind, shape, data) in found.items()},
                 whole, mesh)


# ---- models that are made up ----

# The tables of the models, and those that do not convert the tree back: the program shows
# weight1 and weight2 as Megatron has them.
MADE = ["megatron-layers", *random_models.MADE_AS]
ONE_WAY = "megatron-moe", "megatron-deepseek3", "megatron-deepseek3-mtp"


def divisors(number, most=4):
    return [n for n in range(1, most + 1) if number % n == 0]


def common(chance, *numbers):
    """A divisor of all numbers."""
    return chance.choice([n for n in range(1, 5) if all(k % n == 0 for k in numbers)])


def random_mesh(chance, model):
    c = model.config
    heads = c["num_attention_heads"]
    groups = c.get("num_key_value_heads") or heads
    experts = getattr(model, "experts", 0)
    sizes = [heads, model.words, model.inner, getattr(model, "shared", 0),
             groups if chance.random() < 0.8 else heads]
    if experts:
        sizes.append(model.small)
    tp = common(chance, *[n for n in sizes if n])
    if groups % tp and tp % groups:
        tp = 1
    pp = chance.choice([n for n in (1, 1, 2, 3) if n <= model.layers])
    vp = chance.choice([n for n in (1, 2, 2) if pp > 1 and n * pp <= model.layers] or [1])
    chunks = pp * vp
    layers = None
    if model.layers % chunks or chance.random() < 0.3:
        cuts = sorted(chance.randrange(model.layers + 1) for _ in range(chunks - 1))
        layers = [b - a for a, b in zip([0, *cuts], [*cuts, model.layers])]
    mesh = {"tp": tp, "pp": pp, "vp": vp, "ep": chance.choice(divisors(experts)) if experts
            else chance.choice((1, 1, 2)), "etp": tp}
    if experts and chance.random() < 0.4:
        mesh["etp"] = chance.choice(divisors(tp))
    words = ",".join(f"{axis}={n}" for axis, n in mesh.items() if n > 1 or axis == "etp")
    return mesh, ["--dst-mesh", words] + (
        ["--pipeline-layers", ",".join(map(str, layers))] if layers else [])


def model_of(number):
    chance = random.Random(number)
    while True:
        model = random_models.Model(chance.randrange(1 << 30), MADE[number % len(MADE)])
        # Dense weights of blocks of fp8 are another test.
        if "fp8" not in str(model):
            return chance, model, model.table


def run_made(tap, directory, seed, cases):
    for number in range(seed, seed + cases):
        with tap.test(f"a model that is made up, --seed {number} --cases 1"):
            chance, model, table = model_of(number)
            mesh, words = random_mesh(chance, model)
            what = f"{model}, {' '.join(words)}"
            hf = model.save(tempfile.mkdtemp(dir=directory))
            plain = tempfile.mkdtemp(dir=directory)
            got = run("export", "--format", "dcp", "--convert", table, "--from", "hf", hf, plain,
                      env=ENV)
            check(got.status == GOOD, f"{what}: {got!r}")
            whole = dict(Checkpoint(plain).values())
            if chance.random() < 0.3:
                what += ", of a distributed checkpoint"
                shown = exported(plain, directory, *words, "--config", hf)
            else:
                shown = exported(hf, directory, *words, "--convert", table, "--from", "hf")
            compare(shown, mesh, model, whole, what)
            if table not in ONE_WAY:
                come_back(shown, hf, model, table, directory, what)


def compare(shown, mesh, model, whole, what):
    files = read_step(step_of(shown))
    ranks = {int(n.split("_")[2]) for n in files}
    check(len(ranks) == mesh["tp"], f"{what}: {sorted(files)}")
    join = Joined(files, mesh, getattr(model, "experts", 0), model.kind == "deepseek_v3")
    found = {n: (kind, tuple(shape), data) for n, (kind, shape, data) in join.values.items()}
    if "output_layer.weight" not in whole and mesh["pp"] > 1:
        check(found.pop("output_layer.weight") == found["embedding.word_embeddings.weight"],
              f"{what}: the head of the last stage")
    same(found, {n: (v[0], tuple(v[1]), bytes(v[2])) for n, v in whole.items()}, what)


def come_back(shown, hf, model, table, directory, what):
    again = tempfile.mkdtemp(dir=directory)
    got = run("export", "--convert", table, "--from", "mindspore", "--config", hf, shown, again,
              env=ENV)
    check(got.status == GOOD, f"{what}: {got!r}")
    same(values_of_model(again), {n: v for n, v in model.tensors.items()
                                  if "inv_freq" not in n}, what)


# ---- what is refused ----

def run_refused(tap, trees, directory):
    def refused(source, status, words, *said):
        with tap.test(f"refused: {' '.join(words)}"):
            got = run("plan", *words, source, env=ENV)
            check(got.status == status, repr(got))
            demand(got.err, *said)
            check(len(got.err.splitlines()) <= (2 if status == USAGE else 1), got.err)
            mounted = run("mount", *words, source, tempfile.mkdtemp(dir=directory), env=ENV)
            check(mounted.status == status, repr(mounted))
            demand(mounted.err, *said)

    dense, local = os.path.join(trees, "ms-llama-tp2pp2"), os.path.join(trees, "mg-moe-local")
    for status, words, said in (
            (USAGE, ["tp=2,xp=2"], ["has no axis xp, but tp, pp, ep, etp, vp, dp and cp"]),
            (USAGE, ["tp=2,dualpipev=1"], ["writes no dualpipev and no noop layers of "
                                           "MindSpeed-LLM (dualpipev)"]),
            (USAGE, ["pp=2,noop_layers=2"], ["(noop_layers): its converter makes them"]),
            (USAGE, ["tp=4,etp=3"], ["etp=3 does not divide tp=4", "overwrite each other"]),
            (USAGE, ["vp=2"], ["vp=2 needs pp"]),
            (USAGE, ["tp=1024,pp=64,ep=64"], ["more than 1048576 ranks"]),
            (USAGE, ["tp=256,ep=1024"], ["has more than 65536 files or chunks"]),
            (USAGE, ["ep=4294967296"], ["is not NAME=NUMBER"]),
            (USAGE, ["pp=2", "--pipeline-layers", "1,a"], ["is not a list of 2 numbers"]),
            (USAGE, ["pp=2", "--pipeline-layers", "1,2,1"], ["is not a list of 2 numbers"]),
            (USAGE, ["pp=2", "--prefix", "newest"], ["is not the name of a step"]),
            (USAGE, ["pp=2", "--prefix", "iter_5"],
             ["Megatron-LM calls this step iter_0000005"]),
            (INPUT, ["pp=2", "--pipeline-layers", "1,2"],
             ['"1,2" has 3 layers, and the model has 4']),
            (INPUT, ["pp=3"], ["has 4 layers", "be divided equally over 3 chunks"]),
            (INPUT, ["pp=2,vp=4"], ["over 8 chunks (pp=2, vp=4): --pipeline-layers says"]),
            (INPUT, ["tp=3"], ["linear_proj.weight: 16 columns cannot be divided over tensor "
                               "parallel size 3"]),
            (INPUT, ["tp=8"], [".weight: ", "heads cannot be divided over tensor parallel size "
                               "8"])):
        refused(dense, status, [*WORDS, "--dst-mesh", *words], *said)
    refused(local, INPUT, [*WORDS, "--dst-mesh", "ep=3"],
            "4 experts cannot be divided over expert parallel size 3")
    refused(os.path.join(trees, "mg-moe-grouped"), INPUT, [*WORDS, "--dst-mesh", "ep=3"],
            "weight1: 4 experts cannot be divided over expert parallel size 3")
    refused(os.path.join(trees, "mg-vpp-distopt"), USAGE, [*WORDS, "--optimizer", "keep"],
            "--optimizer needs --format hf")
    refused(dense, USAGE, ["--pipeline-layers", "1,3"],
            "--pipeline-layers needs --format megatron")
    refused(dense, USAGE, [*WORDS, "--dst-strategy", os.path.join(trees, "x.ckpt")],
            "--format megatron needs --dst-mesh, and no strategy")
    run_refused_models(refused, trees, directory)


def run_refused_models(refused, trees, directory):
    chance = random.Random(1)
    model = random_models.Model(chance.randrange(1 << 30), "llama")
    hf = model.save(tempfile.mkdtemp(dir=directory))
    refused(hf, INPUT, WORDS, "no tensor has a name of Megatron's", "--convert makes them")
    refused(hf, USAGE, ["--dst-mesh", "tp=2", "--convert", "llama"],
            "--dst-mesh and --convert cannot be used together")
    words = random_models.Model(3, "qwen3")
    words.tensors["model.embed_tokens.weight"] = ("BF16", (7, words.hidden),
                                                  bytes(14 * words.hidden))
    words.tensors.pop("lm_head.weight", None)
    words.config.update(vocab_size=7, num_attention_heads=2, num_key_value_heads=2)
    odd = words.save(tempfile.mkdtemp(dir=directory))
    refused(odd, INPUT, [*WORDS, "--dst-mesh", "tp=2", "--convert", "megatron-dense",
                         "--only", "embedding"],
            "embedding.word_embeddings.weight: 7 rows cannot be divided over tensor parallel "
            "size 2 (--vocab-multiple pads the vocabulary)")
    dense = os.path.join(trees, "ms-llama-tp2pp2")
    for drop, words, said in (
            (r"layers\.1\.", [], "the model has a layer 3, and no tensor of layer 1"),
            (r"layers\.[12]\.|embed|out|final", [], "and no tensor of layer 1"),
            (r"fc2", ["--dst-mesh", "tp=2"], "linear_fc1.weight: nothing says how it is "
             "divided over ranks (--drop leaves it out)")):
        refused(dense, INPUT, [*WORDS, *words, "--drop", drop], said)
    refused(os.path.join(trees, "mg-moe-local"), INPUT,
            [*WORDS, "--drop", r"local_experts\.2\."], "and not ", "local_experts.2.")


def main():
    require_mount()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=60)
    parser.add_argument("--only", help="names of functions above")
    words = parser.parse_args()
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        trees = unpack(os.path.join(directory, "trees"))
        for function, arguments in (
                (run_genuine, (trees, directory)), (run_mounted, (trees,)),
                (run_schedules, (trees,)), (run_converted, (trees, directory)),
                (run_ranks, (directory,)), (run_refused, (trees, directory)),
                (run_made, (directory, words.seed, words.cases))):
            if not words.only or function.__name__ in words.only:
                function(tap, *arguments)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
