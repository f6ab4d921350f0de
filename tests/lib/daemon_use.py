# SPDX-License-Identifier: Apache-2.0
"""What a running daemon takes of the machine, from /proc."""

import contextlib
import os
import threading
import time


def field(pid, name):
    """A number of /proc/PID/status: kB of RssAnon, the number of Threads."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        for line in f:
            if line.startswith(name + ":"):
                return int(line.split()[1])
    raise KeyError(name)


def n_descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def processor_seconds(pid):
    """That all threads of a process have used."""
    return time.clock_gettime(~pid << 3 | 2)  # as clock_getcpuclockid(3) makes it


def bytes_read(pid):
    """From block devices, so far."""
    with open(f"/proc/{pid}/io", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("read_bytes:"))


def is_sanitized(pid):
    """Whose memory says nothing then."""
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as f:
        text = f.read()
    return any(f"lib{name}.so" in text for name in ("asan", "tsan", "lsan", "msan"))


def daemons_of(path):
    """The processes that have it, or something below it, on their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
        except OSError:
            continue  # gone, or not ours
        if any(word == os.fsencode(path) or word.startswith(os.fsencode(path) + b"/")
               for word in words):
            found.append(pid)
    return found


def mounts_below(directory):
    with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape",
              newline="\n") as f:
        return [line for line in f if directory in line]


class Peak:
    """The most that RssAnon was while the block ran, in MiB."""

    def __init__(self, pid):
        self.mib = 0
        self._pid = pid
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def _watch(self):
        with contextlib.suppress(OSError):
            while not self._stop.is_set():
                self.mib = max(self.mib, field(self._pid, "RssAnon") / 1024)
                time.sleep(0.01)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()
