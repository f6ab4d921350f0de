# SPDX-License-Identifier: Apache-2.0
"""Runs of bytes that a part of an array consists of."""

from __future__ import annotations

import numbers
from typing import Any, List, NamedTuple, Optional, Tuple

from ._library import CWant
from ._memory import numpy

_SKIPPED = 128  # gaps of fewer bytes are read


class Dimension(NamedTuple):
    """The selected indexes of a dimension.

    length  number of indexes in the whole array
    start   first selected index
    taken   number of selected indexes
    step    distance between them
    kept    whether the result has this dimension
    """
    length: int
    start: int
    taken: int
    step: int
    kept: bool


def dimensions(index: Any, shape: Tuple[int, ...]
               ) -> Optional[List[Dimension]]:
    """The selection that `index` makes in an array, or None if it has more than
    integers, ascending slices and an ellipsis."""
    given = list(index) if isinstance(index, tuple) else [index]
    if not all(map(_is_plain, given)):
        return None
    dots = [i for i, one in enumerate(given) if one is Ellipsis]
    missing = len(shape) - len(given) + len(dots)
    if len(dots) > 1 or missing < 0:
        raise IndexError(f"{index} is not an index of {len(shape)} dimensions")
    at = dots[0] if dots else len(given)
    given[at:at + len(dots)] = [slice(None)] * missing
    return [_dimension(one, n) for one, n in zip(given, shape)]


def _is_plain(one: Any) -> bool:
    if isinstance(one, slice):
        return one.step is None or one.step > 0
    return one is Ellipsis or (isinstance(one, numbers.Integral)
                               and not isinstance(one, bool))


def _dimension(one: Any, length: int) -> Dimension:
    if isinstance(one, slice):
        start, stop, step = one.indices(length)
        taken = len(range(start, stop, step))
        return Dimension(length, start, taken, step if taken > 1 else 1, True)
    if not -length <= one < length:
        raise IndexError(f"index {one} is out of bounds for a dimension of "
                         f"{length}")
    return Dimension(length, int(one) % length, 1, 1, False)


class Runs:
    """The runs of bytes to read for a selection in an array whose elements have
    `size` bytes.

    bytes   bytes of each run
    n       number of runs
    shape   shape of the data in all runs, including gaps that are read
    wanted  index of the selection in that data
    """

    def __init__(self, found: List[Dimension], size: int) -> None:
        self.wanted: List[Any] = []
        read = []
        inner = size  # bytes of one index of the dimension
        for d in reversed(found):
            step = d.step
            if 0 < (step - 1) * inner < _SKIPPED:
                d = d._replace(taken=(d.taken - 1) * step + 1, step=1)
            else:
                step = 1
            read.append(d)
            self.wanted.append(slice(None, None, step) if d.kept else 0)
            inner *= d.length
        self.wanted.reverse()
        read.reverse()
        self.shape = tuple(d.taken for d in read)
        self._split(read, size)

    def _split(self, read: List[Dimension], size: int) -> None:
        """A run covers the last dimensions that are selected completely, and one
        more dimension if its selection has no gaps."""
        strides = []
        for d in reversed(read):
            strides.append(size)
            size *= d.length
        strides.reverse()
        k = len(read)
        self.bytes = strides[-1] if read else size
        while k and read[k - 1].step == 1:
            k -= 1
            self.bytes = read[k].taken * strides[k]
            if read[k].taken != read[k].length:
                break
        self.n = 1
        for d in read[:k]:
            self.n *= d.taken
        self._counts = [d.taken for d in read[:k]]
        self._steps = [d.step * s for d, s in zip(read, strides)][:k]
        self._start = sum(d.start * s for d, s in zip(read, strides))

    def offsets(self, begin: int, end: int) -> Any:
        """Offsets of runs [begin, end) in the bytes of the array."""
        np = numpy()
        at = np.full(end - begin, self._start, np.uint64)
        if self._counts:
            places = np.unravel_index(np.arange(begin, end), self._counts)
            for place, step in zip(places, self._steps):
                at += place.astype(np.uint64) * np.uint64(step)
        return at

    def wants(self, begin: int, end: int, place: Tuple[int, int], to: int) -> Any:
        """The structs CWant that read runs [begin, end) of the record at `place`, a file
        and a number in it, into the memory from address `to` on, where run 0 begins."""
        np = numpy()
        wants = np.empty(end - begin, CWant)
        wants["file"], wants["record"] = place
        wants["offset"] = self.offsets(begin, end)
        wants["bytes"] = self.bytes
        wants["to"] = to + self.bytes * np.arange(begin, end, dtype=np.uint64)
        return wants
