#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Damaged and hostile weight versions: whatever changes in an index, a header, a frame or the
names of files, the program ends in an error or shows bytes that the trainer had, in 20 s and
64 MiB more than for what is whole.

    versions_hostile.py [--seed S] [--cases N]     repeats some
"""

import json
import os
import random
import shutil
import struct
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from daemon_use import field  # noqa: E402
from demands import check, content, write  # noqa: E402
from rsh_mount import SUSPICIOUS, TIMEOUT_SCALE, Alone, MountError, Tap, require_mount  # noqa: E402
from safetensors_format import Tensors  # noqa: E402
from shown_model import digest, values_of_model  # noqa: E402
from torch_damage import (MEMORY, NUMBERS, SECONDS, cut, doubled, flipped, ran, run_changes,  # noqa: E402
                          swapped, words_of_changes)
from version_chains import INDEX, RandomChain, expected, frame, unpack  # noqa: E402

CASES = {name: case for name, case in expected().items()
         if name in ("blake3", "mixed", "nobase", "overwrite", "xor")}
RANDOM = 6


# ---- changes ----

def members(value):
    """(container, key) of all that a value of JSON consists of."""
    for key in list(value if isinstance(value, dict) else range(len(value))):
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from members(value[key])


def other_value(numbers, value, names):
    if isinstance(value, int):
        return numbers.choice((*NUMBERS[:-1], value + 1, value - 1, 2 * value))
    if isinstance(value, str) and numbers.random() < 0.6:
        text = list(value or "x")
        text[numbers.randrange(len(text))] = numbers.choice("0123456789abcdefg/\0\u20ac.-")
        return numbers.choice(("".join(text), value[:-1], value + "0", "0" + value))
    return numbers.choice((None, {}, [], "", 0, -1, True, 1.5, "xor", "overwrite", "adler32",
                           "blake3", "000001", *numbers.sample(names, min(3, len(names)))))


def changed_json(numbers, data):
    """The same object with one other value, one key less, or two that have exchanged theirs."""
    value = json.loads(data)
    places = list(members(value))
    holder, key = numbers.choice(places)
    names = [k for h, k in places if isinstance(k, str)]
    how = numbers.random()
    if how < 0.15:
        del holder[key]
    elif how < 0.3 and isinstance(holder, dict):
        holder[numbers.choice(names)] = holder[key]
    elif how < 0.45:
        other, its = numbers.choice(places)
        kept = holder[key]
        try:
            holder[key], other[its] = other[its], kept
            json.dumps(value)
        except (ValueError, TypeError, KeyError, IndexError):  # it holds itself
            return flipped(numbers, data)
    else:
        holder[key] = other_value(numbers, holder[key], names)
    return json.dumps(value).encode()


def changed_header(numbers, data):
    length = int.from_bytes(data[:8], "little")
    header = changed_json(numbers, data[8:8 + length])
    if numbers.random() < 0.3:
        length = numbers.choice((length, 0, 1, 1 << 27, 1 << 40, (1 << 64) - 1, len(data)))
    else:
        length = len(header)
    return length.to_bytes(8, "little") + header + data[8 + int.from_bytes(data[:8], "little"):]


def changed_frame(numbers, data):
    """One frame has other bytes where it begins, or is another one."""
    length = int.from_bytes(data[:8], "little")
    entries = [v for k, v in json.loads(data[8:8 + length]).items() if k != "__metadata__"]
    begin, end = numbers.choice(entries)["data_offsets"]
    begin, end, data = begin + 8 + length, end + 8 + length, bytearray(data)
    if end - begin < 8:
        return flipped(numbers, bytes(data))
    how = numbers.randrange(4)
    if how == 0:
        at = begin + numbers.randrange(min(20, end - begin))
        data[at] = numbers.choice((0, 255, 254, data[at] ^ 1 << numbers.randrange(8)))
    elif how == 1:
        bomb = frame(bytes(numbers.choice((1, 100, 1 << 20, 64 << 20))), numbers.choice((9, 20)))
        data[begin:begin + len(bomb)] = bomb[:end - begin]
    elif how == 2:
        other, its_end = numbers.choice(entries)["data_offsets"]
        data[begin:end] = (bytes(data[other + 8 + length:its_end + 8 + length]) +
                           bytes(end - begin))[:end - begin]
    else:
        data[begin:end] = numbers.getrandbits(8 * (end - begin)).to_bytes(end - begin, "little")
    return bytes(data)


def other_file(numbers, path):
    """Changes that are not in a file's bytes; what was done."""
    how, directory = numbers.randrange(7), os.path.dirname(path)
    if how == 0:
        os.remove(path)
    elif how == 1:
        beside = [n for n in os.listdir(directory) if n != os.path.basename(path)]
        if beside:
            shutil.copy(os.path.join(directory, numbers.choice(beside)), path)
    elif how == 2:
        os.remove(path)
        os.mkdir(path)
    elif how == 3:
        os.remove(path)
        os.symlink(numbers.choice((path, "/etc/passwd", "/dev/zero", "..")), path)
    elif how == 4:
        os.remove(path)
        os.mkfifo(path)
    elif how == 5:
        write(path, b"")
    else:
        name = numbers.choice(("weight_v000002", "weight_v000009", "weight_v1", "weight_v0",
                               "weight_v000000", "weight_v18446744073709551616", "weight_v0000003",
                               "weight_v999999999"))
        if os.path.basename(directory).startswith("weight_v") and \
                not os.path.exists(os.path.join(os.path.dirname(directory), name)):
            os.rename(directory, os.path.join(os.path.dirname(directory), name))
    return ("removed", "copied", "directory", "link", "fifo", "empty", "directory renamed")[how]


def spoil(numbers, roots):
    paths = sorted(os.path.join(at, n) for root in roots for at, _, names in os.walk(root)
                   for n in names if n.endswith((".safetensors", INDEX)))
    path = numbers.choice(paths)
    name = os.path.relpath(path, os.path.dirname(roots[0]))
    if numbers.random() < 0.12:
        return f"{name} {other_file(numbers, path)}"
    if path.endswith(INDEX):
        change = numbers.choice((changed_json, changed_json, changed_json, flipped, cut, swapped))
    else:
        change = numbers.choice((changed_header, changed_header, changed_frame, changed_frame,
                                 changed_frame, flipped, flipped, cut, swapped, doubled))
    write(path, change(numbers, content(path)))
    return f"{name} {change.__name__}"


# ---- what may be shown ----

def parsed(read, *words):
    """What Python reads, or nothing."""
    try:
        return read(*words)
    except (ValueError, KeyError, TypeError, OSError, AttributeError, OverflowError, MemoryError,
            struct.error):
        return {}


def is_delta(directory):
    path = os.path.join(directory, INDEX)

    def read():
        return json.loads(content(path))["metadata"]["delta_encoding"]
    return os.path.isfile(path) and bool(parsed(read))


def shown_as_they_are(roots):
    """{tensor: digests} of the files of full models, with whatever has changed in them."""
    found = {}
    for root in roots:
        for at, _, names in os.walk(root):
            for name in names:
                if name.endswith(".safetensors") and os.path.isfile(os.path.join(at, name)) and \
                        not is_delta(at):
                    values = parsed(lambda path: Tensors(content(path)).values(),
                                    os.path.join(at, name))
                    for tensor, value in values.items():
                        found.setdefault(tensor, set()).add(digest(value[2]))
    return found


def judge(shown, states, as_they_are, what):
    wrong = [n for n, (_, _, data) in shown.items()
             if digest(data) not in states.get(n, set()) | as_they_are.get(n, set())]
    check(not wrong, f"{what}{wrong} have bytes that the trainer did not have")


def exported(what, words, directory, base):
    out = os.path.join(directory, "out")
    status, said, seconds, memory = ran("export", "--check", "full", *words, out)
    what = f"{what}: export: status {status}, {seconds:.1f} s, {memory} KiB\n{said}"
    check(isinstance(status, int) and 0 <= status < 5 and not SUSPICIOUS.search(said), what)
    check(memory < base + MEMORY, what)
    if status:
        check(": error: " in said or said.startswith("reshardfs: "), what)
        return None, what
    return values_of_model(out), what


def read_slowly(path):
    """What can be read of a file's tensors; the rest has EIO."""
    with open(path, "rb", buffering=0) as f:
        length = int.from_bytes(f.read(8), "little")
        entries = json.loads(f.read(length))
        entries.pop("__metadata__", None)
        for name, entry in entries.items():
            begin, end = entry["data_offsets"]
            try:
                data = os.pread(f.fileno(), end - begin, 8 + length + begin)
            except OSError:
                continue
            yield name, (entry["dtype"], entry["shape"], data)


def mounted(what, words, base):
    """All that a mount of all versions shows, or None."""
    started, shown = time.monotonic(), []
    try:
        with Alone(words[-1], extra=[*words[:-1], "--steps", "all"]) as mount:
            for at, _, names in os.walk(mount.path):
                for name in names:
                    if name.endswith(".safetensors") and ".reshardfs" not in at:
                        shown.append(dict(read_slowly(os.path.join(at, name))))
            memory = field(mount.process.pid, "VmHWM")
            check(memory < base + MEMORY, f"{what}: {memory} KiB\n{mount.log()}")
    except MountError as error:
        said = str(error)
        check("ended before it served, exit status" in said and "status -" not in said and
              not SUSPICIOUS.search(said.split("log:", 1)[1]), f"{what}: {said}")
        shown = None
    seconds = time.monotonic() - started
    check(seconds < SECONDS * TIMEOUT_SCALE, f"{what}: {seconds} s")
    return shown


def sources(directory):
    """[(directory of versions, base or None, {tensor: digests of its states})]"""
    trees, found = unpack(os.path.join(directory, "trees")), []
    for name, case in CASES.items():
        states = {}
        for model in case["steps"].values():
            for tensor, (_, _, its) in model.items():
                states.setdefault(tensor, set()).add(its)
        base = case["base"] and os.path.join(trees, case["base"])
        for tensor, value in (values_of_model(base) if base else {}).items():
            states.setdefault(tensor, set()).add(digest(value[2]))
        found.append((os.path.join(trees, case["path"]), base, states))
        check(states, name)
    for seed in range(RANDOM):
        chain, states = RandomChain(seed), {}
        run, base = chain.write(os.path.join(directory, f"random-{seed}"))
        for model in (chain.base, *(new for _, _, new in chain.versions)):
            for tensor, value in model.items():
                states.setdefault(tensor, set()).add(digest(value[2]))
        found.append((run, base, states))
    return found


def one(seed, all_sources, directory, base_memory):
    """What became of it, or an AssertionError."""
    numbers = random.Random(seed)
    run, base, states = numbers.choice(all_sources)
    roots = [shutil.copytree(run, os.path.join(directory, "x", "run"))]
    words = [roots[0]]
    if base:
        roots.append(shutil.copytree(base, os.path.join(directory, "x", "base")))
        words = ["--base", roots[1], roots[0]]
    done = spoil(numbers, roots)
    what = f"seed {seed}: {os.path.basename(run)}, {done}"
    as_they_are = shown_as_they_are(roots)
    if numbers.random() < 0.5:
        shown = mounted(what, words, base_memory)
        for model in shown or ():
            judge(model, states, as_they_are, what + ": ")
        return "no mount" if shown is None else "mounted"
    shown, what = exported(what, words, directory, base_memory)
    if shown is None:
        return "no export"
    judge(shown, states, as_they_are, what)
    return "exported"


def main():
    require_mount()
    words, tap = words_of_changes(100), Tap()
    with tempfile.TemporaryDirectory() as directory:
        all_sources = sources(directory)
        run, base, _ = all_sources[0]
        memory = ran("export", "--base", base, run, os.path.join(directory, "x"))[3]
        run_changes(tap, words, directory, lambda seed, own: one(seed, all_sources, own, memory))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
