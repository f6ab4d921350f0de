#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mount --resume of what MindSpore itself has saved: load_checkpoint reads the
stable name, and a file that MindSpore refuses to load is not shown.
"""

import gc
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]
import rsh_mount  # noqa: E402
from demands import content, flip  # noqa: E402
from rsh_mount import Mounted, MountError, Tap  # noqa: E402

KEY = b"0123456789abcdef"
RANKS = 2
# How each kind is saved, and loaded.
KINDS = {
    "ckpt": ({}, {}),
    "ckpt with CRC": ({"crc_check": True}, {"crc_check": True}),
    "safetensors": ({"format": "safetensors"}, {"format": "safetensors"}),
    "safetensors with CRC": ({"format": "safetensors", "crc_check": True},
                             {"format": "safetensors", "crc_check": True}),
    "AES-GCM": ({"enc_key": KEY, "enc_mode": "AES-GCM"},
                {"dec_key": KEY, "dec_mode": "AES-GCM"}),
    "AES-CBC": ({"enc_key": KEY, "enc_mode": "AES-CBC"},
                {"dec_key": KEY, "dec_mode": "AES-CBC"}),
}


class Job:
    """Ranks that have saved steps 1 to 3."""

    def __init__(self, directory, save, load):
        import mindspore as ms

        self.ms = ms
        self.source = directory
        self.suffix = save.get("format", "ckpt")
        self.load_options = load
        for rank in range(RANKS):
            os.mkdir(os.path.join(directory, f"rank_{rank}"))
            for step in (1, 2, 3):
                ms.save_checkpoint([{"name": "w", "data": self.tensor(step, rank)}],
                                   self.file(rank, step), **save,
                                   append_dict={"epoch_num": 1, "step_num": step})

    def tensor(self, step, rank):
        import numpy as np

        return self.ms.Tensor(np.arange(600, dtype=np.float32).reshape(20, 30) +
                              1000 * step + rank)

    def file(self, rank, step):
        return os.path.join(self.source, f"rank_{rank}", f"net-1_{step}.{self.suffix}")

    def load(self, path):
        # A copy: parameters of a safetensors file are mapped from it, and what
        # is mapped keeps the mount busy.
        found = self.ms.load_checkpoint(path, **self.load_options)["w"].asnumpy().copy()
        gc.collect()
        return found

    def shows(self, step, *extra):
        with Mounted(self.source, resume=True, extra=extra) as m:
            for rank in range(RANKS):
                found = self.load(os.path.join(m.path, f"rank_{rank}",
                                               f"latest.{self.suffix}"))
                if not (found == self.tensor(step, rank).asnumpy()).all():
                    raise MountError(f"rank {rank} is not of step {step}")

    def cut(self, rank, step):
        path = self.file(rank, step)
        os.chmod(path, 0o600)
        os.truncate(path, os.path.getsize(path) - 30)
        self.demand_refusal(path)

    def flip(self, rank, step):
        path = self.file(rank, step)
        flip(path, content(path).index(self.tensor(step, rank).asnumpy().tobytes()) + 7)
        self.demand_refusal(path)

    def demand_refusal(self, path):
        try:
            self.load(path)
        except (ValueError, RuntimeError):
            return
        raise MountError(f"MindSpore loads {path}")


def main():
    rsh_mount.require_oracle()
    rsh_mount.require_mount()
    from genuine_sets import oracle_environment
    oracle_environment()
    tap = Tap()
    for kind, (save, load) in KINDS.items():
        with tempfile.TemporaryDirectory(prefix="reshardfs-resume-") as directory:
            job = Job(directory, save, load)
            with tap.test(f"{kind}: the newest step"):
                job.shows(3)
            with tap.test(f"{kind}: the step before one that MindSpore refuses"):
                job.cut(1, 3)
                job.shows(2)
            if "crc_check" not in save:
                continue
            with tap.test(f"{kind}: a bit that MindSpore's CRC check finds"):
                job.shows(2, "--check", "full")
                job.flip(0, 2)
                job.shows(1, "--check", "full")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
