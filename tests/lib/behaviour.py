#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a program says and shows of many trees, to hold another program against it.

    behaviour.py record PROGRAM FILE [--seed S] [--cases N] [--histories N] [--genuine KEY]
                 [-j N]
    behaviour.py compare OLD NEW [--intended FILE] [the same]
    behaviour.py tree KEY DIRECTORY

The trees are genuine ones, all, none or those whose keys begin so, and N random ones from
seed S on (behaviour_cases.py), the same ones for the same seeds; with --histories N also
directories into which a job saves, prunes and is killed, and mounts of them that stay
(behaviour_histories.py).  `record` writes a line of
JSON for each: what ls, plan, export and verify print with which status, the log, the number
of reads of the source, and the hashes of all that is shown; without names of the machine,
times and durations, so that two records of a program are equal.  FILE is compressed if it
ends in .gz.

`compare` takes two records, or two programs, which it runs on each tree in turn.  It
prints what differs, and at the end how many cases of each kind are equal.  The file of
intended differences has in each line a regular expression, " :: ", and the reason; it is
searched for in "CASE COMMAND PLACE: OLD -> NEW".  The status is 1 if anything else
differs.

`tree` makes the tree of one case, and says with which options it is shown, or what happens
in a history.
"""

import argparse
import collections
import concurrent.futures
import difflib
import gzip
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import behaviour_cases  # noqa: E402
import behaviour_histories  # noqa: E402
from rsh_cli import PROGRESS, PLAIN  # noqa: E402
from rsh_mount import TIMEOUT_SCALE, hash_tree  # noqa: E402

TABLES = os.path.join(os.path.dirname(os.path.dirname(behaviour_cases.LIB)), "tables")
MANIFEST = "reshardfs-manifest.jsonl"
# What differs from one run to the next, of JSON and of text.  What plan says of time it
# has computed.
OF_A_RUN = {"seconds", "inode", "mtime", "program", "conversion"}
COMPUTED = {"plan"}
_WORDS = ((re.compile(r"\d{4}-\d\d-\d\dT\S+ "), ""),
          (re.compile(r"(?<= in )[\d.]+ (?:ns|us|ms|s|min|h)\b"), "TIME"),
          (re.compile(r"[\d.]+ [KMGT]?i?B/s\b"), "RATE"),
          (re.compile(r"\breshardfs\[\d+\]"), "reshardfs"),
          (re.compile(r"(?<=/sys/class/bdi/)\d+:\d+"), "DEVICE"))
NOTHING = "nothing"


# ---- one program and one tree ----

def by_name(plan):
    """A plan with its tensors in the order of their names: theirs is that in which the
    threads that read headers came across them."""
    if isinstance(plan, dict) and isinstance(plan.get("tensors"), list):
        for tensor in plan["tensors"]:
            if isinstance(tensor, dict) and isinstance(tensor.get("names"), list):
                tensor["names"].sort()
        plan["tensors"].sort(key=lambda t: json.dumps(t, sort_keys=True))
    return plan


class Asked:
    """Runs a program in the directory of a tree; its mounts are in a directory of its own."""

    def __init__(self, program, directory, own=None):
        self.program, self.directory, self.own = program, directory, own
        self.environment = {"RESHARDFS_TABLES": TABLES, **PLAIN}

    def text(self, text):
        """Without names of this machine."""
        if self.own:
            text = text.replace(self.own, "OWN")
        return text.replace(self.directory, "DIRECTORY")

    def _text(self, raw):
        return self.text(PROGRESS.sub("", raw.decode("utf-8", "backslashreplace")))

    def _plain(self, raw):
        text = self._text(raw)
        for pattern, instead in _WORDS:
            text = pattern.sub(instead, text)
        return text

    def run(self, *words):
        try:
            got = subprocess.run([self.program, *words], cwd=self.directory, check=False,
                                 capture_output=True, stdin=subprocess.DEVNULL,
                                 env=self.environment, timeout=120 * TIMEOUT_SCALE)
        except subprocess.TimeoutExpired:
            return {"words": self.text(" ".join(words)), "status": "it does not end"}
        return {"words": self.text(" ".join(words)), "status": got.returncode,
                "out": self._out(got.stdout, words[0] in COMPUTED),
                "err": self._log(got.stderr)}

    def _log(self, raw):
        """Sorted, since several threads write it."""
        return sorted(self._plain(raw).splitlines())

    def log(self, raw):
        """That of a daemon, without figures of time and of requests that the kernel makes as
        it likes."""
        return [line for line in self._log(raw)
                if " shown in " not in line and " read in " not in line]

    def _out(self, raw, computed):
        """JSON, or lines."""
        try:
            value = json.loads(self._text(raw))
        except ValueError:
            return (self._text if computed else self._plain)(raw).splitlines()
        return by_name(value) if computed else without_run(value)

    def export(self, *words):
        """By one thread and without a cache, so that it counts the same reads."""
        out = os.path.join(self.directory, "out")
        shutil.rmtree(out, ignore_errors=True)
        said = self.run("export", "--log-level", "info", "--jobs", "1", "--cache", "off", *words,
                        "out")
        if os.path.isdir(out):
            said["shown"] = hash_tree(out)
            if said["shown"].pop(MANIFEST, None):
                with open(os.path.join(out, MANIFEST), encoding="utf-8") as f:
                    said["manifest"] = [without_run(json.loads(self._text(line.encode())))
                                        for line in f]
        shutil.rmtree(out, ignore_errors=True)
        return said

    def resume(self, source):
        """What a mount shows, and what its daemon logs."""
        shown, log = (os.path.join(self.directory, name) for name in ("shown", "log"))
        os.mkdir(shown)
        said = self.run("mount", "--resume", "--log-to", "file:log", "--log-level", "info", source,
                        "shown")
        try:
            if said["status"] == 0:
                said["shown"] = hash_tree(shown)
                said["links"] = {name: os.readlink(path) for name, path in links_of(shown)}
        finally:
            if os.path.ismount(shown):
                self.run("umount", "shown")
            os.rmdir(shown)
        if os.path.exists(log):
            with open(log, "rb") as f:
                said["log"] = self.log(f.read())
            os.unlink(log)
        return said

    def all_of(self, case):
        """{command: what it came to}"""
        words, source = case.options, case.source
        result = {"ls": self.run("ls", "--json", source), "ls as text": self.run("ls", source)}
        for number, path in enumerate(case.strategies):
            result[f"ls of strategy {number}"] = self.run("ls", "--json", path)
        if words is None:
            result["mount --resume"] = self.resume(source)
            return result
        result["ls with options"] = self.run("ls", "--json", *words, source)
        result["plan"] = self.run("plan", "--json", "--slices", "--log-level", "info", *words,
                                  source)
        result["plan as text"] = self.run("plan", *words, source)
        result["export"] = self.export(*words, source)
        result["verify"] = self.run("verify", "--json", "--jobs", "1", *words, source)
        if "--check" not in words:
            result["verify --check full"] = self.run("verify", "--jobs", "1", "--check", "full",
                                                     *words, source)
        # As it is read back from a record.
        return json.loads(json.dumps(result))


def links_of(root):
    for folder, folders, names in os.walk(root):
        for name in sorted(folders + names):
            path = os.path.join(folder, name)
            if os.path.islink(path):
                yield os.path.relpath(path, root), path


def without_run(value):
    """JSON without what is only of this run."""
    if isinstance(value, dict):
        return {k: without_run(v) for k, v in value.items() if k not in OF_A_RUN}
    return [without_run(v) for v in value] if isinstance(value, list) else value


# ---- what differs ----

def _is_text(value):
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


def differences(old, new, where=""):
    """(place, old, new) of each value that is not the same."""
    if old == new:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for name in [*old, *(n for n in new if n not in old)]:
            yield from differences(old.get(name, NOTHING), new.get(name, NOTHING),
                                   f"{where}.{name}" if where else name)
    elif _is_text(old) and _is_text(new):
        for tag, a, b, c, d in difflib.SequenceMatcher(None, old, new, False).get_opcodes():
            if tag != "equal":
                for number, pair in enumerate(itertools.zip_longest(
                        old[a:b], new[c:d], fillvalue=NOTHING)):
                    yield f"{where} line {a + number + 1}", *pair
    elif isinstance(old, list) and isinstance(new, list):
        for number, pair in enumerate(itertools.zip_longest(old, new, fillvalue=NOTHING)):
            yield from differences(*pair, f"{where}[{number}]")
    else:
        yield where, old, new


def short(value):
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) < 500 else f"{text[:480]}... ({len(text)} characters)"


class Intended:
    """Differences that are meant, by the line that says why."""

    def __init__(self, path):
        self.found = collections.Counter()
        self.rules = []
        if not path:
            return
        with open(path, encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                if not line.strip() or line.startswith("#"):
                    continue
                pattern, colons, reason = line.rstrip("\n").partition(" :: ")
                if not colons or not reason.strip():
                    sys.exit(f"{path}, line {number}: no \" :: \" and a reason")
                self.rules.append((re.compile(pattern), pattern, reason))

    def is_meant(self, text):
        for expression, pattern, _ in self.rules:
            if expression.search(text):
                self.found[pattern] += 1
                return True
        return False

    def report(self):
        for _, pattern, reason in self.rules:
            yield f"intended, {self.found[pattern]} times: {pattern} ({reason})"


class Report:
    """Counts cases, and prints what is not the same."""

    def __init__(self, options):
        self.intended = Intended(options.intended)
        self.most = options.shown
        self.counts = {}

    def case(self, key, said, found):
        """found: [(command, its words, place, old, new)]"""
        counts = self.counts.setdefault(behaviour_cases.kind_of(key), collections.Counter())
        left = [f for f in found if not self.intended.is_meant(
            f"{key} {f[0]} {f[2]}: {short(f[3])} -> {short(f[4])}")]
        counts["different" if left else "intended" if found else "equal"] += 1
        if left:
            self._print(key, said, left)

    def _print(self, key, said, found):
        print(f"{key} ({said})")
        for command, lines in itertools.groupby(found, lambda f: f[:2]):
            lines = list(lines)
            print(f"  {command[0]}: reshardfs {command[1]}")
            for _, _, place, old, new in lines[:self.most]:
                print(f"    {place}\n      old: {short(old)}\n      new: {short(new)}")
            if len(lines) > self.most:
                print(f"    and {len(lines) - self.most} more differences")
        sys.stdout.flush()

    def end(self):
        """The status."""
        for line in self.intended.report():
            print(line)
        whole = collections.Counter()
        for kind, counts in [*self.counts.items(), ("all", whole)]:
            if kind != "all":
                whole.update(counts)
            print(f"{kind}: {sum(counts.values())} cases, {counts['equal']} equal, "
                  f"{counts['different']} different, {counts['intended']} as intended")
        return 1 if whole["different"] or not whole else 0


def compared(old, new):
    """What Report takes, of two dicts of commands."""
    return [(command, new.get(command, old.get(command))["words"], *found)
            for command in [*old, *(c for c in new if c not in old)]
            for found in differences(old.get(command, {}), new.get(command, {}))]


# ---- many trees ----

_makers = None


def makers():
    global _makers
    if _makers is None:
        _makers = list(behaviour_cases.genuine_makers())
    return _makers


def cases_of(task, directory):
    """[(key, Case)] that share one tree."""
    kind, number = task
    if kind == "genuine":
        return makers()[number][1](directory)
    return [behaviour_cases.random_case(number, directory)]


def observed(task, programs):
    """[(key, what it is, [what each program came to])]"""
    result = []
    with tempfile.TemporaryDirectory(prefix="reshardfs-behaviour-") as directory:
        directory = os.path.realpath(directory)
        if task[0] == "history":
            asked = []
            for number, program in enumerate(programs):
                own = os.path.join(directory, f"own-{number}")
                os.mkdir(own)
                asked.append(Asked(program, directory, own))
            return [behaviour_histories.observed(task[1], directory, asked)]
        for key, case in cases_of(task, directory):
            result.append((key, case.said,
                           [Asked(program, directory).all_of(case) for program in programs]))
    return result


def recorded(arguments):
    task, program = arguments
    return [json.dumps({"case": key, "said": said, "asked": asked}, separators=(",", ":"))
            for key, said, (asked,) in observed(task, [program])]


def held_against(arguments):
    task, old, new = arguments
    return [(key, said, compared(*asked)) for key, said, asked in observed(task, [old, new])]


def tasks_of(options):
    wanted = {"all": "", "none": None}.get(options.genuine, options.genuine)
    genuine = [("genuine", number) for number, (name, _) in enumerate(makers())
               if wanted is not None and name.startswith(wanted)]
    return genuine + [(kind, options.seed + i) for kind, n in (
        ("random", options.cases), ("history", options.histories)) for i in range(n)]


def over_all(options, function, *more):
    """What function gives for each task, in order."""
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        for result in pool.map(function, ((task, *more) for task in tasks_of(options))):
            yield from result


def opened(path, mode):
    return (gzip.open if path.endswith(".gz") else open)(path, mode + "t", encoding="utf-8")


def read_record(path):
    with opened(path, "r") as f:
        for line in f:
            one = json.loads(line)
            yield one["case"], one["said"], one["asked"]


def is_program(path):
    return os.access(path, os.X_OK) and os.path.isfile(path)


def record(options):
    began, n = time.monotonic(), 0
    with opened(options.file, "w") as f:
        for line in over_all(options, recorded, os.path.abspath(options.program)):
            f.write(line + "\n")
            n += 1
    print(f"{n} cases in {time.monotonic() - began:.0f} s")
    return 0


def compare(options):
    began, report = time.monotonic(), Report(options)
    programs = [is_program(path) for path in (options.old, options.new)]
    if all(programs):
        for found in over_all(options, held_against, os.path.abspath(options.old),
                              os.path.abspath(options.new)):
            report.case(*found)
    elif any(programs):
        sys.exit("a record and a program: record the program with the same seed first")
    else:
        compare_records(options, report)
    status = report.end()
    print(f"{time.monotonic() - began:.0f} s")
    return status


def compare_records(options, report):
    known = {key: (said, asked) for key, said, asked in read_record(options.old)}
    for key, said, asked in read_record(options.new):
        if key in known:
            report.case(key, said, compared(known.pop(key)[1], asked))
        else:
            report.case(key, said, [("case", "", "", NOTHING, "a case")])
    for key, (said, _) in known.items():
        report.case(key, said, [("case", "", "", "a case", NOTHING)])


def tree(options):
    os.makedirs(options.directory)
    directory = os.path.realpath(options.directory)
    kind, _, number = options.key.rpartition("/")
    if kind == "histories":
        for what in behaviour_histories.replayed(int(number), directory):
            print(what)
        return 0
    if kind in {function.__name__ for function in behaviour_cases.RANDOM}:
        tasks = [("random", int(number))]
    else:
        tasks = [("genuine", n) for n, (name, _) in enumerate(makers())
                 if options.key.startswith(name)]
    for task in tasks:
        for key, case in cases_of(task, directory):
            if key == options.key:
                print(f"{case.said}\n{' '.join(case.options or ['--resume'])} {case.source}")
                return 0
        shutil.rmtree(directory)
        os.makedirs(directory)
    sys.exit(f"there is no case {options.key}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    made = commands.add_parser("record")
    made.add_argument("program")
    made.add_argument("file")
    held = commands.add_parser("compare")
    held.add_argument("old")
    held.add_argument("new")
    held.add_argument("--intended", metavar="FILE")
    held.add_argument("--shown", type=int, default=5, help="differences of a command (5)")
    one = commands.add_parser("tree")
    one.add_argument("key")
    one.add_argument("directory")
    for words in (made, held):
        words.add_argument("--seed", type=int, default=1)
        words.add_argument("--cases", type=int, default=2000)
        words.add_argument("--histories", type=int, default=0)
        words.add_argument("--genuine", metavar="KEY|all|none", default="all")
        words.add_argument("-j", "--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    return {"record": record, "compare": compare, "tree": tree}[options.command](options)


if __name__ == "__main__":
    sys.exit(main())
