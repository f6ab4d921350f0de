# SPDX-License-Identifier: Apache-2.0
"""The weights of a model one after the other, as the loaders of engines take them."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any, Callable, Iterator, List, NamedTuple, Optional, Tuple

from ._imports import imported
from ._kinds import as_torch, kind
from ._library import Error, Rank, Record, number_of
from ._memory import fresh, numpy
from ._options import Options, Path
from ._slices import Dimension, Runs
from ._tensors import Tensors

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Bytes that are read together, if no tensor is larger.
_AT_ONCE = 64 << 20
_RUNS = 1 << 18  # runs in one call of the library
_PATIENCE = 3.0  # seconds to wait for a read when the program ends

Choice = Optional[Callable[[str], object]]
# The dimension that is cut for the ranks, by the name and the shape of a tensor.
Cut = Optional[Callable[[str, Tuple[int, ...]], Optional[int]]]


class _Wanted(NamedTuple):
    """A tensor, or the part of it that a rank has."""
    record: Record
    shape: Tuple[int, ...]
    runs: Runs

    def size(self) -> int:
        return self.runs.n * self.runs.bytes


def _wanted(record: Record, rank: int, world: int, cut: Cut) -> _Wanted:
    found = [Dimension(n, 0, n, 1, True) for n in record.shape]
    axis = cut(record.name, record.shape) if cut else None
    if axis is not None:
        n, rest = divmod(record.shape[axis], world)
        if rest:
            raise Error(f"{record.name}: dimension {axis} of {list(record.shape)} cannot be "
                        f"divided by {world} ranks")
        found[axis] = found[axis]._replace(start=n * rank, taken=n)
    runs = Runs(found, numpy().dtype(kind(record).plain).itemsize)
    return _Wanted(record, runs.shape, runs)


def _groups(found: List[_Wanted]) -> Iterator[List[_Wanted]]:
    group: List[_Wanted] = []
    held = 0
    for w in found:
        if group and held + w.size() > _AT_ONCE:
            yield group
            group, held = [], 0
        group.append(w)
        held += w.size()
    if group:
        yield group


_readers: weakref.WeakSet[_Reader] = weakref.WeakSet()


@atexit.register
def _stop_all() -> None:
    """A thread that calls Python when Python has ended would end the program by a fault."""
    readers = list(_readers)
    for reader in readers:
        reader.stop()
    for reader in readers:
        reader.join()


class _Reader:
    """Reads a group of tensors while the one before is used."""

    def __init__(self, tensors: Tensors, threads: int) -> None:
        self._tensors, self._threads = tensors, threads
        self._process = os.getpid()
        self._stopped = threading.Event()
        self._thread: Optional[threading.Thread] = None
        _readers.add(self)

    def stop(self) -> None:
        self._stopped.set()

    def join(self) -> None:
        """Waits until it has stopped, unless the source hangs."""
        if self._thread and self._process == os.getpid():
            self._thread.join(_PATIENCE)

    def _check(self, *_: int) -> None:
        if self._stopped.is_set():
            raise CancelledError

    def _read(self, group: List[_Wanted], done: Future[List[Any]]) -> None:
        np, t = numpy(), self._tensors
        try:
            opened = t._open()
            contents = [fresh(w.size()) for w in group]
            wants = np.concatenate([
                w.runs.wants(0, w.runs.n if content.size else 0, opened.places[w.record.name],
                             content.ctypes.data)
                for w, content in zip(group, contents)])
            for begin in range(0, len(wants), _RUNS):
                some = wants[begin:begin + _RUNS]
                opened.source._load_wants(some.ctypes.data, len(some), int(some["bytes"].sum()),
                                   self._check, self._threads, (wants, contents))
            done.set_result([t._make(content, w.shape, kind(w.record))
                             for w, content in zip(group, contents)])
        except BaseException as error:  # pylint: disable=broad-except
            done.set_exception(error)

    def begin(self, group: List[_Wanted]) -> Future[List[Any]]:
        done: Future[List[Any]] = Future()
        # A daemon thread: the end of the program waits for it for some seconds only.
        self._thread = threading.Thread(target=self._read, args=(group, done),
                                        name="reshardfs-weights", daemon=True)
        self._thread.start()
        return done

    def end(self, begun: Future[List[Any]]) -> List[Any]:
        if self._process != os.getpid():
            raise Error("the weights were opened before a fork: open them again")
        return begun.result()


def _read(tensors: Tensors, found: List[_Wanted], threads: int) -> Iterator[Tuple[str, Any]]:
    reader = _Reader(tensors, threads)
    groups = _groups(found)
    group: Optional[List[_Wanted]] = next(groups, None)
    begun = reader.begin(group) if group else None
    try:
        while group and begun:
            now, read = group, reader.end(begun)
            group = next(groups, None)
            begun = reader.begin(group) if group else None
            names = [w.record.name for w in now]
            while read:
                yield names.pop(0), read.pop(0)
    finally:
        reader.stop()


def _sliced(tensors: Tensors, found: List[Record]) -> Iterator[Tuple[str, Any]]:
    made = imported("reshardfs._parts").part if tensors._make is as_torch else lambda s: s
    for record in found:
        yield record.name, made(tensors.get_slice(record.name))


def weights(source: Path, *, rank: Optional[Rank] = None, world: Optional[Rank] = None,
            cut: Cut = None, slices: bool = False, to: str = "torch",
            choice_func: Choice = None, threads: int = 0,
            **options: Unpack[Options]) -> Iterator[Tuple[str, Any]]:
    """The names and tensors of a whole model in the order of its files, as the loaders of
    vLLM and SGLang take them.  The next tensors are read while one is used.

    rank, world  with cut: part `rank` of `world` of each tensor is read
    cut          gets name and shape, returns the dimension to cut, or None: the whole
    slices       tensors of which only those bytes are read that are taken by slices
    choice_func  gets a name and returns whether to read it
    options      those of `reshardfs mount` as keywords, without `format`
    """
    if "format" in options:
        raise TypeError("weights() has no option format")
    if (rank is None) != (world is None) or (rank is None) != (cut is None):
        raise TypeError("rank, world and cut are given together")
    if cut and slices:
        raise TypeError("cut and slices exclude each other")
    part, parts = number_of(rank or 0), number_of(1 if world is None else world)
    if not 0 <= part < parts:
        raise ValueError(f"there is no rank {part} of {parts}")
    options["format"] = "hf"
    tensors = Tensors(source, None, to, **options)
    found = [tensors.record(name) for name in tensors
             if choice_func is None or choice_func(name)]
    if slices:
        return _sliced(tensors, found)
    return _read(tensors, [_wanted(record, part, parts, cut) for record in found], threads)
