# SPDX-License-Identifier: Apache-2.0
"""Loads of checkpoints into MindSpore parameters and nets."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import threading
import traceback
from concurrent.futures import CancelledError, Future
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterator, List,
                    NamedTuple, Optional, Tuple)

from ._imports import imported
from ._kinds import is_text, kind, narrow
from ._library import Error, Rank, Record, Source, number_of
from ._memory import fresh
from ._options import Options, Path
from ._progress import Moved, Progress, shown
from ._sharing import shared

# Bytes that are read before they are set in a net, if no tensor is larger: enough
# for several threads.
_AT_ONCE = 32 << 20

# When it loads a net, MindSpore converts between the types of each set.
_FLOATS = {"Float16", "Float32", "Float64", "BFloat16"}
_INTEGERS = {"Int4", "Int8", "Int16", "Int32", "Int64"}
_TYPES = _FLOATS | _INTEGERS | {"Bool", "UInt8", "UInt16", "UInt32", "UInt64",
                                "str"}

# Options of mindspore.load_checkpoint that this load_checkpoint does not have.
_REFUSED = {
    "crc_check": "use check='full' to compare the CRCs of the source",
    "dec_key": "encrypted checkpoints are not supported",
    "dec_mode": "encrypted checkpoints are not supported",
    "filter_prefix": "use drop= with a regular expression",
    "specify_prefix": "use only= with a regular expression",
}

_log = logging.getLogger("reshardfs")

Choice = Optional[Callable[[str], object]]


class _Wanted(NamedTuple):
    """A record of a file, whether its new parameter gets a name, and the parameter
    of a net that it is for, if any."""
    file: int
    number: int
    record: Record
    named: bool
    parameter: Any


# ---- a load that can be cancelled ----

if TYPE_CHECKING:
    from typing_extensions import Unpack

    _Future = Future[Dict[str, Any]]
else:
    _Future = Future


class _Loading(_Future):
    """A future that can be cancelled until it has a result, since its state is never
    "running"."""

    def __init__(self) -> None:
        super().__init__()
        self._taking = threading.RLock()

    def cancel(self) -> bool:
        with self._taking:
            return super().cancel()

    def check(self) -> None:
        if self.cancelled():
            raise CancelledError

    @contextlib.contextmanager
    def taking(self) -> Iterator[None]:
        """A net changes only in this block, so not after cancel() has returned."""
        with self._taking:
            self.check()
            yield

    def run(self, load: Callable[[], Dict[str, Any]]) -> None:
        try:
            result = load()
        except BaseException as error:  # pylint: disable=broad-except
            if self.set_running_or_notify_cancel():
                # The future must not keep the loaded data alive.
                traceback.clear_frames(error.__traceback__)
                self.set_exception(error)
                del self, load  # The error's traceback has this frame.
        else:
            if self.set_running_or_notify_cancel():
                self.set_result(result)


# ---- what is wanted ----

def _wanted(s: Source, rank: Optional[Rank], choice: Choice) -> List[_Wanted]:
    """The records to load, in MindSpore's order."""
    found = []
    files = s.files()
    for file in range(len(files)) if rank is None else [number_of(rank)]:
        held = [(n, r) for n, r in enumerate(s.records(file))
                if choice is None or choice(r.name)]
        # MindSpore sorts names of safetensors, and its parameters get no name.
        sort = files[file].name.endswith(".safetensors")
        if sort:
            held.sort(key=lambda one: one[1].name)
        found += [_Wanted(file, n, r, not sort, None) for n, r in held]
    if not found:
        raise Error("no parameter matches")
    names = {w.record.name for w in found}
    if len(names) < len(found):
        raise Error("several files have parameters with the same names: "
                    "choose a rank")
    return found


def _check_types(wanted: List[_Wanted]) -> None:
    for w in wanted:
        if w.record.dtype not in _TYPES:
            raise Error(f"{w.record.name}: MindSpore does not support "
                        f"parameters of {w.record.dtype}")


def _matched(net: Any, found: List[_Wanted], strict: bool) -> List[_Wanted]:
    """The records that MindSpore would put into the net, each with its
    parameter, in the order of the files."""
    by_name = {w.record.name: w for w in found}
    taken: List[_Wanted] = []
    left = []
    for _, p in net.parameters_and_names():
        if p.param_info.is_pipeline_shared_param:
            continue
        if p.name in by_name:
            taken.append(by_name[p.name]._replace(parameter=p))
        elif not p.name.startswith("accu_grads"):
            left.append(p)
    if not strict:
        taken += _with_prefixes(by_name, left)
    if left:
        _log.warning("%d parameters of the net are not in the checkpoint: %s",
                     len(left), ", ".join(p.name for p in left))
    taken = [w for w in taken if not is_text(w.record)]
    for w in taken:
        _check_fits(w, strict)
    return sorted(taken, key=lambda w: (w.file, w.number))


def _with_prefixes(by_name: Dict[str, _Wanted],
                   left: List[Any]) -> List[_Wanted]:
    """Parameters whose names have a prefix in the checkpoint.  They are removed from
    `left`."""
    taken: List[_Wanted] = []
    while True:
        prefix = next((name[:len(name) - len(p.name)] for p in left
                       for name in by_name if name.endswith(p.name)), None)
        if prefix is None:
            return taken
        _log.warning("names in the checkpoint have the prefix \"%s\", names "
                     "in the net do not", prefix)
        taken += [by_name[prefix + p.name]._replace(parameter=p)
                  for p in left if prefix + p.name in by_name]
        left[:] = [p for p in left if prefix + p.name not in by_name]


def _check_fits(w: _Wanted, strict: bool) -> None:
    r, p = w.record, w.parameter
    shape, dtype = tuple(p.shape), str(p.dtype)
    # The record may have additional dimensions of 1 at the end.
    if r.shape != shape + (1,) * (len(r.shape) - len(shape)):
        raise Error(f"{p.name} has shape {list(shape)} in the net and "
                    f"{list(r.shape)} in the checkpoint")
    if dtype != r.dtype and (strict or not any(
            {dtype, r.dtype} <= alike for alike in (_FLOATS, _INTEGERS))):
        raise Error(f"{p.name} has type {dtype} in the net and {r.dtype} in "
                    "the checkpoint")


# ---- how it is loaded ----

class _Load:
    """One call of load_checkpoint: its arguments, and its future."""

    def __init__(self, threads: int, future: Optional[_Loading] = None) -> None:
        self.mindspore = imported("mindspore")
        self.tell: Optional[Moved] = None
        self.threads = threads
        self.future = future

    def contents(self, s: Source, wanted: List[_Wanted],
                 at_once: Optional[int] = None) \
            -> Iterator[List[Tuple[_Wanted, Any]]]:
        """The records with new arrays of their bytes, in groups of at most `at_once`
        bytes, or of one larger record.  No reference to an array is kept."""
        whole = sum(w.record.bytes for w in wanted)
        done = 0
        for group in _groups(wanted, at_once or whole):
            pairs = [(w, fresh(w.record.bytes)) for w in group]
            s._load_into(((w.file, w.number, 0, content)
                          for w, content in pairs),
                         self.moved(done, whole), self.threads)
            done += sum(w.record.bytes for w in group)
            yield pairs

    def moved(self, before: int, whole: int) -> Progress:
        """The progress of one group as that of all groups."""
        if not self.tell and not self.future:
            return None

        def moved(done: int, _: int) -> None:
            if self.future:
                self.future.check()
            if self.tell:
                self.tell(before + done, whole)
        return moved

    def tensor(self, r: Record, content: Any) -> Any:
        """A tensor that uses the memory of the content, except for Int4, which
        MindSpore copies."""
        ms = self.mindspore
        dtype = kind(r).plain
        if r.dtype == "BFloat16":
            dtype = ms.Tensor(0, ms.bfloat16).asnumpy().dtype
        array = narrow(r, content).view(dtype).reshape(r.shape)
        if r.dtype == "Int4":
            return ms.Tensor(array, dtype=ms.qint4x2)
        return getattr(ms, "from_numpy", ms.Tensor.from_numpy)(array)

    def parameter(self, w: _Wanted, content: Any) -> Any:
        if is_text(w.record):
            return content.tobytes().decode("utf-32-le").rstrip("\0")
        # A parameter uses the memory of a tensor without other references, which
        # MindSpore counts.  So there is no variable and no keyword for it.
        if w.named:
            return self.mindspore.Parameter(self.tensor(w.record, content),
                                            w.record.name)
        return self.mindspore.Parameter(self.tensor(w.record, content))

    def fill(self, s: Source, wanted: List[_Wanted]) -> Dict[str, Any]:
        """Each parameter of the net gets the memory of its content and frees its own,
        so only the group that is being read needs additional memory."""
        at_once = max([_AT_ONCE] + [w.record.bytes for w in wanted])
        for pairs in self.contents(s, wanted, at_once):
            while pairs:
                self.put(*pairs.pop())
            _give_back()
        return {w.parameter.name: w.parameter for w in wanted}

    def put(self, w: _Wanted, content: Any) -> None:
        p = w.parameter
        # The parameter's own memory is not overwritten: parameters of another net,
        # which was loaded from the same dict, may share it.
        tensor = self.tensor(w.record._replace(shape=tuple(p.shape)), content)
        if tensor.dtype != p.dtype:
            tensor = self.mindspore.Tensor(tensor.asnumpy(), p.dtype)
        with self.future.taking() if self.future else contextlib.nullcontext():
            p.set_data(tensor, p.sliced)
            if not getattr(p, "init_param", True):
                p.init_param = True


def _groups(wanted: List[_Wanted], at_once: int) -> Iterator[List[_Wanted]]:
    group: List[_Wanted] = []
    held = 0
    for w in wanted:
        if group and held + w.record.bytes > at_once:
            yield group
            group, held = [], 0
        group.append(w)
        held += w.record.bytes
    if group:
        yield group


def _give_back() -> None:
    """Return memory that the net has freed from the C library to the system."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _load(load: _Load, source: Path, rank: Optional[Rank], net: Any,
          strict_load: bool, choice_func: Choice, progress: Progress,
          options: Dict[str, Any]) -> Dict[str, Any]:
    for name, instead in _REFUSED.items():
        if options.pop(name, None):
            raise Error(f"load_checkpoint does not support {name}: {instead}")
    if net is not None and options.get("remove_redundancy"):
        raise Error("remove_redundancy is not possible with a net: load without "
                    "a net, and use MindSpore's load_param_into_net, which gets "
                    "the other parameters from other ranks")
    s = shared(source, **options)
    wanted = _wanted(s, rank, choice_func)
    with shown(progress) as load.tell:
        if net is not None:
            return load.fill(s, _matched(net, wanted, strict_load))
        _check_types(wanted)
        return {w.record.name: load.parameter(w, content)
                for pairs in load.contents(s, wanted) for w, content in pairs}


# ---- what programs call ----

def load_checkpoint(source: Path, rank: Optional[Rank], net: Any = None, *,
                    strict_load: bool = False, choice_func: Choice = None,
                    progress: Progress = None, threads: int = 0,
                    **options: Unpack[Options]) -> Dict[str, Any]:
    """Load the file of a rank, or with None all parts of a model, as
    mindspore.load_checkpoint does: a dict of names and Parameters, or str.

    net          its parameters are set, by MindSpore's rules; only they are read.  After
                 an exception each has either its old or its new value
    choice_func  gets a name and returns whether to load it
    progress     True for a bar on standard error, or a function of the bytes loaded so
                 far and all bytes; an exception in it stops the load
    threads      number of threads that read; 0: the library decides
    """
    return _load(_Load(threads), source, rank, net, strict_load, choice_func,
                 progress, dict(options))


def load_checkpoint_async(source: Path, rank: Optional[Rank], net: Any = None, *,
                          strict_load: bool = False, choice_func: Choice = None,
                          progress: Progress = None, threads: int = 0,
                          **options: Unpack[Options]) -> Future[Dict[str, Any]]:
    """load_checkpoint in another thread; return the future of its result.

    cancel() stops the load at any time.  The net does not change any more after
    cancel() has returned.
    """
    future = _Loading()
    load = _Load(threads, future)
    threading.Thread(target=future.run, name="reshardfs-load", args=(
        functools.partial(_load, load, source, rank, net, strict_load,
                          choice_func, progress, dict(options)),)).start()
    return future
