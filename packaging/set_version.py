#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the version of configure.ac where a file must have it: the spec, examples, manuals,
README.  What is compiled, the wheel and the image take it from configure.ac themselves.

    set_version.py [--check]

--check changes nothing, and names the lines that have another version.  debian/changelog and
NEWS have an entry for each version, which people write: their first one is only compared.
"""

import os
import re
import sys

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
VERSION = r"\d+\.\d+\.\d+"
# A file, and what stands before the version in it.
WRITTEN = [("packaging/reshardfs.spec", r"^Version: +"),
           ("mount-helpers/examples/kubernetes.yaml", "reshardfs:"),
           ("mount-helpers/examples/kubernetes-fd.yaml", "reshardfs:"),
           ("mount-helpers/examples/fluid.yaml", 'imageTag: "'),
           ("man/reshardfs.5", '"program":"'),
           ("python/reshardfs/__init__.py", '^__version__ = "'),
           ("README.md", "This page describes "),
           ("README_CN.md", "本页介绍的是 ")]
COMPARED = [("debian/changelog", r"\Areshardfs \("), ("NEWS", r"\A")]


def content(name):
    with open(os.path.join(TOP, name), encoding="utf-8") as file:
        return file.read()


def main():
    if sys.argv[1:] not in ([], ["--check"]):
        sys.exit(__doc__)
    version = re.search(rf"^AC_INIT\(\[reshardfs\], \[({VERSION})\]", content("configure.ac"),
                        re.M).group(1)
    wrong = 0
    for name, before in WRITTEN + COMPARED:
        text = content(name)
        places = list(re.finditer(rf"({before})({VERSION})", text, re.M))
        if not places:
            wrong += 1
            print(f"{name}: it names no version")
        for place in places:
            if place[2] == version:
                continue
            if len(sys.argv) > 1 or (name, before) in COMPARED:
                wrong += 1
                line = text.count("\n", 0, place.start()) + 1
                print(f"{name}:{line}: {place[2]} is not {version}, which configure.ac has")
        if len(sys.argv) == 1 and (name, before) in WRITTEN:
            new = re.sub(rf"({before}){VERSION}", rf"\g<1>{version}", text, flags=re.M)
            if new != text:
                with open(os.path.join(TOP, name), "w", encoding="utf-8") as file:
                    file.write(new)
                print(f"{name}: {version}")
    sys.exit(wrong > 0)


if __name__ == "__main__":
    main()
