# SPDX-License-Identifier: Apache-2.0
"""The safetensors format by the standard library alone: files taken apart and
made, and the map of a model in parts."""

import json
import os
import struct

SUFFIX = ".safetensors"

# As MindSpore stores its types; Int4 has none of its own.
NAMES = {"Bool": "BOOL", "Int4": "I8", "Int8": "I8", "Int16": "I16", "Int32": "I32",
         "Int64": "I64", "UInt8": "U8", "UInt16": "U16", "UInt32": "U32", "UInt64": "U64",
         "Float16": "F16", "BFloat16": "BF16", "Float32": "F32", "Float64": "F64"}


class Tensors:
    """A safetensors file taken apart."""

    def __init__(self, data):
        (length,) = struct.unpack_from("<Q", data)
        self.header = data[8:8 + length].decode()
        self.entries = json.loads(self.header)
        self.metadata = self.entries.pop("__metadata__", {})
        self.content = data[8 + length:]

    def values(self):
        """{name: (type, shape, bytes)}"""
        return {name: (e["dtype"], tuple(e["shape"]),
                       self.content[slice(*e["data_offsets"])])
                for name, e in self.entries.items()}

    def comparable(self):
        """All there is but for the order of the metadata's entries."""
        tensors = self.header
        if self.metadata:
            tensors = tensors[tensors.index("}") + 1:]
        return (len(self.header), self.metadata, tensors, self.content)


def values_of(records):
    """What Tensors.values() is of the records of a .ckpt."""
    return {name: (NAMES[r.dtype], tuple(r.dims), bytes(r.content))
            for name, r in records.items()}


def safetensors_head(values, metadata=None):
    """What stands before the tensors {name: (type, shape, number of bytes)}."""
    header, at = {}, 0
    if metadata:
        header["__metadata__"] = metadata
    for name, (dtype, shape, length) in values.items():
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [at, at + length]}
        at += length
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text


def safetensors_bytes(values, metadata=None):
    """A file of {name: (type, shape, bytes)}, in that order."""
    lengths = {name: (dtype, shape, len(content))
               for name, (dtype, shape, content) in values.items()}
    return safetensors_head(lengths, metadata) + b"".join(v[2] for v in values.values())


def values_in(directory):
    """What Tensors.values() is of all files of a directory."""
    found = {}
    for name in sorted(os.listdir(directory)):
        if name.endswith(".safetensors"):
            with open(os.path.join(directory, name), "rb") as f:
                found.update(Tensors(f.read()).values())
    return found


def read_model(root, map_name="model.safetensors.index.json"):
    """(the map, {file: Tensors}) of a model in parts."""
    with open(os.path.join(root, map_name), encoding="utf-8") as f:
        index = json.load(f)
    parts = {}
    for name in sorted(set(index.get("weight_map", index).values())):
        with open(os.path.join(root, name), "rb") as f:
            parts[name] = Tensors(f.read())
    return index, parts
