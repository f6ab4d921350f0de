#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The random distributed checkpoints of lib/dcp_trees.py, which mount/dcp.py shows, are what
torch takes for some: its own dcp.load finds the same tensors.

RSH_HF_PYTHON names a Python that has torch.

    dcp_random.py [--seed S] [--cases N]
"""

import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import dcp_trees  # noqa: E402
from demands import check  # noqa: E402
from rsh_mount import Tap, require_named  # noqa: E402
from run_seed import seed_and_cases, share  # noqa: E402


def enter_torch():
    python = require_named("RSH_HF_PYTHON", "a Python that has torch")
    if "RSH_DCP_ENTERED" not in os.environ:
        os.environ["RSH_DCP_ENTERED"] = python
        os.execv(python, [python, *sys.argv])


def load_by_torch(tree, directory):
    import torch
    import torch.distributed.checkpoint as dcp
    tree.write(directory)
    found = {name: torch.empty(t.shape, dtype=getattr(torch, dcp_trees.TYPES[t.dtype][1]))
             for name, t in tree.tensors.items()}
    dcp.load(found, checkpoint_id=directory, no_dist=True)
    for name, tensor in found.items():
        data = tensor.contiguous().flatten().view(torch.uint8).tolist() if tensor.numel() else []
        check(bytes(data) == tree.tensors[name].content, f"{name} is another tensor to torch")


def main():
    enter_torch()
    import logging
    import warnings
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    words = seed_and_cases(share(200))
    tap, counts = Tap(), {}
    for seed in range(words.seed, words.seed + words.cases):
        tree = dcp_trees.random_tree(seed)
        counts[tree.kind] = counts.get(tree.kind, 0) + 1
        if tree.kind == "torch":
            with tap.test(f"torch loads --seed {seed} --cases 1: {tree.describe()}"), \
                    tempfile.TemporaryDirectory() as directory:
                load_by_torch(tree, directory)
    tap.ok(words.cases < 50 or len(counts) == 3, "there are trees of each kind", f"{counts}")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
