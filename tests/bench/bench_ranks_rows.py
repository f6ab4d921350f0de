# SPDX-License-Identifier: Apache-2.0
"""Rows of a whole model out of one torch.save() file for each of 8 ranks, and out of a tree
of Megatron-LM."""

import json
import os
import shutil
import time

from bench_rows import both_took, export_sample, row, sooner
from bench_tools import MIB, Measured, Sample, Skip, other_python

TABLE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data", "megatron",
                     "tables", "dense.rules")


def ranks(*words):
    variable = "RSH_DEEPSPEED_PYTHON" if "zero" in words[0] else "RSH_HF_PYTHON"
    return other_python(variable, "bench_ranks.py", words)


def first_tensor(bench, source, words):
    """Seconds of a mount and of a read of the first tensor that it shows."""
    start = time.perf_counter()
    with bench.mounted_at(source, None, None, ["--format", "hf", *words], described=True,
                          cache=os.path.join(bench.work, "no-cache")) as mount:
        name = min(n for n in os.listdir(mount.path) if n.endswith(".safetensors"))
        with open(os.path.join(mount.path, name), "rb") as f:
            header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
            header.pop("__metadata__", None)
            begin, end = min(e["data_offsets"] for e in header.values())
            if len(f.read(end - begin)) != end - begin:
                raise OSError("the first tensor is short")
        seconds = time.perf_counter() - start
    shutil.rmtree(os.path.join(bench.work, "no-cache"), ignore_errors=True)
    return Sample(seconds, end - begin)


def made_and_words(bench, peer, source):
    """Makes what a peer joins; returns the options that make the same of it."""
    if peer in ("merge", "join"):
        bench.once("made torch_ranks", lambda _: ranks("make", source, bench.settings.size))
        # What the merger writes.
        return ["--cast", "bfloat16"] if peer == "merge" else []
    if peer in ("zero", "zero_lazy"):
        bench.once("made zero", lambda _: ranks("make_zero", source, bench.settings.size))
        return []
    bench.once("made megatron", lambda _: ranks("make_megatron", source, bench.settings.size))
    return ["--convert", TABLE, "--from", "mindspore",
            "--config", os.path.join(source, "config.json")]


def out_of_files(bench, peer):
    """Exports, what a first tensor takes, and a peer of both."""
    for named, of, what in (("RSH_VERL", "merge", "verl"),
                            ("RSH_MINDSPEED_LLM", "mindspeed", "MindSpeed-LLM")):
        if peer == of and not os.environ.get(named):
            raise Skip(f"{named} does not name a directory that has {what}")
    source, target, other = (os.path.join(bench.work, name) for name in (
        "torch_ranks" if peer in ("merge", "join") else "zero" if "zero" in peer else "megatron",
        "exported", "peer"))
    words = made_and_words(bench, peer, source)
    found, first = Measured(), Measured()
    for i in bench.each_repeat(most=5):
        bench.read([os.path.join(at, n) for at, _, names in os.walk(source) for n in names
                    if n.endswith(".pt")])
        for place in target, other:
            shutil.rmtree(place, ignore_errors=True)
        theirs = ranks(peer, source, other)
        mine = export_sample(bench, "--format", "hf", *words, source, target)
        if not i:
            ranks("same", other, target)
        found.mount.append(mine)
        found.peer.append(Sample(theirs["seconds"], memory=theirs["memory"]))
        first.mount.append(first_tensor(bench, source, words if peer != "merge" else []))
        first.peer.append(Sample(theirs["first"]))
    return found, first


def measured(bench, peer, which):
    return bench.once(f"torch_ranks {peer}", lambda bench: out_of_files(bench, peer))[which]


def took(bench, peer, which, who):
    return both_took(measured(bench, peer, which), who, sooner)


PEERS = {"merge": "verl's merger", "join": "torch.load of all, cat, save_file",
         "mindspeed": "MindSpeed-LLM's converter", "zero": "zero_to_fp32.py",
         "zero_lazy": "its get_fp32_state_dict_..., lazy_mode, save_file"}


row("ranks_verl", "whole model out of files of 8 ranks, export", PEERS["merge"], (">=", 2), "x",
    tree="torch", by=(took, "merge", 0, "verl"))
row("ranks_verl_first", "the same, mount and the first tensor", PEERS["merge"], (">=", 20), "x",
    tree="torch", by=(took, "merge", 1, "verl"))
row("ranks_join", "whole model out of files of 8 ranks, export", PEERS["join"], (">=", 2), "x",
    tree="torch", by=(took, "join", 0, "torch"))
row("ranks_join_first", "the same, mount and the first tensor", PEERS["join"], (">=", 20), "x",
    tree="torch", by=(took, "join", 1, "torch"))


def memory_of(bench, peer, who):
    found = measured(bench, peer, 0)
    result = Measured([sample.memory / MIB for sample in found.mount], found.mount, found.peer)
    result.note(f"{who} {max(s.memory for s in found.peer) / MIB:.0f} MiB")
    return result


row("ranks_memory", "memory of the export", "", ("<=", 64), "MiB", tree="torch",
    by=(memory_of, "join", "torch"))
row("megatron_mindspeed", "Hugging Face model out of mp_rank_* files, export",
    PEERS["mindspeed"], (">=", 2), "x", tree="torch", by=(took, "mindspeed", 0, "MindSpeed-LLM"))
row("megatron_mindspeed_first", "the same, mount and the first tensor", PEERS["mindspeed"],
    (">=", 10), "x", tree="torch", by=(took, "mindspeed", 1, "MindSpeed-LLM"))
row("megatron_join", "Hugging Face model out of mp_rank_* files, export", PEERS["join"],
    (">=", 1), "x", tree="torch", by=(took, "join_megatron", 0, "torch"))
row("megatron_join_first", "the same, mount and the first tensor", PEERS["join"],
    (">=", 10), "x", tree="torch", by=(took, "join_megatron", 1, "torch"))
row("megatron_memory", "memory of the export", "", ("<=", 64), "MiB", tree="torch",
    by=(memory_of, "join_megatron", "torch"))
row("ranks_zero", "whole model out of ZeRO 3 of 2 ranks, export", PEERS["zero"], (">=", 1.5), "x",
    tree="torch", by=(took, "zero", 0, "DeepSpeed"))
row("ranks_zero_first", "the same, mount and the first tensor", PEERS["zero"], (">=", 5), "x",
    tree="torch", by=(took, "zero", 1, "DeepSpeed"))
row("ranks_zero_lazy", "the same, export", PEERS["zero_lazy"], (">=", 1.5), "x", tree="torch",
    by=(took, "zero_lazy", 0, "DeepSpeed"))
# The peer's time begins after its imports, which take seconds.
row("ranks_zero_lazy_first", "the same, mount and the first tensor", PEERS["zero_lazy"],
    unit="x", tree="torch", by=(took, "zero_lazy", 1, "DeepSpeed"))
