#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Saves torch-RELEASE/nocrc, a distributed checkpoint whose CRCs are all 0, with the
torch of this Python.

usage: make_dcp_nocrc.py            writes below dcp/
"""

import hashlib
import json
import os
import shutil

import torch
import torch.distributed.checkpoint as dcp

KINDS = {torch.float32: "F32", torch.bfloat16: "BF16"}


def digest(tensor):
    return hashlib.sha256(tensor.contiguous().view(torch.uint8).numpy().tobytes()).hexdigest()


def main():
    release = torch.__version__.split("+")[0]
    where = os.path.join(os.path.dirname(os.path.abspath(__file__)), "dcp",
                         f"torch-{'.'.join(release.split('.')[:2])}", "nocrc")
    torch.manual_seed(1)
    state = {"weight": torch.randn(4, 3), "zeros": torch.zeros(5),
             "half": torch.randn(6).to(torch.bfloat16), "empty": torch.zeros(0, 3)}
    torch.serialization.set_crc32_options(False)
    shutil.rmtree(where, ignore_errors=True)
    dcp.save({**state, "step": 7}, checkpoint_id=where, no_dist=True)
    with open(where + ".json", "w", encoding="utf-8") as f:
        json.dump({"not tensors": ["step"], "note": "set_crc32_options(False)", "tensors": {
            name: [KINDS[t.dtype], list(t.shape), digest(t)[:16]] for name, t in state.items()},
            "torch": release}, f, indent=0, sort_keys=True)
        f.write("\n")


if __name__ == "__main__":
    main()
