#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What --format checkpoint2 shows: a tree that mindformers could have saved.

    checkpoint2_format.py [--seed S] [--cases N]

Random jobs are shown for random other ones, whole, and without redundancy, and
each slice is compared with the whole tensors that the source was cut from.
"""

import hashlib
import json
import os
import random
import shutil
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import genuine  # noqa: E402
from checkpoint2_reader import TRACKER, Step  # noqa: E402
from checkpoint2_shown import FORMAT, Case, kind_of  # noqa: E402
from demands import check, content, flip, write  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes)
from random_jobs import Tree, write_strategy  # noqa: E402
from rsh_cli import GOOD, good, run, run_json  # noqa: E402
from rsh_mount import Mounted, Tap, expect_failure, require_mount  # noqa: E402
from run_seed import seed_and_cases  # noqa: E402

def files_below(root):
    return {os.path.relpath(os.path.join(at, name), root): content(os.path.join(at, name))
            for at, _, names in os.walk(root) for name in names}


def check_again(case, shown):
    """What is shown is a strategy of itself."""
    metadata = os.path.join(Step(shown).root, "metadata.json")
    with Mounted(case.source, src_strategy=case.src, dst_strategy=metadata,
                 extra=case.words()) as mount:
        case.check(mount.path)
        found, expected = files_below(mount.path), files_below(shown)
        # One mesh may be drawn in several ways.
        for files in (found, expected):
            name = os.path.relpath(metadata, shown)
            files[name] = json.loads(files[name])["storage_data"]
        wrong = [name for name in set(found) | set(expected)
                 if found.get(name) != expected.get(name)]
        check(not wrong, f"for its own metadata.json: {sorted(wrong)}")


def run_case(tap, seed):
    with tempfile.TemporaryDirectory() as directory, tap.test(f"seed {seed}"):
        case = Case(seed, directory)
        tap.diag(f"seed {seed}: {case}")
        sides = {"src_strategy": case.src, "dst_strategy": case.dst, "extra": case.words()}
        unfit = case.unfit()
        if unfit:
            _, said = expect_failure(case.source, **sides)
            check("Checkpoint 2.0 has no tensor map" in said, said)
            return
        with Mounted(case.source, **sides) as mount:
            case.check(mount.path)
            if seed % 4 == 0:
                check_again(case, mount.path)


# ---- from one Checkpoint 2.0 to another ----

def exported(directory, source, dst):
    out = os.path.join(directory, os.path.basename(dst.removesuffix("/metadata.json")))
    good("export", "--dst-strategy", dst, *FORMAT, source, out)
    os.unlink(os.path.join(out, "reshardfs-manifest.jsonl"))
    return Step(out)


def run_genuine(tap, tree):
    """A genuine tree whole, and for each job that it was loaded as."""
    expected = genuine.checkpoint2_expected(tree)
    with tempfile.TemporaryDirectory() as directory:
        with tap.test(f"{tree} whole"):
            step = exported(directory, genuine.checkpoint2(tree), "none")
            check(step.number == expected["iteration"], f"step {step.number}")
            whole = {name: step.values[step.storage[repr((name, (0,)))][0]["file_name"]][name]
                     for name in step.tensors}
            found = {name: [tensor.dtype, list(tensor.shape),
                            hashlib.sha256(whole[name][2]).hexdigest()]
                     for name, tensor in step.tensors.items()}
            check(found == expected["whole"], "other tensors")
            own = json.loads(content(os.path.join(genuine.checkpoint2_step(tree),
                                                  "common.json")))
            for key in ("epoch_num", "loss_scale", "global_batch_size"):
                check(step.common[key] == own[key], f"{key}: {step.common[key]}")
        whole = {name: value[2] for name, value in whole.items()}
        for job, wanted in expected.get("ranks", {}).items():
            with tap.test(f"{tree} for {job}"):
                step = exported(directory, genuine.checkpoint2(tree),
                                genuine.checkpoint2_strategy(job))
                step.check_slices(whole, kind_of)
                for rank, hashes in wanted["hashes"].items():
                    check_hashes(step, int(rank), hashes, whole)


def check_hashes(step, rank, hashes, whole):
    mine = {name: t for name, t in step.tensors.items() if rank in t.ranks}
    check(set(mine) == set(hashes), f"rank {rank}: {sorted(set(mine) ^ set(hashes))}")
    for name, tensor in mine.items():
        piece = tensor.piece(whole[name], tensor.slice_of(tensor.ranks.index(rank)))
        check(hashes[name] == [tensor.dtype, tensor.local_shape(),
                               hashlib.sha256(piece).hexdigest()[:32]],
              f"{name} of rank {rank}")


# ---- one job, looked at in every way ----

class Small:
    """Four ranks: a weight, its state, a gradient, and counters."""

    LAYOUTS = {"w": Layout([2, 2], [0, -1]), "adam_m.w": Layout([2, 2], [0, -1]),
               "accu_grads.w": Layout([2, 2], [0, -1])}

    def __init__(self, directory):
        self.directory = directory
        shapes = {name: ((8, 6), "Float32") for name in self.LAYOUTS}
        self.tree = Tree(random.Random(7), {0: self.LAYOUTS}, shapes)
        self.tree.scalars = {"global_step": Record((1,), "Int32", (345).to_bytes(4, "little"))}
        self.source = os.path.join(directory, "source")
        self.tree.save(self.source)
        self.src = write_strategy(os.path.join(directory, "src"), {0: self.LAYOUTS})

    def sides(self):
        return ["--src-strategy", self.src, "--dst-strategy", self.src, *FORMAT]

    def mounted(self, *extra, dst=None):
        return Mounted(self.source, src_strategy=self.src, dst_strategy=dst or self.src,
                       extra=[*FORMAT, *extra])


def run_small(tap, job):
    step_dir = "iteration_00000010"
    opt = f"{step_dir}/opt-0000001-0000004.safetensors"
    with job.mounted() as mount:
        shown = files_below(mount.path)
        with tap.test("gradients are left out, and counters described nowhere"):
            step = Step(mount.path)
            check(set(step.tensors) == {"w", "adam_m.w"}, f"{set(step.tensors)}")
            check(set(step.values[os.path.basename(opt)]) == {"adam_m.w", "global_step"},
                  f"{step.values}")
        with tap.test("metadata.json read from anywhere"):
            path = os.path.join(mount.path, step_dir, "metadata.json")
            numbers = random.Random(1)
            with open(path, "rb", buffering=0) as f:
                for _ in range(200):
                    at, n = numbers.randrange(len(step.text)), numbers.randrange(1, 400)
                    check(os.pread(f.fileno(), n, at) == step.text[at:at + n], f"{n} at {at}")
    out = os.path.join(job.directory, "out")
    with tap.test("export writes what the mount shows"):
        good("export", *job.sides(), job.source, out)
        exported = files_below(out)
        exported.pop("reshardfs-manifest.jsonl")
        check(exported == shown, f"{sorted(set(exported) ^ set(shown))}")
    with tap.test("verify compares it"):
        check(run("verify", *job.sides(), job.source, out).status == GOOD, "differs")
        path = os.path.join(out, opt)
        flip(path, -1)
        got = run("verify", *job.sides(), job.source, out)
        check(got.status != GOOD and opt in got.out + got.err, f"{got}")
    with tap.test("RANK stands for both files of a rank"):
        shutil.rmtree(out)
        check(run("export", *job.sides(), job.source, out, "1").status == GOOD, "failed")
        names = {name for name in files_below(out) if name.endswith(".safetensors")}
        check(names == {opt, opt.replace("opt", "model")}, f"{names}")
        said = run_json("plan", *job.sides(), job.source, "1-2")
        check([(f["rank"], f["kind"]) for f in said["files"]] ==
              [(r, k) for r in (1, 2) for k in ("model", "opt")], f"{said['files']}")
        with job.mounted() as mount:
            plans = os.path.join(mount.path, ".reshardfs", "plan")
            check(len(os.listdir(plans)) == 4, f"{os.listdir(plans)}")
            said = json.loads(content(os.path.join(plans, "rank_3.json")))
            check([(f["rank"], f["kind"]) for f in said["files"]] ==
                  [(3, "model"), (3, "opt")], f"{said}")
    with tap.test("both forms tell the same tensors"):
        told = [run_json("plan", *words, "--slices", job.source)["tensors"]
                for words in (job.sides(), [*job.sides(), "--format", "safetensors",
                                            "--drop", "^accu_grads"])]
        check(told[0] and told[0] == told[1], "the tensors differ")
    run_steps(tap, job)
    with tap.test("no optimizer, no opt files"):
        with job.mounted("--drop", "^adam_m|^global_step") as mount:
            Step(mount.path).check_names(4, ["model"])
    with tap.test("a new name decides about the file"):
        names = write(os.path.join(job.directory, "names.json"),
                      b'{"adam_m.w": "it\'s", "w": "moments.\\u00e9"}')
        with job.mounted("--rename", names) as mount:
            step = Step(mount.path)
            step.check_slices({"it's": job.tree.whole["adam_m.w"],
                               "moments.\u00e9": job.tree.whole["w"]}, kind_of)


def run_steps(tap, job):
    """Which number a step gets, and what else is known of it."""
    with tap.test("numbers that the job has saved"):
        root = os.path.join(job.directory, "saved")
        job.tree.scalars = {**job.tree.scalars,
                            "loss_scale": Record((), "Float32", struct.pack("<f", 1024)),
                            "global_batch_size": Record((), "Int64", struct.pack("<q", 64))}
        job.tree.save(root, step="3_10")
        with Mounted(root, src_strategy=job.src, extra=FORMAT) as mount:
            step = Step(mount.path)
            check(list(step.common.values()) == [3, 345, 345, 1024.0, 64], f"{step.common}")
            check(set(step.tensors) == {"w", "adam_m.w"}, f"{set(step.tensors)}")
    for name, number in (("1_10", 10), ("3_10", 345), ("3_999", 999)):
        with tap.test(f"step {name} is {number}"):
            root = os.path.join(job.directory, name)
            job.tree.save(root, step=name)
            with Mounted(root, src_strategy=job.src, extra=FORMAT) as mount:
                check(content(os.path.join(mount.path, TRACKER)) == str(number).encode(),
                      f"{os.listdir(mount.path)}")


def run_refused(tap, job):
    for words in (["--compat", "mindspore"], ["--part-size", "1GB"]):
        with tap.test(f"refused: {' '.join(words)}"):
            _, said = expect_failure(job.source, src_strategy=job.src, extra=FORMAT + words)
            check("--format" in said, said)
    unfit = {"w": Layout([3, 2], [-1, -1], 1, 3)}
    with tap.test("refused: an optimizer shard that no map can say"):
        dst = write(os.path.join(job.directory, "unfit.ckpt"),
                    strategy_bytes(StageFile(0, unfit)))
        whole = {"w": Record((6, 6), "Float32", bytes(range(144)))}
        root = os.path.join(job.directory, "whole")
        write(os.path.join(root, "rank_0", "w-1_1.ckpt"), checkpoint_bytes(whole))
        _, said = expect_failure(root, dst_strategy=dst, extra=FORMAT)
        check("parameter w: Checkpoint 2.0 has no tensor map" in said, said)


def main():
    options = seed_and_cases(24, seed=1)
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        job = Small(directory)
        run_small(tap, job)
        run_refused(tap, job)
    for tree in genuine.checkpoint2_names():
        run_genuine(tap, tree)
    for seed in range(options.seed, options.seed + options.cases):
        run_case(tap, seed)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
