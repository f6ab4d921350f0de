#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""metadata.json of Checkpoint 2.0 as the strategy of the destination: a whole model
cut as the genuine ones describe, each rank held against the slices of an
independent reader (lib/checkpoint2_trees.py)."""

import glob
import json
import math
import os
import random
import shutil
import sys
import tempfile

SRC = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(SRC, "lib"))

from checkpoint2_trees import BITS, NEVER_SAVED, TRACKER, Parameter  # noqa: E402
from demands import check, content, write  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from rsh_cli import run  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402
from safetensors_format import safetensors_bytes, values_of  # noqa: E402

DATA = os.path.join(SRC, "data", "checkpoint2")


def parameters(path, seed):
    """{name: Parameter} of a metadata.json, with random contents."""
    metadata = json.loads(content(path))
    holders = {key: sorted({r for stored in entries
                            for r in stored.get("rank_group", []) + [stored["storage_rank"]]})
               for key, entries in metadata["storage_data"].items()}
    result, rng = {}, random.Random(seed)
    for name, told in metadata["state_dict_metadata"].items():
        layout = told["layout"]
        p = Parameter(tuple(told["global_shape"]), told["properties"]["dtype"],
                      layout and layout["device_matrix"], layout and layout["tensor_map"],
                      layout["rank_list"] if layout else holders[f"('{name}', (0,))"])
        p.content = rng.randbytes(BITS[p.file_type] // 8 * math.prod(p.shape))
        if not name.startswith(NEVER_SAVED):
            result[name] = p
    return result


def expected(params, rank, ranks):
    """What a rank of a job of stages of `ranks` ranks is to hold."""
    found = {}
    for name, p in params.items():
        if rank in p.ranks:
            number = p.numbers()[p.ranks.index(rank)]
        elif p.mesh is None and any(r // ranks == rank // ranks for r in p.ranks):
            number = 0
        else:
            continue
        found[name] = (p.file_type, tuple(p.local_shape()), p.slice(number))
    return found


def hold(mount, params, what):
    count = max(r for p in params.values() for r in p.ranks) + 1
    ranks = max(len(p.ranks) for p in params.values() if p.mesh)
    check(len(os.listdir(mount.path)) == count, f"{what}: {os.listdir(mount.path)}")
    for rank in range(count):
        shown = values_of(read_checkpoint(mount.rank_file(rank)))
        wanted = expected(params, rank, ranks)
        different = sorted(n for n in set(shown) | set(wanted) if shown.get(n) != wanted.get(n))
        check(not different, f"{what}, rank {rank}: {different} differ")


def save_directory(root, metadata, iteration):
    step = os.path.join(root, f"iteration_{iteration:08}")
    os.makedirs(step)
    shutil.copy(metadata, step)
    write(os.path.join(root, TRACKER), str(iteration).encode())
    return step


def main():
    require_mount()
    tap = Tap()
    directory = tempfile.mkdtemp(prefix="reshardfs-metadata-")
    try:
        for i, metadata in enumerate(sorted(glob.glob(f"{DATA}/*/iteration_*/metadata.json"))):
            name = metadata.split(os.sep)[-3]
            params = parameters(metadata, i)
            source = os.path.join(directory, name)
            os.mkdir(source)
            with open(os.path.join(source, "model.safetensors"), "wb") as f:
                f.write(safetensors_bytes({n: (p.file_type, p.shape, p.content)
                                           for n, p in params.items()}))
            with tap.test(f"cut as {name}"):
                with Mounted(source, src_strategy="none", dst_strategy=metadata) as mount:
                    hold(mount, params, name)
        root = os.path.join(directory, "save")
        step = save_directory(root, metadata, 12)
        for given in (step, root):
            with tap.test(f"the metadata.json of {os.path.relpath(given, directory)}"):
                with Mounted(source, src_strategy="none", dst_strategy=given) as mount:
                    hold(mount, params, given)
        with tap.test("seen as a strategy"):
            said = run("strategy", "show", metadata)
            check(f"{len(params)} parameters, " in said.out, repr(said))
        with tap.test("refused: damaged, with its place"):
            os.chmod(os.path.join(step, "metadata.json"), 0o600)
            os.truncate(os.path.join(step, "metadata.json"), 1000)
            said = run("strategy", "show", root)
            check(said.status and "damaged at offset 1000" in said.err, repr(said))
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
