# SPDX-License-Identifier: Apache-2.0
"""The genuine strategy sets and checkpoints of the jobs they were planned for.

tests/data/strategies/README.md says where the sets come from.  A `GenuineSet`
knows its strategy files and the parameters of its training step; it makes the
rank files that such a job would have saved, out of whole tensors that are
known, so that what a conversion gives can be held against them.

Import `oracle_environment` before MindSpore.
"""

import glob
import hashlib
import json
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]

STRATEGIES = os.path.join(os.path.dirname(HERE), "data", "strategies")

# Sets convert into each other within a family.  The first prefix that fits
# decides.
FAMILIES = (("llama_moe", "mf_moe_"), ("qwen3", "mf_qwen3_"), ("deepseek_v3", "mf_dsv3_"),
            ("llama", "mf_"), ("fault_recover", "fault_recover_"), ("gpt", ""))


def oracle_environment():
    """What makes MindSpore quiet, and twice as fast with strategy files."""
    os.environ.setdefault("GLOG_v", "4")
    # Left alone it chooses the pure Python implementation of protobuf.
    os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "upb")


def families():
    """{family: names of its sets}"""
    result = {family: [] for family, _ in reversed(FAMILIES)}
    for name in sorted(os.listdir(STRATEGIES)):
        if os.path.isdir(os.path.join(STRATEGIES, name)):
            result[next(f for f, prefix in FAMILIES if name.startswith(prefix))].append(name)
    return result


class GenuineSet:
    """One set; `work` is a directory for the files made from it."""

    def __init__(self, name, work):
        self.name = name
        self.work = work
        self.root = os.path.join(STRATEGIES, name)
        self.stage_files = sorted(glob.glob(os.path.join(self.root, "strategy_stage_*")))
        if not self.stage_files:
            raise FileNotFoundError(f"no strategy files in {self.root}")
        with open(os.path.join(self.root, "parameters.json"), encoding="utf-8") as f:
            self.parameters = [(n, tuple(shape), dtype) for n, shape, dtype in json.load(f)]
        self.shapes = {n: shape for n, shape, _ in self.parameters}
        self._stages = None

    @property
    def is_pipeline(self):
        return len(self.stage_files) > 1

    @property
    def stages(self):
        """{stage: {parameter: Layout}}"""
        if self._stages is None:
            from ms_formats import read_strategy_file
            self._stages = {}
            for path in self.stage_files:
                content = read_strategy_file(path)
                self._stages[content.stage] = content.layouts
        return self._stages

    @property
    def device_count(self):
        """Devices of one stage."""
        from layouts import device_count
        return device_count(next(iter(self.stages[0].values())))

    def directory(self):
        """A directory of the strategy files and nothing else."""
        path = os.path.join(self.work, "stages", self.name)
        if not os.path.isdir(path):
            os.makedirs(path)
            for stage_file in self.stage_files:
                shutil.copy(stage_file, path)
        return path

    def file(self):
        """The strategy as one file, a pipeline's merged by MindSpore."""
        if not self.is_pipeline:
            return self.stage_files[0]
        suffix = os.path.splitext(self.stage_files[0])[1]
        path = os.path.join(self.work, "merged", self.name + suffix)
        if not os.path.exists(path):
            import mindspore
            mindspore.merge_pipeline_strategys(self.directory(), path)
        return path

    def listed(self, name):
        return any(name in layouts for layouts in self.stages.values())

    def region(self, stage, name, local):
        """The part of a whole tensor that a rank of a stage holds."""
        from layouts import region
        shape = self.shapes[name]
        return region(in_dimensions_of(self.stages[stage][name], shape), shape, local)

    def save_sharded(self, root, seed):
        """Save what every rank of the job would; return the whole tensors.

        Each rank holds its slice of what its stage lists.  What no stage
        lists differs from rank to rank, which real counters need not but
        which shows from where a copy of them came.
        """
        whole = {name: random_tensor(seed, name, shape, dtype)
                 for name, shape, dtype in self.parameters}
        for stage in self.stages:
            for local in range(self.device_count):
                rank = stage * self.device_count + local
                self._save(root, rank, self._held(stage, local, rank, whole, seed))
        return whole

    def save_whole(self, root, seed):
        """Save what an unsharded job would; return the whole tensors."""
        whole = {name: random_tensor(seed, name, shape, dtype)
                 for name, shape, dtype in self.parameters}
        self._save(root, 0, whole)
        return whole

    def _held(self, stage, local, rank, whole, seed):
        held = {}
        for name, shape, dtype in self.parameters:
            if name in self.stages[stage]:
                held[name] = whole[name][self.region(stage, name, local)]
            elif not self.listed(name):
                held[name] = random_tensor(seed, f"{name} of rank {rank}", shape, dtype)
        return held

    @staticmethod
    def _save(root, rank, tensors):
        import mindspore
        import numpy as np
        folder = os.path.join(root, f"rank_{rank}")
        os.makedirs(folder)
        mindspore.save_checkpoint(
            [{"name": name, "data": mindspore.Tensor(np.array(array))}
             for name, array in tensors.items()],
            os.path.join(folder, "net-1_10.ckpt"))


def in_dimensions_of(layout, shape):
    """The layout with one tensor map entry for each dimension of `shape`.

    JSON files have more: a dimension split over several axes stands as several
    dimensions, whose sizes multiply to its own.
    """
    from ms_formats import Layout
    if len(layout.tensor_map) == len(shape):
        return layout
    parts = list(zip(layout.shape, layout.tensor_map))
    tensor_map = []
    for size in shape:
        axes = []
        product = 0
        while product != size:
            part, axis = parts.pop(0)
            product = max(product, 1) * part
            axes.append(axis)
        tensor_map.append([a for a in axes if a != -1] or -1)
    if parts:
        raise ValueError(f"{layout} does not explain {shape}")
    return Layout(layout.dev_matrix, tensor_map, layout.opt_step, layout.opt_size)


def random_tensor(seed, name, shape, dtype):
    """Random bits, NaNs and all: nothing may look at values on the way."""
    import numpy as np
    kind = np.dtype(dtype.lower())
    digest = hashlib.sha256(f"{seed} {name}".encode()).digest()
    generator = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    count = int(np.prod(shape))
    return np.frombuffer(generator.bytes(count * kind.itemsize), kind).reshape(shape)


def value_differences(records, dst, stage, local, src, whole):
    """What is wrong in one rank file, [] if nothing: every parameter that both
    jobs know must be its part of the whole tensor.

    records     {name: Record} of the file
    dst, src    GenuineSet or None
    whole       {name: array} of the source
    """
    wrong = []
    shared = [name for name in (src or dst).shapes
              if (src is None or src.listed(name))
              and (dst is None or name in dst.stages[stage])
              and name in whole]
    for name in shared:
        if name not in records:
            wrong.append(f"{name}: missing")
            continue
        part = whole[name] if dst is None else whole[name][dst.region(stage, name, local)]
        record = records[name]
        if record.dims != part.shape:
            wrong.append(f"{name}: shape {list(record.dims)}, expected {list(part.shape)}")
        elif record.content != part.tobytes():
            wrong.append(f"{name}: values")
    return wrong
