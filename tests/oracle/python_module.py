#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reshardfs.mounted under the real MindSpore: load_checkpoint finds what it
finds in the files of transform_checkpoints.
"""

import gc
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib"), os.path.join(HERE, "..", "..", "python")]
import rsh_mount  # noqa: E402
from rsh_cli import PLAIN, demo_tree  # noqa: E402
from rsh_mount import Tap  # noqa: E402

os.environ["XDG_CACHE_HOME"] = PLAIN["XDG_CACHE_HOME"]
os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(rsh_mount.reshardfs_program()),
                                        ".libs", "libreshard.so.0")


def demand(equal, what):
    if not equal:
        raise AssertionError(what)


def demand_same(found, expected):
    demand(list(found) == list(expected), f"{list(found)} and not {list(expected)}")
    for name, parameter in expected.items():
        f = found[name]
        demand((f.dtype, f.shape) == (parameter.dtype, parameter.shape), name)
        # Bits, not numbers: there are NaNs.
        demand(f.asnumpy().tobytes() == parameter.asnumpy().tobytes(), f"{name} differs")


def main():
    rsh_mount.require_oracle()
    rsh_mount.require_mount()
    from genuine_sets import oracle_environment
    oracle_environment()
    import mindspore as ms

    import reshardfs
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-python-") as work:
        source, src, dst = demo_tree(work)
        converted = os.path.join(work, "converted")
        ms.transform_checkpoints(source, converted, "checkpoint_", src, dst)
        options = {"src_strategy": src, "dst_strategy": dst, "compat": "mindspore"}
        files = [os.path.join(converted, f"rank_{r}", f"checkpoint_{r}.ckpt") for r in range(4)]
        with tap.test("load_checkpoint through a mount"):
            with reshardfs.mounted(source, **options) as m:
                for rank, path in enumerate(files):
                    demand_same(ms.load_checkpoint(m.rank(rank)), ms.load_checkpoint(path))
        with tap.test("safetensors, whose parameters are mapped, as well"):
            with reshardfs.mounted(source, format="safetensors", **options) as m:
                found = ms.load_checkpoint(m.rank(1), format="safetensors")
                demand("block.up.weight" in found, list(found))
                del found
                gc.collect()
        with tap.test("read without a mount is the converter's file"):
            for rank, path in enumerate(files):
                with open(path, "rb") as f:
                    demand(reshardfs.read(source, rank, **options) == f.read(), path)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
