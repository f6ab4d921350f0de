# SPDX-License-Identifier: Apache-2.0
"""A StorageReader for torch.distributed.checkpoint, without a mount.

    import torch.distributed.checkpoint as dcp
    import reshardfs.dcp

    dcp.load(state_dict, storage_reader=reshardfs.dcp.Reader("ckpt8", src_strategy="s8.ckpt"))

SOURCE is anything that the program reads.  Each rank reads the parts of its tensors,
into their memory if they are on the CPU and contiguous, and their memory is their value.
"""

from __future__ import annotations

import io
import os
import pickle
import struct
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Set, Tuple

import torch
from torch.distributed.checkpoint import StorageReader
from torch.distributed.checkpoint.planner import LoadItemType
from torch.futures import Future

from ._library import CWant, Error, Source, hidden, placed
from ._memory import numpy
from ._options import Options, Path
from ._sharing import shared
from ._slices import Dimension, Runs

if TYPE_CHECKING:
    from typing_extensions import Unpack

_METADATA = ".metadata"
_AT_ONCE = 1 << 18  # runs in one call of the library
_HEAD = 2048  # bytes that have data.pkl, the first member of an item


class _Layout(pickle.Unpickler):
    """Loads the arguments of torch._utils._rebuild_tensor_v2 in place of a tensor:
    storage, offset, size, stride and so on."""

    def find_class(self, module: str, name: str) -> Any:
        return lambda *arguments: arguments

    def persistent_load(self, pid: Any) -> Any:
        return pid


def _in_rows(head: bytes, shape: Tuple[int, ...]) -> bool:
    """Whether an item that begins so has its elements in the order of rows, from the
    first one of its storage on."""
    name, extra = struct.unpack_from("<HH", head, 26)
    try:
        _, offset, size, stride, *_ = _Layout(io.BytesIO(head[30 + name + extra:])).load()
    except (pickle.UnpicklingError, EOFError, TypeError, ValueError):
        return False
    n, rows = 1, []
    for length in reversed(shape):
        rows.append(n)
        n *= length
    return offset == 0 and tuple(size) == shape and tuple(stride) == tuple(reversed(rows))


def _is_its_memory(target: Any, dtype: Any) -> bool:
    """Whether the value of a tensor is the bytes in its memory, in the order of rows."""
    # A subclass may keep its value elsewhere.  One with torch's mark of a conjugate or
    # a negative number has other numbers in its memory.
    return (type(target) is torch.Tensor and target.layout == torch.strided and
            target.device.type == "cpu" and target.dtype == dtype and
            target.is_contiguous() and not target.is_conj() and not target.is_neg())


def _has_memory(target: Any) -> bool:
    """Whether its storage was not made smaller, as that of parameters that FSDP frees."""
    end = (target.storage_offset() + target.numel()) * target.element_size()
    return bool(target.numel() == 0 or
                (target.data_ptr() and target.untyped_storage().nbytes() >= end))


def _memory(target: Any) -> Tuple[int, int]:
    """Where the memory of a tensor begins and ends."""
    begin = target.data_ptr()
    return begin, begin + target.numel() * target.element_size()


def _sharing(targets: Dict[int, Any]) -> Set[int]:
    """The keys of those whose memory another one has too, as tied weights do."""
    found: Set[int] = set()
    last, reached = -1, 0
    for (begin, end), key in sorted((_memory(t), key) for key, t in targets.items()):
        if begin < reached:
            found |= {last, key}
        if end > reached:
            last, reached = key, end
    return found


class Reader(StorageReader):  # type: ignore[misc]
    """Reads a SOURCE with dcp.load().

    source     a path or an address, as `reshardfs mount` takes it
    options    those of `reshardfs mount` as keywords, without `format`

    The names are those of `--format dcp`: `reshardfs ls --format dcp SOURCE`, or
    Reader(...).read_metadata().state_dict_metadata, lists them.  A load that fails
    raises reshardfs.Error, and the tensors have undefined content then.  Any process
    of a job makes its own Reader; one that was made before a fork opens the source
    again.
    """

    def __init__(self, source: Path, **options: Unpack[Options]) -> None:
        super().__init__()
        if "format" in options:
            raise TypeError("a Reader has no option format")
        options["format"] = "dcp"
        self._opened = placed(source), options
        self._source: Optional[Source] = None
        self._process = 0
        self._files: Dict[str, int] = {}
        # File, number and bytes of each tensor, which may have many items.
        self._records: Dict[str, Tuple[int, int, int]] = {}
        self._metadata: Any = None

    def __repr__(self) -> str:
        path, options = self._opened
        given = "".join(f", {name}={value!r}" for name, value in options.items()
                        if name != "format")
        return f"reshardfs.dcp.Reader({hidden(path)!r}{given})"

    def _open(self) -> Source:
        if self._source is None or self._process != os.getpid():
            path, options = self._opened
            source = shared(path, **options)
            self._files = {f.name: i for i, f in enumerate(source.files())}
            self._records = {
                record.name: (file, number, record.bytes)
                for name, file in self._files.items() if name.endswith(".distcp")
                for number, record in enumerate(source.records(file))}
            self._metadata = pickle.loads(bytes(source.read(self._files[_METADATA])))
            self._source, self._process = source, os.getpid()
        return self._source

    # ---- what torch calls ----

    def reset(self, checkpoint_id: Any = None) -> None:
        """Begin another load, of the source `checkpoint_id` if it is given."""
        if checkpoint_id is not None:
            self._opened = placed(checkpoint_id), self._opened[1]
        self._source = None

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        """Whether it may be a SOURCE."""
        return isinstance(checkpoint_id, (str, os.PathLike))

    def read_metadata(self, *_: Any, **__: Any) -> Any:
        """The names, types and shapes of the source."""
        self._open()
        return self._metadata

    def set_up_storage_reader(self, metadata: Any, *_: Any, **__: Any) -> None:
        """Does nothing: each process opens the source by itself."""

    def prepare_local_plan(self, plan: Any) -> Any:
        """The plan as it is."""
        return plan

    def prepare_global_plan(self, plans: List[Any]) -> List[Any]:
        """The plans as they are."""
        return plans

    def read_data(self, plan: Any, planner: Any) -> Future[None]:
        """Reads what the plan of this rank wants."""
        self._open()
        parts: List[Tuple[Any, Any, bool]] = []
        direct: Dict[int, Any] = {}
        for item in plan.items:
            if item.type == LoadItemType.BYTE_IO:
                planner.load_bytes(item, self._value(item))
                continue
            target = planner.resolve_tensor(item).detach()
            if tuple(target.shape) != tuple(item.lengths):
                raise Error(f"{item.storage_index.fqn}: a part of {tuple(item.lengths)} is "
                            f"wanted in a tensor of {tuple(target.shape)}")
            in_rows = self._is_in_rows(item)
            if in_rows and _is_its_memory(target, self._dtype(item)):
                if not _has_memory(target):
                    raise Error(f"{item.storage_index.fqn}: the tensor to load it into has no "
                                "memory: resize its storage before the load")
                direct[len(parts)] = target
            parts.append((item, target, in_rows))
        # _load() has no order: parts of the same memory are loaded one after another.
        for number in _sharing(direct):
            del direct[number]
        self._load([(parts[number][0], target) for number, target in direct.items()])
        for number, (item, target, in_rows) in enumerate(parts):
            if number not in direct:
                target.copy_(self._part(item, in_rows))
            planner.commit_tensor(item, target)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    # ---- reading ----

    def _place(self, item: Any) -> Any:
        index = item.storage_index
        try:
            return self._metadata.storage_data[index]
        except KeyError:
            raise Error(f"{index.fqn} at {index.offset} is not in the source") from None

    def _dtype(self, item: Any) -> Any:
        return self._metadata.state_dict_metadata[item.storage_index.fqn].properties.dtype

    def _value(self, item: Any, most: Optional[int] = None) -> io.BytesIO:
        """An item, or its first bytes."""
        place = self._place(item)
        length = place.length if most is None else min(most, place.length)
        return io.BytesIO(self._open().read(self._files[place.relative_path], place.offset,
                                            length))

    def _is_in_rows(self, item: Any) -> bool:
        return _in_rows(self._value(item, _HEAD).getvalue(), tuple(self._chunk(item).sizes))

    def _part(self, item: Any, in_rows: bool) -> Any:
        """A part in memory of its own."""
        if in_rows:
            read = torch.empty(tuple(item.lengths), dtype=self._dtype(item))
            self._load([(item, read)])
            return read
        read = torch.load(self._value(item), map_location="cpu", weights_only=True)
        for d, (start, length) in enumerate(zip(item.storage_offsets, item.lengths)):
            read = read.narrow(d, start, length)
        return read

    def _chunk(self, item: Any) -> Any:
        """The stored chunk that has the part."""
        index = item.storage_index
        described = self._metadata.state_dict_metadata[index.fqn]
        for chunk in described.chunks:
            if index.offset is None or tuple(chunk.offsets) == tuple(index.offset):
                return chunk
        raise Error(f"{index.fqn} at {index.offset} is not in the source")

    def _wants(self, item: Any, target: Any) -> Any:
        """The structs CWant of a part."""
        name = item.storage_index.fqn
        file, record, stored = self._records[name]
        shape, size = tuple(self._metadata.state_dict_metadata[name].size), target.element_size()
        starts = tuple(map(sum, zip(self._chunk(item).offsets, item.storage_offsets)))
        lengths = tuple(item.lengths)
        whole = size
        for n in shape:
            whole *= n
        if stored != whole or any(a < 0 or a + n > d
                                  for a, n, d in zip(starts, lengths, shape)):
            raise Error(f"{name}: {lengths} at {starts} is not a part of {shape}")
        if 0 in lengths:
            return numpy().empty(0, CWant)
        runs = Runs([Dimension(d, a, n, 1, True)
                     for d, a, n in zip(shape, starts, lengths)], size)
        return runs.wants(0, runs.n, (file, record), target.data_ptr())

    def _load(self, parts: List[Tuple[Any, Any]]) -> None:
        np = numpy()
        source, held, n = self._open(), [], 0
        for number, (item, target) in enumerate(parts):
            held.append(self._wants(item, target))
            n += len(held[-1])
            if n < _AT_ONCE and number + 1 < len(parts):
                continue
            wants = np.concatenate(held)
            if len(wants):
                source._load_wants(wants.ctypes.data, len(wants), int(wants["bytes"].sum()))
            held, n = [], 0
