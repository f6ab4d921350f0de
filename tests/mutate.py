#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much do the tests prove?  Changes the program in one place, runs the tests that
reach this place, and says which changes no test saw.

A change is one of: another comparison or operator, a constant one more or less, a sign, a
negated condition, a dropped statement, two swapped arguments.  It is compiled from a copy
in BUILD; no file of the source tree changes.  What compiles to the same code counts as no
change.  Statements that only free, lock or log are not dropped: the sanitizers are for
these.  A test has killed a change if it fails or takes far longer than without the change.

Changes are drawn by --seed from the text of lines, so the same ones are drawn from a tree
that differs elsewhere, whichever tests run.  BUILD/trace is a build that records which code
ran, and BUILD/plain is the one whose objects are replaced.  Which lines a test reaches is
found once for each state of a program.  Tests take RSH_FEWER=8 times fewer rounds, unless
the environment says otherwise.  To try all changes of one line with all rounds:

    RSH_FEWER=1 tests/mutate.py --at src/plan/pieces.c:120 --verbose

What the unit tests did not see can be tried by mounts: --again FILE, which has what was
printed, tries only the changes that lived or were not reached.  Tests that mount wait more
than they compute: --jobs N runs N of them at a time, each with a directory of its own.  What
fails among others counts if it fails alone too.
"""

import argparse
import ast
import bisect
import collections
import concurrent.futures
import fcntl
import hashlib
import json
import os
import queue
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import time

TOP = os.path.abspath(os.path.join(os.path.dirname(__file__), ".."))
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))

from reached import Object, objects  # noqa: E402

KINDS = {"unit": "UNIT", "mount": "MOUNT", "oracle": "ORACLE HUGGING_FACE"}
HELPERS = ["mount/libreshard", "mount/made_up_format", "mount/mirror"]  # programs of mounts
TOKEN = re.compile(r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/|(?m:^[ \t]*\#(?:\\\n|[^\n])*))
  | (?P<text>L?"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
  | (?P<number>(?:0[xX][0-9a-fA-F]+|\d[\d.]*(?:[eE][+-]?\d+)?)\w*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<sign>->|\+\+|--|<<=|>>=|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|\.\.\.|.)
""", re.X | re.S)
OTHER = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "&&": "||",
         "||": "&&", "+": "-", "-": "+", "*": "/", "/": "*", "%": "/", "<<": ">>",
         ">>": "<<", "&": "|", "|": "&", "+=": "-=", "-=": "+=", "++": "--", "--": "++"}
COMPARES = {"<", "<=", ">", ">=", "==", "!=", "&&", "||"}
KEYWORDS = set("if for while switch return sizeof do else case default goto".split())
# What begins a declaration, besides two names in a row.
TYPES = set("struct enum union const static unsigned signed int char long short float double "
            "bool void typedef extern register volatile _Static_assert static_assert".split())
NOT_DROPPED = re.compile(r"(\w*_)?(free|log|lock|unlock|close|assert|destroy|signal|broadcast|"
                         r"error|warning|notice|info|debug)\b")

Change = collections.namedtuple("Change", "path line kind start end old new key")


class Source:
    """A file of the program, and the changes that are possible in it."""

    def __init__(self, path):
        self.path = path
        with open(os.path.join(TOP, path), encoding="utf-8") as f:
            self.text = f.read()
        self.starts = [0] + [m.end() for m in re.finditer("\n", self.text)]
        self.tokens = [(m.lastgroup, m[0], m.start(), m.end())
                       for m in TOKEN.finditer(self.text) if m.lastgroup != "skip"]

    def line(self, at):
        return bisect.bisect_right(self.starts, at)

    def words(self, line):
        end = self.starts[line] if line < len(self.starts) else len(self.text)
        return " ".join(self.text[self.starts[line - 1]:end].split())

    def bodies(self):
        """(first, last) token of the bodies of functions."""
        depth, begin = 0, None
        for i, (_, text, _, _) in enumerate(self.tokens):
            if text == "{":
                if depth == 0 and i and self.tokens[i - 1][1] == ")":
                    begin = i
                depth += 1
            elif text == "}":
                depth -= 1
                if depth == 0 and begin is not None:
                    yield begin, i
                    begin = None

    def changes(self, known, seed):
        """Those in lines that the compiler knows.  A place belongs to the last such line of
        its statement up to it."""
        seen = collections.Counter()  # lines of the same words
        nth = []
        for n in range(1, len(self.starts) + 1):
            nth.append(seen[self.words(n)])
            seen[self.words(n)] += 1
        for begin, end in self.bodies():
            for kind, first, last, new, statement in self._in_body(begin, end):
                start, stop = self.tokens[first][2], self.tokens[last][3]
                at = self.line(start)
                lines = [n for n in range(self.line(self.tokens[statement][2]), at + 1)
                         if n in known]
                if not lines:
                    continue
                old = self.text[start:stop]
                key = hashlib.sha256(repr((seed, self.path, self.words(at), nth[at - 1],
                                           start - self.starts[at - 1], kind, old, new))
                                     .encode()).hexdigest()
                yield Change(self.path, lines[-1], kind, start, stop, old, new, key)

    def _close(self, i):
        """The token that closes the parenthesis, bracket or brace i."""
        depth = 0
        while True:
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(self.tokens[i][1], 0)
            if depth == 0:
                return i
            i += 1

    def _in_body(self, begin, end):
        tokens, statement, depth = self.tokens, begin, 0
        for i in range(begin + 1, end):
            kind, text, start, stop = tokens[i]
            before, after = tokens[i - 1][1], tokens[i + 1][1]
            # `for (a; b; c)` has no statements inside.
            depth += {"(": 1, ")": -1}.get(text, 0)
            if depth == 0 and (before in {";", "{", "}", "else", ":"} or
                               (before == ")" and self._heads(i - 1))):
                statement = i
                yield from self._dropped(i, before, begin)
            if kind == "number":
                for new in self._constants(text):
                    yield "constant", i, i, new, statement
            elif kind == "name" and after == "(":
                if text in {"if", "while"}:
                    yield from self._negated(i, statement)
                elif text not in KEYWORDS | TYPES:
                    yield from self._swapped(i, statement)
            elif text == "!" and kind == "sign":
                yield "condition", i, i, "", statement
            elif text == "-" and after not in {"-"} and not self._value(i - 1):
                yield "sign", i, i, "", statement
            elif text in OTHER and (text in {"++", "--"} or self._binary(i, start, stop)):
                yield ("comparison" if text in COMPARES else "operator",
                       i, i, OTHER[text], statement)

    def _value(self, i):
        kind, text = self.tokens[i][:2]
        return kind in {"number", "text"} or text in {")", "]"} or \
            (kind == "name" and text not in KEYWORDS)

    def _binary(self, i, start, stop):
        """With a space or the end of a line on each side, which pointers do not have."""
        return self._value(i - 1) and self.text[start - 1].isspace() and \
            self.text[stop].isspace()

    @staticmethod
    def _constants(text):
        digits = re.match(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)$", text)
        if not digits:
            return
        try:
            value = ast.literal_eval(digits[1])
        except (SyntaxError, ValueError):
            value = int(digits[1], 8)
        for new in [value + 1] + [value - 1] * (value > 0):
            yield f"{new}{digits[2]}"

    def _heads(self, close):
        """Does this parenthesis end the head of an if, for or while?"""
        depth, i = 0, close
        while True:
            depth += {")": 1, "(": -1}.get(self.tokens[i][1], 0)
            if depth == 0:
                return self.tokens[i - 1][1] in {"if", "for", "while", "switch"} or \
                    "foreach" in self.tokens[i - 1][1]
            i -= 1

    def _negated(self, i, statement):
        first, last = i + 1, self._close(i + 1)
        inside = self.tokens[first + 1:last]
        if inside and not any(t[1] in COMPARES or t[1] == "!" for t in inside):
            old = self.text[self.tokens[first][2]:self.tokens[last][3]]
            yield "condition", first, last, f"(!{old})", statement

    def _swapped(self, i, statement):
        last = self._close(i + 1)
        parts, depth, begin = [], 0, i + 2
        for k in range(i + 2, last + 1):
            text = self.tokens[k][1]
            if (depth == 0 and text == ",") or k == last:
                parts.append((begin, k - 1))
                begin = k + 1
            depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(text, 0)
        for (a, b), (c, d) in zip(parts, parts[1:]):
            if a > b or c > d:
                continue
            one = self.text[self.tokens[a][2]:self.tokens[b][3]]
            two = self.text[self.tokens[c][2]:self.tokens[d][3]]
            between = self.text[self.tokens[b][3]:self.tokens[c][2]]
            # Sizes of arrays are products.
            product = re.search(r"alloc|array", self.tokens[i][1]) and "sizeof" in one + two
            if one != two and not product and not (one[0] == two[0] == '"'):
                yield "swap", a, d, two + between + one, statement

    def _dropped(self, i, before, begin):
        kind, text = self.tokens[i][:2]
        if text in {"{", "}", ";"} or (kind == "sign" and text not in {"*", "(", "++", "--"}):
            return
        last = i
        while self.tokens[last][1] != ";":
            if self.tokens[last][1] in {"(", "[", "{"}:
                if self.tokens[last][1] == "{" and last == self._close(i + 1) + 1:
                    return  # a macro that begins a loop
                last = self._close(last)
            elif self.tokens[last][1] == "}":
                return
            last += 1
        if text == "return":
            # The end of a function has to return something.
            if before != ")" and self.tokens[last + 1][1] == "}" and \
                    self._close(begin) == last + 1:
                return
        elif text not in {"break", "continue"}:
            if text in KEYWORDS | TYPES or NOT_DROPPED.match(text) or \
                    self.tokens[i + 1][1] == ":" or self._declares(i):
                return
        yield "dropped", i, last, ";", i

    def _declares(self, i):
        """`type name`, `type *name`: two names without anything that computes."""
        (one, _), (two, text) = self.tokens[i][:2], self.tokens[i + 1][:2]
        return one == "name" and (two == "name" or
                                  (text == "*" and self.tokens[i + 2][0] == "name" and
                                   self.text[self.tokens[i + 1][3]] != " "))

    def changed(self, change):
        new = change.new
        # Lines keep their numbers.
        missing = self.text[change.start:change.end].count("\n") - new.count("\n")
        return self.text[:change.start] + new + "\n" * missing + self.text[change.end:]


def rows_of(path, calls):
    """{place behind a call: {(file, line)}} of the code of each block."""
    dump = subprocess.run(["objdump", "--dwarf=decodedline", path], text=True, check=True,
                          capture_output=True).stdout
    row = re.compile(r"(\S+)\s+(\d+)\s+0x([0-9a-f]+)")
    files, sections = {}, []
    for line in dump.splitlines():
        found = row.match(line)
        if found:
            sections[-1].setdefault(found[1], []).append((int(found[3], 16), int(found[2])))
        elif line.endswith(":") and "/" not in line:
            sections.append({})
    # objdump has names without directories: ask for one address of each.
    wanted = {name_rows[0][0]: None for s in sections for name_rows in s.values()}
    got = subprocess.run(["addr2line", "-e", path], text=True, check=True, capture_output=True,
                         input="".join(f"{at:#x}\n" for at in wanted)).stdout
    for at, line in zip(wanted, got.splitlines()):
        files[at] = os.path.relpath(os.path.normpath(line.partition(":")[0]), TOP)
    blocks = collections.defaultdict(set)
    for section in sections:
        for rows in section.values():
            name = files[rows[0][0]]
            if not name.startswith("src/"):
                continue
            for at, line in rows:
                # The call has 5 bytes.
                i = max(bisect.bisect_right(calls, at + 5) - 1, 0)
                blocks[calls[i]].add((name, line))
    return blocks


def lines_of(pairs):
    lines = collections.defaultdict(set)
    for path, line in pairs:
        lines[path].add(line)
    return {path: sorted(found) for path, found in lines.items()}


class Reached:
    """Which lines of the program each test reaches, kept in BUILD/reached.json."""

    def __init__(self, build, limits):
        self.build, self.limits = build, limits
        self.trace = os.path.join(build, "trace")
        self.file = os.path.join(build, "reached.json")
        self.known = {}
        try:
            with open(self.file, encoding="utf-8") as f:
                self.tests = json.load(f)
        except (OSError, ValueError):
            self.tests = {}

    def save(self):
        with open(self.file + ".new", "w", encoding="utf-8") as f:
            json.dump(self.tests, f)
        os.rename(self.file + ".new", self.file)

    def find(self, tests, jobs):
        paths = objects(self.trace)
        ids = {path: build_id for build_id, path in paths.items()}
        done, of = {}, {}
        for test in tests:
            mine = os.path.join(self.trace, "tests", test)
            of[test] = ids.get(mine) or hashlib.sha256("".join(sorted(paths)).encode() + open(
                os.path.join(TOP, "tests", test), "rb").read()).hexdigest()
        for test, _, _, marks in side_by_side(
                self.trace, [t for t in tests if self.tests.get(t, {}).get("of") != of[t]],
                jobs, lambda test: 900, self.limits):
            say(f"which lines does {test} reach?")
            pairs = set()
            for build_id, called in marks.items():
                if build_id not in paths:
                    continue
                if build_id not in done:
                    calls = Object(paths[build_id]).load().calls
                    done[build_id] = rows_of(paths[build_id], calls)
                for at, lines in done[build_id].items():
                    if called[at]:
                        pairs |= lines
                if "/tests/" in paths[build_id]:
                    del done[build_id]
            self.tests[test] = {"of": of[test], "lines": lines_of(pairs)}
            self.save()
        by_line = collections.defaultdict(list)
        for test in tests:
            for path, lines in self.tests[test]["lines"].items():
                for line in lines:
                    by_line[path, line].append(test)
        self._find_known(os.path.join(self.trace, "src", "reshardfs"), ids)
        return by_line

    def _find_known(self, program, ids):
        """All lines of the program that the compiler made code of."""
        kept = self.tests.setdefault("program", {})
        if kept.get("of") != ids[program]:
            blocks = rows_of(program, Object(program).load().calls)
            kept.update(of=ids[program], lines=lines_of(set().union(*blocks.values())))
            self.save()
        self.known = {path: set(lines) for path, lines in kept["lines"].items()}


def say(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}"[:100], end="", file=sys.stderr, flush=True)


def environment(build, work):
    return {**os.environ, "CMOCKA_MESSAGE_OUTPUT": "tap", "TMPDIR": work,
            "RESHARDFS": os.path.join(build, "src", "reshardfs"),
            "LIBRESHARD": os.path.join(build, "src", ".libs", "libreshard.so.0"),
            "RESHARDFS_TABLES": os.path.join(TOP, "tables"), "SANITIZER_FLAGS": "",
            "RSH_REACHED": work + ".reached", "top_builddir": build,
            "srcdir": os.path.join(TOP, "tests"), "top_srcdir": TOP}


def run_test(build, test, seconds, limits, program=None, place=0):
    """(what failed or "", seconds, marks of what it reached) of one test.  Those that run at
    a time have other places."""
    work = os.path.join(build, f"tmp{place}")
    clean(build, work)
    os.makedirs(work)
    os.makedirs(work + ".reached")
    os.chmod(work + ".reached", 0o1777)
    if program is None:
        own = os.path.join(build, "tests", test)
        program = own if os.access(own, os.X_OK) else os.path.join(TOP, "tests", test)
    out = os.path.join(build, f"output{place}")
    began = time.monotonic()
    with open(out, "wb") as f:
        got = subprocess.Popen([program], cwd=os.path.join(build, "tests"), stdout=f,
                               stderr=f, stdin=subprocess.DEVNULL, start_new_session=True,
                               env=environment(build, work), preexec_fn=limits)
        try:
            status = got.wait(seconds)
        except subprocess.TimeoutExpired:
            status = "time"
        try:
            os.killpg(got.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        got.wait()
    took = time.monotonic() - began
    marks = {}
    for build_id in os.listdir(work + ".reached"):
        with open(os.path.join(work + ".reached", build_id), "rb") as f:
            marks[build_id] = f.read()
    clean(build, work)
    with open(out, encoding="utf-8", errors="replace") as f:
        text = f.read()
    failed = re.findall(r"^not ok \d+(?!.*# (?:TODO|SKIP))[ -]*(.*)", text, re.M)
    plan = re.search(r"^1\.\.(\d+)", text, re.M)
    count = len(re.findall(r"^(?:not )?ok\b", text, re.M))
    if not failed and status == "time":
        failed = ["time"]
    elif not failed and (status != 0 or not plan or int(plan[1]) != count):
        failed = [f"status {status}"]
    return failed, took, marks


def side_by_side(build, tests, jobs, seconds, limits):
    """Yields (test, *run_test()) of each as it ends; seconds(test) is its limit.  Whoever
    takes no more of them waits for those that run."""
    places = queue.SimpleQueue()
    for place in range(jobs):
        places.put(place)

    def run(test):
        place = places.get()
        try:
            return (test, *run_test(build, test, seconds(test), limits, place=place))
        finally:
            places.put(place)

    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        runs = [pool.submit(run, test) for test in tests]
        try:
            for done in concurrent.futures.as_completed(runs):
                yield done.result()
        finally:
            for waits in runs:
                waits.cancel()


def is_left(pid, build, work):
    """Is this a program of the build that a test with that directory started?"""
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return os.readlink(f"/proc/{pid}/exe").startswith(build + "/") and \
                b"TMPDIR=" + work.encode() in f.read().split(b"\0")
    except OSError:
        return False


def clean(build, work):
    """Ends what a test left: daemons, mounts, files."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if is_left(pid, build, work):
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
    with open("/proc/self/mounts", encoding="utf-8", errors="replace") as f:
        places = [line.split()[1] for line in f]
    for place in reversed(places):
        if place.startswith(work + "/"):
            subprocess.run(["umount", "-l", place], check=False, stderr=subprocess.DEVNULL)
    shutil.rmtree(work, ignore_errors=True)
    shutil.rmtree(work + ".reached", ignore_errors=True)


class Builds:
    """Objects and programs with one change."""

    def __init__(self, build):
        self.build = build
        self.plain, self.trace = (os.path.join(build, name) for name in ("plain", "trace"))
        self.object = os.path.join(self.plain, "changed.o")
        self.commands, self.originals = {}, {}
        self.names = None  # {source: object}
        self.stderr = ""   # of the last compilation

    def make(self, tests):
        """Both builds as the sources are now."""
        programs = [t for t in tests if t.startswith("unit/test_")]
        if len(programs) < len(tests):
            programs += HELPERS
        os.makedirs(os.path.join(self.trace, "reached"), exist_ok=True)
        os.makedirs(self.plain, exist_ok=True)
        cc = os.environ.get("CC", "gcc")
        reached = os.path.join(self.trace, "reached.o")
        if not os.path.exists(os.path.join(self.trace, "Makefile")):
            self._run(self.trace, *shlex.split(cc), "-g", "-O2", "-fPIC",
                      f"-DREACHED_DIRECTORY=\"{self.trace}/reached\"",
                      "-c", f"{TOP}/tests/lib/reached.c", "-o", reached)
            self._run(self.trace, f"{TOP}/configure", "--quiet", f"CC={cc}",
                      "CFLAGS=-g -O0 -fno-builtin -w -fsanitize-coverage=trace-pc",
                      f"LDFLAGS=-Wl,--build-id -Wl,{reached}")
        if not os.path.exists(os.path.join(self.plain, "Makefile")):
            self._run(self.plain, f"{TOP}/configure", "--quiet", f"CC={cc}", "CFLAGS=-O1 -w")
        for build in self.trace, self.plain:
            self._run(build, "make", "-s")
            if programs:
                self._run(os.path.join(build, "tests"), "make", "-s", "-k", *programs)

    @staticmethod
    def _run(at, *command):
        say(" ".join(command))
        with open(os.path.join(at, "make.log"), "ab") as log:
            if subprocess.run(command, cwd=at, check=False, stdout=log, stderr=log).returncode:
                sys.exit(f"mutate.py: {command[0]} fails; its output is in {log.name}")

    def tests(self, wanted):
        """Names of the tests of these kinds, or themselves."""
        names = " ".join(f"$({word})" for kind in wanted
                         for word in KINDS.get(kind, "").split())
        got = subprocess.run(["make", "-s", "-C", os.path.join(self.plain, "tests"),
                              f"--eval=mutate-tests: ; @echo {names}", "mutate-tests"],
                             check=True, text=True, capture_output=True).stdout
        scripts = {"unit/layers.sh", "unit/circles.sh"}
        # Scripts in unit read sources, and run nothing of the program.
        return [t for t in got.split() if t not in scripts and
                not (t.startswith("unit/") and "." in t)] + \
            [t for t in wanted if t not in KINDS]

    def _dry(self, where, source, target, pattern):
        """The command that make would run for this target."""
        key = where, target
        if key not in self.commands:
            text = subprocess.run(["make", "-n", "V=1", "-W", source, target], check=False,
                                  cwd=os.path.join(self.plain, where), text=True,
                                  capture_output=True).stdout
            text = re.sub(r"\\\n", " ", text)
            found = [line for line in text.splitlines() if re.search(pattern, line)]
            if not found:
                raise LookupError(f"make says no command for {target}: {text[:500]}")
            self.commands[key] = found[-1]
        return self.commands[key]

    def compile(self, path, text):
        """The object of that text, or None: it does not compile."""
        name = os.path.relpath(path, "src")
        target = self._target(name)
        if not target:
            return None  # a program's own
        line = self._dry("src", os.path.join(TOP, path), target, rf"-c -o {re.escape(target)}")
        words = shlex.split(line[line.index("--mode=compile"):].split("&&")[0]
                            .replace("`", "'"))[1:]
        kept, skip = [], False
        for i, word in enumerate(words):
            if skip or word.startswith("-W") or word in {"-MD", "-MP", "-w"} or i == len(words) - 1:
                skip = False
            elif word in {"-MT", "-MF", "-o"}:
                skip = True
            else:
                kept.append(word)
        changed = os.path.join(self.plain, "changed.c")
        with open(changed, "w", encoding="utf-8") as f:
            f.write(f'#line 1 "{path}"\n{text}')
        got = subprocess.run(
            [*kept, changed, "-o", self.object, "-fPIC", "-DPIC",
             "-iquote", os.path.dirname(os.path.join(TOP, path)),
             "-Werror=incompatible-pointer-types", "-Werror=int-conversion",
             "-Werror=implicit-function-declaration", "-Werror=discarded-qualifiers"],
            cwd=os.path.join(self.plain, "src"), check=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        self.stderr = got.stderr
        if got.returncode:
            return None
        with open(self.object, "rb") as f:
            return f.read()

    def _target(self, name):
        """Objects of libraries with flags of their own have another name."""
        base = os.path.join(self.plain, "src")
        if self.names is None:
            self.names = {}
            for at, _, files in os.walk(base):
                for file in files:
                    if file.endswith(".lo"):
                        found = os.path.relpath(os.path.join(at, file), base)
                        plain = re.sub(r"[^/]*_la-(?=[^/]*$)", "", found)
                        self.names[plain[:-3] + ".c"] = found
        return self.names.get(name)

    def same(self, source, made):
        if source.path not in self.originals:
            self.originals[source.path] = self.compile(source.path, source.text)
            if self.originals[source.path] is None:
                raise RuntimeError(f"{source.path} does not compile: {self.stderr}")
            with open(self.object, "wb") as f:
                f.write(made)
        return self.originals[source.path] == made

    def link(self, test):
        """That unit test with the changed object before the libraries."""
        line = self._dry("tests", os.path.join(TOP, "tests", f"{test}.c"), test,
                         rf" -o {re.escape(test)}(\s|$)")
        program = os.path.join(self.plain, "changed")
        words = shlex.split(line)
        words = words[words.index("gcc") if "gcc" in words else 0:]
        at = words.index("-o")
        words[at + 1:at + 2] = [program, self.object]
        subprocess.run(words, cwd=os.path.join(self.plain, "tests"), check=True)
        return program

    def put_programs(self):
        """The program and the library with the changed object, in place of the others."""
        src = os.path.join(self.plain, "src")
        for name in "reshardfs", "libreshard.la":
            line = self._dry("src", "libutil.la", name, rf" -o {re.escape(name)}(\s|$)")
            words = shlex.split(line)
            words = words[words.index("--mode=link") + 1:]
            text = subprocess.run(["../libtool", "--tag=CC", "--dry-run", "--mode=link", *words],
                                  cwd=src, text=True, check=True, capture_output=True).stdout
            # Of the commands that libtool would run, the one that links.
            words = next(words for words in map(shlex.split, text.splitlines())
                         if "-o" in words and (name == "reshardfs" or "-shared" in words))
            words = words[words.index("link:") + 1:]
            at = words.index("-o")
            made = os.path.join(src, words[at + 1])
            if not os.path.exists(made + ".unchanged"):
                shutil.copy2(made, made + ".unchanged")
            words[at + 1:at + 2] = [made + ".changed", "-Wl,--allow-multiple-definition",
                                    self.object]
            subprocess.run(words, cwd=src, check=True, stdout=subprocess.DEVNULL)
            os.rename(made + ".changed", made)

    def put_back(self):
        for at, _, files in os.walk(os.path.join(self.plain, "src")):
            for name in files:
                if name.endswith(".unchanged"):
                    made = os.path.join(at, name)
                    os.rename(made, made.removesuffix(".unchanged"))


class Run:
    def __init__(self, options):
        self.options = options
        self.build = os.path.abspath(options.build)
        self.builds = Builds(self.build)
        self.rooms = collections.defaultdict(collections.Counter)
        self.kills = collections.defaultdict(list)  # (test, what fails): changes
        self.count, self.began, self.lock = 0, time.monotonic(), None
        os.environ.setdefault("RSH_TEST_SEED", str(options.seed))
        os.environ.setdefault("RSH_FEWER", "8")

    def limits(self):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if not self.options.kinds & {"mount", "oracle"}:
            # What asks for memory without end must not get all of it.
            resource.setrlimit(resource.RLIMIT_AS, (16 << 30, 16 << 30))

    def prepare(self):
        for name in "trace", "plain":
            os.makedirs(os.path.join(self.build, name), exist_ok=True)
        self.lock = os.open(self.build, os.O_RDONLY)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"mutate.py: another one runs in {self.build}: wait, or use --build")
        self.builds.put_back()
        wanted = self.options.tests.split(",")
        self.options.kinds = {test.split("/")[0] for test in wanted}
        if not os.path.exists(os.path.join(self.builds.plain, "Makefile")):
            self.builds.make([])
        tests = self.builds.tests(wanted)
        self.builds.make(tests)
        reached, jobs = Reached(self.build, self.limits), self.options.jobs
        self.reached, self.known = reached.find(tests, jobs), reached.known
        rounds = f"{os.environ['RSH_FEWER']} {os.environ.get('RSH_SHARE', '')} {jobs}"
        measured = [t for t in tests if reached.tests[t].get("rounds") != rounds]
        for test, failed, seconds, _ in side_by_side(self.builds.plain, measured, jobs,
                                                     lambda test: 600, self.limits):
            say(f"{test} takes {seconds:.0f} s")
            reached.tests[test].update(rounds=rounds, seconds=seconds, failed=failed)
        self.seconds = {}
        for test in tests:
            kept = reached.tests[test]
            if kept["failed"]:
                print(f"{test} is left out, it fails without a change: {kept['failed'][0]}")
                del kept["rounds"]
            elif kept["seconds"] < self.options.longest:
                self.seconds[test] = kept["seconds"]
        reached.save()

    def draw(self):
        every = []
        at = [place.partition(":") for place in (self.options.at or "").split(",") if place]
        for path, known in sorted(self.known.items()):
            room = room_of(path)
            if (self.options.room and room not in self.options.room.split(",")) or \
                    not path.endswith(".c") or \
                    (at and path not in [where for where, _, _ in at]) or \
                    not os.path.exists(os.path.join(TOP, path)):
                continue
            every += Source(path).changes(known, self.options.seed)
        if at:
            every = [c for c in every if any(c.path == where and line in {"", str(c.line)}
                                             for where, _, line in at)]
        if self.options.again:
            with open(self.options.again, encoding="utf-8") as f:
                left = {line.partition("   | ")[0].replace(": unreached: ", ": lived: ")
                        for line in f}
            every = [c for c in every if said(c, "lived") in left]
        return sorted(every, key=lambda change: change.key)

    def one(self, change, source):
        """killed, lived, unreached, or None: it is no change, or no program."""
        made = self.builds.compile(change.path, source.changed(change))
        if made is None or self.builds.same(source, made):
            return None, ""
        tests = sorted((t for t in self.reached[change.path, change.line] if t in self.seconds),
                       key=self.seconds.get)
        if not tests:
            return "unreached", ""
        by = ""
        for test in tests:
            if test.startswith("unit/") and (self.options.every or not by):
                found = self.kill(change, test, self.builds.link(test))
                by = by or found
        mounts = [test for test in tests if not test.startswith("unit/")]
        if mounts and (self.options.every or not by):
            self.builds.put_programs()
            found = self.kill_by_mounts(change, mounts)
            by = by or found
        return ("killed" if by else "lived"), by

    def limit(self, test):
        return 5 + 3 * self.seconds[test]

    def kill(self, change, test, program=None):
        """What of this test fails, or ""."""
        failed, _, _ = run_test(self.builds.plain, test, self.limit(test), self.limits, program)
        for what in failed:
            self.kills[test, what].append(change)
        return f"{test}: {failed[0]}" if failed else ""

    def kill_by_mounts(self, change, tests):
        by, left = "", list(tests)
        while left and (self.options.every or not by):
            runs = side_by_side(self.builds.plain, left, self.options.jobs, self.limit,
                                self.limits)
            suspect = None
            for test, failed, _, _ in runs:
                left.remove(test)
                if failed:
                    suspect = test
                    break
            runs.close()
            if suspect:
                found = self.kill(change, suspect)
                by = by or found
        return by

    def main(self):
        self.prepare()
        sources = {}
        self.began = time.monotonic()
        for change in self.draw():
            if self.count == self.options.number:
                break
            source = sources.setdefault(change.path, Source(change.path))
            if self.options.list:
                result, by = "drawn", ""
            else:
                say(f"{self.count} {change.path}:{change.line}")
                result, by = self.one(change, source)
            if result is None:
                continue
            self.count += 1
            self.rooms[room_of(change.path)][result] += 1
            if result != "killed" or self.options.verbose:
                print(f"{said(change, result)}   | {source.words(source.line(change.start))}"
                      f"{'   ' + by if by else ''}", flush=True)
        if not self.options.list:
            self.report()

    def report(self):
        took = time.monotonic() - self.began
        say("")
        if self.options.every:
            every = collections.Counter(c for found in self.kills.values() for c in set(found))
            for (test, what), found in sorted(self.kills.items()):
                alone = sum(every[c] == 1 for c in set(found))
                print(f"{test}: {what}: kills {len(set(found))}, of which no other kills {alone}")
        print("room          drawn  reached  killed  of reached")
        total = collections.Counter()
        for room, found in [*sorted(self.rooms.items()), ("all", total)]:
            reached = found["killed"] + found["lived"]
            print(f"{room:12} {reached + found['unreached']:6} {reached:8} {found['killed']:7}"
                  f" {100 * found['killed'] / max(reached, 1):10.1f}%")
            if found is not total:
                total.update(found)
        print(f"seed {self.options.seed}, tests {self.options.tests}: "
              f"{took / max(self.count, 1):.1f} s a change")


def said(change, result):
    return f"{change.path}:{change.line}: {result}: {change.kind}: " \
        f"{short(change.old)} → {short(change.new) or 'nothing'}"


def short(text):
    text = " ".join(text.split())
    return text if len(text) < 60 else text[:57] + "..."


def room_of(path):
    return path.split("/")[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(TOP, "build", "mutate"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--number", type=int, default=400, help="how many changes (400)")
    parser.add_argument("--room", help="only in these directories of src: plan,read")
    parser.add_argument("--at", help="only in these files or lines: FILE,FILE:LINE")
    parser.add_argument("--again", metavar="FILE",
                        help="only those that lived or were not reached in this output")
    parser.add_argument("--tests", default="unit",
                        help="kinds or names: unit,mount,oracle,mount/read.sh (unit)")
    parser.add_argument("--jobs", type=int, default=1, help="how many mounts at a time (1)")
    parser.add_argument("--longest", type=float, default=600,
                        help="leave out tests that take more seconds")
    parser.add_argument("--list", action="store_true", help="print the changes, run nothing")
    parser.add_argument("--every", action="store_true",
                        help="run all tests for each change: what does each one kill?")
    parser.add_argument("--verbose", action="store_true", help="print what was killed too")
    run = Run(parser.parse_args())
    try:
        run.main()
    except KeyboardInterrupt:
        run.report()
    finally:
        run.builds.put_back()


if __name__ == "__main__":
    main()
