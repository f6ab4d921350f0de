# SPDX-License-Identifier: Apache-2.0
"""Whole tensors of a checkpoint of DeepSpeed, read in plain Python: what the pickles say is
believed, and a contradiction is a ValueError.

It shares nothing with the program under test.  Nothing that a pickle names is called.
"""

import glob
import math
import os

from dcp_trees import Called
from rank_pickles import Object
from rank_reader import _File, demand

FLAT = {False: "single_partition_of_fp32_groups", True: "fp32_flat_groups"}


class _Zero(_File):
    """A file, whose tensors may have attributes."""

    def tensor(self, called):
        if isinstance(called, Called) and called.call[0].name == "_rebuild_from_type_v2":
            called = Called(*called.call[1][:1], *called.call[1][2])
        if isinstance(called, Called) and called.call[0].name.startswith("_rebuild_parameter"):
            called = called.call[1][0]
        return super().tensor(called)


def shape_of(value):
    size = value.call[1][0] if isinstance(value, Called) else value
    demand(isinstance(size, (tuple, list)) and all(
        isinstance(n, int) and 0 <= n < 1 << 40 for n in size), "a shape")
    return tuple(size)


def shapes(groups):
    return [[(n, shape_of(s)) for n, s in group.items()] for group in groups]


def number(value):
    if isinstance(value, (Called, Object)):
        (value,) = value.call[1] if isinstance(value, Called) else value.args
    return value


def step_of(root):
    """The directory of the only step, or of the one that latest names."""
    tags = sorted(os.path.dirname(p) for p in glob.glob(os.path.join(root, "*", "*model_states.pt")))
    if os.path.exists(os.path.join(root, "latest")):
        with open(os.path.join(root, "latest"), encoding="ascii") as f:
            return os.path.join(root, f.read())
    return tags[-1]


def read_checkpoint(root):
    """{name: (type, shape, bytes)} of the model."""
    step = step_of(root)
    parts = sorted(glob.glob(os.path.join(step, "zero_pp_rank_*_model_states.pt")))
    models = [_Zero(p) for p in parts or [os.path.join(step, "mp_rank_00_model_states.pt")]]
    first, is_3 = models[0].file.value, bool(parts)
    found = {}
    module = {n: models[0].tensor(t) for n, t in first["module"].items()
              if isinstance(t, Called)}
    aliases = first.get("shared_params") or {}
    groups = shapes(first["param_shapes"])
    params = {n: s for group in groups for n, s in group}
    for other in models[1:]:
        demand(shapes(other.file.value["param_shapes"]) == groups, "parameters differ")
        demand(all(other.file.value[k] == first[k] for k in ("global_steps", "dp_world_size")),
               "another save")
    optimizer = [_Zero(p) for p in sorted(
        glob.glob(os.path.join(step, "*zero_pp_rank_*_optim_states.pt")))]
    world = len(optimizer)
    states = [f.file.value["optimizer_state_dict"] for f in optimizer]
    for state in states:
        count = state["partition_count"]
        demand(max(count if isinstance(count, list) else [count]) == world, "world")
        demand(number(state.get("zero_stage", 1)) == number(states[0].get("zero_stage", 1)) and
               (number(state.get("zero_stage", 1)) == 3) == is_3, "stage")
        demand(len(state[FLAT[is_3]]) == len(groups), "groups")
    for g, group in enumerate(groups):
        flats = [f.tensor(s[FLAT[is_3]][g]) for f, s in zip(optimizer, states)]
        demand(len({f[0] for f in flats}) == 1 and all(len(f[1]) == 1 for f in flats), "types")
        dtype, width = flats[0][0], len(flats[0][2]) // max(flats[0][1][0], 1) or 4
        data = b"".join(f[2] for f in flats)
        at = 0
        paddings = states[0].get("param_alignment_paddings")
        for i, (name, size) in enumerate(group):
            n = math.prod(size)
            demand(name not in found, "a name twice")
            if is_3:
                each = -(-n // world)
                whole = b"".join(f[2][width * at:width * (at + each)] for f in flats)
                demand(all(len(f[2]) >= width * (at + each) for f in flats), "too short")
                at += each
            else:
                whole = data[width * at:]
                at += n + (paddings[g][i] if paddings and paddings[g] else 0)
            demand(len(whole) >= width * n, "too short")
            if n:
                found[name] = dtype, size, whole[:width * n]
        demand(not is_3 or all(f[1][0] == at for f in flats), "another length")
    if is_3:
        for name, shape in (first["frozen_param_shapes"] or {}).items():
            size = shape_of(shape)
            pieces = [f.tensor(f.file.value["frozen_param_fragments"][name]) for f in models]
            n = math.prod(size)
            width = len(pieces[0][2]) // max(len(pieces[0][2]), 1) and \
                len(pieces[0][2]) // pieces[0][1][0]
            whole = b"".join(p[2][:width * -(-n // world)] for p in pieces)[:width * n]
            demand(len(whole) == width * n, "too short")
            found[name] = pieces[0][0], size, whole
    for name, tensor in module.items():
        if name in aliases and aliases[name] in {**found, **module}:
            continue
        if name not in found and (not is_3 or name in first["buffer_names"] or
                                  math.prod(tensor[1])):
            demand(name not in params or params[name] == tensor[1], "another shape")
            found[name] = tensor
    for alias, name in aliases.items():
        demand(alias not in found, "a name twice")
        demand(name in found, "an alias of nothing")
        found[alias] = found[name]
    return found
