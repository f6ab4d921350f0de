# SPDX-License-Identifier: Apache-2.0
"""The rows of the benchmarks, in the order of the table.

A row's function takes the Bench, proves that the bytes it compares are equal
and returns a Measured.  The trees it names are there while rows need them.
"""

import contextlib
import glob
import hashlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass

from rsh_mount import reshardfs_program
from safetensors_format import Tensors

from bench_tools import (MIB, Broken, Measured, Sample, Skip, Watch, make_room,
                         mindformers, rate_text, require_mindformers, status_field,
                         storage_bytes_of, timed, torch)
from bench_trees import SOURCE_RANKS, WANTED_RANKS

ROWS = []


@dataclass
class Row:
    name: str
    title: str
    peer: str
    reach: tuple  # (">=" or "<=", number), None of a row that only informs
    unit: str
    tree: str
    function: object
    plot: str = None  # the row fills this plot and has no values of its own

    def reached(self, value):
        relation, limit = self.reach
        return value >= limit if relation == ">=" else value <= limit


def row(name, title, peer, reach=None, unit="", tree="contiguous", plot=None, by=None):
    """A row of the function that follows, or by=(function, its arguments after the Bench)."""
    def add(function):
        ROWS.append(Row(name, title, peer, reach, unit, tree, function, plot))
        return function
    return add(lambda bench: by[0](bench, *by[1:])) if by else add


def the_tree(bench, name):
    return bench.tree(name, converted=True)


def rates(result, mount="mount", peer="peer"):
    """Say in a note which rates the ratios come from."""
    for who, samples in ((mount, result.mount), (peer, result.peer)):
        if samples:
            middle = statistics.median(s.rate for s in samples)
            result.note(f"{who} {rate_text(middle)}")
    return result


def both_took(found, peer, how):
    """A row of what both sides took; how: of a mount's Sample and the peer's, the value,
    and of Samples what a note says."""
    value, note = how
    result = Measured([value(mine, theirs) for mine, theirs in zip(found.mount, found.peer)],
                      found.mount, found.peer)
    for who, samples in (("mount", result.mount), (peer, result.peer)):
        result.note(f"{who} {note(samples)}")
    return result


sooner = (lambda mine, theirs: theirs.seconds / mine.seconds,
          lambda samples: f"{statistics.median(s.seconds for s in samples):.2f} s")
smaller = (lambda mine, theirs: mine.memory / theirs.memory,
           lambda samples: f"{max(s.memory for s in samples) / MIB:.0f} MiB")


def once_took(bench, measure, peer, how):
    """The same of what is measured once for several rows."""
    return both_took(bench.once(measure.__name__, measure), peer, how)


# ---- warm, sequential ----

def against_direct(bench, name, readers=1, ranks=WANTED_RANKS):
    tree = the_tree(bench, name)
    source = tree.source_files()
    with bench.mounted(tree, ranks=ranks) as mount:
        bench.verify(mount, tree, ranks)
        files = bench.files(mount, tree, ranks)
        return rates(bench.compare(lambda: bench.read(bench.forget(files), readers),
                                   lambda: bench.read(source, readers),
                                   warm=source), peer="direct")


def against_bindfs(bench, name):
    tree = the_tree(bench, name)
    with bench.bindfs(tree.converted) as peer, bench.mounted(tree) as mount:
        bench.verify(mount, tree)
        files = bench.files(mount, tree)
        peer_files = bench.files(peer, tree)
        return rates(bench.compare(lambda: bench.read(bench.forget(files)),
                                   lambda: bench.read(bench.forget(peer_files)),
                                   warm=tree.source_files()), peer="bindfs")


row("contiguous", "contiguous reshard, one reader, 1 MiB reads", "direct read",
    (">=", 0.30), by=(against_direct, "contiguous"))
row("contiguous_two", "the same, two readers", "direct read, two readers",
    (">=", 0.40), by=(against_direct, "contiguous", 2))
row("checkpoint2", "contiguous reshard of a Checkpoint 2.0", "direct read",
    (">=", 0.30), tree="checkpoint2", by=(against_direct, "checkpoint2"))
row("inner", "inner-axis reshard, rows of 1 KiB", "direct read", (">=", 0.25),
    tree="inner", by=(against_direct, "inner"))
row("inner_whole", "the same, 8 slices side by side (8 to 1)", "direct read",
    tree="inner", by=(against_direct, "inner", 1, 1))
row("bindfs", "contiguous reshard, 1 MiB reads", "bindfs", (">=", 10), "x",
    by=(against_bindfs, "contiguous"))
row("inner_bindfs", "inner-axis reshard, 1 MiB reads", "bindfs", unit="x",
    tree="inner", by=(against_bindfs, "inner"))
row("identity", "no reshard, with optimizer states, 1 MiB reads", "direct read",
    tree="trained", by=(against_direct, "trained", 1, SOURCE_RANKS))


# ---- weights in the other side's words ----

def verify_weights(path, weights):
    """What is more than renamed has its bytes where it must have them."""
    with open(path, "rb") as f:
        length = int.from_bytes(f.read(8), "little")
        head = json.loads(f.read(length))
        for name, content in weights.expected().items():
            f.seek(8 + length + head[name]["data_offsets"][0])
            if f.read(len(content)) != content:
                raise Broken(f"{name} of the mount has wrong bytes")


def converted_weights(bench, kind, read):
    """What `read` makes of a mount of these weights and its only or first file."""
    weights = bench.tree(kind)
    with bench.mounted_at(weights.source, None, weights.strategy, weights.options) as mount:
        path = os.path.join(mount.path, "rank_0/checkpoint_0.safetensors")
        bench.once(f"verified {kind}", lambda _: verify_weights(path, weights))
        return read(weights, mount, path)


def weights_against_direct(bench, kind):
    def read(weights, _, path):
        return rates(bench.compare(
            lambda: bench.read(bench.forget([path])),
            lambda: bench.read([weights.path], limit=os.path.getsize(path)),
            warm=[weights.path]), peer="direct")

    return converted_weights(bench, kind, read)


row("weights_qkv", "weights renamed, queries, keys and values by groups (1 to 8)",
    "direct read of as many bytes", (">=", 0.28), tree="weights_qkv",
    by=(weights_against_direct, "weights_qkv"))
row("weights_gate", "weights of gate and up in turn, rows of 8 KiB",
    "direct read of as many bytes", (">=", 0.25), tree="weights_gate",
    by=(weights_against_direct, "weights_gate"))
row("weights_experts", "experts stacked and transposed", "direct read of as many bytes",
    (">=", 0.12), tree="weights_experts", by=(weights_against_direct, "weights_experts"))


@row("weights_experts_read", "the same: bytes read of the source", "bytes needed",
     ("<=", 1.05), tree="weights_experts")
def weights_experts_read(bench):
    def read(_, mount, path):
        before, result = mount.stats(), Measured()
        result.mount.append(bench.read(bench.forget([path])))
        fetched = mount.stats()["fetched"]["bytes"] - before["fetched"]["bytes"]
        result.values.append(fetched / os.path.getsize(path))
        return result

    return converted_weights(bench, "weights_experts", read)


@row("weights_stacked", "export, experts stacked for transformers 5, each one run",
     "cp -r of the model, fsync", (">=", 0.8), tree="weights_stacked")
def weights_stacked(bench):
    def read(weights, _, path):
        target = os.path.join(bench.work, "copy")

        def write(command, name):
            os.sync()  # so that the disk is at rest
            file = os.path.join(target, name)
            seconds, _ = timed(subprocess.check_call, [*command, target])
            more, _ = timed(subprocess.check_call, ["sync", file])
            size = os.path.getsize(file)
            shutil.rmtree(target)
            return Sample(seconds + more, size)

        export = [reshardfs_program(), "export", "-q", *weights.options, weights.source]
        return rates(bench.compare(
            lambda: write(export, os.path.join("rank_0", os.path.basename(path))),
            lambda: write(["cp", "-r", weights.source], "model.safetensors"),
            warm=[weights.path]), "export", "cp")

    return converted_weights(bench, "weights_stacked", read)


# ---- programs that read ----

def python_reads(path):
    def read():
        with open(path, "rb") as f:
            return f.read()

    seconds, data = timed(read)
    return Sample(seconds, len(data))


@row("python_read", "Python open().read() of a rank", "of the converted file",
     (">=", 0.80))
def python_read(bench):
    tree = the_tree(bench, "contiguous")
    with bench.mounted(tree) as mount:
        file, peer = bench.files(mount, tree)[0], tree.converted_files()[0]
        bench.verify(mount, tree, only=sorted(tree.wanted)[0])
        return rates(bench.compare(lambda: python_reads(*bench.forget([file])),
                                   lambda: python_reads(peer),
                                   warm=tree.source_files()), peer="file")


def mindspore_loads(bench, kind):
    oracle = bench.oracle
    tree = the_tree(bench, "contiguous")
    with contextlib.ExitStack() as stack:
        mount = stack.enter_context(bench.mounted(tree, extra=["--format", kind]))
        converted = peer = tree.converted_files()[0]
        file = os.path.join(mount.path, f"rank_0/checkpoint_0.{kind}")
        if kind != "ckpt":
            at = stack.enter_context(tempfile.TemporaryDirectory(dir=bench.work))
            peer = shutil.copy(file, at)
        length = os.path.getsize(peer)
        # What it reads, the source behind that and what it makes of them.
        room = 4 * length
        make_room(room)
        if not oracle.ask("same", paths=[converted, file], ordered=kind == "ckpt")["same"]:
            raise Broken("load_checkpoint gives different tensors")

        def load(path):
            make_room(room)
            return Sample(oracle.ask("load", path=path)["seconds"], length)

        return rates(bench.compare(lambda: load(*bench.forget([file])),
                                   lambda: load(peer),
                                   warm=tree.source_files()), peer="file")


row("load_checkpoint", "MindSpore load_checkpoint of a rank",
    "of the converted file", (">=", 0.95), by=(mindspore_loads, "ckpt"))
row("load_safetensors", "MindSpore load_checkpoint of a rank in safetensors",
    "of a copy of that file", by=(mindspore_loads, "safetensors"))


@row("mindformers", "MindSpore loads a rank of a Checkpoint 2.0 into a network",
     "mindformers, of the tree", tree="checkpoint2")
def mindformers_loads(bench):
    oracle = bench.oracle
    tree = the_tree(bench, "checkpoint2")
    length = tree.content // WANTED_RANKS
    sums = set()

    def load(path):
        make_room(4 * length)
        reply = oracle.ask("network", rank=0, step=tree.own, path=path,
                           strategy=tree.dst_strategy)
        if "lacking" in reply:
            raise Skip(reply["lacking"])
        sums.add(reply["sum"])
        if len(sums) > 1:
            raise Broken("MindSpore loads other tensors than mindformers")
        return Sample(reply["seconds"], length)

    with bench.mounted(tree, extra=["--format", "safetensors"]) as mount:
        file = os.path.join(mount.path, "rank_0", "checkpoint_0.safetensors")
        return rates(bench.compare(lambda: load(*bench.forget([file])),
                                   lambda: load(None), warm=tree.source_files()),
                     peer="mindformers")


# ---- conversions ----

def first_rank(bench, tree):
    """What it takes to mount and to read the first rank whole, as a Sample whose memory
    is that of reader and daemon; and the seconds until all others are read."""
    start = time.perf_counter()
    with bench.mounted(tree) as mount:
        files = bench.files(mount, tree)
        first = bench.read(files[:1])
        first.seconds = time.perf_counter() - start
        bench.read(files[1:])
        every = time.perf_counter() - start
        first.memory += status_field(mount.process.pid, "VmHWM")
        bench.verify(mount, tree)
    return first, every


def transform(bench, tree):
    """A Sample of transform_checkpoints; its files must be the mount's."""
    target = os.path.join(tree.directory, "transformed")
    try:
        took = bench.oracle.ask(
            "transform", source=tree.source, target=target,
            src_strategy=tree.src_strategy, dst_strategy=tree.dst_strategy)
        bench.verify_files(target, tree, "the converter")
    finally:
        shutil.rmtree(target, ignore_errors=True)
    return Sample(took["seconds"], tree.content, memory=took["memory"])


def conversion(bench):
    """transform_checkpoints, and mounts of what it converts."""
    oracle = bench.oracle
    tree = the_tree(bench, "contiguous")
    result = Measured()
    oracle.ask("load", path=tree.converted_files()[0])  # its first call is slow
    bench.read(tree.source_files())
    first_rank(bench, tree)
    for _ in bench.each_repeat():
        result.peer.append(transform(bench, tree))
        result.mount.append(first_rank(bench, tree)[0])
    return result


row("transform", "mount and first rank read whole", "transform_checkpoints",
    (">=", 50), "x", by=(once_took, conversion, "converter", sooner))
row("transform_memory", "memory for it, daemon and reader", "transform_checkpoints",
    ("<=", 0.1), "x", by=(once_took, conversion, "converter", smaller))


def whole_model(bench, source):
    """A first mount of `source` and all that it shows read, with the memory of both."""
    with tempfile.TemporaryDirectory(dir=bench.work) as cache:
        start = time.perf_counter()
        with bench.mounted_at(source, None, None, described=True,
                              extra=["--format", "hf"], cache=cache) as mount:
            files = [os.path.join(mount.path, name) for name in os.listdir(mount.path)]
            sample = bench.read(files)
            sample.seconds = time.perf_counter() - start
            sample.memory += status_field(mount.process.pid, "VmHWM")
    return sample


def consolidation(bench, kind):
    """torch's consolidation of a checkpoint of two ranks, and the mount of it."""
    source = os.path.join(bench.work, "torch_" + kind)
    target = source + "_whole"
    torch("make", kind, source, bench.settings.size)
    result = Measured()
    for i in bench.each_repeat(most=5):
        peer = torch("consolidate", kind, source, target)
        if not i:
            with bench.mounted_at(source, None, None, ["--format", "hf"],
                                  described=True) as mount:
                torch("same", kind, target, mount.path)
        shutil.rmtree(target, ignore_errors=True)
        if os.path.exists(target):
            os.remove(target)
        result.mount.append(whole_model(bench, source))
        result.peer.append(Sample(peer["seconds"], result.mount[-1].bytes,
                                  memory=peer["memory"]))
    return result


def consolidated(bench, kind, how):
    return both_took(bench.once("torch_" + kind, lambda bench: consolidation(bench, kind)),
                     "torch", how)


row("dcp", "whole model of a DCP, mount and all bytes read", "dcp_to_torch_save",
    (">=", 5), "x", tree="torch", by=(consolidated, "dcp", sooner))
row("dcp_memory", "memory for it, daemon and reader", "dcp_to_torch_save",
    ("<=", 0.1), "x", tree="torch", by=(consolidated, "dcp", smaller))
row("dcp_hf", "the same of safetensors in shards", "consolidate_safetensors_files",
    unit="x", tree="torch", by=(consolidated, "hf", sooner))
row("dcp_hf_memory", "memory for it, daemon and reader", "consolidate_safetensors_files",
    unit="x", tree="torch", by=(consolidated, "hf", smaller))


# ---- loaded by torch ----

def loaded_by_torch(bench, name):
    """dcp.load of a mount of rank files, and of what dcp.save makes of it."""
    tree = bench.tree(name)
    target = os.path.join(bench.work, "saved_by_torch")
    with bench.mounted(tree, ranks=1, extra=["--format", "dcp"]) as mount:
        torch("save", mount.path, target)
        torch("load", mount.path, target)

        def side(directory, held):
            bench.read(held)
            found = torch("load", directory)
            return Sample(found["seconds"], found["bytes"])

        source = tree.source_files()
        saved = [os.path.join(target, file) for file in os.listdir(target)]
        result = bench.compare(lambda: side(mount.path, source),
                               lambda: side(target, saved), warm=source)
    shutil.rmtree(target)
    return result


row("dcp_load", "dcp.load of a mount of rank files, contiguous",
    "dcp.load of dcp.save's files", (">=", 0.8), tree="contiguous",
    by=(loaded_by_torch, "contiguous"))
row("dcp_load_inner", "the same, inner axis", "dcp.load of dcp.save's files",
    (">=", 0.5), tree="inner", by=(loaded_by_torch, "inner"))


def loaded_without_mount(bench, name, peer):
    """dcp.load by the module's StorageReader, and of a mount, or of what dcp.save makes."""
    tree = bench.tree(name)
    target = os.path.join(bench.work, "saved_by_torch")
    options = json.dumps({"src_strategy": tree.src_strategy})
    with bench.mounted(tree, ranks=1, extra=["--format", "dcp"]) as mount:
        torch("save", mount.path, target)
        torch("read", tree.source, options, target)
        shown = mount.path if peer == "mount" else target
        saved = [os.path.join(target, file) for file in os.listdir(target)]

        def side(held, *words):
            bench.read(held)
            found = torch(*words)
            return Sample(found["seconds"], found["bytes"])

        source = tree.source_files()
        result = bench.compare(lambda: side(source, "read", tree.source, options),
                               lambda: side(source if peer == "mount" else saved, "load", shown),
                               warm=source)
    shutil.rmtree(target)
    return result


row("dcp_reader", "dcp.load with reshardfs.dcp.Reader of rank files",
    "dcp.load of dcp.save's files", (">=", 1.0), tree="contiguous",
    by=(loaded_without_mount, "contiguous", "saved"))
row("dcp_reader_inner", "the same, inner axis",
    "dcp.load of dcp.save's files", (">=", 1.0), tree="inner",
    by=(loaded_without_mount, "inner", "saved"))
row("dcp_reader_mount", "dcp.load with reshardfs.dcp.Reader of rank files",
    "dcp.load of a mount of them", (">=", 1.5), tree="contiguous",
    by=(loaded_without_mount, "contiguous", "mount"))


def started_by_merging(bench, tree):
    """The complete model by MindSpore, saved by torch and loaded for a step.  The parts
    run one after the other, so memory is that of the largest."""
    target = os.path.join(bench.work, "started")
    saved = os.path.join(target, "saved")
    try:
        merged = bench.oracle.ask("merge", source=tree.source, target=target,
                                  src_strategy=tree.src_strategy)
        parts = [merged, torch("resave", os.path.join(target, "model.safetensors"), saved)]
        with bench.mounted(tree, ranks=1, extra=["--format", "dcp"]) as mount:
            torch("load", mount.path, saved)
        parts.append(torch("start", saved))
    finally:
        shutil.rmtree(target, ignore_errors=True)
    return Sample(sum(part["seconds"] for part in parts), tree.content,
                  memory=max(part["memory"] for part in parts) - parts[-1]["kept"])


def started_by_mount(bench, tree):
    """The same of a mount."""
    start = time.perf_counter()
    with bench.mounted(tree, ranks=1, extra=["--format", "dcp"]) as mount:
        mounted = time.perf_counter() - start
        found = torch("start", mount.path)
        daemon = status_field(mount.process.pid, "VmHWM")
    return Sample(mounted + found["seconds"], tree.content,
                  memory=found["memory"] + daemon - found["kept"])


def started(bench):
    tree, result = bench.tree("contiguous"), Measured()
    bench.read(tree.source_files())
    for _ in bench.each_repeat():
        result.peer.append(started_by_merging(bench, tree))
        result.mount.append(started_by_mount(bench, tree))
    return result


row("dcp_start", "mount, dcp.load and a step of training",
    "transform_checkpoints, dcp.save, dcp.load, a step", (">=", 10), "x",
    by=(once_took, started, "merging", sooner))
row("dcp_start_memory", "memory for it, beside what training keeps",
    "transform_checkpoints, dcp.save, dcp.load, a step", ("<=", 0.1), "x",
    by=(once_took, started, "merging", smaller))


# ---- there and back, with mindformers ----

def convert_words(model, side, *more):
    return ["--convert", model.table, "--from", side, *more]


def export_sample(bench, *words):
    """A Sample of `reshardfs export`, with its memory."""
    start = time.perf_counter()
    with subprocess.Popen(
            [reshardfs_program(), "export", "-q", *words],
            env={**os.environ, "XDG_CACHE_HOME": os.path.join(bench.work, "cache")}
            ) as process, Watch(process.pid, "VmHWM") as watch:
        status = process.wait()
    if status:
        raise Broken(f"export ended with {status}")
    return Sample(time.perf_counter() - start, 0, memory=watch.most)


def tensor_digests(directory):
    """{name: (type, shape, sha256)} of a model's tensors."""
    result = {}
    for path in glob.glob(os.path.join(directory, "*.safetensors")):
        with open(path, "rb") as f:
            tensors = Tensors(f.read()).values()
        result.update((name, (dtype, shape, hashlib.sha256(content).digest()))
                      for name, (dtype, shape, content) in tensors.items())
    return result


def out_of_ranks(bench):
    """A whole model of a tree of 8 ranks, by export and by mindformers."""
    require_mindformers()
    model = bench.tree("model", size=bench.settings.size // 2)
    ranks, target, peer_target = (os.path.join(model.directory, name)
                                  for name in ("ranks", "target", "peer"))
    export_sample(bench, *convert_words(model, "hf"), "--src-strategy", "none", "--dst-strategy",
           model.dst_strategy, model.source, ranks)
    result = Measured()
    for i in bench.each_repeat(most=3):
        peer = mindformers("to_hf", ranks, model.dst_strategy, model.config, peer_target)
        sample = export_sample(
            bench, *convert_words(model, "mindspore", "--config", model.config),
            "--src-strategy", model.dst_strategy, "--dst-strategy", "none",
            "--format", "hf", ranks, target)
        for place in (target, peer_target):
            if not i and tensor_digests(place) != tensor_digests(model.source):
                raise Broken("the model is not what it was")
            shutil.rmtree(place)
        sample.bytes = model.content
        result.mount.append(sample)
        result.peer.append(Sample(peer["seconds"], model.content, memory=peer["memory"]))
    shutil.rmtree(ranks)  # another program to compare with may have another manifest
    return result


row("convert_back", "whole Hugging Face model out of 8 ranks, export",
    "mindformers' tables on the merged ranks", (">=", 5), "x", tree="model",
    by=(once_took, out_of_ranks, "mindformers", sooner))
row("convert_back_memory", "memory for it", "mindformers' tables on the merged ranks",
    ("<=", 0.1), "x", tree="model", by=(once_took, out_of_ranks, "mindformers", smaller))


@row("convert_rank", "Hugging Face to 8 ranks: mount, and MindSpore loads one",
     "mindformers' tables, then load", (">=", 20), "x", tree="model")
def convert_rank(bench):
    require_mindformers()
    oracle = bench.oracle
    model = bench.tree("model", size=bench.settings.size // 2)
    target = os.path.join(model.directory, "whole")
    bench.read(model.source_files())
    result = Measured()
    for i in bench.each_repeat(most=3):
        peer = mindformers("to_mindspore", model.source, target)
        start = time.perf_counter()
        with bench.mounted_at(model.source, None, model.dst_strategy,
                              convert_words(model, "hf")) as mount:
            file = os.path.join(mount.path, "rank_0", "checkpoint_0.ckpt")
            mounting = time.perf_counter() - start
            loading = oracle.ask("load", path=file)["seconds"]
            if not i:
                same_rank(bench, oracle, target, model.dst_strategy, file)
        shutil.rmtree(target)
        result.mount.append(Sample(mounting + loading, model.content // model.ranks))
        result.peer.append(Sample(peer["seconds"], model.content))
    return both_took(result, "mindformers", sooner)


def same_rank(bench, oracle, whole, strategy, file):
    """Is a rank of a mount what mindformers' own file gives, resharded?"""
    with bench.mounted_at(whole, None, strategy) as mount:
        other = os.path.join(mount.path, "rank_0", "checkpoint_0.ckpt")
        if not oracle.ask("same", paths=[other, file], ordered=False)["same"]:
            raise Broken("MindSpore loads other tensors than mindformers makes")


# ---- real files ----

def exported(bench, tree, target):
    """Write the files of `tree` to a directory that is not there."""
    subprocess.run(
        [reshardfs_program(), "export", "-q", "--src-strategy", tree.src_strategy,
         "--dst-strategy", tree.dst_strategy, tree.source, target],
        check=True, env={**os.environ,
                         "XDG_CACHE_HOME": os.path.join(bench.work, "cache")})


def copied(bench, tree, target, durable):
    """The same with cp; with `durable` until they are on the disk, as export."""
    subprocess.run(["cp", "-r", tree.converted, target], check=True)
    if durable:
        files = [os.path.join(target, name) for name in sorted(tree.wanted)]
        subprocess.run(["sync", *files], check=True)


def real_files(bench, name, durable=True):
    tree = the_tree(bench, name)
    target = os.path.join(bench.work, "target")

    def measured(write, *how):
        os.sync()  # so that the disk is at rest
        try:
            seconds, _ = timed(write, bench, tree, target, *how)
            if write is exported:
                bench.verify_files(target, tree, "export", once=name)
        finally:
            shutil.rmtree(target, ignore_errors=True)
        return Sample(seconds, tree.content)

    return rates(bench.compare(lambda: measured(exported),
                               lambda: measured(copied, durable),
                               warm=tree.source_files() + tree.converted_files()),
                 "export", "cp")


row("export", "export, contiguous reshard", "cp -r of its files, fsync",
    (">=", 0.90), by=(real_files, "contiguous"))
row("export_inner", "export, inner-axis reshard", "cp -r of its files, fsync",
    (">=", 0.90), tree="inner", by=(real_files, "inner"))
row("export_cp", "export, contiguous reshard", "cp -r of its files, no fsync",
    by=(real_files, "contiguous", False))
row("export_cp_inner", "export, inner-axis reshard", "cp -r of its files, no fsync",
    tree="inner", by=(real_files, "inner", False))


# ---- cold ----

def cold_mount(bench, tree):
    """(read of all ranks of a fresh mount, bytes fetched from storage for it).

    All counts that this mount has caused to be fetched from its start on, by
    the daemon or, where the kernel reads for it, by the reader.
    """
    source = tree.source_files()
    bench.make_cold(source)
    with bench.mounted(tree) as mount:
        bench.make_cold(source)
        sample = bench.read(bench.files(mount, tree))
        fetched = storage_bytes_of(mount.process.pid) + sample.storage_bytes
        bench.verify(mount, tree)
    if not fetched:
        raise Skip(f"no storage is read for {bench.settings.dir}")
    return sample, fetched


def amplification(bench, name):
    tree = the_tree(bench, name)
    result = Measured()
    for _ in bench.each_repeat(most=3):
        sample, fetched = cold_mount(bench, tree)
        sample.storage_bytes = fetched
        result.mount.append(sample)
        result.values.append(fetched / tree.content)
    result.note("read_bytes of /proc/PID/io, daemon and reader")
    return result


def cold(bench, name):
    tree = the_tree(bench, name)
    source = tree.source_files()

    def direct():
        bench.make_cold(source)
        sample = bench.read(source)
        if sample.storage_bytes < sample.bytes * 0.9:
            raise Skip("reading the source directly does not read storage")
        return sample

    return rates(bench.compare(lambda: cold_mount(bench, tree)[0], direct),
                 peer="direct")


row("read_once_rows", "all ranks once, cold: bytes fetched, contiguous",
    "distinct bytes", ("<=", 1.02), by=(amplification, "contiguous"))
row("read_once_columns", "all ranks once, cold: bytes fetched, inner axis",
    "distinct bytes", ("<=", 1.02), tree="inner", by=(amplification, "inner"))
row("cold", "cold source, contiguous", "direct cold read", (">=", 0.95), by=(cold, "contiguous"))
row("cold_inner", "cold source, inner axis", "direct cold read", tree="inner", by=(cold, "inner"))


# ---- a slow source ----

SLOW_RATE = 200e6
SLOW = "delay=5ms,rate=200M"
# As of one that is mounted without a cache of its own: 80 to two, 13 to four.
CROWDED = "delay=0ms,rate=200M,crowd=2.5"


def slow(bench, name):
    if not bench.offers("--fault"):
        raise Skip("this reshardfs has no --fault")
    tree = the_tree(bench, name)
    result = Measured()
    with bench.mounted(tree) as mount:
        bench.verify(mount, tree)  # at full speed; below, one file of it again
    for i in bench.each_repeat():
        with bench.mounted(tree, extra=["--fault", SLOW]) as mount:
            rank = i % WANTED_RANKS
            sample = bench.read(bench.files(mount, tree)[rank:rank + 1])
            if not i:
                bench.verify(mount, tree, only=sorted(tree.wanted)[rank])
        result.mount.append(sample)
        result.values.append(sample.rate / SLOW_RATE)
    return rates(result)


row("slow", "a source of 5 ms a read and 200 MB/s, contiguous", "its own rate",
    (">=", 0.90), by=(slow, "contiguous"))
row("slow_inner", "the same, inner axis", "its own rate", tree="inner", by=(slow, "inner"))


def crowd(bench, readers):
    if not bench.offers("--readahead"):
        raise Skip("this reshardfs has no --readahead")
    tree = the_tree(bench, "contiguous")

    def through(n, *words):
        with bench.mounted(tree, extra=["--fault", CROWDED, *words]) as mount:
            return bench.read(bench.files(mount, tree)[:n], n)

    return rates(bench.compare(lambda: through(readers),
                               lambda: through(1, "--readahead", "1")), peer="one")


row("crowded", "a source of 200 MB/s to one read, 80 to two at a time",
    "one at a time", (">=", 0.80), by=(crowd, 1))
row("crowded_two", "the same, two readers", "one at a time", (">=", 0.80), by=(crowd, 2))


# ---- memory ----

@row("memory", "resident memory, a source twice as large, 64 MiB cache", "",
     ("<=", 128), "MiB", tree="sparse")
def memory(bench):
    tree = bench.tree("sparse", "mixed", 2 * bench.settings.size, sparse=True)
    extra = ["--cache", "on", "--cache-size", "64M"]
    result = Measured()
    result.note(f"source of {2 * bench.settings.size / 2**30:.3g} GiB")
    anonymous = 0
    for _ in bench.each_repeat(most=3):
        with bench.mounted(tree, extra=extra) as mount:
            pid = mount.process.pid
            with Watch(pid, "RssAnon") as watch:
                sample = bench.read(bench.files(mount, tree), 2)
            if sample.bytes < tree.content:
                raise Broken("the mount has fewer bytes than its source")
            anonymous = max(anonymous, watch.most)
            result.mount.append(sample)
            result.values.append(max(status_field(pid, "VmHWM"), watch.most) / MIB)
    result.note(f"value is VmHWM; RssAnon {anonymous / MIB:.0f} MiB at most")
    return result


# ---- random ----

THREADS = 8


@row("random", "random 4 KiB reads, 8 threads, all caches cold", "bindfs, cold too",
     (">=", 1.5), "x")
def random_reads(bench):
    tree = the_tree(bench, "contiguous")
    converted = tree.converted_files()
    reads = max(64, min(2000, tree.content // 4096 // 64))
    seed = 0

    def through(files):
        return bench.read_random(files, THREADS, reads, seed)

    def bindfs_side():
        nonlocal seed
        seed += 1  # places that no earlier repeat has warmed
        with bench.bindfs(tree.converted, threads=True) as peer:
            bench.make_cold(converted)
            return through(bench.files(peer, tree))

    def mount_side():
        source = tree.source_files()
        bench.make_cold(source)
        with bench.mounted(tree) as mount:
            bench.make_cold(source)
            return through(bench.files(mount, tree))

    def value(mount, peer):
        if mount.sum != peer.sum:
            raise Broken("random reads of mount and bindfs give different bytes")
        return peer.seconds / mount.seconds

    result = bench.compare(mount_side, bindfs_side, value=value)
    for who, samples in (("mount", result.mount), ("bindfs", result.peer)):
        middle = statistics.median(s.reads / s.seconds for s in samples)
        result.note(f"{who} {middle:.0f} reads/s")
    bench.make_cold(converted)
    disk = through(converted)
    result.note(f"the disk, no mount {disk.reads / disk.seconds:.0f} reads/s")
    return result


# ---- what FUSE leaves: a server that computes nothing ----

def server_against_direct(bench, label, readers, what, shown):
    """A server of bench_null.c that was told `what` and shows files of these
    numbers, with plain reads of as many bytes."""
    files = the_tree(bench, "contiguous").converted_files()
    with bench.nothing(*what) as server:
        copies = [os.path.join(server.path, str(number)) for number in shown]
        return rates(bench.compare(lambda: bench.read(copies, readers),
                                   lambda: bench.read(files, readers),
                                   warm=files), label, "direct")


def nothing_against_direct(bench, readers):
    files = the_tree(bench, "contiguous").converted_files()
    size = sum(map(os.path.getsize, files)) // readers
    return server_against_direct(bench, "from memory", readers, [size], [0] * readers)


def copy_against_direct(bench, readers):
    files = the_tree(bench, "contiguous").converted_files()
    return server_against_direct(bench, "copied", readers, files, range(len(files)))


row("null_one", "a server that answers from memory, one reader", "direct read",
    by=(nothing_against_direct, 1))
row("null_two", "the same, two readers", "direct read, two readers",
    by=(nothing_against_direct, 2))


@row("null_python", "the same, Python open().read()", "of the converted file")
def null_python(bench):
    peer = the_tree(bench, "contiguous").converted_files()[0]
    with bench.nothing(os.path.getsize(peer)) as nothing:
        file = os.path.join(nothing.path, "0")
        return rates(bench.compare(lambda: python_reads(file),
                                   lambda: python_reads(peer), warm=[peer]),
                     "from memory", "file")


row("copy_one", "a server that copies plain files, one reader", "direct read",
    by=(copy_against_direct, 1))
row("copy_two", "the same, two readers", "direct read, two readers", by=(copy_against_direct, 2))


# ---- many ranks ----

def big_job(bench, maker, suffix="", *more):
    """The sparse tree of a large job, made by a program of its own.

    It goes when the run ends: removing it can take minutes.
    """
    maker = os.path.join(os.path.dirname(os.path.abspath(__file__)), maker)
    if not os.path.exists(maker):
        raise Skip(f"there is no {maker}")
    settings = bench.settings
    directory = (settings.big_tree or os.path.join(bench.work, "big")) + suffix
    if not os.path.exists(directory):
        subprocess.run([sys.executable, maker, "--ranks", str(settings.ranks),
                        "--parameters", str(settings.parameters), *more, directory],
                       check=True)
        os.sync()
    return directory


def list_big(bench, directory):
    """(seconds to mount, seconds of ls -lR, bytes of memory)"""
    start = time.perf_counter()
    with bench.mounted_at(os.path.join(directory, "source"),
                          os.path.join(directory, "source_strategys"),
                          os.path.join(directory, "wanted_strategys")) as mount:
        mounting = time.perf_counter() - start
        listing, said = timed(subprocess.check_output, ["ls", "-lR", mount.path])
        if said.count(b"checkpoint_") != bench.settings.ranks // 2:
            raise Broken("ls -lR does not list a file for each rank")
        return mounting, listing, status_field(mount.process.pid, "VmHWM")


def measure_big(bench):
    """Figures of a first mount, and of others that find what it has left."""
    directory = big_job(bench, "make_big_tree.py")
    return (list_big(bench, directory),
            [list_big(bench, directory) for _ in bench.each_repeat()])


def big(bench, which, scale, unit):
    first, others = bench.once("big", measure_big)
    result = Measured([one[which] / scale for one in others])
    result.note(f"{bench.settings.ranks} ranks, {bench.settings.parameters} parameters")
    result.note(f"the first mount {first[which] / scale:.3g} {unit}")
    return result


row("big_mount", "mount 1,024 ranks of 2,000 parameters", "", ("<=", 1), "s", "big",
    by=(big, 0, 1, "s"))
row("big_list", "ls -lR of it", "", ("<=", 3), "s", "big", by=(big, 1, 1, "s"))
row("big_memory", "resident memory after that", "", ("<=", 100), "MB", "big",
    by=(big, 2, 1e6, "MB"))


def mount_big_checkpoint2(bench, directory, cache):
    """(seconds to mount, bytes of memory)"""
    start = time.perf_counter()
    with bench.mounted_at(directory, None, None, described=True, cache=cache) as mount:
        seconds = time.perf_counter() - start
        if not os.listdir(mount.path):
            raise Broken("the mount shows nothing")
        return seconds, status_field(mount.process.pid, "VmHWM")


def measure_big_checkpoint2(bench):
    """Figures of mounts that find nothing in the index cache, and of others that do."""
    ranks = bench.settings.ranks
    shard = math.gcd(ranks // math.gcd(ranks, 8), 4)
    directory = big_job(bench, "make_big_checkpoint2.py", ".checkpoint2", "--shard",
                        str(shard))
    mount_big_checkpoint2(bench, directory, None)  # into the page cache
    firsts, others = [], []
    for _ in bench.each_repeat():
        with tempfile.TemporaryDirectory(dir=bench.work) as cache:
            firsts.append(mount_big_checkpoint2(bench, directory, cache))
            others.append(mount_big_checkpoint2(bench, directory, cache))
    return firsts, others


def big_checkpoint2(bench, others, which, scale=1):
    found = bench.once("big_checkpoint2", measure_big_checkpoint2)[others]
    result = Measured([one[which] / scale for one in found])
    result.note(f"{bench.settings.ranks} ranks, {bench.settings.parameters} parameters")
    return result


row("big_checkpoint2_first", "mount a Checkpoint 2.0 of such a job the first time", "",
    ("<=", 3), "s", "big", by=(big_checkpoint2, False, 0))
row("big_checkpoint2_mount", "the same with the index cache", "", ("<=", 1), "s", "big",
    by=(big_checkpoint2, True, 0))
row("big_checkpoint2_memory", "resident memory after the first time", "",
    ("<=", 200), "MB", "big", by=(big_checkpoint2, False, 1, 1e6))


# ---- plots ----

REQUESTS = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20]
SHARES = [8, 4, 2, 1]


def by_request(bench, sides):
    """A line a side, (label, files, are they of a mount): the median rate of
    reading the files, by request size."""
    for request in REQUESTS:
        limit = request << 14
        found = {label: [] for label, _, _ in sides}
        for _ in bench.each_repeat(most=3):
            for label, files, virtual in sides:
                if virtual:
                    bench.forget(files)
                found[label].append(bench.read(files, 1, request, limit).rate)
        for label, values in found.items():
            bench.point("requests", label, request, statistics.median(values))


@row("requests", "plot: rate by request size", "", plot="requests")
def requests(bench):
    tree = the_tree(bench, "contiguous")
    with bench.mounted(tree) as mount:
        bench.verify(mount, tree, only=sorted(tree.wanted)[0])
        sides = [("direct", tree.converted_files()[:1], False),
                 ("mount, contiguous", bench.files(mount, tree)[:1], True)]
        bench.read(sides[0][1])
        try:
            peer = bench.bindfs(tree.converted)
        except Skip:
            by_request(bench, sides)
            return Measured()
        with peer:
            by_request(bench, [*sides, ("bindfs", bench.files(peer, tree)[:1], True)])
    return Measured()


@row("requests_inner", "plot: the same, inner axis", "", tree="inner",
     plot="requests")
def requests_inner(bench):
    tree = the_tree(bench, "inner")
    with bench.mounted(tree) as mount:
        bench.verify(mount, tree, only=sorted(tree.wanted)[0])
        by_request(bench, [("mount, inner axis", bench.files(mount, tree)[:1], True)])
    return Measured()


@row("sizes", "plot: time by checkpoint size", "", plot="sizes")
def sizes(bench):
    result = Measured()
    try:
        bench.oracle.ask("load", path=the_tree(bench, "contiguous").converted_files()[0])
        converts = True
    except Skip as skip:
        result.note(f"no transform_checkpoints: {skip}")
        converts = False
    for share in SHARES:
        whole = share == 1
        name = "contiguous" if whole else f"part_{share}"
        tree = bench.tree(name, "contiguous", bench.settings.size // share,
                          converted=whole)
        bench.read(tree.source_files())
        if converts:
            bench.point("sizes", "transform_checkpoints", tree.content,
                        transform(bench, tree).seconds)
        times = [first_rank(bench, tree) for _ in bench.each_repeat(most=3)]
        bench.point("sizes", "mount, all ranks read", tree.content,
                    statistics.median(t[1] for t in times))
        bench.point("sizes", "mount, first rank read", tree.content,
                    statistics.median(t[0].seconds for t in times))
        if not whole:
            bench.drop_tree(name)
    return result
