# SPDX-License-Identifier: Apache-2.0
"""Rows of a Hugging Face model for Megatron-LM on 8 ranks."""

import os
import shutil
import time

from bench_rows import both_took, row, smaller, sooner
from rsh_mount import Alone
from bench_tools import MIB, Measured, Sample, Skip, other_python, status_field

TENSOR, PIPELINE = 4, 2
FILE = "model_optim_rng.pt"


def megatron(*words):
    return other_python("RSH_HF_PYTHON", "bench_megatron.py", words)


def read_file(path):
    n = 0
    with open(path, "rb", buffering=0) as f:
        while block := f.read(1 << 20):
            n += len(block)
    return n


def shown(bench, source, other):
    """Samples of a mount and its first file, and of a mount and all files, which are compared
    with a tree."""
    start = time.perf_counter()
    with Alone(source, extra=[
            "--format", "megatron", "--convert", "megatron-dense", "--from", "hf", "--dst-mesh",
            f"tp={TENSOR},pp={PIPELINE}", "--index-cache", "off",
            *bench.settings.mount_options]) as mount:
        step = os.path.join(mount.path, "release")
        files = [os.path.join(step, name, FILE) for name in sorted(os.listdir(step))]
        first = Sample(0, read_file(files[0]))
        first.seconds = time.perf_counter() - start
        every = Sample(0, first.bytes + sum(map(read_file, files[1:])))
        every.seconds = time.perf_counter() - start
        every.memory = first.memory = status_field(mount.process.pid, "VmHWM")
        if other:
            megatron("same", step, other)
    return first, every


def for_a_mesh(bench):
    if not os.environ.get("RSH_MINDSPEED_LLM"):
        raise Skip("RSH_MINDSPEED_LLM does not name a checkout of MindSpeed-LLM")
    source, target = (os.path.join(bench.work, name) for name in ("megatron_hf", "megatron_tree"))
    megatron("make", source, bench.settings.size)
    first, every = Measured(), Measured()
    for i in bench.each_repeat(most=5):
        bench.read([os.path.join(source, "model.safetensors")])
        shutil.rmtree(target, ignore_errors=True)
        theirs = megatron("convert", source, target, TENSOR, PIPELINE)
        bench.read([os.path.join(source, "model.safetensors")])
        for found, sample in zip((first, every), shown(
                bench, source, None if i else os.path.join(target, "iter_0000001"))):
            found.mount.append(sample)
            found.peer.append(Sample(theirs["seconds"], memory=theirs["memory"]))
    return first, every


def measured(bench, which):
    return bench.once("megatron", for_a_mesh)[which]


def took(bench, which, how):
    return both_took(measured(bench, which), "converter", how)


CONVERTER = "MindSpeed-LLM's converter"


row("megatron_first", "Hugging Face model for Megatron-LM, mount and the first of 8 files",
    CONVERTER, (">=", 10), "x", tree="hf", by=(took, 0, sooner))
row("megatron_all", "the same, all files", CONVERTER, (">=", 2), "x", tree="hf",
    by=(took, 1, sooner))
row("megatron_smaller", "memory for it", CONVERTER, ("<=", 0.1), "x", tree="hf",
    by=(took, 1, smaller))


@row("megatron_mount_memory", "memory of the mount", "", ("<=", 64), "MiB", tree="hf")
def megatron_mount_memory(bench):
    found = measured(bench, 1)
    return Measured([sample.memory / MIB for sample in found.mount], found.mount, found.peer)
