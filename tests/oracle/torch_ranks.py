#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of ranks that torch and verl write of random models, as the program shows them.

RSH_HF_PYTHON names a Python that has torch; RSH_TORCH_PYTHONS, names with ':' between them,
more of them with other releases (2.4 and later).  Two to eight processes under gloo make
models at random: fully_shard over one mesh and over replicas, on top of tensor parallel,
over merged dimensions, FSDP1 with and without a mesh, and tensors that are distributed by
hand; each saves its state_dict() and that of its optimizer.  With RSH_VERL (see
lib/verl_software.py) verl's own manager saves a model of transformers.  What the program
shows has to be the model and the moments as they are without any rank.

    torch_ranks.py [--seed N] [--models N]
    torch_ranks.py make|verl DIRECTORY SEED RANKS MODELS RANK    what a process does
"""

import argparse
import copy
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]

from demands import check, content, write  # noqa: E402
from shown_model import model_hashes, same, torch_entry  # noqa: E402

WORLDS = (2, 3, 4, 4, 6, 8)


# ---- under a Python that has torch ----

def random_module(numbers, seed, even=False):
    """Layers of sizes that no number of ranks divides, types, buffers, a tied weight."""
    import torch
    from torch import nn
    torch.manual_seed(seed)

    def size():
        return numbers.choice((4, 8) if even else (1, 3, 4, 5, 7, 9, 12))

    class Block(nn.Module):
        def __init__(self, n, inner):
            super().__init__()
            self.up = nn.Linear(n, inner, bias=numbers.random() < 0.5)
            self.down = nn.Linear(inner, n)
            self.norm = nn.LayerNorm(n)
            if numbers.random() < 0.3:
                self.register_buffer("scale", torch.rand(3))

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            n = size()
            self.embed = nn.Embedding(size() + 8, n)
            self.layers = nn.ModuleList(Block(n, size()) for _ in range(numbers.randint(1, 3)))
            if numbers.random() < 0.5:
                self.layers[0].to(torch.bfloat16)
            if numbers.random() < 0.5:
                self.gate = nn.Parameter(torch.randn(1, size()))
            if numbers.random() < 0.3:
                self.cube = nn.Parameter(torch.randn(size(), 2, 3))
            self.head = nn.Linear(n, self.embed.num_embeddings, bias=False)
            if numbers.random() < 0.5:
                self.head.weight = self.embed.weight
            self.register_buffer("count", torch.tensor(numbers.randint(0, 9)))
            if numbers.random() < 0.5:
                self.register_buffer("mask", torch.tensor([True, False, True]))

    return Model()


def trained(module, way):
    """An optimizer after a step with gradients that follow from each element."""
    import torch
    frozen, kind, groups = way
    for name, p in module.named_parameters():
        if frozen and frozen in name:
            p.requires_grad_(False)
    given = list(module.parameters())
    if groups:
        given = [{"params": [p for p in given if p.ndim > 1]},
                 {"params": [p for p in given if p.ndim < 2], "weight_decay": 0.0}]
    made = torch.optim.AdamW(given, lr=1e-3) if kind == "adamw" else \
        torch.optim.SGD(given, lr=1e-3, momentum=0.9)
    for p in module.parameters():
        if p.requires_grad:
            # As the backward pass leaves it; 2.8 gives other placements to a product.
            local = getattr(p, "_local_tensor", None)
            p.grad = (p.detach() * 0.3).to(p.dtype) if local is None else \
                type(p.data)((local.detach() * 0.3).to(p.dtype), p._spec, requires_grad=False)
    made.step()
    return made


def truth_of(module, optimizer, groups):
    """Of a module that was never cut."""
    found = {name: torch_entry(t) for name, t in module.state_dict().items()}
    moments = {}
    if optimizer:
        by_parameter = {id(p): name for name, p in module.named_parameters()}
        names = [by_parameter[id(p)] for g in optimizer.param_groups for p in g["params"]]
        for number, state in optimizer.state_dict()["state"].items():
            for kind, t in state.items():
                if t is not None:
                    moments[f"optimizer.state.{number if groups else names[number]}.{kind}"] = \
                        torch_entry(t)
    return found, moments


def new_torch():
    import torch
    major, minor = torch.__version__.split(".")[:2]
    return (int(major), int(minor))


def sharding():
    try:
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        from torch.distributed._composable.fsdp import fully_shard
    return fully_shard


def cut_fsdp2(numbers, module, world):
    from torch.distributed.device_mesh import init_device_mesh
    fully_shard = sharding()
    mesh = init_device_mesh("cpu", (world,), mesh_dim_names=numbers.choice((None, ("fsdp",))))
    for layer in module.layers:
        if numbers.random() < 0.7:
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)


def cut_hsdp(numbers, module, world):
    from torch.distributed.device_mesh import init_device_mesh
    replicas = numbers.choice([n for n in range(1, world + 1) if world % n == 0])
    sharding()(module, mesh=init_device_mesh("cpu", (replicas, world // replicas),
                                             mesh_dim_names=("ddp", "fsdp")))


def cut_tp(numbers, module, world):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                                   parallelize_module)
    tp = numbers.choice([n for n in (1, 2, 4) if world % n == 0])
    mesh = init_device_mesh("cpu", (world // tp, tp), mesh_dim_names=("dp", "tp"))
    for layer in module.layers:
        if numbers.random() < 0.8:
            parallelize_module(layer, mesh["tp"], {"up": ColwiseParallel(),
                                                   "down": RowwiseParallel()})
        if numbers.random() < 0.7:
            sharding()(layer, mesh=mesh["dp"])
    sharding()(module, mesh=mesh["dp"])


def cut_flat(numbers, module, world):
    """dp and cp merged around tp."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (2, 2, world // 4), mesh_dim_names=("dp", "tp", "cp"))
    flat = mesh["dp", "cp"]._flatten("dp_cp")
    for layer in module.layers:
        parallelize_module(layer, mesh["tp"], {"up": ColwiseParallel()})
    sharding()(module, mesh=mesh["dp_cp"] if new_torch() < (2, 11) else flat)


def wrapped_fsdp1(module, world, with_mesh):
    import torch
    from torch import nn
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
    from torch.distributed.fsdp import (ShardedOptimStateDictConfig, ShardedStateDictConfig,
                                        StateDictType)
    from torch.distributed.fsdp.wrap import ModuleWrapPolicy
    mesh = {"device_mesh": init_device_mesh("cpu", (world,))} if with_mesh else {}
    cut = FSDP(module, auto_wrap_policy=ModuleWrapPolicy({nn.LayerNorm}),
               device_id=torch.device("cpu"), use_orig_params=True, **mesh)
    return cut, FSDP.state_dict_type(cut, StateDictType.SHARDED_STATE_DICT,
                                     ShardedStateDictConfig(offload_to_cpu=False),
                                     ShardedOptimStateDictConfig(offload_to_cpu=False))


def by_hand(numbers, world):
    """(the state_dict() of this rank, whole tensors)"""
    import torch
    from torch.distributed.device_mesh import init_device_mesh
    try:
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    except ImportError:
        from torch.distributed._tensor import Replicate, Shard, distribute_tensor
    shapes = [(world,)] + [(n, world // n) for n in range(2, world) if world % n == 0]
    shapes += [(2, 2, world // 4)] if world % 4 == 0 else []
    shape = numbers.choice(shapes)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=tuple("abc"[:len(shape)]))
    meshes = [mesh] + ([mesh[name] for name in "abc"[:len(shape)]] if len(shape) > 1 else [])
    state, whole = {}, {}
    for number in range(numbers.randint(3, 9)):
        size = [numbers.choice((1, 2, 3, 5, 8, 9)) for _ in range(numbers.randint(1, 4))]
        kind = numbers.choice((torch.float32, torch.bfloat16, torch.int64, torch.uint8))
        t = torch.randn(size).mul(50).to(kind)
        on = numbers.choice(meshes)
        # Cut without communication: each has the whole, as all have one seed.
        placements = [numbers.choice((Replicate(), *(Shard(d) for d in range(t.dim()))))
                      for _ in range(on.ndim)]
        name = f"t{number}.weight"
        state[name], whole[name] = distribute_tensor(t, on, placements), t
    state["plain"] = whole["plain"] = torch.arange(5)
    return state, whole


def write_rank(directory, rank, world, layout, state, optimizer):
    import torch
    os.makedirs(directory, exist_ok=True)
    if layout == "verl":
        torch.save(state, f"{directory}/model_world_size_{world}_rank_{rank}.pt")
        if optimizer is not None:
            torch.save(optimizer, f"{directory}/optim_world_size_{world}_rank_{rank}.pt")
        if rank == 0:
            with open(f"{directory}/fsdp_config.json", "w", encoding="utf-8") as f:
                json.dump({"FSDP_version": 2, "world_size": world}, f)
    else:
        torch.save(state, f"{directory}/{layout.format(R=rank)}")


def make_one(numbers, seed, rank, world, directory):
    """(kind, tensors, moments), or None if this torch cannot make it."""
    import torch
    kinds = ["fsdp2", "fsdp2", "hand", "fsdp1", "fsdp1mesh"]
    if new_torch() >= (2, 6):
        kinds += ["hsdp", "hsdp", "tp", "tp"] + (["flat"] if world in (4, 8) else [])
    kind = numbers.choice(kinds)
    layout = numbers.choice(("verl", "verl", "rank_{R}.pt", "model_{R}.pt"))
    way = (numbers.choice((None, "norm", "head")), numbers.choice(("adamw", "adamw", "sgd")),
           numbers.random() < 0.2)
    torch.manual_seed(seed)
    if kind == "hand":
        state, whole = by_hand(numbers, world)
        write_rank(directory, rank, world, "model_{R}.pt", state, None)
        return kind, {name: torch_entry(t) for name, t in whole.items()}, {}
    # torch 2.6 refuses strided shards of unequal sizes.
    module = random_module(numbers, seed, kind in ("tp", "flat") and new_torch() < (2, 8))
    plain = copy.deepcopy(module)
    if kind.startswith("fsdp1"):
        for model in module, plain:
            model.to(torch.float32)
        cut, how = wrapped_fsdp1(module, world, kind == "fsdp1mesh")
        with how:
            write_rank(directory, rank, world, layout, cut.state_dict(), None)
        return kind, truth_of(plain, None, False)[0], {}
    {"fsdp2": cut_fsdp2, "hsdp": cut_hsdp, "tp": cut_tp, "flat": cut_flat}[kind](
        numbers, module, world)
    optimizer = trained(module, way) if layout == "verl" else None
    write_rank(directory, rank, world, layout, module.state_dict(),
               optimizer and optimizer.state_dict())
    return (kind, *truth_of(plain, trained(plain, way) if optimizer else None, way[2]))


def start(rank, world, directory):
    import logging
    import torch
    import torch.distributed as dist
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meeting", rank=rank,
                            world_size=world)
    return dist


def work(directory, seed, world, models, rank):
    import traceback
    dist, found = start(rank, world, directory), {}
    for number in range(models):
        try:
            said = make_one(random.Random(seed + number), seed + number, rank, world,
                            f"{directory}/{number}")
        except Exception:  # what a release cannot do
            said = ("failed", traceback.format_exc()[-1500:], {})
        found[number] = said
        dist.barrier()
    if rank == 0:
        write(f"{directory}/truth.json", json.dumps(found).encode())
    dist.destroy_process_group()


def work_verl(directory, seed, world, models, rank):
    """Models that verl's manager saves after a step, one with an adapter."""
    import verl_software
    verl_software.enter()
    import torch
    from peft import LoraConfig, get_peft_model
    from tokenizers import Tokenizer
    from tokenizers import models as kinds
    from torch.distributed.device_mesh import init_device_mesh
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM
    from verl.utils.checkpoint.fsdp_checkpoint_manager import FSDPCheckpointManager
    dist, found = start(rank, world, directory), {}
    words = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(kinds.WordLevel(
        {"a": 0, "[UNK]": 1}, "[UNK]")), unk_token="[UNK]")

    def model_of(number):
        numbers = random.Random(seed + number)
        torch.manual_seed(seed + number)
        heads = numbers.choice((2, 4))
        model = Qwen2ForCausalLM(Qwen2Config(
            vocab_size=numbers.randint(30, 50), hidden_size=16,
            intermediate_size=numbers.randint(9, 30), num_hidden_layers=numbers.randint(1, 3),
            num_attention_heads=heads, num_key_value_heads=numbers.choice((1, heads)),
            tie_word_embeddings=numbers.random() < 0.5, max_position_embeddings=64))
        model.to(numbers.choice((torch.float32, torch.bfloat16)))
        model.config.architectures = ["Qwen2ForCausalLM"]
        if numbers.random() < 0.4:
            model = get_peft_model(model, LoraConfig(
                r=numbers.randint(1, 4), lora_alpha=6, target_modules=["q_proj", "down_proj"],
                task_type="CAUSAL_LM", init_lora_weights=False))
        return model

    for number in range(models):
        module, plain = model_of(number), model_of(number)
        replicas = random.Random(number + seed).choice((1, 2)) if world % 2 == 0 else 1
        mesh = init_device_mesh("cpu", (world,), mesh_dim_names=("fsdp",)) if replicas == 1 \
            else init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("ddp", "fsdp"))
        for layer in [m for m in module.modules() if type(m).__name__ == "Qwen2DecoderLayer"]:
            sharding()(layer, mesh=mesh)
        sharding()(module, mesh=mesh)
        way = (None, "adamw", False)
        optimizer = trained(module, way)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: 1.0)
        step = f"{directory}/{number}/global_step_{number + 1}"
        FSDPCheckpointManager(module, optimizer, schedule, processing_class=words,
                              checkpoint_config=None).save_checkpoint(
            f"{step}/actor", global_step=number + 1, max_ckpt_to_keep=None)
        if rank == 0:
            write(f"{directory}/{number}/latest_checkpointed_iteration.txt",
                  str(number + 1).encode())
        found[number] = ("verl", *truth_of(plain, trained(plain, way), False))
        dist.barrier()
    if rank == 0:
        write(f"{directory}/truth.json", json.dumps(found).encode())
    dist.destroy_process_group()


if sys.argv[1:2] in (["make"], ["verl"]):
    (work_verl if sys.argv[1] == "verl" else work)(*sys.argv[2:3], *map(int, sys.argv[3:]))
    sys.exit(0)

from library_use import compare  # noqa: E402
from rsh_cli import good, run_json  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount, require_named  # noqa: E402
from run_seed import run_seed  # noqa: E402


def made_by(python, what, directory, seed, world, models):
    """{number: (kind, tensors, moments)}"""
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
                   "CUDA_VISIBLE_DEVICES": "", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    ranks = [subprocess.Popen(
        [python, os.path.abspath(__file__), what, directory, str(seed), str(world), str(models),
         str(rank)], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, env=environment) for rank in range(world)]
    try:
        for rank in ranks:
            said = rank.communicate(timeout=900)[1]
            check(rank.returncode == 0, said[-3000:])
    finally:
        for rank in ranks:
            rank.kill()
    return json.loads(content(os.path.join(directory, "truth.json")))


def judge(source, kind, tensors, moments, library):
    """Through an export, a mount without options, and the library."""
    with tempfile.TemporaryDirectory() as own:
        out = os.path.join(own, "out")
        good("export", "--optimizer", "keep", source, out)
        same(model_hashes(out), {**tensors, **moments}, kind)
        said = run_json("ls", source)
        check(said["whole"], said)
        with Mounted(source, described=True) as mount:
            same(model_hashes(mount.path), tensors, kind)
        if library:
            compare(own, source, None, None, "format=safetensors")


def run_python(tap, python, name, seed, models, what="make"):
    for number, world in enumerate(WORLDS if what == "make" else (2, 3, 4)):
        with tempfile.TemporaryDirectory(prefix="reshardfs-ranks-") as directory:
            first = seed + 1000 * number
            with tap.test(f"{name}: {world} ranks write {models} models from seed {first}"):
                truth = made_by(python, what, directory, first, world, models)
                check(len(truth) == models, truth)
            for at, (kind, tensors, moments) in truth.items():
                if kind == "failed":
                    tap.diag(f"seed {first + int(at)}: this torch cannot: "
                             f"{tensors.splitlines()[-1][:200]}")
                    continue
                with tap.test(f"{name}: seed {first + int(at)}, {kind} on {world} ranks, "
                              f"{len(tensors)} tensors, {len(moments)} moments"):
                    judge(os.path.join(directory, at), kind, tensors, moments, at == "0")


def release_of(python):
    done = subprocess.run([python, "-c", "import torch; print(torch.__version__)"], text=True,
                          capture_output=True, check=False)
    return done.stdout.strip()


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seed", type=int, default=run_seed() % 10 ** 6)
    options.add_argument("--models", type=int, default=6)
    options = options.parse_args()
    require_mount()
    require_named("RSH_HF_PYTHON", "a Python that has torch")
    tap = Tap()
    tap.diag(f"--seed {options.seed} --models {options.models}")
    others = [p for p in os.environ.get("RSH_TORCH_PYTHONS", "").split(":") if p]
    for python in (os.environ["RSH_HF_PYTHON"], *others):
        run_python(tap, python, f"torch {release_of(python)}", options.seed, options.models)
    if os.environ.get("RSH_VERL"):
        run_python(tap, os.environ["RSH_HF_PYTHON"], "verl", options.seed, options.models, "verl")
    else:
        tap.skip("verl's manager saves", "RSH_VERL does not name a directory that has verl")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
