#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every contradiction between strategies and files is an error at mount time,
with a message that names the file, the parameter and the layouts.

Each case makes a small tree that is right but for one thing.  The first test
mounts the tree as it is, so that no case can fail for another reason.  What is
wrong within a file or a plan has cases in unit/test_wire_strategy,
test_strategy_strategy, test_plan_errors and test_wire_ckpt_scan.
"""

import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, content, write  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes, strategy_json)
from rsh_mount import (MountError, Mounted, Tap, expect_failure,  # noqa: E402
                       hash_tree, require_mount)


class Tree:
    """Four ranks in two dimensions, and the strategies for and from them."""

    def __init__(self, directory):
        self.directory = directory
        self.source = os.path.join(directory, "source")
        self.src = os.path.join(directory, "src.ckpt")
        self.dst = os.path.join(directory, "dst.ckpt")
        self.extra = []
        for rank in range(4):
            self.write_rank(rank, self.records())
        self.write_strategy(self.src, self.layouts([2, 2]))
        self.write_strategy(self.dst, self.layouts([2]))

    @staticmethod
    def records():
        """What each rank holds; w is cut over mp 2, v not at all."""
        return {"w": Record((4, 6), "Float32", bytes(range(96))),
                "v": Record((5,), "Float16", bytes(10)),
                "step_num": Record((), "Int64", bytes(8))}

    @staticmethod
    def layouts(mesh):
        return {"w": Layout(mesh, [0, -1]), "v": Layout(mesh, [-1])}

    def rank_file(self, rank):
        return os.path.join(self.source, f"rank_{rank}", f"net-1_{5}.ckpt")

    def write_rank(self, rank, records):
        write(self.rank_file(rank), checkpoint_bytes(records))

    @staticmethod
    def write_strategy(path, layouts):
        write(path, strategy_bytes(StageFile(0, layouts)))

    def change(self, ranks, name, *, dims=None, dtype=None, content=None):
        """Another shape, type or content of one parameter on some ranks."""
        for rank in ranks:
            records = self.records()
            old = records[name]
            records[name] = Record(dims or old.dims, dtype or old.dtype,
                                   old.content if content is None else content)
            self.write_rank(rank, records)


# Else the rank that holds the same makes up for a damaged file.
NO_REPLICAS = ["--replicas", "off"]


# ---- the cases: each returns what the message must contain ----

def src_strategy_missing(t):
    t.src += ".gone"
    return [f"strategy {t.src}: No such file"]


def dst_strategy_missing(t):
    t.dst += ".gone"
    return [f"strategy {t.dst}: No such file"]


def strategy_no_file(t):
    t.src = "/dev/null"
    return ["/dev/null: not a regular file"]


def strategy_too_large(t):
    os.truncate(t.src, 300 << 20)
    return [f"{t.src}: not a strategy file: it has 314572800 bytes"]


def strategy_damaged(t):
    data = content(t.src)
    write(t.src, data[:-3])
    return [t.src, "damaged"]


def strategy_in_json_under_another_name(t):
    write(t.src, strategy_json(StageFile(0, {})))
    return [t.src, ".json"]


def strategy_directory_empty(t):
    t.src = os.path.join(t.directory, "empty")
    os.mkdir(t.src)
    return [t.src, "no strategy file"]


def stage_file_is_no_strategy(t):
    t.src = os.path.join(t.directory, "src")
    t.write_strategy(os.path.join(t.src, "stage_0.ckpt"), t.layouts([2]))
    path = os.path.join(t.src, "stage_1.ckpt")
    write(path, b"\0" * 40)
    return [path, "not a strategy"]


def source_missing(t):
    t.source += ".gone"
    return [f"source {t.source}: No such file"]


def source_is_a_file(t):
    t.source = t.src
    return [f"{t.source}: this file is not a checkpoint: SOURCE is the directory"]


def source_without_ranks(t):
    for rank in range(4):
        shutil.rmtree(os.path.dirname(t.rank_file(rank)))
    return [t.source, "no rank_N"]


def rank_missing(t):
    for rank in (1, 3):  # the second half of w, and its replica
        shutil.rmtree(os.path.dirname(t.rank_file(rank)))
    return [t.source, "rank 1", "parameter w", "[2,2]", "[2]"]


def rank_twice(t):
    shutil.copytree(os.path.dirname(t.rank_file(1)),
                    os.path.join(t.source, "rank_01"))
    return [t.source, "rank 1", "rank_01"]


def no_common_step(t):
    # Either step has one half of w.
    for rank in (0, 2):
        os.rename(t.rank_file(rank), t.rank_file(rank).replace("1_5", "1_6"))
    return [t.source, "tried 2", "epoch 1 step 6: ", "epoch 1 step 5: ",
            "rank 1 needs its slice of parameter w"]


def several_without_step(t):
    """Where a rank has no name with a step, nothing says which is meant."""
    shutil.copy(t.rank_file(1), os.path.join(t.source, "rank_1", "other.ckpt"))
    os.rename(t.rank_file(1), os.path.join(t.source, "rank_1", "net.ckpt"))
    return [os.path.join(t.source, "rank_1"), "net.ckpt", "other.ckpt", "--select name=GLOB"]


def shard_does_not_divide(t):
    t.write_strategy(t.dst, {"w": Layout([8], [-1, -1], 1, 3)})
    return ["parameter w", "size 3", "[2,2]", "[8]"]


def slices_of_two_shapes(t):
    t.change((1, 3), "w", dims=(4, 7), content=bytes(112))
    return [t.rank_file(1), t.rank_file(0), "parameter w", "[4,7]", "[4,6]",
            t.src]


def record_damaged(t):
    t.extra = NO_REPLICAS
    data = content(t.rank_file(1))
    write(t.rank_file(1), data[:5] + b"\xff" * 8 + data[13:])
    return [t.rank_file(1), "offset"]


def file_is_something_else(t):
    t.extra = NO_REPLICAS
    write(t.rank_file(1), b"\x89HDF\r\n\x1a\n" + b"\x55" * 500)
    return [t.rank_file(1), "this is an HDF5 file"]


def file_encrypted(t):
    t.extra = NO_REPLICAS
    write(t.rank_file(1), (0x7F3A5ED8).to_bytes(4, "little") + b"\x55" * 500)
    return [t.rank_file(1), "encrypted"]


def names_that_are_none(t):
    path = os.path.join(t.directory, "names.json")
    write(path, b'{"w": ""}')
    t.extra = ["--rename", path]
    return [f'{path}: "w": old and new name have to be strings that are not empty']


def renamed_in_the_strategy(t):
    path = os.path.join(t.directory, "names.json")
    write(path, b'{"w": "tok"}')
    t.write_strategy(t.dst, {"tok": Layout([2], [0, -1]), "v": Layout([2], [0])})
    t.extra = ["--rename", path]
    return ["a strategy has tok, a new name of --rename; strategies need the names in SOURCE"]


def renamed_in_the_strategy_and_not_selected(t):
    """--only selects names in SOURCE, so the strategy's is still that of the weight."""
    said = renamed_in_the_strategy(t)
    t.extra += ["--only", "^w|^v"]
    return said


def not_listed(t):
    t.write_strategy(t.dst, {"w": Layout([2], [0, -1])})
    t.extra = ["--unlisted", "error"]
    return [f"parameter v is not listed by {t.dst}"]


def type_that_torch_lacks(t):
    t.change(range(4), "w", dtype="Int4", content=bytes(24))
    t.dst = None
    t.extra = ["--format", "dcp"]
    return ['parameter "w" is of type Int4, which PyTorch does not have; --drop leaves it out']


def nothing_wanted(t):
    """--only looks at the names in the source."""
    path = os.path.join(t.directory, "names.json")
    write(path, b'{"w": "tok_embeddings.weight"}')
    t.extra = ["--rename", path, "--only", "^tok_"]
    return [t.source, "no parameter is left"]


def nothing_wanted_of_a_whole_model(t):
    t.dst = None
    t.extra = ["--format", "hf", "--drop", "."]
    return [t.source, "no parameter is left"]


def nothing_listed_of_what_is_wanted(t):
    t.write_strategy(t.dst, {"w": Layout([2], [0, -1])})
    t.extra = ["--unlisted", "drop", "--only", "^v$"]
    return [t.source, "no parameter is left"]


CASES = [case for name, case in list(globals().items())
         if getattr(case, "__code__", None) and
         case.__code__.co_varnames[:1] == ("t",) and case.__module__ == __name__]


def run(case):
    with tempfile.TemporaryDirectory(prefix="reshardfs-errors-") as directory:
        tree = Tree(directory)
        words = case(tree)
        # A damaged file would else be left to the ranks that hold the same.
        status, said = expect_failure(tree.source, src_strategy=tree.src,
                                      dst_strategy=tree.dst, extra=tree.extra)
        check(status == 3, f"exit status {status}\n{said}")
        lines = [line for line in said.splitlines() if ": error: " in line]
        check(len(lines) == 1, f"{len(lines)} lines of error\n{said}")
        missing = [word for word in words if word not in lines[0]]
        check(not missing, f"no {missing} in the message\n{said}")


def mounts(directory, prepare):
    tree = Tree(directory)
    prepare(tree)
    with Mounted(tree.source, src_strategy=tree.src, dst_strategy=tree.dst) as m:
        return hash_tree(m.path)


def tells_what_fits_nothing(directory):
    """Of --only, --drop and --rename; what fits something is not told."""
    t = Tree(directory)
    names = os.path.join(directory, "names.json")
    write(names, json.dumps({"w": "x", **{f"n{i}": f"m{i}" for i in range(6)}}).encode())
    for words, told in (
            (["--drop", "^wpe"], ['--drop "^wpe" matches no parameter; there are 3, such as ']),
            (["--only", "^w", "--drop", "v"], []), (["--rename", names, "--drop", "m1"], [
                '--drop "m1" matches no parameter; there are 3, such as ',
                f"--rename {names}: no parameter is called n0, n1, n2, n3 and 2 more; "
                "there are 3, such as "])):
        with Mounted(t.source, src_strategy=t.src, dst_strategy=t.dst, extra=words) as m:
            said = [line for line in m.log().splitlines() if "warning" in line]
        if len(said) != len(told) or any(w not in line for w, line in zip(told, said)):
            raise MountError(f"{words}: {said}")
    _, said = expect_failure(t.source, src_strategy=t.src, dst_strategy=t.dst,
                             extra=["--only", "^tok_"])
    check('--only "^tok_" matches no parameter; there are 3, such as ' in said, said)


def main():
    require_mount()
    tap = Tap(len(CASES) + 4)
    with tempfile.TemporaryDirectory(prefix="reshardfs-errors-") as directory:
        good = {}
        with tap.test("the tree without an error can be mounted"):
            good = mounts(os.path.join(directory, "a"), lambda t: None)

        def without_replicas(t):
            for rank in (2, 3):
                shutil.rmtree(os.path.dirname(t.rank_file(rank)))

        with tap.test("ranks that nobody needs may be missing"):
            found = mounts(os.path.join(directory, "b"), without_replicas)
            check(found == good and len(found) == 2, f"{found} instead of {good}")

        def others_beside(t):
            os.mkdir(os.path.join(t.source, "rank_x"))
            os.mkdir(os.path.join(t.source, "rank_77"))
            write(os.path.join(t.source, "rank_9"), b"")
            write(os.path.join(t.source, "rank_0", ".net-9_9.ckpt"), b"")
            write(os.path.join(t.source, "rank_0", "net-9_9.tmp"), b"")
            write(os.path.join(t.source, "rank_0", "net-9_9.ckpt.tmp"), b"")
            write(os.path.join(t.source, "rank_0", "net-graph.meta"), b"")
            os.mkdir(os.path.join(t.source, "rank_0", "net-9_9.ckpt"))

        with tap.test("what is no checkpoint does not count"):
            found = mounts(os.path.join(directory, "c"), others_beside)
            check(found == good, f"{found} instead of {good}")
        with tap.test("what fits no parameter is told"):
            tells_what_fits_nothing(os.path.join(directory, "d"))
    for case in CASES:
        with tap.test(case.__name__.replace("_", " ")):
            run(case)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
