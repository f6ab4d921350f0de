# SPDX-License-Identifier: Apache-2.0
"""What a mount shows while its source goes away and comes back."""

import concurrent.futures
import contextlib
import errno
import os
import random
import signal
import subprocess
import time

from demands import check, within, write  # noqa: E402

BEGIN = ": cannot be reached ("
END = ": reachable again after "
N_READERS = 4
MIRROR = os.path.join("mount", "mirror")


def fetched(mount):
    return mount.stats()["fetched"]


def log_lines(mount, words):
    return [line for line in mount.log().splitlines() if words in line]


def demand_logged(mount, n):
    """So many outages, each with its beginning and its end."""
    within(15, lambda: len(log_lines(mount, END)) >= n, "the line of the end\n" + mount.log())
    for words in (BEGIN, END):
        check(len(log_lines(mount, words)) == n, f"{n} of {words!r} in\n{mount.log()}")


def demand_well(mount, outages):
    """The gauges have come down, without anybody reading.  The outage ends a moment after
    the last file no longer fails, when all have been tried."""
    def gauges():
        found = fetched(mount)
        return found["failed_files"], found["unreachable"]
    within(15, lambda: gauges() == (0, 0), "the source is well\n" + mount.log())
    check(fetched(mount)["outages"] == outages, fetched(mount))


def error_of(path):
    """The errno of reading the file, 0 if it can be read, and the time it took."""
    start = time.monotonic()
    try:
        with open(path, "rb", buffering=0) as f:
            while f.read(1 << 16):
                pass
    except OSError as error:
        return error.errno, time.monotonic() - start
    return 0, time.monotonic() - start


def read_on(mount, data, seed, stop):
    """Until it is told to stop; how often bytes came, and how often EIO."""
    numbers = random.Random(seed)
    good = bad = 0
    while not stop:
        rank = numbers.randrange(8)
        try:
            with open(mount.rank_file(rank), "rb", buffering=0) as f:
                for _ in range(20):
                    at = numbers.randrange(len(data[rank]))
                    got = os.pread(f.fileno(), numbers.choice((4096, 70000)), at)
                    check(got and data[rank].startswith(got, at), f"wrong bytes at {at}")
                    good += 1
        except OSError as error:
            check(error.errno == errno.EIO, f"{error}\n{mount.log()}")
            bad += 1
            time.sleep(0.05)
    return good, bad


@contextlib.contextmanager
def read_by_many(mount, job, step):
    """Yields a list of (good, bad) of each reader, which is filled at the end."""
    data = {rank: job.file_bytes(rank, *step) for rank in range(8)}
    stop, counts = [], []
    with concurrent.futures.ThreadPoolExecutor(N_READERS) as pool:
        readers = [pool.submit(read_on, mount, data, seed, stop) for seed in range(N_READERS)]
        try:
            yield counts
        finally:
            stop.append(True)
        counts.extend(reader.result() for reader in readers)
    check(all(good for good, _ in counts), counts)


def give_ctimes(directory):
    """Gives files a ctime that is not their mtime, as the chmod of MindSpore does:
    otherwise nothing tells that a FUSE server keeps it."""
    for at, _, names in os.walk(directory):
        for path in (os.path.join(at, name) for name in names):
            while os.stat(path).st_ctime_ns == os.stat(path).st_mtime_ns:
                time.sleep(0.002)
                os.chmod(path, os.stat(path).st_mode & 0o7777)


class Mirror:
    """Shows job.source at another place, which becomes the job's source."""

    def __init__(self, job, *options):
        self.real = job.source
        self.path = os.path.join(job.directory, "mirror")
        self.sickness = os.path.join(job.directory, "sick")
        self.options = options
        self.process = None
        os.makedirs(self.path, exist_ok=True)
        job.source = self.path

    def come(self):
        give_ctimes(self.real)
        here = os.stat(self.path).st_dev
        self.process = subprocess.Popen(
            [MIRROR, self.real, self.sickness, self.path, *self.options],
            stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        within(20, lambda: os.stat(self.path).st_dev != here or self.process.poll() is not None,
               "the source is mounted")
        check(self.process.poll() is None, "the source is mounted")

    def die(self):
        """Leaves a mount that nobody serves."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def unmount(self):
        subprocess.run(["fusermount3", "-u", "-z", self.path], check=True)

    def sick(self, words):
        write(self.sickness + ".new", words.encode())
        os.rename(self.sickness + ".new", self.sickness)

    def well(self):
        with contextlib.suppress(FileNotFoundError):
            os.remove(self.sickness)

    def end(self):
        self.well()
        self.die()
        self.unmount()
