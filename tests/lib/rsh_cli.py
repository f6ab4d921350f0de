# SPDX-License-Identifier: Apache-2.0
"""The program as somebody types it, for tests of commands that print."""

import json
import os
import pty
import re
import subprocess
import sys
import tempfile

LIB = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, LIB)

from rsh_mount import TIMEOUT_SCALE, Tap, reshardfs_program  # noqa: E402

GOOD, NO, USAGE, INPUT, IO = range(5)
PLAIN = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")}
# Nothing is left in the user's own cache, nor found there.
PLAIN["XDG_CACHE_HOME"] = os.path.join(os.devnull, "cache")
# What a long command says into a log every ten seconds; on a busy machine all are long.
PROGRESS = re.compile(r"^(?:exporting|verifying|warm): \d+% \(.* left\n", re.MULTILINE)


class Said:
    """What a run of the program came to."""

    def __init__(self, status, out, err):
        self.status, self.out, self.err = status, out, err

    def __repr__(self):
        return f"status {self.status}\n{self.out}\n{self.err}"


def run(*words, env=None, cwd=None):
    """Run the program with its output in pipes; lines of progress are left out."""
    got = subprocess.run([reshardfs_program(), *words], capture_output=True, check=False,
                         stdin=subprocess.DEVNULL, timeout=120 * TIMEOUT_SCALE, cwd=cwd,
                         env={**PLAIN, **(env or {})})
    return Said(got.returncode, got.stdout.decode(), PROGRESS.sub("", got.stderr.decode()))


def good(*words, **how):
    """What a run said that has to go well."""
    got = run(*words, **how)
    if got.status != GOOD:
        raise AssertionError(f"{words}: {got!r}")
    return got


def end_if_built_without(what, *words):
    """A program that was built without what these words ask for has to say so, which is
    then all that there is to test."""
    got = run(*words)
    if "built without" not in got.err:
        return
    tap = Tap(1)
    tap.ok(got.status and got.err.splitlines()[0].endswith(
        f": this program was built without {what}"), "it says what it lacks", repr(got))
    sys.exit(tap.finish())


def run_json(*words, status=GOOD):
    got = run(*words, "--json")
    if got.status != status:
        raise AssertionError(repr(got))
    return json.loads(got.out)


def run_on_terminal(*words, columns=80, env=None):
    """Run it on a terminal of that width; what it says there is `out`."""
    leader, follower = pty.openpty()
    with tempfile.TemporaryFile() as err:
        process = subprocess.Popen([reshardfs_program(), *words], stdout=follower, stderr=err,
                                   stdin=subprocess.DEVNULL,
                                   env={**PLAIN, "TERM": "xterm", "COLUMNS": str(columns),
                                        **(env or {})})
        os.close(follower)
        out = b""
        while True:
            try:
                more = os.read(leader, 65536)
            except OSError:  # the last one has closed it
                break
            if not more:
                break
            out += more
        os.close(leader)
        status = process.wait(120 * TIMEOUT_SCALE)
        err.seek(0)
        return Said(status, out.decode().replace("\r\n", "\n"), err.read().decode())


def refused(got, status, *words):
    """One sentence on standard error that has the words in it, and at most a line that
    names the help."""
    lines = [line for line in got.err.splitlines()
             if not line.startswith("Try 'reshardfs")]
    missing = [word for word in words if word not in got.err]
    if got.status != status or got.out or len(lines) != 1 or missing:
        raise AssertionError(f"no {missing} in {got!r}")


def demo_tree(directory):
    """The tree of make_tree.py: (source, its strategy, the one wanted)."""
    subprocess.run([sys.executable, os.path.join(LIB, "make_tree.py"), directory], check=True)
    return [os.path.join(directory, name) for name in ("source", "source.ckpt", "wanted.ckpt")]
