#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Distributed checkpoints of HyperParallel: those of data/hyperparallel as a source, whole
or refused with a sentence; and what --format hyperparallel shows, read by a plain loader.
Random ones are among those of mount/dcp.py.
"""

import hashlib
import json
import math
import os
import pickle
import shutil
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

from dcp_trees import HYPER_NOW, TYPES, hyper_metadata, random_tree  # noqa: E402
from demands import check, content, demand, error_line, write  # noqa: E402
from rsh_cli import GOOD, USAGE, good, refused, run, run_json  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402
from safetensors_format import NAMES, Tensors, safetensors_bytes  # noqa: E402
from shown_model import extra_state, model_hashes, same, values_of_model  # noqa: E402
from whole_sources import KEEP  # noqa: E402

DATA = os.path.abspath(os.path.join(HERE, "data", "hyperparallel"))
# What is said of those that are refused.
REFUSED = {
    "alone-lost": ["not complete", "no 1.metadata"],
    "half": ["not complete, as it has no .metadata: the save has not ended or was stopped"],
    "inc-2": ["x is in ../step_1/_rank0_.safetensors, outside of it (an incremental save)",
              "--follow-outside reads it"],
    "lost": ["_rank1_.safetensors", "cannot be read"],
    "outside": ["p is in ../one/_rank0_.safetensors, outside of it"],
    "short": ["_rank1_.safetensors", "beyond the end of the file"],
    "v3": ["version 3.0 is not known (1.0, 2.0)"],
    "wrongkey": ["_rank0_.safetensors, which has no tensor nothere"],
}


def is_shown(value):
    """Integers of more than 64 bits are not, and a note says so."""
    return not isinstance(value, int) or abs(value) < 1 << 63


def run_case(tap, name, expected):
    root = os.path.join(DATA, expected["path"])
    outside = ["--follow-outside"] if expected.get("outside") else []
    values = {n: v for n, v in expected.get("values", {}).items() if is_shown(v)}
    if name in REFUSED:
        with tap.test(f"{name}: {expected['note']}"):
            for words in ["plan", *KEEP, root], ["export", *KEEP, root, "/dev/null/out"]:
                got = run(*words)
                check(got.status not in (GOOD, USAGE), repr(got))
                demand(error_line(got.err), *REFUSED[name])
    if expected.get("refuse"):
        return
    with tap.test(f"{name}: mounted; {expected['note']}"), \
            Mounted(root, extra=[*KEEP, *outside]) as mount:
        same(model_hashes(mount.path), expected["tensors"], name)
        check(extra_state(mount.path) == values, extra_state(mount.path))
        lost = len(expected.get("values", {})) - len(values) + (name == "raw")
        check(("not shown" in mount.log()) == (lost > 0), mount.log())
    if outside:
        return
    with tap.test(f"{name}: listed and verified"):
        said = run_json("ls", root)
        check({t["name"]: t["shape"] for t in said["tensors"]} ==
              {n: e[1] for n, e in expected["tensors"].items()} and said["whole"], said)
        check(set(expected["values"]) <= set(said["values"]), said["values"])
        check(run_json("verify", "--check", "full", root)["good"], "not good")


def run_lowest(tap, directory):
    """Ranks that write their own metadata may have other bytes in one box: those of the
    lowest rank are shown, by its number."""
    root = os.path.join(directory, "ranks")
    os.mkdir(root)
    for rank in range(12):
        held = {"all": ("U8", (4,), bytes([rank] * 4)), f"own{rank}": ("U8", (2,), b"of")}
        if rank > 1:
            held["later"] = "U8", (4,), bytes([rank] * 4)
        file, values = f"_rank{rank}_.safetensors", pickle.dumps(rank)
        write(os.path.join(root, file), safetensors_bytes(held, {}))
        write(os.path.join(root, f"_rank{rank}_.bytes"), values)
        write(os.path.join(root, f"{rank}.metadata"), hyper_metadata(
            {**{n: ("UInt8", v[1], [((0,), v[1])]) for n, v in held.items()},
             **{n: None for n in ("rank", "seed") if rank > 1 or n == "rank"}},
            [*((n, (0,), 0, file, 0, -1, None) for n in held),
             *((n, (), None, f"_rank{rank}_.bytes", 0, len(values), None)
               for n in ("rank", "seed") if rank > 1 or n == "rank")], HYPER_NOW))
    with tap.test("of ranks that disagree, the lowest"), \
            Mounted(root, extra=[*KEEP, "--log-level", "info"]) as mount:
        found = values_of_model(mount.path)
        check(len(found) == 14 and found["all"][2] == bytes(4) and
              found["later"][2] == b"\2\2\2\2", found)
        check(extra_state(mount.path) == {"rank": 0, "seed": 2}, extra_state(mount.path))
        demand(mount.log(), "those of the lowest rank are taken",
               f"{root}: a distributed checkpoint of 14 tensors in 12 files")
    out, path = os.path.join(directory, "out"), os.path.join(root, "_rank2_.bytes")
    for what, spoil in (("removed", os.unlink), ("cut", lambda p: os.truncate(p, 1)),
                        ("emptied", lambda p: os.truncate(p, 0))):
        with tap.test(f"a file of values that was {what} is named"):
            write(path, pickle.dumps(2))
            spoil(path)
            shutil.rmtree(out, ignore_errors=True)
            got = run("export", *KEEP, root, out)
            check(got.status == GOOD and extra_state(out) == {"rank": 0}, got)
            demand(got.err, "warning", f"{root}: _rank2_.bytes is missing or too short: 1 value that "
                   "is no tensor is left out, such as seed")


def run_steps(tap, directory):
    """Each step of a directory may name the files of the others."""
    root = os.path.join(directory, "inc")
    for step in "step_1", "step_2":
        to = os.path.join(root, step)
        shutil.copytree(os.path.join(DATA, "inc", step), to, copy_function=shutil.copyfile)
        os.utime(os.path.join(to, ".metadata"))    # it is written last
    with tap.test("an incremental save, --steps all"), \
            Mounted(root, extra=["--steps", "all", *KEEP]) as mount:
        for step, name in ("step_1", "inc-1"), ("step_2", "inc-2"), ("latest", "inc-2"):
            same(model_hashes(os.path.join(mount.path, step)), CASES[name]["tensors"], step)
    os.rename(os.path.join(root, "step_1"), os.path.join(directory, "step_1"))
    with tap.test("an incremental save, the step before it is elsewhere"), \
            Mounted(root, extra=["--steps", "all", *KEEP]) as mount:
        check(os.listdir(mount.path) == [], os.listdir(mount.path))
        demand(content(os.path.join(mount.path, ".reshardfs", "steps")).decode(),
               "../step_1/_rank0_.safetensors")
    # A link is no way out of the directory of the steps.
    os.symlink("../step_1", os.path.join(root, "step_1"))
    with tap.test("an incremental save, a link leads out"), \
            Mounted(root, extra=["--steps", "all", *KEEP]) as mount:
        check("step_2" not in os.listdir(mount.path), os.listdir(mount.path))


def run_before(tap):
    """Of early 2026, from all ranks and from each by itself."""
    data = os.path.join(HERE, "data", "checkpoint2")
    long = {short: name for name, short in NAMES.items()}
    for name in sorted(n for n in os.listdir(data)
                       if n.startswith("dcp_") and not n.endswith(".json")):
        expected = json.loads(content(os.path.join(data, name + ".expected.json")))["whole"]
        root = os.path.join(os.path.abspath(data), name)
        with tap.test(f"HyperParallel's {name}"), Mounted(root, extra=KEEP) as mount:
            found = values_of_model(mount.path)
            check(set(found) == set(expected), f"{sorted(found)} are shown")
            for tensor, (dtype, shape, digits) in expected.items():
                said, dims, content_of = found[tensor]
                check((long[said], list(dims)) == (dtype, shape) and
                      hashlib.sha256(content_of).hexdigest().startswith(digits), tensor)
        with tap.test(f"HyperParallel's {name}: verified"):
            check(run_json("verify", root)["good"], "not good")


class AsLoaded:
    """An object of HyperParallel's classes, which compare their attributes."""

    def __eq__(self, other):
        return vars(self) == vars(other)

    def __hash__(self):
        return hash(tuple(sorted(vars(self).items(), key=lambda at: at[0])))


class HyperClasses(pickle.Unpickler):
    """Only the names that HyperParallel's modules have."""
    MODULES = {"metadata": ("Metadata", "TensorStorageMetadata", "TensorProperties",
                            "ChunkStorageMetadata", "MetadataIndex", "BytesStorageMetadata"),
               "storage": ("StorageInfo",)}

    def find_class(self, module, name):
        place, last = module.rsplit(".", 1)
        check(place == "hyper_parallel.core.distributed_checkpoint" and name in self.MODULES[last],
              f"{module}.{name}")
        return type(name, (AsLoaded,), {})


def hyper_model(root):
    """Tensors and values, found as HyperParallel's loader finds them: by keys that equal
    those of .metadata in each attribute, and each tensor by its name in its file."""
    with open(os.path.join(root, ".metadata"), "rb") as f:
        m = HyperClasses(f).load()
    check(sorted(vars(m)) == ["planner_data", "state_dict_metadata", "storage_data", "version"]
          and (m.planner_data, m.version) == (None, "1.0"), vars(m))
    places = {(k.fqn, k.offset, k.index): v for k, v in m.storage_data.items()}
    check(len(places) == len(m.state_dict_metadata) and all(
        sorted(vars(k)) == ["fqn", "index", "offset"] for k in m.storage_data), places)
    tensors, values = {}, {}
    for name, described in m.state_dict_metadata.items():
        if type(described).__name__ == "BytesStorageMetadata":
            place = places[name, (), None]
            check((place.relative_path, place.tensor_key) == ("_rank0_.bytes", None),
                  vars(place))
            data = content(os.path.join(root, place.relative_path))
            values[name] = pickle.loads(data[place.offset:][:place.length])
            continue
        (chunk,), zeros = described.chunks, (0,) * len(described.size)
        check((chunk.offsets, chunk.sizes) == (zeros, described.size), vars(chunk))
        place = places[name, zeros, 0]
        check((place.offset, place.length, place.tensor_key) == (0, -1, None), vars(place))
        found = Tensors(content(os.path.join(root, place.relative_path))).values()[name]
        p = described.properties
        check(found[1] == described.size and vars(p) == {
            "dtype": p.dtype, "requires_grad": False, "memory_format": None} and
              p.dtype == "torch." + TYPES[found[0]][1], f"{name}: {vars(p)}, {found[:2]}")
        tensors[name] = found
    return tensors, values


def run_shown(tap, directory):
    """--format hyperparallel, read by what HyperParallel's loader does."""
    for number, kind in enumerate(("torch", "hf", "hyper")):
        tree = random_tree(51 + number, kind)
        if kind == "torch":
            tree.values = {"epoch": 3, "best": math.inf, "names": ["a", ("b", None)]}
        root, out = (os.path.join(directory, f"{kind}{at}") for at in ("-hyper", "-hyper-out"))
        tree.write(root)
        for size in "1", "5000", None:
            words = ["--format", "hyperparallel", *(["--part-size", size] if size else [])]
            with tap.test(f"HyperParallel's form of {kind}, --part-size {size}"), \
                    Mounted(root, extra=words) as mount:
                check(hyper_model(mount.path) == (tree.expected(), tree.values), "others")
                files = [n for n in os.listdir(mount.path) if n.endswith("_.safetensors")]
                check(len(files) == (len(tree.tensors) if size == "1" else len(files) if size
                                     else 1), files)
        with tap.test(f"an export of HyperParallel's form of {kind}"):
            good("export", *words, root, out)
            check(hyper_model(out) == (tree.expected(), tree.values), "others")
            for what in ["verify", *words, root, os.path.join(
                    out, "reshardfs-manifest.jsonl")], ["verify", out]:
                good(*what)
            check(run_json("ls", out)["whole"], "not complete")
    with tap.test("HyperParallel's files have at most 64 MiB"):
        root = os.path.join(directory, "large-hyper")
        values = {f"w{i}": ("U8", (30 << 20,), bytes(30 << 20)) for i in range(3)}
        write(os.path.join(root, "model.safetensors"), safetensors_bytes(values))
        with Mounted(root, extra=["--format", "hyperparallel"]) as mount:
            sizes = sorted(os.path.getsize(os.path.join(mount.path, n)) >> 20
                           for n in os.listdir(mount.path) if n.endswith(".safetensors"))
            check(sizes == [30, 60], sizes)
    with tap.test("HyperParallel's form has no ranks"):
        refused(run("plan", "--format", "hyperparallel", "--dst-strategy", "x.ckpt", root),
                USAGE, "--dst-strategy")


def run_resume(tap, directory):
    for name, newest, *words in (
            ("mesh", "lost", "_rank1_.safetensors is missing"),
            ("alone", "alone-lost", "not complete", "no 1.metadata"),
            ("alone", "half", "the save was not finished"),
            ("mesh", "v3", "version 3.0 is not known"),
            ("inc/step_1", "inc/step_2", "is outside of it (an incremental save)")):
        job = os.path.join(directory, "job-" + newest.replace("/", "-"))
        for step, case in ("step-1", name), ("step-2", newest):
            shutil.copytree(os.path.join(DATA, case), os.path.join(job, step),
                            copy_function=shutil.copyfile)
        with tap.test(f"--resume: {name} and not {newest}"), \
                Mounted(job, resume=True) as mount:
            check(os.readlink(os.path.join(mount.path, "latest")) == "step-1", "another step")
            demand(mount.log(), "step-2 cannot be used", *words)


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        for name, expected in CASES.items():
            run_case(tap, name, expected)
        run_before(tap)
        run_lowest(tap, directory)
        run_steps(tap, directory)
        run_resume(tap, directory)
        run_shown(tap, directory)
    return tap.finish()


with open(os.path.join(DATA, "expected.json"), encoding="utf-8") as list_of_cases:
    CASES = json.load(list_of_cases)

if __name__ == "__main__":
    sys.exit(main())
