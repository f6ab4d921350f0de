#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reshardfs ls`: records of files, steps of trees, layouts of strategies.

The yardstick is what the files were made of.
"""

import os
import re
import shutil
import sys
import unicodedata

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

from demands import check, write  # noqa: E402
from make_tree import PARAMS, SOURCE_MESH  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        read_checkpoint, strategy_bytes, strategy_json)
from rsh_cli import (GOOD, INPUT, NO, USAGE, demo_tree, refused, run, run_json,  # noqa: E402
                     run_on_terminal)
from rsh_mount import Tests  # noqa: E402
from safetensors_format import safetensors_bytes  # noqa: E402

LAYOUT = Layout([2, 2], [0, -1], 0, 0)


class Trees:
    def __init__(self, directory):
        self.directory = directory
        self.source, self.src, self.dst = demo_tree(directory)

    def path(self, name):
        return os.path.join(self.directory, name)

    def rank_file(self, rank, root=None, step="3_40"):
        return os.path.join(root or self.source, f"rank_{rank}", f"net_rank_{rank}-{step}.ckpt")

    def two_steps(self, name, damage):
        """A tree with an older step beside the one of the source."""
        root = self.path(name)
        shutil.copytree(self.source, root)
        for rank in range(8):
            shutil.copy(self.rank_file(rank, root), self.rank_file(rank, root, "2_40"))
            os.chmod(self.rank_file(rank, root), 0o600)
        damage(root)
        return root


# ---- FILE ----

def records_of_a_ckpt(t):
    path = t.rank_file(3)
    said = run_json("ls", path)
    with open(path, "rb") as f:
        data = f.read()
    check(said["file"] == path and said["format"] == "ckpt" and said["crc"] is None and
          said["bytes"] == len(data) and said["metadata"] == {}, said)
    records = read_checkpoint(path)
    check([r["name"] for r in said["records"]] == list(records), "names and their order")
    for r in said["records"]:
        wanted = records[r["name"]]
        check((r["dtype"], tuple(r["shape"]), r["bytes"]) ==
              (wanted.dtype, tuple(wanted.dims), len(wanted.content)), r)
        check(r["offset"] == r["chunks"][0]["offset"], r)
        content = b"".join(data[c["offset"]:c["offset"] + c["bytes"]] for c in r["chunks"])
        check(content == wanted.content, f"{r['name']} lies elsewhere")


def records_of_a_safetensors_file(t):
    values = {"b": ("F32", (2, 3), b"x" * 24), "a.empty": ("I64", (0,), b"")}
    path = write(t.path("one.safetensors"), safetensors_bytes(values, {"format": "ms"}))
    said = run_json("ls", path)
    check(said["format"] == "safetensors" and said["metadata"] == {"format": "ms"}, said)
    rows = {r["name"]: (r["dtype"], r["shape"], r["bytes"]) for r in said["records"]}
    check(rows == {"b": ("Float32", [2, 3], 24), "a.empty": ("Int64", [0], 0)}, rows)
    empty = [r for r in said["records"] if r["bytes"] == 0][0]
    check(empty["offset"] is None and empty["chunks"] == [], empty)


def crc_is_told(t):
    path = write(t.path("crc.ckpt"),
                 checkpoint_bytes({"w": Record((2,), "Int8", b"ab")}, crc=True))
    check(isinstance(run_json("ls", path)["crc"], int), "the CRC")
    check("with CRC" in run("ls", path).out, "the CRC for people")
    check(run("ls", path, "--check=full").status == GOOD, "a good CRC")
    with open(path, "r+b") as f:
        data = f.read()
        f.seek(data.index(b"ab"))
        f.write(b"xx")
    check(run("ls", path).status == GOOD, "without --check=full")
    refused(run("ls", path, "--check=full"), INPUT, path, "CRC")


def a_table_for_people(t):
    got = run("ls", t.rank_file(0))
    lines = got.out.splitlines()
    check(lines[0].split() == ["NAME", "DTYPE", "SHAPE", "BYTES", "OFFSET", "CHUNKS"], got)
    check(len(lines) == 2 + len(PARAMS) and lines[-1].startswith(f"{len(PARAMS)} records, "), got)
    check(all(line == line.rstrip() for line in lines), "blanks at ends of lines")


def names_are_escaped(t):
    name = "a\x1b[31m\n\u202eb\\c\x7f"
    path = write(t.path("odd.ckpt"), checkpoint_bytes({name: Record((1,), "Int8", b"a")}))
    for got in (run("ls", path), run_on_terminal("ls", path, columns=200)):
        check(r"a\x1b[31m\x0a\xe2\x80\xaeb\\c\x7f" in got.out, got)
        check("\x7f" not in got.out and "\u202e" not in got.out, got)
    check(run_json("ls", path)["records"][0]["name"] == name, "JSON has the name itself")


def names_that_are_not_utf_8(t):
    data = checkpoint_bytes({"w@@": Record((1,), "Int8", b"a")}).replace(b"@@", b"\xff\x80")
    path = write(t.path("bytes.ckpt"), data)
    got = run("ls", path)
    if got.status == INPUT:
        check("UTF-8" in got.err, got)
        return
    check(r"w\xff\x80" in got.out, got)
    check(run_json("ls", path)["records"][0]["name"] == r"w\xff\x80", "in JSON")


def a_terminal_shortens_names(t):
    name = "backbone." + "very_long_name." * 8 + "weight"
    path = write(t.path("long.ckpt"), checkpoint_bytes({name: Record((1,), "Int8", b"a")}))
    narrow = run_on_terminal("ls", path, columns=60)
    rows = [re.sub("\x1b\\[[0-9]*m", "", line) for line in narrow.out.splitlines()]
    check(max(map(len, rows)) <= 60, narrow)
    check(rows[1].startswith("backbone.") and "..." in rows[1] and ".weight  " in rows[1], narrow)
    check(name in run_on_terminal("ls", path, columns=300).out, "room enough")
    check(name in run("ls", path, env={"COLUMNS": "60"}).out, "no terminal")


def columns_of(text):
    """How many of a terminal a text takes."""
    return sum(0 if unicodedata.combining(c) else
               2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def columns_stand_below_each_other(t):
    """Whatever the script, and the locale."""
    names = ["嵌入层.权重", "layers.0.w", "임베딩", "ａｂ", "e\u0301.x", "埋め込み" * 20]
    path = write(t.path("scripts.ckpt"), checkpoint_bytes(
        {name: Record((1,), "Int8", b"a") for name in names}))
    for env in ({}, {"LC_ALL": "C"}, {"LC_ALL": "C.UTF-8"}):
        for got in (run("ls", path, env=env), run_on_terminal("ls", path, columns=70)):
            rows = [re.sub("\x1b\\[[0-9]*m", "", line) for line in got.out.splitlines()]
            at = {columns_of(row[:row.index("Int8")]) for row in rows[1:1 + len(names)]}
            title = rows[0].index("DTYPE")
            check(at == {title}, (at, title, rows))
    check(max(map(columns_of, rows)) <= 70 and "..." in rows[6], rows)


def colour_only_on_a_terminal(t):
    def colored(got):
        return "\x1b[" in got.out
    path = t.rank_file(0)
    check(colored(run_on_terminal("ls", path)), "on a terminal")
    check(not colored(run("ls", path)), "in a pipe")
    check(not colored(run_on_terminal("ls", path, "--color=never")), "never")
    check(not colored(run_on_terminal("ls", path, env={"NO_COLOR": "1"})), "NO_COLOR")
    check(not colored(run_on_terminal("ls", path, "--json")), "in JSON")
    check(colored(run("ls", path, "--color=always")), "always")


# ---- SOURCE ----

def steps_of_a_tree(t):
    said = run_json("ls", t.source)
    step = said["steps"][0]
    check(len(said["steps"]) == 1 and said["ranks"] == list(range(8)), said)
    check((step["name"], step["epoch"], step["step"], step["run"], step["whole"]) ==
          ("epoch 3 step 40", 3, 40, 0, True), step)
    check([f["path"] for f in step["files"]] == [t.rank_file(r) for r in range(8)], step)
    check([f["bytes"] for f in step["files"]] ==
          [os.path.getsize(t.rank_file(r)) for r in range(8)], step)
    check(step["bytes"] == sum(f["bytes"] for f in step["files"]), step)
    check(said["newest_whole"] == "epoch 3 step 40" and said["mount"] is None, said)


def damage_is_told(t):
    def damage(root):
        os.truncate(t.rank_file(5, root), 1000)
        os.remove(t.rank_file(2, root))
    root = t.two_steps("damaged", damage)
    said = run_json("ls", root)
    newest, older = said["steps"]
    check(not newest["whole"] and newest["missing_ranks"] == [2], newest)
    bad = [f for f in newest["files"] if f["reason"]]
    check([f["rank"] for f in bad] == [5] and bad[0]["bytes"] == 1000 and
          t.rank_file(5, root) in bad[0]["reason"], bad)
    check(older["whole"] and said["newest_whole"] == "epoch 2 step 40", said)
    got = run("ls", root)
    check("epoch 3 step 40" in got.out and "6/8" in got.out and not got.err, got)
    check("newest complete: epoch 2 step 40" in got.out, got)


def a_rank_that_is_gone(t):
    root = t.two_steps("gone", lambda root: shutil.rmtree(os.path.join(root, "rank_7")))
    check(run_json("ls", root)["newest_whole"] == "epoch 3 step 40", "nobody misses it")
    said = run_json("ls", root, "--src-strategy", t.src, status=NO)
    check(said["ranks"] == list(range(8)) and said["newest_whole"] is None and
          said["steps"][0]["missing_ranks"] == [7], said)


def only_what_the_strategy_describes(t):
    """Files of ranks that it has not count nowhere, and are told."""
    half = write(t.path("half.ckpt"), strategy_bytes(StageFile(0, {
        p.name: Layout([1, 4], p.source_map) for p in PARAMS if p.source_map is not None})))
    os.remove(t.rank_file(3))
    for strategy, ranks, beyond in ((t.src, 8, []), (half, 4, [4, 5, 6, 7])):
        step, = run_json("ls", t.source, "--src-strategy", strategy, status=NO)["steps"]
        check([f["rank"] for f in step["files"]] == [r for r in range(ranks) if r != 3], step)
        check(step["beyond_ranks"] == beyond and step["missing_ranks"] == [3], step)
        check(step["bytes"] == sum(os.path.getsize(t.rank_file(r))
                                   for r in range(ranks) if r != 3), step)
        got = run("ls", t.source, "--src-strategy", strategy)
        check(f" {ranks - 1}/{ranks} " in got.out and
              ("files of ranks 4 5 6 7, which the strategy does not have" in got.out) == bool(beyond), got)
    step, = run_json("ls", t.source, status=NO)["steps"]
    check(step["beyond_ranks"] == [] and len(step["files"]) == 7, step)


def whole_shapes(t):
    said = run_json("ls", t.source, "--src-strategy", t.src)["tensors"]
    check(said["reason"] is None, said)
    rows = {row["name"]: row for row in said["list"]}
    check(list(rows) == [p.name for p in PARAMS], rows)
    records = read_checkpoint(t.rank_file(0))
    for p in PARAMS:
        row = rows[p.name]
        check((row["shape"], row["dtype"], row["listed"]) ==
              (p.dims, p.dtype, p.source_map is not None), row)
        check(row["file_shape"] == list(records[p.name].dims), row)
    got = run("ls", t.source, "--src-strategy", t.src)
    cells = [line.split() for line in got.out.splitlines()]
    check(cells[0] == ["TENSOR", "DTYPE", "WHOLE", "IN", "A", "FILE"] and
          ["embedding.table", "Float32", "[96,40]", "[24,40]"] in cells, got)
    check(f"\n{len(PARAMS)} tensors, whole " in got.out, got)
    check(run_json("ls", t.source)["tensors"] is None, "without a strategy")
    one = run_json("ls", t.source, "--src-strategy=none",
                   "--check=structure")["tensors"]["list"]
    check(all(row["shape"] == row["file_shape"] and not row["listed"] for row in one), one)


def a_doubled_vocabulary(t):
    """The strategy of a job that had twice as many ranks for the model."""
    wide = write(t.path("wide.ckpt"), strategy_bytes(StageFile(0, {
        p.name: Layout([1, 8], p.source_map) for p in PARAMS if p.source_map is not None})))
    rows = {row["name"]: row for row in
            run_json("ls", t.source, "--src-strategy", wide,
                     "--check=structure")["tensors"]["list"]}
    check(rows["embedding.table"]["shape"] == [192, 40], rows["embedding.table"])
    said = run_json("ls", t.source, "--src-strategy", wide, status=NO)["mount"]
    check(said["takes"] is None and "not the strategy of this tree" in said["reason"], said)
    got = run("ls", t.source, "--src-strategy", wide)
    check(got.status == NO and "[192,40]" in got.out and "a mount would fail" in got.out and
          "ranks 0 and 4 should hold different slices" in got.err, got)


def shapes_of_the_newest_whole_step(t):
    name = "grown"

    def grow(root):
        """What the newest step holds is another model's, of which a file is gone."""
        for rank in range(1, 8):
            write(t.rank_file(rank, root), checkpoint_bytes({"w": Record((3,), "Int8", b"abc")}))
        os.remove(t.rank_file(0, root))
    root = t.two_steps(name, grow)
    rows = run_json("ls", root, "--src-strategy", t.src)["tensors"]["list"]
    check([row["name"] for row in rows] == [p.name for p in PARAMS], rows)
    for rank in range(8):
        os.remove(t.rank_file(rank, root, "2_40"))
    rows = run_json("ls", root, "--src-strategy", t.src, status=NO)["tensors"]["list"]
    check([(row["name"], row["shape"]) for row in rows] == [("w", [3])], rows)
    got = run("ls", root, "--src-strategy", t.src)
    check("\n1 tensor, whole 3 B\n" in got.out, got)


def shapes_of_what_another_stage_lists(t):
    """A conversion takes the layout of whoever lists it, and so the shape is that."""
    root, half = t.path("moved"), Layout([2], [0, -1])
    for rank in range(4):
        write(os.path.join(root, f"rank_{rank}", "a-1_1.ckpt"), checkpoint_bytes(
            {f"w{rank // 2}": Record((3, 4), "Int8", bytes(range(12 * rank, 12 * rank + 12)))}))
    for stage, held in enumerate((("w0", "w1"), ("other",))):
        write(t.path(f"moved-stages/s{stage}.ckpt"),
              strategy_bytes(StageFile(stage, {name: half for name in held})))
    said = run_json("ls", root, "--src-strategy", t.path("moved-stages"))["tensors"]["list"]
    check([(row["name"], row["shape"]) for row in said] == [("w0", [6, 4]), ("w1", [6, 4])], said)


def shapes_that_contradict(t):
    odd = write(t.path("odd_strategy.ckpt"), strategy_bytes(StageFile(0, {
        "embedding.table": Layout([2, 4], [0])})))
    said = run_json("ls", t.source, "--src-strategy", odd)["tensors"]
    check(said["list"] is None and "embedding.table" in said["reason"] and
          t.rank_file(0) in said["reason"], said)
    got = run("ls", t.source, "--src-strategy", odd)
    check("whole tensors are unknown: " in got.out and "epoch 3 step 40" in got.out, got)


def what_a_mount_takes(t):
    words = ["--src-strategy", t.src, "--dst-strategy", t.dst]
    said = run_json("ls", t.source, *words)
    size = sum(os.path.getsize(t.path(f"expected/rank_{r}/checkpoint_{r}.ckpt"))
               for r in range(4))
    check(said["mount"] == {"takes": "epoch 3 step 40", "reason": None, "files": 4,
                            "bytes": size}, said)

    def damage(root):  # model parallel 0 has no replica left
        for rank in (0, 4):
            os.remove(t.rank_file(rank, root))
    root = t.two_steps("older", damage)
    check(run_json("ls", root, *words)["mount"]["takes"] == "epoch 2 step 40", "the older step")
    said = run_json("ls", root, *words, "--fallbacks=0", status=NO)
    check(said["mount"]["takes"] is None and "epoch 3 step 40" in said["mount"]["reason"], said)
    got = run("ls", root, *words, "--select=3_40")
    check(got.status == NO and "a mount would fail" in got.out and "rank" in got.err, got)


def options_choose_files(t):
    root = t.two_steps("chosen", lambda root: None)
    said = run_json("ls", root, "--select=2_40")
    check([s["name"] for s in said["steps"]] == ["epoch 2 step 40"], said)
    refused(run("ls", root, "--select=9_9"), INPUT, "epoch 9 step 9")


def a_model_in_one_part(t):
    values = {"w": ("F32", (2,), b"x" * 8)}
    write(t.path("model/model.safetensors"), safetensors_bytes(values, {"format": "pt"}))
    step = run_json("ls", t.path("model"))["steps"][0]
    check(step["whole"] and step["format"] == "safetensors" and len(step["files"]) == 1, step)


# ---- STRATEGY ----

def layouts_of_a_strategy(t):
    said = run_json("ls", t.src)
    check((said["strategy"], said["stages"], said["stage_ranks"]) == (t.src, 1, 8), said)
    rows = {p["name"]: p for p in said["parameters"]}
    listed = [p for p in PARAMS if p.source_map is not None]
    check(set(rows) == {p.name for p in listed}, "parameters")
    for p in listed:
        row = rows[p.name]
        check(row["mesh"] == SOURCE_MESH and row["stage"] == 0, row)
        check(row["map"] == [[] if a == -1 else [a] for a in p.source_map], row)
        # Axis 0 is the mesh's last.
        split = [1 if a == -1 else SOURCE_MESH[-1 - a] for a in p.source_map]
        shard = p.source_shard[1]
        split[0] *= max(shard, 1)
        check(row["split"] == split, row)
        check(row["optimizer_shard"] == ({"step": 4, "size": 2} if shard else None), row)
        check(sorted(sum(row["replicas"], [])) == list(range(8)), row)
    check(rows["embedding.table"]["replicas"] == [[0, 4], [1, 5], [2, 6], [3, 7]], rows)
    check(rows["block.norm.gamma"]["replicas"] == [list(range(8))], rows)
    check(rows["block.sharded"]["replicas"] == [[r] for r in range(8)], rows)
    got = run("ls", t.src)
    check("0,4 1,5 2,6 3,7" in got.out and
          f"{len(listed)} parameters, 8 ranks in 1 stage" in got.out, got)
    lines = got.out.splitlines()
    check(lines[0].split() == ["PARAMETER", "STAGE", "MESH", "MAP", "SHARD", "SPLIT", "SAME", "ON",
                               "RANKS"], got)
    cells = {line.split()[0]: line.split()[1:6] for line in lines[1:]}
    check(cells["block.sharded"] == ["0", "[2,4]", "[0,-1]", "2", "8x1"], cells)
    check(cells["block.norm.gamma"] == ["0", "[2,4]", "[-1]", "-", "1"], cells)
    # The columns of a usual terminal leave enough of the names.
    narrow = run_on_terminal("ls", t.src, "--color=never", columns=80).out.splitlines()
    check(max(map(len, narrow)) <= 80, narrow)
    check(all(any(line.startswith(f"{p.name} ") for line in narrow) for p in listed), narrow)


def stages_of_a_directory(t):
    for stage in (0, 1):
        write(t.path(f"stages/s{stage}.ckpt"),
              strategy_bytes(StageFile(stage, {f"w{stage}": LAYOUT, "shared": LAYOUT})))
    said = run_json("ls", t.path("stages"))
    check(said["stages"] == 2 and said["stage_ranks"] == 4, said)
    rows = {(p["name"], p["stage"]): p["replicas"] for p in said["parameters"]}
    check(set(rows) == {("w0", 0), ("w1", 1), ("shared", 0), ("shared", 1)}, rows)
    check(rows["w1", 1] == [[4, 6], [5, 7]] and rows["shared", 0] == [[0, 2], [1, 3]], rows)


def a_strategy_in_json(t):
    path = write(t.path("s.json"), strategy_json(StageFile(0, {"w": Layout([2, 2], [0, -1], shape=[4, 4])})))
    check(run_json("ls", path)["parameters"][0]["split"] == [2, 1], "a .json strategy")


# ---- refused ----

def wrong_usage(_):
    refused(run("ls"), USAGE, "FILE, SOURCE or STRATEGY is missing")
    refused(run("ls", "a", "b"), USAGE, "too many operands: b")
    refused(run("ls", "--foreground", "a"), USAGE, "--foreground")
    refused(run("ls", "--color=pink", "a"), USAGE, "pink")
    refused(run("ls", "-oallow_other", "a"), USAGE, "allow_other")


def other_files(t):
    """What is neither a checkpoint file nor a strategy, and what was meant."""
    dcp = os.path.join(LIB, "..", "data", "dcp", "torch-2.4", "uneven")
    model = os.path.join(LIB, "..", "data", "weights", "models", "qwen3")
    whole = "{}; it is in {}, which is a checkpoint: did you mean that?"
    for path, words in (
            (os.path.join(dcp, ".metadata"),
             whole.format("the metadata of a distributed checkpoint", dcp)),
            (os.path.join(dcp, "__0_0.distcp"),
             whole.format("a part of a distributed checkpoint", dcp)),
            (os.path.join(model, "config.json"),
             whole.format("a configuration of a model", model)),
            (write(t.path(os.path.join("model", "tf_model.h5.index.json")), b"{}"),
             "but the index of a model's parts"),
            (write(t.path(os.path.join("model", "tokenizer.json")), b"{}"),
             "but the tokenizer of a model"),
            (write(t.path("net.npy"), b"\x93NUMPY\1\0"), "an array of numpy"),
            (write(t.path("net.gz"), b"\x1f\x8b\x08\0"), "a file compressed by gzip"),
            (write(t.path("net.xz"), b"\xfd7zXZ\0\0"), "a file compressed by xz"),
            (write(t.path("net.zst"), b"\x28\xb5\x2f\xfd\0"), "a file compressed by zstd"),
            (write(t.path("net.bz2"), b"BZh9\x31"), "a file compressed by bzip2"),
            (write(t.path("page.ckpt"), b"<!DOCTYPE html>"), "a web page or XML")):
        refused(run("ls", path), INPUT, f"{path}: ", words)
        refused(run("plan", "--src-strategy", path, "--dst-strategy", "none", t.source), INPUT,
                f"{path}: this is not a strategy, but {words.split(';')[0].removeprefix('but ')}")
    for name, begin, what in (
            ("net.pkl", b"\x80\2K\1.", "a pickle of Python"),
            ("tree.jsonl", b'{"manifest":"reshardfs"}\n',
             "a manifest, which reshardfs verify takes")):
        path = write(t.path(name), begin)
        refused(run("plan", "--src-strategy", path, "--dst-strategy", "none", t.source), INPUT,
                f"{path}: this is not a strategy, but {what}")
    archive = write(t.path("net.ckpt"), b"PK\3\4" + bytes(60))
    refused(run("ls", archive), INPUT, f"{archive}: ", "truncated: the zip archive")
    refused(run("plan", "--src-strategy", archive, "--dst-strategy", "none", t.source), INPUT,
            f"{archive}: this is not a strategy, but a zip archive")
    beside = write(t.path(os.path.join("mcore", "metadata.json")), b'{"sharded_backend": "torch"}')
    refused(run("ls", beside), INPUT, "not a strategy file: it holds no parameter layout")
    write(t.path(os.path.join("mcore", ".metadata")), b"")
    refused(run("ls", beside), INPUT, "a part of a distributed checkpoint")


def bad_input(t):
    refused(run("ls", t.path("nowhere")), INPUT, t.path("nowhere"), "No such file")
    os.makedirs(t.path("empty"))
    refused(run("ls", t.path("empty")), INPUT, "no rank_N directory")
    path = write(t.path("junk.ckpt"), b"\x07junk" * 20)
    refused(run("ls", path), INPUT, path)
    path = write(t.path("junk.json"), b"{]")
    refused(run("ls", path), INPUT, path)
    path = write(t.path("cut.ckpt"), open(t.rank_file(0), "rb").read()[:5000])
    refused(run("ls", path), INPUT, path)
    refused(run("ls", "/dev/null"), INPUT, "not a regular file")


def a_full_disk(t):
    if not os.path.exists("/dev/full"):
        return
    import subprocess
    from rsh_mount import reshardfs_program
    with open("/dev/full", "wb") as full:
        got = subprocess.run([reshardfs_program(), "ls", t.src], stdout=full, check=False,
                             stderr=subprocess.PIPE)
    check(got.returncode == 4 and b"standard output" in got.stderr, got)


CASES = [records_of_a_ckpt, records_of_a_safetensors_file, crc_is_told, a_table_for_people,
         names_are_escaped, names_that_are_not_utf_8, a_terminal_shortens_names,
         columns_stand_below_each_other, colour_only_on_a_terminal, steps_of_a_tree,
         damage_is_told, a_rank_that_is_gone,
         only_what_the_strategy_describes, whole_shapes, a_doubled_vocabulary,
         shapes_of_the_newest_whole_step, shapes_of_what_another_stage_lists,
         shapes_that_contradict,
         what_a_mount_takes, options_choose_files, a_model_in_one_part, layouts_of_a_strategy,
         stages_of_a_directory, a_strategy_in_json, wrong_usage, other_files, bad_input,
         a_full_disk]


if __name__ == "__main__":
    sys.exit(Tests("ls", CASES).run(Trees))
