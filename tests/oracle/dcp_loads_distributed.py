#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What --format dcp shows, loaded by four processes of torch.

RSH_HF_PYTHON names a Python that has torch.  Four processes under gloo load a mount into
DTensors on a mesh of 2 x 2, each with placements drawn at random: every process gets the
elements that the safetensors form of the same source has.  Sources are rank files, and a
checkpoint with transposed tensors, whose items say so by strides.  If that Python has
Megatron-Core, its loader reads the same mounts.

    dcp_loads_distributed.py [--seed N]
    dcp_loads_distributed.py rank R SEED DIRECTORY MOUNT    what a process does
    dcp_loads_distributed.py megatron DIRECTORY MOUNT
"""

import argparse
import json
import math
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]
WORLD = 4


# ---- under RSH_HF_PYTHON ----

def expected_of(directory):
    from safetensors.torch import load_file
    return load_file(os.path.join(directory, "whole", "rank_0", "checkpoint_0.safetensors"))


def same(found, expected):
    import torch
    return found.shape == expected.shape and torch.equal(
        found.contiguous().reshape(-1).view(torch.uint8),
        expected.contiguous().reshape(-1).view(torch.uint8))


def load_rank(rank, seed, directory, root):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    try:
        from torch.distributed.tensor import Replicate, Shard, distribute_tensor
    except ImportError:
        from torch.distributed._tensor import Replicate, Shard, distribute_tensor
    dist.init_process_group("gloo", init_method=f"file://{directory}/meeting",
                            rank=rank, world_size=WORLD)
    mesh = init_device_mesh("cpu", (2, 2))
    whole, numbers, wanted = expected_of(directory), random.Random(seed), {}
    for name, tensor in sorted(whole.items()):
        ways = [Replicate(), *(Shard(d) for d in range(tensor.dim()) if tensor.shape[d] > 3)]
        placements = [numbers.choice(ways) for _ in range(2)]
        wanted[name] = distribute_tensor(tensor, mesh, placements)
    found = {name: torch.zeros_like(tensor) for name, tensor in wanted.items()}
    dcp.load(found, checkpoint_id=root)
    wrong = [name for name in wanted
             if not same(found[name].to_local(), wanted[name].to_local())]
    cut = sum(any(p.is_shard() for p in t.placements) for t in wanted.values())
    print(json.dumps([wrong, len(wanted), cut]))
    dist.barrier()
    dist.destroy_process_group()


def load_megatron(directory, root):
    """Megatron-Core's own description of tensors, each whole on one rank."""
    import torch
    import torch.distributed as dist
    from megatron.core import dist_checkpointing
    from megatron.core.dist_checkpointing import ShardedTensor
    dist.init_process_group("gloo", init_method=f"file://{directory}/megatron",
                            rank=0, world_size=1)
    whole = expected_of(directory)
    wanted = {name: ShardedTensor.from_rank_offsets(name, torch.zeros_like(t))
              for name, t in whole.items() if t.dim()}
    found = dist_checkpointing.load(wanted, root)
    wrong = [name for name in wanted if not same(found[name], whole[name])]
    print(json.dumps([wrong, len(wanted), 0]))
    dist.destroy_process_group()


if sys.argv[1:2] == ["rank"]:
    load_rank(int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:])
    sys.exit(0)
if sys.argv[1:2] == ["megatron"]:
    load_megatron(*sys.argv[2:])
    sys.exit(0)

import make_tree  # noqa: E402
from dcp_reader import Checkpoint  # noqa: E402
from dcp_trees import Tensor, Tree  # noqa: E402
from demands import check  # noqa: E402
from rsh_cli import GOOD, run  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount, skip_all  # noqa: E402
from run_seed import run_seed  # noqa: E402


def judge(tap, what, said):
    for line in said:
        wrong, count, cut = json.loads(line.stdout.splitlines()[-1]) if line.returncode == 0 \
            else (["failed"], 0, 0)
        tap.ok(not wrong and count > 0, f"{what}: {count} tensors, {cut} of them cut",
               f"{wrong[:5]}\n{line.stderr[-3000:]}")


def python(*words):
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo"}
    return subprocess.Popen([os.environ["RSH_HF_PYTHON"], os.path.abspath(__file__), *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            env=environment)


def ended(process):
    out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def rank_files(numbers, directory):
    """(words, SOURCE): rank files of a mesh."""
    make_tree.write_tree(directory, *make_tree.random_tree(numbers, 12, 1 << 18), numbers)
    os.rename(os.path.join(directory, "whole"), os.path.join(directory, "whole-ckpt"))
    return ["--src-strategy", os.path.join(directory, "source.ckpt")], \
        os.path.join(directory, "source")


def transposed(numbers, directory):
    """Tensors that a checkpoint has in other orders of dimensions than row-major."""
    tensors = {}
    for name, shape, order in (("matrix", (96, 160), (1, 0)), ("stack", (6, 40, 64), (0, 2, 1)),
                               ("turned", (12, 8, 30), (2, 1, 0)), ("rows", (64, 48), (0, 1))):
        content = numbers.randbytes(2 * math.prod(shape))
        tensors[name] = Tensor("F16", shape, content, [((0,) * len(shape), shape)], {0: order})
    Tree("torch", tensors, {}, numbers).write(os.path.join(directory, "source"))
    return [], os.path.join(directory, "source")


def are_strided(root):
    shown = Checkpoint(root)
    return {name for name in shown.tensors
            if not all(item.in_rows for _, _, item in shown.items(name))}


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seed", type=int, default=run_seed())
    options = options.parse_args()
    require_mount()
    if not os.environ.get("RSH_HF_PYTHON"):
        skip_all("RSH_HF_PYTHON does not name a Python that has torch")
    tap = Tap()
    tap.diag(f"--seed {options.seed}")
    numbers = random.Random(options.seed)
    for make in rank_files, rank_files, rank_files, transposed:
        with tempfile.TemporaryDirectory() as directory:
            words, source = make(numbers, directory)
            got = run("export", *words, "--dst-strategy", "none", "--format", "safetensors",
                      source, os.path.join(directory, "whole"))
            check(got.status == GOOD, repr(got))
            with Mounted(source, described=True, dst_strategy=None,
                         extra=[*words, "--format", "dcp"]) as mount:
                strided = are_strided(mount.path)
                check(strided == ({"matrix", "stack", "turned"} if make is transposed else set()),
                      strided)
                ranks = [python("rank", str(r), str(options.seed), directory, mount.path)
                         for r in range(WORLD)]
                judge(tap, f"four processes, {make.__name__}", [ended(p) for p in ranks])
                if subprocess.run([os.environ["RSH_HF_PYTHON"], "-c", "import megatron.core"],
                                  capture_output=True, check=False).returncode:
                    tap.skip("Megatron-Core loads it",
                             "RSH_HF_PYTHON does not name a Python that has Megatron-Core")
                    continue
                judge(tap, f"Megatron-Core, {make.__name__}",
                      [ended(python("megatron", directory, mount.path))])
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
