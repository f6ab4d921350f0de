#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mount --steps all of real savers that are killed at random moments.

    mindspore    ModelCheckpoint, on two ranks that do not wait for each other
    mindformers  save_checkpoint() of Checkpoint 2.0, on two ranks with a barrier
    torch        torch.distributed.checkpoint.save() into directories that are used again
    async        the same with async_save()
    trainer      transformers' Trainer, with save_total_limit
    megatron     Megatron-Core's dist_checkpointing.save() and its tracker file

After each kill, and while they save, each step that is shown has the tensors of one save,
bit for bit, and each save that has returned is shown.

    killed_savers.py [--kills N] [--seed S] [--only KIND,...]  the test
    killed_savers.py KIND DIRECTORY               what the other Python does for it

The saver forks a child for each trial, which it kills, so that a framework is imported
once.  RSH_ACCELERATE names a directory with accelerate and psutil, which the Trainer and
Megatron-Core need, if RSH_HF_PYTHON has none.
"""

import argparse
import errno
import json
import math
import multiprocessing
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), HERE]

from demands import check, content, write  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402
from run_seed import run_seed  # noqa: E402
from safetensors_format import Tensors  # noqa: E402

PYTHONS = {
    "mindspore": "RSH_ORACLE_PYTHON", "mindformers": "RSH_ORACLE_PYTHON",
    "torch": "RSH_HF_PYTHON", "async": "RSH_HF_PYTHON", "trainer": "RSH_HF_PYTHON",
    "megatron": "RSH_HF_PYTHON",
}
SLOWER = {"mindformers": 2, "async": 2, "trainer": 3, "megatron": 5}
REUSE = ("torch", "async")  # these save into the same directories again
SHAPES = {"w": (96, 256), "b": (40,), "v": (128, 64)}
CUTS = {"w": 0, "b": None, "v": 1}  # the dimension that two ranks of mindformers cut
RANKS = 2
STEPS_KEPT = 3
TORCH_STEPS = 4  # directories that are used again
SAVES = 12       # of a child, if it is not killed
TRIALS = 8       # times as many as are to be killed, if they have saved too little


# ---- under another Python ----

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


class Mindformers:
    def __init__(self):
        os.environ["GLOG_v"] = "4"
        import mindformers_loader
        import mindspore
        import numpy
        from checkpoint2_trees import Parameter
        mindformers_loader.import_writer()
        self.loader, self.numpy, self.mindspore = mindformers_loader, numpy, mindspore
        self.parameters = {
            name: Parameter(shape, "Float32", [RANKS],
                            [0 if i == CUTS[name] else -1 for i in range(len(shape))],
                            list(range(RANKS)))
            for name, shape in SHAPES.items()}

    def save(self, directory, first, done):
        barrier = multiprocessing.get_context("fork").Barrier(RANKS)
        rank = 0 if os.fork() else 1
        writer = self.loader.Writer(rank, self.parameters, barrier.wait)
        for step in range(first, first + SAVES):
            for parameter in writer.cell.get_parameters():
                parameter.set_data(self.mindspore.Tensor(self.numpy.full(
                    parameter.shape, step, self.numpy.float32)))
            writer.save(directory, step, STEPS_KEPT)
            if rank == 0:
                done(f"iteration_{step:08d} {step}")
        if rank == 0:
            os.wait()


class Torch:
    def __init__(self):
        sys.path.append(os.environ.get("RSH_ACCELERATE", ""))
        import torch
        import torch.distributed.checkpoint as dcp
        self.torch, self.dcp = torch, dcp
        torch.set_num_threads(1)

    def state(self, number):
        return {name: self.torch.full(shape, float(number)) for name, shape in SHAPES.items()}

    def write(self, state, path):
        self.dcp.save(state, no_dist=True, storage_writer=self.dcp.FileSystemWriter(
            path, single_file_per_rank=False, thread_count=2))

    def save(self, directory, first, done):
        for number in range(first, first + SAVES):
            name = f"step-{number % TORCH_STEPS}"
            self.write(self.state(number), os.path.join(directory, name))
            done(f"{name} {number}")
            time.sleep(0.02)  # the job computes


class Async(Torch):
    """The job goes on while a thread saves, and waits before the next save."""

    def save(self, directory, first, done):
        last, running = None, None
        for number in range(first, first + SAVES):
            state = self.state(number)
            time.sleep(0.02)
            if running:
                running.result()
                done(last)
            last = f"step-{number % TORCH_STEPS} {number}"
            running = self.dcp.async_save(state, storage_writer=self.dcp.FileSystemWriter(
                os.path.join(directory, last.split()[0]), single_file_per_rank=False,
                thread_count=2))
        running.result()
        done(last)


class Trainer(Torch):
    def __init__(self):
        super().__init__()
        import transformers
        transformers.logging.set_verbosity_error()
        self.transformers = transformers
        torch = self.torch

        class Model(transformers.PreTrainedModel):
            config_class = transformers.PretrainedConfig

            def __init__(self, config):
                super().__init__(config)
                for name, shape in SHAPES.items():
                    setattr(self, name, torch.nn.Parameter(torch.zeros(shape)))
                self.post_init()

            def _init_weights(self, module):
                pass

            def forward(self, x=None):
                return {"loss": sum(getattr(self, n).sum() for n in SHAPES) * x.sum()}

        class Steps(transformers.TrainerCallback):
            """Steps count from `first`, and each gives all weights its number."""

            def on_train_begin(self, args, state, control, **more):
                state.global_step = self.first - 1

            def on_step_end(self, args, state, control, model=None, **more):
                for parameter in model.parameters():
                    parameter.data.fill_(state.global_step)

            def on_save(self, args, state, control, **more):
                self.done(f"checkpoint-{state.global_step} {state.global_step}")

        self.model, self.steps = Model, Steps

    def save(self, directory, first, done):
        steps = self.steps()
        steps.first, steps.done = first, done
        self.transformers.Trainer(
            model=self.model(self.transformers.PretrainedConfig()),
            args=self.transformers.TrainingArguments(
                output_dir=directory, max_steps=first + SAVES - 1, save_steps=1,
                save_total_limit=STEPS_KEPT, per_device_train_batch_size=1,
                report_to=[], disable_tqdm=True, use_cpu=True, logging_strategy="no",
                learning_rate=0.0),
            train_dataset=[{"x": self.torch.ones(1)}] * (2 * SAVES), callbacks=[steps]).train()


class Megatron(Torch):
    def __init__(self):
        super().__init__()
        from megatron.core import dist_checkpointing
        from megatron.core.dist_checkpointing import ShardedTensor
        self.saver, self.tensor = dist_checkpointing, ShardedTensor
        # It asks for a device, and a child cannot use one.
        self.torch.cuda.synchronize = lambda: None
        self.torch.cuda.current_device = lambda: "cpu"

    def save(self, directory, first, done):
        self.torch.distributed.init_process_group(
            "gloo", rank=0, world_size=1, store=self.torch.distributed.HashStore())
        for number in range(first, first + SAVES):
            path = os.path.join(directory, f"iter_{number:07d}")
            os.mkdir(path)
            self.saver.save({name: self.tensor.from_rank_offsets(name, value)
                             for name, value in self.state(number).items()}, path)
            # As Megatron's training/checkpointing.py does.
            write(os.path.join(directory, "latest_checkpointed_iteration.txt"),
                  str(number).encode())
            done(f"iter_{number:07d} {number}")
            shutil.rmtree(os.path.join(directory, f"iter_{number - STEPS_KEPT + 1:07d}"),
                          ignore_errors=True)


def clean(directory, first):
    """Removes the steps of earlier trials but the last ones, as an operator does."""
    for folder, below, files in list(os.walk(directory)):
        for name in below + files:
            number = int((re.findall(r"\d+", name) or [first])[-1])
            if folder == directory and name.startswith("rank_") or number >= first - SAVES:
                continue
            path = os.path.join(folder, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif folder != directory and os.path.basename(folder).startswith("rank_"):
                os.unlink(path)


def serve(kind, directory):
    """Each line is the first step of a trial, and after how many seconds it is killed;
    null: it is not.  The answer is what its children have done."""
    saver = {"mindspore": MindSpore, "mindformers": Mindformers, "torch": Torch,
             "async": Async, "trainer": Trainer, "megatron": Megatron}[kind]()
    print("ready", flush=True)
    for line in sys.stdin:
        first, seconds = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            os.setpgid(0, 0)
            if kind not in REUSE:
                clean(directory, first)
            saver.save(directory, first, lambda text: os.write(write, f"{text}\n".encode()))
            os._exit(0)
        os.close(write)
        if seconds:
            time.sleep(seconds)
        else:
            os.waitpid(child, 0)
        try:
            os.killpg(child, signal.SIGKILL)
        except ProcessLookupError:
            pass
        if seconds:
            os.waitpid(child, 0)
        lines = content(read).decode().splitlines()
        print("saved " + json.dumps(lines), flush=True)


# ---- the test ----

class Saver:
    def __init__(self, kind, directory):
        self.process = subprocess.Popen(
            [os.environ[PYTHONS[kind]], os.path.abspath(__file__), kind, directory],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._answer("ready")

    def _answer(self, wanted):
        """The frameworks write to the same stream."""
        while True:
            line = self.process.stdout.readline()
            check(line, "the saver has ended")
            if line.startswith(wanted):
                return line.removeprefix(wanted)

    def begin(self, first, seconds):
        self.process.stdin.write(json.dumps([first, seconds]) + "\n")
        self.process.stdin.flush()

    def end(self):
        return json.loads(self._answer("saved "))

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


def number_in(values):
    """The number that all elements of all tensors have."""
    found = set()
    for name, shape in SHAPES.items():
        data = values[name]
        check(len(data) == 4 * math.prod(shape), f"{name} has {len(data)} bytes")
        found.update(struct.unpack(f"<{math.prod(shape)}f", data))
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
            values.update(Tensors(content(os.path.join(path, name))).values())
    return number_in({name: values[name][2] for name in SHAPES})


def number_of(name):
    return int(re.findall(r"\d+", name)[-1])


class Trial:
    """One saver and the mount of its directory."""

    def __init__(self, kind, mount, directory):
        self.kind, self.mount, self.directory = kind, mount, directory
        self.next = 1
        self.seen = 0  # steps that were read

    def read(self, name):
        """The number of the save that a step shows, or None if it has gone."""
        path = os.path.join(self.mount.path, name)
        try:
            # What was opened stays of its step.
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            # The files of a step can change before its directory is open.
            check(error.errno in (errno.ESTALE, errno.ENOENT), f"{name}: {error}")
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
                check(self.kind in REUSE or number in (None, number_of(name)),
                      f"{name} shows save {number}")
                self.seen += number is not None

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
        # The next save may have begun to overwrite or to remove an older one.
        newest = max(last.values(), default=0)
        kept = TORCH_STEPS if self.kind in REUSE else STEPS_KEPT
        return {name: n for name, n in last.items() if n > newest + 1 - kept}

    def save_all(self, saver):
        """One trial without a kill.  Returns how long it takes."""
        begun = time.monotonic()
        saver.begin(self.next, None)
        self.next += SAVES
        lines = saver.end()
        taken = time.monotonic() - begun
        self.check_saved(lines)
        return taken

    def kill_once(self, saver, rng, longest):
        first, seconds = self.next, rng.uniform(0.005, longest)
        self.next += SAVES
        saver.begin(first, seconds)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
        lines = saver.end()
        self.check_saved(lines)
        return len(lines)

    def check_saved(self, lines):
        """What has returned is shown, and nothing else."""
        # The mount looks at the source when a name is not there.
        os.path.exists(os.path.join(self.mount.path, "absent"))
        for name, number in self.saved(lines).items():
            found = self.read(name)
            check(found == number, f"{name}: save {number} has returned, and {found} is "
                  f"shown\n{self.status(name)}")
        self.look()

    def status(self, name):
        with open(os.path.join(self.mount.path, ".reshardfs", "steps"), encoding="utf-8") as f:
            return [s for s in json.load(f)["steps"] if s["name"] == name]


def kill_savers(kind, kills, seed, tap):
    rng = random.Random(f"{seed} {kind}")
    with tempfile.TemporaryDirectory(prefix="reshardfs-killed-") as directory:
        extra = ["--steps", "all", "--steps-interval", "1"]
        extra += ["--dst-ranks", str(RANKS)] if kind == "mindspore" else ["--format", "hf"]
        saver = Saver(kind, directory)
        try:
            with Mounted(directory, extra=extra, described=kind != "mindspore") as mount:
                trial = Trial(kind, mount, directory)
                longest = trial.save_all(saver)
                saves = trials = 0
                # A slower machine may save little before it is killed.
                while trials < kills or (trials < TRIALS * kills and (
                        2 * saves < kills or trial.seen < kills)):
                    saves += trial.kill_once(saver, rng, longest)
                    trials += 1
        finally:
            saver.close()
        check(2 * saves >= kills, f"only {saves} saves in {trials} trials")
        check(trial.seen >= kills, f"only {trial.seen} steps were read in {trials} trials")
        tap.diag(f"{kind}: {trials} kills, {saves} saves, {trial.seen} steps were read while "
                 f"the job saved or after it")


def lacks(kind):
    """Why a kind cannot be tried; None: it can."""
    python = os.environ.get(PYTHONS[kind])
    if not python:
        return f"{PYTHONS[kind]} does not name a Python"
    if kind == "mindformers" and not os.environ.get("RSH_MINDFORMERS"):
        return "RSH_MINDFORMERS does not name a directory of mindformers"
    needs = {"trainer": "transformers, accelerate", "megatron": "megatron.core, psutil"}.get(kind)
    if not needs:
        return None
    found = subprocess.run(
        [python, "-c", "import os, sys; sys.path.append(os.environ.get('RSH_ACCELERATE', ''))\n"
         f"import {needs}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
    return f"{PYTHONS[kind]} does not name a Python with {needs}" if found.returncode else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kills", type=int, help="of each kind (default: 15, and fewer of "
                        "slow ones)", default=int(os.environ.get("RSH_KILLS", "0")))
    parser.add_argument("--seed", type=int)
    parser.add_argument("--only", default=",".join(PYTHONS))
    options = parser.parse_args()
    seed = run_seed() if options.seed is None else options.seed
    require_mount()
    kinds = options.only.split(",")
    tap = Tap(len(kinds))
    for kind in kinds:
        title = f"{kind} is killed at random moments"
        kills = options.kills or 15 // SLOWER.get(kind, 1)
        why = lacks(kind)
        if why:
            tap.skip(title, why)
            continue
        tap.diag(f"--seed {seed} --kills {kills} --only {kind}")
        with tap.test(title):
            kill_savers(kind, kills, seed, tap)
    return tap.finish()


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] in PYTHONS:
        serve(*sys.argv[1:])
    else:
        sys.exit(main())
