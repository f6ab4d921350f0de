#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A source behind HTTP (s3://), by a server of the test's own: what is shown is what
the same files on disk show, within the sandbox."""

import contextlib
import ctypes
import errno
import os
import subprocess
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

from rsh_cli import GOOD, INPUT  # noqa: E402
from rsh_cli import run as run_program  # noqa: E402
from rsh_mount import (MountError, Mounted, Tap, hash_tree, require_mount,  # noqa: E402
                       reshardfs_program, skip_all, tree_difference)
from small_job import Job  # noqa: E402

SECRET = "SquareCirclesAreSecret"


def run(*words):
    """Run the program with what `environment` has set."""
    return run_program(*words, env={name: value for name, value in os.environ.items()
                                    if name.startswith("AWS_") or name in
                                    ("HOME", "no_proxy")})


class Server:
    """Buckets in a directory; `requests` are those since it was asked last."""

    def __init__(self, root):
        self.root = root
        self.log = os.path.join(root, ".requests")
        self.read = 0
        self.process = subprocess.Popen(
            [sys.executable, os.path.join(LIB, "s3_server.py"), root],
            stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def requests(self):
        with open(self.log, encoding="utf-8") as f:
            lines = f.read().splitlines()
        new, self.read = lines[self.read:], len(lines)
        return new

    @contextlib.contextmanager
    def denying(self, status):
        path = os.path.join(self.root, ".deny")
        with open(path, "w", encoding="ascii") as f:
            f.write(str(status))
        yield
        os.unlink(path)


def environment(server, directory):
    """Whatever the user has is left alone."""
    for name in [n for n in os.environ if n.startswith("AWS_")]:
        del os.environ[name]
    os.environ.update(AWS_ENDPOINT_URL=f"http://127.0.0.1:{server.port}",
                      AWS_ACCESS_KEY_ID="AKIDEXAMPLE", AWS_SECRET_ACCESS_KEY=SECRET,
                      AWS_REGION="here", HOME=directory, no_proxy="127.0.0.1")


def same(mount, expected):
    different = tree_difference(expected, hash_tree(mount.path))
    if different:
        raise MountError("\n".join(different) + "\n" + mount.log())


def read_error(path):
    try:
        with open(path, "rb") as f:
            f.read()
    except OSError as error:
        return errno.errorcode[error.errno]
    return None


def library_path(name):
    ctypes.CDLL(name)
    with open("/proc/self/maps", encoding="utf-8") as f:
        return next(line.split()[-1] for line in f
                    if os.path.basename(line).startswith(name))


class Trial:
    def __init__(self, directory):
        self.server = Server(os.path.join(directory, "s3"))
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


def test_shown(tap, trial):
    with trial.mounted("--index-cache", trial.cache) as mount:
        with tap.test("what is shown is that of the same files on disk"):
            same(mount, trial.expected)
        tap.ok("confined" in mount.log(), "within the sandbox", mount.log())
        with open(os.path.join(mount.path, ".reshardfs", "stats"), encoding="utf-8") as f:
            told = f.read()
        tap.ok(trial.url in told, "its address is told", told)
        with open(f"/proc/{mount.process.pid}/environ", "rb") as f:
            around = f.read().decode()
        tap.ok(SECRET not in told + mount.log() + around, "and the secret is not")


def test_cached(tap, trial):
    trial.server.requests()
    with trial.mounted("--index-cache", trial.cache, "--check", "structure"):
        asked = trial.server.requests()
    tap.ok(asked and all("list-type=2" in line for line in asked),
           "the next mount asks for listings alone", "\n".join(asked))


def test_replaced(tap, trial):
    """Another object of the same size is none of the mount's."""
    with trial.mounted("--replicas", "off") as mount:
        source = os.path.join(trial.job.source, "rank_0")
        path = os.path.join(source, sorted(n for n in os.listdir(source)
                                           if n.endswith(".ckpt"))[-1])
        with open(path, "rb") as f:
            bytes_ = f.read()
        os.rename(path, path + ".old")
        with open(path, "wb") as f:
            f.write(bytes_)
        found = {read_error(os.path.join(root, name))
                 for root, _, names in os.walk(mount.path) for name in names
                 if ".reshardfs" not in root}
        os.rename(path + ".old", path)
    tap.ok("ESTALE" in found, "an object that was replaced is stale", str(found))


def test_denied(tap, trial):
    with trial.server.denying(403):
        got = run("ls", trial.url)
    tap.ok(got.status != GOOD and "keys" not in got.err and SECRET not in got.err,
           "who may not is told so", repr(got))


def test_commands(tap, trial):
    got = run("ls", trial.url)
    tap.ok(got.status == GOOD and "whole" in got.out, "ls", repr(got))
    got = run("verify", trial.url)
    tap.ok(got.status == GOOD, "verify", repr(got))
    target = os.path.join(trial.cache, "exported")
    got = run("export", "-q", "--src-strategy", trial.job.strategy, "--dst-strategy",
              trial.job.strategy, trial.url, target)
    tap.ok(got.status == GOOD, "export", repr(got))
    got = run("ls", "s3://bucket/nothing")
    tap.equal(got.status, INPUT, "nothing lies there")


def test_libraries(tap, trial):
    """They are loaded by those who name an address, and nobody else needs them."""
    for name in ("libcurl.so.4", "libexpat.so.1"):
        library = library_path(name)
        hidden = f"mount --bind /dev/null '{library}' && exec \"$@\""
        without = ["unshare", "--mount", "sh", "-c", hidden, "sh", reshardfs_program()]
        got = subprocess.run([*without, "ls", trial.url], text=True, check=False,
                             capture_output=True)
        tap.ok(got.returncode == INPUT and
               "object storage needs a library" in got.stderr and name in got.stderr,
               f"a sentence without {name}", repr(got))
        got = subprocess.run([*without, "ls", trial.job.source], text=True, check=False,
                             capture_output=True)
        tap.ok(got.returncode == GOOD, "and files do without", repr(got))


def main():
    require_mount()
    if "built without" in run("ls", "s3://bucket/x").err:
        skip_all("built without object storage")
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-objects-") as directory:
        os.makedirs(os.path.join(directory, "s3", "bucket"))
        trial = Trial(directory)
        environment(trial.server, directory)
        try:
            for test in (test_shown, test_cached, test_replaced, test_denied,
                         test_commands, test_libraries):
                test(tap, trial)
        finally:
            trial.server.process.kill()
            trial.server.process.wait()
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
