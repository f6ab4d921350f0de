#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An entry whose presence decides what is shown, and of which nothing is known because it is a
link into a directory that cannot be entered, is an error that names it.  It is neither absent
nor there.  One that decides nothing does not matter."""

import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import deepspeed_trees  # noqa: E402
import rank_pickles  # noqa: E402
from demands import check, demand, write  # noqa: E402
from privileges import where_modes_count  # noqa: E402
from rsh_cli import IO, good, run  # noqa: E402
from rsh_mount import Skipped, Tests, require_mount, skip_all  # noqa: E402
from safetensors_format import safetensors_bytes  # noqa: E402
from torch_zip import Tensor, torch_zip  # noqa: E402
from version_chains import INDEX, version_name, write_full  # noqa: E402
from whole_sources import sentence  # noqa: E402

SINGLE, MS_MAP = "model.safetensors", "param_name_map.json"
test = Tests("unread-entries")


def model(byte):
    return {"model.a.weight": ("F32", (2,), bytes([byte] * 8))}


def torch_save(path):
    torch_zip(path, {"w": Tensor([[1, 2]])})


def away(directory, name, data=b"{}"):
    """Makes an entry a link into a directory that cannot be entered."""
    private = os.path.join(directory, "..", "private")
    os.makedirs(private, exist_ok=True)
    os.chmod(private, 0o700)
    path = os.path.join(directory, name)
    if os.path.lexists(path):
        os.rename(path, os.path.join(private, name))
    elif data is not None:
        write(os.path.join(private, name), data)
    os.symlink(os.path.join("..", "private", name), path)
    os.chmod(private, 0)
    return path


def refused(source, path, *words):
    """By a command, in one sentence with the file and the reason."""
    for command in ("plan", *words, source), ("export", *words, source, source + "-out"):
        got = run(*command)
        check(got.status == IO, repr(got))
        demand(sentence(got.err), f"{path}: Permission denied")
        check(not os.path.exists(source + "-out"), "an export")


def taken(source, *words):
    got = good("plan", *words, source)
    return got.err


def parts(directory, byte=1):
    root = os.path.join(directory, "model")
    write_full(root, model(byte), 1)
    return root


def quantised(root):
    write(os.path.join(root, "config.json"), json.dumps(
        {"model_type": "test", "quantization_config": {
            "quant_method": "fp8", "weight_block_size": [128, 128]}}).encode())


# ---- two forms of one model ----

@test
def the_one_file_beside_parts(directory):
    root = parts(directory)
    write(os.path.join(root, SINGLE), safetensors_bytes(model(2), {"format": "pt"}))
    demand(run("plan", root).err, "there are two models")
    refused(root, away(root, SINGLE))


@test
def the_map_beside_the_one_file(directory):
    """The file is taken, whatever the map says, with a warning."""
    root = parts(directory)
    write(os.path.join(root, SINGLE), safetensors_bytes(model(1), {"format": "pt"}))
    away(root, INDEX)
    demand(taken(root), "warning", f"{INDEX}: Permission denied")


@test
def the_map_alone(directory):
    root = parts(directory)
    refused(root, away(root, INDEX))


@test
def a_map_of_mindspore(directory):
    root = os.path.join(directory, "model")
    os.mkdir(root)
    write(os.path.join(root, "net.safetensors"), safetensors_bytes(model(1), {"format": "ms"}))
    taken(root)
    refused(root, away(root, MS_MAP))


@test
def a_map_of_mindspore_beside_one_of_hugging_face(directory):
    root = parts(directory)
    away(root, MS_MAP)
    taken(root)


@test
def hyper_parameters(directory):
    root = os.path.join(directory, "model")
    os.mkdir(root)
    write(os.path.join(root, "part0.safetensors"), safetensors_bytes(model(1), {"format": "ms"}))
    write(os.path.join(root, MS_MAP), json.dumps({"model.a.weight": "part0.safetensors"}).encode())
    taken(root)
    refused(root, away(root, "hyper_param.safetensors"))


@test
def other_names(directory):
    """diffusers' names: the one file of the map's name."""
    root = parts(directory)
    os.rename(os.path.join(root, INDEX), os.path.join(root, "net.safetensors.index.json"))
    taken(root)
    refused(root, away(root, "net.safetensors"))


@test
def safetensors_beside_files_of_torch(directory):
    root = os.path.join(directory, "model")
    os.mkdir(root)
    torch_save(os.path.join(root, "pytorch_model.bin"))
    taken(root)
    refused(root, away(root, SINGLE))


@test
def the_one_file_of_torch(directory):
    root = os.path.join(directory, "model")
    os.mkdir(root)
    torch_save(os.path.join(root, "pytorch_model-00001-of-00001.bin"))
    write(os.path.join(root, "pytorch_model.bin.index.json"), json.dumps(
        {"weight_map": {"w": "pytorch_model-00001-of-00001.bin"}}).encode())
    taken(root)
    refused(root, away(root, "pytorch_model.bin"))


@test
def metadata_beside_files_of_ranks(directory):
    root = parts(directory)
    refused(root, away(root, "metadata.pkl"))


@test
def entries_of_other_names_do_not_matter(directory):
    root = parts(directory)
    for name in "notes.txt", "tokenizer.json", "runs", "rank_0.log", "other.json":
        away(root, name)
        os.chmod(os.path.join(directory, "private"), 0o700)
    os.chmod(os.path.join(directory, "private"), 0)
    taken(root)


@test
def broken_links_are_absent(directory):
    root = parts(directory)
    for name in SINGLE, MS_MAP, "metadata.pkl", "hf_quant_config.json":
        os.symlink("nowhere", os.path.join(root, name))
    os.symlink(os.path.join(INDEX, "x"), os.path.join(root, "quant_model_description.json"))
    quantised(root)
    taken(root, "--dequantize", "bfloat16")


# ---- files beside the weights that decide ----

@test
def the_config_of_a_conversion(directory):
    root = parts(directory)
    away(root, "config.json")
    got = run("plan", "--dequantize", "bfloat16", root)
    check(got.status == IO, repr(got))
    demand(sentence(got.err), "config.json: Permission denied")


@test
def what_says_that_weights_are_quantised(directory):
    root = parts(directory)
    quantised(root)
    taken(root, "--dequantize", "bfloat16")
    write(os.path.join(root, "config.json"), b'{"model_type": "test"}')
    refused(root, away(root, "hf_quant_config.json"), "--dequantize", "bfloat16")


# ---- steps ----

def three_versions(directory):
    root = os.path.join(directory, "run")
    for number in 1, 2, 3:
        write_full(os.path.join(root, version_name(number)), model(number))
    return root


@test
def the_newest_weight_version(directory):
    root = three_versions(directory)
    away(root, version_name(3))
    for command in ("plan", root), ("export", root, root + "-out"):
        got = run(*command)
        check(got.status == IO, repr(got))
        demand(sentence(got.err), f"{version_name(3)} cannot be read now", "Permission denied",
               "--select name=GLOB")
    taken(root, "--select", "step=2")


@test
def an_older_weight_version(directory):
    root = three_versions(directory)
    away(root, version_name(2))
    demand(taken(root), version_name(3))


def run_of_two(directory):
    """checkpoint-9 and checkpoint-10 of the Trainer."""
    trees = deepspeed_trees.unpack(os.path.join(directory, "trees"))
    root = os.path.join(directory, "run")
    for number in 9, 10:
        shutil.copytree(os.path.join(trees, "z3-bf16"), os.path.join(root, f"checkpoint-{number}"))
    return root


@test
def the_newest_checkpoint_of_the_trainer(directory):
    root = run_of_two(directory)
    demand(taken(root), "checkpoint-10/global_step2")
    os.chmod(os.path.join(root, "checkpoint-10"), 0)
    got = run("plan", root)
    os.chmod(os.path.join(root, "checkpoint-10"), 0o755)
    check(got.status == IO, repr(got))
    demand(sentence(got.err), "checkpoint-10", "Permission denied")


@test
def trackers_of_the_trainer(directory):
    root = run_of_two(directory)
    os.chmod(os.path.join(root, "checkpoint-9", "latest"), 0)
    demand(taken(root), "checkpoint-10/global_step2")
    os.chmod(os.path.join(root, "checkpoint-10", "latest"), 0)
    got = run("plan", root)
    check(got.status == IO, repr(got))
    demand(sentence(got.err), "checkpoint-10 cannot be read now",
           "checkpoint-10/latest: Permission denied")


@test
def a_role_of_verl(directory):
    trees = rank_pickles.unpack(os.path.join(directory, "trees"))
    step = os.path.join(trees, "verl", "global_step_20")
    taken(step)
    torch_save(os.path.join(step, "data.pt"))
    os.chmod(os.path.join(step, "actor"), 0)
    got = run("plan", step)
    os.chmod(os.path.join(step, "actor"), 0o755)
    check(got.status == IO, repr(got))
    demand(sentence(got.err), "Permission denied")


@test
def directories_and_files_of_ranks(directory):
    trees = rank_pickles.unpack(os.path.join(directory, "trees"))
    for name, entry in ("nested-2.15", "rank0"), ("generic-2.15", "rank_0.pt"):
        path = os.path.join(trees, name, entry)
        taken(os.path.dirname(path))
        os.chmod(path, 0)
        got = run("plan", os.path.dirname(path))
        os.chmod(path, 0o755)
        check(got.status == IO, repr(got))
        demand(sentence(got.err), "Permission denied")


@test
def the_world_of_ranks(directory):
    """It decides only between several."""
    trees = rank_pickles.unpack(os.path.join(directory, "trees"))
    root, name = os.path.join(trees, "fsdp2-2.15"), "model_world_size_{}_rank_{}.pt"
    path = away(root, "fsdp_config.json")
    taken(root)
    torch_save(os.path.join(root, name.format(9, 0)))
    refused(root, path)


if __name__ == "__main__":
    require_mount()
    with tempfile.TemporaryDirectory(prefix=test.prefix) as own:
        try:
            sys.exit(where_modes_count(own, test.run))
        except Skipped as why:
            skip_all(str(why))
