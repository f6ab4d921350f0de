#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Readers are killed while they wait for the source, whatever it does: they die
at once, and nothing of them stays behind.

    killed.py [SEED]

repeats the random part.
"""

import ctypes
import mmap
import os
import pty
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from daemon_use import field, is_sanitized  # noqa: E402
from demands import check, content, within  # noqa: E402
from rsh_mount import TIMEOUT_SCALE, Mounted, Tap, require_mount  # noqa: E402
from run_seed import run_seed  # noqa: E402
from small_job import Job  # noqa: E402

SHAPES = {"up.weight": (2048, 1400), "down.weight": (1000, 2048), "norm.gamma": (700,)}
STEP = (1, 10)
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.opendir.restype = ctypes.c_void_p
HANGS = "delay=40s"
SOON = 8 * TIMEOUT_SCALE  # of these 40
READ = "import sys; open(sys.argv[1], 'rb').read()"
# A thread that does not come back from its source is left behind.
ENV = {"TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS", "") + " report_thread_leaks=0"}
# So often that a reader is not through before its time has come.
OFTEN = 4000
ASK = "import os, sys; os.getxattr(sys.argv[1], 'user.reshardfs.sources')"


def mounted(job, fault, *words):
    return Mounted(job.source, src_strategy=job.strategy, dst_strategy=job.strategy,
                   extra=["--fault", fault, *words], env=ENV)


def waits(pid):
    """Whether it sleeps; when it has begun to read or to open is for a pause."""
    return content(f"/proc/{pid}/stat").decode().rpartition(")")[2].split()[0] in "SD"


def started(program, *files):
    readers = [subprocess.Popen([*program, file], stdout=subprocess.DEVNULL) for file in files]
    time.sleep(0.5)
    for reader in readers:
        within(8, lambda pid=reader.pid: waits(pid), "it does not wait")
    check(all(reader.poll() is None for reader in readers), "they were to wait")
    return readers


def die(readers, number):
    """Within the time; the longest of them."""
    began = time.monotonic()
    for reader in readers:
        reader.send_signal(number)
    for reader in readers:
        check(reader.wait(SOON) == -number, f"killed by {number}: {reader.returncode}")
    return time.monotonic() - began


def others_are_answered(mount):
    check(len(os.listdir(f"{mount.path}/rank_1")) == 1, "ls")
    os.stat(mount.rank_file(2))


def one_reader_dies(job):
    for words in ((), ("--io-mode=cached",), ("--cache=off", "-omax_threads=1"),
                  ("-omax_idle_threads=1",)):
        with mounted(job, HANGS, *words) as mount:
            for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGINT):
                die(started(["cat"], mount.rank_file(0)), number)
                others_are_answered(mount)


def death_is_not_put_off(job):
    """Not even by the time after which an interrupted request is looked at again."""
    with mounted(job, HANGS) as mount:
        for number in (signal.SIGTERM, signal.SIGINT):
            # Put off it would take longer each time; on a busy machine it may.
            tries = (die(started(["cat"], mount.rank_file(0)), number) for _ in range(100))
            check(any(took < 0.1 for took in tries), f"{number}: no death in 0.1 s")


def ctrl_c_ends_it(job):
    """On a terminal of its own, by the key."""
    with mounted(job, HANGS) as mount:
        pid, terminal = pty.fork()
        if pid == 0:
            os.execvp("cat", ["cat", mount.rank_file(0)])
        time.sleep(0.5)
        within(8, lambda: waits(pid), "it does not wait")
        os.write(terminal, b"\x03")
        within(8, lambda: os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT),
               "it does not end")
        os.close(terminal)
        _, status = os.waitpid(pid, 0)
        check(os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGINT, str(status))


def a_hundred_die(job):
    """More than there are threads; those that have none yet as well."""
    with mounted(job, HANGS, "--io-mode=direct") as mount:
        files = [mount.rank_file(i % 8) for i in range(100)]
        die(started(["cat"], *files), signal.SIGTERM)
        others_are_answered(mount)


def the_source_comes_back(job):
    """What was read for those who are gone is right for others, and there are
    threads for them."""
    with mounted(job, "delay=3s,p=0.5", "--io-mode=direct", "-omax_threads=4") as mount:
        for _ in range(3):
            readers = [subprocess.Popen(["cat", mount.rank_file(i)], stdout=subprocess.DEVNULL)
                       for i in range(8)]
            time.sleep(0.3)
            for reader in readers:
                reader.kill()
            for reader in readers:
                reader.wait(SOON)
        check(content(mount.rank_file(0)) == job.file_bytes(0, *STEP), "wrong bytes")


# ---- signals that kill nobody ----

def reads_with_signals(path, seconds):
    """How many reads succeeded, by a process that catches a signal every few ms, without
    SA_RESTART: none may fail."""
    buffer = ctypes.create_string_buffer(65536)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, True)
    reads = 0
    fd = os.open(path, os.O_RDONLY)
    signal.setitimer(signal.ITIMER_REAL, 0.007, 0.007)
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            n = LIBC.pread(fd, buffer, 65536, ctypes.c_long(reads % 50 * 65536))
            check(n == 65536, os.strerror(ctypes.get_errno()) if n < 0 else f"{n} bytes")
            reads += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        os.close(fd)
    return reads


BARE = ("--cache=off", "--io-mode=direct")


def who_handles_signals_is_not_disturbed(job):
    """However long the source takes."""
    for delay, least in (("20ms", 5), ("400ms", 2), ("1500ms", 1)):
        with mounted(job, f"delay={delay}", *BARE) as mount:
            reads = reads_with_signals(mount.rank_file(0), 1)
            check(reads >= least, f"{delay}: {reads}")


def who_is_not_seen_is_not_disturbed(job):
    """The daemon is in a PID namespace of its own, so it does not know who reads."""
    point = tempfile.mkdtemp(prefix="reshardfs-")
    daemon = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", os.environ["RESHARDFS"], "mount", "-f",
         "--index-cache=off", "--src-strategy", job.strategy, "--dst-strategy", job.strategy,
         "--fault", "delay=1500ms", *BARE, job.source, point], env={**os.environ, **ENV})
    try:
        within(8, lambda: os.path.ismount(point) or daemon.poll() is not None, "no mount")
        check(daemon.poll() is None, "it does not mount")
        # Longer than what was once the delay of an unknown reader.
        check(reads_with_signals(f"{point}/rank_0/checkpoint_0.ckpt", 4) > 1, "reads")
    finally:
        subprocess.run(["umount", "-l", point], check=False)
        daemon.kill()
        daemon.wait()
        os.rmdir(point)


# Unlike cat and Python it does not repeat a read that fails with EINTR.
ONCE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open(sys.argv[1], os.O_RDONLY)
buffer = ctypes.create_string_buffer(1 << 20)
out = open(1, "wb", closefd=False)
while (n := libc.read(fd, buffer, 1 << 20)) > 0:
    out.write(buffer.raw[:n])
sys.exit(os.strerror(ctypes.get_errno()) if n < 0 else 0)
"""


def reader_once(mount):
    return subprocess.Popen([sys.executable, "-c", ONCE, mount.rank_file(0)],
                            stdout=subprocess.PIPE)


def with_signals(reader, numbers, times=8):
    """Until it has ended."""
    for _ in range(times):
        for number in numbers:
            if reader.poll() is not None:
                return
            reader.send_signal(number)
            time.sleep(0.2)


def what_is_stopped_goes_on(job):
    """As by Ctrl-Z and fg, and a process that a debugger reads along with."""
    right = job.file_bytes(0, *STEP)
    with mounted(job, "delay=300ms", *BARE) as mount:
        for numbers in ((signal.SIGSTOP, signal.SIGCONT), (signal.SIGTSTP, signal.SIGCONT),
                        (signal.SIGWINCH, signal.SIGURG), (signal.SIGCHLD,)):
            reader = reader_once(mount)
            out = threading.Thread(target=with_signals, args=(reader, numbers))
            out.start()
            got = reader.stdout.read()
            out.join()
            check(reader.wait(SOON) == 0 and got == right, f"{numbers}: {reader.returncode}")


def what_is_traced_goes_on(job):
    """A signal that would end the process may be withheld by its debugger."""
    right = job.file_bytes(0, *STEP)
    with mounted(job, "delay=700ms", *BARE) as mount:
        reader = reader_once(mount)
        begin = reader.stdout.read(1 << 20)
        time.sleep(0.1)
        seize, detach = 0x4206, 17
        check(LIBC.ptrace(seize, reader.pid, None, None) == 0, "ptrace")
        reader.send_signal(signal.SIGTERM)
        collected = []
        out = threading.Thread(target=lambda: collected.append(reader.stdout.read()))
        out.start()
        _, status = os.waitpid(reader.pid, 0x40000000)  # __WALL
        check(os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGTERM, str(status))
        check(LIBC.ptrace(detach, reader.pid, None, None) == 0, "detach")
        out.join()
        check(reader.wait(SOON) == 0, str(reader.returncode))
        check(begin + collected[0] == right, f"{len(collected[0])} bytes")


def opened(path):
    fd = LIBC.open(path, os.O_RDONLY)
    return fd >= 0 and os.close(fd) is None


def listed(path):
    stream = LIBC.opendir(os.path.dirname(path))
    return bool(stream) and LIBC.closedir(ctypes.c_void_p(stream)) == 0


def names_are_found_despite_signals(_):
    """lookup, open and opendir in a mount of several steps, which wait for the threads that
    read."""
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as root:
        job = Job(root, shapes=SHAPES)
        job.save(1, 5)
        job.save(*STEP)
        for call in (opened, listed, lambda path: LIBC.access(path, os.R_OK) == 0):
            with mounted(job, "delay=400ms", "--steps=all", "-omax_threads=1", *BARE) as mount:
                path = f"{mount.path}/1_5/rank_0/checkpoint_0.ckpt".encode()
                # On a busy machine a reader may begin too late to be in the way.
                for _ in range(10):
                    reader = started(["cat"], f"{mount.path}/1_10/rank_1/checkpoint_1.ckpt")
                    with Alarms(0.02) as alarms:
                        signal.siginterrupt(signal.SIGALRM, True)
                        check(call(path), os.strerror(ctypes.get_errno()))
                    die(reader, signal.SIGKILL)
                    # Python calls the handler once for all signals of one call.
                    if alarms.seen:
                        break
                check(alarms.seen, "that was too fast to show anything")


class Alarms:
    """A signal with a handler, again and again."""

    def __init__(self, seconds):
        self.seconds, self.seen = seconds, 0

    def count(self, *_):
        self.seen += 1

    def __enter__(self):
        signal.signal(signal.SIGALRM, self.count)
        signal.setitimer(signal.ITIMER_REAL, self.seconds, self.seconds)
        return self

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)


def what_takes_longer_than_signals_gets_there(job):
    """Reads that are interrupted and begun anew, as Python does it."""
    right = job.file_bytes(0, *STEP)
    with mounted(job, "delay=1s", "--cache=off", "--io-mode=direct") as mount:
        fd = os.open(mount.rank_file(0), os.O_RDONLY)
        with Alarms(0.2) as alarms:
            for at in (3 << 20, 1 << 20, 2 << 20, 77):
                check(os.pread(fd, 5000, at) == right[at:at + 5000], f"at {at}")
        os.close(fd)
        check(alarms.seen >= 4, "that was too fast to show anything")


def mapping(path):
    """Of which each page is fetched when it is needed."""
    fd = os.open(path, os.O_RDONLY)
    pages = mmap.mmap(fd, 0, prot=mmap.PROT_READ)
    os.close(fd)
    pages.madvise(mmap.MADV_RANDOM)
    return pages


def who_maps_is_not_disturbed(job):
    """By signals that have handlers, be it the process that needs a page or the
    kernel for it."""
    right = job.file_bytes(0, *STEP)
    for words in (("--io-mode=direct",), ("--io-mode=cached",)):
        with mounted(job, "delay=1s", "--cache=off", *words) as mount:
            pages, (out, into) = mapping(mount.rank_file(0)), os.pipe()
            with Alarms(0.2) as alarms, memoryview(pages) as view:
                for at in (3 << 20, 1 << 20):
                    check(view[at:at + 100] == right[at:at + 100], f"at {at}")
                for at in (2 << 20, 2500 << 10):
                    check(os.write(into, view[at:at + 100]) == 100, "write")
                    check(os.read(out, 100) == right[at:at + 100], f"at {at}")
            check(alarms.seen > 2, "that was too fast to show anything")
            pages.close()
            os.close(out), os.close(into)


MAP = """
import mmap, signal, sys
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
with open(sys.argv[1], "rb") as f:
    pages = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
pages.madvise(mmap.MADV_RANDOM)
pages[1 << 20]
"""


def who_maps_dies(job):
    """Also when signals with handlers have come before."""
    with mounted(job, HANGS) as mount:
        for number in (signal.SIGTERM, signal.SIGKILL, signal.SIGQUIT):
            took = die(started([sys.executable, "-c", MAP], mount.rank_file(0)), number)
            check(took < 2 * TIMEOUT_SCALE, f"{took:.1f} s")
            others_are_answered(mount)


# ---- many, at random ----

def read_or_ask(numbers, mount):
    """(process, when it is to die, whether it may end by itself before that)"""
    asks = numbers.random() >= 0.9
    file = mount.rank_file(numbers.randrange(8))
    program = [sys.executable, "-c", ASK, file] if asks else ["cat", *[file] * OFTEN]
    return (subprocess.Popen(program, stdout=subprocess.DEVNULL),
            time.monotonic() + numbers.random() / 6, asks)


def kill_next(running, numbers):
    running.sort(key=lambda one: one[1])
    reader, when, may_end = running.pop(0)
    time.sleep(max(0, when - time.monotonic()))
    number = numbers.choice((signal.SIGTERM, signal.SIGKILL))
    reader.send_signal(number)
    check(reader.wait(SOON) == -number or (may_end and reader.returncode == 0),
          f"killed by {number}: {reader.returncode}")


def killed_at_random(job, seed):
    numbers = random.Random(seed)
    for words in (("--io-mode=direct", "--cache=off"),
                  ("--io-mode=direct", "--cache-size=32M"),
                  ("--io-mode=cached", "-omax_threads=3")):
        with mounted(job, "delay=15ms;delay=300ms,p=0.05", *words) as mount:
            running = []
            for _ in range(150):
                running.append(read_or_ask(numbers, mount))
                while len(running) > 12:
                    kill_next(running, numbers)
            while running:
                kill_next(running, numbers)
            mount.demand_tree(job.expected(*STEP))
            pid = mount.process.pid
            check(is_sanitized(pid) or field(pid, "RssAnon") < 100 << 10, "memory")


def main():
    require_mount()
    tap = Tap()
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else run_seed()
    print(f"# seed {seed}")
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as root:
        job = Job(root, shapes=SHAPES)
        job.save(*STEP)
        for test in (one_reader_dies, death_is_not_put_off, ctrl_c_ends_it,
                     a_hundred_die, the_source_comes_back,
                     who_handles_signals_is_not_disturbed, who_is_not_seen_is_not_disturbed,
                     what_is_stopped_goes_on, what_is_traced_goes_on,
                     names_are_found_despite_signals, what_takes_longer_than_signals_gets_there, who_maps_is_not_disturbed,
                     who_maps_dies):
            with tap.test(test.__name__.replace("_", " ")):
                test(job)
        with tap.test(f"killed at random, seed {seed}"):
            killed_at_random(job, seed)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
