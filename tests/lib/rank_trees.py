# SPDX-License-Identifier: Apache-2.0
"""Directories of one torch.save() file per rank, in plain Python: as torch 2.4 to 2.15
write a state_dict() of DTensors or of ShardedTensors, and as torch_checkpointing does.

A second implementation that shares nothing with the program under test; that it writes
what torch writes is shown by rank_trees_test.py, which makes the genuine files once more.
Standard library only.
"""

import collections
import dataclasses
import itertools
import json
import math
import os
import pickle
import random
import typing

from dcp_trees import TYPES, Called, Stored, archive, permuted, row_strides
from rank_pickles import Object, Text, dumps, named
from run_seed import random_bytes
from safetensors_format import safetensors_bytes

RELEASES = ("2.4", "2.8", "2.11", "2.15")
# Types that both safetensors and all of these releases have.
DTYPES = ("F32", "BF16", "F16", "F64", "I64", "I32", "U8", "BOOL")


# ---- which elements a rank has ----

class Placement(typing.NamedTuple):
    kind: str           # "Shard", "_StridedShard", "Replicate", "Partial"
    dim: int = 0
    factor: int = 1


REPLICATE = Placement("Replicate")


def pieces(numbers, count):
    """As torch.chunk() cuts, with the last ones short or empty."""
    each = -(-len(numbers) // count)
    return [numbers[i * each:(i + 1) * each] for i in range(count)]


def order_of(mesh, placements):
    """fully_shard over tensor parallel: the dimensions of the mesh on the right, into as many
    pieces as the factor of a strided one says, were cut before it."""
    order = []
    for d, p in enumerate(placements):
        right = [e for e in range(d + 1, len(mesh)) if placements[e] == ("Shard", p.dim, 1)]
        if p.kind == "_StridedShard" and math.prod(mesh[e] for e in right) == p.factor and \
                [q.kind for q in placements if q.dim == p.dim].count("_StridedShard") == 1 and right:
            order.append((p.dim, (*right, d)))
    return order


def held(shape, mesh, coordinate, placements, order=None):
    """For each axis the indexes that the rank at the coordinate has."""
    axes = [list(range(n)) for n in shape]
    dims, strided = list(range(len(mesh))), not order
    order = order or order_of(mesh, placements)
    plain = {(axis, d) for axis, in_order in order for d in in_order if strided}
    for _, in_order in order:
        places = sorted(in_order)
        for place, dim in zip(places, in_order):
            dims[place] = dim
    for d in dims:
        p, size, at = placements[d], mesh[d], coordinate[d]
        if p.kind == "Shard" or (p.dim, d) in plain:
            axes[p.dim] = pieces(axes[p.dim], size)[at]
        elif p.kind == "_StridedShard":
            axes[p.dim] = [i for part in pieces(axes[p.dim], p.factor)
                           for i in pieces(part, size)[at]]
    return axes


def taken(content, width, shape, axes):
    """The elements at these indexes of the axes, row by row."""
    steps = row_strides(shape)
    return b"".join(content[width * at:width * (at + 1)] for at in (
        sum(i * step for i, step in zip(index, steps)) for index in itertools.product(*axes)))


# ---- as torch writes it ----

class Mesh:
    """Ranks in row-major order and its shape; a part of another mesh has dimensions that
    are each one or several of the other's."""

    def __init__(self, shape, ranks=None, names=None, root=None, groups=None):
        self.shape = tuple(shape)
        self.ranks = list(ranks if ranks is not None else range(math.prod(shape)))
        self.names, self.root = names, root
        self.groups = groups or [(d,) for d in range(len(shape))]

    def part(self, groups, names=None):
        return Mesh([math.prod(self.shape[d] for d in dims) for dims in groups], [],
                    names or self.names and ["_".join(self.names[d] for d in dims)
                                             for dims in groups], self, groups)

    @property
    def whole(self):
        return self.root or self

    def axes(self):
        """For each dimension its shape and strides in the whole mesh."""
        steps = row_strides(self.whole.shape)
        return [(tuple(self.whole.shape[d] for d in dims), tuple(steps[d] for d in dims))
                for dims in self.groups]

    def coalesced(self):
        """The same as torch 2.15 keeps them: without sizes of 1, and joined if they can be."""
        found = []
        for shape, strides in self.axes():
            parts = []
            for size, step in zip(shape, strides):
                if parts and size > 1 and parts[-1][1] == size * step:
                    parts[-1] = parts[-1][0] * size, step
                elif size > 1:
                    parts.append((size, step))
            found.append((tuple(size for size, _ in parts), tuple(step for _, step in parts)))
        return found

    def coordinate(self, rank):
        """None: the rank is not in it."""
        if rank not in self.whole.ranks:
            return None
        at = self.whole.ranks.index(rank)
        digits = [at // step % size for step, size in
                  zip(row_strides(self.whole.shape), self.whole.shape)]
        return [sum(digits[d] * math.prod(self.whole.shape[e] for e in dims[i + 1:])
                    for i, d in enumerate(dims)) for dims in self.groups]

    def members(self, rank):
        """The ranks of the part that the rank is in, in row-major order."""
        if self.coordinate(rank) is None:
            return [] if self.root else self.ranks
        fixed = [d for d in range(len(self.whole.shape))
                 if not any(d in dims for dims in self.groups)]
        others = Mesh(self.whole.shape, self.whole.ranks)
        own = others.coordinate(rank)
        found = [r for r in self.whole.ranks
                 if all(others.coordinate(r)[d] == own[d] for d in fixed)]
        return sorted(found, key=self.coordinate)


def fresh(numbers):
    """A tuple of its own, as pickle writes one tuple once."""
    return tuple(list(numbers))


class RankFile:
    """The file of one rank while it is made: storages in the order of their first use, and
    a DeviceMesh for each mesh."""

    def __init__(self, release, rank):
        self.release, self.rank = release, rank
        self.old, self.new = release == "2.4", release in ("2.11", "2.15")
        self.storages, self.meshes, self.keys, self.maps, self.axes = [], {}, {}, {}, {}
        self.layout = Called(named("torch.serialization", "_get_layout"), "torch.strided")
        module = "torch.distributed._shard.sharded_tensor"
        self.sharded = named(module + ".api", "ShardedTensor")
        self.group_of = Called(named("__builtin__", "getattr"), self.sharded,
                               "ProcessGroupState")
        self.format = Called(named(module + ".metadata", "MEM_FORMAT_ENCODING"), 0)

    def storage(self, dtype, data, key=None):
        """Its persistent id; two with one key are one storage."""
        width, _, name = TYPES[dtype]
        if key is None or key not in self.keys:
            self.keys[key] = Text(len(self.storages))
            self.storages.append(data)
        return Stored("storage", named("torch", name), self.keys[key], "cpu",
                      len(data) // width)

    def tensor(self, dtype, size, data, strides=None, offset=0, key=None):
        return Called(named("torch._utils", "_rebuild_tensor_v2"),
                      self.storage(dtype, data, key), offset, fresh(size),
                      fresh(strides if strides is not None else row_strides(size)), False,
                      collections.OrderedDict())

    def _mesh_tensor(self, mesh):
        """Ranks as an int32 tensor; that of a part is a view of the whole's if it can be."""
        root = mesh.whole
        key = root.shape, tuple(root.ranks)

        def data(ranks):
            return b"".join(r.to_bytes(4, "little") for r in ranks)

        if self.new:
            if key not in self.maps:
                self.maps[key] = self.tensor("I32", (len(root.ranks),), data(root.ranks))
            return self.maps[key]
        members, axes = mesh.members(self.rank), mesh.axes()
        if any(len(shape) > 1 for shape, _ in axes) or not members:
            return self.tensor("I32", mesh.shape, data(members))
        return self.tensor("I32", mesh.shape, data(root.ranks), [s for _, (s,) in axes],
                           root.ranks.index(members[0]), key)

    def _layout_of(self, mesh):
        module = "torch.distributed._mesh_layout"
        if self.release == "2.15":
            return Object(named(module, "_MeshLayout"), (), {"axes": tuple(
                self.axes.setdefault((tuple(mesh.whole.ranks), axis), Object(
                    named(module, "_FlatLayout"), (), {"shape": axis[0], "stride": axis[1]}))
                for axis in mesh.coalesced())})

        found = []
        for whole, joined in zip(mesh.axes(), mesh.coalesced()):
            shape, stride = joined if len(whole[0]) > 1 else whole
            found.append((shape, stride) if len(shape) > 1 else (shape or (1,), stride or (0,)))
        shape, stride = (tuple(v if len(v) > 1 else v[0] for v in side) for side in zip(*found))
        # Dimensions that were merged into one are a mesh without a tuple, if they can be.
        if len(shape) == 1 and len(mesh.groups[0]) > 1 and not isinstance(shape[0], tuple):
            shape, stride = shape[0], stride[0]
        return Object(named(module, "_MeshLayout"), (), {"shape": shape, "stride": stride})

    def mesh(self, mesh):
        if id(mesh) in self.meshes:
            return self.meshes[id(mesh)]
        made = self.meshes[id(mesh)] = Object(
            named("torch.distributed.device_mesh", "DeviceMesh"))
        names, at = fresh(mesh.names) if mesh.names else None, mesh.coordinate(self.rank)
        if self.new:
            made.state = {"_device_type": "cpu", "_layout": self._layout_of(mesh),
                          "_rank_map": self._mesh_tensor(mesh), "_mesh_dim_names": names,
                          "_root_mesh": mesh.root and self.mesh(mesh.root),
                          "_preserve_rank_order": False,
                          "_flatten_rank_map": tuple(mesh.whole.ranks),
                          "_thread_id": None, "_flatten_mapping": {}, "_rank": self.rank,
                          "_coordinate_on_dim": at and tuple(at)}
            return made
        made.state = {"device_type": "cpu", "mesh": self._mesh_tensor(mesh),
                      "mesh_dim_names": names,
                      "_flatten_mesh_list": tuple(mesh.members(self.rank))}
        if self.release == "2.4":
            made.state["_parent_mesh"] = mesh.root and self.mesh(mesh.root)
        made.state.update(_thread_id=None, _coordinate_on_dim=at)
        return made

    def placement(self, p):
        module = "torch.distributed._tensor" if self.old else "torch.distributed.tensor"
        # Newer ones are objects of C++, which make their words again each time.
        word = Text if self.release == "2.15" else str
        state = {"Shard": {word("dim"): p.dim}, "Replicate": {} if self.new else None,
                 "Partial": {word("reduce_op"): word("sum")},
                 "_StridedShard": {word("dim"): p.dim, word("split_factor"): p.factor}}[p.kind]
        return Object(named(module + ".placement_types", p.kind), (), state)

    def spec(self, dtype, shape, mesh, placements, strides=None, order=None):
        """A DTensorSpec, which moments of one parameter share."""
        strides = fresh(strides or row_strides(shape))
        place = "torch.distributed._tensor.placement_types" if self.old else \
            "torch.distributed.tensor._dtensor_spec"
        meta = Object(named(place, "TensorMeta"), (
            Called(named("torch", "Size"), fresh(shape)), strides,
            named("torch", TYPES[dtype][1])))
        state = {"mesh": self.mesh(mesh),
                 "placements": tuple(self.placement(p) for p in placements),
                 "tensor_meta": meta}
        if self.new:
            strided = any(p.kind == "_StridedShard" for p in placements)
            if order is None:
                by_axis = collections.OrderedDict()
                for d, p in enumerate(placements):
                    if p.kind == "Shard":
                        by_axis.setdefault(p.dim % max(len(shape), 1), []).append(d)
                order = sorted(by_axis.items())
            state["shard_order"] = None if strided else tuple(
                Object(named(place, "ShardOrderEntry"), (axis, fresh(dims)))
                for axis, dims in order)
            state["use_strided_shard_as_shard_order"] = strided
        state["_hash"] = None
        return Object(named(place, "DTensorSpec"), (), state)

    def wrapper(self, cls, dtype, shape, strides, state):
        return Called(
            named("torch._tensor", "_rebuild_from_type_v2"),
            named("torch._utils", "_rebuild_wrapper_subclass"), cls,
            (cls, named("torch", TYPES[dtype][1]), fresh(shape),
             fresh(strides or row_strides(shape)), 0, self.layout,
             Called(named("torch", "device"), Text("cpu")), False), state)

    def dtensor(self, dtype, shape, local, spec, strides=None):
        module = "torch.distributed._tensor.api" if self.old else "torch.distributed.tensor"
        return self.wrapper(named(module, "DTensor"), dtype, shape, strides,
                            (None, {"_local_tensor": local, "_spec": spec}))

    def sharded_tensor(self, dtype, shape, boxes, own, data, world):
        """Of FSDP1; boxes: {rank: (offsets, sizes)}"""
        base = "torch.distributed._shard"

        def shard_metadata(rank):
            device = Called(named("torch", "device"), Text("cpu"))
            remote = Object(named("torch.distributed.remote_device", "_remote_device"), (), {
                "_worker_name": None, "_rank": rank, "_device": device})
            offsets, sizes = boxes[rank]
            return Object(named(base + ".metadata", "ShardMetadata"), (), (None, {
                "shard_offsets": list(offsets), "shard_sizes": list(sizes),
                "placement": remote}))

        local = [Object(named(base + ".sharded_tensor.shard", "Shard"), (), (None, {
            "tensor": data, "metadata": shard_metadata(own)}))] if own in boxes else []
        properties = Object(named(base + ".sharded_tensor.metadata", "TensorProperties"), (), (
            named("torch", TYPES[dtype][1]), self.layout, False,
            self.format, False, *((None,) if self.new else ())))
        whole = Object(named(base + ".sharded_tensor.metadata", "ShardedTensorMetadata"), (), {
            "shards_metadata": [shard_metadata(r) for r in sorted(boxes)],
            "size": Called(named("torch", "Size"), fresh(shape)),
            "tensor_properties": properties})
        group = Object(self.group_of, (), {
            "local_rank": own, "global_rank": own, "local_world_size": world,
            "global_world_size": world})
        spec = Object(named(base + ".sharding_spec.chunk_sharding_spec", "ChunkShardingSpec"),
                      (), {"dim": 0, "placements": [
                          m.state[1]["placement"] for m in whole.state["shards_metadata"]]})
        return self.wrapper(self.sharded, dtype, shape, None, (local, whole, group, spec, False))

    def bytes(self, value, root):
        entries = [("data.pkl", dumps(value))]
        if not self.old:
            entries += [(".format_version", b"1"), (".storage_alignment", b"64")]
        entries.append(("byteorder", b"little"))
        stored = [(f"data/{i}", data) for i, data in enumerate(self.storages)]
        entries += sorted(stored) if self.old else stored
        return archive([*entries, ("version", b"3\n"), (".data/serialization_id", b"0" * 40)],
                       root)


# ---- trees ----

@dataclasses.dataclass
class Tensor:
    dtype: str
    shape: tuple
    content: bytes
    mesh: typing.Optional[Mesh] = None      # None: a plain tensor on every rank
    placements: tuple = ()
    order: typing.Optional[list] = None     # of shards, from 2.11 on
    tied: typing.Optional[str] = None       # to the tensor of this name
    turned: bool = False                    # its parts are column-major
    boxes: typing.Optional[dict] = None     # of a ShardedTensor

    def axes(self, rank):
        """The indexes that the rank has; None if it is not in the mesh."""
        if self.boxes is not None:
            offsets, sizes = self.boxes.get(rank, ((0,) * len(self.shape), (0,) * len(self.shape)))
            return [list(range(o, o + n)) for o, n in zip(offsets, sizes)]
        if self.mesh is None:
            return [list(range(n)) for n in self.shape]
        at = self.mesh.coordinate(rank)
        return at and held(self.shape, self.mesh.shape, at, self.placements, self.order)

    def local(self, rank):
        """(sizes, row-major bytes) of the rank's part"""
        axes = self.axes(rank)
        if axes is None:
            return (0,), b""
        width = TYPES[self.dtype][0]
        return tuple(len(a) for a in axes), taken(self.content, width, self.shape, axes)


LAYOUTS = ("verl", "verl", "verl", "rank_{R}.pt", "model_{R}.pth", "rank{R}/ckpt.pt", "shard-{R}.bin")


class Tree:
    """A model of some ranks, its optimizer, and how it is written."""

    def __init__(self, release, world, tensors, rng):
        self.release, self.world, self.tensors, self.rng = release, world, tensors, rng
        self.layout = "verl"
        self.optimizer = None       # None, "numbers", "groups" or "names"
        self.moments = {}           # {key: {name: Tensor}}
        self.order = []             # of the optimizer's parameters
        self.padded = self.turned = False
        self.in_dict = False        # {"model": ..., "optim": ..., "step": 7}
        self.values = {}

    def expected(self):
        """{name: (type, shape, bytes)} of the model"""
        prefix = "model." if self.in_dict else ""
        return {prefix + name: (t.dtype, tuple(t.shape), t.content)
                for name, t in self.tensors.items()}

    def expected_optimizer(self):
        if not self.optimizer:
            return {}
        start = "optim.state" if self.in_dict else "optimizer.state"
        by_name = self.optimizer == "names" or self.optimizer == "numbers" and not self.in_dict
        return {f"{start}.{name if by_name else number}.{kind}": (t.dtype, tuple(t.shape), t.content)
                for number, name in enumerate(self.order)
                for kind, t in self.moments.get(name, {}).items()}

    def describe(self):
        return (f"torch {self.release}, {self.world} ranks, {self.layout}, "
                f"{len(self.tensors)} tensors, optimizer: {self.optimizer}")

    # writing

    def _value(self, file, name, t, keys):
        """A tensor as the rank's file has it; keys: {name of a tied tensor: its storage}"""
        sizes, data = t.local(file.rank)
        width, strides = TYPES[t.dtype][0], None
        if t.mesh is not None and not data and len(sizes) > 1 and \
                self.rng_of(t.tied or name).random() < 0.5:
            sizes = (0, *sizes[1:])     # as fully_shard cuts what tensor parallel left empty
        turned = t.turned and len(sizes) > 1 and data
        if turned:
            data, strides = permuted(data, width, sizes, tuple(reversed(range(len(sizes)))))
        elif self.padded and t.mesh is not None and sizes and self.rng_of(t.tied or name).random() < 0.5:
            data += b"\0" * width * math.prod(sizes[1:])    # as fully_shard pads
        key = None
        if t.tied or name in keys:
            key = keys.setdefault(t.tied or name, ("tied", t.tied or name))
        local = file.tensor(t.dtype, sizes, data, strides, key=key)
        if t.boxes is not None:
            return file.sharded_tensor(t.dtype, t.shape, t.boxes, file.rank, local, self.world)
        if t.mesh is None:
            return local
        spec = file.spec(t.dtype, t.shape, t.mesh, t.placements, order=t.order)
        return file.dtensor(t.dtype, t.shape, local, spec)

    @staticmethod
    def rng_of(name):
        return random.Random(name)

    def model_value(self, file):
        keys = {t.tied: ("tied", t.tied) for t in self.tensors.values() if t.tied}
        return collections.OrderedDict(
            (name, self._value(file, name, t, keys)) for name, t in self.tensors.items())

    def optimizer_value(self, file):
        keys = self.order if self.optimizer == "names" else range(len(self.order))
        state = {key: {kind: self._value(file, f"{name}.{kind}", t, {})
                       for kind, t in self.moments[name].items()}
                 for key, name in zip(keys, self.order) if name in self.moments}
        half = len(self.order) // 2 if self.optimizer == "groups" else len(self.order)
        return {"state": state, "param_groups": [
            {"lr": 0.001, "betas": (0.9, 0.999), "foreach": None, "params": part}
            for part in (list(keys[:half]), list(keys[half:])) if part]}

    def files(self, rank):
        """{path: bytes} of a rank"""
        def saved(path, value_of):
            file = RankFile(self.release, rank)
            value = value_of(file)
            root = os.path.splitext(os.path.basename(path))[0]
            return path, file.bytes(value, root)

        if self.layout == "verl":
            names = [f"{kind}_world_size_{self.world}_rank_{rank}.pt"
                     for kind in ("model", "optim", "extra_state")]
            found = [saved(names[0], self.model_value)]
            if self.optimizer:
                found.append(saved(names[1], self.optimizer_value))
            return dict(found)
        path = self.layout.replace("{R}", str(rank))
        if not self.in_dict:
            return dict([saved(path, self.model_value)])

        def all_of(file):
            value = {"model": self.model_value(file), "step": 7}
            if self.optimizer:
                value["optim"] = self.optimizer_value(file)
            return value
        return dict([saved(path, all_of)])

    def write(self, directory, ranks=None):
        os.makedirs(directory, exist_ok=True)
        for rank in range(self.world) if ranks is None else ranks:
            for path, data in self.files(rank).items():
                path = os.path.join(directory, path)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as f:
                    f.write(data)
        if self.layout == "verl" and self.rng_of("config").random() < 0.9:
            with open(os.path.join(directory, "fsdp_config.json"), "w", encoding="utf-8") as f:
                json.dump({"FSDP_version": 2, "world_size": self.world}, f, indent=4)
        return directory

    def missing(self, ranks):
        """Names of tensors of which an element is on none of the ranks, of the model."""
        lost = []
        for name, t in self.tensors.items():
            here = set()
            for rank in ranks:
                axes = t.axes(rank)
                if axes is not None:
                    here.update(itertools.product(*axes))
            if len(here) < math.prod(t.shape):
                lost.append(name)
        return lost


# ---- random ones ----

class _Drawer:
    def __init__(self, seed, release, world):
        self.rng = random.Random(seed)
        self.release = release or self.rng.choice(RELEASES)
        self.world = world or self.rng.randint(2, 8)

    def meshes(self):
        """A mesh of all ranks, and some of its parts."""
        rng, world = self.rng, self.world
        shapes = [(world,)] + [(a, world // a) for a in range(2, world) if world % a == 0]
        shapes += [(2, 2, world // 4)] * 2 if world % 4 == 0 else []
        shape = rng.choice(shapes)
        names = rng.choice((None, [f"m{i}" for i in range(len(shape))]))
        whole = Mesh(shape, names=names)
        found = [whole]
        if len(shape) > 1:
            found += [whole.part([(d,)]) for d in range(len(shape))]
        if len(shape) == 3:
            found += [whole.part([(0, 2), (1,)]), whole.part([(0, 1)]), whole.part([(1,), (2,)])]
        return found

    def shape(self):
        rng = self.rng
        return tuple(rng.choice((1, 2, 3, 5, 7, 8, 13)) for _ in
                     range(rng.choice((0, 1, 1, 2, 2, 2, 2, 3, 4))))

    def content(self, dtype, shape):
        content = random_bytes(self.rng, TYPES[dtype][0] * math.prod(shape))
        return bytes(b & 1 for b in content) if dtype == "BOOL" else content

    def placements(self, shape, mesh):
        rng = self.rng
        if not shape:
            return (REPLICATE,) * len(mesh.shape)
        way = rng.choice(("fsdp", "any", "any", "tp"))
        if way == "fsdp":
            return (REPLICATE,) * (len(mesh.shape) - 1) + (Placement("Shard", 0),)
        strided = self.release != "2.4"     # which has none
        if way == "tp" and len(mesh.shape) > 1 and strided:
            # What fully_shard makes of a parameter that is cut already.
            return ((REPLICATE,) * (len(mesh.shape) - 2) + (
                Placement("_StridedShard", 0, mesh.shape[-1]), Placement("Shard", 0)))
        kinds = ["Replicate", "Shard", "Shard"] + ["_StridedShard"] * strided
        return tuple(
            REPLICATE if kind == "Replicate" else Placement(
                kind, rng.randrange(len(shape)), rng.randint(1, 4) if kind[0] == "_" else 1)
            for kind in (rng.choice(kinds) for _ in mesh.shape))

    def order(self, shape, placements):
        """Sometimes an axis is cut in another order of the mesh's dimensions."""
        if self.release not in ("2.11", "2.15") or self.rng.random() < 0.7 or \
                any(p.kind == "_StridedShard" for p in placements):
            return None
        by_axis = collections.defaultdict(list)
        for d, p in enumerate(placements):
            if p.kind == "Shard":
                by_axis[p.dim].append(d)
        for dims in by_axis.values():
            self.rng.shuffle(dims)
        return sorted((axis, tuple(dims)) for axis, dims in by_axis.items())

    def tensor(self, meshes):
        rng = self.rng
        dtype, shape = rng.choice(DTYPES), self.shape()
        t = Tensor(dtype, shape, self.content(dtype, shape))
        if rng.random() < 0.15:
            return t
        t.mesh = rng.choice(meshes)
        t.placements = self.placements(shape, t.mesh)
        t.order = self.order(shape, t.placements)
        t.turned = rng.random() < 0.1
        return t

    def sharded(self):
        """As FSDP1 cuts the rows."""
        dtype, shape = self.rng.choice(DTYPES), self.shape() or (3,)
        boxes = {}
        for rank, rows in enumerate(pieces(list(range(shape[0])), self.world)):
            if rows:
                boxes[rank] = ((rows[0],) + (0,) * (len(shape) - 1), (len(rows), *shape[1:]))
        return Tensor(dtype, shape, self.content(dtype, shape), boxes=boxes)

    def optimizer(self, tree):
        rng = self.rng
        tree.optimizer = rng.choice(("numbers", "numbers", "groups", "names"))
        tree.order = [n for n, t in tree.tensors.items() if t.mesh is not None and not t.tied]
        if len(tree.order) == 1 and tree.optimizer == "groups":
            tree.optimizer = "numbers"
        if not tree.order:
            tree.optimizer = None
        for name in tree.order:
            if rng.random() < 0.15:
                continue    # frozen
            p, one = tree.tensors[name], rng.choice(("F32", "BF16"))
            tree.moments[name] = {"step": Tensor("F32", (), self.content("F32", ()))}
            for kind in "exp_avg", "exp_avg_sq":
                tree.moments[name][kind] = dataclasses.replace(
                    p, dtype=one, content=self.content(one, p.shape), turned=False)

    def tree(self):
        rng = self.rng
        tree = Tree(self.release, self.world, {}, rng)
        old = rng.random() < 0.15   # FSDP1
        meshes = self.meshes()
        for i in range(rng.randint(1, 8)):
            name = rng.choice(("layers.{}.weight", "b{}", "model.layers.{}.up.bias", "\u00e4.{}"))
            tree.tensors[name.format(i)] = self.sharded() if old else self.tensor(meshes)
        # One tensor at least tells that the file is a rank's.
        if not old and all(t.mesh is None or len(t.mesh.members(0)) < 2
                           for t in tree.tensors.values()):
            shape = (5, 3)
            tree.tensors["first"] = Tensor("F32", shape, self.content("F32", shape), meshes[0],
                                           self.placements(shape, meshes[0]))
        if rng.random() < 0.3:
            name = rng.choice(list(tree.tensors))
            if not tree.tensors[name].turned:
                tree.tensors["tied.weight"] = dataclasses.replace(tree.tensors[name], tied=name)
        tree.layout = rng.choice(LAYOUTS)
        tree.padded = rng.random() < 0.5
        if not old and rng.random() < 0.5:
            tree.in_dict = tree.layout != "verl" and rng.random() < 0.7
            if tree.layout == "verl" or tree.in_dict:
                self.optimizer(tree)
        return tree


def random_tree(seed, release=None, world=None):
    """The tree of a seed."""
    return _Drawer(seed, release, world).tree()
