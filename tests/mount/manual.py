#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manuals say the same as the tables of commands and options, and as the module.

What the program has is taken from its --help-all, which is made from the tables;
what the manuals have, from their lists of options and commands.
"""

import inspect
import os
import re
import shlex
import sys
import tempfile

TOP = os.environ.get("top_srcdir", os.path.join(os.environ.get("srcdir", "."), ".."))
LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path[:0] = [LIB, os.path.join(TOP, "python")]

from demands import check, content  # noqa: E402
from messages import literals, sources  # noqa: E402
from rsh_cli import GOOD, good, run  # noqa: E402
from rsh_mount import Tap  # noqa: E402
import reshardfs  # noqa: E402


def all_pages():
    pages = {}
    for name in sorted(os.listdir(os.path.join(TOP, "man"))):
        if re.search(r"\.[1-8]$", name):
            pages[name] = content(os.path.join(TOP, "man", name)).decode()
    return pages


def section(page, title):
    found = re.search(rf"^\.Sh {title}\n(.*?)(?=^\.Sh |\Z)", page, re.M | re.S)
    check(found, f"no section {title}")
    return found.group(1)


def commands_of_help():
    return re.findall(r"^  ([a-z]+) ", run("--help").out, re.M)


class Option:
    """What --help-all or a manual has of an option; a text is None where several share
    one."""

    def __init__(self, letter, text, value=""):
        self.letter, self.text, self.value = letter, text, value


def options_of_help(command):
    """{name: Option}; mount options are "o name"."""
    said = re.sub(r"\n {10,}(?=\S)", " ", run(command, "--help-all").out)
    options = {}
    for letter, line in re.findall(r"^  (?:-(.), |    )?(-.*)$", said, re.M):
        left, _, text = line.partition("  ")
        if not text:  # a long name, whose text begins on the next line
            left, text = (re.match(r"(-\S+(?: \S+)?) ?(.*)", line)).groups()
        name = re.match(r"-o [a-z_0-9]+|-+[a-z-]+", left).group()
        options[name.lstrip("-")] = Option(letter, text.strip(), left[len(name):].lstrip(" ="))
    return options


def plain(text):
    """Words that stand before the first macro, as they are shown."""
    before = re.split(r"^\.(?=[A-Z])", text, maxsplit=1, flags=re.M)[0]
    return " ".join(before.replace("\\-", "-").replace("\\&", "").replace("\\e", "\\").split())


def options_of_page(page):
    """The same of a manual's lists."""
    options = {}
    part = section(page, "OPTIONS").replace("\\\n", "")
    for line, text in re.findall(r"^\.It (.*)\n((?:(?!\.It |\.El).*\n)*)", part, re.M):
        names = re.findall(r"\bFl Fl ([a-z-]+)", line)
        letter = re.search(r"(?<!Fl )\bFl ([a-zA-Z])\b(?! Ar)", line)
        for name in names:
            options[name] = Option(letter.group(1) if letter else "",
                                   plain(text) if len(names) == 1 else None, line)
    if ".Ss Mount options" in page:
        part = page.split(".Ss Mount options", 1)[1].split(".El", 1)[0]
        for line, text in re.findall(r"^\.It (.*)\n((?:(?!\.It ).*\n)*)", part, re.M):
            names = re.findall(r"Cm ([a-z_]+)", line)
            options.update((f"o {name}", Option("", plain(text) if len(names) == 1 else None,
                                                line)) for name in names)
    return options


def begins_with(text, said):
    """A manual has the sentence of --help first, as a sentence."""
    return text.lower().rstrip(".").startswith(said.lower().rstrip("."))


def cases_of_page(page):
    """The commands of "choose your case", each a list of words."""
    part = section(page, "CHOOSE YOUR CASE")
    blocks = re.findall(r"^\.Bd -literal.*?\n(.*?)^\.Ed", part, re.M | re.S)
    check(len(re.findall(r"^\.It$", part, re.M)) == len(blocks), "a case without its command")
    return [block.replace("\\e\n", " ").split() for block in blocks]


def run_case(words, directory):
    """As somebody types it who has the tree of the manual."""
    demo = os.path.join(TOP, "tests", "data", "demo")
    weights = os.path.join(TOP, "tests", "data", "weights")
    hf = os.path.join(weights, "models", "qwen3")
    model = os.path.join(directory, "model")
    mnt = os.path.join(directory, "mnt")
    names = {"ckpt8": os.path.join(demo, "checkpoint"),
             "s8.ckpt": os.path.join(demo, "strategy_8_cards.ckpt"),
             "s4.ckpt": os.path.join(demo, "strategy_4_cards.ckpt"), "model": model,
             "m4.ckpt": os.path.join(weights, "strategies", "qwen3.qwen3.dp2mp2.ckpt"),
             "qwen3": hf, "qwen3/config.json": os.path.join(hf, "config.json"),
             "trained": os.path.join(directory, "trained")}
    for path in (model, mnt):
        os.makedirs(path, exist_ok=True)
    if not os.listdir(model):
        good("export", "--index-cache", "off", "--src-strategy",
             names["s8.ckpt"], "--dst-strategy", "none", "--format", "hf", names["ckpt8"],
             model)
        good("export", "--index-cache", "off", "--convert", "qwen3", "--from", "hf",
             "--dst-strategy", names["m4.ckpt"], hf, names["trained"])
    words = [names.get(w, mnt if w.startswith("/mnt/") else w) for w in words]
    check(words[0] == "reshardfs" and words[-1] == mnt, words)
    got = good(*words[1:])
    check(len(got.err.splitlines()) <= 2, f"a mount that goes well says little: {got.err}")
    try:
        files = [os.path.join(at, name) for at, _, names in os.walk(mnt) for name in names]
        check(files and all(os.path.getsize(f) for f in files), files)
        for path in files:
            content(path)
        return tuple(sorted(os.path.relpath(f, mnt) for f in files))
    finally:
        check(run("umount", mnt).status == GOOD, "cannot be unmounted")


def choose_your_case(tap, page):
    cases = cases_of_page(page)
    tap.equal(len(cases), 8, "eight cases")
    titles = re.findall(r"^\.Sh (.*)$", page, re.M)
    tap.equal(titles[:3], ["NAME", "SYNOPSIS", "CHOOSE YOUR CASE"], "the manual opens with them")
    if not os.path.exists("/dev/fuse"):
        tap.skip("each works as it stands there", "there is no /dev/fuse")
        return
    with tempfile.TemporaryDirectory(prefix="reshardfs-manual-") as directory:
        for words in cases:
            with tap.test(f"it works: {' '.join(words[1:])}"):
                run_case(words, directory)


# These have nothing to say when they are not given.
NO_DEFAULT = {"dst-mesh", "convert", "output", "mesh", "checkpoint", "split", "axes", "stage",
              "opt-include", "opt-exclude", "source-map", "only", "drop", "rename", "compat",
              "write-manifest", "cache-dir", "cache-key-file", "fault", "o", "o holder",
              "o context", "o fscontext", "o defcontext", "o rootcontext"}


def defaults(tap, command):
    missing, wrong, used = [], [], set()
    for name, option in options_of_help(command).items():
        value, text = option.value, option.text
        if not value:
            continue
        word = re.search(r"\(default: ([\w.-]+)|(\w+) \(default\)", text)
        if name in NO_DEFAULT:
            used.add(name)
            if word:
                wrong.append(name)
        elif not re.search(r"\bdefault\b|\brequired\b", text):
            missing.append(name)
        elif word and " auto" in text and "auto" not in value.split("|"):
            wrong.append(f"{name}: auto is none of {value}")
    tap.ok(not missing and not wrong, f"{command}: options name their defaults",
           f"no default: {missing}; wrong: {wrong}")
    return used


def short_help(tap, commands):
    """--help fits a terminal of 25 lines, also of a form; the texts name defaults."""
    words = [[c] for c in commands]
    for command in commands:
        usage = run(command, "--help").out.splitlines()[0]
        forms = re.search(r"\[options\] ([a-z|]+\|[a-z|]+)", usage)
        words += [[command, form] for form in (forms[1].split("|") if forms else ())]
    tall = {" ".join(w): n for w in words + [[]]
            if (n := len(run("help", *w).out.splitlines())) > 25}
    tap.ok(not tall, "--help has at most 25 lines", tall)
    used = set()
    for command in commands:
        used |= defaults(tap, command)
    tap.equal(used, NO_DEFAULT, "those without a default are options that take a value")


def signature(function):
    """As somebody calls it: (source, rank, **options)."""
    whole = inspect.signature(function)
    return str(whole.replace(return_annotation=inspect.Signature.empty, parameters=[
        p.replace(annotation=inspect.Parameter.empty)
        for p in whole.parameters.values() if p.name != "self"]))


def functions_of_module():
    """{name: function}, with the methods of its classes."""
    found = {name: getattr(reshardfs, name) for name in reshardfs.__all__}
    for name, kind in list(found.items()):
        if inspect.isclass(kind):
            found.update((f"{name}.{method}", function)
                         for method, function in vars(kind).items()
                         if inspect.isfunction(function) and not method.startswith("_"))
    return found


def program_prints(sentence, texts):
    """Whether the program has each part of a message that is between its values."""
    values = r"\b(?:TABLE|NAME|KEY|line N|N|M|g|e|\d+)\b|\[\.\.\.\]|\""
    parts = [p.strip(" ,:") for p in re.split(values, sentence.replace(r"\(dq", '"'))]
    return all(any(p in text for text in texts) for p in parts if " " in p)


def messages(tap, page):
    texts = [text for path in sources(TOP) for _, text in literals(os.path.join(TOP, path))]
    listed = re.findall(r"^\.It (.*)$", section(page, "DIAGNOSTICS"), re.M)
    with tap.test("the messages about tables that a manual explains are those of the program"):
        check(len(listed) > 5, listed)
        missing = [m for m in listed if not program_prints(m, texts)]
        check(not missing, missing)


def module(tap, page):
    offered = functions_of_module()
    listed = {}
    for line in re.findall(r"^\.It Fn (.*)$", page, re.M):
        name, *words = shlex.split(line.replace(r"\(aq", r"\'"))
        listed[name] = f"({', '.join(words)})"
    with tap.test("the module's manual has all its functions, as they are called"):
        functions = {n: signature(f) for n, f in offered.items()
                     if n in listed or not inspect.isclass(f)}
        check(listed == functions, [sorted(set(a.items()) - set(b.items()))
                                    for a, b in ((functions, listed), (listed, functions))])
    with tap.test("and its classes, and all have doc strings"):
        missing = [n for n, f in offered.items() if not f.__doc__ or
                   not re.search(rf"^\.(Vt (reshardfs\.)?|It Fn ){re.escape(n)}\b", page, re.M)]
        check(not missing, missing)


def main():
    tap = Tap()
    pages = all_pages()
    front = pages["reshardfs.1"]
    choose_your_case(tap, front)
    commands = commands_of_help()
    with tap.test("every command has a manual"):
        pages.update((command, pages[f"reshardfs-{command}.1"]) for command in commands)
        listed = re.findall(r"^\.It Cm ([a-z]+)$", section(front, "COMMANDS"), re.M)
        check(listed == commands, f"the manual lists {listed}, the program {commands}")
    short_help(tap, commands)
    # What all commands take stands in the manual of the program.
    documented = {"": options_of_page(front)}
    documented.update((command, options_of_page(pages[command])) for command in commands)
    with tap.test("options can be found"):
        check(len(documented["mount"]) > 45, documented["mount"])
    for command in commands:
        options = options_of_help(command)
        with tap.test(f"{command}: every option stands in a manual"):
            # Shared ones stand in the manual of a command before it.
            before = ["", *commands[:1 + commands.index(command)]]
            missing = [o for o in options
                       if o != "o" and not any(o in documented[c] for c in before)]
            check(not missing, missing)
        with tap.test(f"{command}: its manual has no other options"):
            other = {o: said.letter for o, said in documented[command].items()
                     if o not in options or options[o].letter != said.letter}
            check(not other, other)
        with tap.test(f"{command}: options begin with the text of --help"):
            differ = [(o, options[o].text, said.text)
                      for c in ("", command) for o, said in documented[c].items()
                      if said.text is not None and options[o].text
                      and not begins_with(said.text, options[o].text)]
            check(not differ, "\n".join(map(str, differ)))
        with tap.test(f"{command}: options have the values of --help"):
            # Where several options share a line, it has no values.
            lack = {o: option.value for o, option in options.items() if "|" in option.value
                    for c in ("", command) if o in documented[c] and documented[c][o].text
                    if not set(re.findall(r"[a-z0-9]+", option.value)) <=
                    set(re.findall(r"[a-z0-9]+", documented[c][o].value))}
            check(not lack, lack)
        with tap.test(f"{command}: --help says how it is called"):
            said = run(command, "--help-all")
            usage = said.out.splitlines()[0]
            check(f"{usage} ".startswith(f"usage: reshardfs {command} [options] "), usage)
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
        bad = [f"{name}: {line}" for name, page in pages.items()
               for line in page.splitlines() if line.startswith(".") and nested.search(line)]
        check(not bad, bad)
    messages(tap, pages["reshardfs-tables.5"])
    module(tap, pages["reshardfs-python.3"])
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
