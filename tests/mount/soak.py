#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random mounts, readers, faults, kills and remounts, for RSH_SOAK_SECONDS (20).

    soak.py [SEED [CHAPTER]]

Two lanes at a time share a directory of blocks and one of indexes.  A chapter is
a small random tree and a dozen mounts of it on one place, each with options, a
fault and readers of its own, and with one event in the middle: the daemon is
killed, told to end or unmounted under load, readers are killed, the job saves
again over the files that are mounted, and so on.  Beside it commands read the
mount and the source.

Every byte that comes has to be right, and a read may fail only where the fault
or the event explains it; daemons have to end as they should and leave nothing
behind; the next mount finds directories of blocks and of indexes that are good.
At the end it prints what was done, also when SIGINT or SIGTERM ends it early.  A
chapter is random by itself: a failure says how to repeat it until the time is up.
"""

import collections
import faulthandler
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import make_tree  # noqa: E402
import read_modes  # noqa: E402
from daemon_use import (daemons_of, field, is_sanitized, mounts_below,  # noqa: E402
                        n_descriptors)
from demands import check, content, within  # noqa: E402
from rsh_mount import (SUSPICIOUS, TIMEOUT_SCALE, MountError, Mounted, Tap,  # noqa: E402
                       require_mount, reshardfs_program)
from run_seed import run_seed  # noqa: E402
from soak_readers import Crowd  # noqa: E402

SECONDS = float(os.environ.get("RSH_SOAK_SECONDS", "20"))
LANES = 2
# A daemon's own memory beside its cache, as memory.py has it, and the rest.
OWN_KB = 96 * 1024
CACHE_KB = 16 * 1024
# Descriptors beside those of source files.
OWN_FDS = 24
LIMIT = 60 * TIMEOUT_SCALE

FAILS = ("EIO", "SIGBUS")
CHANGED = ("ESTALE", "EIO", "SIGBUS")
GONE = ("ENOTCONN", "ECONNABORTED", "ENODEV", "ENOENT", "EIO", "SIGBUS")


def run(*words, limit=LIMIT):
    """(exit status, all that was said)"""
    try:
        done = subprocess.run([reshardfs_program(), *words], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit,
                              check=False)
    except subprocess.TimeoutExpired:
        raise MountError(f"it does not end: {' '.join(words)}") from None
    said = done.stdout.decode(errors="replace")
    check(not SUSPICIOUS.search(said), f"{' '.join(words)}:\n{said}")
    return done.returncode, said


# ---- trees ----

class Tree:
    """A random tree that can be saved again under the same names."""

    def __init__(self, directory, numbers):
        self.directory, self.numbers = directory, numbers
        self._params, *self._meshes = make_tree.random_tree(numbers, 5, 3 << 18)
        self.source = self.path("source")
        self.expected = self._write(directory)
        # Who changes a file in its place shows it to those whom the kernel lets
        # read the source itself.
        self.is_identity = self._meshes[0] == self._meshes[1] and all(
            (p.source_map, p.source_shard) == (p.wanted_map, p.wanted_shard)
            for p in self._params)

    def path(self, name):
        return os.path.join(self.directory, name)

    def strategies(self):
        return ["--src-strategy", self.path("source.ckpt"),
                "--dst-strategy", self.path("wanted.ckpt")]

    def _write(self, directory):
        """What a mount of it must show: {name: bytes}."""
        make_tree.write_tree(directory, self._params, *self._meshes, self.numbers)
        wanted, found = os.path.join(directory, "expected"), {}
        for folder, _, names in os.walk(wanted):
            for name in names:
                path = os.path.join(folder, name)
                found[os.path.relpath(path, wanted)] = content(path)
        return found

    def files(self):
        return sorted(os.path.relpath(os.path.join(folder, name), self.source)
                      for folder, _, names in os.walk(self.source) for name in names)

    def save_again(self, how):
        """Other content in files of the same names and sizes: "renamed" over the
        old ones, written "in place", or after they were "removed"."""
        fresh = self.path("fresh")
        expected = self._write(fresh)
        names = self.files()
        if how == "removed":
            shutil.rmtree(self.source)
            time.sleep(self.numbers.uniform(0, 0.1))
        for name in names:
            new, old = os.path.join(fresh, "source", name), os.path.join(self.source, name)
            if how == "in place":
                os.chmod(old, 0o600)
                with open(new, "rb") as f, open(old, "r+b") as g:
                    g.write(f.read())
            else:
                os.makedirs(os.path.dirname(old), exist_ok=True)
                os.rename(new, old)
        shutil.rmtree(fresh)
        self.expected = expected


# ---- options and faults ----

def draw_fault(numbers, tree):
    """(fault, {error: its cause}); both None and {} where there is none."""
    names = tree.files()
    file = numbers.choice(names)
    size = os.path.getsize(os.path.join(tree.source, file))
    at = numbers.randrange(size)
    p = numbers.choice((0.01, 0.1, 0.5))
    kinds = {
        "none": (None, ()),
        "eio": (f"eio,p={p / 5}", FAILS),
        "eio of a file": (f"eio@{file},p={p}", FAILS),
        "eio of a range": (f"eio@{file}:{at}-{at + 4096}", FAILS),
        "short": (f"short,p={p}", ()),
        "truncate": (f"truncate@{file}:{at}-{at + 1},p={p}", CHANGED),
        "delay": (f"delay={numbers.choice((100, 1000, 5000))}us,p={p}", ()),
        "rate": (f"delay=1ms,rate={numbers.choice((20, 200))}M", ()),
        "all": (f"eio,p=0.01;short,p=0.2;truncate@{file}:{at}-{at + 1},p=0.1;"
                "delay=1ms,p=0.1", CHANGED),
    }
    kind = numbers.choice(["none"] * 5 + sorted(kinds))
    fault, errors = kinds[kind]
    return fault, {error: f"fault {kind}" for error in errors}


def draw_options(numbers, shared, fault):
    blocks = os.path.join(shared, "blocks")
    words = ["--io-mode", numbers.choice((*read_modes.IO_MODES, "passthrough")),
             "--cache", numbers.choice(read_modes.CACHES),
             "--cache-size", numbers.choice(("0", "300KiB", "2MiB", "16MiB"))]
    if numbers.random() < 0.5:
        words += ["--cache-dir", blocks,
                  "--cache-disk-size", numbers.choice(("0", "1MiB", "16GiB"))]
    if numbers.random() < 0.3:
        words += ["--keep-free", numbers.choice(("0", "99%"))]
    words += ["--index-cache", numbers.choice((os.path.join(shared, "indexes"), "off"))]
    words += ["--replicas", numbers.choice(("auto", "off"))]
    if numbers.random() < 0.2:
        words += ["-o", numbers.choice(("max_threads=1", "max_threads=3", "max_read=131072"))]
    return words + (["--fault", fault] if fault else [])


# ---- a mount ----

class Mount(Mounted):
    """One that may be ended in other ways than by `stop`."""

    def forget(self):
        self.process = None

    def await_end(self, status=0):
        try:
            found = self.process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            raise MountError("the daemon does not end") from None
        check(found == status, f"the daemon ended with {found}")
        self.check_log()
        self.forget()

    def check_log(self):
        found = SUSPICIOUS.search(self.log())
        check(not found, f"{found and found[0]!r} in the log")

    def is_there(self):
        return bool(mounts_below(self.path))


class Round:
    """One mount of a chapter."""

    def __init__(self, chapter, number, event):
        self.chapter, self.tree, self.event = chapter, chapter.tree, event
        self.numbers = random.Random(f"{chapter.name} {number}")
        self.fault, self.errors = draw_fault(self.numbers, self.tree)
        if event is hang:
            self.fault = f"delay=3600s@{self.numbers.choice(self.tree.files())},p=0.2"
            self.errors = {}
        words = draw_options(self.numbers, chapter.shared, self.fault)
        if event is saved_again_in_place and self.tree.is_identity:
            words[1] = "direct"
        self.mount = Mount(self.tree.source, src_strategy=self.tree.path("source.ckpt"),
                           dst_strategy=self.tree.path("wanted.ckpt"), extra=words,
                           mountpoint=chapter.point)
        self.counts = chapter.counts
        self.later = {}  # {error: its cause} of the event
        self.crowd = None
        self.beside = None
        self.beside_trouble = None
        self.event_begun = False

    def describe(self):
        return f"event: {self.event.__name__}\ncommand: {' '.join(self.mount.command)}"

    def begin_event(self, errors=(), cause=None):
        """What fails from now on in one of these ways is explained."""
        self.later = {error: cause for error in errors}
        self.event_begun = True
        self.crowd.told()

    def stop_readers(self):
        check(self.crowd.stop(LIMIT), "a reader does not come back")

    def run(self):
        with self.mount:
            try:
                self.counts["mounts"] += 1
                if not self.fault:
                    self.check_all()
                self.crowd = Crowd(self.mount.path, self.tree.expected, [
                    f"{self.chapter.name} {self.numbers.random()}"
                    for _ in range(self.numbers.randrange(1, 7))])
                self.start_beside()
                self.crowd.await_reads(self.numbers.randrange(100), 5)
                time.sleep(self.numbers.uniform(0, 0.2))
                self.event(self)
                self.stop_readers()
                self.take_results()
                self.await_beside()
                if self.mount.process:
                    self.check_daemon()
                    self.mount.stop()
            except BaseException:
                if self.crowd:
                    self.crowd.abandon()
                if self.mount.process:
                    self.mount.kill()  # who still waits for it cannot end
                raise
            finally:
                if self.beside:
                    self.beside.join()

    def check_all(self):
        for name, data in self.tree.expected.items():
            check(content(os.path.join(self.mount.path, name)) == data, f"{name}: wrong bytes")

    def take_results(self):
        reads, n_bytes, errors, wrong = self.crowd.results()
        self.crowd.close()
        self.crowd = None
        self.counts["reads"] += reads
        self.counts["bytes"] += n_bytes
        check(not wrong, "\n".join(wrong))
        for (phase, kind), n in errors.items():
            cause = self.errors.get(kind) or (phase and self.later.get(kind))
            check(cause, f"{n} reads gave {kind}, which nothing explains")
            self.counts[f"{kind}, {cause}"] += n

    def check_daemon(self):
        """While nobody uses it."""
        pid = self.mount.process.pid
        most = OWN_FDS + len(self.tree.files())
        # Releases come after the close.
        within(20, lambda: n_descriptors(pid) <= most, "it keeps descriptors")
        self.counts.most("descriptors", n_descriptors(pid))
        if not is_sanitized(pid):
            peak = field(pid, "VmHWM")
            self.counts.most("kB of memory", peak)
            check(peak <= OWN_KB + CACHE_KB, f"{peak} kB of memory")
        if not self.errors and not self.event_begun:
            check(": error: " not in self.mount.log(), "an error in the log")

    # ---- commands beside it ----

    def start_beside(self):
        if self.numbers.random() < 0.6:
            # Drawn here, since the thread is not alone.
            what = self.numbers.choice((self.stats, self.plan, self.export_and_verify))
            numbers = random.Random(self.numbers.random())
            self.beside = threading.Thread(target=self.run_beside, args=(what, numbers))
            self.beside.start()

    def await_beside(self):
        if self.beside:
            self.beside.join()
        check(not self.beside_trouble, self.beside_trouble)

    def run_beside(self, what, numbers):
        try:
            what(numbers)
            self.counts["commands beside them"] += 1
        except BaseException as error:  # reported by the thread that waits
            self.beside_trouble = f"{type(error).__name__}: {error}"

    def good(self, changes, *words):
        """It succeeds, unless the event changes what it reads."""
        status, said = run(*words)
        excused = self.event_begun and changes and 0 < status <= 4
        check(status == 0 or excused, f"exit status {status}: {' '.join(words)}\n{said}")
        return status == 0

    def stats(self, numbers):
        for _ in range(3):
            # Nothing is there any more, or something else.
            if self.good(True, "stats", "--json", self.mount.path):
                time.sleep(numbers.uniform(0, 0.1))

    def plan(self, _):
        self.good(self.event in CHANGES, "plan", "--quiet", *self.tree.strategies(),
                  self.tree.source)

    def export_and_verify(self, numbers):
        """Killed in between, and gone on with."""
        out = os.path.join(self.chapter.directory, "exported")
        words = ["--quiet", *self.tree.strategies(), self.tree.source, out]
        expected = self.tree.expected
        first = subprocess.Popen([reshardfs_program(), "export", *words],
                                 stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            first.wait(numbers.uniform(0, 0.1))
        except subprocess.TimeoutExpired:
            first.kill()
            first.wait()
            self.counts["exports killed"] += 1
        changes = self.event in CHANGES
        if self.good(changes, "export", *words) and self.good(changes, "verify", *words) and \
                not changes:
            for name, data in expected.items():
                check(content(os.path.join(out, name)) == data, f"exported {name}: wrong bytes")
        shutil.rmtree(out, ignore_errors=True)


# ---- events ----

def nothing(r):
    r.stop_readers()


def readers_killed(r):
    r.counts["readers killed"] += r.crowd.kill(r.numbers)
    time.sleep(r.numbers.uniform(0, 0.1))


def umount(r, *words, status=0):
    found, said = run("umount", *words, r.mount.path)
    check(found == status, f"umount {' '.join(words)}: {found}\n{said}")


def daemon_killed(r):
    r.begin_event(GONE, "daemon killed")
    r.mount.process.kill()
    r.mount.process.wait()
    r.counts["daemons killed"] += 1
    if r.numbers.random() < 0.5:
        umount(r, "--lazy")
    else:
        r.stop_readers()
        umount(r)
    r.mount.check_log()
    r.mount.forget()


def terminated(r):
    r.begin_event(GONE, "SIGTERM")
    r.mount.process.terminate()
    r.counts["SIGTERM under load"] += 1
    r.mount.await_end()


def unmounted_lazily(r):
    r.begin_event(GONE, "unmounted")
    umount(r, "--lazy")
    check(not r.mount.is_there(), "it is still mounted")
    r.counts["lazy unmounts under load"] += 1
    # Who has a file open reads on.
    time.sleep(r.numbers.uniform(0, 0.2))
    r.stop_readers()
    r.mount.await_end()


def unmounted(r):
    """Refused as long as it is in use."""
    r.begin_event(GONE, "unmounted")
    found, said = run("umount", r.mount.path)
    check(found in (0, 4), f"umount: {found}\n{said}")
    r.counts["unmounts under load"] += 1
    if found == 4:
        check(r.mount.is_there() and "in use" in said, said)
        return
    r.stop_readers()
    r.mount.await_end()


def unmounted_by_force(r):
    r.begin_event(GONE, "unmounted by force")
    umount(r, "--force")
    check(not r.mount.is_there(), "it is still mounted")
    r.counts["unmounts by force"] += 1
    r.mount.await_end()


def hang(r):
    """Reads that do not come back, until the mount is taken away."""
    r.counts["sources that hang"] += 1
    r.numbers.choice((terminated, daemon_killed_while_it_hangs, unmounted_by_force))(r)


def daemon_killed_while_it_hangs(r):
    r.begin_event(GONE, "daemon killed")
    r.mount.process.kill()
    r.mount.process.wait()
    r.counts["daemons killed"] += 1
    umount(r, "--lazy")
    r.mount.forget()


def saved_again(r, how):
    r.begin_event(CHANGED, f"source {how}")
    r.tree.save_again(how)
    r.counts["sources changed while mounted"] += 1
    time.sleep(r.numbers.uniform(0, 0.2))


def saved_again_by_rename(r):
    saved_again(r, "renamed")


def saved_again_in_place(r):
    saved_again(r, "in place")


def saved_again_elsewhere(r):
    saved_again(r, "removed")


CHANGES = (saved_again_by_rename, saved_again_in_place, saved_again_elsewhere)
EVENTS = (nothing, nothing, readers_killed, daemon_killed, daemon_killed, terminated,
          unmounted_lazily, unmounted, unmounted_by_force, hang, hang, *CHANGES)


# ---- chapters and lanes ----

class Counts(collections.Counter):
    """Sums, and the most of what is not to be summed up."""

    def most(self, what, n):
        self["most " + what] = max(self["most " + what], n)

    def add(self, other):
        for what, n in other.items():
            if what.startswith("most "):
                self.most(what[5:], n)
            else:
                self[what] += n


class Chapter:
    """A tree and its mounts."""

    def __init__(self, directory, shared, seed, number):
        self.name = f"{seed} {number}"
        self.directory, self.shared, self.number = directory, shared, number
        self.counts = Counts()
        self.point = os.path.join(directory, "mnt")
        os.makedirs(self.point)
        self.numbers = random.Random(self.name)
        self.tree = Tree(os.path.join(directory, "tree"), self.numbers)

    def run(self, may_go_on):
        events = list(EVENTS)
        self.numbers.shuffle(events)
        for number, event in enumerate(events):
            if not may_go_on():
                break
            one = Round(self, number, event)
            started = time.monotonic()
            faulthandler.dump_traceback_later(2 * LIMIT)
            try:
                one.run()
            except Exception as error:
                raise MountError(f"{type(error).__name__}: {error}\n{one.describe()}\n"
                                 f"log:\n{one.mount.log()}") from error
            finally:
                faulthandler.cancel_dump_traceback_later()
                self.counts.most("seconds of a round", int(time.monotonic() - started))
            check(not mounts_below(self.directory), f"a mount is left\n{one.describe()}")
            self.counts[f"event: {event.__name__}"] += 1


def run_lane(directory, seed, first, step, end, stop, results):
    """In a process of its own.  Chapters first, first + step, and so on; step 0:
    the same one again and again."""
    parent = os.getppid()
    os.setsid()  # what is sent to all of the test is for the parent
    counts, said, number = Counts(), None, first
    own = os.path.join(directory, f"lane{first}")
    shared = os.path.join(directory, "shared")

    def may_go_on():
        return time.monotonic() < end and not stop.is_set() and os.getppid() == parent

    while may_go_on():
        try:
            chapter = Chapter(own, shared, seed, number)
            try:
                chapter.run(may_go_on)
            finally:
                counts.add(chapter.counts)
            counts["trees"] += 1
            shutil.rmtree(own)
        except BaseException as error:  # for the parent to print
            said = f"chapter {number}:\nrepeat: RSH_SOAK_SECONDS={SECONDS:.0f} " \
                f"mount/soak.py {seed} {number}\n{error}\n"
            if not isinstance(error, MountError):
                said += traceback.format_exc()
            stop.set()
            break
        number += step
    counts.most("descriptors of the test", n_descriptors("self"))
    results.put((dict(counts), said))


def run_lanes(directory, seed, chapter):
    os.makedirs(os.path.join(directory, "shared"))
    context = multiprocessing.get_context("fork")
    results, stop = context.SimpleQueue(), context.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    end = time.monotonic() + SECONDS
    lanes = [(chapter, 0)] if chapter is not None else [(i, LANES) for i in range(LANES)]
    processes = [context.Process(target=run_lane, args=(
        directory, seed, first, step, end, stop, results)) for first, step in lanes]
    for p in processes:
        p.start()
    total, failures = Counts(), []
    for _ in processes:
        counts, said = results.get()
        total.add(counts)
        if said:
            failures.append(said)
    for p in processes:
        p.join()
    return total, failures


def print_figures(tap, counts, seconds):
    tap.diag(f"{seconds:.0f} s")
    for what in sorted(counts):
        tap.diag(f"{what}: {counts[what]:,}")


def leave_others_alone():
    """In mounts of its own, or else whoever makes a copy of all mounts, as other
    tests do, keeps daemons from ending."""
    alone = os.path.join(os.environ.get("srcdir", "."), "lib", "own_mounts.sh")
    if os.geteuid() != 0 or os.environ.get("RSH_SOAK_ALONE") or \
            subprocess.run([alone, "true"], stderr=subprocess.DEVNULL,
                           check=False).returncode:
        return
    os.environ["RSH_SOAK_ALONE"] = "yes"
    os.execv(alone, [alone, sys.executable, *sys.argv])


def main():
    require_mount()
    leave_others_alone()
    tap = Tap()
    seed = sys.argv[1] if len(sys.argv) > 1 else str(run_seed())
    chapter = int(sys.argv[2]) if len(sys.argv) > 2 else None
    tap.diag(f"seed {seed}, {SECONDS:.0f} s")
    directory = tempfile.mkdtemp(prefix="reshardfs-soak-")
    started = time.monotonic()
    try:
        counts, failures = run_lanes(directory, seed, chapter)
        print_figures(tap, counts, time.monotonic() - started)
        tap.ok(not failures, "all reads were right or failed for a reason", "\n".join(failures))
        tap.ok(counts["reads"] and counts["mounts"], "there were reads")
        within(30, lambda: not daemons_of(directory), "a daemon is left")
        tap.equal(daemons_of(directory), [], "no daemon is left")
        tap.equal(mounts_below(directory), [], "no mount is left")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
