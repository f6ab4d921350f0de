#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What `ls` says of a whole model, and the line that it gives to be typed next, which is
pasted into a shell and has to work; and the SOURCE that failed commands propose."""

import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

import genuine  # noqa: E402
from demands import check, write  # noqa: E402
from run_seed import run_seed  # noqa: E402
from rsh_cli import (GOOD, INPUT, NO, PLAIN, USAGE, demo_tree, end_if_built_without,  # noqa: E402
                     run, run_json)
from rsh_mount import TIMEOUT_SCALE, Tests, require_mount, reshardfs_program  # noqa: E402
from s3_trial import KEY, SECRET, Server  # noqa: E402

QWEN3 = os.path.join(genuine.WEIGHTS, "models", "qwen3")
PEM = os.path.join(os.path.dirname(os.path.abspath(LIB)), "unit", "data", "objects.pem")
MAP = "model.safetensors.index.json"
MEANT = re.compile(r"; (?:it is one rank of (.*)|it is in (.*), which is a checkpoint|"
                   r"(.*) in it is a checkpoint): did you mean that")
test = Tests("meant")


class Place:
    """A directory with a checkpoint of ranks, two of DCP, and a model."""

    def __init__(self, directory):
        self.directory = directory
        self.env = dict(PLAIN)
        self.tree, self.src, self.dst = demo_tree(directory)
        for step in ("step-9", "step-10"):
            shutil.copytree(genuine.dcp("torch-2.15/fsdp2-2"), self.path("steps", step))
        shutil.copytree(QWEN3, self.path("qwen3"))
        os.mkdir(self.path("empty"))

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def run(self, *words):
        return run(*words, env=self.env, cwd=self.directory)

    def paste(self, line):
        """A shell runs the line; `reshardfs` is the program under test."""
        program = f"reshardfs() {{ {shlex.quote(reshardfs_program())} \"$@\"; }}\n"
        return subprocess.run(["bash", "-c", program + line], cwd=self.directory, env=self.env,
                              capture_output=True, check=False, text=True,
                              stdin=subprocess.DEVNULL, timeout=120 * TIMEOUT_SCALE)

    def works(self, line, mountpoint):
        """What a mount shows that was made by a pasted line."""
        got = self.paste(line)
        check(got.returncode == 0, f"{line}: {got}")
        mountpoint = self.path(mountpoint)
        check(os.path.ismount(mountpoint), f"{line} mounts nothing on {mountpoint}")
        try:
            return sorted(os.listdir(mountpoint))
        finally:
            check(run("umount", mountpoint).status == GOOD, "umount")

    def next_of(self, *words):
        got = self.run("ls", *words)
        check(got.status == GOOD, repr(got))
        line = got.out.splitlines()[-1]
        check(line.startswith("next: "), got.out)
        as_json = json.loads(self.run("ls", "--json", *words).out)
        check(as_json["next"] == line[len("next: "):], as_json["next"])
        return as_json["next"]

    def proposed(self, source, got):
        """What the sentence of a command that failed proposes."""
        found = MEANT.search(got.err)
        return found and (found[1] or found[2] or os.path.join(source, found[3]))

    def meant(self, wanted, command, source, *words):
        """The command proposes the SOURCE, which can be listed."""
        got = self.run(command, *words, source, *(["empty"] if command == "mount" else
                                                  ["out"] if command == "export" else []))
        check(got.status == INPUT, f"{command} {source}: {got!r}")
        check((self.proposed(source, got) or "").endswith(wanted), f"{command} {source}: {got!r}")
        got = self.run("ls", wanted)
        check(got.status == GOOD, f"{wanted}: {got}")


# ---- ls of a model ----

@test
def ls_says_what_a_model_is(p):
    got = p.run("ls", "qwen3")
    check(got.out.splitlines() == [
        "Qwen3ForCausalLM: 25 tensors, 46.4 KiB, in 5 parts of 49.0 KiB",
        "BFloat16: 25 tensors, 46.4 KiB", "a mount takes the model: 1 file, 48.8 KiB",
        "next: mkdir -p mnt && reshardfs mount qwen3 mnt"], got.out)
    said = run_json("ls", p.path("qwen3"))["model"]
    check(said == {"architecture": "Qwen3ForCausalLM", "parts": 5, "tensors": 25, "bytes": 47488,
                   "types": [{"dtype": "BFloat16", "tensors": 25, "bytes": 47488}]}, said)
    fp8 = run_json("ls", os.path.join(genuine.WEIGHTS, "models", "deepseek_v3-fp8"))["model"]
    check(len(fp8["types"]) > 1 and fp8["bytes"] == sum(t["bytes"] for t in fp8["types"]) and
          fp8["tensors"] == sum(t["tensors"] for t in fp8["types"]), fp8)
    for config in (None, b"{]", b"{}"):
        os.unlink(p.path("qwen3", "config.json"))
        if config is not None:
            write(p.path("qwen3", "config.json"), config)
        else:
            write(p.path("qwen3", "config.json"), b"")
        got = p.run("ls", "qwen3")
        check(got.status == GOOD and got.out.startswith("a model without an architecture"), got)
        check(run_json("ls", p.path("qwen3"))["model"]["architecture"] is None, "null")


@test
def what_is_next_does_not_hide_its_source(p):
    """SOURCE may be the mount that the last such line has made, or in its place."""
    p.paste(p.next_of("qwen3"))
    try:
        line = p.next_of("mnt")
        check(line == "mkdir -p mnt2 && reshardfs mount mnt mnt2", line)
        check(MAP in p.works(line, "mnt2"), "a mount of a mount")
    finally:
        check(run("umount", p.path("mnt")).status == GOOD, "umount")
    os.rename(p.path("qwen3"), p.path("mnt", "qwen3"))
    check("mount mnt/qwen3 mnt2" in p.next_of("mnt/qwen3"), "in mnt")


@test
def what_is_next_works(p):
    check(p.works(p.next_of("qwen3"), "mnt") ==
          ["config.json", "model-00001-of-00001.safetensors", MAP], "a model")
    check(MAP in p.works(p.next_of("steps/step-9"), "mnt"), "a distributed checkpoint")
    tree = genuine.checkpoint2("single")
    check(p.works(p.next_of(tree), "mnt") == ["rank_0"], "Checkpoint 2.0")
    words = ["--src-strategy", p.src, "--dst-strategy", p.dst, "--check=structure", p.tree]
    check(len(p.works(p.next_of(*words), "mnt")) == 4, "ranks, with both strategies")
    check("next: " not in p.run("ls", p.tree).out and
          run_json("ls", p.tree)["next"] is None, "ranks")
    os.truncate(p.path("qwen3", "model-00002-of-00005.safetensors"), 100)
    said = run_json("ls", p.path("qwen3"), status=NO)
    check(said["next"] is None and said["model"] is None and said["steps"][0]["reason"], said)


@test
def names_that_a_shell_takes_apart(p):
    for name in ("a b'c", "$HOME `x`", "-odd", "back\\slash", "new\nline\x1b[31m \\ 'q'", "ü"):
        os.rename(p.path("qwen3"), p.path(name))
        line = p.next_of("--", name) if name[0] != "-" else p.next_of(f"./{name}")
        check("\n" not in line and "\x1b" not in line, repr(line))
        check(MAP in p.works(line, "mnt"), repr(name))
        os.rename(p.path(name), p.path("qwen3"))


# ---- what was meant ----

@test
def the_directory_of_one_rank(p):
    for command, source in (("mount", "source/rank_0"), ("ls", "source/rank_0"),
                            ("ls", "source/rank_0/"), ("plan", "source/rank_0")):
        p.meant("source", command, source)
    os.mkdir(p.path("source", "rank_0", "checkpoint"))
    p.meant("source", "ls", "source/rank_0/checkpoint")
    p.meant("source", "plan", "source/rank_0", "--src-strategy", p.src, "--dst-strategy", p.dst)


@test
def a_level_too_high_or_too_low(p):
    for command in ("mount", "ls", "export"):
        p.meant("steps/step-10", command, "steps")
    shutil.rmtree(p.path("steps"))
    os.makedirs(p.path("above", "checkpoint"))
    os.rename(p.tree, p.path("above", "checkpoint", "tree"))
    p.meant("above/checkpoint/tree", "ls", "above/checkpoint")
    # What is above a directory that is not a rank's is another checkpoint.
    os.mkdir(p.path("qwen3", "onnx"))
    for wrong in ("qwen3/onnx", "qwen3/nowhere"):
        got = p.run("mount", wrong, "empty")
        check(got.status == INPUT and not p.proposed(wrong, got), got)


@test
def a_file_instead_of_its_directory(p):
    got = p.run("mount", "qwen3/model-00003-of-00005.safetensors", "empty")
    check(got.status == INPUT and "directory" in got.err, got)
    p.meant("qwen3", "ls", "qwen3/config.json")
    p.meant("qwen3", "mount", "qwen3/config.json")
    write(p.path("qwen3", "latest.txt"), b"20")
    for command in ("ls", "mount", "plan"):
        p.meant("qwen3", command, "qwen3/latest.txt")
    check("but a text; it is in qwen3" in p.run("ls", "qwen3/latest.txt").err, "a text")
    check(MAP in p.works(p.next_of(f"qwen3/{MAP}"), "mnt"), "the map is the model")


@test
def slices_of_which_nothing_says_how_they_are_joined(p):
    data = os.path.abspath(os.path.join(LIB, "..", "data", "torch"))
    for name, wanted in (("consolidated.00.pth", "of which it has 2"),
                         ("consolidated.01.pth", "of which it has 2")):
        got = p.run("plan", os.path.join(data, "consolidated2-2.15", name))
        check(got.status == INPUT and wanted in got.err, got)
    os.makedirs(p.path("slices", "model"))
    for name, genuine_one in (
            ("consolidated.01.pth", os.path.join(data, "consolidated2-2.15", "consolidated.01.pth")),
            ("model0-mp2.pt", os.path.join(data, "hf-bin", "pytorch_model.bin")),
            ("model0-mp2.safetensors", p.path("qwen3", "model-00001-of-00005.safetensors"))):
        shutil.copyfile(genuine_one, p.path("slices", name))
        for source in ("slices", f"slices/{name}"):
            got = p.run("plan", source)
            check(got.status == INPUT and re.search("says? how (they|slices) are joined", got.err),
                  got)
        os.unlink(p.path("slices", name))
    # Whoever has one slice only has no model, and mp1 is a whole one.
    os.rename(p.path("qwen3", "model-00001-of-00005.safetensors"),
              p.path("slices", "model0-mp1.safetensors"))
    check(p.run("plan", "slices").status == GOOD, "a whole model")
    # Names are free in torch_checkpointing, and metadata.pkl is above.
    write(p.path("slices", "metadata.pkl"), b"")
    os.rename(p.path("slices", "model0-mp1.safetensors"), p.path("slices", "model", "a.safetensors"))
    shutil.copyfile(p.path("slices", "model", "a.safetensors"),
                    p.path("slices", "model", "b.safetensors"))
    for source in ("slices/model", "slices/model/a.safetensors"):
        got = p.run("plan", source)
        check(got.status == INPUT and "slices/model/.. has metadata.pkl, which describes its "
              "files: give that directory" in got.err, got)
    os.unlink(p.path("slices", "metadata.pkl"))
    os.unlink(p.path("slices", "model", "b.safetensors"))
    check(p.run("plan", "slices/model").status == GOOD, "without metadata.pkl")
    for name in ("rank0.safetensors", "rank1.safetensors"):
        shutil.copyfile(p.path("slices", "model", "a.safetensors"),
                        p.path("slices", "model", name))
    os.unlink(p.path("slices", "model", "a.safetensors"))
    check("nothing beside it says how they are joined" in p.run("plan", "slices/model").err,
          "ranks")
    shutil.rmtree(p.path("slices", "model"))
    os.mkdir(p.path("slices", "huggingface"))
    write(p.path("slices", "huggingface", "config.json"), b"{}")
    check("it has config.json, and no weights" in p.run("ls", "slices/huggingface").err, "empty")


@test
def nothing_is_meant_where_nothing_is(p):
    for words in (["mount", "source", "empty"], ["plan", "source"], ["ls", "empty"],
                  ["mount", "empty", "qwen3"],
                  ["plan", "--compat", "mindspore", "--only", "x", "qwen3"]):
        got = p.run(*words)
        check(got.status in (USAGE, INPUT) and not p.proposed("", got), got)


@test
def a_checkpoint_without_a_readable_file(p):
    shutil.copytree(os.path.join(LIB, "..", "data", "checkpoint2", "single"), p.path("cut", "a"),
                    copy_function=shutil.copyfile)
    for at, _, names in os.walk(p.path("cut")):
        for name in (n for n in names if n.endswith(".safetensors")):
            os.truncate(os.path.join(at, name), 0)
    for words in (["plan", "cut"], ["ls", "cut"]):
        got = p.run(*words)
        check(got.status == INPUT and not p.proposed("cut", got) and "file is empty" in got.err,
              got)


# ---- damaged checkpoints anywhere ----

def random_tree(numbers, root):
    """One or two checkpoints below a directory, with up to two damaged files."""
    data = os.path.join(LIB, "..", "data")
    sources = [os.path.join(data, *at.split("/")) for at in (
        "demo/checkpoint", "weights/models/qwen3", "weights/models/llama", "dcp/torch-2.4/uneven",
        "torch/hf-bin", "torch/hf-bin-parts", "torch/lightning-2.15", "torch/consolidated2-2.15",
        "checkpoint2/single", "torch/script-2.15.pt", "torch/nested-2.15.pt", "torch/tar.pth",
        "torch/module-2.15.pt")]
    for _ in range(numbers.choice((1, 1, 2))):
        to = os.path.join(root, *numbers.choices(
            ("a", "step-3", "rank_0", "checkpoint-5", "snapshots", "models--x--y", "iter_0000001"),
            k=numbers.choice((0, 1, 1, 1, 2))))
        source = numbers.choice(sources)
        if os.path.isdir(source):
            shutil.copytree(source, to, dirs_exist_ok=True, copy_function=shutil.copyfile)
        else:
            os.makedirs(to, exist_ok=True)
            shutil.copyfile(source, os.path.join(to, os.path.basename(source)))
        for at, _, _ in os.walk(root):
            os.chmod(at, 0o755)
    files = sorted(os.path.join(at, n) for at, _, names in os.walk(root) for n in names)
    for path in numbers.sample(files, min(len(files), numbers.choice((0, 0, 1, 2)))):
        numbers.choice((os.unlink, lambda p: os.truncate(p, os.path.getsize(p) // 2),
                        lambda p: os.truncate(p, 0), lambda p: write(
                            p, b"version https://git-lfs.github.com/spec/v1\n")))(path)
    return sorted(at for at, _, _ in os.walk(root)) + [p for p in files if os.path.exists(p)][:1]


@test
def what_is_proposed_of_random_trees_works(p):
    seed = run_seed()
    os.mkdir(p.path("mnt"))
    for case in range(30):
        numbers = random.Random(seed + case)
        paths = random_tree(numbers, p.path("random"))
        source = os.path.relpath(numbers.choice(paths + paths[:1] * 2), p.directory)
        for words in (["plan"], ["mount", "mnt"], ["ls"], ["export", "out"]):
            got = p.run(words[0], source, *words[1:])
            proposed = p.proposed(source, got)
            if proposed:
                done = p.run("ls", proposed)
                check(done.status == GOOD or "newest complete: none" in done.out, f"seed {seed} + {case}: {words} {source}: {done}")
            p.run("umount", "mnt")
            shutil.rmtree(p.path("out"), ignore_errors=True)
        shutil.rmtree(p.path("random"))


# ---- the same behind HTTP ----

@test
def of_a_bucket(p):
    root = p.path("s3")
    os.makedirs(os.path.join(root, "bucket"))
    for name in ("qwen3", "steps", "source"):
        os.rename(p.path(name), os.path.join(root, "bucket", name))
    with Server(root) as server:
        p.env.update(AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.port}", AWS_ACCESS_KEY_ID=KEY,
                     AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION="here", HOME=p.directory,
                     no_proxy="127.0.0.1")
        got = p.run("ls", "s3://bucket/qwen3")
        check(got.out.startswith("Qwen3ForCausalLM: 25 tensors, 46.4 KiB, in 5 parts"), got)
        line = p.next_of("--source-style", "path", "s3://bucket/qwen3")
        check("--source-style=path" in line and p.works(line, "mnt") ==
              ["config.json", "model-00001-of-00001.safetensors", MAP], line)
        # The map of the parts is the model, and so is a file that has all of it.
        parts = os.path.join(root, "bucket", "parts")
        os.makedirs(parts)
        for at, name in ((MAP, "w.safetensors.index.json"), ("config.json", "config.json")):
            shutil.copy(os.path.join(root, "bucket", "qwen3", at), os.path.join(parts, name))
        for name in os.listdir(os.path.join(root, "bucket", "qwen3")):
            if name.endswith(".safetensors"):
                shutil.copy(os.path.join(root, "bucket", "qwen3", name), parts)
        for source in ("parts", "parts/w.safetensors.index.json", f"qwen3/{MAP}"):
            check(p.works(f"reshardfs mount s3://bucket/{source} mnt", "mnt") ==
                  ["config.json", "model-00001-of-00001.safetensors", MAP], source)
        p.meant("s3://bucket/steps/step-10", "mount", "s3://bucket/steps")
        p.meant("s3://bucket/source", "ls", "s3://bucket/source/rank_0")


@test
def of_a_web_server(p):
    server = subprocess.Popen([sys.executable, os.path.join(LIB, "object_server.py"), "--tls", PEM,
                               "--tree", p.directory], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)
    try:
        url = f"https://127.0.0.1:{int(server.stdout.readline())}/tree"
        p.env["no_proxy"] = "127.0.0.1"
        words = ["--ca-file", PEM, f"{url}/qwen3"]
        got = p.run("ls", *words)
        check(got.out.startswith("Qwen3ForCausalLM: 25 tensors, 46.4 KiB, in 5 parts"), got)
        line = p.next_of(*words)
        check(p.works(line, "mnt") == ["config.json", "model-00001-of-00001.safetensors", MAP],
              line)
    finally:
        server.stdin.close()
        server.wait()
        server.stdout.close()


if __name__ == "__main__":
    require_mount()
    end_if_built_without("object storage", "ls", "s3://bucket/none")
    sys.exit(test.run(Place))
