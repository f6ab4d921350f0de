#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Slurm's srun, and with --batch its sbatch, as far as the examples of the manuals go, on
one machine.

As with the real one, a step has as many tasks as the job, unless it says --ntasks,
whatever it says of --ntasks-per-node; and when its tasks have ended, what else is left
of it is killed, as by control groups.  Nodes are 127.0.0.1 and those that follow; what
the command says of /tmp/ckpt is said of SRUN_TMP and the node's number instead.  A job has
the nodes and tasks of the #SBATCH lines at the begin of its script.
"""

import argparse
import ctypes
import os
import shlex
import signal
import subprocess
import sys

from reap import PR_SET_CHILD_SUBREAPER, child


def options():
    o = argparse.ArgumentParser()
    o.add_argument("--overlap", action="store_true")
    o.add_argument("--nodelist")
    o.add_argument("--nodes", type=int, default=os.environ.get("SLURM_NNODES", 1))
    o.add_argument("--ntasks", "-n", type=int, default=os.environ.get("SLURM_NTASKS", 1))
    o.add_argument("--ntasks-per-node")
    o.add_argument("words", nargs=argparse.REMAINDER)
    return o.parse_args()


def start(o, rank):
    node = rank // (o.ntasks // o.nodes)
    tmp = os.path.join(os.environ.get("SRUN_TMP", "/tmp"), str(node))
    return subprocess.Popen([word.replace("/tmp/ckpt", tmp) for word in o.words],
                            env={**os.environ, "SLURM_PROCID": str(rank),
                                 "SLURM_NODEID": str(node), "SLURM_NNODES": str(o.nodes),
                                 "SLURM_NTASKS": str(o.ntasks),
                                 "SLURMD_NODENAME": f"127.0.0.{node + 1}"})


def kill_the_rest():
    """Orphans are children of this process, each after its parent."""
    while (pid := child()) != "none":
        os.kill(int(pid), signal.SIGKILL)
        os.wait()


def batch(script):
    """Runs a job on the first of its nodes."""
    with open(script, encoding="utf-8") as f:
        lines = [line.split(maxsplit=1)[1] for line in f if line.startswith("#SBATCH ")]
    o = argparse.ArgumentParser(prog="sbatch")
    o.add_argument("--nodes", type=int, required=True)
    o.add_argument("--ntasks-per-node", type=int, required=True)
    o = o.parse_args(shlex.split(" ".join(lines)))
    os.environ.update(SLURM_NNODES=str(o.nodes), SLURM_NTASKS=str(o.nodes * o.ntasks_per_node),
                      SLURM_JOB_NODELIST=f"n[1-{o.nodes}]")
    os.execlp("bash", "bash", script)


def main():
    if sys.argv[1] == "--batch":
        batch(sys.argv[2])
    o = options()
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    tasks = [start(o, rank) for rank in range(o.ntasks)]
    status = max(abs(task.wait()) for task in tasks)
    kill_the_rest()
    return status


if __name__ == "__main__":
    sys.exit(main())
