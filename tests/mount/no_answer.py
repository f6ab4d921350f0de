#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A mount whose daemon is stopped, or whose source hangs: commands that read from
it end in time with a sentence, and every command ends at Ctrl-C."""

import os
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check  # noqa: E402
from rsh_cli import IO, PLAIN, demo_tree  # noqa: E402
from rsh_mount import (TIMEOUT_SCALE, Mounted, Tap, require_mount,  # noqa: E402
                       reshardfs_program)

IN_TIME = 10 * TIMEOUT_SCALE
AT_ONCE = 4 * TIMEOUT_SCALE
HANGS = ("--fault", "delay=3600s")


class Run:
    """A command, with its output in a file: a process that is given up has it, too."""

    def __init__(self, *words):
        self.said = tempfile.TemporaryFile()
        self.began = time.monotonic()
        self.process = subprocess.Popen([reshardfs_program(), *words], env=PLAIN,
                                        stdin=subprocess.DEVNULL, stdout=self.said,
                                        stderr=self.said)

    def ends(self, limit):
        """Its status, and what it said."""
        status = self.process.wait(limit - (time.monotonic() - self.began))
        self.said.seek(0)
        said = self.said.read().decode()
        self.said.close()
        return status, said

    def interrupt(self):
        self.began = time.monotonic()
        self.process.send_signal(signal.SIGINT)


def commands(path, everything):
    """All that read from a mount; of one whose source hangs some are answered."""
    file = f"{path}/rank_0/checkpoint_0.ckpt"
    return ([["stats", path], ["ls", path], ["ls", file], ["plan", path]] if everything
            else []) + [["warm", "--contents", path], ["verify", path]]


def all_are_given_up(mount, everything, words):
    for run in [Run(*c) for c in commands(mount.path, everything)]:
        status, said = run.ends(IN_TIME)
        check(status == IO and mount.path in said and words in said and
              said.count("error:") == 1, (run.process.args, status, said))


def all_are_interrupted(mount, directory, everything):
    runs = [Run(*c) for c in commands(mount.path, everything)]
    runs.append(Run("export", "--src-strategy", "none", "--dst-strategy", "none", mount.path,
                    os.path.join(directory, "out")))
    time.sleep(1)
    for run in runs:
        check(run.process.poll() is None, (run.process.args, "it was to wait"))
        run.interrupt()
    for run in runs:
        status, said = run.ends(AT_ONCE)
        check(status, (run.process.args, status, said))


def stopped(tree, directory, act):
    source, src, dst = tree
    with Mounted(source, src_strategy=src, dst_strategy=dst) as mount:
        os.kill(mount.process.pid, signal.SIGSTOP)
        try:
            act(mount, directory)
        finally:
            os.kill(mount.process.pid, signal.SIGCONT)


def hanging(tree, directory, act):
    source, src, dst = tree
    with Mounted(source, src_strategy=src, dst_strategy=dst, extra=HANGS) as mount:
        act(mount, directory)


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-no-answer-") as directory:
        tree = demo_tree(directory)
        with tap.test("of a stopped daemon commands end in time"):
            stopped(tree, directory, lambda m, d: all_are_given_up(m, True, "daemon of this"))
        with tap.test("of a stopped daemon commands end at Ctrl-C"):
            stopped(tree, directory, lambda m, d: all_are_interrupted(m, d, True))
        with tap.test("of a source that hangs commands end in time"):
            hanging(tree, directory, lambda m, d: all_are_given_up(m, False, "its source"))
        with tap.test("of a source that hangs commands end at Ctrl-C"):
            hanging(tree, directory, lambda m, d: all_are_interrupted(m, d, False))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
