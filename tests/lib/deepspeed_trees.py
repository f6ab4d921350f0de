# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of DeepSpeed in plain Python: as engine.save_checkpoint() of 0.19.8 writes
ZeRO 0 to 3, and ds_to_universal.py the universal form; and the genuine ones of
data/deepspeed.

A second implementation that shares nothing with the program under test: flat groups are
made by joining what the whole tensors are, and are cut as DeepSpeed cuts them.  Standard
library only.
"""

import collections
import dataclasses
import functools
import math
import os
import random
import struct

import packed
from dcp_trees import TYPES, Called, Named, Size, Stored, archive, pickled, row_strides
from rank_pickles import Object
from run_seed import random_bytes

STEP = 7
TAG = f"global_step{STEP}"
ORDERED = collections.OrderedDict


expected = functools.partial(packed.expected, "deepspeed")
unpack = functools.partial(packed.unpack, "deepspeed")


# ---- files of torch.save() ----

class Archive:
    """A file of torch.save(); tensors may be parts of one storage."""

    def __init__(self):
        self.storages = []

    def storage(self, dtype, data):
        self.storages.append(data)
        width, _, name = TYPES[dtype]
        return Stored("storage", Named("torch", name), str(len(self.storages) - 1), "cpu",
                      len(data) // width)

    def view(self, stored, size, start=0):
        return Called(Named("torch._utils", "_rebuild_tensor_v2"), stored, start, tuple(size),
                      row_strides(size), False, ORDERED())

    def tensor(self, dtype, size, data):
        return self.view(self.storage(dtype, data), size)

    def write(self, path, value):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(archive([("data.pkl", pickled(value, 2)), ("byteorder", b"little"),
                             *((f"data/{i}", data) for i, data in enumerate(self.storages)),
                             ("version", b"3\n")], os.path.basename(path)[:-3]))


def stage_enum(stage):
    return Called(Named("deepspeed.runtime.zero.config", "ZeroStageEnum"), stage)


def with_attributes(tensor):
    """As ZeRO 3's flat groups, which have attributes of Python."""
    function, args = tensor.call
    return Called(Named("torch._tensor", "_rebuild_from_type_v2"), function,
                  Named("torch", "Tensor"), args, {"ds_id": 1})


# ---- a model ----

@dataclasses.dataclass
class Param:
    name: str
    size: tuple
    master: bytes           # float32
    states: dict            # {"exp_avg": bytes}
    weights: bytes          # in the type of the training

    @property
    def n(self):
        return math.prod(self.size)


@dataclasses.dataclass
class Tree:
    stage: int
    world: int
    dtype: str              # of the training
    groups: list            # of Params, in the order of the flat groups
    paddings: list          # of each parameter of each group; ZeRO 1 and 2
    frozen: list            # of Params
    buffers: dict           # {name: (dtype, size, data)}
    aliases: dict           # {name: name}
    step: bytes             # float32
    options: set            # "elastic", "bf16opt", "attributes", "plain stage", "universal"
    rng: random.Random

    def describe(self):
        return (f"ZeRO {self.stage}, {self.world} ranks, {self.dtype}, "
                f"{[len(g) for g in self.groups]} parameters, {sorted(self.options)}")

    # -- what must be shown --

    def model(self):
        shown = dict(self.buffers)
        for group in self.groups:
            for p in group:
                shown[p.name] = ("F32", p.size, p.master) if p.n and self.stage else \
                    (self.dtype, p.size, p.weights)
        for p in self.frozen:
            shown[p.name] = (self.dtype, p.size, p.weights)
        for alias, name in self.aliases.items():
            shown[alias] = shown[name]
        return shown

    def module(self):
        shown = dict(self.buffers)
        for p in [p for group in self.groups for p in group] + self.frozen:
            shown[p.name] = (self.dtype, p.size, p.weights)
        for alias, name in self.aliases.items():
            shown[alias] = shown[name]
        return shown

    def optimizer(self):
        if not self.stage:
            return {}
        shown = {}
        for p in (p for group in self.groups for p in group if p.n):
            at = f"optimizer.state.{p.name}."
            shown.update({at + key: ("F32", p.size, data) for key, data in p.states.items()})
            # ds_to_universal.py leaves it out for ZeRO 3.
            if not ("universal" in self.options and self.stage == 3):
                shown[at + "step"] = ("F32", (), self.step)
        return shown

    # -- the file of the model --

    def shapes(self, params):
        return ORDERED((p.name, Size(p.size)) for p in params)

    def head(self, module, file, rank=0):
        is_3 = self.stage == 3
        frozen = self.shapes(self.frozen) if self.stage >= 2 else None
        fragments = None
        if self.stage == 2:
            fragments = ORDERED((p.name, module[p.name]) for p in self.frozen)
        elif is_3:
            fragments = ORDERED((p.name, file.tensor(self.dtype, (share(p.n, self.world),),
                                                     self.share_of(p.weights, TYPES[self.dtype][0],
                                                                   p.n, rank)))
                                for p in self.frozen)
        return {
            "module": module, "buffer_names": list(self.buffers),
            "optimizer": None,
            "param_shapes": [self.shapes(p for p in g if p.n) for g in self.groups]
            if self.stage else None,
            "frozen_param_shapes": frozen,
            "shared_params": dict(self.aliases) if rank == 0 and self.stage else {},
            "frozen_param_fragments": fragments, "lr_scheduler": None, "skipped_steps": 0,
            "global_steps": STEP, "global_samples": 14, "dp_world_size": self.world,
            "mp_world_size": 1, "ds_config": {"zero_optimization": {"stage": self.stage}},
            "ds_version": "0.19.8", "epoch": 3}

    def write_model(self, root):
        if self.stage == 3:
            for rank in range(self.world):
                file = Archive()
                module = ORDERED()
                for p in self.all_params():
                    module[p.name] = file.tensor(self.dtype, (0,), b"")
                module.update((n, file.tensor(*b)) for n, b in self.buffers.items())
                file.write(os.path.join(root, f"zero_pp_rank_{rank}_mp_rank_00_model_states.pt"),
                           self.head(module, file, rank))
            return
        file = Archive()
        module = ORDERED()
        # The weights of a group are views of one storage.
        for params in [*self.groups, self.frozen]:
            stored = file.storage(self.dtype, b"".join(p.weights for p in params))
            at = 0
            for p in params:
                module[p.name] = file.view(stored, p.size, at)
                at += p.n
        for alias, name in self.aliases.items():
            module[alias] = module[name]
        module.update((n, file.tensor(*b)) for n, b in self.buffers.items())
        file.write(os.path.join(root, "mp_rank_00_model_states.pt"), self.head(module, file))

    def all_params(self):
        return [p for group in self.groups for p in group] + self.frozen

    # -- the files of the optimizer --

    def share_of(self, data, width, n, rank):
        """What a rank of ZeRO 3 has, with padding that is not zero."""
        each = share(n, self.world)
        piece = data[rank * each * width:(rank + 1) * each * width]
        return piece + random_bytes(self.rng, each * width - len(piece))

    def flats(self, key):
        """[rank][group]: bytes, and how much of it is padding."""
        def data(p):
            return p.states[key] if key else p.master
        if self.stage == 3:
            return [[(b"".join(self.share_of(data(p), 4, p.n, rank) for p in group if p.n), 0)
                     for group in self.groups] for rank in range(self.world)]
        ranks = [[] for _ in range(self.world)]
        for group, paddings in zip(self.groups, self.paddings):
            params = [p for p in group if p.n]
            vector = b"".join(data(p) + random_bytes(self.rng, 4 * pad)
                              for p, pad in zip(params, paddings))
            align = 2 * self.world
            rest = -(len(vector) // 4) % align
            vector += random_bytes(self.rng, 4 * rest)
            each = len(vector) // self.world
            for rank in range(self.world):
                own = vector[rank * each:(rank + 1) * each]
                ranks[rank].append((own, min(rest, each // 4) if rank + 1 == self.world else 0))
        return ranks

    def write_optimizer(self, root):
        keys = sorted({k for p in self.all_params() for k in p.states})
        flats = {key: self.flats(key) for key in ["", *keys]}
        prefix = "bf16_" if self.dtype == "BF16" else ""
        for rank in range(self.world):
            file = Archive()
            is_3 = self.stage == 3
            elastic = "elastic" in self.options

            def flat(key, g, trim):
                data, padding = flats[key][rank][g]
                stored = file.storage("F32", data)
                n = len(data) // 4 - (padding if trim else 0)
                tensor = file.view(stored, (n,))
                return with_attributes(tensor) if is_3 and "attributes" in self.options else tensor

            masters = [flat("", g, "bf16opt" not in self.options)
                       for g in range(len(self.groups))]
            states = [{"step": file.tensor("F32", (), self.step),
                       **{k: flat(k, g, elastic) for k in keys}}
                      for g in range(len(self.groups))]
            groups = [{"lr": 0.5 + g, "betas": (0.9, 0.999), "params": [g]}
                      for g in range(len(self.groups))]
            stage = {} if "bf16opt" in self.options else {
                "zero_stage": self.stage if "plain stage" in self.options else
                stage_enum(self.stage)}
            scaler = Object(Named("deepspeed.runtime.fp16.loss_scaler", "LossScaler"), (),
                            {"cur_scale": 1.0, "dynamic": False})
            if is_3:
                value = {**stage, "loss_scaler": scaler, "partition_count": self.world,
                         "optimizer_state_dict": {"state": dict(enumerate(states)),
                                                  "param_groups": groups},
                         "fp32_flat_groups": masters}
            else:
                value = {"loss_scaler": scaler, **stage,
                         "base_optimizer_state": states if elastic else {
                             "state": dict(enumerate(states)), "param_groups": groups},
                         "single_partition_of_fp32_groups": masters,
                         "group_paddings": [f[1] for f in flats[""][rank]],
                         "partition_count": [self.world] * len(self.groups)}
                if any(any(p) for p in self.paddings):
                    value["param_alignment_paddings"] = self.paddings
            name = f"{prefix}zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"
            file.write(os.path.join(root, name),
                       {"optimizer_state_dict": value, "ds_config": {}, "ds_version": "0.19.8"})

    def write_universal(self, root):
        for p in (p for group in self.groups for p in group if p.n):
            for key, data in [("fp32", p.master), *p.states.items()]:
                file = Archive()
                value = file.tensor("F32", (p.n,), data) if self.stage == 3 else {
                    "cat_dim": 0, "param": file.tensor("F32", p.size, data)}
                file.write(os.path.join(root, "zero", p.name, f"{key}.pt"), value)
            if self.stage != 3:
                file = Archive()
                file.write(os.path.join(root, "zero", p.name, "step.pt"),
                           file.tensor("F32", (), self.step))
        # What ds_to_universal.py writes of other tensors is not to be believed.
        if self.stage != 3:
            for name, (_, size, data) in self.buffers.items():
                file = Archive()
                n = math.prod(size)
                file.write(os.path.join(root, "zero", name, "fp32.pt"), {
                    "param": file.tensor("F32", size, random_bytes(self.rng, 4 * n))})
        Archive().write(os.path.join(root, "zero", "optimizer_state.pt"),
                        {"param_groups": [{"lr": 0.5, "params": [0]}], "ds_version": "0.19.8"})

    def write(self, directory):
        root = os.path.join(directory, TAG)
        self.write_model(root)
        universal = "universal" in self.options
        if universal:
            self.write_universal(root)
        elif self.stage:
            self.write_optimizer(root)
        with open(os.path.join(directory, "latest_universal" if universal else "latest"), "w",
                  encoding="ascii") as f:
            f.write(TAG)
        return directory


def share(n, world):
    return -(-n // world)


# ---- random ones ----

def rounded(master, dtype):
    """The weights of masters: to nearest, ties to even."""
    if dtype == "F32":
        return master
    if dtype == "F16":
        return b"".join(struct.pack("<e", v) for (v,) in struct.iter_unpack("<f", master))
    out = []
    for (bits,) in struct.iter_unpack("<I", master):
        out.append(struct.pack("<H", (bits + 0x7fff + (bits >> 16 & 1)) >> 16))
    return b"".join(out)


class _Drawer:
    def __init__(self, seed, **fixed):
        self.rng = random.Random(seed)
        self.fixed = fixed

    def size(self):
        kind = self.rng.randrange(8)
        if kind == 0:
            return (0, 3) if self.rng.random() < 0.5 else ()
        return tuple(self.rng.choice((1, 1, 2, 3, 5, 7)) for _ in range(self.rng.choice(
            (1, 1, 2, 2, 2, 3, 4))))

    def floats(self, n):
        # float16 has them all.
        return b"".join(struct.pack("<f", self.rng.uniform(-8, 8)) for _ in range(n))

    def param(self, name, dtype, keys, size=None):
        size = self.size() if size is None else size
        n = math.prod(size)
        master = self.floats(n)
        return Param(name, size, master, {k: self.floats(n) for k in keys},
                     rounded(master, dtype))

    def tree(self):
        rng = self.rng
        stage = self.fixed.get("stage", rng.choice((0, 1, 1, 2, 2, 3, 3, 3)))
        dtype = rng.choice(("BF16", "BF16", "F16", "F32"))
        options = set()
        if stage in (1, 2) and rng.random() < 0.3:
            options.add("elastic")
        if stage == 1 and dtype == "BF16" and rng.random() < 0.3:
            options.add("bf16opt")
        for option in "attributes", "plain stage":
            if rng.random() < 0.5:
                options.add(option)
        if stage and rng.random() < 0.25 and not self.fixed.get("no_universal"):
            options.add("universal")
        keys = rng.choice((("exp_avg", "exp_avg_sq"), ("momentum_buffer",), ()))
        groups = [[self.param(f"layers.{g}.{i}.weight", dtype, keys)
                   for i in range(rng.choice((1, 2, 3, 6)))]
                  for g in range(rng.choice((1, 1, 2, 3)))]
        # A flat group of nothing is none.
        for g, group in enumerate(groups):
            if not any(p.n for p in group):
                group.append(self.param(f"layers.{g}.more", dtype, keys, (3, 2)))
        if stage == 3:
            groups = [[p for p in group if p.n] for group in groups]
        paddings = [[0] * sum(p.n > 0 for p in group) for group in groups]
        if stage in (1, 2) and rng.random() < 0.3:
            paddings = [[rng.randrange(4) for _ in p] for p in paddings]
        frozen = [self.param(f"fixed.{i}", dtype, ()) for i in range(rng.choice((0, 0, 1, 3)))]
        if stage == 3:
            frozen = [p for p in frozen if p.n]
        buffers = {"count": ("I64", (2,), random_bytes(rng, 16)),
                   "inv.freq": ("F32", (3,), self.floats(3))}
        trained = [p.name for group in groups for p in group if p.n]
        aliases = {"head.weight": rng.choice(trained)} if rng.random() < 0.5 else {}
        return Tree(stage, self.fixed.get("world", rng.choice((1, 2, 2, 3, 4, 5, 12))), dtype,
                    groups, paddings, frozen, buffers, aliases,
                    struct.pack("<f", float(rng.randrange(1, STEP + 1))), options, rng)


def random_tree(seed, **fixed):
    """The tree of a seed."""
    return _Drawer(seed, **fixed).tree()
