# SPDX-License-Identifier: Apache-2.0
"""What a layout means, in plain Python: which part of a tensor which rank holds.

A second implementation that shares nothing with the program under test; a
layout is a ms_formats.Layout.
"""

import functools
import math

from ms_formats import Layout


class ReshardError(ValueError):
    """The conversion asked for has no answer."""


def axes_of(entry):
    """The mesh axes of one tensor map entry, major to minor."""
    return [a for a in (entry if isinstance(entry, list) else [entry]) if a != -1]


def device_count(layout):
    return math.prod(layout.dev_matrix)


def coordinate(layout, rank, axis):
    """Where rank lies on a mesh axis; axes are counted from the last."""
    mesh = layout.dev_matrix
    at = len(mesh) - 1 - axis
    return rank // math.prod(mesh[at + 1:]) % mesh[at]


def axis_size(layout, axis):
    return layout.dev_matrix[len(layout.dev_matrix) - 1 - axis]


def splits(layout):
    """Into how many parts each dimension is cut, the optimizer shard aside."""
    return [math.prod(axis_size(layout, a) for a in axes_of(entry))
            for entry in layout.tensor_map]


def used_axes(layout):
    return [a for entry in layout.tensor_map for a in axes_of(entry)]


def unused_axes(layout):
    """Indices into the mesh, from its front, of the axes that only replicate."""
    used = {len(layout.dev_matrix) - 1 - a for a in used_axes(layout)}
    return [i for i, size in enumerate(layout.dev_matrix) if size > 1 and i not in used]


def model_position(layout, rank):
    """The slice number of rank in every dimension, the optimizer shard aside."""
    position = []
    for entry in layout.tensor_map:
        index = 0
        for axis in axes_of(entry):
            index = index * axis_size(layout, axis) + coordinate(layout, rank, axis)
        position.append(index)
    return position


def _as_tuples(tensor_map):
    return tuple(tuple(e) if isinstance(e, list) else e for e in tensor_map)


@functools.lru_cache(maxsize=4096)
def _positions(mesh, tensor_map):
    """What model_position() gives of every rank."""
    layout = Layout(list(mesh), [list(e) if isinstance(e, tuple) else e for e in tensor_map])
    return [model_position(layout, rank) for rank in range(device_count(layout))]


def replica_group(layout, rank):
    """The ranks that hold the same model-parallel slice, ascending."""
    positions = _positions(tuple(layout.dev_matrix), _as_tuples(layout.tensor_map))
    return [r for r, position in enumerate(positions) if position == positions[rank]]


def shard_count(layout):
    """How many parts the optimizer shard makes of a slice."""
    if layout.opt_step == 0 or layout.opt_size == 0:
        return 1
    group = device_count(layout) // math.prod(splits(layout))
    size = group if layout.opt_size == -1 else layout.opt_size
    if size > group or group % size:
        raise ReshardError(f"optimizer shard {size} does not divide a group of {group}")
    return size


def cuts(layout):
    """Into how many equal parts the whole job cuts each dimension."""
    result = splits(layout)
    if shard_count(layout) > 1:
        if not result:
            raise ReshardError("optimizer shard of a scalar")
        result[0] *= shard_count(layout)
    return result


@functools.lru_cache(maxsize=4096)
def _of_all_ranks(mesh, tensor_map, opt_step, opt_size):
    """([what cell() gives], [what replica() gives]) of every rank."""
    entries = [list(e) if isinstance(e, tuple) else e for e in tensor_map]
    layout = Layout(list(mesh), entries, opt_step, opt_size)
    count, members, cells, replicas = shard_count(layout), {}, [], []
    for position in map(list, _positions(mesh, tensor_map)):
        place = tuple(position)
        before = members.get(place, 0)
        members[place] = before + 1
        replicas.append(before // count)
        if count > 1 and position:
            position[0] = position[0] * count + before % count
        cells.append(tuple(position))
    return cells, replicas


def _known(layout):
    return _of_all_ranks(tuple(layout.dev_matrix), _as_tuples(layout.tensor_map),
                         layout.opt_step, layout.opt_size)


def cell(layout, rank):
    """The slice number of rank in every dimension, the optimizer shard counted."""
    return _known(layout)[0][rank]


def region(layout, shape, rank):
    """The index of rank's part in the whole tensor, a tuple of slices."""
    result = []
    for size, count, index in zip(shape, cuts(layout), cell(layout, rank)):
        if size % count:
            raise ReshardError(f"dimension of {size} does not divide by {count}")
        result.append(slice(size // count * index, size // count * (index + 1)))
    return tuple(result)


def replica(layout, rank):
    """Which of the equivalent copies of the whole tensor rank belongs to.

    Ranks of the same number hold one complete copy between them.
    """
    return _known(layout)[1][rank % device_count(layout)]


def whole_shape(layout, slice_shape):
    return [size * count for size, count in zip(slice_shape, cuts(layout))]


def foldings(layout, shape, local):
    """The ways to undo the expanded form of JSON files, as layouts.

    The planner expands a dimension split over axes a, b, c into dimensions of
    size a, b and the rest.  Which of them belong together shows from the shape
    of a rank's slice (local) or of the whole tensor, though dimensions of size
    1 may leave a choice.
    """
    flat = layout.tensor_map
    if len(flat) == len(shape):
        return [layout]
    if layout.shape is None or len(layout.shape) != len(flat) or len(flat) < len(shape):
        return []
    # Within a dimension all parts but the last are as large as their axes.
    cut_up = [size == split and axis != -1
              for size, split, axis in zip(layout.shape, splits(layout), flat)]
    parts, goals = list(layout.shape), list(shape)
    if local:
        parts = [size // split for size, split in zip(parts, splits(layout))]
        if goals:
            goals[0] *= shard_count(layout)
    return [Layout(layout.dev_matrix, entries, layout.opt_step, layout.opt_size)
            for entries in fold_entries(flat, cut_up, parts, goals)]


def fold_entries(flat, cut_up, parts, goals):
    if not goals:
        return [] if parts else [[]]
    result = []
    for count in range(1, len(parts) + 1):
        if math.prod(parts[:count]) == goals[0] and all(cut_up[:count - 1]):
            axes = [a for a in flat[:count] if a != -1]
            entry = axes if len(axes) > 1 else axes[0] if axes else -1
            result += [[entry] + rest for rest in fold_entries(
                flat[count:], cut_up[count:], parts[count:], goals[1:])]
    return result
