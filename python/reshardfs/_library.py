# SPDX-License-Identifier: Apache-2.0
"""Open sources of libreshard, their files, records and bytes."""

from __future__ import annotations

import contextlib
import ctypes
import operator
import os
import re
import threading
from typing import (TYPE_CHECKING, Any, Iterable, Iterator, List, Mapping, NamedTuple,
                    Optional, Sequence, Tuple, Union)

from . import _imports
from ._memory import fresh
from ._options import Options, Path, spoken, words
from ._progress import Progress, Tell, watched

if TYPE_CHECKING:
    from typing_extensions import Unpack

# The number of a rank, also as text, as environments have it.
Rank = Union[int, str]
# Number of a file, number of a record in it, offset in the record's content in
# bytes, and a writable buffer.
Want = Tuple[int, int, int, Any]

_ADDRESS = re.compile("(s3|https?)://")


def is_address(text: str) -> bool:
    """Whether it is in object storage."""
    return bool(_ADDRESS.match(text))


def placed(source: Path) -> str:
    """A source as an absolute path, which stays valid if the program changes its
    directory; an address, or the name of a model on the Hugging Face Hub, as it is."""
    text = os.fspath(source)
    known = is_address(text) or not os.path.lexists(text)
    return text if known else os.path.abspath(text)


class Error(Exception):
    """A failure; its text is one message.

    errno   errno of the library, or None if the program failed
    """

    def __init__(self, sentence: str, errno: Optional[int] = None) -> None:
        super().__init__(sentence)
        self.errno = errno


class File(NamedTuple):
    """A file that a mount with the same options would have.

    rank    its rank, or the number of its part; None for the index of parts
    name    path below the root of a mount: "rank_0/checkpoint_0.ckpt"
    size    in bytes
    """
    rank: Optional[int]
    name: str
    size: int


class Record(NamedTuple):
    """A parameter in a File.

    dtype   "Float32", "BFloat16" and so on
    shape   () for a scalar
    bytes   bytes of content
    offset  start in the file: of the header in a .ckpt, of the content in a
            safetensors file
    stored  bytes from there, with headers
    """
    name: str
    dtype: str
    shape: Tuple[int, ...]
    bytes: int
    offset: int
    stored: int


_NO_RANK = 2**32 - 1
_NO_OFFSET = 2**64 - 1  # of a C uint64_t


def number_of(rank: Rank) -> int:
    """A rank, or the number of a file, as an integer."""
    if isinstance(rank, str) and rank.isdecimal():
        rank = int(rank)
    if not hasattr(rank, "__index__"):
        raise TypeError(f"{rank!r} is not the number of a file: an int is needed, or its "
                        "digits as a str, as in os.environ[\"RANK\"]")
    # ctypes would cut the number to 32 bits.
    number = operator.index(rank)
    if not 0 <= number < _NO_RANK:
        raise ValueError(f"{number} is not the number of a file")
    return number


class _CFile(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_uint32), ("name", ctypes.c_char_p),
                ("size", ctypes.c_uint64)]


class _CRecord(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p),
                ("n_dims", ctypes.c_uint32), ("dims", ctypes.c_int64 * 32),
                ("bytes", ctypes.c_uint64), ("offset", ctypes.c_uint64),
                ("stored", ctypes.c_uint64)]


class CWant(ctypes.Structure):
    """struct reshard_want"""
    _fields_ = [("file", ctypes.c_uint32), ("record", ctypes.c_uint32),
                ("offset", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
                ("to", ctypes.c_size_t)]


_CProgress = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64,
                              ctypes.c_uint64)


class _CLoadOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("threads", ctypes.c_uint),
                ("progress", _CProgress), ("ctx", ctypes.c_void_p)]


def _told_to(tell: Tell) -> Any:
    return _CProgress(lambda _, done, whole: tell(done, whole))


_PROTOTYPES = {
    "reshard_open": (ctypes.c_int, [ctypes.c_char_p,
                                    ctypes.POINTER(ctypes.c_char_p),
                                    ctypes.POINTER(ctypes.c_void_p)]),
    "reshard_close": (None, [ctypes.c_void_p]),
    "reshard_error": (ctypes.c_char_p, []),
    "reshard_n_files": (ctypes.c_uint32, [ctypes.c_void_p]),
    "reshard_file": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint32,
                                    ctypes.POINTER(_CFile)]),
    "reshard_read": (ctypes.c_ssize_t, [ctypes.c_void_p, ctypes.c_uint32,
                                        ctypes.c_void_p, ctypes.c_size_t,
                                        ctypes.c_uint64]),
    "reshard_n_records": (ctypes.c_uint32, [ctypes.c_void_p,
                                            ctypes.c_uint32]),
    "reshard_record": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_uint32,
                                      ctypes.c_uint32,
                                      ctypes.POINTER(_CRecord)]),
    "reshard_load": (ctypes.c_int, [ctypes.c_void_p, ctypes.c_void_p,
                                    ctypes.c_size_t,
                                    ctypes.POINTER(_CLoadOptions)]),
}

# Path of the library in a wheel; see backend.py.
_BUNDLED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "lib",
                        "libreshard.so")
_library: Any = None  # _imports.lock held to write


def _lib() -> Any:
    """The library, which is loaded at first use: a mount does not need it."""
    global _library
    if _library is not None:
        return _library
    with _imports.lock:
        if _library is not None:
            return _library
        bundled = _BUNDLED if os.path.exists(_BUNDLED) else "libreshard.so.0"
        name = os.environ.get("LIBRESHARD") or bundled
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            raise Error(f"cannot load libreshard: {error}") from None
        for name, (result, arguments) in _PROTOTYPES.items():
            try:
                function = getattr(library, name)
            except AttributeError as error:
                raise Error("libreshard is older than this module: "
                            f"{error}") from None
            function.restype = result
            function.argtypes = arguments
        _library = library
        return library


def hidden(source: Any) -> Any:
    """An address without name, password and query, which may be secret."""
    if not isinstance(source, str) or not re.match("(https?|s3)://", source):
        return source
    source = re.sub("^([a-z0-9]+://)[^/]*@", r"\1", source)
    return re.sub("[?#].*", "", source) if source.startswith("http") else source


def described(name: str, opened: Tuple[str, Mapping[str, Any]], what: Optional[str]) -> str:
    """The repr() of what is open with these options, and what it has; None: closed."""
    given = "".join(f", {word}={value!r}" for word, value in opened[1].items()
                    if value is not None)
    return f"<reshardfs.{name} of {hidden(opened[0])!r}{given}: {what or 'closed'}>"


def _check(status: int) -> int:
    if status >= 0:
        return status
    raise Error(spoken(os.fsdecode(_lib().reshard_error())), -status)


class Source:
    """An open checkpoint.

    Any number of threads can read at the same time.  After close() no read begins;
    reads that have begun end.  A child of a fork must open its own.
    """

    def __init__(self, source: Path, **options: Unpack[Options]) -> None:
        self._opened = os.fspath(source), options
        self._lock = threading.Lock()  # guards the next two
        self._handle: Optional[ctypes.c_void_p] = None
        self._uses = 0
        self._process = os.getpid()
        said = [os.fsencode(word) for word in words(options)]
        handle = ctypes.c_void_p()
        _check(_lib().reshard_open(os.fsencode(source),
                                   (ctypes.c_char_p * (len(said) + 1))(*said),
                                   ctypes.byref(handle)))
        self._handle = handle

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the source is closed")
        if self._process != os.getpid():
            raise Error("the source was opened before a fork: open it again")
        return self._handle

    @contextlib.contextmanager
    def _using(self) -> Iterator[ctypes.c_void_p]:
        """A read can outlive close(): the last one to end closes the handle then."""
        self._open()  # a child of a fork may have inherited a lock that is taken
        with self._lock:
            handle = self._open()
            self._uses += 1
        try:
            yield handle
        finally:
            with self._lock:
                self._uses -= 1
                closes = self._handle is None and not self._uses
            if closes:
                _lib().reshard_close(handle)

    def close(self) -> None:
        """Close the source.  It can be called more than once."""
        # A close waits for threads of the library, which only the parent has.
        if self._process != os.getpid():
            self._handle = None
            return
        with self._lock:
            handle, self._handle = self._handle, None
            closes = handle is not None and not self._uses
        if closes:
            _lib().reshard_close(handle)

    def __repr__(self) -> str:
        try:
            return described("Source", self._opened, f"{len(self.files())} files")
        except (ValueError, Error):
            return described("Source", self._opened, None)

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _file(self, number: int) -> File:
        f = _CFile()
        with self._using() as handle:
            _check(_lib().reshard_file(handle, number, ctypes.byref(f)))
            return File(None if f.rank == _NO_RANK else f.rank,
                        os.fsdecode(f.name), f.size)

    def files(self) -> List[File]:
        """All files; the file of rank n has number n."""
        with self._using() as handle:
            return [self._file(i)
                    for i in range(_lib().reshard_n_files(handle))]

    def records(self, rank: Rank) -> List[Record]:
        """The records in the file of a rank, in its order."""
        number = number_of(rank)
        with self._using() as handle:
            self._file(number)
            return [self._record(handle, number, n)
                    for n in range(_lib().reshard_n_records(handle, number))]

    @staticmethod
    def _record(handle: ctypes.c_void_p, rank: int, n: int) -> Record:
        c = _CRecord()
        _check(_lib().reshard_record(handle, rank, n, ctypes.byref(c)))
        dtype, shape = c.dtype.decode(), tuple(c.dims[:c.n_dims])
        # MindSpore up to 2.2 wrote scalars this way.
        if shape == (0,) and c.bytes and dtype != "str":
            shape = ()
        return Record(c.name.decode(errors="surrogateescape"), dtype, shape,
                      c.bytes, c.offset, c.stored)

    def readinto(self, rank: Rank, buffer: Any, offset: int = 0) -> int:
        """Read into a writable buffer, from `offset` of the file of a rank.

        Return the number of bytes, which is smaller than the buffer only at the
        end of the file."""
        number = number_of(rank)
        if offset < 0:
            raise ValueError("the offset is negative")
        if offset >= self._file(number).size:
            return 0
        with memoryview(buffer).cast("B") as view:
            if not view:
                return 0
            # As in _load_into().
            place = (ctypes.c_char * 0).from_buffer(view)
            try:
                with self._using() as handle:
                    return _check(_lib().reshard_read(handle, number, place,
                                                      len(view), offset))
            finally:
                del place

    def read(self, rank: Rank, offset: int = 0,
             length: Optional[int] = None) -> bytearray:
        """Bytes of the file of a rank: `length` bytes from `offset`, or all up
        to the end."""
        if offset < 0 or (length is not None and length < 0):
            raise ValueError("offset or length is negative")
        number = number_of(rank)
        left = max(self._file(number).size - offset, 0)
        buffer = bytearray(left if length is None else min(length, left))
        self.readinto(number, buffer, offset)
        return buffer

    def load_into(self, wants: Iterable[Want], progress: Progress = None,
                  threads: int = 0) -> None:
        """Read contents of records into the buffers of `wants`, with `threads`
        threads (0: the library decides).

        After an exception the content of the buffers is undefined."""
        self._load_into(wants, progress, threads, False)

    def _load_into(self, wants: Iterable[Want], progress: Progress,
                   threads: int, ours: bool = True) -> None:
        """With `ours` only this module has the buffers."""
        held, found = [], []
        whole = 0
        for file, number, offset, buffer in wants:
            if min(file, number, offset) < 0 or max(file, number) > _NO_RANK or \
                    offset > _NO_OFFSET:
                raise ValueError("a want has numbers that no record can have")
            view = memoryview(buffer).cast("B")
            # An empty array: any other size would need its own type.
            place = (ctypes.c_char * 0).from_buffer(view)
            held.append((view, place))
            found.append(CWant(file, number, offset, len(view),
                               ctypes.addressof(place)))
            whole += len(view)
        self._load_wants((CWant * len(found))(*found), len(found), whole,
                        progress, threads, held if ours else None)

    def _load_wants(self, wants: Any, n: int, whole: int,
                    progress: Progress = None, threads: int = 0,
                    kept: Any = None) -> None:
        """Load `n` structs CWant at `wants`, of `whole` bytes together; `kept` is
        that of watched()."""
        if threads < 0:
            raise ValueError("the number of threads is negative")
        self._open()

        def load(tell: Optional[Tell]) -> None:
            options = _CLoadOptions(ctypes.sizeof(_CLoadOptions), threads)
            if tell is not None:
                options.progress = _told_to(tell)
            with self._using() as handle:
                _check(_lib().reshard_load(handle, wants, n,
                                           ctypes.byref(options)))

        watched(load, whole, progress, kept)

    def load_bytes(self, rank: Rank, numbers: Optional[Sequence[int]] = None,
                   progress: Progress = None, threads: int = 0) -> List[Any]:
        """The contents of all records in the file of a rank, or of the records
        `numbers`, as new numpy arrays of bytes."""
        file = number_of(rank)
        records = self.records(file)
        if numbers is None:
            numbers = range(len(records))
        arrays = [fresh(records[n].bytes) for n in numbers]
        self._load_into(((file, n, 0, a) for n, a in zip(numbers, arrays)),
                        progress, threads)
        return arrays


def files(source: Path, **options: Unpack[Options]) -> List[File]:
    """The files of a source that is opened for this call."""
    with Source(source, **options) as s:
        return s.files()


def records(source: Path, rank: Rank, **options: Unpack[Options]) -> List[Record]:
    """The records in the file of a rank, of a source opened for this call."""
    with Source(source, **options) as s:
        return s.records(rank)


def read(source: Path, rank: Rank, offset: int = 0,
         length: Optional[int] = None, **options: Unpack[Options]) -> bytearray:
    """Bytes of the file of a rank: `length` bytes from `offset`, or all up to the
    end.  The source is opened for this call; use Source to read repeatedly."""
    with Source(source, **options) as s:
        return s.read(rank, offset, length)
