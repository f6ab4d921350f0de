#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is wanted of the parameters: --cast, --rename, --only, --drop,
--unlisted and --dst-ranks, on checkpoints that the real MindSpore saves and
loads.

Casts are compared with Tensor.astype over all 16-bit patterns and, of Float32,
over random ones and those around every rounding decision.
"""

import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from demands import write  # noqa: E402
from ms_formats import Layout, StageFile, read_checkpoint, strategy_bytes  # noqa: E402
from rsh_mount import (Mounted, Tap, expect_failure, require_mount,  # noqa: E402
                       require_oracle)
from run_seed import run_seed  # noqa: E402

CASTS = {"bfloat16": "BFloat16", "float16": "Float16", "float32": "Float32"}
OPTIMIZER = "adam_m.w.Float32"


class Oracle:
    def __init__(self):
        os.environ["GLOG_v"] = "4"
        import mindspore
        import numpy
        from mindspore.common.np_dtype import bfloat16
        self.ms, self.np, self.bfloat16 = mindspore, numpy, bfloat16

    def tensors(self, seed):
        """One tensor of every pattern for each floating point type."""
        np = self.np
        rng = np.random.default_rng(seed)
        edges = []
        for high in range(0, 65536, 7):
            for low in (0, 1, 0x0fff, 0x1000, 0x1001, 0x2000, 0x3000, 0x7fff,
                        0x8000, 0x8001, 0xffff):
                edges.append(high << 16 | low)
        single = np.concatenate([
            np.array(edges, dtype=np.uint32),
            rng.integers(0, 2**32, 100003, dtype=np.uint64).astype(np.uint32),
            # where Float16 has its normal and subnormal numbers
            rng.integers(0x33000000, 0x47800000, 50000, dtype=np.uint32)])
        every = np.arange(65536, dtype=np.uint16)
        arrays = {"Float32": single.view(np.float32).reshape(1, -1),
                  "Float16": every.view(np.float16),
                  "BFloat16": every.view(self.bfloat16).reshape(256, 256)}
        return {name: self.ms.Tensor.from_numpy(a) for name, a in arrays.items()}

    def save(self, path, params):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.ms.save_checkpoint(
            [{"name": n, "data": self.ms.Parameter(t, name=n)}
             for n, t in params.items()], path)


def check_casts(oracle, tap, directory, seed):
    ms = oracle.ms
    tensors = oracle.tensors(seed)
    params = {f"w.{name}": tensor for name, tensor in tensors.items()}
    params[OPTIMIZER] = tensors["Float32"]
    params["learning_rate"] = ms.Tensor(0.5, ms.float32)
    params["double"] = ms.Tensor([1.5, 2.5], ms.float64)
    params["counter"] = ms.Tensor([1, 2], ms.int32)
    source = os.path.join(directory, "cast")
    oracle.save(os.path.join(source, "rank_0", "net-1_1.ckpt"), params)
    plain = read_checkpoint(os.path.join(source, "rank_0", "net-1_1.ckpt"))
    for word, dtype in CASTS.items():
        with Mounted(source, extra=["--cast", word]) as mount:
            path = mount.rank_file(0)
            found = read_checkpoint(path)
            loaded = ms.load_checkpoint(path)
            size = os.stat(path).st_size
        for name, tensor in tensors.items():
            expected = tensor.astype(getattr(ms, word)).get_bytes()
            record = found[f"w.{name}"]
            tap.equal((record.dtype, record.dims, record.content == expected),
                      (dtype, tuple(tensor.shape), True), f"{name} as {word}")
        others = [OPTIMIZER, "learning_rate", "double", "counter"]
        tap.equal([found[n] for n in others], [plain[n] for n in others],
                  f"what is no weight stays as it is beside {word}")
        tap.equal(sorted(loaded), sorted(params), f"load_checkpoint takes {word}")
        tap.ok(size > 0, f"{word} has a size before it is read")


def strategy(path, names, mesh, axes):
    layouts = {n: Layout(mesh, axes) for n in names}
    write(path, strategy_bytes(StageFile(0, layouts)))
    return path


def check_names(oracle, tap, directory):
    ms, np = oracle.ms, oracle.np
    names = ["emb", "layer.0.w", "layer.1.w"]
    state = ["adam_m.layer.0.w", "adam_m.layer.1.w"]
    rng = np.random.default_rng(7)
    source = os.path.join(directory, "names")
    for rank in range(2):
        params = {n: ms.Tensor(rng.random((4, 6), dtype=np.float32))
                  for n in names + state}
        params["epoch_num"] = ms.Tensor(3, ms.int64)
        oracle.save(os.path.join(source, f"rank_{rank}", "net-1_1.ckpt"), params)
    src = strategy(os.path.join(directory, "src"), names + state, [2], [0, -1])
    dst = strategy(os.path.join(directory, "dst"), names, [2], [-1, 0])
    mapping = os.path.join(directory, "map.json")
    write(mapping, json.dumps({"emb": "tok_embeddings.weight", "unknown": "x"}).encode())

    def shown(*extra):
        with Mounted(source, src_strategy=src, dst_strategy=dst,
                     extra=list(extra)) as mount:
            return ms.load_checkpoint(
                mount.rank_file(1))

    every = shown()
    tap.equal(list(every), names + state + ["epoch_num"], "all parameters by default")
    tap.equal(list(shown("--unlisted", "drop")), names, "--unlisted drop")
    tap.equal(list(shown("--only", r"^layer\.[01]")), names[1:], "--only")
    tap.equal(list(shown("--drop", "^adam_|num$")), names, "--drop")
    tap.equal(list(shown("--only", "layer", "--drop", "adam|0")), ["layer.1.w"],
              "--only and --drop together")
    renamed = shown("--rename", mapping)
    tap.equal(list(renamed), ["tok_embeddings.weight"] + list(every)[1:], "--rename")
    tap.ok(np.array_equal(renamed["tok_embeddings.weight"].asnumpy(),
                          every["emb"].asnumpy()), "and the values stay")

    def refused(words, *extra):
        status, said = expect_failure(source, src_strategy=src, dst_strategy=dst,
                                      extra=list(extra))
        tap.ok(status != 0 and all(w in said for w in words),
               f"{' '.join(extra)} is refused", said)

    refused(["adam_m.layer.0.w", dst], "--unlisted", "error")
    refused(["only", "["], "--only", "[")
    refused(["cast", "int8"], "--cast", "int8")
    write(mapping, json.dumps({"emb": "layer.0.w"}).encode())
    refused(["layer.0.w"], "--rename", mapping)
    write(mapping, b'{"emb": 3}')
    refused([mapping, "emb"], "--rename", mapping)


def check_copies(oracle, tap, directory):
    ms, np = oracle.ms, oracle.np
    source = os.path.join(directory, "copies")
    for rank in (1, 3):
        oracle.save(os.path.join(source, f"rank_{rank}", "net-2_5.ckpt"),
                    {"w": ms.Tensor(np.full(5, rank, dtype=np.float32))})
    with Mounted(source, extra=["--dst-ranks", "4"]) as mount:
        found = [ms.load_checkpoint(mount.rank_file(r))["w"].asnumpy()[0] for r in range(4)]
    tap.equal(found, [1, 1, 1, 3], "--dst-ranks 4 from ranks 1 and 3")


def main():
    require_oracle()
    require_mount()
    seed = run_seed()
    oracle = Oracle()
    tap = Tap(31)
    tap.diag(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="reshardfs-wishes-") as directory:
        check_casts(oracle, tap, directory, seed)
        check_names(oracle, tap, directory)
        check_copies(oracle, tap, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
