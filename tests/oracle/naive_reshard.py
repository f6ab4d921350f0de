# SPDX-License-Identifier: Apache-2.0
"""A second opinion on resharding, by whole tensors.

Every parameter is put together from its source slices as one numpy array and
cut by the destination's layout.  That is far too slow and too large for real
checkpoints, and simple enough to be believed: where MindSpore's own converter
cannot serve as the oracle, because it raises or is known to give wrong data,
this is what the mount is compared with.  Where the converter can, the files
made here are byte for byte the converter's, which random_pairs.py proves pair
by pair.  Where both strategies cut everything alike the mount shows the source
files themselves, and so do `files` here; `converted` are the converter's.

    reshard = Reshard(source, src_strategy, dst_strategy)
    reshard.files(), reshard.converted()
    {"rank_0/checkpoint_0.ckpt": b"...", ...}

A strategy is the path of a file, of a directory of per-stage files, or None.
"""

import glob
import itertools
import math
import os
import re
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from layouts import (ReshardError, axes_of, axis_size, cuts,  # noqa: E402
                     device_count, foldings, region, replica, shard_count, splits,
                     unused_axes, used_axes, whole_shape)
from ms_formats import (ELEMENT_BYTES, Layout, Record,  # noqa: E402
                        checkpoint_bytes, read_checkpoint, read_strategy_file)

# Parameters whose presence on one side only does not make a "larger" network.
OPTIMIZER_STATE = ("accu_grads", "adam_v", "adam_m")


def same_regions(a, b, dims):
    """Whether two layouts, of which a rank's slice has these dimensions, put the
    same slices on the same ranks.

    One that the slice explains in several ways may be clear for the whole.
    """
    if a == b:
        return True
    for one, other in ((a, b), (b, a)):
        mine = foldings(one, dims, True)
        if len(mine) != 1:
            continue
        full = whole_shape(mine[0], dims)
        theirs = [way for way in foldings(other, full, False)
                  if all(size % count == 0 for size, count in zip(full, cuts(way)))]
        if len(theirs) == 1:
            return all(region(mine[0], full, rank) == region(theirs[0], full, rank)
                       for rank in range(device_count(a)))
    return False


# --- which source ranks a file is made from -------------------------------
#
# The converter plans on a picture of each layout: a mesh, and dimensions of
# which each lies on one mesh axis or on none.  The bytes do not depend on the
# plan, but the order of the records does: files are read in descending order
# of the ranks that the plan calls for.

class Picture:
    """mesh: axis sizes; dims: [size, index into mesh or None]."""

    def __init__(self, mesh, dims):
        kept = [i for i, size in enumerate(mesh) if size > 1]
        self.mesh = [mesh[i] for i in kept]
        self.dims = [[size, kept.index(axis) if axis in kept else None]
                     for size, axis in dims if size != 1]

    def shape(self):
        return [size for size, _ in self.dims]


def picture(layout, shape):
    """The converter's picture of a layout, the optimizer shard a dimension of its own."""
    shards = shard_count(layout)
    if shards > 1 and is_simple(layout) and not simple_is_misplaced(layout):
        return simple_picture(layout, shape, shards)
    mesh = list(layout.dev_matrix)
    axes = [[len(mesh) - 1 - a for a in axes_of(entry)] for entry in layout.tensor_map]
    sharding = []
    if shards > 1:
        mesh, axes, sharding = shard_axes(mesh, axes, unused_axes(layout), shards)
    dims = []
    for index, size in enumerate(shape):
        if index == 0 and sharding:
            split = math.prod(mesh[i] for i in axes[0])
            dims += expand_dimension(mesh, axes[0], split)
            dims += expand_dimension(mesh, sharding, size // split)
        else:
            dims += expand_dimension(mesh, axes[index], size)
    return Picture(mesh, dims)


def expand_dimension(mesh, axes, size):
    if not axes:
        return [[size, None]]
    result = [[mesh[i], i] for i in axes[:-1]]
    return result + [[size // math.prod(mesh[i] for i in axes[:-1]), axes[-1]]]


def shard_axes(mesh, axes, unused, shards):
    """Take the optimizer shard from the innermost unused axes outward.

    An axis that is needed in part is split in two, the inner part is taken.
    Returns the mesh, the axes of each dimension in it, and those taken.
    """
    taken, left = [], shards
    for i in reversed(unused):
        if left == 1:
            break
        if left >= mesh[i]:
            if left % mesh[i]:
                raise ReshardError("optimizer shard does not fit the mesh")
            taken.insert(0, i)
            left //= mesh[i]
        else:
            if mesh[i] % left:
                raise ReshardError("optimizer shard does not fit the mesh")
            mesh = mesh[:i] + [mesh[i] // left, left] + mesh[i + 1:]
            axes = [[a + (a > i) for a in group] for group in axes]
            taken = [i + 1] + [a + 1 for a in taken]
            left = 1
    return mesh, axes, taken


def is_simple(layout):
    """Whether the converter rebuilds the mesh from the strategy alone."""
    unused = unused_axes(layout)
    if any(isinstance(entry, list) for entry in layout.tensor_map) or not unused:
        return False
    return unused[0] == 0 and (len(unused) == 1 or len(unused) == len(layout.dev_matrix))


def simple_is_misplaced(layout):
    """Whether the rebuilt mesh, used axes in the order of dimensions, lies."""
    order = [a for a in used_axes(layout) if axis_size(layout, a) > 1]
    return order != sorted(order, reverse=True)


def converter_misplaces(layout):
    """Whether the converter silently misplaces the slices of this layout."""
    return shard_count(layout) > 1 and is_simple(layout) and simple_is_misplaced(layout)


def simple_picture(layout, shape, shards):
    strategy = splits(layout)
    mesh = [device_count(layout) // math.prod(strategy) // shards, shards] + strategy
    dims = [[size, index + 2] for index, size in enumerate(shape)]
    dims[0][0] = strategy[0]
    dims.insert(1, [shape[0] // strategy[0], 1])
    return Picture(mesh, dims)


def quotients(products):
    """Successive quotients of ascending products, None where one is no integer."""
    ordered = sorted(set(products))
    result = []
    for small, large in zip(ordered, ordered[1:]):
        if large % small:
            return None
        result.append(large // small)
    return result


def cumulative(sizes):
    return [1] + list(itertools.accumulate(sizes, lambda a, b: a * b))


def refine_mesh(pic, mesh):
    """pic on a finer mesh, None where a dimension does not follow."""
    parts, at = [], 0
    for size in pic.mesh:
        start, product = at, 1
        while product < size:
            product *= mesh[at]
            at += 1
        parts.append(list(range(start, at)))
    dims = []
    for size, axis in pic.dims:
        if axis is None:
            dims.append([size, None])
            continue
        for i in parts[axis][:-1]:
            if size % mesh[i]:
                return None
            dims.append([mesh[i], i])
            size //= mesh[i]
        if size % mesh[parts[axis][-1]]:
            return None
        dims.append([size, parts[axis][-1]])
    return Picture(mesh, dims)


def refine_shape(pic, shape):
    """pic with its dimensions cut finer, None where its axes do not follow."""
    mesh = [[size] for size in pic.mesh]
    dims, at = [], 0
    for size, axis in pic.dims:
        product, left = 1, 1 if axis is None else pic.mesh[axis]
        cut = []
        while product < size:
            part = shape[at]
            at += 1
            product *= part
            if left == 1:
                dims.append([part, None])
            elif part % left == 0:
                cut.append(left)
                dims.append([part, (axis, len(cut) - 1)])
                left = 1
            elif left % part == 0:
                cut.append(part)
                dims.append([part, (axis, len(cut) - 1)])
                left //= part
            else:
                return None
        if cut:
            mesh[axis] = cut
    first, total = [], 0
    for cut in mesh:
        first.append(total)
        total += len(cut)
    return Picture([size for cut in mesh for size in cut],
                   [[size, None if axis is None else first[axis[0]] + axis[1]]
                    for size, axis in dims])


def unify(a, b):
    """Both pictures over one mesh and one shape, None where there is none."""
    while True:
        mesh = quotients(cumulative(a.mesh) + cumulative(b.mesh))
        if mesh is None:
            return None
        a, b = refine_mesh(a, mesh), refine_mesh(b, mesh)
        if a is None or b is None:
            return None
        if a.shape() == b.shape():
            return a, b
        if math.prod(a.shape()) != math.prod(b.shape()):
            return None
        shape = quotients(cumulative(a.shape()[::-1]) + cumulative(b.shape()[::-1]))
        if shape is None:
            return None
        shape.reverse()
        a, b = refine_shape(a, shape), refine_shape(b, shape)
        if a is None or b is None:
            return None


def planned_ranks(src, dst, rank):
    """The local source ranks that the converter reads for one parameter.

    Raises ReshardError where the converter can make no plan.
    """
    n_src, n_dst = device_count(src), device_count(dst)
    if n_src % n_dst and n_dst % n_src:
        raise ReshardError(f"{n_src} devices to {n_dst}")
    # It plans on made-up sizes that every strategy divides.
    shape = [max(n_src, n_dst) * count for count in cuts(src)]
    a, b = picture(src, shape), picture(dst, shape)
    total = max(n_src, n_dst)
    for pic, count in ((a, n_src), (b, n_dst)):
        if count < total:
            pic.mesh.insert(0, total // count)
            for dim in pic.dims:
                if dim[1] is not None:
                    dim[1] += 1
    both = unify(a, b)
    if both is None:
        gathered = {axis for _, axis in a.dims if axis is not None}
    else:
        a, b = both
        gathered = {mine for (_, mine), (_, theirs) in zip(a.dims, b.dims)
                    if mine is not None and mine != theirs}
    return {r % n_src for r in ranks_along(a.mesh, rank, gathered)}


def ranks_along(mesh, rank, axes):
    """All ranks that differ from rank on the given axes only."""
    result = [0]
    stride = math.prod(mesh)
    for index, size in enumerate(mesh):
        stride //= size
        here = range(size) if index in axes else [rank // stride % size]
        result = [r + stride * c for r in result for c in here]
    return result


def holding_ranks(src, dst, rank):
    """The local source ranks that hold a part of what rank needs, one copy,
    and rank's own counterpart, which every plan of the converter names."""
    # Equal parts overlap or do not whatever the size, so any common one will do.
    shape = [math.lcm(a, b) for a, b in zip(cuts(src), cuts(dst))]
    wanted = region(dst, shape, rank)
    holding = {r for r in range(device_count(src))
               if replica(src, r) == replica(src, rank)
               and all(part.start < want.stop and want.start < part.stop
                       for part, want in zip(region(src, shape, r), wanted))}
    return holding | {rank % device_count(src)}


def needed_ranks(src, dst, rank):
    try:
        return planned_ranks(src, dst, rank)
    except ReshardError:
        return holding_ranks(src, dst, rank)


# --- strategies of a whole job --------------------------------------------

class Strategy:
    """All layouts of a job: entries are (stage, name, Layout) in file order."""

    def __init__(self, path):
        self.entries = []
        self.first_stage = 0
        if os.path.isdir(path):
            self._read_directory(path)
        else:
            self._read_file(path)
        if not self.entries:
            raise ReshardError(f"{path}: no layouts")
        self.device_count = device_count(self.entries[0][2])
        for _, name, layout in self.entries:
            if device_count(layout) != self.device_count:
                raise ReshardError(f"{path}: {name} lies on {device_count(layout)} devices, "
                                   f"others on {self.device_count}")
        stages = {stage for stage, _, _ in self.entries}
        self.stage_count = len(stages)
        if stages != set(range(self.stage_count)):
            raise ReshardError(f"{path}: stages {sorted(stages)}")

    def _read_directory(self, path):
        done = set()
        for name in sorted(os.listdir(path)):
            content = read_strategy_file(os.path.join(path, name))
            if content.stage not in done:
                done.add(content.stage)
                self.entries += [(content.stage, name, layout)
                                 for name, layout in content.layouts.items()]

    def _read_file(self, path):
        content = read_strategy_file(path)
        self.first_stage = content.stage
        for name, layout in content.layouts.items():
            # A merged file has the stage in front of each name.
            merged = re.fullmatch(r"([0-9]+)-(.*)", name, re.DOTALL)
            self.entries.append((int(merged[1]), merged[2], layout) if merged
                                else (0, name, layout))

    def stages(self):
        """{name: stages that hold it}, names in file order."""
        result = {}
        for stage, name, _ in self.entries:
            result.setdefault(name, set()).add(stage)
        return result

    def layout_of(self, name, stage=None):
        """The layout in one stage, or in the lowest that has the parameter."""
        found = {s: layout for s, n, layout in self.entries if n == name}
        return found[min(found) if stage is None else stage]


# --- the conversion -------------------------------------------------------

class Reshard:
    """One conversion: a source tree, its strategy and the one wanted."""

    def __init__(self, source, src_strategy, dst_strategy, prefix="checkpoint_"):
        self.source = source
        self.prefix = prefix
        self.src = None if src_strategy is None else Strategy(src_strategy)
        self.dst = None if dst_strategy is None else Strategy(dst_strategy)
        if self.src is None and self.dst is None:
            raise ReshardError("no strategy on either side")
        self.n_src = self.src.device_count if self.src else 1
        self.n_dst = self.dst.device_count if self.dst else 1
        self._files = {}
        self._alike = {}

    def ranks(self):
        return range(self.n_dst * (self.dst.stage_count if self.dst else 1))

    def name(self, rank):
        return f"rank_{rank}/{self.prefix}{rank}.ckpt"

    def converted(self):
        """{name: bytes} as the converter makes them."""
        return {self.name(r): checkpoint_bytes(self.records(r)) for r in self.ranks()}

    def files(self):
        """{name: bytes} as the mount shows them."""
        files = self.converted()
        for rank in self.ranks() if self.cuts_alike() else ():
            if self._is_complete(rank):
                with open(self._path(rank), "rb") as f:
                    files[self.name(rank)] = f.read()
        return files

    def cuts_alike(self):
        """Whether both sides put the same slice of everything on every rank.

        What neither lists is copied; what one alone lists nobody knows the
        other's cut of.
        """
        counts = [(s.device_count, s.stage_count) if s else (1, 1)
                  for s in (self.src, self.dst)]
        if counts[0] != counts[1] or self.by_stage():
            return False
        if not (self.src and self.dst):
            return True
        return all(self._same_cut(name, rank // self.n_src, record.dims)
                   for rank in self.ranks() if self._path(rank)
                   for name, record in self._file(rank).items())

    def _same_cut(self, name, stage, dims):
        key = (name, stage, dims)
        if key not in self._alike:
            stages = [s.stages().get(name) for s in (self.src, self.dst)]
            self._alike[key] = stages[0] == stages[1] and (
                stages[0] is None or stage not in stages[0] or same_regions(
                    self.src.layout_of(name, stage), self.dst.layout_of(name, stage), dims))
        return self._alike[key]

    def _is_complete(self, rank):
        """Whether the rank's own file holds what any has of its parameters."""
        if not self._path(rank):
            return False
        src, dst = self._layouts(rank // self.n_dst)
        listed = [n for n in (src if src is not None else dst) if dst is None or n in dst]
        return all(name in self._file(rank) or not any(
            name in self._file(r) for r in self.ranks() if self._path(r)) for name in listed)

    def by_stage(self):
        """Whether the converter takes the source for a part of a larger network.

        It then reads all of the ranks of the stage that the strategy file
        names, in ascending order.
        """
        if not (self.src and self.dst) or self.src.stage_count > 1 or self.dst.stage_count > 1:
            return False
        names = [{n for n in s.stages() if not n.startswith(OPTIMIZER_STATE)}
                 for s in (self.src, self.dst)]
        return names[0] < names[1]

    def records(self, rank):
        """{name: Record} of a destination rank, in the order of its file."""
        local, stage = rank % self.n_dst, rank // self.n_dst
        src, dst = self._layouts(stage)
        slices = self._load(self._source_files(src, dst, local), src, dst)
        result = {}
        last_count = None
        for name, held in slices.items():
            if (src is not None and name not in src) or (dst is not None and name not in dst):
                continue
            shape = next(iter(held.values())).dims
            mine, theirs = self._pair(src, dst, name, shape)
            result[name] = reshard(name, held, mine, theirs, local)
            last_count = device_count(mine)
        if last_count is None:
            raise ReshardError("no parameter is in both strategies and in the checkpoint")
        for name, held in slices.items():
            if name not in result:
                chosen = local % last_count
                result[name] = held[chosen if chosen in held else min(held)]
        return result

    def _layouts(self, stage):
        """({name: layout} or None) of source and destination for one stage.

        A parameter that the destination lists for other stages only is taken
        out of both.
        """
        src = dst = None
        if self.src:
            src = {name: self.src.layout_of(name) for name in self.src.stages()}
        if self.dst:
            dst = {}
            for name, stages in self.dst.stages().items():
                if stage in stages:
                    dst[name] = self.dst.layout_of(name, stage)
                elif src is not None:
                    src.pop(name, None)
        return src, dst

    def _pair(self, src, dst, name, slice_shape):
        """Both layouts of a parameter with its tensor's own dimensions."""
        mine = theirs = Layout([1], [-1] * len(slice_shape))
        if src is not None:
            ways = foldings(src[name], slice_shape, True)
            # A destination in JSON may tell the shape of the whole.
            if len(ways) > 1 and dst is not None and dst[name].shape is not None \
                    and len(dst[name].shape) == len(slice_shape):
                ways = [way for way in ways if whole_shape(way, slice_shape) == dst[name].shape]
            mine = self._only(ways, name)
        full = whole_shape(mine, slice_shape)
        if dst is not None:
            theirs = self._only([way for way in foldings(dst[name], full, False)
                                 if all(size % count == 0
                                        for size, count in zip(full, cuts(way)))], name)
        return mine, theirs

    @staticmethod
    def _only(ways, name):
        if len(ways) > 1:
            raise ReshardError(f"{name}: its tensor map can be folded in several ways")
        if not ways:
            raise ReshardError(f"{name}: its layout does not explain its slices")
        return ways[0]

    def _source_files(self, src, dst, local):
        """The files to read, first to last."""
        if self.by_stage():
            first = self.src.first_stage * self.n_src
            return [r for r in range(first, first + self.n_src) if self._path(r)]
        return self._needed_files(src, dst, local)

    def needed_files(self, rank):
        """The source ranks without which a destination rank cannot be made."""
        needed = self._needed_files(*self._layouts(rank // self.n_dst), rank % self.n_dst)
        first = self.src.first_stage * self.n_src if self.by_stage() else 0
        return {first + r for r in needed}

    def _needed_files(self, src, dst, local):
        if src is None:
            return [0]
        needed = set()
        for name in src:
            if dst is not None and name not in dst:
                continue
            needed |= self._needed_ranks(src, dst, name, local)
        stages = set().union(*(self.src.stages()[name] for name in src))
        return sorted((s * self.n_src + r for s in stages for r in needed), reverse=True)

    def _needed_ranks(self, src, dst, name, local):
        shape = self._some_shape(name)
        if shape is not None:
            return needed_ranks(*self._pair(src, dst, name, shape), local)
        # Listed and not saved: its layout still takes part in the converter's
        # plan, if there is one.  In the expanded form nothing tells the shape.
        mine = src[name]
        theirs = dst[name] if dst is not None else Layout([1], [-1] * len(mine.tensor_map))
        if len(mine.tensor_map) != len(theirs.tensor_map):
            return set()
        try:
            return planned_ranks(mine, theirs, local)
        except ReshardError:
            return set()

    def _some_shape(self, name):
        """The shape of the slices of a parameter, from any file that has it."""
        first = min(self.src.stages()[name]) + (self.src.first_stage if self.by_stage() else 0)
        for rank in range(first * self.n_src, (first + 1) * self.n_src):
            if self._path(rank) and name in self._file(rank):
                return self._file(rank)[name].dims
        return None

    def _load(self, ranks, src, dst):
        """{name: {local rank: Record}}, names in the order first met."""
        slices = {}
        for rank in ranks:
            for name, record in self._file(rank).items():
                slices.setdefault(name, {})[rank % self.n_src] = record
        return {name: held for name, held in slices.items()
                if not (self._elsewhere(name, self.src, src)
                        and self._elsewhere(name, self.dst, dst))}

    @staticmethod
    def _elsewhere(name, strategy, in_stage):
        return strategy is None or (name in strategy.stages() and name not in in_stage)

    def _path(self, rank):
        # The converter's choice, and that of the mount if steps are numbered
        # with as many digits.
        return max(glob.glob(os.path.join(glob.escape(self.source), f"rank_{rank}", "*.ckpt")),
                   default=None)

    def _file(self, rank):
        if rank not in self._files:
            path = self._path(rank)
            if path is None:
                raise ReshardError(f"rank {rank}: no checkpoint")
            self._files[rank] = read_checkpoint(path)
        return self._files[rank]


def as_array(record):
    """The record's elements as unsigned integers of their width: no value is
    looked at, so that a NaN stays the NaN it was."""
    import numpy as np  # who only asks for layouts needs none
    kind = np.dtype(f"<u{ELEMENT_BYTES[record.dtype]}")
    array = np.frombuffer(record.content, kind)
    if array.size != math.prod(record.dims):
        raise ReshardError(f"{array.size} elements for shape {list(record.dims)}")
    return array.reshape(record.dims)


def reshard(name, held, src, dst, rank):
    """Cut rank's part of a parameter from the slices {local rank: Record}."""
    import numpy as np
    first = next(iter(held.values()))
    shape = whole_shape(src, first.dims)
    whole = np.zeros(shape, as_array(first).dtype)
    known = np.zeros(shape, bool)
    copy = replica(src, rank)
    for r, record in held.items():
        if replica(src, r) == copy:
            if (record.dims, record.dtype) != (first.dims, first.dtype):
                raise ReshardError(f"{name}: slices differ in shape or type")
            whole[region(src, shape, r)] = as_array(record)
            known[region(src, shape, r)] = True
    wanted = region(dst, shape, rank)
    if not known[wanted].all():
        raise ReshardError(f"{name}: a slice that rank {rank} needs is missing")
    part = np.ascontiguousarray(whole[wanted]).reshape(whole[wanted].shape)
    return Record(part.shape, first.dtype, part.tobytes())
