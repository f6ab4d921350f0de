# SPDX-License-Identifier: Apache-2.0
"""Checkpoints straight into MindSpore: parameters, and nets."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import logging
import threading
import traceback
from concurrent.futures import CancelledError, Future
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterator, List,
                    NamedTuple, Optional, Tuple)

from ._kinds import is_text, kind, narrow
from ._library import Error, Path, Record, Source
from ._memory import fresh
from ._progress import Moved, Progress, shown
from ._sharing import shared

# Bytes that are read before any of them goes into a net, if no tensor is
# larger: enough for several threads.
_AT_ONCE = 32 << 20

# Between types of one of these MindSpore converts when a net is loaded.
_FLOATS = {"Float16", "Float32", "Float64", "BFloat16"}
_INTEGERS = {"Int4", "Int8", "Int16", "Int32", "Int64"}
_TYPES = _FLOATS | _INTEGERS | {"Bool", "UInt8", "UInt16", "UInt32", "UInt64",
                                "str"}

# What mindspore.load_checkpoint takes and this one does not.
_REFUSED = {
    "crc_check": "check='full' compares the CRCs of the source",
    "dec_key": "encrypted checkpoints are not read",
    "dec_mode": "encrypted checkpoints are not read",
    "filter_prefix": "drop= takes a regular expression",
    "specify_prefix": "only= takes a regular expression",
}

_log = logging.getLogger("reshardfs")

Choice = Optional[Callable[[str], object]]


class _Wanted(NamedTuple):
    """A record of a file, whether its parameter has a name, and the parameter
    of a net that it is for."""
    file: int
    number: int
    record: Record
    named: bool
    parameter: Any


# ---- a load that can be cancelled ----

if TYPE_CHECKING:
    _Future = Future[Dict[str, Any]]
else:
    _Future = Future


class _Loading(_Future):
    """Can be cancelled as long as it has no result: it never says that it is
    running."""

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
        """A net changes here alone, and no more once cancel() has returned."""
        with self._taking:
            self.check()
            yield

    def run(self, load: Callable[[], Dict[str, Any]]) -> None:
        try:
            result = load()
        except BaseException as error:  # pylint: disable=broad-except
            if self.set_running_or_notify_cancel():
                # Whoever keeps the future is not to keep what was loaded.
                traceback.clear_frames(error.__traceback__)
                self.set_exception(error)
                del self, load  # The error's traceback has this frame.
        else:
            if self.set_running_or_notify_cancel():
                self.set_result(result)


# ---- what is wanted ----

def _wanted(s: Source, rank: Optional[int], choice: Choice) -> List[_Wanted]:
    """In the order in which MindSpore would load them."""
    found = []
    files = s.files()
    for file in range(len(files)) if rank is None else [rank]:
        held = [(n, r) for n, r in enumerate(s.records(file))
                if choice is None or choice(r.name)]
        # Of safetensors it sorts the names, and gives none to parameters.
        sort = files[file].name.endswith(".safetensors")
        if sort:
            held.sort(key=lambda one: one[1].name)
        found += [_Wanted(file, n, r, not sort, None) for n, r in held]
    if not found:
        raise Error("there is no parameter that is wanted")
    names = {w.record.name for w in found}
    if len(names) < len(found):
        raise Error("files have parameters of the same names: say of which "
                    "rank they are wanted")
    return found


def _check_types(wanted: List[_Wanted]) -> None:
    for w in wanted:
        if w.record.dtype not in _TYPES:
            raise Error(f"{w.record.name}: MindSpore has no parameters of "
                        f"{w.record.dtype}")


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
    """Parameters that the checkpoint has with something before their names.
    Takes them from `left`."""
    taken: List[_Wanted] = []
    while True:
        prefix = next((name[:len(name) - len(p.name)] for p in left
                       for name in by_name if name.endswith(p.name)), None)
        if prefix is None:
            return taken
        _log.warning("names in the checkpoint begin with \"%s\", which those "
                     "of the net lack", prefix)
        taken += [by_name[prefix + p.name]._replace(parameter=p)
                  for p in left if prefix + p.name in by_name]
        left[:] = [p for p in left if prefix + p.name not in by_name]


def _check_fits(w: _Wanted, strict: bool) -> None:
    r, p = w.record, w.parameter
    shape, dtype = tuple(p.shape), str(p.dtype)
    # Dimensions of 1 at the end may be more.
    if r.shape != shape + (1,) * (len(r.shape) - len(shape)):
        raise Error(f"{p.name} is {list(shape)} in the net and {list(r.shape)} "
                    "in the checkpoint")
    if dtype != r.dtype and (strict or not any(
            {dtype, r.dtype} <= alike for alike in (_FLOATS, _INTEGERS))):
        raise Error(f"{p.name} is {dtype} in the net and {r.dtype} in the "
                    "checkpoint")


# ---- how it is loaded ----

class _Load:
    """One call of load_checkpoint: what it was told, and its future."""

    def __init__(self, threads: int, future: Optional[_Loading] = None) -> None:
        self.mindspore = importlib.import_module("mindspore")
        self.tell: Optional[Moved] = None
        self.threads = threads
        self.future = future

    def contents(self, s: Source, wanted: List[_Wanted],
                 at_once: Optional[int] = None) \
            -> Iterator[List[Tuple[_Wanted, Any]]]:
        """What is wanted with its bytes, which nobody else keeps; if told so
        `at_once` bytes at a time, or one that has more."""
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
        """The progress of a group as that of all."""
        if not self.tell and not self.future:
            return None

        def moved(done: int, _: int) -> None:
            if self.future:
                self.future.check()
            if self.tell:
                self.tell(before + done, whole)
        return moved

    def tensor(self, r: Record, content: Any) -> Any:
        """On the memory of the content, but for Int4, which MindSpore
        copies."""
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
        # A parameter takes the memory of a tensor that nobody else has, which
        # MindSpore tells by the references to it: no variable, no keyword.
        if w.named:
            return self.mindspore.Parameter(self.tensor(w.record, content),
                                            w.record.name)
        return self.mindspore.Parameter(self.tensor(w.record, content))

    def fill(self, s: Source, wanted: List[_Wanted]) -> Dict[str, Any]:
        """Each parameter of a net gets the memory of its content, and gives
        its own back: what is read at once is all that is taken besides."""
        at_once = max([_AT_ONCE] + [w.record.bytes for w in wanted])
        for pairs in self.contents(s, wanted, at_once):
            while pairs:
                self.put(*pairs.pop())
            _give_back()
        return {w.parameter.name: w.parameter for w in wanted}

    def put(self, w: _Wanted, content: Any) -> None:
        p = w.parameter
        # Not into the parameter's own memory: others may share it, such as
        # those of another net that the same dict was loaded into.
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
    """What a net has given up, where the C library keeps it for later."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _load(load: _Load, source: Path, rank: Optional[int], net: Any,
          strict_load: bool, choice_func: Choice, progress: Progress,
          options: Dict[str, Any]) -> Dict[str, Any]:
    for name, instead in _REFUSED.items():
        if options.pop(name, None):
            raise Error(f"{name} is not for this load_checkpoint: {instead}")
    if net is not None and options.get("remove_redundancy"):
        raise Error("with remove_redundancy a rank has a share of what is its "
                    "own: load it without a net, and give it to MindSpore's "
                    "load_param_into_net, which asks the other ranks")
    s = shared(source, **options)
    wanted = _wanted(s, rank, choice_func)
    with shown(progress) as load.tell:
        if net is not None:
            return load.fill(s, _matched(net, wanted, strict_load))
        _check_types(wanted)
        return {w.record.name: load.parameter(w, content)
                for pairs in load.contents(s, wanted) for w, content in pairs}


# ---- what programs call ----

def load_checkpoint(source: Path, rank: Optional[int], net: Any = None, *,
                    strict_load: bool = False, choice_func: Choice = None,
                    progress: Progress = None, threads: int = 0,
                    **options: Any) -> Dict[str, Any]:
    """What mindspore.load_checkpoint gives for the file of a rank: by name a
    mindspore.Parameter, or a str for a string.

    The file is the one that a mount with these options shows, and parameters
    are equal to MindSpore's in every attribute; rank=None means all parts of a
    model in parts.  mindspore.load_param_into_net takes the result.

    With a net its parameters are set, and given back by name.  Only what the
    net has is read, and not much more at a time than its largest tensor.  What
    fits is what fits for MindSpore: strict_load=False converts types, and finds
    names with something before them.  After an exception each parameter has all
    of its old or all of its new values.

    choice_func  says of a name whether it is wanted
    progress     True for a bar on standard error, or what is called with the
                 bytes that are there and those that are wanted; what it raises
                 stops the load
    threads      that read; 0: as many as pay
    """
    return _load(_Load(threads), source, rank, net, strict_load, choice_func,
                 progress, options)


def load_checkpoint_async(source: Path, rank: Optional[int], net: Any = None, *,
                          strict_load: bool = False, choice_func: Choice = None,
                          progress: Progress = None, threads: int = 0,
                          **options: Any) -> Future[Dict[str, Any]]:
    """load_checkpoint in a thread of its own: the future of its result.

    cancel() stops it, also in the midst; a net changes no more then.
    """
    future = _Loading()
    load = _Load(threads, future)
    threading.Thread(target=future.run, name="reshardfs-load", args=(
        functools.partial(_load, load, source, rank, net, strict_load,
                          choice_func, progress, options),)).start()
    return future
