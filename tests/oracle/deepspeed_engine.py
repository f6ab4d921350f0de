#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What DeepSpeed's engine saves of random models, as the program shows it.

RSH_DEEPSPEED_PYTHON names a Python that has deepspeed and torch.  One to five processes under
gloo train models at random for two steps with ZeRO 1, 2 or 3, bf16, fp16 or float32, and save
them; the truth is what the engine holds.  zero_to_fp32.py of DeepSpeed is a second opinion,
and ds_to_universal.py converts some.

    deepspeed_engine.py [--seed N] [--models N]
    deepspeed_engine.py make DIRECTORY SEED MODELS       what a process does
"""

import argparse
import glob
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]

from demands import check  # noqa: E402
from shown_model import model_hashes, same, torch_entry  # noqa: E402

WORLDS = (1, 2, 2, 3, 5)
ENVIRONMENT = {"DS_ACCELERATOR": "cpu", "DS_BUILD_OPS": "0", "OMP_NUM_THREADS": "1",
               "PYTHONWARNINGS": "ignore"}


# ---- under a Python that has deepspeed ----

def random_net(numbers, stage):
    import torch
    from torch import nn

    def size():
        return numbers.choice((1, 2, 3, 5, 7, 8, 13))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            n = size()
            self.embed = nn.Embedding(9, n)
            self.layers = nn.ModuleList(nn.ModuleDict({
                "up": nn.Linear(n, m, bias=numbers.random() < 0.7), "down": nn.Linear(m, n),
                "norm": nn.LayerNorm(n)}) for m in [size() for _ in range(numbers.randint(1, 3))])
            self.scale = nn.Parameter(torch.ones(1))
            self.idle = nn.Parameter(torch.randn(size(), 2, size()))
            if stage < 3 and numbers.random() < 0.4:
                self.empty = nn.Parameter(torch.empty(0, n))
            self.fixed = nn.Linear(n, size()) if numbers.random() < 0.5 else None
            if self.fixed is not None:
                self.fixed.requires_grad_(False)
            self.register_buffer("count", torch.arange(3.) / 3)
            self.register_buffer("ids", torch.arange(numbers.randint(1, 4)))
            self.head = nn.Linear(n, 9, bias=False)
            if numbers.random() < 0.5:
                self.head.weight = self.embed.weight

        def forward(self, x):
            h = self.embed(x)
            for layer in self.layers:
                h = layer["norm"](h + layer["down"](torch.relu(layer["up"](h)))) * self.scale
            if self.fixed is not None:
                h = h + self.fixed(h).sum() * 0.01
            return self.head(h).float().pow(2).mean()

    return Net()


def groups_of(numbers, net):
    params = [p for p in net.parameters() if p.requires_grad]
    if numbers.random() < 0.5:
        return params
    return [{"params": [p for p in params if p.dim() > 1], "weight_decay": 0.1},
            {"params": [p for p in params if p.dim() <= 1], "weight_decay": 0.0}]


def config_of(numbers, stage, kind):
    zero = {"stage": stage}
    if stage == 2 and numbers.random() < 0.4:
        zero["round_robin_gradients"] = True
    if stage in (1, 2) and numbers.random() < 0.3:
        zero["elastic_checkpoint"] = True
    if stage == 3:
        zero["stage3_param_persistence_threshold"] = numbers.choice((0, 20, 100000))
        zero["sub_group_size"] = numbers.choice((30, 100, 1000000))
    config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero,
              "zero_allow_untested_optimizer": True, "steps_per_print": 10 ** 9}
    if kind == "bf16":
        config["bf16"] = {"enabled": True}
    if kind == "fp16":
        config["fp16"] = {"enabled": True, "initial_scale_power": 2}
    if stage == 1 and kind == "bf16" and numbers.random() < 0.4:
        config["data_types"] = {"grad_accum_dtype": "fp32"}
    return config


def live_groups(zero, world):
    """{id of a parameter: {"fp32": masters, "exp_avg": ...}} of ZeRO 1 and 2, in the order in
    which the engine itself goes through its groups."""
    import torch
    import torch.distributed as dist
    found = {}
    for number, flat in enumerate(zero.single_partition_of_fp32_groups):
        whole = {}
        states = zero.optimizer.state[flat] if flat in zero.optimizer.state else {}
        for key, part in {"fp32": flat, **{k: t for k, t in states.items() if k != "step"}}.items():
            pieces = [torch.empty_like(part) for _ in range(world)]
            dist.all_gather(pieces, part.detach().contiguous())
            whole[key] = torch.cat(pieces)
        ordered = getattr(zero, "round_robin_bit16_groups", zero.bit16_groups)[number]
        paddings = getattr(zero, "round_robin_bit16_padding", None)
        at = 0
        for place, p in enumerate(ordered):
            found[id(p)] = {k: t[at:at + p.numel()].view(p.shape) for k, t in whole.items()}
            at += p.numel() + (paddings[number][place] if paddings else 0)
    return found


def truth_of(engine, stage, world):
    import deepspeed
    from deepspeed.utils import safe_get_full_fp32_param, safe_get_full_optimizer_state
    zero, model, optimizer = engine.optimizer, {}, {}
    flats = live_groups(zero, world) if hasattr(zero, "single_partition_of_fp32_groups") else {}
    states = list(zero.optimizer.state.values())
    keys = [k for k in (states[0] if states else {}) if k != "step"]
    named = list(engine.module.named_parameters(remove_duplicate=False))
    for name, p in named:
        with deepspeed.zero.GatheredParameters([p], enabled=stage == 3):
            whole = p.detach().clone()
        if not p.requires_grad or not whole.numel():
            model[name] = torch_entry(whole)
            continue
        if flats:
            own = dict(flats[id(p)])
            master = own.pop("fp32")
        else:
            own = {k: safe_get_full_optimizer_state(p, k) for k in keys}
            master = safe_get_full_fp32_param(p).reshape(whole.shape)
        model[name] = torch_entry(master)
        if next(n for n, q in named if q is p) == name:
            own["step"] = next(s["step"] for s in states if "step" in s)
            optimizer.update({f"optimizer.state.{name}.{k}": torch_entry(
                t.reshape(whole.shape) if t.dim() else t) for k, t in own.items()})
    saved = engine.module.state_dict()
    model.update({n: torch_entry(b) for n, b in engine.module.named_buffers() if n in saved})
    return model, optimizer


def make(directory, seed, models):
    import deepspeed
    import torch
    import torch.distributed as dist
    type(deepspeed.accelerator.get_accelerator()).is_fp16_supported = lambda _: True
    # It would compile a library for minutes, and goes on without one.
    compatible = deepspeed.ops.__compatible_ops__
    compatible.update(dict.fromkeys(compatible, False))
    deepspeed.init_distributed("gloo")
    torch.set_num_threads(1)
    world, rank, said = dist.get_world_size(), dist.get_rank(), {}
    for number in range(models):
        numbers = random.Random(seed + number)
        torch.manual_seed(seed + number)
        stage, kind = numbers.choice((1, 2, 3, 3)), numbers.choice(("bf16", "fp16", "fp32"))
        net = random_net(numbers, stage)
        config = config_of(numbers, stage, kind)
        optimizer = torch.optim.AdamW(groups_of(numbers, net), lr=1e-2)
        engine = deepspeed.initialize(model=net, optimizer=optimizer, config=config)[0]
        for step in range(2):
            engine.backward(engine((torch.arange(5) + step + rank) % 9))
            engine.step()
        root = os.path.join(directory, str(number))
        engine.save_checkpoint(root)
        model, states = truth_of(engine, stage, world)
        if rank == 0:
            said[number] = {"what": f"{world} ranks, {config}", "model": model,
                            "optimizer": states}
        dist.barrier()
        engine.destroy()
    if rank == 0:
        from deepspeed.utils.zero_to_fp32 import get_fp32_state_dict_from_zero_checkpoint
        for number, case in said.items():
            try:
                found = get_fp32_state_dict_from_zero_checkpoint(os.path.join(directory, str(number)))
                case["fp32"] = {n: torch_entry(t.to(torch.float32) if t.is_floating_point() else t)
                                for n, t in found.items()}
            except Exception as error:  # BF16_Optimizer is refused
                case["fp32"], case["refused"] = {}, str(error)
        with open(os.path.join(directory, "truth.json"), "w", encoding="utf-8") as f:
            json.dump(said, f)


# ---- under the Python of the tests ----

def compare_one(source, case, numbers, out):
    from rsh_cli import GOOD, run
    got = run("export", "--optimizer", "keep", source, out)
    check(got.status == GOOD, f"{case['what']}: {got!r}")
    same(model_hashes(out), {**case["model"], **case["optimizer"]}, case["what"])
    got = run("export", "--cast", "float32", source, out + "-fp32")
    check(got.status == GOOD, f"{case['what']}: {got!r}")
    found = model_hashes(out + "-fp32")
    # It leaves out frozen parameters of ZeRO 1 and empty ones.
    same({n: e for n, e in found.items() if n in case["fp32"]}, case["fp32"],
         f"{case['what']}: zero_to_fp32.py")
    if numbers.random() < 0.3 and "round_robin" not in case["what"]:
        compare_universal(source, case, out)


def compare_universal(source, case, out):
    from rsh_cli import GOOD, run
    step, to = sorted(glob.glob(os.path.join(source, "global_step*")))[-1], out + "-universal"
    words = [] if "'stage': 3" in case["what"] else ["--inject_missing_state"]
    made = subprocess.run([os.environ["RSH_DEEPSPEED_PYTHON"], "-m",
                           "deepspeed.checkpoint.ds_to_universal", "--input_folder", step,
                           "--output_folder", to, "--num_extract_workers", "1",
                           "--num_merge_workers", "1", *words], capture_output=True, text=True,
                          check=False, env={**os.environ, **ENVIRONMENT}, timeout=600)
    if made.returncode:    # it does not know every configuration
        print(f"# {case['what']}: ds_to_universal.py: {made.stderr.strip().splitlines()[-1]}")
        return
    got = run("export", to, out + "-of-universal")
    check(got.status == GOOD, f"{case['what']}: universal: {got!r}")
    same(model_hashes(out + "-of-universal"), case["model"], f"{case['what']}: universal")


def run_world(tap, world, seed, models):
    from rsh_mount import TIMEOUT_SCALE
    with tempfile.TemporaryDirectory() as directory:
        made = subprocess.run(
            [os.environ["RSH_DEEPSPEED_PYTHON"], "-m", "torch.distributed.run", "--standalone",
             "--nproc-per-node", str(world), os.path.abspath(__file__), "make", directory,
             str(seed), str(models)], capture_output=True, text=True, check=False,
            env={**os.environ, **ENVIRONMENT}, timeout=900 * TIMEOUT_SCALE)
        if made.returncode:
            tap.ok(False, f"{world} ranks, seed {seed}", made.stderr[-3000:])
            return
        with open(os.path.join(directory, "truth.json"), encoding="utf-8") as f:
            cases = json.load(f)
        for number, case in cases.items():
            with tap.test(f"--seed {seed + int(number)} --models 1: {case['what']}"):
                compare_one(os.path.join(directory, number), case, random.Random(seed),
                            os.path.join(directory, f"out-{number}"))


def main():
    if sys.argv[1:2] == ["make"]:
        make(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return 0
    from rsh_mount import Tap, require_mount, require_named
    from run_seed import run_seed, share
    require_named("RSH_DEEPSPEED_PYTHON", "a Python that has deepspeed")
    require_mount()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--models", type=int, default=share(8))
    words = parser.parse_args()
    tap = Tap()
    seed = run_seed() if words.seed is None else words.seed
    for place, world in enumerate(WORLDS):
        run_world(tap, world, seed + 1000 * place, words.models)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
