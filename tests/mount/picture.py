#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`python3 -m reshardfs.picture`: the picture of what `plan --json --slices` prints.

RSH_PLOT_PYTHON names a Python that has matplotlib.
"""

import json
import os
import subprocess
import sys
import xml.etree.ElementTree as ET

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, content, write  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes)
from rsh_cli import GOOD, INPUT, IO, refused, run, run_json  # noqa: E402
from rsh_mount import Tests, skip_all  # noqa: E402

TOP = os.environ.get("top_srcdir", os.path.join(os.environ.get("srcdir", "."), ".."))
DEMO = os.path.join(TOP, "tests", "data", "demo")
PYTHON = os.environ.get("RSH_PLOT_PYTHON")


def picture(plan, path, *words):
    """Runs it on a plan; gives what it says on standard error."""
    got = subprocess.run(
        [PYTHON, "-m", "reshardfs.picture", path, *words],
        input=plan if isinstance(plan, str) else json.dumps(plan), text=True, check=False,
        capture_output=True, env={**os.environ, "PYTHONPATH": os.path.join(TOP, "python")})
    return got.returncode, got.stderr


def texts(path):
    """All words of an .svg, which are text there."""
    return ["".join(e.itertext()) for e in ET.parse(path).getroot().iter()
            if e.tag.endswith("}text")]


def drawn(plan, directory, *words):
    path = os.path.join(directory, "p.svg")
    status, err = picture(plan, path, *words)
    check(status == 0 and not err, err)
    return texts(path)


def tree(directory, ranks, names, dims=(3, 6)):
    content = checkpoint_bytes({n: Record(dims, "Int8", bytes(dims[0] * dims[1]))
                                for n in names})
    for rank in range(ranks):
        write(os.path.join(directory, "s", f"rank_{rank}", "net-1_1.ckpt"), content)
    return os.path.join(directory, "s")


def strategy(directory, name, mesh, tensor_map, names=("w",)):
    return write(os.path.join(directory, name), strategy_bytes(
        StageFile(0, {n: Layout(mesh, tensor_map) for n in names})))


def the_picture_of_the_manual(directory):
    """doc/strategies.md and README show what is drawn: the same words and the same parts"""
    os.chdir(DEMO)
    plan = run_json("plan", "--slices", "--src-strategy", "strategy_8_cards.ckpt",
                    "--dst-strategy", "strategy_4_cards.ckpt", "--only",
                    "^blocks.0.(up.weight|down.weight|ln2.beta)$", "checkpoint")
    made = drawn(plan, directory)
    shown = texts(os.path.join(TOP, "man", "reshardfs-plan.svg"))
    check(made == shown, "man/reshardfs-plan.svg is another picture")
    one = run_json("plan", "--slices", "--src-strategy", "strategy_8_cards.ckpt",
                   "--dst-strategy", "strategy_4_cards.ckpt", "--only", "^blocks.0.up.weight$",
                   "checkpoint")
    for name, words in (("plan", ()), ("plan-dark", ("--dark",))):
        check(drawn(one, directory, "--no-table", *words) ==
              texts(os.path.join(TOP, "doc", f"{name}.svg")), f"doc/{name}.svg is another picture")
    check(any("Colour: the source rank" in text for text in made), made)
    for word in ("source: 8 slices of [24,48]", "destination: 2 slices of [96,48]", "×2: 0,2",
                 "×4: 0-3", "4.6 kB", "18.6 kB"):
        check(word in made, (word, made))


def by_plan_itself(directory):
    """plan --picture draws what the module draws of plan --json --slices."""
    words = ["--src-strategy", "strategy_8_cards.ckpt", "--dst-strategy",
             "strategy_4_cards.ckpt", "checkpoint"]
    made = drawn(run_json("plan", "--slices", *words), directory)
    path = os.path.join(directory, "own.svg")
    env = {"PATH": os.path.dirname(PYTHON), "PYTHONPATH": os.path.join(TOP, "python"),
           "MPLCONFIGDIR": directory}
    got = run("plan", "--picture", path, *words, env=env)
    check(got.status == GOOD and not got.out + got.err and texts(path) == made, got)
    got = run("plan", "--picture", os.path.join(directory, "no", "x.svg"), *words, env=env)
    check(got.status == IO and "x.svg was not drawn: `python3 -m reshardfs.picture` failed; the "
          "first python3 in PATH needs the modules reshardfs and matplotlib"
          in got.err, got)
    refused(run("plan", "--picture", path, *words, env={"PATH": directory}), INPUT,
            "there is no python3, which draws it")


def who_has_what(directory):
    """copies, lost slices and copies that are missing are told"""
    source = tree(directory, 4, ["w"])
    words = ["plan", "--slices", "--allow-missing", source, "--src-strategy",
             strategy(directory, "s.ckpt", [2, 2], [0, -1]), "--dst-strategy",
             strategy(directory, "d.ckpt", [2], [0, -1])]
    said = drawn(run_json(*words), directory)
    for word in ("×2: 0,2", "×2: 1,3", "not read", "18 B"):
        check(word in said, (word, said))
    os.remove(os.path.join(source, "rank_2", "net-1_1.ckpt"))
    said = drawn(run_json(*words), directory)
    check("1 of 2: 0" in said and "3 of 4 source ranks are there (filled); others have the slices "
          "of 2 (dotted)" in said, said)
    os.remove(os.path.join(source, "rank_0", "net-1_1.ckpt"))
    said = drawn(run_json(*words), directory)
    check("lost: 0,2" in said and "lost" in said and "2 of 4 source ranks are there (filled); "
          "slices of 0,2 are lost (hatched)" in said, said)


def many_ranks(directory):
    """ranks are drawn in groups where there are many, tensors up to a number"""
    names = [f"t{i}" for i in range(3)]
    source = tree(directory, 96, names)
    layouts = {n: Layout([96], [0, -1] if i else [-1, 0]) for i, n in enumerate(names)}
    src = write(os.path.join(directory, "s.ckpt"), strategy_bytes(StageFile(0, layouts)))
    plan = run_json("plan", "--slices", source, "--src-strategy", src, "--dst-strategy", "none")
    said = drawn(plan, directory)
    check("0-3" in said and "92-95" in said, said)
    check(any("1 more are cut so" in t for t in said), said)
    said = drawn(plan, directory, "--tensors", "1")
    check(any("more tensors are cut in other ways" in t for t in said), said)


def names_of_all_kinds(directory):
    """names are shown as they are, also where XML or formulas have other rules"""
    names = ['x<y>&"z\'', "$\\alpha$", "caf\u00e9"]
    source = tree(directory, 2, names)
    plan = run_json("plan", "--slices", source, "--src-strategy",
                    strategy(directory, "s.ckpt", [2], [0, -1], names), "--dst-strategy", "none")
    for i, name in enumerate(plan["tensors"][0]["names"]):
        one = {**plan, "tensors": [{**plan["tensors"][0], "names": [name]}]}
        said = drawn(one, directory)
        check(any(t.startswith(name) for t in said), (i, name, said))
    check(plan["tensors"][0]["names"] == names, plan["tensors"][0]["names"])


def equal_plans(directory):
    """equal plans are equal files, and .png is one as well"""
    source = tree(directory, 2, ["w"])
    plan = run_json("plan", "--slices", source, "--src-strategy",
                    strategy(directory, "s.ckpt", [2], [0, -1]), "--dst-strategy", "none")
    files = []
    for name in ("a.svg", "b.svg", "a.png"):
        check(picture(plan, os.path.join(directory, name)) == (0, ""), name)
        files.append(content(os.path.join(directory, name)))
    check(files[0] == files[1] and files[2].startswith(b"\x89PNG"), "files")


def wrong_usage(directory):
    """each mistake is one sentence"""
    path = os.path.join(directory, "p.svg")
    for plan, file, word in (("{", path, "standard input"), ("{}", path, "plan --json --slices"),
                             ({"tensors": [], "sources": [], "files": [], "source": "",
                               "step": ""}, os.path.join(directory, "no", "p.svg"), "no/p.svg"),
                             ({"tensors": [], "sources": [], "files": [], "source": "",
                               "step": ""}, os.path.join(directory, "p.doc"), "p.doc")):
        status, err = picture(plan, file)
        check(status == 1 and word in err and err.count("\n") == 1, (status, err))
    check(not os.path.exists(path), "nothing is written")


CASES = [the_picture_of_the_manual, by_plan_itself, who_has_what, many_ranks,
         names_of_all_kinds, equal_plans, wrong_usage]


if __name__ == "__main__":
    if not PYTHON:
        skip_all("RSH_PLOT_PYTHON does not name a Python that has matplotlib")
    sys.exit(Tests("picture", CASES).run())
