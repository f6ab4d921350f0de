#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--log-to: what arrives in syslog, the journal, a file and standard error.

Nothing of the machine's own is touched: the program runs in a mount namespace
whose /dev and /run are made here, with sockets on which this test listens.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

from rsh_cli import INPUT, IO, run  # noqa: E402
from rsh_mount import Tap, reshardfs_program  # noqa: E402

OWN_MOUNTS = os.path.join(LIB, "own_mounts.sh")

# A directory is no strategy: one error line, exit status 3.
WORDS = ["plan", "nowhere", "--src-strategy", "/nowhere/s.ckpt", "--dst-strategy", "none"]

INSIDE = """
set -e
mount -t tmpfs none {root}/dev
for f in null zero urandom; do
    : >{root}/dev/$f
    mount --bind /dev/$f {root}/dev/$f
done
mount --rbind {root}/dev /dev
mount -t tmpfs none /run
mkdir -p /run/systemd/journal
exec "$@"
"""

LISTEN = r"""
import os, socket, subprocess, sys
sockets = []
for path in ("/dev/log", "/run/systemd/journal/socket"):
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    s.bind(path)
    s.setblocking(False)
    sockets.append(s)
got = subprocess.run(sys.argv[2:], stdin=subprocess.DEVNULL)
for s, name in zip(sockets, ("syslog", "journal")):
    with open(os.path.join(sys.argv[1], name), "wb") as f:
        while True:
            try:
                f.write(s.recv(65536) + b"\0")
            except BlockingIOError:
                break
sys.exit(got.returncode)
"""


class Heard:
    def __init__(self, root, *words):
        script = INSIDE.format(root=root)
        got = subprocess.run(
            [OWN_MOUNTS, "sh", "-c", script, "sh", sys.executable, "-c", LISTEN, root,
             reshardfs_program(), *WORDS, *words], capture_output=True, text=True, timeout=120,
            check=False)
        self.status, self.err = got.returncode, got.stderr
        self.syslog, self.journal = [
            open(os.path.join(root, name), encoding="utf-8").read().split("\0")[:-1]
            for name in ("syslog", "journal")]


def can_unshare(root):
    os.makedirs(os.path.join(root, "dev"), exist_ok=True)
    done = subprocess.run([OWN_MOUNTS, "sh", "-c", INSIDE.format(root=root), "sh", "true"],
                          capture_output=True, check=False)
    return done.returncode == 0


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as root:
        said = run(*WORDS).err
        tap.ok(said.startswith("reshardfs: error: ") and "/nowhere/s.ckpt" in said,
               "without the option: standard error", said)
        sentence = said[len("reshardfs: error: "):].rstrip("\n")
        tap.equal(run(*WORDS, "--log-to=stderr").err, said, "stderr")

        path = os.path.join(root, "log")
        got = run(*WORDS, f"--log-to=file:{path}")
        tap.equal((got.status, got.err), (INPUT, said), "file: whoever typed it is told as well")
        line = open(path, encoding="utf-8").read()
        tap.ok(re.fullmatch(r"\d{4}-\S+ " + re.escape(said), line), "file: a line with the time", line)
        tap.equal(os.stat(path).st_mode & 0o777, 0o600, "file: it is private")

        strange = os.path.join(root, 'a "b" \\ c\n\u00e9')
        got = run("plan", "--src-strategy=none", "--dst-strategy=none", "--log-format=json",
                  strange)
        one = json.loads(got.err)
        tap.equal((got.status, got.err.count("\n"), sorted(one), one["level"]),
                  (INPUT, 1, ["level", "message", "time"], "error"), "JSON: one object")
        tap.ok(run("plan", "--src-strategy=none", "--dst-strategy=none", strange).err ==
               f"reshardfs: error: {one['message']}\n", "JSON: the same sentence", one)
        tap.ok(re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+[-+]\d{4}", one["time"]), "JSON: the time", one)
        lines = os.path.join(root, "lines")
        run(*WORDS, f"--log-to=file:{lines}", "--log-format=json")
        with open(lines, encoding="utf-8") as f:
            tap.equal([json.loads(line)["message"] for line in f], [sentence], "JSON in a file")

        pipe = os.path.join(root, "pipe")
        os.mkfifo(pipe)
        got = run(*WORDS, f"--log-to=file:{pipe}")
        tap.equal((got.status, got.err),
                  (IO, f"reshardfs: error: {pipe}: no process reads this pipe\n"),
                  "file: a pipe that no process reads is refused")
        reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
        got = run(*WORDS, f"--log-to=file:{pipe}")
        tap.equal((got.status, os.read(reader, 65536).decode().partition(" ")[2]), (INPUT, said),
                  "file: one that is read gets the lines")
        os.close(reader)

        if not can_unshare(root):
            tap.skip("syslog and journal", "needs a mount namespace of its own")
            return tap.finish()
        heard = Heard(root, "--log-to=journal")
        tap.equal((heard.status, heard.err), (INPUT, said), "journal: whoever typed it is told")
        tap.equal((heard.syslog, heard.journal),
                  ([], [f"PRIORITY=3\nSYSLOG_IDENTIFIER=reshardfs\nMESSAGE={sentence}\n"]),
                  "journal: one entry of its fields")
        heard = Heard(root, "--log-to=syslog")
        tap.equal((heard.status, heard.err, heard.journal), (INPUT, said, []),
                  "syslog: whoever typed it is told")
        tap.ok(len(heard.syslog) == 1 and re.fullmatch(
            r"<27>.* reshardfs\[\d+\]: " + re.escape(sentence) + r"\n?", heard.syslog[0]),
            "syslog: a line with its priority", heard.syslog)
        heard = Heard(root)
        tap.equal((heard.syslog, heard.journal), ([], []), "without the option: neither")

        # No journal listens there.
        got = subprocess.run([OWN_MOUNTS, "sh", "-c", INSIDE.format(root=root), "sh",
                              reshardfs_program(), *WORDS, "--log-to=journal"],
                             capture_output=True, text=True, check=False)
        tap.equal((got.returncode, got.stderr),
                  (INPUT, "reshardfs: error: the journal, /run/systemd/journal/socket: No such file or "
                   "directory\n"),
                  "where there is no journal it says so")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
