# SPDX-License-Identifier: Apache-2.0
"""Random jobs as people train them, and the trees that their ranks save.

A `Network` has parameters, a `Way` says how a job is parallel, and both give the
layouts that MindSpore's planner would write down.  A `Tree` is cut from random
whole tensors: ranks that hold the same slice hold the same bytes, others do not,
but for what a test changes in it on purpose.
"""

import copy
import dataclasses
import functools
import math
import os
from dataclasses import dataclass

import layouts
from demands import write
from make_tree import cut
from ms_formats import (ELEMENT_BYTES, Layout, Record, StageFile,
                        checkpoint_bytes, strategy_bytes, strategy_json)
from safetensors_format import safetensors_bytes, values_of

STATES = {"adam": ("adam_m.", "adam_v."), "momentum": ("moments.",), None: ()}
# What the tree of the largest network and the most ranks comes to.
MOST_BYTES = 6 << 20


@dataclass
class Parameter:
    """A whole tensor, and what of it is cut: each dimension by "mp", "ep" or not.

    layer: a number, "first" or "last" stage, or "both"
    small: optimizers shard it only if they are told to shard everything
    """
    name: str
    shape: tuple
    dtype: str
    cut_by: tuple
    layer: object
    small: bool = False
    vocabulary: bool = False

    def bytes(self):
        return math.prod(self.shape) * ELEMENT_BYTES[self.dtype]


@dataclass(frozen=True)
class Way:
    """How a job is parallel.  opt: 0 no optimizer shard, -1 over all replicas.

    form: of meshes, "plain", "ones" (with axes of size 1), "nested" (two axes
    for one dimension) or "turned" (model parallel ranks far apart)
    """
    dp: int
    mp: int
    pp: int = 1
    cp: int = 1
    ep: int = 1
    opt: int = 0
    opt_small: bool = False
    vocabulary: bool = True
    form: str = "plain"

    @property
    def cards(self):
        """Of one stage."""
        return self.dp * self.cp * self.mp

    def __str__(self):
        text = "".join(f"{axis}{size}" for axis in ("pp", "dp", "cp", "ep", "mp")
                       if (size := getattr(self, axis)) > 1) or "one"
        if self.opt:
            text += f" opt{self.opt}{' all' if self.opt_small else ''}"
        return text + (f" {self.form}" if self.form != "plain" else "")


# ---- networks ----

class Network:
    def __init__(self, numbers):
        self.tiny = numbers.random() < 0.15
        # A multiple of 32, or else no optimizer shard divides it.
        self.hidden = 32 if self.tiny else numbers.choice((64, 64, 96, 128))
        self.inner = self.hidden * numbers.choice((2, 3, 4))
        self.vocabulary = 64 if self.tiny else numbers.choice((192, 256, 512))
        self.layers = numbers.choice((2, 2, 4))
        self.experts = numbers.choice((4, 8)) if numbers.random() < 0.2 else 0
        self.dtype = numbers.choice(("Float32", "Float32", "Float16", "BFloat16"))
        self.biases = numbers.random() < 0.5
        self.optimizer = numbers.choice(("adam", "adam", "momentum", None))
        self.parameters = []
        self._add_ends()
        for layer in range(self.layers):
            self._add_layer(layer)
        self._add_states()
        self.private = set()

    def bytes(self):
        return sum(p.bytes() for p in self.parameters)

    def add(self, name, shape, cut_by, layer, **more):
        self.parameters.append(Parameter(name, shape, more.pop("dtype", self.dtype),
                                         cut_by, layer, **more))

    def _add_ends(self):
        table = (self.vocabulary, self.hidden)
        self.add("embedding.weight", table, ("mp", None), "first", vocabulary=True)
        self.add("norm_out.weight", (self.hidden,), (None,), "last", small=True)
        self.add("lm_head.weight", table, ("mp", None), "last", vocabulary=True)

    def _add_layer(self, layer):
        at, h, kv = f"layers.{layer}.", self.hidden, self.hidden // 2
        self.add(at + "attention_norm.weight", (h,), (None,), layer, small=True)
        for name, rows in (("wq", h), ("wk", kv), ("wv", kv)):
            self.add(f"{at}attention.{name}.weight", (rows, h), ("mp", None), layer)
            if self.biases:
                self.add(f"{at}attention.{name}.bias", (rows,), ("mp",), layer, small=True)
        self.add(at + "attention.wo.weight", (h, h), (None, "mp"), layer)
        self.add(at + "ffn_norm.weight", (h,), (None,), layer, small=True)
        if self.experts:
            n, inner = self.experts, self.inner // 2
            self.add(at + "router.weight", (n, h), (None, None), layer, small=True)
            self.add(at + "experts.w1.weight", (n, inner, h), ("ep", "mp", None), layer)
            self.add(at + "experts.w2.weight", (n, h, inner), ("ep", None, "mp"), layer)
        else:
            self.add(at + "ffn.w1.weight", (self.inner, h), ("mp", None), layer)
            self.add(at + "ffn.w2.weight", (h, self.inner), (None, "mp"), layer)

    def _add_states(self):
        for prefix in STATES[self.optimizer]:
            self.parameters += [dataclasses.replace(p, name=prefix + p.name, dtype="Float32")
                                for p in self.parameters
                                if not p.name.startswith(STATES[self.optimizer])]

    # ---- what is no weight ----

    def add_statistics(self):
        """Moving averages of BatchNorm, which every rank has of its own."""
        for p in [p for p in self.parameters if p.name.endswith(("w1.weight", "wq.weight"))
                  and not p.name.startswith(STATES[self.optimizer])]:
            for name in ("bn.moving_mean", "bn.moving_variance"):
                self._add_private(f"{p.name[:-6]}{name}", p.shape[-2:-1],
                                  p.cut_by[-2:-1], p.layer)

    def add_loads(self):
        """How busy experts are, and states of random numbers."""
        for layer in range(self.layers):
            self._add_private(f"layers.{layer}.router.expert_load",
                              (self.experts or 8,), (None,), layer)
            self._add_private(f"layers.{layer}.dropout.rng_state", (16,), (None,), layer)

    def _add_private(self, name, shape, cut_by, layer):
        self.add(name, shape, cut_by, layer, dtype="Float32", small=True)
        self.private.add(name)

    def add_tables(self):
        """Positions and masks, of which all slices are alike."""
        self.add("rotary.table", (64, 16), ("mp", None), "first", dtype="Float32")
        self.add("causal.mask", (64, 64), ("mp", None), "first", dtype="Bool")

    # ---- layouts ----

    def layouts(self, way):
        """{stage: {name: Layout}}, or None if the network does not divide so."""
        stages = {stage: {} for stage in range(way.pp)}
        for p in self.parameters:
            layout = layout_of(p, way)
            if layout is None:
                return None
            for stage in self._stages_of(p, way):
                stages[stage][p.name] = layout
        return stages

    def _stages_of(self, parameter, way):
        if parameter.layer == "both":
            return sorted({0, way.pp - 1})
        if parameter.layer in ("first", "last"):
            return [0 if parameter.layer == "first" else way.pp - 1]
        return [parameter.layer * way.pp // self.layers]


def mesh_of(parameter, way):
    """[(axis, size)] from the outermost to the innermost."""
    axes = [("dp", way.dp), ("cp", way.cp), ("mp", way.mp)]
    if "ep" in parameter.cut_by:
        axes[:1] = [("dp", way.dp // way.ep), ("ep", way.ep)]
    if way.form == "nested" and way.mp % 4 == 0:
        axes[-1:] = [("mp", way.mp // 2), ("mp", 2)]
    if way.form == "turned":
        axes.insert(0, axes.pop())
    if way.form != "ones":
        axes = [(axis, size) for axis, size in axes if size > 1]
    return axes or [("dp", 1)]


def layout_of(parameter, way):
    """What the planner would list, or None if the tensor does not divide."""
    axes = mesh_of(parameter, way)
    entries = []
    for axis in parameter.cut_by:
        if parameter.vocabulary and not way.vocabulary:
            axis = None
        entries.append([len(axes) - 1 - i for i, (name, _) in enumerate(axes)
                        if name == axis] or [-1])
    nested = any(len(entry) > 1 for entry in entries)
    layout = Layout([size for _, size in axes],
                    entries if nested else [entry[0] for entry in entries],
                    shape=list(parameter.shape))
    if not divides(parameter.shape, layout):
        return None
    if way.opt and (way.opt_small or not parameter.small):
        shard(parameter, layout, way.opt)
    return layout


def divides(shape, layout):
    return not any(size % count for size, count in zip(shape, layouts.cuts(layout)))


def shard(parameter, layout, size):
    """As MindSpore does: of what does not divide, or is held once, nothing."""
    group = layouts.replica_group(layout, 0)
    count = len(group) if size == -1 else math.gcd(size, len(group))
    rows = parameter.shape[0] // layouts.splits(layout)[0]
    if count > 1 and rows % count == 0:
        layout.opt_size = -1 if size == -1 else count
        layout.opt_step = (group[-1] - group[0]) // (len(group) - 1)


def ways_of(numbers, cards, *, pp=1, experts=0, like=None):
    """A random way of so many cards a stage, with the habits of `like`."""
    mp = numbers.choice([n for n in (1, 2, 2, 4, 4, 8) if cards % n == 0])
    dp, cp, ep = cards // mp, 1, 1
    if like is None or like.cp > 1:
        if dp % 2 == 0 and not experts and numbers.random() < (0.12 if like is None else 0.7):
            dp, cp = dp // 2, 2
    if experts:
        ep = numbers.choice([n for n in (1, 2, 4, 8) if dp % n == 0 and experts % n == 0])
    if like is not None:
        return dataclasses.replace(like, dp=dp, mp=mp, pp=pp, cp=cp, ep=ep)
    opt = numbers.choices((0, -1, 2, 4), (72, 20, 5, 3))[0]
    return Way(dp, mp, pp, cp, ep, opt, numbers.random() < 0.3, numbers.random() < 0.7,
               numbers.choices(("plain", "ones", "nested", "turned"), (70, 12, 14, 4))[0])


def random_job(numbers):
    """(network, way, its layouts) of 2 to 32 ranks."""
    while True:
        network = Network(numbers)
        pp = numbers.choice([n for n in (1, 1, 1, 2, 2, 4) if n <= network.layers])
        cards = numbers.choice([n for n in (2, 4, 4, 8, 8, 8, 16, 16, 32)
                                if n * pp <= 32])
        way = ways_of(numbers, cards, pp=pp, experts=network.experts)
        stages = network.layouts(way)
        replicas = way.cards // (way.mp * (way.dp * way.cp if way.opt else 1))
        if stages and network.bytes() * replicas <= MOST_BYTES:
            return network, way, stages


# ---- strategies ----

def write_strategy(path, stages, form="protobuf"):
    """A file of one stage's layouts, or of all merged, or a directory of files;
    the path.  form: "protobuf", "merged" or "json"."""
    make = strategy_json if form == "json" else strategy_bytes
    ending = ".json" if form == "json" else ".ckpt"
    if list(stages) == [0]:
        return write(path + ending, make(StageFile(0, stages[0])))
    if form == "merged":
        return write(path + ending, make(StageFile(0, {
            f"{stage}-{name}": layout for stage, held in stages.items()
            for name, layout in held.items()})))
    for stage, held in stages.items():
        write(os.path.join(path, f"strategy_stage_{stage}{ending}"),
              make(StageFile(stage, held)))
    return path


# ---- trees ----

class Tree:
    """The rank files of one step.

    stages      {stage: {name: Layout}}, the strategy that it was saved under
    shapes      {name: (shape, dtype)}
    whole       {name: bytes}, may be changed before `save`
    private     names that every rank has bytes of its own for
    scalars     {name: Record} that no strategy lists
    """

    def __init__(self, numbers, stages, shapes):
        self._set_stages(stages)
        self.shapes = shapes
        self.whole = {name: random_bytes(numbers, shape, dtype)
                      for name, (shape, dtype) in shapes.items()}
        self.private = set()
        self.numbers = numbers
        self.scalars = {}
        for name, dtype in (("global_step", "Int32"), ("learning_rate", "Float32"),
                            ("scale_sense", "Float32"), ("epoch_num", "Int64")):
            if numbers.random() < 0.6:
                self.scalars[name] = Record((), dtype, numbers.randbytes(ELEMENT_BYTES[dtype]))
        self._slices = {}

    def _set_stages(self, stages):
        self.stages = stages
        self.cards = layouts.device_count(next(iter(stages[0].values())))
        self._held = {}

    def ranks(self):
        return range(self.cards * len(self.stages))

    def held(self, rank):
        """{name: where its slice is cut} of what a rank's stage lists."""
        if rank not in self._held:
            stage, local = divmod(rank, self.cards)
            self._held[rank] = {name: place(layout, self.shapes[name][0], local)
                                for name, layout in self.stages[stage].items()}
        return self._held[rank]

    @functools.cached_property
    def telling(self):
        """Parameters of whose slices no two are alike but replicas."""
        return {name for name, whole in self.whole.items()
                if name not in self.private and parts_differ(whole)}

    def under(self, stages):
        """The same tensors under another strategy."""
        other = copy.copy(self)
        other._set_stages(stages)
        return other

    def slice(self, name, at):
        """The Record of one slice of a whole tensor."""
        if (name, at) not in self._slices:
            shape, dtype = self.shapes[name]
            starts, sizes = [s for s, _ in at], [e - s for s, e in at]
            self._slices[name, at] = Record(tuple(sizes), dtype, bytes(
                cut(self.whole[name], list(shape), ELEMENT_BYTES[dtype], starts, sizes)))
        return self._slices[name, at]

    def records(self, rank):
        result = {}
        for name, at in self.held(rank).items():
            record = self.slice(name, at)
            if name in self.private:
                record = dataclasses.replace(
                    record, content=self.numbers.randbytes(len(record.content)))
            result[name] = record
        return {**result, **self.scalars}

    def save(self, root, *, suffix=".ckpt", crc=False, step="1_10", without=None):
        """without: {rank: names that its file leaves out}, None for no file."""
        for rank in self.ranks():
            left_out = (without or {}).get(rank, ())
            if left_out is None:
                continue
            records = {name: record for name, record in self.records(rank).items()
                       if name not in left_out}
            data = checkpoint_bytes(records, crc) if suffix == ".ckpt" else \
                safetensors_bytes(values_of(records))
            write(os.path.join(root, f"rank_{rank}", f"net-{step}{suffix}"), data)

    def holders(self):
        """{(name, slice): the ranks that hold it}"""
        result = {}
        for rank in self.ranks():
            for name, at in self.held(rank).items():
                result.setdefault((name, at), []).append(rank)
        return result


def parts_differ(whole):
    size = max(len(whole) // 8, 1)
    parts = [whole[at:at + size] for at in range(0, len(whole), size)]
    return len(set(parts)) == len(parts)


_places = {}


def place(layout, shape, local):
    """((start, end) of each dimension) of a rank's slice."""
    key = (tuple(layout.dev_matrix), str(layout.tensor_map), layout.opt_step,
           layout.opt_size, tuple(shape), local)
    if key not in _places:
        _places[key] = tuple((part.start, part.stop)
                             for part in layouts.region(layout, shape, local))
    return _places[key]


def random_bytes(numbers, shape, dtype):
    count = math.prod(shape)
    if dtype == "Bool":
        return bytes(numbers.randrange(2) for _ in range(count))
    return numbers.randbytes(count * ELEMENT_BYTES[dtype])
