# SPDX-License-Identifier: Apache-2.0
"""Distributed checkpoints of PyTorch, read in plain Python: .metadata and items.

It shares nothing with the program under test.  Nothing that a pickle names is called:
classes are stand-ins.
"""

import io
import itertools
import math
import os
import pickle
import zipfile

import dcp_trees
from dcp_trees import TYPES

SHORT = {name: short for short, (_, name, _) in TYPES.items()}


class Object:
    """An instance of a class of torch: what it was called with, and its state."""

    def __init__(self, *arguments):
        self.arguments, self.state = arguments, None

    def __setstate__(self, state):
        self.state = state
        if isinstance(state, dict):
            self.__dict__.update(state)


class Unpickler(pickle.Unpickler):
    """Classes are subclasses of Object, each by its full name."""

    classes = {}

    def find_class(self, module, name):
        full = f"{module}.{name}"
        if full == "torch.Size":
            return tuple
        if full == "collections.OrderedDict":
            return dict
        return self.classes.setdefault(full, type(full, (Object,), {}))

    def persistent_load(self, pid):
        return pid


def unpickled(data):
    return Unpickler(io.BytesIO(data)).load()


class Plain(pickle.Unpickler):
    """Nothing but plain data; protocol 2 has bytes as a call."""

    def find_class(self, module, name):
        if (module, name) in (("_codecs", "encode"), ("__builtin__", "bytes")):
            return super().find_class(module, name)
        raise AssertionError(f"a value names {module}.{name}")


def type_name(value):
    """torch.float32 as F32."""
    return SHORT[value.__name__.removeprefix("torch.")]


def in_rows(stored, width, size, strides):
    """The elements of a dense tensor with these strides, row by row."""
    filled = 1
    for stride, count in sorted(zip(strides, size)):
        assert count == 1 or stride == filled, (size, strides)
        filled *= count
    return b"".join(stored[width * at:width * (at + 1)] for at in (
        sum(i * stride for i, stride in zip(index, strides))
        for index in itertools.product(*map(range, size))))


class Item:
    """A tensor as torch.save() writes it."""

    def __init__(self, data):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            self.names = [entry.filename for entry in archive.infolist()]
            (pkl,) = [name for name in self.names if name.endswith("/data.pkl")]
            root = pkl[:-len("data.pkl")]
            tensor = unpickled(archive.read(pkl))
            self.made_by = type(tensor).__name__
            storage, offset, self.size, strides, *rest = tensor.arguments
            entry = archive.getinfo(f"{root}data/{storage[2]}")
            at = entry.header_offset
            # Its checksum is none, so zipfile would refuse it.
            self.crc, self.method = entry.CRC, entry.compress_type
            self.at = at + 30 + sum(int.from_bytes(data[at + i:at + i + 2], "little")
                                    for i in (26, 28))
            stored = data[self.at:self.at + entry.file_size]
            self.byteorder = archive.read(root + "byteorder")
            self.version = archive.read(root + "version")
        self.dtype = type_name(rest[2]) if len(rest) > 2 else next(
            short for short, (_, _, name) in TYPES.items()
            if f"torch.{name}" == storage[1].__name__)
        width = TYPES[self.dtype][0]
        assert offset == 0, offset
        self.in_rows = strides == dcp_trees.row_strides(self.size)
        count = storage[4] * (1 if len(rest) > 2 else width)
        assert count == len(stored) == width * math.prod(self.size), (count, len(stored))
        self.content = stored if self.in_rows else \
            in_rows(stored, width, self.size, strides)


def put(whole, width, shape, start, size, content):
    """Puts the bytes of a box into those of the whole."""
    length = width * (size[-1] if size else 1)
    if not content:
        return
    for i, row in enumerate(dcp_trees.rows_of(shape, start, size)):
        whole[row * width:row * width + length] = content[i * length:(i + 1) * length]


class Checkpoint:
    """`tensors` is {name: (type, shape, [(start, size, file, offset, length)])}."""

    def __init__(self, root):
        self.root = root
        with open(os.path.join(root, ".metadata"), "rb") as f:
            self.metadata = unpickled(f.read())
        places = {(index.fqn, getattr(index, "offset", None)): (place.relative_path, place.offset, place.length)
                  for index, place in self.metadata.storage_data.items()}
        self.tensors, self.values_at = {}, {}
        for name, tensor in self.metadata.state_dict_metadata.items():
            assert ".".join(map(str, self.metadata.planner_data[name])) == name, name
            if type(tensor).__name__.endswith("BytesStorageMetadata"):
                self.values_at[name] = places.pop((name, None))
                continue
            chunks = [(c.offsets, c.sizes, *places.pop((name, c.offsets)))
                      for c in tensor.chunks]
            self.tensors[name] = (type_name(tensor.properties.state[0]), tensor.size, chunks)
        assert not places, f"items of no tensor: {places}"

    def items(self, name, wanted=lambda start, size: True):
        """(start, size, Item) of each item of a tensor that is wanted."""
        for start, size, file, offset, length in self.tensors[name][2]:
            if not wanted(start, size):
                continue
            with open(os.path.join(self.root, file), "rb") as f:
                f.seek(offset)
                yield start, size, Item(f.read(length))

    def beside(self):
        """The values that are not tensors, which are plain data: {name: value}."""
        result = {}
        for name, (file, offset, length) in self.values_at.items():
            with open(os.path.join(self.root, file), "rb") as f:
                f.seek(offset)
                with zipfile.ZipFile(io.BytesIO(f.read(length))) as archive:
                    assert archive.testzip() is None, name
                    result[name] = Plain(io.BytesIO(archive.read("archive/data.pkl"))).load()
        return result

    def values(self):
        """{name: (type, shape, bytes)}, as Tensors.values() gives it."""
        result = {}
        for name, (dtype, shape, _) in self.tensors.items():
            width = TYPES[dtype][0]
            whole, filled = bytearray(width * math.prod(shape)), 0
            for start, size, item in self.items(name):
                assert (item.dtype, item.size) == (dtype, size), (name, item.dtype, item.size)
                put(whole, width, shape, start, size, item.content)
                filled += len(item.content)
            assert filled == len(whole), f"{name}: {filled} bytes of {len(whole)}"
            result[name] = (dtype, shape, bytes(whole))
        return result
