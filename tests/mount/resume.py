#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mount --resume: the newest checkpoint that is whole on all ranks, of every
kind of job, and older ones where a newer one is not.

The trees are written in the real formats with the standard library alone (see
lib/framework_formats.py): PyTorch's zip archives laid out as torch.save() lays
them out, TensorFlow's tensor bundles, MindSpore's .ckpt and .safetensors.
"""

import errno
import os
import pickle
import random
import shutil
import sys
import time
import zlib

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, demand, error_line, write  # noqa: E402
from framework_formats import (odd_bundle_indexes, safetensors_bytes,  # noqa: E402
                               tensor_bundle, torch_legacy, torch_tar, torch_zip)
from ms_formats import Record, checkpoint_bytes  # noqa: E402
from privileges import where_modes_count  # noqa: E402
from rsh_cli import run  # noqa: E402
from rsh_mount import MountError, Mounted, Tests, expect_failure, require_mount  # noqa: E402

case = Tests("resume")


# ---- trees ---------------------------------------------------------------

def content(step, rank, n=200):
    return random.Random(f"{step} {rank}").randbytes(n)


def ms_file(step, rank=0):
    return checkpoint_bytes({"w": Record((10, 5), "Float32", content(step, rank)),
                             "step_num": Record((), "Int64", bytes(8))})


def st_file(step, rank=0):
    return safetensors_bytes({"w": ("F32", (10, 5), content(step, rank))})


def pt_file(step, rank=0):
    return torch_zip([content(step, rank), content(step, rank, 64)], zip64=True)


class Tree:
    """A directory that is written step after step, as a job writes it."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "source")
        self.clock = 1_700_000_000
        os.mkdir(self.path)

    def full(self, name):
        return os.path.join(self.path, name)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.full(name)), exist_ok=True)
        write(self.full(name), data)
        self.clock += 10
        os.utime(self.full(name), (self.clock, self.clock))

    def read(self, name):
        with open(self.full(name), "rb") as f:
            return f.read()

    def cut(self, name, size=None):
        data = self.read(name)
        self.write(name, data[:len(data) // 2 if size is None else size])

    def mounted(self, *extra):
        return Mounted(self.path, resume=True, extra=extra)

    def refused(self, *words, extra=(), status=3):
        got, said = expect_failure(self.path, resume=True, extra=extra)
        check(got == status, f"exit status {got}\n{said}")
        demand(error_line(said), *words)


def mindspore(tree, steps=((1, 5), (1, 10), (2, 10)), ranks=3, suffix="ckpt"):
    make = ms_file if suffix == "ckpt" else st_file
    for epoch, step in steps:
        for rank in range(ranks):
            tree.write(f"rank_{rank}/net-{epoch}_{step}.{suffix}",
                       make((epoch, step), rank))


def torch(tree, epochs=(8, 9, 10), ranks=2):
    for epoch in epochs:
        for rank in range(ranks):
            tree.write(f"rank_{rank}/checkpoint_{epoch}.pt", pt_file(epoch, rank))


def tensorflow(tree, steps=(9, 10), shards=2, folder=""):
    for step in steps:
        index, data = tensor_bundle(
            {f"layer-{i}/kernel": content(step, i) for i in range(9)} |
            {"_CHECKPOINTABLE_OBJECT_GRAPH": [b"a graph", b"and another"]}, shards)
        for i, part in enumerate(data):
            tree.write(f"{folder}ckpt-{step}.data-{i:05}-of-{shards:05}", part)
        tree.write(f"{folder}ckpt-{step}.index", index)
    newest = f'model_checkpoint_path: "ckpt-{steps[-1]}"\n'
    tree.write(f"{folder}checkpoint", newest.encode())


MEGATRON_FILES = ("model_optim_rng.pt", "distrib_optim.pt")


def megatron(tree, iterations=(100, 200, 1000), tensor=2, pipeline=2):
    for iteration in iterations:
        for t in range(tensor):
            for p in range(pipeline):
                where = f"iter_{iteration:07}/mp_rank_{t:02}_{p:03}"
                for name in MEGATRON_FILES:
                    tree.write(f"{where}/{name}", pt_file(iteration, (t, p, name)))
    tree.write("latest_checkpointed_iteration.txt", str(iterations[-1]).encode())


# ---- what a mount shows --------------------------------------------------

def listing(path):
    """{relative path: bytes, or the target of a link}"""
    found = {}
    for folder, folders, names in os.walk(path):
        for name in names + [f for f in folders
                             if os.path.islink(os.path.join(folder, f))]:
            full = os.path.join(folder, name)
            short = os.path.relpath(full, path)
            if os.path.islink(full):
                found[short] = os.readlink(full)
            else:
                with open(full, "rb") as f:
                    found[short] = f.read()
                check(os.stat(full).st_size == len(found[short]), f"{short}: st_size is wrong")
    return found


def check_shown(mount, expected):
    found = listing(mount.path)
    check(found == expected, f"shown: {sorted(found)}\nexpected: {sorted(expected)}\n"
          f"differ: {[n for n in found if found.get(n) != expected.get(n)]}"
          f"\n{mount.log()}")


def one_file_each(tree, ranks, name, suffix):
    """What is to be seen when the ranks' newest files have that name."""
    expected = {}
    for rank in range(ranks):
        expected[f"rank_{rank}/{name}"] = tree.read(f"rank_{rank}/{name}")
        expected[f"rank_{rank}/latest.{suffix}"] = name
    return expected


def shows(tree, expected, *extra, says=()):
    with tree.mounted(*extra) as m:
        check_shown(m, expected)
        demand(m.log(), *says)


# ---- every kind of job ---------------------------------------------------

@case
def mindspore_newest_step(tree):
    mindspore(tree)
    with tree.mounted() as m:
        check_shown(m, one_file_each(tree, 3, "net-2_10.ckpt", "ckpt"))
        # The stable name leads to the file as any symbolic link does.
        with open(os.path.join(m.path, "rank_1/latest.ckpt"), "rb") as f:
            check(f.read() == tree.read("rank_1/net-2_10.ckpt"), "the link leads elsewhere")
        check("net-2_10.ckpt" in m.log(), f"the log does not say which\n{m.log()}")


@case
def mindspore_safetensors(tree):
    mindspore(tree, suffix="safetensors")
    shows(tree, one_file_each(tree, 3, "net-2_10.safetensors", "safetensors"))


@case
def mindspore_runs_and_ranks_in_names(tree):
    for rank in range(2):
        for name in (f"n_rank_{rank}-1_9.ckpt", f"n_rank_{rank}_1-1_9.ckpt",
                     f"n_rank_{rank}_1-1_8.ckpt"):
            tree.write(f"rank_{rank}/{name}", ms_file(name))
    expected = {}
    for rank in range(2):
        name = f"n_rank_{rank}_1-1_9.ckpt"
        expected[f"rank_{rank}/{name}"] = tree.read(f"rank_{rank}/{name}")
        expected[f"rank_{rank}/latest.ckpt"] = name
    shows(tree, expected)


@case
def mindspore_without_steps(tree):
    expected = {}
    for rank in range(12):
        name = f"rank_{rank}/checkpoint_{rank}.ckpt"
        tree.write(name, ms_file(0, rank))
        expected[name] = tree.read(name)
        expected[f"rank_{rank}/latest.ckpt"] = f"checkpoint_{rank}.ckpt"
    shows(tree, expected)


@case
def mindspore_in_directories_of_other_names(tree):
    for rank in range(2):
        tree.write(f"ckpt_{rank}/net-1_5.ckpt", ms_file(5, rank))
        tree.write(f"ckpt_{rank}/checkpoint_a/net-1_6.ckpt", ms_file(6, rank))
        tree.write(f"ckpt_{rank}/other/net-1_7.ckpt", ms_file(7, rank))
    expected = {}
    for rank in range(2):
        expected[f"ckpt_{rank}/net-1_6.ckpt"] = ms_file(6, rank)
        expected[f"ckpt_{rank}/latest.ckpt"] = "net-1_6.ckpt"
    shows(tree, expected)
    # The same name twice: which one is meant?
    tree.write("ckpt_0/net-1_6.ckpt", ms_file(66))
    shows(tree, {name.replace("1_6", "1_5"):
                 tree.read(name.replace("1_6", "1_5")) if name.endswith("1_6.ckpt")
                 else target.replace("1_6", "1_5")
                 for name, target in expected.items()}, says=["have the same rank and step"])


@case
def mindspore_on_one_card(tree):
    tree.write("net-1_5.ckpt", ms_file(1))
    tree.write("net-1_10.ckpt", ms_file(2))
    shows(tree, {"net-1_10.ckpt": ms_file(2), "latest.ckpt": "net-1_10.ckpt"})


@case
def mindspore_rank_in_the_middle_is_gone(tree):
    mindspore(tree, ranks=5)
    expected = one_file_each(tree, 5, "net-2_10.ckpt", "ckpt")
    shutil.rmtree(tree.full("rank_2"))
    gap = "4, but nothing of rank 2: only a strategy says"
    shows(tree, {n: data for n, data in expected.items() if not n.startswith("rank_2/")},
          says=[gap])
    demand(run("ls", tree.path).out, "note: it has ranks ", gap)
    demand(run("verify", tree.path).err, gap)
    shutil.rmtree(tree.full("rank_3"))
    demand(run("ls", tree.path).out, "but nothing of rank 2 and of others")
    # A node that has not the first ranks is no gap.
    for rank in (0, 1):
        os.rename(tree.full(f"rank_{rank}"), tree.full(f"rank_{rank + 2}"))
    check("nothing of rank" not in run("ls", tree.path).out, "ranks 2 to 4 have no gap")


@case
def mindspore_breakpoint_does_not_count(tree):
    mindspore(tree)
    tree.write("rank_0/net-9_9_breakpoint.ckpt", ms_file(99))
    shows(tree, one_file_each(tree, 3, "net-2_10.ckpt", "ckpt"))


@case
def mindspore_encrypted_is_handed_on(tree):
    def number(value):
        return value.to_bytes(4, "little")

    block = (number(0x7F3A5ED8) + bytes(16) + number(24 + 99) + number(16) +
             bytes(16) + number(99) + bytes(99))
    for name in ("net-1_1.ckpt", "net-1_2.ckpt"):
        tree.write(f"rank_0/{name}", block + block)
    shows(tree, one_file_each(tree, 1, "net-1_2.ckpt", "ckpt"), says=["encrypted"])
    tree.cut("rank_0/net-1_2.ckpt", -1)
    shows(tree, one_file_each(tree, 1, "net-1_1.ckpt", "ckpt"), says=["truncated"])


@case
def torch_in_ranks(tree):
    torch(tree)
    shows(tree, one_file_each(tree, 2, "checkpoint_10.pt", "pt"))


@case
def parts_of_a_model_are_no_steps(tree):
    for name in ("model-00001-of-00002", "model-00002-of-00002"):
        tree.write(f"{name}.safetensors", (8).to_bytes(8, "little") + b"{}      ")
    _, said = expect_failure(tree.path, resume=True)
    demand(said, "it contains no checkpoint of MindSpore, PyTorch")


@case
def torch_flat(tree):
    for epoch in (1, 2, 10):
        tree.write(f"resnet50_epoch{epoch}.pth.tar", pt_file(epoch))
    tree.write("model_best.pth.tar", pt_file("best"))
    tree.write("train.log", b"losses")
    shows(tree, {"resnet50_epoch10.pth.tar": pt_file(10),
                 "latest.pth.tar": "resnet50_epoch10.pth.tar"})


@case
def torch_steps_behind_words(tree):
    """Another number, such as a loss, may be in front of the step."""
    for before, after in (("ckpt_loss2.31_step900", "ckpt_loss1.99_step1000"),
                          ("v2-Iter=9", "v1-Iter=10"), ("5_iteration9", "4_iteration10"),
                          ("acc0.9-trainEpoch-9", "acc0.8-trainEpoch-10"),
                          ("9_global_step9", "8_global_step10"),
                          ("loss9-epoch=1-step=90", "loss8-epoch=1-step=100"),
                          # These are no such words.
                          ("1_timestep9", "2_timestep8"), ("1-steps9", "2-steps8")):
        for name in (before, after):
            tree.write(f"{name}.pt", pt_file(name))
        shows(tree, {f"{after}.pt": pt_file(after), "latest.pt": f"{after}.pt"})
        for name in (before, after):
            os.unlink(os.path.join(tree.path, f"{name}.pt"))


@case
def torch_flat_with_ranks_in_names(tree):
    for step in (90, 100):
        for rank in range(11):
            tree.write(f"model_step{step}_rank{rank}.pt", pt_file(step, rank))
    tree.write("config_7.pt", pt_file("config"))
    expected = {}
    for rank in range(11):
        name = f"model_step100_rank{rank}.pt"
        expected[f"rank_{rank}/{name}"] = pt_file(100, rank)
        expected[f"rank_{rank}/latest.pt"] = name
    shows(tree, expected)


@case
def torch_without_numbers_newest_by_time(tree):
    tree.write("model_best.pth", pt_file("best"))
    tree.write("checkpoint.pth", pt_file("last"))
    shows(tree, {"checkpoint.pth": pt_file("last"), "latest.pth": "checkpoint.pth"})
    tree.cut("checkpoint.pth")
    shows(tree, {"model_best.pth": pt_file("best"), "latest.pth": "model_best.pth"})


@case
def torch_that_says_latest_itself(tree):
    tree.write("latest.pt", pt_file(1))
    shows(tree, {"latest.pt": pt_file(1)})


@case
def torch_legacy_form(tree):
    tree.write("a_1.pt", pt_file(1))
    tree.write("a_2.pt", torch_legacy([content(2, 0)]))
    shows(tree, {"a_2.pt": tree.read("a_2.pt"), "latest.pt": "a_2.pt"})
    whole = tree.read("a_2.pt")
    older = {"a_1.pt": tree.read("a_1.pt"), "latest.pt": "a_1.pt"}
    # Within the pickles, the list of keys, a count, a tensor.
    for size in (60, 200, len(whole) - 202, len(whole) - 199, len(whole) - 1):
        tree.write("a_2.pt", whole[:size])
        shows(tree, older, says=["a_2.pt"])


@case
def torch_refuses_tar_archives_and_plain_pickles(tree):
    for data, says in ((torch_tar([content(2, 0)]), "a tar archive of torch.save() from before "
                        "PyTorch 0.1.10, which is not read; load it with PyTorch and save it again"),
                       (pickle.dumps({"epoch": 2}), "a pickle that torch.save() did not write, "
                        "which is not read; save it with torch.save()")):
        tree.write("a_2.pth.tar", data)
        tree.refused("a_2.pth.tar", says)
        tree.write("a_1.pth.tar", pt_file(1))
        shows(tree, {"a_1.pth.tar": pt_file(1), "latest.pth.tar": "a_1.pth.tar"},
              says=["a_2.pth.tar cannot be used", says])
        os.unlink(tree.full("a_1.pth.tar"))


def tensorflow_expected(tree, step, shards=2, folder=""):
    expected = {}
    for suffix in ["index"] + [f"data-{i:05}-of-{shards:05}" for i in range(shards)]:
        name = f"{folder}ckpt-{step}.{suffix}"
        expected[name] = tree.read(name)
        expected[f"{folder}latest.{suffix}"] = f"ckpt-{step}.{suffix}"
    expected[f"{folder}checkpoint"] = (
        f'model_checkpoint_path: "ckpt-{step}"\n'
        f'all_model_checkpoint_paths: "ckpt-{step}"\n').encode()
    return expected


@case
def tensorflow_newest(tree):
    tensorflow(tree)
    shows(tree, tensorflow_expected(tree, 10))


@case
def tensorflow_in_ranks(tree):
    expected = {}
    for rank in range(2):
        tensorflow(tree, folder=f"rank_{rank}/", shards=1)
        expected |= tensorflow_expected(tree, 10, 1, f"rank_{rank}/")
    shows(tree, expected)


def megatron_expected(tree, iteration):
    folder = f"iter_{iteration:07}"
    expected = {os.path.join(folder, name): data
                for name, data in listing(tree.full(folder)).items()}
    expected["latest"] = folder
    expected["latest_checkpointed_iteration.txt"] = str(iteration).encode()
    return expected


@case
def megatron_newest(tree):
    megatron(tree)
    with tree.mounted() as m:
        # os.walk lists a link to a directory but does not follow it.
        check_shown(m, megatron_expected(tree, 1000))
        inner = "mp_rank_01_001/distrib_optim.pt"
        with open(os.path.join(m.path, "latest", inner), "rb") as f:
            check(f.read() == tree.read(f"iter_0001000/{inner}"), "the link leads elsewhere")


# ---- half-written, truncated, missing ------------------------------------

@case
def half_written_file_of_one_rank(tree):
    mindspore(tree)
    tree.cut("rank_1/net-2_10.ckpt")
    shows(tree, one_file_each(tree, 3, "net-1_10.ckpt", "ckpt"),
          says=["warning", "net-2_10.ckpt cannot be used", "using",
                "rank_1/net-2_10.ckpt: "])


@case
def empty_file_of_one_rank(tree):
    torch(tree)
    tree.cut("rank_0/checkpoint_10.pt", 0)
    shows(tree, one_file_each(tree, 2, "checkpoint_9.pt", "pt"), says=["empty"])


@case
def newest_step_only_on_some_ranks(tree):
    mindspore(tree)
    os.unlink(tree.full("rank_2/net-2_10.ckpt"))
    shows(tree, one_file_each(tree, 3, "net-1_10.ckpt", "ckpt"), says=["rank_2"])


@case
def temporary_and_hidden_files_do_not_count(tree):
    torch(tree, ranks=1)
    for name in ("checkpoint_11.pt.tmp", ".checkpoint_12.pt", "checkpoint_13.tmp"):
        tree.write(f"rank_0/{name}", pt_file(name))
    shows(tree, one_file_each(tree, 1, "checkpoint_10.pt", "pt"))


@case
def torch_truncated_at_many_places(tree):
    torch(tree, epochs=(1, 2), ranks=1)
    whole = tree.read("rank_0/checkpoint_2.pt")
    older = one_file_each(tree, 1, "checkpoint_1.pt", "pt")
    places = sorted(random.Random(4).sample(range(len(whole)), 12)) + [len(whole) - 1]
    for size in places:
        tree.write("rank_0/checkpoint_2.pt", whole[:size])
        try:
            shows(tree, older)
        except MountError as error:
            raise MountError(f"cut to {size} of {len(whole)}: {error}") from None
    tree.write("rank_0/checkpoint_2.pt", whole)
    shows(tree, one_file_each(tree, 1, "checkpoint_2.pt", "pt"))


@case
def tensorflow_data_missing(tree):
    tensorflow(tree)
    os.unlink(tree.full("ckpt-10.data-00001-of-00002"))
    shows(tree, tensorflow_expected(tree, 9), says=["ckpt-10"])


@case
def tensorflow_data_truncated(tree):
    tensorflow(tree)
    tree.cut("ckpt-10.data-00001-of-00002", -1)
    shows(tree, tensorflow_expected(tree, 9), says=["truncated"])


@case
def tensorflow_index_not_yet_written(tree):
    tensorflow(tree)
    os.unlink(tree.full("ckpt-10.index"))
    shows(tree, tensorflow_expected(tree, 9), says=[".index"])


@case
def tensorflow_index_damaged(tree):
    tensorflow(tree)
    data = bytearray(tree.read("ckpt-10.index"))
    data[30] ^= 4
    tree.write("ckpt-10.index", bytes(data))
    shows(tree, tensorflow_expected(tree, 9), says=["CRC"])


@case
def tensorflow_index_that_tensorflow_does_not_write(tree):
    tensorflow(tree)
    for what, index in odd_bundle_indexes():
        tree.write("ckpt-10.index", index)
        shows(tree, tensorflow_expected(tree, 9), says=["ckpt-10.index", what])


@case
def tensorflow_without_data(tree):
    tensorflow(tree)
    for shard in range(2):
        os.unlink(tree.full(f"ckpt-10.data-0000{shard}-of-00002"))
    shows(tree, tensorflow_expected(tree, 9), says=["its data files are not there"])


@case
def megatron_rank_missing(tree):
    megatron(tree)
    shutil.rmtree(tree.full("iter_0001000/mp_rank_01_001"))
    shows(tree, megatron_expected(tree, 200), says=["mp_rank_01_001"])


@case
def megatron_rank_without_files(tree):
    """Its directory says that there is such a rank, so that no iteration is whole."""
    megatron(tree)
    for iteration in 100, 200, 1000:
        rank = tree.full(f"iter_{iteration:07}/mp_rank_01_001")
        shutil.rmtree(rank)
        if iteration == 200:
            os.mkdir(rank)
    _, said = expect_failure(tree.path, resume=True)
    demand(said, "mp_rank_01_001 contains no checkpoint")


@case
def megatron_file_missing(tree):
    megatron(tree)
    os.unlink(tree.full("iter_0001000/mp_rank_01_000/distrib_optim.pt"))
    shows(tree, megatron_expected(tree, 200), says=["distrib_optim.pt"])


@case
def megatron_file_truncated_and_tracker_ahead(tree):
    megatron(tree)
    tree.cut("iter_0001000/mp_rank_00_001/model_optim_rng.pt")
    tree.cut("iter_0000200/mp_rank_00_000/model_optim_rng.pt")
    shows(tree, megatron_expected(tree, 100))


@case
def permission_denied(tree):
    def run():
        mindspore(tree)
        newest = one_file_each(tree, 3, "net-2_10.ckpt", "ckpt")
        older = one_file_each(tree, 3, "net-1_10.ckpt", "ckpt")
        path = tree.full("rank_1/net-2_10.ckpt")
        os.chmod(path, 0)
        tree.refused("net-2_10.ckpt cannot be read now", "--select name=GLOB",
                     "rank_1/net-2_10.ckpt: Permission denied", status=4)
        with tree.mounted("--select=name=net-1_10.ckpt") as m:
            check_shown(m, older)
        tree.refused("rank_1/net-2_10.ckpt: Permission denied", extra=["--select=2_10"],
                     status=4)
        os.chmod(path, 0o600)
        # A change of the mode is a change of the file.
        with tree.mounted() as m:
            check_shown(m, newest)
            os.chmod(path, 0)
            try:
                with open(os.path.join(m.path, "rank_1", "net-2_10.ckpt"), "rb") as f:
                    f.read()
                check(False, "no error")
            except OSError as error:
                check(error.errno == errno.ESTALE, error)
        os.chmod(path, 0o600)
        os.chmod(tree.full("rank_1"), 0)
        tree.refused("rank_1", "Permission denied", status=4)
        os.chmod(tree.full("rank_1"), 0o700)

    where_modes_count(os.path.dirname(tree.path), run)


@case
def permission_denied_to_other_kinds(tree):
    def run():
        tensorflow(tree)
        os.chmod(tree.full("ckpt-10.data-00001-of-00002"), 0)
        tree.refused("ckpt-10", "cannot be read now", "Permission denied", status=4)

    where_modes_count(os.path.dirname(tree.path), run)


@case
def one_number_is_the_step(tree):
    for i, form in enumerate(("e{}", "NAME-{}", "LeNet5_{}_step")):
        for step in (1, 9, 10):
            for rank in range(2):
                write(tree.full(f"rank_{rank}/{form.format(step)}.ckpt"),
                      ms_file(i * 100 + step, rank))
                write(tree.full(f"rank_{rank}/best.ckpt"), ms_file(999, rank))
        with tree.mounted() as m:
            latest = os.readlink(os.path.join(m.path, "rank_1/latest.ckpt"))
            check(latest == f"{form.format(10)}.ckpt", m.log())
        shutil.rmtree(tree.full("rank_0"))
        shutil.rmtree(tree.full("rank_1"))


@case
def a_directory_of_roots_is_not_a_step(tree):
    def run():
        mindspore(tree)
        os.makedirs(tree.full("lost+found"), exist_ok=True)
        os.chmod(tree.full("lost+found"), 0)
        with tree.mounted() as m:
            check_shown(m, one_file_each(tree, 3, "net-2_10.ckpt", "ckpt"))
        os.chmod(tree.full("lost+found"), 0o700)

    where_modes_count(os.path.dirname(tree.path), run)


@case
def one_step_of_all_ranks_or_nothing(tree):
    mindspore(tree, ranks=2)
    for name in ("rank_0/net-2_10.ckpt", "rank_1/net-1_10.ckpt", "rank_0/net-1_5.ckpt"):
        tree.cut(name)
    tree.refused("rank_0/net-2_10.ckpt", "rank_1/net-1_10.ckpt", "rank_0/net-1_5.ckpt",
                 "tried")


@case
def at_most_five_steps_back(tree):
    steps = [(1, i) for i in range(1, 9)]
    mindspore(tree, steps, ranks=1)
    for step in (4, 5, 6, 7, 8):
        tree.cut(f"rank_0/net-1_{step}.ckpt")
    shows(tree, one_file_each(tree, 1, "net-1_3.ckpt", "ckpt"))
    tree.cut("rank_0/net-1_3.ckpt")
    tree.refused("net-1_8.ckpt", "net-1_3.ckpt", "tried")


# ---- what the options say ------------------------------------------------

@case
def fallbacks_are_counted(tree):
    mindspore(tree, [(1, i) for i in range(1, 4)], ranks=1)
    tree.cut("rank_0/net-1_3.ckpt")
    tree.refused("net-1_3.ckpt", extra=["--fallbacks", "0"])
    shows(tree, one_file_each(tree, 1, "net-1_2.ckpt", "ckpt"), "--fallbacks=1")


@case
def select_a_step(tree):
    mindspore(tree)
    shows(tree, one_file_each(tree, 3, "net-1_5.ckpt", "ckpt"), "--select=1_5")
    tree.cut("rank_2/net-1_5.ckpt")
    tree.refused("rank_2/net-1_5.ckpt", extra=["--select=1_5"])
    tree.refused("no checkpoint of epoch 7 step 7; rank_0 contains net-1_10.ckpt, "
                 "net-1_5.ckpt, net-2_10.ckpt",
                 extra=["--select=7_7"])


@case
def select_by_time(tree):
    torch(tree, epochs=(10, 9, 8))
    shows(tree, one_file_each(tree, 2, "checkpoint_8.pt", "pt"), "--select=mtime")


@case
def select_by_name(tree):
    torch(tree, ranks=1)
    tree.write("rank_0/checkpoint_10.ckpt", ms_file(10))
    tree.write("rank_0/best.pt", pt_file("best"))
    shows(tree, one_file_each(tree, 1, "checkpoint_9.pt", "pt"),
          "--select=name=checkpoint_?.pt")
    shows(tree, one_file_each(tree, 1, "best.pt", "pt"), "--select=name=best*")
    shows(tree, one_file_each(tree, 1, "checkpoint_10.ckpt", "ckpt"),
          "--select=name=*.ckpt")
    tree.refused("other*", extra=["--select=name=other*"])


@case
def select_an_iteration(tree):
    megatron(tree)
    shows(tree, megatron_expected(tree, 200), "--select=name=iter_0000200")
    shows(tree, megatron_expected(tree, 200), "--select=step=200")
    tree.refused("a step alone is selected with --select step=N",
                 "mp_rank_00_000 contains iter_0000100, iter_0000200, iter_0001000",
                 extra=["--select=0_200"])


@case
def breakpoint_files(tree):
    mindspore(tree, ranks=1)
    tree.write("rank_0/net-2_11_breakpoint.ckpt", ms_file(11))
    newest = one_file_each(tree, 1, "net-2_11_breakpoint.ckpt", "ckpt")
    shows(tree, newest, "--breakpoint=include")
    for step in ("1_5", "1_10", "2_10"):
        os.unlink(tree.full(f"rank_0/net-{step}.ckpt"))
    tree.refused("breakpoints count with --breakpoint", "net-2_11_breakpoint.ckpt")
    shows(tree, newest, "--breakpoint=include")
    tree.write("rank_0/net-2_12.ckpt", ms_file(12))
    shows(tree, newest, "--breakpoint=only")
    shows(tree, one_file_each(tree, 1, "net-2_12.ckpt", "ckpt"), "--breakpoint=include")


def changed_in_a_tensor(tree, name, tensor):
    data = bytearray(tree.read(name))
    data[data.index(tensor) + 17] ^= 1
    tree.write(name, bytes(data))


@case
def full_check_of_torch(tree):
    torch(tree, ranks=1)
    changed_in_a_tensor(tree, "rank_0/checkpoint_10.pt", content(10, 0))
    shows(tree, one_file_each(tree, 1, "checkpoint_10.pt", "pt"))
    shows(tree, one_file_each(tree, 1, "checkpoint_9.pt", "pt"), "--check=full",
          says=["CRC"])


@case
def full_check_of_tensorflow(tree):
    tensorflow(tree)
    shows(tree, tensorflow_expected(tree, 10), "--check=full")
    changed_in_a_tensor(tree, "ckpt-10.data-00001-of-00002", content(10, 0))
    shows(tree, tensorflow_expected(tree, 10))
    shows(tree, tensorflow_expected(tree, 9), "--check=full", says=["CRC"])


@case
def full_check_of_mindspore(tree):
    for step in (1, 2):
        data = ms_file(step)
        data += b"crc_num" + zlib.crc32(data).to_bytes(10, "big")
        tree.write(f"rank_0/net-1_{step}.ckpt", data)
    shows(tree, one_file_each(tree, 1, "net-1_2.ckpt", "ckpt"), "--check=full")
    changed_in_a_tensor(tree, "rank_0/net-1_2.ckpt", content(2, 0))
    shows(tree, one_file_each(tree, 1, "net-1_2.ckpt", "ckpt"))
    shows(tree, one_file_each(tree, 1, "net-1_1.ckpt", "ckpt"), "--check=full",
          says=["CRC"])


# ---- while mounted -------------------------------------------------------

@case
def rotated_away_while_mounted(tree):
    torch(tree)
    expected = one_file_each(tree, 2, "checkpoint_10.pt", "pt")
    with tree.mounted() as m:
        torch(tree, epochs=(11,))
        for rank in range(2):
            os.unlink(tree.full(f"rank_{rank}/checkpoint_10.pt"))
        # The step that was mounted, whole, or an error; never the new one.
        check_shown(m, expected)


@case
def overwritten_while_mounted(tree):
    torch(tree, ranks=1)
    whole = tree.read("rank_0/checkpoint_10.pt")
    with tree.mounted() as m:
        with open(tree.full("rank_0/checkpoint_10.pt"), "r+b") as f:
            f.write(b"\0" * len(whole))
        try:
            with open(os.path.join(m.path, "rank_0/latest.pt"), "rb") as f:
                f.read()
        except OSError as error:
            if error.errno != errno.ESTALE:
                raise
        else:
            raise MountError("a file that changed can be read")
        check("changed since it was mounted" in m.log(), m.log())


@case
def attributes(tree):
    mindspore(tree)
    os.chmod(tree.full("rank_0/net-2_10.ckpt"), 0o400)
    source = os.stat(tree.full("rank_0/net-2_10.ckpt"))
    with tree.mounted() as m:
        folder = os.path.join(m.path, "rank_0")
        shown = os.stat(os.path.join(folder, "net-2_10.ckpt"))
        link = os.lstat(os.path.join(folder, "latest.ckpt"))
        facts = {
            "size": shown.st_size == source.st_size,
            "mode": shown.st_mode & 0o7777 == 0o400,
            "time": shown.st_mtime_ns == source.st_mtime_ns,
            "blocks": shown.st_blocks * 512 >= shown.st_size,
            "link size": link.st_size == len("net-2_10.ckpt"),
            "directory": os.stat(folder).st_mode & 0o222 == 0o200,
            "links of the root": os.stat(m.path).st_nlink == 2 + 3,
            "inodes": os.stat(os.path.join(folder, "latest.ckpt")).st_ino == shown.st_ino,
            "df": os.statvfs(m.path).f_blocks * 4096 >= 3 * shown.st_size,
            "..": os.path.samefile(os.path.join(folder, ".."), m.path),
        }
        try:
            os.symlink("x", os.path.join(folder, "y"))
            facts["read-only"] = False
        except OSError as error:
            facts["read-only"] = error.errno == errno.EROFS
        wrong = [name for name, good in facts.items() if not good]
        check(not wrong, f"wrong: {wrong}")
        inode = shown.st_ino
    with tree.mounted() as m:
        again = os.stat(os.path.join(m.path, "rank_0/latest.ckpt"))
        check(again.st_ino == inode, "another inode number after a remount")


# ---- refusals ------------------------------------------------------------

@case
def nothing_there(tree):
    tree.write("rank_0/events.log", b"")
    tree.refused(tree.path, "Megatron-LM, PyTorch DCP, MindSpore Transformers, verl or DeepSpeed")


@case
def source_missing(tree):
    os.rmdir(tree.path)
    tree.refused(tree.path, "No such file")


@case
def rank_without_checkpoint(tree):
    mindspore(tree)
    os.mkdir(tree.full("rank_3"))
    tree.refused("rank_3", "no checkpoint")


@case
def two_kinds(tree):
    mindspore(tree)
    tree.write("rank_0/model_3.pt", pt_file(3))
    tree.refused("MindSpore", "PyTorch", "--select")


@case
def two_series_at_one_step(tree):
    tree.write("encoder_7.pt", pt_file(7))
    tree.write("decoder_7.pt", pt_file(8))
    tree.refused("encoder_7.pt", "decoder_7.pt", "--select")


@case
def strategies_do_not_go_with_it(tree):
    mindspore(tree)
    for words in (["--src-strategy", "none"], ["--dst-strategy", "none"],
                  ["--prefix", "a"], ["--compat", "mindspore"],
                  ["--dst-ranks", "2"], ["--replicas", "off"], ["--allow-missing"],
                  ["--rank-dir", "r{rank}"], ["--file", "f"], ["--source-map", "m"],
                  ["--group-info", "g"], ["--select", "mindspore"],
                  ["--unlisted", "drop"], ["--only", "a"], ["--drop", "a"],
                  ["--rename", "f"], ["--cast", "float32"], ["--remove-redundancy"]):
        status, said = expect_failure(tree.path, resume=True, extra=words)
        check(status == 2 and words[0] in said, f"{words}: exit status {status}\n{said}")


@case
def daemon_with_relative_source(tree):
    mindspore(tree)
    folder = os.path.dirname(tree.path)
    mountpoint = os.path.join(folder, "mnt")
    os.mkdir(mountpoint)
    command = f"cd '{folder}' && '{os.environ['RESHARDFS']}' mount --resume source mnt"
    check(os.system(command) == 0, "the command fails")
    try:
        with open(os.path.join(mountpoint, "rank_2/latest.ckpt"), "rb") as f:
            check(f.read() == tree.read("rank_2/net-2_10.ckpt"), "other bytes")
    finally:
        deadline = time.monotonic() + 30
        while os.system(f"fusermount3 -u '{mountpoint}'") and time.monotonic() < deadline:
            time.sleep(0.1)


if __name__ == "__main__":
    require_mount()
    sys.exit(case.run(Tree))
