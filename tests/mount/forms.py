#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every pair of forms, in both directions: values bit for bit.

    forms.py [--seed S] [--cases N]

A random checkpoint whose whole tensors are known, of Checkpoint 2.0, a distributed one
or a file of odd names, is written in every form that there is, and some of those once
more in others.  Each of them has to hold the same tensors.
"""

import itertools
import math
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import dcp_trees  # noqa: E402
import random_checkpoint2  # noqa: E402
from demands import check, content, write  # noqa: E402
from ms_formats import Layout, read_checkpoint  # noqa: E402
from random_jobs import write_strategy  # noqa: E402
from rsh_cli import GOOD, run  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402
from run_seed import seed_and_cases  # noqa: E402
from safetensors_format import NAMES, SUFFIX, Tensors, read_model, safetensors_bytes  # noqa: E402

WHOLE = ["--dst-strategy", "none"]
PAIRS = 12
# As .ckpt files call the types, beside those that MindSpore trains in.
CKPT_NAMES = {**NAMES, "Complex64": "C64", "Float8E4M3FN": "F8_E4M3", "Float8E5M2": "F8_E5M2"}


class Held:
    """A checkpoint: where it lies, and what has to be said of it as a source."""

    def __init__(self, what, root, words=(), env=None):
        self.what, self.root, self.words, self.env = what, root, list(words), env


class Form:
    """A form that can be written: the options for it, and those for reading it."""

    def __init__(self, what, wanted, source):
        self.what, self.wanted, self.source = what, wanted, source

    def of(self, held, to):
        got = run("export", *held.words, *self.wanted, held.root, to, env=held.env)
        check(got.status == GOOD, f"{held.what} -> {self.what}: {got!r}")
        return Held(f"{held.what} -> {self.what}", to, self.source)


def forms_of(strategy, part_size):
    """All forms, whole and for the ranks of a strategy."""
    result = []
    for form in "ckpt", "safetensors":
        result.append(Form(form, [*WHOLE, "--format", form], ["--src-strategy", "none"]))
        result.append(Form(f"{form} of ranks", ["--dst-strategy", strategy, "--format", form],
                           ["--src-strategy", strategy]))
    result.append(Form("hf", [*WHOLE, "--format", "hf", "--optimizer", "keep", "--part-size",
                              str(part_size)],
                       ["--src-strategy", "none"]))
    result.append(Form("dcp", ["--format", "dcp", "--part-size", str(part_size)], []))
    result.append(Form("hyperparallel", ["--format", "hyperparallel", "--part-size",
                                         str(part_size)], []))
    result.append(Form("checkpoint2", [*WHOLE, "--format", "checkpoint2"], []))
    result.append(Form("checkpoint2 of ranks", ["--dst-strategy", strategy, "--format",
                                                "checkpoint2"], []))
    result.append(Form("checkpoint2 dealt out", [
        "--dst-strategy", strategy, "--format", "checkpoint2", "--remove-redundancy"], []))
    return result


def whole_of(held, numbers):
    """{name: (type, shape, bytes)} that is shown, read in one way or another."""
    way = numbers.randrange(3)
    if way == 0:
        with Mounted(held.root, described=True, dst_strategy=None,
                     extra=[*held.words, "--format", "hf", "--optimizer", "keep"]) as mount:
            _, parts = read_model(mount.path)
            return {n: v for part in parts.values() for n, v in part.values().items()}
    suffix = (None, ".ckpt", SUFFIX)[way]
    with tempfile.TemporaryDirectory() as out:
        got = run("export", *held.words, *WHOLE, "--format", suffix[1:], held.root, out)
        check(got.status == GOOD, f"{held.what}: {got!r}")
        (name,) = os.listdir(os.path.join(out, "rank_0"))
        path = os.path.join(out, "rank_0", name)
        if suffix == SUFFIX:
            return Tensors(content(path)).values()
        return {name: (CKPT_NAMES[r.dtype], tuple(r.dims), bytes(r.content))
                for name, r in read_checkpoint(path).items()}


def same(held, numbers, expected, beside=()):
    found = whole_of(held, numbers)
    wrong = sorted(n for n in set(found) | set(expected)
                   if found.get(n) != expected.get(n) and n not in beside)
    check(not wrong, f"{held.what}: {len(wrong)} differ, such as " + "; ".join(
        f"{n}: {found.get(n, (None,))[:2]}, not {expected.get(n, (None,))[:2]}"
        for n in wrong[:3]))


def strategy_of(numbers, values, path):
    """A strategy file that cuts these tensors over a mesh, some dimensions by two axes."""
    mesh = numbers.choice(([2], [4], [2, 2], [2, 3], [4, 2], [2, 2, 2], [3]))
    layouts = {}
    for name, (_, shape, _) in values.items():
        axes = list(range(len(mesh)))
        numbers.shuffle(axes)
        tensor_map = []
        for size in shape:
            entry = []
            while axes and numbers.random() < 0.7:
                axis = axes[-1]
                if not size or size % mesh[len(mesh) - 1 - axis]:
                    break
                size //= mesh[len(mesh) - 1 - axis]
                entry.append(axes.pop())
            tensor_map.append(entry if len(entry) > 1 else entry[0] if entry else -1)
        layouts[name] = Layout(mesh, tensor_map)
    return write_strategy(path, {0: layouts}, "merged"), mesh


def some_checkpoint2(seed, directory):
    _, _, way, saved = random_checkpoint2.make(seed, os.path.join(directory, "source"))
    described = saved.step.parameters
    values = {name: (described[name].file_type, tuple(described[name].shape), data)
              for name, data in saved.found.items()}
    beside = dict(saved.step.scalars)
    return Held(f"Checkpoint 2.0 {', '.join(saved.features)}", saved.root), values, beside


def some_dcp(seed, directory):
    tree = dcp_trees.random_tree(seed)
    root = os.path.join(directory, "source")
    tree.write(root)
    return Held(f"DCP {tree.describe()}", root), tree.expected(), {}


def some_odd(seed, directory):
    """Names that have to be quoted, of every type and any shape."""
    numbers, values = random.Random(seed), {}
    for i, (dtype, (width, *_)) in enumerate(sorted(dcp_trees.TYPES.items())):
        name = numbers.choice(("it's {}", 'a "{}"', "back\\slash.{}", "{}..dots.", "\u00e4\u4e2d {}",
                               "('{}', (0,))", "adam_m.{}", "{}/slash", "{}"))
        shape = numbers.choice(((), (0,), (1,), (12, 8), (4, 0, 3), (2, 3, 4, 6), (64,)))
        data = numbers.randbytes(width * math.prod(shape))
        values[name.format(i)] = (dtype, shape, data)
    root = os.path.join(directory, "source")
    write(os.path.join(root, "model.safetensors"), safetensors_bytes(values))
    return Held(f"file of {len(values)} odd names", root, ["--src-strategy", "none"]), values, {}


def run_case(tap, seed):
    numbers = random.Random(seed)
    with tempfile.TemporaryDirectory() as directory, tap.test(f"seed {seed}"):
        make = (some_checkpoint2, some_dcp, some_odd)[seed % 3]
        source, values, beside = make(seed, directory)
        tap.diag(f"seed {seed}: {source.what}")
        strategy, mesh = strategy_of(numbers, values, os.path.join(directory, "dst"))
        tap.diag(f"seed {seed}: for mesh {mesh}")
        forms = forms_of(strategy, numbers.choice((1 << 10, 1 << 14, 1 << 30)))
        same(source, numbers, values, beside)
        source.what = source.what.split()[0]
        held = []
        for i, form in enumerate(forms):
            held.append(form.of(source, os.path.join(directory, f"first-{i}")))
            held[-1].words = form.source
            same(held[-1], numbers, values, beside)
        pairs = list(itertools.product(range(len(forms)), range(len(forms))))
        for i, j in numbers.sample(pairs, PAIRS):
            again = forms[j].of(held[i], os.path.join(directory, f"again-{i}-{j}"))
            same(again, numbers, values, beside)


def main():
    options = seed_and_cases(6, seed=1)
    require_mount()
    tap = Tap()
    for seed in range(options.seed, options.seed + options.cases):
        run_case(tap, seed)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
