#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The index cache: the next mount reads no header, and whatever happens to the
cache or to the files, no mount shows a wrong byte or fails for it.

What a mount reads is seen from outside, in /proc/PID/io, and in its log.
"""

import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

from demands import check, content, settle, write  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes)
from rsh_mount import (Mounted, Tap, expect_failure, hash_tree, require_mount,  # noqa: E402
                       tree_difference)
from safetensors_format import safetensors_bytes  # noqa: E402
from small_job import Job, refuses  # noqa: E402

RANKS = 8
LOST = "is not used"


class Bench:
    """A small job, and mounts of it that use a cache directory."""

    def __init__(self, directory, name, crc=False):
        self.job = Job(os.path.join(directory, name))
        self.files = self.job.save(1, 10, crc=crc)
        self.cache = os.path.join(directory, name + ".cache")
        self.expected = self.job.expected(1, 10)

    def mounted(self, *extra, cache=True, **words):
        options = ["--log-level", "info", *extra]
        if cache:
            options += ["--index-cache", self.cache]
        return Mounted(self.job.source, src_strategy=self.job.strategy,
                       dst_strategy=self.job.strategy, extra=options, **words)

    def check(self, mount, read, expected=None):
        found = hash_tree(mount.path)
        different = tree_difference(expected or self.expected, found)
        check(not different, "\n".join(different) + "\n" + mount.log())
        says = re.search(r"(\d+) files indexed, (\d+) of them read", mount.log())
        check(says and int(says[2]) == read, f"{read} files should have been read:\n{mount.log()}")

    def mount(self, read, *extra, expected=None, **words):
        """Mount once, with `read` files to be read; `kept` is the log.  When
        the mount has ended the cache is written."""
        with self.mounted(*extra, **words) as mount:
            self.check(mount, read, expected)
            mount.kept = mount.log()
        return mount

    def store(self):
        names = [n for n in os.listdir(self.cache) if n.endswith(".idx")]
        check(len(names) == 1, f"{len(names)} files in the cache: {names}")
        return os.path.join(self.cache, names[0])


def bytes_read(mount):
    return int(re.search(r"rchar: (\d+)", content(f"/proc/{mount.process.pid}/io").decode())[1])


def test_big(tap, directory):
    """Records that lie apart, as in the trees of large jobs."""
    big = os.path.join(directory, "big")
    subprocess.run([sys.executable, os.path.join(HERE, "bench", "make_big_tree.py"),
                    "--ranks", str(RANKS), "--stages", "2", "--parameters", "60",
                    "--hidden", "512", big], check=True)
    settle(big)
    cache = os.path.join(directory, "big.cache")
    read, sizes = [], []
    for _ in range(2):
        with Mounted(f"{big}/source", src_strategy=f"{big}/source_strategys",
                     dst_strategy=f"{big}/wanted_strategys",
                     extra=["--index-cache", cache]) as mount:
            read.append(bytes_read(mount))
            sizes.append(sorted(os.stat(os.path.join(root, name)).st_size
                                for root, _, names in os.walk(mount.path)
                                for name in names))
    tap.ok(read[0] - read[1] > RANKS * 60 * 512 // 2,
           "the second mount does not read what the first one did",
           f"bytes read: {read}")
    tap.equal(sizes[1], sizes[0], "files of the same sizes")


def test_simple(tap, bench):
    with tap.test("the first mount reads every file"):
        bench.mount(RANKS)
    with tap.test("the directory is the user's alone"):
        modes = [os.stat(p).st_mode & 0o777 for p in (bench.cache, bench.store())]
        assert modes == [0o700, 0o600], modes
    with tap.test("the second one none"):
        bench.mount(0)
    with tap.test("with --index-cache off all are read"):
        bench.mount(RANKS, "--index-cache", "off", cache=False)
    with tap.test("a mount that was not asked uses the directory of the user"):
        home = bench.cache + ".home"
        os.mkdir(home)
        env = {"HOME": home, "XDG_CACHE_HOME": ""}
        bench.mount(RANKS, cache=False, env=env)
        assert os.listdir(f"{home}/.cache/reshardfs/index")
        bench.mount(0, cache=False, env=env)
        env = {"HOME": "/nowhere", "XDG_CACHE_HOME": f"{home}/xdg"}
        bench.mount(RANKS, cache=False, env=env)
        assert os.listdir(f"{home}/xdg/reshardfs/index")


def test_changed_file(tap, bench):
    """Another file of the same size in the same place with the same mtime."""
    path = bench.files[3]
    before = os.stat(path)
    records = bench.job.records(3, 1, 10)
    listed = list(bench.job.layouts)
    # Records that no layout lists come last in any case.
    names = listed[::-1] + [name for name in records if name not in listed]
    data = checkpoint_bytes({name: records[name] for name in names})
    os.chmod(path, 0o600)
    with open(path, "r+b") as f:
        f.write(data)
    bench.expected["rank_3/checkpoint_3.ckpt"] = (
        len(data), hashlib.sha256(data).hexdigest())
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = os.stat(path)
    same = all(getattr(before, a) == getattr(after, a)
               for a in ("st_ino", "st_size", "st_mtime_ns"))
    settle(bench.job.source)
    with tap.test("a file that changed and hides it is read again"):
        assert same
        bench.mount(1)
    with tap.test("and stored again"):
        bench.mount(0)
    with tap.test("a file that was replaced as well"):
        os.rename(path, path + ".old")
        shutil.copyfile(path + ".old", path)
        os.remove(path + ".old")
        settle(bench.job.source)
        bench.mount(1)
        bench.mount(0)


def test_recent_file(tap, bench):
    future = time.time() + 1000
    os.utime(bench.files[5], (future, future))
    settle(bench.job.source)
    with tap.test("a file whose time cannot be trusted is never stored"):
        bench.mount(RANKS)
        bench.mount(1)


def test_size(tap, bench):
    with tap.test("the cache is packed: it takes less than what it says"):
        data = content(bench.store())
        whole = struct.unpack_from("<Q", data, 8)[0]
        assert len(data) < 0.7 * whole, (len(data), whole)


def test_damage(tap, bench):
    store = bench.store()
    good = content(store)

    def flipped(at):
        return good[:at] + bytes([good[at] ^ 4]) + good[at + 1:]

    damages = {
        "empty": b"", "of ten bytes": good[:10], "cut in half": good[:len(good) // 2],
        "cut at the end": good[:-1], "too long": good + b"\0",
        "foreign": os.urandom(len(good)), "a text": b"hello\n" * 100,
        "of another version": good[:7] + b"\x4d" + good[8:],
        "too large": good[:8] + struct.pack("<Q", 1 << 40) + good[16:],
        "with a bad head": flipped(20), "with a bad table": flipped(60),
        "with a bad index": flipped(len(good) - 50),
    }
    for name, data in damages.items():
        with tap.test(f"a cache that is {name}"):
            write(store, data)
            mount = bench.mount(RANKS)
            lines = [line for line in mount.kept.splitlines() if LOST in line]
            assert len(lines) == 1 and ": info: " in lines[0], mount.kept
            bench.mount(0)


def test_no_place(tap, bench):
    with tap.test("no home to write to is no matter"):
        mount = bench.mount(RANKS, cache=False,
                            env={"HOME": "/proc", "XDG_CACHE_HOME": ""})
        assert "warning" not in mount.kept, mount.kept
        bench.mount(RANKS, cache=False, env={"HOME": "", "XDG_CACHE_HOME": ""})
    with tap.test("a home that does not exist is not made, which one line says"):
        home = bench.cache + ".absent"
        mount = bench.mount(RANKS, cache=False, env={"HOME": home, "XDG_CACHE_HOME": ""})
        lines = [line for line in mount.kept.splitlines() if "no index cache" in line]
        assert len(lines) == 1 and f": info: {home}/" in lines[0], mount.kept
        assert not os.path.exists(home)
    with tap.test("a directory that was asked for and cannot be made"):
        mount = bench.mount(RANKS, "--index-cache", "/proc/index", cache=False)
        assert "warning: /proc/index: no index cache: " in mount.kept, mount.kept
    with tap.test("a directory that others can write to"):
        open_to_all = bench.cache + ".open"
        os.mkdir(open_to_all)
        os.chmod(open_to_all, 0o777)
        mount = bench.mount(RANKS, "--index-cache", open_to_all, cache=False)
        assert "can write to it" in mount.kept, mount.kept
        assert not os.listdir(open_to_all)
    with tap.test("a directory that is a link"):
        link = bench.cache + ".link"
        os.symlink(bench.cache, link)
        mount = bench.mount(RANKS, "--index-cache", link, cache=False)
        assert "no index cache" in mount.kept, mount.kept
    with tap.test("a link in place of the file is not followed, but replaced"):
        store = bench.store()
        victim = bench.cache + ".victim"
        os.rename(store, victim)
        os.symlink(victim, store)
        before = os.stat(victim)
        bench.mount(RANKS)
        after = os.stat(victim)
        assert (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size)
        assert not os.path.islink(bench.store())
        bench.mount(0)


def test_two_at_once(tap, bench):
    with tap.test("two mounts at once"):
        for _ in range(3):
            shutil.rmtree(bench.cache, ignore_errors=True)
            with bench.mounted() as one, bench.mounted() as two:
                bench.check(one, RANKS)
                assert hash_tree(two.path) == bench.expected
            bench.mount(0)
            assert [n for n in os.listdir(bench.cache) if "tmp" in n] == []


def test_verdict(tap, bench):
    """A sample of the contents is compared once a step."""
    known, compared = "an earlier check found", "were read, fit the strategy"
    with tap.test("what was found right is not compared again"):
        assert known in bench.mount(0).kept
        assert compared in bench.mount(RANKS, "--index-cache", "off", cache=False).kept
    with tap.test("but with another strategy"):
        job, right = bench.job, bench.job.strategy
        job.strategy += ".wrong.ckpt"
        layouts = {name: Layout([4, 2], layout.tensor_map)
                   for name, layout in job.layouts.items()}
        write(job.strategy, strategy_bytes(StageFile(0, layouts)))
        for _ in range(2):
            refuses(job, "--index-cache", bench.cache,
                    words=["is not the strategy of this tree", "ranks 0 and 2",
                           "mesh [2,4] cut over axis 1 would explain it"])
        job.strategy = right
    with tap.test("and when a file changed"):
        data = content(bench.files[3])
        write(bench.files[3], data)
        settle(bench.job.source)
        assert compared in bench.mount(1).kept
        assert known in bench.mount(0).kept


def test_steps(tap, bench):
    """Another step, and the first one again: each has a file of its own."""
    bench.job.save(1, 20)
    settle(bench.job.source)
    with tap.test("another step beside the first"):
        bench.mount(0, "--select", "1_10")
        bench.mount(RANKS, expected=bench.job.expected(1, 20))
        bench.mount(0, "--select", "1_10")
        bench.mount(0, expected=bench.job.expected(1, 20))
        names = [n for n in os.listdir(bench.cache) if n.endswith(".idx")]
        assert len(names) == 2, names


def test_bounds(tap, bench):
    bench.mount(0)
    own = bench.store()
    names = {"0000000000000001.idx": 100, "0000000000000002.idx": 90,
             "0000000000000003.idx": 80, "keep.idx": 200,
             "0000000000000004.idx.0000000000000001.tmp": 7200,
             "0000000000000004.idx.0000000000000002.tmp": 60}
    now = time.time()
    for name, age in names.items():
        path = os.path.join(bench.cache, name)
        with open(path, "wb") as f:
            f.truncate(0 if "tmp" in name else 25 << 20)
        os.utime(path, (now - age, now - age))
    os.remove(own)
    with tap.test("what was not used for the longest time goes, and nothing else"):
        bench.mount(RANKS)
        left = {name for name in os.listdir(bench.cache)
                if not name.endswith(".right")} - {os.path.basename(own)}
        assert left == set(names) - {"0000000000000001.idx",
                                     "0000000000000004.idx.0000000000000001.tmp"}, left


def test_checksums(tap, directory):
    bench = Bench(directory, "checked", crc=True)
    path = bench.files[2]
    os.chmod(path, 0o600)
    with open(path, "r+b") as f:
        data = f.read()
        at = data.index(b"norm.gamma") + 50  # within its content
        f.seek(at)
        f.write(bytes([data[at] ^ 1]))
    settle(bench.job.source)
    with tap.test("--check full reads what is stored, and its content"):
        # The damage shows in what its replicas hold as well.
        with bench.mounted("--select", "1_10", "--check", "structure"):
            pass
        mount = bench.mount(RANKS, "--check", "full", "--select", "1_10")
        assert re.search(r"rank_2/\S+: .*the file is left out", mount.kept), mount.kept


def test_safetensors(tap, directory):
    source = os.path.join(directory, "hf")
    os.makedirs(source)
    content = os.urandom(64)
    write(f"{source}/model.safetensors", safetensors_bytes({"w": ("U8", (8, 8), content),
                                                            "v": ("F32", (2,), bytes(8))}))
    settle(source)
    with tap.test("safetensors, and a model in parts"):
        trees = []
        for read in (1, 0):
            with Mounted(source, extra=["--format", "ckpt", "--log-level", "info",
                                        "--index-cache", source + ".cache"]) as mount:
                trees.append(hash_tree(mount.path))
                assert f"1 files indexed, {read} of them read" in mount.log(), mount.log()
        assert trees[0] == trees[1]
        expected = checkpoint_bytes({"w": Record((8, 8), "UInt8", content),
                                     "v": Record((2,), "Float32", bytes(8))})
        assert trees[0]["rank_0/checkpoint_0.ckpt"][0] == len(expected), trees


def test_broken_source(tap, directory):
    bench = Bench(directory, "broken")
    settle(bench.job.source)
    bench.mount(RANKS)
    for path in bench.files.values():
        os.chmod(path, 0o600)
        os.truncate(path, 100)
    with tap.test("files that were cut are refused, whatever is stored"):
        status, said = expect_failure(
            bench.job.source, src_strategy=bench.job.strategy,
            dst_strategy=bench.job.strategy, extra=["--index-cache", bench.cache])
        assert status == 3 and "truncated" in said, said


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-index-") as directory:
        bench = Bench(directory, "job")
        test_big(tap, directory)
        settle(bench.job.source)
        test_simple(tap, bench)
        test_verdict(tap, bench)
        test_size(tap, bench)
        test_damage(tap, bench)
        test_no_place(tap, bench)
        test_two_at_once(tap, bench)
        test_bounds(tap, bench)
        shutil.rmtree(bench.cache)
        bench.mount(RANKS)
        test_changed_file(tap, bench)
        test_steps(tap, bench)
        recent = Bench(directory, "recent")
        test_recent_file(tap, recent)
        test_checksums(tap, directory)
        test_safetensors(tap, directory)
        test_broken_source(tap, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
