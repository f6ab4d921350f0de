#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""lib/behaviour.py: the same seed makes the same trees and histories, two records of a
program are equal, and a record that was edited, or a program that says something else, is
noticed."""

import json
import os
import subprocess
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

import behaviour  # noqa: E402
import behaviour_cases  # noqa: E402
import behaviour_histories  # noqa: E402
from demands import check, demand, write  # noqa: E402
from rsh_mount import Tap, hash_tree, require_mount, reshardfs_program  # noqa: E402
from run_seed import run_seed  # noqa: E402

# Of a turn of all kinds, a part.
CASES = 12
HISTORIES = 4
EDITS = ("a byte", "a slice", "a sentence", "a status", "a read", "a case", "a step")


def tool(*words):
    """(status, what it says)"""
    done = subprocess.run([sys.executable, os.path.join(LIB, "behaviour.py"), *words],
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def some(seed):
    return ["--seed", str(seed), "--cases", str(CASES), "--histories", str(HISTORIES),
            "--genuine", "demo"]


def times(root):
    return {os.path.join(folder, name): os.stat(os.path.join(folder, name)).st_mtime_ns
            for folder, _, names in os.walk(root) for name in names}


def made(seed):
    """What is told of a tree, its bytes and times."""
    with tempfile.TemporaryDirectory() as directory:
        told = behaviour_cases.random_case(seed, directory)
        return str(told), hash_tree(directory), {os.path.relpath(path, directory): when
                                                 for path, when in times(directory).items()}


def happened(seed):
    """What is told of a history, its bytes and times after each event."""
    with tempfile.TemporaryDirectory() as directory:
        return [[what, sorted((os.path.relpath(path, directory), when) for path, when in
                              times(directory).items()), hash_tree(directory)]
                for what in behaviour_histories.replayed(seed, directory)]


def same_trees(seed):
    """Also of processes in which sets have another order."""
    one, other = ([json.loads(line) for line in subprocess.run(
        [sys.executable, __file__, "--trees", str(seed)], stdout=subprocess.PIPE, check=True,
        env={**os.environ, "PYTHONHASHSEED": hashes}).stdout.splitlines()] for hashes in "12")
    check(len(one) == 2 * CASES + len(behaviour_histories.KINDS), len(one))
    for number, (a, b) in enumerate(zip(one, other), seed):
        check(a == b, f"seed {number}: {a[0]} and {b[0]}")


def changed(lines, edit):
    """The lines of a record with one value changed; the words of what has to be told."""
    cases = [json.loads(line) for line in lines]
    for case in cases if edit == "a step" else ():
        for said in case["asked"].values():
            if said.get("steps", {}).get("latest"):
                said["steps"]["latest"] = "another"
                return "".join(json.dumps(c) + "\n" for c in cases), \
                    ["steps.latest", "new: another", case["said"]]
    for case in cases:
        # The demo has all that can be changed.
        export, plan = (case["asked"].get(name, {}) for name in ("export", "plan"))
        if not case["case"].startswith("demo/") or not export.get("shown"):
            continue
        if edit == "a byte":
            name = sorted(export["shown"])[0]
            words = ["export", f"shown.{name}", export["shown"][name][1]]
            export["shown"][name][1] = "0" * 64
        elif edit == "a slice":
            words = ["plan", "out", "old: ", "new: 123456789"]
            check(change_number(plan["out"]), "there is no number")
        elif edit == "a sentence":
            export["err"].append("reshardfs: notice: another")
            words = ["err line", "old: nothing", "new: reshardfs: notice: another"]
        elif edit == "a status":
            export["status"] = 4
            words = ["status", "old: 0", "new: 4"]
        elif edit == "a read":
            at = next(i for i, line in enumerate(export["err"]) if " read in " in line)
            export["err"][at] = export["err"][at].replace(" reads", "0 reads")
            words = ["err line", "0 reads,"]
        else:
            cases.remove(case)
            words = ["old: a case", "new: nothing"]
        return "".join(json.dumps(c) + "\n" for c in cases), words
    raise AssertionError("nothing was exported, or no step was shown")


def change_number(value):
    """Changes the last number in some JSON."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, one in reversed(items):
        if isinstance(one, (dict, list)):
            if change_number(one):
                return True
        elif isinstance(one, int) and not isinstance(one, bool):
            value[key] = 123456789
            return True
    return False


def test_records(tap, work, seed):
    one, other = (os.path.join(work, name) for name in ("one.jsonl", "other.jsonl.gz"))
    with tap.test("two records of a program are equal"):
        for path in (one, other):
            status, said = tool("record", reshardfs_program(), path, *some(seed))
            check(status == 0, said)
        n = len(list(behaviour.read_record(other)))
        status, said = tool("compare", one, other)
        check(status == 0, said)
        demand(said, " 0 different, 0 as intended", "all: ")
        demand(said, f"all: {n} cases, {n} equal")
    with open(one, encoding="utf-8") as f:
        lines = f.readlines()
    edited, meant = (os.path.join(work, name) for name in ("edited.jsonl", "intended"))
    for edit in EDITS:
        with tap.test(f"{edit} that differs is noticed"):
            text, words = changed(lines, edit)
            write(edited, text.encode())
            status, said = tool("compare", one, edited)
            check(status == 1, said)
            demand(said, f"all: {n} cases, {n - 1} equal, 1 different", *words)
    with tap.test("what is intended is counted apart"):
        text, _ = changed(lines, "a sentence")
        write(edited, text.encode())
        write(meant, b"# ours\n^demo/.*nothing -> .*notice: another$ :: it says more\n"
                     b"no such thing :: never\n")
        status, said = tool("compare", one, edited, "--intended", meant)
        check(status == 0, said)
        demand(said, f"{n - 1} equal, 0 different, 1 as intended", "intended, 1 times: ^demo/",
               "(it says more)", "intended, 0 times: no such thing (never)")
        write(meant, b"no reason\n")
        status, said = tool("compare", one, edited, "--intended", meant)
        check(status == 1 and "intended, line 1: no \" :: \" and a reason" in said, said)


def test_programs(tap, work):
    with tap.test("two programs, case by case"):
        another = write(os.path.join(work, "another"), (
            "#!/bin/sh\n"
            f"'{reshardfs_program()}' \"$@\" 2>err.log\nstatus=$?\n"
            "sed 's/BFloat16 NaNs/NaNs/' err.log >&2\nrm err.log\nexit $status\n").encode())
        os.chmod(another, 0o755)
        words = ["--cases", "0", "--genuine", "demo"]
        status, said = tool("compare", reshardfs_program(), reshardfs_program(), *words)
        check(status == 0 and " 0 different" in said, said)
        status, said = tool("compare", reshardfs_program(), another, *words)
        check(status == 1 and " 0 different" not in said, said)
        demand(said, "BFloat16 NaNs are kept", ": NaNs are kept", "export: reshardfs export")


def main():
    if sys.argv[1:2] == ["--trees"]:
        first = int(sys.argv[2])
        for seed in range(first, first + 2 * CASES):
            print(json.dumps(made(seed)))
        for seed in range(first, first + len(behaviour_histories.KINDS)):
            print(json.dumps(happened(seed)))
        return 0
    require_mount()
    seed, tap = run_seed() % 10 ** 6, Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-behaviour-") as work:
        with tap.test(f"seed {seed}: the same trees for the same seed"):
            same_trees(seed)
        test_records(tap, work, seed)
        test_programs(tap, work)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
