#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reshardfs strategy infer`: what a tree says of its strategy by contents alone.

The yardstick are the strategies under which the trees were cut from whole
tensors: those that MindSpore planned, in data/strategies, and random ones.
"""

import json
import math
import os
import random
import shutil
import sys
import tempfile

TESTS = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(TESTS, "lib"))

import layouts  # noqa: E402
import random_jobs  # noqa: E402
from demands import check, content, flip, write  # noqa: E402
from ms_formats import (ELEMENT_BYTES, Layout, Record, checkpoint_bytes,  # noqa: E402
                        read_strategy_file)
from rsh_cli import (GOOD, INPUT, USAGE, refused, run, run_json,  # noqa: E402
                     run_on_terminal)
from rsh_mount import Tap  # noqa: E402
from run_seed import seed_and_cases  # noqa: E402

SETS = os.path.join(TESTS, "data", "strategies")


def infer(tree, *words):
    return run_json("strategy", "infer", tree, *words)


def by_name(said):
    names = [p["name"] for p in said["parameters"]]
    check(len(names) == len(set(names)), "a tensor is there twice")
    return dict(zip(names, said["parameters"]))


# ---- what must come out ----

def partition(keys):
    """{rank: key} as the groups that the program prints."""
    groups = {}
    for rank in sorted(keys):
        groups.setdefault(keys[rank], []).append(rank)
    return list(groups.values())


def slices_held(tree, name):
    """{rank: which slice it holds}; what no two ranks share is private."""
    return {rank: (rank if name in tree.private else tree.held(rank)[name])
            for rank in tree.ranks() if name in tree.held(rank)}


def elements(parameter):
    return math.prod(parameter["shape"])


def fewest_values(tree, name):
    """How many different elements the slice with the fewest has."""
    width = ELEMENT_BYTES[tree.shapes[name][1]]
    slices = [tree.slice(name, tree.held(rank)[name]).content
              for rank in tree.ranks() if name in tree.held(rank)]
    return min(len({c[i:i + width] for i in range(0, len(c), width)}) for c in slices)


def explains(layout, ranks, groups):
    """Are the groups those of the places on some axes of the mesh?"""
    places = {}
    for rank in ranks:
        rest, place = rank - ranks[0], []
        for size in reversed(layout["mesh"]):
            rest, at = divmod(rest, size)
            place.insert(0, at)
        check(rest == 0, "more ranks than the mesh has")
        places[rank] = place
    group = {rank: i for i, members in enumerate(groups) for rank in members}
    axes = range(len(layout["mesh"]))
    cut = [i for i in axes if any(
        group[a] != group[b] for a in group for b in group
        if all((places[a][k] == places[b][k]) == (k != i) for k in axes))]
    return partition({rank: str([places[rank][i] for i in cut]) for rank in group}) == \
        sorted(groups)


def demand_groups(said, tree, lost=()):
    """Every tensor that tells something has the strategy's groups, and the mesh
    of each set explains them."""
    found = by_name(said)
    want = {name for rank in tree.ranks() if rank not in lost for name in tree.held(rank)}
    check(want <= set(found), f"missing {sorted(want - set(found))[:3]}")
    for name in want:
        p = found[name]
        held = {r: at for r, at in slices_held(tree, name).items() if r not in lost}
        check(said["sets"][p["set"]]["ranks"] == sorted(held), p)
        if len(held) == 1:
            check(p["verdict"] == "alone" and not p["compared"], p)
            continue
        check(sorted(sum(p["groups"], [])) == sorted(held) == p["compared"], p)
        if p["verdict"] == "constant":
            # Of four random elements two may be equal.
            check(elements(p) < 4 or fewest_values(tree, name) < 4, f"{name} is not constant: {p}")
            continue
        check(p["groups"] == partition(held), f"{name}: {p['groups']}, not {partition(held)}")
        # Who has lost ranks cannot always tell how many there were.
        check(p["verdict"] in ("mesh", "private") or lost and p["verdict"] in
              ("several", "none"), p)
        if p["verdict"] == "mesh" and not lost:
            check(p["fits"], f"{name} does not fit {said['sets'][p['set']]}")
            check(explains(said["sets"][p["set"]]["layout"], p["compared"], p["groups"]),
                  f"{name}: {said['sets'][p['set']]['layout']} gives no {p['groups']}")
            check(explains(p["layout"], p["compared"], p["groups"]), p)


# ---- trees ----

def planned_tree(name, numbers):
    """A tree under a genuine strategy."""
    directory = os.path.join(SETS, name)
    with open(os.path.join(directory, "parameters.json"), encoding="utf-8") as f:
        shapes = {n: (tuple(shape), dtype) for n, shape, dtype in json.load(f)}
    stages = {}
    for entry in os.listdir(directory):
        if entry.startswith("strategy_stage_"):
            held = read_strategy_file(os.path.join(directory, entry)).layouts
            stages[int(entry.split(".")[0].rsplit("_", 1)[1])] = {
                n: layouts.foldings(layout, shapes[n][0], False)[0]
                for n, layout in held.items() if n in shapes}
    return random_jobs.Tree(numbers, dict(sorted(stages.items())), shapes)


def small_tree(numbers, n_ranks=8, opt=0):
    """dp x mp4: a weight cut over mp, a norm that is not, a bias over both."""
    dp = n_ranks // 4
    stages = {0: {"up.weight": Layout([dp, 4], [0, -1], opt, opt and -1),
                  "norm.gamma": Layout([dp, 4], [-1]),
                  "wide.bias": Layout([dp, 4], [[1, 0]])}}
    shapes = {"up.weight": ((4 * n_ranks, 8), "Float32"), "norm.gamma": ((24,), "Float32"),
              "wide.bias": ((8 * n_ranks,), "Float32")}
    tree = random_jobs.Tree(numbers, stages, shapes)
    tree.scalars = {"epoch_num": Record((), "Int64", (3).to_bytes(8, "little"))}
    return tree


class Bench:
    def __init__(self, directory, seed, cases):
        self.directory, self.seed, self.cases = directory, seed, cases
        self.numbers = random.Random(seed)
        self.n = 0

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def saved(self, tree, **how):
        self.n += 1
        root = self.path(f"tree{self.n}")
        tree.save(root, **how)
        return root

    # ---- right ----

    def genuine_strategies(self):
        done = 0
        for name in sorted(os.listdir(SETS)):
            if not os.path.exists(os.path.join(SETS, name, "parameters.json")):
                continue
            tree = planned_tree(name, self.numbers)
            root = self.saved(tree)
            try:
                demand_groups(infer(root), tree)
            except Exception as error:
                raise AssertionError(f"{name}: {error}") from error
            shutil.rmtree(root)
            done += 1
        check(done >= 30, f"only {done} sets")

    def random_jobs_and_lost_ranks(self):
        private = lost_some = 0
        for case in range(self.cases):
            numbers = random.Random(f"{self.seed} {case}")
            network, way, stages = random_jobs.random_job(numbers)
            if numbers.random() < 0.4:
                network.add_statistics()
                stages = network.layouts(way) or stages
            shapes = {p.name: (p.shape, p.dtype) for p in network.parameters
                      if any(p.name in held for held in stages.values())}
            tree = random_jobs.Tree(numbers, stages, shapes)
            tree.private = network.private & set(shapes)
            ranks = list(tree.ranks())
            lost = numbers.sample(ranks, numbers.randrange(1, max(len(ranks) // 4, 2))) \
                if numbers.random() < 0.4 and len(ranks) > 2 else []
            root = self.saved(tree, without=dict.fromkeys(lost),
                              suffix=numbers.choice((".ckpt", ".safetensors")))
            try:
                said = infer(root)
                demand_groups(said, tree, lost)
                if not lost:
                    private += self.demand_private(said, tree)
            except Exception as error:
                raise AssertionError(f"seed {self.seed} case {case} ({way}, lost {lost}): "
                                     f"{error}") from error
            lost_some += bool(lost)
            shutil.rmtree(root)
        check(self.cases < 40 or (private and lost_some), (private, lost_some))

    def demand_private(self, said, tree):
        """What each rank keeps is called so where weights have replicas."""
        sets = {p["set"] for p in said["parameters"] if p["verdict"] == "mesh" and
                p["name"] not in tree.private and 1 < len(p["groups"][0])}
        n = 0
        for p in said["parameters"]:
            if p["verdict"] == "private":
                check(p["name"] in tree.private, p)
            if p["name"] in tree.private and p["set"] in sets:
                weights = any(q["name"].endswith("weight") and len(q["groups"][0]) > 1
                              for q in said["parameters"] if q["set"] == p["set"])
                check(p["verdict"] == "private" or not weights, p)
                n += p["verdict"] == "private"
        return n

    def constants(self):
        tree = small_tree(self.numbers)
        tree.shapes["zero.weight"] = ((64, 1024), "Float32")
        tree.whole["zero.weight"] = bytes(64 * 1024 * 4)
        tree.stages[0]["zero.weight"] = Layout([2, 4], [0, -1])
        root = self.saved(tree)
        said = infer(root)
        verdicts = {n: p["verdict"] for n, p in by_name(said).items()}
        check(verdicts == {"up.weight": "mesh", "norm.gamma": "mesh", "wide.bias": "mesh",
                           "zero.weight": "constant", "epoch_num": "constant"}, verdicts)
        check(said["sets"][0]["layout"] == {"mesh": [2, 4], "cut": [0, 1]} and
              said["sets"][0]["explained"] == 3, said["sets"])
        got = run("strategy", "infer", root)
        check("2 show nothing" in got.out and "(zero.weight, epoch_num)" in got.out, got)
        check("which dimension of a tensor is cut" in got.out, got)

    def what_does_not_fit(self):
        """A mesh that excludes the others', and groups that no mesh has."""
        tree = small_tree(self.numbers)
        tree.stages[0]["up.weight"] = Layout([2, 4], [0, -1])
        root = self.saved(tree)
        for rank in range(8):
            records = tree.records(rank)
            odd = {0: 0, 3: 0, 5: 0}.get(rank, 1)
            records["crooked.weight"] = Record((64,), "Int8", random.Random(odd).randbytes(64))
            write(os.path.join(root, f"rank_{rank}", "net-1_10.ckpt"), checkpoint_bytes(records))
        said = infer(root)
        crooked = by_name(said)["crooked.weight"]
        check(crooked["verdict"] == "none" and crooked["layout"] is None and
              crooked["groups"] == [[0, 3, 5], [1, 2, 4, 6, 7]], crooked)
        got = run("strategy", "infer", root)
        check("1 match no mesh (crooked.weight)" in got.out, got)
        stages = {0: {"a.weight": Layout([2, 3], [0]), "b.weight": Layout([2, 3], [0]),
                      "c.weight": Layout([3, 2], [0])}}
        tree = random_jobs.Tree(self.numbers, stages,
                                {n: ((36,), "Float32") for n in stages[0]})
        said = infer(self.saved(tree))
        check([p["fits"] for n, p in sorted(by_name(said).items()) if n in stages[0]] ==
              [True, True, False], said)
        check(said["sets"][0]["layout"] == {"mesh": [2, 3], "cut": [1]}, said["sets"])

    def a_lost_end(self):
        """Ranks that are missing beside the others are counted in."""
        for lost in ([7], [0], [6, 7], [0, 7], [3]):
            root = self.saved(small_tree(self.numbers), without=dict.fromkeys(lost))
            said = infer(root)
            at = said["sets"][0]
            check((at["first"], at["span"], at["layout"], at["explained"]) ==
                  (0, 8, {"mesh": [2, 4], "cut": [0, 1]}, 3), (lost, at))
            got = run("strategy", "infer", root)
            check((lost == [3]) != ("taken for a part of ranks 0 to 7" in got.out), got)

    def redundancy_removed(self):
        tree = small_tree(self.numbers)
        tree.scalars = {}
        without = {r: (["norm.gamma"] if r else []) + (["up.weight"] if r >= 4 else [])
                   for r in range(8)}
        said = infer(self.saved(tree, without=without))
        found = by_name(said)
        check(found["up.weight"]["groups"] == [[0], [1], [2], [3]] and
              found["norm.gamma"]["verdict"] == "alone", found)
        check(any("redundancy removed" in s for s in said["hints"]), said["hints"])

    def pipeline(self):
        tree = planned_tree("pp2dp2mp2", self.numbers)
        said = infer(self.saved(tree))
        check({0: [0, 1, 2, 3], 4: [4, 5, 6, 7]}.items() <=
              {s["ranks"][0]: s["ranks"] for s in said["sets"] if len(s["ranks"]) == 4}.items(),
              said["sets"])
        check(any("pipeline stages" in s for s in said["hints"]), said["hints"])

    def optimizer_states_that_are_cut_further(self):
        tree = small_tree(self.numbers)
        tree.stages[0]["adam_m.up.weight"] = Layout([2, 4], [0, -1], 4, -1)
        tree.shapes["adam_m.up.weight"] = tree.shapes["up.weight"]
        tree.whole["adam_m.up.weight"] = self.numbers.randbytes(32 * 8 * 4)
        said = infer(self.saved(tree))
        check(any("dimension 0 of adam_m.up.weight [4,8] is cut 2 times more" in s
                  for s in said["hints"]), said["hints"])

    # ---- which step, which tensors ----

    def steps(self):
        tree = small_tree(self.numbers)
        root = self.saved(tree)
        newest = small_tree(random.Random("another"))
        newest.save(root, step="2_10")
        check(infer(root)["step"] == "epoch 2 step 10", "the newest")
        check(infer(root, "--select=1_10")["step"] == "epoch 1 step 10", "--select")
        damaged = os.path.join(root, "rank_3", "net-2_10.ckpt")
        with open(damaged, "r+b") as f:
            f.truncate(os.path.getsize(damaged) - 7)
        got = run("strategy", "infer", root)
        check(got.status == GOOD and "epoch 1 step 10, 8 files" in got.out and
              damaged in got.err, got)
        # With no other step the rest is looked at.
        got = run("strategy", "infer", root, "--select=2_10")
        check("rank 3 has no valid file" in got.out and "ranks 0, 1, 2, 4, 5, 6 and 7" in got.out
              and damaged in got.err and "mesh [2,4]" in got.out, got)
        os.unlink(os.path.join(root, "rank_6", "net-2_10.ckpt"))
        check(infer(root)["step"] == "epoch 1 step 10", "a rank has no newer file")

    def options(self):
        tree = small_tree(self.numbers)
        root = self.saved(tree)
        check(set(by_name(infer(root, "--only", "weight|bias", "--drop", "^wide"))) ==
              {"up.weight"}, "--only and --drop")
        moved = self.path("moved")
        os.makedirs(moved)
        for rank in range(8):
            os.rename(os.path.join(root, f"rank_{rank}"), os.path.join(moved, f"card{rank}"))
        said = infer(moved, "--rank-dir", "card{rank}", "--file", "net-*.ckpt")
        demand_groups(said, tree)
        listed = write(self.path("map.json"), json.dumps({
            rank: os.path.join(moved, f"card{rank}", "net-1_10.ckpt")
            for rank in range(8)}).encode())
        demand_groups(infer(moved, "--source-map", listed), tree)

    # ---- how it looks ----

    def many_ranks(self):
        """1,024 ranks are no wider than 8, and what is not compared follows from
        the mesh."""
        tree = small_tree(self.numbers, 1024)
        root = self.saved(tree)
        said = infer(root)
        found = by_name(said)
        for name in tree.stages[0]:
            p = found[name]
            held = {r: tree.held(r)[name] for r in p["compared"]}
            check(len(p["compared"]) <= 64 and p["groups"] == partition(held), p)
            check(p["verdict"] == "mesh", p)
        check(found["up.weight"]["layout"] == {"mesh": [256, 4], "cut": [1]}, found)
        check(said["sets"][0]["ranks"] == list(range(1024)), "the ranks")
        got = run("strategy", "infer", root)
        lines = got.out.splitlines()
        check("0-1023" in got.out and "0,4,8,...,1020 | 1,5,9,...,1021" in got.out, got)
        check(all(len(line) < 150 for line in lines[:6]), got)
        narrow = run_on_terminal("strategy", "infer", root, "--color=never", columns=100)
        check(max(map(len, narrow.out.splitlines()[:5])) <= 100, narrow)

    def always_the_same(self):
        root = self.saved(planned_tree("mf_pp2dp2mp2_opt", self.numbers))
        first = run("strategy", "infer", root).out
        for _ in range(5):
            check(run("strategy", "infer", root).out == first, "the order depends on threads")
        coloured = run("strategy", "infer", "--color=always", root).out
        check("\x1b[1m" in coloured and "\x1b[31m" not in coloured, "nothing is wrong")

    # ---- refused, or nothing to say ----

    def one_rank(self):
        root = self.path("one")
        write(os.path.join(root, "rank_0", "net-1_1.ckpt"),
              checkpoint_bytes({"w": Record((4,), "Int8", b"abcd")}))
        got = run("strategy", "infer", root)
        check(got.status == GOOD and "nothing to compare them with" in got.out, got)
        check(by_name(infer(root))["w"]["verdict"] == "alone", got)

    def nothing_there(self):
        os.makedirs(self.path("empty"))
        refused(run("strategy", "infer", self.path("empty")), INPUT, "no rank_N directory")
        os.makedirs(self.path("bare", "rank_0"))
        refused(run("strategy", "infer", self.path("bare")), INPUT, self.path("bare"))
        refused(run("strategy", "infer", self.path("absent")), INPUT, "absent")
        bad = write(self.path("bad", "rank_0", "net-1_1.ckpt"), b"\x0a\xff\xff")
        got = run("strategy", "infer", self.path("bad"))
        check(got.status == INPUT and not got.out and bad in got.err and
              "no rank has a valid" in got.err, got)

    def hostile_names(self):
        name = "a\x1b[31m\n.weight"
        for rank in range(2):
            write(self.path("odd", f"rank_{rank}", "net-1_1.ckpt"),
                  checkpoint_bytes({name: Record((4,), "Int8", bytes(4))}))
        got = run("strategy", "infer", self.path("odd"))
        check("\x1b" not in got.out and r"a\x1b[31m\x0a.weight" in got.out, got)
        check(by_name(infer(self.path("odd")))[name]["verdict"] == "constant", got)

    def a_changed_rank(self):
        """One bit turned over makes a rank of its own."""
        root = self.saved(small_tree(self.numbers))
        path = os.path.join(root, "rank_5", "net-1_10.ckpt")
        flip(path, content(path).index(b"norm.gamma") + 40)
        gamma = by_name(infer(root))["norm.gamma"]
        check(gamma["groups"] == [[0, 1, 2, 3, 4, 6, 7], [5]] and gamma["verdict"] == "none",
              gamma)

    def wrong_usage(self):
        root = self.saved(small_tree(self.numbers))
        planned = os.path.join(SETS, "mp8", "strategy_stage_0.ckpt")
        for words, said in (
                (["infer"], "SOURCE is missing"),
                (["infer", root, root], "too many operands"),
                (["infer", root, "-o", "x"], "unknown option -o"),
                (["infer", root, "--mesh", "mp=2"], "has no option --mesh"),
                (["infer", root, "--checkpoint", root], "has no option --checkpoint"),
                (["infer", root, "--src-strategy", "none"], "--src-strategy"),
                (["infer", root, "--only", "["], 'only: "["'),
                (["infer", root, "--select", "never"], "select"),
                (["infer", root, "--rank-dir", "card"], "{rank}"),
                (["show", planned, "--select=mtime"], "has no option --select"),
                (["show", planned, "--only", "a"], "has no option --only"),
                (["guess", root], "expected show, merge, check, derive or infer")):
            refused(run("strategy", *words), USAGE, said)


def main():
    chosen = seed_and_cases(60)
    tap = Tap()
    tap.diag(f"--seed {chosen.seed} --cases {chosen.cases}")
    with tempfile.TemporaryDirectory(prefix="reshardfs-infer-") as directory:
        bench = Bench(directory, chosen.seed, chosen.cases)
        for name in ("genuine_strategies", "random_jobs_and_lost_ranks", "constants",
                     "what_does_not_fit", "a_lost_end", "redundancy_removed", "pipeline",
                     "optimizer_states_that_are_cut_further", "steps", "options", "many_ranks",
                     "always_the_same", "one_rank", "nothing_there", "hostile_names",
                     "a_changed_rank", "wrong_usage"):
            with tap.test(name.replace("_", " ")):
                getattr(bench, name)()
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
