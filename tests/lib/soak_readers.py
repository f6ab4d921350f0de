# SPDX-License-Identifier: Apache-2.0
"""Readers of a mount that anything may happen to.

    crowd = Crowd(mount, expected, seeds)     {name: bytes}; a process each
    crowd.told()                              errors may be the event's from now on
    crowd.stop(limit)
    crowd.results()                           also of those that were killed

A reader goes on after an error, and ends when the mount is gone.  All bytes that
come have to be right, in whatever way they are read.
"""

import concurrent.futures
import errno
import mmap
import os
import random
import signal
import struct
import sys
import time
import traceback

# What a mount whose daemon is gone, or which was taken away, says.
LOST = (errno.ENOTCONN, errno.ECONNABORTED, errno.ENODEV, errno.ENOENT)
ERRNOS = (errno.EIO, errno.ESTALE, *LOST)
BUS = "SIGBUS"
OTHER = "other"
KINDS = tuple(errno.errorcode[n] for n in ERRNOS) + (OTHER,)
# Where an error came about: before the event of the round, or after it began.
PHASES = 2
BATCH = 24


class Wrong(Exception):
    """Bytes are not what they should be."""


class Board:
    """What a reader writes down in memory that outlives it."""

    _HEAD = struct.Struct("<QQQQ")  # stop, phase, reads, bytes
    _ERRORS = struct.Struct(f"<{PHASES * len(KINDS)}Q")
    _TEXT_AT = 1024
    _SIZE = 8192

    def __init__(self):
        self._memory = mmap.mmap(-1, self._SIZE)

    def close(self):
        self._memory.close()

    def _get(self, at):
        return struct.unpack_from("<Q", self._memory, 8 * at)[0]

    def _set(self, at, value):
        struct.pack_into("<Q", self._memory, 8 * at, value)

    stopping = property(lambda self: self._get(0), lambda self, v: self._set(0, v))
    phase = property(lambda self: self._get(1), lambda self, v: self._set(1, v))
    reads = property(lambda self: self._get(2))
    bytes = property(lambda self: self._get(3))

    def count(self, n):
        self._set(2, self.reads + 1)
        self._set(3, self.bytes + n)

    def count_error(self, number, phase):
        kind = errno.errorcode[number] if number in ERRNOS else OTHER
        at = 4 + phase * len(KINDS) + KINDS.index(kind)
        self._set(at, self._get(at) + 1)
        if kind == OTHER:
            self.say(f"error {number}: {os.strerror(number)}")

    def errors(self):
        """{(phase, kind): how many}"""
        counts = self._ERRORS.unpack_from(self._memory, self._HEAD.size)
        places = [(phase, kind) for phase in range(PHASES) for kind in KINDS]
        return {place: n for place, n in zip(places, counts) if n}

    def say(self, text):
        data = text.encode()[:self._SIZE - self._TEXT_AT - 1]
        self._memory[self._TEXT_AT:self._TEXT_AT + len(data)] = data

    def said(self):
        return self._memory[self._TEXT_AT:].rstrip(b"\0").decode("utf-8", "replace")


class Reader:
    """In a process of its own."""

    def __init__(self, root, expected, seed, board):
        self.root, self.expected, self.board = root, expected, board
        self.numbers = random.Random(seed)

    def run(self):
        while not self.board.stopping:
            way = self.numbers.choice(WAYS)
            phase = self.board.phase
            try:
                way(self)
            except OSError as error:
                # Which began before the event and came back after it.
                self.board.count_error(error.errno, max(phase, self.board.phase))
                if error.errno in LOST:
                    return
                time.sleep(0.002)

    def stopped(self):
        return self.board.stopping

    def check(self, name, offset, length, got):
        """Reads may come short where there was an error behind."""
        data = self.expected[name]
        right = data[offset:offset + len(got)]
        if got != right:
            at = next((i for i, (a, b) in enumerate(zip(got, right)) if a != b), len(right))
            raise Wrong(f"{name}: {length} bytes at {offset}: wrong from {offset + at} on")
        if not got and length and offset < len(data):
            raise Wrong(f"{name}: {length} bytes at {offset}: end of file")
        self.board.count(len(got))

    def pread(self, fd, name, length, offset):
        self.check(name, offset, length, os.pread(fd, length, offset))

    def pick(self):
        name = self.numbers.choice(sorted(self.expected))
        return name, os.path.join(self.root, name), len(self.expected[name])

    # ---- ways ----

    def at_random(self):
        name, path, size = self.pick()
        fd = os.open(path, os.O_RDONLY)
        try:
            for _ in range(BATCH):
                if self.stopped():
                    break
                self.pread(fd, name, int(2 ** self.numbers.uniform(0, 21)),
                           self.numbers.randrange(size + 4000))
        finally:
            os.close(fd)

    def from_front_to_back(self):
        name, path, size = self.pick()
        step = self.numbers.choice((1 << 20, 1 << 17, 70001))
        fd = os.open(path, os.O_RDONLY)
        try:
            for at in range(0, size, step):
                if self.stopped():
                    break
                self.pread(fd, name, step, at)
        finally:
            os.close(fd)

    def by_pages(self):
        name, path, size = self.pick()
        first = self.numbers.randrange(size)
        fd = os.open(path, os.O_RDONLY)
        try:
            if self.numbers.random() < 0.5:  # not from the page cache
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            for at in range(first, min(first + (1 << 18), size), 4096):
                if self.stopped():
                    break
                self.pread(fd, name, 4096, at)
        finally:
            os.close(fd)

    def mapped(self):
        name, path, size = self.pick()
        with open(path, "rb") as f, \
                mmap.mmap(f.fileno(), 0, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ) as m:
            for _ in range(BATCH):
                if self.stopped():
                    break
                at = self.numbers.randrange(size)
                length = self.numbers.randrange(1, 20000)
                self.check(name, at, length, m[at:at + length])

    def with_threads(self):
        name, path, size = self.pick()
        fd = os.open(path, os.O_RDONLY)
        places = [self.numbers.randrange(size) for _ in range(BATCH)]
        try:
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for done in [pool.submit(self.pread, fd, name, 100003, at) for at in places]:
                    done.result()
        finally:
            os.close(fd)

    def names_and_attributes(self):
        name, path, size = self.pick()
        if os.stat(path).st_size != size:
            raise Wrong(f"{name}: st_size is not {size}")
        found = sorted(os.path.relpath(os.path.join(folder, file), self.root)
                       for folder, _, files in os.walk(self.root, onerror=self.fail)
                       for file in files)
        # Where the mount has gone there may be something else, or nothing.
        if found != sorted(self.expected) and os.path.exists(path):
            raise Wrong(f"names: {found}")
        os.getxattr(path, "user.reshardfs.record_count")
        self.board.count(0)

    @staticmethod
    def fail(error):
        raise error


WAYS = (Reader.at_random, Reader.at_random, Reader.from_front_to_back,
        Reader.from_front_to_back, Reader.by_pages, Reader.mapped, Reader.with_threads,
        Reader.names_and_attributes)


def _live(root, expected, seed, board):
    """The whole of a child."""
    status = 0
    try:
        Reader(root, expected, seed, board).run()
    except Wrong as wrong:
        board.say(str(wrong))
        status = 1
    except BaseException:  # nothing of the parent's may run here
        board.say(traceback.format_exc())
        status = 1
    finally:
        os._exit(status)


class Crowd:
    """Readers, one for each seed."""

    def __init__(self, root, expected, seeds):
        self._boards = {}
        self._ended = {}  # pid: wait status
        self._killed = set()
        sys.stdout.flush()
        sys.stderr.flush()
        for seed in seeds:
            board = Board()
            pid = os.fork()
            if pid == 0:
                _live(root, expected, seed, board)
            self._boards[pid] = board

    def _reap(self):
        for pid in self.left():
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._ended[pid] = status

    def left(self):
        return [pid for pid in self._boards if pid not in self._ended]

    def await_reads(self, n, limit):
        """Until so many were done, or nobody is left to do them."""
        end = time.monotonic() + limit
        while sum(board.reads for board in self._boards.values()) < n and \
                time.monotonic() < end:
            self._reap()
            if not self.left():
                break
            time.sleep(0.005)

    def told(self):
        """The event begins: what fails from now on may be its doing."""
        self._reap()
        for pid in self.left():
            self._boards[pid].phase = 1

    def kill(self, numbers):
        """Half of them, in the middle of what they do; their number."""
        self._reap()
        for pid in self.left():
            if numbers.random() < 0.5:
                self._killed.add(pid)
                os.kill(pid, signal.SIGKILL)
        return len(self._killed)

    def stop(self, limit):
        """False if one does not come back."""
        for board in self._boards.values():
            board.stopping = 1
        end = time.monotonic() + limit
        self._reap()
        while self.left() and time.monotonic() < end:
            time.sleep(0.005)
            self._reap()
        return not self.left()

    def abandon(self):
        """For the end of a test that has failed."""
        for pid in self.left():
            os.kill(pid, signal.SIGKILL)

    def results(self):
        """(reads, bytes, {(phase, kind): n}, what was wrong)"""
        reads, n_bytes, errors, wrong = 0, 0, {}, []
        for pid, board in self._boards.items():
            reads += board.reads
            n_bytes += board.bytes
            found = board.errors()
            status = self._ended.get(pid, 0)
            if board.said():
                wrong.append(board.said())
            elif os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGBUS:
                found[board.phase, BUS] = 1
            elif status and pid not in self._killed:
                wrong.append(f"a reader ended with {status:#x}")
            for place, n in found.items():
                errors[place] = errors.get(place, 0) + n
        return reads, n_bytes, errors, wrong

    def close(self):
        for board in self._boards.values():
            board.close()
