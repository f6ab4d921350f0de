#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reshardfs.tensors: arrays that hold what a mount's files do, whole and in
parts, for programs of safetensors too; faults, cancelling, forks and threads.

    tensors.py [--seed S] [--slices N]
"""

import argparse
import contextlib
import io
import json
import os
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import types
from unittest import mock

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
TOP = os.environ.get("top_srcdir", os.path.join(os.environ.get("srcdir", "."), ".."))
sys.path[:0] = [LIB, os.path.join(TOP, "python")]

from all_sources import all_sources  # noqa: E402
from array_watch import interrupted, watched  # noqa: E402
from coming_and_going import Mirror  # noqa: E402
from daemon_use import field  # noqa: E402
from demands import check, content, within, write  # noqa: E402
from ms_formats import Layout, Record, checkpoint_bytes, parse_checkpoint  # noqa: E402
from rsh_cli import PLAIN, demo_tree  # noqa: E402
from rsh_mount import (Mounted, Skipped, Tap, Tests, require_mount, reshardfs_program,  # noqa: E402
                       skip_all)
from run_seed import run_seed  # noqa: E402
from safetensors_format import Tensors as SafetensorsFile, safetensors_head  # noqa: E402
from small_job import Job  # noqa: E402

os.environ["XDG_CACHE_HOME"] = PLAIN["XDG_CACHE_HOME"]
os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                        "libreshard.so.0")
MIB = 1 << 20
# All that a record may be, and what numpy makes of it without ml_dtypes.
KINDS = {
    "matrix": (Record((2, 3), "Float32", bytes(range(24))), "float32"),
    "scalar": (Record((), "Int64", bytes(range(8))), "int64"),
    "empty": (Record((0, 3), "Float32", b""), "float32"),
    "bool": (Record((2,), "Bool", b"\1\0"), "bool"),
    "half": (Record((2,), "Float16", b"abcd"), "float16"),
    "brain": (Record((1, 2), "BFloat16", b"abcd"), "uint16"),
    "fp8": (Record((4,), "Float8E4M3FN", b"abcd"), "uint8"),
    "fp8_wide": (Record((4,), "Float8E5M2", b"abcd"), "uint8"),
    "hi": (Record((4,), "HiFloat8", b"abcd"), "uint8"),
    "int4": (Record((4,), "Int4", b"\1\2\3\4"), "int8"),
    "complex": (Record((1,), "Complex64", b"abcdefgh"), "complex64"),
    "complex_wide": (Record((1,), "Complex128", b"abcdefghijklmnop"), "complex128"),
    "text": (Record((0,), "str", "h\u00e4l\U0001f600".encode("utf-32-le")), "str"),
}
SHAPES = {"up.weight": (2048, 700), "down.weight": (500, 1024), "norm.gamma": (700,)}
STEP = (1, 10)
test = Tests("tensors")


def enter_python_with_numpy():
    """Run under the Python of an oracle, which has numpy and safetensors."""
    for name in ("RSH_HF_PYTHON", "RSH_ORACLE_PYTHON"):
        python = os.environ.get(name)
        if python and "RSH_TENSORS_ENTERED" not in os.environ:
            os.environ["RSH_TENSORS_ENTERED"] = name
            os.execv(python, [python, *sys.argv])
    try:
        import numpy  # pylint: disable=import-outside-toplevel,unused-import
    except ImportError:
        skip_all("RSH_ORACLE_PYTHON does not name a Python that has numpy")


def module(name):
    try:
        return __import__(name)
    except ImportError:
        raise Skipped(f"RSH_HF_PYTHON does not name a Python that has {name}") from None


def refused(word, function, *arguments, kind=None, **options):
    try:
        function(*arguments, **options)
    except (kind or rfs.Error) as error:
        check(word in str(error) and "\n" not in str(error), repr(error))
        return error
    raise AssertionError(f"nothing says {word}")


class Case:
    """A job whose slices two ranks each have, and one wanted of four ranks."""

    def __init__(self, directory, seed, n_slices):
        self.directory, self.seed, self.n_slices = directory, seed, n_slices
        self.source, src, dst = demo_tree(os.path.join(directory, "demo"))
        self.both = {"src_strategy": src, "dst_strategy": dst}
        self.job = Job(os.path.join(directory, "job"), shapes=SHAPES)
        self.job.save(*STEP)
        self.own = {"src_strategy": self.job.strategy, "dst_strategy": self.job.strategy}
        self.kinds = os.path.join(directory, "kinds")
        write(os.path.join(self.kinds, "rank_0", "net-1_1.ckpt"),
              checkpoint_bytes({name: record for name, (record, _) in KINDS.items()}))

    def expected(self, rank):
        """The records that the job's rank saved."""
        return {name: r.content for name, r in self.job.records(rank, *STEP).items()}

    def tensors(self, rank=1, **options):
        return rfs.tensors(self.source, rank, **{**self.both, **options})

    def of_job(self, rank=1, **options):
        return rfs.tensors(self.job.source, rank, **{**self.own, **options})


def demand_same(arrays, expected):
    check(list(arrays) == list(expected), f"{list(arrays)} and not {list(expected)}")
    for name, content in expected.items():
        check(arrays[name].tobytes() == content, f"{name} differs")


# ---- what the arrays are ----

@test
def what_old_releases_wrote(case):
    """BFloat16 of four bytes, of which the upper two count, and scalars with a dimension;
    the parser knows them from the files of such releases."""
    tree = os.path.join(case.directory, "old")
    wide = b"".join(b"\0\0" + bytes([n, 0x3f]) for n in range(6))
    write(os.path.join(tree, "rank_0", "net-1_1.ckpt"), checkpoint_bytes(
        {"wide": Record((2, 3), "BFloat16", wide), "one": Record((0,), "Float32", b"abcd"),
         "wide_one": Record((), "BFloat16", b"abcd")}))
    t = rfs.tensors(tree, 0, src_strategy="none", dst_strategy="none")
    check([t.record(n).shape for n in t] == [(2, 3), (), ()], [t.record(n) for n in t])
    demand_same(t.load(), {"wide": b"".join(wide[i + 2:i + 4] for i in range(0, 24, 4)),
                           "one": b"abcd", "wide_one": b"cd"})
    check(t.get_slice("wide")[1, :2].tobytes() == wide[14:16] + wide[18:20], "a part")


@test
def all_of_a_file_as_a_mount_shows_it(case):
    with Mounted(case.source, **case.both) as m:
        for rank in range(4):
            with open(m.rank_file(rank), "rb") as f:
                shown = parse_checkpoint(f.read())
            t = case.tensors(rank)
            check([t.record(name).shape for name in t] == [r.dims for r in shown.values()], rank)
            contents = {name: r.content for name, r in shown.items()}
            demand_same(t.load(), contents)
            demand_same(dict(t), contents)
            demand_same({name: t.get_slice(name)[...] for name in t}, contents)


@test
def safetensors_files_and_models_in_parts(case):
    for options, n_files in (({"format": "safetensors"}, 4),
                             ({"format": "hf", "dst_strategy": "none", "part_size": "3MB"}, 0)):
        options = {**case.both, **options}
        with rfs.Source(case.source, **options) as s:
            files = [SafetensorsFile(s.read(n)) for n, f in enumerate(s.files())
                     if f.name.endswith(".safetensors")]
        check(n_files in (0, len(files)) and len(files) > 1, files)
        for number, file in enumerate(files):
            t = rfs.tensors(case.source, number, **options)
            check(t.metadata() == (file.metadata or None), t.metadata())
            demand_same(t.load(), {name: v[2] for name, v in file.values().items()})
            check({n: (t.get_slice(n).get_dtype(), tuple(t.get_slice(n).get_shape()))
                   for n in t} == {n: v[:2] for n, v in file.values().items()}, "types")
    whole = rfs.tensors(case.source, **options)
    demand_same(whole.load(), {n: v[2] for file in files for n, v in file.values().items()})
    check(whole.metadata() == {"format": "pt"}, whole.metadata())
    refused("choose a rank", rfs.tensors, case.source, **case.both)


def kinds_of(case, **options):
    return rfs.tensors(case.kinds, 0, src_strategy="none", dst_strategy="none", **options)


@test
def every_type_of_element(case):
    check("ml_dtypes" not in sys.modules, "the test is to say itself when there are ml_dtypes")
    sys.modules["ml_dtypes"] = None
    t = kinds_of(case)
    check(t.metadata() is None, t.metadata())
    for name, (record, dtype) in KINDS.items():
        array = t[name]
        if dtype == "str":
            check(array == "h\u00e4l\U0001f600" and type(array) is str, repr(array))
            refused("string", t.get_slice, name, kind=TypeError)
            continue
        check((array.dtype, array.shape) == (dtype, record.dims), f"{name} is {array!r}")
        check(array.tobytes() == record.content and array.flags.writeable, name)
        check(t.get_slice(name)[...].tobytes() == record.content, f"part of {name}")
    # The first look decides for the process.
    rfs._kinds.numpy_type.cache_clear()
    sys.modules["ml_dtypes"] = types.SimpleNamespace(
        bfloat16=np.float16, float8_e4m3fn=np.int8)
    check(t["brain"].dtype == np.float16 and t["fp8"].dtype == np.int8 and
          t["fp8_wide"].dtype == np.uint8, "ml_dtypes are not used")
    del sys.modules["ml_dtypes"], rfs._imports._modules["ml_dtypes"]
    rfs._kinds.numpy_type.cache_clear()


@test
def torch_shares_the_memory(case):
    torch = module("torch")
    t = kinds_of(case, to="torch")
    special = {"brain": torch.bfloat16, "fp8": torch.float8_e4m3fn,
               "fp8_wide": torch.float8_e5m2, "hi": torch.uint8, "int4": torch.int8}
    for name, (record, dtype) in KINDS.items():
        if dtype != "str":
            tensor = t[name]
            check(tensor.dtype == special.get(name, getattr(torch, dtype)), tensor)
            check(tuple(tensor.shape) == record.dims, tensor)
            check(bytes(tensor.reshape(-1).view(torch.uint8).tolist()
                        if record.content else b"") == record.content, name)
    t, n = case.tensors(to="pt"), case.tensors()
    for index in (0, (-1, 2), None, [0, 1], (slice(None), [1, 0]), torch.tensor([1]), True,
                  (..., slice(1, 9, 2)), (slice(0, 30, 7), slice(3, 40))):
        whole, part = t["large.columns"][index], t.get_slice("large.columns")[index]
        check(whole.shape == part.shape and
              whole.numpy().tobytes() == part.numpy().tobytes(), f"{index} differs")
    refused("step", lambda: t.get_slice("large.rows")[::-1], kind=ValueError)
    check(t["large.rows"].numpy().tobytes() == n["large.rows"].tobytes(), "large.rows")


@test
def a_mapping_in_the_order_of_the_file(case):
    with case.tensors() as t:
        names = [r.name for r in rfs.records(case.source, 1, **case.both)]
        check(repr(t).endswith(f": {len(names)} tensors>") and "rank=1" in repr(t), t)
        check(names[0] in repr(t.get_slice(names[0])), t.get_slice(names[0]))
        check(list(case.tensors("1")) == names, "a rank as text")
        check(list(t) == names == list(t.keys()) == t.offset_keys(), list(t))
        check(len(t) == len(t.keys()) == len(names) and names[0] in t and "no" not in t, t)
        check(t.keys()[1] == names[1] and t.keys() & {names[2], "no"} == {names[2]}, "keys")
        check(list(t.load(names[3:1:-1])) == names[3:1:-1] and t.load([]) == {}, "load")
        check(t[names[1]] is not t[names[1]] and t.get("no") is None, "access")
        for ask in (t.get_tensor, t.get_slice, t.record, lambda n: t[n], lambda n: t.load([n])):
            refused("no_such", ask, "no_such", kind=KeyError)
    refused("closed", t.load, kind=ValueError)
    refused("not \"paper\"", case.tensors, to="paper", kind=ValueError)
    refused("no file 9", case.tensors, 9)
    refused("nothing_such", case.tensors, nothing_such=True)


# ---- weights for engines ----

def whole_model(case):
    """The options of weights(), and what a mount's files have, in their order."""
    options = {"src_strategy": case.both["src_strategy"], "part_size": "3MB"}
    with Mounted(case.source, src_strategy=options["src_strategy"], dst_strategy=None,
                 extra=["--format", "hf", "--part-size", "3MB"]) as mount:
        names = sorted(n for n in os.listdir(mount.path) if n.endswith(".safetensors"))
        check(len(names) > 1, names)
        found = {}
        for name in names:
            found.update({n: value for n, (*_, value) in SafetensorsFile(
                content(os.path.join(mount.path, name))).values().items()})
    return options, found


@contextlib.contextmanager
def counted_loads():
    """The sizes of the calls that read."""
    sizes, load = [], rfs.Source._load_wants

    def counted(source, wants, n, whole, *more, **named):
        sizes.append(whole)
        return load(source, wants, n, whole, *more, **named)

    with mock.patch.object(rfs.Source, "_load_wants", counted):
        yield sizes


@test
def weights_are_those_of_the_files_in_their_order(case):
    options, expected = whole_model(case)
    demand_same(dict(rfs.weights(case.source, to="numpy", **options)), expected)
    with mock.patch.object(rfs._weights, "_AT_ONCE", 1), \
            mock.patch.object(rfs._weights, "_RUNS", 3):
        found = rfs.weights(case.source, to="numpy", threads=2, **options)
        demand_same(dict(found), expected)
    some = list(expected)[1::2]
    found = rfs.weights(case.source, to="numpy", choice_func=some.__contains__, **options)
    demand_same(dict(found), {name: expected[name] for name in some})


@test
def weights_of_a_rank_are_its_parts(case):
    options, _ = whole_model(case)
    whole = dict(rfs.weights(case.source, to="numpy", **options))

    def last(name, shape):
        return len(shape) - 1 if shape and shape[-1] % 2 == 0 else None

    with counted_loads() as sizes:
        parts = [dict(rfs.weights(case.source, rank=str(r), world=2, cut=last, to="numpy",
                                  **options)) for r in range(2)]
    cut = 0
    for name, array in whole.items():
        axis = last(name, array.shape)
        cut += axis is not None
        for part, wanted in zip([p[name] for p in parts], [array] * 2 if axis is None else
                                np.split(array, 2, axis)):
            check(part.shape == wanted.shape and part.tobytes() == wanted.tobytes(), name)
    check(cut > 2 and sum(sizes) == sum(a.nbytes for p in parts for a in p.values()), sizes)
    odd = next(n for n, a in whole.items() if a.ndim and a.shape[0] % 7)
    refused(f"{odd}: dimension 0", rfs.weights, case.source, rank=0, world=7, **options,
            cut=lambda name, shape: 0 if name == odd else None)


def elements(tensor):
    torch = module("torch")
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype).copy_(tensor.reshape(-1))
    return flat.view(torch.uint8).tolist()


def random_view(numbers, tensor):
    """A step that takes a part, as one that a part of a source has to take without reading."""
    axes = [d for d, n in enumerate(tensor.shape) if n > 1]
    if not axes or numbers.random() < 0.2:
        axis = numbers.randrange(-tensor.dim() - 1, tensor.dim() + 1)
        return lambda t: t.unsqueeze(axis)
    axis = numbers.choice(axes)
    n = tensor.shape[axis]
    start, at = sorted((numbers.randrange(n + 1), numbers.randrange(n)))
    where = numbers.randrange(n) - numbers.choice([0, n])
    return numbers.choice([
        lambda t: t.detach().narrow(axis, start, at - start) if at >= start else t,
        lambda t: t.select(axis, where), lambda t: t.unbind(axis)[where],
        lambda t: t.chunk(3, axis)[-1], lambda t: t[(..., *[slice(None)] * (
            t.dim() - axis - 1))] if t.dim() == axis + 1 else t[(slice(None),) * axis +
                                                                 (slice(start, at),)]])


def refused_alike(view, part, tensor):
    """What torch refuses of a tensor it refuses of a part, with the same words."""
    try:
        view(tensor)
    except (IndexError, RuntimeError) as error:
        refused(str(error).split(" (")[0].split(" at ")[0], view, part, kind=type(error))
    else:
        raise AssertionError("torch takes it")


@test
def weights_are_read_by_slices(case):
    torch = module("torch")
    numbers = random.Random(case.seed)
    options, _ = whole_model(case)
    whole = dict(rfs.weights(case.source, **options))
    for name, part in rfs.weights(case.source, slices=True, **options):
        t = whole[name]
        check(part.shape == t.shape and part.dtype == t.dtype, name)
        check(elements(part) == elements(t), name)
        for _ in range(12):
            cut, expected = part, t
            with counted_loads() as sizes:
                for _ in range(numbers.randrange(1, 4)):
                    view = random_view(numbers, expected)
                    cut, expected = view(cut), view(expected)
                said = f"seed {case.seed}: {name}, {cut!r} of {t.shape}"
                check(not sizes and cut.shape == expected.shape, said)
                found = torch.empty_like(expected).copy_(cut)
            check(sum(sizes) == expected.numel() * t.element_size(), f"{said}: {sizes}")
            check(elements(found) == elements(expected), said)
        for wrong in (lambda t: t.select(0, t.shape[0]), lambda t: t.select(-1, -9 ** 9),
                      lambda t: t.split([0] * 3 + [t.shape[0] + 1]), lambda t: t.split(-1),
                      lambda t: t.unsqueeze(t.dim() + 1), lambda t: t.unbind(t.dim())):
            refused_alike(wrong, part, t)
        for view in (lambda t: t.split(t.shape[0] + 1), lambda t: t[:0].split(2),
                     lambda t: t[:0].split(0), lambda t: t[:0].chunk(2)) if t.dim() else ():
            check([one.shape for one in view(part)] == [one.shape for one in view(t)], name)
    refused("cannot be changed", part.zero_)
    refused("cannot be changed", lambda: torch._foreach_add_([part], 1))
    refused("cannot be changed", lambda: torch.add(whole[name], 1, out=part))
    check(name in repr(part) and "\n" not in repr(part), part)


@test
def tensors_read_by_slices_have_no_address(case):
    """What would use an address reads the bytes, or is refused."""
    torch = module("torch")
    options, _ = whole_model(case)
    name, array = next((n, a) for n, a in rfs.weights(case.source, to="numpy", **options)
                       if a.dtype == np.float32 and a.ndim == 2)
    part, = (t for n, t in rfs.weights(case.source, slices=True, choice_func=name.__eq__,
                                       **options))
    for made in torch.from_dlpack(part).numpy(), part.numpy(), np.asarray(part):
        check(made.tobytes() == array.tobytes(), name)
    check(np.array_equal(part.tolist(), array, equal_nan=True), name)
    check(torch.from_dlpack(part[1]).numpy().tobytes() == array[1].tobytes(), name)
    refused("no memory", part.data_ptr)
    refused("no memory", part.share_memory_)
    refused("no memory", part.__dlpack__, copy=False)
    refused("cannot be changed", part.apply_, abs)
    check(not part.is_shared(), name)
    if hasattr(torch._C, "_set_storage_data_ptr_access_error_msg"):
        other = torch.zeros(part.shape)
        other.data = part
        refused("no memory", other.add, 1, kind=RuntimeError)
        refused("no memory", torch.utils.dlpack.to_dlpack, part, kind=RuntimeError)


@test
def weights_end_whenever_they_are_left(case):
    options, expected = whole_model(case)
    with watched(rfs) as arrays, mock.patch.object(rfs._weights, "_AT_ONCE", 1):
        found = rfs.weights(case.source, to="numpy", **options)
        next(found)
        child = os.fork()
        if not child:
            try:
                refused("opened before a fork", next, found)
            finally:
                os._exit(1 if sys.exc_info()[0] else 0)
        check(os.waitpid(child, 0)[1] == 0, "a child of a fork goes on")
        found.close()
        within(10, lambda: not [t for t in threading.enumerate()
                                if t.name == "reshardfs-weights"], "a thread goes on")
        del found
        check(arrays.left()[0] == 0, arrays.left())
    program = """if True:
        import atexit, os, sys, threading
        atexit.register(lambda: [os._exit(3) for t in threading.enumerate()
                                 if t.name.startswith("reshardfs")])
        sys.path.insert(0, sys.argv[1])
        import reshardfs
        reshardfs._weights._AT_ONCE = 1
        found = reshardfs.weights(sys.argv[2], to="numpy", **eval(sys.argv[3]))
        next(found)
        """
    slow = {**options, "fault": "delay=50ms@rank_", "log_to": "file:" + os.devnull}
    got = subprocess.run([sys.executable, "-c", program, os.path.join(TOP, "python"),
                          case.source, repr(slow)], check=False, timeout=60, stderr=subprocess.PIPE)
    check(got.returncode == 0, f"a thread reads when Python has ended: {got.returncode} {got.stderr}")
    last = list(expected)[-1]
    record = rfs.tensors(case.source, format="hf", **options).record(last)
    check(record.bytes > 0, record)
    fault = {**options, "fault": "eio@rank_", "log_to": "file:" + os.devnull}
    refused("", lambda: list(rfs.weights(case.source, to="numpy", **fault)))
    refused("absent", rfs.weights, os.path.join(case.directory, "absent"))
    for words, said in (({"format": "ckpt"}, "no option format"), ({"rank": 1}, "together"),
                        ({"rank": 0, "world": 2}, "together"),
                        ({"rank": 0, "world": 1, "cut": print, "slices": True}, "exclude")):
        refused(said, rfs.weights, case.source, kind=TypeError, **options, **words)
    refused("no rank 2 of 2", rfs.weights, case.source, kind=ValueError, rank="2", world="2",
            cut=print, **options)


# ---- parts of arrays ----

def random_index(numbers, shape):
    def one(n):
        kind = numbers.randrange(5)
        if kind == 0:
            return numbers.randrange(-n - 1, n + 1)
        if kind == 1:
            return slice(None)
        ends = [numbers.choice([None, numbers.randrange(-n - 3, n + 4)]) for _ in range(2)]
        return slice(*ends, numbers.choice([None, 1, 2, 3, n // 2 or 1, 70, -1]))
    index = [one(n) for n in shape[:numbers.randrange(len(shape) + 1)]]
    if numbers.random() < 0.3:
        index.append(...)
        index += [one(n) for n in shape[len(index) - 1:]][::-1][:1] if numbers.random() < .5 else []
    if numbers.random() < 0.05:
        index.insert(0, numbers.choice([None, True, [0, 1], np.int64(0), ...]))
    return index[0] if len(index) == 1 and numbers.random() < 0.5 else tuple(index)


@test
def random_parts_are_those_of_the_array(case):
    numbers = random.Random(case.seed)
    t = case.tensors()
    whole = t.load()
    for _ in range(case.n_slices):
        name = numbers.choice(list(t))
        index = random_index(numbers, whole[name].shape)
        said = f"seed {case.seed}: {name}[{index}] of {whole[name].shape}"
        try:
            expected = whole[name][index]
        except IndexError:
            refused("", lambda n=name, i=index: t.get_slice(n)[i], kind=IndexError)
            continue
        part = t.get_slice(name)[index]
        check(part.shape == expected.shape and part.dtype == expected.dtype, said)
        check(part.tobytes() == expected.tobytes(), said)


def bytes_read():
    with open("/proc/self/io", encoding="ascii") as f:
        return int(f.readline().split()[1])


@test
def parts_read_their_rows_alone(case):
    t = case.of_job(cache="off")
    rows = t.get_slice("up.weight")
    before = bytes_read()
    part = rows[100:108]
    read = bytes_read() - before
    check(part.nbytes == 8 * 700 * 4 <= read <= part.nbytes + MIB / 8, f"{read} bytes are read")


PROGRAM = """
with safe_open(path, framework=framework) as f:
    found = [f.metadata(), sorted(f.keys()), offset_keys(f)]
    for name in sorted(f.keys()):
        part = f.get_slice(name)
        shape = part.get_shape()
        found += [name, shape, part.get_dtype(), f.get_tensor(name), part[:]]
        if len(shape) == 2:
            found += [part[:, : shape[1] // 2], part[3], later(f, name)[..., 5], later(f, name)[::2],
                      part[1:4, 2:9], part[-1, 0]]
"""
CHANGED = ("with safe_open(path, framework=framework) as f:",
           "with reshardfs.tensors(source, 1, framework, format='safetensors', **both) as f:")


def outcome(program, **room):
    """What it found, and nothing that keeps its file open."""
    exec(program, room)  # pylint: disable=exec-used
    found = room["found"]
    room.clear()
    # Bits, not numbers: there are NaNs.
    return [(str(f.dtype), tuple(f.shape), np.asarray(f).tobytes())
            if hasattr(f, "dtype") else f for f in found]


@test
def a_program_of_safetensors_runs_with_one_changed_line(case):
    safetensors = module("safetensors")
    ours = {"offset_keys": lambda f: f.offset_keys(),
            "later": lambda f, name: f.get_slice(name)}
    # numpy has no BFloat16, and a scalar has no first dimension.
    options = {**case.both, "drop": "|".join(
        re.escape(r.name) for r in rfs.records(case.source, 1, **case.both)
        if r.dtype == "BFloat16" or not r.shape)}
    frameworks = ["np"]
    with contextlib.suppress(Skipped):
        module("torch")
        frameworks.append("pt")
    for framework in frameworks:
        with Mounted(case.source, **case.both,
                     extra=["--format", "safetensors", "--drop", options["drop"]]) as m:
            path = os.path.join(m.path, "rank_1/checkpoint_1.safetensors")
            theirs = ours
            if not hasattr(safetensors.safe_open, "offset_keys"):
                # safetensors 0.5.3 lacks it, takes no ellipsis and ignores steps.
                in_file = list(SafetensorsFile(content(path)).entries)
                theirs = {"offset_keys": lambda f, names=in_file: names,
                          "later": lambda f, name: f.get_tensor(name)}
            expected = outcome(PROGRAM, path=path, safe_open=safetensors.safe_open,
                               framework=framework, **theirs)
        check(len(expected) > 20, expected)
        found = outcome(PROGRAM.replace(*CHANGED), source=case.source, both=options,
                        reshardfs=rfs, framework=framework, **ours)
        check(found == expected, f"{framework}: {[f for f in found if type(f) is not tuple]}")


# ---- memory ----

def peak(reset=False):
    if reset:
        write("/proc/self/clear_refs", b"5")
    return field("self", "VmHWM") << 10


@test
def large_arrays_begin_where_huge_pages_may(case):
    for name, array in case.of_job().load().items():
        check(array.nbytes < 2 * MIB or array.ctypes.data % (2 * MIB) == 0, name)
    from reshardfs._memory import fresh  # pylint: disable=import-outside-toplevel
    for size in (0, 1, 2 * MIB - 1, 2 * MIB, 5 * MIB + 3):
        array = fresh(size)
        array[:] = 7
        check(array.nbytes == size and array.flags.writeable, size)
        check(size < 2 * MIB or array.ctypes.data % (2 * MIB) == 0, size)


@test
def a_load_takes_little_more_than_its_arrays(case):
    job = Job(os.path.join(case.directory, "large"), n_ranks=2,
              layouts={"w": Layout([2], [-1, 0])},
              shapes={"w": (16384, 512)})
    job.save(*STEP)
    with rfs.tensors(job.source, src_strategy=job.strategy, dst_strategy="none") as t:
        size = t.record("w").bytes
        before = peak(reset=True)
        array = t["w"]
        check(array.nbytes == size == 32 * MIB, size)
        check(peak() - before <= size + 64 * MIB, f"{peak() - before} bytes")


# ---- on the way ----

@test
def progress_is_told(case):
    told = []
    t = case.tensors()
    whole = sum(t.record(name).bytes for name in t)
    t.load(progress=lambda done, of: told.append((done, of)))
    check(told == sorted(told) and told[-1] == (whole, whole), told)
    check(all(of == whole for _, of in told), told)
    with contextlib.redirect_stderr(io.StringIO()) as said:
        t.load(progress=True)
    check(said.getvalue().startswith("\r[") and said.getvalue().endswith("\n"), said.getvalue())


class Mine(Exception):
    pass


def loads():
    return [t.name for t in threading.enumerate() if t.name == "reshardfs-load"]


# Some of what rank 1 saved takes its time; the rest does not.
SLOW = {"cache": "off", "fault": "delay=50ms@rank_1/:1000000-1001000"}


@test
def a_callback_cancels(case):
    def raises(*_):
        raise Mine("enough")

    for options in ({}, SLOW):
        t = case.of_job(**options)
        for threads in (0, 1):
            refused("enough", t.load, progress=raises, threads=threads, kind=Mine)
        within(60, lambda: not loads(), "no load goes on")
        demand_same(t.load(), case.expected(1))


@test
def a_signal_cancels(case):
    def interrupt():
        while not loads():
            pass
        os.kill(os.getpid(), signal.SIGINT)

    def load(t):
        threading.Thread(target=interrupt).start()
        t.load()
        signal.pause()  # The load was faster than the signal.

    t = case.of_job(**SLOW)
    refused("", load, t, kind=KeyboardInterrupt)
    refused("", t.load, progress=lambda *_: os.kill(os.getpid(), signal.SIGINT),
            kind=KeyboardInterrupt)
    within(60, lambda: not loads(), "no load goes on")
    demand_same(t.load(), case.expected(1))


@test
def another_thread_stops_a_load(case):
    begun, enough, ended = threading.Event(), threading.Event(), []

    def progress(*_):
        begun.set()
        enough.wait()
        raise Mine("enough")

    def load():
        try:
            case.of_job(**SLOW).load(progress=progress)
        except Mine:
            ended.append(True)

    thread = threading.Thread(target=load)
    thread.start()
    begun.wait()
    enough.set()
    thread.join()
    check(ended, "the load ended by itself")


def resident():
    return int(content("/proc/self/statm").decode().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def ways_to_load(case, options, **words):
    t = case.of_job(**options)
    source = rfs.Source(case.job.source, **case.own, **options)
    return [lambda: t.load(**words), lambda: t["up.weight"],
            lambda: t.get_slice("up.weight")[3:900, 1:], lambda: dict(t),
            lambda: source.load_bytes(1, **words)]


@test
def what_is_stopped_leaves_no_array(case):
    """Each array is gone when its exception is, without the garbage collector."""
    numbers = random.Random(case.seed)
    slow = {"cache": "off", "fault": "delay=25ms@rank_1/:1000000-6000000"}
    broken = {"cache": "off", "fault": "truncate@rank_,after=3", "log_to": "file:" + os.devnull}

    def raises(done, whole):
        if numbers.random() < 0.5 or done == whole:
            raise Mine("enough")

    with watched(rfs) as arrays:
        before, n = resident(), 0
        for _ in range(8):
            for load in ways_to_load(case, slow):
                n += interrupted(numbers, load)
                check(arrays.left()[0] == 0, f"seed {case.seed}: {arrays.left()} are left")
        check(n > 5, f"seed {case.seed}: {n} loads were stopped")
        for options in ({}, slow, broken):
            for number, load in enumerate(ways_to_load(case, options, progress=raises)):
                with contextlib.suppress(Mine, rfs.Error):
                    load()
                check(arrays.left()[0] == 0, f"{options}, {number}: {arrays.left()} are left")
        size = sum(map(len, case.expected(1).values()))
        check(arrays.left()[1] > 100, f"{arrays.left()[1]} arrays were made")
        check(resident() - before < 3 * size, f"{resident() - before} bytes more, {size} a load")


@test
def a_source_that_hangs_holds_nobody(case):
    """A load that is stopped is left to its read, which may end later, also behind the
    source's end."""
    job = Job(os.path.join(case.directory, "hanging"), shapes=SHAPES)
    job.save(*STEP)
    expected = {name: r.content for name, r in job.records(1, *STEP).items()}
    mirror = Mirror(job)
    mirror.come()
    try:
        options = {"src_strategy": job.strategy, "dst_strategy": job.strategy, "cache": "off"}
        t = rfs.tensors(job.source, 1, **options)
        s = rfs.Source(job.source, **options)
        mirror.sick("HANG rank_")

        def raises(*_):
            raise Mine("enough")

        def interrupt():
            while len(loads()) < 3:
                pass
            os.kill(os.getpid(), signal.SIGINT)

        refused("enough", t.load, progress=raises, kind=Mine)
        refused("enough", s.load_bytes, 1, progress=raises, kind=Mine)
        check(len(loads()) == 2, loads())
        threading.Thread(target=interrupt).start()
        refused("", lambda: t["up.weight"], kind=KeyboardInterrupt)
        s.close()
        mirror.well()
        within(60, lambda: not loads(), "the reads have ended")
        demand_same(t.load(), expected)
        refused("closed", s.files, kind=ValueError)
        t.close()
    finally:
        mirror.end()


@contextlib.contextmanager
def or_an_error(failures):
    try:
        yield
    except rfs.Error as error:
        check("rank_" in str(error) and error.errno, repr(error))
        failures.append(error)


def demand_right(t, expected):
    """In one load, one by one, and of some a part; how often something failed."""
    failures = []
    with or_an_error(failures):
        demand_same(t.load(), expected)
    for name in t:
        with or_an_error(failures):
            check(t[name].tobytes() == expected[name], name)
        with or_an_error(failures):
            shape = t.record(name).shape
            if len(shape) == 2:
                part = np.frombuffer(expected[name], np.float32).reshape(shape)[1:9, 2:700:5]
                check(t.get_slice(name)[1:9, 2:700:5].tobytes() == part.tobytes(), name)
    return len(failures)


@test
def a_fault_on_each_read(case):
    """Each in turn fails, with all that are behind it: right values or an error.  Where
    other ranks have the same, it is right values."""
    whole = {**case.own, "dst_strategy": "none"}
    with rfs.tensors(case.job.source, 0, **whole) as t:
        arrays = {name: array.tobytes() for name, array in t.load().items()}
    for options, rank, expected in ((case.own, 1, case.expected(1)), (whole, 0, arrays)):
        after, failed = 0, True
        while failed:
            fault = {"fault": f"truncate@rank_,after={after}", "log_to": "file:" + os.devnull}
            with rfs.tensors(case.job.source, rank, cache="off", **fault, **options) as t:
                failed = demand_right(t, expected)
            fault["fault"] = f"truncate@rank_1/,after={after}"
            with rfs.tensors(case.job.source, rank, **fault, **options) as t:
                check(not demand_right(t, expected), "with a replica it fails")
            after += 1 + after // 8
        check(after > 5, f"{after} reads")


@test
def sources_of_every_kind(case):
    """Each array is what a mount's file holds in its place."""
    numbers = random.Random(case.seed)
    for kind in all_sources(os.path.join(case.directory, "every-kind"), case.seed):
        with rfs.Source(kind.source, **kind.options) as s:
            for number, records in ((n, s.records(n)) for n in range(len(s.files()))):
                if not records:
                    continue
                shown = s.read(number)
                expected = {r.name: shown[r.offset + r.stored - r.bytes:r.offset + r.stored]
                            for r in records}
                t = rfs.tensors(kind.source, number, **kind.options)
                arrays = t.load(threads=numbers.randrange(4))
                demand_same(arrays, expected)
                for name, array in arrays.items():
                    index = random_index(numbers, array.shape)
                    with contextlib.suppress(IndexError):
                        part = array[index]
                        check(t.get_slice(name)[index].tobytes() == part.tobytes(),
                              f"{kind.name}: {name}[{index}]")


# ---- processes and threads ----

@test
def a_child_of_a_fork_opens_anew(case):
    t, s = case.tensors(), rfs.Source(case.source, **case.both)
    expected = {name: array.tobytes() for name, array in t.load().items()}
    child = os.fork()
    if not child:
        status = 1
        try:
            demand_same(t.load(), expected)
            demand_same({n: t[n] for n in t}, expected)
            demand_same(case.tensors().load(), expected)
            refused("fork", s.read, 0)
            s.close()
            status = 0
        finally:
            os._exit(status)  # pylint: disable=protected-access
    check(os.waitpid(child, 0)[1] == 0, "the child failed")
    demand_same(t.load(), expected)


@test
def threads_of_a_child_open_anew_at_once(case):
    at = os.path.join(case.directory, "children")
    os.makedirs(os.path.join(at, "other"))
    write_model(os.path.join(at, "model.safetensors"),
                **{f"t{i}": ((1, 1), i) for i in range(300)})
    # So many that each thread looks at the directory while others list tensors.
    for i in range(50):
        write(os.path.join(at, "other", str(i)), b"")
    t = rfs.tensors(at, model_files="none")
    expected = {name: array.tobytes() for name, array in t.load().items()}
    check(len(expected) == 300, len(expected))

    def load(go, wrong):
        try:
            go.wait()
            demand_same(t.load(), expected)
        except BaseException as error:  # pylint: disable=broad-except
            wrong.append(error)

    for _ in range(30):
        child = os.fork()
        if not child:
            go, wrong = threading.Barrier(8), []
            threads = [threading.Thread(target=load, args=(go, wrong)) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            os._exit(bool(wrong))  # pylint: disable=protected-access
        check(os.waitpid(child, 0)[1] == 0, "a thread of the child failed")


@test
def a_child_of_a_fork_does_not_wait_for_imports(case):
    """Threads of the parent look for ml_dtypes, which may not be there, load the library
    and share a source."""
    code = """
import os, signal, sys, threading
sys.path[:0] = {path!r}
import reshardfs
options = dict(src_strategy="none", dst_strategy="none")
first = reshardfs.tensors({source!r}, 0, **options)
go = threading.Barrier(4)
def load():
    go.wait()
    first.load()
threads = [threading.Thread(target=load) for _ in range(3)]
for thread in threads:
    thread.start()
go.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(60)
    first.load()
    os._exit(0)
for thread in threads:
    thread.join()
sys.exit(os.waitpid(pid, 0)[1] != 0)
"""
    for _ in range(10):
        got = subprocess.run([sys.executable, "-c", code.format(
            path=sys.path, source=case.kinds)], check=False)
        check(got.returncode == 0, "a child hung")


@test
def numbers_that_no_record_can_have(case):
    with rfs.Source(case.source, **case.both) as s:
        for want in (-1, 0, 0), (0, -1, 0), (0, 0, -1), (2**32, 0, 0), (0, 2**32, 0), \
                (0, 0, 2**64):
            refused("no record can have", s.load_into, [(*want, bytearray(1))], kind=ValueError)


@test
def threads_share_one_source(case):
    wrong, opened = [], []

    def load(rank):
        t = case.of_job(rank)
        opened.append(t._open().source)  # pylint: disable=protected-access
        try:
            demand_same(t.load(threads=rank % 3), case.expected(rank))
            demand_same({n: t.get_slice(n)[...] for n in t}, case.expected(rank))
        except Exception as error:  # pylint: disable=broad-except
            wrong.append(error)

    threads = [threading.Thread(target=load, args=(i % 8,)) for i in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(not wrong, wrong)
    check(len(set(map(id, opened))) == 1, "there are several sources")


@test
def ranks_share_what_they_read(case):
    """Through the cache of the one source that is open, which a slow source has by
    itself: one after the other, at the same time, and record by record with little
    memory."""
    layout = Layout([4], [0, -1])
    shapes = {f"w{n}": (512, 1024) for n in range(4)}
    job = Job(os.path.join(case.directory, "shared"), dict.fromkeys(shapes, layout), shapes, 4)
    job.save(*STEP)
    whole = Layout([4], [-1, -1])
    every = Job(os.path.join(case.directory, "every"), dict.fromkeys(shapes, whole), shapes, 4)
    options = {"src_strategy": job.strategy, "dst_strategy": every.strategy}
    with rfs.tensors(job.source, 0, **options) as t:
        expected = {name: array.tobytes() for name, array in t.load().items()}

    def one_after_the_other(tensors):
        for t in tensors:
            demand_same(t.load(), expected)

    def at_once(tensors):
        threads = [threading.Thread(target=t.load) for t in tensors]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    size = sum(map(len, expected.values()))
    for way, more in ((one_after_the_other, {"cache": "on"}), (at_once, {"cache": "on"}),
                      (at_once, {"fault": "delay=1ms"})):
        tensors = [rfs.tensors(job.source, rank, **options, **more) for rank in range(4)]
        before = bytes_read()
        way(tensors)
        read = bytes_read() - before
        # Whoever reads first of what may be slow reads samples.
        check(size <= read <= 1.3 * size, f"{way.__name__}, {more}: {read} bytes of {size}")
        for t in tensors:
            t.close()


@test
def a_source_that_changed_is_opened_anew(case):
    job = Job(os.path.join(case.directory, "changing"))
    job.save(1, 10)

    def step(tensors):
        return int(tensors["step_num"])

    def opened():
        return rfs.tensors(job.source, 0, src_strategy=job.strategy,
                           dst_strategy=job.strategy)

    old = opened()
    check(step(old) == 10 and opened()._open().source is old._open().source, "two sources")
    job.save(1, 20)
    check((step(old), step(opened())) == (10, 20), "the step before")


def write_model(path, **tensors):
    """Each has one value in all elements.  The file is another one than before."""
    head = safetensors_head({n: ("F32", shape, 4 * shape[0] * shape[1])
                             for n, (shape, _) in tensors.items()})
    write(path + ".new", head + b"".join(struct.pack("<f", value) * (shape[0] * shape[1])
                                         for shape, value in tensors.values()))
    os.rename(path + ".new", path)


def adapter(at, value):
    name = "base_model.model.a.q_proj.lora_"
    write(os.path.join(at, "adapter_config.json"), json.dumps(
        {"peft_type": "LORA", "r": 1, "lora_alpha": 1, "target_modules": ["q_proj"]}).encode())
    write_model(os.path.join(at, "adapter_model.safetensors"),
                **{name + "A.weight": ((1, 4), 1), name + "B.weight": ((4, 1), value)})


@test
def another_adapter_revision_or_file_is_opened_anew(case):
    """Each of these decides what is shown, and is not among the files of SOURCE."""
    at = os.path.join(case.directory, "anew")
    base, lora, deep, mapped = (os.path.join(at, name)
                                for name in ("base", "lora", "deep", "mapped"))
    hub = os.path.join(at, "hub", "models--o--m")
    for path in (base, lora, mapped, os.path.join(deep, "a/b/c/d/e/f/rank_0"),
                 *(os.path.join(hub, "snapshots", r) for r in ("1", "2")),
                 os.path.join(hub, "refs")):
        os.makedirs(path)
    weight = {"a.q_proj.weight": ((4, 4), 0)}
    write_model(os.path.join(base, "model.safetensors"), **weight)
    for r in (1, 2):
        write_model(os.path.join(hub, "snapshots", str(r), "model.safetensors"), w=((1, 1), r))
    write(os.path.join(mapped, "map.json"), json.dumps(
        {"0": os.path.join(at, "elsewhere.safetensors")}).encode())
    none = {"src_strategy": "none", "dst_strategy": "none"}
    template = "a/b/c/d/e/f/rank_{rank}"
    ways = {
        "adapter with a scale": (lambda n: adapter(lora, n), (base,), {"lora": lora + ":2"}, 2),
        "name of a model": (lambda n: write(os.path.join(hub, "refs", "main"), b"%d" % n),
                            ("o/m",), {}, 1),
        "deep directory": (lambda n: write_model(
            os.path.join(deep, template.format(rank=0), f"net-1_{n}.safetensors"),
            w=((1, 1), n)), (deep, 0), {"rank_dir": template, **none}, 1),
        "file of a map": (lambda n: write_model(os.path.join(at, "elsewhere.safetensors"),
                                                w=((1, 1), n)),
                          (mapped, 0), {"source_map": os.path.join(mapped, "map.json"), **none},
                          1),
    }
    with mock.patch.dict(os.environ, HF_HUB_CACHE=os.path.dirname(hub)):
        for what, (change, words, options, scale) in ways.items():
            tensors = []
            for n in (1, 2):
                change(n)
                tensors.append(rfs.tensors(*words, **options))
            values = [float(next(iter(t.load().values())).ravel()[0]) for t in tensors]
            check(values == [scale, 2 * scale], f"{what}: {values}")
    with mock.patch.dict(os.environ, HF_HUB_CACHE=os.path.join(at, "none")):
        refused("o/m", rfs.tensors, "o/m")


def main():
    global np, rfs  # pylint: disable=global-statement
    if "sanitize" in os.environ.get("SANITIZER_FLAGS", ""):
        skip_all("Python does not load what a sanitizer is built into")
    require_mount()
    enter_python_with_numpy()
    import numpy as np  # pylint: disable=import-outside-toplevel
    import reshardfs as rfs  # pylint: disable=import-outside-toplevel
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=run_seed())
    parser.add_argument("--slices", type=int, default=400)
    words = parser.parse_args()
    tap = Tap(len(test))
    with tempfile.TemporaryDirectory(prefix="reshardfs-tensors-") as work:
        case = Case(work, words.seed, words.slices)
        test.each(tap, lambda _: case)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
