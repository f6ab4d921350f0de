# SPDX-License-Identifier: Apache-2.0
"""Contents of right trees that look as if the strategy were wrong: equal where it
says that ranks hold different slices, different where it says the same."""

import math

from layouts import cuts
from ms_formats import ELEMENT_BYTES
from random_jobs import STATES

# One in Float32, Float16 and BFloat16.
ONE = {"Float32": b"\0\0\x80\x3f", "Float16": b"\0\x3c", "BFloat16": b"\x80\x3f"}


def constant(tree, name, element=None):
    shape, dtype = tree.shapes[name]
    element = element or bytes(ELEMENT_BYTES[dtype])
    tree.whole[name] = element * math.prod(shape)


def in_rows(tree, name):
    """(bytes of a row, number of rows) of a whole tensor."""
    rows = tree.shapes[name][0][0]
    return len(tree.whole[name]) // rows, rows


def is_state(name):
    return name.startswith(STATES["adam"] + STATES["momentum"])


def weights(tree):
    return [name for name in tree.shapes if not is_state(name)]


# ---- one thing that jobs do ----

def states_at_zero(tree):
    for name in filter(is_state, tree.shapes):
        constant(tree, name)


def states_zero_in_part(tree):
    """Of an embedding's rows that no token has asked for, and the like."""
    for name in filter(is_state, tree.shapes):
        row, rows = in_rows(tree, name)
        zero = tree.numbers.randint(1, rows)
        first = tree.numbers.randint(0, rows - zero)
        data = bytearray(tree.whole[name])
        data[first * row:(first + zero) * row] = bytes(zero * row)
        tree.whole[name] = bytes(data)


def tied(tree):
    tree.whole["lm_head.weight"] = tree.whole["embedding.weight"]


def norms_of_one(tree):
    for name in weights(tree):
        if "norm" in name:
            constant(tree, name, ONE[tree.shapes[name][1]])
        if name.endswith(".bias"):
            constant(tree, name)


def upcycled(tree):
    """All experts are copies of the first."""
    for name in weights(tree):
        if ".experts." in name:
            row, rows = in_rows(tree, name)
            tree.whole[name] = tree.whole[name][:row] * rows


def layers_alike(tree):
    """A network made deeper by copies of its first layer."""
    for name in tree.shapes:
        first = ".".join(["0" if part.isdigit() else part for part in name.split(".")])
        tree.whole[name] = tree.whole[first]


def sparse(tree):
    """One-hot rows, and embeddings of which most rows are zero."""
    row, rows = in_rows(tree, "embedding.weight")
    data = bytearray(row * rows)
    one = ONE[tree.shapes["embedding.weight"][1]]
    for r in range(rows):
        if tree.numbers.random() < 0.3:
            at = r * row + r * len(one) % row
            data[at:at + len(one)] = one
    tree.whole["embedding.weight"] = bytes(data)


def few_values(tree):
    """Quantized weights of little entropy."""
    for name in weights(tree):
        if name.endswith(("w1.weight", "wo.weight")):
            width = ELEMENT_BYTES[tree.shapes[name][1]]
            values = [bytes([v] * width) for v in (0, 0, 0, 0, 0, 0, 0, 1, 255)]
            tree.whole[name] = b"".join(tree.numbers.choices(
                values, k=len(tree.whole[name]) // width))


def mostly_constant(tree):
    """Weights that begin as zeros, as those of adapters do."""
    for name in weights(tree):
        if tree.numbers.random() < 0.6:
            constant(tree, name)


def all_constant(tree):
    for name, (_, dtype) in tree.shapes.items():
        constant(tree, name, tree.numbers.choice((None, b"\1" * ELEMENT_BYTES[dtype])))


CHANGES = (states_at_zero, states_at_zero, states_zero_in_part, tied, norms_of_one,
           norms_of_one, upcycled, layers_alike, sparse, few_values, mostly_constant)


def tables_alike(tree):
    """Positions that repeat themselves, and a causal mask."""
    if "rotary.table" in tree.shapes:
        row, rows = in_rows(tree, "rotary.table")
        part = rows // cuts(tree.stages[0]["rotary.table"])[0]
        tree.whole["rotary.table"] = tree.whole["rotary.table"][:row * part] * (rows // part)
        tree.whole["causal.mask"] = b"".join(b"\1" * (r + 1) + bytes(63 - r) for r in range(64))


def harden(tree):
    """Changes whole tensors before they are saved; what was done, in words."""
    tables_alike(tree)
    done = tree.numbers.sample(CHANGES, tree.numbers.randint(1, 4))
    if tree.numbers.random() < 0.04:
        done = [all_constant]
    for change in done:
        change(tree)
    return ", ".join(change.__name__.replace("_", " ") for change in done)


# ---- files that are not there ----

def without_redundancy(tree):
    """What each rank leaves to another that holds the same."""
    left_out = {}
    for (name, _), ranks in tree.holders().items():
        keeper = tree.numbers.choice(ranks)
        for rank in ranks:
            if rank != keeper:
                left_out.setdefault(rank, set()).add(name)
    return left_out


def lost_replicas(tree):
    """Ranks without a file, of none of whose slices the last is lost."""
    holders = {key: set(ranks) for key, ranks in tree.holders().items()}
    gone = {}
    for rank in tree.numbers.sample(tree.ranks(), len(tree.ranks())):
        if tree.numbers.random() < 0.5 and \
                all(ranks - {rank} for ranks in holders.values()):
            for ranks in holders.values():
                ranks.discard(rank)
            gone[rank] = None
    return gone
