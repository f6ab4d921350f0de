#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors in a program: by the Python module, by MindSpore and by others.

Run by a Python that has numpy, and what a verb needs beside it (bench_server.py).
`options` are those of the module, `source` and `rank` as well, and `to` is "numpy" or
"torch".  With `look` seconds are those of the call and of a look at each page of what it
gave, since some give what is only mapped.

    checkpoint  source, rank, options           reshardfs.load_checkpoint
    same        source, rank, options, path     is it what mindspore.load_checkpoint gives
                                                of a file? {"same": true}
    network     source, rank, options, path     {"above": BYTES, "largest": BYTES}, what
                                                a load into a net takes beside it
    plain       paths                           readinto fresh memory
    tensors     source, rank, options, to       reshardfs.tensors(...).load()
    load_file   paths, to                       safetensors' load_file
    fastsafetensors     paths, directory of it  its loader, without a GPU
    digests     of: one of the last three; {"digests": {name: sha256}}
"""

import gc
import hashlib
import os
import sys
import time

from bench_server import serve

PAGE = 4096


def status_field(name):
    with open("/proc/self/status", encoding="ascii", errors="replace") as f:
        return next(int(line.split()[1]) << 10 for line in f if line.startswith(name + ":"))


# ---- loaders: each returns what has to be kept, and the tensors by name ----

def tensors(source, rank, options, to):
    import reshardfs
    found = reshardfs.tensors(source, rank, to=to, **options)
    return found, found.load()


def load_file(paths, to):
    import importlib
    load = importlib.import_module("safetensors." + to).load_file
    return None, {name: t for path in paths for name, t in load(path).items()}


def fastsafetensors(paths, directory):
    if directory not in sys.path:
        sys.path.append(directory)
    import torch
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup
    loader = SafeTensorsFileLoader(SingleGroup(), torch.device("cpu"), nogds=True)
    loader.add_filenames({0: paths})
    held = loader.copy_files_to_device()
    return (loader, held), {name: held.get_tensor(name) for name in loader.get_keys()}


LOADERS = {"tensors": tensors, "load_file": load_file, "fastsafetensors": fastsafetensors}


def bytes_of(tensor):
    """An array of the bytes of one of numpy's or of torch's."""
    import numpy
    if not isinstance(tensor, numpy.ndarray):
        import torch
        tensor = tensor.detach().reshape(-1).view(torch.uint8).numpy()
    return tensor.reshape(-1).view(numpy.uint8)


def timed_load(load):
    """A verb of a loader."""
    def verb(look=False, **arguments):
        start = time.perf_counter()
        held, found = load(**arguments)
        arrays = [bytes_of(t) for t in found.values()]
        if look:
            sum(int(a[::PAGE].sum()) for a in arrays)
        seconds = time.perf_counter() - start
        del held
        return {"seconds": seconds, "bytes": sum(a.size for a in arrays)}
    return verb


def digests(of, **arguments):
    held, found = LOADERS[of](**arguments)
    result = {name: hashlib.sha256(bytes_of(t)).hexdigest() for name, t in found.items()}
    del held
    return {"digests": result}


def plain(paths):
    import numpy
    start = time.perf_counter()
    arrays = []
    for path in paths:
        with open(path, "rb", buffering=0) as f:
            array = numpy.empty(os.fstat(f.fileno()).st_size, numpy.uint8)
            with memoryview(array) as left:
                while left:
                    left = left[f.readinto(left):]
        arrays.append(array)
    return {"seconds": time.perf_counter() - start, "bytes": sum(a.size for a in arrays)}


# ---- MindSpore ----

def checkpoint(source, rank, options):
    import reshardfs
    start = time.perf_counter()
    found = reshardfs.load_checkpoint(source, rank, **options)
    return {"seconds": time.perf_counter() - start,
            "bytes": sum(p.nbytes for p in found.values())}


def same(source, rank, options, path):
    import mindspore
    import reshardfs
    one, other = reshardfs.load_checkpoint(source, rank, **options), \
        mindspore.load_checkpoint(path)
    return {"same": list(one) == list(other) and all(
        one[name].dtype == other[name].dtype and one[name].name == other[name].name and
        one[name].asnumpy().tobytes() == other[name].asnumpy().tobytes()
        for name in other)}


def network(source, rank, options, path):
    """The net has the parameters that the file `path` has, with other values."""
    import mindspore
    import reshardfs
    net, largest = mindspore.nn.Cell(), 0
    for number, (name, p) in enumerate(mindspore.load_checkpoint(path).items()):
        other = mindspore.Parameter(mindspore.Tensor(p.asnumpy() + 1), name=name)
        net.insert_param_to_cell(f"p{number}", other)
        largest = max(largest, p.nbytes)
    del p, other
    gc.collect()
    with open("/proc/self/clear_refs", "w", encoding="ascii") as f:
        f.write("5")  # VmHWM counts from here on
    before = status_field("VmRSS")
    reshardfs.load_checkpoint(source, rank, net, **options)
    return {"above": status_field("VmHWM") - before, "largest": largest}


def start():
    import numpy
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir,
                                    os.pardir, "python"))
    import reshardfs  # noqa: F401
    return numpy.__version__


if __name__ == "__main__":
    sys.exit(serve(start, {
        **{name: timed_load(load) for name, load in LOADERS.items()},
        "digests": digests, "plain": plain, "checkpoint": checkpoint, "same": same,
        "network": network}))
