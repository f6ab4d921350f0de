#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PEFT merges an adapter, for the benchmarks; one thread.

    bench_adapter.py merge MODEL ADAPTER TARGET    -> {"seconds": S}: loads both, merges
                                                   and saves
    bench_adapter.py same TARGET SHOWN             fails if any tensor differs
"""

import json
import sys
import time


def model_of(tensors, torch):
    """Linear layers under the names of the tensors."""
    root = torch.nn.Module()
    for name, tensor in tensors.items():
        at, *_, last = root, *name.removesuffix(".weight").split(".")
        for part in name.split(".")[:-2]:
            if part not in at._modules:
                at.add_module(part, torch.nn.Module())
            at = at._modules[part]
        layer = torch.nn.Linear(1, 1, bias=False, device="meta")
        layer.weight = torch.nn.Parameter(tensor, requires_grad=False)
        layer.out_features, layer.in_features = tensor.shape
        at.add_module(last, layer)
    return root


def merge(torch, model, adapter, target):
    from peft import PeftModel
    from safetensors.torch import load_file, save_file
    start = time.perf_counter()
    base = model_of(load_file(model + "/model.safetensors"), torch)
    merged = PeftModel.from_pretrained(base, adapter).merge_and_unload()
    save_file({n: t.contiguous() for n, t in merged.state_dict().items()}, target)
    return {"seconds": time.perf_counter() - start}


def same(torch, target, shown):
    from safetensors.torch import load_file
    wanted, got = load_file(target), load_file(shown)
    if sorted(wanted) != sorted(got):
        raise AssertionError(f"{sorted(set(wanted) ^ set(got))} differ")
    for name, tensor in wanted.items():
        if not torch.equal(tensor.view(torch.int16), got[name].view(torch.int16)):
            raise AssertionError(f"{name} differs")
    return {}


def main():
    import torch
    torch.set_num_threads(1)
    what = {"merge": merge, "same": same}[sys.argv[1]]
    print(json.dumps(what(torch, *sys.argv[2:])))


if __name__ == "__main__":
    main()
