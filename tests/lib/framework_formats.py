# SPDX-License-Identifier: Apache-2.0
"""Checkpoint files of PyTorch and TensorFlow, written in plain Python.

Made from the formats' own rules with the standard library, without torch or
tensorflow: a zip archive laid out as torch.save() lays it out, the pickles that
torch.save() wrote before 1.6, and TensorFlow's tensor bundle.
"""

import io
import json
import pickle
import struct
import sys
import tarfile
import types
import unittest.mock
import zipfile


# ---- PyTorch -------------------------------------------------------------

STORAGE_ALIGNMENT = 64


# Pickles name the classes of torch's storages; elements are of so many bytes.
STORAGES = {"UntypedStorage": 1, "FloatStorage": 4, "BFloat16Storage": 2,
            "LongStorage": 8, "BoolStorage": 1, "ComplexDoubleStorage": 16,
            "SomeNewStorage": 3}
_TORCH = types.ModuleType("torch")
for _name in STORAGES:
    setattr(_TORCH, _name, type(_name, (), {"__module__": "torch"}))


class _Storage:
    """Pickled by reference, as torch's storages are."""

    def __init__(self, key, data, kind="UntypedStorage"):
        self.key = key
        self.data = data
        self.kind = getattr(_TORCH, kind)
        self.count = len(data) // STORAGES[kind]


class _TorchPickler(pickle.Pickler):
    legacy = False

    def persistent_id(self, obj):
        if not isinstance(obj, _Storage):
            return None
        found = ("storage", obj.kind, obj.key, "cpu", obj.count)
        # Old files say also of which storage it is a view.
        return (*found, None) if self.legacy else found


def _object_pickle(storages, protocol=2, legacy=False):
    out = io.BytesIO()
    pickler = _TorchPickler(out, protocol=protocol)
    pickler.legacy = legacy
    # Some of what stands beside tensors in a checkpoint, and one tensor twice.
    thing = {f"layer.{s.key}.weight": s for s in storages} | {
        "epoch": 3, "best": [0.5, -(2 ** 70), None, True], "tied": storages[:1],
        "args": ("storage", (), frozenset({1}), bytearray(b"x"), 10 ** 6, "a" * 99)}
    with unittest.mock.patch.dict(sys.modules, {"torch": _TORCH}):
        pickler.dump(thing)
    return out.getvalue()


def torch_zip(contents, directory="archive", comment=b"", zip64=False):
    """A file of torch.save(): stored entries <directory>/data.pkl, byteorder,
    data/0, ... and version, contents at multiples of 64 bytes by padding in the
    extra field of the local header.  zip64 adds the end records of zip64, which
    torch writes always and zipfile never for small files."""
    storages = [_Storage(str(i), data) for i, data in enumerate(contents)]
    entries = [("data.pkl", _object_pickle(storages)), ("byteorder", b"little")]
    entries += [(f"data/{s.key}", s.data) for s in storages]
    entries.append(("version", b"3\n"))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name, data in entries:
            info = zipfile.ZipInfo(f"{directory}/{name}", (1980, 0, 0, 0, 0, 0))
            start = out.tell() + 30 + len(info.filename)
            padding = -(start + 4) % STORAGE_ALIGNMENT
            info.extra = b"FB" + struct.pack("<H", padding) + b"Z" * padding
            archive.writestr(info, data)
        archive.comment = comment
    return _with_zip64_end(out.getvalue()) if zip64 else out.getvalue()


def _with_zip64_end(data):
    at = data.rindex(b"PK\5\6")
    end = bytearray(data[at:])
    entries, size, offset = struct.unpack_from("<HII", end, 10)
    struct.pack_into("<HHII", end, 8, 0xffff, 0xffff, 0xffffffff, 0xffffffff)
    end64 = struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 0x1e03, 45, 0, 0,
                        entries, entries, size, offset)
    locator = struct.pack("<IIQI", 0x07064b50, 0, at, 1)
    return data[:at] + end64 + locator + bytes(end)


def torch_legacy(contents, protocol=2, kinds=("UntypedStorage",)):
    """A file of torch.save() before 1.6: five pickles, then the storages, whose
    classes take turns."""
    storages = [_Storage(str(9_000_000 + i), data, kinds[i % len(kinds)])
                for i, data in enumerate(contents)]
    out = io.BytesIO()
    pickle.dump(0x1950a86a20f9469cfc6c, out, protocol=protocol)
    pickle.dump(1001, out, protocol=protocol)
    pickle.dump({"protocol_version": 1001, "little_endian": True,
                 "type_sizes": {"short": 2, "int": 4, "long": 4}}, out, protocol=protocol)
    out.write(_object_pickle(storages, protocol, legacy=True))
    pickle.dump([s.key for s in storages], out, protocol=protocol)
    for storage in storages:
        out.write(struct.pack("<q", storage.count))
        out.write(storage.data)
    return out.getvalue()


def torch_tar(contents):
    """A file of torch.save() before 0.1.10: a tar archive, whose storages and
    tensors are pickles with raw bytes between them."""
    storages, tensors = io.BytesIO(), io.BytesIO()
    pickle.dump(len(contents), storages, protocol=2)
    for key, data in enumerate(contents):
        with unittest.mock.patch.dict(sys.modules, {"torch": _TORCH}):
            pickle.dump((key, "cpu", _TORCH.FloatStorage), storages, protocol=2)
        storages.write(struct.pack("<q", len(data) // 4) + data)
    pickle.dump([], storages, protocol=2)
    pickle.dump(0, tensors, protocol=2)
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as archive:
        for name, data in (("sys_info", pickle.dumps({"little_endian": True}, 2)),
                           ("pickle", pickle.dumps({"epoch": 1}, 2)),
                           ("tensors", tensors.getvalue()),
                           ("storages", storages.getvalue())):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


# ---- safetensors ---------------------------------------------------------

def safetensors_bytes(tensors):
    """tensors: {name: (dtype, shape, bytes)}"""
    header, data = {"__metadata__": {"format": "ms"}}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape),
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


# ---- TensorFlow ----------------------------------------------------------

def _crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def _masked(crc):
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def _varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7f | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Table:
    """A sorted table: blocks of entries that share the starts of their keys."""

    RESTART_INTERVAL = 16

    def __init__(self):
        self.data = b""

    def _entries(self, pairs):
        out, restarts, last = b"", [], b""
        for i, (key, value) in enumerate(pairs):
            shared = 0
            if i % self.RESTART_INTERVAL == 0:
                restarts.append(len(out))
            else:
                while shared < min(len(key), len(last)) and key[shared] == last[shared]:
                    shared += 1
            out += _varint(shared) + _varint(len(key) - shared) + _varint(len(value))
            out += key[shared:] + value
            last = key
        restarts = restarts or [0]
        return out + struct.pack(f"<{len(restarts) + 1}I", *restarts, len(restarts))

    def add_block(self, pairs):
        return self.add_content(self._entries(pairs))

    def add_content(self, content, kind=b"\0"):
        place = _varint(len(self.data)) + _varint(len(content))
        crc = _masked(_crc32c(content + kind))
        self.data += content + kind + struct.pack("<I", crc)
        return place

    def finish(self, places):
        meta = self.add_block([])
        index = self.add_block(places)
        footer = (meta + index).ljust(40, b"\0")
        return self.data + footer + struct.pack("<Q", 0xdb4775248b80fb57)


def _string_tensor(strings):
    """(bytes in the data file, CRC) of a list of bytes: their lengths, a CRC of
    these, the strings; the lengths count as 32-bit numbers."""
    lengths = b"".join(struct.pack("<I", len(s)) for s in strings)
    check = struct.pack("<I", _masked(_crc32c(lengths)))
    joined = b"".join(strings)
    return (b"".join(_varint(len(s)) for s in strings) + check + joined,
            _crc32c(lengths + check + joined))


def tensor_bundle(tensors, shards=1, block_entries=4):
    """(index, [data of each shard]) of {name: bytes, or a list of strings},
    shared out in turn."""
    data = [b""] * shards
    pairs = [(b"", b"\x08" + _varint(shards) + b"\x1a\x02\x08\x01")]
    for i, (name, content) in enumerate(sorted(tensors.items())):
        shard = i % shards
        if isinstance(content, list):
            dtype, (content, crc) = 7, _string_tensor(content)
        else:
            dtype, crc = 1, _crc32c(content)
        entry = b"\x08" + _varint(dtype) + b"\x12\x00"
        if shard:
            entry += b"\x18" + _varint(shard)
        if data[shard]:
            entry += b"\x20" + _varint(len(data[shard]))
        entry += b"\x28" + _varint(len(content))
        entry += b"\x35" + struct.pack("<I", _masked(crc))
        data[shard] += content
        pairs.append((name.encode(), entry))
    table = _Table()
    places = [(pairs[i:i + block_entries][-1][0] + b"~",
               table.add_block(pairs[i:i + block_entries]))
              for i in range(0, len(pairs), block_entries)]
    return table.finish(places), data


BUNDLE_HEADER = (b"", b"\x08\x02\x1a\x02\x08\x01")


def odd_bundle_indexes():
    """(what is wrong with it, an index of two data files) with right CRCs."""
    def index(make):
        table = _Table()
        return table.finish([(b"~", make(table))])

    end = struct.pack("<2I", 0, 1)
    for what, make in (
            ("a compressed block", lambda t: t.add_content(end, b"\1")),
            ("a block with too many restart points",
             lambda t: t.add_content(struct.pack("<2I", 0, 99))),
            ("no entry of a table", lambda t: t.add_content(b"\xff\xff" + end)),
            ("no place of a block", lambda _: b""),
            ("an index without header", lambda t: t.add_block([])),
            ("no header of a checkpoint", lambda t: t.add_block([(b"", b"\xff")])),
            ("no entry of a tensor", lambda t: t.add_block([BUNDLE_HEADER, (b"w", b"\xff")])),
            ("a tensor that is in no data file", lambda t: t.add_block(
                [BUNDLE_HEADER, (b"w", b"\x08\x01\x12\x00\x18\x07")]))):
        yield what, index(make)
