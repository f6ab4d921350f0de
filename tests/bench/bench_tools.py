# SPDX-License-Identifier: Apache-2.0
"""What the rows of the benchmarks stand on: readers, mounts, the oracle."""

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field

from rsh_mount import Mounted, MountError, reshardfs_program, sha256_of

from bench_adapter_tree import AdapterTree
from bench_models import ModelTree
from bench_quantised_tree import SCHEMES, QuantisedTree
from bench_saved import Saved
from bench_trees import Blocks, Checkpoint2Tree, Tree, WANTED_RANKS
from bench_weights import Weights

MIB = 1 << 20
# What has a class of its own, by kind.
TREES = {"adapter": AdapterTree, "checkpoint2": Checkpoint2Tree, "model": ModelTree,
         "weights_qkv": Weights, "weights_gate": Weights, "weights_experts": Weights,
         "weights_stacked": Weights,
         "saved_bf16": Saved, "saved_fp32": Saved, "saved_moments": Saved,
         **{"quantised_" + scheme: QuantisedTree for scheme in SCHEMES}}

TOUCH = """
import mmap, sys
room = mmap.mmap(-1, int(sys.argv[1]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
room.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, len(room), mmap.PAGESIZE):
    room[at] = 1
"""


class Skip(Exception):
    """A row cannot be measured here, and why."""


class Broken(Exception):
    """Something is wrong: bytes that differ, a program that fails."""


@dataclass
class Sample:
    """One measurement of one side."""
    seconds: float
    bytes: int = 0
    storage_bytes: int = 0
    reads: int = 0
    sum: int = 0
    memory: int = 0

    @property
    def rate(self):
        return self.bytes / self.seconds


@dataclass
class Measured:
    """What a row found: a value of each repeat, and what it came from."""
    values: list = field(default_factory=list)
    mount: list = field(default_factory=list)
    peer: list = field(default_factory=list)
    notes: list = field(default_factory=list)

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def median(self):
        return statistics.median(self.values)


def rate_text(rate):
    return f"{rate / 1e9:.2f} GB/s" if rate >= 1e9 else f"{rate / 1e6:.0f} MB/s"


def status_field(pid, name):
    """A number of /proc/PID/status, in bytes."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        for line in f:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    raise Broken(f"/proc/{pid}/status has no {name}")


def storage_bytes_of(pid):
    """Bytes that a process had fetched from storage so far."""
    with open(f"/proc/{pid}/io", encoding="ascii") as f:
        for line in f:
            if line.startswith("read_bytes:"):
                return int(line.split()[1])
    raise Skip("/proc/PID/io does not count read_bytes")


def memory(name):
    """A number of /proc/meminfo, in bytes."""
    with open("/proc/meminfo", encoding="ascii") as f:
        for line in f:
            if line.startswith(name + ":"):
                return int(line.split()[1]) * 1024
    raise Skip(f"/proc/meminfo has no {name}")


def make_room(length):
    """Have so much memory free, page cache not counted as such.

    MindSpore refuses to load more than that.  A process that takes memory and
    ends leaves it free, whatever the page cache was.
    """
    for _ in range(5):
        missing = length - memory("MemFree")
        if missing <= 0:
            return
        if memory("MemAvailable") < 2 * length:
            break
        # More than asked: others take some of it before we look.
        taken = length * 5 // 4 + 256 * MIB
        subprocess.run([sys.executable, "-c", f"b'1' * {taken}"], check=False)
    raise Skip(f"{length >> 20} MiB of memory cannot be had free")


def have_memory(length):
    """Have so much of the free memory in the machine, or half of what there may be.

    A virtual machine may give free pages back to its host (free page reporting), and their
    first touch is then ten times as slow: a process that touches them and ends leaves them
    to who asks next.
    """
    length = min(length, memory("MemAvailable") // 2)
    subprocess.run([sys.executable, "-c", TOUCH, str(length)], check=False)


class Watch:
    """The greatest value of a field of /proc/PID/status while it runs."""

    def __init__(self, pid, name):
        self.most = 0
        self._pid, self._name = pid, name
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self):
        while True:
            try:
                self.most = max(self.most, status_field(self._pid, self._name))
            except (Broken, OSError):  # it has ended
                return
            if self._end.wait(0.02):
                return

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()


def python_of(variable):
    """The Python that an environment variable names."""
    packages = {"RSH_ORACLE_PYTHON": "MindSpore", "RSH_HF_PYTHON": "torch",
                "RSH_DEEPSPEED_PYTHON": "deepspeed", "RSH_DELTA_PYTHON": "zstandard"}
    python = os.environ.get(variable)
    if not python:
        raise Skip(f"{variable} does not name a Python that has {packages[variable]}")
    return python


def script_path(name):
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), name)


class Server:
    """A script of this directory that another Python runs, asked by lines of JSON
    (bench_server.py)."""

    def __init__(self, variable, script, log_path, env):
        python = python_of(variable)
        with open(log_path, "ab") as log:
            self._process = subprocess.Popen(
                [python, "-B", script_path(script)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={"GLOG_v": "4", **os.environ, **env})
        self._log_path = log_path
        try:
            self.version = self._reply()["version"]
        except Broken as error:
            self.stop()
            raise Skip(f"{python} cannot run {script}: {error}") from None

    def _reply(self):
        line = self._process.stdout.readline()
        if not line:
            with open(self._log_path, encoding="utf-8", errors="replace") as f:
                raise Broken("another Python ended: " + f.read()[-300:])
        reply = json.loads(line)
        if "error" in reply:
            raise Broken(reply["error"])
        return reply

    def ask(self, verb, **arguments):
        json.dump({"verb": verb, **arguments}, self._process.stdin)
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return self._reply()

    def stop(self):
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()


def library_path():
    built = os.path.join(os.path.dirname(reshardfs_program()), ".libs", "libreshard.so.0")
    return os.environ.get("LIBRESHARD", built)


def other_python(variable, script, words):
    """What a script of this directory replies, run by the Python that `variable` names."""
    command = [python_of(variable), script_path(script), *map(str, words)]
    done = subprocess.run(command, check=False, text=True, errors="replace",
                          stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          env={**os.environ, "LIBRESHARD": library_path()})
    if done.returncode:
        raise Broken(f"{script} {words[0]}: {done.stderr[-600:]}")
    return json.loads(done.stdout)


def torch(*words):
    return other_python("RSH_HF_PYTHON", "bench_torch.py", words)


def require_mindformers():
    python_of("RSH_ORACLE_PYTHON")
    if not os.environ.get("RSH_MINDFORMERS"):
        raise Skip("RSH_MINDFORMERS does not name a directory of mindformers")


def mindformers(*words):
    return other_python("RSH_ORACLE_PYTHON", "bench_mindformers.py", words)


class Peer:
    """Another file system of the same kind, while a with statement lasts."""

    def __init__(self, name, *command):
        self.path = tempfile.mkdtemp(prefix=f"reshardfs-{name}-")
        self._command = [*command, self.path]
        self._process = None

    def __enter__(self):
        before = os.stat(self.path).st_dev
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        deadline = time.monotonic() + 20
        while os.stat(self.path).st_dev == before:
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise Broken("does not mount: " + " ".join(self._command))
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        undo = shutil.which("fusermount3") or "fusermount"
        subprocess.run([undo, "-u", "-z", self.path], check=False,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.rmdir(self.path)


class Bench:
    """Settings, trees and tools of one run; `close` leaves nothing behind."""

    def __init__(self, settings):
        self.settings = settings
        self.repeats = settings.repeats
        os.makedirs(settings.dir, exist_ok=True)
        self.work = tempfile.mkdtemp(prefix="reshardfs-bench-", dir=settings.dir)
        self._blocks = Blocks()
        self._trees = {}
        self._verified = set()
        self._shared = {}
        self.plots = {}
        self._servers = {}
        self.use_program(reshardfs_program(), settings.repeats)

    def close(self):
        for server in self._servers.values():
            server.stop()
        if not self.settings.keep:
            shutil.rmtree(self.work, ignore_errors=True)

    def use_program(self, program, repeats):
        """Rows measure this program from now on."""
        os.environ["RESHARDFS"] = program
        self.repeats = repeats
        # What rows shared was measured with the other one, but for trees.
        self._shared = {name: found for name, found in self._shared.items()
                        if name.startswith("made ")}
        self._help = subprocess.run([program, "mount", "--help-all"], check=True,
                                    stdout=subprocess.PIPE, text=True).stdout

    def offers(self, option):
        """True if the program under test knows `option`."""
        return option in self._help.replace(",", " ").split()

    def _server(self, variable, script, env=None):
        if (variable, script) not in self._servers:
            log = os.path.join(self.work, f"{variable}.{script}.log")
            self._servers[variable, script] = Server(variable, script, log, env or {})
        return self._servers[variable, script]

    @property
    def oracle(self):
        return self._server("RSH_ORACLE_PYTHON", "bench_mindspore.py")

    def oracle_version(self):
        server = self._servers.get(("RSH_ORACLE_PYTHON", "bench_mindspore.py"))
        return server and server.version

    def program(self, variable):
        """A program that loads tensors, run by the Python that `variable` names."""
        return self._server(variable, "bench_program.py", {
            "LIBRESHARD": library_path(),
            "XDG_CACHE_HOME": os.path.join(self.work, "cache")})

    # ---- trees ----

    def tree(self, name, kind=None, size=None, **how):
        """The tree of that name, made when it is first asked for."""
        if name not in self._trees:
            kind = kind or name
            self._trees[name] = TREES.get(kind, Tree)(
                os.path.join(self.work, name), kind, size or self.settings.size,
                self._blocks, **how)
        return self._trees[name]

    def drop_tree(self, name):
        tree = self._trees.pop(name, None)
        if tree and not self.settings.keep:
            shutil.rmtree(tree.directory)

    def keep_trees(self, names):
        for name in list(self._trees):
            if name not in names:
                self.drop_tree(name)

    # ---- mounts ----

    @contextlib.contextmanager
    def mounted(self, tree, *, ranks=WANTED_RANKS, extra=()):
        """A Mounted of `tree` for so many ranks: as many as the source has
        are the source's own strategy, one is none."""
        strategy = {1: None, WANTED_RANKS: tree.dst_strategy}.get(ranks,
                                                                  tree.own)
        with self.mounted_at(tree.source, tree.src_strategy, strategy,
                             [*tree.options, *extra],
                             described=tree.described) as mount:
            mount.bench_key = (tree.directory, ranks, tuple(extra))
            yield mount

    def mounted_at(self, source, src_strategy, dst_strategy, extra=(), *,
                   described=False, cache=None):
        """A Mounted that caches on disk for this run only."""
        cache = cache or os.path.join(self.work, "cache")
        return Mounted(source, src_strategy=src_strategy, dst_strategy=dst_strategy,
                       described=described, start_limit=300,
                       extra=[*extra, *self.settings.mount_options],
                       env={"XDG_CACHE_HOME": cache})

    def files(self, mount, tree, ranks=WANTED_RANKS):
        return [os.path.join(mount.path, f"rank_{r}/checkpoint_{r}.ckpt")
                for r in range(ranks)]

    def verify(self, mount, tree, ranks=WANTED_RANKS, only=None):
        """Every byte of a mount of these options is right: once a run."""
        names = [only] if only else sorted(tree.digests(ranks))
        for name in names:
            key = (*mount.bench_key, name)
            if key in self._verified:
                continue
            _, found = sha256_of(os.path.join(mount.path, name), 4 * MIB)
            if found != tree.digests(ranks)[name]:
                raise Broken(f"{name} of the mount has wrong bytes")
            self._verified.add(key)

    def verify_files(self, directory, tree, writer, once=None):
        """Every byte that was written is right: each time, or once a run."""
        if once and (writer, once) in self._verified:
            return
        for name, digest in tree.wanted.items():
            if sha256_of(os.path.join(directory, name), 4 * MIB)[1] != digest:
                raise Broken(f"{writer} wrote other bytes in {name}")
        if once:
            self._verified.add((writer, once))

    @staticmethod
    def bindfs(directory, threads=False):
        """bindfs over a directory, as it is or with several threads; for one
        reader it is faster as it is."""
        if not shutil.which("bindfs"):
            raise Skip("there is no bindfs (Debian package bindfs)")
        return Peer("bindfs", "bindfs", "-f", "-r", "--no-allow-other",
                    *(["--multithreaded"] if threads else []), directory)

    def nothing(self, *what):
        """A server that answers from memory, of a number of bytes, or copies
        files, or with -m has read these before; what it shows are called 0, 1 and so
        on (bench_null.c)."""
        program = os.path.join(os.path.dirname(self.settings.reader), "bench_null")
        return Peer("null", program, *map(str, what))

    # ---- reading ----

    def _reader(self, words):
        done = subprocess.run([self.settings.reader, *words], check=False, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if done.returncode:
            raise Broken(done.stderr.strip() or f"bench_read: {done.returncode}")
        return json.loads(done.stdout)

    def _words(self, readers, request):
        words = ["-j", str(readers), "-b", str(request)]
        return words + (["-p", self.settings.cpus] if self.settings.cpus else [])

    def read(self, files, readers=1, request=MIB, limit=None, mapped=False):
        words = self._words(readers, request) + mapped * ["-m"]
        if limit:
            words += ["-n", str(limit)]
        return Sample(**self._reader([*words, *files]))

    def read_random(self, files, readers, reads, seed, request=4096):
        words = [*self._words(readers, request), "-r", str(reads), "-s", str(seed)]
        return Sample(**self._reader([*words, *files]))

    def resident(self, files):
        """The share of the files that the page cache holds."""
        found = self._reader(["-c", *files])
        return found["resident"] / found["bytes"]

    @staticmethod
    def raise_readahead(path):
        """Have the kernel read as much ahead as it does on a mount of reshardfs."""
        device = os.stat(path).st_dev
        name = f"/sys/class/bdi/{os.major(device)}:{os.minor(device)}/read_ahead_kb"
        try:
            with open(name, "w", encoding="ascii") as f:
                f.write(str(MIB >> 10))
        except OSError as error:
            raise Skip(f"{name}: {error.strerror}") from None

    @staticmethod
    def forget(files):
        """Drop the files' cached pages.

        Files of a mount must come from its daemon at every repeat, whatever
        the kernel would have kept of them.
        """
        for path in files:
            fd = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)
        return files

    def make_cold(self, files):
        """Forget files on a disk; Skip if the system does not."""
        self.forget(files)
        left = self.resident(files)
        if left > 0.02:
            raise Skip(f"{left:.0%} of the files stay in the page cache")

    def once(self, name, measure):
        """What measure(self) returned or raised, for rows that share it."""
        if name not in self._shared:
            try:
                self._shared[name] = measure(self), None
            except Exception as error:  # raised again, to each of the rows
                self._shared[name] = None, error
        found, error = self._shared[name]
        if error:
            raise error
        return found

    def point(self, plot, label, x, y):
        self.plots.setdefault(plot, {}).setdefault(label, []).append([x, y])

    # ---- repeats ----

    def each_repeat(self, most=None, least=1):
        """Numbers of repeats, fewer when the row takes too long."""
        start = time.monotonic()
        for i in range(min(self.repeats, most or self.repeats)):
            if i >= least and time.monotonic() - start > self.settings.row_seconds:
                return
            yield i

    def compare(self, mount_side, peer_side, *, warm=(), value=None):
        """Alternate both sides; a value a repeat, of rates unless told.

        The sides are called once before, for nothing; files of `warm` must
        then be in the page cache.
        """
        value = value or (lambda mount, peer: mount.rate / peer.rate)
        result = Measured()
        peer_side()
        mount_side()
        held = self.resident(warm) if warm else 1
        if held < 0.99:
            result.note(f"only {held:.0%} of the source stayed in memory")
        for _ in self.each_repeat():
            peer, mount = peer_side(), mount_side()
            result.peer.append(peer)
            result.mount.append(mount)
            result.values.append(value(mount, peer))
        return result


def timed(call, *arguments):
    """(seconds, what the call returned)"""
    start = time.perf_counter()
    found = call(*arguments)
    return time.perf_counter() - start, found


__all__ = ["MIB", "Bench", "Broken", "Measured", "MountError", "Sample", "Skip",
           "Watch", "have_memory", "make_room", "rate_text", "status_field",
           "storage_bytes_of", "timed", "torch"]
