# SPDX-License-Identifier: Apache-2.0
"""The texts that the program can print, taken from its sources.

`literals()` gives all string literals of a C file.  Adjacent literals count as one, with
a PRIu64 or the like between them read as "llu".
"""

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
    """(line, text) of each string literal of a C file."""
    with open(path, encoding="utf-8") as f:
        return [(line, text) for line, kind, text in tokens(f.read()) if kind == "text"]


def sources(top):
    """Paths of all C files of the program, below `top`."""
    found = []
    for room in ("src", "mount-helpers"):
        for at, _, names in os.walk(os.path.join(top, room)):
            found += [os.path.relpath(os.path.join(at, name), top) for name in names
                      if name.endswith(".c")]
    return sorted(found)
