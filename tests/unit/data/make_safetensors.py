#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the safetensors files of this directory, and the JSON beside models in
parts, with MindSpore 2.10.0 and safetensors 0.8.0.

usage: make_safetensors.py [DIRECTORY]

The unit tests know what stands in them; after a change here, change
test_wire_safetensors*.c and test_wire_weight_map.c as well.  MindSpore's files
with several metadata entries differ from run to run in the order of these.
"""
import json
import os
import random
import shutil
import sys
import tempfile

import numpy as np
import mindspore as ms
from mindspore import save_checkpoint
from safetensors import TensorSpec, serialize

from make_ckpt import param

MS_DTYPES = [ms.bool_, ms.int8, ms.int16, ms.int32, ms.int64, ms.uint8,
             ms.uint16, ms.uint32, ms.uint64, ms.float16, ms.float32,
             ms.float64, ms.bfloat16, ms.qint4x2, ms.complex64]

# The library's names of the types, and their sizes.
LIBRARY_DTYPES = {
    "bool": 1, "uint8": 1, "int8": 1, "float8_e5m2": 1, "float8_e4m3fn": 1,
    "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2, "int32": 4,
    "uint32": 4, "float32": 4, "complex64": 8, "float64": 8, "int64": 8,
    "uint64": 8}

# Pieces of names: what JSON escapes, what it does not, and what sorts oddly.
PIECES = ["a", "B", "layer", ".", ".weight", "10", "9", "-", "_", " ", "/",
          "\"", "\\", "\x01", "\b", "\t", "\n", "\f", "\r", "\x1f", "\x7f",
          "\u00e9", "\u07ff", "\u2028", "\u4e16", "\uffff", "\U0001f600",
          "\U0010ffff"]


def library_bytes(tensors, metadata=None):
    """tensors: {name: (type, shape, content)}."""
    buffers, specs = [], {}
    for name, (dtype, shape, content) in tensors.items():
        buffer = np.frombuffer(content + b"\0", np.uint8)
        buffers.append(buffer)
        specs[name] = TensorSpec(dtype=dtype, shape=shape,
                                 data_ptr=buffer.ctypes.data,
                                 data_len=len(content))
    return bytes(serialize(specs, metadata=metadata))


def counting(dtype, shape):
    size = int(np.prod(shape, dtype=np.int64)) * LIBRARY_DTYPES[dtype]
    return (dtype, list(shape), bytes(i % 251 for i in range(size)))


def write(path, content):
    with open(path, "wb") as f:
        f.write(content)


def mindspore_files(out):
    def save(name, params, **kwargs):
        path = os.path.join(out, name)
        save_checkpoint(params, path, format="safetensors", **kwargs)
        os.chmod(path, 0o644)

    params = [param(f"net.{str(t).lower()}", (3, 5), t) for t in MS_DTYPES]
    save("ms_dtypes.safetensors",
         params + [param("scalar", (), ms.float32), param("one", (1,), ms.int32)])
    save("ms_append_crc.safetensors", [param("w", (2, 2), ms.float32)],
         append_dict={"epoch_num": 3, "learning_rate": 0.5, "finished": True},
         crc_check=True)
    save("ms_redundancy.safetensors", [param("w", (4,), ms.float16)],
         remove_redundancy=True)
    save("ms_none.safetensors", [])


def library_files(out):
    tensors = {f"t.{dtype}": counting(dtype, (2, 3)) for dtype in LIBRARY_DTYPES}
    tensors.update({
        "scalar": counting("float32", ()),
        "empty": counting("float32", (0,)),
        "rows": counting("float32", (3, 0)),
        "name \"\\\t\u4e16": counting("uint8", (5,)),
    })
    write(os.path.join(out, "library.safetensors"),
          library_bytes(tensors, {"format": "pt"}))


def random_headers(out):
    """Headers of random sets of tensors, each after the length of the content
    (u64, little-endian), which is left out.  No header has more than one
    metadata entry: of several, the library does not keep an order."""
    rng = random.Random(20)
    with open(os.path.join(out, "library_headers.bin"), "wb") as f:
        for _ in range(64):
            tensors = {}
            for _ in range(rng.choice([0, 1, 2, 6, 12])):
                name = "".join(rng.choices(PIECES, k=rng.randint(1, 8)))
                shape = rng.choices([0, 1, 2, 3, 7, 40], k=rng.randint(0, 3))
                tensors[name] = counting(rng.choice(list(LIBRARY_DTYPES)), shape)
            metadata = rng.choice([None, {"format": "ms"},
                                   {"k\"\u00e9\n": "v\\\x02\x7f"}])
            data = library_bytes(tensors, metadata)
            length = 8 + int.from_bytes(data[:8], "little")
            f.write((len(data) - length).to_bytes(8, "little") + data[:length])


def hugging_face_index(out):
    """As transformers' save_pretrained writes it."""
    weights = {f"model.layers.{i}.weight": f"model-0000{1 + i // 5}-of-00003.safetensors"
               for i in (10, 9, 2, 1, 0, 4)}
    weights.update({
        "\u4e16\U0001f600\x7f": "model-00003-of-00003.safetensors",
        "quote\"back\\tab\t": "model-00001-of-00003.safetensors",
    })
    index = {"metadata": {"total_size": 16060522496}, "weight_map": weights}
    with open(os.path.join(out, "model.safetensors.index.json"), "w",
              encoding="utf-8") as f:
        f.write(json.dumps(index, indent=2, sort_keys=True) + "\n")


def mindspore_name_map(out):
    """What unified_safetensors leaves beside its parts."""
    here = os.path.dirname(os.path.abspath(__file__))
    strategy = os.path.join(here, "../../data/strategies/infer_mp2",
                            "strategy_stage_0.ckpt")
    names = [f"blocks.{i}.ln{k}.gamma" for i in (0, 1) for k in (1, 2)]
    with tempfile.TemporaryDirectory() as tree:
        for rank in range(2):
            os.mkdir(f"{tree}/rank_{rank}")
            save_checkpoint([param(n, (48,), ms.float32) for n in names],
                            f"{tree}/rank_{rank}/a-1_1.safetensors",
                            format="safetensors")
        ms.unified_safetensors(tree, strategy, f"{tree}/whole")
        shutil.copyfile(f"{tree}/whole/param_name_map.json",
                        os.path.join(out, "param_name_map.json"))


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(__file__) or "."
    for make in (mindspore_files, library_files, random_headers,
                 hugging_face_index, mindspore_name_map):
        make(out)


if __name__ == "__main__":
    main()
