#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What --format hyperparallel shows, loaded by HyperParallel itself.

RSH_HYPER_PARALLEL names a directory with HyperParallel's sources, which are no package of
an index; those of before April 2026 load the tensors alone.  Its loader runs on the CPU: on torch (RSH_HF_PYTHON) four processes under gloo
load a mount into DTensors on a mesh of 2 x 2, with placements drawn at random; on
MindSpore (RSH_ORACLE_PYTHON) one process loads all tensors, with the rank and the number
of processes given to it, as there is no collective communication.  Every process gets the
elements that the safetensors form of the same source has.

    hyperparallel_loads.py [--seed N]
    hyperparallel_loads.py torch R SEED DIRECTORY MOUNT    what a process does
    hyperparallel_loads.py mindspore DIRECTORY MOUNT
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]

from demands import content, write  # noqa: E402

WORLD = 4


# ---- under a Python that has the framework ----

def loader():
    """HyperParallel's load().  Before April 2026 it has another place, and loads the tensors
    alone of what is shown: one value is a file there."""
    try:
        from hyper_parallel.core.distributed_checkpoint import load
    except ImportError:
        from hyper_parallel.core import checkpoint
        from hyper_parallel.core.checkpoint import load, metadata, storage
        for part in checkpoint, metadata, storage:
            sys.modules[part.__name__.replace("checkpoint", "distributed_checkpoint")] = part
    return load


def is_before():
    return os.path.isdir(os.path.join(os.environ["RSH_HYPER_PARALLEL"], "hyper_parallel", "core",
                                      "checkpoint"))


def whole_file(directory):
    return os.path.join(directory, "whole", "rank_0", "checkpoint_0.safetensors")


def bits(tensor):
    import torch
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def values_wanted(directory):
    return json.loads(content(os.path.join(directory, "values.json")))


def say(found, wrong, directory):
    values = values_wanted(directory)
    wrong += [name for name, value in values.items() if found[name] != value]
    print(json.dumps([wrong, len(found)]))


def load_torch(rank, seed, directory, root):
    import torch
    import torch.distributed as dist
    from safetensors.torch import load_file
    # The mesh of HyperParallel takes the group that is there.
    dist.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank,
                            world_size=WORLD)
    from hyper_parallel import DTensor, init_device_mesh
    load = loader()
    from hyper_parallel.core.placement_types import Replicate, Shard
    mesh = init_device_mesh(device_type="cpu", mesh_shape=(2, 2), mesh_dim_names=("dp", "tp"))
    numbers, parts, found = random.Random(seed), {}, {}
    for name, tensor in sorted(load_file(whole_file(directory)).items()):
        part, ways = tensor, []
        for at in (rank // 2, rank % 2):
            cut = [d for d in range(part.dim()) if part.shape[d] and part.shape[d] % 2 == 0 and
                   Shard(d) not in ways]
            ways.append(Shard(numbers.choice(cut)) if cut and numbers.random() < 0.7 else
                        Replicate())
            if ways[-1].is_shard():
                part = part.chunk(2, ways[-1].dim)[at]
        parts[name] = part
        zeros = torch.zeros_like(part, memory_format=torch.contiguous_format)
        found[name] = DTensor.from_local(zeros, mesh, ways) if any(
            w.is_shard() for w in ways) else zeros
    found.update(dict.fromkeys(values_wanted(directory)))
    load(found, checkpoint_id=root)
    local = {n: t.to_local() if isinstance(t, DTensor) else t for n, t in found.items()}
    say(found, [n for n, part in parts.items() if not bits(local[n]).equal(bits(part))],
        directory)
    dist.barrier()
    dist.destroy_process_group()


def load_mindspore(directory, root):
    import mindspore as ms
    from hyper_parallel.platform import get_platform
    platform = type(get_platform())
    platform.get_rank, platform.get_world_size = staticmethod(lambda: 0), staticmethod(lambda: 1)
    load = loader()
    whole = ms.load_checkpoint(whole_file(directory), format="safetensors")
    found = {name: ms.Parameter(ms.ops.zeros_like(t)) for name, t in whole.items()}
    found.update(dict.fromkeys(values_wanted(directory)))
    load(found, checkpoint_id=root)
    say(found, [n for n, t in whole.items() if found[n].dtype != t.dtype or
                found[n].shape != t.shape or found[n].get_bytes() != t.get_bytes()], directory)


FRAMEWORKS = {"torch": lambda rank, seed, *paths: load_torch(int(rank), int(seed), *paths),
              "mindspore": load_mindspore}

if sys.argv[1:2] and sys.argv[1] in FRAMEWORKS:
    os.environ["HYPER_PARALLEL_PLATFORM"] = sys.argv[1]
    sys.path.insert(0, os.environ["RSH_HYPER_PARALLEL"])
    FRAMEWORKS[sys.argv[1]](*sys.argv[2:])
    sys.exit(0)

import dcp_trees  # noqa: E402
import make_tree  # noqa: E402
from rsh_cli import good  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount, require_named, skip_all  # noqa: E402
from run_seed import run_seed  # noqa: E402


def python(variable, *words):
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen([os.environ[variable], os.path.abspath(__file__), *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment)


def judge(tap, what, processes):
    for process in processes:
        out, err = process.communicate(timeout=300)
        wrong, count = json.loads(out.splitlines()[-1]) if process.returncode == 0 else (
            ["failed"], 0)
        tap.ok(not wrong and count > 0, f"{what}: {count} names", f"{wrong[:5]}\n{err[-3000:]}")


def rank_files(numbers, directory):
    make_tree.write_tree(directory, *make_tree.random_tree(numbers, 12, 1 << 18), numbers)
    return ["--src-strategy", os.path.join(directory, "source.ckpt"),
            os.path.join(directory, "source")], {}


def distributed(numbers, directory):
    """With values that are no tensors."""
    shapes = {"layers.0.w": ("F32", (8, 6)), "layers.1.w": ("BF16", (4, 10, 2)),
              "bias": ("F16", (7,)), "step": ("I64", ()), "moment1.w": ("F32", (6, 4))}
    tensors = {name: dcp_trees.Tensor(kind, shape, numbers.randbytes(
        dcp_trees.TYPES[kind][0] * math.prod(shape)), [((0,) * len(shape), shape)], {})
        for name, (kind, shape) in shapes.items()}
    tree = dcp_trees.Tree("torch", tensors, {"epoch": 7, "optimizer.lr": 0.5, "names": ["a", "b"]},
                          numbers)
    root = os.path.join(directory, "source")
    tree.write(root)
    return [root], tree.values


def run_source(tap, make, numbers, seed):
    with tempfile.TemporaryDirectory() as directory:
        words, values = make(numbers, directory)
        if is_before():
            words, values = ["--drop", "^(epoch|optimizer.lr|names)$", *words], {}
        write(os.path.join(directory, "values.json"), json.dumps(values).encode())
        out = os.path.join(directory, "out")
        good("export", *words[:-1], "--dst-strategy", "none", "--format", "safetensors",
             words[-1], out)
        whole = os.path.join(directory, "whole")
        if os.path.exists(whole):
            os.rename(whole, whole + "-ckpt")
        os.rename(out, whole)
        small = ["--part-size", "10000"] if numbers.random() < 0.5 else []
        with Mounted(words[-1], described=True, dst_strategy=None,
                     extra=[*words[:-1], "--format", "hyperparallel", *small]) as mount:
            if os.environ.get("RSH_HF_PYTHON"):
                judge(tap, f"torch, {make.__name__}", [
                    python("RSH_HF_PYTHON", "torch", str(r), str(seed), directory, mount.path)
                    for r in range(WORLD)])
            if os.environ.get("RSH_ORACLE_PYTHON"):
                judge(tap, f"MindSpore, {make.__name__}",
                      [python("RSH_ORACLE_PYTHON", "mindspore", directory, mount.path)])


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seed", type=int, default=run_seed())
    options = options.parse_args()
    require_mount()
    require_named("RSH_HYPER_PARALLEL", "HyperParallel's sources")
    if not os.environ.get("RSH_HF_PYTHON") and not os.environ.get("RSH_ORACLE_PYTHON"):
        skip_all("neither RSH_HF_PYTHON nor RSH_ORACLE_PYTHON is set")
    tap = Tap()
    tap.diag(f"--seed {options.seed}")
    numbers = random.Random(options.seed)
    for make in rank_files, distributed:
        run_source(tap, make, numbers, options.seed)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
