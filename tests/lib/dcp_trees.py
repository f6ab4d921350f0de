# SPDX-License-Identifier: Apache-2.0
"""Distributed checkpoints in plain Python: as torch.distributed.checkpoint writes them,
as Hugging Face's sharded form, and as HyperParallel writes them.

A second implementation that shares nothing with the program under test; that it writes
what torch writes is shown by dcp_trees_test.py, which makes the genuine trees once more.

A `Tensor` is a whole tensor and its chunks, which are any boxes; `Tree.write` puts a
checkpoint of them into a directory.  Standard library only.
"""

import collections
import dataclasses
import io
import itertools
import json
import math
import os
import pickle
import random
import struct
import zlib

from run_seed import random_bytes
from safetensors_format import NAMES, safetensors_bytes

# As safetensors calls the types: bytes of an element, torch's name, its storage.
TYPES = {
    "F32": (4, "float32", "FloatStorage"), "BF16": (2, "bfloat16", "BFloat16Storage"),
    "F16": (2, "float16", "HalfStorage"), "F64": (8, "float64", "DoubleStorage"),
    "I64": (8, "int64", "LongStorage"), "I32": (4, "int32", "IntStorage"),
    "I16": (2, "int16", "ShortStorage"), "I8": (1, "int8", "CharStorage"),
    "U8": (1, "uint8", "ByteStorage"), "BOOL": (1, "bool", "BoolStorage"),
    "C64": (8, "complex64", "ComplexFloatStorage"),
    "U16": (2, "uint16", None), "U32": (4, "uint32", None), "U64": (8, "uint64", None),
    "F8_E4M3": (1, "float8_e4m3fn", None), "F8_E5M2": (1, "float8_e5m2", None),
}
RELEASES = ("2.4", "2.15")
METADATA = "torch.distributed.checkpoint.metadata"
HYPER = "hyper_parallel.core.checkpoint"    # before 2026-04
HYPER_NOW = "hyper_parallel.core.distributed_checkpoint"


# ---- boxes ----

def rows_of(shape, start, size):
    """Where the rows of a box begin in the whole tensor, in elements."""
    steps = [math.prod(shape[d + 1:]) for d in range(len(shape))]
    for at in itertools.product(*(range(s, s + n) for s, n in
                                  list(zip(start, size))[:-1])):
        yield sum(i * step for i, step in zip(at, steps)) + (start[-1] if start else 0)


def box_bytes(content, width, shape, start, size):
    """The elements of a box, row by row."""
    if not math.prod(size):
        return b""
    length = width * (size[-1] if size else 1)
    return b"".join(content[width * at:width * at + length]
                    for at in rows_of(shape, start, size))


def permuted(content, width, size, order):
    """The elements of a box with its dimensions in another order, the last one of which
    goes fastest, and the strides of the dimensions."""
    steps = [math.prod(size[d + 1:]) for d in range(len(size))]
    out = b"".join(content[width * at:width * (at + 1)] for at in (
        sum(i * steps[d] for i, d in zip(index, order))
        for index in itertools.product(*(range(size[d]) for d in order))))
    strides = [math.prod(max(size[e], 1) for e in order[place + 1:])
               for place, _ in sorted(enumerate(order), key=lambda x: x[1])]
    return out, tuple(strides)


def row_strides(size):
    return tuple(math.prod(max(n, 1) for n in size[d + 1:]) for d in range(len(size)))


# ---- pickles ----

class Named:
    """Something that is pickled as a name of a module."""

    def __init__(self, module, name):
        self.module, self.name = module, name

    def __reduce_ex__(self, protocol):
        return self.name

    def __call__(self, *args):
        raise TypeError("this is a name")


class Called:
    """Something that is pickled as a call."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce_ex__(self, protocol):
        return self.call


class Stored:
    """The storage of a tensor, by its persistent id."""

    def __init__(self, *words):
        self.words = words


class _Pickler(pickle._Pickler):
    """It does not import what it names."""

    def persistent_id(self, obj):
        return obj.words if isinstance(obj, Stored) else None

    def save_global(self, obj, name=None):
        module, name = (obj.module, obj.name) if isinstance(obj, Named) else \
            (obj.__module__, obj.__qualname__)
        if self.proto >= 4:
            self.save(module)
            self.save(name)
            self.write(pickle.STACK_GLOBAL)
        else:
            self.write(pickle.GLOBAL + f"{module}\n{name}\n".encode())
        self.memoize(obj)

    def save_type(self, obj):
        self.save_global(obj)

    dispatch = {**pickle._Pickler.dispatch, type: save_type}


def pickled(value, protocol):
    out = io.BytesIO()
    _Pickler(out, protocol).dump(value)
    return out.getvalue()


class Size(tuple):
    __slots__ = ()

    def __reduce_ex__(self, protocol):
        return Size, (tuple(self),)


Size.__module__ = "torch"
_classes = {}


def made(module, name, state=None, **attributes):
    """An object of a class that has only a name; its state is a tuple or attributes."""
    if (module, name) not in _classes:
        _classes[module, name] = type(name, (), {
            "__module__": module, "__getstate__": lambda self: self.state})
    result = _classes[module, name]()
    result.state = state if state is not None else attributes or None
    return result


# ---- items ----

def archive(entries, root="archive"):
    """A zip archive as torch.save() writes it, of [(name, bytes)]."""
    out, central = bytearray(), bytearray()
    for name, content in entries:
        name = f"{root}/{name}".encode()
        at, crc = len(out), zlib.crc32(content)
        extra = -(at + 30 + len(name) + 4) % 64
        flags = 0x808 if content else 0x800    # with a descriptor behind it
        out += struct.pack("<IHHHHHIIIHH", 0x04034b50, 0, flags, 0, 0, 0, 0, 0, 0,
                           len(name), 4 + extra)
        out += name + struct.pack("<2sH", b"FB", extra) + b"Z" * extra + content
        if content:
            out += struct.pack("<IIII", 0x08074b50, crc, len(content), len(content))
        central += struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 0, 0, flags, 0, 0, 0,
                               crc, len(content), len(content), len(name), 0, 0, 0, 0, 0,
                               at) + name
    end = len(out) + len(central)
    tail = struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 0x31e, 45, 0, 0, len(entries),
                       len(entries), len(central), len(out))
    tail += struct.pack("<IIQI", 0x07064b50, 0, end, 1)
    tail += struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, len(entries), len(entries),
                        len(central), len(out), 0)
    return bytes(out + central + tail)


def _item(release, object_, stored, serialization_id):
    entries = [("data.pkl", object_)]
    if release != "2.4":
        entries += [(".format_version", b"1"), (".storage_alignment", b"64")]
    entries.append(("byteorder", b"little"))
    if stored is not None:
        entries.append(("data/0", stored))
    return archive(entries + [("version", b"3\n"),
                              (".data/serialization_id", serialization_id)])


def rebuilt(dtype, size, stored, strides=None, key="0"):
    """A tensor as it is pickled."""
    width, name, storage = TYPES[dtype]
    args = [Stored("storage", Named("torch", storage) if storage else
                   Named("torch.storage", "UntypedStorage"), key, "cpu",
                   len(stored) // (width if storage else 1)),
            0, tuple(size), tuple(strides or row_strides(size)), False,
            collections.OrderedDict()]
    if not storage:
        args.append(Named("torch", name))
    return Called(Named("torch._utils", f"_rebuild_tensor_v{2 if storage else 3}"), *args)


def tensor_item(release, dtype, size, stored, strides=None, serialization_id=b"0" * 40):
    return _item(release, pickled(rebuilt(dtype, size, stored, strides), 2), stored,
                 serialization_id)


def torch_bytes(tensors):
    """A file of torch.save() with {name: (dtype, size, data)}."""
    named = {name: rebuilt(*tensor, key=str(i))
             for i, (name, tensor) in enumerate(tensors.items())}
    return archive([("data.pkl", pickled(named, 2)), ("byteorder", b"little"),
                    *((f"data/{i}", data) for i, (_, _, data) in enumerate(tensors.values())),
                    ("version", b"3\n")])


def value_item(release, value, serialization_id=b"0" * 40):
    return _item(release, pickled(value, 2), None, serialization_id)


# ---- .metadata ----

def _properties(release, dtype, strides):
    state = (Named("torch", TYPES[dtype][1]),
             Called(Named("torch.serialization", "_get_layout"), "torch.strided"), False,
             Called(Named(METADATA, "_MEM_FORMAT_ENCODING"), 0), False)
    if release != "2.4":
        state += (strides,)
    return made(METADATA, "TensorProperties", state)


def torch_metadata(release, described, stored, planner_data, path=("job", "step")):
    """described: {name: None or (dtype, shape, [(start, size)], strides)};
    stored: [(name, start or None, index, file, offset, length)]"""
    known = {}
    for name, said in described.items():
        if said is None:
            known[name] = made(METADATA, "BytesStorageMetadata")
            continue
        dtype, shape, chunks, strides = said
        known[name] = made(
            METADATA, "TensorStorageMetadata",
            properties=_properties(release, dtype, strides), size=Size(shape),
            chunks=[made(METADATA, "ChunkStorageMetadata", offsets=Size(start),
                         sizes=Size(size)) for start, size in chunks])
    places = {}
    for name, start, index, file, offset, length in stored:
        key = {"fqn": name, "index": index}
        if start is not None:
            key["offset"] = Size(start)
        places[made(METADATA, "MetadataIndex", key)] = made(
            "torch.distributed.checkpoint.filesystem", "_StorageInfo",
            relative_path=file, offset=offset, length=length)
    meta = {"checkpoint_id": Called(Named("pathlib", "PosixPath"), *path),
            "save_id": "00000000-0000-0000-0000-000000000000", "load_id": None}
    if release != "2.4":
        meta["modules"] = []
    attributes = {"state_dict_metadata": known, "planner_data": planner_data,
                  "storage_data": places, "storage_meta": made(METADATA, "StorageMeta", meta)}
    if release != "2.4":
        attributes["version"] = "1.0.0"
    return pickled(made(METADATA, "Metadata", attributes), 4)


def hyper_metadata(described, stored, package=HYPER, version="1.0"):
    """The same as HyperParallel writes it; the types are MindSpore's.
    stored: [(name, start, index, file, offset, length[, name in the file])]"""
    module = package + ".metadata"
    known = {}
    for name, said in described.items():
        if said is None:
            known[name] = made(module, "BytesStorageMetadata")
            continue
        dtype, shape, chunks = said
        known[name] = made(
            module, "TensorStorageMetadata",
            properties=made(module, "TensorProperties", dtype=dtype, requires_grad=False,
                            memory_format=None), size=tuple(shape),
            chunks=[made(module, "ChunkStorageMetadata", offsets=tuple(start),
                         sizes=tuple(size)) for start, size in chunks])
    places = {made(module, "MetadataIndex", fqn=name, offset=tuple(start), index=index):
              made(package + ".storage", "StorageInfo", relative_path=file, offset=offset,
                   length=length, **dict(zip(("tensor_key",), key)))
              for name, start, index, file, offset, length, *key in stored}
    attributes = {"version": version} if version else {}
    return pickled(made(module, "Metadata", state_dict_metadata=known, planner_data=None,
                        storage_data=places, **attributes), 4)


# ---- trees ----

@dataclasses.dataclass
class Tensor:
    dtype: str
    shape: tuple
    content: bytes
    chunks: list            # of (start, size)
    orders: dict            # number of a chunk: the order of its dimensions as stored

    def stored(self, number):
        """The bytes of a chunk as they are stored, and their strides."""
        start, size = self.chunks[number]
        width = TYPES[self.dtype][0]
        data = box_bytes(self.content, width, self.shape, start, size)
        order = self.orders.get(number)
        return permuted(data, width, size, order) if order else (data, row_strides(size))


class Tree:
    """A checkpoint: tensors, values that are no tensors, and how it is written."""

    def __init__(self, kind, tensors, values, rng):
        self.kind, self.tensors, self.values, self.rng = kind, tensors, values, rng
        self.release = rng.choice(RELEASES)
        self.files = rng.choice((1, 1, 2, None))   # of a rank; None: one an item
        self.strays = rng.random() < 0.2
        # {file: of which tensors it has which chunks with elements}
        self.held = collections.defaultdict(set)

    def expected(self):
        """{name: (type, shape, bytes)}, as Tensors.values() gives it."""
        return {name: (t.dtype, tuple(t.shape), t.content) for name, t in
                self.tensors.items()}

    def describe(self):
        chunks = sum(len(t.chunks) for t in self.tensors.values())
        return (f"{self.kind}{' ' + self.release if self.kind == 'torch' else ''}, "
                f"{len(self.tensors)} tensors in {chunks} chunks, "
                f"{len(self.values)} values, {self.ranks} ranks")

    @property
    def ranks(self):
        """No tensor has two chunks on a rank where a file can hold only one."""
        if self.kind == "torch":
            return 3
        return max(len(t.chunks) for t in self.tensors.values()) + 1

    def write(self, directory):
        os.makedirs(directory, exist_ok=True)
        {"torch": self._write_torch, "hf": self._write_hf,
         "hyper": self._write_hyper}[self.kind](directory)

    @staticmethod
    def _save(directory, name, content):
        with open(os.path.join(directory, name), "wb") as f:
            f.write(content)

    # torch

    def _write_torch(self, directory):
        files, stored, numbers = collections.defaultdict(bytearray), [], itertools.count()
        items = [(name, None) for name in self.values]
        for name, t in self.tensors.items():
            # Of chunks at one place, all empty but one, only one is written.
            at = {}
            for i, (start, size) in enumerate(t.chunks):
                if tuple(start) not in at or math.prod(size):
                    at[tuple(start)] = i
            items += [(name, i) for i in at.values()]
        self.rng.shuffle(items)
        for name, i in items:
            rank = self.rng.randrange(self.ranks)
            number = next(numbers) if self.files is None else self.rng.randrange(self.files)
            file = f"__{rank}_{number}.distcp"
            if i is None:
                item, start = value_item(self.release, self.values[name]), None
            else:
                t = self.tensors[name]
                data, strides = t.stored(i)
                start, size = t.chunks[i]
                item = tensor_item(self.release, t.dtype, size, data, strides)
                if data:
                    self.held[file].add((name, i))
            stored.append((name, start, i, file, len(files[file]), len(item)))
            files[file] += item
        described = {name: (t.dtype, t.shape, t.chunks, row_strides(t.shape))
                     for name, t in self.tensors.items()}
        described.update(dict.fromkeys(self.values))
        for file, content in files.items():
            self._save(directory, file, content)
        if self.strays:
            self._save(directory, "__7_0.distcp", b"of an earlier save")
        self._save(directory, ".metadata", torch_metadata(
            self.release, described, stored, {name: (name,) for name in described}))

    # Hugging Face's sharded form

    def _write_hf(self, directory):
        parts = self.rng.randint(1, 3)
        part_of = {name: self.rng.randrange(parts) for name in self.tensors}
        held = collections.defaultdict(list)
        for name, t in self.tensors.items():
            ranks = self.rng.sample(range(self.ranks), len(t.chunks))
            for i, rank in enumerate(ranks):
                held[rank, part_of[name]].append((name, i))
        for (rank, part), items in held.items():
            file = f"shard-{rank + 1:05}-model-{part + 1:05}-of-{parts:05}.safetensors"
            self.held[file].update(items)
            values, offsets = {}, {}
            for name, i in items:
                t = self.tensors[name]
                start, size = t.chunks[i]
                data = box_bytes(t.content, TYPES[t.dtype][0], t.shape, start, size)
                values[name] = t.dtype, size, data
                offsets[name] = {"saved_offsets": list(start)}
            self._save(directory, file, safetensors_bytes(values, {
                "DCP_VERSION": "1.0", "format": "pt",
                "DCP_SHARDING_INFO": json.dumps(offsets)}))

    # HyperParallel's

    def _write_hyper(self, directory):
        (self._write_hyper_now if self.rng.random() < 0.6 else self._write_hyper_before)(
            directory, {short: long for long, short in NAMES.items() if long != "Int4"})

    def _hyper_file(self, directory, rank, items):
        """items: {name in the file: (tensor, number of its chunk)}"""
        file = f"_rank{rank}_.safetensors"
        self.held[file].update(items.values())
        self._save(directory, file, safetensors_bytes({
            key: (self.tensors[name].dtype, self.tensors[name].chunks[i][1],
                  self.tensors[name].stored(i)[0]) for key, (name, i) in items.items()},
            {"format": "ms"}))

    def _write_hyper_before(self, directory, types):
        copies = self.rng.random() < 0.4
        per_rank = self.rng.random() < 0.3
        held = collections.defaultdict(dict)
        for name, t in self.tensors.items():
            for rank in range(self.ranks if copies else len(t.chunks)):
                held[rank][name] = name, rank % len(t.chunks)
        # Of each rank by itself, or of all: the chunks and where each of them is.
        groups = [[rank] for rank in range(self.ranks)] if per_rank else \
            [list(range(self.ranks))]
        for ranks in groups:
            described, stored = dict.fromkeys(self.values), []
            for name, value in self.values.items():
                file, data = f"{name}_rank{ranks[0]}.bytes", pickled(value, 4)
                stored.append((name, (), None, file, 0, len(data)))
                self._save(directory, file, data)
            for rank, (name, i) in ((r, item) for r in ranks for item in held[r].values()):
                t = self.tensors[name]
                said = described.setdefault(name, (types[t.dtype], t.shape, []))
                stored.append((name, t.chunks[i][0], len(said[2]),
                               f"_rank{rank}_.safetensors", 0, -1))
                said[2].append(t.chunks[i])
            self._save(directory, f".rank{ranks[0]}_metadata" if per_rank else ".metadata",
                       hyper_metadata(described, stored))
        for rank, items in held.items():
            self._hyper_file(directory, rank, items)

    def _write_hyper_now(self, directory, types):
        """Any chunks in the file of any ranks, and values one after the other."""
        rng = self.rng
        per_rank, copies = rng.random() < 0.4, rng.random() < 0.4
        held, data = collections.defaultdict(dict), collections.defaultdict(bytearray)
        places = [[] for _ in range(self.ranks)]    # of each rank
        for name, t in self.tensors.items():
            key_of = rng.choice((lambda name, i: f"{name}.__dcp_chunk_{i}",
                                 lambda name, i: f"{name}.__dcp_chunk__{i}" if i else name))
            for i in range(len(t.chunks)):
                ranks = rng.sample(range(self.ranks), rng.randint(1, 2) if copies else 1)
                for rank in ranks:
                    key = key_of(name, i) if len(t.chunks) > 1 else rng.choice((name, None))
                    held[rank][key or name] = name, i
                    places[rank].append((name, t.chunks[i][0], i, f"_rank{rank}_.safetensors",
                                         0, -1, key))
        for name, value in self.values.items():
            first = rng.randrange(self.ranks)
            for rank in range(first, self.ranks if per_rank else first + 1):
                # Of ranks that disagree, the lowest is right.
                item = pickled(value if rank == first else "another rank's", 4)
                places[rank].append((name, (), None, f"_rank{rank}_.bytes",
                                     len(data[rank]), len(item), None))
                data[rank] += item + rng.choice((b"", b"", b"of no value"))
        for rank, items in held.items():
            self._hyper_file(directory, rank, items)
        for rank, content in data.items():
            self._save(directory, f"_rank{rank}_.bytes", content)
        groups = [(f"{rank}.metadata", p) for rank, p in enumerate(places)] if per_rank else \
            [(".metadata", [p for some in places for p in some])]
        for file, found in groups:
            described = {}
            for name, _, i, *_ in found:
                t = self.tensors.get(name)
                said = described.setdefault(name, t and (types[t.dtype], t.shape, []))
                if t:
                    said[2].append(t.chunks[i])
            # The last writer's place of a copy is known, and no other.
            last = {(name, start): (name, start, *rest) for name, start, *rest in found}
            for rest in set(found) - set(last.values()):
                self.held[rest[3]].discard((rest[0], rest[2]))
            self._save(directory, file, hyper_metadata(
                described, last.values(), HYPER_NOW, rng.choice(("1.0", "2.0", None))))


# ---- random ones ----

class _Drawer:
    def __init__(self, seed, kind):
        self.rng = random.Random(seed)
        self.kind = kind or self.rng.choice(("torch",) * 4 + ("hf", "hyper"))

    def shape(self):
        rng = self.rng
        return tuple(rng.choice((1, 2, 3, 5, 7, 8, 13, 16)) for _ in
                     range(rng.choice((0, 1, 1, 2, 2, 2, 2, 3, 3, 4))))

    @staticmethod
    def _cut(box, d, cuts):
        start, size = box
        points = [0, *cuts, size[d]]
        return [((*start[:d], start[d] + a, *start[d + 1:]),
                 (*size[:d], b - a, *size[d + 1:])) for a, b in zip(points, points[1:])]

    def _evenly(self, box, d, n, empty):
        """As DTensor shards: the first ones as large as they can be."""
        each = -(-box[1][d] // n)
        cuts = [min(each * i, box[1][d]) for i in range(1, n)]
        return [b for b in self._cut(box, d, cuts) if empty or math.prod(b[1])]

    def _anywhere(self, box, depth):
        """Boxes of any sizes, cut again and again."""
        dims = [d for d, n in enumerate(box[1]) if n > 1]
        if not depth or not dims or self.rng.random() < 0.2:
            return [box]
        d = self.rng.choice(dims)
        parts = self._cut(box, d, [self.rng.randrange(1, box[1][d])])
        return [b for part in parts for b in self._anywhere(part, depth - 1)]

    def chunks(self, shape):
        rng, whole = self.rng, ((0,) * len(shape), shape)
        if not shape or not math.prod(shape):
            return [whole]
        way = rng.choice(("whole", "even", "even", "grid", "rows", "anywhere"))
        d = rng.randrange(len(shape))
        empty = self.kind == "torch"
        if way == "even":
            boxes = self._evenly(whole, d, rng.randint(2, 5), empty)
        elif way == "grid":
            e = rng.randrange(len(shape))
            boxes = [b for part in self._evenly(whole, d, rng.randint(2, 3), False)
                     for b in (self._evenly(part, e, rng.randint(2, 3), False)
                               if e != d else [part])]
        elif way == "rows":
            boxes = self._cut(whole, 0, sorted(rng.randint(0, shape[0]) for _ in range(3)))
            boxes = [b for b in boxes if math.prod(b[1])]
        elif way == "anywhere":
            boxes = self._anywhere(whole, 4)
        else:
            boxes = [whole]
        if rng.random() < 0.3:
            rng.shuffle(boxes)
        return boxes

    def tensor(self, dtypes):
        rng = self.rng
        dtype = rng.choice(dtypes)
        shape = self.shape()
        if shape and rng.random() < 0.05 and self.kind == "torch":
            shape = (0, *shape[1:])
        content = random_bytes(rng, TYPES[dtype][0] * math.prod(shape))
        if dtype == "BOOL":
            content = bytes(b & 1 for b in content)
        chunks, orders = self.chunks(shape), {}
        if self.kind == "torch":
            for i, (_, size) in enumerate(chunks):
                if len(size) > 1 and math.prod(size) and rng.random() < 0.2:
                    orders[i] = rng.sample(range(len(size)), len(size))
        return Tensor(dtype, shape, content, chunks, orders)

    def tree(self):
        rng = self.rng
        tree = Tree(self.kind, {}, {}, rng)
        dtypes = [t for t in TYPES
                  if (self.kind != "hyper" or t in NAMES.values()) and
                  (self.kind == "hyper" or tree.release != "2.4" or TYPES[t][2])]
        for i in range(rng.randint(1, 8)):
            name = rng.choice(("layers.{}.weight", "optimizer.state.w{}.exp_avg",
                               "list.{}.x", "a{}", "\u00e4.{}"))
            tree.tensors[name.format(i)] = self.tensor(dtypes)
        if self.kind != "hf":
            for i in range(rng.randint(0, 3)):
                tree.values[f"plain.v{i}"] = rng.choice(
                    (7, 0.5, "text", None, [1, 2], {"lr": 0.1}))
        return tree


def random_tree(seed, kind=None):
    """The tree of a seed; kind is torch, hf or hyper."""
    return _Drawer(seed, kind).tree()
