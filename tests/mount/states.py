#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""States of optimizers that no list names: --cast keeps their bytes, --format hf leaves
them out, Checkpoint 2.0 has them in its files of the optimizer, and weights of the same
form of name stay weights."""

import glob
import json
import math
import os
import struct
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, content, write  # noqa: E402
from ms_formats import Record, checkpoint_bytes  # noqa: E402
from rsh_cli import GOOD, good, run  # noqa: E402
from rsh_mount import Tap, require_mount  # noqa: E402

WEIGHTS = {"embed.table": (6, 4), "dense.weight": (3, 4), "dense.bias": (3,), "scale": (1,)}
WHOLE = ["--src-strategy", "none", "--dst-strategy", "none"]
# Prefixes of states with their shapes, and counters.
OPTIMIZERS = {
    "of one's own": ({"sophia_h.": None}, {"sophia_t": (1,)}),
    "with two states": ({"lion_ema.": None, "lion_prev.": None}, {"lion_step": ()}),
    "of factors": ({"sm3_row_": (6,), "sm3_col_": (1,), "sm3_m.": None}, {}),
    "of MindSpore": ({"lamb_m.": None, "lamb_v.": None}, {"global_step": (1,)}),
}


def numbers(shape):
    n = math.prod(shape)
    return struct.pack(f"<{n}f", *(20001.0 + i / 1024 for i in range(n)))


def tree(directory, params):
    source = os.path.join(directory, "source")
    write(f"{source}/rank_0/net-1_10.ckpt", checkpoint_bytes(
        {name: Record(shape, "Float32", numbers(shape)) for name, shape in params.items()}))
    return source


def optimizer(title):
    states, counters = OPTIMIZERS[title]
    own = {**{p + w: s or WEIGHTS[w] for p, s in states.items() for w in WEIGHTS}, **counters}
    with tempfile.TemporaryDirectory() as directory:
        source = tree(directory, {**WEIGHTS, **own})
        out = os.path.join(directory, "out")
        good("export", *WHOLE, "--format", "safetensors", "--cast", "bfloat16", source, out)
        read = shown(out)
        check(sorted(read) == sorted({**WEIGHTS, **own}), repr(sorted(read)))
        for name, (kind, data) in read.items():
            if name in WEIGHTS:
                check(kind == "BF16", f"{name} is {kind}")
            else:
                check((kind, data) == ("F32", numbers(own[name])), f"{name} was changed: {kind}")
        got = run("export", "--log-level", "notice", "--src-strategy", "none", "--format", "hf",
                  source, out + ".hf")
        check(got.status == GOOD and f"{len(own)} tensors of an optimizer" in got.err,
              repr(got))
        check(sorted(shown(out + ".hf")) == sorted(WEIGHTS), repr(sorted(shown(out + ".hf"))))
        good("export", *WHOLE, "--format", "checkpoint2", source, out + ".2")
        second = shown(out + ".2", "opt-*.safetensors")
        check(sorted(second) == sorted(own), repr(sorted(second)))


def shown(directory, pattern="*.safetensors"):
    """{name: (type, bytes)} of the files of a directory."""
    read = {}
    for path in sorted(glob.glob(f"{directory}/**/{pattern}", recursive=True)):
        data = content(path)
        (n,) = struct.unpack("<Q", data[:8])
        for name, t in json.loads(data[8:8 + n]).items():
            if name != "__metadata__":
                at, end = t["data_offsets"]
                read[name] = (t["dtype"], data[8 + n + at:8 + n + end])
    return read


def parts_are_weights():
    """A part of a model whose names are those of another one, and a norm of queries."""
    more = {"encoder.embed.table": (6, 4), "encoder.dense.weight": (3, 4),
            "encoder.dense.bias": (3,), "q_scale": (1,), "norm.weight": (4,),
            "q_norm.weight": (4,)}
    with tempfile.TemporaryDirectory() as directory:
        source = tree(directory, {**WEIGHTS, **more})
        out = os.path.join(directory, "out")
        got = run("export", *WHOLE, "--format", "safetensors", "--cast", "float16", source, out)
        check(got.status == GOOD and "begin with encoder." in got.err, repr(got))
        check({kind for kind, _ in shown(out).values()} == {"F16"}, repr(shown(out)))
        got = run("export", "--src-strategy", "none", "--format", "hf", source, out + ".hf")
        check(got.status == GOOD and len(shown(out + ".hf")) == len({**WEIGHTS, **more}),
              repr(got))


def a_cell_of_ones_own():
    """MindSpore's default auto_prefix names the weights optimizer.*, and states as well."""
    for states in {}, {"optimizer.adam_m." + w: s for w, s in WEIGHTS.items()}:
        params = {**{"optimizer." + w: s for w, s in WEIGHTS.items()}, **states}
        if states:
            params["optimizer.global_step"] = (1,)
        with tempfile.TemporaryDirectory() as directory:
            source = tree(directory, params)
            out = os.path.join(directory, "out")
            good("export", "--src-strategy", "none", "--format", "hf", source, out)
            check(sorted(shown(out)) == sorted("optimizer." + w for w in WEIGHTS),
                  repr(sorted(shown(out))))


def main():
    require_mount()
    tap = Tap()
    for title in OPTIMIZERS:
        with tap.test(f"an optimizer {title}"):
            optimizer(title)
    with tap.test("parts of a model"):
        parts_are_weights()
    with tap.test("a cell of one's own"):
        a_cell_of_ones_own()
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
