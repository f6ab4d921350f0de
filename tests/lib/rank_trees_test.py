#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The taker-apart and the writer of per-rank files against torch: each genuine file is put
together again byte for byte, and the writer, told only types, shapes, meshes, placements
and strides of genuine files, makes the same pickles."""

import collections
import copy
import os
import sys
import tempfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from dcp_trees import TYPES, Called  # noqa: E402
from demands import check, content  # noqa: E402
from rank_pickles import Object, TorchFile, dumps, expected, loads, unpack  # noqa: E402
from rank_trees import Mesh, Placement, RankFile  # noqa: E402
from rsh_mount import Tap  # noqa: E402

DTYPE_OF = {name: short for short, (_, name, _) in TYPES.items()}
OF_PROCESS = ("_hash", "_thread_id", "_dim_group_names", "_dim_group_infos")
MADE_AGAIN = ("fsdp2", "uneven", "hsdp", "tp", "hand", "order", "groups", "fsdp1mesh", "generic",
              "partial", "tc-bare", "fsdp1-2")


def files_of(root):
    return sorted(os.path.join(at, n) for at, _, names in os.walk(root) for n in names
                  if n.endswith(".pt"))


def without_process(value, seen=None):
    """Without hashes and what else differs from one run to the next."""
    seen = set() if seen is None else seen
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, Object):
        if isinstance(value.cls, Called):
            pass
        elif value.cls.name == "DeviceMesh":
            for name in OF_PROCESS:
                value.state.pop(name, None)
        elif value.cls.name == "DTensorSpec":
            value.state["_hash"] = None
        without_process(value.state, seen)
    elif isinstance(value, Called):
        without_process(value.call, seen)
    elif isinstance(value, dict):
        for inner in value.values():
            without_process(inner, seen)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            without_process(inner, seen)


def normal(data):
    value = loads(data)
    without_process(value)
    return dumps(value)


class Again:
    """A value of a genuine file, made once more by the writer."""

    def __init__(self, file, release, rank, world):
        self.genuine, self.made = file, RankFile(release, rank)
        self.world, self.meshes, self.specs, self.keys = world, {}, {}, {}
        self.stored = dict(file.entries)

    def mesh(self, obj):
        state = obj.state
        names = state.get("mesh_dim_names", state.get("_mesh_dim_names"))
        if id(obj) not in self.meshes:
            coordinate = state["_coordinate_on_dim"]
            key = len(coordinate), names
            made = self.meshes[id(obj)] = copy.copy(self.known[key])
            root = state.get("_root_mesh") or state.get("_parent_mesh")
            if root:
                made.root = self.mesh(root)
        return self.meshes[id(obj)]

    def set_meshes(self, meshes):
        self.known = {(len(m.shape), tuple(m.names) if m.names else None): m for m in meshes}

    def tensor(self, called):
        function, args = called.call
        check(function.name == "_rebuild_tensor_v2", function.name)
        stored, offset, size, strides = args[:4]
        dtype = {v[2]: k for k, v in TYPES.items()}[stored.words[1].name]
        data = self.stored["data/" + stored.words[2]]
        return self.made.tensor(dtype, size, data, strides, offset, stored.words[2])

    @staticmethod
    def placement(obj):
        state = obj.state or {}
        return Placement(obj.cls.name, state.get("dim", 0), state.get("split_factor", 1))

    def dtensor(self, called):
        _, cls, (_, dtype, shape, strides, *_), state = called.call[1]
        dtype = DTYPE_OF[dtype.name]
        if cls.name == "ShardedTensor":
            return self.sharded(dtype, shape, state)
        local = self.tensor(state[1]["_local_tensor"])
        spec = state[1]["_spec"]
        if id(spec) not in self.specs:
            order = spec.state.get("shard_order")
            self.specs[id(spec)] = self.made.spec(
                dtype, shape, self.mesh(spec["mesh"]),
                [self.placement(p) for p in spec["placements"]], strides,
                order and [tuple(entry.args) for entry in order])
        return self.made.dtensor(dtype, shape, local, self.specs[id(spec)], strides)

    def sharded(self, dtype, shape, state):
        boxes = {m.state[1]["placement"]["_rank"]:
                 (m.state[1]["shard_offsets"], m.state[1]["shard_sizes"])
                 for m in state[1]["shards_metadata"]}
        local = self.tensor(state[0][0].state[1]["tensor"]) if state[0] else None
        return self.made.sharded_tensor(dtype, shape, boxes, self.made.rank, local, self.world)

    def again(self, value):
        if isinstance(value, Called):
            return self.dtensor(value) if len(value.call[1]) == 4 else self.tensor(value)
        if isinstance(value, dict):
            result = copy.copy(value)
            for key, inner in value.items():
                result[key] = self.again(inner)
            return result
        return value


def meshes_of(case, world):
    """Those that the case was made with."""
    if case.startswith("tp") or case == "tc-bare":
        both = Mesh((world // 2, 2), names=("dp", "tp"))
        return [both, both.part([(0,)])]
    if case.startswith("hsdp"):
        return [Mesh((2, world // 2), names=("ddp", "fsdp"))]
    if case.startswith(("hand", "order")):
        both = Mesh((2, world // 2), names=("a", "b"))
        return [Mesh((world,)), both, both.part([(1,)])]
    return [Mesh((world,), names=("fsdp",)), Mesh((world,))]


def run_case(tap, root, name, case):
    with tap.test(f"{name}: put together again"):
        for path in files_of(os.path.join(root, case["path"])):
            if os.path.getsize(path) == 1000:
                continue    # it was cut
            file = TorchFile(path)
            check(dumps(file.value) == file.pickle(), path)
            check(content(file.write(path + ".again")) == content(path), path)
    if not name.startswith(MADE_AGAIN):
        return
    release = "2.15" if name.startswith("tc") else ".".join(case["torch"].split(".")[:2])
    with tap.test(f"{name}: made again"):
        for path in files_of(os.path.join(root, case["path"])):
            if "extra" in path or "optim" in path and name.startswith("fsdp1"):
                continue
            file, rank = TorchFile(path), int(path[:-3].rsplit("_", 1)[1])
            again = Again(file, release, rank, case["world"])
            again.set_meshes(meshes_of(name, case["world"]))
            value = again.again(file.value)
            check(normal(dumps(value)) == normal(file.pickle()), path)


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        unpack(directory)
        for name, case in expected().items():
            run_case(tap, directory, name, case)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
