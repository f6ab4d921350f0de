#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Strategies that are not the tree's, and trees that look as if.

    wrong_strategy.py [--seed S] [--cases N] [--jobs N]

Each seed makes a tree, of a random job or of one of the genuine strategy sets,
and gives it strategies that people take for its own by mistake.  Each must be
refused with a sentence that says why, or what is shown must be right all the
same: it is read through libreshard and compared with the tensors that the tree
was cut from.  Of the others it is told whether equal and different bytes could
have shown the mistake - each such case is a miss - or whether only somebody who
knows the model could see it, and by what.  Together they may be 2 % of the cases.

Then the same job is saved with contents that are hard to judge: optimizer states
at zero, tied weights, experts that are copies, statistics that differ between
true replicas, lost files.  Under its own strategy no such tree may be refused.
`--seed S --cases 1` repeats one tree.
"""

import collections
import json
import os
import random
import re
import shutil
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), os.path.join(HERE, "..", "oracle"),
                os.path.join(HERE, "..", "..", "python")]

import genuine_sets  # noqa: E402
import hard_contents  # noqa: E402
import layouts  # noqa: E402
import mistakes  # noqa: E402
import random_cases  # noqa: E402
from demands import check, error_line  # noqa: E402
from ms_formats import parse_checkpoint  # noqa: E402
from random_cases import Outcome  # noqa: E402
from random_jobs import Network, Tree, Way, random_job, write_strategy  # noqa: E402
from rsh_cli import GOOD, INPUT, NO, PLAIN, demo_tree, run, run_json  # noqa: E402
from rsh_mount import (Mounted, Skipped, expect_failure,  # noqa: E402
                       reshardfs_program, skip_all)
from run_seed import share  # noqa: E402

CASES = 2700  # with those of genuine sets, which are fewer, 2,000 at least
CASES_OF_A_TREE = 20
HARD_TREES = 6
HARD_CASES = 2
GENUINE = 0.2           # of all trees
MOST_UNDETECTED = 0.02  # of all cases
# What can be seen at all depends on the trees: on a few that are drawn more often
# the share rests.  These ones every time; --seed tries others.
SEED = 5000

REFUSED, SAME, UNSEEN, MISSED = "refused", "right all the same", "cannot be seen", "missed"
WRONG, HARD, RIGHT = "wrong strategy", "wrong over hard contents", "right tree accepted"
CLUE = "cannot be seen but for"
ENOUGH = {WRONG: 2000, HARD: 500}
MOST_RIGHT = 500
FORMS = ("protobuf",) * 16 + ("merged",) + ("json",) * 3


# ---- what the program makes of it ----

class Refused(Exception):
    pass


def shown(source, src, dst):
    """[{name: Record}] of the virtual files."""
    import reshardfs
    try:
        with reshardfs.Source(source, src_strategy=src, dst_strategy=dst, unlisted="drop",
                              index_cache="off", cache="off", log_level="error") as s:
            return [parse_checkpoint(bytes(s.read(f.rank))) for f in s.files()]
    except reshardfs.Error as error:
        raise Refused(str(error)) from None


def demand_same_by_program(source, src, dst, sentence):
    """`plan` comes to the same as the library, in the same words but for options."""
    from reshardfs._options import spoken
    got = run("plan", source, "--src-strategy", src, "--dst-strategy", dst,
              "--unlisted", "drop", "--index-cache", "off", "--json")
    if sentence is None:
        check(got.status == 0 and json.loads(got.out)["files"], f"plan: {got}")
    else:
        check(got.status and sentence in spoken(got.err), f"plan: {got}\nlibreshard: {sentence}")


# ---- what is so ----

def right_files(tree, wanted, stages):
    """[{name: Record}] of the files under the strategy `wanted`, None for whole
    tensors; nothing of what ranks have for themselves, nor of sums of gradients,
    which only pipelines list, if they are none in `stages`."""
    names = [name for name in tree.shapes if name not in tree.private
             and any(name in held for held in tree.stages.values())
             and (not name.startswith("accu_grads.")
                  or any(name in held for held in stages.values()))]
    if wanted is None:
        return [{name: tree.slice(name, tuple((0, n) for n in tree.shapes[name][0]))
                 for name in names}]
    as_wanted = tree.under(wanted)
    return [{name: tree.slice(name, at) for name, at in as_wanted.held(rank).items()
             if name in names} for rank in as_wanted.ranks()]


def is_right(found, right):
    return len(found) == len(right) and all(
        name in f and (f[name].dims, f[name].dtype, f[name].content) ==
        (record.dims, record.dtype, record.content)
        for f, r in zip(found, right) for name, record in r.items())


class Claims:
    """What a strategy says of the files of a tree.

    cells   {name: {rank: the cell that it is said to hold}}
    shapes  {name: the whole shape that follows}
    """

    def __init__(self, tree, stages):
        self.tree, self.stages = tree, stages
        self.cards = layouts.device_count(next(iter(stages[0].values())))
        self.cells, self.shapes = {}, {}
        for rank in tree.ranks():
            listed = stages.get(rank // self.cards, {})
            for name, at in tree.held(rank).items():
                if name in listed and name in tree.telling:
                    self._add(name, listed[name], rank, [e - s for s, e in at])

    def _add(self, name, layout, rank, sizes):
        if len(layout.tensor_map) != len(sizes):
            layout = genuine_sets.in_dimensions_of(layout, self.tree.shapes[name][0])
        self.cells.setdefault(name, {})[rank] = layouts.cell(layout, rank % self.cards)
        self.shapes[name] = tuple(layouts.whole_shape(layout, sizes))

    def evidence(self):
        """What shows that they are not so, or None."""
        ranks = self.cards * len(self.stages)
        if ranks < len(self.tree.ranks()):
            return f"{len(self.tree.ranks())} ranks for {ranks}"
        for rank in self.tree.ranks():
            strangers = self._strangers(rank)
            if strangers:
                return f"rank {rank} and {strangers[0]}"
        names = [name for name, held in self.cells.items() if self._contradicted(name, held)]
        return names and f"{len(names)} of {len(self.cells)} parameters, such as {names[0]}"

    def _strangers(self, rank):
        """What a rank has for another stage, or lacks for its own."""
        known = {name for listed in self.stages.values() for name in listed}
        listed = set(self.stages[rank // self.cards])
        held = set(self.tree.held(rank))
        return sorted((held & known - listed) | (listed & set(self.tree.shapes)) - held)

    def _contradicted(self, name, held):
        pairs = {(held[rank], self.tree.slice(name, self.tree.held(rank)[name]).content)
                 for rank in held}
        return not len(pairs) == len({c for c, _ in pairs}) == len({b for _, b in pairs})


def clues(shapes):
    """What somebody who knows models would be puzzled by."""
    found = []
    weights = {n: shape for n, shape in shapes.items() if not hard_contents.is_state(n)}
    if any(shapes.get(prefix + n, shape) != shape
           for n, shape in weights.items() for prefix in ("adam_m.", "adam_v.", "moments.")):
        found.append("a state unlike its weight")
    if any(n.endswith(".bias") and shape[0] not in weights.get(n[:-4] + "weight", shape)
           for n, shape in weights.items()):
        found.append("a bias unlike its weight")
    if another_width(weights):
        found.append("matrices that another width of model parallel fits to the vectors")
    return " and ".join(found) or "nothing"


def another_width(weights):
    """Whether matrices have no dimension that a vector has, and all of them
    would, were one dimension so many times longer and the other shorter."""
    sizes = {shape[0] for shape in weights.values() if len(shape) == 1}
    odd = {shape for shape in weights.values()
           if len(shape) == 2 and not sizes & set(shape)}
    return bool(odd) and any(all(rows / k in sizes or columns * k in sizes
                                 for rows, columns in odd)
                             for k in (1 / 16, 1 / 8, 1 / 4, 1 / 2, 2, 4, 8, 16))


# ---- one tree ----

class Judge:
    """A saved tree, and the verdicts on it."""

    def __init__(self, tree, root, without=None):
        self.tree, self.root = tree, root
        self.source = os.path.join(root, "source")
        self.counts, self.said = collections.Counter(), []
        self.without = without

    def count(self, *words):
        self.counts[": ".join(words)] += 1

    def verdict(self, src, stages, wanted, dst):
        """(kind, sentence)"""
        try:
            found = shown(self.source, src, dst)
        except Refused as error:
            return REFUSED, str(error)
        return (SAME if is_right(found, right_files(self.tree, wanted, stages)) else None), None

    def wrong(self, number, kind, src, stages, wanted, dst, group):
        verdict, sentence = self.verdict(src, stages, wanted, dst)
        if number == 0:
            demand_same_by_program(self.source, src, dst, sentence)
        if verdict == REFUSED:
            self._demand_reason(sentence)
        if verdict is None:
            claims = Claims(self.tree, stages)
            why = claims.evidence()
            verdict = MISSED if why else UNSEEN
            if not why:
                why = clues(claims.shapes)
                self.count(CLUE, why)
            self.said.append(f"{group} {number}, {kind}, {verdict}: {why}")
        self.count(group, kind, verdict)

    def _demand_reason(self, sentence):
        """A parameter and two ranks, two counts, or the rank that is concerned."""
        named = any(name in sentence for name in self.tree.shapes)
        rest = sentence.replace(self.root, "")
        if "should hold" in rest:
            good = named and re.search(r"ranks \d+ and \d+", rest)
        else:
            good = named or len(re.findall(r"\b\d+\b", rest)) >= 2 or "rank " in rest
        check(good and "\n" not in sentence, f"a refusal without a reason: {sentence}")

    def right(self, src, what):
        verdict, sentence = self.verdict(src, self.tree.stages, None, "none")
        check(verdict != REFUSED, f"a right tree ({what}) is refused: {sentence}")
        check(verdict == SAME, f"wrong bytes of a right tree ({what})")
        self.count(RIGHT)
        if clues({name: shape for name, (shape, _) in self.tree.shapes.items()}) != "nothing":
            self.count("right tree with a clue against it")


def random_seed(numbers, root):
    network, way, stages = random_job(numbers)
    tree = Tree(numbers, stages, {p.name: (p.shape, p.dtype) for p in network.parameters})
    judge = Judge(tree, root)
    tree.save(judge.source, suffix=numbers.choice((".ckpt", ".ckpt", ".safetensors")),
              crc=numbers.random() < 0.2)
    judge.right(write_strategy(os.path.join(root, "right"), stages, numbers.choice(FORMS)),
                "honest")
    wrongly(judge, numbers, mistakes.Mistakes(numbers, network, way), CASES_OF_A_TREE, WRONG)
    shutil.rmtree(root)
    for number in range(HARD_TREES):
        hard = hard_seed(numbers, network, way, os.path.join(root, str(number)))
        judge.counts.update(hard.counts)
        judge.said += hard.said
    return f"{len(tree.ranks())} ranks, {way}", judge


def wrongly(judge, numbers, source, cases, group):
    for number in range(cases):
        kind, stages, wanted = source.draw()
        here = os.path.join(judge.root, f"strategy-{number}")
        dst = "none" if wanted is None else write_strategy(here + "-wanted", wanted)
        judge.wrong(number, kind, write_strategy(here, stages, numbers.choice(FORMS)),
                    stages, wanted, dst, group)


def hard_seed(numbers, network, way, root):
    """The job once more, its contents and files made hard to judge."""
    odd = Network.__new__(Network)
    odd.__dict__.update(network.__dict__, parameters=list(network.parameters), private=set())
    for add, chance in ((odd.add_statistics, 0.25), (odd.add_loads, 0.3), (odd.add_tables, 0.3)):
        if numbers.random() < chance:
            add()
    stages = odd.layouts(way)
    if stages is None:
        odd, stages = network, network.layouts(way)
    tree = Tree(numbers, stages, {p.name: (p.shape, p.dtype) for p in odd.parameters})
    tree.private = odd.private
    what = hard_contents.harden(tree)
    judge = Judge(tree, root)
    lose = numbers.choice((None, None, None, hard_contents.without_redundancy,
                           hard_contents.lost_replicas))
    without = lose(tree) if lose else {}
    tree.save(judge.source, without=without, crc=numbers.random() < 0.2,
              suffix=numbers.choice((".ckpt", ".ckpt", ".safetensors")))
    if numbers.random() < 0.15:
        save_part_of_newer_step(numbers, tree, judge.source, without)
        what += ", a newer step on some ranks"
    judge.right(write_strategy(os.path.join(root, "right"), stages, numbers.choice(FORMS)),
                f"{way}: {what}{', ' + lose.__name__ if lose else ''}")
    if not without and "constant" not in what:
        wrongly(judge, numbers, mistakes.Mistakes(numbers, odd, way), HARD_CASES, HARD)
    shutil.rmtree(root)
    return judge


def save_part_of_newer_step(numbers, tree, source, without):
    """What ranks save that come so far, when those of one slice do not."""
    missing = numbers.choice(list(tree.holders().values()))
    newer = Tree(numbers, tree.stages, tree.shapes)
    newer.save(source, step="1_20", without={
        **without, **{rank: None for rank in tree.ranks() if rank in missing}})


def genuine_seed(numbers, root):
    """A genuine set's tree under the strategies of its family."""
    family = numbers.choice([f for f in genuine_sets.families().values() if len(f) > 1])
    sets = {name: genuine_sets.GenuineSet(name, root) for name in family}
    own = sets[numbers.choice(family)]
    shapes = {name: (shape, dtype) for name, shape, dtype in own.parameters if own.listed(name)}
    tree = Tree(numbers, own_dimensions(own), shapes)
    judge = Judge(tree, root)
    tree.save(judge.source)
    judge.right(own.directory(), own.name)
    others = [s for s in sets.values() if s is not own]
    for number, other in enumerate(numbers.sample(others, min(len(others), CASES_OF_A_TREE))):
        wanted = own_dimensions(own) if numbers.random() < 0.3 else None
        judge.wrong(number, "genuine, swapped" if wanted else "genuine", other.directory(),
                    other.stages, wanted, own.directory() if wanted else "none", WRONG)
    return f"{own.name}", judge


def own_dimensions(own):
    return {stage: {name: genuine_sets.in_dimensions_of(layout, own.shapes[name])
                    for name, layout in held.items()}
            for stage, held in own.stages.items()}


# ---- all trees ----

def start_worker():
    os.environ["XDG_CACHE_HOME"] = PLAIN["XDG_CACHE_HOME"]
    os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                            "libreshard.so.0")


def run_seed(seed):
    numbers = random.Random(f"strategies {seed}")
    with tempfile.TemporaryDirectory(prefix="reshardfs-wrong-") as root:
        make = genuine_seed if numbers.random() < GENUINE else random_seed
        try:
            what, judge = make(numbers, os.path.join(root, "tree"))
        except Exception:
            return Outcome(False, "failed", "a tree", traceback.format_exc())
    kinds = judge.counts
    said = "; ".join(judge.said)
    return Outcome(True, said or "all told", what, counted=tuple(kinds.elements()))


# ---- by every way in ----

def eight_ranks(root):
    """(source, right strategy, that of another mesh)"""
    numbers = random.Random("eight ranks")
    network = Network(numbers)
    ways = [network.layouts(Way(dp, mp)) for dp, mp in ((2, 4), (4, 2))]
    tree = Tree(numbers, ways[0], {p.name: (p.shape, p.dtype) for p in network.parameters})
    tree.save(os.path.join(root, "source"))
    return [os.path.join(root, "source")] + [
        write_strategy(os.path.join(root, name), stages)
        for name, stages in zip(("right", "wrong"), ways)]


def refused_everywhere(root):
    source, right, wrong = eight_ranks(root)
    sentence = None
    for words in (["ls", source], ["plan", source, "--dst-strategy", "none"],
                  ["plan", source, "--dst-strategy", right],
                  ["plan", source, "--dst-strategy", right, "--check=full"],
                  ["export", source, os.path.join(root, "out"), "--dst-strategy", right]):
        got = run(*words, "--src-strategy", wrong, "--index-cache=off")
        check(got.status == (NO if words[0] == "ls" else INPUT), got)
        check(re.search(r"ranks? \d+ .*\d+", got.err) and wrong in got.err, got)
        check(("are source and destination swapped?" in got.err) == (right in words), got)
        sentence = sentence or got.err
        check(right in words or got.err == sentence, f"{got}\nfirst: {sentence}")
        good = run(*(w.replace("out", "good") for w in words), "--src-strategy", right,
                   "--index-cache=off")
        check(good.status == GOOD, good)
    check(not os.path.exists(os.path.join(root, "out")), "something was exported")
    for check_nothing in ("plan", "ls"):
        words = [check_nothing, source, "--src-strategy", wrong, "--check=structure"]
        got = run(*words, *(["--dst-strategy=none"] if check_nothing == "plan" else []))
        check(got.status == GOOD, got)


def refused_when_mounting(root):
    if not os.path.exists("/dev/fuse"):
        raise Skipped("there is no /dev/fuse")
    source, right, wrong = eight_ranks(root)
    status, said = expect_failure(source, src_strategy=wrong, dst_strategy=right)
    check(status == INPUT and wrong in error_line(said), said)
    with Mounted(source, src_strategy=right, dst_strategy=wrong) as m:
        check(len(os.listdir(m.path)) == 8, "not all ranks are shown")
    with Mounted(source, src_strategy=wrong, dst_strategy=right,
                 extra=["--check=structure"]) as m:
        check(len(os.listdir(m.path)) == 8, "not all ranks are shown")


def remembered_of_one_strategy(root):
    """What was found right is kept in the index cache, for that strategy alone."""
    source, right, wrong = eight_ranks(root)
    words = ["plan", source, "--dst-strategy=none", "--index-cache", os.path.join(root, "index")]
    os.mkdir(os.path.join(root, "index"))
    time.sleep(3.1)  # files that were written just now are too new for it
    for src, status in ((right, GOOD), (wrong, INPUT), (right, GOOD), (wrong, INPUT)):
        got = run(*words, "--src-strategy", src)
        check(got.status == status, got)
    check(os.listdir(os.path.join(root, "index")), "the index cache is empty")


def not_remembered_if_reads_failed(root):
    """What could not be read now may contradict the strategy when it can."""
    if not os.path.exists("/dev/fuse"):
        raise Skipped("there is no /dev/fuse")
    source, right, _ = demo_tree(root)
    os.mkdir(os.path.join(root, "index"))
    path = os.path.join(source, "rank_4", os.listdir(os.path.join(source, "rank_4"))[0])
    large = next(r for r in run_json("ls", path)["records"] if r["name"] == "large.columns")
    at, size = large["offset"], large["bytes"]
    for fault in (f"eio@rank_4:{at + size // 8}-{at + size}", "delay=0ms"):
        with Mounted(source, resume=True, extra=[f"--fault={fault}"]) as m:
            # Files that changed just now are too new for the cache; the ctime of these is that
            # of the mount.
            time.sleep(3.1)
            words = ["plan", m.path, "--src-strategy", right, "--dst-strategy=none",
                     "--index-cache", os.path.join(root, "index"), "--log-level=info"]
            for again in (False, True):
                got = run(*words)
                known = "an earlier check found that its contents fit the strategy" in got.err
                check(got.status == GOOD and known == (again and fault[0] != "e"), got)


def without(root, stages, listed):
    """The strategy without what is not `listed`; what it says no more of."""
    gone = [name for name in stages[0] if not listed(name)]
    return gone, write_strategy(os.path.join(root, "less"), {
        0: {name: layout for name, layout in stages[0].items() if name not in gone}})


def what_it_does_not_list(root):
    """Of what is copied from one rank, and others hold other bytes of, a line says so."""
    numbers = random.Random("what it does not list")
    network = Network(numbers)
    while network.optimizer is None:
        network = Network(numbers)
    stages = network.layouts(Way(2, 4))
    tree = Tree(numbers, stages, {p.name: (p.shape, p.dtype) for p in network.parameters})
    source = os.path.join(root, "source")
    tree.save(source)
    right = write_strategy(os.path.join(root, "right"), stages)
    words = ["plan", source, "--index-cache=off"]
    said = "does not list weights such as "
    (weight, *_), less = without(root, stages, lambda name: "layers.0.attention.wq" not in name)
    for more, warned in ((["none"], 1), (["none", "--check=full"], 1),
                         (["none", "--check=structure"], 0),
                         ([right, "--drop=attention.wq"], 0), ([less], 0)):
        got = run(*words, "--src-strategy", less, "--dst-strategy", *more)
        check(got.status == GOOD and got.err.count(less + " " + said) == warned, got)
        check(not warned or (weight in got.err and
                             "ranks 0 and 1 hold different bytes" in got.err), got)
    # MindFormers' name of an embedding is not a usual one of a weight.
    named = {name.replace("layers.0.attention.wq.weight", "tok.embedding_weight"): layout
             for name, layout in stages[0].items() if not hard_contents.is_state(name)}
    strange = Tree(random.Random(1), {0: named}, {
        p.name.replace("layers.0.attention.wq.weight", "tok.embedding_weight"):
        (p.shape, p.dtype) for p in network.parameters if not hard_contents.is_state(p.name)})
    other = os.path.join(root, "other")
    strange.save(other)
    _, less = without(root, {0: named}, lambda name: "tok.embedding" not in name)
    got = run("plan", other, "--index-cache=off", "--src-strategy", less, "--dst-strategy", "none")
    check(got.status == GOOD and "does not list tensors such as tok.embedding_weight, of which "
          "ranks 0 and 1 hold different bytes" in got.err, got)
    _, less = without(root, stages, lambda name: not hard_contents.is_state(name))
    for more, warned in (([], 1), (["--drop=^(adam|moments)"], 0)):
        got = run(*words, "--src-strategy", less, "--dst-strategy", "none", *more)
        check(got.status == GOOD and
              got.err.count("does not list optimizer states such as ") == warned, got)


def a_rank_with_the_file_of_another(root):
    """As after a copy into the wrong directory, whichever it is."""
    source, right, _ = eight_ranks(root)
    for rank in range(8):
        path = os.path.join(source, f"rank_{rank}")
        os.rename(path, path + ".away")
        shutil.copytree(os.path.join(source, f"rank_{rank ^ 1}"), path)
        got = run("plan", source, "--src-strategy", right, "--dst-strategy=none",
                  "--index-cache=off")
        check(got.status == INPUT and "a file is damaged, or of another save" in got.err and
              re.search(rf"\b{rank}\b", got.err), got)
        shutil.rmtree(path)
        os.rename(path + ".away", path)


WAYS_IN = (refused_everywhere, refused_when_mounting, what_it_does_not_list,
           a_rank_with_the_file_of_another,
           remembered_of_one_strategy, not_remembered_if_reads_failed)


def judge_all(tap, counts):
    for function in WAYS_IN:
        with tempfile.TemporaryDirectory(prefix="reshardfs-wrong-") as root, \
                tap.test(function.__name__.replace("_", " ")):
            function(root)
    for group in (WRONG, HARD):
        judge_group(tap, {kind[len(group) + 2:]: n for kind, n in counts.items()
                          if kind.startswith(group + ": ")}, group)
    tap.ok(counts[RIGHT] >= MOST_RIGHT, f"{counts[RIGHT]} right trees accepted")
    for kind, n in counts.items():
        if kind.startswith(CLUE):
            tap.diag(f"of those that cannot be seen {n} show {kind[len(CLUE) + 2:]}")


def judge_group(tap, wrong, group):
    cases = sum(wrong.values())
    ends = collections.Counter()
    for kind, n in wrong.items():
        ends[kind.split(": ")[-1]] += n
    for line in table(wrong, group):
        tap.diag(line)
    tap.ok(cases >= ENOUGH[group], f"{group}: {cases} cases")
    tap.ok(ends[SAME] < cases / 4, f"{group}: most are really wrong", f"{ends[SAME]} are not")
    undetected = ends[MISSED] + (ends[UNSEEN] if group == WRONG else 0)
    tap.ok(undetected <= MOST_UNDETECTED * cases,
           f"{group}: {undetected} undetected, {100 * undetected / cases:.2f} %",
           f"{ends[UNSEEN]} {UNSEEN}, {ends[MISSED]} {MISSED}")


def table(wrong, group):
    ends = (REFUSED, SAME, UNSEEN, MISSED)
    rows = collections.defaultdict(collections.Counter)
    for words, n in wrong.items():
        kind, end = words.rsplit(": ", 1)
        rows[kind][end] += n
    yield f"{group:30}" + "".join(f"{end:>20}" for end in ends)
    for kind, found in sorted(rows.items()):
        yield f"{kind:30}" + "".join(f"{found[end]:20}" for end in ends)


def main():
    if "sanitize" in os.environ.get("SANITIZER_FLAGS", "") and "LD_PRELOAD" not in os.environ:
        skip_all("Python does not load what a sanitizer is built into")
    parser = random_cases.parser(__doc__, None)
    parser.add_argument("--cases", type=int, default=share(CASES))
    options = parser.parse_args()
    if options.seed is None:
        options.seed = SEED
    if options.pairs is None:
        options.pairs = -(-options.cases // CASES_OF_A_TREE)
    return random_cases.run(options, start_worker, run_seed,
                            judge=judge_all if options.cases >= CASES else None)


if __name__ == "__main__":
    sys.exit(main())
