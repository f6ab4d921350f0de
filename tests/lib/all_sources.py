# SPDX-License-Identifier: Apache-2.0
"""Small sources of every kind whose bytes reach a reader in a way of their own: rows of
ranks, chunks of distributed checkpoints, parts of tensors in files of torch.save(),
matrices that are shown transposed, scaled 8-bit floats, adapters, and weights in another
form.

Options are keywords of the module; words() makes them those of the library.
"""

import json
import os
import random
import typing

import adapters
import dcp_trees
import deepspeed_trees
import make_tree
import megatron_random
import random_models
import rank_trees
import rule_tables
import version_chains
from demands import write
from safetensors_format import safetensors_bytes
from tuned_experts import Tuned

WEIGHTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "weights")
BOTH = {"src_strategy": "none", "dst_strategy": "none"}


class Kind(typing.NamedTuple):
    name: str
    source: str
    options: dict


def words(options):
    return [f"{name.rstrip('_')}={value}" for name, value in options.items()]


def _ranks(directory, numbers):
    make_tree.write_tree(directory, *make_tree.random_tree(numbers, 6, 1 << 18), numbers)
    src, dst = (os.path.join(directory, name) for name in ("source.ckpt", "wanted.ckpt"))
    options = {"src_strategy": src, "dst_strategy": dst, "cast": "float32"}
    return Kind("ranks, cast", os.path.join(directory, "source"), options)


def _distributed(directory, numbers, kind):
    tree = dcp_trees.random_tree(numbers.getrandbits(31), kind)
    while not any(t.content for t in tree.tensors.values()):
        tree = dcp_trees.random_tree(numbers.getrandbits(31), kind)
    tree.write(directory)
    return Kind(f"distributed: {tree.describe()}", directory, {**BOTH, "format": "safetensors"})


def _torch_ranks(directory, numbers):
    """A file of torch.save() for each rank."""
    tree = rank_trees.random_tree(numbers.getrandbits(31))
    while not any(t.content for t in tree.tensors.values()):
        tree = rank_trees.random_tree(numbers.getrandbits(31))
    tree.write(directory)
    return Kind(f"files of ranks: {tree.describe()}", directory, {**BOTH, "format": "safetensors"})


def _megatron(directory, numbers):
    """A directory for each model parallel rank."""
    tree = megatron_random.Tree(numbers.getrandbits(31))
    tree.write(directory)
    return Kind(f"Megatron: {tree.describe()}", directory, {**BOTH, "format": "safetensors"})


def _deepspeed(directory, numbers):
    """Masters and states of ZeRO 1, 2 or 3, or in the universal form."""
    tree = deepspeed_trees.random_tree(numbers.getrandbits(31))
    tree.write(directory)
    return Kind(f"DeepSpeed: {tree.describe()}", directory, {**BOTH, "format": "safetensors"})


def _versions(directory, numbers):
    """Bytes that are made of a base and deltas."""
    chain = version_chains.RandomChain(numbers.getrandbits(31))
    while not any(data for _, _, data in chain.base.values()):
        chain = version_chains.RandomChain(numbers.getrandbits(31))
    source, base = chain.write(directory)
    return Kind(f"versions: {chain.describe()}", source,
                {**BOTH, "format": "safetensors", "base": base})


def _transposed(directory, numbers):
    """Chunks with their columns first, larger than what is turned at a time."""
    tensors = {}
    for name, dtype, rows, columns, at in (("a", "F32", 300, 700, 123), ("b", "BF16", 64, 900, 63),
                                           ("c", "U8", 700, 500, 350)):
        width = dcp_trees.TYPES[dtype][0]
        tensors[name] = dcp_trees.Tensor(
            dtype, (rows, columns), numbers.randbytes(width * rows * columns),
            [((0, 0), (at, columns)), ((at, 0), (rows - at, columns))], {0: [1, 0], 1: [1, 0]})
    dcp_trees.Tree("torch", tensors, {}, numbers).write(directory)
    return Kind("transposed", directory, {**BOTH, "format": "safetensors"})


def _genuine(model, **options):
    return Kind(f"{model} in MindSpore's form", os.path.join(WEIGHTS, "models", model),
                {**BOTH, "convert": "auto", "from_": "hf", **options})


def _converted(directory, numbers, table):
    """A model as ranks of another form."""
    model = random_models.Model(numbers.getrandbits(31), table)
    return Kind(f"{model} in MindSpore's form", model.save(directory),
                {**BOTH, "convert": model.table, "from_": "hf"})


def _adapted(directory, numbers):
    """A model with an adapter, whose rows are cut when it is converted."""
    drawer = adapters.Drawer(numbers)
    source = os.path.join(directory, "model")
    write(os.path.join(source, "model.safetensors"), safetensors_bytes(drawer.model()))
    write(os.path.join(source, "config.json"), json.dumps(drawer.config()).encode())
    adapter = drawer.adapter().write(os.path.join(directory, "adapter"))
    return Kind("model with an adapter", source,
                {**BOTH, "convert": "qwen3", "format": "safetensors", "lora": adapter})


def _experts(directory, numbers, stacked):
    """A model that is shown with the other form of its experts."""
    tuned = Tuned(numbers.getrandbits(31))
    tensors = tuned.model
    if stacked:
        table = "hf5-mixtral" if tuned.at != "mlp" else "hf5-qwen2_moe"
        tensors = rule_tables.load_table(table).convert(tensors, tuned.config, "hf")
    return Kind(f"experts {'stacked' if stacked else 'apart'}",
                tuned.save_model(directory, tensors), {**BOTH, "convert": "hf5", "format": "hf"})


def _tuned(directory, numbers, stacked):
    """An adapter that is shown for the other form of the experts."""
    tuned = Tuned(numbers.getrandbits(31))
    base = tuned.save_model(os.path.join(directory, "base"))
    adapted = [tuned.parts[i] for i in tuned.adapted]
    source = tuned.save(directory, "adapter", tuned.apart, target_modules=["q_proj", *adapted]) \
        if not stacked else tuned.save(
            directory, "adapter", tuned.fused, r=tuned.rank * (2 if len(adapted) > 1 else 1),
            target_modules=["q_proj"], target_parameters=[
                *(["gate_up_proj"] if len(adapted) > 1 else []),
                *(["down_proj"] if len(adapted) != 2 else [])],
            rank_pattern={} if len(adapted) == 1 else {
                "q_proj": tuned.rank, "down_proj": tuned.rank})
    return Kind(f"an adapter of experts {'stacked' if stacked else 'apart'}", source,
                {**BOTH, "convert": "hf5", "format": "peft", "config": base})


def all_sources(directory, seed):
    """A Kind for each; what is random follows from the seed."""
    numbers = random.Random(seed)
    ways = (_ranks, _transposed, _adapted, _torch_ranks, _torch_ranks, _megatron, _megatron,
            _deepspeed, _deepspeed, _versions, _versions,
            *(lambda d, n, way=way, stacked=stacked: way(d, n, stacked)
              for way in (_experts, _tuned) for stacked in (False, True)),
            *(lambda d, n, kind=kind: _distributed(d, n, kind)
              for kind in ("torch", "torch", "hf", "hyper")),
            *(lambda d, n, table=table: _converted(d, n, table)
              for table in ("qwen3_moe", "deepseek_v3")))
    kinds = [way(os.path.join(directory, f"kind-{number}"), numbers)
             for number, way in enumerate(ways)]
    strategies = os.path.join(WEIGHTS, "strategies", "deepseek_v3-fp8.deepseek_v3.dp2mp2.ckpt")
    back = {"convert": "auto", "from_": "mindspore", "format": "hf", "unlisted": "drop",
            "config": os.path.join(WEIGHTS, "models", "deepseek_v3", "config.json")}
    return kinds + [
        _genuine("deepseek_v3-fp8"), _genuine("deepseek_v3-fp8", dst_strategy=strategies),
        Kind("deepseek_v3 back in parts", os.path.join(WEIGHTS, "mindspore", "deepseek_v3"),
             {**BOTH, **back, "part_size": "20KB"})]
