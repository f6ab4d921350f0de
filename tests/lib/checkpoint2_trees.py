# SPDX-License-Identifier: Apache-2.0
"""Checkpoint 2.0 trees in plain Python, as mindformers saves them.

A second implementation that shares nothing with the program under test; that it
writes what mindformers writes is shown by checkpoint2_trees_test.py, which makes
the genuine trees once more, byte for byte.

A `Parameter` is a tensor and how it lies on the ranks, a `Step` all that is in one
directory of a step.  Standard library only.
"""

import json
import math
import os
from dataclasses import dataclass, field

import layouts
from make_tree import cut
from ms_formats import ELEMENT_BYTES, Layout
from safetensors_format import NAMES, Tensors, safetensors_bytes

STATES = ("adam_m.", "adam_v.", "moments.", "muon_m.")
NEVER_SAVED = "accu_grads."
TRACKER = "latest_checkpointed_iteration.txt"
# By the names that the files give to types, in bits.
BITS = {NAMES[dtype]: 8 * size for dtype, size in ELEMENT_BYTES.items()}


@dataclass
class Parameter:
    """dtype as metadata.json spells it, content the whole tensor's bytes or None.

    mesh, tensor_map, ranks, alias: as in a layout of metadata.json; without a mesh
    there is none, and each of the ranks holds the parameter whole.
    """
    shape: tuple
    dtype: str
    mesh: list
    tensor_map: list
    ranks: list
    content: bytes = None
    alias: list = None

    def __post_init__(self):
        self._numbers = self._holders = None

    @property
    def file_type(self):
        return NAMES[next(d for d in ELEMENT_BYTES if d.lower() == self.dtype.lower())]

    def axes(self, entry):
        """Where the axes of one entry stand in the mesh, the first most significant."""
        return [len(self.mesh) - 1 - a
                for a in (entry if isinstance(entry, list) else [entry]) if a != -1]

    def splits(self):
        """Into how many slices each dimension is cut."""
        if self.mesh is None:
            return [1] * len(self.shape)
        return [math.prod(self.mesh[a] for a in self.axes(entry)) for entry in self.tensor_map]

    def numbers(self):
        """K of each place of `ranks`."""
        if self._numbers is None:
            self._numbers = [self._number(place) for place in range(len(self.ranks))]
        return self._numbers

    def _number(self, place):
        if self.mesh is None:
            return 0
        at = []
        for size in reversed(self.mesh):
            at.insert(0, place % size)
            place //= size
        number = 0
        for entry in self.tensor_map:
            for axis in self.axes(entry):
                number = number * self.mesh[axis] + at[axis]
        return number

    def holders(self):
        """{K: the ranks that hold it}, in the order in which ranks have them first."""
        if self._holders is None:
            self._holders = {}
            for rank, number in sorted(zip(self.ranks, self.numbers())):
                self._holders.setdefault(number, []).append(rank)
        return self._holders

    def local_shape(self):
        return [size // count for size, count in zip(self.shape, self.splits())]

    def slice(self, number):
        """The bytes of slice K."""
        at = []
        for count in reversed(self.splits()):
            at.insert(0, number % count)
            number //= count
        sizes = self.local_shape()
        return bytes(cut(self.content, list(self.shape), BITS[self.file_type] // 8,
                         [i * size for i, size in zip(at, sizes)], sizes))

    def described(self):
        """What state_dict_metadata says of it."""
        seen, copies = {}, []
        for number in self.numbers():
            copies.append(seen.get(number, 0))
            seen[number] = copies[-1] + 1
        return {
            "properties": {"dtype": self.dtype,
                           "replica_id": 0 if self.mesh is None else copies,
                           "allow_shape_mismatch": False, "allow_to_save": True},
            "global_shape": list(self.shape),
            "axis_fragmentations": self.splits(),
            "layout": self.mesh and {
                "device_matrix": self.mesh, "tensor_map": self.tensor_map,
                "interleaved_parallel": False,
                "alias_name": self.alias or [chr(ord("a") + i) for i in range(len(self.mesh))],
                "rank_list": self.ranks},
            "chunk": [{"global_offset": [number], "local_shape": self.local_shape()}
                      for number in self.holders()]}


def kind_of(name):
    return "opt" if name.startswith((*STATES, NEVER_SAVED)) else "model"


def key_of(name, number):
    return repr((name, (number,)))


def deal(slices):
    """[(holders, size, key)] to {rank: keys}: each to the rank with the least to
    write, as redundancy is removed."""
    load, result = {}, {}
    for holders, size, key in sorted(slices, key=lambda s: (len(s[0]), -s[1], s[2])):
        rank = min(holders, key=lambda r: (load.get(r, 0), r))
        load[rank] = load.get(rank, 0) + size
        result.setdefault(rank, []).append(key)
    return result


@dataclass
class Step:
    """One step: its parameters by name, the ranks of the job, and how it was saved.

    scalars     {name: (file type, shape, bytes)} that no layout names: in each opt
                file of a plain save
    absent      names that are described, and in no file
    gathered    names of which every file of a plain save has the whole tensor
    opt_first   the optimizer is described first where redundancy is removed: 2.0
                and before
    """
    parameters: dict
    ranks: int
    iteration: int
    prefix: str = ""
    redundancy_removed: bool = False
    rank_groups: bool = True
    indent: bool = False
    opt_first: bool = False
    scalars: dict = field(default_factory=dict)
    absent: set = field(default_factory=set)
    gathered: set = field(default_factory=set)
    common: dict = None

    @property
    def directory(self):
        return f"iteration_{self.iteration:08d}"

    def kinds(self):
        found = {kind_of(name) for name in self.parameters}
        return [kind for kind in ("model", "opt") if kind in found]

    def held(self, kind):
        """{rank: [(name, K)]} of what each rank's file of that kind holds."""
        names = [name for name in self.parameters if kind_of(name) == kind]
        slices = {}
        for name in names:
            for number, holders in self.parameters[name].holders().items():
                slices[key_of(name, number)] = (holders, name, number)
        if self.redundancy_removed and self.ranks > 1:
            dealt = deal([(holders, self._load(name), key)
                          for key, (holders, name, number) in slices.items()])
            return {rank: [slices[key][1:] for key in dealt[rank]] for rank in sorted(dealt)}
        result = {rank: [] for rank in range(self.ranks)}
        for name in names:
            parameter = self.parameters[name]
            for rank, number in zip(parameter.ranks, parameter.numbers()):
                result[rank].append((name, number))
        return result

    def _load(self, name):
        """Bits, if the type is capitalised."""
        parameter = self.parameters[name]
        return math.prod(parameter.local_shape()) * (
            BITS[parameter.file_type] if parameter.dtype[0].isupper() else 16)

    def file_names(self, kind):
        """{rank: name}; the numbers are of the files and not of the ranks."""
        held = list(self.held(kind))
        prefix = f"{self.prefix}-" if self.prefix else ""
        return {rank: f"{prefix}{kind}-{number:07d}-{len(held):07d}.safetensors"
                for number, rank in enumerate(held)}

    def metadata(self):
        """What metadata.json says."""
        kinds, stored = self.kinds(), {}
        if self.redundancy_removed and self.opt_first:
            kinds.reverse()
        held = {kind: self.held(kind) for kind in kinds}
        names = {kind: self.file_names(kind) for kind in kinds}
        order = [(kind, rank) for rank in range(self.ranks) for kind in kinds]
        if self.redundancy_removed:
            order.sort(key=lambda o: kinds.index(o[0]))
            entries = [(rank, kind, *entry) for kind, rank in order
                       for entry in held[kind].get(rank, ())]
        else:
            place = {name: at for at, name in enumerate(self.parameters)}
            entries = sorted(((rank, kind, *entry) for kind, rank in order
                              for entry in held[kind][rank]),
                             key=lambda e: (e[0], place[e[2]]))
        for rank, kind, name, number in entries:
            entry = {"file_name": names[kind][rank], "storage_rank": rank}
            if self.rank_groups:
                entry["rank_group"] = self.parameters[name].holders()[number]
            stored.setdefault(key_of(name, number), []).append(entry)
        return {"state_dict_metadata": {name: parameter.described()
                                        for name, parameter in self.parameters.items()},
                "storage_data": stored}

    def metadata_bytes(self):
        form = {"indent": 4} if self.indent else {"separators": (",", ":")}
        return json.dumps(self.metadata(), ensure_ascii=False, **form).encode()

    def common_bytes(self):
        said = self.common or {
            "epoch_num": 1, "step_num": self.iteration, "global_step": self.iteration,
            "loss_scale": None, "global_batch_size": 8}
        return json.dumps(said, indent=4).encode()

    def files(self):
        """{name: bytes} of the tensors' files."""
        result, slices = {}, {}
        for kind in self.kinds():
            names = self.file_names(kind)
            for rank, entries in self.held(kind).items():
                held = {}
                for name, number in entries:
                    if name in self.absent:
                        continue
                    if (name, number) not in slices:
                        slices[name, number] = self._record(name, number)
                    held[name] = slices[name, number]
                if kind == "opt" and (self.ranks == 1 or not self.redundancy_removed):
                    held.update(self.scalars)
                result[names[rank]] = file_bytes(held)
        return result

    def _record(self, name, number):
        parameter = self.parameters[name]
        if name in self.gathered:
            return parameter.file_type, list(parameter.shape), parameter.content
        return parameter.file_type, parameter.local_shape(), parameter.slice(number)

    def holding(self):
        """{(name, K): the files that hold it}"""
        result = {}
        for kind in self.kinds():
            names = self.file_names(kind)
            for rank, entries in self.held(kind).items():
                for name, number in entries:
                    if name not in self.absent:
                        result.setdefault((name, number), set()).add(names[rank])
        return result

    def texts(self):
        """{name: bytes} of the step's other files."""
        result = {"common.json": self.common_bytes()}
        if self.ranks > 1:
            result["metadata.json"] = self.metadata_bytes()
        return result

    def save(self, root, without=()):
        """Writes the directory of the step, but for some files; its path."""
        path = os.path.join(root, self.directory)
        os.makedirs(path)
        for name, data in {**self.files(), **self.texts()}.items():
            if name not in without:
                with open(os.path.join(path, name), "wb") as f:
                    f.write(data)
        return path


def file_bytes(held):
    """A file as the safetensors library writes it, wider types first."""
    order = sorted(held, key=lambda name: (-BITS[held[name][0]], _RANKING[held[name][0]], name))
    return safetensors_bytes({name: held[name] for name in order}, {"format": "ms"})


# Types of one width in the library's order.
_RANKING = {name: -at for at, name in enumerate(
    ("BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "F64", "I64",
     "U64"))}


def save_tracker(root, iteration):
    with open(os.path.join(root, TRACKER), "w", encoding="ascii") as f:
        f.write(str(iteration))


# ---- layouts of strategies ----

def parameter_of(layout, shape, dtype, first_rank, content=None):
    """A Parameter that lies as a strategy's layout says, the optimizer's shard made a
    part of the map; None where that cannot be said so."""
    count = layouts.shard_count(layout)
    mesh, entries = list(layout.dev_matrix), [layouts.axes_of(e) for e in layout.tensor_map]
    unused, left = [], count
    # From the innermost axis on, until the shard is complete.
    for at in reversed(layouts.unused_axes(layout)):
        if left == 1:
            break
        size = math.gcd(mesh[at], left)
        if size < mesh[at]:
            if left != size:
                return None
            mesh, entries, unused = _split_axis(mesh, entries, unused, at, size)
            at += 1
        unused.insert(0, at)
        left //= size
    if left > 1:
        return None
    if count > 1:
        entries[0] = entries[0] + [len(mesh) - 1 - at for at in unused]
    tensor_map = [e if len(e) > 1 else e[0] if e else -1 for e in entries]
    ranks = range(first_rank, first_rank + math.prod(mesh))
    result = Parameter(tuple(shape), dtype, mesh, tensor_map, list(ranks), content)
    return result if _says_the_same(result, layout) else None


def _split_axis(mesh, entries, unused, at, size):
    """One axis made two, of which the inner one has that size."""
    behind = len(mesh) - 1 - at
    entries = [[a + (a > behind) for a in entry] for entry in entries]
    return (mesh[:at] + [mesh[at] // size, size] + mesh[at + 1:], entries,
            [u + (u > at) for u in unused])


def _says_the_same(parameter, layout):
    splits = parameter.splits()
    for place, number in enumerate(parameter.numbers()):
        wanted = 0
        for count, index in zip(splits, layouts.cell(layout, place)):
            wanted = wanted * count + index
        if number != wanted:
            return False
    return splits == list(layouts.cuts(layout))


def layout_of(parameter):
    """The strategy's layout that says the same."""
    if parameter.mesh is None:
        return Layout([len(parameter.ranks)], [-1] * len(parameter.shape))
    return Layout(parameter.mesh, parameter.tensor_map)


# ---- reading ----

def read_parameters(path):
    """The Parameters that a metadata.json describes, without contents."""
    metadata, result = _json_of(path), {}
    for name, said in metadata["state_dict_metadata"].items():
        shape, dtype = tuple(said["global_shape"]), said["properties"]["dtype"]
        layout = said["layout"]
        if layout is None:
            stored = metadata["storage_data"][key_of(name, 0)]
            result[name] = Parameter(shape, dtype, None, None, stored[0]["rank_group"])
        else:
            result[name] = Parameter(shape, dtype, layout["device_matrix"],
                                     layout["tensor_map"], layout["rank_list"],
                                     alias=layout["alias_name"])
    return result


def read_step(path, iteration):
    """The Step that a directory with all its files holds."""
    with open(os.path.join(path, "metadata.json"), encoding="utf-8") as f:
        text = f.read()
    stored = json.loads(text)["storage_data"]
    files = {name: _tensors_of(os.path.join(path, name)) for name in os.listdir(path)
             if name.endswith(".safetensors")}
    parameters, absent = read_parameters(os.path.join(path, "metadata.json")), set()
    for name, parameter in parameters.items():
        slices = {number: files[stored[key_of(name, number)][0]["file_name"]].get(name)
                  for number in parameter.holders()}
        if None in slices.values():
            absent.add(name)
        else:
            parameter.content = _joined(parameter, slices)
    scalars = {name: value for held in files.values() for name, value in held.items()
               if name not in parameters}
    some = min(files)
    return Step(
        parameters, 1 + max(rank for p in parameters.values() for rank in p.ranks), iteration,
        prefix=some[:some.rindex("model-")].removesuffix("-"),
        redundancy_removed=not scalars and all(len(s) == 1 for s in stored.values()),
        rank_groups="rank_group" in next(iter(stored.values()))[0],
        indent=text.startswith("{\n"), opt_first=kind_of(next(iter(parameters))) == "opt",
        scalars=scalars, absent=absent, common=_json_of(os.path.join(path, "common.json")))


def _json_of(path):
    with open(path, encoding="utf-8") as f:
        return json.load(f)


def _tensors_of(path):
    with open(path, "rb") as f:
        return Tensors(f.read()).values()


def _joined(parameter, slices):
    """The whole tensor of {K: (type, shape, bytes)}."""
    width = BITS[parameter.file_type] // 8
    whole = bytearray(math.prod(parameter.shape) * width)
    for number, (_, sizes, data) in slices.items():
        at = []
        for count in reversed(parameter.splits()):
            at.insert(0, number % count)
            number //= count
        length = width * (sizes[-1] if sizes else 1)
        starts = [i * size for i, size in zip(at, sizes)]
        for row, start in enumerate(_row_starts(parameter.shape, starts, sizes)):
            whole[width * start:width * start + length] = data[length * row:length * (row + 1)]
    return bytes(whole)


def _row_starts(shape, starts, sizes):
    """Where the rows of a box begin in the whole tensor, in elements."""
    if len(shape) <= 1:
        return [starts[0] if shape else 0]
    row = math.prod(shape[1:])
    return [row * i + rest for i in range(starts[0], starts[0] + sizes[0])
            for rest in _row_starts(shape[1:], starts[1:], sizes[1:])]
