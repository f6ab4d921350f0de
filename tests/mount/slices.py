#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What is one rank's part, or one link of a chain of weight versions, is not a model: it is
refused by its content, whatever it is called, and what reads it whole is named."""

import json
import os
import struct
import sys
import tempfile
from argparse import Namespace

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from dcp_trees import (Called, Named, archive, made, pickled, rebuilt,  # noqa: E402
                       torch_bytes)
from demands import write  # noqa: E402
from rsh_cli import GOOD, run  # noqa: E402
from rsh_mount import Tap, expect_failure, require_mount  # noqa: E402


def refused(tap, what, source, *words):
    said = [run("ls", source).err]
    if not source.endswith(".safetensors"):  # one such file is no SOURCE of a mount
        said.append(expect_failure(source, described=True)[1])
    for got in said:
        tap.ok(all(word in got for word in words), what, got)


def deepspeed(tap, at):
    """Parts under names that no list has."""
    data = b"\1\2\3\4"
    tensor = rebuilt("F32", (1,), data)
    parts = {
        "state.pt": {"optimizer_state_dict": {"fp32_flat_groups": [tensor]}},
        "renamed.pth": {"optimizer_state_dict": {"single_partition_of_fp32_groups": [tensor]}},
        "weights.ckpt": {"module": {"w": tensor}, "ds_version": "0.9.0"},
    }
    for name, value in parts.items():
        refused(tap, f"DeepSpeed, {name}", torch_file(at, name, value, data),
                "one rank's part of a checkpoint of DeepSpeed",
                "SOURCE is the directory with the files of all ranks")
    model = torch_bytes({"w": ("F32", (1,), data)})
    for name, words in (
            ("bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt", "it is the part of rank 0 of"),
            ("zero_pp_rank_3_mp_rank_00_model_states.pt", "it is the part of rank 3 of"),
            ("expp_rank_1_mp_rank_00_optim_states.pt", "it is a part of a checkpoint of DeepSpeed"),
            ("layer_0_expert_2_mp_rank_00_model_states.pt", "it is a part of a checkpoint of"),
            ("optim_world_size_4_rank_3.pt", "one rank's slice")):
        write(os.path.join(at, name), model)
        refused(tap, name, os.path.join(at, name), words)
    write(os.path.join(at, "model.pt"), model)
    got = run("ls", os.path.join(at, "model.pt"))
    tap.ok(got.status == GOOD, "a model", f"{got}")


def torch_file(at, name, value, data):
    write(os.path.join(at, name), archive(
        [("data.pkl", pickled(value, 2)), ("data/0", data), ("version", b"3\n")]))
    return os.path.join(at, name)


def megatron(tap, at):
    data = b"\1\2\3\4"
    tensor = rebuilt("F32", (1,), data)
    whole = {"tensor_model_parallel_size": 1, "pipeline_model_parallel_size": 1, "lr": 0.1}
    for i, sizes in enumerate(({"tensor_model_parallel_size": 2},
                               {"pipeline_model_parallel_size": 4},
                               {"expert_model_parallel_size": 8})):
        path = torch_file(at, f"weights-{i}.pt", {
            "args": Namespace(**{**whole, **sizes}), "checkpoint_version": 3.0,
            "model0" if i == 1 else "model": {"decoder.w": tensor}}, data)
        refused(tap, f"Megatron, {sizes}", path, "slice of a model of Megatron-LM",
                "SOURCE is the directory of the iteration", f"{max(sizes.values())}")
    path = torch_file(at, "none.pt", {"args": None, "checkpoint_version": 3.0,
                                      "model": {"decoder.w": tensor}}, data)
    refused(tap, "Megatron without args", path, "file of Megatron-LM", "do not say")
    for name, value in (
            ("whole.pt", {"args": Namespace(**whole), "checkpoint_version": 3.0,
                          "model": {"decoder.w": tensor}}),
            ("temp_rank_0.pt", {"w": tensor}), ("stamp_rank_1.pt", {"w": tensor}),
            ("other.pt", {"checkpoint_version": 1, "state": {"w": tensor}})):
        got = run("ls", torch_file(at, name, value, data))
        tap.ok(got.status == GOOD, f"{name}: a whole model", f"{got}")


def distributed_tensors(tap, at):
    """As verl, FSDP and tensor parallelism leave them in each rank's file."""
    data = b"\1\2\3\4"
    local = rebuilt("F32", (1,), data)
    for i, (module, meta) in enumerate((
            ("torch.distributed.tensor", "torch.distributed.tensor._dtensor_spec"),
            ("torch.distributed._tensor.api", "torch.distributed._tensor.placement_types"))):
        dtensor = Named(module, "DTensor")
        shell = Called(Named("torch._tensor", "_rebuild_from_type_v2"),
                       Named("torch._utils", "_rebuild_wrapper_subclass"), dtensor,
                       (dtensor, (2,)), {"_local_tensor": local})
        with_meta = {"w": shell, "meta": Called(Named(meta, "TensorMeta"), (2,), (1,))}
        for name, value in (("shell", {"w": shell}), ("nested", {"state": {"0": [shell]}}),
                            ("meta", with_meta)):
            refused(tap, f"{module}, {name}", torch_file(at, f"{name}-{i}.pt", value, data),
                    "one rank's part of a model", "distributed")
    other = Named("torchao.dtypes", "AffineQuantizedTensor")
    shell = Called(Named("torch._tensor", "_rebuild_from_type_v2"),
                   Named("torch._utils", "_rebuild_wrapper_subclass"), other,
                   (other, (2,)), {"tensor_impl": local})
    for words in [], ["--drop", "^w$"]:
        got = run("plan", *words, torch_file(at, "wrapped.pt", {"v": local, "w": shell}, data))
        tap.ok(got.status == GOOD and (words or "1 tensor that is no plain array is left out, such "
                                       "as w (AffineQuantizedTensor)" in got.err),
               f"a tensor that is made of others {words}", f"{got}")
    sharded = made("torch.distributed._shard.sharded_tensor.api", "ShardedTensor",
                   shards=[local])
    refused(tap, "a ShardedTensor", torch_file(at, "sharded.pt", {"w": sharded}, data),
            "one rank's part of a model", "ShardedTensor")


def safetensors(tensors, metadata):
    header, data = {"__metadata__": metadata} if metadata else {}, b""
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape,
                        "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def deltas(tap, at):
    frames = {"a.weight": ("U8", [5], b"12345"), "b.weight": ("U8", [3], b"abc")}
    for sum_, digits in (("xxh3-128", 32), ("adler32", 8), ("blake3", 64)):
        path = os.path.join(at, sum_ + ".safetensors")
        write(path, safetensors(frames, dict.fromkeys(frames, "0f" * (digits // 2))))
        refused(tap, f"a delta, {sum_}", path, "delta", "SGLang")
    for encoding in ("xor", "overwrite", "sparse"):
        version = os.path.join(at, encoding)
        os.makedirs(version)
        write(os.path.join(version, "model-00000-of-00001.safetensors"),
              safetensors(frames, None))
        write(os.path.join(version, "model.safetensors.index.json"), json.dumps(
            {"metadata": {"version": "000002", "base_version": "000001",
                          "delta_encoding": encoding},
             "weight_map": dict.fromkeys(frames, "model-00000-of-00001.safetensors")}
        ).encode())
        refused(tap, f"a version, {encoding}", version, "delta of version 000001", encoding)
    path = os.path.join(at, "plain.safetensors")
    write(path, safetensors(frames, {"format": "pt"}))
    got = run("ls", path)
    tap.ok(got.status == GOOD, "bytes that are a model's", f"{got}")


if __name__ == "__main__":
    require_mount()
    TAP = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-slices-") as directory:
        deepspeed(TAP, directory)
        megatron(TAP, directory)
        distributed_tensors(TAP, directory)
        deltas(TAP, directory)
    sys.exit(TAP.finish())
