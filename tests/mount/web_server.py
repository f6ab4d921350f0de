#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sources on a web server as there are many, nginx, over TLS: what is shown is what the
same files on disk show."""

import errno
import os
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

import nginx  # noqa: E402
from coming_and_going import error_of  # noqa: E402
from demands import change, check, content, write  # noqa: E402
from rsh_cli import end_if_built_without  # noqa: E402
from rsh_mount import Mounted, Tap, hash_tree, require_mount, skip_all  # noqa: E402
from s3_trial import write_model  # noqa: E402
from small_job import Job, mounted  # noqa: E402

STEP = (1, 5)
# Of a mebibyte and more, so that files have several windows.
SHAPES = {"up.weight": (4096, 301), "down.weight": (257, 512), "norm.gamma": (700,)}
PEM = os.path.join(os.path.dirname(LIB), "unit", "data", "objects.pem")
TRUST = ("--ca-file", PEM)


class Site:
    """A job, with a text of the names of its files, and a model, beside one another."""

    def __init__(self, directory):
        self.directory = directory
        self.root = os.path.join(directory, "root")
        self.job = Job(os.path.join(self.root, "job"), shapes=SHAPES)
        paths = self.job.save(*STEP)
        self.names = write(os.path.join(self.job.source, "names.txt"), "".join(
            os.path.relpath(path, self.job.source) + "\n"
            for path in paths.values()).encode())
        self.model = os.path.join(self.root, "model")
        write_model(self.model, self.job.records(0, *STEP))

    def served(self, name, **how):
        return nginx.Nginx(self.root, os.path.join(self.directory, name), tls=PEM, **how)

    def mounted(self, server, *words):
        return mounted(self.job, *TRUST, "--source-index", "names.txt", *words,
                       source=f"https://127.0.0.1:{server.port}/job/source")


def the_bytes_of_local_files(site, protocol, http2):
    with site.served(protocol.replace("/", "-"), http2=http2) as server:
        with Mounted(site.model) as local, \
                Mounted(f"https://127.0.0.1:{server.port}/model", extra=TRUST) as m:
            m.demand_tree(hash_tree(local.path))
        with site.mounted(server) as m:
            m.demand_tree(site.job.expected(*STEP))
        asked = server.requests()
        check(any("206" in line for line in asked) and
              all(line.startswith(protocol + " ") for line in asked), asked)


def started_anew_while_it_is_mounted(site):
    with site.served("anew", http2=True) as server, \
            site.mounted(server, "--cache", "off", "--io-mode", "direct") as m:
        m.demand_tree(site.job.expected(*STEP))
        server.kill()
        server.start()
        m.demand_tree(site.job.expected(*STEP))


def a_file_was_replaced(site):
    """By one of the same size."""
    path = site.job.path(2, f"net-{STEP[0]}_{STEP[1]}.ckpt")
    data = content(path)
    with site.served("replaced") as server, \
            site.mounted(server, "--replicas", "off", "--cache", "off",
                         "--io-mode", "direct") as m:
        change(path + ".new", data[:-1000] + bytes(1000))
        os.utime(path + ".new", (1e9, 1e9))
        os.rename(path + ".new", path)
        for rank, error in ((1, 0), (2, errno.ESTALE)):
            found = error_of(m.rank_file(rank))[0]
            check(found == error, f"rank {rank}: {found}\n{m.log()}")


def main():
    require_mount()
    end_if_built_without("object storage", "ls", "s3://bucket/x")
    if not nginx.PROGRAM:
        skip_all("there is no nginx")
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-nginx-") as directory:
        site = Site(directory)
        for protocol, http2 in (("HTTP/1.1", False), ("HTTP/2.0", True)):
            with tap.test(f"the bytes of local files, by {protocol}"):
                the_bytes_of_local_files(site, protocol, http2)
        for function in (started_anew_while_it_is_mounted, a_file_was_replaced):
            with tap.test(function.__name__.replace("_", " ")):
                function(site)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
