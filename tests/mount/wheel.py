#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The module and the program as pip installs them: a wheel in an empty virtual
environment, used in a directory without the sources, with nothing of ours in the
environment; and the sdist."""

import base64
import csv
import glob
import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
TOP = os.path.abspath(os.environ.get("top_srcdir",
                                     os.path.join(os.environ.get("srcdir", "."), "..")))
sys.path.insert(0, LIB)

from demands import check, content  # noqa: E402
from rsh_cli import run  # noqa: E402
from rsh_mount import TIMEOUT_SCALE, Tap, reshardfs_program, skip_all  # noqa: E402

BUILD = os.path.dirname(os.path.dirname(reshardfs_program()))
USE = """
import hashlib, sys, reshardfs
with reshardfs.Source("checkpoint", src_strategy="strategy_8_cards.ckpt",
                      dst_strategy="strategy_4_cards.ckpt") as s:
    for f in s.files():
        print(hashlib.sha256(s.read(f.rank)).hexdigest() + "  " + f.name)
print(reshardfs.__file__)
with open("/proc/self/maps") as f:
    print(*{line.split()[-1] for line in f if ".so" in line})
"""
CONVERT = """
import reshardfs
print(len(reshardfs.records("qwen3", 0, convert="auto", from_="hf", dst_strategy="none")))
"""


class Place:
    """A directory with a virtual environment and what is made there."""

    def __init__(self, directory):
        self.directory = directory
        self.python = os.path.join(directory, "venv", "bin", "python")
        # As of somebody who has never heard of the sources.
        self.env = {"PATH": os.environ["PATH"], "HOME": directory, "LC_ALL": "C.UTF-8",
                    "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1",
                    "PYTHONDONTWRITEBYTECODE": "1"}

    def at(self, *names):
        return os.path.join(self.directory, *names)

    def run(self, *command, fails=False, **env):
        got = subprocess.run(command, cwd=self.directory, env={**self.env, **env},
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                             stderr=subprocess.STDOUT, encoding="utf-8", check=False,
                             timeout=600 * TIMEOUT_SCALE)
        check((got.returncode != 0) == fails, f"{command}\n{got.stdout}")
        return got.stdout

    def pip(self, *words, **keywords):
        return self.run(self.python, "-m", "pip", *words, **keywords)

    def program(self, text, **keywords):
        # Isolated: neither the directory nor PYTHON* count.
        return self.run(self.python, "-I", "-c", text, **keywords)

    def wheel(self, source, *into):
        self.pip("wheel", "--quiet", "--no-deps", "--config-settings", f"build-dir={BUILD}",
                 "--wheel-dir", self.at(*into), source)
        found, = glob.glob(self.at(*into, "*.whl"))
        return found


def test_wheel(tap, p, wheel):
    with tap.test("its name: the version, and any machine if nothing is missing"):
        version = run("--version").out.split()[1]
        check(re.fullmatch(rf"reshardfs-{version}-py3-none-(manylinux_2_\d+|linux)_\w+\.whl",
                           os.path.basename(wheel)), wheel)
    with zipfile.ZipFile(wheel) as z, tap.test("its record is right"):
        record, = [name for name in z.namelist() if name.endswith(".dist-info/RECORD")]
        listed = {}
        for name, digest, size in csv.reader(z.read(record).decode().splitlines()):
            listed[name] = digest, size
        check(sorted(listed) == sorted(z.namelist()), listed)
        check(listed.pop(record) == ("", ""), "of itself it cannot tell")
        for name, said in listed.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(z.read(name)).digest())
            check(said == ("sha256=" + digest.decode().rstrip("="),
                           str(z.getinfo(name).file_size)), name)
        whole = {f"reshardfs/{n}" for n in os.listdir(os.path.join(TOP, "python/reshardfs"))
                 if not n.startswith("__pycache__")}
        check(whole <= set(listed), whole - set(listed))
        along = [n for n in listed if re.match(r"reshardfs/lib/rsh", n)]
        check(("manylinux" in wheel) == (len(along) == 7), along)
        check(sum("/licenses/" in n for n in listed) == 1 + len(along), listed)
        pages = {os.path.basename(n) for n in listed if "/share/man/man" in n}
        check(pages == {os.path.basename(n) for n in glob.glob(os.path.join(TOP, "man/*.[1-8]"))},
              pages)


def test_audit(tap, p, wheel):
    name = "auditwheel finds it fit for the machines that its name says"
    program = os.environ.get("RSH_AUDITWHEEL")
    if not program:
        tap.skip(name, "RSH_AUDITWHEEL does not name the program")
        return
    with tap.test(name):
        said = " ".join(p.run(program, "show", wheel).split())
        tag = os.path.basename(wheel)[:-len(".whl")].rpartition("-")[2]
        check(f'following platform tag: "{tag}"' in said, said)


MOUNTED = """
import hashlib, os, reshardfs
with reshardfs.mounted("checkpoint", src_strategy="strategy_8_cards.ckpt",
                       dst_strategy="strategy_4_cards.ckpt") as m:
    for r in range(4):
        with open(m.rank(r), "rb") as f:
            print(hashlib.sha256(f.read()).hexdigest(), os.path.relpath(f.name, m.path))
"""


def test_program(tap, p):
    program = p.at("venv", "bin", "reshardfs")
    version = run("--version").out.splitlines()[0]
    with tap.test("the program is a command"):
        said = p.run(program, "--version")
        check(said.splitlines()[0] == version, said)
    with tap.test("that finds its tables"):
        said = p.run(program, "convert", "list", RESHARDFS_TABLES="")
        check(re.search("^qwen3 ", said, re.M), said)
        said = p.run(program, "convert", "show", "qwen3", RESHARDFS_TABLES="")
        check("qwen3" in said, said)
    with tap.test("and exports"):
        p.run(program, "export", "--src-strategy", "strategy_8_cards.ckpt", "--dst-strategy",
              "strategy_4_cards.ckpt", "checkpoint", "exported")
        p.run("sh", "-c", "cd exported && sha256sum --strict -c ../SHA256SUMS")
    expected = sorted(content(p.at("SHA256SUMS")).decode().split("\n"))
    if not os.path.exists("/dev/fuse"):
        tap.skip("the module mounts with it", "there is no /dev/fuse")
    else:
        with tap.test("the module mounts with it"):
            said = p.program(MOUNTED, PATH="/bin:/usr/bin").replace(" rank", "  rank")
            check(sorted(said.split("\n")) == expected, said)
        with tap.test("so does the helper of mount(8)"):
            os.mkdir(p.at("mnt"))
            p.run(p.at("venv", "sbin", "mount.reshardfs"), p.at("checkpoint"), p.at("mnt"),
                  "-o", "src_strategy=strategy_8_cards.ckpt,"
                  "dst_strategy=strategy_4_cards.ckpt")
            try:
                p.run("sh", "-c", "cd mnt && sha256sum --strict -c ../SHA256SUMS")
            finally:
                p.run(program, "umount", "mnt")
    with tap.test("manuals, completions and examples are in the prefix"):
        for name in ("man/man1/reshardfs.1", "bash-completion/completions/reshardfs",
                     "zsh/site-functions/_reshardfs", "doc/reshardfs/fuse_fd.py"):
            check(os.path.getsize(p.at("venv", "share", name)), name)


def test_use(tap, p, wheel):
    with tap.test("installed, and used where no sources are"):
        p.pip("install", "--quiet", "--no-index", wheel)
        *sums, module, maps = p.program(USE).splitlines()
        expected = content(p.at("SHA256SUMS")).decode().splitlines()
        check(sorted(sums) == sorted(expected), sums)
        check(module.startswith(p.at("venv")), module)
        ours = [path for path in maps.split()
                if re.search("reshard|jansson|protobuf|xxh|lz4", os.path.basename(path))]
        if "manylinux" in wheel:
            check(len(ours) == 5 and all(path.startswith(p.at("venv")) for path in ours), ours)
    with tap.test("vLLM finds the plug-in"):
        said = p.program("from importlib.metadata import distribution\n"
                         "import reshardfs\n"
                         "found = distribution('reshardfs')\n"
                         "print(found.version == reshardfs.__version__)\n"
                         "for e in found.entry_points: print(e.group, e.load().__module__)")
        check(said.split() == ["True", "vllm.general_plugins", "reshardfs.vllm"], said)
    with tap.test("with the tables of what models are called elsewhere"):
        check(int(p.program(CONVERT)) > 10, "too few records")
    test_program(tap, p)
    with tap.test("another library only if it is asked for"):
        said = p.program(USE, fails=True, LIBRESHARD="/absent/libreshard.so")
        check("reshardfs.Error: cannot load libreshard: /absent" in said, said)
    with tap.test("and goes without a trace"):
        p.pip("uninstall", "--quiet", "--yes", "reshardfs")
        left = glob.glob(p.at("venv", "**", "*reshard*"), recursive=True)
        check(not left, left)


def make_sdist(p):
    p.run(sys.executable, "-c", "import sys\nsys.path.insert(0, sys.argv[1])\n"
          "import backend\nbackend.build_sdist(sys.argv[2], {'build-dir': sys.argv[3]})",
          os.path.join(TOP, "python"), p.directory, BUILD)
    found, = glob.glob(p.at("*.tar.gz"))
    return found


def test_sdist(tap, p, wheel):
    sdist = None
    with tap.test("the sdist tells what it is"):
        sdist = make_sdist(p)
        stem = os.path.basename(sdist)[:-len(".tar.gz")]
        with tarfile.open(sdist) as t, zipfile.ZipFile(wheel) as z:
            said = t.extractfile(f"{stem}/PKG-INFO").read()
            check(said == z.read(f"{stem}.dist-info/METADATA"), said)
    with tap.test("and the same wheel comes of it"):
        check(content(p.wheel(sdist, "again")) == content(wheel), "it is another one")
    with tap.test("what the build lacks is one sentence"):
        # Without a build that is there already, and without any program.
        said = p.pip("wheel", "--no-deps", sdist, fails=True, PATH=p.at("venv", "bin"))
        check(re.search(r"reshardfs cannot be built: these Debian packages are missing: "
                        r"gcc make pkg-config binutils$", said, re.M), said)


def main():
    if "sanitize" in os.environ.get("SANITIZER_FLAGS", ""):
        skip_all("Python does not load what a sanitizer is built into")
    if not importlib.util.find_spec("ensurepip"):
        skip_all("there is no python3-venv")
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-wheel-") as directory:
        p = Place(directory)
        shutil.copytree(os.path.join(TOP, "tests/data/demo"), directory, dirs_exist_ok=True)
        shutil.copytree(os.path.join(TOP, "tests/data/weights/models/qwen3"), p.at("qwen3"))
        wheel = None
        with tap.test("pip makes a wheel"):
            p.run(sys.executable, "-m", "venv", p.at("venv"))
            wheel = p.wheel(TOP, "wheels")
        if wheel:
            test_wheel(tap, p, wheel)
            test_audit(tap, p, wheel)
            test_use(tap, p, wheel)
            test_sdist(tap, p, wheel)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
