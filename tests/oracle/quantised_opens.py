#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantised models as they are published, in MindSpore's form, dense again, and opened
by transformers.

RSH_HF_PYTHON names a Python that has transformers and torch, and for some models also
accelerate and compressed-tensors.  It saves tiny models, whose weights are quantised
here.  Each is mounted as the ranks of a strategy (data, model and expert parallel), and
these ranks as a model directory.  All bytes are those of lib/quantised.py and
lib/rule_tables.py.  The published model, mounted with --dequantize, has the tensors and
the logits that transformers has when it loads the published one.

One model is a larger DeepSeek-V4, which numpy computes: with RSH_MODEL_LAYERS=22 it has
a thousandth of the parameters, half a gigabyte.  The others are tiny.

The last test asks the official programs about random models of lib/quantised.py.

    quantised_opens.py [--seed S] [--cases N] [MODEL...]     the test
    quantised_opens.py make|open|compare|official ...        in the other Python
"""

import argparse
import json
import math
import os
import random
import re
import shutil
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]

from transformers_opens import (  # noqa: E402
    COMMON, LATENT, LATENT4, MIXTURE, opened, other_python, publish)

TINY = {**COMMON, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16,
        "dtype": "bfloat16"}
EXPERTS = {**MIXTURE, "moe_intermediate_size": 32}
SMALL_V4 = {**TINY, **EXPERTS, **LATENT4, "q_lora_rank": 32, "o_lora_rank": 16,
            "index_head_dim": 16}
# An eighth of each size of DeepSeek-V4-Flash; with half of its layers (22) it has a
# thousandth of the parameters.
LAYERS = int(os.environ.get("RSH_MODEL_LAYERS", "4"))
LARGE_V4 = {
    **LATENT4, "vocab_size": 16160, "hidden_size": 512, "moe_intermediate_size": 256,
    "num_hidden_layers": LAYERS, "num_attention_heads": 8, "head_dim": 64,
    "q_lora_rank": 128, "o_groups": 8, "o_lora_rank": 128, "n_routed_experts": 32,
    "num_experts_per_tok": 6, "index_n_heads": 8, "index_head_dim": 16, "index_topk": 64,
    "partial_rotary_factor": 0.125, "sliding_window": 16, "max_position_embeddings": 4096,
    "layer_types": ["heavily_compressed_attention", "compressed_sparse_attention"]
                   * (LAYERS // 2),
    "mlp_layer_types": ["hash_moe"] * 3 + ["moe"] * (LAYERS - 3), "dtype": "bfloat16"}
BLOCK = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic"}
V4 = {**BLOCK, "scale_fmt": "ue8m0", "weight_block_size": [128, 128]}


# ---- weights of each scheme: any codes, with scales that make usual numbers ----

# Codes without NaN; scales from 2^-16 to 2^-9; numbers of BFloat16 around 0.01.
NO_NAN = bytes(v ^ 1 if v & 0x7f == 0x7f else v for v in range(256))
E8M0_FEW = bytes(111 + v % 8 for v in range(256))
SIXTEENTHS = [bytes([v, 0x3c]) for v in range(256)]


def bytes_of(numbers, *shape):
    return numbers.randbytes(math.prod(shape))


def bf16_scales(numbers, *shape, kind="BF16"):
    low = b"\0\0" if kind == "F32" else b""
    return kind, shape, b"".join(low + SIXTEENTHS[v] for v in bytes_of(numbers, *shape))


def blocks_of(shape, block):
    return tuple(-(-n // b) for n, b in zip(shape, block))


def as_fp8(numbers, name, shape, block, kind, end="weight_scale_inv"):
    grid, stem = blocks_of(shape, block), name.removesuffix("weight")
    if kind == "F8_E8M0":
        scales = kind, grid, bytes_of(numbers, *grid).translate(E8M0_FEW)
    else:
        # Codes are up to 448.
        scales = bf16_scales(numbers, *grid, kind=kind)
        scales = kind, grid, scales[2].replace(b"\x3c", b"\x39")
    return {name: ("F8_E4M3", shape, bytes_of(numbers, *shape).translate(NO_NAN)),
            stem + end: scales}


def as_fp4(numbers, name, shape):
    m, n = shape
    return {name: ("I8", (m, n // 2), bytes_of(numbers, m, n // 2)),
            name.removesuffix("weight") + "scale": (
                "F8_E8M0", (m, n // 32), bytes_of(numbers, m, n // 32).translate(E8M0_FEW))}


def deepseek_v4(numbers, name, shape):
    if re.search(r"ffn\.experts\.\d+\.w[123]\.weight$", name):
        return as_fp4(numbers, name, shape)
    if re.search(r"(attn\.(wq_a|wq_b|wkv|wo_a|wo_b|indexer\.wq_b)|"
                 r"shared_experts\.w[123])\.weight$", name):
        return as_fp8(numbers, name, shape, (128, 128), "F8_E8M0", "scale")
    return None


def widened(name, tensor):
    """What DeepSeek-V4 has in Float32 when it is published."""
    kind, shape, data = tensor
    if kind != "BF16" or not re.search(r"hc_|attn_sink|\.ape$|gate\.bias$", name):
        return tensor
    return "F32", shape, b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))


def mxfp4(numbers, name, shape):
    if not re.search(r"experts\.(gate_up|down)_proj$", name):
        return None
    e, columns, rows = shape
    grid = e, rows, columns // 32
    return {name + "_blocks": ("U8", (*grid, 16), bytes_of(numbers, *grid, 16)),
            name + "_scales": ("U8", grid, bytes_of(numbers, *grid).translate(E8M0_FEW))}


def projection(name):
    return name.endswith("_proj.weight")


def fp8_of(kind):
    def scheme(numbers, name, shape):
        return as_fp8(numbers, name, shape, (16, 16), kind) if projection(name) else None
    return scheme


def ct_float(numbers, name, shape):
    if not projection(name):
        return None
    return as_fp8(numbers, name, shape, (1, shape[1]), "BF16", "weight_scale")


def int4(numbers, name, shape):
    m, n = shape
    return {name + "_packed": ("I32", (m, n // 8), bytes_of(numbers, m, n // 2)),
            name + "_scale": bf16_scales(numbers, m, n // 32),
            name + "_shape": ("I32", (2,), struct.pack("<2i", m, n))}


def int4_experts(numbers, name, shape):
    return int4(numbers, name, shape) if ".experts." in name else None


def gptq(numbers, name, shape):
    if not projection(name):
        return None
    o, i = shape
    stem, g = name.removesuffix("weight"), i // 32
    order = [r // 32 for r in range(i)]
    numbers.shuffle(order)
    return {stem + "qweight": ("I32", (i // 8, o), bytes_of(numbers, i // 2, o)),
            stem + "qzeros": ("I32", (g, o // 8), bytes_of(numbers, g, o // 2)),
            stem + "scales": bf16_scales(numbers, g, o, kind="BF16"),
            stem + "g_idx": ("I32", (i,), struct.pack(f"<{i}i", *order))}


def awq(numbers, name, shape):
    if not projection(name):
        return None
    o, i = shape
    stem, g = name.removesuffix("weight"), i // 32
    halves = "F16", (g, o), bytes_of(numbers, g, 2 * o).translate(
        bytes(v & 0x1f | 0x10 for v in range(256)))
    return {stem + "qweight": ("I32", (i, o // 8), bytes_of(numbers, i, o // 2)),
            stem + "qzeros": ("I32", (g, o // 8), bytes_of(numbers, g, o // 2)),
            stem + "scales": halves}


def compressed(fmt, ignore, **weights):
    """As compressed-tensors writes it."""
    return {"quant_method": "compressed-tensors", "format": fmt, "ignore": ignore,
            "quantization_status": "compressed", "kv_cache_scheme": None,
            "config_groups": {"group_0": {
                "targets": ["Linear"], "format": None, "input_activations": None,
                "output_activations": None, "weights": {
                    "symmetric": True, "dynamic": False, "observer": "minmax",
                    "observer_kwargs": {}, "actorder": None, "block_structure": None,
                    **weights}}}}


class Sort:
    """A model: its class's stem in transformers, its configuration, a function that
    quantises a weight or returns None, what config.json says of that, the table, and
    whether transformers loads it on a processor."""

    def __init__(self, stem, own, scheme, says, table, opens=True):
        self.stem, self.own, self.scheme, self.says = stem, own, scheme, says
        self.table, self.opens = table, opens


KIMI = compressed("pack-quantized", ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                                     r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"],
                  num_bits=4, type="int", strategy="group", group_size=32)
SORTS = {
    "deepseek-v4": Sort("DeepseekV4", SMALL_V4, deepseek_v4, V4, "deepseek_v4"),
    "gpt-oss": Sort("GptOss", {
        **TINY, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"], "rope_parameters": {
            "rope_type": "default", "rope_theta": 150000.0}}, mxfp4, {
        "quant_method": "mxfp4", "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens",
            "lm_head"]}, "gpt_oss"),
    "kimi-k2": Sort("DeepseekV3", {**TINY, **EXPERTS, **LATENT}, int4_experts, KIMI,
                    "deepseek_v3"),
    "qwen3-fp8": Sort("Qwen3", TINY, fp8_of("BF16"),
                      {**BLOCK, "weight_block_size": [16, 16]}, "qwen3"),
    "deepseek-v3": Sort("DeepseekV3", {
        **TINY, **EXPERTS, **LATENT, "q_lora_rank": 32, "kv_lora_rank": 32,
        "head_dim": 16,
        "qk_rope_head_dim": 16, "qk_nope_head_dim": 8, "v_head_dim": 12}, fp8_of("F32"),
        {**BLOCK, "weight_block_size": [16, 16]}, "deepseek_v3"),
    "llama-ct-float": Sort("Llama", TINY, ct_float, compressed(
        "float-quantized", ["lm_head"], num_bits=8, type="float", strategy="channel",
        group_size=None), "llama"),
    "llama-gptq": Sort("Llama", TINY, gptq, {
        "quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True,
        "checkpoint_format": "gptq_v2"}, "llama", opens=False),
    "llama-awq": Sort("Llama", TINY, awq, {
        "quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True,
        "version": "gemm"}, "llama", opens=False),
    "large": Sort("DeepseekV4", LARGE_V4, deepseek_v4, V4, "deepseek_v4"),
}


# ---- under RSH_HF_PYTHON ----

def make(root, names):
    """The models as save_pretrained() leaves them, with DeepSeek's own names for V4."""
    import torch
    import transformers
    torch.manual_seed(7)
    for name in json.loads(names):
        sort = SORTS[name]
        configuration = getattr(transformers, f"{sort.stem}Config")(**sort.own)
        torch.set_default_dtype(torch.bfloat16)
        model = getattr(transformers, f"{sort.stem}ForCausalLM")(configuration)
        torch.set_default_dtype(torch.float32)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(std=0.1)
        path = os.path.join(root, name)
        model.to(torch.bfloat16).save_pretrained(path)
        if sort.stem == "DeepseekV4":
            publish(path)


def installed():
    """Which of the packages there are, beside transformers."""
    import importlib.util
    print("\n" + json.dumps([name for name in ("accelerate", "compressed_tensors")
                             if importlib.util.find_spec(name)]))


def open_all(pairs):
    """Prints what is wrong of each pair of directories, as JSON: the published model,
    which transformers makes dense, and the mount."""
    import torch
    said = []
    for published, shown in json.loads(pairs):
        try:
            expected, found = loaded_dense(published), opened(shown)
            assert list(expected[0]) == list(found[0]), \
                sorted(set(expected[0]) ^ set(found[0]))
            for name, tensor in expected[0].items():
                other = found[0][name]
                # transformers widens norms of DeepSeek-V4 when no weight is quantised.
                if name.endswith("norm.weight") and other.dtype == torch.float32:
                    tensor = tensor.float()
                assert tensor.dtype == other.dtype, f"{name} is {other.dtype}"
                assert tensor.equal(other), f"{name} differs"
            assert torch.isfinite(expected[1]).all(), "logits without a value"
            assert expected[1].equal(found[1]), "other logits"
            said.append(None)
        except Exception as error:  # one verdict each
            said.append(f"{type(error).__name__}: {error}"[:2000])
    print("\n" + json.dumps(said))


def loaded_dense(path):
    """(state, logits) of a quantised model that transformers makes dense."""
    import torch
    import transformers
    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        says = json.load(f)["quantization_config"]
    kind = {"fp8": "FineGrainedFP8Config", "mxfp4": "Mxfp4Config",
            "compressed-tensors": "CompressedTensorsConfig"}[says["quant_method"]]
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path, dtype="auto",
        quantization_config=getattr(transformers, kind)(**dense_config(kind, says)))
    with torch.no_grad():
        return model.state_dict(), model(torch.arange(20).reshape(2, 10)).logits


def dense_config(kind, says):
    if kind == "FineGrainedFP8Config":
        return {"dequantize": True, "weight_block_size": tuple(says["weight_block_size"])}
    return {"dequantize": True}


# ---- the large model: numpy ----

def number_tables():
    """Float32 of each code of E4M3, FP4 and E8M0."""
    import numpy
    from quantised import e4m3, e8m0, signed_fp4
    return (numpy.array([e4m3(v) for v in range(256)], numpy.float32),
            numpy.array([signed_fp4(v) for v in range(16)], numpy.float32),
            numpy.array([e8m0(v) for v in range(256)], numpy.float32))


def bfloat16_of(values):
    import numpy
    bits = values.view(numpy.uint32)
    return ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).astype(numpy.uint16)


def arrays(path):
    """{name: (type, array of bytes, 2-byte or 4-byte numbers)} of a directory."""
    import numpy
    from safetensors_format import values_in
    found = {}
    for name, (kind, shape, data) in values_in(path).items():
        width = {"BF16": numpy.uint16, "F32": numpy.uint32,
                 "I64": numpy.uint64}.get(kind, numpy.uint8)
        found[name] = kind, numpy.frombuffer(data, width).reshape(shape)
    return found


def dense_arrays(tensors):
    """DeepSeek-V4's weights in BFloat16, by another way than lib/quantised.py."""
    import numpy
    fp8, fp4, e8m0 = number_tables()
    made = {}
    for name, (kind, codes) in tensors.items():
        scales = tensors.get(name.removesuffix("weight") + "scale")
        if kind == "F8_E8M0":
            continue
        if kind == "F8_E4M3":
            by = numpy.repeat(numpy.repeat(e8m0[scales[1]], 128, 0), 128, 1)
            values = fp8[codes] * by[:codes.shape[0], :codes.shape[1]]
        elif kind == "I8":
            pairs = numpy.stack((codes & 15, codes >> 4), -1)
            values = fp4[pairs.reshape(codes.shape[0], -1)] * \
                numpy.repeat(e8m0[scales[1]], 32, 1)
        else:
            made[name] = kind, codes
            continue
        made[name] = "BF16", bfloat16_of(values)
    return made


def large(published, ranks, back, mesh):
    """Compares the mounts of the large model with what numpy makes of the published
    one: the model directory, and each rank's slice of the experts."""
    import numpy
    dense = dense_arrays(arrays(published))
    found = arrays(back)
    assert sorted(found) == sorted(dense), sorted(set(found) ^ set(dense))[:5]
    for name, (kind, values) in dense.items():
        assert found[name][0] == kind and numpy.array_equal(found[name][1], values), name
    _, experts, model = json.loads(mesh)
    size = LARGE_V4["n_routed_experts"] // experts
    for rank in range(2 * experts * model):
        shown = arrays(os.path.join(ranks, f"rank_{rank}"))
        own, part = rank // model % experts * size, rank % model
        for layer in range(LAYERS):
            at = f"layers.{layer}.ffn.experts."
            def all_of(*names, own=own, at=at):
                return numpy.stack([numpy.concatenate(
                    [dense[f"{at}{e}.{n}.weight"][1].T for n in names], 1)
                    for e in range(own, own + size)])
            for name, whole, dim in (("weight1", all_of("w1", "w3"), 2),
                                     ("weight2", all_of("w2"), 1)):
                wanted = numpy.split(whole, model, dim)[part]
                name = f"decoder.layers.{layer}.mlp.experts.{name}"
                assert numpy.array_equal(shown[name][1], wanted), f"rank {rank}: {name}"
    print(len(dense), "tensors", sum(v.nbytes for _, v in dense.values()), "bytes")


# ---- random models and the official programs ----

def official(seed, cases):
    """Prints what is wrong of random models, and how many were compared, as JSON."""
    import quantised
    wrong, counts = [], {}
    for number in range(int(seed), int(seed) + int(cases)):
        numbers = random.Random(number)
        model = quantised.Drawer(numbers).draw()
        kind = numbers.choice(tuple(quantised.TYPES.values()))
        mine = quantised.dense(model.tensors, model.config, kind)
        for name, (program, data) in officially_dense(model, kind).items():
            counts[program] = counts.get(program, 0) + 1
            if mine[name][2] != data:
                wrong.append(f"--seed {number} --cases 1: {model.scheme} as {kind}: {name} "
                             f"is not what {program} gives")
    print("\n" + json.dumps([wrong, counts]))


def torch_types():
    import torch
    return {"BF16": torch.bfloat16, "F16": torch.float16, "F32": torch.float32,
            "F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu,
            "U8": torch.uint8, "I8": torch.int8, "I32": torch.int32, "I64": torch.int64,
            "F4": torch.int8}


def torch_tensor(tensor):
    import torch
    kind, shape, data = tensor
    if kind == "F4":
        shape = (*shape[:-1], shape[-1] // 2)
    return torch.frombuffer(bytearray(data), dtype=torch.uint8).view(
        torch_types()[kind]).reshape(shape)


def raw(tensor):
    """Its bytes; what torch makes of a NaN depends on the processor."""
    import torch
    nan = {torch.bfloat16: (torch.int16, 0x7fc0), torch.float16: (torch.int16, 0x7e00),
           torch.float32: (torch.int32, 0x7fc00000)}
    integer, bits = nan[tensor.dtype]
    tensor = tensor.contiguous()
    words = torch.where(tensor.isnan(), torch.tensor(bits, dtype=integer),
                        tensor.view(integer))
    return words.reshape(-1).view(torch.uint8).numpy().tobytes()


def officially_dense(model, kind):
    """{name: (program, bytes)} of the tensors that an official program knows."""
    tensors = {name: torch_tensor(t) for name, t in model.tensors.items()}
    dtype, says, method = torch_types()[kind], model.says, model.says["quant_method"]
    if method in ("fp8", "mxfp8"):
        made = official_fp8(tensors, says, dtype)
    elif method == "mxfp4":
        from transformers.integrations.mxfp4 import _convert_moe_packed_tensors
        made = {}
        for name, blocks in tensors.items():
            stem = name.removesuffix("_blocks")
            if stem != name and mxfp4_knows(tensors[stem + "_scales"], kind):
                made[stem] = "transformers' mxfp4", _convert_moe_packed_tensors(
                    blocks, tensors[stem + "_scales"], dtype=dtype)
    elif method == "compressed-tensors":
        made = official_compressed(model, tensors, dtype)
    else:
        made = {}
    return {name: (program, raw(t)) for name, (program, t) in made.items()}


def mxfp4_knows(scales, kind):
    """0xff is NaN, which transformers takes for a number; the scale has to be a number of
    the wanted type there."""
    least, most = (103, 142) if kind == "F16" else (0, 254)
    return bool(((scales >= least) & (scales <= most)).all())


def official_fp8(tensors, says, dtype):
    """transformers derives blocks from shapes, which is right only where they divide."""
    import torch
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    made = {}
    for name, weight in tensors.items():
        scales = next((tensors[n] for n in (
            name + "_scale_inv", name.removesuffix("weight") + "scale") if n in tensors), None)
        if not name.endswith(".weight") or scales is None:
            continue
        # As U8, 0 and 0xff are no E8M0 there.
        if scales.dtype == torch.uint8 and ((scales == 255) | (scales == 0)).any():
            continue
        if weight.dtype == torch.int8 or scales.dim() == 0 or all(
                n % b == 0 for n, b in zip(weight.shape, says["weight_block_size"])):
            made[name] = "transformers' fp8", Fp8Dequantize(None)._dequantize_one(
                weight, scales, dtype)
        elif scales.dim() == 2 and has_compressed_tensors():
            from compressed_tensors.entrypoints.convert.converters.fp8block_dequantizer \
                import FP8BlockDequantizer
            by = FP8BlockDequantizer(weight_block_size=says["weight_block_size"], dtype=dtype)
            made[name] = "compressed-tensors' fp8", by._create_dequantized_weight(
                weight, scales)
    return made


def has_compressed_tensors():
    import importlib.util
    return importlib.util.find_spec("compressed_tensors") is not None


def official_compressed(model, tensors, dtype):
    if not has_compressed_tensors():
        return {}
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    made = {}
    for name, weight in tensors.items():
        stem = re.sub(r"weight(_packed)?$", "", name)
        own = {n.removeprefix(stem): t for n, t in tensors.items()
               if n.startswith(stem + "weight")}
        if not ("weight_scale" in own and name.endswith(("weight", "weight_packed"))):
            continue
        form, weights = compressed_form(model, own)
        if form is None:
            continue
        scheme = QuantizationScheme(targets=["Linear"], weights=weights)
        made[stem + "weight"] = f"compressed-tensors' {form}", \
            BaseCompressor.get_value_from_registry(form).decompress(
                own, scheme)["weight"].to(dtype)
    return made


def compressed_form(model, own):
    """(format, arguments of its weights) of one module."""
    import torch
    scale, packed = own["weight_scale"], own.get("weight_packed")
    if packed is None:
        rows, columns = own["weight"].shape
        if tuple(scale.shape) == (rows, 1) and columns > 9:
            form = {"strategy": "channel"}
        elif scale.numel() == 1:
            form = {"strategy": "tensor"}
        else:
            form = {"strategy": "block", "block_structure": [7, 9]}
        return "float-quantized", {"num_bits": 8, "type": "float", **form}
    if "weight_global_scale" in own:
        return "nvfp4-pack-quantized", {
            "num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    if packed.dtype == torch.uint8:
        if (scale == 255).any():
            return None, None
        return "mxfp4-pack-quantized", {"num_bits": 4, "type": "float", "strategy": "group",
                                        "group_size": 32, "scale_dtype": torch.uint8}
    rows, columns = (int(v) for v in own["weight_shape"])
    groups = scale.shape[1]
    # Its function cannot transpose one row of zero points with torch 2.8.
    if "weight_zero_point" in own and own["weight_zero_point"].shape[0] == 1 and groups > 1:
        return None, None
    form = {"strategy": "group", "group_size": columns // groups} if groups > 1 else \
        {"strategy": "channel"}
    bits = model.says["config_groups"]["group_0"]["weights"]["num_bits"]
    return "pack-quantized", {"num_bits": bits, "type": "int", **form,
                              "symmetric": "weight_zero_point" not in own}


# ---- the test ----

def quantise(root, name):
    """Replaces the weights of a saved model by quantised ones, whose scales may be in
    another file; (tensors, config)."""
    import rule_tables
    from demands import write
    from safetensors_format import safetensors_bytes
    sort, path, numbers = SORTS[name], os.path.join(root, name), random.Random(name)
    saved, config = rule_tables.read_model(path)
    config["quantization_config"] = sort.says
    tensors = {}
    for tensor, (kind, shape, data) in saved.items():
        made = sort.scheme(numbers, tensor, shape) or {tensor: (kind, shape, data)}
        if sort.scheme is deepseek_v4:
            made = {n: widened(n, t) for n, t in made.items()}
        tensors.update(made)
    for file in os.listdir(path):
        if "safetensors" in file:
            os.remove(os.path.join(path, file))
    write(os.path.join(path, "config.json"), json.dumps(config).encode())
    names, where = sorted(tensors), {}
    numbers.shuffle(names)
    for part in (0, 1):
        file = f"model-{part + 1:05}-of-00002.safetensors"
        own = {n: tensors[n] for n in names[part::2]}
        where.update(dict.fromkeys(own, file))
        write(os.path.join(path, file), safetensors_bytes(own, {"format": "pt"}))
    write(os.path.join(path, "model.safetensors.index.json"), json.dumps(
        {"metadata": {}, "weight_map": where}).encode())
    return tensors, config


MESH = [2, 2, 2]  # data, experts, model


def layouts_of(shapes):
    """Experts over ranks, the inner size of a matrix over others, and rows of half of
    the other matrices over the ranks that have copies of these."""
    import random_jobs
    from types import SimpleNamespace
    from ms_formats import Layout
    layouts = {}
    for number, (name, shape) in enumerate(sorted(shapes.items())):
        entries, dim = [-1] * len(shape), 0
        if len(shape) == 3:
            entries[0] = 1 if shape[0] % 2 == 0 else -1
            dim = 1 if name.endswith("weight2") else 2
        if len(shape) > 1 and shape[dim] % 2 == 0:
            entries[dim] = 0
        layouts[name] = Layout(list(MESH), entries, shape=list(shape))
        if len(shape) == 2 and number % 2:
            random_jobs.shard(SimpleNamespace(shape=shape), layouts[name], -1)
    return layouts


def differing(found, wanted, where):
    lines = [f"{where}: {name} {'missing' if name in wanted else 'too many'}"
             for name in sorted(set(found) ^ set(wanted))]
    return lines + [f"{where}: {name}" for name in sorted(set(found) & set(wanted))
                    if (found[name][0], tuple(found[name][1]), bytes(found[name][2])) !=
                    (wanted[name][0], tuple(wanted[name][1]), bytes(wanted[name][2]))]


class Mounts:
    """The mounts of one model: `ranks`, `back` (the ranks as a model), `dense`."""

    def __init__(self, stack, root, name, table, shapes):
        import random_jobs
        from rsh_mount import Mounted
        path = os.path.join(root, name)
        config = os.path.join(path, "config.json")
        self.layouts = layouts_of(shapes)
        strategy = random_jobs.write_strategy(path + ".strategy", {0: self.layouts})
        words = ["--convert", table] if table else []
        self.ranks = stack.enter_context(Mounted(
            path, dst_strategy=strategy, extra=[
                *words, *(["--from", "hf"] if table else []), "--format", "safetensors",
                "--dequantize", "bfloat16"])).path
        self.back = stack.enter_context(Mounted(
            self.ranks, src_strategy=strategy, extra=[
                *words, *(["--from", "mindspore", "--config", config] if table else []),
                "--format", "hf"])).path
        self.dense = stack.enter_context(Mounted(
            path, described=True, extra=["--format", "hf", "--dequantize", "bfloat16",
                                         "--model-files", path])).path


def table_of(sort):
    import rule_tables
    return sort.table if os.path.exists(rule_tables.table_path(sort.table)) else None


def mount_tiny(tap, stack, root, name):
    """Mounts a model and compares all of its bytes; its published and dense
    directories."""
    import quantised
    import rule_tables
    sort = SORTS[name]
    tensors, config = quantise(root, name)
    dense = quantised.dense(tensors, config, "BF16")
    table = table_of(sort)
    made = rule_tables.load_table(table).convert(dense, config, "hf") if table else dense
    mounts = Mounts(stack, root, name, table, {n: t[1] for n, t in made.items()})
    lines = differing(rule_tables.read_model(mounts.dense)[0], dense, "dense")
    found = rule_tables.read_ranks(mounts.ranks)
    for rank in range(8):
        lines += differing(found[rank], {
            n: rule_tables.slice_of(t, mounts.layouts[n], rank)
            for n, t in made.items()}, f"rank {rank}")
    lines += differing(rule_tables.read_model(mounts.back)[0], dense, "back")
    tap.ok(not lines, f"{name}: {len(found)} ranks ({table or 'names as they are'}), the "
           "model of them, and the dense one", "\n".join(lines[:20]))
    return os.path.join(root, name), mounts.dense


def mount_large(tap, stack, root):
    """The same for the large model."""
    quantise(root, "large")
    path = os.path.join(root, "large")
    mounts = Mounts(stack, root, "large", "deepseek_v4", large_shapes(path))
    with tap.test("large: the model of its ranks, and experts of all ranks"):
        other_python(__file__, "compare", path, mounts.ranks, mounts.back, json.dumps(MESH))
    return path, mounts.dense


def large_shapes(path):
    """{name: shape} of mindformers' form: the headers of a file of whole tensors."""
    from rsh_mount import Mounted
    with Mounted(path, extra=["--convert", "deepseek_v4", "--from", "hf", "--format",
                              "safetensors", "--dequantize", "bfloat16"]) as mount:
        folder = os.path.join(mount.path, "rank_0")
        (file,) = os.listdir(folder)
        with open(os.path.join(folder, file), "rb") as f:
            (length,) = struct.unpack("<Q", f.read(8))
            header = json.loads(f.read(length))
    return {name: entry["shape"] for name, entry in header.items() if name != "__metadata__"}


def test_all(tap, root, chosen):
    import contextlib
    names = chosen.models or list(SORTS)
    other_python(__file__, "make", root, json.dumps(names))
    has = json.loads(other_python(__file__, "installed").splitlines()[-1])
    pairs = {}
    with contextlib.ExitStack() as stack:
        for name in names:
            pair = mount_large(tap, stack, root) if name == "large" else \
                mount_tiny(tap, stack, root, name)
            sort = SORTS[name]
            lacks = [p for p in ("accelerate", "compressed_tensors") if p not in has and (
                p == "accelerate" or sort.says["quant_method"] == "compressed-tensors")]
            if not sort.opens:
                continue
            if lacks:
                tap.skip(f"{name}: opens", f"RSH_HF_PYTHON has no {lacks[0]}")
            else:
                pairs[name] = pair
        said = json.loads(other_python(__file__, "open", json.dumps(
            list(pairs.values()))).splitlines()[-1])
    for name, wrong in zip(pairs, said):
        tap.ok(wrong is None, f"{name}: opens, with the tensors and logits that "
               "transformers makes of the published one", wrong)
    if chosen.models:
        return
    wrong, counts = json.loads(other_python(
        __file__, "official", str(chosen.seed), str(chosen.cases)).splitlines()[-1])
    tap.ok(not wrong, f"{chosen.cases} random models as the official programs: " + ", ".join(
        f"{n} of {program}" for program, n in sorted(counts.items())), "\n".join(wrong[:20]))


def main():
    other = {"make": make, "open": open_all, "compare": large, "official": official,
             "installed": installed}
    if sys.argv[1:2] and sys.argv[1] in other:
        return other[sys.argv[1]](*sys.argv[2:])
    import rsh_mount
    from run_seed import run_seed
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=run_seed())
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="of " + ", ".join(SORTS))
    chosen = parser.parse_args()
    rsh_mount.require_named("RSH_HF_PYTHON", "a Python that has transformers")
    rsh_mount.require_mount()
    tap = rsh_mount.Tap()
    root = tempfile.mkdtemp(prefix="reshardfs-quantised-")
    try:
        test_all(tap, root, chosen)
    finally:
        shutil.rmtree(root)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
