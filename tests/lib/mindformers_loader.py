# SPDX-License-Identifier: Apache-2.0
"""mindformers' own loader and writer of Checkpoint 2.0, in a process that is any rank of
any job.

RSH_MINDFORMERS names the directory that its wheel was unpacked in.  Of the wheel only
the package `checkpoint` is imported, which reads and writes trees; what it takes from
its neighbours is a stand-in: the rank, the number of ranks, the barrier of all ranks,
the log, and the layouts, which it would ask the compiler for.  Runs under RSH_ORACLE_PYTHON.
"""

import gc
import logging
import os
import sys
import types

import rsh_mount

RELEASE = "2.1.0"
_job = types.SimpleNamespace(rank=0, ranks=1, layouts={}, barrier=lambda: None)


def directory():
    """Where mindformers lies, or None."""
    path = os.environ.get("RSH_MINDFORMERS")
    return path if path and os.path.isdir(os.path.join(path, "mindformers")) else None


def require():
    """Skips the whole program where mindformers, MindSpore or mounts are not to be had."""
    if not directory():
        rsh_mount.skip_all("RSH_MINDFORMERS does not name a directory of mindformers")
    rsh_mount.require_mount()
    rsh_mount.require_oracle()
    os.environ["GLOG_v"] = "4"


def module(name, path=None, **members):
    """Puts a stand-in among the imported modules; with a path it has others below."""
    made = types.ModuleType(name)
    if path is not None:
        made.__path__ = [path]
    vars(made).update(members)
    sys.modules[name] = made


def _nothing(*_words, **_more):
    return None


def stand_in():
    """Stands in for what the package takes from its neighbours."""
    import mindspore
    from mindspore.parallel import strategy
    root = os.path.join(directory(), "mindformers")
    log = logging.getLogger("mindformers")
    log.setLevel(logging.ERROR)
    for name in ("", ".tools", ".utils", ".core", ".core.context", ".pynative"):
        module("mindformers" + name, "", get_output_root_path=os.getcwd)
    module("mindformers.checkpoint", os.path.join(root, "checkpoint"))
    module("mindformers.pynative.pet", os.path.join(root, "pynative", "pet"))
    module("mindformers.tools.logger", logger=log)
    module("mindformers.tools.utils", get_real_rank=lambda: _job.rank,
           get_real_group_size=lambda: _job.ranks, get_output_subpath=_nothing,
           set_safe_mode_for_file_or_dir=_nothing)
    module("mindformers.utils.file_utils", is_publicly_accessible_path=lambda _: True)
    module("mindformers.utils.parallel_utils", barrier_world=lambda *_words: _job.barrier())
    module("mindformers.core.context.build_context",
           get_context=lambda _: mindspore.context.GRAPH_MODE)
    strategy.get_strategy_metadata = lambda *_words: _job.layouts


def _checkpoint():
    if "mindformers" in sys.modules:
        return sys.modules["mindformers.checkpoint.checkpoint"]
    stand_in()
    from mindformers.checkpoint import checkpoint
    gc.freeze()  # what MindSpore has made is not looked at after each load
    return checkpoint


def _layout(parameter):
    """A Parameter's layout as MindSpore's object, None for none."""
    from mindspore.parallel import Layout
    if parameter.mesh is None:
        return None
    alias = tuple(chr(ord("a") + i) for i in range(len(parameter.mesh)))

    def named(axes):
        names = tuple(alias[a] for a in axes)
        return names if len(names) > 1 else names[0] if names else "None"

    made = Layout(tuple(parameter.mesh), alias, list(parameter.ranks))
    return made(*(named(parameter.axes(entry)) for entry in parameter.tensor_map))


def _types():
    import mindspore
    return {str(dtype).lower(): dtype for dtype in mindspore.common.dtype.all_types}


def _cell(parameters):
    """A cell that holds zeros under these names."""
    import mindspore
    import numpy
    cell, types_ = mindspore.nn.Cell(), _types()
    for number, (name, parameter) in enumerate(parameters.items()):
        # Zeros that MindSpore computes would be waited for, one after the other.
        zeros = mindspore.Tensor(numpy.zeros(tuple(parameter.local_shape()), numpy.float32),
                                 types_[parameter.dtype.lower()])
        cell.insert_param_to_cell(f"p{number}", mindspore.Parameter(zeros, name=name),
                                  check_name_contain_dot=False)
    return cell


def _layouts(parameters):
    return {name: [_layout(p), _types()[p.dtype.lower()], tuple(p.shape)]
            for name, p in parameters.items()}


def _cells(rank, ranks, parameters, is_state):
    """The network and the optimizer, None for none, that the process has as that rank."""
    import mindspore
    mine = {name: p for name, p in parameters.items() if rank in p.ranks}
    _job.rank, _job.ranks = rank, ranks
    _job.layouts = {rank: _layouts(mine)}
    network = _cell({name: p for name, p in mine.items() if not is_state(name)})
    states = {name: p for name, p in mine.items() if is_state(name)}
    optimizer = None
    if states:
        optimizer = _cell(states)
        optimizer.insert_param_to_cell("global_step", mindspore.Parameter(
            mindspore.Tensor([0], mindspore.int32), name="global_step"))
    return network, optimizer


def load(path, rank, ranks, parameters, is_state):
    """What load_checkpoint gives that rank of a job: ({name: bytes}, global_step).

    parameters  {name: Parameter}, all that the job has
    is_state    of a name: is it the optimizer's?
    """
    try:
        return _load(path, rank, ranks, parameters, is_state)
    finally:
        # Its tensors keep files mapped, and with them a mount.
        gc.collect()


def _load(path, rank, ranks, parameters, is_state):
    checkpoint = _checkpoint()
    network, optimizer = _cells(rank, ranks, parameters, is_state)
    checkpoint.load_checkpoint(path, network, optimizer)
    cells = [cell for cell in (network, optimizer) if cell is not None]
    found = {p.name: p for cell in cells for p in cell.get_parameters()}
    step = found.pop("global_step", None)
    return ({name: bytes_of(p) for name, p in found.items()},
            None if step is None else int(step.asnumpy()[0]))


def network(rank, parameters):
    """The network of a rank of the job that has these parameters, full of zeros."""
    _checkpoint()
    ranks = 1 + max(max(p.ranks) for p in parameters.values())
    return _cells(rank, ranks, parameters, lambda _: False)[0]


def load_network(path, cell):
    _checkpoint().load_checkpoint(path, cell, None)


class Writer:
    """One of the ranks of a job that saves; `barrier` waits for the others."""

    def __init__(self, rank, parameters, barrier):
        self.cell = network(rank, parameters)
        self.checkpoint = _checkpoint()
        self.metas = None
        self.steps = []  # directories that save_checkpoint removes later
        if rank == 0:
            from mindformers.checkpoint import metadata
            from mindformers.checkpoint.sharded_tensor import get_all_sharded_tensor
            metadata.get_group_size = lambda: _job.ranks
            _job.layouts = {r: _layouts(parameters) for r in range(_job.ranks)}
            self.metas = get_all_sharded_tensor(self.cell)
        _job.barrier = barrier

    def save(self, path, step, kept):
        common = self.checkpoint.CommonInfo()
        common.step_num = common.global_step = step
        self.checkpoint.save_checkpoint(
            step, self.cell, common_info=common, keep_max_num=kept, user_prefix="net",
            save_checkpoint_path=path, sharded_tensor_metas=self.metas,
            current_ckpt_step_list=self.steps)


def import_writer():
    """Imports what a Writer needs, before a process forks."""
    _checkpoint()


def bytes_of(tensor):
    return tensor.asnumpy().tobytes()
