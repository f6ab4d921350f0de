#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples of the manuals run as they stand there.

Each literal block of a manual is a list of commands, which a shell runs in a directory
that has the files they name; or it is Python; or it is in OTHERS, which says what else it is
and why it is not run here.  Absolute paths are below a directory of the test.  This machine
is the other one of ssh as well, and all nodes of Slurm.
"""

import contextlib
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

TOP = os.path.abspath(os.environ.get("top_srcdir",
                                     os.path.join(os.environ.get("srcdir", "."), "..")))
LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

import documents  # noqa: E402
import memcached  # noqa: E402
from adapters import Adapter  # noqa: E402
from demands import check, content, write  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes)
from quantised import published  # noqa: E402
from rsh_cli import PLAIN, good, run  # noqa: E402
from rsh_mount import TIMEOUT_SCALE, Tap, require_mount, reshardfs_program  # noqa: E402
from s3_trial import Server, set_environment  # noqa: E402
from safetensors_format import safetensors_bytes, values_in  # noqa: E402
import version_chains  # noqa: E402

DATA = os.path.join(TOP, "tests", "data")
DEMO = os.path.join(DATA, "demo")
WEIGHTS = os.path.join(DATA, "weights")

# A block of commands has one of these at the start of a line, or behind a pipe.
COMMAND = re.compile(r"^(reshardfs|cat|getfattr|jq|rsync|srun)\b", re.M)
SCALE = "mount/scale_examples.py runs it"
TABLE = "a table of --convert; mount/tables.py converts with it"
# (manual, a line that begins so, what it is and why it is not run here)
OTHERS = [
    ("reshardfs-mount.1", "latest_checkpointed_iteration.txt", "names of files"),
    ("reshardfs-mount.1", "latest_checkpointed_iteration.txt", "names of files"),
    ("reshardfs-mount.1", ".metadata", "names of files"),
    ("reshardfs-mount.1", ".metadata", "names of files"),
    ("reshardfs-mount.1", "SOURCE=/data/ckpt8", "a file for systemd; mount/fstab.sh has one"),
    ("reshardfs-mount.1", "/data/ckpt8 /mnt/ckpt4", "a line of fstab; mount/fstab.sh has one"),
    ("mount.reshardfs.8", "/data/ckpt8 /mnt/ckpt4", "a line of fstab; mount/fstab.sh has one"),
    ("reshardfs-storage.7", "/mnt/ckpt8/rank_2", "lines of a log"),
    ("reshardfs-help.1", "source <(reshardfs", "of three shells; mount/completion.sh runs them"),
    ("reshardfs-scale.7", "#!/bin/bash", SCALE),
    ("reshardfs-scale.7", "mkdir -p /tmp/ckpt", SCALE),
    ("reshardfs-scale.7", "apiVersion: batch/v1", SCALE),
    ("reshardfs-scale.7", "@ray.remote", SCALE),
    ("reshardfs-tables.5", "under model.layers", "two lines of the third example"),
    ("reshardfs-tables.5", "when layer_types", "a rule of megatron-bridge-gemma4, shortened"),
    ("reshardfs-tables.5", "# StarCoder2", TABLE),
    ("reshardfs-tables.5", "# Mistral", TABLE),
    ("reshardfs-tables.5", "# GLM-4.5", TABLE),
    ("reshardfs.5", '{"0": "node1/', "a source map; the example that uses one runs"),
    ("reshardfs.5", '{"manifest":', "a manifest; mount/json_keys.py compares its keys"),
]
# What an example has that needs more than Python itself, and what names a Python with it.
PYTHONS = {"mindspore": "RSH_ORACLE_PYTHON", "load_checkpoint": "RSH_ORACLE_PYTHON",
           'to="torch"': "RSH_HF_PYTHON", "plan --picture": "RSH_PLOT_PYTHON"}
TRAIN = "import sys\nif not open(sys.argv[-1], 'rb').read():\n    sys.exit('no bytes')\n"


def pages():
    for name in sorted(os.listdir(os.path.join(TOP, "man"))):
        if re.search(r"\.[1-8]$", name):
            yield name, content(os.path.join(TOP, "man", name)).decode()


def blocks_of(page):
    """The texts of literal blocks, as they are shown."""
    for text in re.findall(r"^\.Bd -literal[^\n]*\n(.*?)^\.Ed", page, re.M | re.S):
        yield text.replace("\\e", "\\").replace("\\&", "")


def tensor(seed, *dims):
    return Record(dims, "Float32", bytes((seed + i * 7) % 251 for i in range(4 * math.prod(dims))))


def make_pipeline(at):
    """Two stages of two ranks each, which are model parallel."""
    for stage, name in enumerate(("embed.weight", "head.weight")):
        write(os.path.join(at, "strategies", f"stage{stage}.ckpt"),
              strategy_bytes(StageFile(stage, {name: Layout([2], [0, -1])})))
        for rank in 2 * stage, 2 * stage + 1:
            write(os.path.join(at, "ckpt-pp", f"rank_{rank}", "net-1_10.ckpt"),
                  checkpoint_bytes({name: tensor(rank, 4, 6)}))


class Place:
    """A directory that has the files of the examples."""

    def __init__(self, root):
        self.root = root
        self.work = os.path.join(root, "work")
        self.s8 = os.path.join(DEMO, "strategy_8_cards.ckpt")
        self.s4 = os.path.join(DEMO, "strategy_4_cards.ckpt")
        self.demo = os.path.join(DEMO, "checkpoint")
        self.hf = os.path.join(WEIGHTS, "models", "qwen3")
        self.m4 = os.path.join(WEIGHTS, "strategies", "qwen3.qwen3.dp2mp2.ckpt")
        self.made = os.path.join(root, "made")
        os.mkdir(self.made)
        self.export("model", "--dst-strategy", "none", "--format", "hf")
        self.export("checkpoint2", "--dst-strategy", self.s8, "--format", "checkpoint2")
        self.export("ckpt4", "--dst-strategy", self.s4)
        good("export", "--convert", "qwen3", "--from", "hf", "--dst-strategy", self.m4,
             self.hf, os.path.join(self.made, "trained"))
        self.tune()
        published(os.path.join(DATA, "quantised", "deepseek_v4"),
                  os.path.join(self.made, "quantised"))
        make_pipeline(self.made)
        versions = version_chains.unpack(os.path.join(root, "versions"))
        for name, target in ("xor", "rl-weights"), ("base", "Qwen3-4B"):
            os.rename(os.path.join(versions, name), os.path.join(self.made, target))
        os.makedirs(os.path.join(root, "bin"))
        os.symlink(reshardfs_program(), os.path.join(root, "bin", "reshardfs"))
        # The other machine has its own /data, and runs what it is sent as a shell's command.
        for name, text in (
                ("srun", f'exec {sys.executable} {os.path.abspath(LIB)}/srun.py "$@"'),
                ("ssh", "shift\n"
                 f"exec sh -c \"$(echo \"$*\" | sed 's# \\({root}\\)*/data/# {root}/host/data/#g')\"")):
            write(os.path.join(root, "bin", name), f"#!/bin/sh\n{text}\n".encode())
            os.chmod(os.path.join(root, "bin", name), 0o755)
        os.makedirs(os.path.join(root, "host", "data"))
        job = os.path.join(root, "ckpt", "job7", "rank_0")
        os.makedirs(job)
        for step in 100, 200:
            shutil.copy(os.path.join(DATA, "torch", "flat-2.15.pt"),
                        os.path.join(job, f"model_{step}.pt"))
        for name in "nfs", "shared", "data", "s3/bucket":
            os.makedirs(os.path.join(root, name))
            shutil.copytree(self.demo, os.path.join(root, name, "ckpt8"))
        os.makedirs(os.path.join(root, "run", "metrics"))
        os.makedirs(os.path.join(root, "var", "tmp"))

    def export(self, name, *words):
        good("export", "--src-strategy", self.s8, *words, self.demo, os.path.join(self.made, name))

    def tune(self):
        """A fine-tuning of the model with MindSpore Transformers."""
        good("export", "--convert", "qwen3", "--format", "safetensors", "--dst-strategy",
             "none", self.hf, os.path.join(self.root, "plain"))
        tensors = values_in(os.path.join(self.root, "plain", "rank_0"))
        module = "decoder.layers.0.self_attention.linear_proj"
        rows, columns = tensors[module + ".weight"][1]
        tensors[module + ".lora_a"] = "F32", (4, columns), bytes(16 * columns)
        tensors[module + ".lora_b"] = "F32", (rows, 4), bytes(16 * rows)
        write(os.path.join(self.made, "tuned", "model.safetensors"), safetensors_bytes(tensors))

    def fill(self, page):
        """The working directory of a page, as its first example finds it."""
        shutil.rmtree(self.work, ignore_errors=True)
        shutil.copytree(self.made, self.work)
        if page == "reshardfs-export.1":
            shutil.rmtree(os.path.join(self.work, "ckpt4"))  # the page makes it
        os.rename(os.path.join(self.work, "model"), os.path.join(self.work, "exported"))
        for name, target in (("ckpt8", self.demo), ("s8.ckpt", self.s8), ("s4.ckpt", self.s4),
                             ("m4.ckpt", self.m4), ("qwen3", self.hf), ("Qwen3-8B", self.hf),
                             ("Llama-3-8B", os.path.join(DATA, "weights", "models", "llama")),
                             ("Qwen3-30B-A3B", os.path.join(DATA, "weights", "models", "qwen3_moe")),
                             ("model", os.path.join(self.made, "model")),
                             ("DeepSeek-V4-Flash", os.path.join(self.made, "quantised")),
                             ("dcp", os.path.join(DATA, "dcp", "torch-2.15", "fsdp2")),
                             ("train.pt", os.path.join(DATA, "torch", "nested-2.15.pt"))):
            os.symlink(target, os.path.join(self.work, name))
        write(os.path.join(self.work, "train.py"), TRAIN.encode())
        module = "model.layers.0.self_attn.q_proj"
        rows, columns = values_in(self.hf)[module + ".weight"][1]
        adapter = Adapter()
        adapter.add(module, ("F32", (4, columns), bytes(16 * columns)),
                    ("F32", (rows, 4), bytes(16 * rows)), 2)
        adapter.write(os.path.join(self.work, "my-adapter"))
        maps = ", ".join(f'"{r}": "ckpt8/rank_{r}/gpt-1_20.ckpt"' for r in range(8))
        write(os.path.join(self.work, "map.json"), f"{{{maps}}}\n".encode())
        with open(os.path.join(TOP, "tables", "qwen3.rules"), "rb") as f:
            write(os.path.join(self.work, "my.rules"), f.read())

    def text(self, block):
        """With absolute paths below the directory."""
        return re.sub(r"(?<![\w.:/])/(mnt|nfs|shared|data|ckpt|run|var)/", rf"{self.root}/\1/",
                      block)

    def mount_points(self, text):
        found = re.findall(rf"{re.escape(self.root)}/mnt/\w+", text)
        for path in found:
            os.makedirs(path, exist_ok=True)
        return dict.fromkeys(found)

    def state(self, points):
        """What an example may change: files that it writes, and mounts."""
        files = {(path, os.stat(path).st_mtime_ns)
                 for top in (self.work, os.path.join(self.root, "run"),
                             os.path.join(self.root, "host"))
                 for at, _, names in os.walk(top)
                 for path in (os.path.join(at, name) for name in names)}
        return files, [path for path in points if os.path.ismount(path)]

    def run_python(self, block, environment):
        """A block of a page is one program, with the module imported before."""
        text = documents.python_example(f"import reshardfs\n{block}", "s8.ckpt", "s4.ckpt")
        got = subprocess.run(["python3", "-"], cwd=self.work, input=text, text=True,
                             capture_output=True, check=False, env=environment,
                             timeout=120 * TIMEOUT_SCALE)
        check(got.returncode == 0, f"{text}\n{got.stdout}\n{got.stderr}")

    def run(self, block, environment):
        text = self.text(block)
        points = self.mount_points(text)
        for path in points:
            # An example that looks at a mount, or ends it, finds one that was read.
            if not re.search(rf"(reshardfs mount|reshardfs -o)(.*\\\n)*.* {path}$", text, re.M):
                good("mount", "--src-strategy", self.s8, "--dst-strategy", self.s4,
                     self.demo, path)
                read_all(path)
        before = self.state(points)
        try:
            got = subprocess.run(["bash", "-e", "-o", "pipefail", "-c", text], cwd=self.work,
                                 stdin=subprocess.DEVNULL, capture_output=True, check=False,
                                 env=environment, timeout=120 * TIMEOUT_SCALE)
            check(got.returncode == 0, f"{text}\nstatus {got.returncode}\n"
                  f"{got.stdout.decode()[-2000:]}\n{got.stderr.decode()[-2000:]}")
            check(got.stdout or self.state(points) != before, f"it does nothing: {text}")
            for path in points:
                if os.path.ismount(path):
                    read_all(path)
        finally:
            for path in points:
                if os.path.ismount(path):
                    run("umount", path)


def read_all(path):
    """Each file of a mount, but for those that an example makes fail."""
    names = [os.path.join(at, n) for at, _, names in os.walk(path) for n in names]
    check(names, f"{path} is empty")
    for name in names:
        with contextlib.suppress(OSError), open(name, "rb") as f:
            check(f.read(1 << 20), f"{name} is empty")


def lacks(block):
    """What a block needs and this machine has not, or None."""
    for word, variable in PYTHONS.items():
        if word in block and not os.environ.get(variable):
            return f"{variable} does not name a Python"
    for program in re.findall(r"(?:^|\| )(jq|getfattr)\b", block, re.M):
        if not shutil.which(program):
            return f"there is no {program}"
    if "--cache-servers" in block and not memcached.PROGRAM:
        return "there is no memcached"
    return None


def environment_of(place, block):
    """With the Python that has what the block imports."""
    env = {**PLAIN, "PYTHONPATH": os.path.join(TOP, "python"),
           "XDG_CACHE_HOME": os.path.join(place.root, "cache"),
           "LIBRESHARD": os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                      "libreshard.so.0"),
           "SLURM_NODEID": "1", "SLURM_NNODES": "4", "GLOG_v": "3",
           "PATH": os.path.join(place.root, "bin") + ":" + os.environ["PATH"]}
    for name in "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION":
        env[name] = os.environ.get(name, "")
    for word, variable in PYTHONS.items():
        if word in block:
            at = os.path.join(place.root, variable)
            os.makedirs(at, exist_ok=True)
            if not os.path.exists(os.path.join(at, "python3")):
                write(os.path.join(at, "python3"),
                      f'#!/bin/sh\nexec {os.environ[variable]} "$@"\n'.encode())
                os.chmod(os.path.join(at, "python3"), 0o755)
            env["PATH"] = at + ":" + env["PATH"]
    return env


def other(name, block, left):
    """Whether a block is one of OTHERS, which it is taken off."""
    for entry in left:
        page, line, _ = entry
        if page == name and any(one.startswith(line) for one in block.splitlines()[:1]):
            left.remove(entry)
            return True
    return False


def declarations(name, block):
    """C of a manual: a struct of the public header, or a program that compiles."""
    header = content(os.path.join(TOP, "include", "reshard.h")).decode()

    def bare(text):
        return " ".join(re.sub(r"/\*.*?\*/", "", text, flags=re.S).split())

    if block.startswith("struct "):
        check(bare(block) in bare(header), f"{name} has another {block}")
        return
    source = ("#include <err.h>\n#include <reshard.h>\nvoid example(void);\n"
              f"void example(void)\n{{\nchar buf[100];\n{block}}}\n")
    got = subprocess.run([*os.environ.get("CC", "cc").split(), "-fsyntax-only", "-Wall", "-Werror",
                          "-I", os.path.join(TOP, "include"), "-x", "c", "-"], input=source,
                         text=True, capture_output=True, check=False)
    check(got.returncode == 0, got.stderr)


def test_page(tap, place, name, page, left):
    place.fill(name)
    for block in blocks_of(page):
        if other(name, block, left):
            continue
        title = f"{name}: {block.splitlines()[0]}"
        if name == "libreshard.3":
            with tap.test(title):
                declarations(name, block)
            continue
        python = name == "reshardfs-python.3"
        if not python and not COMMAND.search(block):
            tap.ok(False, title, "neither commands nor one of OTHERS")
            continue
        why = lacks(block)
        if python and os.environ.get("SANITIZER_FLAGS"):
            why = "Python does not load what a sanitizer is built into"
        if why:
            tap.skip(title, why)
            continue
        with tap.test(title):
            (place.run_python if python else place.run)(block, environment_of(place, block))


def main():
    require_mount()
    tap = Tap()
    left = list(OTHERS)
    with contextlib.ExitStack() as stack:
        root = stack.enter_context(tempfile.TemporaryDirectory(prefix="reshardfs-examples-"))
        place = Place(root)
        server = stack.enter_context(Server(os.path.join(root, "s3")))
        set_environment(server.port, root)
        servers = ""
        if memcached.PROGRAM:
            servers = ",".join(stack.enter_context(memcached.Memcached()).address
                               for _ in range(2))
        for name, page in pages():
            test_page(tap, place, name, page.replace("node1:11211,node2:11211", servers), left)
    tap.ok(not left, "all that is not run is in a manual", repr(left))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
