#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trees that Megatron-LM's own save_checkpoint writes (--ckpt-format torch) of random models,
as the program shows them.

RSH_MEGATRON names a directory with Megatron-LM (see lib/megatron_software.py), and
RSH_HF_PYTHON a Python that has torch.  One process makes random weights and saves them as
torch_dist; the processes of a random mesh load these, take a step of the optimizer, and save
a tree and again torch_dist; one process loads that: its state_dict, and the states in
torch_dist, are what has to be shown.

RSH_MINDSPEED_LLM names a directory with MindSpeed-LLM (see lib/mindspeed_software.py).  Its
converter cuts Hugging Face models with random bytes for random meshes, and the mount has to
make the same models of the trees.

    megatron.py [--seed N] [--models N] [--only megatron|mindspeed]
    megatron.py make|cut|join DIRECTORY SEED PORT    what the processes do
    megatron.py convert SOURCE TARGET MODEL OPTIONS
"""

import argparse
import contextlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]

from demands import check  # noqa: E402
from shown_model import hashes, model_hashes, same, torch_entry  # noqa: E402

STATES = "param", "exp_avg", "exp_avg_sq"


class Case:
    """model  options of the model
    mesh   options of its mesh
    """

    def __init__(self, seed):
        numbers = random.Random(seed)
        choose = numbers.choice
        self.kind = choose(("dense", "dense", "local", "local", "grouped", "latent"))
        self.tensor, self.pipeline, self.expert, self.expert_tensor = choose({
            "local": ((2, 1, 2, 2), (1, 2, 2, 1), (2, 1, 4, 1), (1, 1, 4, 1), (1, 1, 1, 1)),
            "grouped": ((2, 1, 2, 2), (1, 2, 2, 1), (2, 2, 1, 2)),
            "latent": ((2, 1, 1, 2), (2, 2, 1, 2)),
            "dense": ((2, 2, 1, 2), (1, 3, 1, 1), (2, 1, 1, 2), (4, 1, 1, 4), (1, 1, 1, 1)),
        }[self.kind])
        self.world = max(self.tensor * self.pipeline,
                         self.expert * self.expert_tensor * self.pipeline)
        self.virtual = self.pipeline == 2 and numbers.random() < 0.5
        layers = 4 if self.virtual else self.pipeline * choose((1, 2))
        self.optimizer = numbers.random() < 0.5
        self.release = not self.optimizer and numbers.random() < 0.3
        self.step = numbers.randrange(1, 10 ** 4)
        hidden, heads = 8 * choose((2, 3)), 4
        self.model = [
            "--num-layers", layers, "--hidden-size", hidden, "--num-attention-heads", heads,
            "--ffn-hidden-size", 8 * choose((2, 3)), "--vocab-size", 8 * choose((3, 5)),
            "--make-vocab-size-divisible-by", 8,
            "--normalization", choose(("RMSNorm", "LayerNorm"))]
        if numbers.random() < 0.7 or self.kind == "latent":
            self.model += ["--swiglu"]
        if numbers.random() < 0.7 or self.kind != "dense":
            self.model += ["--disable-bias-linear"]
        if numbers.random() < 0.6 or self.kind == "latent":
            self.model += ["--untie-embeddings-and-output-weights"]
        self.model += ["--position-embedding-type", "rope"] \
            if numbers.random() < 0.7 or self.kind == "latent" else \
            ["--position-embedding-type", "learned_absolute"]
        if numbers.random() < 0.7:
            self.model += ["--bf16"]
        getattr(self, f"of_{self.kind}")(numbers)
        self.mesh = [
            "--tensor-model-parallel-size", self.tensor,
            "--pipeline-model-parallel-size", self.pipeline,
            "--expert-model-parallel-size", self.expert,
            "--expert-tensor-parallel-size", self.expert_tensor]
        if self.virtual:
            self.mesh += ["--num-layers-per-virtual-pipeline-stage", 1]
        elif self.pipeline == 3 and layers == 6:
            self.mesh += ["--decoder-first-pipeline-num-layers", 1,
                          "--decoder-last-pipeline-num-layers", choose((2, 3))]
        if self.optimizer:
            self.mesh += ["--use-distributed-optimizer"]

    def of_dense(self, numbers):
        if numbers.random() < 0.7:
            self.model += ["--group-query-attention", "--num-query-groups",
                           numbers.choice((1, 2, 4))]
        if numbers.random() < 0.4:
            self.model += ["--add-qkv-bias"]
        if numbers.random() < 0.4:
            self.model += ["--qk-layernorm"]

    def of_local(self, numbers):
        self.of_dense(numbers)
        self.model += [
            "--num-experts", 4, "--moe-ffn-hidden-size", 8, "--moe-router-topk", 2,
            "--moe-token-dispatcher-type", "alltoall", "--moe-router-score-function", "sigmoid",
            "--moe-router-enable-expert-bias", "--moe-router-load-balancing-type", "none"]
        if numbers.random() < 0.5:
            self.model += ["--moe-shared-expert-intermediate-size", 12]

    def of_grouped(self, numbers):
        self.of_local(numbers)
        self.model += ["--moe-grouped-gemm", "--moe-use-legacy-grouped-gemm"]

    def of_latent(self, numbers):
        self.model += [
            "--multi-latent-attention", "--q-lora-rank", 12, "--kv-lora-rank", 8,
            "--qk-head-dim", 4, "--qk-pos-emb-head-dim", 4, "--v-head-dim", 6, "--qk-layernorm"]
        if self.pipeline == 1:
            self.model += ["--mtp-num-layers", 1]

    def __str__(self):
        return " ".join(map(str, (self.kind, *self.mesh)))


# ---- under a Python that has torch ----

def states_of(directory, names):
    """The states in torch_dist, where layers are stacked, and local experts too."""
    import torch
    import torch.distributed.checkpoint as dcp
    step = next(n for n in os.listdir(directory) if n.startswith("iter"))
    reader = dcp.FileSystemReader(os.path.join(directory, step))
    stacked = {key: torch.empty(of.size, dtype=of.properties.dtype)
               for key, of in reader.read_metadata().state_dict_metadata.items()
               if key.startswith("optimizer.state.") and hasattr(of, "size")}
    dcp.load(stacked, storage_reader=reader, no_dist=True)
    found = {}
    for name in names:
        layer = re.match(r"decoder\.layers\.(\d+)\.(.*)", name)
        key = name if not layer else "decoder.layers." + layer[2]
        for old, new in (("layers.input_layernorm.", "layers.self_attention.linear_qkv.layer_norm_"),
                         ("layers.pre_mlp_layernorm.", "layers.mlp.linear_fc1.layer_norm_")):
            key = key.replace(old, new)
        expert = re.search(r"local_experts\.(\d+)\.", key)
        key = re.sub(r"local_experts\.\d+\.", "experts.", key)
        for state in STATES:
            # Latent attention keeps the names of norms.
            value = stacked.get(f"optimizer.state.{state}.{key}", stacked.get(
                f"optimizer.state.{state}.decoder.layers.{layer[2]}" if layer else None))
            if value is None:
                continue
            value = value[int(layer[1])] if layer else value
            found[f"optimizer.state.{state}.{name}"] = torch_entry(
                value[int(expert[1])] if expert else value)
    return found


def work(what, directory, seed, port, rank):
    import megatron_software as software
    case = Case(seed)
    whole = [str(o) for o in case.model]
    form = ["--load", f"{directory}/{'first' if what == 'cut' else 'second'}"]
    args, models = software.start(
        rank, case.world if what == "cut" else 1, port,
        [*whole, *(str(o) for o in case.mesh if what == "cut"), *(form if what != "make" else []),
         "--save", f"{directory}/first"])
    if what == "make":
        software.draw(models, seed)
        software.save(args, models, f"{directory}/first", case.step, "torch_dist")
        return
    software.load(models)
    if what == "join":
        state = software.state_of(models)
        with open(f"{directory}/truth.json", "w", encoding="utf-8") as f:
            json.dump([{n: torch_entry(v) for n, v in state.items()},
                       states_of(f"{directory}/second", state) if case.optimizer else {}], f)
        return
    optimizer, scheduler = software.train(args, models) if case.optimizer else (None, None)
    software.save(args, models, f"{directory}/second", case.step, "torch_dist", optimizer)
    args.iteration = case.step
    software.save(args, models, f"{directory}/tree", case.step, "torch", optimizer, scheduler,
                  case.release)


def processes(what, directory, seed, port):
    """Forks a process for each rank, which has imported Megatron; this file has its name."""
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
    import megatron_software
    megatron_software.enter()
    import megatron.core.optimizer  # noqa: F401
    import megatron.training.checkpointing  # noqa: F401
    import megatron.training.training  # noqa: F401
    ranks = []
    for rank in range(Case(seed).world if what == "cut" else 1):
        ranks.append(os.fork())
        if not ranks[-1]:
            os.setpgid(0, 0)
            status = 1
            try:
                work(what, directory, seed, port, rank)
                status = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            os._exit(status)
    failed = max([os.waitpid(pid, 0)[1] for pid in ranks]) != 0
    # What a rank started, to write in parallel, does not end with it.
    for pid in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
    return failed


# ---- MindSpeed-LLM's converter ----

# (Hugging Face's model, the converter's word, the table, options)
CONVERTED = (
    ("hf-llama", "llama2", "dense", ()), ("hf-qwen2", "qwen25", "dense", ()),
    ("hf-qwen3-tied", "qwen3", "dense", ()), ("hf-phi3", "phi3.5", "phi3", ()),
    ("hf-qwen3-tied", "qwen3", "dense-te", ("--transformer-impl", "transformer_engine")),
    ("hf-qwen3-moe", "qwen3-moe", "moe-local", ()),
    ("hf-qwen3-moe", "qwen3-moe", "moe-stacked", ("--moe-grouped-gemm",)),
    ("hf-qwen3-moe", "qwen3-moe", "moe-te", ("--moe-grouped-gemm", "--transformer-impl",
                                             "transformer_engine")),
    ("hf-deepseek3", "deepseek3", "deepseek3-split", ("--mla-mm-split",)),
    ("hf-deepseek3", "deepseek3", "deepseek3", ("--moe-grouped-gemm",)))


def converter_mesh(numbers, model, table, options):
    """Options of a random mesh that the converter can make of these small models."""
    experts = "moe" in model or "deepseek" in model
    tensor = numbers.choice((1, 2))
    pipeline = 1 if "deepseek" in model else numbers.choice((1, 2))
    expert = numbers.choice((1, 2, 4)) if experts else 1
    words = ["--target-tensor-parallel-size", tensor, "--target-pipeline-parallel-size",
             pipeline, "--target-expert-parallel-size", expert]
    way = numbers.random()
    if "--moe-grouped-gemm" in options and "deepseek" not in model and tensor > 1 and expert > 1:
        if way < 0.3:
            words += ["--expert-tensor-parallel-size", 1]
        elif way < 0.5 and expert == 2 and table == "moe-stacked":
            words += ["--moe-tp-extend-ep"]
    elif pipeline == 2 and way < 0.3:
        words += ["--noop-layers", ",".join(map(str, sorted(numbers.sample(range(
            (2 if experts else 4) + 2), 2))))]
    elif not experts and pipeline == 2 and "phi3" not in model:
        words += ["--num-layers-per-virtual-pipeline-stage", 1] if way < 0.5 else \
            ["--num-layer-list", "1,3"] if way < 0.65 else \
            ["--schedules-method", "dualpipev"] if way < 0.8 else \
            ["--schedules-method", "dualpipev", "--noop-layers", "1,3,4,6"] if way < 0.9 else []
    return words


def draw_hugging_face(directory, model, numbers):
    """Random bytes in the shapes of a small genuine model; {name: (type, shape, bytes)}."""
    from demands import write
    from dcp_trees import TYPES
    from megatron_trees import DATA, expected
    from safetensors_format import safetensors_bytes
    import math
    case = next(c for c in expected().values() if c.get("hf") == model)
    tensors = {n: (dtype, tuple(shape), numbers.randbytes(TYPES[dtype][0] * math.prod(shape)))
               for n, (dtype, shape, _) in case["hf tensors"].items()}
    if "model.embed_tokens.weight" in tensors and "tied" in model and "lm_head.weight" in tensors:
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
    part = "model-00001-of-00001.safetensors"
    write(os.path.join(directory, part), safetensors_bytes(tensors))
    write(os.path.join(directory, "model.safetensors.index.json"), json.dumps(
        {"metadata": {}, "weight_map": {n: part for n in tensors}}).encode())
    config = os.path.join(DATA, "configs", model + ".json")
    with open(config, "rb") as f:
        write(os.path.join(directory, "config.json"), f.read())
    return tensors, config


def judge_converted(tap, seed, work):
    from megatron_trees import DATA
    from rsh_cli import run_json
    from rsh_mount import Alone
    numbers = random.Random(seed)
    model, word, table, options = numbers.choice(CONVERTED)
    mesh = [str(w) for w in converter_mesh(numbers, model, table, options)]
    what = f"--seed {seed} --models 1 --only mindspeed: {model}, {' '.join([*mesh, *options])}"
    with tap.test(what), tempfile.TemporaryDirectory(dir=work) as directory:
        source, tree = (os.path.join(directory, n) for n in ("source", "tree"))
        tensors, config = draw_hugging_face(source, model, numbers)
        got = subprocess.run(
            [os.environ["RSH_HF_PYTHON"], os.path.abspath(__file__), "convert", source, tree,
             word, *mesh, *options], capture_output=True, check=False, timeout=600)
        check(got.returncode == 0, f"{what}: {got.stderr.decode()[-1500:]}")
        with Alone(tree, extra=["--convert", os.path.join(DATA, "tables", table + ".rules"),
                                "--from", "mindspore", "--config", config]) as mount:
            same(model_hashes(mount.path), hashes(tensors), what)
        check(run_json("verify", tree)["good"], what)


def convert(source, target, model, *words):
    import mindspeed_software
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != HERE]
    mindspeed_software.converter()
    mindspeed_software.convert(source, target, model, "mg", *words)
    return 0


# ---- the test ----

def make_tree(directory, seed):
    from memcached import free_port
    for what in "make", "cut", "join":
        with open(os.path.join(directory, what + ".log"), "wb") as log:
            got = subprocess.run(
                [os.environ["RSH_HF_PYTHON"], os.path.abspath(__file__), what, directory,
                 str(seed), str(free_port())], stdout=log, stderr=log, check=False, timeout=900)
        if got.returncode:
            with open(os.path.join(directory, what + ".log"), encoding="utf-8") as f:
                raise AssertionError(f"seed {seed}: {what}: {f.read()[-1500:]}")
    with open(os.path.join(directory, "truth.json"), encoding="utf-8") as f:
        return json.load(f)


def judge(tap, seed, work):
    import reshardfs
    from dcp_reader import Checkpoint
    from rsh_cli import good, run_json
    from rsh_mount import Alone
    from safetensors_format import Tensors
    case = Case(seed)
    with tempfile.TemporaryDirectory(dir=work) as directory:
        weights, states = make_tree(directory, seed)
        tree, what = os.path.join(directory, "tree"), f"--seed {seed} --models 1: {case}"
        with tap.test(what), Alone(tree) as mount:
            same(model_hashes(mount.path), weights, what)
        with tap.test(f"{what}: exported with states"):
            out = os.path.join(directory, "out")
            got = good("export", "--format", "dcp", tree, out)
            if "a buffer has several buckets" in got.err:
                states = {}
            found = hashes(Checkpoint(out).values())
            # Of grouped experts torch_dist has states in another form.
            known = {n: v for n, v in found.items()
                     if n in weights or n in states or case.kind != "grouped"}
            same(known, {**weights, **states}, what)
            check(len(found) == len(weights) or case.optimizer, found.keys())
        with tap.test(f"{what}: from Python, and verified"):
            with reshardfs.Source(tree, src_strategy="none", dst_strategy="none",
                                  format="safetensors") as opened:
                found = hashes(Tensors(bytes(opened.read(0))).values())
                same({n: found[n] for n in weights}, weights, what)
            check(run_json("verify", tree)["good"], what)


def main():
    if sys.argv[1:2] == ["convert"]:
        return convert(*sys.argv[2:])
    if sys.argv[1:2] and sys.argv[1] in ("make", "cut", "join"):
        what, directory, seed, port = sys.argv[1:]
        return processes(what, directory, int(seed), int(port))
    sys.path.insert(0, os.path.join(HERE, "..", "..", "python"))
    from run_seed import run_seed
    from rsh_mount import Tap, require_mount, reshardfs_program
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=run_seed() % 10 ** 6)
    parser.add_argument("--models", type=int, default=4)
    parser.add_argument("--only", choices=("megatron", "mindspeed"))
    words = parser.parse_args()
    if not os.environ.get("RSH_HF_PYTHON"):
        print("1..0 # SKIP RSH_HF_PYTHON does not name a Python that has torch")
        return 0
    require_mount()
    os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                            "libreshard.so.0")
    tap = Tap()
    with tempfile.TemporaryDirectory() as work:
        for function, name, only, of in (
                (judge, "RSH_MEGATRON", "megatron", "Megatron-LM"),
                (judge_converted, "RSH_MINDSPEED_LLM", "mindspeed", "MindSpeed-LLM")):
            if words.only not in (None, only):
                continue
            if not os.environ.get(name):
                tap.skip(f"trees of {of}", f"{name} does not name a directory that has {of}")
                continue
            for seed in range(words.seed, words.seed + words.models):
                function(tap, seed, work)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
