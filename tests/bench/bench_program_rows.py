# SPDX-License-Identifier: Apache-2.0
"""The rows of tensors that go straight into a program, by the Python module."""

import os
import shutil
import subprocess

from rsh_mount import reshardfs_program

from bench_rows import rates, row, the_tree
from bench_tools import MIB, Broken, Measured, Sample, Skip, have_memory, make_room, python_of
from bench_trees import WANTED_RANKS

MINDSPORE, TORCH = "RSH_ORACLE_PYTHON", "RSH_HF_PYTHON"
FASTSAFETENSORS = "fastsafetensors==0.5.0"  # the peer of them that runs without a GPU


def rank_of(tree):
    """What the module is told of the first wanted rank."""
    return {"source": tree.source, "rank": 0, "options": {
        "src_strategy": tree.src_strategy, "dst_strategy": tree.dst_strategy}}


def model_of(tree):
    """And of the whole model."""
    return {"source": tree.source, "rank": None, "options": {
        "src_strategy": tree.src_strategy, "dst_strategy": "none", "format": "hf"}}


def sample_of(reply):
    return Sample(reply["seconds"], reply["bytes"])


def check(bench, program, wanted, of, **what):
    """All that a loader gives is right: once a run."""
    def look(_):
        if program.ask("digests", of=of, **what)["digests"] != wanted:
            raise Broken(f"{of} gives other tensors")

    bench.once(f"{of} {what}", look)


# ---- parameters of MindSpore ----

def checkpoint_against_file(bench, name):
    program, tree = bench.program(MINDSPORE), the_tree(bench, name)
    path = tree.converted_files()[0]
    length = os.path.getsize(path)
    make_room(4 * length)
    if not program.ask("same", path=path, **rank_of(tree))["same"]:
        raise Broken("the module gives other parameters than MindSpore")

    source = tree.source_files()

    def load():
        make_room(4 * length)
        have_memory(4 * length)
        bench.read([path])  # what was made free may have been its pages
        return Sample(bench.oracle.ask("load", path=path)["seconds"], length)

    def load_by_module():
        have_memory(4 * length)
        bench.read(source)
        return sample_of(program.ask("checkpoint", **rank_of(tree)))

    return rates(bench.compare(load_by_module, load, warm=source), "module", "MindSpore")


row("program_checkpoint", "reshardfs.load_checkpoint of a rank, contiguous",
    "MindSpore's, of the converted file", (">=", 6), "x",
    by=(checkpoint_against_file, "contiguous"))
row("program_checkpoint_inner", "the same, inner axis",
    "MindSpore's, of the converted file", (">=", 4), "x", tree="inner",
    by=(checkpoint_against_file, "inner"))


@row("program_network", "memory to load a network, above its own",
     "its largest tensor and 64 MiB", ("<=", 1))
def program_network(bench):
    tree = the_tree(bench, "contiguous")
    result = Measured()
    for _ in bench.each_repeat(most=3):
        make_room(4 * tree.content // WANTED_RANKS)
        reply = bench.program(MINDSPORE).ask("network", path=tree.converted_files()[0],
                                             **rank_of(tree))
        result.values.append(reply["above"] / (reply["largest"] + 64 * MIB))
    result.note(f"the last {reply['above'] >> 20} MiB, "
                f"largest tensor {reply['largest'] >> 20} MiB")
    return result


# ---- arrays ----

def tensors_against_read(bench, name):
    program, tree = bench.program(MINDSPORE), the_tree(bench, name)
    what = {"to": "numpy", **rank_of(tree)}
    check(bench, program, tree.tensor_digests(0, WANTED_RANKS), "tensors", **what)
    paths = tree.converted_files()[:1]

    def side(verb, told, held):
        have_memory(os.path.getsize(paths[0]))
        bench.read(held)
        return sample_of(program.ask(verb, **told))

    source = tree.source_files()
    return rates(bench.compare(lambda: side("tensors", what, source),
                               lambda: side("plain", {"paths": paths}, paths),
                               warm=source + paths), "module", "readinto")


row("program_tensors", "reshardfs.tensors of a rank, contiguous",
    "readinto fresh memory", (">=", 0.8), by=(tensors_against_read, "contiguous"))
row("program_tensors_inner", "the same, inner axis", "readinto fresh memory",
    (">=", 0.5), tree="inner", by=(tensors_against_read, "inner"))


# ---- whole models ----

def exported_model(bench, tree):
    """Files of safetensors that hold the whole model of a tree."""
    target = os.path.join(tree.directory, "model")
    if not os.path.exists(target):
        subprocess.run(
            [reshardfs_program(), "export", "-q", "--src-strategy", tree.src_strategy,
             "--dst-strategy", "none", "--format", "hf", tree.source, target],
            check=True, env={**os.environ,
                             "XDG_CACHE_HOME": os.path.join(bench.work, "cache")})
    return [os.path.join(target, name) for name in sorted(os.listdir(target))
            if name.endswith(".safetensors")]


def model_against(bench, python, to, peer, cold=False):
    """peer: a loader of the exported files, and what it is told beside them."""
    program, tree = bench.program(python), the_tree(bench, "contiguous")
    files = exported_model(bench, tree)
    mine = {"to": to, **model_of(tree)}
    loader, told = peer
    theirs = {"paths": files, **told}
    check(bench, program, tree.tensor_digests(0, 1), "tensors", **mine)
    check(bench, program, tree.tensor_digests(0, 1), loader, **theirs)

    def side(verb, what, held):
        if cold:
            bench.make_cold(held)
        have_memory((1 + cold) * tree.content)
        if not cold:
            bench.read(held)
        return sample_of(program.ask(verb, look=True, **what))

    source = tree.source_files()
    return rates(bench.compare(lambda: side("tensors", mine, source),
                               lambda: side(loader, theirs, files),
                               warm=() if cold else source + files), "module", loader)


row("program_numpy", "whole model as arrays of numpy", "safetensors' load_file",
    (">=", 0.8), by=(model_against, MINDSPORE, "numpy", ("load_file", {"to": "numpy"})))
row("program_torch", "the same as tensors of torch", "load_file, which only maps them",
    by=(model_against, TORCH, "torch", ("load_file", {"to": "torch"})))


def fastsafetensors(bench):
    """Where it is, installed if need be and left for other runs."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(home, "reshardfs", FASTSAFETENSORS)
    if not os.path.exists(path):
        made = os.path.join(bench.work, "fastsafetensors")
        done = subprocess.run(
            [python_of(TORCH), "-m", "pip", "install", "-q", "--no-deps", "--target", made,
             FASTSAFETENSORS], check=False, text=True, stderr=subprocess.PIPE)
        if done.returncode:
            raise Skip(f"{FASTSAFETENSORS} cannot be installed: {done.stderr.strip()[-200:]}")
        os.makedirs(os.path.dirname(path), exist_ok=True)
        shutil.move(made, path)
    return path


@row("program_cold", "the same from a cold disk", FASTSAFETENSORS, (">=", 1.0))
def program_cold(bench):
    told = {"directory": fastsafetensors(bench)}
    return model_against(bench, TORCH, "torch", ("fastsafetensors", told), cold=True)
