# SPDX-License-Identifier: Apache-2.0
"""The texts that the program can print, taken from its sources.

`literals()` gives all string literals of a C file.  Adjacent literals count as one, with
a PRIu64 or the like between them read as "llu".
"""

import json
import os
import re

TOKEN = re.compile(r"""
    (?P<gap>\s+|/\*.*?\*/|//[^\n]*|^[ \t]*\#(?:[^\n\\]|\\.)*)
  | "(?P<text>(?:[^"\\]|\\.)*)"
  | '(?:[^'\\]|\\.)*'
  | (?P<pri>\bPRI[a-z]+[0-9]*\b)
  | (?P<name>\w+)
  | (?P<other>.)
""", re.X | re.S | re.M)
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}


def tokens(source):
    """(line, kind, text) of each token, literals joined; gaps are left out."""
    line, joined = 1, None
    for found in TOKEN.finditer(source):
        kind, text = found.lastgroup, found.group()
        if kind == "text":
            text = re.sub(r"\\(.)", lambda m: ESCAPES.get(m[1], m[1]), found["text"], flags=re.S)
        if kind == "text" or (kind == "pri" and joined):
            joined = joined or [line, ""]
            joined[1] += text if kind == "text" else "llu"
        elif kind != "gap":
            if joined:
                yield joined[0], "text", joined[1]
            joined = None
            yield line, kind or "char", text
        line += found.group().count("\n")
    if joined:
        yield joined[0], "text", joined[1]


def literals(path):
    """(line, text) of each string literal of a C file, but for those that only the compiler
    prints, and options, whose texts are help."""
    found, compiler = [], False
    with open(path, encoding="utf-8") as f:
        for line, kind, text in tokens(f.read()):
            if kind == "name" and text in ("_Static_assert", "rsh_option", "rsh_option_list"):
                compiler = True
            elif kind == "other" and text == ";":
                compiler = False
            elif kind == "text" and not compiler:
                found.append((line, text))
    return found


def sources(top):
    """Paths of all C files of the program, below `top`."""
    found = []
    for room in ("src", "mount-helpers"):
        for at, _, names in os.walk(os.path.join(top, room)):
            found += [os.path.relpath(os.path.join(at, name), top) for name in names
                      if name.endswith(".c")]
    return sorted(found)


# These have words of messages without looking for them.
OWN = ("words.py", "messages.py", "reached.py")
# Their literals are no messages: help, and what `metrics` says of figures.
NO_MESSAGES = ("src/app/options/commands.c", "src/app/daemon/figures.c")
# Also those of rsh_say(): % is any value, {a|b} one of two words.
CONVERSION = re.compile(r"%[-+#0-9.*]*(?:ll|z|h|l)?[a-z]|%+(?![-+#0-9.*a-z])|\{[a-z ]*\|[a-z ]+\}")


def words_of(text):
    """The words of a format without their punctuation; what is printed into it is "%"."""
    text = CONVERSION.sub("\0", text).replace("\0.\0", "\0")
    return ["%" if "\0" in word else word.strip(".,:;!?\"'`()[]{}\\")
            for word in text.split()]


def messages(top):
    """(path, line, text) of each literal with at least three words of letters."""
    return [(path, line, text) for path in sources(top) if path not in NO_MESSAGES
            for line, text in literals(os.path.join(top, path))
            if sum(len(word) > 1 and word.isalpha() for word in words_of(text)) > 2]


# Begins the reason of messages that no test makes the program print.
NOT_REACHED = "Not reached: "


def listed(top):
    """{(path, text): reason} of unit/data/messages; a reason is a comment that holds to
    the next one."""
    found, reason = {}, ""
    with open(os.path.join(top, "tests", "unit", "data", "messages"), encoding="utf-8") as f:
        for line in f.read().splitlines():
            if line.startswith("# "):
                reason = line[2:]
            elif line:
                path, _, text = line.partition(": ")
                found[path, json.loads(text)] = reason
    return found


def texts_of(tests):
    """The texts of all programs below that directory."""
    for at, _, names in os.walk(tests):
        for name in names:
            if name.endswith((".py", ".sh", ".c")) and name not in OWN:
                with open(os.path.join(at, name), encoding="utf-8", errors="replace") as f:
                    yield f.read()


class Quotes:
    """What tests look for: the words that follow each other in their texts."""

    def __init__(self, texts):
        self.follow, self.around = set(), set()
        for text in texts:
            # Adjacent literals are one.
            text = re.sub(r"""["']\s*\\?\n?\s*[fr]*["']""", "", text)
            words = words_of(re.sub(r"\\(.)", r"\1", text))
            self.follow.update(zip(words, words[1:], words[2:]))
            self.around.update(zip(words, words[2:]))

    def have(self, text):
        """Whether a test has three words in a row of a message; the middle one may be one
        that is printed into it."""
        words = words_of(text)
        return any((a, c) in self.around if b == "%" else (a, b, c) in self.follow
                   for a, b, c in zip(words, words[1:], words[2:])
                   if a != "%" != c and len(a + b + c) > 8)
