# SPDX-License-Identifier: Apache-2.0
"""Pages in Markdown: their blocks of code, headings and links."""

import os
import re
from dataclasses import dataclass

# The net of an example in Python, made before it, and what it has to have after it.
NET = """
import mindspore, numpy, reshardfs
rank_id = 0
class Net(mindspore.nn.Cell):
    def __init__(self):
        super().__init__()
        shapes = {r.name: r.shape for r in reshardfs.records(
            "ckpt8", 0, src_strategy="%s", dst_strategy="%s")}
        self.bias = mindspore.Parameter(mindspore.Tensor(numpy.zeros(
            shapes["blocks.0.up.bias"], "float32")), name="blocks.0.up.bias")
net = Net()
"""
LOADED = "\nassert net.bias.asnumpy().any()\n"


@dataclass
class Block:
    """A fenced block: its page, the heading above it, its language and text."""
    page: str
    heading: str
    line: int
    language: str
    text: str

    @property
    def name(self):
        return f"{self.page}:{self.line}: {self.text.strip().splitlines()[0]}"


def pages(top):
    """Paths of all pages for users, below `top`."""
    found = [name for name in os.listdir(top) if re.fullmatch(r"README.*\.md", name)]
    for directory in ("doc", "doc/zh"):
        found += [os.path.join(directory, name)
                  for name in os.listdir(os.path.join(top, directory)) if name.endswith(".md")]
    return sorted(found)


def is_chinese(page):
    return page == "README_CN.md" or page.startswith("doc/zh/")


def other_language(path):
    """The page that says the same in the other language; any other path is itself."""
    same = {"README.md": "README_CN.md", "README_CN.md": "README.md"}
    if is_chinese(path):
        return same.get(path, path.replace("doc/zh/", "doc/"))
    return same.get(path, re.sub(r"^doc/([\w-]+\.md)$", r"doc/zh/\1", path))


def read(top, page):
    with open(os.path.join(top, page), encoding="utf-8") as f:
        return f.read()


def blocks(top, page):
    found, heading, inside = [], "", None
    for number, line in enumerate(read(top, page).splitlines(), 1):
        if line.startswith("```"):
            if inside:
                found.append(inside)
                inside = None
            else:
                inside = Block(page, heading, number + 1, line[3:].strip(), "")
        elif inside:
            inside.text += line + "\n"
        elif line.startswith("#"):
            heading = line.lstrip("# ")
    return found


def prose(top, page):
    """The page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", read(top, page), flags=re.M | re.S)


def links(top, page):
    """Targets of all links and pictures that are no address."""
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(top, page))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def destination(page, target):
    """(path, anchor) of a link of a page."""
    path, _, anchor = target.partition("#")
    return os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page, anchor


def anchors(top, page):
    """What GitHub makes of the headings of a page, in their order."""
    found = re.findall(r"^#+ (.*)$", prose(top, page), re.M)
    return [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found]


def without_comments(text):
    """Commands of a block, comments at the end of lines left out."""
    return re.sub(r"(?:^|\s+)# .*$", "", text, flags=re.M)


def python_example(text, src_strategy, dst_strategy):
    """An example in Python, with the net that it may use."""
    if not re.search(r"\bnet\b", text):
        return text
    return NET % (src_strategy, dst_strategy) + text + LOADED
