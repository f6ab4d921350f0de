# SPDX-License-Identifier: Apache-2.0
"""What a mount shows of a model, compared with types, shapes and hashes of tensors."""

import hashlib
import itertools
import json
import math
import os
import shutil
import tempfile

from demands import check, content, write
from safetensors_format import read_model, safetensors_bytes, values_in


_SHORT = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float64": "F64",
          "int64": "I64", "int32": "I32", "uint8": "U8", "bool": "BOOL"}


def digest(data):
    return hashlib.sha256(data).hexdigest()[:16]


def hashes(values):
    return {name: [dtype, list(shape), digest(data)]
            for name, (dtype, shape, data) in values.items()}


def torch_entry(tensor):
    """The same of a tensor of torch."""
    import torch
    whole = tensor.detach().contiguous()
    data = whole.reshape(-1).view(torch.uint8).numpy().tobytes() if whole.numel() else b""
    return [_SHORT[str(whole.dtype)[6:]], list(whole.shape), digest(data)]


def values_of_model(root):
    """{name: (type, shape, bytes)} of all parts."""
    _, parts = read_model(root)
    return {n: v for part in parts.values() for n, v in part.values().items()}


def model_hashes(root):
    return hashes(values_of_model(root))


def without_copies(found):
    """Without those of the embedding and the head in layers of prediction."""
    return {name: value for name, value in found.items() if ".layers." not in name or
            not name.endswith((".shared_head.head.weight", ".embed_tokens.weight"))}


def extra_state(root):
    path = os.path.join(root, "extra_state.json")
    return json.loads(content(path)) if os.path.exists(path) else {}


def same(found, expected, what):
    different = sorted(n for n in set(found) | set(expected) if found.get(n) != expected.get(n))
    check(not different, f"{what}: {different} differ")


def same_values(got, wanted):
    """The same names with the same types, shapes and bytes."""
    check(sorted(got) == sorted(wanted), f"{sorted(got)} instead of {sorted(wanted)}")
    for name, (kind, shape, data) in wanted.items():
        check(got[name][0] == kind and tuple(got[name][1]) == tuple(shape),
              f"{name} is {got[name][:2]} instead of {(kind, shape)}")
        check(bytes(got[name][2]) == data, f"{name} differs")


def changed_model(directory, source, change):
    """A copy of a model in one file; change(tensors) changes it."""
    root = tempfile.mkdtemp(dir=directory)
    shutil.copy(os.path.join(source, "config.json"), root)
    values = values_in(source)
    change(values)
    write(os.path.join(root, "model.safetensors"), safetensors_bytes(values))
    return root


def demand_cover(t, copies=True):
    """Chunks of a tensor, as ls lists them, have each of its elements once, or in copies."""
    boxes = [tuple(range(at, at + n) for at, n in zip(c["from"], c["size"]))
             for c in t["chunks"]]
    boxes = list(set(boxes)) if copies else boxes
    check(sum(math.prod(map(len, box)) for box in boxes) == math.prod(t["shape"]), t)
    check(all(r.stop <= n for box in boxes for r, n in zip(box, t["shape"])), t)
    for a, b in itertools.combinations(boxes, 2):
        check(any(max(x.start, y.start) >= min(x.stop, y.stop) for x, y in zip(a, b)), t)
