#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of 8 ranks, trees of Megatron-LM and their peers, run by a Python that has torch, a
process a command.

    bench_ranks.py make DIRECTORY BYTES     a model of Qwen2's names, as verl saves it
    bench_ranks.py join DIRECTORY TARGET    torch.load of all files, cat, save_file
                            -> {"seconds": S, "first": S, "memory": BYTES}
    bench_ranks.py merge DIRECTORY TARGET   verl's merger, with RSH_VERL (lib/verl_software.py)
                            -> {"seconds": S, "first": S, "memory": BYTES}
    bench_ranks.py make_megatron DIRECTORY BYTES    the same model, tensor 2, pipeline 2
    bench_ranks.py join_megatron DIRECTORY TARGET   as join, and the names of Hugging Face
    bench_ranks.py mindspeed DIRECTORY TARGET   MindSpeed-LLM's converter, with
                            RSH_MINDSPEED_LLM (lib/mindspeed_software.py)
    bench_ranks.py make_zero DIRECTORY BYTES    the same model, as ZeRO 3 of DeepSpeed on 2 ranks
    bench_ranks.py zero DIRECTORY TARGET    DeepSpeed's zero_to_fp32.py, to safetensors
                            -> {"seconds": S, "first": S, "memory": BYTES}
    bench_ranks.py zero_lazy DIRECTORY TARGET   the same with lazy_mode
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


def make_zero(directory, size, ranks="2"):
    """Flat groups as the engine saves them: each rank has a share of each parameter."""
    import collections
    import torch
    ranks = int(ranks)
    layers = max(1, (int(size) // 4 - 2 * WORDS * HIDDEN) //
                 sum(map(elements, LAYER.values())))
    shapes = collections.OrderedDict((n, torch.Size(s)) for n, s in shapes_of(layers).items())
    shares = [-(-elements(s) // ranks) for s in shapes.values()]
    step = os.path.join(directory, "global_step1")
    os.makedirs(step)
    for rank in range(ranks):
        name = f"zero_pp_rank_{rank}_mp_rank_00"
        torch.manual_seed(rank)
        torch.save({"module": collections.OrderedDict((n, torch.empty(0, dtype=torch.bfloat16))
                                                      for n in shapes),
                    "buffer_names": [], "param_shapes": [shapes], "frozen_param_shapes": None,
                    "shared_params": {}, "frozen_param_fragments": None, "global_steps": 1,
                    "dp_world_size": ranks, "mp_world_size": 1, "ds_version": "0.19.8"},
                   os.path.join(step, f"{name}_model_states.pt"))
        torch.save({"optimizer_state_dict": {
            "zero_stage": 3, "partition_count": ranks,
            "fp32_flat_groups": [torch.empty(sum(shares)).uniform_(-1, 1)],
            "optimizer_state_dict": {"state": {}, "param_groups": []}}, "ds_version": "0.19.8"},
                   os.path.join(step, f"bf16_{name}_optim_states.pt"))
    with open(os.path.join(directory, "latest"), "w", encoding="ascii") as f:
        f.write("global_step1")
    return {}


def zero(directory, target):
    """As its command does; and as a program does that asks for the tensors."""
    from deepspeed.utils import zero_to_fp32
    begun = time.perf_counter()
    zero_to_fp32.convert_zero_checkpoint_to_fp32_state_dict(directory, target,
                                                            safe_serialization=True)
    seconds = time.perf_counter() - begun
    most, begun = memory(), time.perf_counter()
    zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(directory)
    return {"seconds": seconds, "first": time.perf_counter() - begun, "memory": most}


def zero_lazy(directory, target):
    """Tensors that are joined when they are asked for; the files are loaded before."""
    from deepspeed.utils import zero_to_fp32
    from safetensors.torch import save_file
    os.makedirs(target)
    begun, first, whole = time.perf_counter(), None, {}
    state = zero_to_fp32.get_fp32_state_dict_from_zero_checkpoint(directory, lazy_mode=True)
    for name, tensor in state.items():
        whole[name] = tensor.contiguous()
        first = first or time.perf_counter() - begun
    save_file(whole, os.path.join(target, "model.safetensors"), {"format": "pt"})
    return {"seconds": time.perf_counter() - begun, "first": first, "memory": memory()}


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


# ---- trees of Megatron-LM ----

TENSOR, PIPELINE = 2, 2


def megatron_files(directory):
    """Of each stage, the files of its tensor ranks."""
    return [[os.path.join(directory, "iter_0000001", f"mp_rank_{t:02}_{p:03}",
                          "model_optim_rng.pt") for t in range(TENSOR)] for p in range(PIPELINE)]


def make_megatron(directory, size):
    import argparse

    import torch
    layer = {"input_layernorm.weight": (HIDDEN,), "pre_mlp_layernorm.weight": (HIDDEN,),
             "self_attention.linear_qkv.weight": ((HIDDEN + 2 * KEY) // TENSOR, HIDDEN),
             "self_attention.linear_qkv.bias": ((HIDDEN + 2 * KEY) // TENSOR,),
             "self_attention.linear_proj.weight": (HIDDEN, HIDDEN // TENSOR),
             "mlp.linear_fc1.weight": (2 * INNER // TENSOR, HIDDEN),
             "mlp.linear_fc2.weight": (HIDDEN, INNER // TENSOR)}
    each = max(1, (int(size) // 2 - 2 * WORDS * HIDDEN) // PIPELINE //
               sum(map(elements, LAYER.values())))
    args = argparse.Namespace(
        num_layers=each * PIPELINE, hidden_size=HIDDEN, num_attention_heads=HEADS,
        num_query_groups=KEYS, num_key_value_heads=KEYS, kv_channels=HIDDEN // HEADS,
        ffn_hidden_size=INNER, padded_vocab_size=WORDS, make_vocab_size_divisible_by=1,
        tensor_model_parallel_size=TENSOR, pipeline_model_parallel_size=PIPELINE,
        expert_model_parallel_size=1, expert_tensor_parallel_size=1,
        untie_embeddings_and_output_weights=True, num_layers_per_virtual_pipeline_stage=None,
        num_experts=None, first_k_dense_replace=None, n_shared_experts=None, q_lora_rank=None)
    for stage, files in enumerate(megatron_files(directory)):
        for tensor, path in enumerate(files):
            shapes = {f"decoder.layers.{i}.{name}": shape for i in range(each)
                      for name, shape in layer.items()}
            if stage == 0:
                shapes["embedding.word_embeddings.weight"] = WORDS // TENSOR, HIDDEN
            if stage == PIPELINE - 1:
                shapes["decoder.final_layernorm.weight"] = (HIDDEN,)
                shapes["output_layer.weight"] = WORDS // TENSOR, HIDDEN
            model = {}
            for number, (name, shape) in enumerate(shapes.items()):
                # Norms are the same on both ranks.
                torch.manual_seed(8 * number + 2 * stage + ("norm" not in name and tensor))
                model[name] = torch.empty(shape, dtype=torch.bfloat16).uniform_(-1, 1)
            os.makedirs(os.path.dirname(path))
            torch.save({"args": args, "checkpoint_version": 3.0, "iteration": 1, "model": model},
                       path)
    with open(os.path.join(directory, "latest_checkpointed_iteration.txt"), "w",
              encoding="ascii") as f:
        f.write("1")
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**CONFIG, "num_hidden_layers": each * PIPELINE}, f)
    return {}


def joined_layer(prefix, name, parts):
    """What a tensor of a layer is in Hugging Face's form."""
    import torch
    if name.startswith("self_attention.linear_qkv"):
        rows = torch.cat(parts)
        groups = rows.reshape(KEYS, -1, *rows.shape[1:])
        heads, width = HEADS // KEYS, HIDDEN // HEADS
        for short, a, b in (("q", 0, heads), ("k", heads, heads + 1), ("v", heads + 1, heads + 2)):
            yield f"{prefix}self_attn.{short}_proj.{name.split('.')[-1]}", \
                groups[:, a * width:b * width].reshape(-1, *rows.shape[1:]).contiguous()
    elif name == "mlp.linear_fc1.weight":
        halves = [part.chunk(2) for part in parts]
        yield prefix + "mlp.gate_proj.weight", torch.cat([gate for gate, _ in halves])
        yield prefix + "mlp.up_proj.weight", torch.cat([up for _, up in halves])
    elif "norm" in name:
        yield prefix + name.replace("pre_mlp", "post_attention"), parts[0]
    else:
        yield prefix + name.replace("self_attention.linear_proj", "self_attn.o_proj").replace(
            "linear_fc2", "down_proj"), torch.cat(parts, 1)


def join_megatron(directory, target):
    import torch
    from safetensors.torch import save_file
    os.makedirs(target)
    begun, first, whole, number = time.perf_counter(), None, {}, 0
    for files in megatron_files(directory):
        models = [torch.load(path, map_location="cpu", weights_only=False)["model"]
                  for path in files]
        layers = 0
        for name in list(models[0]):
            parts = [model.pop(name) for model in models]
            if name.startswith("decoder.layers."):
                own, rest = name[len("decoder.layers."):].split(".", 1)
                layers = max(layers, int(own) + 1)
                whole.update(joined_layer(f"model.layers.{number + int(own)}.", rest, parts))
            elif "norm" in name:
                whole["model.norm.weight"] = parts[0]
            else:
                whole["model.embed_tokens.weight" if name[0] == "e" else "lm_head.weight"] = \
                    torch.cat(parts)
            first = first or time.perf_counter() - begun
        number += layers
    save_file(whole, os.path.join(target, "model.safetensors"))
    return {"seconds": time.perf_counter() - begun, "first": first, "memory": memory()}


def mindspeed(directory, target):
    import mindspeed_software
    mindspeed_software.converter()
    begun = time.perf_counter()
    mindspeed_software.convert(directory, target, "qwen25", "hf")
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
        reply = {"make": make, "join": join, "merge": merge, "make_megatron": make_megatron,
                 "join_megatron": join_megatron, "mindspeed": mindspeed, "zero": zero, "zero_lazy": zero_lazy,
                 "make_zero": make_zero, "same": same}[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(reply), file=replies)


if __name__ == "__main__":
    main()
