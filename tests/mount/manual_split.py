#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tables whose rows are split manually: ops.Gather().add_prim_attr("manual_split", (3, 5)).

The strategy file lists the rows of each slice in param_split_shape.  Files that were
written by hand have the shape of the tensor there, which changes nothing."""

import os
import random
import shutil
import sys

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, write  # noqa: E402
from manual_tables import (TYPES, n_ranks, part, random_layout, random_table,  # noqa: E402
                           record, write_ranks, write_strategy)
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        read_checkpoint, strategy_bytes, strategy_json)
from rsh_cli import GOOD, INPUT, good, refused, run  # noqa: E402
from rsh_mount import Mounted, Tests, hash_tree, require_mount, tree_difference  # noqa: E402
from run_seed import half_if_sanitized, run_seed  # noqa: E402

KINDS = ("manual", "even", "columns", "none")
PAIRS = [(a, b) for a in KINDS for b in KINDS if "manual" in (a, b)]
SEED = run_seed()
TABLE = [[bytes([10 * row + column]) for column in range(4)] for row in range(8)]
BY_HAND = Layout([2], [0, -1], rows=(3, 5), offsets=(0, 3))


def tree(at, layout, table=None):
    """(source, strategy) of a job with one table."""
    source = write_ranks(os.path.join(at, "source"), layout, {"table": table or TABLE}, "Int8")
    return source, write_strategy(os.path.join(at, "src.ckpt"), {"table": layout})


def shown(path, rank):
    return read_checkpoint(os.path.join(path, f"rank_{rank}", f"checkpoint_{rank}.ckpt"))


def compare(at, tables, dtype, src, dst):
    source = write_ranks(os.path.join(at, "source"), src, tables, dtype)
    words = {"src_strategy": write_strategy(os.path.join(at, "src.ckpt"),
                                            {name: src for name in tables}),
             "dst_strategy": write_strategy(os.path.join(at, "dst.ckpt"),
                                            {name: dst for name in tables})}
    with Mounted(source, **words) as m:
        for rank in range(n_ranks(dst)):
            found = shown(m.path, rank)
            for name, table in tables.items():
                want = record(dtype, part(dst, rank, table))
                check(found[name] == want, f"rank {rank}: {name}: {found[name]}, not {want}")
        whole = hash_tree(m.path)
        odd = tree_difference(whole, hash_tree(m.path, odd_blocks=True))
        check(not odd, odd)


def random_pairs(at):
    """Each pair of kinds, with optimizer states and a second table."""
    for number, pair in enumerate(half_if_sanitized(PAIRS * 3)):
        numbers = random.Random(f"{SEED} {number}")
        dtype = numbers.choice(sorted(TYPES))
        n_rows = 3 * 8 * numbers.randrange(1, 4)
        src, dst = (random_layout(numbers, n_rows, kind) for kind in pair)
        tables = {name: random_table(numbers, dtype, n_rows)
                  for name in ("table", "moments.table")}
        work = os.path.join(at, str(number))
        try:
            compare(work, tables, dtype, src, dst)
        except AssertionError as error:
            raise AssertionError(f"seed {SEED}, case {number}, {src} to {dst}: {error}") from error
        shutil.rmtree(work)


def large_table(at):
    """Windows, gathers and kernel reads: some megabytes, and rows of one slice."""
    numbers = random.Random(f"{SEED} large")
    table = [[numbers.randbytes(1024)] for _ in range(4096)]
    rows = (1, 3000, 17, 1078)
    src = Layout([4], [0, -1], rows=rows, offsets=(0, 1, 3001, 3018))
    dst = Layout([2, 3], [0, -1], rows=(2000, 95, 2001), offsets=(0, 2000, 2095))

    def write_as(directory, layout):
        for rank in range(n_ranks(layout)):
            mine = part(layout, rank, table)
            write(os.path.join(directory, f"rank_{rank}", "net-1_10.ckpt"), checkpoint_bytes({
                "table": Record((len(mine), 1024), "Int8", b"".join(row[0] for row in mine))}))
        return directory

    strategies = [write_strategy(os.path.join(at, name), {"table": layout})
                  for name, layout in (("src.ckpt", src), ("dst.ckpt", dst))]
    source = write_as(os.path.join(at, "source"), src)
    with Mounted(source, src_strategy=strategies[0], dst_strategy=strategies[1]) as m:
        first = hash_tree(m.path)
        check(not tree_difference(first, hash_tree(m.path, odd_blocks=True)), "odd reads")
        back = shutil.copytree(m.path, os.path.join(at, "copied"))
    with Mounted(back, src_strategy=strategies[1], dst_strategy=strategies[0]) as m:
        for rank in range(4):
            want = read_checkpoint(os.path.join(source, f"rank_{rank}", "net-1_10.ckpt"))
            check(shown(m.path, rank) == want, f"rank {rank} after going there and back")


def shapes_by_hand(at):
    """In these files the field has the shape of the tensor or of its slice."""
    source, none = tree(at, None)
    for number, (mesh, tensor_map, rows, offsets) in enumerate((
            ([2], [0, -1], (8, 4), ()), ([2], [0, -1], (8, 4), (0, 0)),
            ([2], [0, -1], (4, 4), ()), ([4], [0, -1], (2, 4), ()),
            ([2, 2], [1, 0], (8, 4), ()), ([2], [-1, 0], (8, 4), ()))):
        work = os.path.join(at, str(number))
        plain = Layout(mesh, tensor_map)
        handed = Layout(mesh, tensor_map, rows=rows, offsets=offsets)
        said = write_strategy(os.path.join(work, "s.ckpt"), {"table": handed})
        for src, dst, as_shown in ((none, said, plain), (said, None, None)):
            directory = source if src == none else write_ranks(
                os.path.join(work, "source"), plain, {"table": TABLE}, "Int8")
            with Mounted(directory, src_strategy=src, dst_strategy=dst) as m:
                for rank in range(n_ranks(as_shown)):
                    want = record("Int8", part(as_shown, rank, TABLE))
                    check(shown(m.path, rank)["table"] == want, f"{handed}, rank {rank}")
        out = os.path.join(work, "derived.ckpt")
        if not offsets and len(mesh) == 1:
            good("strategy", "derive", "-q", said, "--mesh", "mp=1", "-o", out)


def stages(at):
    """The merged file of a pipeline, in both forms; the second stage has the table."""
    source = os.path.join(at, "source")
    layouts = [{"w": Layout([2], [0, -1], shape=[4, 4])},
               {"table": Layout([2], [0, -1], shape=[8, 4], rows=(1, 7), offsets=(0, 1))}]
    tables = {"w": TABLE[:4], "table": TABLE}
    for stage, listed in enumerate(layouts):
        for rank in range(2):
            write(os.path.join(source, f"rank_{2 * stage + rank}", "net-1_10.ckpt"),
                  checkpoint_bytes({name: record("Int8", part(layout, rank, tables[name]))
                                    for name, layout in listed.items()}))
    for form, to_bytes in (("ckpt", strategy_bytes), ("json", strategy_json)):
        files = [write(os.path.join(at, f"stage_{stage}.{form}"),
                       to_bytes(StageFile(stage, listed)))
                 for stage, listed in enumerate(layouts)]
        merged = os.path.join(at, f"merged.{form}")
        check(run("strategy", "merge", *files, "-o", merged).status == GOOD, "merge")
        with Mounted(source, src_strategy=merged) as m:
            for name, table in tables.items():
                check(shown(m.path, 0)[name] == record("Int8", table), name)


def replicas(at):
    """A lost file is read from a replica, and one of them keeps a parameter."""
    layout = Layout([2, 2], [0, -1], rows=(3, 5), offsets=(0, 3))
    source, strategy = tree(at, layout)
    shutil.rmtree(os.path.join(source, "rank_1"))
    with Mounted(source, src_strategy=strategy) as m:
        check(shown(m.path, 0)["table"] == record("Int8", TABLE), "from the replica")
    shutil.rmtree(os.path.join(source, "rank_3"))
    got = run("export", "-q", "--src-strategy", strategy, "--dst-strategy", "none", source,
              os.path.join(at, "out"))
    check(got.status == INPUT and "table" in got.err, got)
    source, _ = tree(os.path.join(at, "whole"), None)
    with Mounted(source, dst_strategy=strategy, extra=["--remove-redundancy"]) as m:
        kept = [shown(m.path, rank).get("table") for rank in range(4)]
        check([k and k.dims[0] for k in kept] == [3, 5, None, None], kept)


def forms(at):
    """Every format that can hold them."""
    source, strategy = tree(at, BY_HAND)
    other = write_strategy(os.path.join(at, "other.ckpt"), {
        "table": Layout([2], [0, -1], rows=(6, 2), offsets=(0, 6))})
    whole = b"".join(b"".join(row) for row in TABLE)
    for form, dst, parts in (("safetensors", other, [whole[:24], whole[24:]]),
                             ("safetensors", "none", [whole]), ("hf", "none", [whole]),
                             ("dcp", "none", [whole])):
        out = os.path.join(at, f"{form}-{dst == other}")
        good("export", "-q", "--src-strategy", strategy, "--dst-strategy", dst, "--format",
             form, source, out)
        found = sorted(os.path.join(folder, name) for folder, _, names in os.walk(out)
                       for name in names if name.endswith((".safetensors", ".distcp")))
        check(len(found) == len(parts), found)
        for path, content in zip(found, parts):
            with open(path, "rb") as f:
                check(content in f.read(), path)
    back = os.path.join(at, "back")
    for form in ("hf-False", "dcp-False"):
        good("export", "-q", "--dst-strategy", other, os.path.join(at, form), back)
        for rank, content in enumerate((whole[:24], whole[24:])):
            found = shown(back, rank)["table"].content
            check(found == content, f"{form}, rank {rank}: {found}")
        shutil.rmtree(back)
    good("verify", "--src-strategy", strategy, "--dst-strategy", other, "--format",
         "safetensors", source, os.path.join(at, "safetensors-True"))
    refused(run("export", "-q", "--src-strategy", strategy, "--dst-strategy", other, "--format",
                "checkpoint2", source, os.path.join(at, "none")), INPUT,
            "parameter table: Checkpoint 2.0 has no tensor map for its rows, which are split "
            "manually")


def what_is_refused(at):
    """Each sentence names the file and the parameter."""
    whole, _ = tree(os.path.join(at, "whole"), None)
    source, strategy = tree(os.path.join(at, "cut"), BY_HAND)
    even = write_strategy(os.path.join(at, "even.ckpt"), {"table": Layout([2], [0, -1])})

    def no(src, dst, directory, *words, options=()):
        refused(run("export", "-q", "--src-strategy", src, "--dst-strategy", dst, *options,
                    directory, os.path.join(at, "out")), INPUT, "parameter table", *words)

    for number, (layout, said) in enumerate((
            (Layout([2], [0, -1], rows=(3, 6), offsets=(0, 3)),
             "its param_split_shape lists 9 rows, the tensor has 8"),
            (Layout([2], [0, -1], rows=(3, 4, 1), offsets=(0, 3, 7)),
             "its param_split_shape has 3 numbers, but there are 2 slices of rows"),
            (Layout([2], [0, -1], offsets=(0, 3)),
             "its param_split_shape has 0 numbers, but there are 2 slices of rows"),
            (Layout([2], [0, -1], rows=(8, 0), offsets=(0, 8)),
             "its param_split_shape has the number 0"),
            (Layout([2, 3], [1, 0], rows=(3, 5), offsets=(0, 3)),
             "dimension 1 of size 4 cannot be cut into 3 equal slices"),
            (Layout([2, 2], [1, -1], 1, 2, rows=(3, 2, 1, 2), offsets=(0, 3, 5, 6)),
             "its rows are split manually (manual_split) and by an optimizer shard"))):
        path = write_strategy(os.path.join(at, f"{number}.ckpt"), {"table": layout})
        no("none", path, whole, path, said)
    wrong = write_strategy(os.path.join(at, "wrong.ckpt"), {
        "table": Layout([2], [0, -1], rows=(2, 6), offsets=(0, 2))})
    no(wrong, "none", source, "net-1_10.ckpt: parameter table has shape [3,4], but by "
       "param_split_shape its slice has 2 rows", f"{wrong} splits its rows manually")
    json = write(os.path.join(at, "shape.json"), strategy_json(StageFile(0, {
        "table": Layout([2], [0, -1], shape=[8, 6], rows=(3, 5), offsets=(0, 3))})))
    no(json, "none", source, "dimension 1 of the whole tensor is 4, its strategy says 6")
    no(even, "none", source, even)
    columns = write_strategy(os.path.join(at, "columns.ckpt"), {"table": Layout([2], [-1, 0])})
    for src, dst, directory in ((strategy, even, source), (strategy, wrong, source),
                                (strategy, columns, source),
                                ("none", strategy, whole)):
        no(src, dst, directory, "MindSpore's converter misplaces rows that are split manually",
           options=("--compat", "mindspore"))


def main():
    require_mount()
    return Tests("manual", (random_pairs, large_table, shapes_by_hand, stages, replicas, forms,
                            what_is_refused)).run()


if __name__ == "__main__":
    sys.exit(main())
