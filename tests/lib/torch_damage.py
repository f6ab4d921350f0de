# SPDX-License-Identifier: Apache-2.0
"""Changes of files of torch.save() that a seed draws, in a value of the pickle or in bytes,
and a run of the program with its limits of time and memory.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from demands import check, content, write
from dcp_trees import Called
from rank_pickles import Object, TorchFile, dumps, named
from rsh_cli import PLAIN
from rsh_mount import SUSPICIOUS, TIMEOUT_SCALE, reshardfs_program
from run_seed import half_if_sanitized
from shown_model import hashes, model_hashes

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

# A process has at least the greatest memory of the one that starts it, so a small one does.
SMALL = """import os, sys
_, status, used = os.wait4(os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ), 0)
os.write(int(sys.argv[1]), b"%d %d" % (os.waitstatus_to_exitcode(status), used.ru_maxrss))"""


def ran(*words):
    """(status, what it said, seconds, KiB)"""
    ours, its = os.pipe()
    with tempfile.TemporaryFile() as said, os.fdopen(ours, "rb") as figures:
        started = time.monotonic()
        process = subprocess.Popen([sys.executable, "-I", "-S", "-c", SMALL, str(its),
                                    reshardfs_program(), *words], stdout=said, stderr=said,
                                   stdin=subprocess.DEVNULL, env=PLAIN, pass_fds=[its],
                                   start_new_session=True)
        os.close(its)
        try:
            process.wait(SECONDS * TIMEOUT_SCALE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return "no end", "", SECONDS, 0
        status, memory = map(int, figures.read().split())
        said.seek(0)
        return (status, said.read().decode("utf-8", "replace"), time.monotonic() - started,
                memory)


# ---- what became of a change ----

def exported(numbers, what, root, directory, base):
    """(what was shown of the model, or None if it was refused; what was done and said)"""
    out = os.path.join(directory, "out")
    words = ["--optimizer", "keep"] if numbers.random() < 0.3 else []
    status, said, seconds, memory = ran("export", "--check", "full", *words, root, out)
    what = f"{what}: status {status}, {seconds:.1f} s, {memory} KiB\n{said}"
    check(isinstance(status, int) and 0 <= status < 5 and not SUSPICIOUS.search(said), what)
    check(memory < base + MEMORY, what)
    if status:
        check(": error: " in said or said.startswith("reshardfs: "), what)
        return None, what
    return {n: v for n, v in model_hashes(out).items() if not n.startswith("optimizer.")}, what


def read_alone(read, root):
    """What the independent reader finds; None: it refuses or cannot, or there is none."""
    try:
        return read and hashes(read(root))
    except Exception:  # whatever is wrong with it
        return None


def as_read_alone(found, alone, what):
    """The program shows what the independent reader finds."""
    different = sorted(n for n in set(found) | set(alone or {})
                       if found.get(n) != (alone or {}).get(n))
    check(alone is not None, f"{what}shown, and the reader refuses it")
    check(not different, f"{what}{different} differ")


def words_of_changes(few=400):
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=int(os.environ.get("RSH_CHANGES", few)))
    return parser.parse_args()


def run_changes(tap, words, directory, one):
    """one(seed, directory of its own) says what became of it, or raises."""
    kinds = {}
    for begin in range(words.seed, words.seed + words.cases, A_TEST):
        seeds = range(begin, min(begin + A_TEST, words.seed + words.cases))
        wrong = []
        for seed in half_if_sanitized(seeds):
            with tempfile.TemporaryDirectory(dir=directory) as own:
                try:
                    kind = one(seed, own)
                    kinds[kind] = kinds.get(kind, 0) + 1
                except AssertionError as error:
                    wrong.append(str(error))
                except Exception:  # of the test itself
                    wrong.append(f"seed {seed}: {traceback.format_exc()}")
        tap.ok(not wrong, f"changes {seeds[0]} to {seeds[-1]}", "\n".join(wrong))
    tap.diag(f"{kinds}")
