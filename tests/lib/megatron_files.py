# SPDX-License-Identifier: Apache-2.0
"""A reader of Megatron-LM's model_optim_rng.pt that shares nothing with the program: entries
by Python's zipfile, the pickle by rank_pickles, the elements at their strides.
"""

import itertools
import math
import os
import re
import struct
import zipfile

from dcp_trees import TYPES
from demands import check, content
from rank_pickles import Object, loads

FILE = "model_optim_rng.pt"
STORED = {storage: kind for kind, (_, _, storage) in TYPES.items() if storage}
NAMED = {name: kind for kind, (_, name, _) in TYPES.items()}


class Archive:
    """The entries of a file; checksums of 0 are none."""

    def __init__(self, path):
        self.data = content(path)
        with zipfile.ZipFile(path) as z:
            self.entries = {i.filename.split("/", 1)[1]: i for i in z.infolist()}
            check(len(self.entries) == len(z.infolist()), f"{path}: an entry twice")
            roots = {i.filename.split("/", 1)[0] for i in z.infolist()}
            check(len(roots) == 1, roots)

    def read(self, name):
        entry = self.entries[name]
        check(entry.compress_type == 0, name)
        at = entry.header_offset
        signature, = struct.unpack_from("<I", self.data, at)
        check(signature == 0x04034b50, f"{name}: no local header")
        n, extra = struct.unpack_from("<HH", self.data, at + 26)
        at += 30 + n + extra
        return self.data[at:at + entry.file_size]


def tensor(archive, value):
    """(type, shape, bytes) of what _rebuild_tensor_v2 or _v3 is called with."""
    function, args = value.call
    check(function.module == "torch._utils", function)
    stored, offset, shape, strides = args[:4]
    _, storage, key, where, count = stored.words
    check(where == "cpu", where)
    kind = STORED[storage.name] if function.name == "_rebuild_tensor_v2" else \
        NAMED[args[6].name]
    width = TYPES[kind][0]
    data = archive.read("data/" + key)
    check(len(data) == (count * width if storage.name != "UntypedStorage" else count), key)
    if not math.prod(shape):
        return kind, list(shape), b""
    dense = [math.prod(shape[d + 1:]) for d in range(len(shape))]
    if list(strides) == dense:
        return kind, list(shape), data[offset * width:(offset + math.prod(shape)) * width]
    return kind, list(shape), b"".join(
        data[(offset + at) * width:(offset + at + 1) * width] for at in (
            sum(i * s for i, s in zip(index, strides))
            for index in itertools.product(*map(range, shape))))


class RankFile:
    """The args, and {chunk: {name: (type, shape, bytes)}}."""

    def __init__(self, path):
        archive = Archive(path)
        value = loads(archive.read("data.pkl"))
        self.value = value
        args = value.get("args")
        self.args = args.state if isinstance(args, Object) or args is not None else None
        self.chunks = {}
        for chunk, model in value.items():
            if re.fullmatch(r"model\d*", str(chunk)):
                self.chunks[str(chunk)] = {
                    str(n): tensor(archive, v) for n, v in model.items()
                    if not n.endswith("_extra_state")}


def read_step(step):
    """{directory: RankFile} of an iteration."""
    return {name: RankFile(os.path.join(step, name, FILE)) for name in sorted(os.listdir(step))
            if name.startswith("mp_rank_")}


def closed_up(chunk):
    """A chunk without the holes of layers that have no tensors."""
    pattern = re.compile(r"decoder\.layers\.(\d+)\.")
    numbers = sorted({int(m.group(1)) for m in map(pattern.match, chunk) if m})
    return {pattern.sub(lambda m: f"decoder.layers.{numbers.index(int(m.group(1)))}.", name):
            value for name, value in chunk.items()}


def same_files(found, expected, what):
    """Two steps have the same directories, chunks and tensors."""
    check(set(found) == set(expected), f"{what}: {sorted(found)} and {sorted(expected)}")
    for name, file in expected.items():
        chunks = {c: closed_up(v) for c, v in file.chunks.items()}
        check(set(found[name].chunks) == set(chunks), f"{what} {name}: "
              f"{list(found[name].chunks)} and {list(chunks)}")
        for chunk, tensors in chunks.items():
            mine = found[name].chunks[chunk]
            wrong = sorted(n for n in set(mine) | set(tensors) if mine.get(n) != tensors.get(n))
            check(not wrong, f"{what} {name} {chunk}: {wrong[:8]} differ: " +
                  "".join(f"{mine.get(n, (0, 0))[:2]} and {tensors.get(n, (0, 0))[:2]}; "
                          for n in wrong[:3]))


# ---- joined ----

ROWS = ("linear_q_up_proj", "linear_kv_up_proj", "linear_qk_nope", "linear_qk_rope",
        "linear_kv_nope", "linear_v", "eh_proj", "word_embeddings", "output_layer")


def rows_of(value):
    """The rows of a matrix, or the elements of a vector."""
    kind, shape, data = value
    width = TYPES[kind][0] * math.prod(shape[1:])
    return [data[at:at + width] for at in range(0, len(data), width)]


def over_rows(parts):
    kind, shape, _ = parts[0]
    return (kind, [sum(p[1][0] for p in parts), *shape[1:]], b"".join(p[2] for p in parts))


def over_columns(parts):
    kind, shape, _ = parts[0]
    return (kind, [shape[0], sum(p[1][1] for p in parts)],
            b"".join(b"".join(row) for row in zip(*map(rows_of, parts))))


def halves(value):
    """Gate and up."""
    kind, shape, data = value
    half = [shape[0] // 2, *shape[1:]]
    return (kind, half, data[:len(data) // 2]), (kind, half, data[len(data) // 2:])


def over_gate(parts):
    return over_rows([over_rows(part) for part in zip(*map(halves, parts))])


def joined(name, parts, latent, gated):
    """The whole of a tensor, by the slices of tensor ranks."""
    for part in parts:
        check(part[:2] == parts[0][:2], f"{name}: slices of {part[:2]} and {parts[0][:2]}")
    if len(parts) > 1:
        if ".linear_fc1." in name and "layer_norm" not in name:
            return over_gate(parts) if gated else over_rows(parts)
        if name.endswith(("linear_fc2.weight", "linear_proj.weight")) or \
                re.search(r"linear_fc2\.weight\d+$", name):
            return over_columns(parts)
        if any(f"{word}." in name for word in ROWS) or \
                ("linear_qkv." in name and "layer_norm" not in name and not latent):
            return over_rows(parts)
    check(all(p == parts[0] for p in parts), f"{name} differs between ranks")
    return parts[0]


def expert_matrices(name, value, count):
    """The experts of weight1 or weight2: of each a matrix."""
    kind, shape, data = value
    size = len(data) // count
    shape = [shape[0], shape[1] // count] if name.endswith("1") else \
        [shape[0] // count, shape[1]]
    return [(kind, shape, data[e * size:(e + 1) * size]) for e in range(count)]


def joined_experts(name, ranks, count):
    """weight1 as [n h, 2 f], or weight2 as [n f, h], of {(expert rank, slice): tensor}."""
    whole = []
    blocks = sorted({e for e, _ in ranks})
    for block in blocks:
        slices = [expert_matrices(name, ranks[key], count // len(blocks))
                  for key in sorted(ranks) if key[0] == block]
        for parts in zip(*slices):
            if name.endswith("2"):
                whole.append(over_rows(parts))
                continue
            # Columns of gate and up of all slices, as rows of the transposed matrix.
            turned = [over_columns(part) for part in zip(*(
                (column_range(p, 0), column_range(p, 1)) for p in parts))]
            whole.append(over_columns(turned))
    return over_rows(whole)


def column_range(value, half):
    kind, shape, _ = value
    width = TYPES[kind][0] * shape[1] // 2
    return (kind, [shape[0], shape[1] // 2],
            b"".join(row[half * width:(half + 1) * width] for row in rows_of(value)))


class Joined:
    """A whole model of the files of a mesh {tp, pp, ep, etp, vp}, by the names of chunks."""

    def __init__(self, files, mesh, experts=0, latent=False, gated=True):
        self.mesh, self.experts, self.latent, self.gated = mesh, experts, latent, gated
        self.values = {}
        self.layers = 0
        for chunk in range(mesh["pp"] * mesh["vp"]):
            ranks = {}
            for name, file in files.items():
                numbers = [int(n) for n in name.split("_")[2:]]
                t = numbers.pop(0)
                stage = numbers.pop(0) if mesh["pp"] > 1 else 0
                e = numbers.pop(0) if mesh["ep"] > 1 else 0
                check(not numbers, name)
                if stage == chunk % mesh["pp"]:
                    key = f"model{chunk // mesh['pp']}" if mesh["vp"] > 1 else "model"
                    ranks[t, e] = file.chunks[key]
            self.take(ranks, chunk)

    def take(self, ranks, chunk):
        first = self.layers
        names = {}
        local = self.experts // self.mesh["ep"] if self.experts else 0
        for (t, e), tensors in ranks.items():
            for name, value in tensors.items():
                match = re.match(r"decoder\.layers\.(\d+)(\..*)", name)
                if match:
                    number = first + int(match.group(1))
                    self.layers = max(self.layers, number + 1)
                    name = f"decoder.layers.{number}{match.group(2)}"
                expert = re.search(r"(local_experts\.|linear_fc[12]\.(?:weight|bias))(\d+)", name)
                if expert:
                    place = expert.start(2), expert.end(2)
                    name = name[:place[0]] + str(e * local + int(expert.group(2))) + \
                        name[place[1]:]
                is_of = ".experts." in name
                key = (e if is_of and not expert else 0,
                       t % self.mesh["etp"] if is_of else t)
                other = names.setdefault(name, {}).setdefault(key, value)
                check(other == value, f"{name}: {key} differs between files")
        for name, parts in names.items():
            if name.endswith((".experts.weight1", ".experts.weight2")):
                value = joined_experts(name, parts, self.experts)
            else:
                value = joined(name, [parts[k] for k in sorted(parts)], self.latent,
                               self.gated)
            last = chunk == self.mesh["pp"] * self.mesh["vp"] - 1
            if name in self.values:
                check(last and name == "embedding.word_embeddings.weight" and
                      self.values[name] == value, f"{name} is there twice")
            self.values[name] = value
