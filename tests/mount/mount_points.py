#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A mount point whose files the mount would hide is refused, and so is one that hides
SOURCE, or that --steps all would look into."""

import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import rsh_cli as cli  # noqa: E402
from demands import check, content, write  # noqa: E402
from rsh_mount import Tap, is_mount_point, require_mount  # noqa: E402
from small_job import Job  # noqa: E402

STEPS = ("--steps", "all")


def mount(job, point, *words, source=None, cwd=None):
    return cli.run("mount", "--index-cache", "off", "--src-strategy", job.strategy,
                   "--dst-strategy", job.strategy, *words, source or job.source, point, cwd=cwd)


def unmount(point):
    subprocess.run(["umount", "-l", point], check=True)


def is_refused(job, point, *said, words=(), **kinds):
    got = mount(job, point, *words, **kinds)
    try:
        cli.refused(got, cli.INPUT, "mount point ", *said)
    finally:
        if is_mount_point(point):
            unmount(point)


def is_mounted(job, point, *words, **kinds):
    got = mount(job, point, *words, **kinds)
    check(got.status == cli.GOOD, str(got))
    check(sorted(os.listdir(point))[-1].startswith(("rank_", "latest")), str(os.listdir(point)))
    unmount(point)


def source_is_not_hidden(job, root):
    os.makedirs(f"{root}/above")
    os.rename(job.source, f"{root}/above/source")
    os.symlink(f"{root}/above/source", job.source)
    os.symlink(f"{root}/above", f"{root}/link")
    for words in ((), ("--allow-non-empty",), ("--stack",), STEPS):
        for point in (job.source, f"{root}/above/source", f"{root}/above", f"{root}/link",
                      f"{root}/above/source/.", root):
            is_refused(job, point, "would hide SOURCE", words=words)
    is_refused(job, ".", "would hide SOURCE", source="above/source", cwd=f"{root}")
    os.remove(job.source)
    os.rename(f"{root}/above/source", job.source)


def files_are_not_hidden(job, root):
    point = f"{root}/point"
    write(f"{point}/notes.txt", b"mine")
    is_refused(job, point, "not empty", "would hide notes.txt. ", "--allow-non-empty")
    for name in ("a", "b"):
        write(f"{point}/{name}", b"")
    is_refused(job, point, "not empty", " and 2 more. ")
    is_refused(job, point, "not empty", words=STEPS)
    is_refused(job, point, "not empty", words=("--stack",))
    is_mounted(job, point, "--allow-non-empty")
    check(content(f"{point}/notes.txt") == b"mine", "what was hidden")
    shutil.rmtree(point)
    os.makedirs(f"{point}/.hidden")
    is_refused(job, point, "would hide .hidden. ")
    os.rmdir(f"{point}/.hidden")
    is_mounted(job, point)


def ranks_are_not_hidden(job, _):
    is_refused(job, f"{job.source}/rank_3", "not empty", "net-1_10.ckpt")


def inside_source(job, _):
    """One step is listed once, before the mount is there."""
    point = f"{job.source}/shown"
    os.makedirs(point)
    is_mounted(job, point)
    is_refused(job, point, "inside SOURCE", words=STEPS)
    is_refused(job, point, "inside SOURCE", words=(*STEPS, "--allow-non-empty"))
    os.rmdir(point)


def beside_source(job, _):
    """Whose name begins with that of SOURCE."""
    point = f"{job.source}2"
    os.makedirs(point)
    is_mounted(job, point)
    is_mounted(job, point, *STEPS)


def another_mount_is_covered(job, root):
    """It has files, which fstab covers too."""
    point = f"{root}/again"
    os.makedirs(point)
    check(mount(job, point).status == cli.GOOD, "first")
    is_mounted(job, point, "--stack")
    is_mounted(job, point, "--dst-strategy", "none")
    unmount(point)


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as root:
        root = os.path.realpath(root)
        job = Job(root)
        job.save(1, 10)
        for test in (source_is_not_hidden, files_are_not_hidden, ranks_are_not_hidden,
                     inside_source, beside_source, another_mount_is_covered):
            with tap.test(test.__name__.replace("_", " ")):
                test(job, root)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
