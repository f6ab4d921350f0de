#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models that went to MindSpore's form and back, opened by transformers.

RSH_HF_PYTHON names a Python that has transformers and torch.  It saves tiny models of
float32; each is mounted as the ranks of a strategy, and these ranks as a model
directory, which from_pretrained() opens: its logits must be the original's, exactly.

    transformers_opens.py                    the test
    transformers_opens.py make|open ...      what the other Python does for it
"""

import contextlib
import json
import os
import random
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]

PART = "20KB"
COMMON = {"vocab_size": 96, "hidden_size": 48, "intermediate_size": 80,
          "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
          "max_position_embeddings": 32, "pad_token_id": 0}
MIXTURE = {"moe_intermediate_size": 24, "num_experts_per_tok": 2}
LATENT = {"q_lora_rank": 20, "kv_lora_rank": 12, "qk_nope_head_dim": 8, "n_group": 1,
          "qk_rope_head_dim": 4, "v_head_dim": 10, "num_key_value_heads": 4,
          "n_routed_experts": 4, "n_shared_experts": 1, "topk_group": 1,
          "first_k_dense_replace": 1, "head_dim": 4}
ROUTED = {"n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1, "topk_group": 1,
          "first_k_dense_replace": 1}
LATENT4 = {"num_key_value_heads": 1, "head_dim": 16, "q_lora_rank": 20, "o_groups": 2,
           "o_lora_rank": 12, "n_routed_experts": 4, "n_shared_experts": 1, "hc_mult": 4,
           "num_nextn_predict_layers": 0, "partial_rotary_factor": 0.25,
           "layer_types": ["heavily_compressed_attention", "compressed_sparse_attention"],
           "compress_rates": {"compressed_sparse_attention": 4,
                              "heavily_compressed_attention": 8},
           "sliding_window": 8, "mlp_layer_types": ["hash_moe", "moe"],
           "index_n_heads": 2, "index_head_dim": 8, "index_topk": 2}
# A model, its class's stem in transformers, what is its own in the configuration, and
# the tables that it goes through.
MODELS = {
    "qwen3": ("Qwen3", {"head_dim": 10}, ("qwen3", "qwen3-plain", "megatron")),
    "qwen3-tied": ("Qwen3", {"tie_word_embeddings": True}, ("qwen3",)),
    "qwen3-biases": ("Qwen3", {"attention_bias": True}, ("qwen3",)),
    "qwen3-moe": ("Qwen3Moe", {**MIXTURE, "num_experts": 12, "head_dim": 10,
                               "mlp_only_layers": [1]}, ("qwen3_moe",)),
    "deepseek-v3": ("DeepseekV3", {**MIXTURE, **LATENT},
                    ("deepseek_v3", "deepseek_v3-legacy")),
    "deepseek-v4": ("DeepseekV4", {**MIXTURE, **LATENT4}, ("deepseek_v4",)),
    "llama": ("Llama", {}, ("llama", "llama-concat", "megatron")),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}, ("llama",)),
    "qwen2": ("Qwen2", {}, ("llama", "llama-concat", "megatron")),
    "mistral": ("Mistral", {"head_dim": 14}, ("llama", "llama-concat")),
    "glm-4": ("Glm", {"head_dim": 12, "attention_bias": True}, ("glm",)),
    "qwen2.5": ("Qwen2", {"tie_word_embeddings": True}, ("qwen2",)),
    "qwen2-moe": ("Qwen2Moe", {**MIXTURE, "num_experts": 12, "mlp_only_layers": [1],
                               "shared_expert_intermediate_size": 40}, ("qwen2_moe",)),
    "mixtral": ("Mixtral", {"num_local_experts": 4}, ("mixtral",)),
    "glm-4-0414": ("Glm4", {"head_dim": 12, "attention_bias": True}, ("glm4",)),
    "glm-4.5": ("Glm4Moe", {**MIXTURE, **ROUTED, "head_dim": 12, "attention_bias": True,
                            "use_qk_norm": True}, ("glm4_moe",)),
    "deepseek-v2": ("DeepseekV2", {**MIXTURE, **LATENT}, ("deepseek_v2",)),
    "phi-3": ("Phi3", {"tie_word_embeddings": False}, ("phi3",)),
    "gemma-2": ("Gemma2", {"head_dim": 14}, ("gemma2",)),
    "gemma-3": ("Gemma3", {"head_dim": 14}, ("gemma3",)),
    "nemotron": ("Nemotron", {}, ("nemotron",)),
    "gpt-oss": ("GptOss", {"head_dim": 14, "num_local_experts": 4, "num_experts_per_tok": 2},
                ("gpt_oss",)),
    "minimax-m2": ("MiniMaxM2", {"head_dim": 14, "num_local_experts": 4,
                                 "num_experts_per_tok": 2}, ("minimax_m2",)),
}
# Classes of configurations that have other names than their models.
CONFIGURATIONS = {"Gemma3": "Gemma3TextConfig"}


# ---- under RSH_HF_PYTHON ----

def make(root):
    """All models as save_pretrained() leaves them, in parts, with random weights."""
    import torch
    import transformers
    torch.manual_seed(7)
    for name, (stem, own, _) in MODELS.items():
        kind = CONFIGURATIONS.get(stem, f"{stem}Config")
        configuration = getattr(transformers, kind)(**{**COMMON, **own})
        model = getattr(transformers, f"{stem}ForCausalLM")(configuration)
        with torch.no_grad():
            # Biases and norms begin as zeros and ones.
            for parameter in model.parameters():
                parameter.normal_(std=0.1)
            for buffer_name, buffer in model.named_buffers():
                if buffer_name.endswith("e_score_correction_bias"):
                    buffer.normal_()
        path = os.path.join(root, name)
        model.to(torch.float32).save_pretrained(path, max_shard_size=PART)
        if stem == "DeepseekV4":
            publish(path)


def publish(path):
    """transformers reads DeepSeek's own names and writes a mixture with its own; the
    files get all the names that published ones have."""
    from rule_tables import read_model
    from safetensors_format import safetensors_bytes
    renamed = {}
    for name, tensor in read_model(path)[0].items():
        for old, new in ((r"^model\.", ""), ("^embed_tokens", "embed"),
                         (r"^hc_head\.hc_", "hc_head_"), (r"attn\.norm", "attn.kv_norm")):
            name = re.sub(old, new, name)
        renamed[name] = tensor
    for name in os.listdir(path):
        if "safetensors" in name:
            os.remove(os.path.join(path, name))
    with open(os.path.join(path, "model.safetensors"), "wb") as f:
        f.write(safetensors_bytes(renamed, {"format": "pt"}))


def opened(path):
    """(state, logits) of a model directory."""
    import torch
    from transformers import AutoModelForCausalLM
    model, said = AutoModelForCausalLM.from_pretrained(path, dtype="auto",
                                                       output_loading_info=True)
    wrong = {key: value for key, value in said.items() if value}
    assert not wrong, wrong
    with torch.no_grad():
        return model.state_dict(), model(torch.arange(20).reshape(2, 10)).logits


def compare(original, shown, dtype="float32"):
    import torch
    expected, found = opened(original), opened(shown)
    assert list(expected[0]) == list(found[0]), sorted(set(expected[0]) ^ set(found[0]))
    for name, tensor in expected[0].items():
        other = found[0][name]
        assert (tensor.dtype, tensor.shape) == (other.dtype, other.shape), name
        assert tensor.reshape(-1).view(torch.uint8).equal(
            other.reshape(-1).view(torch.uint8)), name
    assert expected[1].dtype == getattr(torch, dtype), expected[1].dtype
    assert expected[1].equal(found[1]), "other logits"


def open_all(pairs):
    """Prints what is wrong of each pair of directories, as JSON."""
    said = []
    for original, shown in json.loads(pairs):
        try:
            compare(original, shown)
            said.append(None)
        except Exception as error:  # one verdict each
            said.append(f"{type(error).__name__}: {error}"[:2000])
    print("\n" + json.dumps(said))


# ---- the test ----

def other_python(script, *words):
    """What the script prints there."""
    done = subprocess.run([os.environ["RSH_HF_PYTHON"], os.path.abspath(script), *words],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    if done.returncode:
        raise AssertionError(f"{words[0]}:\n{done.stderr[-4000:]}")
    return done.stdout


def stacked(stack, root, name, table):
    """Where the model is shown that was shown as ranks."""
    import random_models
    import rule_tables
    from rsh_mount import Mounted
    original = os.path.join(root, name)
    tensors, config = rule_tables.read_model(original)
    made = rule_tables.load_table(table).convert(tensors, config, "hf")
    numbers = random.Random(name + table)
    strategy = random_models.random_strategy(
        numbers, os.path.join(root, f"{name}.{table}"), random_models.random_stages(
            numbers, {name: shape for name, (_, shape, _) in made.items()}))
    ranks = stack.enter_context(Mounted(
        original, dst_strategy=strategy, extra=["--convert", table, "--from", "hf"]))
    model = stack.enter_context(Mounted(
        ranks.path, src_strategy=strategy, extra=[
            "--convert", table, "--from", "mindspore", "--format", "hf", "--part-size",
            "20000", "--config", os.path.join(original, "config.json")]))
    return model.path


def test_all(tap, root):
    other_python(__file__, "make", root)
    pairs, names = [], []
    with contextlib.ExitStack() as stack:
        for name, (_, _, tables) in MODELS.items():
            for table in tables:
                pairs.append((os.path.join(root, name), stacked(stack, root, name, table)))
                names.append(f"{name} through {table}")
        said = json.loads(other_python(__file__, "open", json.dumps(pairs)).splitlines()[-1])
    for name, wrong in zip(names, said):
        tap.ok(wrong is None, f"{name}: opens, and its logits are the original's", wrong)


def main():
    if sys.argv[1:2] == ["make"]:
        return make(*sys.argv[2:])
    if sys.argv[1:2] == ["open"]:
        return open_all(*sys.argv[2:])
    import rsh_mount
    rsh_mount.require_named("RSH_HF_PYTHON", "a Python that has transformers")
    rsh_mount.require_mount()
    tap = rsh_mount.Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-hf-") as root:
        test_all(tap, root)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
