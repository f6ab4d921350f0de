#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The examples of reshardfs-scale(7) for jobs of several nodes run as they stand there.

Slurm, msrun and Ray are stood in for, and numbers and places replaced by those of a small
job: eight ranks, whose training is to compare their files.
"""

import concurrent.futures
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import types

HERE = os.path.abspath(os.environ.get("srcdir", "."))
TOP = os.environ.get("top_srcdir", os.path.join(HERE, ".."))
LIB = os.path.join(HERE, "lib")
sys.path[:0] = [LIB, os.path.join(TOP, "python")]

from cluster import Cluster, Shape  # noqa: E402
from daemon_use import mounts_below  # noqa: E402
from demands import check, content, write  # noqa: E402
import memcached  # noqa: E402
from memcached import Memcached, free_port  # noqa: E402
from pods import command_of, pod_of  # noqa: E402
from rsh_cli import run  # noqa: E402
from rsh_mount import (TIMEOUT_SCALE, Tap, require_mount, reshardfs_program,  # noqa: E402
                       skip_all)
import reshardfs  # noqa: E402

RANKS = 8
TRAIN = """
import filecmp, os, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
node = int(words.get("--node", 0))
rank = os.environ.get("SLURM_PROCID") or os.environ.get("RANK_ID")
for r in [rank] if rank else range(4 * node, 4 * node + 4):
    name = f"rank_{r}/checkpoint_{r}.ckpt"
    if not filecmp.cmp(f"{words['--load']}/{name}", f"{os.environ['EXPECTED']}/{name}", False):
        sys.exit(f"rank {r} has other bytes")
    open(f"trained/{r}", "x").close()
"""
MSRUN = """
for word; do
    case $word in
    --node_rank=*) node=${word#*=} ;;
    --local_worker_num=*) n=${word#*=} ;;
    esac
done
while case $1 in --*) ;; *) false ;; esac; do shift; done
for i in $(seq 0 $((n - 1))); do
    RANK_ID=$((n * node + i)) python "$@" || exit
done
"""
STANDINS = {
    "python": f'exec {sys.executable} "$@"',
    "train": 'exec python train.py "$@"',
    "msrun": MSRUN,
    "srun": f'exec python {LIB}/srun.py "$@"',
    "sbatch": f'exec python {LIB}/srun.py --batch "$@"',
    "scontrol": "seq -f 127.0.0.%g $SLURM_NNODES",
    "memcached": f'exec {memcached.PROGRAM} -u "$(id -un)" -l "$SLURMD_NODENAME" -p "$PORT" "$@"',
}


def example(title):
    with open(os.path.join(TOP, "man", "reshardfs-scale.7"), encoding="utf-8") as f:
        part = f.read().split(f"\n.Ss {title}\n")[1]
    text = re.search(r"^\.Bd -literal\n(.*?)^\.Ed", part, re.M | re.S)[1]
    return text.replace("\\e", "\\").replace("\\&", "")


def replaced(text, changes):
    for old, new in changes.items():
        check(old in text, f"the example has no {old}")
        text = text.replace(old, new)
    return text


class Place:
    def __init__(self, directory, cluster):
        self.directory, self.cluster = directory, cluster
        self.tmp = os.path.join(directory, "nodes")
        self.trained = os.path.join(directory, "trained")
        write(os.path.join(directory, "train.py"), TRAIN.encode())
        for name, text in STANDINS.items():
            path = write(os.path.join(directory, "bin", name), f"#!/bin/sh\n{text}\n".encode())
            os.chmod(path, 0o755)
        os.environ.update(cluster.environment())
        os.environ.update(
            SOURCE=cluster.source, SRC=cluster.src, DST=cluster.dst, SRUN_TMP=self.tmp,
            EXPECTED=os.path.join(directory, "expected"),
            PATH=":".join([os.path.join(directory, "bin"),
                           os.path.dirname(reshardfs_program()), os.environ["PATH"]]))

    def node(self, number):
        return os.path.join(self.tmp, str(number))

    @contextlib.contextmanager
    def job(self):
        """Within the block it has to train all ranks, and to leave nothing mounted."""
        os.mkdir(self.trained)
        try:
            yield
            found = sorted(os.listdir(self.trained))
            check(found == [str(n) for n in range(RANKS)], found)
            check(not mounts_below(self.directory), mounts_below(self.directory))
        finally:
            for line in mounts_below(self.directory):
                run("umount", "--lazy", line.split()[1])
            shutil.rmtree(self.trained)

    @contextlib.contextmanager
    def scripts(self, *texts, words=("sh",)):
        """They run at the same time, and with the block ends what they have left."""
        ran = []
        try:
            for number, (text, environment) in enumerate(texts):
                path = write(os.path.join(self.directory, f"script{number}"), text.encode())
                with open(path + ".out", "wb") as out:
                    ran.append(subprocess.Popen(
                        [*words, path], cwd=self.directory, start_new_session=True,
                        stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                        env={**os.environ, **environment}))
            for number, process in enumerate(ran):
                said = os.path.join(self.directory, f"script{number}.out")
                status = process.wait(timeout=300 * TIMEOUT_SCALE)
                check(status == 0, content(said).decode())
            yield
        finally:
            for process in ran:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)


def slurm(place):
    port = str(free_port())
    text = replaced(example("Slurm"), {"11211": port, "65536": "64", "--nodes=128": "--nodes=4",
                                       "--ntasks-per-node=8": "--ntasks-per-node=2"})
    with place.job(), place.scripts((text, {"PORT": port}), words=["sbatch"]):
        pass


def msrun(place):
    with Memcached() as servers, place.job():
        texts = [replaced(example("msrun"), {
            "/tmp/ckpt": place.node(n), "8 * NODES": "4 * NODES",
            "local_worker_num=8": "local_worker_num=4"}) for n in range(2)]
        job = {"SERVERS": servers.address, "NODES": "2", "MASTER": "127.0.0.1"}
        with place.scripts(*((text, {**job, "NODE": str(n)}) for n, text in enumerate(texts))):
            pass


def kubernetes(place):
    """What a pod has mounted ends with it."""
    container, = pod_of(example("Kubernetes"))["containers"]
    *shell, command = command_of(container)
    volumes = {mount["mountPath"] for mount in container["volumeMounts"]}
    check(volumes == {"/strategies"}, volumes)
    with Memcached() as servers, place.job():
        texts = [replaced(command, {
            "/tmp/ckpt": place.node(n), "INDEX/16": "INDEX/2", "s3://bucket/run": "s3://bucket/job",
            "/strategies/src.ckpt": '"$SRC"', "/strategies/dst.ckpt": '"$DST"',
            "memcached-0.cache,memcached-1.cache": servers.address}) for n in range(2)]
        with place.scripts(*((text, {"JOB_COMPLETION_INDEX": str(n)})
                             for n, text in enumerate(texts)), words=shell[:1]):
            for n in range(2):
                check(run("umount", place.node(n)).status == 0, "it is not mounted")


class Actor:
    """What Ray makes of an object: its method is called in a thread."""

    def __init__(self, made, pool):
        self.train = types.SimpleNamespace(
            remote=lambda *words, **options: pool.submit(made.train, *words, **options))


def ray(place):
    def run_ranks(node, rank):
        mount = os.path.dirname(os.path.dirname(rank(0)))
        subprocess.run(["train", "--node", str(node), "--load", mount],
                       check=True, cwd=place.directory)

    def quiet(*words, **options):
        subprocess.run(*words, stdout=subprocess.DEVNULL, **options)

    def remote(**_):
        return lambda kind: types.SimpleNamespace(remote=lambda: Actor(kind(), pool))

    with Memcached() as servers, place.job(), \
            concurrent.futures.ThreadPoolExecutor(2) as pool:
        exec(example("Ray"), {  # pylint: disable=exec-used
            "ray": types.SimpleNamespace(remote=remote,
                                         get=lambda work: [w.result() for w in work]),
            "reshardfs": reshardfs, "run_ranks": run_ranks,
            "subprocess": types.SimpleNamespace(run=quiet),
            "SOURCE": place.cluster.source, "SRC": place.cluster.src,
            "DST": place.cluster.dst, "SERVERS": servers.address, "N": 2})


CASES = [slurm, msrun, kubernetes, ray]


def main():
    require_mount()
    if "built without" in run("ls", "s3://bucket/x").err:
        skip_all("built without object storage")
    if not memcached.PROGRAM:
        skip_all("there is no memcached")
    if "built without" in run("mount", "--cache-servers", "x", "/", "/").err:
        skip_all("built without memcached")
    tap = Tap(len(CASES))
    with tempfile.TemporaryDirectory(prefix="reshardfs-examples-") as directory, \
            Cluster(directory, Shape("dp4mp2_opt", "dp2mp4", nodes=RANKS)) as cluster:
        place = Place(directory, cluster)
        for case in CASES:
            with tap.test(f"the example for {case.__name__}"):
                case(place)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
