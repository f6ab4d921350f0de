# SPDX-License-Identifier: Apache-2.0
"""Random trees of Megatron-LM, cut from random models: what the format says about names and
meshes, written down a second time."""

import collections
import math
import os
import random

from dcp_trees import TYPES, Called, Named, Stored, archive, made, pickled, row_strides
from demands import write
from megatron_trees import FILE, TRACKER

STATES = "param", "exp_avg", "exp_avg_sq"
ALIGNMENT = 64


def rows_of(shape, data):
    size = len(data) // shape[0] if shape[0] else 0
    return [data[i * size:(i + 1) * size] for i in range(shape[0])]


def part(n, of, i):
    """Slice i of `of` equal ones."""
    return range(n // of * i, n // of * (i + 1))


def cut_rows(tensor, of, i):
    dtype, shape, data = tensor
    mine = part(shape[0], of, i)
    rows = rows_of(shape, data)
    return dtype, (len(mine), *shape[1:]), b"".join(rows[k] for k in mine)


def cut_columns(tensor, of, i):
    dtype, (n, columns), data = tensor
    width = TYPES[dtype][0]
    mine = part(columns, of, i)
    return dtype, (n, len(mine)), b"".join(
        row[mine.start * width:mine.stop * width] for row in rows_of((n, columns), data))


def cut_gate(tensor, of, i):
    dtype, shape, data = tensor
    rows, half = rows_of(shape, data), shape[0] // 2
    mine = part(half, of, i)
    return dtype, (2 * len(mine), *shape[1:]), b"".join(
        [rows[k] for k in mine] + [rows[half + k] for k in mine])


def same(tensor, of, i):
    return tensor


class Tree:
    """tensors  {name: (dtype, shape, bytes)} of the whole model
    states   the same of the optimizer, if there is one
    """

    def __init__(self, seed):
        self.seed = seed
        self.rng = random.Random(seed)
        choose = self.rng.choice
        self.tensor, self.pipeline = choose((1, 2, 2, 4)), choose((1, 1, 2, 3))
        self.virtual = choose((1, 1, 2)) if self.pipeline > 1 else 1
        self.experts = choose((None, "local", "te", "grouped"))
        self.expert = choose((1, 2, 4)) if self.experts else 1
        self.expert_tensor = choose((1, self.tensor)) if self.expert > 1 else self.tensor
        self.extends = self.expert > 1 and self.expert_tensor == self.tensor > 1 and \
            self.rng.random() < 0.2
        self.tied, self.bias = choose((False, False, True)), choose((False, True))
        self.gated = choose((True, True, False))
        self.latent = self.rng.random() < 0.2
        self.dtype = choose(("BF16", "BF16", "F32"))
        self.layers = [choose((0, 1, 1, 2)) for _ in range(self.pipeline * self.virtual)]
        self.layers[self.rng.randrange(len(self.layers))] += 1
        product = self.expert_tensor == self.tensor and not self.extends
        self.optimizer = product and self.rng.random() < 0.4
        self.ranked = product and self.rng.random() < 0.7
        self.tensors, self.states = {}, {}
        # {name of the whole model: (cut, whether it is of experts)}
        self.cuts = {}
        self.local = {}    # {(stage, chunk): [(name in it, name of the whole)]}
        self.draw()

    def describe(self):
        return (f"tensor {self.tensor}, pipeline {self.pipeline} x {self.virtual}, expert "
                f"{self.expert} x {self.expert_tensor}{' extends' if self.extends else ''}, "
                f"{self.experts or 'dense'}, layers {self.layers}"
                f"{', optimizer' if self.optimizer else ''}")

    # ---- the model ----

    def add(self, chunk, name, shape, cut, whole=None, of_experts=False, dtype=None):
        whole = whole or name
        dtype = dtype or self.dtype
        self.local.setdefault(chunk, []).append((name, whole))
        if whole in self.tensors:
            return
        self.cuts[whole] = cut, of_experts
        self.tensors[whole] = dtype, shape, self.rng.randbytes(
            TYPES[dtype][0] * math.prod(shape))
        for state in STATES if self.optimizer and not name.endswith("expert_bias") else ():
            self.states[f"optimizer.state.{state}.{whole}"] = \
                "F32", shape, self.rng.randbytes(4 * math.prod(shape))

    def draw(self):
        self.hidden, self.ffn = 8, 4 * self.rng.choice((1, 2, 3))
        self.n_experts = self.expert * self.rng.choice((1, 2)) * \
            (self.tensor if self.extends else 1)
        vocabulary = 4 * self.rng.choice((2, 5))
        number, last = 0, len(self.layers) - 1
        for order, n in enumerate(self.layers):
            chunk = order % self.pipeline, order // self.pipeline
            self.local.setdefault(chunk, [])
            if order == 0:
                self.add(chunk, "embedding.word_embeddings.weight", (vocabulary, self.hidden),
                         cut_rows)
            for i in range(n):
                self.draw_layer(chunk, f"decoder.layers.{i}.", f"decoder.layers.{number}.")
                number += 1
            if order == last:
                self.add(chunk, "decoder.final_layernorm.weight", (self.hidden,), same)
                if not self.tied or self.pipeline > 1:
                    self.add(chunk, "output_layer.weight", (vocabulary, self.hidden), cut_rows,
                             "embedding.word_embeddings.weight" if self.tied else None)

    def draw_layer(self, chunk, here, whole):
        def add(name, shape, cut, **more):
            self.add(chunk, here + name, shape, cut, whole + name, **more)
        h, f = self.hidden, self.ffn
        for norm in "input_layernorm", "pre_mlp_layernorm":
            add(norm + ".weight", (h,), same)
        add("self_attention.linear_qkv.weight", (12, h), same if self.latent else cut_rows)
        add("self_attention.linear_proj.weight", (h, 16), cut_columns)
        if self.bias:
            add("self_attention.linear_proj.bias", (h,), same)
        up = (2 if self.gated else 1) * f
        cut_up = cut_gate if self.gated else cut_rows
        if not self.experts:
            add("mlp.linear_fc1.weight", (up, h), cut_up)
            add("mlp.linear_fc2.weight", (h, f), cut_columns)
            if self.bias:
                add("mlp.linear_fc1.bias", (up,), cut_up)
                add("mlp.linear_fc2.bias", (h,), same)
            return
        add("mlp.router.weight", (self.n_experts, h), same)
        add("mlp.router.expert_bias", (self.n_experts,), same, dtype="F32")
        if self.experts == "grouped":
            n = self.n_experts
            self.grouped(chunk, here, whole, n, up, f)
            return
        of_rank = self.n_experts // self.blocks
        for i in range(self.n_experts):
            for one, shape, cut in (("1", (up, h), cut_up), ("2", (h, f), cut_columns)):
                name = (lambda k: f"mlp.experts.local_experts.{k}.linear_fc{one}.weight") \
                    if self.experts == "local" else \
                    (lambda k: f"mlp.experts.linear_fc{one}.weight{k}")
                self.add(chunk, here + name(i % of_rank), shape, cut, whole + name(i),
                         of_experts=i // of_rank)

    def grouped(self, chunk, here, whole, n, up, f):
        h, gated, blocks = self.hidden, self.gated, self.blocks

        def one(tensor, of, i, block=None):
            """The bytes are those of [n, h, up]."""
            dtype, _, data = tensor
            mine = part(n, blocks, block)
            rows = b"".join(rows_of((n,), data)[k] for k in mine)
            cut = dtype, (len(mine) * h, up), rows
            if gated:
                gate, ups = (cut_columns((dtype, (len(mine) * h, up // 2), b"".join(
                    row[half * len(row) // 2:(half + 1) * len(row) // 2]
                    for row in rows_of((len(mine) * h,), rows))), of, i) for half in (0, 1))
                data = b"".join(a + b for a, b in zip(
                    rows_of(gate[1], gate[2]), rows_of(ups[1], ups[2])))
            else:
                data = cut_columns(cut, of, i)[2]
            return dtype, (h, len(mine) * up // of), data

        def two(tensor, of, i, block=None):
            dtype, _, data = tensor
            mine = part(n, blocks, block)
            return dtype, (len(mine) * f // of, h), b"".join(
                cut_rows((dtype, (f, h), rows_of((n,), data)[k]), of, i)[2] for k in mine)
        for name, shape, cut in ((".weight1", (h, n * up), one), (".weight2", (n * f, h), two)):
            self.add(chunk, f"{here}mlp.experts{name}", shape, cut, f"{whole}mlp.experts{name}",
                     of_experts="all")

    @property
    def blocks(self):
        return self.expert * (self.tensor if self.extends else 1)

    # ---- the files ----

    def arguments(self, tensor, stage, expert):
        found = {
            "tensor_model_parallel_size": self.tensor,
            "pipeline_model_parallel_size": self.pipeline,
            "expert_model_parallel_size": self.expert,
            "expert_tensor_parallel_size": self.expert_tensor, "num_layers": sum(self.layers),
            "num_experts": self.n_experts if self.experts else None,
            "hidden_size": self.hidden,
            "untie_embeddings_and_output_weights": not self.tied,
            "multi_latent_attention": self.latent, "moe_tp_extend_ep": self.extends}
        if self.ranked:
            found["rank"] = (stage * self.expert + expert) * self.tensor + tensor
            found["world_size"] = self.pipeline * self.expert * self.tensor
        return found

    def slice(self, name, tensor, expert, value):
        """What a rank has; None: an expert of another one."""
        cut, of_experts = self.cuts[name]
        if of_experts is False:
            return cut(value, self.tensor, tensor)
        block = expert * self.tensor + tensor if self.extends else expert
        of, i = (1, 0) if self.extends else (self.expert_tensor, tensor % self.expert_tensor)
        if of_experts == "all":
            return cut(value, of, i, block)
        return cut(value, of, i) if of_experts == block else None

    def places(self):
        """(tensor rank, expert rank) of the files of a stage."""
        if self.expert_tensor == self.tensor or self.expert == 1 or self.extends:
            return [(t, e) for t in range(self.tensor) for e in range(self.expert)]
        return sorted({(r % self.tensor, r // self.expert_tensor % self.expert) for r in range(
            math.lcm(self.tensor, self.expert_tensor * self.expert))})

    def chunks(self, tensor, stage, expert, value_of):
        """{key: {name: slice}}."""
        found = {}
        for chunk in range(self.virtual):
            key = f"model{chunk}" if self.virtual > 1 else "model"
            found[key] = {}
            for name, whole in self.local[stage, chunk]:
                value = value_of(whole)
                cut = value and self.slice(whole, tensor, expert, value)
                if cut:
                    found[key][name] = cut
        return found

    def write(self, root):
        for stage in range(self.pipeline):
            for tensor, expert in self.places():
                name = f"mp_rank_{tensor:02}" + (f"_{stage:03}" if self.pipeline > 1 else "") + \
                    (f"_{expert:03}" if self.expert > 1 else "")
                self.write_rank(os.path.join(root, "iter_0000007", name), tensor, stage, expert)
        write(os.path.join(root, TRACKER), b"7")

    def write_rank(self, directory, tensor, stage, expert):
        chunks = self.chunks(tensor, stage, expert, self.tensors.get)
        stored, buffers, tree = [], [[], []], {}
        for key, tensors in chunks.items():
            views = self.buffered(key, tensors, stored, buffers) if self.optimizer else {}
            tree[key] = {name: view(value, *views.get(name) or own(value, stored))
                         for name, value in tensors.items()}
        write(os.path.join(directory, FILE), zipped({
            "args": made("argparse", "Namespace", **self.arguments(tensor, stage, expert)),
            "checkpoint_version": 3.0, "iteration": 7, **tree}, stored))
        if not self.optimizer:
            return
        of = [self.chunks(tensor, stage, expert, lambda whole, state=state: self.states.get(
            f"optimizer.state.{state}.{whole}")) for state in STATES]
        flat, found = [], []
        # Dense states are those of the first expert rank.
        for places in buffers if expert == 0 else [[], buffers[1]]:
            one = {"buckets_coalesced": True} if places else None
            for number, (key, names, end) in enumerate(places):
                states = {"numel_unpadded": end}
                for state, chunk in zip(STATES, of):
                    data = bytearray(4 * (end + 5))
                    for name, at in names.items():
                        value = chunk[key][name][2]
                        data[4 * at:4 * at + len(value)] = value
                    value = "F32", (len(data) // 4,), bytes(data)
                    states[state] = view(value, *own(value, flat))
                one[number] = {(Named("torch", "bfloat16"), Named("torch", "float32")): states}
            found.append(one)
        found = found[:1] if not buffers[1] else found
        if any(found):
            write(os.path.join(directory, "distrib_optim.pt"),
                  zipped(found[0] if len(found) == 1 else found, flat))

    def buffered(self, chunk, tensors, stored, buffers):
        """Puts the tensors of a chunk into buffers, last first."""
        views = {}
        for of_experts in 0, 1:
            names, at, data = {}, 0, bytearray()
            for name, (dtype, shape, value) in reversed(tensors.items()):
                if name.endswith("expert_bias") or \
                        (self.expert > 1 and ".mlp.experts." in name) != bool(of_experts):
                    continue
                width = TYPES[dtype][0]
                at = -(-at // ALIGNMENT) * ALIGNMENT
                data += bytes(at * width - len(data)) + value
                names[name] = at
                at += math.prod(shape)
            if names:
                key = str(len(stored))
                stored.append(bytes(data))
                views.update({name: (key, len(data), start) for name, start in names.items()})
                buffers[of_experts].append((chunk, names, at))
        return views


def own(value, stored):
    """A storage for one tensor."""
    stored.append(value[2])
    return str(len(stored) - 1), len(value[2]), 0


def view(value, key, size, start):
    width, _, storage = TYPES[value[0]]
    return Called(Named("torch._utils", "_rebuild_tensor_v2"),
                  Stored("storage", Named("torch", storage), key, "cpu", size // width), start,
                  tuple(value[1]), tuple(row_strides(value[1])), False,
                  collections.OrderedDict())


def zipped(tree, stored):
    return archive([("data.pkl", pickled(tree, 2)), ("byteorder", b"little"),
                    *((f"data/{i}", data) for i, data in enumerate(stored)),
                    ("version", b"3\n")])
