#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a partial load of a mount with --format dcp reads of the source.

Loaders read a whole item for any part of it.  So a load of some tensors, or of some rows
of one, may read the bytes of the items that it needs, and little else: .reshardfs/stats
counts.  The loaders are the independent reader (lib/dcp_reader.py) and, if RSH_HF_PYTHON
names a Python that has torch, torch.distributed.checkpoint.load in one process and in two.

    dcp_partial_loads.py
    dcp_partial_loads.py torch ROOT NAME..              what the other Python does
    dcp_partial_loads.py rank R MEETING ROOT NAME
"""

import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]


# ---- under RSH_HF_PYTHON ----

def same_bytes(tensor, data):
    import torch
    flat = tensor.contiguous().reshape(-1).view(torch.uint8)
    return torch.equal(flat, torch.frombuffer(bytearray(data), dtype=torch.uint8))


def zeros_of(root, names):
    import torch
    import torch.distributed.checkpoint as dcp
    described = dcp.FileSystemReader(root).read_metadata().state_dict_metadata
    return {n: torch.zeros(described[n].size, dtype=described[n].properties.dtype)
            for n in names}


def load_names(root, *names):
    import inspect
    import torch.distributed.checkpoint as dcp
    alone = {"no_dist": True} if "no_dist" in inspect.signature(dcp.load).parameters else {}
    found = zeros_of(root, names)
    dcp.load(found, checkpoint_id=root, **alone)
    expected = json.load(sys.stdin)
    for name, tensor in found.items():
        assert same_bytes(tensor, bytes.fromhex(expected[name])), name


def load_rank(rank, meeting, root, name):
    """Half of the rows, as a DTensor."""
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.device_mesh import init_device_mesh
    try:
        from torch.distributed.tensor import Shard, distribute_tensor
    except ImportError:
        from torch.distributed._tensor import Shard, distribute_tensor
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=int(rank),
                            world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    found = {name: distribute_tensor(zeros_of(root, [name])[name], mesh, [Shard(0)])}
    dcp.load(found, checkpoint_id=root)
    local, half = found[name].to_local(), found[name].shape[0] // 2
    with open(meeting + ".expected", "rb") as f:
        f.seek(int(rank) * half * local[0].nbytes)
        assert same_bytes(local, f.read(local.nbytes)), name
    dist.barrier()
    dist.destroy_process_group()


if sys.argv[1:2] == ["torch"]:
    load_names(*sys.argv[2:])
    sys.exit(0)
if sys.argv[1:2] == ["rank"]:
    load_rank(*sys.argv[2:])
    sys.exit(0)

import make_tree  # noqa: E402
from dcp_reader import Checkpoint  # noqa: E402
from demands import check, write  # noqa: E402
from make_tree import Param  # noqa: E402
from ms_formats import checkpoint_bytes  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402

MIB = 1 << 20
MESH = [1, 2]
# "rows" has nine items of 16 MiB and one of 8; each other tensor has one.
ROWS = Param("rows", [77824, 1024], "Float16", [0, -1])
INNER = Param("inner", [2048, 4096], "Float16", [-1, 0])
SMALL = [Param(f"small.{i}", [256, 64], "Float32", [0, -1]) for i in range(64)]
PARAMS = [*SMALL[:32], ROWS, INNER, *SMALL[32:]]
# At the end of an item, the windows that are prepared ahead of its reader.
SPARE = 8 * MIB


def write_source(directory):
    numbers = random.Random(28)
    tensors = {p.name: numbers.randbytes(p.dims[0] * p.dims[1] *
                                         make_tree.ELEMENT_BYTES[p.dtype]) for p in PARAMS}
    for rank in range(2):
        held = make_tree.records(PARAMS, tensors, MESH, "source", rank)
        make_tree.write(f"{directory}/source/rank_{rank}/net_rank_{rank}-1_1.ckpt",
                        checkpoint_bytes(held))
    make_tree.write(f"{directory}/strategy.ckpt", make_tree.strategy(PARAMS, "source", MESH))
    return tensors


class Counted:
    """A new mount, and what it has read of the source when the block ends: at least
    `needed` bytes, and at most the items that are loaded, each of them once."""

    def __init__(self, directory, needed, items=(1, None)):
        self.needed, (count, most) = needed, items
        self.most = (most or needed) + count * SPARE
        self.mount = Mounted(f"{directory}/source", src_strategy=f"{directory}/strategy.ckpt",
                             dst_strategy=None, extra=["--format", "dcp"])

    def __enter__(self):
        self.mount.__enter__()
        self.before = self.mount.stats()["fetched"]["bytes"]
        return self.mount.path

    def __exit__(self, kind, *more):
        fetched = self.mount.stats()["fetched"]["bytes"] - self.before
        self.mount.__exit__(kind, *more)
        if kind is None:
            check(self.needed <= fetched <= self.most,
                  f"{fetched} bytes of the source were read, for {self.needed} to {self.most}")


def read_rows(checkpoint, first, end):
    """Rows of "rows", from the items that have some of them."""
    row, result = 2 * ROWS.dims[1], []
    for start, size, item in checkpoint.items(
            ROWS.name, lambda start, size: start[0] < end and start[0] + size[0] > first):
        begin, stop = max(first - start[0], 0), min(end - start[0], size[0])
        result.append(item.content[begin * row:stop * row])
    return b"".join(result)


def run_reader(tap, directory, tensors):
    for name, needed in (("small.3", 64 << 10), ("inner", 16 * MIB)):
        with tap.test(f"the reader loads {name}"), Counted(directory, needed) as root:
            ((_, _, item),) = Checkpoint(root).items(name)
            check(item.content == tensors[name], "other bytes")
    for first, end, needed, items in ((40000, 50000, 48 * MIB, 3), (70000, 70001, 16 * MIB, 1),
                                      (30000, 40000, 32 * MIB, 2), (77000, 77001, 8 * MIB, 1)):
        with tap.test(f"the reader loads rows {first} to {end - 1}"), \
                Counted(directory, needed, (items, None)) as root:
            row = 2 * ROWS.dims[1]
            check(read_rows(Checkpoint(root), first, end) ==
                  tensors["rows"][first * row:end * row], "other bytes")


def python(*words):
    return subprocess.Popen([os.environ["RSH_HF_PYTHON"], os.path.abspath(__file__), *words],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, text=True,
                            env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"})


def ended(process, given=None):
    said, _ = process.communicate(given, timeout=300)
    check(process.returncode == 0, said[-3000:])


def run_torch(tap, directory, tensors):
    if not os.environ.get("RSH_HF_PYTHON"):
        tap.skip("torch loads some of it", "RSH_HF_PYTHON does not name a Python that has torch")
        return
    for names, needed in ((["small.3", "small.40"], 128 << 10), (["inner"], 16 * MIB)):
        with tap.test(f"torch loads {', '.join(names)}"), Counted(directory, needed) as root:
            ended(python("torch", root, *names),
                  json.dumps({name: tensors[name].hex() for name in names}))
    # Both of them need the fifth item.
    with tap.test("two processes of torch load half of the rows each"), \
            Counted(directory, 152 * MIB, (10, 168 * MIB)) as root:
        meeting = os.path.join(directory, "meeting")
        write(meeting + ".expected", tensors["rows"])
        for process in [python("rank", str(rank), meeting, root, "rows") for rank in range(2)]:
            ended(process)


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        tensors = write_source(directory)
        run_reader(tap, directory, tensors)
        run_torch(tap, directory, tensors)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
