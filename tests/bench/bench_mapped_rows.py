# SPDX-License-Identifier: Apache-2.0
"""The rows of programs that map files: one or many readers, workers that map the same
files one after the other, and transformers."""

import contextlib
import glob
import json
import os
import shutil
import subprocess
import sys
import time

from ms_formats import Layout, StageFile, strategy_bytes
from rsh_mount import reshardfs_program

from bench_object_rows import lengths
from bench_object_rows import served as from_objects
from bench_rows import rates, row, the_tree
from bench_tools import (MIB, Broken, Measured, Sample, other_python, python_of, rate_text,
                         script_path)


def mapped(bench, readers, held=False):
    """Readers that map the virtual files, beside those of a server from memory, which
    has one megabyte or all of the files."""
    tree = the_tree(bench, "contiguous")
    shown = ["-m", *tree.converted_files()] if held else [tree.content]
    with bench.mounted(tree) as mount, bench.nothing(*shown) as nothing:
        bench.verify(mount, tree)
        bench.raise_readahead(nothing.path)

        def sample(files):
            return bench.read(bench.forget(files), readers, mapped=True)

        files = bench.files(mount, tree)
        memory = [os.path.join(nothing.path, str(i))
                  for i in range(len(files) if held else 1)]
        result = rates(bench.compare(lambda: sample(files), lambda: sample(memory),
                                     warm=tree.source_files()), peer="from memory")
        plain = bench.read(tree.converted_files(), readers) and \
            bench.read(tree.converted_files(), readers, mapped=True)
        result.note(f"plain files {rate_text(plain.rate)}")
        return result


row("mapped", "contiguous reshard, one reader that maps the files",
    "a server from memory, mapped", (">=", 0.9), by=(mapped, 1))
row("mapped_many", "the same, 16 readers", "a server from memory, mapped", (">=", 0.9),
    by=(mapped, 16))
row("mapped_held", "one reader that maps the files",
    "a server that has them in memory, mapped", (">=", 0.9), by=(mapped, 1, True))
row("mapped_held_many", "the same, 16 readers",
    "a server that has them in memory, mapped", (">=", 0.9), by=(mapped, 16, True))


# ---- workers that map the same files ----

WORKERS = 8
# Seconds between the starts of two workers.
APART = 0.35


@contextlib.contextmanager
def model(bench):
    """(mount, file of a mount, plain file) of a model in safetensors."""
    tree = the_tree(bench, "contiguous")
    with bench.mounted_at(tree.source, tree.src_strategy, None,
                          ["--format", "safetensors"]) as mount:
        shown = next(os.path.join(at, name) for at, _, names in os.walk(mount.path)
                     for name in names if name.endswith(".safetensors"))
        plain = os.path.join(bench.work, "plain.safetensors")
        shutil.copyfile(shown, plain)
        yield mount, shown, plain


def served(mount):
    return mount.stats()["shown"]["bytes"]


def together(commands, apart):
    """Starts the commands so many seconds apart; what each replies, and the seconds until
    all have ended."""
    start, running = time.perf_counter(), []
    for i, command in enumerate(commands):
        time.sleep(max(0, start + i * apart - time.perf_counter()))
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    said = [process.communicate()[0] for process in running]
    seconds = time.perf_counter() - start
    if any(process.returncode for process in running):
        raise Broken(f"{commands[0][:3]}: a worker failed")
    return [json.loads(text) for text in said], seconds


def bytes_served(bench, command, apart):
    """The bytes that are served for each byte of the file to workers, command(file, i),
    beside the time that they take with a plain file."""
    result = Measured()
    with model(bench) as (mount, shown, plain):
        size = os.path.getsize(shown)

        def sample(path):
            return together([command(path, i) for i in range(WORKERS)], apart)

        sample(plain)
        for _ in bench.each_repeat():
            expected, plainly = sample(plain)
            bench.forget([shown])
            before = served(mount)
            found, seconds = sample(shown)
            result.values.append((served(mount) - before) / size)
            if [one["sum"] for one in found] != [one["sum"] for one in expected]:
                raise Broken("a worker read other bytes")
            result.note(f"{seconds:.2f} s, plain files {plainly:.2f} s")
    return result


@row("mapped_workers", f"{WORKERS} workers that map a model, {APART} s apart, bytes served "
     "for each byte", "", ("<=", 1.05))
def mapped_workers(bench):
    return bytes_served(bench, lambda path, i: [bench.settings.reader, "-m", path], APART)


@row("mapped_slices", f"{WORKERS} workers at once, an eighth of each tensor by "
     "safe_open().get_slice(), bytes served for each byte", "", ("<=", 1.05))
def mapped_slices(bench):
    python = python_of("RSH_HF_PYTHON")
    return bytes_served(bench, lambda path, i: [
        python, script_path("bench_loading.py"), "slices", path, str(i), str(WORKERS)], 0)


@row("mapped_again", "a model that is mapped again", "a plain file, mapped", (">=", 0.5))
def mapped_again(bench):
    with model(bench) as (_, shown, plain):
        for path in (shown, plain):
            bench.read([path], mapped=True)
        return rates(bench.compare(lambda: bench.read([shown], mapped=True),
                                   lambda: bench.read([plain], mapped=True)))


@row("s3_mapped", f"{WORKERS} workers that map a model 30 ms away, {APART} s apart, bytes "
     "fetched for each byte", "", ("<=", 1.05))
def s3_mapped(bench):
    tree = the_tree(bench, "contiguous")
    result = Measured()
    with from_objects(tree) as server:
        for _ in bench.each_repeat(most=3):
            with bench.mounted_at("s3://bucket", tree.src_strategy, None,
                                  ["--check", "structure", "--format", "safetensors"]) as mount:
                path, = glob.glob(os.path.join(mount.path, "**", "*.safetensors"),
                                  recursive=True)
                server.requests()
                found, seconds = together([[bench.settings.reader, "-m", path]] * WORKERS, APART)
                asked = lengths(server.requests())
                if len({one["sum"] for one in found}) != 1:
                    raise Broken("the workers read different bytes")
                result.values.append(sum(asked) / os.path.getsize(path))
                result.note(f"{len(asked)} requests, {seconds:.2f} s")
    return result


# ---- transformers and engines ----

RANKS = 8


@contextlib.contextmanager
def sharded(bench):
    """(plain files as transformers saves them, ranks made of them, options that read these
    ranks as that model) of a model."""
    root = os.path.join(bench.work, "loading")
    plain, ranks = os.path.join(root, "plain"), os.path.join(root, "ranks")
    strategy = os.path.join(root, "ranks.ckpt")
    names = other_python("RSH_HF_PYTHON", "bench_loading.py",
                         ("make", plain, bench.settings.size))["names"]
    with open(strategy, "wb") as f:
        f.write(strategy_bytes(StageFile(0, {
            name: Layout([RANKS], [0, -1]) for name in names})))
    subprocess.run([reshardfs_program(), "export", "--convert", "qwen3", "--from", "hf",
                    "--format", "ckpt", "--dst-strategy", strategy, plain, ranks], check=True,
                   stdout=sys.stderr)
    yield plain, ranks, {"src_strategy": strategy, "convert": "qwen3", "model_files": plain,
                         "config": os.path.join(plain, "config.json")}
    shutil.rmtree(root)


def loaded(*words):
    return Sample(**other_python("RSH_HF_PYTHON", "bench_loading.py", words))


def same_loads(bench, mine, peer):
    result = rates(bench.compare(mine, peer))
    for one, other in zip(result.mount, result.peer):
        if one.sum != other.sum:
            raise Broken("another model was loaded")
    return result


def mounted_model(bench, ranks, options):
    rest = {key: value for key, value in options.items() if key != "src_strategy"}
    return bench.mounted_at(ranks, options["src_strategy"], None, ["--format", "hf"] + [
        f"--{key.replace('_', '-')}={value}" for key, value in rest.items()])


@row("from_pretrained", f"from_pretrained() of a model out of {RANKS} ranks, all parameters "
     "touched", "of plain files", (">=", 0.9), tree="none")
def from_pretrained(bench):
    with sharded(bench) as (plain, ranks, options), \
            mounted_model(bench, ranks, options) as mount:
        return same_loads(bench, lambda: loaded("load", mount.path),
                          lambda: loaded("load", plain))


@row("engine", f"reshardfs.weights() of a model out of {RANKS} ranks, all tensors copied",
     "safe_open() of plain files", tree="none")
def engine(bench):
    with sharded(bench) as (plain, ranks, options):
        return same_loads(bench, lambda: loaded("weights", ranks, json.dumps(options)),
                          lambda: loaded("copy", plain))


@row("engine_mount", f"reshardfs.weights() of a model out of {RANKS} ranks, all tensors copied",
     "safe_open() of a new mount of them", (">=", 1.0), tree="none")
def engine_mount(bench):
    with sharded(bench) as (_, ranks, options):
        def mounted():
            with mounted_model(bench, ranks, options) as mount:
                return loaded("copy", mount.path)
        return same_loads(bench, lambda: loaded("weights", ranks, json.dumps(options)), mounted)
