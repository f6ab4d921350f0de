# SPDX-License-Identifier: Apache-2.0
"""Tensors of a source as numpy arrays or torch tensors."""

from __future__ import annotations

import json
import os
import struct
from typing import (TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, KeysView, List,
                    Mapping, NamedTuple, Optional, Tuple)

from ._kinds import (Kind, as_numpy, as_torch, is_text, is_wide, kind,
                     narrow)
from ._library import Error, Rank, Record, Source, described, number_of, placed
from ._memory import fresh, numpy
from ._progress import Progress
from ._options import Options, Path
from ._sharing import shared
from ._slices import Runs, dimensions

if TYPE_CHECKING:
    from typing_extensions import Unpack

_FRAMEWORKS: Dict[str, Callable[[Any, Tuple[int, ...], Kind], Any]] = {
    "numpy": as_numpy, "np": as_numpy, "torch": as_torch, "pt": as_torch}
_AT_ONCE = 1 << 18  # runs of a slice in one call of the library


class Opened(NamedTuple):
    """What one process has open.  It never changes, so threads need no lock."""

    process: int
    source: Source
    places: Dict[str, Tuple[int, int]]  # file and number of each record
    records: Dict[str, Record]


class Names(KeysView[str]):
    """Names in the order of the file, as a view that can be indexed."""

    def __init__(self, names: Dict[str, Any]) -> None:
        super().__init__(names)
        self._names = names

    def __getitem__(self, index: Any) -> Any:
        return list(self._names)[index]

    def __repr__(self) -> str:
        return repr(list(self._names))


class TensorSlice:
    """A tensor of which parts can be read, as with safetensors' get_slice().

    With integers, ascending slices and an ellipsis only the bytes of the part are
    read.  With any other index the whole tensor is read first.
    """

    def __init__(self, tensors: "Tensors", name: str) -> None:
        self._tensors, self._name = tensors, name
        self._record = tensors.record(name)
        if is_text(self._record):
            raise TypeError(f"{name} is a string and has no slices")
        self._kind = kind(self._record)

    def get_shape(self) -> List[int]:
        """Shape of the whole tensor."""
        return list(self._record.shape)

    def get_dtype(self) -> str:
        """Type in the notation of safetensors: "F32", "BF16" and so on."""
        return self._kind.name

    def __repr__(self) -> str:
        return (f"<reshardfs.TensorSlice {self._name!r}: {self._kind.name} "
                f"{list(self._record.shape)}>")

    def __getitem__(self, index: Any) -> Any:
        found = dimensions(index, self._record.shape)
        if found is None or is_wide(self._record):
            return self._tensors[self._name][index]
        return self._read(Runs(found, numpy().dtype(self._kind.plain).itemsize))

    def _read(self, runs: Runs) -> Any:
        np = numpy()
        content = fresh(runs.n * runs.bytes)
        for begin in range(0, runs.n if content.size else 0, _AT_ONCE):
            self._load(runs, begin, min(begin + _AT_ONCE, runs.n), content)
        array = content.view(self._kind.plain).reshape(runs.shape)
        part = np.asarray(array[tuple(runs.wanted)])
        content = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
        return self._tensors._make(content, part.shape, self._kind)

    def _load(self, runs: Runs, begin: int, end: int, content: Any) -> None:
        opened = self._tensors._open()
        wants = runs.wants(begin, end, opened.places[self._name], content.ctypes.data)
        opened.source._load_wants(
            wants.ctypes.data, end - begin, runs.bytes * (end - begin),
            kept=(wants, content))


class Tensors(Mapping[str, Any]):
    """The tensors in one file of a source, or in all files.

    A mapping of names to arrays, in the order of the file.  Each access reads the
    tensor and returns a new array, which the caller owns; load() reads many at
    once.  The methods are those of safetensors' safe_open.

    numpy has no BFloat16 and no 8-bit floats: the types of ml_dtypes are used if
    it is installed, else unsigned integers of the same size.  Int4 becomes int8,
    and HiFloat8 uint8.  A string record is a str.

    Any number of threads can read at the same time.  A child of a fork opens the
    source again by itself.
    """

    def __init__(self, source: Path, rank: Optional[Rank] = None,
                 to: str = "numpy", **options: Unpack[Options]) -> None:
        if to not in _FRAMEWORKS:
            raise ValueError(f"to must be \"numpy\" or \"torch\", not \"{to}\"")
        self._make = _FRAMEWORKS[to]
        self._opened = placed(source), options
        self._rank = None if rank is None else number_of(rank)
        self._now: Optional[Opened] = self._list()
        self._records = self._now.records

    def _open(self) -> Opened:
        """What is open.  A child of a fork opens it again."""
        now = self._now
        if now is None:
            raise ValueError("the tensors are closed")
        if now.process != os.getpid():
            now = self._list()
            if now.records != self._records:
                raise Error("the source has changed since the fork")
            self._now = now
        return now

    def _list(self) -> Opened:
        path, options = self._opened
        now = Opened(os.getpid(), shared(path, **options), {}, {})
        for file in self._files(now.source):
            for number, record in enumerate(now.source.records(file)):
                if record.name in now.places:
                    raise Error(f"{record.name} is in files {file} and "
                                f"{now.places[record.name][0]}: choose a rank")
                now.places[record.name] = file, number
                now.records[record.name] = record
        return now

    def _files(self, source: Source) -> Iterable[int]:
        return (range(len(source.files())) if self._rank is None
                else [self._rank])

    # ---- a mapping ----

    def __getitem__(self, name: str) -> Any:
        return self.load([name])[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, name: object) -> bool:
        return name in self._records

    def keys(self) -> Names:
        """Names in the order of the file, as a view that can be indexed."""
        return Names(self._records)

    def record(self, name: str) -> Record:
        """The Record of a tensor, without reading it."""
        return self._records[name]

    def load(self, names: Optional[Iterable[str]] = None,
             progress: Progress = None, threads: int = 0) -> Dict[str, Any]:
        """All arrays, or those in `names`, as a dict.  Several threads read them."""
        now = self._open()
        wanted = list(self._records if names is None else names)
        contents = [fresh(self._records[name].bytes) for name in wanted]
        now.source._load_into(((*now.places[name], 0, content)
                               for name, content in zip(wanted, contents)),
                              progress, threads)
        return {name: self._array(self._records[name], content)
                for name, content in zip(wanted, contents)}

    def _array(self, record: Record, content: Any) -> Any:
        if is_text(record):
            return content.tobytes().decode("utf-32-le").rstrip("\0")
        return self._make(narrow(record, content), record.shape, kind(record))

    # ---- safetensors' interface ----

    def get_tensor(self, name: str) -> Any:
        """The same as [name]."""
        return self[name]

    def get_tensors(self) -> Dict[str, Any]:
        """The same as load()."""
        return self.load()

    def get_slice(self, name: str) -> TensorSlice:
        """A tensor of which parts can be read: get_slice(name)[10:20, ..., 3]."""
        return TensorSlice(self, name)

    def offset_keys(self) -> List[str]:
        """Names in the order of the file."""
        return list(self._records)

    def metadata(self) -> Optional[Dict[str, str]]:
        """The metadata in the headers of safetensors files; None for other
        files."""
        source = self._open().source
        files = source.files()
        found: Optional[Dict[str, str]] = None
        for number in self._files(source):
            if files[number].name.endswith(".safetensors"):
                size, = struct.unpack("<Q", source.read(number, 0, 8))
                header = json.loads(source.read(number, 8, size))
                found = {**(found or {}), **header.get("__metadata__", {})}
        return found

    def __repr__(self) -> str:
        path, options = self._opened
        return described("Tensors", (path, {"rank": self._rank, **dict(options)}),
                         None if self._now is None else f"{len(self)} tensors")

    def __enter__(self) -> "Tensors":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Close the source.  Arrays stay valid."""
        self._now = None


def tensors(source: Path, rank: Optional[Rank] = None, to: str = "numpy",
            **options: Unpack[Options]) -> Tensors:
    """The tensors in the file of a rank, or in a part of a model, as numpy arrays or
    torch tensors; without a rank, those in all files."""
    return Tensors(source, rank, to, **options)
