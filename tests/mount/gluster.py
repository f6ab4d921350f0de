#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A source on GlusterFS: two bricks that hold the same, on this machine, both
killed while files are read and started again, several times.

glusterfsd and glusterfs are started by hand from descriptions of the volume, as
glusterd would; that one is not needed.
"""

import contextlib
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from coming_and_going import (BEGIN, demand_bytes, demand_logged, demand_well,  # noqa: E402
                              error_of, fetched, log_lines, read_by_many)
from demands import change, check, content, demand, within  # noqa: E402
from rsh_mount import Tap, require_mount, skip_all  # noqa: E402
from small_job import Job, mounted  # noqa: E402

STEP = (1, 5)
SHAPES = {"up.weight": (1024, 301), "down.weight": (257, 512), "norm.gamma": (700,)}
N_OUTAGES = 4

BRICK = """volume posix
  type storage/posix
  option directory {directory}
  option ctime on
end-volume
volume locks
  type features/locks
  subvolumes posix
end-volume
volume brick
  type performance/io-threads
  subvolumes locks
end-volume
volume server
  type protocol/server
  option transport-type tcp
  option transport.socket.bind-address 127.0.0.1
  option transport.socket.listen-port {port}
  option auth.addr.brick.allow 127.0.0.1
  subvolumes brick
end-volume
"""

REMOTE = """volume remote{number}
  type protocol/client
  option transport-type tcp
  option remote-host 127.0.0.1
  option remote-port {port}
  option remote-subvolume brick
  option ping-timeout 5
end-volume
"""

REPLICATE = """volume replicate
  type cluster/replicate
  subvolumes remote0 remote1
end-volume
volume utime
  type features/utime
  subvolumes replicate
end-volume
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Volume:
    """Two bricks below `directory`, and the volume mounted at path."""

    def __init__(self, directory):
        self.directory = directory
        self.path = os.path.join(directory, "volume")
        self.ports = [free_port(), free_port()]
        self.bricks = [None, None]
        remotes = ""
        os.makedirs(self.path)
        for i, port in enumerate(self.ports):
            os.makedirs(self._at(f"brick{i}"))
            change(self._at(f"brick{i}.vol"),
                   BRICK.format(directory=self._at(f"brick{i}"), port=port).encode())
            remotes += REMOTE.format(number=i, port=port)
        change(self._at("volume.vol"), (remotes + REPLICATE).encode())

    def _at(self, name):
        return os.path.join(self.directory, name)

    def start(self, i):
        """Also listens: who asks it at once is answered."""
        self.bricks[i] = subprocess.Popen(
            ["glusterfsd", "-N", "-f", self._at(f"brick{i}.vol"), "-l", self._at(f"brick{i}.log"),
             "-p", self._at(f"brick{i}.pid")], stdin=subprocess.DEVNULL)

        def listens():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", self.ports[i])) == 0
        within(30, listens, f"brick {i} listens")

    def kill(self, i):
        self.bricks[i].kill()
        self.bricks[i].wait()

    def mount(self, path=None):
        path = path or self.path
        here = os.stat(path).st_dev
        subprocess.run(["glusterfs", "-f", self._at("volume.vol"), "-l", self._at("volume.log"),
                        "-p", self._at("client.pid"), path],
                       stdin=subprocess.DEVNULL, check=True, timeout=60)

        def answers():
            with contextlib.suppress(OSError):
                return os.stat(path).st_dev != here
        within(30, answers, "the volume is mounted")

    def unmount(self, path=None):
        """Its process is killed first, and so serves nobody who has files open."""
        with contextlib.suppress(OSError, ValueError):
            os.kill(int(content(self._at("client.pid"))), signal.SIGKILL)
        subprocess.run(["umount", "-l", path or self.path], check=False)

    def end(self):
        self.unmount()
        for brick in self.bricks:
            if brick:
                brick.kill()
                brick.wait()


def all_bricks_again_and_again(job, volume):
    """Who reads meanwhile gets right bytes or EIO; afterwards all is as before."""
    with mounted(job, "--io-mode", "direct", "--cache", "off") as m:
        demand_bytes(m, job.expected(*STEP))
        with read_by_many(m, job, STEP) as counts:
            for i in range(1, N_OUTAGES + 1):
                volume.kill(0)
                volume.kill(1)
                within(60, lambda: fetched(m)["unreachable"], "it is noticed\n" + m.log())
                check(fetched(m)["failed_files"] > 0, fetched(m))
                if i == 1:
                    # Beyond what readers wait for.
                    time.sleep(5)
                    check(error_of(f"{m.path}/rank_0/checkpoint_0.ckpt")[0] == errno.EIO, m.log())
                volume.start(0)
                volume.start(1)
                within(60, lambda: fetched(m)["failed_files"] == 0, "it is back\n" + m.log())
                demand_well(m, i)
                demand_logged(m, i)
        check(any(bad for _, bad in counts), counts)
        demand_bytes(m, job.expected(*STEP))
        demand_logged(m, N_OUTAGES)
        demand(log_lines(m, BEGIN)[0], "error: ", volume.path)
        check("changed since" not in m.log(), m.log())


def one_brick_after_the_other(job, volume):
    """The volume stays; so do all bytes, and nothing is said to have changed."""
    with mounted(job, "--io-mode", "direct", "--cache", "off") as m:
        with read_by_many(m, job, STEP):
            for i in range(4):
                volume.kill(i % 2)
                demand_bytes(m, job.expected(*STEP))
                volume.start(i % 2)
                # The other one must not go before this one is back.
                time.sleep(8)
        demand_bytes(m, job.expected(*STEP))
        check("changed since" not in m.log(), m.log())


def mounted_anew_and_replaced(job, volume):
    """One file by another of the same size, with the same time of modification."""
    elsewhere = os.path.join(volume.directory, "elsewhere")
    os.makedirs(elsewhere)
    path = os.path.join(elsewhere, "source", "rank_2", f"net-{STEP[0]}_{STEP[1]}.ckpt")
    with mounted(job, "--io-mode", "direct", "--cache", "off", "--replicas", "off") as m:
        demand_bytes(m, job.expected(*STEP))
        volume.unmount()
        within(20, lambda: error_of(f"{m.path}/rank_2/checkpoint_2.ckpt")[0] == errno.EIO,
               "EIO\n" + m.log())
        volume.mount(elsewhere)
        before = os.stat(path)
        shutil.copy(path, path + ".new")
        with open(path + ".new", "r+b") as f:
            f.seek(-1000, os.SEEK_END)
            f.write(bytes(1000))
        os.rename(path + ".new", path)
        os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        volume.unmount(elsewhere)
        volume.mount()
        within(60, lambda: error_of(f"{m.path}/rank_2/checkpoint_2.ckpt")[0] == errno.ESTALE,
               "ESTALE\n" + m.log())
        for rank in (0, 1, 3, 4, 5, 6, 7):
            check(error_of(f"{m.path}/rank_{rank}/checkpoint_{rank}.ckpt")[0] == 0, m.log())
        demand_logged(m, 1)


TESTS = (all_bricks_again_and_again, one_brick_after_the_other, mounted_anew_and_replaced)


def main():
    require_mount()
    for program in ("glusterfsd", "glusterfs"):
        if not shutil.which(program):
            skip_all(f"there is no {program}")
    if os.geteuid() != 0:
        skip_all("bricks want root")
    tap = Tap(len(TESTS))
    with tempfile.TemporaryDirectory(prefix="reshardfs-gluster-") as directory:
        volume = Volume(directory)
        try:
            volume.start(0)
            volume.start(1)
            volume.mount()
            job = Job(volume.path, shapes=SHAPES)
            job.save(*STEP)
            for function in TESTS:
                with tap.test(function.__name__.replace("_", " ")):
                    function(job, volume)
        finally:
            volume.end()
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
