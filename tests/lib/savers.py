# SPDX-License-Identifier: Apache-2.0
"""Jobs that save one step after the other, for tests of mount --steps all and --resume.

    saver = Trainer(directory)
    for complete in saver.save(20): ...    one operation of the framework after the other
    saver.source                           the directory into which it saves
"""

import itertools
import json
import os
import random
import re

from dcp_trees import random_tree
from demands import content, write
from framework_formats import torch_zip
from run_seed import run_seed
from safetensors_format import safetensors_bytes
from small_job import Job

DATA = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "data")
SEED = run_seed()
# An optimizer's tensor, which a model leaves out.
STATE = re.compile("optim|state|exp_avg|moment|adam", re.IGNORECASE)


class Saver:
    """The operations of a framework that saves one step after the other.

    save() yields after each operation whether the step is complete.
    """

    url = None  # the address of the directory, if it is in object storage

    def __init__(self, directory):
        self.directory = directory
        self.source = os.path.join(directory, "save")
        os.makedirs(self.source)

    def path(self, *words):
        return os.path.join(self.source, *words)

    def options(self):
        return {"described": True}

    def alone(self, name):
        """The arguments of a mount of this step alone."""
        return [self.path(name)], {"described": True}

    def remove(self, step):
        """Removes the files in any order; yields after each of them."""
        for folder, _, names in os.walk(self.path(self.name(step)), topdown=False):
            for name in sorted(names):
                os.unlink(os.path.join(folder, name))
                yield
            os.rmdir(folder)

    def put(self, path, data, pieces=3):
        """Writes under the final name; yields when the file has grown."""
        path = self.path(path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb", buffering=0) as f:
            for i in range(pieces):
                f.write(data[i * len(data) // pieces:(i + 1) * len(data) // pieces])
                yield

    def rename(self, path, data, temporary):
        for _ in self.put(temporary, data, 1):
            yield
        os.rename(self.path(temporary), self.path(path))
        yield

    def gone(self, step):
        """Why a step is not shown whose first file was removed."""
        return f"{self.source}: files were removed of step {self.name(step)}"

    def all_of(self, step):
        for _ in self.save(step):
            pass


class Ranks(Saver):
    """ModelCheckpoint: each rank for itself, by a temporary name, in any order.  A step
    is complete when one of the two ranks that hold each slice has saved it."""

    def __init__(self, directory):
        super().__init__(directory)
        self.job = Job(os.path.join(directory, "job"))

    def options(self):
        return {"src_strategy": self.job.strategy, "dst_strategy": None}

    def name(self, step):
        return f"1_{step}"

    def alone(self, name):
        return [self.source], {**self.options(), "extra": ("--select", name)}

    def file(self, rank, step):
        return f"rank_{rank}/net-1_{step}.ckpt"

    def order(self, step):
        ranks = list(range(self.job.n_ranks))
        random.Random(f"{SEED} {step}").shuffle(ranks)
        return ranks

    def save_rank(self, rank, step):
        return self.rename(self.file(rank, step), self.job.file_bytes(rank, 1, step),
                           self.file(rank, step)[:-5] + ".tmp")

    def save(self, step):
        for rank in self.order(step):
            for _ in self.save_rank(rank, step):
                yield self.is_saved(step)

    def is_saved(self, step):
        half = self.job.n_ranks // 2
        return all(any(os.path.exists(self.path(self.file(rank, step)))
                       for rank in (i, i + half)) for i in range(half))

    def remove(self, step):
        for rank in self.order(step):
            os.unlink(self.path(self.file(rank, step)))
            yield


class RanksInSteps(Ranks):
    """The same into a directory for each step, whose files have no step in their names."""

    def name(self, step):
        return f"step-{step}"

    def alone(self, name):
        return [self.path(name)], self.options()

    def file(self, rank, step):
        return f"{self.name(step)}/rank_{rank}/net_{rank}.ckpt"

    def remove(self, step):
        return Saver.remove(self, step)


class Checkpoint2(Saver):
    """mindformers: files of ranks by temporary names, and metadata.json, which may come
    before them."""

    def name(self, step):
        return f"iteration_{step:08d}"

    def save(self, step, early=False):
        origin = os.path.join(DATA, "checkpoint2", "dp4mp2_opt", "iteration_00000008")
        names = sorted(os.listdir(origin))
        rng = random.Random(f"{SEED} {step}")
        rng.shuffle(names)
        if not early:
            names.sort(key="metadata.json".__eq__)
        # One rank writes both.
        first, then = sorted(map(names.index, ("common.json", "metadata.json")))
        names[first], names[then] = "common.json", "metadata.json"
        os.makedirs(self.path(self.name(step)))
        yield False
        for i, name in enumerate(names):
            data = content(os.path.join(origin, name))
            for _ in self.rename(f"{self.name(step)}/{name}", data,
                                 f"{self.name(step)}/{name}.tmp"):
                yield set(os.listdir(self.path(self.name(step)))) == set(names)
        write(self.path("latest_checkpointed_iteration.txt"), str(step).encode())
        yield True


class Dcp(Saver):
    """torch.distributed.checkpoint: files of ranks under their final names, then
    .metadata."""

    def name(self, step):
        return f"step-{step}"

    def save(self, step):
        made = os.path.join(self.directory, f"made-{step}")
        trees = (random_tree(f"{SEED} {step} {i}", "torch") for i in itertools.count())
        if not os.path.isdir(made):
            next(tree for tree in trees if any(not STATE.search(name)
                                               for name in tree.tensors)).write(made)
        names = sorted(os.listdir(made), key=".metadata".__eq__)
        for name in names:
            path = f"{self.name(step)}/{name}"
            data = content(os.path.join(made, name))
            if name == ".metadata":
                for _ in self.put(path + ".tmp", data):
                    yield False
                os.rename(self.path(path + ".tmp"), self.path(path))
            else:
                for _ in self.put(path, data):
                    yield False
        yield True


class Fsdp(Dcp):
    """The Trainer and accelerate with FSDP: a distributed checkpoint in the directory of
    the step, then other files of PyTorch."""

    BELOW = "pytorch_model_fsdp_0"

    def name(self, step):
        return f"checkpoint-{step}"

    def alone(self, name):
        return [self.path(name, self.BELOW)], self.options()

    def save(self, step):
        os.makedirs(self.path(self.name(step)))
        yield False
        inner = Dcp(os.path.join(self.directory, f"inner-{step}"))
        inner.source, inner.name = self.path(self.name(step)), lambda _: self.BELOW
        yield from inner.save(step)
        for name in ("scheduler.pt", "trainer_state.json"):
            for _ in self.put(f"{self.name(step)}/{name}", torch_zip([b"x" * 64])):
                yield True


class Megatron(Saver):
    """Megatron-Core: common.pt, the files of ranks, .metadata, metadata.json, and the
    tracker."""

    ORIGIN = os.path.join(DATA, "dcp", "megatron-core-0.16", "mcore-torch_dist")
    ORDER = ("common.pt", "", ".metadata", "metadata.json")

    def name(self, step):
        return f"iter_{step:07d}"

    def save(self, step):
        os.makedirs(self.path(self.name(step)))
        yield False
        names = sorted(os.listdir(self.ORIGIN), key=lambda n: self.ORDER.index(
            n if n in self.ORDER else ""))
        for name in names:
            path, data = f"{self.name(step)}/{name}", content(os.path.join(self.ORIGIN, name))
            if name == ".metadata":
                for _ in self.rename(path, data, path + ".tmp"):
                    yield False
                continue
            for i, _ in enumerate(self.put(path, data)):
                yield name == "metadata.json" and i == 2
        write(self.path("latest_checkpointed_iteration.txt"), str(step).encode())
        yield True


def model(step, n, rows):
    rng = random.Random(f"{SEED} model {step}")
    return {f"layer.{i}.weight": ("F32", (rows, 5), rng.randbytes(20 * rows))
            for i in range(n)}


class Trainer(Saver):
    """transformers' Trainer: the weights, then other files, then trainer_state.json."""

    parts, rows = 1, 8

    def name(self, step):
        return f"checkpoint-{step}"

    def files(self, step):
        tensors = model(step, 4, self.rows)
        yield "config.json", b'{"architectures": ["Made"], "hidden_size": 8}'
        if self.parts == 1:
            yield "model.safetensors", safetensors_bytes(tensors)
        else:
            names, weights = sorted(tensors), {}
            for i in range(self.parts):
                part = f"model-{i + 1:05d}-of-{self.parts:05d}.safetensors"
                mine = names[i::self.parts]
                weights.update({name: part for name in mine})
                yield part, safetensors_bytes({name: tensors[name] for name in mine})
            yield "model.safetensors.index.json", json.dumps(
                {"metadata": {"total_size": 80 * self.rows}, "weight_map": weights}).encode()
        yield "optimizer.pt", torch_zip([b"x" * 64])
        yield "trainer_state.json", b"{}"

    def save(self, step):
        for name, data in self.files(step):
            for _ in self.put(f"{self.name(step)}/{name}", data):
                if name != "trainer_state.json":
                    yield False
        yield True


class TrainerInParts(Trainer):
    """The same with a model in two parts."""

    parts = 2


class TorchFiles(Saver):
    """torch.save() into a file for each step, under its final name."""

    def name(self, step):
        return f"epoch_{step}.pt"

    def bytes_of(self, step):
        return content(os.path.join(DATA, "torch", (
            "nested-2.15.pt", "legacy-flat-2.4.pth")[step % 20 // 10]))

    def save(self, step):
        data = self.bytes_of(step)
        for i, _ in enumerate(self.put(self.name(step), data, 4)):
            yield i == 3

    def remove(self, step):
        os.unlink(self.path(self.name(step)))
        yield


