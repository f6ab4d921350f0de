#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a DCP has beside its tensors comes through when torch files and other DCPs are
shown as one: values of the type bytes, and the dictionaries and lists that names are of."""

import os
import pickle
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from dcp_reader import Checkpoint  # noqa: E402
from dcp_trees import (archive, pickled, rebuilt, tensor_item, torch_metadata,  # noqa: E402
                       value_item)
from demands import check, content, write  # noqa: E402
from rsh_cli import GOOD, INPUT, good, run  # noqa: E402
from rsh_mount import Tap  # noqa: E402

VALUES = {"high": b"\x00\xff\x80", "empty": b"", "text": b"abc", "latin": b"\xc3\xa9",
          "tree": (b"a\x00b", {"k": b"\n"}), "number": 7}


def shown(directory):
    """The values in the last file of a DCP: each is a stored pickle of protocol 2."""
    data = content(max((os.path.join(directory, n) for n in os.listdir(directory)
                        if n.endswith(".distcp")), key=lambda n: (len(n), n)))
    found, at = [], data.find(b"\x80\x02")
    while at >= 0:
        try:
            found.append(pickle.loads(data[at:]))
        except (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError,
                AttributeError, TypeError, ImportError):
            pass
        at = data.find(b"\x80\x02", at + 1)
    return found


DATA = b"\1\2\3\4"
NAN = float("nan")


def torch_file(path, value):
    return write(path, archive([("data.pkl", pickled(value, 2)), ("data/0", DATA),
                                ("version", b"3\n")]))


def paths(source, *words):
    """The planner_data of what is shown."""
    with tempfile.TemporaryDirectory(prefix="reshardfs-values-") as top:
        out = os.path.join(top, "out")
        good("export", "--format", "dcp", *words, source, out)
        return Checkpoint(out).metadata.planner_data


def w():
    return rebuilt("F32", (1,), DATA)


NESTED = [
    ({"w": w()}, {"w": ("w",)}),
    ({"a.b": w(), "c": 1}, {"a.b": ("a.b",), "c": ("c",)}),
    ({"model": {"embed.weight": w()}, "step": 7},
     {"model.embed.weight": ("model", "embed.weight"), "step": ("step",)}),
    ({"m": {"blocks": [w(), {"x": w()}], "0": {"y": w()}}},
     {"m.blocks.0": ("m", "blocks", 0), "m.blocks.1.x": ("m", "blocks", 1, "x"),
      "m.0.y": ("m", "0", "y")}),
    ({"o": {"state": {0: {"s": w()}, 1: {"s": w()}}, "groups": [{"lr": 0.5, "p": [0, 1]}]},
      "empty": {}, "b": {"b": b"\xff"}},
     {"o.state.0.s": ("o", "state", "0", "s"), "o.state.1.s": ("o", "state", "1", "s"),
      "o.groups.0.lr": ("o", "groups", 0, "lr"), "o.groups.0.p": ("o", "groups", 0, "p"),
      "empty": ("empty",), "b.b": ("b", "b")}),
]


def nested(tap, top):
    for i, (value, wanted) in enumerate(NESTED):
        with tap.test(f"keys of nested containers: {list(wanted)}"):
            file = torch_file(os.path.join(top, f"nested{i}.pt"), value)
            check(paths(file) == wanted, paths(file))
            # A DCP shown as a DCP, and once more.
            out, again = os.path.join(top, f"out{i}"), os.path.join(top, f"again{i}")
            for source, to in ((file, out), (out, again)):
                check(run("export", "--format", "dcp", source, to).status == GOOD, to)
                check(Checkpoint(to).metadata.planner_data == wanted, to)
    with tap.test("keys of what is left and of what has a new name"):
        names = write(os.path.join(top, "names.json"), b'{"m.blocks.0": "first"}')
        file = torch_file(os.path.join(top, "left.pt"), NESTED[3][0])
        found = paths(file, "--drop", "^m.0", "--rename", names)
        check(found == {"first": ("first",), "m.blocks.1.x": ("m", "blocks", 1, "x")}, found)


def objects(tap, top):
    """An item may be an object that has the weights: it is named.  Random states are none."""
    item = tensor_item("2.4", "F32", (1,), DATA)
    cases = [("a model", {"w": w()}, True), ("a tuple", (w(), w()), True),
             ("a list in a dictionary", {"a": [{"b": w()}], "n": 7}, True),
             ("random states", {"cpu": rebuilt("U8", (4,), DATA)}, False),
             ("numbers", {"lr": 0.5, "of": (1, 2)}, False)]
    for i, (what, value, named) in enumerate(cases):
        with tap.test(f"an item that has {what}"):
            root = os.path.join(top, f"object{i}")
            packed = archive([("data.pkl", pickled(value, 2)), ("data/0", DATA),
                              ("version", b"3\n")])
            write(os.path.join(root, "__0_0.distcp"), item + packed)
            write(os.path.join(root, ".metadata"), torch_metadata(
                "2.4", {"bias": ("F32", (1,), [((0,), (1,))], (1,)), "model": None},
                [("bias", (0,), 0, "__0_0.distcp", 0, len(item)),
                 ("model", None, None, "__0_0.distcp", len(item), len(packed))], None))
            said = ("1 item is left out, such as model: an object that has tensors (a state dict "
                    "that was saved without flattening it)")
            for words in ([], ["--format", "dcp"]):
                got = run("export", *words, root, f"{root}-{len(words)}")
                check(got.status == GOOD and (said in got.err) == named, got)
            got = run("export", "--drop", "^model", root, f"{root}-dropped")
            check(got.status == GOOD and said not in got.err, got)


def planner(directory, planner_data):
    """A DCP with two names that has this planner_data."""
    item, value = tensor_item("2.4", "F32", (1,), DATA), value_item("2.4", 5)
    write(os.path.join(directory, "__0_0.distcp"), item + value)
    write(os.path.join(directory, ".metadata"), torch_metadata(
        "2.4", {"a.b": ("F32", (1,), [((0,), (1,))], (1,)), "c.0": None},
        [("a.b", (0,), 0, "__0_0.distcp", 0, len(item)),
         ("c.0", None, None, "__0_0.distcp", len(item), len(value))], planner_data))
    return directory


def planners(tap, top):
    flat = {"a.b": ("a.b",), "c.0": ("c.0",)}
    cases = [
        (None, flat), ({}, flat), (flat, flat), ([1, 2], flat), ("text", flat),
        ({"a.b": ("a", "b"), "c.0": ("c", 0)}, {"a.b": ("a", "b"), "c.0": ("c", 0)}),
        ({"a.b": ["a", "b"], "c.0": ("c.0",), "x": ("y",)}, {**flat, "a.b": ("a", "b")}),
        ({"a.b": ("a", -1), "c.0": ("c", None)}, flat), ({"a.b": (), "c.0": 7}, flat),
        ({"a.b": ("a", NAN), "c.0": ("c", ("d",)), 5: ("e",)}, flat),
        ({"a.b": ("a", "b\0")}, flat),
    ]
    for i, (data, wanted) in enumerate(cases):
        with tap.test(f"planner_data {data!r}"):
            found = paths(planner(os.path.join(top, f"planner{i}"), data))
            check(found == wanted, found)
    with tap.test("one long path for many names is refused"):
        long = tuple(["x" * 4000] * 2000)
        source = os.path.join(top, "long")
        names = [f"n{i}" for i in range(5000)]
        item = value_item("2.4", 5)
        write(os.path.join(source, "__0_0.distcp"), item)
        write(os.path.join(source, ".metadata"), torch_metadata(
            "2.4", {name: None for name in names},
            [(name, None, None, "__0_0.distcp", 0, len(item)) for name in names],
            {name: long for name in names}))
        got = run("plan", "--format", "dcp", source)
        check(got.status == INPUT and "texts of more bytes than the file has room for" in got.err,
              repr(got))


if __name__ == "__main__":
    TAP = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-values-") as top:
        file, out = os.path.join(top, "model.pt"), os.path.join(top, "out")
        write(file, archive([("data.pkl", pickled({**VALUES, "w": rebuilt("F32", (1,), DATA)}, 2)),
                             ("data/0", DATA), ("version", b"3\n")]))
        got = run("export", "--format", "dcp", file, out)
        TAP.ok(got.status == GOOD, "a file with bytes is shown as a DCP", f"{got}")
        if got.status == GOOD:
            values = shown(out)
            for name in ("high", "empty", "text", "latin", "number"):
                TAP.ok(VALUES[name] in values, f"{name}: {VALUES[name]!r}", f"{values}")
        nested(TAP, top)
        objects(TAP, top)
        planners(TAP, top)
    sys.exit(TAP.finish())
