# SPDX-License-Identifier: Apache-2.0
"""A small job behind HTTP (lib/s3_server.py), and the files that a mount of it has to
show."""

import contextlib
import ctypes
import json
import os
import subprocess
import sys
import tempfile

LIB = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, LIB)

from demands import content, write  # noqa: E402
from rsh_cli import end_if_built_without  # noqa: E402
from rsh_cli import run as run_program  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402
from safetensors_format import safetensors_bytes, values_of  # noqa: E402
from small_job import Job  # noqa: E402

KEY = "AKIDEXAMPLE"
SECRET = "SquareCirclesAreSecret"


def run(*words):
    """Run the program with what `set_environment` has set."""
    return run_program(*words, env={name: value for name, value in os.environ.items()
                                    if name.startswith("AWS_") or name in
                                    ("HOME", "no_proxy")})


class Server:
    """Buckets in a directory; `requests` are those since it was asked last."""

    name = "the tests' own server"

    def __init__(self, root, *words):
        self.root = root
        self.log = os.path.join(root, ".requests")
        self.read = 0
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(LIB, "s3_server.py"), *words, root],
            stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def requests(self):
        lines = content(self.log).decode().splitlines()
        new, self.read = lines[self.read:], len(lines)
        return new

    @contextlib.contextmanager
    def denying(self, status):
        path = os.path.join(self.root, ".deny")
        write(path, str(status).encode())
        yield
        os.unlink(path)

    @contextlib.contextmanager
    def failing(self, *faults, every=1):
        """With answers of such keys, see lib/s3_server.py: (KEYS, ACTIONS)."""
        path = os.path.join(self.root, ".faults")
        write(path + ".new", json.dumps([{"only": only, "every": every, "actions": actions.split()}
                                         for only, actions in faults]).encode())
        os.rename(path + ".new", path)
        yield
        os.unlink(path)


def set_environment(port, directory):
    """Whatever the user has is left alone."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}",
                      AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET,
                      AWS_REGION="here", HOME=directory, no_proxy="127.0.0.1")


def library_path(name):
    ctypes.CDLL(name)
    with open("/proc/self/maps", encoding="utf-8") as f:
        return next(line.split()[-1] for line in f
                    if os.path.basename(line).startswith(name))


def write_model(root, records):
    """A model in parts, as Hugging Face keeps them."""
    whole = values_of(records)
    weights = {}
    for i in range(2):
        name = f"model-{i + 1:05}-of-00002.safetensors"
        part = {n: whole[n] for n in list(whole)[i::2]}
        write(os.path.join(root, name), safetensors_bytes(part, {"format": "pt"}))
        weights.update(dict.fromkeys(part, name))
    write(os.path.join(root, "model.safetensors.index.json"),
          json.dumps({"metadata": {}, "weight_map": weights}).encode())


class Trial:
    def __init__(self, directory, *words):
        self.directory = directory
        os.makedirs(os.path.join(directory, "s3", "bucket"))
        self.server = Server(os.path.join(directory, "s3"), *words)
        self.job = Job(os.path.join(directory, "s3", "bucket"))
        self.job.save(1, 10)
        for root, _, names in os.walk(self.job.source):
            for name in names:  # what is new is in no index cache
                os.utime(os.path.join(root, name), (1e9, 1e9))
        self.expected = self.job.expected(1, 10)
        self.url = "s3://bucket/" + os.path.relpath(
            self.job.source, os.path.join(directory, "s3", "bucket"))
        self.cache = os.path.join(directory, "cache")

    def mounted(self, *extra):
        return Mounted(self.url, src_strategy=self.job.strategy,
                       dst_strategy=self.job.strategy,
                       extra=["--log-level", "info", *extra])


def run_trials(*tests):
    """Run tests that take a Tap and a Trial, and return the status of the program."""
    require_mount()
    end_if_built_without("object storage", "ls", "s3://bucket/x")
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-objects-") as directory:
        trial = Trial(directory)
        with trial.server:
            set_environment(trial.server.port, directory)
            for test in tests:
                test(tap, trial)
    return tap.finish()
