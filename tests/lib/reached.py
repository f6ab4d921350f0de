#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which messages were printed in a build of tests/reached.sh.

    reached.py BUILD KIND     adds what BUILD/reached/ says to the list BUILD/KIND.reached
    reached.py BUILD          compares all of these lists with unit/data/messages

A message was reached if the basic block ran that takes the address of its literal.  gcc
calls __sanitizer_cov_trace_pc() at the begin of each block, and without optimization
blocks lie one behind the other: so it is the block of the last such call before.  A
literal in a table of constants has no block; it counts if code of its file that takes the
address of the table ran, and a test looks for its words or the list says who prints it.
"""

import bisect
import collections
import glob
import json
import os
import re
import struct
import subprocess
import sys

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))

from messages import NOT_REACHED, Quotes, listed, messages, texts_of  # noqa: E402

TRACE = b"__sanitizer_cov_trace_pc"
CALL = re.compile(rb"(?=\xe8(.{4}))", re.S)
LEA = re.compile(rb"(?=[\x48\x4c]\x8d[\x05\x0d\x15\x1d\x25\x2d\x35\x3d](.{4}))", re.S)
RELATIVE = 8  # R_X86_64_RELATIVE
NOTE, RELA, SYMTAB = 7, 4, 2


class Object:
    """A program or a library: its code, its literals and its tables of constants."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as f:
            self.bytes = f.read()
        self.sections = self._sections()

    def _sections(self):
        """{name: (type, address, offset, size, link)}"""
        at, = struct.unpack_from("<Q", self.bytes, 40)
        size, count, names = struct.unpack_from("<3H", self.bytes, 58)
        rows = [struct.unpack_from("<IIQQQQI", self.bytes, at + i * size) for i in range(count)]
        start = rows[names][4]
        return {self._string(start + row[0]): (row[1], *row[3:]) for row in rows}

    def _string(self, at):
        return self.bytes[at:self.bytes.index(b"\0", at)]

    def content(self, name):
        _, _, offset, size, _ = self.sections[name]
        return self.bytes[offset:offset + size]

    def build_id(self):
        note = self.sections.get(b".note.gnu.build-id")
        return note and self.bytes[note[2] + 16:note[2] + note[3]].hex()

    def load(self):
        text, base = self.content(b".text"), self.sections[b".text"][1]
        names = self.sections[b".strtab"][2]
        symbols = [(value, size, self._string(names + name)) for name, info, _, _, value, size in
                   struct.iter_unpack("<IBBHQQ", self.content(b".symtab"))]
        trace, = {value for value, _, name in symbols if name == TRACE}
        # Places behind the calls, sorted.
        self.calls = [at for at, to in self._targets(CALL, 5, text, base) if to == trace]
        self.uses = collections.defaultdict(list)  # address: code that takes it
        for at, to in self._targets(LEA, 7, text, base):
            self.uses[to].append(at)
        self.tables = sorted((value, value + size) for value, size, _ in symbols if size)
        self.pointers = collections.defaultdict(list)  # address: where constants have it
        for at, info, addend in struct.iter_unpack("<QQq", self.content(b".rela.dyn")):
            if info & 0xffffffff == RELATIVE:
                self.pointers[addend].append(at)
        return self

    @staticmethod
    def _targets(pattern, length, text, base):
        for found in pattern.finditer(text):
            at = base + found.start() + length
            yield at, at + struct.unpack("<i", found[1])[0]

    def block(self, at):
        """The place that is marked when the block of that code runs."""
        i = bisect.bisect_right(self.calls, at) - 1
        return self.calls[i] if i >= 0 else None

    def table(self, at):
        """Where the table of constants begins that has that address."""
        i = bisect.bisect_right(self.tables, (at, 1 << 63)) - 1
        return self.tables[i][0] if i >= 0 and self.tables[i][1] > at else None

    def literals(self, pattern):
        """Addresses at which code or a table may use a literal, those first at which it is
        all of the string."""
        content, base = self.content(b".rodata"), self.sections[b".rodata"][1]
        whole, part = [], []
        for found in pattern.finditer(content):
            start = content.rfind(b"\0", 0, found.start()) + 1
            if content[found.end():found.end() + 1] == b"\0":
                whole.append(base + found.start())
            part += range(base + start, base + found.start() + 1)
        return whole, part

    def lines(self, places):
        """{code: (path below TOP, line)}"""
        got = subprocess.run(["addr2line", "-e", self.path], text=True, check=True,
                             input="".join(f"{at - 1:#x}\n" for at in places),
                             capture_output=True)
        found = {}
        for at, line in zip(places, got.stdout.splitlines()):
            path, _, number = line.partition(":")
            number = re.match(r"\d*", number)[0]
            found[at] = os.path.relpath(os.path.normpath(path), TOP), int(number or 0)
        return found


def pattern_of(text):
    """Of the bytes of a literal; lib/messages.py reads PRIu64 and the like as "llu"."""
    return re.compile(re.escape(text).replace("llu", "l{0,2}[udxo]").encode())


class Found:
    """What objects have of each message: whether it ran, or is in a table."""

    def __init__(self):
        self.messages = messages(TOP)
        self.seen, self.ran, self.in_table = set(), set(), {}
        self.same = collections.defaultdict(list)
        for path, line, text in self.messages:
            self.same[path, text].append(line)
        self.patterns = {text: pattern_of(text) for _, _, text in self.messages}

    def add(self, obj, marks):
        places = {text: obj.literals(pattern) for text, pattern in self.patterns.items()}
        used = {at for whole, part in places.values() for to in whole + part
                for at in obj.uses.get(to, ())}
        lines = obj.lines(sorted(used))
        for (path, text), wanted in self.same.items():
            for addresses in places[text]:
                code = [at for to in addresses for at in obj.uses.get(to, ())
                        if lines[at][0] == path]
                for at in code:
                    line = min(wanted, key=lambda n, at=at: abs(lines[at][1] - n))
                    self.seen.add((path, line))
                    block = obj.block(at)
                    if block is not None and marks[block]:
                        self.ran.add((path, line))
                if code:
                    break
            else:
                self._add_table(obj, marks, path, text, wanted, places[text][0])

    def _add_table(self, obj, marks, path, text, wanted, addresses):
        tables = {obj.table(at) for to in addresses for at in obj.pointers.get(to, ())} - {None}
        if not tables:
            return
        code = [at for to in tables for at in obj.uses.get(to, ())]
        lines = obj.lines(code)
        ran = any(marks[obj.block(at)] for at in code if lines[at][0] == path)
        for line in wanted:
            self.seen.add((path, line))
            self.in_table[path, line] = self.in_table.get((path, line), False) or ran


def objects(build):
    """{build ID: path} of what is linked there."""
    found = {}
    for at, _, names in os.walk(build):
        for path in (os.path.join(at, name) for name in names):
            if os.path.islink(path) or path.endswith((".o", ".a")):
                continue
            with open(path, "rb") as f:
                if f.read(4) != b"\x7fELF":
                    continue
            build_id = Object(path).build_id()
            if build_id:
                found[build_id] = path
    return found


def collect(build, kind):
    found, paths = Found(), objects(build)
    for name in sorted(glob.glob(os.path.join(build, "reached", "*"))):
        path = paths.get(os.path.basename(name))
        if path:
            with open(name, "rb") as f:
                found.add(Object(path).load(), f.read())
        os.remove(name)
    tests = Quotes(texts_of(os.path.join(TOP, "tests")))
    printed = {m for m, reason in listed(TOP).items() if not reason.startswith(NOT_REACHED)}
    ran = {(path, text) for path, line, text in found.messages if (path, line) in found.ran or
           (found.in_table.get((path, line)) and
            (tests.have(text) or (path, text) in printed))}
    with open(os.path.join(build, f"{kind}.reached"), "a", encoding="utf-8") as f:
        f.writelines(f"{path}: {json.dumps(text)}\n" for path, text in sorted(ran))
    seen = {(path, text) for path, line, text in found.messages if (path, line) in found.seen}
    for path, line, text in found.messages:
        if (path, text) not in seen:
            print(f"{path}:{line}: in no program that ran: {text!r}")
    print(f"{kind}: {len(ran)} messages reached, {len(found.in_table)} are in tables")


def report(build):
    every = {(path, text): line for path, line, text in messages(TOP)}
    reached = set()
    for name in sorted(glob.glob(os.path.join(build, "*.reached"))):
        with open(name, encoding="utf-8") as f:
            rows = (line.partition(": ") for line in f)
            kind = {(path, json.loads(text)) for path, _, text in rows} & set(every)
        print(f"{os.path.basename(name)}: {len(kind)} messages")
        reached |= kind
    known = {m for m, reason in listed(TOP).items() if reason.startswith(NOT_REACHED)}
    wrong = 0
    for message, line in every.items():
        if (message in reached) == (message in known):
            path, text = message
            says = "reached, and in the list" if message in reached else "not reached"
            print(f"{path}:{line}: {says}: {json.dumps(text)}")
            wrong += 1
    print(f"{len(every)} messages, {len(reached)} reached, {len(known)} in the list as not reached")
    return 1 if wrong else 0


def main():
    if len(sys.argv) == 3:
        return collect(*sys.argv[1:])
    return report(sys.argv[1])


if __name__ == "__main__":
    sys.exit(main())
