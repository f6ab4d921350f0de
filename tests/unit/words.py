#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Words that are not used where users read: README, doc/, manuals, help and messages.

Each has what to write instead.  The list holds what can be avoided everywhere.
And comments of the code have lines of at most 80 columns.
"""

import os
import re
import sys

TOP = os.environ.get("top_srcdir", os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))

from messages import literals, sources  # noqa: E402
from rsh_cli import run  # noqa: E402
from rsh_mount import Tap  # noqa: E402

# (what is not used, what is written instead)
WORDS = [
    # Places: things are somewhere, they do not lie or stand there.
    (r"\b(lies|lie|lay|lying)\b", "is, is stored"),
    (r"\b(stand|stands|stood|standing)\b", "is"),
    (r"\bcomes? along\b", "is included"),
    (r"\bborne\b|\bbears?\b", "supports, has"),
    # Programs and files are not persons.
    (r"\bnobody\b", "no process, no user"),
    (r"(?<!users )(?<!engineers )\bwho\b|\bwhom\b", "a process that; users are named"),
    (r"\b(is|are|was|were|be|been) (told|asked)\b", "gets, is requested"),
    (r"\b(asked|told) (of|for|to|too)\b", "requested, configured"),
    (r"\b(tells?|speaks?|says?) (nothing )?of\b", "describes, contains"),
    (r"\bknows? (nothing |none )?of\b", "contains, lists"),
    (r"\b(let|lets) us\b|\bour own\b|\bof ours\b", "allow; name the program"),
    (r"\bsays? it(self)?\b|\bsay it\b", "contains, describes"),
    (r"\b(gives?|gave|given|giving) up\b", "drop; stop"),
    (r"\bgo(es)? on\b|\bwent on\b|\bgoing on\b", "resume, continue"),
    # Idioms for what has a term.
    (r"\bas such\b", "to this type"),
    (r"\b(make|makes|made|making) up (for|of)\b", "replace, consist of"),
    (r"\b(held|hold|holds|holding) (\w+ ){0,6}against\b", "compared with"),
    (r"\bbrought in\b|\bhad from\b|\b(can|cannot|could|to) be had\b", "available, read from"),
    (r"\b(came|come|comes) short\b", "is truncated"),
    (r"\btak(e|es|en) (\w+ ){0,2}down\b|\btaken from the tree\b", "unmount"),
    (r"\bby hand\b", "manually"),
    (r"\b(some|any|every)body\b|\bwhoever\b", "a user, a process, all users"),
    (r"\bin vain\b", "without result"),
    (r"\bbut for\b", "except"),
    (r"\bthe other way round\b", "in the other direction"),
    (r"\bpass(es|ed)? over\b", "skip, ignore"),
    (r"\bonce more\b", "again, another"),
    (r"\bunder way\b", "in progress"),
    (r"\bby way of\b", "through"),
    (r"\banew\b", "again, new"),
    (r"\bslips? of the pen\b", "typing error"),
    (r"\bdrills?\b", "test"),
    (r"\bdoubtful\b|\bno doubt\b", "not certain"),
    (r"\bas it wishes\b|\bas it likes\b|\bat its mercy\b", "name the condition"),
    (r"\b(newest|latest|last|older|next) whole\b", "complete"),
    (r"\b(is|are|was|were|be) (not )?whole\b", "complete"),
    (r"\bcondemn", "refuse"),
    # "is no list" is not English: "is not a list".
    (r"(?<!there )(?<!There )\b(is|are|was|were) no (?!longer|more|larger|other)",
     "is not a"),
    (r"\bthat is none\b|\bwhere there are none\b", "is not one"),
]

# These have such words still; each goes when its owner has rewritten it.
NOT_YET = [
]


def plain(text):
    """A manual without its macros: what a reader sees."""
    text = re.sub(r'^\.\\".*$', "", text, flags=re.M)
    text = re.sub(r"^\.[A-Z][a-z]\b", "", text, flags=re.M)
    text = re.sub(r"(?<=\s)(Fl|Ar|Cm|Pa|Nm|Ql|Qq|Dq|Em|Li|No|Ns|Op|Sy|Fn|Vt|Ev|Dv|Xr)(?=\s)",
                  "", text)
    return re.sub(r"\\[&|]", "", text)


def files_below(directory, pattern):
    for at, _, names in os.walk(os.path.join(TOP, directory)):
        for name in sorted(names):
            if re.search(pattern, name):
                yield os.path.relpath(os.path.join(at, name), TOP)


def read(path):
    with open(os.path.join(TOP, path), encoding="utf-8") as f:
        return f.read()


def hits(text, line=1):
    """(line, what was found, what is written instead); a phrase may go over two lines."""
    lines, flat = [], ""
    for number, one in enumerate(text.split("\n"), line):
        one = " ".join(one.split()) + " "
        lines += [number] * len(one)
        flat += one
    return sorted((lines[m.start()], m.group().strip(), instead)
                  for pattern, instead in WORDS for m in re.finditer(pattern, flat, re.I))


def hits_of_file(path):
    if path.endswith(".c"):
        return [hit for line, text in literals(os.path.join(TOP, path)) for hit in hits(text, line)]
    return hits(plain(read(path)) if path.startswith("man") else read(path))


def wide_comments(path):
    """path:line of each line of a comment that is wider than 80 columns."""
    inside = False
    for number, line in enumerate(read(path).split("\n"), 1):
        inside = inside or "/*" in line
        if inside and len(line.expandtabs(8)) > 80:
            yield f"{path}:{number}"
        inside = inside and "*/" not in line


def help_pages():
    yield "help", run("--help").out
    for command in re.findall(r"^  ([a-z]+) ", run("--help").out, re.M):
        yield f"help {command}", run(command, "--help-all").out


def main():
    tap = Tap()
    tap.equal(sorted(w for _, w, _ in hits("The disk\nlies: it is asked\ntoo much. It is no list.")),
              ["asked too", "is asked", "is no", "lies"], "they are found")
    readmes = [name for name in sorted(os.listdir(TOP)) if re.match(r"README.*\.md$", name)]
    groups = {
        "README": {path: hits_of_file(path) for path in readmes},
        "doc": {path: hits_of_file(path) for path in files_below("doc", r"\.md$")},
        "manuals": {path: hits_of_file(path) for path in files_below("man", r"\.[1-8]$")},
        "messages": {path: hits_of_file(path) for path in sources(TOP)},
        "help": {name: hits(text) for name, text in help_pages()},
    }
    dirty = [path for group in groups.values() for path, found in group.items() if found]
    for name, group in groups.items():
        bad = [f'{path}:{line}: "{word}" ({instead})' for path, found in group.items()
               for line, word, instead in found if not path.startswith(tuple(NOT_YET))]
        tap.ok(not bad, f"{name}: no word that is not used", "\n".join(bad))
    wide = [place for directory in ("src", "include")
            for path in files_below(directory, r"\.[ch]$") for place in wide_comments(path)]
    tap.ok(not wide, "comments: at most 80 columns", "\n".join(wide))
    done = [p for p in NOT_YET if not any(path.startswith(p) for path in dirty)]
    tap.ok(not done, "what is listed as not done has such words", f"take out: {done}")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
