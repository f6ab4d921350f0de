#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--remove-redundancy, and sources that were saved so.

Which rank keeps which parameter is compared with MindSpore's own redundancy map
of genuine strategy files.  A tree from which redundancy was removed, mounted
again, shows the same records as the whole tree does; in which order the whole
files had them, files without a parameter in common cannot tell.
"""

import os
import shutil
import sys
import tempfile

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__)),
                os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib")]
from genuine_sets import GenuineSet, oracle_environment  # noqa: E402
from ms_formats import read_checkpoint  # noqa: E402
from rsh_mount import (Mounted, Tap, expect_failure,  # noqa: E402
                       require_mount, require_oracle)

# One stage, flat maps: of nested ones MindSpore's strategy-file form of the map
# reads the first TensorMap message only.
SETS = ["dp2mp4", "dp4", "dp4mp2_opt", "dp4mp2_opt2", "dp8_opt", "mp8",
        "momentum_dp2mp2", "mf_dp2mp4", "mf_dp4mp2_opt", "mf_moe_dp4mp2ep4",
        "mf_dsv3_dp4mp2ep2_opt", "mf_qwen3_dp4mp2_opt"]


def kept_by_mindspore(strategy):
    """{rank: parameters that ModelCheckpoint keeps with remove_redundancy}"""
    from mindspore.train._utils import (get_parameter_redundancy,
                                       remove_param_redundancy)
    return remove_param_redundancy(get_parameter_redundancy(strategy, initial_rank=0))


def unequal(one, other, **strategies):
    """Ranks whose files differ between mounts of two trees."""
    with Mounted(one, **strategies) as a, Mounted(other, **strategies) as b:
        return [rank for rank in sorted(os.listdir(a.path) + os.listdir(b.path))
                if records_of(a.path, rank) != records_of(b.path, rank)]


def records_of(tree, folder):
    number = folder.rsplit("_", 1)[1]
    return read_checkpoint(os.path.join(tree, folder, f"checkpoint_{number}.ckpt"))


def check_set(tap, directory, name):
    job = GenuineSet(name, directory)
    source = os.path.join(directory, "source")
    job.save_sharded(source, 1)
    strategy = job.file()
    listed = set(job.stages[0])
    same = {"src_strategy": strategy, "dst_strategy": strategy}
    expected = kept_by_mindspore(strategy)
    reduced = os.path.join(directory, "reduced")
    with Mounted(source, extra=["--remove-redundancy"], **same) as mount:
        shutil.copytree(mount.path, reduced)
    wrong = []
    for rank in range(job.device_count):
        path = os.path.join(reduced, f"rank_{rank}", f"checkpoint_{rank}.ckpt")
        found = set(read_checkpoint(path))
        saved = {n for n, _, _ in job.parameters}
        if found & listed != expected[rank] & saved or found - listed != saved - listed:
            wrong.append(rank)
    tap.equal(wrong, [], f"{name}: each rank keeps what MindSpore's would")

    tap.equal(unequal(source, reduced, **same), [], f"{name}: whole files again")
    tap.equal(unequal(source, reduced, src_strategy=strategy), [],
              f"{name}: whole tensors of it")
    return reduced, strategy


def check_data_parallel(tap, directory, fmt):
    """A job without a strategy, whose ranks all replace each other; which of them
    keeps what is MindSpore's choice."""
    import mindspore as ms
    import numpy as np
    from mindspore.train._utils import remove_param_redundancy
    rng = np.random.default_rng(1)
    whole = {f"layer.{i}.weight": rng.random((3, i + 1), np.float32) for i in range(7)}
    kept = remove_param_redundancy({name: (tuple(range(4)),) for name in sorted(whole)})
    for rank in range(4):
        folder = os.path.join(directory, fmt, f"rank_{rank}")
        os.makedirs(folder)
        ms.save_checkpoint(
            [{"name": n, "data": ms.Tensor(v)} for n, v in whole.items()],
            os.path.join(folder, f"net-1_5.{fmt}"), format=fmt,
            append_dict={"epoch_num": 1}, remove_redundancy=True,
            choice_func=lambda name, rank=rank: name in kept[rank])
    wrong = []
    shown = os.path.join(directory, "shown")
    with Mounted(os.path.join(directory, fmt), extra=["--dst-ranks", "4", "--format", fmt]) as m:
        # Tensors of MindSpore map the files that they are loaded from.
        shutil.copytree(m.path, shown)
    for rank in range(4):
        found = ms.load_checkpoint(os.path.join(shown, f"rank_{rank}", f"checkpoint_{rank}.{fmt}"),
                                   format=fmt)
        if set(found) != {*whole, "epoch_num"} or any(
                not np.array_equal(found[n].asnumpy(), v) for n, v in whole.items()):
            wrong.append(rank)
    tap.equal(wrong, [], f"{fmt} of a data-parallel job: whole files without a strategy")


def main():
    require_oracle()
    require_mount()
    oracle_environment()
    tap = Tap(3 * len(SETS) + 3)
    for fmt in ("ckpt", "safetensors"):
        with tempfile.TemporaryDirectory(prefix="reshardfs-redundancy-") as directory:
            check_data_parallel(tap, directory, fmt)
    for name in SETS:
        with tempfile.TemporaryDirectory(prefix="reshardfs-redundancy-") as directory:
            reduced, strategy = check_set(tap, directory, name)
            if name != SETS[0]:
                continue
            status, said = expect_failure(reduced, src_strategy=strategy,
                                          dst_strategy=strategy,
                                          extra=["--replicas", "off"])
            tap.ok(status == 3 and "lacks parameter" in said,
                   "without replicas such a tree is refused", said)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
