#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reshardfs strategy` as somebody types it, and `mount --dst-mesh`.

The yardstick are the strategies that MindSpore planned, in data/strategies.
"""

import json
import os
import shutil
import stat
import sys
import tempfile

TESTS = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(TESTS, "lib"))

from demands import check, content, write  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        read_strategy_file, strategy_bytes, strategy_json)
from rsh_cli import GOOD, INPUT, NO, USAGE, good, refused, run, run_json  # noqa: E402
from rsh_mount import Mounted, Tap, hash_tree, tree_difference  # noqa: E402
from small_job import Job  # noqa: E402

SETS = os.path.join(TESTS, "data", "strategies")


def planned(name, stage=0, suffix="ckpt"):
    return os.path.join(SETS, name, f"strategy_stage_{stage}.{suffix}")


def plain(layouts):
    """What can be compared: the text of each layout."""
    return {name: str((l.dev_matrix, l.tensor_map, l.opt_step, l.opt_size))
            for name, l in layouts.items()}


# What derive cannot know: the layers of each stage, the options and the sentence.
NOT_KNOWN = [
    (["enc.0 enc.1 dec.0 dec.1"], ["--mesh", "mp=2,pp=2"],
     "several lists have 2 layers, so which of them go to which stage is not known: use --stage"),
    (["enc.0 enc.2 enc.3"], ["--mesh", "mp=2,pp=2"],
     "parameter enc.3.w: the layers are not numbered 0 to 2"),
    (["l.0", "l.1 x", "l.2", "l.3"], ["--mesh", "mp=2,pp=2"],
     "parameter x.w: the source has it on a stage in the middle, so its stage is not known: "
     "use --stage, as in --stage 'REGEX=1'"),
    (["l.0 x", "l.1 x", "l.2 x"], ["--mesh", "dp=4,mp=2,pp=3"],
     "parameter x.w: more than two stages share it"),
    (["l.0 l.1 x"], ["--mesh", "mp=4,pp=2", "--layers", "1,1", "--drop", "l.1", "--stage", "x=0"],
     "no parameter is left for stage 1"),
    (["l.0"], ["--mesh", "dp=2,mp=2", "--split", "w=1:mp"],
     "parameter l.0.w: two of its dimensions are split over mp"),
    (["l.0"], ["--mesh", "dp=2,cp=2,mp=2", "--split", "w=0:cp"],
     "the order of a mesh with axis cp is not known: use --axes, as in --axes 'REGEX=*,cp'"),
    (["l.0", "l.1"], ["--mesh", "dp=2,mp=2", "--src-mesh", "dp=2,mp=2,pp=3"],
     "it has 2 stages, the given mesh of the source has pp=3"),
]


class Bench:
    def __init__(self, directory):
        self.directory = directory

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def stages(self, name, suffix="ckpt"):
        """A directory of the strategy files of a set and nothing else."""
        path = self.path(name)
        os.makedirs(path, exist_ok=True)
        for entry in os.listdir(os.path.join(SETS, name)):
            if entry.startswith("strategy_stage_"):
                shutil.copy(os.path.join(SETS, name, entry), path)
        return path

    def made(self, name, layouts):
        """A directory of strategy files, one for each stage: {parameter: layout}."""
        for stage, of_stage in enumerate(layouts):
            os.makedirs(self.path(name), exist_ok=True)
            write(self.path(name, f"strategy_stage_{stage}.ckpt"),
                  strategy_bytes(StageFile(stage, of_stage)))
        return self.path(name)

    # ---- show ----

    def show(self):
        said = run_json("strategy", "show", planned("dp4mp2_opt"))
        check(said["stages"] == 1 and said["stage_ranks"] == 8, said["stages"])
        head = next(p for p in said["parameters"] if p["name"] == "head.weight")
        want = {"name": "head.weight", "stage": 0, "mesh": [4, 2], "map": [[0], []],
                "split": [8, 1], "optimizer_shard": {"step": 2, "size": -1}}
        check(want.items() <= head.items(), head)
        check(head["shape"] is None and head["replicas"][0] == [0], head)
        said = run_json("strategy", "show", planned("dp2mp4_json", suffix="json"))
        head = next(p for p in said["parameters"] if p["name"] == "head.weight")
        check(head["shape"] == [96, 48] and head["replicas"][0] == [0, 4], head)
        check(run("strategy", "show", planned("dp4mp2_opt")).out ==
              run("ls", planned("dp4mp2_opt")).out, "show prints what ls does not")
        refused(run("strategy", "show", self.path("absent")), INPUT, "absent")

    # ---- merge ----

    def merge(self):
        out = self.path("merged.ckpt")
        got = good("strategy", "merge", self.stages("pp3mp8"), "-o", out)
        check(not got.out and not got.err, repr(got))
        merged = read_strategy_file(out).layouts
        want = {f"{s}-{name}": layout for s in range(3)
                for name, layout in plain(read_strategy_file(planned("pp3mp8", s)).layouts)
                .items()}
        check(plain(merged) == want, "not what the stages hold")
        # Files one by one, in any order, and over the old file.
        first = open(out, "rb").read()
        good("strategy", "merge", *(planned("pp3mp8", s) for s in (2, 0, 1)), "--output", out)
        check(open(out, "rb").read() == first, "the order of the files shows")

    def merge_rows(self):
        """The rows of a table that is split manually are kept, in both forms."""
        for form, to_bytes in (("ckpt", strategy_bytes), ("json", strategy_json)):
            stages = [{"a.table": Layout([2], [0, -1], shape=[8, 4], rows=(3, 5), offsets=(0, 3)),
                       "w": Layout([2], [0, -1], shape=[8, 4])},
                      {"b.table": Layout([2], [0, -1], shape=[9, 4], rows=(8, 1), offsets=(0, 8)),
                       "c": Layout([2], [0, -1], shape=[8, 4], rows=(8, 4))}]
            files = [write(self.path(f"rows{number}.{form}"), to_bytes(StageFile(number, layouts)))
                     for number, layouts in enumerate(stages)]
            out = self.path(f"rows.{form}")
            good("strategy", "merge", *files, "-o", out)
            merged = read_strategy_file(out).layouts
            for number, layouts in enumerate(stages):
                for name, layout in layouts.items():
                    got = merged[f"{number}-{name}"]
                    check((got.rows, got.offsets) == (layout.rows, layout.offsets), (name, got))

    def merge_refused(self):
        out = self.path("none.ckpt")
        stages = self.stages("pp2mp4")
        for status, words, said in (
                (USAGE, ["merge", stages], "--output FILE is missing"),
                (USAGE, ["merge", "-o", out], "STRATEGY is missing"),
                (USAGE, ["merge", stages, "-o", out, "--mesh", "mp=2"], "strategy merge has no option --mesh; it is an option of strategy derive"),
                (INPUT, ["merge", stages, "-o", out + ".json"], "not to end in .json"),
                (INPUT, ["merge", self.path("absent"), "-o", out], "absent"),
                (INPUT, ["merge", stages, planned("dp2mp4_json", suffix="json"), "-o", out],
                 "cannot be merged"),
                (INPUT, ["merge", stages, "-o", self.path("no", "such", "out.ckpt")],
                 "out.ckpt")):
            refused(run("strategy", *words), status, said)
            check(not os.path.exists(out), f"{words} left a file")
        left = [name for name in os.listdir(self.directory) if ".tmp-" in name]
        check(not left, left)

    # ---- check ----

    def check_good(self):
        for name in sorted(os.listdir(SETS)):
            if os.path.isdir(os.path.join(SETS, name)):
                path = self.stages(name)
                got = run("strategy", "check", path)
                check(got.status == GOOD and got.out == f"{path}: good\n", repr(got))
        check(not good("strategy", "check", "-q", planned("mp8")).out, "not quiet")

    def check_findings(self):
        layout = Layout([2, 4], [0, -1], 0, 0)
        bad = write(self.path("bad.ckpt"), strategy_bytes(StageFile(0, {
            "first": layout, "lost.axis": Layout([2, 4], [5, -1], 0, 0),
            "other.count": Layout([4], [0], 0, 0),
            "shard": Layout([2, 4], [0, -1], 4, 3)})))
        got = run("strategy", "check", bad)
        lines = got.out.splitlines()
        check(got.status == NO and len(lines) == 3 and not got.err, repr(got))
        for line, word in zip(sorted(lines), ("lost.axis", "other.count", "shard")):
            check(word in line and bad in line, line)
        # Everything is told, of all files, as JSON too.
        empty = write(self.path("empty.ckpt"), b"")
        cut = write(self.path("cut.ckpt"), open(planned("mp8"), "rb").read()[:1000])
        got = run("strategy", "check", bad, empty, cut, planned("mp8"), self.path("absent"),
                  "--json")
        check(got.status == NO, repr(got))
        counts = [len(s["findings"]) for s in json.loads(got.out)["strategies"]]
        check(counts == [3, 1, 1, 0, 1], counts)
        stages = self.stages("pp3mp8")
        os.unlink(os.path.join(stages, "strategy_stage_1.ckpt"))
        got = run("strategy", "check", stages)
        check(got.status == NO and "stage 1 is missing" in got.out, repr(got))

    def two_jobs(self):
        """A directory into which a second job wrote its strategy."""
        job = Job(self.path("two-jobs"))
        job.save(1, 1)
        words = [job.source, "--src-strategy", job.strategy, "--dst-strategy"]
        paths = [self.path("two", name) for name in ("a.ckpt", "b.ckpt")]
        rows, columns = ({"up.weight": Layout([4], where)} for where in ([0, -1], [-1, 0]))
        os.makedirs(self.path("two"))
        for path in paths:
            write(path, strategy_bytes(StageFile(0, rows)))
        good("plan", *words, self.path("two"))
        write(paths[1], strategy_bytes(StageFile(0, columns)))
        said = (f"{paths[1]}: it is of stage 0 like {paths[0]}, but splits parameter up.weight "
                "in another way: they are of two jobs")
        refused(run("plan", *words, self.path("two")), INPUT, said)
        mnt = self.path("two-mnt")
        os.mkdir(mnt)
        refused(run("mount", *words, self.path("two"), mnt), INPUT, said)
        refused(run("plan", *words[:2], self.path("two"), "--dst-strategy", job.strategy), INPUT,
                said)
        got = run("strategy", "check", self.path("two"))
        check(got.status == NO and len(got.out.splitlines()) == 1, repr(got))
        # What MindSpore does.
        good("plan", *words, self.path("two"), "--compat", "mindspore")
        out = self.path("two.ckpt")
        got = good("strategy", "merge", self.path("two"), "-o", out)
        check(f"{paths[1]}: it is of stage 0 like {paths[0]}, but has other content" in got.err,
              repr(got))
        merged = open(out, "rb").read()
        check(not good("strategy", "merge", paths[0], "-o", out).err and
              open(out, "rb").read() == merged, "another file than the first")

    def check_shapes(self):
        whole = self.path("whole", "rank_0")
        os.makedirs(whole)
        write(os.path.join(whole, "net-1_1.ckpt"),
              checkpoint_bytes({"w": Record((6, 2), "Float32", bytes(48))}))
        layout = write(self.path("w.ckpt"), strategy_bytes(StageFile(0, {
            "w": Layout([4], [0, -1], 0, 0)})))
        good("strategy", "check", layout)
        of_whole = ["--checkpoint", self.path("whole")]
        got = run("strategy", "check", layout, *of_whole, "--src-strategy", "none")
        check(got.status == NO and "w: dimension 0 of size 6" in got.out, repr(got))
        refused(run("strategy", "check", layout, *of_whole), USAGE,
                "--checkpoint needs --src-strategy")
        good("strategy", "check", layout, *of_whole, "--src-strategy", self.sharded())

    def sharded(self):
        """A strategy under which the tensors of `whole` are slices."""
        return write(self.path("sharded.ckpt"), strategy_bytes(StageFile(0, {
            "w": Layout([2], [0, -1], 0, 0)})))

    # ---- derive ----

    def derive(self):
        out = self.path("derived.ckpt")
        for source, destination, words in (
                ("mp8", "dp2mp4", ["--mesh", "dp=2,mp=4"]),
                ("dp4mp2_opt2", "mp4", ["--mesh", "mp=4", "--opt", "0"]),
                ("mp4_vocab", "dp2mp4", ["--mesh", "dp=2,tp=4", "--split", "^emb=0:none"])):
            got = good("strategy", "derive", planned(source), *words, "-o", out)
            check(not got.out and "is taken as planned for" in got.err, repr(got))
            check(plain(read_strategy_file(out).layouts) ==
                  plain(read_strategy_file(planned(destination)).layouts), destination)
        check(not good("strategy", "derive", "-q", planned("mp8"), "--mesh", "mp=4", "-o",
                       out).err, "not quiet")
        # A rule with a slip in it is told, the others are not.
        got = good("strategy", "derive", planned("mp4_vocab"), "--mesh", "dp=2,tp=4", "--split",
                   "^emb=0:none", "--split", "^embb=0:none", "--stage", "haed=first", "-o", out)
        idle = [line for line in got.err.splitlines() if "matches no parameter" in line]
        check(len(idle) == 2 and "--split '^embb=0:none'" in idle[0] and
              "--stage 'haed=first'" in idle[1], repr(got))
        # What was derived can be derived from.
        good("strategy", "derive", out, "--mesh", "dp=6,mp=4", "-o", out)
        check(plain(read_strategy_file(out).layouts) ==
              plain(read_strategy_file(planned("dp6mp4")).layouts), "derived twice")

    def derive_refused(self):
        out = self.path("none.ckpt")
        mp8 = planned("mp8")
        for status, words, said in (
                (USAGE, [mp8, "-o", out], "--mesh MESH is missing"),
                (USAGE, [mp8, "--mesh", "mp=2"], "--output FILE is missing"),
                (USAGE, [mp8, mp8, "--mesh", "mp=2", "-o", out], "too many operands"),
                (USAGE, [mp8, "--mesh", "mp:2", "-o", out], "is not NAME=NUMBER"),
                (USAGE, [mp8, "--mesh", "mp=2", "--opt", "x", "-o", out], "opt: optimizer"),
                (USAGE, [mp8, "--mesh", "mp=2", "--split", "a", "-o", out], "split: rule"),
                (INPUT, [self.path("absent"), "--mesh", "mp=2", "-o", out], "absent"),
                (USAGE, [mp8, "--mesh", "mp=0", "-o", out], "a number from 1 to"),
                (INPUT, ["none", "--mesh", "mp=2", "-o", out], "--checkpoint"),
                (INPUT, [mp8, "--mesh", "mp=2,pp=2", "-o", out], "--checkpoint"),
                (INPUT, [mp8, "--mesh", "mp=2", "--checkpoint", self.path("absent"), "-o",
                         out], "absent"),
                (INPUT, [planned("dp2mp4_layout"), "--mesh", "mp=4", "-o", out], "--axes"),
                (INPUT, [planned("dp2mp4_layout"), "--mesh", "dp=2,mp=4", "-o",
                         self.path("none.json")], "cannot be written as JSON")):
            refused(run("strategy", "derive", *words), status, said)
        # The rows of a table that is split manually are not known for another mesh.
        by_hand = write(self.path("by_hand.ckpt"), strategy_bytes(StageFile(0, {
            "w": Layout([2], [0, -1]),
            "table": Layout([2], [0, -1], rows=(3, 5), offsets=(0, 3))})))
        refused(run("strategy", "derive", by_hand, "--mesh", "mp=4", "-o", out), INPUT,
                f"{by_hand}: parameter table: its rows are split manually", "--drop")
        good("strategy", "derive", by_hand, "--mesh", "mp=4", "--drop", "table", "-o",
             self.path("rest.ckpt"))
        check(not os.path.exists(out), "a file was left")
        refused(run("strategy", "mend", mp8), USAGE, "strategy mend")

    def derive_not_known(self):
        out = self.path("none.ckpt")
        for number, (stages, words, said) in enumerate(NOT_KNOWN):
            source = self.made(f"stages{number}", [
                {f"{name}.w": Layout([2, 2], [0, -1]) for name in names.split()}
                for names in stages])
            refused(run("strategy", "derive", source, *words, "-o", out), INPUT, said)
        # Nobody asks for the stages of a parameter that is left out.
        for words in (["pp=3", "--drop", "x"], ["pp=1", "--drop", "x", "--stage", "x=7"]):
            good("strategy", "derive", self.path("stages3"), "--mesh", f"dp=4,mp=2,{words[0]}",
                 *words[1:], "-o", self.path(f"dropped-{words[0]}"))
        shards = self.made("shards", [{"l.w": Layout([4], [-1, -1], 1, 4)}])
        refused(run("strategy", "derive", shards, "--mesh", "dp=8", "-o", out), INPUT,
                "in the source every shard takes all ranks; use --opt")
        lone = write(self.path("strategy_stage_1.ckpt"),
                     strategy_bytes(StageFile(1, {"l.w": Layout([2], [0])})))
        refused(run("strategy", "derive", lone, "--mesh", "mp=2", "-o", out), INPUT,
                f"{lone}: this is the file of stage 1 alone; give those of all stages")
        rules = [word for _ in range(65) for word in ("--split", "w=0:mp")]
        refused(run("strategy", "derive", lone, "--mesh", "mp=2", *rules, "-o", out), USAGE,
                'rule "w=0:mp": more than 64 of its kind')
        check(not os.path.exists(out), "a file was left")

    # ---- mount --dst-mesh ----

    def mount_mesh(self):
        layouts = {"w": Layout([2, 4], [0, -1], 0, 0), "b": Layout([2, 4], [-1], 1, -1)}
        src = write(self.path("src.ckpt"), strategy_bytes(StageFile(0, layouts)))
        for rank in range(8):
            os.makedirs(self.path("tree", f"rank_{rank}"))
            write(self.path("tree", f"rank_{rank}", "net-1_1.ckpt"), checkpoint_bytes({
                "w": Record((4, 2), "Int8", bytes([rank % 4] * 8)),
                "b": Record((2,), "Int8", bytes([rank] * 2))}))
        dst = self.path("dst.ckpt")
        good("strategy", "derive", src, "--mesh", "dp=2,mp=2", "--checkpoint", self.path("tree"), "-o",
             dst)
        with Mounted(self.path("tree"), src_strategy=src, dst_strategy=dst) as m:
            want = hash_tree(m.path)
        mounted = Mounted(self.path("tree"), src_strategy=src,
                          extra=["--dst-mesh", "dp=2,mp=2"])
        at = mounted.command.index("--dst-strategy")
        del mounted.command[at:at + 2]
        with mounted as m:
            check(len(want) == 4 and not tree_difference(want, hash_tree(m.path)),
                  "--dst-mesh shows something else")
            check("is taken as planned for dp=2,mp=4" in m.log(), m.log())

    def merge_into(self):
        """A rename puts no file in the place of a device or a link."""
        device, link, target = (self.path(name) for name in ("null", "link", "target"))
        os.mkfifo(device)
        os.symlink("target", link)
        write(target, b"old")
        reader = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
        for output in (device, link):
            good("strategy", "merge", "-o", output, planned("dp2mp4"))
        with os.fdopen(reader, "rb") as f:
            piped = f.read()
        check(stat.S_ISFIFO(os.stat(device).st_mode) and os.path.islink(link), "replaced")
        check(content(target) == piped and len(piped) > 100, len(piped))

    def other_commands(self):
        """The commands of a conversion take a mesh as well."""
        said = {}
        for name, words in (("file", ["--dst-strategy", self.path("dst.ckpt")]),
                            ("mesh", ["--dst-mesh", "dp=2,mp=2"])):
            *said[name], listed = [
                good(*command, "--src-strategy", self.path("src.ckpt"), *words,
                     self.path("tree")).out
                for command in (["plan", "--rank-list"], ["plan", "--json"], ["ls"])]
            listed, command = listed.rsplit("next: ", 1)
            check("=".join(words) in command, command)
            said[name].append(listed)
        check(said["file"] == said["mesh"] and said["file"][0], said)

    def mount_refused(self):
        mnt = self.path("mnt")
        os.makedirs(mnt, exist_ok=True)
        for status, words, said in (
                (USAGE, ["--dst-mesh", "mp=2", "--dst-strategy", "none"], "cannot be used together"),
                (USAGE, ["--dst-mesh", "mp=2", "--split", "w=0:mp"], "mount has no option --split"),
                (USAGE, ["--dst-mesh", "mp=2", "--resume"], "--resume"),
                (USAGE, [], "or --dst-mesh"),
                (INPUT, ["--dst-mesh", "mp=3"], "cannot be cut into 3"),
                (INPUT, ["--dst-mesh", "mp=3"], "strategy derive")):
            refused(run("mount", "--src-strategy", self.path("src.ckpt"), *words,
                        self.path("tree"), mnt), status, said)


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-strategy-") as directory:
        bench = Bench(directory)
        for name in ("show", "merge", "merge_rows", "merge_refused", "merge_into", "check_good",
                     "check_findings", "two_jobs", "check_shapes", "derive", "derive_refused", "derive_not_known",
                     "mount_mesh", "other_commands", "mount_refused"):
            with tap.test(name.replace("_", " ")):
                getattr(bench, name)()
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
