#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Make tests/data/demo again: a small checkpoint and what MindSpore makes of it.

    make_demo.py [DIRECTORY]

needs a Python that has MindSpore 2.10.0.  Trains the small GPT for some steps,
keeps its weights as mixed precision does (matrices in BFloat16, the rest in
Float32) and has the converter cut them for 8 cards, under a strategy that
MindSpore planned for this network.  SHA256SUMS holds the hashes of the 4-card
files that the converter makes of that tree.
"""

import hashlib
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "oracle")]
import train_gpt  # noqa: E402
import mindspore as ms  # noqa: E402

STEPS = 20
SOURCE, DESTINATION = "dp4mp2_opt", "dp2mp2"


def strategy(name):
    return os.path.join(HERE, "strategies", name, "strategy_stage_0.ckpt")


def weights(step):
    """What a job that keeps no optimizer state saves."""
    for parameter in step.get_parameters():
        if parameter.name.startswith("adam_"):
            continue
        value = parameter.value()
        if value.ndim == 2:
            value = value.astype(ms.bfloat16)
        yield {"name": parameter.name, "data": value}


def main():
    target = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "demo")
    shutil.rmtree(target, ignore_errors=True)
    os.makedirs(target)
    shutil.copyfile(strategy(SOURCE), os.path.join(target, "strategy_8_cards.ckpt"))
    shutil.copyfile(strategy(DESTINATION), os.path.join(target, "strategy_4_cards.ckpt"))
    with tempfile.TemporaryDirectory() as work:
        step = train_gpt.new_training()
        train_gpt.train(step, 0, STEPS)
        whole = os.path.join(work, "whole")
        os.makedirs(os.path.join(whole, "rank_0"))
        ms.save_checkpoint(list(weights(step)), os.path.join(whole, "rank_0", "gpt.ckpt"),
                           append_dict={"epoch_num": 1, "step_num": STEPS})
        sharded = os.path.join(work, "sharded")
        ms.transform_checkpoints(whole, sharded, "gpt", None, strategy(SOURCE))
        for rank in range(8):
            folder = os.path.join(target, "checkpoint", f"rank_{rank}")
            os.makedirs(folder)
            # The name that ModelCheckpoint gives; the mode that git keeps.
            shutil.copyfile(os.path.join(sharded, f"rank_{rank}", f"gpt{rank}.ckpt"),
                            os.path.join(folder, f"gpt-1_{STEPS}.ckpt"))
        converted = os.path.join(work, "converted")
        ms.transform_checkpoints(os.path.join(target, "checkpoint"), converted, "checkpoint_",
                                 strategy(SOURCE), strategy(DESTINATION))
        with open(os.path.join(target, "SHA256SUMS"), "w", encoding="ascii") as sums:
            for rank in range(4):
                name = f"rank_{rank}/checkpoint_{rank}.ckpt"
                with open(os.path.join(converted, name), "rb") as f:
                    sums.write(f"{hashlib.sha256(f.read()).hexdigest()}  {name}\n")


if __name__ == "__main__":
    main()
