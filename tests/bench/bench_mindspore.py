#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""MindSpore's part of the benchmarks: run by a Python that has it.

Commands and replies are those of bench_server.py.

    {"verb": "load", "path": P}              -> {"seconds": S}, of .ckpt or .safetensors
    {"verb": "same", "paths": [P, Q], "ordered": true}
                                             -> {"same": true}
    {"verb": "transform", "source": ..., "target": ..., "src_strategy": ...,
     "dst_strategy": ...}                    -> {"seconds": S, "memory": BYTES}
    {"verb": "merge", "source": ..., "target": ..., "src_strategy": ...}
                                             -> {"seconds": S, "memory": BYTES}
    {"verb": "network", "rank": N, "step": DIRECTORY, "strategy": ..., "path": P}
                                             -> {"seconds": S, "sum": N}
"""

import glob
import os
import sys
import time

from bench_server import serve


def load_file(path):
    import mindspore as ms
    return ms.load_checkpoint(path, format=path.rpartition(".")[2])


def load(path):
    import mindspore  # noqa: F401  # pylint: disable=unused-import # before the clock runs
    start = time.perf_counter()
    for p in load_file(path).values():
        p.asnumpy().reshape(-1).view("uint8")[::4096].sum()  # it may only be mapped
    return {"seconds": time.perf_counter() - start}


def same(paths, ordered=True):
    """Names, types and bytes of what is loaded, compared one by one."""
    first, second = (load_file(path) for path in paths)
    names = list if ordered else set
    return {"same": names(first) == names(second) and all(
        first[name].dtype == second[name].dtype and
        first[name].asnumpy().tobytes() == second[name].asnumpy().tobytes()
        for name in first)}


def transform(source, target, src_strategy, dst_strategy):
    """Memory is the most that the process had meanwhile."""
    import mindspore as ms
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")  # VmHWM counts from here on
    start = time.perf_counter()
    ms.transform_checkpoints(source, target, "checkpoint_", src_strategy, dst_strategy)
    return {"seconds": time.perf_counter() - start, "memory": most_memory()}


def merge(source, target, src_strategy):
    """The complete model as one .safetensors, which PyTorch can read."""
    import mindspore as ms
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")
    start = time.perf_counter()
    ms.transform_checkpoints(source, target, "checkpoint_", src_strategy, None)
    (merged,) = glob.glob(os.path.join(target, "rank_0", "*.ckpt"))
    ms.save_checkpoint([{"name": name, "data": parameter} for name, parameter in
                        ms.load_checkpoint(merged).items()],
                       os.path.join(target, "model.safetensors"), format="safetensors")
    return {"seconds": time.perf_counter() - start, "memory": most_memory()}


def most_memory():
    with open("/proc/self/status", encoding="ascii", errors="replace") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM:"))


def network(rank, step, strategy, path):
    """What a rank of `strategy` needs until all of its network has been looked at: by
    MindSpore from the safetensors `path`, or by mindformers from `step` if it is None."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
    import checkpoint2_trees
    import mindspore as ms
    import mindformers_loader
    from ms_formats import read_strategy_file
    if not mindformers_loader.directory():
        return {"lacking": "RSH_MINDFORMERS does not name a directory of mindformers"}
    saved = checkpoint2_trees.read_parameters(os.path.join(step, "metadata.json"))
    layouts = read_strategy_file(strategy).layouts
    net = mindformers_loader.network(rank, {
        name: checkpoint2_trees.parameter_of(layouts[name], p.shape, p.dtype, 0)
        for name, p in saved.items()})
    start = time.perf_counter()
    if path:
        ms.load_checkpoint(path, net, format="safetensors")
    else:
        mindformers_loader.load_network(step, net)
    found = sum(int(p.asnumpy().reshape(-1).view("int64").sum())
                for p in net.get_parameters())
    return {"seconds": time.perf_counter() - start, "sum": found % 2**64}


def version():
    import mindspore
    return mindspore.__version__


if __name__ == "__main__":
    sys.exit(serve(version, {"load": load, "same": same, "transform": transform,
                             "merge": merge,
                             "network": network}))
