#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names of files and parameters that somebody chose to forge lines of a log or
to drive a terminal: nowhere are they shown as they are, and nowhere lost."""

import json
import os
import re
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
TOP = os.environ.get("top_srcdir", os.path.join(os.environ.get("srcdir", "."), ".."))
sys.path[:0] = [LIB, os.path.join(TOP, "python")]

from demands import check, content, demand, write  # noqa: E402
from ms_formats import Layout, read_checkpoint  # noqa: E402
from rsh_cli import (GOOD, INPUT, NO, PLAIN, USAGE, good, run, run_json,  # noqa: E402
                     run_on_terminal)
from rsh_mount import (Mounted, Skipped, Tests, expect_failure, hash_tree,  # noqa: E402
                       require_mount, reshardfs_program)
from safetensors_format import safetensors_bytes  # noqa: E402
from small_job import Job, mounted  # noqa: E402

os.environ["XDG_CACHE_HOME"] = PLAIN["XDG_CACHE_HOME"]
os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                        "libreshard.so.0")
import reshardfs  # noqa: E402

# A line of its own, a cleared screen, a C1 control, text from right to left, a
# line separator, a character that is not seen, a tag, a backslash.
PARAM = ("w\nreshardfs: error: forged\r\x1b[J\x7f\x9bm\u202e\u2028\u200b"
         "\N{TAG LATIN CAPITAL LETTER A}\\xaa\u5c42")
# Of files also what is no UTF-8.
FILE = PARAM + "\udcff\udce2\udc80"
UGLY = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e"
                  "\u2060-\u206f\ufeff\ufff9-\ufffb\ufffd\U000e0000-\U000e007f]")


def escaped(name):
    """What is shown of a name."""
    shown = ""
    for c in name:
        raw = os.fsencode(c)
        ugly = len(raw) == 1 and raw[0] > 0x7f or UGLY.match(c) or c == "\n"
        shown += "\\\\" if c == "\\" else "".join(f"\\x{b:02x}" for b in raw) if ugly else c
    return shown


def is_clean(text, *names):
    """No name in it has its way, and those that are demanded are to be seen."""
    check(not UGLY.search(text), repr(text))
    check("\nreshardfs: error: forged" not in text, repr(text))
    check(all(escaped(name) in text for name in names), f"{names!r} not in\n{text}")


def is_a_log(text, *names):
    """The same, of lines that are all the program's own."""
    is_clean(text, *names)
    for line in text.splitlines():
        check(re.match(r"(\d{4}-\d\d-\d\dT\S+ )?reshardfs: |Try 'reshardfs ", line), repr(text))


def bad_job(directory):
    """Parameters and files of such names, in a source of such a name."""
    job = Job(directory, {PARAM: Layout([2, 4], [0, -1]), "norm": Layout([2, 4], [-1])},
              {PARAM: (16, 6), "norm": (7,)})
    os.rename(job.source, job.source + FILE)
    job.source += FILE
    return job


def file_name(step, rank=None):
    return FILE + (f"_rank_{rank}" if rank is not None else "") + f"-1_{step}.ckpt"


def save(job, step):
    return job.save(1, step, name=file_name(step))


# ---- log and errors ----

def the_log(job):
    save(job, 5)
    for path in save(job, 10).values():
        os.truncate(path, 100)
    where = os.path.join(job.directory, "log")
    for extra in ([], [f"--log-to=file:{where}"]):
        with mounted(job, "--log-level=debug", *extra) as m:
            hash_tree(m.path)
            said = m.log()
            is_a_log(content(f"{m.path}/.reshardfs/log").decode(), file_name(10))
    is_a_log(said)
    with open(where, encoding="utf-8", errors="replace") as f:
        is_a_log(f.read(), file_name(10))


def reads_that_fail(job):
    saved = save(job, 5)
    with mounted(job, "--replicas=off", "--io-mode=direct") as m:
        os.truncate(saved[2], 40)
        try:
            hash_tree(m.path)
        except OSError:
            pass
        is_a_log(m.log(), file_name(5))


def errors(job):
    saved = save(job, 5)
    os.remove(saved[2])
    extra = ["--replicas=off"]
    _, said = expect_failure(job.source, src_strategy=job.strategy, dst_strategy=job.strategy,
                             extra=extra, foreground=True)
    is_a_log(said, job.source, PARAM)
    # Without -f it comes from another process.
    _, said = expect_failure(job.source, src_strategy=job.strategy, dst_strategy=job.strategy,
                             extra=extra)
    is_a_log(said, job.source, PARAM)
    got = run("plan", job.source, "--src-strategy", job.strategy, "--dst-strategy", "none", *extra,
              f"--log-to=file:{job.directory}/log")
    check(got.status == INPUT, got)
    is_a_log(got.err, PARAM)
    point = tempfile.mkdtemp(dir=job.directory)
    for words in (["ls", FILE], ["mount", "--resume", FILE, point], ["umount", FILE],
                  ["plan", job.source, "--src-strategy", FILE, "--dst-strategy", "none"]):
        got = run(*words)
        check(got.status not in (GOOD, NO), got)
        is_a_log(got.err, FILE)
    got = run("ls", "a", FILE)
    check(got.status == USAGE, got)
    is_a_log(got.err, FILE)
    got = run("ls", f"--log-to=file:{job.directory}/{FILE}/log", job.strategy)
    check(got.status != GOOD, got)
    is_a_log(got.err, FILE)


def errors_of_the_library(job):
    if "sanitize" in os.environ.get("SANITIZER_FLAGS", ""):
        raise Skipped("Python does not load what a sanitizer is built into")
    saved = save(job, 5)
    os.remove(saved[2])
    try:
        reshardfs.files(job.source, src_strategy=job.strategy, dst_strategy=job.strategy,
                        replicas="off")
    except reshardfs.Error as error:
        is_clean(str(error), PARAM)
        check("\n" not in str(error), error)
        return
    raise AssertionError("it was opened")


# ---- attributes and the control directory ----

def attributes(job):
    saved = save(job, 5)
    with mounted(job, "--select=name=*") as m:
        sources = os.getxattr(m.rank_file(1), "user.reshardfs.sources")
        is_clean(sources.decode(), saved[1])
        lines = sources.split(b"\n")
        check(os.fsencode(saved[1]) in
              [re.sub(rb"\\(?:x(..)|\\)", lambda e: bytes.fromhex(e[1].decode()) if e[1] else b"\\",
                      line) for line in lines], sources)
        told(m)
    with Mounted(job.source, resume=True) as m:
        is_clean(os.getxattr(m.path, "user.reshardfs.step").decode(), file_name(5))
        told(m)
    for path in saved.values():
        os.rename(path, os.path.join(os.path.dirname(path), FILE + ".ckpt"))
    with mounted(job, "--select=mtime") as m:
        is_clean(os.getxattr(m.path, "user.reshardfs.step").decode(), FILE + ".ckpt")
        told(m)


def told(m):
    """The files of the control directory."""
    for name in ("stats", "config", "metrics", "log", "plan/rank_0.json"):
        if not os.path.exists(f"{m.path}/.reshardfs/{name}"):
            continue
        text = content(f"{m.path}/.reshardfs/{name}").decode()
        is_clean(text)
        if name in ("stats", "config"):
            demand(json.loads(text)["source"], escaped(FILE))
    got = good("stats", m.path)
    is_clean(got.out)
    is_clean(run_on_terminal("stats", m.path, "--color=never", columns=400).out)


# ---- what commands print ----

def prints(*words, names=(), status=GOOD):
    got = run(*words)
    check(got.status == status, got)
    is_clean(got.out, *names)
    is_a_log(got.err)
    wide = run_on_terminal(*words, "--color=never", columns=2000)
    is_clean(wide.out.replace("\r\x1b[K", ""), *names)
    narrow = run_on_terminal(*words, "--color=never", columns=60)
    is_clean(narrow.out.replace("\r\x1b[K", ""))


def tables(job):
    saved = save(job, 5)
    both = ["--src-strategy", job.strategy, "--dst-strategy", job.strategy]
    prints("ls", saved[0], names=[PARAM])
    prints("ls", job.strategy, names=[PARAM])
    prints("ls", job.source, *both)
    prints("ls", job.source, "--select=name=*")
    prints("plan", job.source, *both, names=[saved[0]])
    prints("strategy", "check", job.strategy)
    out = os.path.join(job.directory, FILE)
    got = good("export", job.source, out, *both)
    is_clean(got.out, out)
    is_a_log(got.err)
    prints("verify", out)
    os.truncate(f"{out}/rank_0/checkpoint_0.ckpt", 100)
    prints("verify", out, names=[out], status=NO)
    os.truncate(saved[3], 100)
    prints("ls", job.source, names=[saved[3]], status=NO)
    for path in saved.values():
        os.rename(path, os.path.join(os.path.dirname(path), FILE + ".ckpt"))
    prints("ls", job.source, "--select=mtime", names=[FILE + ".ckpt"], status=NO)


def in_json(job):
    """As they are, and yet nothing in the text drives a terminal."""
    saved = save(job, 5)
    both = ["--src-strategy", job.strategy, "--dst-strategy", job.strategy]
    check(PARAM in [r["name"] for r in run_json("ls", saved[0])["records"]], "a record")
    check(PARAM in [p["name"] for p in run_json("ls", job.strategy)["parameters"]], "a layout")
    path = run_json("ls", job.source)["steps"][0]["files"][0]["path"]
    check(path == escaped(saved[0]), path)
    path = run_json("plan", job.source, *both)["sources"][0]["path"]
    check(path == escaped(saved[0]), path)
    for words in (["ls", saved[0]], ["ls", job.strategy], ["ls", job.source, *both],
                  ["plan", job.source, *both]):
        got = run(*words, "--json")
        is_clean(got.out)
    values = {"w": ("F32", (1,), b"1234")}
    model = os.path.join(job.directory, "m.safetensors")
    write(model, safetensors_bytes(values, {PARAM: PARAM}))
    check(run_json("ls", model)["metadata"] == {PARAM: PARAM}, "metadata")


# ---- where they stay ----

def names_in_the_mount(job):
    saved = save(job, 5)
    with Mounted(job.source, resume=True) as m:
        check(os.fsencode(file_name(5)) in os.listdir(os.fsencode(f"{m.path}/rank_0")),
              os.listdir(f"{m.path}/rank_0"))
    with mounted(job) as m:
        shown = read_checkpoint(m.rank_file(0))
        check(shown == read_checkpoint(saved[0]) and PARAM in shown, list(shown))


CASES = [the_log, reads_that_fail, errors, errors_of_the_library, attributes, tables, in_json,
         names_in_the_mount]


if __name__ == "__main__":
    require_mount()
    sys.exit(Tests("names", CASES).run(lambda directory: bad_job(os.path.join(directory, "job"))))
