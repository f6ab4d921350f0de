#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--lora with the model or the adapter in object storage: the bytes are those of both on
disk, from a server of the tests' own and, if RSH_MOTO_PYTHON is set, from moto."""

import glob
import json
import os
import random
import struct
import subprocess
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

from adapters import Adapter, Drawer, merged  # noqa: E402
from demands import check, content, error_of, write  # noqa: E402
from rsh_cli import GOOD, INPUT, end_if_built_without, refused  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402
from run_seed import run_seed  # noqa: E402
from s3_trial import Server, run, set_environment  # noqa: E402
from safetensors_format import safetensors_bytes, values_in  # noqa: E402
from shown_model import same_values  # noqa: E402

S3 = "s3://bucket/tree+/"


class Moto:
    """moto with a copy of the files, which verifies signatures."""

    name = "moto"

    def __init__(self, root):
        self.process = subprocess.Popen(
            [os.environ["RSH_MOTO_PYTHON"], "-B", os.path.join(LIB, "s3_peer.py"),
             os.path.join(root, "bucket", "tree+")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port, self.key, self.secret = self.process.stdout.readline().split()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class Trial:
    """A model of a matrix of several blocks of the cache, and two adapters."""

    def __init__(self, directory, seed):
        rng = random.Random(seed)
        draw = Drawer(rng).matrix
        self.directory = directory
        self.at = os.path.join(directory, "s3", "bucket", "tree+")
        self.model = {"model.w.weight": draw("BF16", 90, 70), "norm.weight": draw("F32", 70)}
        write(self.at + "/model/model.safetensors", safetensors_bytes(self.model))
        write(self.at + "/model/config.json", b"{}")
        self.adapters = []
        for i, rank in enumerate((4, 3)):
            adapter = Adapter(r=rank)
            adapter.add("model.w", draw("F32", rank, 70), draw("BF16", 90, rank), 8 / rank)
            adapter.write(f"{self.at}/a{i}")
            self.adapters.append((adapter, 1))
        self.wanted = merged(self.model, self.adapters[:1])
        # Large, and its product is the numbers of A.
        large = {"big.weight": ("F32", (1000, 900), bytes(4 * 1000 * 900))}
        write(self.at + "/large/model.safetensors", safetensors_bytes(large))
        write(self.at + "/large/config.json", b"{}")
        self.row = "F32", (1, 900), struct.pack("<900f", *(rng.random() for _ in range(900)))
        adapter = Adapter(r=1, lora_alpha=1)
        adapter.add("big", self.row, ("F32", (1000, 1), b"\0\0\x80\x3f" * 1000), 1)
        adapter.write(self.at + "/large_adapter")


def mounted(source, *extra):
    return Mounted(source, described=True,
                   extra=["--format", "hf", "--log-level", "info", *extra])


def test_places(tap, trial, server):
    """Each of model and adapter on disk and in object storage."""
    for source, adapter in ((trial.at, S3), (S3, trial.at), (S3, S3)):
        where = " and ".join("in object storage" if S3 in at else "on disk"
                             for at in (source, adapter))
        at = [source.rstrip("/") + "/model", "--lora", adapter.rstrip("/") + "/a0"]
        for words in ((), ("--cache", "off"), ("--sandbox", "off")):
            with tap.test(f"{server.name}: model and adapter {where} {' '.join(words)}"), \
                    mounted(*at, *words) as mount:
                same_values(values_in(mount.path), trial.wanted)
                check("sandboxed" in mount.log() or "--sandbox" in words, mount.log())
        out = os.path.join(trial.directory, f"out-{server.name}-{where}")
        with tap.test(f"{server.name}: exported and verified, {where}"):
            check(run("export", at[0], out, "--format", "hf", *at[1:]).status == GOOD, "export")
            same_values(values_in(out), trial.wanted)
            check(run("verify", at[0], out, "--format", "hf", *at[1:]).status == GOOD, "verify")
            again = run("export", at[0], out, "--format", "hf", "--lora", at[2] + ":2")
            check(again.status != GOOD, again)


def test_several(tap, trial, server):
    """Two adapters, one of them on disk."""
    with tap.test(f"{server.name}: two adapters in two places"), \
            mounted(trial.at + "/model", "--lora", S3 + "a1/", "--lora",
                    trial.at + "/a0:0.5") as mount:
        one, two = trial.adapters
        same_values(values_in(mount.path), merged(trial.model, [two, (one[0], 0.5)]))


def test_large(tap, trial, server):
    """A matrix of several blocks."""
    with tap.test(f"{server.name}: a matrix of 3.6 MB"), \
            mounted(trial.at + "/large", "--lora", S3 + "large_adapter") as mount:
        check(bytes(values_in(mount.path)["big.weight"][2]) == trial.row[2] * 1000, "differs")


def test_steps(tap, trial, server):
    """All steps with an adapter in object storage."""
    save = os.path.join(trial.directory, "save-" + server.name)
    for step in (1, 2):
        write(f"{save}/checkpoint-{step}/model.safetensors", safetensors_bytes(trial.model))
        write(f"{save}/checkpoint-{step}/config.json", b"{}")
        write(f"{save}/checkpoint-{step}/trainer_state.json",
              json.dumps({"global_step": step}).encode())
    with tap.test(f"{server.name}: --steps all"), \
            mounted(save, "--steps", "all", "--lora", S3 + "a0") as mount:
        for name in ("checkpoint-1", "checkpoint-2"):
            same_values(values_in(os.path.join(mount.path, name)), trial.wanted)


def test_wrong(tap, trial, server):
    """What is not there, each with a sentence."""
    for address, words in (("s3://bucket/tree+/none", "s3://bucket/tree+/none"),
                           ("s3://bucket/tree+/model", "s3://bucket/tree+/model/"
                            "adapter_config.json: No such file or directory"),
                           ("https://127.0.0.1/a", "the address of an adapter is "
                            "s3://BUCKET/PREFIX"),
                           ("s3://me:secret@bucket/a", "the address of an adapter is "
                            "s3://BUCKET/PREFIX"),
                           ("s3://", "the address of an adapter is s3://BUCKET/PREFIX")):
        with tap.test(f"{server.name}: {address} is refused"):
            got = run("plan", trial.at + "/model", "--lora", address)
            check(got.status != GOOD and words in got.err and "secret" not in got.err, got)
    bad = f"{trial.at}/bad-{server.name}"
    if isinstance(server, Server):
        write(bad + "/adapter_config.json", content(trial.at + "/a0/adapter_config.json"))
        with tap.test("an adapter without weights in object storage"):
            refused(run("plan", trial.at + "/model", "--lora", S3 + os.path.basename(bad)),
                    INPUT, "adapter_model.safetensors: No such file or directory")


def test_changes(tap, trial, server):
    """An object that is replaced is an error of the read."""
    path = trial.at + "/a0/adapter_model.safetensors"
    kept = content(path)
    with mounted(trial.at + "/model", "--lora", S3 + "a0", "--cache", "off") as mount:
        os.remove(path)
        write(path, kept)
        os.utime(path, (1e9, 1e9))
        found = error_of(lambda: content(glob.glob(mount.path + "/*.safetensors")[0]))
        tap.ok(found == "ESTALE", f"{server.name}: a replaced adapter", f"{found}\n{mount.log()}")


def main():
    require_mount()
    end_if_built_without("object storage", "ls", "s3://bucket/x")
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-lora-") as directory:
        trial = Trial(directory, run_seed())
        root = os.path.join(directory, "s3")
        with Server(root) as server:
            set_environment(server.port, directory)
            for test in (test_places, test_several, test_large, test_steps, test_wrong,
                         test_changes):
                test(tap, trial, server)
        if os.environ.get("RSH_MOTO_PYTHON"):
            with Moto(root) as server:
                set_environment(server.port, directory)
                os.environ.update(AWS_ACCESS_KEY_ID=server.key, AWS_REGION="us-east-1",
                                  AWS_SECRET_ACCESS_KEY=server.secret)
                for test in (test_places, test_several, test_large, test_steps, test_wrong):
                    test(tap, trial, server)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
