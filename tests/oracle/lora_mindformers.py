#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters that mindformers trains: --lora-alpha, compared with mindformers and PEFT.

RSH_MINDFORMERS' own tool (tools/transform_safetensors_lora.py) merges the adapter of a
checkpoint, whose names are of its three kinds.  The adapter alone is loaded by PEFT's
PeftModel.from_pretrained() into a model of transformers (RSH_HF_PYTHON), and merged by
merge_and_unload().  Where all sums are exact every element has to have the same bits.
Other sums are those of a BLAS, which adds in an order of its own: the test counts the
elements that differ.
"""

import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
NAMES = ((".lora_A.weight", ".lora_B.weight"), (".mindpet_delta_lora_a", ".mindpet_delta_lora_b"),
         (".lora_a", ".lora_b"))
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 64}


# ---- under RSH_HF_PYTHON ----

def make_base(directory, kind):
    """A tiny Qwen3 of transformers."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM
    torch.manual_seed(5)
    model = Qwen3ForCausalLM(Qwen3Config(**SIZES, tie_word_embeddings=False))
    for tensor in model.parameters():
        tensor.data = torch.randint(-3, 4, tensor.shape).float() if kind == "exact" else \
            torch.randn(tensor.shape) * 0.3
    model.to(torch.bfloat16).save_pretrained(directory)


def merge_by_peft(base, adapter, out):
    import torch
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    with_adapter = PeftModel.from_pretrained(model, adapter)
    has = {name.replace(".default", "") for name in with_adapter.state_dict() if "lora_" in name}
    wanted = set(load_file(adapter + "/adapter_model.safetensors"))
    if has != wanted:
        raise AssertionError(f"PEFT has {sorted(has ^ wanted)} more or less")
    with_adapter.merge_and_unload().save_pretrained(out)


# ---- under RSH_ORACLE_PYTHON ----

def merge_by_mindformers(source, out, alpha):
    import importlib.util
    import mindformers_loader
    mindformers_loader.stand_in()
    path = os.path.join(mindformers_loader.directory(), "mindformers", "tools",
                        "transform_safetensors_lora.py")
    spec = importlib.util.spec_from_file_location("transform_safetensors_lora", path)
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    tool.merge_lora(source, out, alpha)


# ---- a checkpoint ----

def matrix(rng, exact, *shape):
    from quantised import encoded
    n = shape[0] * shape[1]
    return "F32", shape, b"".join(
        encoded(float(rng.randint(-3, 3)) if exact else rng.gauss(0, 0.05), "F32")
        for _ in range(n))


def tune(directory, base, rng, exact, ends):
    """The base in MindSpore's form, with matrices beside its weights."""
    from demands import write
    from rsh_cli import good
    from safetensors_format import safetensors_bytes, values_in
    plain = directory + "/plain"
    good("export", base, plain, "--convert", "qwen3", "--dst-strategy", "none", "--format",
         "safetensors")
    tensors = values_in(plain + "/rank_0")
    rank = rng.choice((4, 8))
    for name, (_, shape, _) in sorted(tensors.items()):
        if not name.endswith(("linear_qkv.weight", "linear_proj.weight", "linear_fc1.weight",
                              "linear_fc2.weight")) or rng.random() < 0.2:
            continue
        module = name[:-len(".weight")]
        tensors[module + ends[0]] = matrix(rng, exact, rank, shape[1])
        tensors[module + ends[1]] = matrix(rng, exact, shape[0], rank)
    write(directory + "/tuned/model.safetensors", safetensors_bytes(tensors))
    return directory + "/tuned", rank


def different(got, wanted):
    """(elements, elements that differ) of two models; their names have to be equal."""
    if {k: (v[0], tuple(v[1])) for k, v in got.items()} != \
            {k: (v[0], tuple(v[1])) for k, v in wanted.items()}:
        raise AssertionError(f"{sorted(set(got) ^ set(wanted))} differ")
    n = differ = 0
    for name, (kind, _, data) in wanted.items():
        width = 4 if kind == "F32" else 2
        pairs = [(got[name][2][i:i + width], data[i:i + width])
                 for i in range(0, len(data), width)]
        n += len(pairs)
        differ += sum(bytes(x) != bytes(y) for x, y in pairs)
    return n, differ


def export(source, out, *words):
    from rsh_cli import good
    good("export", source, out, *words)
    return out


def case(directory, seed, hf):
    """Yields (what, elements, elements that differ)."""
    from demands import content
    from safetensors_format import Tensors, values_in
    rng, exact = random.Random(seed), seed % 2 == 1
    base, ends = directory + "/base", NAMES[seed % len(NAMES)]
    here = os.path.abspath(__file__)
    subprocess.run([hf, here, "base", base, "exact" if exact else "random"], check=True)
    tuned, rank = tune(directory, base, rng, exact, ends)
    alpha = str(rng.choice((rank, 2 * rank)) if exact else rng.choice((3, 16, 32)))
    whole = ["--src-strategy", "none", "--dst-strategy", "none"]
    ours = export(tuned, directory + "/ours", *whole, "--lora-alpha", alpha, "--format",
                  "safetensors")
    merge = subprocess.run([os.environ["RSH_ORACLE_PYTHON"], here, "mindformers", tuned,
                            directory + "/theirs", alpha], check=False, capture_output=True,
                           text=True)
    if merge.returncode:
        raise AssertionError(merge.stderr)
    theirs = Tensors(content(directory + "/theirs.safetensors")).values()
    yield (f"mindformers, {ends[0]}", *different(values_in(ours + "/rank_0"), theirs))
    convert = ["--src-strategy", "none", "--convert", "qwen3", "--config", base]
    adapter = export(tuned, directory + "/adapter", *convert, "--lora-alpha", alpha, "--format",
                     "peft")
    subprocess.run([hf, here, "peft", base, adapter, directory + "/peft"], check=True)
    merged = export(tuned, directory + "/merged", *convert, "--lora-alpha", alpha)
    yield (f"PEFT, {ends[0]}", *different(values_in(merged), values_in(directory + "/peft")))


def main():
    if sys.argv[1:2] == ["base"]:
        return make_base(*sys.argv[2:])
    if sys.argv[1:2] == ["peft"]:
        return merge_by_peft(*sys.argv[2:])
    if sys.argv[1:2] == ["mindformers"]:
        return merge_by_mindformers(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    import mindformers_loader
    import rsh_mount
    from run_seed import seed_and_cases
    chosen = seed_and_cases(4)
    mindformers_loader.require()
    hf = os.environ.get("RSH_HF_PYTHON")
    if not hf or subprocess.run([hf, "-c", "import peft"], check=False,
                                capture_output=True).returncode:
        rsh_mount.skip_all("RSH_HF_PYTHON does not name a Python that has peft")
    tap = rsh_mount.Tap()
    for seed in range(chosen.seed, chosen.seed + chosen.cases):
        with tempfile.TemporaryDirectory(prefix="reshardfs-lora-") as directory:
            for what, n, differ in case(directory, seed, hf):
                said = f"{differ} of {n} elements differ"
                print(f"# {what}: {said}")
                tap.ok(differ == 0 if seed % 2 else differ <= n / 1000,
                       f"{what}, --seed {seed} --cases 1", said)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
