#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The mount library itself: a harness that lets everything pass proves nothing.

Each case wraps the program in a script that misbehaves in one way, and the
library has to notice.
"""

import os
import subprocess
import sys
import tempfile

LIB = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, LIB)
import rsh_mount  # noqa: E402
from demands import write  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes)
from rsh_mount import Mounted, MountError, Tap  # noqa: E402

WHOLE = bytes(range(16))


def make_source(root):
    """A vector of 16 bytes on two cards; returns (source, strategy)."""
    for rank in range(2):
        half = Record((8,), "UInt8", WHOLE[8 * rank:8 * rank + 8])
        write(f"{root}/source/rank_{rank}/net-1_1.ckpt", checkpoint_bytes({"w": half}))
    layouts = {"w": Layout([2], [0])}
    write(f"{root}/strategy.ckpt", strategy_bytes(StageFile(0, layouts)))
    return f"{root}/source", f"{root}/strategy.ckpt"


def wrapped(root, name, script):
    """Let RESHARDFS name a script around the real program, "$real"."""
    path = f"{root}/{name}"
    write(path, f"#!/bin/sh\nreal='{rsh_mount.reshardfs_program()}'\n{script}\n".encode())
    os.chmod(path, 0o755)
    return path


def raises(expected, action):
    try:
        action()
    except MountError as error:
        return expected in str(error)
    return False


def ignored_signals():
    """What a program that a test starts ignores (a mask), when the test itself was
    started with all that ignored that background jobs and nohup(1) ignore."""
    test = (f"import sys; sys.path.insert(0, {LIB!r}); import rsh_mount, subprocess; "
            "subprocess.run(['grep', 'SigIgn', '/proc/self/status'], check=True)")
    said = subprocess.run(["sh", "-c", "trap '' INT QUIT HUP TERM; exec \"$@\"", "sh",
                           sys.executable, "-c", test], check=True, capture_output=True)
    return int(said.stdout.split()[1], 16)


def skips_status(root, why, *lines):
    """What skips.py says of a build without sanitizers where a test was skipped."""
    build = os.path.join(root, "build")
    write(f"{build}/config.h", b"/* #undef WITH_SANITIZER */\n")
    write(f"{build}/tests/mount/x.py.trs", b":test-result: SKIP x\n")
    write(f"{build}/tests/mount/x.py.log", f"ok 1 - a test # SKIP {why}\n".encode())
    write(f"{root}/list", "\n".join(lines).encode())
    return subprocess.run(
        [sys.executable, os.path.join(LIB, "skips.py"), f"{build}/tests", f"{root}/list"],
        env={k: v for k, v in os.environ.items() if k != "RSH_ORACLE_PYTHON"},
        check=False, capture_output=True).returncode


def test_skips(tap, root):
    """The condition holds here, and does not."""
    holds, not_here = "mount/* no-oracle no *", "mount/* sanitizer no *"
    tap.equal([skips_status(root, *case) for case in (
        ("no oracle", "# words", "", not_here, holds), ("no oracle", not_here),
        ("no oracle", "oracle/* no-oracle no *"), ("another reason", holds), ("no oracle",),
        ("no oracle", "mount/* no-such-condition no *"), ("no oracle", "mount/* no-oracle"))],
        [0, 1, 1, 1, 1, 2, 2], "skips that are expected, unexpected, and no list")


def main():
    rsh_mount.require_mount()
    tap = Tap(10)
    tap.equal(ignored_signals() & 0b100000000000111, 0, "signals are as on a terminal")
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as root:
        test_skips(tap, os.path.join(root, "skips"))
        source, strategy = make_source(root)
        whole = checkpoint_bytes({"w": Record((16,), "UInt8", WHOLE)})
        write(f"{root}/expected/rank_0/checkpoint_0.ckpt", whole)
        expected = rsh_mount.hash_tree(f"{root}/expected")
        real = os.environ["RESHARDFS"]

        def mount(check=None):
            with Mounted(source, src_strategy=strategy, stop_limit=5) as m:
                if check:
                    check(m)

        with tap.test("a good mount shows the expected tree and ends cleanly"):
            found = []
            mount(lambda m: found.append(rsh_mount.hash_tree(m.path, odd_blocks=True)))
            assert rsh_mount.tree_difference(expected, found[0]) == []

        write(f"{root}/expected/rank_0/checkpoint_0.ckpt", whole[:-1] + b"\0")
        other = rsh_mount.hash_tree(f"{root}/expected")
        tap.equal(len(rsh_mount.tree_difference(expected, other)), 1,
                  "one wrong byte is a difference")
        other["rank_1/checkpoint_1.ckpt"] = other.pop("rank_0/checkpoint_0.ckpt")
        tap.equal(len(rsh_mount.tree_difference(expected, other)), 2,
                  "a name too many and one too few are differences")
        tap.ok(raises("the command succeeded", lambda: rsh_mount.expect_failure(
            source, src_strategy=strategy)) or raises(
                "the mount is there", lambda: rsh_mount.expect_failure(
                    source, src_strategy=strategy)),
               "a mount that was to fail and does not is noticed")

        for name, script, why in (
                ("early", 'echo "no such luck" >&2; exit 4', "before it served"),
                ("status", '"$real" "$@"; exit 3', "exit status 3"),
                ("leak", '"$real" "$@"; echo "LeakSanitizer: 8 bytes" >&2', "suspicious word"),
                ("lingering", '"$real" "$@"; exec sleep 60', "still runs")):
            os.environ["RESHARDFS"] = wrapped(root, name, script)
            tap.ok(raises(why, mount), f"{name}: {why}")
            os.environ["RESHARDFS"] = real
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
