#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables whose rows are split manually, against MindSpore itself.

merge_sliced_parameter, with the strategy as build_searched_strategy reads it, makes the
table of the slices that MindSpore saved, and of those that a mount shows.  Where
transform_checkpoints gives the right rows, all files are equal byte for byte; where it
misplaces them, --compat=mindspore refuses."""

import os
import random
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]

from demands import check  # noqa: E402
from manual_tables import n_ranks, part, random_layout, write_strategy  # noqa: E402
from ms_formats import Layout  # noqa: E402
from rsh_cli import INPUT, run  # noqa: E402
from rsh_mount import (Mounted, Tap, hash_tree, require_mount, require_oracle,  # noqa: E402
                       tree_difference)
from run_seed import run_seed, share  # noqa: E402

SEED = run_seed()


class Oracle:
    def __init__(self):
        os.environ.setdefault("GLOG_v", "4")
        import mindspore  # pylint: disable=import-outside-toplevel
        import numpy  # pylint: disable=import-outside-toplevel
        self.ms, self.np = mindspore, numpy

    def save(self, directory, layouts, tables):
        """Saves each table with its layout."""
        for rank in range(max(n_ranks(layout) for layout in layouts.values())):
            path = os.path.join(directory, f"rank_{rank}", "net-1_10.ckpt")
            os.makedirs(os.path.dirname(path))
            self.ms.save_checkpoint(
                [{"name": name, "data": self.ms.Tensor(
                    self.np.array(part(layouts[name], rank, table), self.np.float32))}
                 for name, table in tables.items()], path)
        return directory

    def merged(self, directory, strategy, layout, tables):
        """Demands that MindSpore makes the tables of the files of a directory."""
        ranks = []
        for rank in range(n_ranks(layout)):
            files = os.path.join(directory, f"rank_{rank}")
            ranks.append(self.ms.load_checkpoint(os.path.join(files, os.listdir(files)[0])))
        said = self.ms.build_searched_strategy(strategy) if strategy else None
        for name, table in tables.items():
            got = ranks[0][name] if not said else \
                self.ms.merge_sliced_parameter([rank[name] for rank in ranks], said)
            want = self.np.array(table, self.np.float32)
            check(got.shape == want.shape and (got.asnumpy() == want).all(), (name, got))


def table(numbers, n_rows):
    return [[float(numbers.randrange(1 << 20)) for _ in range(4)] for _ in range(n_rows)]


def a_layout(numbers, n_rows, kind):
    """merge_sliced_parameter wants the rows of all slices, also along the columns."""
    layout = random_layout(numbers, n_rows, kind)
    if kind == "manual":
        layout.tensor_map[1] = -1
    return layout


def shows(oracle, numbers, kinds, at):
    n_rows = 24 * numbers.randrange(1, 3)
    tables = {name: table(numbers, n_rows) for name in ("table", "adam_m.table")}
    src, dst = (a_layout(numbers, n_rows, kind) for kind in kinds)
    strategies = [write_strategy(os.path.join(at, f"{side}.ckpt"),
                                 {name: layout for name in tables})
                  for side, layout in (("src", src), ("dst", dst))]
    source = oracle.save(os.path.join(at, "source"), {name: src for name in tables}, tables)
    oracle.merged(source, strategies[0], src, tables)
    with Mounted(source, src_strategy=strategies[0], dst_strategy=strategies[1]) as m:
        oracle.merged(m.path, strategies[1], dst, tables)


def converts(oracle, numbers, layout, at):
    """The files of transform_checkpoints, where each rank has the whole table.  To as many
    ranks it sometimes fails to put the table together."""
    tables = {"table": table(numbers, 24), "w": table(numbers, 24)}
    layouts = {"table": layout, "w": Layout(layout.dev_matrix, [-1, -1])}
    source = oracle.save(os.path.join(at, "source"), layouts, tables)
    src = write_strategy(os.path.join(at, "src.ckpt"), layouts)
    for number, mesh in enumerate(([], [1], [n_ranks(layout)])):
        dst = write_strategy(os.path.join(at, f"dst{number}.ckpt"), {
            name: Layout(mesh, [-1, -1]) for name in tables}) if mesh else None
        converted = os.path.join(at, f"converted{number}")
        try:
            oracle.ms.transform_checkpoints(source, converted, "checkpoint_", src, dst)
        except ValueError as error:
            check(mesh and "cannot reshape array" in str(error), error)
            continue
        for compat in (False, True):
            with Mounted(source, src_strategy=src, dst_strategy=dst, compat=compat) as m:
                lines = tree_difference(hash_tree(converted), hash_tree(m.path))
                check(not lines, (mesh, compat, lines))


def misplaces(oracle, numbers, at):
    """What it makes of another split of as many slices is not what was saved."""
    tables = {"table": table(numbers, 24)}
    src, dst = (Layout([3], [0, -1], rows=rows, offsets=(0, rows[0], sum(rows[:2])))
                for rows in ((1, 20, 3), (2, 15, 7)))
    source = oracle.save(os.path.join(at, "source"), {"table": src}, tables)
    strategies = [write_strategy(os.path.join(at, name), {"table": layout})
                  for name, layout in (("src.ckpt", src), ("dst.ckpt", dst))]
    converted = os.path.join(at, "converted")
    oracle.ms.transform_checkpoints(source, converted, "checkpoint_", *strategies)
    got = oracle.ms.load_checkpoint(os.path.join(converted, "rank_0", "checkpoint_0.ckpt"))
    check(got["table"].shape[0] != 2, "MindSpore reads the rows of the destination now")
    got = run("export", "-q", "--compat", "mindspore", "--src-strategy", strategies[0],
              "--dst-strategy", strategies[1], source, os.path.join(at, "out"))
    check(got.status == INPUT and "MindSpore's converter misplaces" in got.err, got)
    with Mounted(source, src_strategy=strategies[0], dst_strategy=strategies[1]) as m:
        oracle.merged(m.path, strategies[1], dst, tables)


def main():
    require_oracle()
    require_mount()
    oracle = Oracle()
    tap = Tap()
    kinds = ("manual", "even", "columns", "none")
    pairs = [(a, b) for a in kinds for b in kinds if "manual" in (a, b)]
    tests = [("/".join(pair), lambda n, at, pair=pair: shows(oracle, n, pair, at))
             for pair in share(pairs * 2)]
    for mesh, tensor_map, rows in (([2], [0, -1], (3, 21)), ([4], [0, -1], (1, 2, 20, 1)),
                                   ([2, 2], [0, -1], (23, 1)), ([2, 2], [1, -1], (5, 19)),
                                   ([3, 2], [1, 0], (7, 9, 8))):
        layout = Layout(mesh, tensor_map, rows=rows,
                        offsets=tuple(sum(rows[:i]) for i in range(len(rows))))
        tests.append((f"converts {rows}",
                      lambda n, at, layout=layout: converts(oracle, n, layout, at)))
    tests.append(("misplaces", lambda n, at: misplaces(oracle, n, at)))
    for number, (name, test) in enumerate(tests):
        with tap.test(f"{name}, seed {SEED}, case {number}"), \
                tempfile.TemporaryDirectory(prefix="reshardfs-manual-") as at:
            test(random.Random(f"{SEED} {number}"), at)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
