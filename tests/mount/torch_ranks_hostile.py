#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile files of ranks of torch: whatever changes in a pickle, an archive or
a metadata.pkl, the program ends in an error or shows what an independent reader finds, in
20 s and 64 MiB more than for what is whole.

    torch_ranks_hostile.py [--seed S] [--cases N]     repeats some
"""

import argparse
import collections
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

from dcp_trees import Called  # noqa: E402
from demands import check, content, write  # noqa: E402
from rank_pickles import Object, TorchFile, dumps, expected, named, unpack  # noqa: E402
from rank_reader import read_ranks  # noqa: E402
from rsh_cli import PLAIN  # noqa: E402
from rsh_mount import SUSPICIOUS, TIMEOUT_SCALE, Tap, require_mount, reshardfs_program  # noqa: E402
from run_seed import half_if_sanitized  # noqa: E402
from shown_model import hashes, model_hashes  # noqa: E402

CASES = expected()
# Small ones of all kinds.
TREES = ("fsdp2-2.4", "fsdp2-2.8", "fsdp2-2.15", "hsdp-2.15", "tp-2.8", "tp-2.15", "hand-2.4",
         "hand-2.8", "hand-2.15", "order-2.15", "flat-2.15", "fsdp1-2.4", "fsdp1-2.15",
         "tc-bare", "tc-pt", "tc-safetensors")
NUMBERS = (0, 1, -1, 2, 3, 255, 65536, 10 ** 9, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32,
           1 << 40, 1 << 60, (1 << 61) + 1, 1 << 62, (1 << 63) - 1, 1 << 63, -(1 << 63), 1 << 64,
           1 << 2000)
SECONDS, MEMORY = 20, 64 << 10
A_TEST = 50


# ---- changes of a value ----

def places(value, seen=None):
    """(container, key) of all that a value consists of, each once."""
    seen = set() if seen is None else seen
    if id(value) in seen or isinstance(value, (int, str, float)):
        return
    seen.add(id(value))
    if isinstance(value, (dict, list)):
        for key, inner in list(value.items() if isinstance(value, dict) else enumerate(value)):
            yield value, key, inner
            yield from places(inner, seen)
    elif isinstance(value, tuple):
        for inner in value:
            yield from places(inner, seen)
    elif isinstance(value, (Object, Called)):
        inner = value.args if isinstance(value, Object) else value.call[1]
        yield value, None, inner
        yield from places(inner, seen)
        if getattr(value, "state", None) is not None:
            yield value, "state", value.state
            yield from places(value.state, seen)


def put(container, key, value):
    if isinstance(container, (dict, list)):
        container[key] = value
    elif key == "state":
        container.state = value
    elif isinstance(container, Object):
        container.args = value
    else:
        container.call = container.call[0], value


def with_number(numbers, value):
    """The value with another number in one place, or None."""
    if isinstance(value, bool) or not isinstance(value, (int, tuple)):
        return None
    if isinstance(value, int):
        return numbers.choice((*NUMBERS, value + 1, value - 1, 2 * value))
    tried = list(range(len(value)))
    numbers.shuffle(tried)
    for at in tried:
        changed = with_number(numbers, value[at])
        if changed is not None:
            return value[:at] + (changed,) + value[at + 1:]
    return None


def changed_number(numbers, file):
    found = list(places(file.value))
    numbers.shuffle(found)
    for container, key, inner in found:
        changed = with_number(numbers, inner)
        if changed is not None:
            put(container, key, changed)
            return


def exchanged(numbers, file):
    """Two members of one type change their places."""
    found = list(places(file.value))
    first = numbers.choice(found)
    others = [f for f in found if type(f[2]) is type(first[2]) and f[2] is not first[2]]
    if others:
        second = numbers.choice(others)
        put(first[0], first[1], second[2])
        put(second[0], second[1], first[2])


def removed(numbers, file):
    found = [f for f in places(file.value) if isinstance(f[0], dict)]
    if found:
        container, key, _ = numbers.choice(found)
        del container[key]


def renamed(numbers, file):
    """A class, a function or a type is another one that the file names, or a stranger."""
    names = [f for f in places(file.value) if isinstance(f[0], Object) and f[1] is None]
    if names:
        numbers.choice(names)[0].cls = numbers.choice((
            numbers.choice(names)[0].cls, named("os", "system"), named("builtins", "dict"),
            named("torch", "Size"), named("torch._utils", "_rebuild_tensor_v2")))


def nothing(numbers, file):
    """A member is another kind of value."""
    container, key, _ = numbers.choice(list(places(file.value)))
    put(container, key, numbers.choice((None, (), {}, [], "x", 1.5, b"x", True, ((),) * 3))
        if isinstance(container, (dict, list)) or key == "state" else ())


# ---- changes of bytes ----

def flipped(numbers, data):
    data = bytearray(data)
    for _ in range(numbers.choice((1, 1, 1, 2, 4))):
        data[numbers.randrange(len(data))] ^= 1 << numbers.randrange(8)
    return bytes(data)


def swapped(numbers, data):
    a, b, c = sorted(numbers.randrange(len(data)) for _ in range(3))
    length = min(b - a, c - b, 40)
    return data[:a] + data[b:b + length] + data[a + length:b] + data[a:a + length] + \
        data[b + length:]


def cut(numbers, data):
    return data[:numbers.randrange(len(data))]


def doubled(numbers, data):
    a, b = sorted(numbers.randrange(len(data)) for _ in range(2))
    return data[:b] + data[a:]


def spoil(numbers, root):
    """What was done to the tree."""
    paths = sorted(os.path.join(at, n) for at, _, names in os.walk(root) for n in names
                   if n.endswith((".pt", ".pkl", ".safetensors")) and "extra" not in n)
    path = numbers.choice([p for p in paths if p.endswith(".pkl")] * 4 or paths)
    name = os.path.relpath(path, root)
    if not path.endswith(".pt") or numbers.random() < 0.12:
        change = numbers.choice((flipped, flipped, cut, swapped))
        write(path, change(numbers, content(path)))
        return f"{name} {change.__name__}"
    file = TorchFile(path)
    change = numbers.choice((changed_number, changed_number, changed_number, exchanged, removed,
                             renamed, nothing, flipped, flipped, swapped, cut, doubled))
    if change in (flipped, swapped, cut, doubled):
        file.write(path, change(numbers, file.pickle()))
    else:
        state = numbers.getstate()
        change(numbers, file)
        try:
            data = dumps(file.value)
        except (RecursionError, AttributeError):    # it holds itself, or has a number as class
            return None
        file.write(path, data)
        if numbers.random() < 0.4:    # all ranks lie alike
            for other in paths:
                if other != path and os.path.basename(other)[:5] == os.path.basename(path)[:5]:
                    numbers.setstate(state)
                    file = TorchFile(other)
                    change(numbers, file)
                    try:
                        file.write(other)
                    except (RecursionError, AttributeError):
                        break
            return f"{name} and others {change.__name__}"
    return f"{name} {change.__name__}"


# ---- the program ----

def ran(*words):
    """(status, what it said, seconds, KiB)"""
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen([reshardfs_program(), *words], stdout=said, stderr=said,
                                   stdin=subprocess.DEVNULL, env=PLAIN)
        started = time.monotonic()
        while True:
            pid, status, used = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.monotonic() - started > SECONDS * TIMEOUT_SCALE:
                process.kill()
                os.waitpid(process.pid, 0)
                process.returncode = -9
                return "no end", "", SECONDS, 0
            time.sleep(0.001)
        process.returncode = os.waitstatus_to_exitcode(status)
        said.seek(0)
        return (process.returncode, said.read().decode("utf-8", "replace"),
                time.monotonic() - started, used.ru_maxrss)


def read_alone(root, name):
    """What the independent reader finds; None: it refuses or cannot."""
    if name in ("tc-pt", "tc-safetensors"):
        return None
    try:
        return hashes(read_ranks(root))
    except Exception:  # whatever is wrong with it
        return None


def one(seed, trees, directory, base):
    """What became of it, or an AssertionError."""
    numbers = random.Random(seed)
    name = numbers.choice(TREES)
    root, out = os.path.join(directory, "source"), os.path.join(directory, "out")
    shutil.copytree(os.path.join(trees, CASES[name]["path"]), root)
    what = spoil(numbers, root)
    if what is None:
        return "not made"
    words = ["--optimizer", "keep"] if numbers.random() < 0.3 else []
    status, said, seconds, memory = ran("export", "--check", "full", *words, root, out)
    what = f"seed {seed}: {name}, {what}: status {status}, {seconds:.1f} s, {memory} KiB\n{said}"
    check(isinstance(status, int) and 0 <= status < 5 and not SUSPICIOUS.search(said), what)
    check(memory < base + MEMORY, what)
    if status:
        check(": error: " in said or said.startswith("reshardfs: "), what)
        return "refused"
    found = {n: v for n, v in model_hashes(out).items() if not n.startswith("optimizer.")}
    if found == CASES[name]["tensors"]:
        return "shown as it was"
    alone = read_alone(root, name)
    different = sorted(n for n in set(found) | set(alone or {})
                       if found.get(n) != (alone or {}).get(n))
    check(alone is not None, f"{what}shown, and the reader refuses it")
    check(not different, f"{what}{different} differ")
    return "shown as it is now"


def hand_made(tap, trees, directory):
    """Files that no change at random would make."""
    def tries(what, make):
        with tap.test(f"refused: {what}"), tempfile.TemporaryDirectory(dir=directory) as own:
            root = os.path.join(own, "source")
            shutil.copytree(os.path.join(trees, "fsdp2-2.15"), root)
            path = os.path.join(root, "model_world_size_2_rank_1.pt")
            make(path)
            status, said, _, memory = ran("plan", root)
            check(isinstance(status, int) and 0 < status < 5 and memory < 2 * MEMORY, said)

    def with_pickle(data):
        return lambda path: TorchFile(path).write(path, data)

    deep = b"\x80\x02" + b"]" * 100000 + b"a" * 99999 + b"."
    shared = b"\x80\x02]q\x00" + b"".join(
        b"(h" + bytes([i]) + b"h" + bytes([i]) + b"lq" + bytes([i + 1]) for i in range(60)) + b"."
    nested = {"x": ()}
    for _ in range(60):
        nested = {"a": nested, "b": nested}
    for what, data in (("lists in lists", deep), ("LIST, which torch never writes", shared),
                       ("2^60 names", dumps(nested)), ("an empty pickle", b""),
                       ("a stack without values", b"\x80\x02R."),
                       ("a memo of 2^32", b"\x80\x02}r\xff\xff\xff\xff."),
                       ("a text of 2^32 bytes", b"\x80\x02X\xff\xff\xff\xffab."),
                       ("INST", b"\x80\x02(cos\nsystem\nios\nsystem\n."),
                       ("OBJ", b"\x80\x02(cos\nsystem\no."), ("EXT1", b"\x80\x02\x82\x01.")):
        tries(what, with_pickle(data))
    for what, make in (("an empty file", lambda p: write(p, b"")),
                       ("a directory", lambda p: (os.unlink(p), os.mkdir(p))),
                       ("a link to itself", lambda p: (os.unlink(p), os.symlink(p, p)))):
        tries(what, make)


def main():
    require_mount()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=400)
    words = parser.parse_args()
    tap, kinds = Tap(), collections.Counter()
    with tempfile.TemporaryDirectory() as directory:
        trees = unpack(os.path.join(directory, "trees"))
        hand_made(tap, trees, directory)
        base = ran("export", os.path.join(trees, "fsdp2-2.15"), os.path.join(directory, "x"))[3]
        for begin in range(words.seed, words.seed + words.cases, A_TEST):
            seeds = range(begin, min(begin + A_TEST, words.seed + words.cases))
            wrong = []
            for seed in half_if_sanitized(seeds):
                with tempfile.TemporaryDirectory(dir=directory) as own:
                    try:
                        kinds[one(seed, trees, own, base)] += 1
                    except AssertionError as error:
                        wrong.append(str(error))
                    except Exception:  # of the test itself
                        wrong.append(f"seed {seed}: {traceback.format_exc()}")
            tap.ok(not wrong, f"changes {seeds[0]} to {seeds[-1]}", "\n".join(wrong))
        tap.diag(f"{dict(kinds)}")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
