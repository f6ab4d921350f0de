#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The official casts of quantised weights on a processor, for the benchmarks: run by
a Python that has transformers and, for int4, compressed-tensors, with one thread.

    bench_quantised.py cast SCHEME FILE     -> {"seconds": S, "bytes": N}: of tensors in
                                            memory, the cast alone
    bench_quantised.py convert SCHEME FILE TARGET    the same with reading and writing
    bench_quantised.py same SCHEME FILE SHOWN        fails if any tensor differs

fp8 and fp4 are cast by transformers' Fp8Dequantize, mxfp4 by its
convert_moe_packed_tensors, int4 by compressed-tensors.  GPTQ and AWQ have no program for
a processor in these packages: they are cast by the same steps in torch.
"""

import json
import sys
import time

DENSE = ".weight"


def stems(tensors, end):
    return [name.removesuffix(end) for name in tensors if name.endswith(end)]


def cast_fp8(tensors, torch):
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
    by = Fp8Dequantize(None)
    for stem in stems(tensors, ".scale"):
        yield stem + DENSE, by._dequantize_one(tensors[stem + ".weight"],
                                               tensors[stem + ".scale"], torch.bfloat16)


def cast_mxfp4(tensors, torch):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors
    for stem in stems(tensors, "_blocks"):
        yield stem, convert_moe_packed_tensors(tensors[stem + "_blocks"],
                                               tensors[stem + "_scales"])


def cast_int4(tensors, torch):
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationScheme
    by = BaseCompressor.get_value_from_registry("pack-quantized")
    scheme = QuantizationScheme(targets=["Linear"], weights={
        "num_bits": 4, "type": "int", "symmetric": True, "strategy": "group",
        "group_size": 32})
    for stem in stems(tensors, "_packed"):
        own = {"weight" + end: tensors[stem + end] for end in ("_packed", "_scale", "_shape")}
        yield stem, by.decompress(own, scheme)["weight"].to(torch.bfloat16)


def unpacked(words, dim, torch, order=range(8)):
    """Integers of 4 bits of words, side by side along a dimension."""
    shifts = torch.tensor([4 * k for k in order], dtype=torch.int32)
    parts = (words.unsqueeze(-1) >> shifts) & 15
    if dim == 0:
        return parts.permute(0, 2, 1).reshape(-1, words.shape[1])
    return parts.reshape(words.shape[0], -1)


def cast_gptq(tensors, torch):
    for stem in stems(tensors, ".qweight"):
        groups = tensors[stem + ".g_idx"].long()
        q = unpacked(tensors[stem + ".qweight"], 0, torch)
        z = unpacked(tensors[stem + ".qzeros"], 1, torch)
        dense = (q - z[groups]).float() * tensors[stem + ".scales"].float()[groups]
        yield stem + DENSE, dense.to(torch.bfloat16).t().contiguous()


def cast_awq(tensors, torch):
    order = (0, 4, 1, 5, 2, 6, 3, 7)
    for stem in stems(tensors, ".qweight"):
        q = unpacked(tensors[stem + ".qweight"], 1, torch, order)
        z = unpacked(tensors[stem + ".qzeros"], 1, torch, order)
        scales = tensors[stem + ".scales"]
        size = q.shape[0] // scales.shape[0]
        dense = (q - z.repeat_interleave(size, 0)) * scales.repeat_interleave(size, 0)
        yield stem + DENSE, dense.to(torch.bfloat16).t().contiguous()


CASTS = {"fp8": cast_fp8, "fp4": cast_fp8, "mxfp4": cast_mxfp4, "int4": cast_int4,
         "gptq": cast_gptq, "awq": cast_awq}


def main(what, scheme, file, target=None):
    import torch
    from safetensors.torch import load_file, save_file
    torch.set_num_threads(1)
    list(CASTS[scheme]({}, torch))  # imports
    if what == "convert":
        start = time.perf_counter()
        made = dict(CASTS[scheme](load_file(file), torch))
        save_file(made, target)
        return {"seconds": time.perf_counter() - start}
    tensors = {name: tensor.clone() for name, tensor in load_file(file).items()}
    if what == "same":
        shown = load_file(target)
        for name, tensor in CASTS[scheme](tensors, torch):
            assert shown[name].view(torch.int16).equal(tensor.view(torch.int16)), name
        return {}
    start, n = time.perf_counter(), 0
    for _, tensor in CASTS[scheme](tensors, torch):
        n += tensor.numel() * tensor.element_size()
    return {"seconds": time.perf_counter() - start, "bytes": n}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
