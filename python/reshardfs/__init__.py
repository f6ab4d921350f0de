# SPDX-License-Identifier: Apache-2.0
"""MindSpore checkpoints as they would be under another sharding strategy.

With a mount, for whatever reads files:

    import mindspore, reshardfs

    with reshardfs.mounted("checkpoints", src_strategy="8cards.ckpt",
                           dst_strategy="4cards.ckpt") as m:
        params = mindspore.load_checkpoint(m.rank(0))

and without one, through libreshard:

    for f in reshardfs.files("checkpoints", src_strategy=..., dst_strategy=...):
        print(f.rank, f.name, f.size)
    head = reshardfs.read("checkpoints", 0, length=100, src_strategy=...,
                          dst_strategy=...)

Options are those of `reshardfs mount -o`, as keywords: src_strategy and
dst_strategy (or dst_mesh), select, format, only and so on; see reshardfs(1).
True stands for an option without a value, None and False for one that is not
given, a list for one that is given several times.  The whole model is
dst_strategy="none"; `from` is a word of the language: from_="hf".

What goes wrong raises Error with the sentence that the program would have
printed.

The library is libreshard.so.0, or what LIBRESHARD in the environment names; the
program reshardfs, or what RESHARDFS names.
"""

from __future__ import annotations

import ctypes
import logging
import os
import re
import subprocess
import tempfile
import threading
from types import TracebackType
from typing import (Any, Iterator, List, NamedTuple, Optional, Tuple, Type,
                    Union)

__all__ = ["Error", "File", "Mount", "Record", "Source", "files", "mounted",
           "read", "records"]

Path = Union[str, "os.PathLike[str]"]

_log = logging.getLogger(__name__)


class Error(Exception):
    """What went wrong, in one sentence.

    errno   as the library gave it, None if it was the program that failed
    """

    def __init__(self, sentence: str, errno: Optional[int] = None) -> None:
        super().__init__(sentence)
        self.errno = errno


class File(NamedTuple):
    """A virtual file.

    rank    the rank or the part that it is of, None for the index of parts
    name    below the root of a mount: "rank_0/checkpoint_0.ckpt"
    size    in bytes
    """
    rank: Optional[int]
    name: str
    size: int


class Record(NamedTuple):
    """A parameter in a virtual file.

    dtype   "Float32", "BFloat16" and so on
    shape   () for a scalar
    bytes   of its content
    offset  where it begins in the file: its header in a .ckpt, its content in
            a safetensors file
    stored  bytes from there on, headers included
    """
    name: str
    dtype: str
    shape: Tuple[int, ...]
    bytes: int
    offset: int
    stored: int


# ---- the library ----

_NO_RANK = 2**32 - 1


class _CFile(ctypes.Structure):
    _fields_ = [("rank", ctypes.c_uint32), ("name", ctypes.c_char_p),
                ("size", ctypes.c_uint64)]


class _CRecord(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("dtype", ctypes.c_char_p),
                ("n_dims", ctypes.c_uint32), ("dims", ctypes.c_int64 * 32),
                ("bytes", ctypes.c_uint64), ("offset", ctypes.c_uint64),
                ("stored", ctypes.c_uint64)]


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
}

_library: Any = None
_library_lock = threading.Lock()  # guards _library


def _lib() -> Any:
    """Loaded when first needed: a mount does without."""
    global _library
    with _library_lock:
        if _library is not None:
            return _library
        name = os.environ.get("LIBRESHARD", "libreshard.so.0")
        try:
            library = ctypes.CDLL(name)
        except OSError as error:
            raise Error(f"the library cannot be loaded: {error}") from None
        for function, (result, arguments) in _PROTOTYPES.items():
            getattr(library, function).restype = result
            getattr(library, function).argtypes = arguments
        _library = library
        return library


def _check(status: int) -> int:
    if status >= 0:
        return status
    raise Error(os.fsdecode(_lib().reshard_error()), -status)


def _words(options: dict[str, Any]) -> Iterator[str]:
    """Keywords as "name" and "name=value"; "from" is a word of the language, so that it
    is written from_."""
    for name, given in options.items():
        for value in given if isinstance(given, (list, tuple)) else [given]:
            if value is True:
                yield name
            elif value is not None and value is not False:
                text = value if isinstance(value, os.PathLike) else str(value)
                yield f"{name.rstrip('_')}={os.fspath(text)}"


class Source:
    """An open checkpoint tree.

    Any number of threads may read at once; close() is for when none does.
    """

    def __init__(self, source: Path, **options: Any) -> None:
        self._handle: Optional[ctypes.c_void_p] = None
        words = [os.fsencode(word) for word in _words(options)]
        handle = ctypes.c_void_p()
        _check(_lib().reshard_open(os.fsencode(source),
                                   (ctypes.c_char_p * (len(words) + 1))(*words),
                                   ctypes.byref(handle)))
        self._handle = handle

    def _open(self) -> ctypes.c_void_p:
        if self._handle is None:
            raise ValueError("the source is closed")
        return self._handle

    def close(self) -> None:
        """May be called more than once."""
        handle, self._handle = self._handle, None
        if handle is not None:
            _lib().reshard_close(handle)

    def __enter__(self) -> "Source":
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None:
            self.close()

    def _file(self, number: int) -> File:
        # ctypes would cut the number to 32 bits.
        if not 0 <= number < _NO_RANK:
            raise ValueError(f"{number} is no number of a file")
        f = _CFile()
        _check(_lib().reshard_file(self._open(), number, ctypes.byref(f)))
        return File(None if f.rank == _NO_RANK else f.rank,
                    os.fsdecode(f.name), f.size)

    def files(self) -> List[File]:
        """All virtual files; that of rank n is number n."""
        return [self._file(i)
                for i in range(_lib().reshard_n_files(self._open()))]

    def records(self, rank: int) -> List[Record]:
        """What the file of a rank holds, in its order."""
        self._file(rank)
        found, c = [], _CRecord()
        for n in range(_lib().reshard_n_records(self._open(), rank)):
            _check(_lib().reshard_record(self._open(), rank, n,
                                         ctypes.byref(c)))
            found.append(Record(c.name.decode(errors="surrogateescape"),
                                c.dtype.decode(), tuple(c.dims[:c.n_dims]),
                                c.bytes, c.offset, c.stored))
        return found

    def readinto(self, rank: int, buffer: Any, offset: int = 0) -> int:
        """Fill a writable buffer from `offset` of the file of a rank; the
        number of bytes, less than the buffer has only at the file's end."""
        if offset < 0:
            raise ValueError("the offset is negative")
        if offset >= self._file(rank).size:
            return 0
        with memoryview(buffer).cast("B") as view:
            if not view:
                return 0
            place = (ctypes.c_char * len(view)).from_buffer(view)
            try:
                return _check(_lib().reshard_read(self._open(), rank, place,
                                                  len(view), offset))
            finally:
                del place

    def read(self, rank: int, offset: int = 0,
             length: Optional[int] = None) -> bytearray:
        """Bytes of the file of a rank, from `offset` to its end or `length`
        of them."""
        if offset < 0 or (length is not None and length < 0):
            raise ValueError("offset or length is negative")
        left = max(self._file(rank).size - offset, 0)
        buffer = bytearray(left if length is None else min(length, left))
        self.readinto(rank, buffer, offset)
        return buffer


def files(source: Path, **options: Any) -> List[File]:
    """The virtual files of a source."""
    with Source(source, **options) as s:
        return s.files()


def records(source: Path, rank: int, **options: Any) -> List[Record]:
    """What the virtual file of a rank holds, in its order."""
    with Source(source, **options) as s:
        return s.records(rank)


def read(source: Path, rank: int, offset: int = 0,
         length: Optional[int] = None, **options: Any) -> bytearray:
    """Bytes of the virtual file of a rank, from `offset` to its end or
    `length` of them.  Who reads more than once opens a Source."""
    with Source(source, **options) as s:
        return s.read(rank, offset, length)


# ---- mounts ----

_LINE = re.compile(r"reshardfs: (?:(error|warning|notice|info|debug): )?(.*)")
_LEVELS = {"error": logging.ERROR, "warning": logging.WARNING,
           "notice": logging.INFO, "info": logging.INFO,
           "debug": logging.DEBUG}


def _run(*words: str) -> None:
    """Run the program; what it says goes to the log, or into the Error."""
    program = os.environ.get("RESHARDFS", "reshardfs")
    try:
        done = subprocess.run([program, *words], stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, check=False)
    except OSError as error:
        raise Error(f"{program} cannot be run: {error.strerror}") from None
    sentences = []
    for line in os.fsdecode(done.stderr).splitlines():
        found = _LINE.fullmatch(line)
        level = found[1] if found else None
        if found and level in (None, "error"):
            sentences.append(found[2])
        elif found:
            _log.log(_LEVELS[level or "error"], "%s", found[2])
    if done.returncode:
        raise Error("; ".join(sentences) or f"{program} {words[0]} ended with "
                    f"status {done.returncode}")


def _escaped(word: str) -> str:
    return re.sub(r"([,\\])", r"\\\1", word)


class Mount:
    """A mount as long as the `with` block lasts, at a place of its own.

    path    the mount point; None while there is no mount
    """

    def __init__(self, source: Path, **options: Any) -> None:
        self._source = os.path.abspath(os.fspath(source))
        self._options = list(_words(options))
        self._directory: Optional[str] = None
        self.path: Optional[str] = None

    def rank(self, rank: int) -> str:
        """The path of the file of a rank; with resume=True, of its newest."""
        directory = os.path.join(self._mounted(), f"rank_{rank}")
        try:
            names = os.listdir(directory)
        except OSError as error:
            raise Error(f"{directory}: {error.strerror}",
                        error.errno) from None
        if len(names) > 1:
            names = [n for n in names if n.startswith("latest.")]
        if len(names) != 1:
            raise Error(f"{directory} does not hold one file: {names}")
        return os.path.join(directory, names[0])

    def _mounted(self) -> str:
        if self.path is None:
            raise ValueError("there is no mount")
        return self.path

    def __enter__(self) -> "Mount":
        self._directory = tempfile.mkdtemp(prefix="reshardfs-")
        words = [w for o in self._options for w in ("-o", _escaped(o))]
        try:
            # Does not return before the mount answers.
            _run("mount", *words, "--", self._source, self._directory)
        except BaseException:
            self._clean_up()
            raise
        self.path = self._directory
        return self

    def __exit__(self, kind: Optional[Type[BaseException]],
                 error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self.path = None
        self._clean_up()

    def _clean_up(self) -> None:
        directory, self._directory = self._directory, None
        if directory is None:
            return
        if os.path.ismount(directory):
            try:
                _run("umount", directory)
            except Error as error:
                # Somebody still has a file open or mapped, such as a loader
                # that has not been collected yet.
                _log.warning("%s; it ends when its last file is closed", error)
                _run("umount", "--lazy", directory)
        os.rmdir(directory)


def mounted(source: Path, **options: Any) -> Mount:
    """A mount of `source`, for a `with` statement: it answers inside the block
    and is gone afterwards, whatever happened there."""
    return Mount(source, **options)
