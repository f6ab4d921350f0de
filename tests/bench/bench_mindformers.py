#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mindformers' part of the benchmarks: run by a Python that has MindSpore, a process a
command, with the loader's tables of the wheel that RSH_MINDFORMERS names.

    bench_mindformers.py to_hf TREE STRATEGY CONFIG TARGET
        MindSpore merges a tree of ranks, and the model becomes Hugging Face's
    bench_mindformers.py to_mindspore MODEL TARGET
        a model becomes MindSpore's, a tree of one rank that is then loaded
                            -> {"seconds": S, "memory": BYTES}

What it prints is one line of JSON; seconds are without the start of Python and its
imports, and memory is all that the process had at most.
"""

import glob
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
import mindformers_convert  # noqa: E402
from daemon_use import field  # noqa: E402

TABLE = "qwen3_moe"


def template(config):
    with open(config, encoding="utf-8") as f:
        return mindformers_convert.template(TABLE, json.load(f))


def arrays(ms, *files):
    result = {}
    for path in files:
        kind = "safetensors" if path.endswith(".safetensors") else "ckpt"
        result.update((name, parameter.asnumpy()) for name, parameter in
                      ms.load_checkpoint(path, format=kind).items())
    return result


def save(ms, tensors, path, kind):
    ms.save_checkpoint([{"name": name, "data": ms.Tensor(array)}
                        for name, array in tensors.items()], path, format=kind)


def to_hf(ms, tree, strategy, config, target):
    table = template(config)
    yield
    merged = os.path.join(target, "merged")
    ms.transform_checkpoints(tree, merged, "checkpoint_", strategy, None)
    weights = arrays(ms, *glob.glob(os.path.join(merged, "rank_0", "*.ckpt")))
    save(ms, table.get_hf_state_dict(weights), os.path.join(target, "model.safetensors"),
         "safetensors")


def to_mindspore(ms, model, target):
    table = template(os.path.join(model, "config.json"))
    path = os.path.join(target, "rank_0", "checkpoint_0.ckpt")
    os.makedirs(os.path.dirname(path))
    yield
    weights = arrays(ms, *sorted(glob.glob(os.path.join(model, "*.safetensors"))))
    made = mindformers_convert.load(table, weights)
    # The networks that strategies are of have experts of two dimensions.
    save(ms, {name: array.reshape(-1, array.shape[-1]) if array.ndim == 3 else array
              for name, array in made.items()}, path, "ckpt")
    ms.load_checkpoint(path)


def main():
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    import mindspore as ms
    verbs = {"to_hf": to_hf, "to_mindspore": to_mindspore}
    work = verbs[sys.argv[1]](ms, *sys.argv[2:])
    next(work)  # what is not measured
    start = time.perf_counter()
    for _ in work:
        pass
    seconds, memory = time.perf_counter() - start, field("self", "VmHWM") << 10
    print(json.dumps({"seconds": seconds, "memory": memory}), file=replies)


if __name__ == "__main__":
    main()
