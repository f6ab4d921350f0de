#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that map files of a mount, one after the other and at once, as the workers
of a server do.  Each byte is served once, whoever maps it and when; a file that nobody
maps leaves no pages.  Bytes are counted, not seconds.

    mapped.py [SEED]
"""

import contextlib
import hashlib
import mmap
import os
import random
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from big_tree import MIB, BigTree  # noqa: E402
from cgroups import memory_cgroup  # noqa: E402
from demands import check, content, within  # noqa: E402
from rsh_mount import Mounted, Skipped, Tap, Tests, hash_tree, require_mount, spoken  # noqa: E402
from run_seed import run_seed  # noqa: E402
from savers import Ranks  # noqa: E402
from small_job import Job  # noqa: E402

SOURCE_MIB = 48
WORKERS = 4
# Says when it has mapped the file, and prints the SHA-256 of a part of it when it is told
# to go on.
WORKER = """
import hashlib, mmap, sys
path, first, last, flags = sys.argv[1], *map(int, sys.argv[2:5])
with open(path, "rb") as f:
    m = mmap.mmap(f.fileno(), 0, flags=flags, prot=mmap.PROT_READ)
print(m[:8].hex(), flush=True)
sys.stdin.readline()
print(hashlib.sha256(memoryview(m)[first:last]).hexdigest())
"""
test = Tests("mapped")


class Worker:
    """A program that maps a file and reads a part of it."""

    def __init__(self, path, first=0, last=None, flags=mmap.MAP_PRIVATE, cgroup=None):
        size = os.stat(path).st_size
        self.first, self.last = first, size if last is None else last
        enter = f"echo $$ >'{cgroup}/cgroup.procs' && " if cgroup else ""
        self.process = subprocess.Popen(
            ["sh", "-c", f'{enter}exec "$0" "$@"', sys.executable, "-c", WORKER, path,
             str(self.first), str(self.last), str(flags)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def end(self):
        """The SHA-256, or None if it was killed."""
        said = self.process.communicate()[0].strip()
        return said if self.process.returncode == 0 else None

    def run(self):
        self.go()
        return self.end()


def of(data, worker):
    return hashlib.sha256(data[worker.first:worker.last]).hexdigest()


class Trial:
    """A mount of a tree whose columns are joined in one file, and the file's bytes."""

    def __init__(self, tree, *words):
        self.tree = tree
        self._mounted = Mounted(tree.source, src_strategy=tree.strategy, extra=[
            "--cache", "off", *words])

    def __enter__(self):
        self.mount = self._mounted.__enter__()
        self.path = self.mount.rank_file(0)
        self.size = os.stat(self.path).st_size
        self.data = self.tree.expected
        return self

    def __exit__(self, *error):
        return self._mounted.__exit__(*error)

    def served(self):
        """Bytes served for each byte of the file."""
        return self.mount.stats()["shown"]["bytes"] / self.size

    def worker(self, *words, **more):
        return Worker(self.path, *words, **more)

    def drop_pages(self):
        fd = os.open(self.path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)

    def demand_right(self, *workers):
        for worker in workers:
            check(worker.end() == of(self.data, worker), "wrong bytes")

    def demand_served(self, at_least, at_most):
        served = self.served()
        check(at_least <= served <= at_most, f"{served:.3f} bytes served for each")


@test
def one_after_the_other(tree, numbers):
    with Trial(tree) as t:
        for number in range(WORKERS):
            worker = t.worker(flags=(mmap.MAP_PRIVATE, mmap.MAP_SHARED)[number % 2])
            check(worker.run() == of(t.data, worker), "wrong bytes")
        t.demand_served(1, 1.05)


@test
def each_starts_while_the_others_read(tree, numbers):
    with Trial(tree) as t:
        workers = []
        for _ in range(WORKERS):
            workers.append(t.worker())
            workers[-1].go()
        t.demand_right(*workers)
        t.demand_served(1, 1.05)


@test
def all_at_once(tree, numbers):
    """They have mapped it before any of them reads."""
    with Trial(tree) as t:
        workers = [t.worker() for _ in range(WORKERS)]
        for worker in workers:
            worker.go()
        t.demand_right(*workers)
        t.demand_served(1, 1.05)


@test
def files_of_many_steps(tree, numbers):
    with tempfile.TemporaryDirectory(prefix="reshardfs-mapped-") as directory:
        job = Job(directory, shapes={"up.weight": (4096, 1536), "down.weight": (300, 8),
                                     "norm.gamma": (8192,)})
        for step in 10, 20:
            job.save(1, step)
        with Mounted(job.source, src_strategy=job.strategy, dst_strategy=job.strategy,
                     extra=["--cache", "off", "--steps", "all"]) as mount:
            files = {}
            for step in 10, 20:
                for rank in 0, 1:
                    at = os.path.join(mount.path, f"1_{step}", f"rank_{rank}")
                    files[os.path.join(at, os.listdir(at)[0])] = job.file_bytes(rank, 1, step)
            workers = []
            for path in [*files] * WORKERS:
                workers.append((Worker(path), files[path]))
                workers[-1][0].go()
            for worker, data in workers:
                check(worker.end() == of(data, worker), "wrong bytes")
            each = mount.stats()["shown"]["bytes"] / sum(map(len, files.values()))
            check(1 <= each <= 1.05, f"{each:.3f} bytes served for each")


@test
def each_takes_a_part(tree, numbers):
    with Trial(tree) as t:
        cuts = [0, *sorted(numbers.randrange(t.size) for _ in range(7)), t.size]
        workers = []
        for first, last in zip(cuts, cuts[1:]):
            workers.append(t.worker(first, last))
            workers[-1].go()
        t.demand_right(*workers)
        t.demand_served(1, 1.05)


@test
def a_file_that_is_only_read_leaves_no_pages(tree, numbers):
    with Trial(tree) as t:
        for _ in range(2):
            with open(t.path, "rb", buffering=0) as f:
                data = b"".join(iter(lambda: f.read(MIB), b""))
            check(data == t.data, "wrong bytes")
        t.demand_served(2, 2)


@test
def the_mode_direct_stays_direct(tree, numbers):
    with Trial(tree, "--io-mode", "direct") as t:
        for _ in range(2):
            worker = t.worker()
            check(worker.run() == of(t.data, worker), "wrong bytes")
        t.demand_served(2, 2.05)


@test
def read_and_mapped_in_turn(tree, numbers):
    with Trial(tree) as t:
        for step in range(12):
            first = numbers.randrange(t.size)
            last = numbers.randrange(first, t.size)
            if numbers.random() < 0.5:
                worker = t.worker(first, last)
                check(worker.run() == of(t.data, worker), f"wrong bytes, step {step}")
            else:
                with open(t.path, "rb") as f:
                    f.seek(first)
                    check(f.read(last - first) == t.data[first:last],
                          f"wrong bytes, step {step}")


@test
def pages_that_the_kernel_drops(tree, numbers):
    with Trial(tree) as t:
        before = t.worker()
        for _ in range(3):
            worker = t.worker()
            check(worker.run() == of(t.data, worker), "wrong bytes")
            t.drop_pages()
        check(before.run() == of(t.data, before), "wrong bytes of the first mapping")


@test
def too_little_memory_for_the_pages(tree, numbers):
    with memory_cgroup(SOURCE_MIB // 2 * MIB) as cgroup:
        if not cgroup:
            raise Skipped("no memory control group can be made")
        with Trial(tree) as t:
            workers = [t.worker(cgroup=cgroup) for _ in range(2)]
            for worker in workers:
                worker.go()
            t.demand_right(*workers)


@test
def the_source_is_overwritten(tree, numbers):
    """Whoever maps or reads gets the old bytes or an error, never new ones."""
    with copied(tree) as other, Trial(other) as t:
        half = t.size // 2
        worker = t.worker(0, half)
        check(worker.run() == of(t.data, worker), "wrong bytes")
        kept, new = t.worker(0, half // 2), t.worker(half, t.size)
        for rank in range(other.n_ranks):
            with open(other.path(rank), "r+b") as f:
                f.seek(4096)
                data = f.read()
                f.seek(4096)
                f.write(bytes(b ^ 0xff for b in data[:MIB]) * (len(data) // MIB))
        check(kept.run() in (None, of(t.data, kept)), "new bytes in a mapping")
        check(new.run() is None, "bytes of a file that changed")
        with open(t.path, "rb", buffering=0) as f:
            got = b""
            with contextlib.suppress(OSError):
                while part := f.read(4096):
                    got += part
        check(len(got) < t.size and got == t.data[:len(got)], "new bytes were read")


@test
def a_step_is_saved_again(tree, numbers):
    with tempfile.TemporaryDirectory(prefix="reshardfs-mapped-") as directory:
        saver = Ranks(directory)
        saver.all_of(10)
        with Mounted(saver.source, extra=["--steps", "all", "--steps-interval", "1"],
                     **saver.options()) as mount:
            at = os.path.join(mount.path, saver.name(10))
            for _ in range(2):
                check(mapped_tree(at) == hash_tree(at), "mapped bytes differ from read ones")
            before = mapped_tree(at)
            for _ in saver.remove(10):
                pass
            within(30, lambda: not os.path.exists(at), "the step is still there")
            file_bytes = saver.job.file_bytes
            saver.job.file_bytes = lambda rank, epoch, step: file_bytes(rank, epoch, step + 1)
            saver.all_of(10)
            within(30, lambda: os.path.exists(at), "the step is not there again")
            after = mapped_tree(at)
            check(after == hash_tree(at) and before.keys() == after.keys() and
                  before != after, "pages of the step that was removed")


def mapped_tree(root):
    """As hash_tree(), by mappings of the files."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = os.path.join(folder, name)
            with open(path, "rb") as f, \
                    mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ, flags=mmap.MAP_PRIVATE) as m:
                found[os.path.relpath(path, root)] = len(m), hashlib.sha256(m).hexdigest()
    return found


@test
def tensors_that_are_missing(tree, numbers):
    with tempfile.TemporaryDirectory(prefix="reshardfs-mapped-") as directory:
        job = Job(directory)
        saved = job.save(1, 5)
        os.unlink(saved[2])
        words = dict(src_strategy=job.strategy, extra=["--allow-missing"])
        with Mounted(job.source, **words) as mount:
            good = hash_tree(mount.path)
            for _ in range(2):
                check(mapped_tree(mount.path) == good, "mapped bytes differ from read ones")


@contextlib.contextmanager
def copied(tree):
    """A tree whose files may be written to."""
    with tempfile.TemporaryDirectory(prefix="reshardfs-mapped-") as directory:
        other = BigTree(directory, SOURCE_MIB)
        other.expected = tree.expected
        yield other


def main():
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else run_seed()
    require_mount()
    tap = Tap()
    tap.diag(f"seed {seed}")
    with tempfile.TemporaryDirectory(prefix="reshardfs-mapped-") as directory:
        tree = BigTree(directory, SOURCE_MIB)
        with Mounted(tree.source, src_strategy=tree.strategy,
                     extra=["--io-mode", "direct"]) as mount:
            tree.expected = content(mount.rank_file(0))
        check(tree.expected.endswith(tree.content(0, tree.bytes)), "wrong bytes")
        for function in test:
            with tap.test(spoken(function)):
                function(tree, random.Random(f"{seed} {function.__name__}"))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
