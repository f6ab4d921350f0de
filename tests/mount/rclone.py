#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A source on rclone, whose mount is killed while files are read and started
again, ten times."""

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from coming_and_going import (demand_bytes, demand_logged, demand_well,  # noqa: E402
                              error_of, fetched, read_by_many)
from demands import check, within  # noqa: E402
from rsh_mount import Tap, require_mount, skip_all  # noqa: E402
from small_job import Job, mounted  # noqa: E402

STEP = (1, 5)
SHAPES = {"up.weight": (1024, 301), "down.weight": (257, 512), "norm.gamma": (700,)}
N_OUTAGES = 10


class Remote:
    """The files below `directory`, mounted at path."""

    def __init__(self, directory):
        self.directory = directory
        self.path = tempfile.mkdtemp(prefix="reshardfs-rclone-")
        self.process = None
        self.mount()

    def mount(self):
        here = os.stat(self.path).st_dev
        self.process = subprocess.Popen(
            ["rclone", "--config", "", "mount", self.directory, self.path],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def answers():
            with contextlib.suppress(OSError):
                return os.stat(self.path).st_dev != here
        within(30, answers, "it is mounted")

    def kill(self):
        """Nobody serves its files, which are still open, any more."""
        self.process.kill()
        self.process.wait()

    def unmount(self):
        subprocess.run(["umount", "-l", self.path], check=False)

    def end(self):
        self.kill()
        self.unmount()
        os.rmdir(self.path)


def killed_ten_times(job, remote):
    """Who reads meanwhile gets right bytes or EIO; afterwards all is as before."""
    with mounted(job, "--io-mode", "direct", "--cache", "off") as m:
        demand_bytes(m, job.expected(*STEP))
        with read_by_many(m, job, STEP) as counts:
            for i in range(1, N_OUTAGES + 1):
                remote.kill()
                within(60, lambda: fetched(m)["unreachable"], "it is noticed\n" + m.log())
                if i == 1:
                    # Beyond what readers wait for.
                    time.sleep(5)
                    check(error_of(f"{m.path}/rank_0/checkpoint_0.ckpt")[0] == errno.EIO, m.log())
                remote.unmount()
                remote.mount()
                within(60, lambda: fetched(m)["failed_files"] == 0, "it is back\n" + m.log())
                demand_well(m, i)
                demand_logged(m, i)
        check(any(bad for _, bad in counts), counts)
        demand_bytes(m, job.expected(*STEP))
        demand_logged(m, N_OUTAGES)
        check("changed since" not in m.log(), m.log())


def main():
    require_mount()
    if not shutil.which("rclone"):
        skip_all("there is no rclone")
    if os.geteuid() != 0:
        skip_all("umount wants root")
    tap = Tap(1)
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as directory:
        job = Job(directory, shapes=SHAPES)
        job.save(*STEP)
        remote = Remote(directory)
        job.source = os.path.join(remote.path, "source")
        try:
            with tap.test("killed ten times"):
                killed_ten_times(job, remote)
        finally:
            remote.end()
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
