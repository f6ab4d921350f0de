# SPDX-License-Identifier: Apache-2.0
"""MindSpore's .ckpt and strategy files, read and written in plain Python.

Deliberately a second implementation: it shares nothing with the program under
test and needs neither MindSpore nor a protobuf library.  It is meant for the
small files of tests and reads each of them whole.
"""

import array
import functools
import json
import math
import os
import zlib
from dataclasses import dataclass, field

CHUNK_BYTES = 512 * 1024 * 1024

ELEMENT_BYTES = {
    "Bool": 1, "Int4": 1, "Int8": 1, "UInt8": 1,
    "Int16": 2, "UInt16": 2, "Float16": 2, "BFloat16": 2,
    "Int32": 4, "UInt32": 4, "Float32": 4,
    "Int64": 8, "UInt64": 8, "Float64": 8,
}


class FormatError(ValueError):
    """The bytes are not what the format says."""


# --- protobuf wire format -------------------------------------------------

@functools.lru_cache(maxsize=4096)
def varint(value):
    value &= (1 << 64) - 1  # a negative number takes ten bytes
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


@functools.lru_cache(maxsize=4096)
def _number(number, value):
    return varint(number << 3) + varint(value)


@functools.lru_cache(maxsize=4096)
def _blob_head(number, length):
    return varint(number << 3 | 2) + varint(length)


def _blob(number, data):
    return _blob_head(number, len(data)) + data


def _read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _fields(data):
    """(field number, int or bytes) of one message, in order."""
    data = memoryview(data)
    at = 0
    while at < len(data):
        key, at = _read_varint(data, at)
        if key & 7 == 0:
            value, at = _read_varint(data, at)
        elif key & 7 == 2:
            length, at = _read_varint(data, at)
            value = data[at:at + length]
            at += length
            if len(value) != length:
                raise FormatError("message cut short")
        else:
            raise FormatError(f"wire type {key & 7}")
        yield key >> 3, value


def _signed(value):
    return value - (1 << 64) if value >> 63 else value


def _integers(value):
    """A repeated integer field: one number, or a packed run of them."""
    if isinstance(value, int):
        return [_signed(value)]
    numbers, at = [], 0
    while at < len(value):
        number, at = _read_varint(value, at)
        numbers.append(_signed(number))
    return numbers


# --- checkpoint files -----------------------------------------------------

@dataclass
class Record:
    """One parameter: a tensor as its raw little-endian bytes, or a string."""
    dims: tuple
    dtype: str
    content: bytes

    @property
    def is_string(self):
        return self.dtype == "str"


def read_checkpoint(path):
    """{name: Record} in file order; chunks of one tensor are joined."""
    with open(path, "rb") as f:
        return parse_checkpoint(f.read(), path)


def parse_checkpoint(data, path="checkpoint"):
    """read_checkpoint of a file's bytes."""
    if data[-17:-10] == b"crc_num":
        if int.from_bytes(data[-10:], "big") != zlib.crc32(data[:-17]):
            raise FormatError(f"{path}: CRC does not match")
        data = data[:-17]
    records = {}
    previous = None
    for number, value in _fields(data):
        if number != 1:
            raise FormatError(f"{path}: unexpected field {number}")
        parts = dict(_fields(value))
        name = bytes(parts[1]).decode()
        dims, dtype, content = [], "", b""
        for tensor_field, item in _fields(parts[2]):
            if tensor_field == 1:
                dims += _integers(item)
            elif tensor_field == 2:
                dtype = bytes(item).decode()
            elif tensor_field == 3:
                content = bytes(item)
        if name == previous:
            content = records[name].content + content
        records[name] = Record(tuple(dims), dtype, content)
        previous = name
    for record in records.values():
        _modernise(record)
    return records


def _modernise(record):
    """Releases up to 2.2 wrote scalars with dimension [0], and BFloat16 as
    four bytes of which the upper two count."""
    if record.is_string:
        return
    if record.dims == (0,) and record.content:
        record.dims = ()
    if record.dtype == "BFloat16" and len(record.content) == 4 * math.prod(record.dims):
        halves = memoryview(record.content).cast("H").tolist()
        record.content = array.array("H", halves[1::2]).tobytes()


def record_head(name, dtype, dims, length):
    """What comes before so many bytes of a record, or of a chunk of one."""
    tensor = b"".join(_number(1, d) for d in dims) + _blob(2, dtype.encode())
    tensor += _blob_head(3, length)
    value = _blob(1, name.encode()) + _blob_head(2, len(tensor) + length) + tensor
    return _blob_head(1, len(value) + length) + value


def checkpoint_bytes(records, crc=False):
    """The file that save_checkpoint writes of {name: Record}."""
    out = []  # joined once: contents are large
    for name, record in records.items():
        for start in range(0, max(len(record.content), 1), CHUNK_BYTES):
            content = memoryview(record.content)[start:start + CHUNK_BYTES]
            out += [record_head(name, record.dtype, record.dims, len(content)), content]
    if crc:
        total = 0
        for part in out:
            total = zlib.crc32(part, total)
        out += [b"crc_num", total.to_bytes(10, "big")]
    return b"".join(out)


# --- strategy files -------------------------------------------------------

@dataclass
class Layout:
    """How one parameter lies on the devices of its stage.

    tensor_map has an entry for each tensor dimension: an axis number counted
    from the last mesh axis, -1, or a list of such (major to minor).
    shape is the expanded tensor shape, known from JSON files only.
    rows and offsets are param_split_shape and indices_offset of a table that is split
    by hand (manual_split).
    """
    dev_matrix: list
    tensor_map: list
    opt_step: int = 0
    opt_size: int = 0
    shape: list = None
    rows: tuple = ()
    offsets: tuple = ()


@dataclass
class StageFile:
    """One strategy file: the stage it says it is of, and its layouts."""
    stage: int
    layouts: dict = field(default_factory=dict)


def strategy_bytes(stage_file):
    """The protobuf form, as the planner writes it."""
    def dims(numbers):
        return b"".join(_number(1, n) for n in numbers)

    out = _number(1, 1)
    operators = _number(1, stage_file.stage) + _blob(2, dims([1, 1]))
    out += _blob(2, _blob(1, f"MatMul_stage{stage_file.stage}".encode())
                 + _blob(2, operators))
    for name, layout in stage_file.layouts.items():
        body = _blob(1, dims(layout.dev_matrix))
        if any(isinstance(entry, list) for entry in layout.tensor_map):
            for entry in layout.tensor_map:
                body += _blob(2, dims(entry if isinstance(entry, list) else [entry]))
            if len(layout.tensor_map) == 1:
                body += _blob(2, b"")
        else:
            body += _blob(2, dims(layout.tensor_map))
        body += _blob(3, dims(layout.rows)) + _blob(4, dims(layout.offsets)) + _number(5, 0)
        body += _number(6, layout.opt_step) + _number(7, layout.opt_size)
        out += _blob(3, _blob(1, name.encode()) + _blob(2, body))
    return out


def strategy_json(stage_file):
    """The JSON form: nested maps expanded, mesh axes of size 1 removed."""
    items = {}
    for name, layout in stage_file.layouts.items():
        mesh, tensor_map, shape = expand(layout)
        items[name] = {"dev_matrix": mesh, "field": 0,
                       "opt_weight_shard_size": layout.opt_size,
                       "opt_weight_shard_step": layout.opt_step,
                       "tensor_map": tensor_map, "tensor_shape": shape}
        if layout.rows:
            items[name]["param_split_shape"] = list(layout.rows)
        if layout.offsets:
            items[name]["indices_offset"] = list(layout.offsets)
    operators = {f"MatMul_stage{stage_file.stage}":
                 {"parallel_strategy": [[1, 1]], "stage": stage_file.stage}}
    return json.dumps({"current_stage": 1, "parallel_layout_item": items,
                       "parallel_strategy_item": operators},
                      separators=(",", ":")).encode()


def expand(layout):
    """(mesh, flat map, expanded shape) of a layout whose full shape is known.

    A dimension split over several axes becomes one dimension for each of
    them; nothing is left of mesh axes of size 1.
    """
    mesh = layout.dev_matrix
    kept = [i for i, size in enumerate(mesh) if size > 1]
    number = {len(mesh) - 1 - i: len(kept) - 1 - k for k, i in enumerate(kept)}
    flat, shape = [], []
    for entry, size in zip(layout.tensor_map, layout.shape):
        axes = [a for a in (entry if isinstance(entry, list) else [entry])
                if a in number]
        for axis in axes[:-1]:
            split = mesh[len(mesh) - 1 - axis]
            flat.append(number[axis])
            shape.append(split)
            size //= split
        flat.append(number[axes[-1]] if axes else -1)
        shape.append(size)
    return [mesh[i] for i in kept] or [1], flat, shape


def read_strategy_file(path):
    with open(path, "rb") as f:
        data = f.read()
    if os.fspath(path).endswith(".json"):
        return _parse_json(data)
    return _parse_protobuf(data)


def _parse_json(data):
    content = json.loads(data)
    operators = list(content.get("parallel_strategy_item", {}).values())
    result = StageFile(operators[0]["stage"] if operators else 0)
    for name, item in content["parallel_layout_item"].items():
        result.layouts[name] = Layout(
            item["dev_matrix"], item["tensor_map"], item["opt_weight_shard_step"],
            item["opt_weight_shard_size"], item.get("tensor_shape"),
            tuple(item.get("param_split_shape", ())), tuple(item.get("indices_offset", ())))
    return result


def _parse_protobuf(data):
    result = StageFile(None)
    for number, value in _fields(data):
        if number == 2 and result.stage is None:
            result.stage = dict(_fields(dict(_fields(value))[2]))[1]
        elif number == 3:
            parts = dict(_fields(value))
            name = bytes(parts[1]).decode()
            layout = Layout([], [])
            maps = []
            for item_field, item in _fields(parts[2]):
                if item_field == 1:
                    layout.dev_matrix = _dim_message(item)
                elif item_field == 2:
                    maps.append(_dim_message(item))
                elif item_field == 3:
                    layout.rows = tuple(_dim_message(item))
                elif item_field == 4:
                    layout.offsets = tuple(_dim_message(item))
                elif item_field == 6:
                    layout.opt_step = _signed(item)
                elif item_field == 7:
                    layout.opt_size = _signed(item)
            # Several messages are the nested form, an empty one among them
            # only marks it as such.
            layout.tensor_map = maps[0] if len(maps) == 1 else [m for m in maps if m]
            result.layouts[name] = layout
    if result.stage is None:
        result.stage = 0
    return result


def _dim_message(data):
    return [n for number, value in _fields(data) if number == 1
            for n in _integers(value)]
