#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checkpoint 2.0 trees as a source: genuine ones, whole and in other strategies, with
files lost, steps interrupted, and what each of them is refused for.

The yardstick is tests/data/checkpoint2/*.expected.json: hashes of the known tensors,
and of the slices that mindformers' own loader gives the ranks of other jobs.
"""

import hashlib
import json
import os
import shutil
import stat
import struct
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

from demands import check, content, demand, error_line, flip, write  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from rsh_cli import GOOD, INPUT, NO, good, refused, run, run_json  # noqa: E402
from rsh_mount import Mounted, Tap, Tests, expect_failure, require_mount, spoken  # noqa: E402
from safetensors_format import SUFFIX, Tensors, read_model, values_of  # noqa: E402

DATA = os.path.abspath(os.path.join(HERE, "data", "checkpoint2"))
TRACKER = "latest_checkpointed_iteration.txt"
TYPES = {"Float32": "F32", "BFloat16": "BF16", "Int32": "I32"}
test = Tests("checkpoint2")


def expected_of(name):
    return json.loads(content(os.path.join(DATA, name + ".expected.json")))


TREES = sorted(n[:-len(".expected.json")] for n in os.listdir(DATA)
               if n.endswith(".expected.json") and not n.startswith("dcp_"))


def hashes(values):
    return {name: [dtype, list(shape), hashlib.sha256(data).hexdigest()]
            for name, (dtype, shape, data) in values.items()}


def same(found, expected, counters, what):
    """found has these tensors, by the first digits of their hashes, and else nothing but
    counters that no layout names."""
    for name, (dtype, shape, digits) in expected.items():
        check(name in found, f"{what}: {name} is missing")
        dtype_found, shape_found, digits_found = found[name]
        check((dtype_found, shape_found, digits_found[:len(digits)]) ==
              (TYPES[dtype], shape, digits), f"{what}: {name} differs")
    beside = set(found) - set(expected)
    check(beside <= {"global_step", "learning_rate"}, f"{what}: {sorted(beside)} beside")
    if "global_step" in found and counters:
        check(found["global_step"][2].startswith(counters), f"{what}: global_step differs")


def shown(path):
    if path.endswith(SUFFIX):
        return Tensors(content(path)).values()
    return values_of(read_checkpoint(path))


def only_file(mount, rank):
    folder = os.path.join(mount.path, f"rank_{rank}")
    (name,) = os.listdir(folder)
    return os.path.join(folder, name)


def is_whole(root, tree, *extra, words=(), never=()):
    """What a mount shows is the whole model; its log."""
    expected = expected_of(tree)
    with Mounted(root, described=True, extra=extra) as m:
        same(hashes(shown(only_file(m, 0))), expected["whole"],
             expected["global_step_hash"], tree)
        said = m.log()
    demand(said, *words)
    for word in never:
        check(word not in said, f"{word!r} is said: {said}")
    return said


def is_refused(root, *words, extra=(), **strategies):
    status, said = expect_failure(root, described="src_strategy" not in strategies,
                                  extra=extra, **strategies)
    check(status == INPUT, f"exit status {status}: {said}")
    demand(said, *words)


class Copy:
    """A copy of a genuine tree that may be changed."""

    def __init__(self, tree):
        self.tree = tree
        self.root = os.path.join(tempfile.mkdtemp(prefix="reshardfs-checkpoint2-"), "save")
        shutil.copytree(os.path.join(DATA, tree), self.root)
        for at, _, names in os.walk(self.root):
            os.chmod(at, 0o755)
            for name in names:
                os.chmod(os.path.join(at, name), 0o644)
        self.step = sorted(n for n in os.listdir(self.root) if n.startswith("iteration"))[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(os.path.dirname(self.root))

    def path(self, name):
        return os.path.join(self.root, self.step, name)

    def files(self):
        return sorted(n for n in os.listdir(self.path("")) if n.endswith(SUFFIX))

    def metadata(self, change):
        data = json.loads(content(self.path("metadata.json")))
        change(data)
        write(self.path("metadata.json"), json.dumps(data).encode())

    def track(self, text):
        write(os.path.join(self.root, TRACKER), text.encode())

    def copy_step(self, step):
        """The step once more, under another number."""
        name = f"iteration_{step:08}"
        shutil.copytree(self.path(""), os.path.join(self.root, name))
        return name


# ---- genuine trees ----

def for_each_tree(function):
    for tree in TREES:
        def one(tree=tree):
            function(tree)
        one.__name__ = f"{function.__name__} {tree}"
        test(one)
    return function


@for_each_tree
def whole_model_of(tree):
    root = os.path.join(DATA, tree)
    is_whole(root, tree)
    is_whole(root, tree, "--format", "safetensors")
    expected = expected_of(tree)
    with Mounted(root, described=True, extra=("--format", "hf", "--optimizer", "keep", "--part-size",
                                              "20000")) as m:
        _, parts = read_model(m.path)
        values = {n: v for p in parts.values() for n, v in p.values().items()}
        check(len(parts) > 1, "one part")
        same(hashes(values), expected["whole"], expected["global_step_hash"], "parts")


@for_each_tree
def ranks_of_other_jobs_from(tree):
    expected = expected_of(tree)
    for wanted, job in expected["ranks"].items():
        strategy = os.path.join(DATA, "strategies", wanted)
        for form in "ckpt", "safetensors":
            with Mounted(os.path.join(DATA, tree), described=True, dst_strategy=strategy,
                         extra=("--format", form)) as m:
                check(len(os.listdir(m.path)) == job["n_ranks"], f"{os.listdir(m.path)}")
                for rank, slices in job["hashes"].items():
                    same(hashes(shown(only_file(m, rank))), slices,
                         expected["global_step_hash"], f"{wanted}, rank {rank}")


@test
def ranks_of_a_job_that_another_tree_describes():
    for tree, wanted in (("dp2mp4_nested_rr", "dp4mp2_opt"), ("pp2dp2mp2_opt_rr", "pp2mp4_v200")):
        expected = expected_of(tree)
        job = expected["ranks"][wanted.removesuffix("_v200")]
        for name in "iteration_00000008/metadata.json", "iteration_00000008", "":
            with Mounted(os.path.join(DATA, tree), described=True,
                         dst_strategy=os.path.join(DATA, wanted, name)) as m:
                check(len(os.listdir(m.path)) == job["n_ranks"], f"{os.listdir(m.path)}")
                for rank, slices in job["hashes"].items():
                    same(hashes(shown(only_file(m, rank))), slices,
                         expected["global_step_hash"], f"{wanted}, rank {rank}")


@for_each_tree
def commands_on(tree):
    root = os.path.join(DATA, tree)
    step = f"iteration_{expected_of(tree)['iteration']:08}"
    check(run("verify", root).status == GOOD, f"{run('verify', root)}")
    got = run_json("ls", "--json", root)
    check(got["mount"]["takes"] == step and got["newest_whole"] == step, f"{got['mount']}")
    first = next(s for s in got["steps"] if s["name"] == step)
    check(first["whole"] and first["epoch"] is None and
          first["step"] == expected_of(tree)["iteration"], f"{first}")
    files = sorted(n for n in os.listdir(os.path.join(root, step)) if n.endswith(SUFFIX))
    check(sorted(os.path.basename(f["path"]) for f in first["files"]) == files, f"{first}")
    names = {t["name"] for t in got["tensors"]["list"]}
    check(set(expected_of(tree)["whole"]) <= names, f"{names}")
    plan = run_json("plan", "--json", root)
    check(plan["step"] == step, f"{plan}")


@test
def one_step_is_a_source_of_its_own():
    with Copy("dp4mp2_opt") as c:
        is_whole(c.path(""), c.tree)
        os.rename(c.path(""), os.path.join(c.root, "other"))
        is_whole(os.path.join(c.root, "other"), c.tree)
        check(run_json("ls", "--json", os.path.join(c.root, "other"))["mount"]["takes"] ==
              "other", "another name")


@test
def the_default_is_one_whole_model():
    with tempfile.TemporaryDirectory() as out:
        got = good("export", os.path.join(DATA, "dp4mp2_opt"), os.path.join(out, "there"))
        check(os.listdir(os.path.join(out, "there", "rank_0")) == ["checkpoint_0.ckpt"], f"{got}")


@test
def ranks_of_one_file_are_shown_as_they_are():
    root = os.path.join(DATA, "interrupted", "iteration_00000004")
    with Mounted(root, described=True, dst_strategy=os.path.join(root, "metadata.json"),
                 extra=("--format", "safetensors")) as m:
        for rank in range(4):
            check(content(only_file(m, rank)) ==
                  content(os.path.join(root, f"model-{rank:07}-0000004.safetensors")),
                  f"rank {rank}")


@test
def manifests_are_of_one_step():
    with Copy("pp2mp4_v200") as c:
        manifest, out = os.path.join(c.root, "..", "manifest"), os.path.join(c.root, "..", "out")
        strategy = os.path.join(DATA, "strategies", "dp2")
        words = ("--dst-strategy", strategy, c.root)
        for got in (run("export", *words, out), run("verify", *words, out),
                    run("verify", "--write-manifest", manifest, *words),
                    run("verify", *words, manifest), run("verify", manifest, out)):
            check(got.status == GOOD, f"{got}")
        with open(manifest, encoding="utf-8") as f:
            head, *lines = map(json.loads, f)
        check(head["src_strategy"]["path"] == c.path("metadata.json"), f"{head}")
        check(len({s["source"] for s in lines if "source" in s}) == 16, f"{lines}")
        c.metadata(lambda d: d["state_dict_metadata"]["blocks.0.qkv.bias"].update(
            {"global_shape": [48], "allow_to_save": False}))
        check(run("verify", *words, manifest).status == GOOD, "nothing of it changed")


@test
def attributes_name_every_file():
    with Copy("dp4mp2_opt") as c:
        model, opt = c.path("model-0000003-0000008.safetensors"), c.path(
            "opt-0000003-0000008.safetensors")
        os.chmod(opt, 0o400)
        os.utime(opt, (2000000000, 2000000000))
        with Mounted(c.root, described=True) as m:
            path = only_file(m, 0)
            sources = os.getxattr(path, "user.reshardfs.sources").decode().split("\n")
            check(model in sources and opt in sources and len(sources) == 16, f"{sources}")
            found = os.stat(path)
            check(found.st_mtime == 2000000000, "the newest file's time")
            check(stat.S_IMODE(found.st_mode) == 0o400, "what all may read")


# ---- files that are lost ----

def lose(path):
    os.remove(path)


def cut_short(path):
    os.truncate(path, os.path.getsize(path) - 4)


def overwrite(path):
    write(path, b"\0" * 100)


def losing_each_file_of(tree, always):
    """A mount is right without any one file, or it is refused; `always`: it is right."""
    with Copy(tree) as c:
        n_refused = 0
        for name in c.files():
            for harm in lose, cut_short, overwrite:
                kept = content(c.path(name))
                harm(c.path(name))
                try:
                    # A plan tells in a tenth of the time whether a mount would do.
                    got = run("plan", c.root)
                    if got.status == GOOD:
                        is_whole(c.root, tree, words=(name,))
                    else:
                        n_refused += 1
                        check(got.status == INPUT and not always, f"{name}: {got}")
                        demand(error_line(got.err), "parameter" if harm is lose else name)
                finally:
                    write(c.path(name), kept)
        check(bool(n_refused) != always, f"{n_refused} refused")


@test
def any_file_of_a_tree_with_replicas_may_be_lost():
    losing_each_file_of("interrupted", True)


@test
def a_lost_slice_of_a_tree_without_replicas_is_told():
    losing_each_file_of("pp2dp2mp2_opt_rr", False)


@test
def a_file_of_either_kind_may_be_lost_beside_each_other():
    with Copy("pp2dp2mp2_opt_rr") as c:
        lose(c.path(c.files()[1]))
        with Mounted(c.root, described=True, extra=("--allow-missing",),
                     dst_strategy=os.path.join(DATA, "strategies", "pp2mp4")) as m:
            demand(m.log(), "slices are lost")
            check(len(os.listdir(m.path)) == 8, "ranks")


@test
def a_file_that_is_lost_while_it_is_read():
    with Copy("interrupted") as c:
        expected = expected_of(c.tree)
        with Mounted(c.root, described=True) as m:
            for name in c.files()[:2]:
                os.truncate(c.path(name), 8)
            same(hashes(shown(only_file(m, 0))), expected["whole"], None, c.tree)


@test
def verify_tells_lost_slices_and_damage():
    with Copy("pp2dp2mp2_opt_rr") as c:
        name = c.files()[1]
        lose(c.path(name))
        got = run("verify", c.root)
        check(got.status == NO, f"{got}")
        demand(got.out, f"{name}: is missing", "slices that it describes are in no sound file")
    with Copy("interrupted") as c:
        lose(c.path(c.files()[1]))
        got = good("verify", c.root)
        demand(got.out, "1 rank has no file, but others hold the same")
        flip(c.path(c.files()[0]), -1)
        got = run("verify", c.root)
        check(got.status == NO, f"{got}")
        demand(got.out, "differs from the same slice of rank")


@test
def all_optimizer_files_are_taken_away():
    with Copy("dp4mp2_opt") as c:
        for name in c.files():
            if name.startswith("opt"):
                lose(c.path(name))
        with Mounted(c.root, described=True) as m:
            demand(m.log(), "8 of the 16 files that it names are not there",
                   "50 of the 75 parameters that it describes are in no file and left out")
            expected = {n: v for n, v in expected_of(c.tree)["whole"].items()
                        if not n.startswith("adam_")}
            same(hashes(shown(only_file(m, 0))), expected, None, c.tree)


# ---- which step ----

@test
def an_interrupted_save():
    said = is_whole(os.path.join(DATA, "interrupted"), "interrupted")
    check("warning" not in said, said)


@test
def the_tracker_comes_first():
    with Copy("dp2mp4_nested_rr") as c:
        c.copy_step(20)
        c.track(" 8\n")
        is_whole(c.root, c.tree, words=("several steps, taking iteration_00000008",))
        c.track("20")
        is_whole(c.root, c.tree, words=("taking iteration_00000020",))
        is_whole(c.root, c.tree, "--select", "step=8", never=("several steps",))
        is_whole(c.root, c.tree, "--select", "name=*_00000008", never=("several steps",))
        lose(os.path.join(c.root, "iteration_00000020", c.files()[0]))
        is_whole(c.root, c.tree, words=("iteration_00000020 cannot be used, using iteration_00000008 "
                                        "instead",))
        is_refused(c.root, "iteration_00000020", extra=("--fallbacks", "0"))
        is_refused(c.root, "no checkpoint of step 9; it contains iteration_", extra=("--select", "step=9"))
        is_refused(c.root, "reads no Checkpoint 2.0", extra=("--select", "mindspore"))


@test
def a_tracker_that_names_nothing():
    with Copy("dp4mp2_opt") as c:
        c.copy_step(100000007)
        for text, words in (("12", "it names step 12, which is not there"),
                            ("12x", "it does not name a step"), ("", "it does not name a step"),
                            ("99999999999999999999999", "it does not name a step")):
            c.track(text)
            said = is_whole(c.root, c.tree, words=(words, "taking iteration_100000007"))
            check(said.count("warning") == 1, said)
        lose(os.path.join(c.root, TRACKER))
        said = is_whole(c.root, c.tree, words=("taking iteration_100000007",))
        check("warning" not in said, said)


@test
def steps_of_several_sizes():
    with Copy("dp4mp2_opt") as c:
        for step, tree in ((9, "single"), (10, "interrupted"), (11, "pp2mp4_v200")):
            at = expected_of(tree)["iteration"]
            shutil.copytree(os.path.join(DATA, tree, f"iteration_{at:08}"),
                            os.path.join(c.root, f"iteration_{step:08}"))
            c.track(str(step))
            is_whole(c.root, tree)
        got = run_json("ls", "--json", c.root)
        check([s["whole"] for s in got["steps"]] == [True] * 4, f"{got['steps']}")


@test
def a_rank_is_missing_once():
    with Copy("dp4mp2_opt") as c:
        for name in c.files():
            if "-0000003-" in name or "-0000004-" in name:
                lose(c.path(name))
        (step,) = json.loads(run("ls", "--json", c.root).out)["steps"]
        check(step["missing_ranks"] == [3, 4], f"{step['missing_ranks']}")


@test
def metadata_is_what_makes_a_step_of_several_ranks():
    with Copy("dp4mp2_opt") as c:
        lose(c.path("metadata.json"))
        is_refused(c.root, "metadata.json is missing", "the files of 8 ranks",
                   "the save was not finished")
        write(c.path("metadata.json"), b'{"state_dict_metadata": {')
        is_refused(c.root, "metadata.json")
        c.step = c.copy_step(7)
        shutil.copy(os.path.join(DATA, c.tree, "iteration_00000008", "metadata.json"),
                    c.path("metadata.json"))
        is_whole(c.root, c.tree, words=("iteration_00000008 cannot be used",))
    with Copy("dp4mp2_opt") as c:
        for name in c.files():
            os.rename(c.path(name), c.path(name[:-len(SUFFIX)] + ".tmp"))
        is_refused(c.root, "no step in it has a file that was completed")


# ---- where metadata and files disagree ----

def rewrite(path, change):
    """A safetensors file with other tensors, {name: [type, shape, bytes]}."""
    values = {n: list(v) for n, v in Tensors(content(path)).values().items()}
    change(values)
    header, at = {}, 0
    for name, (dtype, shape, data) in values.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    write(path, struct.pack("<Q", len(text)) + text + b"".join(v[2] for v in values.values()))


@test
def what_is_described_and_in_no_file():
    is_whole(os.path.join(DATA, "pp2mp4_v200"), "pp2mp4_v200",
             words=("parameters that it describes are in no file and left out, such as "
                    "accu_grads.",))


@test
def a_weight_that_is_described_and_in_no_file():
    """States of the optimizer may be saved or not; a weight is lost, though no file is."""
    with Copy("dp2mp4_nested_rr") as c:
        def without(values):
            del values["blocks.1.down.bias"]

        holders = [c.path(name) for name in c.files()
                   if "blocks.1.down.bias" in Tensors(content(c.path(name))).values()]
        check(holders, "no file has it")
        for path in holders:
            rewrite(path, without)
        with tempfile.TemporaryDirectory() as top:
            got = run("export", "--format", "hf", c.root, os.path.join(top, "out"))
        check(got.status == GOOD, f"{got}")
        demand(got.err, "1 weight that ", "metadata.json describes is in no file and left out, "
               "such as blocks.1.down.bias: a file may be that of another rank or of another save")
    with tempfile.TemporaryDirectory() as top:
        got = run("export", "--format", "hf", os.path.join(DATA, "pp2mp4_v200"),
                  os.path.join(top, "out"))
        check(got.status == GOOD and "left out, such as" not in got.err, f"{got}")


@test
def what_is_not_described():
    root = os.path.join(DATA, "dp4mp2_opt")
    is_whole(root, "dp4mp2_opt",
             words=("2 parameters in the files are not described and count as unlisted",))
    for unlisted in "copy", "drop":
        with Mounted(root, described=True, dst_strategy=os.path.join(DATA, "strategies", "mp4"),
                     extra=("--unlisted", unlisted)) as m:
            check(("global_step" in shown(only_file(m, 3))) == (unlisted == "copy"), unlisted)


def gather(c, name):
    """Writes a parameter whole into every file that has a slice of it."""
    with Mounted(c.root, described=True) as m:
        dtype, shape, data = shown(only_file(m, 0))[name]
    for file in c.files():
        if name in Tensors(content(c.path(file))).values():
            rewrite(c.path(file), lambda v: v.update({name: [dtype, shape, data]}))


@test
def a_parameter_that_was_gathered_before_it_was_saved():
    with Copy("dp4mp2_opt") as c:
        gather(c, "blocks.0.qkv.weight")
        gather(c, "adam_m.blocks.0.qkv.weight")
        is_whole(c.root, c.tree)
        file = next(f for f in c.files() if f.startswith("model"))
        shutil.copy(os.path.join(DATA, c.tree, c.step, file), c.path(file))
        is_refused(c.root, "parameter blocks.0.qkv.weight is not cut there, but a slice in", file)


@test
def a_shape_that_is_neither():
    with Copy("dp4mp2_opt") as c:
        file = c.files()[3]

        def halve(values):
            value = values["blocks.0.qkv.bias"]
            value[1], value[2] = [1], value[2][:4]
        rewrite(c.path(file), halve)
        is_refused(c.root, f"{file}: parameter blocks.0.qkv.bias has shape [1]; by metadata.json "
                   "it is [48], cut by mesh")


@test
def a_parameter_twice_on_a_rank():
    with Copy("single") as c:
        rewrite(c.path(c.files()[1]), lambda v: v.update(
            {"blocks.0.qkv.bias": ["F32", [48], b"\0" * 192]}))
        is_refused(c.root, "*-0000000-0000001.safetensors: parameter blocks.0.qkv.bias is in two "
                   "of its files")


@test
def files_go_by_what_is_said_of_them():
    """Names may count those that write; metadata.json says who they are."""
    with Copy("interrupted") as c:
        names = {f: f.replace(f"-{i:07}-", f"-{3 - i:07}-") for i, f in enumerate(c.files())}

        def change(data):
            for stored in data["storage_data"].values():
                for one in stored:
                    one["file_name"] = names[one["file_name"]]
        c.metadata(change)
        for old, new in names.items():
            os.rename(c.path(old), c.path(new) + ".new")
        for new in names.values():
            os.rename(c.path(new) + ".new", c.path(new))
        is_whole(c.root, c.tree)


# ---- what is asked for ----

@test
def a_strategy_of_the_source_is_not_needed():
    strategy = os.path.join(DATA, "strategies", "dp4mp2_opt")
    root = os.path.join(DATA, "dp4mp2_opt")
    for given in strategy, "none":
        is_refused(root, "contains its own layout: --src-strategy is not needed",
                   src_strategy=given)
    for command in "ls", "verify":
        refused(run(command, "--src-strategy", strategy, root), INPUT,
                "contains its own layout")


@test
def options_that_ask_for_what_it_has_not():
    root = os.path.join(DATA, "dp4mp2_opt")
    got = run("plan", "--dst-mesh", "dp=2", root)
    demand(got.err, "--dst-mesh needs a source strategy file")
    got = run("plan", "--select", "8x", root)
    demand(got.err, "step=N")
    with tempfile.TemporaryDirectory() as empty:
        write(os.path.join(empty, TRACKER), b"8")
        demand(run("plan", empty).err, "no rank_N directory in it")


@test
def what_is_not_the_save_directory():
    root = os.path.join(DATA, "dp4mp2_opt")
    step = os.path.join(root, "iteration_00000008")
    for words in ((DATA,), (os.path.join(step, "metadata.json"),)):
        got = run("plan", *words)
        check(got.status == INPUT, f"{got}")
        demand(got.err, "in it is a checkpoint: did you mean that?" if words == (DATA,) else
               "metadata.json: this file is not a checkpoint")
    _, said = expect_failure(step, resume=True)
    demand(error_line(said), "this is one checkpoint", "use the directory above it")


@test
def layouts_of_metadata_are_checked():
    root = os.path.join(DATA, "dp4mp2_opt")
    for path in root, os.path.join(root, "iteration_00000008", "metadata.json"):
        got = run("strategy", "check", path)
        check(got.status == GOOD and "good" in got.out, f"{got}")
    refused(run("strategy", "check", "--src-strategy", "none", "--checkpoint", root, root), INPUT,
            "--checkpoint is for strategy files")
    with Copy("dp4mp2_opt") as c:
        c.metadata(lambda d: d["state_dict_metadata"]["blocks.0.qkv.bias"]["layout"].update(
            {"device_matrix": [4, 3]}))
        got = run("strategy", "check", c.root)
        check(got.status == NO, f"{got}")
        demand(got.out, "blocks.0.qkv.bias")


@test
def the_newest_step_that_is_whole_is_resumed():
    with Copy("dp4mp2_opt") as c:
        steps = [c.copy_step(n) for n in (12, 16, 20)]
        os.unlink(os.path.join(c.root, steps[0], c.files()[0]))
        os.unlink(os.path.join(c.root, steps[1], "metadata.json"))
        short = os.path.join(c.root, steps[2], c.files()[3])
        os.truncate(short, os.path.getsize(short) - 1)
        c.track("20")
        with Mounted(c.root, resume=True) as m:
            check(os.readlink(os.path.join(m.path, "latest")) == c.step, "another step")
            check(content(os.path.join(m.path, TRACKER)) == b"8", "the tracker says another")
            for name in os.listdir(c.path("")):
                check(content(os.path.join(m.path, c.step, name)) == content(c.path(name)),
                      f"{name} differs")
            demand(m.log(), f"{steps[0]} cannot be used", f"{c.files()[0]} is missing",
                   f"{steps[1]} cannot be used", "no metadata.json beside it",
                   f"{steps[2]} cannot be used")
            is_whole(m.path, "dp4mp2_opt")
    with Mounted(os.path.join(DATA, "single"), resume=True) as m:
        check(os.readlink(os.path.join(m.path, "latest")) == "iteration_00000003", "not taken")


def main():
    require_mount()
    tap = Tap(len(test))
    for function in test:
        with tap.test(spoken(function)):
            function()
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
