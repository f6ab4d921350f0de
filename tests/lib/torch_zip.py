# SPDX-License-Identifier: Apache-2.0
"""Writes files of torch.save() without torch: what pickle makes of an object, where a
Tensor is what torch's own pickler writes of one.  A Function is only the name of what a
call would run; Call(function, ...) is that call."""

import collections
import io
import pickle
import struct
import sys
import types
import zipfile


def Function(module, name):  # noqa: N802
    """A thing that pickle writes as this name."""
    made = type(name, (), {"__module__": module, "__qualname__": name})
    parts = module.split(".")
    for n in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:n]), types.ModuleType(parts[n - 1]))
    setattr(sys.modules[module], name, made)
    return made


FLOAT_STORAGE = Function("torch", "FloatStorage")
REBUILD = Function("torch._utils", "_rebuild_tensor_v2")


class Call:
    def __init__(self, function, *args, state=None):
        self.function, self.args, self.state = function, args, state

    def __call__(self):
        """What it makes may be called too."""

    def __reduce_ex__(self, _):
        return (self.function, self.args) + ((self.state,) if self.state is not None else ())


class _Storage:
    def __init__(self, numbers):
        self.numbers = numbers


class Tensor(Call):
    """Rows of numbers; `rebuild` and what it gets at the end may be another framework's."""

    def __init__(self, rows, rebuild=REBUILD, more=()):
        flat = [float(x) for row in rows for x in row]
        super().__init__(rebuild, _Storage(flat), 0, (len(rows), len(rows[0])),
                         (len(rows[0]), 1), False, collections.OrderedDict(), *more)
        self.data = struct.pack(f"<{len(flat)}f", *flat)
        self.shape = (len(rows), len(rows[0]))


def torch_zip(path, obj, protocol=2):
    storages = []

    class Pickler(pickle.Pickler):
        def persistent_id(self, obj):
            if not isinstance(obj, _Storage):
                return None
            if obj not in storages:
                storages.append(obj)
            return ("storage", FLOAT_STORAGE, str(storages.index(obj)), "cpu", len(obj.numbers))

    buffer = io.BytesIO()
    Pickler(buffer, protocol=protocol).dump(obj)
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("archive/data.pkl", buffer.getvalue())
        z.writestr("archive/byteorder", "little")
        for number, storage in enumerate(storages):
            z.writestr(f"archive/data/{number}",
                       struct.pack(f"<{len(storage.numbers)}f", *storage.numbers))
        z.writestr("archive/version", "3\n")
    return path
