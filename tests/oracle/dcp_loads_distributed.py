#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What --format dcp shows, loaded by four processes of torch, and what the module's
StorageReader gives them without a mount.

RSH_HF_PYTHON names a Python that has torch.  Four processes under gloo load a mount into
DTensors on a mesh of 2 x 2, each with placements drawn at random: every process gets the
elements that the safetensors form of the same source has.  Sources are rank files, and a
checkpoint with transposed tensors, whose items say so by strides.  Some of the tensors
that they load into have another type or order of dimensions, or a memory that is not their
value, or is that of two.  If that Python has Megatron-Core, its loader reads the same mounts.

    dcp_loads_distributed.py [--seed N]
    dcp_loads_distributed.py rank R SEED DIRECTORY MOUNT [OPTIONS]    what a process does
    dcp_loads_distributed.py megatron DIRECTORY MOUNT
    dcp_loads_distributed.py targets DIRECTORY
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


def reader_of(source, options):
    """The keywords of dcp.load() for a mount, or for a source and its options."""
    if options is None:
        return {"checkpoint_id": source}
    import reshardfs.dcp
    return {"storage_reader": reshardfs.dcp.Reader(source, **json.loads(options))}


def load_rank(rank, seed, directory, root, options=None):
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
    # A tensor whose memory is in another order, and one of another type.
    for name, tensor in sorted(whole.items()):
        if tensor.dim() > 1 and numbers.random() < 0.5:
            wanted[name] = tensor
            found[name] = torch.zeros_like(tensor.transpose(0, 1).contiguous()).transpose(0, 1)
        elif tensor.dtype == torch.float16 and numbers.random() < 0.5:
            wanted[name], found[name] = tensor.float(), torch.zeros_like(tensor.float())
    dcp.load(found, **reader_of(root, options))
    wanted, found = ({name: t.to_local() if hasattr(t, "to_local") else t
                      for name, t in of.items()} for of in (wanted, found))
    wrong = [name for name in wanted
             if not same(found[name], wanted[name])]
    cut = sum(wanted[name].shape != whole[name].shape for name in wanted)
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


def load_values(root):
    """A checkpoint of torch whole, by torch's reader and by the module's."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata
    described = dcp.FileSystemReader(root).read_metadata().state_dict_metadata

    def load(reader):
        found = {name: torch.zeros(d.size, dtype=d.properties.dtype)
                 if isinstance(d, TensorStorageMetadata) else None
                 for name, d in described.items()}
        dcp.load(found, storage_reader=reader)
        return found

    import reshardfs.dcp
    theirs, ours = load(dcp.FileSystemReader(root)), load(reshardfs.dcp.Reader(root))
    wrong = [name for name, value in theirs.items()
             if not (same(ours[name], value) if isinstance(value, torch.Tensor) else
                     ours[name] == value)]
    values = sum(not isinstance(value, torch.Tensor) for value in theirs.values())
    print(json.dumps([wrong, len(theirs), values]))


def load_targets(directory):
    """Into tensors whose memory is not their value, or is that of two."""
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.utils._pytree import tree_map
    import reshardfs.dcp

    class Wrapper(torch.Tensor):
        """As torchao makes of weights of float8: a tensor in a tensor that has no memory."""

        @staticmethod
        def __new__(cls, inner):
            return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

        def __init__(self, inner):
            super().__init__()
            self.held = inner

        @classmethod
        def __torch_dispatch__(cls, operation, types, words=(), named=None):
            got = operation(*tree_map(lambda t: t.held if isinstance(t, cls) else t, words),
                            **(named or {}))
            return words[0] if got is words[0].held else cls(got)

    n = 1 << 20
    saved = {"complex": torch.randn(7, dtype=torch.complex64), "real": torch.randn(4, 5),
             "first": torch.full((n,), 1.), "second": torch.full((n,), 2.)}
    dcp.save(saved, storage_writer=dcp.FileSystemWriter(directory, thread_count=4), no_dist=True)
    said = dcp.FileSystemReader(directory).read_metadata().storage_data
    first, = (place.relative_path for index, place in said.items() if index.fqn == "first")
    tied = torch.zeros(n)
    makes = {
        "a conjugate": lambda: {"complex": torch.zeros(7, dtype=torch.complex64).conj()},
        "a negative": lambda: {"real": torch._neg_view(torch.zeros(4, 5))},
        "a wrapper": lambda: {"real": Wrapper(torch.zeros(4, 5))},
        "a parameter": lambda: {"real": torch.nn.Parameter(torch.zeros(4, 5))},
        "one memory for two": lambda: {"first": tied.zero_(), "second": tied},
        "a part of another's memory": lambda: {"first": tied.zero_(), "second": tied[:]},
    }

    def load(make, reader):
        found = make()
        dcp.load(found, storage_reader=reader, no_dist=True)
        return {name: getattr(t, "held", t).detach().clone().resolve_conj().resolve_neg()
                for name, t in found.items()}

    wrong = []
    for what, make in makes.items():
        theirs = load(make, dcp.FileSystemReader(directory))
        # The first one of two would be written last.
        ours = load(make, reshardfs.dcp.Reader(directory, fault=f"delay=50ms@{first}"))
        wrong += [what] if any(not same(ours[name], theirs[name]) for name in theirs) else []
    freed = torch.zeros(4, 5)
    freed.untyped_storage().resize_(0)
    try:
        load(lambda: {"real": freed}, reshardfs.dcp.Reader(directory))
        wrong.append("freed memory is not refused")
    except dcp.CheckpointException as error:
        if "real: the tensor to load it into has no memory" not in str(error):
            wrong.append(str(error))
    print(json.dumps([wrong, len(makes) + 1, 2]))


if sys.argv[1:2] == ["targets"]:
    load_targets(*sys.argv[2:])
    sys.exit(0)
if sys.argv[1:2] == ["values"]:
    load_values(*sys.argv[2:])
    sys.exit(0)
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
from rsh_cli import good  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount, require_named, reshardfs_program  # noqa: E402
from run_seed import run_seed  # noqa: E402


def judge(tap, what, said, kind="cut"):
    for line in said:
        wrong, count, cut = json.loads(line.stdout.splitlines()[-1]) if line.returncode == 0 \
            else (["failed"], 0, 0)
        tap.ok(not wrong and count > 0, f"{what}: {count} names, {cut} of them {kind}",
               f"{wrong[:5]}\n{line.stderr[-3000:]}")


def python(*words):
    library = os.path.join(os.path.dirname(reshardfs_program()), ".libs", "libreshard.so.0")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "LIBRESHARD": library,
                   "PYTHONPATH": os.path.join(HERE, "..", "..", "python")}
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


def of_many_items(numbers, directory):
    """Tensors that are shown in items of 16 MiB, and one whose rows are larger than that."""
    shapes = {"rows": (5000, 4100), "long": (3, 9 << 20), "deep": (7, 3, 1 << 20)}
    tensors = {}
    for name, shape in shapes.items():
        content = bytearray(numbers.randbytes(2 * math.prod(shape)))
        # No NaN: two conversions to another type may give them other bits.
        content[1::2] = content[1::2].translate(bytes(n & 0xbf for n in range(256)))
        tensors[name] = Tensor("F16", shape, bytes(content), [((0,) * len(shape), shape)], {})
    Tree("torch", tensors, {}, numbers).write(os.path.join(directory, "source"))
    return [], os.path.join(directory, "source")


def keywords(words):
    """Options of the command line as those of the module."""
    return {"dst_strategy": "none", **{name[2:].replace("-", "_"): value
                                       for name, value in zip(words[::2], words[1::2])}}


def are_strided(root):
    shown = Checkpoint(root)
    return {name for name in shown.tensors
            if not all(item.in_rows for _, _, item in shown.items(name))}


def genuine():
    """Those that this torch may read: metadata of a later one has more members."""
    version = subprocess.run([os.environ["RSH_HF_PYTHON"], "-c",
                              "import torch; print(torch.__version__)"],
                             stdout=subprocess.PIPE, text=True, check=True).stdout
    found = ["torch-2.4/fsdp2-2", "torch-2.4/kinds"]
    if [int(n) for n in version.split(".")[:2]] >= [2, 15]:
        found += ["torch-2.15/again", "torch-2.15/fsdp2", "torch-2.15/fsdp_tp"]
    return found


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--seed", type=int, default=run_seed())
    options = options.parse_args()
    require_mount()
    require_named("RSH_HF_PYTHON", "a Python that has torch")
    tap = Tap()
    tap.diag(f"--seed {options.seed}")
    numbers = random.Random(options.seed)
    for name in genuine():
        judge(tap, f"{name} and its values", [ended(python(
            "values", os.path.join(HERE, "..", "data", "dcp", name)))], "values")
    with tempfile.TemporaryDirectory() as directory:
        judge(tap, "tensors to load into", [ended(python("targets", directory))],
              "of the same memory")
    for make in rank_files, rank_files, rank_files, transposed, of_many_items:
        with tempfile.TemporaryDirectory() as directory:
            words, source = make(numbers, directory)
            good("export", *words, "--dst-strategy", "none", "--format", "safetensors",
                 source, os.path.join(directory, "whole"))
            with Mounted(source, described=True, dst_strategy=None,
                         extra=[*words, "--format", "dcp"]) as mount:
                strided = are_strided(mount.path)
                check(strided == ({"matrix", "stack", "turned"} if make is transposed else set()),
                      strided)
                ranks = [python("rank", str(r), str(options.seed), directory, mount.path)
                         for r in range(WORLD)]
                judge(tap, f"four processes, {make.__name__}", [ended(p) for p in ranks])
                if os.path.exists(os.path.join(directory, "meeting")):
                    os.unlink(os.path.join(directory, "meeting"))
                ranks = [python("rank", str(r), str(options.seed), directory, source,
                                json.dumps(keywords(words))) for r in range(WORLD)]
                judge(tap, f"without a mount, {make.__name__}", [ended(p) for p in ranks])
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
