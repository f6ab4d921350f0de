#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The keys of all that is printed or written as JSON stand in the manuals.

Both ways: a key that no manual has is found, and one of a manual that nothing
prints any more.
"""

import json
import os
import re
import sys
import tempfile

TOP = os.environ.get("top_srcdir", os.path.join(os.environ.get("srcdir", "."), ".."))
LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

from demands import check, content  # noqa: E402
from rank_pickles import unpack  # noqa: E402
from rsh_cli import NO, demo_tree, run, run_json  # noqa: E402
from rsh_mount import Mounted, Tests, require_mount  # noqa: E402

# What stands below these has names that come from elsewhere: a file's metadata,
# the options of a mount.
FREE = {"metadata", "options"}
# Macros that end a list of quoted words.
END = {"No", "Ar", "Cm", "Fl", "Ns", "Pa", "Qq", "Sy", "Xr"}


def keys(value):
    """The keys of all objects in it."""
    if isinstance(value, list):
        return set().union(*map(keys, value))
    if not isinstance(value, dict):
        return set()
    return set(value).union(*(keys(v) for k, v in value.items() if k not in FREE))


def manual(page, begin=None, end=r"\.S[hs] |\Z"):
    """The text of a page from a line `begin` to a line `end`."""
    text = content(os.path.join(TOP, "man", page)).decode()
    if not begin:
        return text
    found = re.search(rf"^{begin}\n(.*?)(?=^(?:{end}))", text, re.M | re.S)
    check(found, f"{page} has no {begin}")
    return found[1]


def quoted(text, macro="Ql"):
    """The words that are quoted by a macro, alone or in a list."""
    words = set()
    for line in re.sub(r"\\\n", "", text).splitlines():
        inside = False
        for token in line[1:].split() if line.startswith(".") else ():
            inside = token == macro or inside and token not in END
            if inside and re.fullmatch(r"[a-z][a-z0-9_]+", token):
                words.add(token)
    return words


def same(said, documented):
    check(said, "nothing was said")
    check(not said - documented, f"no manual has {sorted(said - documented)}")
    missing = documented - said
    check(not missing, f"nothing has {sorted(missing)}, which the manual has")


class Job:
    def __init__(self, directory):
        self.source, self.src, self.dst = demo_tree(directory)
        self.words = ["--src-strategy", self.src, "--dst-strategy", self.dst]
        self.out = os.path.join(directory, "out")
        self.whole = os.path.join(directory, "whole")
        self.manifest = os.path.join(self.out, "reshardfs-manifest.jsonl")

    def some_file(self):
        where = os.path.join(self.source, "rank_0")
        return os.path.join(where, sorted(n for n in os.listdir(where)
                                          if n.endswith(".ckpt"))[-1])


def ls(job):
    said = keys(run_json("ls", job.some_file())) | keys(run_json("ls", job.src))
    said |= keys(run_json("ls", job.source)) | keys(run_json("ls", job.source, *job.words))
    run_json("export", "--format=safetensors", *job.words, job.source, job.whole)
    with tempfile.TemporaryDirectory() as own:
        said |= keys(run_json("ls", os.path.join(unpack(own), "hsdp-2.15")))
    said |= keys(run_json("ls", os.path.join(os.path.dirname(LIB), "data", "dcp", "torch-2.15",
                                             "uneven")))
    said |= keys(run_json("ls", os.path.join(os.path.dirname(LIB), "data", "weights", "models",
                                             "qwen3")))
    said |= keys(run_json("ls", os.path.join(job.whole, "rank_0", "checkpoint_0.safetensors")))
    same(said, quoted(manual("reshardfs-ls.1", r"\.Ss JSON")))


def plan(job):
    said = keys(run_json("plan", "--slices", *job.words, job.source))
    said |= keys(run_json("plan", "--format=checkpoint2", os.path.join(
        os.path.dirname(LIB), "data", "checkpoint2", "dp4mp2_opt")))
    said |= keys(run_json("plan", "--rank-list", *job.words, job.source))
    same(said, quoted(manual("reshardfs-plan.1", r"\.Ss JSON")))


def export(job):
    said = keys(run_json("export", *job.words, job.source, job.out))
    same(said, quoted(manual("reshardfs-export.1", r"\.Ss JSON")))


def a_manifest(job):
    with open(job.manifest, encoding="utf-8") as f:
        said = set().union(*(keys(json.loads(line)) for line in f))
    page = manual("reshardfs.5", r"\.Ss Head", r"\.Ss Source maps|\.Sh ")
    same(said, quoted(page) - {"reshardfs"})


def verify(job):
    path = os.path.join(job.out, "rank_0", "checkpoint_0.ckpt")
    with open(path, "r+b") as f:
        f.truncate(os.path.getsize(path) - 1)
    said = keys(run_json("verify", job.manifest, status=NO))
    same(said, quoted(manual("reshardfs-verify.1", r"\.Ss JSON")))


def strategy(job):
    options = manual("reshardfs-strategy.1", r"\.Sh OPTIONS", r"\.Sh ")
    check(".It Fl Fl json\n" in options, "--json is not documented")
    said = keys(run_json("strategy", "check", job.src))
    said |= keys(run_json("strategy", "infer", job.source))
    same(said, quoted(options.split(".It Fl Fl json\n", 1)[1]))
    check(run_json("strategy", "show", job.src) == run_json("ls", job.src), "show")


def of_a_mount(job):
    with Mounted(job.source, src_strategy=job.src, dst_strategy=job.dst,
                 extra=["--cache=on"]) as m:
        said = keys(run_json("warm", "--share=0/1", m.path))
        options = manual("reshardfs-warm.1", r"\.Sh OPTIONS", r"\.Sh ")
        same(said, quoted(options.split(".It Fl Fl json\n", 1)[1]))
        said = keys(run_json("stats", m.path))
        said |= keys(json.loads(content(os.path.join(m.path, ".reshardfs/config"))))
        text = manual("reshardfs-control.5", r"\.Sh DESCRIPTION", r"\.Sh |\.Ss steps")
        same(said, quoted(text, "Va"))
        with open(os.path.join(m.path, ".reshardfs/plan/rank_0.json"),
                  encoding="utf-8") as f:
            said = run_json("plan", "--slices", *job.words, job.source, "0")
            del said["tensors"]
            check(keys(json.load(f)) == keys(said), "the plan of a mount has other keys")


def steps_of_a_mount(job):
    with Mounted(job.source, src_strategy=job.src, dst_strategy=job.dst,
                 extra=["--steps=all"]) as m:
        said = keys(run_json("steps", m.path))
        same(said, quoted(manual("reshardfs-control.5", r"\.Ss steps"), "Va"))


def what_has_none(_):
    for command in ("umount", "mount"):
        check("--json" not in run(command, "--help-all").out, f"{command} has --json")


TESTS = [ls, plan, export, a_manifest, verify, strategy, of_a_mount, steps_of_a_mount,
         what_has_none]


def main():
    require_mount()
    with tempfile.TemporaryDirectory(prefix="reshardfs-keys-") as directory:
        job = Job(directory)
        return Tests("keys", TESTS).run(lambda _: job)


if __name__ == "__main__":
    sys.exit(main())
