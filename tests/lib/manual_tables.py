# SPDX-License-Identifier: Apache-2.0
"""Random tables whose rows are split manually (manual_split), and what each rank has.

A table is a list of rows; a row is a list of elements, each of them bytes.
"""

import math
import os

from demands import write
from ms_formats import Layout, Record, StageFile, checkpoint_bytes, strategy_bytes

TYPES = {"Int8": 1, "Float16": 2, "Float32": 4}


def coordinate(layout, rank, axis):
    """(index, size) of the rank on a mesh axis, numbered from the last one."""
    stride = math.prod(layout.dev_matrix[len(layout.dev_matrix) - axis:])
    size = layout.dev_matrix[len(layout.dev_matrix) - 1 - axis]
    return rank // stride % size, size


def interval(layout, rank, axis, length, rows=()):
    if axis < 0:
        return 0, length
    index, size = coordinate(layout, rank, axis)
    if rows:
        return sum(rows[:index]), sum(rows[:index + 1])
    assert length % size == 0
    return index * length // size, (index + 1) * length // size


def part(layout, rank, table):
    """The rows that a rank has; layout None: all."""
    if not layout:
        return table
    first, last = interval(layout, rank, layout.tensor_map[0], len(table), layout.rows)
    left, right = interval(layout, rank, layout.tensor_map[1], len(table[0]))
    return [row[left:right] for row in table[first:last]]


def record(dtype, rows):
    return Record((len(rows), len(rows[0])), dtype, b"".join(b"".join(row) for row in rows))


def n_ranks(layout):
    return math.prod(layout.dev_matrix if layout else ())


def random_rows(numbers, total, n):
    """n numbers of at least 1 that are `total` together, not all equal."""
    while True:
        cuts = sorted(numbers.sample(range(1, total), n - 1))
        rows = [b - a for a, b in zip([0] + cuts, cuts + [total])]
        if len(set(rows)) > 1:
            return rows


def random_layout(numbers, total, kind):
    """manual, even, columns or none; half of them with replicas."""
    n = 3 if kind == "even" else numbers.choice((2, 3, 4))
    mesh, axis = numbers.choice((([n], 0), ([2, n], 0), ([n, 2], 1)))
    if kind == "none":
        return None
    if kind == "columns":
        return Layout([2, 2], [-1, numbers.randrange(2)])
    if kind == "even":
        return Layout(mesh, [axis, -1])
    rows = random_rows(numbers, total, n)
    offsets = [sum(rows[:i]) for i in range(n)]
    other = 1 - axis if len(mesh) == 2 and numbers.random() < 0.5 else -1
    return Layout(mesh, [axis, other], rows=tuple(rows), offsets=tuple(offsets))


def random_table(numbers, dtype, n_rows):
    return [[numbers.randbytes(TYPES[dtype]) for _ in range(4)] for _ in range(n_rows)]


def write_strategy(path, layouts):
    """The path of a strategy file; None if nothing is listed."""
    layouts = {name: layout for name, layout in layouts.items() if layout}
    return write(path, strategy_bytes(StageFile(0, layouts))) if layouts else None


def write_ranks(directory, layout, tables, dtype):
    """The files of a job; {name: table}."""
    for rank in range(n_ranks(layout)):
        write(os.path.join(directory, f"rank_{rank}", "net-1_10.ckpt"), checkpoint_bytes(
            {name: record(dtype, part(layout, rank, table)) for name, table in tables.items()}))
    return directory
