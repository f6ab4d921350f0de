#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of 8 ranks and their peers, run by a Python that has torch, a process a command.

    bench_ranks.py make DIRECTORY BYTES     a model of Qwen2's names, as verl saves it
    bench_ranks.py join DIRECTORY TARGET    torch.load of all files, cat, save_file
                            -> {"seconds": S, "first": S, "memory": BYTES}
    bench_ranks.py merge DIRECTORY TARGET   verl's merger, with RSH_VERL (lib/verl_software.py)
                            -> {"seconds": S, "first": S, "memory": BYTES}
    bench_ranks.py same TARGET MODEL        fails if any tensor differs

What it prints is one line of JSON; seconds are without the start of Python and its imports,
first those until the first tensor is there: after join has it, and at the end of merge.
"""

import contextlib
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "lib"))

RANKS = 8
HIDDEN, INNER, HEADS, KEYS, WORDS = 1024, 4096, 16, 8, 2048
CONFIG = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": HIDDEN,
          "intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": KEYS,
          "vocab_size": WORDS, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
          "max_position_embeddings": 4096}
# The merger loads and saves one.
TOKENIZER = {"version": "1.0", "added_tokens": [], "model": {
    "type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"}}
KEY = HIDDEN // HEADS * KEYS
LAYER = {"self_attn.q_proj.weight": (HIDDEN, HIDDEN), "self_attn.q_proj.bias": (HIDDEN,),
         "self_attn.k_proj.weight": (KEY, HIDDEN), "self_attn.k_proj.bias": (KEY,),
         "self_attn.v_proj.weight": (KEY, HIDDEN), "self_attn.v_proj.bias": (KEY,),
         "self_attn.o_proj.weight": (HIDDEN, HIDDEN), "mlp.gate_proj.weight": (INNER, HIDDEN),
         "mlp.up_proj.weight": (INNER, HIDDEN), "mlp.down_proj.weight": (HIDDEN, INNER),
         "input_layernorm.weight": (HIDDEN,), "post_attention_layernorm.weight": (HIDDEN,)}


def elements(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def shapes_of(layers):
    found = {"model.embed_tokens.weight": (WORDS, HIDDEN)}
    for layer in range(layers):
        found.update({f"model.layers.{layer}.{name}": shape for name, shape in LAYER.items()})
    return {**found, "model.norm.weight": (HIDDEN,), "lm_head.weight": (WORDS, HIDDEN)}


def make(directory, size):
    """One process is each rank in turn; tensors of a mesh need no other to be saved."""
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Shard
    from torch.testing._internal.distributed.fake_pg import FakeStore
    layers = max(1, (int(size) // 4 - 2 * WORDS * HIDDEN) //
                 sum(map(elements, LAYER.values())))
    os.makedirs(os.path.join(directory, "huggingface"))
    for rank in range(RANKS):
        dist.init_process_group("fake", store=FakeStore(), rank=rank, world_size=RANKS)
        mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("fsdp",))
        torch.manual_seed(rank)
        state = {}
        for name, shape in shapes_of(layers).items():
            local = torch.empty((shape[0] // RANKS, *shape[1:])).uniform_(-1, 1)
            state[name] = DTensor.from_local(local, mesh, [Shard(0)], run_check=False)
        torch.save(state, f"{directory}/model_world_size_{RANKS}_rank_{rank}.pt")
        dist.destroy_process_group()
    for name, value in (("huggingface/config.json", {**CONFIG, "num_hidden_layers": layers}),
                        ("huggingface/tokenizer.json", TOKENIZER),
                        ("huggingface/tokenizer_config.json", {
                            "tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}),
                        ("fsdp_config.json", {"FSDP_version": 2, "world_size": RANKS})):
        with open(os.path.join(directory, name), "w", encoding="utf-8") as f:
            json.dump(value, f)
    return {}


def memory():
    with open("/proc/self/status", encoding="ascii", errors="replace") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM:"))


def join(directory, target):
    import torch
    from safetensors.torch import save_file
    from torch.distributed.tensor import DTensor  # noqa: F401, to be found by torch.load
    os.makedirs(target)
    begun, first = time.perf_counter(), None
    files = [torch.load(f"{directory}/model_world_size_{RANKS}_rank_{rank}.pt",
                        map_location="cpu", weights_only=True) for rank in range(RANKS)]
    whole = {}
    for name in list(files[0]):
        whole[name] = torch.cat([file.pop(name).to_local() for file in files])
        first = first or time.perf_counter() - begun
    save_file(whole, os.path.join(target, "model.safetensors"))
    return {"seconds": time.perf_counter() - begun, "first": first, "memory": memory()}


def merge(directory, target):
    import verl_software
    verl_software.enter()
    from verl.model_merger.base_model_merger import ModelMergerConfig
    from verl.model_merger.fsdp_model_merger import FSDPModelMerger
    os.makedirs(target)
    begun = time.perf_counter()
    FSDPModelMerger(ModelMergerConfig(
        operation="merge", backend="fsdp", local_dir=directory, target_dir=target,
        hf_model_config_path=os.path.join(directory, "huggingface"))).merge_and_save()
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "first": seconds, "memory": memory()}


def tensors_of(directory):
    from safetensors import safe_open
    for name in sorted(os.listdir(directory)):
        if name.endswith(".safetensors"):
            with safe_open(os.path.join(directory, name), "pt") as f:
                for tensor in f.keys():
                    yield tensor, f.get_tensor(tensor)


def same(target, model):
    import torch

    def bits(tensor):
        return tensor.contiguous().reshape(-1).view(torch.uint8)
    wanted = dict(tensors_of(target))
    for name, tensor in tensors_of(model):
        other = wanted.pop(name)
        assert other.dtype == tensor.dtype and other.shape == tensor.shape and \
            bits(other).equal(bits(tensor)), name
    assert not wanted, list(wanted)
    return {}


def main():
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with contextlib.redirect_stdout(sys.stderr):
        reply = {"make": make, "join": join, "merge": merge, "same": same}[sys.argv[1]](
            *sys.argv[2:])
    print(json.dumps(reply), file=replies)


if __name__ == "__main__":
    main()
