#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reshardfs plan`: what a conversion reads from where.

The yardstick is arithmetic on the slices of made-up layouts, and the sizes of
the files that a mount of make_tree.py's tree must show.
"""

import math
import os
import sys

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

from demands import check, content, write  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes)
from rsh_cli import (GOOD, INPUT, NO, USAGE, demo_tree, refused, run, run_json,  # noqa: E402
                     run_on_terminal)
from rsh_mount import Tests  # noqa: E402

ROW = 24  # bytes of a row of six Float32
NONE = ["--src-strategy", "none", "--dst-strategy", "none"]


class Trees:
    def __init__(self, directory):
        self.directory = directory

    def path(self, name):
        return os.path.join(self.directory, name)

    def strategy(self, name, mesh, tensor_map, **shard):
        return write(self.path(name + ".ckpt"), strategy_bytes(
            StageFile(0, {"w": Layout(mesh, tensor_map, **shard)})))

    def saved(self, name, ranks, dims):
        """A tree in which every rank has one slice of Float32."""
        content = checkpoint_bytes({"w": Record(dims, "Float32", bytes(4 * math.prod(dims)))})
        for rank in range(ranks):
            write(self.path(f"{name}/rank_{rank}/net-1_1.ckpt"), content)
        return self.path(name)


def plan(source, src, dst, *words, status=GOOD):
    return run_json("plan", source, "--src-strategy", src, "--dst-strategy", dst, *words,
                    status=status)


def sources_of(said):
    return [[(s["rank"], s["bytes"]) for s in f["sources"]] for f in said["files"]]


def rows_of_8_to_rows_of_4(t):
    """Two source ranks each, not the eight of the list."""
    source = t.saved("rows", 8, (2, 6))
    said = plan(source, t.strategy("s", [8], [0, -1]), t.strategy("d", [4], [0, -1]))
    check(sources_of(said) == [[(2 * r, 2 * ROW), (2 * r + 1, 2 * ROW)] for r in range(4)], said)
    for f in said["files"]:
        check(f["read_bytes"] == 4 * ROW and not f["lost"] and f["records"] == 1, f)
        check(f["runs"] == {"count": 2, "min": 2 * ROW, "median": 2 * ROW, "max": 2 * ROW}, f)
    check([s["read_by"] for s in said["sources"]] == [[r // 2] for r in range(8)], said)
    check([s["path"] for s in said["sources"]] ==
          [os.path.join(source, f"rank_{r}", "net-1_1.ckpt") for r in range(8)], said)
    check(said["total"]["read_bytes"] == 16 * ROW and said["total"]["runs"] == 8, said)
    check(said["step"] == "epoch 1 step 1" and said["source"] == source, said)


def columns_are_many_runs(t):
    """8 columns a rank to 4 ranks with 16: a run is half a row."""
    said = plan(t.saved("columns", 8, (10, 8)), t.strategy("s", [8], [-1, 0]),
                t.strategy("d", [4], [-1, 0]))
    check(sources_of(said) == [[(2 * r, 320), (2 * r + 1, 320)] for r in range(4)], said)
    check(said["files"][0]["runs"] == {"count": 20, "min": 32, "median": 32, "max": 32}, said)


def where_all_bytes_lie(t):
    """--slices: whole runs, rows of them, and records of equal ranks told alike."""
    words = [t.strategy("s", [4], [0, -1]), t.strategy("d", [2, 2], [0, -1]), "--slices"]
    source = t.saved("slices", 4, (2, 6))
    at = len(content(f"{source}/rank_0/net-1_1.ckpt")) - 2 * ROW
    files = plan(source, *words)["files"]
    check([f["name"] for f in files] == [f"checkpoint_{r}.ckpt" for r in range(4)], files)
    check([[s[2] for s in f["slices"]] for f in files] ==
          2 * [[f"0:{at}+{2 * ROW} 1:{at}+{2 * ROW}"], [f"2:{at}+{2 * ROW} 3:{at}+{2 * ROW}"]],
          files)
    check(files[0]["slices"][0][:2] == [0, files[0]["bytes"]], files)
    source = t.saved("wide", 2, (3, 4))
    at = len(content(f"{source}/rank_0/net-1_1.ckpt")) - 48
    said = plan(source, t.strategy("s", [2], [0, -1]), t.strategy("d", [2], [-1, 0]), "--slices")
    check(said["files"][1]["slices"][0][2] == f"0:{at + 8}+8*3/16 1:{at + 8}+8*3/16", said)
    check("slices" not in plan(source, *words[:2])["files"][0], "not asked for")


def the_median_of_different_runs(t):
    for rank in range(2):
        write(t.path(f"runs/rank_{rank}/net-1_1.ckpt"), checkpoint_bytes(
            {"w": Record((3, 2), "Float32", bytes(24)), "big": Record((50,), "Int8", bytes(50)),
             "small": Record((1,), "Int8", bytes(1))}))
    layouts = {"w": Layout([2], [-1, 0])}
    src = write(t.path("m.ckpt"), strategy_bytes(StageFile(0, layouts)))
    said = plan(t.path("runs"), src, "none", "--unlisted=copy")
    # Six half rows of 8, and what is copied.
    check(said["files"][0]["runs"] == {"count": 8, "min": 1, "median": 8, "max": 50}, said)


def replicas_are_told(t):
    source = t.saved("twice", 4, (3, 6))
    src, dst = t.strategy("s", [2, 2], [0, -1]), t.strategy("d", [1], [-1, -1])
    said = plan(source, src, dst)
    check(sources_of(said) == [[(0, 3 * ROW), (1, 3 * ROW)]], said)
    check([(s["rank"], s["replicas"]) for s in said["sources"]] == [(0, [2]), (1, [3])], said)
    os.remove(os.path.join(source, "rank_0", "net-1_1.ckpt"))
    said = plan(source, src, dst)
    check(sources_of(said) == [[(1, 3 * ROW), (2, 3 * ROW)]], said)
    check([(s["rank"], s["replicas"]) for s in said["sources"]] == [(1, [3]), (2, [0])], said)
    check(any("without a valid file" in note for note in said["notes"]), said["notes"])
    os.remove(os.path.join(source, "rank_2", "net-1_1.ckpt"))
    refused(run("plan", "-q", source, "--src-strategy", src, "--dst-strategy", dst), INPUT,
            "rank 0")


def lost_slices(t):
    source = t.saved("lost", 4, (3, 6))
    os.remove(os.path.join(source, "rank_3", "net-1_1.ckpt"))
    words = [source, t.strategy("s", [4], [0, -1]), t.strategy("d", [2], [0, -1]),
             "--allow-missing"]
    said = plan(*words)
    check([f["lost"] for f in said["files"]] == [False, True], said)
    check(said["files"][1]["sources"] == [], said)


def sizes_are_those_of_the_mount(t):
    source, src, dst = demo_tree(t.directory)
    said = plan(source, src, dst)
    for f in said["files"]:
        expected = t.path(f"expected/rank_{f['rank']}/checkpoint_{f['rank']}.ckpt")
        check(f["bytes"] == os.path.getsize(expected), f)
        check(f["read_bytes"] == sum(s["bytes"] for s in f["sources"]), f)
    check([f["rank"] for f in said["files"]] == [0, 1, 2, 3], said)
    parts = plan(source, src, "none", "--format=hf", "--part-size=5MB")["files"]
    check(len(parts) > 1 and all(p["read_bytes"] for p in parts), parts)


def some_ranks(t):
    source = t.saved("some", 8, (2, 6))
    words = [source, t.strategy("s", [8], [0, -1]), t.strategy("d", [4], [0, -1])]
    check([f["rank"] for f in plan(*words, "3", "0-1")["files"]] == [0, 1, 3], "3 0-1")
    check([s["rank"] for s in plan(*words, "3")["sources"]] == [6, 7], "sources of 3")
    refused(run("plan", *words[:1], "--src-strategy", words[1], "--dst-strategy", words[2], "4"),
            INPUT, "rank 4 does not exist", "3")
    for bad in ("x", "1-", "-1-2", "2-1", "1,2", "99999999999999999999"):
        refused(run("plan", source, "--", bad), USAGE, bad)


def the_estimate(t):
    said = plan(t.saved("time", 2, (1000, 250)), t.strategy("s", [2], [0, -1]), "none")
    assumed = said["assumed"]
    check(assumed["bytes_per_second"] == 10 ** 9, said)
    seconds = 2 * 1000 * 1000 / assumed["bytes_per_second"] + 2 * assumed["run_seconds"]
    check(abs(said["total"]["seconds"] - seconds) < 1e-9, said)


def tables_for_people(t):
    words = ["plan", t.saved("people", 8, (2, 6)), "--src-strategy",
             t.strategy("s", [8], [0, -1]), "--dst-strategy", t.strategy("d", [4], [0, -1])]
    got = run(*words)
    lines = got.out.splitlines()
    check(got.status == GOOD and not got.err, got)
    check(lines[0].split() == ["RANK", "SIZE", "READS", "RUNS", "MIN", "MEDIAN", "MAX", "TIME",
                               "FROM", "RANKS"], got)
    check("4: 48 B, 5: 48 B" in lines[3], got)
    check(lines[5] == "" and lines[6].split()[:2] == ["SOURCE", "RANK"], got)
    check("epoch 1 step 1: 4 files" in got.out and "from 8 source files" in got.out, got)
    narrow = run_on_terminal(*words, "--color=never", columns=70)
    table = narrow.out.split("\n\n")
    check(max(len(line) for part in table[:2] for line in part.splitlines()) <= 70, narrow)
    # Nothing is lost of what the first table is for.
    whole = got.out.split("\n\n", maxsplit=1)[0].split()
    check(table[0].split() == whole, narrow)


def rank_lists(t):
    src, dst = t.strategy("s", [8], [0, -1]), t.strategy("d", [4], [0, -1])
    words = ["plan", "not-looked-at", "--rank-list", "--src-strategy", src, "--dst-strategy"]
    got = run(*words, dst)
    check(got.status == GOOD and not got.err, got)
    check(got.out == "".join(f"{r}: 7 6 5 4 3 2 1 0\n" for r in range(4)), got)
    check(run(*words, dst, "2").out == "2: 7 6 5 4 3 2 1 0\n", "one rank")
    check(run_json(*words, "none") ==
          {"rank_lists": [{"rank": 0, "sources": [7, 6, 5, 4, 3, 2, 1, 0], "reason": None}]},
          "to whole tensors")
    check(run("plan", "x", "--rank-list", "--src-strategy=none", "--dst-strategy", dst).out ==
          "0: 0\n1: 0\n2: 0\n3: 0\n", "from whole tensors")
    got = run(*words, t.strategy("six", [6], [0, -1]))
    check(got.status == NO and not got.out and "no list" in got.err, got)
    refused(run(*words, dst, "7"), INPUT, "rank 7 does not exist")


def cut_of(side):
    """A side's slices as (offset, shape, ranks, missing ranks)."""
    return [(s["offset"], s["shape"], s["ranks"], s.get("missing")) for s in side["slices"]]


def tensors_and_their_slices(t):
    """--slices tells how both sides cut a tensor, and whose bytes are read."""
    source = t.saved("cut", 4, (3, 6))
    words = [t.strategy("s", [2, 2], [0, -1]), t.strategy("d", [2], [0, -1]), "--slices"]
    tensor, = plan(source, *words)["tensors"]
    check(tensor["names"] == ["w"] and not tensor["lost"] and tensor["made_of"] == 1, tensor)
    here, there = tensor["source"], tensor["destination"]
    check(here["type"] == "Float32" and here["shape"] == [6, 6] == there["shape"], tensor)
    check(here["layout"] == "mesh [2,2] map [0,-1]" and here["optimizer_shards"] == 1, here)
    check(cut_of(here) == [([0, 0], [3, 6], [0, 2], []), ([3, 0], [3, 6], [1, 3], [])], here)
    check(cut_of(there) == [([0, 0], [3, 6], [0], None), ([3, 0], [3, 6], [1], None)], there)
    check([s["from"] for s in there["slices"]] ==
          [[{"offset": [3 * r, 0], "shape": [3, 6], "rank": r}] for r in range(2)], there)
    check("tensors" not in plan(source, *words[:2]), "not asked for")
    os.remove(os.path.join(source, "rank_2", "net-1_1.ckpt"))
    tensor, = plan(source, *words)["tensors"]
    check(cut_of(tensor["source"])[0] == ([0, 0], [3, 6], [0], [2]), tensor)
    os.remove(os.path.join(source, "rank_0", "net-1_1.ckpt"))
    tensor, = plan(source, *words, "--allow-missing")["tensors"]
    check(tensor["lost"] and cut_of(tensor["source"])[0] == ([0, 0], [3, 6], [], [0, 2]), tensor)


def tensors_of_many_ranks(t):
    source = t.saved("many", 256, (1, 6))
    said = plan(source, t.strategy("s", [256], [-1, -1], opt_step=1, opt_size=-1), "none",
                "--slices")
    tensor, = said["tensors"]
    check(tensor["source"]["optimizer_shards"] == 256, "the shard")
    check(cut_of(tensor["source"]) == [([r, 0], [1, 6], [r], []) for r in range(256)], "slices")
    check([p["rank"] for p in tensor["destination"]["slices"][0]["from"]] == list(range(256)),
          "the origins")


def compat_is_named_where_it_is_allowed(_):
    """A note says which option shows the converter's bytes, if that may be given."""
    demo = os.path.join(LIB, "..", "data", "demo")
    words = ["--src-strategy", os.path.join(demo, "strategy_8_cards.ckpt"),
             os.path.join(demo, "checkpoint")]
    undo = "(--compat=mindspore does the same)"
    for more, named in ((["--dst-strategy", "none"], True), (["--format", "dcp"], False),
                        (["--format", "hf"], False), (["--dst-strategy", "none", "--only", "emb"],
                                                      False)):
        got = run("plan", *words, *more)
        check(got.status == GOOD and "BFloat16 NaNs are kept" in got.out, repr(got))
        check((undo in got.out) == named, f"{more}: {got.out}")
        got = run("plan", *words, *more, "--compat", "mindspore")
        check((got.status == GOOD) == named, repr(got))


def pictures_run_no_file_of_the_directory(t):
    """The directory in which someone looks at a checkpoint may be of the same origin."""
    mark, demo = t.path("mark"), os.path.abspath(os.path.join(LIB, "..", "data", "demo"))
    for name in ("argparse", "reshardfs"):
        write(t.path(f"{name}.py"), f"open({mark!r}, 'w')".encode())
    got = run("plan", "--picture", t.path("x.svg"), "--dst-strategy", "none", "--src-strategy",
              os.path.join(demo, "strategy_8_cards.ckpt"), os.path.join(demo, "checkpoint"),
              cwd=t.path(""), env={"PYTHONPATH": os.path.join(demo, "..", "..", "..", "python"),
                                   "PYTHONDONTWRITEBYTECODE": "yes"})
    check(got.status == GOOD or "was not drawn" in got.err or "matplotlib" in got.err, got)
    check(not os.path.exists(mark), "a file of the directory was run")


def wrong_usage(t):
    source = t.saved("usage", 1, (2, 6))
    refused(run("plan"), USAGE, "SOURCE is missing")
    refused(run("plan", source), USAGE, "--src-strategy is missing")
    refused(run("plan", source, "--src-strategy=none"), USAGE, "--dst-strategy is missing")
    refused(run("plan", source, "--resume"), USAGE, "--resume")
    refused(run("plan", t.path("nowhere"), *NONE), INPUT, "nowhere")
    refused(run("plan", source, "--src-strategy", t.path("no.ckpt"), "--dst-strategy=none"),
            INPUT, "no.ckpt")


CASES = [rows_of_8_to_rows_of_4, columns_are_many_runs, where_all_bytes_lie,
         the_median_of_different_runs,
         replicas_are_told, lost_slices, sizes_are_those_of_the_mount, some_ranks, the_estimate,
         tables_for_people, rank_lists, tensors_and_their_slices, tensors_of_many_ranks,
         compat_is_named_where_it_is_allowed, pictures_run_no_file_of_the_directory,
         wrong_usage]


if __name__ == "__main__":
    sys.exit(Tests("plan", CASES).run(Trees))
