#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The small GPT that the gpt strategy sets were planned for, and its training.

    train_gpt.py --checkpoint FILE --first N --steps N --losses FILE

trains on from a checkpoint, or from one after the other if --checkpoint is given
again, and writes the losses from each as JSON.  Started by msrun it is one worker of
a data parallel job: `{rank}` in FILE stands for its rank, and each worker has its own
share of every batch.

Everything is drawn from seeds, so that a training that goes on from the same
state gives the same losses to the last bit.
"""

import argparse
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE]
import genuine_sets  # noqa: E402

genuine_sets.oracle_environment()

import mindspore as ms  # noqa: E402
import numpy as np  # noqa: E402
from mindspore import nn, ops  # noqa: E402

ms.set_context(mode=ms.GRAPH_MODE)

VOCABULARY, HIDDEN, FEED_FORWARD, BLOCKS = 96, 48, 192, 4
BATCH, LENGTH = 8, 16


class Block(nn.Cell):
    """One layer; attention mixes the whole of q, k and v, as `proj` wants."""

    def __init__(self):
        super().__init__()
        self.ln1 = nn.LayerNorm([HIDDEN])
        self.qkv = nn.Dense(HIDDEN, 3 * HIDDEN)
        self.proj = nn.Dense(3 * HIDDEN, HIDDEN)
        self.ln2 = nn.LayerNorm([HIDDEN])
        self.up = nn.Dense(HIDDEN, FEED_FORWARD)
        self.down = nn.Dense(FEED_FORWARD, HIDDEN)
        past = np.triu(np.full((LENGTH, LENGTH), -1e4, np.float32), 1)
        self.mask = ms.Tensor(past)

    def construct(self, x):
        qkv = self.qkv(self.ln1(x))
        q, k = qkv[:, :, :HIDDEN], qkv[:, :, HIDDEN:2 * HIDDEN]
        scores = ops.matmul(q, k.swapaxes(1, 2)) * HIDDEN ** -0.5 + self.mask
        x = x + self.proj(ops.matmul(ops.softmax(scores), qkv))
        return x + self.down(ops.gelu(self.up(self.ln2(x))))


class Gpt(nn.Cell):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCABULARY, HIDDEN)
        self.blocks = nn.CellList([Block() for _ in range(BLOCKS)])
        self.ln_f = nn.LayerNorm([HIDDEN])
        self.head = nn.Dense(HIDDEN, VOCABULARY)

    def construct(self, tokens):
        x = self.emb(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln_f(x))


class NextToken(nn.Cell):
    """The loss, without a prefix to the parameters' names."""

    def __init__(self, network):
        super().__init__(auto_prefix=False)
        self.network = network

    def construct(self, tokens):
        logits = self.network(tokens[:, :-1])
        return ops.cross_entropy(logits.reshape(-1, VOCABULARY),
                                 tokens[:, 1:].reshape(-1))


def new_training():
    """A training step from the start; its parameters are what is saved."""
    ms.set_seed(1)
    network = NextToken(Gpt())
    optimizer = nn.AdamWeightDecay(network.trainable_params(), learning_rate=1e-3,
                                   weight_decay=0.01)
    step = nn.TrainOneStepCell(network, optimizer)
    step.set_train()
    return step


def resume(step, parameters):
    """Gives a training step the state of a checkpoint {name: Parameter}, all
    of it: nothing may keep the value that it had."""
    missing, unused = ms.load_param_into_net(step, parameters, strict_load=True)
    unused = set(unused) - {"epoch_num", "step_num"}
    if missing or unused:
        raise ValueError(f"not loaded: {missing}, not used: {unused}")


def batch(number, worker=0, workers=1):
    tokens = np.random.default_rng(number).integers(
        0, VOCABULARY, (BATCH, LENGTH + 1)).astype(np.int32)
    # Something to learn: every second token follows from the one before it.
    tokens[:, 1::2] = (tokens[:, :-1:2] * 7 + 3) % VOCABULARY
    share = BATCH // workers
    return ms.Tensor(tokens[worker * share:(worker + 1) * share])


def train(step, first, steps, worker=0, workers=1):
    """The losses of some steps, as hexadecimal: exact, and readable enough."""
    return [float(step(batch(first + i, worker, workers)).asnumpy()).hex()
            for i in range(steps)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoint", required=True, action="append")
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--losses", required=True)
    options = parser.parse_args()
    worker, workers = 0, 1
    if "MS_WORKER_NUM" in os.environ:
        from mindspore.communication import get_group_size, get_rank, init
        ms.set_device("CPU")
        init()
        worker, workers = get_rank(), get_group_size()
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    paths = [path.format(rank=worker) for path in options.checkpoint]
    step = new_training()
    losses = []
    for path in paths:
        resume(step, ms.load_checkpoint(path))
        losses.append(train(step, options.first, options.steps, worker, workers))
    with open(options.losses.format(rank=worker), "w", encoding="utf-8") as f:
        json.dump({"checkpoints": paths, "workers": workers, "losses": losses}, f)


if __name__ == "__main__":
    main()
