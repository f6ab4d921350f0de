#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Mounts that share blocks through memcached servers: one of them reads what all
need, and no server, however it behaves, makes a byte wrong or a reader fail."""

import concurrent.futures
import json
import os
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import library_use  # noqa: E402
import memcached  # noqa: E402
from demands import check, content, within, write  # noqa: E402
from memcached import Liar, Memcached  # noqa: E402
from rsh_cli import run  # noqa: E402
from rsh_mount import Mounted, Tests, require_mount, skip_all  # noqa: E402
from small_job import Job  # noqa: E402

STEP = (1, 5)
# Whatever is read waits, so that two that read at once meet.
SLOW = ("--fault", "delay=30ms")


class Tree:
    def __init__(self, directory):
        self.directory = directory
        self.job = Job(directory, shapes={"up.weight": (512, 600), "down.weight":
                                          (300, 512), "norm.gamma": (70000,)})
        self.job.save(*STEP)
        self.expected = self.job.expected(*STEP)

    def mounted(self, servers, *extra, env=None):
        return Mounted(self.job.source, src_strategy=self.job.strategy,
                       dst_strategy=self.job.strategy, env=env,
                       extra=["--io-mode", "direct", "--cache", "on", "--log-level", "info",
                              "--cache-servers",
                              ",".join(s if isinstance(s, str) else s.address
                                       for s in servers), *extra])

    def read_by_one(self, servers, *extra, **more):
        """What a mount of its own loads of all, and its figures."""
        with self.tried(servers, *extra, **more) as mount:
            return mount.stats()["cache"]

    def tried(self, servers, *extra, **more):
        return Tried(self, self.mounted(servers, *extra, **more))


class Tried:
    """A mount that has been read through."""

    def __init__(self, tree, mount):
        self.tree, self.mount = tree, mount

    def __enter__(self):
        self.mount.__enter__()
        self.mount.demand_tree(self.tree.expected)
        return self.mount

    def __exit__(self, *how):
        return self.mount.__exit__(*how)


def found(f):
    return f["hits_shared"] + f["prefetched_shared"]


def has_put(f):
    """All that it has loaded, with the heads of values."""
    return f["shared_written_bytes"] >= f["bytes_loaded"] > 0


test = Tests("servers")


@test
def what_one_has_read_another_finds(tree):
    with Memcached() as one, Memcached() as two:
        servers = (one, two)
        first = tree.read_by_one(servers)
        check(first["loads"] and not found(first), first)
        second = tree.read_by_one(servers)
        check(found(second) and not second["loads"], second)
        check(not second["shared_rejected"] + second["shared_errors"], second)


@test
def two_at_once_read_once(tree):
    """As far as claims go: each block is loaded by one of them."""
    with Memcached() as one, tree.mounted((one,), *SLOW) as a, \
            tree.mounted((one,), *SLOW) as b, \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(mount.demand_tree, tree.expected) for mount in (a, b)]:
            done.result()
        both = [mount.stats()["cache"] for mount in (a, b)]
        alone = sum(os.path.getsize(os.path.join(root, name))
                    for root, _, names in os.walk(tree.job.source) for name in names)
        loaded = sum(f["bytes_loaded"] for f in both)
        check(sum(f["shared_late"] for f in both) or loaded <= alone, (alone, both))
        check(any(map(found, both)), both)


@test
def a_server_is_killed_and_started_again(tree):
    with Memcached() as one, Memcached() as two:
        servers = (one, two)
        tree.read_by_one(servers)
        with tree.tried(servers) as mount:
            two.kill()
            mount.demand_tree(tree.expected)
            tree.read_by_one(servers)
            said = tree.read_by_one(servers)
            check(found(said) and not said["loads"], said)
            two.start()
            mount.demand_tree(tree.expected)
        tree.read_by_one(servers)
        said = tree.read_by_one(servers)
        check(found(said) and not said["loads"], said)


@test
def all_servers_are_gone(tree):
    with Memcached() as one:
        gone = (one,)
        one.kill()
        with tree.tried(gone) as mount:
            said = mount.stats()["cache"]
            check(said["loads"] and said["shared_errors"], said)
            check(mount.log().count("it is not used") == 1, mount.log())


@test
def a_server_hangs(tree):
    with Memcached() as one:
        tree.read_by_one((one,))
        one.stop()
        with tree.tried((one,)) as mount:
            check("timed out" in mount.log(), mount.log())
        one.go_on()
        check(found(tree.read_by_one((one,))), "it is not used again")


@test
def a_server_has_no_room(tree):
    with Memcached("-M", "-m", "2") as one:
        for _ in range(2):
            tree.read_by_one((one,))


@test
def a_server_lies(tree):
    """However it does: what is shown is right, and the source read for it."""
    with Liar() as liar:
        tree.read_by_one((liar,))
        check(found(tree.read_by_one((liar,))), "it is not believed while it is honest")
        kept = dict(liar.values)
        for mode in memcached.LIES:
            liar.mode = mode
            said = tree.read_by_one((liar,))
            # An endless answer begins with the right one.
            check(said["loads"] and (mode == "endless" or not found(said)), (mode, said))
            liar.values = dict(kept)
        liar.mode = "honest"
        check(found(tree.read_by_one((liar,))), "it is not believed again")


# unit/test_cache_replies has all of them, to every command.
REPLIES = ((b"add", b"END\r\n"), (b"add", b"OK\r\n"), (b"add", b"DELETED\r\n"),
           (b"add", b"17\r\n"), (b"set", b"END\r\n"), (b"set", b"NOT_STORED\r\n"),
           (b"get", b"STORED\r\n"), (b"get", b"VALUE x 0 -1\r\n"))


@test
def no_reply_ends_a_process(tree):
    """Nor that of a library: the mount, and a program, go on without the server."""
    for command, reply in REPLIES:
        with Liar() as liar:
            liar.told = {command: reply}
            with tree.tried((liar,)) as mount:
                within(60, lambda: "it is not used" in mount.log(), (command, reply))
                mount.demand_tree(tree.expected)
                said = [line for line in mount.log().splitlines() if "cache server" in line]
                check(len(said) == 1 and "not memcached's protocol" in said[0], said)
            library_use.run("load", "1", tree.job.source, f"src_strategy={tree.job.strategy}",
                            f"dst_strategy={tree.job.strategy}", "cache=on",
                            f"cache_servers={liar.address}")


@test
def only_those_with_the_key_share(tree):
    keys = []
    for i in range(2):
        keys.append(os.path.join(tree.directory, f"key{i}"))
        write(keys[-1], os.urandom(32))
    with Memcached() as one:
        with_key = ("--cache-key-file", keys[0])
        tree.read_by_one((one,), *with_key)
        check(not found(tree.read_by_one((one,))), "without a key")
        check(not found(tree.read_by_one((one,), "--cache-key-file", keys[1])), "another")
        said = tree.read_by_one((one,), *with_key)
        check(found(said) and not said["loads"], said)
    write(keys[0], b"short")
    said = run("export", "--cache-key-file", keys[0], "--cache-servers", "127.0.0.1:1",
               "--src-strategy", tree.job.strategy, "--dst-strategy", tree.job.strategy,
               "--cache", "on", tree.job.source, os.path.join(tree.directory, "out"))
    check(said.status and "the key has 5 bytes" in said.err, said)


@test
def a_file_that_changed_is_another(tree):
    """With equal names, sizes and times, as a tree has that was put back."""
    with Memcached() as one:
        tree.read_by_one((one,))
        names = [os.path.join(root, name) for root, _, names in os.walk(tree.job.source)
                 for name in names]
        for name in names:
            at = os.stat(name)
            os.utime(name, ns=(at.st_atime_ns, at.st_mtime_ns))
        said = tree.read_by_one((one,))
        check(not found(said), said)


@test
def libreshard_shares_with_mounts(tree):
    with Memcached() as one:
        library_use.run("load", "1", tree.job.source, f"src_strategy={tree.job.strategy}",
                        f"dst_strategy={tree.job.strategy}", "cache=on",
                        f"cache_servers={one.address}")
        said = tree.read_by_one((one,))
        check(found(said), said)


@test
def the_daemon_stays_confined(tree):
    with Memcached() as one, tree.tried((one,)) as mount:
        check("sandboxed" in mount.log(), mount.log())
        told = json.loads(content(os.path.join(mount.path, ".reshardfs", "config")))
        check(told["cache"]["servers"] == one.address and not told["cache"]["keyed"], told)


@test
def words_that_are_no_servers(tree):
    for words in ("", ",", "host:", "host:0", "host:99999", "a,,b", "a/b:1"):
        said = run("mount", "--cache-servers", words, tree.job.source, tree.directory)
        check(said.status and (f'--cache-servers: "{words}" is not a list of HOST[:PORT]' in said.err
                               or not words), (words, said))
    said = run("mount", "--cache-servers", ",".join(["host"] * 65), tree.job.source, tree.directory)
    check("--cache-servers: more than 64 servers" in said.err, said)


@test
def keys_that_are_too_short(tree):
    key = write(os.path.join(tree.directory, "short.key"), b"too short")
    words = ("mount", "--cache-servers", "127.0.0.1:1", "--src-strategy", tree.job.strategy,
             "--dst-strategy", tree.job.strategy)
    point = tempfile.mkdtemp(dir=tree.directory)
    said = run(*words, "--cache-key-file", key, tree.job.source, point)
    check(f"{key}: the key has 9 bytes; it must have at least 32" in said.err, said)


@test
def logins_are_refused(tree):
    for name in ("MEMCACHED_USERNAME", "MEMCACHED_PASSWORD"):
        said = run("export", "--cache-servers", "127.0.0.1:1", "--src-strategy",
                   tree.job.strategy, "--dst-strategy", tree.job.strategy, "--cache", "on",
                   tree.job.source, os.path.join(tree.directory, "out"), env={name: "zu3cho"})
        check(said.status and f"--cache-servers: {name} is set, but servers with a login (SASL) "
              "are not supported: unset it, start memcached without -S, and use --cache-key-file"
              in said.err and "zu3cho" not in said.err, said)


if __name__ == "__main__":
    require_mount()
    if not memcached.PROGRAM:
        skip_all("there is no memcached")
    sys.exit(test.run(Tree))
