# SPDX-License-Identifier: Apache-2.0
"""A step of Checkpoint 2.0, read as its format is described.

Nothing is taken on trust: what metadata.json says is worked out once more from
meshes and maps, and every slice is looked up in the file that is named.
"""

import itertools
import json
import math
import os

from demands import check, content
from make_tree import cut
from ms_formats import ELEMENT_BYTES
from safetensors_format import NAMES, Tensors

TRACKER = "latest_checkpointed_iteration.txt"
LAYOUT_KEYS = ["device_matrix", "tensor_map", "interleaved_parallel", "alias_name",
               "rank_list"]
COMMON_KEYS = ["epoch_num", "step_num", "global_step", "loss_scale", "global_batch_size"]


class Described:
    """A tensor as metadata.json describes it."""

    def __init__(self, name, said):
        self.name = name
        self.shape = tuple(said["global_shape"])
        self.dtype = next(d for d in ELEMENT_BYTES
                          if d.lower() == said["properties"]["dtype"].lower())
        layout = said["layout"]
        check(list(layout) == LAYOUT_KEYS, f"{name}: the layout is {list(layout)}")
        self.mesh, self.ranks = layout["device_matrix"], layout["rank_list"]
        check(len(layout["alias_name"]) == len(set(layout["alias_name"])) == len(self.mesh),
              f"{name}: {layout['alias_name']} are not names of {self.mesh}")
        check(math.prod(self.mesh) == len(self.ranks) and not layout["interleaved_parallel"],
              f"{name}: mesh {self.mesh} for ranks {self.ranks}")
        check(len(layout["tensor_map"]) == len(self.shape), f"{name}: {layout['tensor_map']}")
        self.axes = [[len(self.mesh) - 1 - a
                      for a in (e if isinstance(e, list) else [e]) if a != -1]
                     for e in layout["tensor_map"]]
        used = list(itertools.chain(*self.axes))
        check(len(used) == len(set(used)), f"{name}: {layout['tensor_map']} uses an axis twice")
        self.counts = [math.prod(self.mesh[a] for a in axes) for axes in self.axes]
        check(said["axis_fragmentations"] == self.counts, f"{name}: fragmentations")
        self.slices = [c["global_offset"][0] for c in said["chunk"]]
        for chunk in said["chunk"]:
            check(chunk["local_shape"] == self.local_shape(), f"{name}: {chunk}")
        self._by_slice()
        seen = {}
        copies = [seen.setdefault(k, []) for k in map(self.slice_of, range(len(self.ranks)))]
        numbers = []
        for copy in copies:
            numbers.append(len(copy))
            copy.append(None)
        check(said["properties"]["replica_id"] == numbers, f"{name}: replica_id")

    def local_shape(self):
        return [size // count for size, count in zip(self.shape, self.counts)]

    def slice_of(self, place):
        """K of a place of rank_list."""
        at, number = [], 0
        for size in reversed(self.mesh):
            at.insert(0, place % size)
            place //= size
        for axis in itertools.chain(*self.axes):
            number = number * self.mesh[axis] + at[axis]
        return number

    def _by_slice(self):
        self.group = {}
        for place, rank in enumerate(self.ranks):
            self.group.setdefault(self.slice_of(place), []).append(rank)

    def piece(self, whole, number):
        """The bytes of slice K of the whole tensor."""
        starts = []
        sizes = self.local_shape()
        for count, size in reversed(list(zip(self.counts, sizes))):
            starts.insert(0, number % count * size)
            number //= count
        return bytes(cut(whole, list(self.shape), ELEMENT_BYTES[self.dtype], starts, sizes))


class Step:
    """The one step that a directory has, which its tracker names."""

    def __init__(self, root):
        number = content(os.path.join(root, TRACKER)).decode()
        self.number = int(number)
        check(number == str(self.number), f"the tracker says {number!r}")
        name = f"iteration_{self.number:08}"
        check(sorted(os.listdir(root)) == sorted([name, TRACKER]), f"{os.listdir(root)}")
        self.root = os.path.join(root, name)
        self.common = json.loads(content(os.path.join(self.root, "common.json")))
        check(list(self.common) == COMMON_KEYS, f"common.json has {list(self.common)}")
        check(self.common["step_num"] == self.common["global_step"] == self.number,
              f"{self.common}")
        self.text = content(os.path.join(self.root, "metadata.json"))
        said = json.loads(self.text)
        check(list(said) == ["state_dict_metadata", "storage_data"], f"{list(said)}")
        self.tensors = {name: Described(name, one)
                        for name, one in said["state_dict_metadata"].items()}
        self.storage = said["storage_data"]
        self.files = {file: Tensors(content(os.path.join(self.root, file)))
                      for file in os.listdir(self.root) if file.endswith(".safetensors")}
        self.values = {name: file.values() for name, file in self.files.items()}

    def check_names(self, ranks, kinds):
        wanted = {f"{kind}-{rank:07}-{ranks:07}.safetensors"
                  for kind in kinds for rank in range(ranks)}
        check(set(self.files) == wanted, f"{sorted(set(self.files) ^ wanted)}")
        for file, taken in self.files.items():
            check(taken.metadata == {"format": "ms"}, f"{file}: {taken.metadata}")

    def check_slices(self, whole, kind_of):
        """Every slice of every tensor is there, once in storage_data, and right."""
        keys = set()
        for name, tensor in self.tensors.items():
            check(sorted(tensor.slices) == sorted(tensor.group),
                  f"{name}: chunks {tensor.slices} of {sorted(tensor.group)}")
            for number, ranks in tensor.group.items():
                key = repr((name, (number,)))
                keys.add(key)
                (stored,) = self.storage[key]
                check(list(stored) == ["file_name", "storage_rank", "rank_group"] and
                      stored["rank_group"] == ranks and stored["storage_rank"] in ranks,
                      f"{key}: {stored}, ranks {ranks}")
                file = stored["file_name"]
                check(file.startswith(f"{kind_of(name)}-{stored['storage_rank']:07}-"),
                      f"{key}: {file}")
                self.check_slice(file, tensor, number, whole[name])
        check(keys == set(self.storage), f"{sorted(keys ^ set(self.storage))}")

    def check_slice(self, file, tensor, number, whole):
        found = self.values[file].get(tensor.name)
        check(found == (NAMES[tensor.dtype], tuple(tensor.local_shape()),
                        tensor.piece(whole, number)),
              f"{file}: slice {number} of {tensor.name} is not that of the whole tensor")

    def holders(self, name):
        """{rank: bytes} of the files that have a tensor."""
        return {int(file.rsplit("-", 2)[1]): values[name][2]
                for file, values in self.values.items() if name in values}
