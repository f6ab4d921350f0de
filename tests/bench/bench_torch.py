#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's part of the benchmarks: run by a Python that has it, a process a command.

    bench_torch.py make dcp|hf DIRECTORY BYTES    a checkpoint of two ranks
    bench_torch.py consolidate dcp|hf DIRECTORY TARGET
                            -> {"seconds": S, "memory": BYTES}
    bench_torch.py same dcp|hf TARGET MODEL      fails if any tensor differs
    bench_torch.py save SHOWN TARGET    what is loaded of SHOWN, a DCP, by dcp.save
    bench_torch.py load DIRECTORY [DCP] -> {"seconds": S, "bytes": N} of dcp.load; with
                                        DCP it fails if any tensor differs
    bench_torch.py read SOURCE OPTIONS [DCP]     the same without a mount, by the module
    bench_torch.py resave FILE TARGET   what a .safetensors has, by dcp.save
    bench_torch.py start DIRECTORY      dcp.load, and a step of training
                            -> {"seconds": S, "memory": BYTES} of either; of start also
                               {"kept": BYTES}, with which training goes on

What it prints is one line of JSON; seconds are of torch's own call, without the start
of Python and its imports, and memory is all that the process had at most.
"""

import json
import os
import sys
import tempfile
import time

RANKS = 2
# Rows and columns of tensors and how they are cut, as tensor parallel layers are.
LAYER = [("attention.qkv", 3, 1, 0), ("attention.output", 1, 1, 1),
         ("feed_forward.up", 4, 1, 0), ("feed_forward.down", 1, 4, 1),
         ("norm", 1, 0, None)]
HIDDEN = 1024
ELEMENT = 4


def writer_of(kind, directory):
    import torch.distributed.checkpoint as dcp
    if kind == "hf":
        return dcp.HuggingFaceStorageWriter(directory, save_distributed=True)
    return dcp.FileSystemWriter(directory)


def state_dict(mesh, size):
    """Layers that have so many bytes together, none less."""
    import torch
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    torch.manual_seed(7)
    result, left, layer = {}, size, 0
    while left > 0:
        for name, rows, columns, cut in LAYER:
            shape = [rows * HIDDEN, columns * HIDDEN] if columns else [rows * HIDDEN]
            tensor = torch.randn(shape)
            left -= tensor.numel() * ELEMENT
            way = Replicate() if cut is None else Shard(cut)
            result[f"layers.{layer}.{name}.weight"] = distribute_tensor(tensor, mesh, [way])
        layer += 1
    return result


def save(rank, kind, directory, size, meeting):
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank,
                            world_size=RANKS)
    mesh = dist.init_device_mesh("cpu", (RANKS,))
    dcp.save(state_dict(mesh, size), storage_writer=writer_of(kind, directory))
    dist.destroy_process_group()


def make(kind, directory, size):
    import torch.multiprocessing as mp
    meeting = directory + ".meeting"
    mp.spawn(save, (kind, directory, int(size), meeting), nprocs=RANKS)
    if os.path.exists(meeting):
        os.remove(meeting)
    return {}


def memory(field="VmHWM"):
    with open("/proc/self/status", encoding="ascii", errors="replace") as f:
        return next(int(line.split()[1]) * 1024 for line in f
                    if line.startswith(field + ":"))


def prepare():
    """torch imports much of itself when it first saves, loads and makes an optimizer."""
    import torch
    import torch.distributed.checkpoint as dcp
    with tempfile.TemporaryDirectory() as directory:
        dcp.save({"weight": torch.ones(1)}, checkpoint_id=directory)
        make_step(list(loaded(directory)[0].values()))


def tensor_names(directory):
    from safetensors import safe_open
    for name in sorted(os.listdir(directory)):
        if name.endswith(".safetensors"):
            with safe_open(os.path.join(directory, name), "pt") as f:
                yield from f.keys()


def consolidate(kind, directory, target):
    if kind == "hf":
        from torch.distributed.checkpoint._consolidate_hf_safetensors import (
            consolidate_safetensors_files)
        os.makedirs(target)
        arguments = directory, target, dict.fromkeys(tensor_names(directory), 1)
        call = consolidate_safetensors_files
    else:
        from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
        arguments, call = (directory, target), dcp_to_torch_save
    start = time.perf_counter()
    call(*arguments)
    return {"seconds": time.perf_counter() - start, "memory": memory()}


def tensors_of(directory):
    from safetensors.torch import load_file
    result = {}
    for name in os.listdir(directory):
        if name.endswith(".safetensors"):
            result.update(load_file(os.path.join(directory, name)))
    return result


def same(kind, target, model):
    import torch
    wanted = tensors_of(target) if kind == "hf" else torch.load(target, mmap=True)
    found = tensors_of(model)
    assert set(found) == set(wanted), set(found) ^ set(wanted)
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype and found[name].equal(tensor), name
    return {}


def loaded(directory, options=None):
    """The tensors of a DCP, or of a SOURCE with such options, and the seconds of loading
    them."""
    import torch
    import torch.distributed.checkpoint as dcp

    def reader():
        if options is None:
            return dcp.FileSystemReader(directory)
        sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                     "python"))
        import reshardfs.dcp
        return reshardfs.dcp.Reader(directory, **options)

    described = reader().read_metadata().state_dict_metadata
    tensors = {name: torch.zeros(t.size, dtype=t.properties.dtype)
               for name, t in described.items()}
    start = time.perf_counter()
    dcp.load(tensors, storage_reader=reader())
    return tensors, time.perf_counter() - start


def save_shown(shown, target):
    import torch.distributed.checkpoint as dcp
    dcp.save(loaded(shown)[0], checkpoint_id=target)
    return {}


def bits(tensor):
    """A NaN equals no other."""
    import torch
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def load(directory, other=None, options=None):
    prepare()
    tensors, seconds = loaded(directory, options)
    if other:
        wanted = loaded(other)[0]
        assert set(tensors) == set(wanted), set(tensors) ^ set(wanted)
        for name, tensor in wanted.items():
            assert tensors[name].dtype == tensor.dtype and bits(tensors[name]).equal(
                bits(tensor)), name
    return {"seconds": seconds, "bytes": sum(t.nbytes for t in tensors.values())}


def read(source, options, other=None):
    return load(source, other, json.loads(options))


def resave(file, target):
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import load_file
    prepare()
    start = time.perf_counter()
    dcp.save(load_file(file), checkpoint_id=target)
    return {"seconds": time.perf_counter() - start, "memory": memory()}


def make_step(tensors):
    """The step of the optimizer touches each weight."""
    import torch
    weights = [t.requires_grad_() for t in tensors if t.is_floating_point()]
    for weight in weights:
        weight.grad = torch.ones((), dtype=weight.dtype).expand_as(weight)
    torch.optim.SGD(weights, lr=0.125, foreach=False).step()


def start_training(directory):
    prepare()
    before, begun = memory("VmRSS"), time.perf_counter()
    tensors, _ = loaded(directory)
    make_step(list(tensors.values()))
    seconds = time.perf_counter() - begun
    return {"seconds": seconds, "memory": memory(),
            "kept": before + sum(t.nbytes for t in tensors.values())}


def main():
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    verbs = {"make": make, "consolidate": consolidate, "same": same,
             "save": save_shown, "load": load, "read": read, "resave": resave,
             "start": start_training}
    print(json.dumps(verbs[sys.argv[1]](*sys.argv[2:])), file=replies)


if __name__ == "__main__":
    main()
