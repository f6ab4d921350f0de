#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reshardfs export`: the files of a mount as real ones.

The yardstick is what make_tree.py expects of a mount of its tree, and mounts.
"""

import contextlib
import glob
import json
import os
import pty
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, flip, within, write  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes)
from privileges import program_is, wrapper  # noqa: E402
from rsh_cli import (GOOD, INPUT, IO, NO, PLAIN, USAGE, demo_tree, good, refused,  # noqa: E402
                     run, run_json)
from rsh_mount import (TIMEOUT_SCALE, Mounted, Tap, hash_tree, require_mount,  # noqa: E402
                       reshardfs_program, sha256_of, tree_difference)

MANIFEST = "reshardfs-manifest.jsonl"
SLOW = ["--fault=delay=8ms", "--jobs=1", "--cache=off"]


class Place:
    """The made-up tree and directories to export it to."""

    def __init__(self, directory, made):
        self.directory = directory
        shutil.copytree(made, directory, dirs_exist_ok=True)
        self.source, self.src, self.dst = (self.path(n) for n in
                                           ("source", "source.ckpt", "wanted.ckpt"))
        self.out = os.path.join(directory, "out")
        self.words = ["--src-strategy", self.src, "--dst-strategy", self.dst]
        self.expected = hash_tree(os.path.join(directory, "expected"))

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def export(self, *words, status=GOOD, out=None):
        return run_json("export", self.source, out or self.out, *self.words, *words,
                        status=status)

    def run(self, *words, out=None):
        return run("export", self.source, out or self.out, *self.words, *words)

    def start(self, *words):
        return subprocess.Popen(
            [reshardfs_program(), "export", self.source, self.out, *self.words, *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def whole(self, ranks=range(4), out=None):
        """Just these files and the manifest, with their bytes."""
        found = hash_tree(out or self.out)
        check(found.pop(MANIFEST, None), f"no manifest in {sorted(found)}")
        wanted = {f"rank_{r}/checkpoint_{r}.ckpt" for r in ranks}
        lines = tree_difference({k: v for k, v in self.expected.items() if k in wanted}, found)
        check(not lines, lines)

    def nothing_half(self, out=None):
        """Whatever has its name is whole; the names of all that is there."""
        out = out or self.out
        found = sorted(os.path.relpath(os.path.join(folder, name), out)
                       for folder, _, names in os.walk(out) for name in names)
        for name in found:
            # Others may be growing.
            if not os.path.basename(name).startswith(".") and name != MANIFEST:
                check(sha256_of(os.path.join(out, name)) == self.expected[name],
                      f"{name} is not whole")
        return found


def manifest(path):
    with open(path, encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def temporary(names):
    return [n for n in names if os.path.basename(n).startswith(".") and n.endswith(".part")
            and MANIFEST not in n]


def the_files_of_the_mount(p):
    said = p.export()
    p.whole()
    check(said["files"] == {"written": 4, "kept": 0, "lost": 0}, said)
    check(said["bytes"]["written"] == sum(n for n, _ in p.expected.values()), said)
    check(said["manifest"] == os.path.join(p.out, MANIFEST) and not said["verified"], said)
    check(said["step"] == "epoch 3 step 40", said)


def other_forms(p):
    for number, (dst, words) in enumerate((
            ("none", []), (p.dst, ["--format=safetensors"]), (p.dst, ["--prefix=x"]),
            ("none", ["--format=hf", "--part-size=5MB"]), (p.dst, ["--cast=float16"]))):
        out = p.path(f"out{number}")
        good("export", p.source, out, "--src-strategy", p.src, "--dst-strategy", dst, *words)
        with Mounted(p.source, src_strategy=p.src, dst_strategy=None if dst == "none" else dst,
                     extra=words) as m:
            found, expected = hash_tree(out), hash_tree(m.path)
        check(found.pop(MANIFEST), "no manifest")
        lines = tree_difference(expected, found)
        check(not lines and len(found) > 0, (words, lines))


def some_ranks_then_others(p):
    check(p.export("2-3")["files"]["written"] == 2, "2-3")
    p.whole([2, 3])
    said = p.export("0")
    check(said["files"] == {"written": 1, "kept": 0, "lost": 0}, said)
    p.whole([0, 2, 3])
    files = [line["file"] for line in manifest(os.path.join(p.out, MANIFEST)) if "file" in line]
    check(files == [f"rank_{r}/checkpoint_{r}.ckpt" for r in (0, 2, 3)], files)
    check(p.export()["files"] == {"written": 1, "kept": 3, "lost": 0}, "the rest")
    p.whole()
    refused(p.run("4"), INPUT, "rank 4 does not exist")


def what_the_manifest_says(p):
    p.export("--manifest", p.path("m.jsonl"))
    check(not os.path.exists(os.path.join(p.out, MANIFEST)), "a manifest in OUTDIR as well")
    lines = manifest(p.path("m.jsonl"))
    head, end = lines[0], lines[-1]
    check(head["manifest"] == "reshardfs" and head["version"] == 1, head)
    check(head["source"] == os.path.realpath(p.source), head)
    check(head["tree_files"] == 4 and end == {"end": "reshardfs", "files": 4}, (head, end))
    sources = [line for line in lines if "source" in line and "rank" in line]
    check(len(sources) == 8, sources)
    for s in sources:
        st = os.stat(os.path.join(p.source, s["source"]))
        check((s["size"], s["inode"]) == (st.st_size, st.st_ino), s)
        check(s["mtime"][0] * 10 ** 9 + s["mtime"][1] == st.st_mtime_ns, s)
    for f in (line for line in lines if "file" in line):
        check(f["size"] == os.path.getsize(os.path.join(p.out, f["file"])), f)
        at = 0
        for r in f["records"]:
            check(r["offset"] == at and r["bytes"] > 0 and len(r["xxh3"]) == 16, r)
            at += r["bytes"]
        check(at == f["size"], f["file"])


def again_is_quick(p):
    p.export()
    before = {n: os.stat(os.path.join(p.out, n)).st_ino for n in p.expected}
    check(p.export()["files"] == {"written": 0, "kept": 4, "lost": 0}, "again")
    check(p.export("--verify")["files"]["kept"] == 4, "verified")
    check(before == {n: os.stat(os.path.join(p.out, n)).st_ino for n in p.expected}, "replaced")
    p.whole()


def damage_is_found_by_verify(p):
    p.export("--verify")
    path = os.path.join(p.out, "rank_1/checkpoint_1.ckpt")
    st = os.stat(path)
    flip(path, 1000)
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))
    check(p.export()["files"]["kept"] == 4, "size and time are as they were")
    got = p.run("--verify", "--json")
    check(got.status == GOOD and "damaged" in got.err and "rank_1" in got.err, got)
    check(json.loads(got.out)["files"] == {"written": 1, "kept": 3, "lost": 0}, got)
    p.whole()


def killed_and_gone_on(p):
    process = p.start(*SLOW)
    first = os.path.join(p.out, "rank_0/checkpoint_0.ckpt")
    within(60, lambda: os.path.exists(first), first)
    within(60, lambda: temporary(p.nothing_half()), "the next file")
    process.kill()
    process.communicate()
    left = p.nothing_half()
    check(temporary(left) and "rank_3/checkpoint_3.ckpt" not in left, left)
    inode = os.stat(first).st_ino
    said = p.export()
    check(said["files"]["kept"] >= 1 and said["files"]["written"] >= 1, said)
    check(os.stat(first).st_ino == inode, "written twice")
    p.whole()


def killed_over_and_over(p):
    """At any moment: what has its name is whole, and it ends."""
    for number in range(20):
        process = p.start("--fault=delay=2ms", "--cache=off", "--jobs=2")
        time.sleep(0.02 + 0.017 * number)
        process.kill()
        process.communicate()
        if os.path.isdir(p.out):
            p.nothing_half()
    p.export()
    p.whole()


def interrupted(p):
    for sig in (signal.SIGINT, signal.SIGTERM):
        process = p.start(*SLOW)
        within(60, lambda: os.path.isdir(p.out) and temporary(p.nothing_half()), "a file begun")
        process.send_signal(sig)
        out, err = process.communicate(timeout=60 * TIMEOUT_SCALE)
        check(process.returncode == IO and not out, (process.returncode, out, err))
        check(err.decode().count("\n") == 1 and b"interrupted" in err, err)
        left = p.nothing_half()
        check(not temporary(left) and MANIFEST not in left, left)
    p.export()
    p.whole()


def a_source_that_changes(p):
    """What was written stays, and the next command is the one that goes on."""
    process = p.start(*SLOW)
    within(60, lambda: os.path.isdir(p.out) and any(
        name.endswith(".ckpt") for name in p.nothing_half()), "a file that is complete")
    for root, _, names in os.walk(p.source):
        for name in names:
            with open(os.path.join(root, name), "r+b") as f:
                data = f.read()
                f.seek(0)
                f.write(data)
    _, err = process.communicate(timeout=60 * TIMEOUT_SCALE)
    check(process.returncode != GOOD and b"changed since" in err and
          b"files are complete; run the same command with --overwrite\n" in err, err)
    refused(p.run(), INPUT, "--overwrite")
    p.export("--overwrite")
    p.whole()


def interrupted_while_the_source_hangs(p):
    """There is no answer to wait for, and nothing half is left."""
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process = p.start("--fault=delay=60s", "--jobs=3", "--cache=off")
        within(60, lambda: os.path.isdir(p.out) and len(temporary(p.nothing_half())) == 3,
               "three files begun")
        process.send_signal(sig)
        _, said = process.communicate(timeout=30 * TIMEOUT_SCALE)
        # It ends by itself if no thread reads yet.
        check(process.returncode == -sig or
              process.returncode == IO and b"interrupted; 0 of 4 files" in said,
              (process.returncode, said))
        left = p.nothing_half()
        check(not temporary(left) and MANIFEST not in left, left)
    p.export()
    p.whole()


def killed_beside_other_runs(p):
    """Another run in OUTDIR does not remove the record that a killed run resumes from: with
    a manifest of its own, as another share, and at the same time."""
    others = (("--manifest", p.path("b.jsonl"), "2", "3"),
              ("--manifest", p.path("out", "b.jsonl"), "2", "3"), ("--share=1/2",))
    for other in others:
        words = ["--share=0/2"] if other[0] == "--share=1/2" else ["0", "1"]
        process = p.start(*SLOW, *words)
        within(60, lambda: glob.glob(p.path("out", "rank_*", "*.ckpt")), "the first file")
        process.kill()
        process.communicate()
        got = p.run(*other)
        check(got.status == GOOD, repr(got))
        said = p.export(*words)
        check(said["files"]["kept"] >= 1, said)
        p.export("--overwrite")
        shutil.rmtree(p.out)


def two_at_once(p):
    process = p.start(*SLOW)
    within(60, lambda: os.path.isdir(p.out) and temporary(p.nothing_half()), "a file begun")
    refused(p.run(), IO, "another export")
    # With a manifest of its own: it is the same files that cannot be shared.
    refused(p.run("--manifest", p.path("other.jsonl"), "0"), IO, "another export", "rank_0")
    _, err = process.communicate(timeout=120 * TIMEOUT_SCALE)
    check(process.returncode == GOOD, err)
    p.whole()


def shares(p, n, *words):
    """What each run said, all of them started at once."""
    runs = [p.start("--json", *words, f"--share={i}/{n}") for i in range(n)]
    said = []
    for process in runs:
        out, err = process.communicate(timeout=120 * TIMEOUT_SCALE)
        check(process.returncode == GOOD, err)
        said.append(json.loads(out))
    return said


def no_traces(p):
    left = [n for n in os.listdir(p.out) if n.startswith(".")]
    check(not left, left)


def divided_among_several(p):
    """Each file once, by shares of about as many bytes, and one manifest."""
    for n in (1, 2, 3, 6):
        said = shares(p, n)
        written = [s["files"]["written"] for s in said]
        check(sum(written) == 4 and max(written) - min(written) <= 1, written)
        p.whole()
        no_traces(p)
        lines = manifest(os.path.join(p.out, MANIFEST))
        check(lines[-1] == {"end": "reshardfs", "files": 4}, lines[-1])
        check(run("verify", os.path.join(p.out, MANIFEST)).status == GOOD, "verify")
        shutil.rmtree(p.out)


def other_shares_go_on(p):
    """Killed with two, gone on with three, and ended by one alone."""
    runs = [p.start(*SLOW, f"--share={i}/2") for i in range(2)]
    within(60, lambda: os.path.isdir(p.out) and len(temporary(p.nothing_half())) == 2, "two begun")
    refused(p.run("--share=1/2"), IO, "another export")
    for process in runs:
        process.kill()
        process.communicate()
    first = {n: os.stat(os.path.join(p.out, n)).st_ino for n in p.nothing_half()
             if not os.path.basename(n).startswith(".")}
    said = shares(p, 3)[0], p.export()
    check(said[1]["files"] == {"written": 0, "kept": 4, "lost": 0}, said)
    check(all(os.stat(os.path.join(p.out, n)).st_ino == i for n, i in first.items()),
          "written twice")
    p.whole()
    no_traces(p)


def one_share_after_the_other(p):
    for i, files in ((2, 1), (0, 3), (1, 4)):
        p.export(f"--share={i}/3")
        check(manifest(os.path.join(p.out, MANIFEST))[-1]["files"] == files, i)
    p.whole()
    # What another share has lost meanwhile is in no manifest.
    os.unlink(os.path.join(p.out, "rank_3/checkpoint_3.ckpt"))
    shares(p, 2, "0-2")
    p.whole([0, 1, 2])
    check(manifest(os.path.join(p.out, MANIFEST))[-1]["files"] == 3, "rank 3 is gone")


def shares_of_two_conversions(p):
    """The second one to end finds the manifest of the first."""
    process = p.start(*SLOW, "--share=0/2")
    within(60, lambda: os.path.isdir(p.out) and temporary(p.nothing_half()), "a file begun")
    p.export("--share=1/2", "--cast=float16")
    first = manifest(os.path.join(p.out, MANIFEST))
    _, err = process.communicate(timeout=120 * TIMEOUT_SCALE)
    check(process.returncode == INPUT and b"not of this conversion" in err, err)
    check(manifest(os.path.join(p.out, MANIFEST)) == first, "it was replaced")


def manifests_whose_names_begin_alike(p):
    """The record of m.x is not one of m, of which it might be a share."""
    theirs = [p.path(name) for name in (".m.x.part", ".m.0-.part", ".m.-1.part", ".m.0-2.partial",
                                        ".m.0-2.x.part", ".m2.part", ".m.0x1.part")]
    for path in theirs:
        with open(path, "wb"):
            pass
    with open(p.path(".m.1-2.part"), "wb"):
        pass
    p.export("--manifest", p.path("m"))
    check([path for path in theirs if not os.path.exists(path)] == [], "records are removed")
    check(not os.path.exists(p.path(".m.1-2.part")), "the record of a share that ended is left")
    p.export("--manifest", p.path("m.x"), out=p.path("other"))
    check(not os.path.exists(theirs[0]), "its own record is left")


def a_manifest_behind_a_link(p):
    p.export("0")
    path = os.path.join(p.out, MANIFEST)
    os.rename(path, p.path("elsewhere.jsonl"))
    os.symlink(p.path("elsewhere.jsonl"), path)
    check(p.export()["files"]["kept"] == 1, "what the link leads to is not read")
    p.whole()


def other_files_are_there(p):
    path = os.path.join(p.out, "rank_2/checkpoint_2.ckpt")
    os.makedirs(os.path.dirname(path))
    write(path, b"mine")
    write(os.path.join(p.out, "notes"), b"mine too")
    refused(p.run(), INPUT, "rank_2/checkpoint_2.ckpt", "--overwrite")
    check(sorted(hash_tree(p.out)) == ["notes", "rank_2/checkpoint_2.ckpt"], "something is left")
    p.export("0-1")
    p.export("--overwrite")
    os.remove(os.path.join(p.out, "notes"))
    p.whole()
    os.remove(path)
    os.mkdir(path)
    refused(p.run("--overwrite"), INPUT, "rank_2/checkpoint_2.ckpt")


def another_conversion_is_there(p):
    p.export()
    refused(p.run("--cast=float16"), INPUT, MANIFEST, "--overwrite")
    p.whole()
    path = os.path.join(p.source, "rank_0", os.listdir(os.path.join(p.source, "rank_0"))[0])
    os.utime(path, (os.stat(path).st_mtime - 60,) * 2)
    refused(p.run(), INPUT, MANIFEST)
    check(p.export("--overwrite")["files"]["written"] == 4, "the source is another one")
    p.whole()


def some_ranks_of_another_conversion(p):
    """What stays of it would be loaded with the new files."""
    stays = "stay beside the files of this export, and are of another conversion"
    p.export()
    got = p.run("--cast=float16", "--overwrite", "0")
    check(got.status == GOOD, got)
    check(f"{p.out}/rank_1/checkpoint_1.ckpt and 2 other files {stays}: export their ranks, too"
          in got.err, got)
    got = p.run("--cast=float16", "--overwrite", "1-2")
    check(f"{p.out}/rank_3/checkpoint_3.ckpt stays beside the files of this export, and is of "
          "another conversion: export its rank, too" in got.err, got)
    got = p.run("--cast=float16", "--overwrite", "3")
    check(got.status == GOOD and "stay" not in got.err, got)
    for share in ("0/2", "1/2"):
        got = p.run("--overwrite", "--share", share)
        check(got.status == GOOD and "stay" not in got.err, got)
    p.whole()


def fewer_files_than_another_conversion(p):
    one = ("--dst-strategy", "none", "--format", "safetensors")
    words = ("--src-strategy", p.src)
    p.export(*one)
    for more in ((), ("--overwrite",)):
        refused(run("export", p.source, p.out, *words, "--dst-strategy", "none", *more), INPUT,
                MANIFEST if not more else
                f"{p.out}/rank_0/checkpoint_0.safetensors would stay beside the files of this "
                "export, and be loaded with them: it is of another conversion; remove it, or "
                "export to another directory")
    check(hash_tree(p.out).keys() == {MANIFEST, "rank_0/checkpoint_0.safetensors"}, "it wrote")
    shutil.rmtree(p.out)
    p.export()
    refused(run("export", p.source, p.out, *words, "--dst-strategy", "none", "--overwrite"), INPUT,
            f"{p.out}/rank_1/checkpoint_1.ckpt and 2 other files would stay", "they are of another")
    p.whole()
    # A record that a killed run has left tells it, too.
    os.rename(os.path.join(p.out, MANIFEST), os.path.join(p.out, f".{MANIFEST}.part"))
    os.remove(os.path.join(p.out, "rank_0/checkpoint_0.ckpt"))
    refused(run("export", p.source, p.out, *words, "--dst-strategy", "none"), INPUT, "would stay")


def files_of_which_nothing_is_known(p):
    p.export()
    os.remove(os.path.join(p.out, MANIFEST))
    for name in ("notes.txt", "rank_0/log.txt", ".hidden.ckpt"):
        write(os.path.join(p.out, name), b"mine")
    got = run("export", p.source, p.out, "--src-strategy", p.src, "--dst-strategy", "none",
              "--overwrite")
    check(got.status == GOOD and f"warning: {p.out}/rank_" in got.err and
          "/checkpoint_" in got.err and " and 2 other files stay beside the files of this export, "
          "and may be loaded with them: remove them if they are of another checkpoint" in got.err,
          got)
    shutil.rmtree(p.out)
    model = ["--src-strategy", p.src, "--dst-strategy", "none", "--format", "hf"]
    check(run("export", p.source, p.out, *model).status == GOOD, "one file")
    os.remove(os.path.join(p.out, MANIFEST))
    got = run("export", p.source, p.out, *model, "--part-size", "1KB", "--overwrite")
    check(got.status == GOOD and f"warning: {p.out}/model-00001-of-00001.safetensors stays beside the "
          "files of this export, and may be loaded with them: remove it if it is of another checkpoint"
          in got.err, got)


def never_into_the_source(p):
    before = hash_tree(p.source)
    os.symlink(p.source, p.path("link"))
    inside = "is SOURCE or in it"
    for out in (p.source, os.path.join(p.source, "new"), os.path.join(p.source, "rank_0"),
                os.path.join(p.source, "rank_0", "a"), p.path("link"), p.path("link", "x"),
                p.path("expected", "..", "source", "y")):
        refused(p.run(out=out), INPUT, inside)
    refused(p.run("--manifest", os.path.join(p.source, "m")), INPUT, inside)
    os.makedirs(p.out, exist_ok=True)
    os.symlink(os.path.join(p.source, "rank_0"), os.path.join(p.out, "rank_0"))
    got = p.run("--overwrite")
    check(got.status in (INPUT, IO) and "rank_0" in got.err, got)
    check(hash_tree(p.source) == before, "the source is another one")


def a_target_that_is_a_source(p):
    """A link in OUTDIR that is one of SOURCE's own files."""
    name = os.listdir(os.path.join(p.source, "rank_0"))[0]
    os.makedirs(os.path.join(p.out, "rank_0"))
    os.link(os.path.join(p.source, "rank_0", name),
            os.path.join(p.out, "rank_0", "checkpoint_0.ckpt"))
    refused(p.run("--overwrite"), INPUT, "a file of SOURCE")


def not_more_readable(p):
    for rank in range(8):
        for name in os.listdir(os.path.join(p.source, f"rank_{rank}")):
            os.chmod(os.path.join(p.source, f"rank_{rank}", name), 0o644)
    secret = os.path.join(p.source, "rank_0", os.listdir(os.path.join(p.source, "rank_0"))[0])
    os.chmod(secret, 0o640)
    old = os.umask(0)
    try:
        p.export()
    finally:
        os.umask(old)
    with Mounted(p.source, src_strategy=p.src, dst_strategy=p.dst) as m:
        for name in p.expected:
            mine = stat.S_IMODE(os.stat(os.path.join(p.out, name)).st_mode)
            theirs = stat.S_IMODE(os.stat(os.path.join(m.path, name)).st_mode)
            check(mine == theirs, f"{name}: {mine:o}, mounted {theirs:o}")
    modes = {stat.S_IMODE(os.stat(os.path.join(p.out, n)).st_mode) for n in p.expected}
    check(0o440 in modes, modes)
    check(stat.S_IMODE(os.stat(os.path.join(p.out, MANIFEST)).st_mode) == 0o640, "the manifest")


def a_source_that_fails(p):
    got = p.run("--fault=eio@rank_3", "--replicas=off")
    check(got.status == IO and not got.out and "rank_3" in got.err, got)
    check("reshardfs: error: " + os.path.join(p.out, "rank_") in got.err, got)
    left = p.nothing_half()
    check(not temporary(left) and MANIFEST not in left, left)
    p.export()
    p.whole()


def lost_slices(p):
    shutil.rmtree(os.path.join(p.source, "rank_7"))
    got = p.run("-q")
    check(got.status == INPUT and "rank 7" in got.err and not os.path.exists(p.out), got)
    said = p.run("--allow-missing", "--json")
    check(said.status == NO, said)
    files = json.loads(said.out)["files"]
    check(files["lost"] > 0 and files["lost"] + files["written"] == 4, files)
    check(len(p.nothing_half()) == files["written"] + 1, p.nothing_half())


@contextlib.contextmanager
def small_disk(p, options):
    os.makedirs(p.out)
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "reshardfs-test", p.out], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", p.out], check=True)


def too_little_room(p):
    """Known before anything is written."""
    with small_disk(p, "size=16m"):
        got = p.run()
        check(got.status == IO and "bytes are needed, but only" in got.err, got)
        check(p.nothing_half() == [], p.nothing_half())
        check(p.export("0")["files"]["written"] == 1, "one has room")


def files_are_limited(p):
    """With `ulimit -f`, as batch systems set it."""
    with program_is(wrapper(p.directory, "", "ulimit -f 64")):
        got = p.run()
    check(got.status not in (GOOD, NO) and "File too large" in got.err, got)
    check(MANIFEST not in p.nothing_half(), p.nothing_half())
    p.export()
    p.whole()


def the_disk_fills_up(p):
    with small_disk(p, "size=40m"):
        process = p.start(*SLOW)
        within(60, lambda: temporary(p.nothing_half()), "a file begun")
        with contextlib.suppress(OSError), open(os.path.join(p.out, ".filler"), "wb") as f:
            while True:
                f.write(bytes(65536))
        _, err = process.communicate(timeout=120 * TIMEOUT_SCALE)
        check(process.returncode == IO and b"No space left" in err, err)
        left = p.nothing_half()
        check(not temporary(left) and MANIFEST not in left, left)
        os.remove(os.path.join(p.out, ".filler"))
        p.export()
        p.whole()


def a_target_that_cannot_be_written(p):
    with small_disk(p, "ro"):
        refused(p.run(), IO, "Read-only file system")
    refused(p.run(out=p.path("no", "such", "place")), INPUT, "No such file")
    with open(p.path("file"), "wb"):
        pass
    refused(p.run(out=p.path("file")), INPUT, "Not a directory")


def talk(p):
    got = p.run()
    check(got.status == GOOD and "4 files" in got.out and len(got.out.splitlines()) == 1, got)
    shutil.rmtree(p.out)
    got = p.run("-q")
    check(got.status == GOOD and not got.out and not got.err, got)
    shutil.rmtree(p.out)
    leader, follower = pty.openpty()
    process = subprocess.Popen([reshardfs_program(), "export", p.source, p.out, *p.words, *SLOW],
                               stderr=follower, stdout=subprocess.DEVNULL,
                               env={**PLAIN, "TERM": "xterm"})
    os.close(follower)
    bar = b""
    with contextlib.suppress(OSError):
        while more := os.read(leader, 65536):
            bar += more
    os.close(leader)
    check(process.wait() == GOOD and b"exporting [" in bar and b"left" in bar, bar)


def a_derived_strategy(p):
    """Where the destination is no file, another mesh is another conversion."""
    layouts = {"w": Layout([2, 4], [0, -1], 0, 0)}
    src, tree = p.path("dm.ckpt"), p.path("tree")
    write(src, strategy_bytes(StageFile(0, layouts)))
    for rank in range(8):
        os.makedirs(os.path.join(tree, f"rank_{rank}"))
        with open(os.path.join(tree, f"rank_{rank}", "net-1_1.ckpt"), "wb") as f:
            f.write(checkpoint_bytes({"w": Record((4, 2), "Int8", bytes([rank % 4] * 8))}))
    derived = p.path("derived.ckpt")
    check(run("strategy", "derive", src, "--mesh", "dp=2,mp=2", "--checkpoint", tree, "-o",
              derived).status == GOOD, "derive")
    words = ["--src-strategy", src]
    by_mesh, by_file = p.path("by_mesh"), p.path("by_file")
    said = run_json("export", tree, by_mesh, *words, "--dst-mesh=dp=2,mp=2")
    check(said["files"]["written"] == 4, said)
    run_json("export", tree, by_file, *words, "--dst-strategy", derived)
    found, expected = hash_tree(by_mesh), hash_tree(by_file)
    check(found.pop(MANIFEST) and expected.pop(MANIFEST), "no manifest")
    lines = tree_difference(expected, found)
    check(not lines, lines)
    check(manifest(os.path.join(by_mesh, MANIFEST))[0]["dst_strategy"]["xxh3"], "no hash")
    check(run_json("export", tree, by_mesh, *words, "--dst-mesh=dp=2,mp=2")["files"]["kept"] == 4,
          "again")
    refused(run("export", tree, by_mesh, *words, "--dst-mesh=mp=4"), INPUT, MANIFEST, "--overwrite")


def wrong_usage(p):
    refused(run("export"), USAGE, "SOURCE is missing")
    refused(run("export", p.source), USAGE, "OUTDIR is missing")
    refused(run("export", p.source, p.out), USAGE, "--src-strategy is missing")
    refused(run("export", p.source, p.out, "--src-strategy=none"), USAGE, "--dst-strategy")
    refused(p.run("x"), USAGE, "x")
    refused(p.run("--jobs=0"), USAGE, "jobs")
    for share in ("", "1", "2/2", "0/0", "-1/2", "0/2x", "1/ 2", "0/123456"):
        refused(p.run(f"--share={share}"), USAGE, "share")
    refused(p.run("--resume"), USAGE, "--resume")
    refused(run("export", p.path("nowhere"), p.out, *p.words), INPUT, "nowhere")
    check(not os.path.exists(p.out), "OUTDIR was made")


CASES = [the_files_of_the_mount, other_forms, some_ranks_then_others, what_the_manifest_says,
         again_is_quick, damage_is_found_by_verify, killed_and_gone_on, killed_over_and_over,
         interrupted, a_source_that_changes, interrupted_while_the_source_hangs, killed_beside_other_runs, two_at_once,
         divided_among_several, other_shares_go_on,
         one_share_after_the_other, shares_of_two_conversions, manifests_whose_names_begin_alike,
         a_manifest_behind_a_link,
         other_files_are_there, another_conversion_is_there,
         some_ranks_of_another_conversion, fewer_files_than_another_conversion,
         files_of_which_nothing_is_known,
         never_into_the_source, a_target_that_is_a_source, not_more_readable,
         a_source_that_fails, lost_slices, too_little_room, files_are_limited, the_disk_fills_up,
         a_target_that_cannot_be_written, talk, a_derived_strategy, wrong_usage]
NEED_ROOT = [too_little_room, the_disk_fills_up, a_target_that_cannot_be_written]


def run_cases(tap, made):
    for case in CASES:
        name = case.__name__.replace("_", " ")
        if case in NEED_ROOT and os.geteuid() != 0:
            tap.skip(name, "only root may mount a tmpfs")
            continue
        with tempfile.TemporaryDirectory(prefix="reshardfs-export-") as directory, \
                tap.test(name):
            case(Place(directory, made))


def main():
    require_mount()
    tap = Tap(len(CASES))
    with tempfile.TemporaryDirectory(prefix="reshardfs-export-") as made:
        demo_tree(made)
        run_cases(tap, made)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
