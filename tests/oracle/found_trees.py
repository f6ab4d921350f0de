#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trees that MindSpore itself has left behind: several steps and runs of
ModelCheckpoint, CRC trailers, lost ranks, and what survives a power-off.

MindSpore is asked about each fault as well: what it refuses to load, or which
file it would take for a rank, is what the mount must agree with.
"""

import glob
import os
import shutil
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]
import rsh_mount  # noqa: E402
from demands import check, content, demand, flip  # noqa: E402
from rsh_mount import Mounted, MountError, Tap, expect_failure  # noqa: E402
from safetensors_format import Tensors  # noqa: E402

GENUINE = os.path.join(HERE, "..", "data", "strategies", "fault_recover_8")
WORKERS = 4


class Trained:
    """A data-parallel job of four ranks, trained twice with ModelCheckpoint.

    Every rank of such a job saves the same, so one is trained and the others
    are copies of it.
    """

    def __init__(self, directory):
        import mindspore as ms
        import numpy as np
        from mindspore import nn
        from mindspore.train import CheckpointConfig, Model, ModelCheckpoint

        self.ms = ms
        self.source = os.path.join(directory, "trained")
        first = os.path.join(self.source, "rank_0")
        for _ in range(2):
            net = nn.Dense(6, 3)
            data = [(np.ones((4, 6), np.float32), np.zeros((4, 3), np.float32))] * 3
            dataset = ms.dataset.GeneratorDataset(data, ["x", "y"], shuffle=False)
            config = CheckpointConfig(save_checkpoint_steps=1, keep_checkpoint_max=9,
                                      crc_check=True,
                                      append_info=["epoch_num", "step_num"])
            Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9)).train(
                2, dataset, callbacks=[ModelCheckpoint("net", first, config)],
                dataset_sink_mode=False)
        for rank in range(1, WORKERS):
            shutil.copytree(first, os.path.join(self.source, f"rank_{rank}"))

    def files(self, name):
        return sorted(glob.glob(os.path.join(self.source, "rank_*", name)))

    def shows(self, name, *extra, words=()):
        """The mount gives every rank the content of rank_0/<name>."""
        wanted = content(os.path.join(self.source, "rank_0", name))
        with Mounted(self.source, extra=["--dst-ranks", str(WORKERS), *extra]) as m:
            for rank in range(WORKERS):
                path = m.rank_file(rank)
                check(content(path) == wanted, f"rank {rank} is not {name}\n{m.log()}")
                self.ms.load_checkpoint(path)
            demand(m.log(), *words)


def trained_tests(tap, directory):
    job = Trained(directory)
    with tap.test("ModelCheckpoint named its files as the mount reads them"):
        names = {os.path.basename(path) for path in job.files("*.ckpt")}
        wanted = {f"net{run}-{epoch}_{step}.ckpt" for run in ("", "_1")
                  for epoch in (1, 2) for step in (1, 2, 3)}
        check(names == wanted, str(names))
    with tap.test("the newest step of the last run"):
        job.shows("net_1-2_3.ckpt", words=["epoch 2 step 3 of run 1"])
        job.shows("net_1-2_3.ckpt", "--check", "full")
    with tap.test("a step by its number, and a run by its name"):
        job.shows("net_1-1_2.ckpt", "--select", "1_2")
        job.shows("net-2_3.ckpt", "--select", "name=net-*")
    with tap.test("what MindSpore's CRC check refuses is not taken"):
        for path in job.files("net_1-2_3.ckpt"):
            flip(path, content(path).index(b"Float32") + 12)
            try:
                job.ms.load_checkpoint(path, crc_check=True)
            except ValueError:
                continue
            raise MountError(f"MindSpore loads {path}")
        job.shows("net-2_3.ckpt", "--check", "full", words=["net_1-2_3.ckpt: damaged"])
    with tap.test("what MindSpore loads with a CRC check is taken"):
        for path in job.files("net-2_3.ckpt"):
            job.ms.load_checkpoint(path, crc_check=True)
        job.shows("net-2_3.ckpt", "--check", "full", "--select", "name=net-*")


class Sharded:
    """The tutorial's job of eight ranks, saved by MindSpore slice by slice."""

    def __init__(self, directory):
        import mindspore as ms
        import numpy as np
        from layouts import model_position, splits
        from ms_formats import read_strategy_file

        self.ms = ms
        self.strategy = os.path.join(directory, "strategy.ckpt")
        shutil.copy(os.path.join(GENUINE, "strategy_stage_0.ckpt"), self.strategy)
        self.layouts = read_strategy_file(self.strategy).layouts
        self.np, self.position, self.splits = np, model_position, splits

    def save(self, source, step, ranks, name, **options):
        for rank in ranks:
            folder = os.path.join(source, f"rank_{rank}")
            os.makedirs(folder, exist_ok=True)
            parameters = []
            for text, layout in self.layouts.items():
                at = self.position(layout, rank)
                rows = 16 // self.splits(layout)[0]
                seed = [step, rows, *at, *text.encode()]
                values = self.np.random.default_rng(seed).random((rows, 5), "float32")
                parameters.append({"name": text, "data": self.ms.Tensor(values)})
            self.ms.save_checkpoint(
                parameters, os.path.join(folder, name.format(rank=rank)),
                crc_check=True, append_dict={"epoch_num": 1, "step_num": step,
                                             "cur_rank": 0}, **options)
            shutil.copy(os.path.join(GENUINE, f"rank_{rank}", "group_info.pb"), folder)

    def mounted(self, source, *extra):
        return Mounted(source, src_strategy=self.strategy,
                       dst_strategy=self.strategy, extra=extra)

    def compare(self, m, wanted):
        """{rank: file that its virtual file must equal}"""
        for rank, path in wanted.items():
            found = m.rank_file(rank)
            check(content(found) == content(path), f"rank {rank} is not {path}\n{m.log()}")
            self.ms.load_checkpoint(found)


def crc_tests(tap, directory):
    """The checksum inside a safetensors file, which ModelCheckpoint does not
    write and save_checkpoint does."""
    job = Sharded(directory)
    source = os.path.join(directory, "safetensors")

    def path(rank, step):
        return os.path.join(source, f"rank_{rank}", f"checkpoint-1_{step}.safetensors")

    def shows(step, *extra, words=()):
        with job.mounted(source, "--format", "safetensors", *extra) as m:
            for rank in range(8):
                shown = os.path.join(m.path, f"rank_{rank}", f"checkpoint_{rank}.safetensors")
                if Tensors(content(shown)).values() != saved[rank, step]:
                    raise MountError(f"rank {rank} is not of step {step}\n{m.log()}")
            demand(m.log(), *words)

    for step in (5, 10):
        job.save(source, step, range(8), f"checkpoint-1_{step}.safetensors",
                 format="safetensors")
    saved = {(rank, step): Tensors(content(path(rank, step))).values()
             for rank in range(8) for step in (5, 10)}
    with tap.test("safetensors with checksums"):
        shows(10, "--check", "full")
    with tap.test("the converter's choice, which is by number"):
        from mindspore.parallel.transform_safetensors import _collect_safetensor_files
        job.save(source, 9, range(8), "checkpoint-1_9.safetensors", format="safetensors")
        if _collect_safetensor_files(source) != {rank: path(rank, 10) for rank in range(8)}:
            raise MountError("the converter chooses otherwise")
        shows(10, "--select", "mindspore")
        for rank in range(8):
            os.unlink(path(rank, 9))
    with tap.test("a bit flipped in its name: taken from the other replica"):
        flip(path(1, 10), content(path(1, 10)).index(b"crc_num") + 2)
        shows(10, "--check", "full",
              words=["rank_1/checkpoint-1_10.safetensors: it has no CRC"])
        flip(path(1, 10), content(path(1, 10)).index(b"_num") - 1)
    with tap.test("a bit flipped under one: taken from the other replica"):
        flip(path(3, 10), -9)
        try:
            job.ms.load_checkpoint(path(3, 10), format="safetensors", crc_check=True)
        except ValueError:
            pass
        else:
            raise MountError("MindSpore loads it")
        shows(10, "--check", "full",
              words=["rank_3/checkpoint-1_10.safetensors: damaged: the CRC"])
    with tap.test("under both: the older step"):
        flip(path(7, 10), -30)
        shows(5, "--check", "full", "--log-level", "info",
              words=["rank_7/checkpoint-1_10.safetensors: damaged"])
    with tap.test("a flipped number of a scalar"):
        flip(path(2, 5), content(path(2, 5)).rindex((5).to_bytes(8, "little")))
        flip(path(6, 5), content(path(6, 5)).rindex((5).to_bytes(8, "little")))
        with job.mounted(source, "--select", "1_5") as m:
            check("damaged" not in m.log(), m.log())
        _, said = expect_failure(source, src_strategy=job.strategy,
                                 dst_strategy=job.strategy,
                                 extra=["--select", "1_5", "--check", "full"])
        demand(said, "rank_2/checkpoint-1_5.safetensors: damaged: the CRC")


def sharded_tests(tap, directory):
    job = Sharded(directory)
    source = os.path.join(directory, "sharded")
    kept = os.path.join(directory, "kept")
    for step in (5, 10):
        job.save(source, step, range(8), f"checkpoint-1_{step}.ckpt")
    shutil.copytree(source, kept)

    def files(step):
        return {rank: os.path.join(kept, f"rank_{rank}", f"checkpoint-1_{step}.ckpt")
                for rank in range(8)}

    with tap.test("rank 0 deleted: its file comes back"):
        os.unlink(os.path.join(source, "rank_0", "checkpoint-1_10.ckpt"))
        with job.mounted(source, "--check", "full") as m:
            job.compare(m, files(10))
    with tap.test("restore_group_info_list names the ranks it comes from"):
        path = os.path.join(source, "rank_0", "group_info.pb")
        if job.ms.restore_group_info_list(path) != [0, 4]:
            raise MountError("the tutorial's example is another one")
    with tap.test("a bit flipped in the copy that is left: the older step"):
        path = os.path.join(source, "rank_4", "checkpoint-1_10.ckpt")
        flip(path, content(path).index(b"Float32") + 20)
        with job.mounted(source, "--check", "full") as m:
            job.compare(m, files(5))
            demand(m.log(), "rank_4/checkpoint-1_10.ckpt: damaged: its CRC")
    with tap.test("a power-off save: what get_ckpt_path_with_strategy finds"):
        power_off = os.path.join(directory, "ttp", "ttp_saved_checkpoints-step_12")
        job.save(power_off, 12, (4, 1, 6, 3), "ttp_rank_{rank}-1_12.ckpt")
        wanted = {rank: found_by_mindspore(job, power_off, rank) for rank in range(8)}
        check(set(wanted) == set(range(8)) and None not in wanted.values(), str(wanted))
        for given in (power_off, os.path.dirname(power_off)):
            with job.mounted(given, "--check", "full") as m:
                job.compare(m, wanted)


def found_by_mindspore(job, power_off, rank):
    """MindSpore's answer for a rank, which it takes from the communication."""
    from unittest import mock

    from mindspore.train import serialization

    with mock.patch.object(serialization, "get_rank", lambda: rank):
        return job.ms.get_ckpt_path_with_strategy(
            os.path.join(power_off, f"rank_{rank}", f"ttp_rank_{rank}-1_12.ckpt"),
            job.strategy)


def main():
    rsh_mount.require_oracle()
    rsh_mount.require_mount()
    from genuine_sets import oracle_environment
    oracle_environment()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-found-") as directory:
        trained_tests(tap, directory)
        sharded_tests(tap, directory)
        crc_tests(tap, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
