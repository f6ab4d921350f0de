#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Distributed checkpoints of PyTorch as a source: genuine ones of all forms, whole and for
the ranks of a strategy, with files lost, and what each of them is refused for.

The yardstick is tests/data/dcp/*.json: type, shape and hash of the tensors before they
were cut.  Random ones come from lib/dcp_trees.py; --seed S --cases N repeats some.
"""

import io
import json
import math
import os
import random
import shutil
import struct
import sys
import tempfile
import zipfile

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

from dcp_reader import Checkpoint  # noqa: E402
from dcp_trees import Tensor, Tree, random_tree, torch_metadata  # noqa: E402
from demands import check, content, demand, error_line, flip, write  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from rsh_cli import GOOD, INPUT, NO, USAGE, good, refused, run, run_json  # noqa: E402
from rsh_mount import Mounted, Tap, Tests, expect_failure, require_mount  # noqa: E402
from run_seed import seed_and_cases  # noqa: E402
from safetensors_format import SUFFIX, Tensors, safetensors_bytes  # noqa: E402
from shown_model import (demand_cover, digest, extra_state, hashes, model_hashes, same,  # noqa: E402
                         values_of_model)
from whole_sources import KEEP, exported_as_file, exported_model, no_good, run_random  # noqa: E402

DATA = os.path.abspath(os.path.join(HERE, "data", "dcp"))
NAMES = {"F64": "Float64", "F32": "Float32", "F16": "Float16", "BF16": "BFloat16",
         "I64": "Int64", "I32": "Int32", "I16": "Int16", "I8": "Int8", "U8": "UInt8",
         "BOOL": "Bool"}
KINDS = {"plain.betas": [0.9, 0.999], "plain.ints": [1, 2, 3], "plain.lr": 0.125,
         "plain.name": "tiny", "plain.none": None, "plain.step": 17}
test = Tests("dcp")


def cases():
    """Paths of the genuine checkpoints, below DATA."""
    return sorted(os.path.join(version, name[:-5])
                  for version in os.listdir(DATA) if version != "README.md"
                  for name in os.listdir(os.path.join(DATA, version))
                  if name.endswith(".json"))


def expected_of(case):
    return json.loads(content(os.path.join(DATA, case + ".json")))


def source_of(case):
    path = os.path.join(DATA, case)
    inner = os.path.join(path, "sharded")
    return inner if os.path.isdir(inner) else path


def copy_of(case, directory):
    """A copy that can be damaged."""
    to = os.path.join(directory, os.path.basename(case))
    shutil.copytree(source_of(case), to, copy_function=shutil.copyfile)
    os.chmod(to, 0o755)
    return to


@test
def whole(case, directory):
    """each tensor, its type and shape"""
    with Mounted(source_of(case), extra=KEEP) as mount:
        found = model_hashes(mount.path)
        extra = extra_state(mount.path)
        said = mount.log()
    expected = expected_of(case)
    same(found, expected["tensors"], case)
    # Bytes are no plain data.
    others = set(expected.get("not tensors", []))
    check(set(extra) == others - {"plain.bytes"}, f"{sorted(extra)} are shown")
    if "plain.bytes" in others:
        demand(said, "1 value that is no tensor is not shown, such as plain.bytes, and "
               "extra_state.json has the others")
        check(extra == KINDS, extra)


@test
def exported(case, directory):
    """written by export, without a word of strategies; and as one file"""
    same(exported_model(source_of(case), *KEEP), expected_of(case)["tensors"], case)
    same(exported_as_file(source_of(case)), expected_of(case)["tensors"], case)


@test
def unwrapped(case, directory):
    """--unwrap removes the key under which a training state has the model, and keeps values"""
    expected = expected_of(case)
    weights = {n: e for n, e in expected["tensors"].items()
               if not n.startswith(("optim.", "optimizer."))}
    if not weights or not all(n.startswith("model.") for n in weights):
        return
    with Mounted(source_of(case)) as mount:
        shown, extra, said = model_hashes(mount.path), extra_state(mount.path), mount.log()
    demand(said, 'all weights were saved under the key "model": --unwrap removes it')
    with Mounted(source_of(case), extra=["--unwrap"]) as mount:
        same(model_hashes(mount.path), {n.removeprefix("model."): e for n, e in weights.items()},
             case)
        check(extra_state(mount.path) == extra, "other values")
        check("--unwrap removes" not in mount.log(), mount.log())
    same(shown, weights, case)


@test
def listed(case, directory):
    """ls says what there is, and verify that it is whole"""
    said = run_json("ls", source_of(case))
    expected = expected_of(case)
    check({t["name"]: t["shape"] for t in said["tensors"]} ==
          {n: e[1] for n, e in expected["tensors"].items()}, "other tensors are listed")
    check(sorted(said["values"]) == sorted(expected.get("not tensors", [])),
          f"other values are listed: {said['values']}")
    check(said["whole"], said)
    for t in said["tensors"]:
        demand_cover(t, copies=False)
    for check_what in ("structure", "full"):
        got = run_json("verify", "--check", check_what, source_of(case))
        check(got["good"] and got["files"] == len(said["files"]), got)


def shown_rank(root, rank, suffix):
    (name,) = os.listdir(os.path.join(root, f"rank_{rank}"))
    check(name.endswith(suffix), name)
    path = os.path.join(root, f"rank_{rank}", name)
    if suffix == SUFFIX:
        return hashes(Tensors(content(path)).values())
    return {n: [r.dtype, list(r.dims), digest(bytes(r.content))]
            for n, r in read_checkpoint(path).items()}


def run_ranks(tap):
    for case in cases():
        strategy = os.path.join(DATA, case + ".strategy.ckpt")
        if not os.path.exists(strategy):
            continue
        ranks = expected_of(case)["ranks"]
        with tap.test(f"{case}: rank files by a strategy"), \
                Mounted(source_of(case), dst_strategy=strategy) as mount:
            for rank, expected in enumerate(ranks):
                same(shown_rank(mount.path, rank, ".ckpt"),
                     {n: [NAMES[t], s, h] for n, (t, s, h) in expected.items()},
                     f"rank {rank}")
        with tap.test(f"{case}: safetensors by a strategy"), \
                Mounted(source_of(case), dst_strategy=strategy,
                        extra=["--format", "safetensors"]) as mount:
            for rank, expected in enumerate(ranks):
                same(shown_rank(mount.path, rank, SUFFIX), expected, f"rank {rank}")


def run_choices(tap, directory):
    case = "torch-2.15/fsdp2"
    expected = expected_of(case)["tensors"]
    renames = write(os.path.join(directory, "names", "new.json"), json.dumps(
        {n: n[len("model."):] for n in expected if n.startswith("model.")}).encode())
    with tap.test("the model alone, without its prefix"), \
            Mounted(source_of(case), extra=["--only", "^model\\.", "--rename", renames]) as m:
        same(model_hashes(m.path), {n[len("model."):]: e for n, e in expected.items()
                                    if n.startswith("model.")}, "the model")
        check(not extra_state(m.path), "values that are not wanted are shown")
    with tap.test("without the optimizer, in another type"), \
            Mounted(source_of(case), extra=["--drop", "^optimizer", "--cast", "bfloat16"]) as m:
        found = model_hashes(m.path)
        check(set(found) == {n for n in expected if not n.startswith("optimizer")},
              f"found {sorted(found)}")
        check({e[0] for e in found.values()} == {"BF16"}, "not all are BF16")
    with tap.test("plan says which files are read"):
        plan = run_json("plan", source_of(case))
        text = json.dumps(plan)
        for rank in range(4):
            check(f"__{rank}_0.distcp" in text, text)


def run_index_cache(tap, directory):
    with tap.test("the second mount reads no item"):
        cache = os.path.join(directory, "cache")
        words = ["plan", "--log-level", "info", "--index-cache", cache,
                 source_of("torch-2.15/fsdp2")]
        demand(run(*words).err, "4 of them read")
        demand(run(*words).err, " 0 of them read")


def elements_at(data, item):
    """Where the elements of an item begin, behind the archive's header for them."""
    header = data.index(b"archive/data/0", item) - 30
    n_name, n_extra = struct.unpack_from("<HH", data, header + 26)
    return header + 30 + n_name + n_extra


def run_damage(tap, directory):
    case = "torch-2.15/uneven"
    expected = expected_of(case)["tensors"]
    strategy = os.path.join(DATA, case + ".strategy.ckpt")

    root = copy_of(case, directory)
    os.rename(os.path.join(root, ".metadata"), os.path.join(root, ".metadata.tmp"))
    with tap.test("a save that was not finished"):
        for command in "plan", "ls":
            demand(run(command, root).err, "__0_0.distcp is of a distributed checkpoint",
                   "no .metadata is beside it")
    os.rename(os.path.join(root, ".metadata.tmp"), os.path.join(root, ".metadata"))
    os.unlink(os.path.join(root, "__2_0.distcp"))
    with tap.test("a missing file: which tensors lack which boxes"):
        no_good(root, "__2_0.distcp", "d0.10 lacks its box [3,3] at [6,0]",
                "9 boxes of 9 tensors are lacking in all")
    with tap.test("a missing file: the rest is shown"), \
            Mounted(root, extra=["--allow-missing", "--log-level", "info"]) as mount:
        same(model_hashes(mount.path),
             {n: e for n, e in expected.items() if n in ("d0.1", "d0.2", "d1.2")}, "the rest")
        demand(mount.log(), "9 tensors are left out", "d1.9 lacks its box [4,3] at [0,6]")
    with tap.test("a missing file: ls and verify say so"):
        said = run("ls", root)
        check(said.status == NO, repr(said))
        demand(said.err, "__2_0.distcp is missing")
        said = run("verify", root)
        check(said.status == NO, repr(said))
        demand(said.out, "__2_0.distcp", "No such file")

    shutil.copyfile(os.path.join(source_of(case), "__2_0.distcp"),
                    os.path.join(root, "__2_0.distcp"))
    whole_size = os.path.getsize(os.path.join(root, "__1_0.distcp"))
    os.truncate(os.path.join(root, "__1_0.distcp"), whole_size // 2)
    with tap.test("a short file"):
        no_good(root, "lacks its box", "__1_0.distcp, which ends after "
                f"{whole_size // 2} bytes")
        said = run("verify", root)
        check(said.status == NO, repr(said))
        demand(said.out, "__1_0.distcp: truncated", "items are beyond its end")
        said = run("ls", root)
        check(said.status == NO and "next: " not in said.out, repr(said))
        demand(said.err, "__1_0.distcp is too short for tensor")
    with tap.test("a short file: what is whole in it is shown"), \
            Mounted(root, extra=["--allow-missing"]) as mount:
        found = model_hashes(mount.path)
        same(found, {n: e for n, e in expected.items() if n in found}, "the rest")
        check(0 < len(found) < len(expected), f"{len(found)} are shown")
    with tap.test("files of ranks that need what is lost"):
        got = run("export", "--allow-missing", "--dst-strategy", strategy, root,
                  os.path.join(directory, "lost"))
        check(got.status == NO, repr(got))
        demand(got.out, "omitted because their slices are lost")
    shutil.rmtree(root)

    root = copy_of(case, directory)
    (chunk,) = [c for t in run_json("ls", root)["tensors"] if t["name"] == "d0.13"
                for c in t["chunks"] if c["file"] == "__0_0.distcp"]
    item = os.path.join(root, "__0_0.distcp")
    with tap.test("a bit of an element: its CRC tells"):
        flip(item, elements_at(content(item), chunk["offset"]))
        check(run_json("verify", "--check", "full", root, status=NO)["problems"],
              "the flipped bit is not found")
        no_good(root, "__0_0.distcp", "CRC", extra=["--check", "full"])
    with tap.test("an item that is no archive"):
        data = bytearray(content(item))
        end = chunk["offset"] + chunk["length"]
        data[end - 22:end] = bytes(22)
        write(item, bytes(data))
        no_good(root, "__0_0.distcp", "lacks its box")
    shutil.rmtree(root)

    root = copy_of(case, directory)
    for name in os.listdir(root):
        if name.endswith(".distcp"):
            os.unlink(os.path.join(root, name))
    with tap.test("no file is left"):
        no_good(root, "no other tensor is left", extra=["--allow-missing"])
    write(os.path.join(root, ".metadata"), b"no pickle")
    with tap.test("metadata that is no pickle"):
        no_good(root, ".metadata")
    shutil.rmtree(root)


def run_contradictions(tap, directory):
    """Files that were exchanged: what they hold is not what the metadata says."""
    root = copy_of("torch-2.15/kinds", directory)
    other = content(os.path.join(source_of("torch-2.4/kinds"), "__0_0.distcp"))
    write(os.path.join(root, "__0_0.distcp"), other)
    with tap.test("another checkpoint's file"):
        no_good(root, "__0_0.distcp")
    shutil.rmtree(root)


def of_rows(root, chunks, orders=None, name="w"):
    """A tensor of four rows and a checkpoint that has these boxes of it."""
    tree = Tree("torch", {name: Tensor("F32", (4, 6), bytes(range(96)), chunks, orders or {})}, {},
                random.Random(1))
    tree.write(root)
    return root, tree


def run_holes(tap, directory):
    upper, lower = ((0, 0), (2, 6)), ((2, 0), (2, 6))
    with tap.test("elements that no chunk has"):
        root, _ = of_rows(os.path.join(directory, "hole"), [upper])
        hole = f"{root}: tensor w: 12 elements are in no chunk"
        demand(run("ls", root).err, hole)
        demand(run("verify", root).out, hole)
        refused(run("plan", root), INPUT, "tensor w: 12 of its 24 elements are in no chunk")
        shutil.move(root, os.path.join(directory, "gaps", "step-2"))
        of_rows(os.path.join(directory, "gaps", "step-1"), [upper, lower])
        with Mounted(os.path.join(directory, "gaps"), extra=["--steps", "all"]) as mount:
            check(sorted(os.listdir(mount.path)) == ["latest", "step-1"],
                  str(os.listdir(mount.path)))
            demand(content(os.path.join(mount.path, ".reshardfs", "steps")).decode(),
                   "step-2: tensor w: 12 elements are in no chunk")
        root, _ = of_rows(os.path.join(directory, "turned"), [((0, 0), (1, 6)), ((1, 0), (2, 6))],
                          {1: (1, 0)})
        refused(run("plan", root), INPUT, "tensor w: 6 of its 24 elements are in no chunk, and "
                "the others are stored in several orders")
    with tap.test("parameters that FSDP has made flat"):
        for i, name in enumerate(("_flat_param", "model.layers.0._flat_param", "a.flat_param")):
            root, _ = of_rows(os.path.join(directory, f"flat{i}"), [upper, lower], name=name)
            for words in [], ["--drop", "flat_param"]:
                refused(run("plan", root, *words), INPUT, f"tensor {name} has parts of all "
                        "weights, as FSDP saves them with LOCAL_STATE_DICT")
        root, _ = of_rows(os.path.join(directory, "flat_name"), [upper, lower], name="flat_params")
        check(run("plan", root).status == GOOD, "flat_params is a name as others")
    with tap.test("a chunk that no file has"):
        root, tree = of_rows(os.path.join(directory, "absent"), [upper, lower])
        file = next(name for name in os.listdir(root) if name.endswith(".distcp"))
        size = os.path.getsize(os.path.join(root, file))
        write(os.path.join(root, ".metadata"), torch_metadata(
            tree.release, {"w": ("F32", (4, 6), [upper, lower], (6, 1))},
            [("w", (0, 0), 0, file, 0, size)], {"w": ("w",)}))
        refused(run("plan", root), INPUT, "tensor w lacks its box [2,6] at [2,0]",
                "which is in no file")
        for command in "ls", "verify":
            said = run(command, root)
            check(said.status == NO and f"{root}: tensor w: a chunk is in no file" in
                  said.out + said.err, repr(said))


def shard(root, rank, values, offsets):
    info = {n: {"saved_offsets": list(o)} for n, o in offsets.items()}
    meta = {"DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(info), "format": "pt"}
    name = f"shard-{rank + 1:05}-model-00001-of-00001{SUFFIX}"
    return write(os.path.join(root, name), safetensors_bytes(values, meta))


def run_shards(tap, directory):
    rows = bytes(range(24))
    root = os.path.join(directory, "shards")
    shard(root, 0, {"w": ("U8", (2, 6), rows[:12])}, {"w": (0, 0)})
    last = shard(root, 1, {"w": ("U8", (2, 6), rows[12:])}, {"w": (2, 0)})
    with tap.test("shards of rows"), Mounted(root) as mount:
        same(model_hashes(mount.path), {"w": ["U8", [4, 6], digest(rows)]}, "the model")
    alone = shard(root, 3, {"v": ("U8", (6,), rows[:6])}, {"v": (0,)})
    with tap.test("a number of a shard that is missing, as a rank without tensors writes none"):
        got = good("plan", root)
        demand(got.err, "warning", "shard-00003 is missing, and the last one is shard-00004: "
               "tensors that it had alone are not shown")
        os.unlink(alone)
        check("is missing" not in run("plan", root).err, "a warning")
    shard(root, 2, {"w": ("U8", (1, 6), rows[:6])}, {"w": (5, 0)})
    with tap.test("shards that leave elements out"):
        no_good(root, "tensor w: 6 of its 36 elements are in no chunk")
        said = run("verify", root)
        check(said.status == NO, repr(said))
        demand(said.out, "tensor w: 6 elements are in no chunk")
    for part in 2, 1:
        older = shard(root, 2, {"w": ("U8", (part, 6), rows[:6 * part])}, {"w": (2, 0)})
        with tap.test(f"a shard of an older save by more ranks, with {part} rows"):
            for command in "plan", "ls":
                got = run(command, root)
                check(got.status != GOOD, repr(got))
                demand(got.err, f"{os.path.basename(last)} and {os.path.basename(older)} have "
                       "the same part of tensor w: one of them is of another save")
    shard(root, 2, {"w": ("U8", (1, 6), rows[:6])}, {"w": (3, 0)})
    with tap.test("shards that overlap in part"):
        no_good(root, "tensor w")
    shard(root, 2, {"w": ("U8", (6,), rows[:6])}, {"w": (4,)})
    with tap.test("shards that contradict each other"):
        no_good(root, "shard-00003", "shape of tensor w")
    shard(root, 2, {"w": ("U8", (1, 6), rows[:6])}, {"w": (4,)})
    with tap.test("offsets that do not fit"):
        no_good(root, "shard-00003", "offsets of tensor w")
    shard(root, 2, {"w": ("U8", (1, 6), rows[:6])}, {"w": (2 ** 61, 0)})
    with tap.test("a shard that is too far away"):
        no_good(root, "tensor w has more bytes than can be counted")
    os.unlink(os.path.join(root, f"shard-00003-model-00001-of-00001{SUFFIX}"))
    shard(root, 1, {"w": ("U8", (2, 6), rows[12:])}, {"v": (2, 0)})
    with tap.test("a tensor without its place"):
        no_good(root, "shard-00002", "does not tell the offsets of tensor w")
    write(last, safetensors_bytes({"w": ("U8", (2, 6), rows[12:])}))
    with tap.test("a shard without its place"):
        no_good(root, "shard-00002", "DCP_SHARDING_INFO")


def run_manifest(tap, directory):
    source = source_of("torch-2.15/uneven")
    out = os.path.join(directory, "exported")
    with tap.test("a manifest of a source that needs no strategy"):
        for words in ["export", source, out], \
                ["verify", source, os.path.join(out, "reshardfs-manifest.jsonl")]:
            good(*words)


def shown_values(root, *words):
    with Mounted(root, extra=["--format", "dcp", *words]) as mount:
        return Checkpoint(mount.path).beside(), mount.log()


def run_values(tap, directory):
    """What is not a tensor, shown by --format dcp as torch wrote it."""
    kinds = {**KINDS, "plain.betas": (0.9, 0.999), "plain.bytes": b"abc"}
    with tap.test("values are items"):
        found, said = shown_values(source_of("torch-2.15/kinds"))
        check(found == kinds and isinstance(found["plain.betas"], tuple), found)
        check("not shown" not in said, said)
    with tap.test("some values are items"):
        found, said = shown_values(source_of("torch-2.15/kinds"), "--drop", "bytes|lr")
        check(sorted(found) == sorted(set(kinds) - {"plain.bytes", "plain.lr"}), found)
        check("not shown" not in said, said)
    with tap.test("values that JSON does not have"):
        root = os.path.join(directory, "infinite")
        values = {"best": math.inf, "far": -2 ** 62, "deep": {1: [(True, None), {}], None: "\u4e2d"},
                  "long": 2 ** 80, "set": {1, 2}}
        tree = random_tree(5, "torch")
        tree.values = dict(values)
        tree.write(root)
        found, said = shown_values(root)
        del values["long"], values["set"]
        check(found == values, found)
        demand(said, "2 values that are no tensors are not shown, such as long, and the others")
        with Mounted(root) as mount:
            check(extra_state(mount.path) == {"far": -2 ** 62}, extra_state(mount.path))
            demand(mount.log(), "4 values that are no tensors are not shown, such as best, and")
    with tap.test("an export has them, and is a source again"):
        to, again = os.path.join(directory, "values"), os.path.join(directory, "values-2")
        for source, target in (root, to), (to, again):
            good("export", "--format", "dcp", source, target)
        check(Checkpoint(again).beside() == Checkpoint(to).beside() == values, "other values")
        good("verify", "--check", "full", to)
        os.unlink(os.path.join(to, "reshardfs-manifest.jsonl"))
        demand(run("verify", "--check", "full", to).out, "CRC")


def run_orders(tap, directory):
    """Tensors that the source has in another order of dimensions than row-major."""
    rng = random.Random(31)

    def stored(shape, order, chunks=None):
        chunks = chunks or [((0,) * len(shape), shape)]
        return Tensor("F16", shape, rng.randbytes(2 * math.prod(shape)), chunks,
                      dict.fromkeys(range(len(chunks)), order))

    halves = [((0, 0), (32, 96)), ((32, 0), (32, 96))]
    tensors = {"matrix": stored((1024, 2048), (1, 0)),
               "stack": stored((8, 64, 128), (0, 2, 1)),
               "halves": stored((64, 96), (1, 0), halves),
               "thin": stored((1, 50, 3), (0, 2, 1)),
               "rows": stored((5, 6), (0, 1))}
    # One of its chunks has another order than the other.
    tensors["mixed"] = Tensor("F16", (64, 96), rng.randbytes(64 * 96 * 2), halves, {0: (1, 0)})
    root = os.path.join(directory, "orders")
    tree = Tree("torch", tensors, {}, rng)
    tree.write(root)
    with tap.test("a transposed tensor is not turned"), \
            Mounted(root, extra=["--format", "dcp"]) as mount:
        shown = Checkpoint(mount.path)
        check(shown.values() == tree.expected(), "other bytes")
        turned = [name for name in tensors
                  if all(item.in_rows for _, _, item in shown.items(name))]
        check(turned == ["rows", "mixed"], turned)
    with tap.test("it is read in few reads"), \
            Mounted(root, extra=["--format", "dcp", "--only", "matrix|stack"]) as mount:
        Checkpoint(mount.path).values()
        fetched = mount.stats()["fetched"]
        least = sum(len(tensors[name].content) for name in ("matrix", "stack"))
        # Windows are 1 MiB; three reads find out whether the source is slow.
        check(fetched["reads"] <= 24 and fetched["bytes"] < 2 * least, fetched)


def checked_items(root):
    """The number of items of tensors, whose archives have true CRCs in both places."""
    count = 0
    for _, _, chunks in Checkpoint(root).tensors.values():
        for _, _, file, offset, length in chunks:
            item = content(os.path.join(root, file))[offset:offset + length]
            with zipfile.ZipFile(io.BytesIO(item)) as archive:
                check(archive.testzip() is None, f"{file} at {offset}")
                entry = archive.getinfo("archive/data/0")
            check(struct.unpack_from("<I", item, entry.header_offset + 14) == (entry.CRC,),
                  f"{file} at {offset}: the CRC before the elements")
            count += 1
    return count


def run_crcs(tap, directory):
    """An export has the CRCs that a mount cannot have."""
    root, out = os.path.join(directory, "summed"), os.path.join(directory, "summed-out")
    copy, manifest = out + "-copy", os.path.join(out, "reshardfs-manifest.jsonl")
    numbers = random.Random(7)
    # Ten items; empty tensors and scalars are items too.
    values = {"large": ("F16", (80, 1 << 20), numbers.randbytes(160 << 20)),
              "empty": ("F32", (0, 3), b""), "one": ("I64", (), numbers.randbytes(8)),
              **{f"w{i}": ("F32", (i, 100), numbers.randbytes(400 * i)) for i in range(1, 5)}}
    write(os.path.join(root, "model.safetensors"), safetensors_bytes(values, {"format": "pt"}))
    # One tensor a file.
    words = ["--format", "dcp", "--part-size", "400"]
    with tap.test("an export has CRCs"):
        good("export", *words, root, out)
        check(checked_items(out) == 16, checked_items(out))
        check(Checkpoint(out).values() == values, "other bytes")
    with tap.test("verify compares them"):
        for operands in [out], ["--check", "full", out], [*words, root, out], \
                [*words, "--dst-strategy", "none", root, manifest]:
            good("verify", *operands)
    with tap.test("an interrupted export resumes"):
        before = {name: content(os.path.join(out, name)) for name in os.listdir(out)}
        os.unlink(os.path.join(out, "__0_2.distcp"))
        os.unlink(os.path.join(out, ".metadata"))
        good("export", *words, root, out)
        after = {name: content(os.path.join(out, name)) for name in os.listdir(out)}
        del before[os.path.basename(manifest)], after[os.path.basename(manifest)]
        check(before == after, "other bytes")
    with tap.test("a copy of a mount has none, and verify takes it"):
        with Mounted(root, extra=words) as mount:
            shutil.copytree(mount.path, copy, copy_function=shutil.copyfile)
        shutil.rmtree(os.path.join(copy, ".reshardfs"), ignore_errors=True)
        good("verify", *words, root, copy)
    with tap.test("a wrong CRC, a wrong element"):
        name, chunks = "w2", Checkpoint(out).tensors["w2"][2]
        ((_, _, file, offset, length),) = chunks
        for tree, at in (out, length - 100), (out, 400), (copy, 400), (copy, length - 100):
            flip(os.path.join(tree, file), offset + at)
            got = run("verify", *words, root, tree)
            check(got.status == NO, repr(got))
            demand(got.out, file, name)
            flip(os.path.join(tree, file), offset + at)
    with tap.test("--verify reads it back"):
        good("export", "--verify", *words, root, out + "-again")
        check(checked_items(out + "-again") == 16, "CRCs")


def run_refusals(tap):
    source = source_of("torch-2.15/uneven")
    strategy = os.path.join(DATA, "torch-2.15", "uneven.strategy.ckpt")
    with tap.test("refused: a strategy of the source"):
        for words in ["plan", "--dst-strategy", "none"], ["ls"], ["verify"]:
            refused(run(*words, "--src-strategy", strategy, source), INPUT,
                    "contains its own layout")
    with tap.test("refused: a mesh to derive from"):
        got = run("plan", "--dst-mesh", "dp=2", source)
        check(got.status not in (GOOD, NO), repr(got))
        demand(got.err, "a distributed checkpoint has none")
    for words in (["--compat", "mindspore"], ["--dst-ranks", "2"]):
        with tap.test(f"refused: {words[0]}"):
            got = run("plan", *words, source)
            check(got.status not in (GOOD, NO), repr(got))
            demand(got.err, "SOURCE is a distributed checkpoint")
    with tap.test("refused: to infer a strategy"):
        got = run("strategy", "infer", source)
        check(got.status not in (GOOD, NO), repr(got))
        demand(got.err, "a distributed checkpoint has no rank files")
    with tap.test("refused: a step to select"):
        refused(run("plan", "--select", "step=9", source), USAGE, "is a single distributed checkpoint")
    with tap.test("refused: the directory above, or a file"):
        refused(run("plan", os.path.dirname(source)), INPUT,
                "again in it is a checkpoint: did you mean that?")
        refused(run("ls", os.path.dirname(source)), INPUT, "again in it is a checkpoint")
        refused(run("plan", os.path.join(source, ".metadata")), INPUT,
                "this is the metadata of a distributed checkpoint")
        refused(run("plan", os.path.join(source, "no")), INPUT, "no: No such file")
    with tap.test("refused: one checkpoint to resume from"):
        _, said = expect_failure(source, resume=True)
        demand(error_line(said), "use the directory above it")


def run_resume(tap, directory):
    job = os.path.join(directory, "job")
    os.makedirs(job)
    for step, name in ((10, "fsdp2"), (20, "fsdp2"), (30, "fsdp2-2")):
        shutil.copytree(source_of("torch-2.15/" + name), os.path.join(job, f"step-{step}"),
                        copy_function=shutil.copyfile)
        os.chmod(os.path.join(job, f"step-{step}"), 0o755)
    # Half written: metadata come last.
    os.unlink(os.path.join(job, "step-30", ".metadata"))
    with tap.test("the newest step that is complete"), Mounted(job, resume=True) as mount:
        check(os.readlink(os.path.join(mount.path, "latest")) == "step-20", "not step 20")
        names = os.listdir(os.path.join(job, "step-20"))
        for name in names:
            check(content(os.path.join(mount.path, "latest", name)) ==
                  content(os.path.join(job, "step-20", name)), name)
        demand(mount.log(), "step-30 cannot be used", "the save was not finished")
    with tap.test("what is resumed can be mounted"), Mounted(job, resume=True) as mount, \
            Mounted(os.path.join(mount.path, "latest"), extra=KEEP) as model:
        same(model_hashes(model.path), expected_of("torch-2.15/fsdp2")["tensors"], "it")
    item = os.path.join(job, "step-20", "__1_0.distcp")
    with tap.test("a step with a damaged element"):
        flip(item, elements_at(content(item), 0))
        with Mounted(job, resume=True, extra=["--check", "full"]) as mount:
            check(os.readlink(os.path.join(mount.path, "latest")) == "step-10", "not step 10")
    with tap.test("a step with a short file"):
        os.truncate(item, os.path.getsize(item) - 1)
        with Mounted(job, resume=True) as mount:
            check(os.readlink(os.path.join(mount.path, "latest")) == "step-10", "not step 10")
            demand(mount.log(), "__1_0.distcp is too short for tensor")
    with tap.test("a step without CRCs is taken, and the log says that it was not checked"):
        shutil.copytree(source_of("torch-2.15/nocrc"), os.path.join(job, "step-40"),
                        copy_function=shutil.copyfile)
        with Mounted(job, resume=True, extra=["--check", "full"]) as mount:
            check(os.readlink(os.path.join(mount.path, "latest")) == "step-40", "not step 40")
            check(mount.log().count("the file has no CRCs") == 1, mount.log())
        shutil.rmtree(os.path.join(job, "step-40"))
    with tap.test("a step without a file, and none beside it"):
        shutil.rmtree(os.path.join(job, "step-10"))
        os.unlink(item)
        _, said = expect_failure(job, resume=True)
        demand(said, "step-20", "__1_0.distcp is missing", "no checkpoint is complete")
    shutil.rmtree(job)
    os.makedirs(job)
    shutil.copytree(source_of("megatron-core-0.16/mcore-torch_dist"),
                    os.path.join(job, "iter_0000100"), copy_function=shutil.copyfile)
    with tap.test("a step of Megatron-Core"), Mounted(job, resume=True) as mount:
        check(content(os.path.join(mount.path, "latest_checkpointed_iteration.txt")) == b"100",
              "not iteration 100")
        check("common.pt" in os.listdir(os.path.join(mount.path, "latest")), "no common.pt")


def expect_random(seed, directory):
    """The whole of a random tree, and what is left of it without one of its files."""
    tree = random_tree(seed)
    root, out, rest = (os.path.join(directory, n) for n in ("source", "out", "rest"))
    tree.write(root)
    what = f"seed {seed}: {tree.describe()}"
    got = run("export", *KEEP, root, out)
    check(got.status == GOOD, f"{what}: {got!r}")
    same(values_of_model(out), tree.expected(), what)
    check(extra_state(out) == tree.values, f"{what}: {extra_state(out)} for {tree.values}")
    said = run_json("ls", root)
    check(said["whole"], f"{what}: {said['reason']}")
    lost = random.Random(seed).choice(said["files"])["name"]
    os.unlink(os.path.join(root, lost))
    # Copies make up for each other, box by box.
    left = {t["name"] for t in said["tensors"] if
            {str(c["from"]) for c in t["chunks"] if 0 not in c["size"]} ==
            {str(c["from"]) for c in t["chunks"] if 0 not in c["size"] and c["file"] != lost}}
    if tree.kind == "hf":
        return  # the farthest end may be another one
    if left and len(left) < len(said["tensors"]):
        demand(run("plan", *KEEP, root).err, "lacks its box", lost)
    got = run("export", *KEEP, "--allow-missing", root, rest)
    if not left:
        check(got.status == INPUT, f"{what} without {lost}: {got!r}")
        return
    check(got.status == GOOD, f"{what} without {lost}: {got!r}")
    same(values_of_model(rest), {n: v for n, v in tree.expected().items() if n in left},
         f"{what} without {lost}")


def main():
    require_mount()
    words = seed_and_cases(240)
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        for case in cases():
            for function in test:
                with tap.test(f"{case}: {function.__doc__}"), \
                        tempfile.TemporaryDirectory() as own:
                    function(case, own)
        run_ranks(tap)
        run_choices(tap, directory)
        run_index_cache(tap, directory)
        run_damage(tap, directory)
        run_contradictions(tap, directory)
        run_holes(tap, directory)
        run_shards(tap, directory)
        run_manifest(tap, directory)
        run_values(tap, directory)
        run_orders(tap, directory)
        run_crcs(tap, directory)
        run_refusals(tap)
        run_random(tap, directory, "checkpoints", range(words.seed, words.seed + words.cases),
                   40, expect_random)
        run_resume(tap, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
