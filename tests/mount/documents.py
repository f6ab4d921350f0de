#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""README.md and doc/: commands run as they are written, in a directory that has the files
that they name; README_CN.md and doc/zh/ have the same ones; links lead somewhere.

Whatever a block mounts is read to its end.  RSH_ORACLE_PYTHON names a Python that has
MindSpore, RSH_PLOT_PYTHON one that has matplotlib, and RSH_MINDFORMERS mindformers.
"""

import contextlib
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.abspath(os.environ.get("srcdir", "."))
TOP = os.path.abspath(os.environ.get("top_srcdir", os.path.join(HERE, "..")))
LIB = os.path.join(HERE, "lib")
DATA = os.path.join(TOP, "tests", "data")
sys.path.insert(0, LIB)

from daemon_use import mounts_below  # noqa: E402
from demands import check, content, write  # noqa: E402
import documents  # noqa: E402
import deepspeed_trees  # noqa: E402
from rank_pickles import unpack  # noqa: E402
from rsh_cli import run  # noqa: E402
from rsh_mount import (TIMEOUT_SCALE, Skipped, Tap, hash_tree, require_mount,  # noqa: E402
                       reshardfs_program)
from s3_trial import Server  # noqa: E402
from shown_model import values_of_model  # noqa: E402
import version_chains  # noqa: E402

ORACLE = os.environ.get("RSH_ORACLE_PYTHON")
PLOT = os.environ.get("RSH_PLOT_PYTHON")
BUILD = os.path.dirname(reshardfs_program())
LIBRARY = os.path.join(BUILD, ".libs")

# What is not run here, by page and first line, and who runs it or why nobody can.
NOT_RUN = {
    ("README.md", "tests/demo.sh"): "tests/fresh/demo.sh and tests/run.sh do",
    ("README.md", "apt-get install"): "tests/fresh/install.sh does",
    ("doc/install.md", "tests/package.sh"): "tests/fresh/package.sh does",
    ("doc/install.md", "pip install ."): "mount/wheel.py does",
    ("doc/install.md", "make -C build/install dist"): "tests/package.sh does",
    ("doc/install.md", "tests/wheels.sh"): "it builds all libraries; tests/fresh/wheels.sh does",
    ("doc/install.md", "docker run"): "there is no container engine",
    ("doc/install.md", "make -C build/install uninstall"):
        "mount/install.sh, tests/package.sh and mount/wheel.py do",
    ("doc/python.md", "pip install ."): "mount/wheel.py does",
    ("doc/python.md", "import reshardfs.dcp"): "oracle/dcp_loads_distributed.py does",
    ("doc/serve.md", "vllm serve"): "oracle/vllm_loads.py does",
    ("doc/serve.md", "import reshardfs\nfound"): "it needs SGLang on a GPU",
    ("doc/operate.md", "import json, os, ray"): "it needs Ray, with which it was run",
    ("doc/jobs.md", "/data/ckpt8 /mnt/ckpt4 reshardfs"): "mount/fstab.sh does",
    ("doc/jobs.md", "ln -s /usr/local"): "mount/fstab.sh does",
    ("doc/jobs.md", "SOURCE="): "there is no systemd; mount/fstab.sh reads the unit",
}
# Words that a first page does without.
NOT_IN_README = ["oracle", "fuzz", "landlock", "/sbin", "pythondir", "--fault"]
# Stay mounted until the end of their page.
KEPT = {"doc/fine-tune.md"}

LAUNCHER = """
set -e
ls "$PWD/scripts" >/dev/null
if [ -d qwen8/rank_0 ]; then
    for r in 0 1 2 3 4 5 6 7; do cat qwen8/rank_$r/checkpoint_$r.safetensors >/dev/null; done
else
    mkdir -p output/strategy
    cp strategies/* output/strategy/
fi
"""

class Place:
    """What the pages name: a checkpoint of 8 cards with its strategy, one of 4, models."""

    def __init__(self, directory, port):
        self.directory = directory
        self.environment = {
            **{n: v for n, v in os.environ.items() if not n.startswith("AWS_")},
            "PATH": os.pathsep.join([self.at("bin"), BUILD, os.environ["PATH"]]),
            "HOME": self.at("home"), "XDG_CACHE_HOME": self.at("home", "cache"),
            "PYTHONPATH": os.path.join(TOP, "python"), "PYTHONDONTWRITEBYTECODE": "1",
            "LIBRESHARD": os.path.join(LIBRARY, "libreshard.so.0"),
            # What pages set for the cloud leads here.
            "AWS_ENDPOINT_URL_S3": f"http://127.0.0.1:{port}", "no_proxy": "127.0.0.1",
            "GLOG_v": "3", "COLUMNS": "80"}
        os.mkdir(self.at("home"))
        demo = os.path.join(DATA, "demo")
        shutil.copytree(demo, self.at("tests", "data", "demo"))
        shutil.copytree(os.path.join(demo, "checkpoint"), self.at("ckpt8"))
        shutil.copytree(os.path.join(demo, "checkpoint"), self.at("job7"))
        shutil.copytree(os.path.join(demo, "checkpoint"), self.at("s3", "bucket", "ckpt8"))
        for cards in (8, 4):
            os.mkdir(self.at(f"strategy{cards}"))
            shutil.copy(os.path.join(demo, f"strategy_{cards}_cards.ckpt"),
                        self.at(f"strategy{cards}"))
        for rank in range(4):
            write(self.at("data_parallel", f"rank_{rank}", "net-1_1.ckpt"),
                  content(os.path.join(demo, "checkpoint", "rank_0", "gpt-1_20.ckpt")))
        saved = os.path.join(DATA, "checkpoint2")
        shutil.copytree(os.path.join(saved, "dp4mp2_opt"), self.at("saved"))
        shutil.copytree(os.path.join(saved, "strategies", "mp4"), self.at("strategy_of_new_job"))
        shutil.copytree(os.path.join(DATA, "torch", "hf-bin"), self.at("torch_model"))
        shutil.copytree(os.path.join(DATA, "dcp", "torch-2.15", "fsdp2-2"), self.at("step-500"))
        shutil.copytree(os.path.join(DATA, "quantised", "gpt_oss"), self.at("gpt-oss-20b"))
        with tempfile.TemporaryDirectory() as unpacked:
            ranks = os.path.join(unpack(unpacked), "verl", "global_step_20")
            shutil.copytree(ranks, self.at("global_step_20"))
            zero = os.path.join(deepspeed_trees.unpack(unpacked), "trainer-z3", "checkpoint-2")
            shutil.copytree(zero, self.at("checkpoint-500"))
            os.rename(self.at("checkpoint-500/global_step2"),
                      self.at("checkpoint-500/global_step500"))
            versions = version_chains.unpack(os.path.join(unpacked, "versions"))
            shutil.copytree(os.path.join(versions, "xor"), self.at("rl-weights"))
            shutil.copytree(os.path.join(versions, "base"), self.at("Qwen3-4B"))
        self._make_model()
        write(self.at("job.key"), os.urandom(32))
        self._make_programs()

    def at(self, *names):
        return os.path.join(self.directory, *names)

    def _make_model(self):
        """A model, the strategy of a job of 8 ranks, and what that has saved."""
        shutil.copytree(os.path.join(DATA, "weights", "models", "qwen3"), self.at("Qwen3-8B"))
        strategy = self.at("job8.ckpt")
        done = run("strategy", "derive", "--mesh", "dp=2,mp=4", "-o", strategy, os.path.join(
            DATA, "weights", "strategies", "qwen3.qwen3.dp2mp2.ckpt"))
        check(done.status == 0, done)
        for rank in range(8):
            write(self.at("strategies", f"ckpt_strategy_rank_{rank}.ckpt"), content(strategy))
        shutil.copytree(self.at("strategies"), self.at("output", "strategy"))
        done = run("export", "--convert", "auto", "--format", "safetensors", "--dst-strategy",
                   strategy, self.at("Qwen3-8B"), self.at("output", "checkpoint"))
        check(done.status == 0, done)
        os.remove(self.at("output", "checkpoint", "reshardfs-manifest.jsonl"))
        done = run("export", "--format", "dcp", self.at("Qwen3-8B"), self.at("step-1000"))
        check(done.status == 0, done)

    def _make_programs(self):
        """Python with what a command wants, and where a build keeps the library."""
        programs = {
            "python3": f'case "$*" in\n*mindspore*) exec {ORACLE} "$@" ;;\n'
                       f'*reshardfs.picture*) exec {PLOT} "$@" ;;\nesac\n'
                       f'exec {sys.executable} "$@"',
            "pkg-config": f"echo -I{TOP}/include -L{LIBRARY} -lreshard -Wl,-rpath,{LIBRARY}"}
        for name, text in programs.items():
            os.chmod(write(self.at("bin", name), f"#!/bin/sh\n{text}\n".encode()), 0o755)
        write(self.at("scripts", "msrun_launcher.sh"), LAUNCHER.encode())

    def run(self, *command, text=""):
        got = subprocess.run(command, cwd=self.directory, env=self.environment, input=text,
                             text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             timeout=300 * TIMEOUT_SCALE, check=False)
        check(got.returncode == 0, f"status {got.returncode}\n{got.stdout}")
        return got.stdout

    def mounts(self):
        return [line.split()[1] for line in mounts_below(self.directory)]

    def unmount(self):
        for path in self.mounts():
            run("umount", path)


def wants_oracle(block):
    """Whether it takes MindSpore, or the numpy beside it."""
    return re.search(r"import mindspore|reshardfs\.(tensors|weights)", block.text)


def lacking(block):
    """What a block needs that this machine or build has not."""
    if wants_oracle(block) and not ORACLE:
        return "RSH_ORACLE_PYTHON does not name a Python that has MindSpore"
    if "plan --picture" in block.text and not PLOT:
        return "RSH_PLOT_PYTHON does not name a Python that has matplotlib"
    if "s3://" in block.text and "built without" in run("ls", "s3://bucket/x").err:
        return "built without object storage"
    return None


def read_mounts(place, block):
    """All of what is mounted now; four cards have the converter's bytes, whatever of."""
    for path in place.mounts():
        found = {name: sha for name, (_, sha) in hash_tree(path).items()}
        check(found, f"{path} shows nothing")
        if "strategy4" in block.text and not re.search("--(compat|format)", block.text):
            sums = content(os.path.join(DATA, "demo", "SHA256SUMS")).decode().split()
            check(found == dict(zip(sums[1::2], sums[0::2])), f"{path} has other bytes")
        if "output/checkpoint" in block.text:
            check(values_of_model(path) == values_of_model(place.at("Qwen3-8B")),
                  f"{path} is another model")


def on_terminal(place, text):
    """What commands print on a terminal of 80 columns, after the commands themselves."""
    leader, follower = pty.openpty()
    process = subprocess.Popen(["sh", "-ec", "stty cols 80; " + text], cwd=place.directory,
                               env=place.environment, stdin=follower, stdout=follower,
                               stderr=follower)
    os.close(follower)
    said = b""
    with contextlib.suppress(OSError):  # the last one has closed it
        while more := os.read(leader, 65536):
            said += more
    os.close(leader)
    check(process.wait() == 0, said.decode())
    return said.decode().replace("\r\n", "\n").expandtabs()


def run_console(place, block):
    """Commands after "$ ", each with what it prints."""
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block.text, re.M)
    check(commands, "no command")
    text = "".join(f"echo '--{i}'\n{command}\n" for i, (command, _) in enumerate(commands))
    found = re.split(r"^--\d+\n", on_terminal(place, text), flags=re.M)[1:]
    for (command, wanted), said in zip(commands, found):
        check(said == wanted, f"$ {command}\n{said}is not\n{wanted}")


def check_yaml(block):
    """mindformers' own configuration has each of its keys."""
    config = os.path.join(os.environ.get("RSH_MINDFORMERS", ""), "configs", "qwen3",
                          "finetune_qwen3.yaml")
    if not os.path.exists(config):
        raise Skipped("RSH_MINDFORMERS does not name a directory of mindformers")
    known = set(re.findall(r"^ *([a-z_]+):", content(config).decode(), re.M))
    keys = set(re.findall(r"^ *([a-z_]+):", block.text, re.M))
    check(keys and keys <= known, f"unknown: {keys - known}")


def is_block(block, key):
    page, first = key
    return block.page == page and block.text.startswith(first)


def run_block(place, block):
    why = lacking(block)
    if why:
        raise Skipped(why)
    if block.language == "sh":
        place.run("bash", "-e", "-o", "pipefail", text=block.text)
    elif block.language == "console":
        run_console(place, block)
    elif block.language == "python":
        text = documents.python_example(block.text, "strategy8", "strategy4")
        place.run(ORACLE if wants_oracle(block) else sys.executable, "-", text=text)
    elif block.language == "c":
        write(place.at("example.c"), block.text.encode())
    elif block.language == "yaml":
        check_yaml(block)
    else:
        check(False, f"a block of the language {block.language!r}")
    if "reshardfs mount" in block.text and "reshardfs umount" not in block.text:
        check(place.mounts(), "nothing is mounted")
    read_mounts(place, block)


def run_pages(tap, place):
    for page in documents.pages(TOP):
        if documents.is_chinese(page):  # the blocks of the English page
            continue
        if page in KEPT:
            shutil.rmtree(place.at("output", "strategy"))
        for block in documents.blocks(TOP, page):
            if any(is_block(block, key) for key in NOT_RUN):
                continue
            try:
                with tap.test(block.name):
                    run_block(place, block)
            finally:
                if page not in KEPT:
                    place.unmount()
        place.unmount()
        tap.equal(place.mounts(), [], f"{page}: nothing stays mounted")


def check_readme(tap):
    lines = documents.read(TOP, "README.md").splitlines()
    tap.ok(len(lines) <= 130, "README.md has at most 130 lines", len(lines))
    first = "\n".join(lines[:40])
    tap.ok("tests/demo.sh" in first and "tests/run.sh" in first,
           "both commands that set everything up are in its first forty lines")
    tap.ok("$ ls 4cards" in "\n".join(lines[:25]) and "BENCHMARKING.md" in
           "\n".join(lines[:25]), "an example and figures are in its first 25")
    for page in ("README.md", "README_CN.md"):
        text = documents.read(TOP, page)
        tap.equal([w for w in NOT_IN_README if w in text.lower()], [],
                  f"{page}: no word of the inside")


def code(page):
    return [(block.language, documents.without_comments(block.text))
            for block in documents.blocks(TOP, page)]


def sections(page):
    return [len(marks) for marks in re.findall(r"^(#+) ", documents.prose(TOP, page), re.M)]


def figures(page):
    return sorted(set(re.findall(r"\d+(?:\.\d+)*", documents.prose(TOP, page))))


def tables(page):
    """Columns of each row."""
    return [row.count("|") for row in re.findall(r"^\|.*$", documents.prose(TOP, page), re.M)]


def names(page):
    """Options, files and values between backquotes."""
    return sorted({" ".join(name.split())
                   for name in re.findall(r"`([^`]+)`", documents.prose(TOP, page))})


def linked(page, translate):
    """(path, number of the heading) of each link; headings have other anchors in Chinese."""
    found = []
    for target in documents.links(TOP, page):
        path, anchor = documents.destination(page, target)
        headings = documents.anchors(TOP, path) if anchor else []
        found.append((translate(path),
                      headings.index(anchor) if anchor in headings else anchor))
    return sorted(found, key=str)


def check_chinese(tap):
    """Each page in Chinese says what the English one says, as far as this can be compared."""
    pages = [page for page in documents.pages(TOP) if not documents.is_chinese(page)]
    tap.equal(sorted(map(documents.other_language, pages)),
              sorted(set(documents.pages(TOP)) - set(pages)), "each page is there in Chinese")
    for english in pages:
        chinese = documents.other_language(english)
        for page, other in ((english, chinese), (chinese, english)):
            first = documents.read(TOP, page).splitlines()[0]
            tap.ok(f"({os.path.relpath(other, os.path.dirname(page))})" in first,
                   f"the first line of {page} leads to {other}", first)
        same = [code, sections, figures]
        if english != "README.md":  # README_CN.md may say more
            same += [tables, names]
            tap.equal(linked(chinese, str), linked(english, documents.other_language),
                      f"{chinese} has the links of {english}")
        for what in same:
            tap.equal(what(chinese), what(english),
                      f"{chinese} has the {what.__name__} of {english}")


def check_links(tap):
    wrong = []
    for page in documents.pages(TOP):
        for target in documents.links(TOP, page):
            path, anchor = documents.destination(page, target)
            if not os.path.exists(os.path.join(TOP, path)):
                wrong.append(f"{page}: {target}")
            elif anchor and anchor not in documents.anchors(TOP, path):
                wrong.append(f"{page}: {target}: no such heading")
    tap.equal(wrong, [], "links lead somewhere")
    for readme in ("README.md", "README_CN.md"):
        found = {documents.destination(readme, target)[0]
                 for target in documents.links(TOP, readme)}
        tap.equal(sorted(found & set(documents.pages(TOP))),
                  [page for page in documents.pages(TOP)
                   if page == documents.other_language(readme) or page.startswith("doc/") and
                   documents.is_chinese(page) == documents.is_chinese(readme)],
                  f"{readme} leads to each page of doc/ in its language")
    used = [block for page in documents.pages(TOP) for block in documents.blocks(TOP, page)]
    tap.equal([key for key in NOT_RUN if not any(is_block(block, key) for block in used)], [],
              "what is not run is there")


def main():
    require_mount()
    tap = Tap()
    check_readme(tap)
    check_chinese(tap)
    check_links(tap)
    with tempfile.TemporaryDirectory(prefix="reshardfs-documents-") as directory:
        os.makedirs(os.path.join(directory, "s3", "bucket"))
        with Server(os.path.join(directory, "s3")) as server:
            run_pages(tap, Place(directory, server.port))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
