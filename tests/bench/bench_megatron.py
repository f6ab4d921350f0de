#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A Hugging Face model for Megatron-LM on a mesh, and the peer of a mount: the converter of
MindSpeed-LLM, run by a Python that has torch and transformers, a process a command.

    bench_megatron.py make DIRECTORY BYTES      a model of LLaMA's names in bfloat16
    bench_megatron.py convert DIRECTORY TARGET TENSOR PIPELINE    with RSH_MINDSPEED_LLM, a
                            checkout -> {"seconds": S, "memory": BYTES}
    bench_megatron.py same STEP OTHER           fails if any tensor of two trees differs

What it prints is one line of JSON; seconds are without the start of Python and its imports.
"""

import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "lib"))
from daemon_use import field  # noqa: E402

HIDDEN, INNER, HEADS, KEYS, WORDS = 1024, 4096, 16, 8, 2048
CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": HIDDEN,
          "intermediate_size": INNER, "num_attention_heads": HEADS, "num_key_value_heads": KEYS,
          "head_dim": HIDDEN // HEADS, "vocab_size": WORDS, "tie_word_embeddings": False,
          "rms_norm_eps": 1e-5, "torch_dtype": "bfloat16", "max_position_embeddings": 4096}
KEY = HIDDEN // HEADS * KEYS
LAYER = {"self_attn.q_proj.weight": (HIDDEN, HIDDEN), "self_attn.k_proj.weight": (KEY, HIDDEN),
         "self_attn.v_proj.weight": (KEY, HIDDEN), "self_attn.o_proj.weight": (HIDDEN, HIDDEN),
         "mlp.gate_proj.weight": (INNER, HIDDEN), "mlp.up_proj.weight": (INNER, HIDDEN),
         "mlp.down_proj.weight": (HIDDEN, INNER), "input_layernorm.weight": (HIDDEN,),
         "post_attention_layernorm.weight": (HIDDEN,)}
# The same in every run.
BLOCK = 1 << 20


def elements(shape):
    return shape[0] * (shape[1] if len(shape) > 1 else 1)


def make(directory, size):
    import random
    layers = (int(size) // 2 - 2 * WORDS * HIDDEN) // sum(map(elements, LAYER.values()))
    layers = max(2, layers - layers % 2)
    shapes = {"model.embed_tokens.weight": (WORDS, HIDDEN), "lm_head.weight": (WORDS, HIDDEN),
              "model.norm.weight": (HIDDEN,)}
    for layer in range(layers):
        shapes.update({f"model.layers.{layer}.{n}": shape for n, shape in LAYER.items()})
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        begin, end = end, end + 2 * elements(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    os.makedirs(directory)
    chance = random.Random(1)
    with open(os.path.join(directory, "model.safetensors"), "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for at in range(0, end, BLOCK):
            f.write(chance.randbytes(min(BLOCK, end - at)))
    with open(os.path.join(directory, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**CONFIG, "num_hidden_layers": layers}, f)
    return {}


def convert(directory, target, tensor, pipeline):
    import mindspeed_software
    mindspeed_software.converter()
    output, sys.stdout = sys.stdout, sys.stderr
    begun = time.perf_counter()
    mindspeed_software.convert(directory, target, "llama2", "mg",
                               "--target-tensor-parallel-size", tensor,
                               "--target-pipeline-parallel-size", pipeline)
    seconds = time.perf_counter() - begun
    sys.stdout = output
    return {"seconds": seconds, "memory": field("self", "VmHWM") << 10}


def same(step, other):
    import torch
    names = sorted(os.listdir(step))
    if names != sorted(os.listdir(other)):
        raise SystemExit(f"{names} and {sorted(os.listdir(other))}")
    for name in names:
        mine, theirs = (torch.load(os.path.join(root, name, "model_optim_rng.pt"), mmap=True,
                                   weights_only=False)["model"] for root in (step, other))
        # As integers: a NaN equals itself.
        wrong = [n for n in set(mine) | set(theirs) if n not in mine or n not in theirs or
                 mine[n].dtype != theirs[n].dtype or
                 not torch.equal(mine[n].view(torch.int16), theirs[n].view(torch.int16))]
        if wrong:
            raise SystemExit(f"{name}: {sorted(wrong)[:5]} differ")
    return {}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[2:])))
