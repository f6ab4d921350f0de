#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training that goes on from a mount as if nothing had happened.

The small GPT of the gpt strategy sets is trained for some steps with MindSpore
and saved.  The converter makes the tree of an 8-card job of it, under a
strategy that MindSpore planned for this network.  That tree is mounted for
other numbers of cards and used as a user would: rank files go through
load_checkpoint, the whole model into the network, and two workers of a data
parallel job started by msrun each load their own.  The Python module loads the
tree without a mount, by parameters and straight into the network.  Whatever the
way, the losses must go on as from the original checkpoint, to the last bit.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib"), os.path.join(HERE, "..", "..", "python")]
import rsh_mount  # noqa: E402
from memcached import free_port  # noqa: E402

STEPS = 4
SOURCE = "dp4mp2_opt"
# A smaller job, one with pipeline stages, one in no multiple relation.
DESTINATIONS = ("dp2mp2", "pp4mp2", "dp6mp4")
WORKERS = 2
WORKER_LIMIT = 300


def rank_file(root, rank):
    return os.path.join(root, f"rank_{rank}", f"checkpoint_{rank}.ckpt")


class Job:
    """The original training, its checkpoint and its 8-card tree."""

    def __init__(self, work):
        import mindspore
        import train_gpt
        from genuine_sets import GenuineSet
        self.ms, self.gpt, self.new_set = mindspore, train_gpt, GenuineSet
        self.work = work
        self.original = os.path.join(work, "original", "rank_0", "gpt-1_4.ckpt")
        self.tree = os.path.join(work, "tree")
        self.source = GenuineSet(SOURCE, work)

    def train(self):
        """Train, save, and go on without a break: the losses to repeat."""
        step = self.step = self.gpt.new_training()
        self.gpt.train(step, 0, STEPS)
        os.makedirs(os.path.dirname(self.original))
        self.ms.save_checkpoint(step, self.original,
                                append_dict={"epoch_num": 1, "step_num": STEPS})
        self.losses = self.gpt.train(step, STEPS, STEPS)
        self.whole = self.arrays(self.original)
        self.ms.transform_checkpoints(os.path.join(self.work, "original"), self.tree,
                                      "checkpoint_", None, self.source.file())

    def arrays(self, path, **options):
        """{name: array} as load_checkpoint gives it."""
        return {name: parameter.asnumpy()
                for name, parameter in self.ms.load_checkpoint(path, **options).items()}

    def resume(self, parameters):
        """The losses of the same network, which is compiled already."""
        self.gpt.resume(self.step, parameters)
        return self.gpt.train(self.step, STEPS, STEPS)

    def mounted(self, destination):
        """A mount of the 8-card tree for a strategy file or None."""
        return rsh_mount.Mounted(self.tree, src_strategy=self.source.file(),
                                 dst_strategy=destination)


def equal_arrays(expected, found):
    """What differs between {name: array}, [] if nothing."""
    wrong = [f"{name}: only on one side" for name in set(expected) ^ set(found)]
    for name in set(expected) & set(found):
        a, b = expected[name], found[name]
        if (a.dtype, a.shape, a.tobytes()) != (b.dtype, b.shape, b.tobytes()):
            wrong.append(f"{name}: {a.dtype} {a.shape} and {b.dtype} {b.shape}, "
                         "or other values")
    return wrong


def demand(wrong):
    wrong = sorted(wrong)
    if wrong:
        raise AssertionError("; ".join(wrong))


def check_original(tap, job):
    """The oracle's own test: losses repeat, and would show a lost state."""
    tap.equal(job.resume(job.ms.load_checkpoint(job.original)), job.losses,
              "the original checkpoint goes on exactly")
    spoilt = job.ms.load_checkpoint(job.original)
    name = "adam_m.blocks.2.up.bias"
    rows = spoilt[name].asnumpy()
    spoilt[name].set_data(job.ms.Tensor(rows.reshape(2, -1)[::-1].reshape(rows.shape)))
    tap.ok(job.resume(spoilt) != job.losses,
           "two slices of one optimizer state in the wrong order show")


def check_whole(tap, job):
    with job.mounted(None) as mount:
        path = rank_file(mount.path, 0)
        for crc in (True, False):
            with tap.test(f"whole tensors, load_checkpoint with crc_check={crc}"):
                demand(equal_arrays(expected_whole(job), job.arrays(path, crc_check=crc)))
        tap.equal(job.resume(job.ms.load_checkpoint(path)), job.losses,
                  "the network goes on from the whole tensors of the mount")


def expected_whole(job):
    # The converter makes shape (1,) of a scalar on its way into the tree.
    tree = job.arrays(rank_file(job.tree, 0))
    return {name: array.reshape(tree[name].shape) if array.size == 1 else array
            for name, array in job.whole.items()}


def check_ranks(tap, job, name):
    """Every rank file of a mount: the parts of what was trained."""
    destination = job.new_set(name, job.work)
    whole = expected_whole(job)
    with job.mounted(destination.file()) as mount:
        for crc in (True, False):
            with tap.test(f"{name}: every rank file, load_checkpoint with crc_check={crc}"):
                for stage in destination.stages:
                    for local in range(destination.device_count):
                        rank = stage * destination.device_count + local
                        found = job.arrays(rank_file(mount.path, rank), crc_check=crc)
                        expected = {p: array if not destination.listed(p) else
                                    array[destination.region(stage, p, local)]
                                    for p, array in whole.items()
                                    if not destination.listed(p)
                                    or p in destination.stages[stage]}
                        demand(f"rank {rank}: {line}"
                               for line in equal_arrays(expected, found))


def check_converter_reads(tap, job):
    """MindSpore's tools take the mount for the checkpoint of a 4-card job."""
    destination = job.new_set("dp2mp2", job.work)
    target = os.path.join(job.work, "back")
    with job.mounted(destination.file()) as mount:
        job.ms.transform_checkpoints(mount.path, target, "checkpoint_",
                                     destination.file(), None)
    tap.equal(job.resume(job.ms.load_checkpoint(rank_file(target, 0))), job.losses,
              "the network goes on from what the converter makes of a 4-card mount")


def check_module(tap, job):
    """The tree goes into the network without a mount."""
    os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(rsh_mount.reshardfs_program()),
                                            ".libs", "libreshard.so.0")
    import reshardfs
    options = {"src_strategy": job.source.file(), "dst_strategy": "none"}
    tap.equal(job.resume(reshardfs.load_checkpoint(job.tree, 0, **options)), job.losses,
              "the network goes on from parameters of the module")
    step = job.gpt.new_training()
    with tap.test("a load into the network sets all that it has"):
        found = reshardfs.load_checkpoint(job.tree, 0, step, **options)
        demand({p.name for p in step.get_parameters()} ^ set(found))
    tap.equal(job.gpt.train(step, STEPS, STEPS), job.losses,
              "the network goes on after the module's load into it")
    future = reshardfs.load_checkpoint_async(job.tree, 0, step, **options)
    future.result()
    tap.equal(job.gpt.train(step, STEPS, STEPS), job.losses,
              "and once more, when it is loaded after it was trained")


def data_parallel_strategy(job):
    """The strategy of a data parallel job of our workers: nothing is split."""
    from ms_formats import Layout, StageFile, strategy_bytes
    layouts = {name: Layout([WORKERS], [-1] * len(shape))
               for name, shape in job.source.shapes.items() if job.source.listed(name)}
    path = os.path.join(job.work, "data_parallel.ckpt")
    with open(path, "wb") as f:
        f.write(strategy_bytes(StageFile(0, layouts)))
    return path


def msrun(job, checkpoints):
    """The losses of each worker of a data parallel job from each checkpoint."""
    folder = os.path.join(job.work, "workers")
    logs = os.path.join(folder, "log")
    losses = os.path.join(folder, "losses_{rank}.json")
    os.makedirs(folder)
    bin_dir = os.path.dirname(sys.executable)
    command = [os.path.join(bin_dir, "msrun"), f"--worker_num={WORKERS}",
               f"--local_worker_num={WORKERS}", "--master_addr=127.0.0.1",
               f"--master_port={free_port()}", f"--log_dir={logs}", "--join=True",
               os.path.join(HERE, "train_gpt.py"), "--first", str(STEPS),
               "--steps", str(STEPS), "--losses", losses]
    for path in checkpoints:
        command += ["--checkpoint", path]
    env = {**os.environ, "PATH": bin_dir + os.pathsep + os.environ["PATH"]}
    done = subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=WORKER_LIMIT * rsh_mount.TIMEOUT_SCALE,
                          check=False)
    result = []
    for worker in range(WORKERS):
        try:
            with open(losses.format(rank=worker), encoding="utf-8") as f:
                result.append(json.load(f))
        except FileNotFoundError:
            raise AssertionError(f"worker {worker} did not finish, msrun ended with "
                                 f"{done.returncode}\n{done.stdout}\n"
                                 + worker_log(logs, worker)) from None
    for worker, said in enumerate(result):
        if said["workers"] != WORKERS or said["checkpoints"] != [
                path.format(rank=worker) for path in checkpoints]:
            raise AssertionError(f"worker {worker} was another job: {said}")
    return [said["losses"] for said in result]


def worker_log(logs, worker):
    try:
        with open(os.path.join(logs, f"worker_{worker}.log"), encoding="utf-8",
                  errors="replace") as f:
            return "".join(f.readlines()[-30:])
    except FileNotFoundError:
        return "no log"


def check_workers(tap, job):
    with job.mounted(data_parallel_strategy(job)) as mount:
        losses = msrun(job, [job.original, rank_file(mount.path, "{rank}")])
    for worker, (expected, found) in enumerate(losses):
        tap.equal(found, expected,
                  f"worker {worker} of msrun goes on from its own rank_{worker}")
    tap.ok(losses[0][0] != losses[1][0], "each worker had its own share of the data")


def main():
    rsh_mount.require_oracle()
    rsh_mount.require_mount()
    tap = rsh_mount.Tap(2 + 3 + 2 * len(DESTINATIONS) + 1 + 4 + WORKERS + 1)
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="reshardfs-train-") as work:
        job = Job(work)
        job.train()
        tap.diag("losses: " + " ".join(f"{float.fromhex(x):.6f}" for x in job.losses))
        check_original(tap, job)
        check_whole(tap, job)
        for name in DESTINATIONS:
            check_ranks(tap, job, name)
        check_converter_reads(tap, job)
        check_module(tap, job)
        check_workers(tap, job)
    tap.diag(f"{time.monotonic() - started:.0f} s")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
