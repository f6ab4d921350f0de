#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python module: what it reads, with a mount and without."""

import gc
import inspect
import json
import logging
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
TOP = os.environ.get("top_srcdir", os.path.join(os.environ.get("srcdir", "."), ".."))
sys.path[:0] = [LIB, os.path.join(TOP, "python")]

from demands import check, within  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from rsh_cli import PLAIN, demo_tree, run  # noqa: E402
from rsh_mount import Skipped, Tap, require_mount, reshardfs_program  # noqa: E402

os.environ["XDG_CACHE_HOME"] = PLAIN["XDG_CACHE_HOME"]
os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                        "libreshard.so.0")
import reshardfs  # noqa: E402
from reshardfs._options import OPTIONS, Options, _types, spoken  # noqa: E402

MODULE = os.path.abspath(os.path.join(TOP, "python"))


def content(*parts):
    with open(os.path.join(*parts), "rb") as f:
        return f.read()


def refused(word, function, *arguments, kind=reshardfs.Error, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        check(word in str(error) and "\n" not in str(error), error)
        return error
    raise AssertionError(f"no {kind.__name__} with {word}")


def mount_points():
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape",
              newline="\n") as f:
        return [line.split(" ")[1] for line in f if "reshardfs-" in line]


# It mounts in a thread that ends, with a file open, and waits to be killed.
HOLDS = """
import json, sys, threading, time
import reshardfs
mount = reshardfs.mounted(sys.argv[1], **json.loads(sys.argv[2]))
thread = threading.Thread(target=mount.__enter__)
thread.start()
thread.join()
file = open(mount.rank(0), "rb")
print(mount.path, flush=True)
time.sleep(3600)
"""


def killed_python(t):
    with subprocess.Popen([sys.executable, "-c", HOLDS, t.source, json.dumps(t.both)],
                          stdout=subprocess.PIPE, text=True,
                          env={**os.environ,
                               "PYTHONPATH": MODULE}) as python:
        path = python.stdout.readline().strip()
        check(path, "it does not mount")
        time.sleep(1)
        check(path in mount_points(), "it is gone with the thread")
        check(os.listdir(path), "it does not answer")
        python.kill()
    within(20, lambda: path not in mount_points(), f"{path} is still mounted")
    os.rmdir(path)


def gone(path):
    check(not os.path.exists(path), f"{path} is still there")
    check(path not in mount_points(), f"{path} is still mounted")


def mount(source, **options):
    with reshardfs.mounted(source, **options):
        pass


def public_functions(of):
    """A function, or the methods of a class that have no "_" before their names."""
    if inspect.isfunction(of):
        return [of]
    return [one for name, one in vars(of).items()
            if inspect.isfunction(one) and (not name.startswith("_") or name == "__init__"
                                            and "options" in inspect.signature(one).parameters)
            ] if inspect.isclass(of) else []


def test_options(tap, t, ways):
    """What they take is what the program says, and what is said of them is Python."""
    said = subprocess.run([reshardfs_program(), "mount", "--help-all"], check=True,
                          stdout=subprocess.PIPE, encoding="utf-8").stdout
    listed = re.findall(r"^  (?:-., |    )?--([a-z-]+)(?: (\S+))?(?: |$)", said, re.M)
    listed += re.findall(r"^  -o ([a-z_]+)(?:=(\S+))?(?: |$)", said, re.M)
    with tap.test("options: those of mount --help-all"):
        wanted = {name.replace("-", "_"): value for name, value in listed
                  if name not in ("help", "help-all", "version")}
        check(wanted == OPTIONS, set(wanted.items()) ^ set(OPTIONS.items()))
    with tap.test("the version is the program's"):
        check(run("--version").out.split()[1] == reshardfs.__version__, reshardfs.__version__)
    with tap.test("options: editors and checkers know each, and its type"):
        kinds = {(bool,): "Flag", (str,): "Text", (int, str): "Number",
                 (str, os.PathLike): "Place"}
        known = {name.rstrip("_"): value.__forward_arg__
                 for name, value in Options.__annotations__.items()}
        check(known == {name: kinds[_types(name)] for name in OPTIONS}, known)
        for name in reshardfs.__all__:
            for function in public_functions(getattr(reshardfs, name)):
                named = inspect.signature(function).parameters.get("options")
                check(named is None or named.annotation == "Unpack[Options]", function)
                check(function.__name__ == "__init__" or
                      0 < len((function.__doc__ or "").splitlines()) <= 10, function)
    with tap.test("options: a type that one does not take"):
        for name, value, words in (
                ("src_strategy", 3, "str or os.PathLike (PATH|none), not int: 3"),
                ("allow_missing", "yes", "bool, not str: 'yes'"),
                ("replicas", False, "str (auto|off), not bool: False"),
                ("dst_ranks", True, "int or str (N), not bool: True"),
                ("from_", 1, "str (hf|mindspore), not int: 1"),
                ("only", ["a", b"b"], "str (REGEX), not bytes: b'b'")):
            options = {**t.both, name: value}
            refused(f"{name} takes {words}", reshardfs.files, t.source, kind=TypeError,
                    **options)
            refused(f"{name} takes {words}", reshardfs.mounted, t.source, kind=TypeError,
                    **options)
    with tap.test("options: sentences have keywords"):
        for options, sentence in (
                ({}, 'src_strategy is missing ("none" if'),
                ({"src_strategy": "none"}, "dst_strategy is missing"),
                ({"src_stratgey": "none"},
                 "unknown option src_stratgey (did you mean src_strategy?)"),
                ({**t.both, "dst_ranks": 0}, 'dst_ranks: "0" is not a number'),
                ({**t.both, "format": "hf"}, 'format="hf" shows one whole model, of which each rank loads its part: '
                 'leave out dst_strategy and dst_mesh'),
                ({**t.both, "from_": "hf"}, "from_ needs convert")):
            for way in ways:
                error = refused(sentence, way, t.source, **options)
                check("--" not in str(error) and "-o " not in str(error), error)
        for raw, sentence in (
                ("use --select name=GLOB or --select mtime",
                 'use select="name=GLOB" or select="mtime"'),
                ("--allow-missing does not go", "allow_missing=True does not go"),
                ('--only "x" fits no', 'only="x" fits no'),
                ("/a--only b: --no-such c", "/a--only b: --no-such c")):
            check(spoken(raw) == sentence, spoken(raw))


class Trees:
    def __init__(self, directory):
        self.directory = directory
        self.source, self.src, self.dst = demo_tree(directory)
        self.both = {"src_strategy": self.src, "dst_strategy": self.dst}

    def expected(self, rank):
        return content(self.directory, f"expected/rank_{rank}/checkpoint_{rank}.ckpt")


def test_mount(tap, t):
    with tap.test("mounted: the files of the ranks"):
        with reshardfs.mounted(t.source, **t.both) as m:
            where = m.path
            for rank in range(4):
                check(content(m.rank(rank)) == t.expected(rank), f"rank {rank} differs")
            refused("rank_4", m.rank, 4)
        gone(where)
        refused("nothing is mounted", m.rank, 0, kind=ValueError)
    with tap.test("mounted: a path object, a comma, a flag, a relative source"):
        odd = pathlib.Path(t.directory, "a,b\\c")
        odd.mkdir()
        strategy = odd / "s.ckpt"
        strategy.write_bytes(content(t.src))
        os.chdir(t.directory)
        with reshardfs.mounted("source", src_strategy=strategy, dst_strategy=t.dst,
                               allow_missing=True, compat=None, prefix="p,") as m:
            check(m.rank(1).endswith("/rank_1/p,1.ckpt"), m.rank(1))
    with tap.test("mounted: repr, and a rank as environments have it"):
        m = reshardfs.mounted(t.source, **t.both)
        with m:
            check(m.rank("1") == m.rank(1), m.rank("1"))
            check(repr(m).startswith(f"<reshardfs.Mount of {os.path.abspath(t.source)!r}, ") and
                  repr(m).endswith(f": mounted at {m.path}>"), m)
        check(repr(m).endswith(": closed>"), m)
    with tap.test("mounted: gone after an exception, which is passed on"):
        try:
            with reshardfs.mounted(t.source, **t.both) as m:
                where = m.path
                raise KeyError("mine")
        except KeyError:
            gone(where)
        else:
            raise AssertionError("the exception is lost")
    with tap.test("mounted: gone although a file is open"):
        with reshardfs.mounted(t.source, **t.both) as m:
            where = m.path
            f = open(m.rank(0), "rb")
        with f:
            gone(where)
            check(f.read() == t.expected(0), "the open file cannot be read")
    with tap.test("mounted: gone after SIGKILL, and not with the thread that mounted"):
        killed_python(t)
    with tap.test("mounted: the sentence of a refusal, nothing left"):
        tempfile.tempdir = os.path.join(t.directory, "temporary")
        os.mkdir(tempfile.tempdir)
        error = refused("nothing_such", reshardfs.mounted(
            t.source, nothing_such=True, **t.both).__enter__)
        check(error.errno is None, error)
        refused("absent", reshardfs.mounted(t.directory + "/absent", **t.both).__enter__)
        check(os.listdir(tempfile.tempdir) == [], os.listdir(tempfile.tempdir))
        tempfile.tempdir = None
    with tap.test("mounted: resume gives the newest"):
        with reshardfs.mounted(t.source, resume=True) as m:
            check(content(m.rank(5)) == content(t.source, "rank_5/net_rank_5-3_40.ckpt"),
                  "another file")
    with tap.test("mounted: what was chosen is logged"):
        said = []
        handler = logging.Handler()
        handler.emit = lambda record: said.append(record.getMessage())
        logger = logging.getLogger("reshardfs")
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        with reshardfs.mounted(t.source, log_level="info", **t.both):
            pass
        logger.removeHandler(handler)
        check(any(": 4 files, " in line for line in said), said)


def closed_while_read(t):
    s = reshardfs.Source(t.source, **t.both)
    reads = (lambda: check(s.read(1) == t.expected(1), "bytes"), s.files,
             lambda: check(len(s.records(2)) > 5, "records"),
             lambda: check(s.readinto(3, bytearray(999), 7) == 999, "readinto"),
             lambda: check(bool(s.read(0, 5, 9)), "a range"))
    wrong, begun = [], threading.Semaphore(0)

    def loop(read):
        try:
            while True:
                read()
                begun.release()
        except ValueError as error:
            if "closed" not in str(error):
                wrong.append(error)
        except BaseException as error:  # pylint: disable=broad-except
            wrong.append(error)

    threads = [threading.Thread(target=loop, args=(read,)) for read in reads]
    for thread in threads:
        thread.start()
    for _ in threads:
        begun.acquire()
    s.close()
    for thread in threads:
        thread.join()
    check(not wrong, wrong)


def forked_while_read(t):
    """No lock that a thread of the parent has may stop a child."""
    stop = threading.Event()
    s = reshardfs.Source(t.source, **t.both)

    def loop():
        while not stop.is_set():
            s.read(1, 100, 5000)
            reshardfs.files(t.source, **t.both)

    threads = [threading.Thread(target=loop) for _ in range(3)]
    for thread in threads:
        thread.start()
    ends = []
    for _ in range(30):
        pid = os.fork()
        if pid == 0:
            signal.alarm(60)
            good = False
            try:
                refused("before a fork", s.read, 1)
                with reshardfs.Source(t.source, **t.both) as own:
                    good = own.read(2) == t.expected(2)
            finally:
                os._exit(0 if good else 1)
        ends.append(os.waitpid(pid, 0)[1])
    stop.set()
    for thread in threads:
        thread.join()
    s.close()
    check(not any(ends), ends)


def test_library(tap, t):
    with tap.test("files"):
        found = reshardfs.files(t.source, **t.both)
        check(found == [(r, f"rank_{r}/checkpoint_{r}.ckpt", len(t.expected(r)))
                        for r in range(4)], found)
    with tap.test("read: all, a range, beyond the end"):
        check(reshardfs.read(t.source, 2, **t.both) == t.expected(2), "all of it")
        check(reshardfs.read(t.source, 2, 1000, 70000, **t.both) ==
              t.expected(2)[1000:71000], "a range")
        with reshardfs.Source(t.source, **t.both) as s:
            size = len(t.expected(0))
            check(s.read(0, size - 5, 100) == t.expected(0)[-5:], "the end")
            check(s.read(0, size) == b"" == s.read(0, 2**63, 7) == s.read(0, 0, 0), "nothing")
            buffer = memoryview(bytearray(100))
            check(s.readinto(0, buffer[10:], 50) == 90, "readinto")
            check(buffer[10:] == t.expected(0)[50:140] and not any(buffer[:10]), "its place")
    with tap.test("read: nothing is left to the garbage collector"):
        with reshardfs.Source(t.source, **t.both) as s:
            s.read(0)
            gc.collect()
            gc.disable()
            for n in range(1, 200):
                s.read(0, n, n)
            left = gc.collect()
            gc.enable()
            check(left < 200, f"{left} objects")
    with tap.test("records"):
        with reshardfs.Source(t.source, **t.both) as s:
            found = s.records(3)
        path = os.path.join(t.directory, "expected/rank_3/checkpoint_3.ckpt")
        expected = [(name, r.dtype, tuple(r.dims), len(r.content))
                    for name, r in read_checkpoint(path).items()]
        check([tuple(r[:4]) for r in found] == expected, found)
        check(found == reshardfs.records(t.source, 3, **t.both), "the function")
        last = found[-1]
        check(last.offset + last.stored == len(t.expected(3)), last)
    with tap.test("a model in parts"):
        found = reshardfs.files(t.source, src_strategy=t.src, dst_strategy="none", format="hf",
                                part_size="3MB")
        check(found[-1][:2] == (None, "model.safetensors.index.json"), found)
    with tap.test("an option that is given twice"):
        options = {"src_strategy": "none", "dst_strategy": "none"}
        error = refused("only", reshardfs.files, t.source, **options, only=["("])
        check(error.errno == 22, error)
        refused("(both_ways", reshardfs.files, t.source, **options, only=["up", "(both_ways"])
        for given in {"drop": ["up", "down"]}, {"rename": [t.src, t.dst]}:
            refused("is given twice", reshardfs.files, t.source, **{**options, **given})
    with tap.test("a rank as environments have it"):
        with reshardfs.Source(t.source, **t.both) as s:
            buffer = bytearray(9)
            check(s.read("2") == t.expected(2) and s.records("3") == s.records(3) and
                  s.readinto("1", buffer) == 9 and buffer == t.expected(1)[:9], "Source")
            for odd in "", "-1", "1.0", "two", " 1", None, 1.0:
                refused("not the number", s.read, odd, kind=TypeError)
        check(reshardfs.records(t.source, "1", **t.both) ==
              reshardfs.records(t.source, 1, **t.both), "records")
        check(reshardfs.read(t.source, "1", length=9, **t.both) == buffer, "read")
    with tap.test("repr: what is open, with which options"):
        s = reshardfs.Source(t.source, from_=None, **t.both)
        check(repr(s) == f"<reshardfs.Source of {t.source!r}, src_strategy={t.src!r}, "
              f"dst_strategy={t.dst!r}: 4 files>", s)
        s.close()
        check(repr(s).endswith(": closed>"), s)
        for address in ("https://user:SECRET@host/d@1?X-Amz-Signature=SECRET#SECRET",
                        "https://SECRET@host/d@1#SECRET"):
            s._opened = address, {}
            check(repr(s) == "<reshardfs.Source of 'https://host/d@1': closed>", s)
    with tap.test("arrays without numpy: what installs it"):
        program = ("import sys; sys.modules['numpy'] = None; import reshardfs\n"
                   f"s = reshardfs.Source({t.source!r}, **{t.both!r})\n"
                   "try: s.load_bytes(0)\n"
                   "except ModuleNotFoundError as error: print(error)")
        said = subprocess.run([sys.executable, "-c", program], check=True, encoding="utf-8",
                              stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": MODULE})
        check(said.stdout == "arrays need numpy: pip install reshardfs[arrays]\n", said)
    with tap.test("threads"):
        wrong = []

        def reader(s, rank):
            if s.read(rank) != t.expected(rank):
                wrong.append(rank)

        with reshardfs.Source(t.source, **t.both) as s:
            threads = [threading.Thread(target=reader, args=(s, i % 4)) for i in range(12)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        check(not wrong, wrong)
    with tap.test("close while threads read: right bytes, or that it is closed"):
        for _ in range(60):
            closed_while_read(t)
    with tap.test("children of forks read while threads of the parent do"):
        forked_while_read(t)
    with tap.test("errors"):
        check(refused("absent", reshardfs.files, "absent", **t.both).errno == 2, "errno")
        refused("allow_other", reshardfs.files, t.source, allow_other=True, **t.both)
        refused("dst_strategy", reshardfs.files, t.source, src_strategy=t.src)
        s = reshardfs.Source(t.source, **t.both)
        refused("no file 4", s.read, 4)
        refused("no file 4", s.records, 4)
        refused("negative", s.read, 0, -1, kind=ValueError)
        refused("not the number", s.read, -1, kind=ValueError)
        refused("not the number", s.read, 2**32, kind=ValueError)
        s.close()
        s.close()
        refused("closed", s.read, 0, kind=ValueError)


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-python-") as work:
        t = Trees(work)
        test_mount(tap, t)
        sanitized = "sanitize" in os.environ.get("SANITIZER_FLAGS", "")
        test_options(tap, t, [mount] if sanitized else [mount, reshardfs.files])
        if sanitized:
            with tap.test("without a mount"):
                raise Skipped("Python does not load what a sanitizer is built into")
        else:
            test_library(tap, t)
        os.chdir("/")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
