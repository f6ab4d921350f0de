#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A mount where memory or descriptors are short: it fails with a
sentence and nothing stays mounted, or it works, with all bytes right.

    limits.py [SEED]
"""

import concurrent.futures
import errno
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from cgroups import memory_cgroup, program_in  # noqa: E402
from daemon_use import field  # noqa: E402
from demands import check, content  # noqa: E402
from privileges import own_mounts  # noqa: E402
from rsh_cli import demo_tree  # noqa: E402
from rsh_mount import (TIMEOUT_SCALE, Mounted, Skipped, Tap, is_mount_point,  # noqa: E402
                       is_sanitized,
                       _unmount, require_mount, reshardfs_program,
                       skip_all)
from run_seed import run_seed  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20
READERS = 12


def contents(root, expected=None):
    """{name: bytes} of all files, or whether these are the expected ones."""
    names = [os.path.relpath(os.path.join(at, name), root)
             for at, _, names in os.walk(root) for name in names]
    if expected is None:
        return {name: content(os.path.join(root, name)) for name in names}
    return sorted(names) == sorted(expected) and all(
        content(os.path.join(root, name)) == expected[name] for name in names)


class Job:
    """The tree of make_tree.py, and what a mount of it must show."""

    def __init__(self, directory):
        self.directory = directory
        self.source, self.src, self.dst = demo_tree(directory)
        self.expected = contents(os.path.join(directory, "expected"))
        self.mnt = os.path.join(directory, "mnt")
        os.mkdir(self.mnt)

    def command(self, *options):
        return [reshardfs_program(), "mount", "--index-cache", "off", "--src-strategy", self.src,
                "--dst-strategy", self.dst, *options, self.source, self.mnt]

    def check_tree(self):
        """By many readers at once: the same file each, and each another."""
        with concurrent.futures.ThreadPoolExecutor(READERS) as pool:
            for equal in pool.map(lambda _: contents(self.mnt, self.expected), range(READERS)):
                check(equal, "bytes differ")

    def attempt(self, *options, limit=lambda: None, command=None):
        """True if it could be mounted, and was right."""
        with tempfile.TemporaryFile() as said:
            status = subprocess.run(command or self.command(*options), stdin=subprocess.DEVNULL,
                                    stdout=said, stderr=said, preexec_fn=limit, check=False,
                                    timeout=120 * TIMEOUT_SCALE).returncode
            said.seek(0)
            text = said.read().decode()
        mounted = is_mount_point(self.mnt)
        try:
            check(mounted == (status == 0), f"status {status}, mounted: {mounted}\n{text}")
            if mounted:
                self.check_tree()
        finally:
            if mounted:
                _unmount(self.mnt, lazy=True)
        if not mounted:
            # ld.so, or the program's one sentence behind its warnings; where there is
            # no memory for options it is the one that is said of these.
            check(re.search(r"^reshardfs: error: \S.*\S\n\Z|error while loading|cannot allocate TLS"
                            r"|\Areshardfs: out of memory\nTry '.*\n\Z",
                            text, re.M), f"status {status} without a sentence: {text!r}")
        return mounted


def limits(kind, value):
    return lambda: resource.setrlimit(kind, (value, value))


def try_values(tap, job, name, kind, values, all_work):
    """From what nothing works with to what suffices."""
    worked = []
    with tap.test(f"{name}: a sentence, or all bytes right"):
        for value in values:
            try:
                if job.attempt(limit=limits(kind, value)):
                    worked.append(value)
            except Exception as error:
                raise AssertionError(f"{name} {value}: {error}") from error
    tap.diag(f"{name}: {len(values)} values, works with {len(worked)}, from "
             f"{min(worked, default=None)} on")
    tap.ok(worked and values[0] not in worked and all_work in worked,
           f"{name}: it fails with {values[0]}, and works with {all_work}", worked)


def address_space(tap, job, numbers):
    for name, kind in (("ulimit -v", resource.RLIMIT_AS), ("ulimit -d", resource.RLIMIT_DATA)):
        # The kernel kills a program that it cannot map.
        values = sorted({3 * MIB, 1024 * MIB} | {int(3 * MIB * 400 ** numbers.random()) // KIB * KIB
                                                for _ in range(24)})
        try_values(tap, job, name, kind, values, 1024 * MIB)
    with tap.test("ulimit -v: the foreground says so as well"):
        check(not job.attempt("-f", limit=limits(resource.RLIMIT_AS, 40 * MIB)), "it is mounted")
    for options in (("--cache", "on"), ("--cache", "on", "--cache-size", "4GiB")):
        with tap.test(f"ulimit -v: {' '.join(options)}"):
            check(job.attempt(*options, limit=limits(resource.RLIMIT_AS, 300 * MIB)), "fails")


def descriptors(tap, job):
    try_values(tap, job, "ulimit -n", resource.RLIMIT_NOFILE, [*range(3, 24), 64, 256], 64)


def control_groups(tap, job, directory):
    name = "memory control groups: a sentence, or all bytes right"
    worked, failed = [], []
    for mib in (8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 96, 112, 128, 192, 256):
        with memory_cgroup(mib * MIB) as group:
            if not group:
                tap.skip(name, "no memory control group can be made")
                return
            with program_in(group, directory), tap.test(f"in a control group of {mib} MiB"):
                (worked if job.attempt("--cache", "on") else failed).append(mib)
                _wait_until_empty(group)
    tap.ok(worked and failed and max(failed) < min(worked),
           f"{name}: too little below {min(worked, default=0)} MiB", (failed, worked))


SECOND_VERSION = r"""
mount -t tmpfs none /sys/fs/cgroup || exit 77
cd /sys/fs/cgroup
echo "$1" >memory.max
echo "$2" >memory.current
printf 'anon 5\nactive_file %d\nworkingset 7\ninactive_file %d\n' "$3" "$4" >memory.stat
mnt=$5
shift 5
"$@" || exit
cat "$mnt"/rank_0/* >/dev/null && fusermount3 -u "$mnt"
"""


def second_version(tap, job):
    """Its files are made up, in a mount namespace of their own."""
    name = "control groups of version 2"
    for limit, usage, active, inactive, wanted in (
            ("max", 1 << 40, 0, 0, True),
            (1024 * MIB, 500 * MIB, 0, 0, True),
            (1024 * MIB, 1023 * MIB, 0, 0, False),
            (1024 * MIB, 1023 * MIB, 200 * MIB, 100 * MIB, True),
            (30 * MIB, 0, 0, 0, False)):
        with tap.test(f"{name}: memory.max {limit}, of {usage} {active + inactive} spare"):
            got = subprocess.run(
                own_mounts(SECOND_VERSION, *map(str, (limit, usage, active, inactive)),
                           job.mnt, *job.command()),
                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
                timeout=120 * TIMEOUT_SCALE)
            if got.returncode == 77:
                raise Skipped("no mount namespace")
            check((got.returncode == 0) == wanted, got)
            check(wanted or re.search("error: too little memory: the control group leaves "
                                      r"\d+ MiB", got.stderr), got.stderr)


def _wait_until_empty(group):
    end = time.monotonic() + 30 * TIMEOUT_SCALE
    while time.monotonic() < end:
        with open(os.path.join(group, "cgroup.procs"), encoding="ascii") as f:
            if not f.read().strip():
                return
        time.sleep(0.01)
    raise AssertionError("processes stay in the group")


def read_once(job, mnt, name):
    """True if its bytes are right, false if there was no memory."""
    try:
        found = content(os.path.join(mnt, name))
    except OSError as error:
        check(error.errno == errno.ENOMEM, error)
        return False
    check(found == job.expected[name], f"{name} differs")
    return True


def taken_away(tap, job, readers, mib, *options):
    """All but a few MiB that was there when mounting, and is not while so many read."""
    case = " ".join((f"{mib} MiB, {readers} at once", *options))
    with Mounted(job.source, src_strategy=job.src, dst_strategy=job.dst,
                 extra=("--index-cache", "off", *options)) as m:
        pid = m.process.pid
        resource.prlimit(pid, resource.RLIMIT_AS, (field(pid, "VmSize") * KIB + mib * MIB, -1))
        with tap.test(f"memory that is gone later: right bytes, or ENOMEM and a line: {case}"):
            with concurrent.futures.ThreadPoolExecutor(readers) as pool:
                right = list(pool.map(lambda name: read_once(job, m.path, name),
                                      list(job.expected) * readers))
            # Of what the kernel reads ahead it tells nobody.
            check(all(right) or re.search("out of memory: reads fail|failed to allocate", m.log()),
                  m.log())
            tap.diag(f"{right.count(False)} of {len(right)} files got ENOMEM")
        with tap.test(f"and right bytes when it is back: {case}"):
            resource.prlimit(pid, resource.RLIMIT_AS, (-1, -1))
            check(contents(m.path, job.expected), "bytes differ")
        with tap.test(f"of which the log says no file is at fault: {case}"):
            check("Cannot allocate" not in m.log(), m.log())


def main():
    require_mount()
    if is_sanitized():
        skip_all("a sanitizer maps terabytes, and looks for leaks with descriptors of its own")
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else run_seed()
    tap = Tap()
    tap.diag(f"seed {seed}")
    numbers = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="reshardfs-limits-") as directory:
        job = Job(directory)
        descriptors(tap, job)
        address_space(tap, job, numbers)
        control_groups(tap, job, directory)
        second_version(tap, job)
        taken_away(tap, job, 1, 0)
        # More threads take requests while reads sleep, and have no buffers yet.
        for mib in sorted(numbers.sample(range(8, 96), 6)):
            taken_away(tap, job, READERS, mib, "--fault", "delay=20ms")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
