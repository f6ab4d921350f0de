#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weight versions of reinforcement learning and their peer, run by a Python that has numpy,
safetensors, zstandard and xxhash, a process a command.

    bench_versions.py make DIRECTORY BYTES      base/, and run/ with DELTAS deltas, each of which
                                                changes one element in a hundred of all tensors
    bench_versions.py apply DIRECTORY TARGET    the last version, by numpy and zstandard, each
                                                delta compared with its checksum, and save_file
                            -> {"seconds": S, "memory": BYTES}
    bench_versions.py same TARGET MODEL         fails if any tensor differs

What it prints is one line of JSON; seconds are without the start of Python and its imports.
"""

import contextlib
import json
import os
import sys
import time

from bench_ranks import elements, memory, shapes_of, HIDDEN, LAYER, WORDS

DELTAS = 4
INDEX = "model.safetensors.index.json"


def version_of(directory, number):
    return os.path.join(directory, "run", f"weight_v{number:06}")


def make(directory, size):
    import numpy
    import safetensors.numpy
    import xxhash
    import zstandard
    layers = max(1, (int(size) // 2 - 2 * WORDS * HIDDEN) // sum(map(elements, LAYER.values())))
    draw = numpy.random.default_rng(1)
    # Numbers of 16 bits have no part in what is measured.
    now = {name: draw.integers(0, 1 << 16, shape, dtype=numpy.uint16)
           for name, shape in shapes_of(layers).items()}
    os.makedirs(os.path.join(directory, "base"))
    safetensors.numpy.save_file(now, os.path.join(directory, "base", "model.safetensors"),
                                {"format": "pt"})
    with open(os.path.join(directory, "base", "config.json"), "w", encoding="utf-8") as f:
        json.dump({"model_type": "bench"}, f)
    for number in range(1, DELTAS + 1):
        frames, sums = {}, {}
        for name, values in now.items():
            change = numpy.zeros(values.size, numpy.uint16)
            places = draw.integers(0, values.size, -(-values.size // 100))
            change[places] = draw.integers(1, 8, places.size)
            values ^= change.reshape(values.shape)
            frames[name] = numpy.frombuffer(zstandard.ZstdCompressor(level=1).compress(change),
                                            numpy.uint8)
            sums[name] = xxhash.xxh3_128(values.view(numpy.uint8)).hexdigest()
        os.makedirs(version_of(directory, number))
        file = "model-00000-of-00001.safetensors"
        safetensors.numpy.save_file(frames, os.path.join(version_of(directory, number), file), sums)
        with open(os.path.join(version_of(directory, number), INDEX), "w", encoding="utf-8") as f:
            json.dump({"metadata": {
                "version": f"{number:06}", "base_version": f"{number - 1:06}",
                "delta_encoding": "xor", "compression_format": "zstd",
                "checksum_format": "xxh3-128"}, "weight_map": dict.fromkeys(frames, file)}, f)
    return {}


def apply(directory, target):
    import numpy
    import xxhash
    import zstandard
    from safetensors import safe_open
    from safetensors.numpy import load_file, save_file
    os.makedirs(target)
    begun = time.perf_counter()
    whole = load_file(os.path.join(directory, "base", "model.safetensors"))
    for number in range(1, DELTAS + 1):
        with open(os.path.join(version_of(directory, number), INDEX), encoding="utf-8") as f:
            files = set(json.load(f)["weight_map"].values())
        for file in sorted(files):
            with safe_open(os.path.join(version_of(directory, number), file), "np") as f:
                sums = f.metadata()
                for name in f.keys():
                    change = zstandard.ZstdDecompressor().decompress(f.get_tensor(name))
                    values = whole[name].reshape(-1).view(numpy.uint8)
                    values ^= numpy.frombuffer(change, numpy.uint8)
                    assert xxhash.xxh3_128(values).hexdigest() == sums[name], name
    save_file(whole, os.path.join(target, "model.safetensors"), {"format": "pt"})
    return {"seconds": time.perf_counter() - begun, "memory": memory()}


def same(target, model):
    from safetensors.numpy import load_file
    ours, theirs = ({n: t for file in sorted(os.listdir(directory))
                     if file.endswith(".safetensors")
                     for n, t in load_file(os.path.join(directory, file)).items()}
                    for directory in (model, target))
    assert ours.keys() == theirs.keys()
    assert all(ours[n].shape == t.shape and (ours[n] == t).all() for n, t in theirs.items())
    return {}


def main():
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    with contextlib.redirect_stdout(sys.stderr):
        reply = {"make": make, "apply": apply, "same": same}[sys.argv[1]](*sys.argv[2:])
    print(json.dumps(reply), file=replies)


if __name__ == "__main__":
    main()
