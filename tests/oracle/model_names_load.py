#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models shown with the names of transformers 4 and of transformers 5, opened by both.

RSH_HF_PYTHON names a Python that has transformers 5, torch and peft; RSH_TRANSFORMERS_4 a
directory with transformers 4.57 and what it needs of its time (pip install
--target).  transformers 5 saves tiny models of float32 in both forms, and each is mounted as
the other.  from_pretrained() must find every weight and no other.  transformers 5 gives the
same logits as for what it saved, and transformers 4 the same but for the order of its sums.
PEFT must merge an adapter that is shown in the other form to the same weights.

    model_names_load.py                      the test
    model_names_load.py make|open|merge ...  what the other Python does for it
"""

import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]

SIZES = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 24, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
         "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
MIXTURE = {"num_experts": 12, "num_experts_per_tok": 2, "moe_intermediate_size": 8}
GROUPED = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
           "moe_intermediate_size": 8, "first_k_dense_replace": 1}
LATENT = {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
          "v_head_dim": 8, "head_dim": 4, "num_key_value_heads": 4}
TOWER = {"depth": 1, "hidden_size": 16, "intermediate_size": 24, "num_heads": 2, "patch_size": 4,
         "out_hidden_size": 32, "in_channels": 3, "fullatt_block_indexes": [0]}
CLIP = {"model_type": "clip_vision_model", "hidden_size": 16, "intermediate_size": 24,
        "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 8, "patch_size": 4,
        "projection_dim": 8}
ROTARY = {"type": "mrope", "mrope_section": [1, 1, 2]}
# A model and what is its own in the configuration.
MODELS = {
    "qwen3_moe": {**MIXTURE, "mlp_only_layers": [0]},
    "qwen2_moe": {**MIXTURE, "shared_expert_intermediate_size": 8},
    "olmoe": {"num_experts": 3, "num_experts_per_tok": 2},
    "mixtral": {"num_local_experts": 3},
    "phimoe": {"num_local_experts": 3},
    "granitemoe": {"num_local_experts": 3},
    "deepseek_v3": {**LATENT, **GROUPED},
    "glm4_moe": {**GROUPED, "use_qk_norm": True},
    "ernie4_5_moe": {"moe_num_experts": 4, "moe_k": 2, "moe_intermediate_size": 8,
                     "moe_num_shared_experts": 1},
    "qwen2_5_vl": {"text_config": {**SIZES, "rope_scaling": ROTARY}, "vision_config": TOWER},
    "llava": {"text_config": {**SIZES, "model_type": "llama"}, "vision_config": CLIP},
}
ADAPTED = ("qwen3_moe", "mixtral")


# ---- under RSH_HF_PYTHON ----

def quiet():
    import warnings
    warnings.simplefilter("ignore")
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers
    transformers.logging.set_verbosity_error()
    torch.manual_seed(3)
    return torch, transformers


def class_of(transformers, name):
    return transformers.AutoModelForImageTextToText if name in ("llava", "qwen2_5_vl") else \
        transformers.AutoModelForCausalLM


def logits_of(torch, model):
    ids = torch.arange(3, 19).reshape(2, 8)
    with torch.no_grad():
        return model.eval()(input_ids=ids).logits


def make(directory):
    torch, transformers = quiet()
    for name, own in MODELS.items():
        config = transformers.CONFIG_MAPPING[name](
            **(own if "text_config" in own else {**SIZES, **own}))
        model = class_of(transformers, name).from_config(config)
        for parameter in model.parameters():
            if parameter.dim() == 1:
                torch.nn.init.normal_(parameter)
        for form, original in (("4", True), ("5", False)):
            model.save_pretrained(os.path.join(directory, name, form),
                                  save_original_format=original)
        torch.save(logits_of(torch, model), os.path.join(directory, name, "logits"))
        if name == "qwen2_5_vl":
            old_rotary(os.path.join(directory, name))
    for name in ADAPTED:
        adapt(torch, transformers, os.path.join(directory, name))


def old_rotary(directory):
    """transformers 4 has another key for this."""
    for form in "45":
        path = os.path.join(directory, form, "config.json")
        with open(path, encoding="utf-8") as f:
            config = json.load(f)
        config["text_config"]["rope_scaling"] = ROTARY
        with open(path, "w", encoding="utf-8") as f:
            json.dump(config, f)


def adapt(torch, transformers, directory):
    """Adapters trained on stacks, with logits of the merged model."""
    from peft import LoraConfig, get_peft_model
    for word, targets in (("both", ["gate_up_proj", "down_proj"]), ("up", ["gate_up_proj"]),
                          ("down", ["down_proj"])):
        model = get_peft_model(
            transformers.AutoModelForCausalLM.from_pretrained(os.path.join(directory, "4")),
            LoraConfig(r=2, lora_alpha=6, target_modules=["q_proj"],
                       target_parameters=["mlp.experts." + t for t in targets]))
        for _, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.data.normal_()
        model.save_pretrained(os.path.join(directory, word))
        torch.save(logits_of(torch, model.merge_and_unload()),
                   os.path.join(directory, word, "logits"))


def difference(torch, model, path):
    return (logits_of(torch, model) - torch.load(path)).abs().max().item()


def open_all(*cases):
    """Prints for each what from_pretrained() says and how far the logits are."""
    torch, transformers = quiet()
    told = {}
    for case in cases:
        name, directory, logits = case.split("=")
        try:
            model, info = class_of(transformers, name).from_pretrained(
                directory, output_loading_info=True, dtype=torch.float32)
            told[name] = {k: sorted(map(str, v)) for k, v in info.items() if v}, \
                difference(torch, model, logits)
        except Exception as error:  # noqa: BLE001
            told[name] = str(error)[:300], 1.0
    print(json.dumps([transformers.__version__, told]))


def merge_all(*cases):
    """The same of a base that is merged with an adapter by PEFT."""
    torch, transformers = quiet()
    from peft import PeftModel
    told = {}
    for case in cases:
        name, base, adapter, logits = case.split("=")
        try:
            model = PeftModel.from_pretrained(
                transformers.AutoModelForCausalLM.from_pretrained(base), adapter)
            told[name] = {}, difference(torch, model.merge_and_unload(), logits)
        except Exception as error:  # noqa: BLE001
            told[name] = str(error)[:300], 1.0
    print(json.dumps([transformers.__version__, told]))


# ---- the test ----

def ask(python, version, word, *words):
    """What a Python answers, with one of both versions of transformers."""
    paths = [os.environ["RSH_TRANSFORMERS_4"]] if version == 4 else []
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "CUDA_VISIBLE_DEVICES": ""}
    got = subprocess.run([python, os.path.abspath(__file__), word, *words], env=env,
                         capture_output=True, text=True, check=False)
    if got.returncode:
        raise AssertionError(got.stderr[-2000:])
    return json.loads(got.stdout.splitlines()[-1]) if got.stdout else None


def judge(tap, version, answers, what):
    """Sums are added in another order by another version."""
    found, told = answers
    for name, (info, off) in told.items():
        tap.ok(found.startswith(f"{version}.") and not info and
               off <= (0.0 if version == 5 and "merged" not in what else 1e-4),
               f"{name}: {what}, transformers {found}", f"{info}: {off}")


def main():
    import rsh_mount
    from rsh_cli import good
    python = rsh_mount.require_named("RSH_HF_PYTHON", "a Python that has transformers")
    rsh_mount.require_named("RSH_TRANSFORMERS_4", "a directory with transformers 4")
    rsh_mount.require_mount()
    tap = rsh_mount.Tap()
    with tempfile.TemporaryDirectory() as directory:
        ask(python, 5, "make", directory)
        cases = {4: [], 5: []}
        mounts = []
        try:
            for name in MODELS:
                for source, shown in (("5", 4), ("4", 5)):
                    mount = rsh_mount.Alone(os.path.join(directory, name, source),
                                            extra=["--convert", "hf5"])
                    mounts.append(mount)
                    mount.__enter__()
                    cases[shown].append(f"{name}={mount.path}={directory}/{name}/logits")
            for version in (4, 5):
                # transformers 5 opens both forms.
                judge(tap, version, ask(python, version, "open", *cases[version]),
                      f"names of transformers {version}, mounted")
            judge(tap, 5, ask(python, 5, "open", *cases[4]),
                  "names of transformers 4, mounted")
        finally:
            for mount in mounts:
                mount.__exit__(None, None, None)
        merged = {4: [], 5: []}
        for name in ADAPTED:
            base = os.path.join(directory, name, "4")
            for word in ("both", "up", "down"):
                stacked = os.path.join(directory, name, word)
                words = ["--convert", "hf5", "--format", "peft", "--config", base]
                logits = stacked + "/logits"
                for at, source in ((stacked + "-apart", stacked),
                                   (stacked + "-again", stacked + "-apart")):
                    good("export", *words, source, at)
                old_base = os.path.join(directory, name, "shown")
                if word == "both":
                    good("export", "--convert", "hf5", os.path.join(directory, name, "5"),
                         old_base)
                merged[4].append(f"{name}-{word}={old_base}={stacked}-apart={logits}")
                merged[5].append(f"{name}-{word}={base}={stacked}-again={logits}")
        for version, what in ((4, "experts apart"), (5, "experts stacked again")):
            judge(tap, version, ask(python, version, "merge", *merged[version]),
                  f"merged by PEFT, {what}")
    return tap.finish()


if __name__ == "__main__":
    WORK = {"make": make, "open": open_all, "merge": merge_all}
    if len(sys.argv) > 1:
        WORK[sys.argv[1]](*sys.argv[2:])
    else:
        sys.exit(main())
