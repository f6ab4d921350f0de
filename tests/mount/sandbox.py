#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a daemon has given up, and that it still does all it should; who may read
what it shows, and where links may lead."""

import json
import os
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from daemon_use import is_sanitized  # noqa: E402
from demands import change, check, content, demand  # noqa: E402
from privileges import with_program, wrapper  # noqa: E402
from rsh_mount import MountError, Mounted, Skipped, Tests, require_mount  # noqa: E402
from small_job import Job, mounted, refuses, shows  # noqa: E402

STEP = (1, 5)
NAME = "net-1_5.ckpt"
test = Tests("sandbox")


def status(pid):
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as f:
        return dict(line.rstrip("\n").split(":\t", 1) for line in f if ":\t" in line)


def children(pid):
    found = set()
    for task in os.listdir(f"/proc/{pid}/task"):
        found.update(content(f"/proc/{pid}/task/{task}/children").decode().split())
    return found


# ---- what it has given up ----

@test
def the_daemon_has_given_up(job):
    job.save(*STEP)
    with mounted(job, "--log-level", "info") as m:
        m.demand_tree(job.expected(*STEP))
        for thread in os.listdir(f"/proc/{m.process.pid}/task"):
            now = status(thread)
            check(now["NoNewPrivs"] == "1", now)
            if not is_sanitized(m.process.pid) and "Seccomp" in now:
                check(now["Seccomp"] == "2", now)
        demand(m.log(), "info: sandboxed: no new privileges, ")
        helper, = children(m.process.pid)
        check(not any("fuse" in os.readlink(f"/proc/{helper}/fd/{fd}")
                            for fd in os.listdir(f"/proc/{helper}/fd")),
              "the mounter has the connection")
    check(not os.path.exists(f"/proc/{helper}"), "the mounter is left")


@test
def nothing_if_it_is_asked_not_to(job):
    job.save(*STEP)
    with mounted(job, "--sandbox", "off", "--log-level", "info") as m:
        m.demand_tree(job.expected(*STEP))
        check(status(m.process.pid)["NoNewPrivs"] == "0", "given up")
        check(not children(m.process.pid), children(m.process.pid))
        check("sandboxed" not in m.log(), m.log())


@test
def no_file_that_was_not_named(job):
    """Root may open all files; it is led to one by a link where links are not
    looked at otherwise."""
    job.save(*STEP)
    groups = os.path.join(job.directory, "groups")
    outside = os.path.join(job.directory, "outside")
    os.makedirs(os.path.join(groups, "rank_0"))
    change(outside, b"no group information")
    os.symlink(outside, os.path.join(groups, "rank_0", "group_info.pb"))
    said = refuses(job, "--group-info", groups, "--sandbox", "off", words=["group_info.pb"])
    check("Permission denied" not in said, said)
    with mounted(job, "--log-level", "info") as m:
        if "own files only" not in m.log():
            raise Skipped("this kernel has no landlock")
    refuses(job, "--group-info", groups, words=["group_info.pb: Permission denied"])


# ---- what it still does ----

@test
def caches_are_written(job):
    job.save(*STEP)
    long_ago = 1_000_000_000
    indexes = os.path.join(job.directory, "new", "indexes")
    blocks = os.path.join(job.directory, "blocks")
    log = os.path.join(job.directory, "log")
    for rank in range(job.n_ranks):
        os.utime(job.path(rank, NAME), (long_ago, long_ago))
    with mounted(job, "--cache", "on", "--cache-dir", blocks, "--log-to", f"file:{log}",
                 "--index-cache", indexes, "--log-level", "info") as m:
        m.demand_tree(job.expected(*STEP))
        check(m.stats()["pid"] == m.process.pid, m.stats())
        os.truncate(log, 0)
    demand(content(log).decode(), "unmounted")
    check(any(files for _, _, files in os.walk(blocks)), "no block")
    check(os.path.isdir(indexes), "no index cache")


@test
def files_that_the_options_name(job):
    """A map of files anywhere, and strategies that are links."""
    paths = job.save(*STEP)
    away = os.path.join(job.directory, "away")
    entries = {}
    for rank, path in paths.items():
        entries[str(rank)] = os.path.join(away, str(rank), "file")
        os.makedirs(os.path.dirname(entries[str(rank)]))
        os.rename(path, entries[str(rank)])
    entries["3"] = os.path.join("away", "link")
    os.symlink("3/file", os.path.join(job.directory, "away", "link"))
    path = os.path.join(job.directory, "map.json")
    change(path, json.dumps(entries).encode())
    folder = os.path.join(job.directory, "strategies")
    os.mkdir(folder)
    os.symlink(job.strategy, os.path.join(folder, "s.ckpt"))
    with Mounted(job.source, src_strategy=folder, dst_strategy=job.strategy,
                 extra=["--source-map", path]) as m:
        m.demand_tree(job.expected(*STEP))


@test
def after_what_it_has_open_is_renamed(job):
    job.save(*STEP)
    program = wrapper(job.directory, "", "ulimit -n 100")
    with with_program(program, lambda: mounted(job)) as m:
        moved = job.source + ".moved"
        os.rename(job.source, moved)
        m.demand_tree(job.expected(*STEP))
        os.rename(moved, job.source)


# ---- links ----

@test
def links_that_lead_out(job):
    job.save(*STEP)
    away = os.path.join(job.directory, "away")
    os.rename(os.path.join(job.source, "rank_3"), away)
    os.symlink("../away", os.path.join(job.source, "rank_3"))
    refuses(job, words=[f"{job.source}/rank_3 leads out of SOURCE, to {away}",
                        "--follow-outside"])
    shows(job, STEP, "--follow-outside")
    os.remove(os.path.join(job.source, "rank_3"))
    os.mkdir(os.path.join(job.source, "rank_3"))
    os.symlink(os.path.join(away, NAME), job.path(3, NAME))
    # Replicas could make up for it, and must not.
    refuses(job, words=[f"rank_3/{NAME} leads out of SOURCE, to {away}/{NAME}"])
    shows(job, STEP, "--follow-outside")


@test
def links_of_a_resumed_job(job):
    job.save(*STEP)
    job.save(1, 4)
    away = os.path.join(job.directory, "away")
    os.rename(job.path(3, NAME), away)
    os.symlink(away, job.path(3, NAME))
    command = [os.environ["RESHARDFS"], "mount", "--resume", job.source,
               os.path.join(job.directory, "mnt")]
    os.mkdir(command[-1])
    got = subprocess.run(command, capture_output=True, text=True, check=False)
    check(got.returncode == 3, got)
    demand(got.stderr, f"rank_3/{NAME} leads out of SOURCE, to {away}")
    with Mounted(job.source, resume=True, extra=["--follow-outside"]) as m:
        check(content(os.path.join(m.path, "rank_3", NAME)) == content(away), "bytes")


@test
def links_that_stay(job):
    """As in the volumes of Kubernetes; SOURCE is one as well."""
    job.save(*STEP)
    os.rename(job.source, job.source + ".real")
    os.makedirs(os.path.join(job.source, "..data"), exist_ok=True)
    for rank in range(job.n_ranks):
        os.rename(os.path.join(job.source + ".real", f"rank_{rank}"),
                  os.path.join(job.source, "..data", f"rank_{rank}"))
        os.symlink(f"..data/rank_{rank}" if rank % 2 else
                   os.path.join(job.source, "..data", f"rank_{rank}"),
                   os.path.join(job.source, f"rank_{rank}"))
    shows(job, STEP)
    link = os.path.join(job.directory, "link")
    os.symlink("source", link)
    shows(job, STEP, source=link)


@test
def a_link_that_comes_later(job):
    """The same file, by a way that leads out."""
    job.save(*STEP)
    program = wrapper(job.directory, "", "ulimit -n 100")
    with with_program(program, lambda: mounted(job, "--replicas", "off",
                                               "--io-mode", "direct")) as m:
        for rank in (0, 1):
            content(m.rank_file(rank))
        os.rename(os.path.join(job.source, "rank_0"), os.path.join(job.directory, "rank_0"))
        os.symlink("../rank_0", os.path.join(job.source, "rank_0"))
        try:
            content(m.rank_file(0))
            raise MountError("it was read")
        except OSError:
            demand(m.log(), "rank_0/" + NAME + ": it leads out of SOURCE now")


# ---- other readers ----

def may_read(path, uid, gid):
    return subprocess.run(["setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups",
                           "cat", path], stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode == 0


@test
def other_readers(job):
    """Whoever may read a virtual file may read all that it comes from."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        raise Skipped("needs root and setpriv")
    people = [(u, g) for u in (0, 65533, 65534) for g in (0, 65533, 65534)]
    paths = job.save(*STEP)
    os.chmod(job.directory, 0o755)
    modes = [(0o644, 0, 0), (0o640, 0, 0), (0o640, 0, 65534), (0o640, 65534, 0),
             (0o604, 65533, 65533), (0o444, 65534, 65534), (0o400, 65533, 0),
             (0o644, 0, 0)]
    for rank, (mode, uid, gid) in enumerate(modes):
        os.chown(paths[rank], uid, gid)
        os.chmod(paths[rank], mode)
    os.chmod(os.path.dirname(paths[7]), 0o710)
    n_read = 0
    with mounted(job, "-o", "allow_other") as m:
        os.chmod(os.path.dirname(m.path), 0o711)
        for uid, gid in people:
            for rank in range(len(modes)):
                shown = m.rank_file(rank)
                if may_read(shown, uid, gid):
                    n_read += 1
                    check(may_read(paths[rank], uid, gid), (modes[rank], uid, gid))
        check(not may_read(os.path.join(m.path, ".reshardfs", "stats"), 65534, 0),
              "the control directory is open")
    # What everybody may read stays so: ranks 0 and 5, for the six besides root.
    check(n_read >= 3 * len(modes) + 2 * 6, n_read)


if __name__ == "__main__":
    require_mount()
    sys.exit(test.run(Job))
