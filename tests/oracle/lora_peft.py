#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters merged by --lora, compared with PEFT's own merge_and_unload().

RSH_HF_PYTHON names a Python that has torch and peft.  Where all sums are exact every
element has to have the same bits.  Other sums are those of a BLAS, which adds in an order
of its own: the test counts the elements that differ.  What a LoraConfig can ask for
beside that is merged with the same bits, or refused in a sentence that names the key.
"""

import os
import random
import subprocess
import sys
import tempfile

TYPES = ("bfloat16", "float16", "float32")
TARGETS = ["q", "up"]
# {name: what is asked for}
MERGED = {
    "weights transposed and not": {"target_modules": ["q", "up", "c"]},
    "use_rslora": {"target_modules": TARGETS, "use_rslora": True},
    "patterns": {"target_modules": TARGETS, "rank_pattern": {"q": 2, r"layers\.1\.up": 8},
                 "alpha_pattern": {r"layers\.\d\.q": 4, "up": 16}},
    "layers_to_transform": {"target_modules": TARGETS, "layers_to_transform": [1],
                            "layers_pattern": "layers"},
    "exclude_modules": {"target_modules": TARGETS, "exclude_modules": r".*0\.up"},
    "a pattern of modules": {"target_modules": r".*layers\.\d\.(q|up)"},
    "modules_to_save": {"target_modules": TARGETS, "modules_to_save": ["head", "norm"]},
    "an embedding": {"target_modules": ["embed"]},
    "fan_in_fan_out": {"target_modules": ["c", "square"], "fan_in_fan_out": True},
    "init_lora_weights": {"target_modules": TARGETS, "init_lora_weights": "orthogonal"},
    "adapter_model.bin": {"target_modules": ["q", "c"], "modules_to_save": ["head", "norm"]},
    "a stack of experts": {"target_modules": [], "target_parameters": ["experts.w"]},
    "stacks of one module": {"target_modules": ["q"], "target_parameters": [
        "moe.down_proj", "moe.gate_up_proj"], "rank_pattern": {"moe.down_proj": 2}},
    "stacks with rows and columns exchanged": {"target_modules": [], "target_parameters": [
        "turned.gate_up_proj", "turned.down_proj"]},
    "a parameter": {"target_modules": [], "target_parameters": ["q.weight"]},
    "a list of experts": {"target_modules": r"each\.\d\.(up|down)"},
}
REFUSED = {
    "use_dora": {"target_modules": TARGETS, "use_dora": True},
    "bias": {"target_modules": TARGETS, "bias": "lora_only"},
    "lora_bias": {"target_modules": TARGETS, "lora_bias": True},
    "trainable_token_indices": {"target_modules": TARGETS, "trainable_token_indices": {"embed": [1]}},
    "layer_replication": {"target_modules": TARGETS, "layer_replication": [[0, 2], [0, 2]]},
    "init_lora_weights": {"target_modules": TARGETS, "init_lora_weights": "pissa"},
}


# ---- under RSH_HF_PYTHON ----

def model_of(torch, rng, rows, columns):
    """Two linear layers and an embedding, in a type."""
    model = torch.nn.Module()
    model.w = torch.nn.Linear(columns, rows, bias=False)
    model.e = torch.nn.Embedding(40 + rows, columns)
    model.head = torch.nn.Linear(columns, 8, bias=False)
    model.experts = torch.nn.Module()
    model.experts.w = torch.nn.Parameter(torch.zeros(3, rows, columns))
    return model.to(getattr(torch, rng.choice(TYPES)))


def fill(torch, tensor, exact, size):
    """Small whole numbers, or numbers of a normal distribution."""
    made = torch.randint(-4, 5, tensor.shape).float() if exact else \
        torch.randn(tensor.shape) * size
    tensor.data = made.to(tensor.dtype)


def make(directory, seed, exact):
    import torch
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import load_file, save_file
    rng = random.Random(seed)
    torch.manual_seed(seed)
    rows, columns = rng.choice(((64, 48), (256, 96), (130, 70), (512, 300)))
    model = model_of(torch, rng, rows, columns)
    for tensor in model.parameters():
        fill(torch, tensor, exact, 0.5)
    os.makedirs(os.path.join(directory, "model"))
    save_file({n: t.clone() for n, t in model.state_dict().items()},
              os.path.join(directory, "model", "model.safetensors"))
    with open(os.path.join(directory, "model", "config.json"), "w", encoding="utf-8") as f:
        f.write("{}")
    rank = rng.choice((1, 4, 8, 16, 64))
    config = LoraConfig(r=rank, lora_alpha=rng.choice((rank, 2 * rank)) if exact else
                        rng.choice((8, 16, 3)), use_rslora=not exact and rng.random() < 0.3,
                        target_modules=["w", "e"], target_parameters=["experts.w"],
                        modules_to_save=["head"] if rng.random() < 0.5 else None)
    adapted = get_peft_model(model, config)
    stored = getattr(torch, rng.choice(TYPES))
    for name, tensor in adapted.named_parameters():
        if "lora_" in name:
            fill(torch, tensor, exact, 0.05)
            tensor.data = tensor.data.to(stored).float()
        elif "modules_to_save" in name:
            fill(torch, tensor, exact, 0.5)
    where = os.path.join(directory, "adapter")
    adapted.save_pretrained(where)
    path = os.path.join(where, "adapter_model.safetensors")
    save_file({n: t.to(stored) if "lora_" in n else t for n, t in load_file(path).items()}, path)
    save_file({n: t.contiguous() for n, t in adapted.merge_and_unload().state_dict().items()},
              os.path.join(directory, "merged.safetensors"))


def experts(torch, up, down):
    """A module with two stacks, as those of Qwen3-MoE or gpt-oss."""
    made = torch.nn.Module()
    made.gate_up_proj = torch.nn.Parameter(torch.zeros(up))
    made.down_proj = torch.nn.Parameter(torch.zeros(down))
    return made


def layered(torch):
    """A model of two layers, whose numbers are small and whole."""
    from transformers.pytorch_utils import Conv1D

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(20, 32)
            self.model = torch.nn.Module()
            self.model.layers = torch.nn.ModuleList(torch.nn.Module() for _ in "ab")
            for layer in self.model.layers:
                layer.q = torch.nn.Linear(32, 24, bias=True)
                layer.up = torch.nn.Linear(32, 48, bias=False)
                layer.c = Conv1D(40, 32)
                layer.square = Conv1D(32, 32)
            self.experts = torch.nn.Module()
            self.experts.w = torch.nn.Parameter(torch.zeros(2, 16, 24))
            self.moe = experts(torch, (3, 48, 20), (3, 20, 24))
            # Square matrices: those of the other stack tell.
            self.turned = experts(torch, (3, 16, 32), (3, 16, 16))
            self.turned.is_transposed = True
            self.each = torch.nn.ModuleList(torch.nn.ModuleDict({
                "up": torch.nn.Linear(20, 32, bias=False),
                "down": torch.nn.Linear(32, 20, bias=False)}) for _ in "abc")
            self.norm = torch.nn.LayerNorm(32)
            self.head = torch.nn.Linear(32, 20, bias=False)

    model = Model()
    for tensor in model.parameters():
        fill(torch, tensor, True, 1)
    return model


def make_all(directory):
    """An adapter of each kind, beside its model and, if it is merged, that."""
    import torch
    from peft import LoraConfig, get_peft_model
    from safetensors.torch import save_file
    torch.manual_seed(9)
    for kind, cases in (("merged", MERGED), ("refused", REFUSED)):
        for name, asked in cases.items():
            at = os.path.join(directory, kind, name)
            model = layered(torch)
            os.makedirs(at + "/model")
            save_file({n: t.clone() for n, t in model.state_dict().items()},
                      at + "/model/model.safetensors")
            with open(at + "/model/config.json", "w", encoding="utf-8") as f:
                f.write("{}")
            if "layer_replication" in asked:  # needs a model of LLaMA's form
                save_refused(at, model, {"target_modules": TARGETS}, asked)
                continue
            adapted = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, **asked))
            for n, tensor in adapted.named_parameters():
                if "lora_" in n or "modules_to_save" in n:
                    fill(torch, tensor, True, 1)
            adapted.save_pretrained(at + "/adapter",
                                    safe_serialization=name != "adapter_model.bin")
            if kind == "merged":
                save_file({n: t.contiguous()
                           for n, t in adapted.merge_and_unload().state_dict().items()},
                          at + "/merged.safetensors")


def save_refused(at, model, plain, asked):
    """An adapter whose config asks for what this model cannot have."""
    import json
    from peft import LoraConfig, get_peft_model
    get_peft_model(model, LoraConfig(r=4, lora_alpha=8, **plain)).save_pretrained(at + "/adapter")
    path = at + "/adapter/adapter_config.json"
    with open(path, encoding="utf-8") as f:
        config = {**json.load(f), **asked}
    with open(path, "w", encoding="utf-8") as f:
        json.dump(config, f)


# ---- here ----

def values(tensor):
    """Numbers whose order is that of the elements, one for each."""
    kind, _, data = tensor
    width = 4 if kind == "F32" else 2
    sign = 1 << (8 * width - 1)
    found = [int.from_bytes(data[i:i + width], "little") for i in range(0, len(data), width)]
    return [sign - x if x & sign else x for x in found]


def compare(tap, case, directory, exact):
    from demands import content
    from rsh_cli import GOOD, run
    from safetensors_format import Tensors, values_in
    out = os.path.join(directory, "out")
    said = run("export", os.path.join(directory, "model"), out, "--format", "hf", "--lora",
               os.path.join(directory, "adapter"))
    if said.status != GOOD:
        return tap.ok(False, case, repr(said))
    wanted = Tensors(content(os.path.join(directory, "merged.safetensors"))).values()
    got, differ, n, far = values_in(out), 0, 0, 0
    if {k: v[:2] for k, v in got.items()} != {k: v[:2] for k, v in wanted.items()}:
        return tap.ok(False, case, f"{sorted(got)} instead of {sorted(wanted)}")
    for name, tensor in wanted.items():
        off = [abs(x - y) for x, y in zip(values(got[name]), values(tensor))]
        n += len(off)
        differ += sum(x > 0 for x in off)
        if tensor[0] != "F32":
            far = max(far, *off)
    print(f"# {case}: {differ} of {n} elements differ")
    return tap.ok(differ == 0 if exact else far <= 2 and
                  (differ <= n / 1000 or any(t[0] == "F32" for t in wanted.values())),
                  case, f"{differ} of {n} elements differ, by up to {far}")


def compare_all(tap, python, directory):
    from rsh_cli import INPUT, run
    subprocess.run([python, os.path.abspath(__file__), "make-all", directory], check=True)
    for name in MERGED:
        compare(tap, f"{name}: merged", os.path.join(directory, "merged", name), True)
    for name in REFUSED:
        at = os.path.join(directory, "refused", name)
        said = run("plan", at + "/model", "--lora", at + "/adapter")
        tap.ok(said.status == INPUT and f'"{name}" is' in said.err, f"{name}: refused", repr(said))


def main():
    if sys.argv[1:2] == ["make-all"]:
        return make_all(sys.argv[2])
    if sys.argv[1:2] == ["make"]:
        return make(sys.argv[2], int(sys.argv[3]), sys.argv[4] == "exact")
    sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))
    import rsh_mount
    from run_seed import seed_and_cases
    chosen = seed_and_cases(6)
    python = os.environ.get("RSH_HF_PYTHON")
    if not python or subprocess.run([python, "-c", "import peft"], check=False,
                                    capture_output=True).returncode:
        rsh_mount.skip_all("RSH_HF_PYTHON does not name a Python that has peft")
    tap = rsh_mount.Tap()
    for seed in range(chosen.seed, chosen.seed + chosen.cases):
        kind = "exact" if seed % 2 else "random"
        with tempfile.TemporaryDirectory(prefix="reshardfs-peft-") as directory:
            subprocess.run([python, os.path.abspath(__file__), "make", directory, str(seed),
                            kind], check=True)
            compare(tap, f"{kind} numbers, --seed {seed} --cases 1", directory,
                    kind == "exact")
    with tempfile.TemporaryDirectory(prefix="reshardfs-peft-") as directory:
        compare_all(tap, python, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
