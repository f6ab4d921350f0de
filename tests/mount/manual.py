#!/usr/bin/env python3
"""The manuals and the tables of commands and options say the same.

What the program has is taken from its --help, which is made from the tables;
what the manuals have, from their lists of options and commands.
"""

import os
import re
import sys

TOP = os.environ.get("top_srcdir", os.path.join(os.environ.get("srcdir", "."), ".."))
LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

from demands import check  # noqa: E402
from rsh_cli import run  # noqa: E402
from rsh_mount import Tap  # noqa: E402


def page_of(command):
    name = "reshardfs.1" if command == "mount" else f"reshardfs-{command}.1"
    with open(os.path.join(TOP, "man", name), encoding="utf-8") as f:
        return f.read()


def all_pages():
    pages = {}
    for name in sorted(os.listdir(os.path.join(TOP, "man"))):
        if re.search(r"\.[1-8]$", name):
            with open(os.path.join(TOP, "man", name), encoding="utf-8") as f:
                pages[name] = f.read()
    return pages


def section(page, title):
    found = re.search(rf"^\.Sh {title}\n(.*?)(?=^\.Sh |\Z)", page, re.M | re.S)
    check(found, f"no section {title}")
    return found.group(1)


def commands_of_help():
    return re.findall(r"^  ([a-z]+) ", run("--help").out, re.M)


def options_of_help(command):
    """{name: letter or ""}; mount options are "-o name"."""
    said = run(command, "--help").out
    options = {name: letter for letter, name in
               re.findall(r"^  (?:-(.), |    )--([a-z-]+)", said, re.M)}
    options.update((f"-o {name}", "") for name in re.findall(r"^  -o ([a-z_]+)", said, re.M))
    return options


def options_of_page(page):
    """The same of a manual's lists."""
    options = {}
    for line in re.findall(r"^\.It (.*)$", section(page, "OPTIONS"), re.M):
        name = re.search(r"\bFl Fl ([a-z-]+)", line)
        letter = re.search(r"(?<!Fl )\bFl ([a-zA-Z])\b(?! Ar)", line)
        if name:
            options[name.group(1)] = letter.group(1) if letter else ""
    if ".Ss Mount options" in page:
        part = page.split(".Ss Mount options", 1)[1].split(".El", 1)[0]
        for line in re.findall(r"^\.It (.*)$", part, re.M):
            options.update((f"-o {name}", "") for name in re.findall(r"Cm ([a-z_]+)", line))
    return options


def main():
    tap = Tap()
    commands = commands_of_help()
    pages = {}
    with tap.test("every command has a manual"):
        pages = {command: page_of(command) for command in commands}
        listed = re.findall(r"^\.It Cm ([a-z]+)$", section(pages["mount"], "COMMANDS"), re.M)
        check(listed == commands, f"the manual lists {listed}, the program {commands}")
    documented = {command: options_of_page(page) for command, page in pages.items()}
    with tap.test("options can be found"):
        check(len(documented["mount"]) > 45, documented["mount"])
    for command in commands:
        with tap.test(f"{command}: every option stands in a manual"):
            # Shared ones stand in the manual of a command before it.
            missing = [o for o in options_of_help(command)
                       if not any(o in documented[c] for c in commands[:1 + commands.index(command)])]
            check(not missing, missing)
        with tap.test(f"{command}: its manual has no other options"):
            options = options_of_help(command)
            other = {o: letter for o, letter in documented[command].items()
                     if options.get(o) != letter}
            check(not other, other)
        with tap.test(f"{command}: --help says how it is called"):
            said = run(command, "--help")
            usage = said.out.splitlines()[0]
            check(usage.startswith(f"usage: reshardfs {command} [options] "), usage)
            check(max(map(len, said.out.splitlines())) < 80, "too wide")
            operands = re.sub(r"[\[\]|.]", " ", usage.split("[options]")[1]).split()
            missing = [o for o in operands if not re.search(rf"\b(Ar|Cm) [A-Z ]*{o}\b", pages[command])]
            check(not missing, f"the manual has no {missing}")
        with tap.test(f"{command}: its manual has the sections"):
            for title in ("NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS", "EXIT STATUS", "SEE ALSO"):
                section(pages[command], title)
    with tap.test("quotes end where they should"):
        # Ql and Qq quote all that follows on their line, another one included, and Fl makes
        # flags of it.
        nested = re.compile(r"\b(Ql|Qq) .*\b(Ql|Qq)\b|Fl Fl [a-z-]+( [a-z]+){3}")
        bad = [f"{name}: {line}" for name, page in all_pages().items()
               for line in page.splitlines() if line.startswith(".") and nested.search(line)]
        check(not bad, bad)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
