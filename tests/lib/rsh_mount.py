# SPDX-License-Identifier: Apache-2.0
"""Mounting, reading and reporting for the Python tests.

    from rsh_mount import Mounted, Tap, hash_tree

    with Mounted(source, src_strategy="src.ckpt", dst_strategy=None) as m:
        files = hash_tree(m.path)

A `Mounted` runs the program named by $RESHARDFS in the foreground with a log
of its own, waits until the mount answers, and on exit demands a clean end:
`fusermount3 -u` succeeds, the daemon exits 0 within a limit and its log holds
no word of a sanitizer, a leak or an assertion.  Everything here needs the
standard library only.
"""

import contextlib
import hashlib
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Sanitizers and valgrind slow everything down; one knob stretches all limits.
TIMEOUT_SCALE = float(os.environ.get("RSH_TIMEOUT_SCALE", "1"))

# Shells start background jobs with SIGINT ignored, nohup(1) ignores SIGHUP, and the
# program keeps to what it inherits: here it inherits what it has on a terminal.
for _number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_number) == signal.SIG_IGN:
        signal.signal(_number, signal.SIG_DFL)

SUSPICIOUS = re.compile(
    r"(Address|Leak|Memory|Thread|UndefinedBehavior)Sanitizer"
    r"|runtime error:"
    r"|\bleak(s|ed)?\b"
    r"|\bassert(ion)?\b"
    r"|double free|corrupted size|stack smashing"
    r"|segmentation fault|core dumped|aborted",
    re.IGNORECASE)


class MountError(AssertionError):
    """The program did not mount, serve or end as the contract says."""


class Skipped(Exception):
    """A test lacks what it says on this machine."""


def reshardfs_program():
    program = os.environ.get("RESHARDFS")
    if not program:
        raise MountError("RESHARDFS does not name the reshardfs program")
    # Tests change directory; a name found through PATH stays as it is.
    return os.path.abspath(program) if os.sep in program else program


def is_sanitized():
    with open(reshardfs_program(), "rb") as f:
        program = f.read()
    return b"__asan_init" in program or b"__tsan_init" in program


def _seconds(limit):
    return limit * TIMEOUT_SCALE


def is_mount_point(path):
    """Also true of a mount whose daemon is gone: lstat fails with ENOTCONN."""
    path = os.path.realpath(path)
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape",
              newline="\n") as f:
        for line in f:
            where = line.split(" ")[1]
            where = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), where)
            if where == path:
                return True
    return False


def _unmount(path, lazy=False):
    command = ["fusermount3", "-u"] + (["-z"] if lazy else []) + [path]
    done = subprocess.run(command, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", check=False)
    return done.returncode == 0, done.stdout.strip()


def _environment(private):
    """Nothing is left in the user's own cache, nor found there."""
    return {**os.environ, "XDG_CACHE_HOME": os.path.join(private, "cache")}


def mount_command(source, mountpoint, *, src_strategy=None, dst_strategy=None,
                  prefix=None, compat=False, resume=False, described=False, extra=(),
                  foreground=True):
    """The command line of a mount; None as a strategy means `none`, and that there is
    none with `resume`, or of a source that is `described` by itself."""
    command = [reshardfs_program(), "mount"]
    if foreground:
        command.append("-f")
    if resume:
        command.append("--resume")
    if src_strategy or not (resume or described):
        command += ["--src-strategy", os.fspath(src_strategy or "none")]
    if dst_strategy or not resume:
        command += ["--dst-strategy", os.fspath(dst_strategy or "none")]
    if prefix is not None:
        command += ["--prefix", prefix]
    if compat:
        command += ["--compat", "mindspore"]
    command += [os.fspath(word) for word in extra]
    return command + [os.fspath(source), os.fspath(mountpoint)]


class Mounted:
    """A mount that lives as long as the `with` block.

    path        the mount point
    log()       what the daemon has said so far, or had said when it ended
    process     the daemon (subprocess.Popen)
    command     its command line, for messages
    """

    def __init__(self, source, *, src_strategy=None, dst_strategy=None,
                 prefix=None, compat=False, resume=False, described=False, extra=(),
                 mountpoint=None, env=None, start_limit=60, stop_limit=30):
        self._private = tempfile.mkdtemp(prefix="reshardfs-mount-")
        self.path = os.fspath(mountpoint) if mountpoint else \
            os.path.join(self._private, "mnt")
        self._log_path = os.path.join(self._private, "log")
        self._last_words = ""
        self.command = mount_command(source, self.path, src_strategy=src_strategy,
                                     dst_strategy=dst_strategy, prefix=prefix,
                                     compat=compat, resume=resume,
                                     described=described, extra=extra)
        self._env = {**_environment(self._private), **(env or {})}
        self._start_limit = start_limit
        self._stop_limit = stop_limit
        self.process = None

    def log(self):
        try:
            with open(self._log_path, encoding="utf-8", errors="replace") as f:
                return f.read()
        except FileNotFoundError:
            return self._last_words

    def _trouble(self, what):
        return MountError(f"{what}\ncommand: {' '.join(self.command)}\n"
                          f"log:\n{self.log()}")

    def start(self):
        os.makedirs(self.path, exist_ok=True)
        device_before = os.stat(self.path).st_dev
        with open(self._log_path, "wb") as log:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self._env)
        deadline = time.monotonic() + _seconds(self._start_limit)
        pause = 0.001
        while not self._answers(device_before):
            if self.process.poll() is not None:
                raise self._trouble("the daemon ended before it served, "
                                    f"exit status {self.process.returncode}")
            if time.monotonic() > deadline:
                raise self._trouble("the mount does not answer")
            time.sleep(pause)
            pause = min(pause * 1.5, 0.05)
        return self

    def _answers(self, device_before):
        # stat of a mount that is being set up may fail or block briefly; a
        # changed device says that the root node was served by the daemon.
        try:
            return os.stat(self.path).st_dev != device_before
        except OSError:
            return False

    def stop(self):
        """Unmount and demand a clean end; stop_limit is that of each of the two."""
        if self.process is None:
            return
        deadline = time.monotonic() + _seconds(self._stop_limit)
        while True:
            done, said = _unmount(self.path)
            if done or not is_mount_point(self.path):
                break
            if time.monotonic() > deadline:
                _unmount(self.path, lazy=True)
                raise self._trouble(f"fusermount3 -u failed: {said}")
            time.sleep(0.02)
        try:
            status = self.process.wait(_seconds(self._stop_limit))
        except subprocess.TimeoutExpired:
            raise self._trouble("the daemon still runs after the unmount") from None
        if status != 0:
            raise self._trouble(f"the daemon ended with exit status {status}")
        found = SUSPICIOUS.search(self.log())
        if found:
            raise self._trouble(f"suspicious word in the log: {found[0]!r}")

    def _clean_up(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        if is_mount_point(self.path):
            _unmount(self.path, lazy=True)
        self._last_words = self.log()
        shutil.rmtree(self._private, ignore_errors=True)

    def demand_tree(self, expected, odd_blocks=False):
        """It has these files, as hash_tree() tells them, and no other."""
        different = tree_difference(expected, hash_tree(self.path, odd_blocks))
        if different:
            raise MountError("\n".join(different) + "\n" + self.log())

    def rank_file(self, rank):
        """The path of what a rank loads."""
        return os.path.join(self.path, f"rank_{rank}", f"checkpoint_{rank}.ckpt")

    def stats(self):
        """What .reshardfs/stats says."""
        with open(os.path.join(self.path, ".reshardfs", "stats"), "rb") as f:
            return json.loads(f.read())

    def kill(self):
        """End the daemon without a word to it, and take the mount away.  The
        `with` block then has nothing left to demand."""
        self.process.kill()
        self.process.wait()
        _unmount(self.path, lazy=True)
        self.process = None

    def __enter__(self):
        try:
            return self.start()
        except BaseException:
            self._clean_up()
            raise

    def __exit__(self, kind, error, trace):
        try:
            try:
                self.stop()
            except MountError as trouble:
                if kind is None:
                    raise
                # The first failure is the one to report, but the daemon's
                # end often explains it.
                sys.stderr.write(f"while ending the mount: {trouble}\n")
            else:
                if kind is not None and issubclass(kind, (OSError, AssertionError)):
                    sys.stderr.write(f"log of the failed mount:\n{self.log()}\n")
        finally:
            self._clean_up()


class Alone(Mounted):
    """A mount without a word of strategies."""

    def __init__(self, source, extra=()):
        super().__init__(source, described=True, extra=extra)
        at = self.command.index("--dst-strategy")
        del self.command[at:at + 2]


def expect_failure(source, *, src_strategy=None, dst_strategy=None, prefix=None,
                   compat=False, resume=False, described=False, extra=(),
                   mountpoint=None, foreground=False, limit=60):
    """Run a mount that must fail; return (exit status, standard error).

    Raises MountError if the command succeeds, hangs, dies of a signal, says
    nothing or leaves anything mounted.
    """
    private = tempfile.mkdtemp(prefix="reshardfs-mount-")
    try:
        where = os.fspath(mountpoint) if mountpoint else os.path.join(private, "mnt")
        os.makedirs(where, exist_ok=True)
        command = mount_command(source, where, src_strategy=src_strategy,
                                dst_strategy=dst_strategy, prefix=prefix,
                                compat=compat, resume=resume,
                                described=described, extra=extra,
                                foreground=foreground)
        # Files and not pipes: a daemon left behind would keep a pipe open.
        with open(os.path.join(private, "stdout"), "wb") as out, \
                open(os.path.join(private, "stderr"), "w+b") as err:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                       stdout=out, stderr=err,
                                       env=_environment(private))
            try:
                status = process.wait(_seconds(limit))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                status = None
            err.seek(0)
            said = err.read().decode("utf-8", "replace")
        mounted = is_mount_point(where)
        if mounted:
            _unmount(where, lazy=True)
        shown = f"\ncommand: {' '.join(command)}\nstderr:\n{said}"
        if status is None:
            raise MountError("the command neither failed nor returned" + shown)
        if mounted:
            raise MountError(f"exit status {status} and the mount is there" + shown)
        if status == 0:
            raise MountError("the command succeeded" + shown)
        if status < 0:
            raise MountError(f"the command died of signal {-status}" + shown)
        if not said.strip():
            raise MountError(f"exit status {status} without a reason" + shown)
        found = SUSPICIOUS.search(said)
        if found:
            raise MountError(f"suspicious word: {found[0]!r}" + shown)
        return status, said
    finally:
        shutil.rmtree(private, ignore_errors=True)


# Sizes that are no multiple of a page, of an element or of each other, beside
# the ones that everyday programs use.
ODD_BLOCKS = (None, 131072, 4093, 65537, 1 << 20, 37, 8191, 1000003)


def sha256_of(path, block=None):
    """(number of bytes, sha256 in hex) of a file read in full.

    block is the length of each read; None reads as Python's open().read()
    does.  Raises MountError when st_size and the bytes read disagree.
    """
    digest = hashlib.sha256()
    got = 0
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        said = os.fstat(fd).st_size
        if block is None:
            with open(fd, "rb", closefd=False) as f:
                data = f.read()
            digest.update(data)
            got = len(data)
        else:
            # A tiny block on a big file would test patience and nothing else.
            block = max(block, said // 4096)
            while True:
                data = os.read(fd, block)
                if not data:
                    break
                digest.update(data)
                got += len(data)
    finally:
        os.close(fd)
    if got != said:
        raise MountError(f"{path}: st_size is {said} but {got} bytes came")
    return got, digest.hexdigest()


def hash_tree(root, odd_blocks=False):
    """{relative path: (size, sha256)} of every file under root.

    With odd_blocks the files are read with the sizes of ODD_BLOCKS in turn.
    """
    blocks = itertools.cycle(ODD_BLOCKS if odd_blocks else (None,))
    result = {}

    def fail(error):
        raise error

    for folder, folders, names in os.walk(root, onerror=fail):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            result[os.path.relpath(path, root)] = sha256_of(path, next(blocks))
    return result


def tree_difference(expected, found):
    """One line per difference between two hash_tree results, [] when equal."""
    lines = []
    for name in sorted(set(expected) | set(found)):
        if name not in found:
            lines.append(f"missing: {name}")
        elif name not in expected:
            lines.append(f"unexpected: {name}")
        elif expected[name] != found[name]:
            lines.append(f"differs: {name}: expected {expected[name][0]} bytes "
                         f"{expected[name][1][:16]}, found {found[name][0]} bytes "
                         f"{found[name][1][:16]}")
    return lines


class Tap:
    """Test Anything Protocol on standard output.

    Give the plan first when it is known; without one it is printed at the end.
    `finish` returns the exit status.
    """

    def __init__(self, plan=None):
        self.count = 0
        self.failed = 0
        self._planned = plan
        if plan is not None:
            self._say(f"1..{plan}")

    @staticmethod
    def _say(line):
        print(line, flush=True)

    @staticmethod
    def _escape(text):
        return str(text).replace("\\", "\\\\").replace("#", "\\#").replace("\n", " ")

    def ok(self, passed, name, why=None):
        self.count += 1
        self.failed += not passed
        self._say(f"{'ok' if passed else 'not ok'} {self.count} - {self._escape(name)}")
        if not passed and why:
            self.diag(why)
        return bool(passed)

    def equal(self, found, expected, name):
        return self.ok(found == expected, name,
                       f"expected: {expected!r}\n   found: {found!r}")

    def skip(self, name, why):
        self.count += 1
        self._say(f"ok {self.count} - {self._escape(name)} # SKIP {self._escape(why)}")

    def diag(self, text):
        for line in str(text).splitlines() or [""]:
            self._say(f"# {line}")

    @contextlib.contextmanager
    def test(self, name):
        """The block is one test: it passes unless it raises."""
        try:
            yield
        except Skipped as why:
            self.skip(name, why)
        except Exception as error:  # every failure becomes one TAP line
            self.ok(False, name, f"{type(error).__name__}: {error}")
        else:
            self.ok(True, name)

    def finish(self):
        if self._planned is None:
            self._say(f"1..{self.count}")
        elif self._planned != self.count:
            self.diag(f"planned {self._planned} tests, ran {self.count}")
            return 1
        return 1 if self.failed else 0


def spoken(function):
    """The name of a function as words."""
    return function.__name__.replace("_", " ")


class Tests(list):
    """The tests of a program: the functions with @test before them, in their order.

        test = Tests("plan")

        @test
        def slices_are_counted(directory): ...

        if __name__ == "__main__":
            sys.exit(test.run())

    Each gets what `given` makes of an empty directory: the directory itself, if it is not
    told.  Words of the command line choose the tests that have one in their names.
    """

    def __init__(self, what, functions=()):
        super().__init__(functions)
        self.prefix = f"reshardfs-{what}-"

    def __call__(self, function):
        self.append(function)
        return function

    def each(self, tap, given=None, name=spoken):
        for function in self:
            with tap.test(name(function)), \
                    tempfile.TemporaryDirectory(prefix=self.prefix) as directory:
                function(given(directory) if given else directory)

    def run(self, given=None, name=spoken):
        """Returns the exit status."""
        words = sys.argv[1:]
        self[:] = [f for f in self if not words or any(w in f.__name__ for w in words)]
        tap = Tap(len(self))
        self.each(tap, given, name)
        return tap.finish()


def skip_all(why):
    """End the program with the TAP plan that says that all of it is skipped.

    The exit status is 0: automake's TAP driver reads the skip from the plan
    and takes any other status, 77 included, for an error.
    """
    print(f"1..0 # SKIP {why}", flush=True)
    sys.exit(0)


def require_named(variable, what):
    """What the variable names; without it the whole program is skipped."""
    if not os.environ.get(variable):
        skip_all(f"{variable} does not name {what}")
    return os.environ[variable]


def require_mount():
    """Skip the whole program where FUSE cannot work; fail where it should."""
    reshardfs_program()
    if not os.path.exists("/dev/fuse"):
        skip_all("there is no /dev/fuse")
    if shutil.which("fusermount3") is None:
        skip_all("there is no fusermount3")


def require_oracle():
    """Run under the Python that has MindSpore, $RSH_ORACLE_PYTHON.

    Call first thing in a program whose oracle is MindSpore: it re-executes
    itself there, or skips when no oracle is given.
    """
    oracle = require_named("RSH_ORACLE_PYTHON", "a Python that has MindSpore")
    # Compare unresolved names: the interpreter of a virtual environment is
    # a link to the system's.
    if os.path.abspath(oracle) != os.path.abspath(sys.executable):
        if os.environ.get("RSH_ORACLE_ENTERED") == oracle:
            raise SystemExit(f"{oracle} starts {sys.executable}: give its own name")
        os.environ["RSH_ORACLE_ENTERED"] = oracle
        os.execv(oracle, [oracle] + sys.argv)
