#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vLLM's own loader with `--load-format reshardfs`, on the CPU.

RSH_VLLM_PYTHON names a Python that has vllm.  It saves tiny models of random weights, which
are exported as the ranks of a strategy.  vLLM finds the plug-in as it finds those of a wheel,
and loads the ranks into its classes of the models: every parameter has the bytes that it has
when vLLM loads the model itself, in one process, and in two that are tensor-parallel under
gloo, of which each reads its parts alone.

    vllm_loads.py
    vllm_loads.py make DIRECTORY          the models, under that Python
    vllm_loads.py load RANK WORLD DIRECTORY OPTIONS [WORD]    what a process of vLLM does
"""

import json
import os
import subprocess
import sys
import tempfile
import types

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(HERE, "..", "lib")]
COMMON = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
          "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
          "max_position_embeddings": 64, "tie_word_embeddings": False}
# A model, its class's stem in transformers, what its configuration has besides, the table.
MODELS = {"dense": ("Qwen3", {"head_dim": 16}, "qwen3"),
          "experts": ("Qwen3Moe", {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2,
                                   "moe_intermediate_size": 32}, "qwen3_moe"),
          "biases": ("Qwen2", {}, "qwen2")}
RANKS = 4


# ---- under RSH_VLLM_PYTHON ----

def make(directory):
    import torch
    import transformers
    torch.manual_seed(7)
    for name, (stem, more, _) in MODELS.items():
        config = getattr(transformers, f"{stem}Config")(**{**COMMON, **more, "dtype": "bfloat16"})
        model = getattr(transformers, f"{stem}ForCausalLM")(config).to(torch.bfloat16)
        for parameter in model.parameters():
            parameter.data.normal_()
        model.save_pretrained(os.path.join(directory, name))


def parameters(config, load_config):
    """The parameters that vLLM has loaded, and the bytes that reshardfs has read."""
    import reshardfs
    from vllm.model_executor.model_loader import base_loader, get_model
    read, load = [0], reshardfs.Source._load_wants

    def counted(source, wants, n, whole, *more, **others):
        read[0] += whole
        return load(source, wants, n, whole, *more, **others)

    reshardfs.Source._load_wants = counted
    # It packs weights for kernels; a wheel for GPUs has none for the CPU.
    base_loader.process_weights_after_loading = lambda *_: None
    config.compilation_config.static_forward_context.clear()
    model = get_model(vllm_config=config, load_config=load_config)
    reshardfs.Source._load_wants = load
    return {name: p.data for name, p in model.named_parameters()}, read[0]


class Drafts:
    """A configuration of speculative decoding, in which all else is off."""

    def __init__(self, target):
        self.target_model_config = types.SimpleNamespace(model=target)

    def __getattr__(self, name):
        return None


def load(rank, world, directory, options):
    import dataclasses
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import ensure_model_parallel_initialized, init_distributed_environment
    from vllm.engine.arg_utils import EngineArgs
    rank, world, options = int(rank), int(world), json.loads(options)
    config = EngineArgs(model=directory, skip_tokenizer_init=True, enforce_eager=True,
                        dtype="bfloat16", max_model_len=64,
                        tensor_parallel_size=world).create_engine_config()
    with set_current_vllm_config(config):
        init_distributed_environment(world, rank, f"file://{directory}.meeting{world}", rank,
                                     backend="gloo")
        ensure_model_parallel_initialized(world, 1)
        expected, _ = parameters(config, config.load_config)
        target = options.pop("target", None)
        if target:
            config.speculative_config = Drafts(target)
        try:
            found, read = parameters(config, dataclasses.replace(
                config.load_config, load_format="reshardfs", model_loader_extra_config=options))
        except Exception as error:  # pylint: disable=broad-except
            print(json.dumps({"failed": f"{type(error).__name__}: {error}"}))
            return
    wrong = [name for name, p in expected.items() if not torch.equal(
        p.contiguous().view(torch.uint8), found[name].contiguous().view(torch.uint8))]
    print(json.dumps({"wrong": wrong, "count": len(found), "read": read,
                      "same": found.keys() == expected.keys()}))


if sys.argv[1:2] == ["make"]:
    make(sys.argv[2])
    sys.exit(0)
if sys.argv[1:2] == ["load"]:
    load(*sys.argv[2:])
    sys.exit(0)

from demands import check, write  # noqa: E402
from ms_formats import Layout, StageFile, strategy_bytes  # noqa: E402
from rsh_cli import good, run  # noqa: E402
from rsh_mount import Tap, require_named, reshardfs_program  # noqa: E402

sys.path[:0] = [os.path.join(TOP, "python")]
import backend  # noqa: E402


def started(environment, *words):
    return subprocess.Popen([os.environ["RSH_VLLM_PYTHON"], os.path.abspath(__file__), *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment)


def ended(process):
    out, err = process.communicate(timeout=600)
    check(process.returncode == 0, err[-3000:])
    return out


def exported(*words):
    good("export", *words)


def records(path):
    return json.loads(run("ls", "--json", path).out)["records"]


def as_ranks(directory, name):
    """The options of the plug-in for a model as ranks, whose matrices are cut by rows."""
    model, ranks = os.path.join(directory, name), os.path.join(directory, f"{name}-ranks")
    convert = ["--convert", MODELS[name][2], "--from", "hf", "--format", "ckpt"]
    exported(*convert, "--dst-strategy", "none", model, f"{ranks}-whole")
    names = [one["name"] for one in records(
        os.path.join(f"{ranks}-whole", "rank_0", "checkpoint_0.ckpt"))
        if len(one["shape"]) == 2 and one["shape"][0] % RANKS == 0]
    strategy = os.path.join(directory, f"{name}.ckpt")
    write(strategy, strategy_bytes(StageFile(0, {n: Layout([RANKS], [0, -1]) for n in names})))
    exported(*convert, "--dst-strategy", strategy, model, ranks)
    return {"source": ranks, "src_strategy": strategy, "convert": MODELS[name][2],
            "config": os.path.join(model, "config.json")}


def installed(directory):
    """The environment of a Python in which the module is installed, as by the wheel."""
    info = os.path.join(directory, "site", f"{backend.stem()}.dist-info")
    write(os.path.join(info, "METADATA"), backend.metadata())
    write(os.path.join(info, "entry_points.txt"), backend.entry_points())
    library = os.path.join(os.path.dirname(reshardfs_program()), ".libs", "libreshard.so.0")
    return {**os.environ, "LIBRESHARD": library, "GLOO_SOCKET_IFNAME": "lo",
            "VLLM_TARGET_DEVICE": "cpu", "HF_HUB_OFFLINE": "1",
            "RESHARDFS_TABLES": os.path.join(TOP, "tables"),
            "PYTHONPATH": os.pathsep.join([os.path.join(TOP, "python"),
                                           os.path.join(directory, "site")])}


def loaded(environment, world, model, options):
    processes = [started(environment, "load", str(rank), str(world), model, json.dumps(options))
                 for rank in range(world)]
    return [json.loads(ended(p).splitlines()[-1]) for p in processes]


def demand_right(said, whole):
    for one in said:
        check(not one.get("failed"), one)
        check(one["same"] and one["count"] and not one["wrong"], one)
        share = one["read"] / whole
        # Norms are whole on each.
        check(share == 1 if len(said) == 1 else share < 0.6, f"{share} of the model was read")


def main():
    require_named("RSH_VLLM_PYTHON", "a Python that has vllm")
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        environment = installed(directory)
        ended(started(environment, "make", directory))
        for name in MODELS:
            model = os.path.join(directory, name)
            options = as_ranks(directory, name)
            whole = sum(one["bytes"] for one in records(
                os.path.join(model, "model.safetensors")))
            for world in 1, 2:
                with tap.test(f"{name}: ranks, {world} processes of vLLM"):
                    demand_right(loaded(environment, world, model, options), whole)
        with tap.test("the model itself"):
            demand_right(loaded(environment, 1, model, {}), whole)
        with tap.test("a draft model has weights of its own"):
            demand_right(loaded(environment, 1, model, {"source": "/nowhere", "target": "/another"}), whole)
        with tap.test("a source that is not there, an option that does not exist: one sentence"):
            for options in {**options, "source": "/nowhere"}, {**options, "src_strateg": "x"}:
                said, = loaded(environment, 1, model, options)
                check("Error: " in said.get("failed", "") and "\n" not in said["failed"], said)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
