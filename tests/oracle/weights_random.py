#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random tiny models through mounts with --convert, held against naive references.

Each seed gives a model in Hugging Face's form and shows it in MindSpore's, whole and
as the ranks of a random strategy; what the ranks show is mounted once more and has to
be the model again, and so has a tree of random ranks, of which one may be lost.  What
is right says the naive reading of the rule tables (lib/rule_tables.py); where
mindformers has a converter, it has to make the same in this very process.

    weights_random.py --seed 7 --pairs 1      repeats one

With RSH_ORACLE_PYTHON and RSH_MINDFORMERS mindformers is asked, else that is skipped.
"""

import itertools
import json
import math
import os
import re
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import mindformers_convert  # noqa: E402
import mindformers_loader  # noqa: E402
import random_cases  # noqa: E402
import random_models  # noqa: E402
import rsh_mount  # noqa: E402
import rule_tables  # noqa: E402
from checkpoint2_trees import parameter_of  # noqa: E402
from demands import content, write  # noqa: E402
from random_jobs import Tree  # noqa: E402
from rsh_mount import Mounted  # noqa: E402
from safetensors_format import NAMES, values_of  # noqa: E402

PAIRS = 60
TYPES = {short: name for name, short in NAMES.items() if name != "Int4"}


def differences(found, expected, where):
    """A line for each tensor that is not the same."""
    lines = [f"{where}: {name}: missing" for name in expected if name not in found]
    for name, tensor in found.items():
        if name not in expected:
            lines.append(f"{where}: {name}: not expected")
        elif tensor[:2] != expected[name][:2]:
            lines.append(f"{where}: {name}: {tensor[:2]}, expected {expected[name][:2]}")
        elif tensor[2] != expected[name][2]:
            lines.append(f"{where}: {name}: values")
    return lines


def live_differences(model, mindspore, back):
    """Of the naive references, from what mindformers makes."""
    lines, ways = [], (("forward", model.tensors, mindspore), ("back", mindspore, back))
    for way, given, expected in ways:
        states = tuple(itertools.chain(*rule_tables.load_table(model.table).states))
        given = {name: tensor for name, tensor in given.items()
                 if not name.startswith(states)}
        found = getattr(mindformers_convert, way)(model.table, model.config, given) or {}
        for name, (shape, values) in found.items():
            mine = expected.get(name)
            # Its experts have three dimensions, with the same bytes.
            if "inv_freq" not in name and (mine is None or mine[2] != values or (
                    shape != mine[1] and "experts" not in name)):
                lines.append(f"mindformers, {way}: {name}")
    return lines

# What a config.json may get that its model does not say.
ADDED = {"torch_dtype", "num_key_value_heads", "vocab_size", "intermediate_size",
         "tie_word_embeddings", "hidden_size", "num_hidden_layers", "q_lora_rank"}


class Case:
    """One seed; `work` is an empty directory."""

    def __init__(self, seed, work):
        self.work = work
        self.model = random_models.Model(seed)
        self.numbers = self.model.numbers
        self.features = list(self.model.features)
        self.name, self.table = self._table()
        self.root = self.model.save(os.path.join(work, "model"))
        self.how = self._form()
        self.mindspore = self.table.convert(self.model.tensors, self.model.config, "hf",
                                            **self.how)
        self.shapes = {name: (shape, TYPES[dtype])
                       for name, (dtype, shape, _) in self.mindspore.items()}
        wanted = rule_tables.dequantised(self.model.tensors, self.model.config)
        self.original = {name: tensor for name, tensor in wanted.items()
                         if not name.endswith("inv_freq")}

    def __str__(self):
        return ", ".join([self.model.table, self.model.dtype, *self.features])

    def _table(self):
        """(what --convert is told, the table).  Some models have states of an optimizer
        that the table names.  Copies have none in MindSpore's form."""
        table = rule_tables.load_table(self.model.table)
        if self.numbers.random() < 0.8 or table.also or \
                {"fp8", "prediction layers"} & {*self.features}:
            return self.model.table, table
        self.features.append("states")
        states = self.numbers.sample(table.states, 2)
        self.model.tensors.update(
            (prefix + name, ("F32", shape, self.numbers.randbytes(4 * math.prod(shape))))
            for name, (_, shape, _) in list(self.model.tensors.items())
            for prefix, _ in states if not name.endswith("inv_freq"))
        return self.model.table, table

    def _form(self):
        """How MindSpore's form differs in its embedding and head; the table may become
        a file of its own, which pads with copies of the last row."""
        how = {}
        if self.numbers.random() < 0.3:
            self.features.append("padded")
            how["multiple"] = self.numbers.choice((4, 7, 16, 24))
            if not self.table.pads or self.numbers.random() < 0.3:
                self.features.append("last row")
                self.name, self.table = self._pad_with_last()
        if self.table.tied and "tied" in self.features and self.numbers.random() < 0.5:
            self.features.append("untied")
            how["untie"] = True
        return how

    def _pad_with_last(self):
        text = content(rule_tables.table_path(self.model.table)).decode()
        name = re.search(r"^[\w.]*embed\S* = (\S+)$", text, re.M).group(1)
        text = text.replace(" v m zeros", " v m last") if self.table.pads else text + \
            f"let v0 = vocab_size\nlet m0 = vocab_multiple\npad {name} = v0 m0 last\n"
        return write(os.path.join(self.work, "own.rules"), text.encode()), \
            rule_tables.Table(text)

    def check(self):
        back = self.table.convert(self.mindspore, self.model.config, "mindspore", **self.how)
        wrong = differences(back, self.original, "naive")
        if mindformers_loader.directory() and not self.how:
            wrong += live_differences(self.model, self.mindspore, back)
        return wrong or [*self._whole(), *self._ranks(), *self._trained(),
                         *self._checkpoint2()]

    def tree(self, name, more=None, spare=False):
        """A random strategy of MindSpore's form: (tree, its file); `more` are the
        shapes of other tensors, with `spare` all ranks have replicas."""
        shapes = {**self.shapes, **(more or {})}
        stages = random_models.random_stages(
            self.numbers, {name: shape for name, (shape, _) in shapes.items()}, spare)
        path = random_models.random_strategy(self.numbers, os.path.join(self.work, name),
                                             stages)
        tree = Tree(self.numbers, stages, shapes)
        tree.whole.update((name, tensor[2]) for name, tensor in self.mindspore.items())
        return tree, path

    def _scattered(self, root):
        """Lines for what is read otherwise at random places, from the largest file of
        a mount that was not read yet, than from its beginning."""
        size, path = max((os.stat(path).st_size, path) for path in (
            os.path.join(folder, name) for folder, _, names in os.walk(root)
            for name in names))
        with open(path, "rb", buffering=0) as f:
            found = [(at, os.pread(f.fileno(), self.numbers.randrange(1, 3000), at))
                     for at in (self.numbers.randrange(size) for _ in range(8))]
        whole = content(path)
        return [f"{path}: {len(data)} bytes at {at}" for at, data in found
                if not data or data != whole[at:at + len(data)]]

    def words(self, side, *more):
        if "multiple" in self.how:
            more = ("--vocab-multiple", str(self.how["multiple"]), *more)
        if "untie" in self.how:
            more = ("--untie", *more)
        return ["--convert", self.name, "--from", side, *more]

    def _whole(self):
        form = self.numbers.choice(("ckpt", "safetensors"))
        with Mounted(self.root, extra=self.words("hf", "--format", form)) as mount:
            return self._scattered(mount.path) + differences(
                rule_tables.read_ranks(mount.path)[0], self.mindspore, "whole")

    def _ranks(self):
        """As ranks, and these ranks in turn as the model."""
        tree, strategy = self.tree("wanted")
        with Mounted(self.root, dst_strategy=strategy, extra=self.words("hf")) as mount:
            lines = self._scattered(mount.path)
            found = rule_tables.read_ranks(mount.path)
            for rank in tree.ranks():
                tree.scalars = {}
                lines += differences(found.pop(rank, {}), values_of(tree.records(rank)),
                                     f"rank {rank} of {len(tree.ranks())}")
            lines += [f"rank {rank} is shown" for rank in found]
            return lines or self._back(mount.path, strategy, "stacked")

    def _trained(self):
        """From a tree of ranks with what training leaves in it."""
        states = {}
        if "states" not in self.features and self.numbers.random() < 0.4:
            self.features.append("states passed over")
            states = {f"adam_m.{name}": (shape, "Float32")
                      for name, (shape, _) in self.shapes.items()}
        lost = self.numbers.random() < 0.3
        tree, strategy = self.tree("saved", states, lost)
        root, without = os.path.join(self.work, "tree"), {}
        if lost:
            without = {self.numbers.choice(tree.ranks()): None}
            self.features.append("a rank lost")
        tree.save(root, without=without, suffix=self.numbers.choice((".ckpt", ".safetensors")))
        return self._back(root, strategy, "trained")

    def _checkpoint2(self):
        """Now and then: as a Checkpoint 2.0, and that as the model."""
        tree, strategy = self.tree("described")
        if self.numbers.random() < 0.7 or any(
                parameter_of(layout, self.shapes[name][0], "", 0) is None
                for held in tree.stages.values() for name, layout in held.items()):
            return []
        self.features.append("Checkpoint 2.0")
        words = self.words("hf", "--format", "checkpoint2")
        with Mounted(self.root, dst_strategy=strategy, extra=words) as mount:
            return self._back(mount.path, None, "Checkpoint 2.0", described=True)

    def _back(self, root, strategy, where, described=False):
        config = os.path.join(self.root, "config.json")
        words = self.words("mindspore", "--config", config, "--format", "hf")
        if "states" in self.features:
            words += ["--optimizer", "keep"]
        if "last row" in self.features:
            # Slices that are all padding are equal, as copies are.
            words += ["--check", "structure"]
        if self.numbers.random() < 0.5:
            words += ["--part-size", str(self.numbers.choice((2000, 9000)))]
        with Mounted(root, src_strategy=strategy, described=described,
                     extra=words) as mount:
            lines = self._scattered(mount.path)
            lines += differences(rule_tables.read_model(mount.path)[0], self.original, where)
            shown = content(os.path.join(mount.path, "config.json"))
        # Nothing is quantised any more, and what the weights tell is added.
        said = {k: v for k, v in self.model.config.items() if k != "quantization_config"}
        found = json.loads(shown)
        more = set(found) - set(said) - ADDED
        if more or {k: found.get(k) for k in said} != said:
            lines.append(f"{where}: config.json {sorted(more)}")
        return lines


# What is special of a model or a tree; some of each has to come up.
FEATURES = ("grouped queries", "heads apart", "tied", "dense layers", "prediction layers",
            "fp8", "eleven layers", "states",
            "states passed over", "a rank lost", "Checkpoint 2.0", "padded", "last row",
            "untied")


def judge_mixture(tap, counts):
    """Tables come in turn, what else there is by chance, which among fewer is not sure."""
    many = sum(counts[table] for table in random_models.KINDS) >= PAIRS
    wanted = (*random_models.KINDS, *(FEATURES if many else ()))
    tap.equal([kind for kind in wanted if not counts[kind]], [],
              "of every kind there were some")


def start_worker():
    os.environ["GLOG_v"] = "4"


def run_case(seed):
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as work:
        case = Case(seed, work)
        failed = random_cases.failure(case)
        if failed:
            return failed
        return random_cases.Outcome(True, case.model.table, str(case),
                                    counted=(case.model.table, *case.features))


def without_mindformers():
    """Why it is not asked, or None."""
    if not os.environ.get("RSH_ORACLE_PYTHON"):
        return "RSH_ORACLE_PYTHON does not name a Python that has MindSpore"
    if not mindformers_loader.directory():
        return "RSH_MINDFORMERS does not name a directory of mindformers"
    return None


def main():
    options = random_cases.parser(__doc__, PAIRS).parse_args()
    rsh_mount.require_mount()
    why = without_mindformers()
    if why:
        os.environ.pop("RSH_MINDFORMERS", None)
    else:
        rsh_mount.require_oracle()
    # Few tables have blocks of fp8, so a draw may miss them.
    always = [seed for seed in range(200) if "fp8" in random_models.Model(seed).features][:1]
    return random_cases.run(options, start_worker, run_case, judge=judge_mixture, always=always,
                            skipped={"mindformers' own converters": why} if why else {})


if __name__ == "__main__":
    sys.exit(main())
