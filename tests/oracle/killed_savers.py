#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mount --steps all of real savers that are killed at random moments.

MindSpore's ModelCheckpoint saves on two ranks that do not wait for each other, and
torch.distributed.checkpoint.save() into directories that are used again and again.  After
each kill, and while they save, each step that is shown has the tensors of one save, bit
for bit, and each save that has returned is shown.

    killed_savers.py [--kills N] [--seed S]     the test
    killed_savers.py mindspore|torch DIRECTORY  what the other Python does for it

The saver forks a child for each trial, which it kills, so that a framework is imported
once.
"""

import argparse
import errno
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), HERE]

from demands import check  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402
from run_seed import run_seed  # noqa: E402
from safetensors_format import Tensors  # noqa: E402

PYTHONS = {"mindspore": "RSH_ORACLE_PYTHON", "torch": "RSH_HF_PYTHON"}
SHAPES = {"w": (96, 256), "b": (40,), "v": (128, 64)}
RANKS = 2
STEPS_KEPT = 3
TORCH_STEPS = 4  # directories that are used again
SAVES = 12       # of a child, if it is not killed


# ---- under another Python ----

def elements(shape):
    n = 1
    for d in shape:
        n *= d
    return n


class MindSpore:
    def __init__(self):
        os.environ["GLOG_v"] = "4"
        import mindspore
        import numpy
        from mindspore import nn
        from mindspore.train import CheckpointConfig, ModelCheckpoint
        self.numpy, self.mindspore = numpy, mindspore
        self.checkpoint, self.config = ModelCheckpoint, CheckpointConfig

        class Net(nn.Cell):
            def __init__(self):
                super().__init__()
                for name, shape in SHAPES.items():
                    setattr(self, name, mindspore.Parameter(mindspore.Tensor(
                        numpy.zeros(shape, numpy.float32)), name=name))
        self.net = Net

    def save(self, directory, first, done):
        """Two ranks; a step is done when both have saved it."""
        children = [os.fork() for _ in range(RANKS - 1)]
        rank = 0 if all(children) else 1
        net = self.net()
        place = types.SimpleNamespace(
            train_network=net, network=net, epoch_num=1, batch_num=1 << 30, cur_epoch_num=1,
            cur_step_num=0, net_outputs=None, optimizer=None)
        place.get = lambda key, default=None: getattr(place, key, default)
        callback = self.checkpoint(
            prefix="net", directory=os.path.join(directory, f"rank_{rank}"),
            config=self.config(save_checkpoint_steps=1, keep_checkpoint_max=STEPS_KEPT,
                               integrated_save=False))
        context = types.SimpleNamespace(original_args=lambda: place)
        for step in range(first, first + SAVES):
            for name, shape in SHAPES.items():
                getattr(net, name).set_data(self.mindspore.Tensor(
                    self.numpy.full(shape, step, self.numpy.float32)))
            place.cur_step_num = step
            callback.step_end(context)
            done(f"{rank} {step}")
        for child in children:
            if child:
                os.waitpid(child, 0)


class Torch:
    def __init__(self):
        import torch
        import torch.distributed.checkpoint as dcp
        self.torch, self.dcp = torch, dcp
        torch.set_num_threads(1)

    def save(self, directory, first, done):
        for number in range(first, first + SAVES):
            state = {name: self.torch.full(shape, float(number))
                     for name, shape in SHAPES.items()}
            name = f"step-{number % TORCH_STEPS}"
            self.dcp.save(state, no_dist=True, storage_writer=self.dcp.FileSystemWriter(
                os.path.join(directory, name), single_file_per_rank=False, thread_count=2))
            done(f"{name} {number}")
            time.sleep(0.02)  # the job computes


def serve(kind, directory):
    """Each line is the first step of a trial, and after how many seconds it is killed.
    The answer is what its children have done."""
    saver = {"mindspore": MindSpore, "torch": Torch}[kind]()
    print("ready", flush=True)
    for line in sys.stdin:
        first, seconds = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            os.setpgid(0, 0)
            saver.save(directory, first, lambda text: os.write(write, f"{text}\n".encode()))
            os._exit(0)
        os.close(write)
        time.sleep(seconds)
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        os.waitpid(child, 0)
        with open(read, encoding="ascii") as f:
            print(json.dumps(f.read().splitlines()), flush=True)


# ---- the test ----

class Saver:
    def __init__(self, kind, directory):
        self.process = subprocess.Popen(
            [os.environ[PYTHONS[kind]], os.path.abspath(__file__), kind, directory],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer("ready")

    def _answer(self, wanted=None):
        """The frameworks write to the same stream."""
        while True:
            line = self.process.stdout.readline()
            check(line, "the saver has ended")
            if line.strip() == wanted or (not wanted and line.startswith("[")):
                return line

    def begin(self, first, seconds):
        self.process.stdin.write(json.dumps([first, seconds]) + "\n")
        self.process.stdin.flush()

    def end(self):
        return json.loads(self._answer())

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def number_in(values):
    """The number that all elements of all tensors have."""
    found = set()
    for name, shape in SHAPES.items():
        data = values[name]
        check(len(data) == 4 * elements(shape), f"{name} has {len(data)} bytes")
        found.update(struct.unpack(f"<{elements(shape)}f", data))
    check(len(found) == 1, f"elements of several saves: {sorted(found)[:5]}")
    return int(found.pop())


def ranks_of(path):
    found = set()
    for rank in range(RANKS):
        at = os.path.join(path, f"rank_{rank}")
        values = read_checkpoint(os.path.join(at, os.listdir(at)[0]))
        found.add(number_in({name: values[name].content for name in SHAPES}))
    check(len(found) == 1, f"files of several saves: {found}")
    return found.pop()


def model_of(path):
    values = {}
    for name in os.listdir(path):
        if name.endswith(".safetensors"):
            with open(os.path.join(path, name), "rb") as f:
                values.update(Tensors(f.read()).values())
    return number_in({name: values[name][2] for name in SHAPES})


class Trial:
    """One saver and the mount of its directory."""

    def __init__(self, kind, mount, directory):
        self.kind, self.mount, self.directory = kind, mount, directory
        self.next = 1

    def read(self, name):
        """The number of the save that a step shows, or None if it has gone."""
        path = os.path.join(self.mount.path, name)
        try:
            # What was opened stays of its step.
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return None
        try:
            here = f"/proc/self/fd/{fd}"
            return ranks_of(here) if self.kind == "mindspore" else model_of(here)
        except OSError as error:
            check(error.errno in (errno.ESTALE, errno.ENOENT), f"{name}: {error}")
            return None
        finally:
            os.close(fd)

    def look(self):
        for name in os.listdir(self.mount.path):
            if name != "latest":
                number = self.read(name)
                check(self.kind == "torch" or number in (None, int(name.split("_")[1])),
                      f"{name} shows save {number}")

    def saved(self, lines):
        """{step: number} of the saves that have returned and have not been removed."""
        if self.kind == "mindspore":
            done = [set() for _ in range(RANKS)]
            for rank, step in (map(int, line.split()) for line in lines):
                done[rank].add(step)
            both = set.intersection(*done)
            last = max(set().union(*done), default=0)
            # The file of the next save is written after the oldest one is removed.
            return {f"1_{s}": s for s in both if s > last + 1 - STEPS_KEPT}
        last = {}
        for line in lines:
            name, number = line.split()
            last[name] = int(number)
        # The next save may have begun to overwrite an older one.
        newest = max(last.values(), default=0)
        return {name: n for name, n in last.items() if n > newest + 1 - TORCH_STEPS}

    def kill_once(self, saver, rng, longest):
        first, seconds = self.next, rng.uniform(0.005, longest)
        self.next += SAVES
        saver.begin(first, seconds)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
        lines = saver.end()
        # The mount looks at the source when a name is not there.
        os.path.exists(os.path.join(self.mount.path, "absent"))
        for name, number in self.saved(lines).items():
            found = self.read(name)
            check(found == number, f"{name}: save {number} has returned, and {found} is "
                  f"shown\n{self.status(name)}")
        self.look()
        return len(lines)

    def status(self, name):
        with open(os.path.join(self.mount.path, ".reshardfs", "steps"), encoding="utf-8") as f:
            return [s for s in json.load(f)["steps"] if s["name"] == name]


def kill_savers(kind, kills, seed, tap):
    rng = random.Random(f"{seed} {kind}")
    with tempfile.TemporaryDirectory(prefix="reshardfs-killed-") as directory:
        extra = ["--steps", "all", "--steps-interval", "1"]
        if kind == "mindspore":
            extra += ["--dst-ranks", str(RANKS)]
        saver = Saver(kind, directory)
        try:
            with Mounted(directory, extra=extra, described=kind == "torch") as mount:
                trial = Trial(kind, mount, directory)
                saves = sum(trial.kill_once(saver, rng, 0.6) for _ in range(kills))
        finally:
            saver.close()
        check(saves >= kills, f"only {saves} saves in {kills} trials")
        tap.diag(f"{kind}: {kills} kills, {saves} saves")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, default=int(os.environ.get("RSH_KILLS", "15")))
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    seed = run_seed() if options.seed is None else options.seed
    require_mount()
    tap = Tap(len(PYTHONS))
    tap.diag(f"--seed {seed} --kills {options.kills}")
    for kind, variable in PYTHONS.items():
        title = f"{kind} is killed at random moments"
        if not os.environ.get(variable):
            tap.skip(title, f"{variable} does not name a Python")
            continue
        with tap.test(title):
            kill_savers(kind, options.kills, seed, tap)
    return tap.finish()


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in PYTHONS:
        serve(*sys.argv[1:])
    else:
        sys.exit(main())
