#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models converted to Megatron-Core and back, compared with Megatron-Bridge.

RSH_HF_PYTHON names a Python that has torch and transformers 5, RSH_MEGATRON_BRIDGE a
directory with Megatron-Bridge (lib/bridge_software.py).  Models are drawn at random, saved by
transformers, and converted by the mappings of Megatron-Bridge to a distributed checkpoint.
What --convert shows of either must have the bits of what Megatron-Bridge makes of it.

    megatron_bridge.py [--seed N] [--models N]     the test
    megatron_bridge.py make DIRECTORY SEED N       what the other Python does for it, which also
                                                   made data/model_names/bridge.*
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]
os.environ["RESHARDFS_TABLES"] = os.path.abspath(os.path.join(HERE, "..", "..", "tables"))

# A family: the table, and the class of Megatron-Bridge.
FAMILIES = {
    "kimi_k2": ("deepseek_v3", "kimi.kimi_bridge", "KimiK2Bridge"),
    "deepseek_v3": ("deepseek_v3", "deepseek.deepseek_v3_bridge", "DeepSeekV3Bridge"),
    "kimi_k25": ("kimi_k25", "kimi_vl.kimi_k25_vl_bridge", "KimiK25VLBridge"),
    "glm4_moe": ("glm4_moe", "glm.glm45_bridge", "GLM45Bridge"),
    "glm_moe_dsa": ("glm_moe_dsa", "glm_moe_dsa.glm5_bridge", "GLM5Bridge"),
    "qwen3_next": ("qwen3_next", "qwen.qwen3_next_bridge", "Qwen3NextBridge"),
    "qwen3_5_moe_text": ("qwen3_5_moe", "qwen.qwen35_bridge", "Qwen35MoEBridge"),
    "qwen3_5_text": ("qwen3_5", "qwen.qwen35_bridge", "Qwen35Bridge"),
    "qwen3_5_moe": ("qwen3_5_moe_vl", "qwen_vl.qwen35_vl_bridge", "Qwen35VLMoEBridge"),
    "qwen3_5": ("qwen3_5_vl", "qwen_vl.qwen35_vl_bridge", "Qwen35VLBridge"),
    "gemma4_text": ("gemma4", "gemma.gemma4_bridge", "Gemma4Bridge"),
    "gemma4_moe_text": ("gemma4_moe", "gemma.gemma4_bridge", "Gemma4Bridge"),
    "gemma4": ("gemma4_vl", "gemma_vl.gemma4_vl_bridge", "Gemma4VLBridge"),
    "gemma4_moe": ("gemma4_moe_vl", "gemma_vl.gemma4_vl_bridge", "Gemma4VLBridge"),
}
LATENT = "deepseek_v3", "kimi_k2", "kimi_k25", "glm_moe_dsa"
GEMMA = "gemma4_text", "gemma4_moe_text", "gemma4", "gemma4_moe"
IMAGES = "qwen3_5_moe", "qwen3_5", "gemma4", "gemma4_moe"
LINEAR = "qwen3_next", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_5_moe", "qwen3_5"
# The names of layers before their number.
LAYERS = {family: "model.language_model.layers." for family in IMAGES}


# ---- under RSH_HF_PYTHON ----

def sizes(numbers, family):
    """What the configuration of a model has."""
    layers = numbers.randint(2, 4)
    groups = numbers.choice((1, 2))
    says = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24,
            "num_hidden_layers": layers, "num_attention_heads": groups * numbers.choice((1, 2)),
            "num_key_value_heads": groups, "head_dim": 8, "max_position_embeddings": 64,
            "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
            "tie_word_embeddings": False}
    experts = numbers.choice((2, 4, 12))
    if family in LATENT:
        says.update(q_lora_rank=8, kv_lora_rank=numbers.choice((8, 12)), qk_nope_head_dim=8,
                    qk_rope_head_dim=4, v_head_dim=numbers.choice((6, 8)), head_dim=4,
                    num_key_value_heads=says["num_attention_heads"])
    if family in LATENT or family == "glm4_moe":
        says.update(n_routed_experts=experts, num_experts_per_tok=2, n_group=1, topk_group=1,
                    moe_intermediate_size=6, first_k_dense_replace=numbers.choice((0, 1)))
    if family == "glm4_moe":
        says.update(use_qk_norm=numbers.random() < 0.5, attention_bias=numbers.random() < 0.5)
    if family == "glm_moe_dsa":
        says.update(index_n_heads=2, index_head_dim=8, index_topk=4)
    if family in LINEAR:
        keys = numbers.choice((1, 2))
        says.update(linear_num_key_heads=keys, linear_num_value_heads=keys * numbers.choice((1, 2)),
                    linear_key_head_dim=8, linear_value_head_dim=numbers.choice((6, 8)),
                    layer_types=[numbers.choice(("linear_attention", "full_attention"))
                                 for _ in range(layers)])
    if family in LINEAR and family not in ("qwen3_5_text", "qwen3_5"):
        says.update(num_experts=experts, num_experts_per_tok=2, moe_intermediate_size=6,
                    shared_expert_intermediate_size=6)
    if family in GEMMA:
        kinds = [numbers.choice(("sliding_attention", "full_attention"))
                 for _ in range(layers - 1)]
        says.update(layer_types=kinds + ["full_attention"], sliding_window=16,
                    attention_k_eq_v=numbers.random() < 0.7, tie_word_embeddings=True,
                    global_head_dim=numbers.choice((8, 12)), hidden_size_per_layer_input=0,
                    num_global_key_value_heads=numbers.choice((1, groups)))
    if family in ("gemma4_text", "gemma4"):
        says.update(hidden_size_per_layer_input=numbers.choice((0, 4)),
                    vocab_size_per_layer_input=40)
    if family in ("gemma4_moe_text", "gemma4_moe"):
        says.update(enable_moe_block=True, num_experts=experts, top_k_experts=2,
                    moe_intermediate_size=6)
    return says


def vision(numbers, family):
    heads = numbers.choice((1, 2, 4))
    if family in GEMMA:
        return {"hidden_size": 8 * heads, "num_attention_heads": heads, "head_dim": 8,
                "num_key_value_heads": heads, "intermediate_size": 24, "patch_size": 4,
                "num_hidden_layers": numbers.choice((1, 2)), "position_embedding_size": 16}
    return {"depth": numbers.choice((1, 2)), "hidden_size": 8 * heads, "num_heads": heads,
            "intermediate_size": 24, "patch_size": 4, "temporal_patch_size": 1,
            "spatial_merge_size": 1, "out_hidden_size": 16, "in_channels": 3,
            "num_position_embeddings": 16}


def as_published(says, text):
    """What earlier transformers, and the published models, have in place of 5.24's numbers
    of single layers."""
    text.pop("per_layer_config", None)
    text.update({key: says[key] for key in ("global_head_dim", "num_global_key_value_heads")})


def predicting(torch, family, tensors, config):
    """Adds a layer of prediction, which transformers leaves out: a layer with other numbers."""
    layers, hidden = config["num_hidden_layers"], config["hidden_size"]
    last = f"model.layers.{layers - 1}."
    if family in LINEAR:
        full = [i for i, kind in enumerate(config["layer_types"]) if kind == "full_attention"]
        if not full:
            return
        last = f"{LAYERS.get(family, 'model.layers.')}{full[0]}."
        to = "mtp.layers.0."
        more = {"mtp.fc": (hidden, 2 * hidden), "mtp.norm": (hidden,),
                "mtp.pre_fc_norm_embedding": (hidden,), "mtp.pre_fc_norm_hidden": (hidden,)}
    else:
        to = f"model.layers.{layers}."
        more = {to + "eh_proj": (hidden, 2 * hidden), to + "enorm": (hidden,),
                to + "hnorm": (hidden,), to + "shared_head.norm": (hidden,)}
        config["num_nextn_predict_layers"] = 1
    made = {to + name[len(last):]: tensor.shape for name, tensor in tensors.items()
            if name.startswith(last)}
    for name in [n for n in made if n.endswith((".gate_up_proj", ".down_proj"))
                 and ".experts." in n]:
        experts, rows, columns = made.pop(name)
        parts = (("gate_proj", rows // 2), ("up_proj", rows // 2)) \
            if "gate_up" in name else (("down_proj", rows),)
        for part, size in parts:
            for expert in range(experts):
                made[f"{name.rpartition('.')[0]}.{expert}.{part}.weight"] = size, columns
    made.update({name + ".weight": shape for name, shape in more.items()})
    for name, shape in made.items():
        tensors[name] = torch.randn(tuple(shape)).to(torch.bfloat16)


def draw(torch, transformers, family, numbers, directory):
    """(tensors, config as a dict, config as transformers has it); saves the left side."""
    from safetensors.torch import load_file, save_file
    says = sizes(numbers, family)
    torch.manual_seed(numbers.randrange(1 << 30))
    kind = {"kimi_k2": "deepseek_v3", "kimi_k25": "deepseek_v3", "gemma4_moe_text": "gemma4_text",
            "gemma4_moe": "gemma4"}.get(family, family)
    config = transformers.CONFIG_MAPPING[kind](**says) if family not in IMAGES else \
        transformers.CONFIG_MAPPING[kind](text_config=says, vision_config=vision(numbers, family))
    kind = transformers.AutoModelForCausalLM if family not in IMAGES else \
        transformers.AutoModelForImageTextToText
    model = kind.from_config(config).to(torch.bfloat16)
    left = os.path.join(directory, "left")
    model.save_pretrained(left, save_original_format=not family.startswith("qwen3_5_moe"))
    tensors = {name: torch.randn(tensor.shape).to(torch.bfloat16)
               for name, tensor in load_file(os.path.join(left, "model.safetensors")).items()}
    with open(os.path.join(left, "config.json"), encoding="utf-8") as f:
        text = json.load(f)
    text.get("text_config", text).setdefault("head_dim", says["head_dim"])
    if family in GEMMA and numbers.random() < 0.5:
        as_published(says, text.get("text_config", text))
    if family not in ("kimi_k2", "kimi_k25", *GEMMA) and numbers.random() < 0.6:
        predicting(torch, family, tensors, text.get("text_config", text))
        config.num_nextn_predict_layers = text.get("num_nextn_predict_layers", 0)
    if family == "kimi_k2":
        text["architectures"] = ["KimiK2ForCausalLM"]
    if family == "kimi_k25":
        tensors = {"language_model." + name: tensor for name, tensor in tensors.items()}
        for name, shape in (("vision_tower.patch_embed.proj.weight", (4, 3, 2, 2)),
                            ("vision_tower.encoder.blocks.0.wqkv.weight", (12, 4)),
                            ("mm_projector.proj.0.bias", (5,))):
            tensors[name] = torch.randn(shape).to(torch.bfloat16)
        text = {"architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25",
                "text_config": text}
    with open(os.path.join(left, "config.json"), "w", encoding="utf-8") as f:
        json.dump(text, f, indent=1)
    save_file(tensors, os.path.join(left, "model.safetensors"), metadata={"format": "pt"})
    for name in os.listdir(left):
        if name not in ("config.json", "model.safetensors"):
            os.remove(os.path.join(left, name))
    return tensors, config


def told(torch, tensors):
    import hashlib
    kinds = {torch.bfloat16: "BF16", torch.float32: "F32"}
    return {name: [kinds[t.dtype], list(t.shape), hashlib.sha256(
        t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()[:16]]
        for name, t in sorted(tensors.items())}


def make(directory, seed, count):
    os.environ["HF_HUB_OFFLINE"] = "1"
    import bridge_software as bridge
    bridge.enter()
    import torch
    import torch.distributed.checkpoint as dcp
    import transformers
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    said = {}
    for number in range(int(seed), int(seed) + int(count)):
        family = list(FAMILIES)[number % len(FAMILIES)]
        table, module, name = FAMILIES[family]
        own = os.path.join(directory, str(number))
        tensors, config = draw(torch, transformers, family, random.Random(number), own)
        text = getattr(config, "text_config", config)
        its = bridge.opened(module, name, config, tensors)
        found = bridge.mapped(its.mapping_registry(), tensors,
                              text.num_hidden_layers,
                              getattr(text, "n_routed_experts", 0) or
                              getattr(text, "num_experts", 0), family == "glm_moe_dsa")
        ours = bridge.to_megatron(its, found, tensors, config)
        back = bridge.to_hugging_face(its, found, ours, config)
        # Megatron-Bridge converts the same tensors back, all of them.
        assert set(back) == set(tensors), (family, set(back) ^ set(tensors))
        right = bridge.distributed(ours, config)
        dcp.save(right, checkpoint_id=os.path.join(own, "right"), no_dist=True)
        said[str(number)] = {
            "family": family, "table": "megatron-bridge-" + table,
            "to": {"right": told(torch, right), "left": told(torch, back)}}
    print(json.dumps(said))


# ---- the test ----

def judge(tap, number, case, root, directory):
    from rsh_cli import good
    from safetensors_format import values_in
    from shown_model import hashes, model_hashes, same, without_copies
    left, right = (os.path.join(root, side) for side in ("left", "right"))
    for source, other, words in (
            (left, "right", ["--from", "hf", "--dst-strategy", "none", "--format", "safetensors"]),
            (right, "left", ["--config", left])):
        with tap.test(f"{case['family']} to the {other}, --seed {number} --models 1"), \
                tempfile.TemporaryDirectory(dir=directory) as own:
            to = os.path.join(own, "to")
            good("export", "--convert", case["table"], *words, source, to)
            found = hashes(values_in(os.path.join(to, "rank_0"))) if other == "right" else \
                without_copies(model_hashes(to))
            same(found, case["to"][other], case["family"])


def main():
    import rsh_mount
    from run_seed import run_seed
    rsh_mount.require_named("RSH_HF_PYTHON", "a Python that has transformers")
    rsh_mount.require_named("RSH_MEGATRON_BRIDGE", "a directory with Megatron-Bridge")
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=run_seed() % (1 << 30))
    parser.add_argument("--models", type=int, default=24)
    words = parser.parse_args()
    tap = rsh_mount.Tap()
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run(
            [os.environ["RSH_HF_PYTHON"], "-W", "ignore", os.path.abspath(__file__), "make",
             directory, str(words.seed), str(words.models)],
            capture_output=True, text=True, check=False)
        if done.returncode:
            raise AssertionError(done.stderr[-2000:])
        for number, case in json.loads(done.stdout.splitlines()[-1]).items():
            judge(tap, number, case, os.path.join(directory, number), directory)
    return tap.finish()


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]:
        make(*sys.argv[2:])
    else:
        sys.exit(main())
