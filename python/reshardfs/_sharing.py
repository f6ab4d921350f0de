# SPDX-License-Identifier: Apache-2.0
"""Sources that are opened once in a process and shared."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Iterator, Optional, Tuple

from ._library import Source, placed
from ._options import Options, Path, words

if TYPE_CHECKING:
    from typing_extensions import Unpack

_DEPTH = 3  # levels of directories below a source that are compared


class _Place:
    """An open source with its options, and the state of its files when opened."""

    def __init__(self) -> None:
        # Guards the others.  Other threads wait until the source is open.
        self.lock = threading.Lock()
        self.source: Optional["weakref.ref[_Shared]"] = None
        self.found: Any = None


class _Shared(Source):
    place: _Place  # kept while the source is open


_lock = threading.Lock()  # guards _places
_places: "weakref.WeakValueDictionary[Any, _Place]" = \
    weakref.WeakValueDictionary()


def _after_fork() -> None:
    """A child has neither the threads that held the locks, nor the sources."""
    global _lock, _places
    _lock = threading.Lock()
    _places = weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_after_fork)


def _entries(path: str, depth: int) -> Iterator[Tuple[Any, ...]]:
    """Values that differ if files at `path` or below it have changed."""
    try:
        s = os.stat(path)
        yield path, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns
        if depth:
            for name in sorted(os.listdir(path)):
                yield from _entries(os.path.join(path, name), depth - 1)
    except OSError:
        pass  # If it is not a file, the library reports that.


def shared(source: Path, **options: Unpack[Options]) -> Source:
    """An open source.  One that is already open is used if its files have not
    changed; an address is not listed again.  It is closed after its last use."""
    said = tuple(words(options))
    key = placed(source), said, os.getcwd()
    with _lock:
        place = _places.setdefault(key, _Place())
    with place.lock:
        found = list(_entries(key[0], _DEPTH))
        for word in said:
            found += _entries(word.partition("=")[2], 1)
        known = place.source() if place.source else None
        if known is None or found != place.found:
            known = _Shared(source, **options)
            known.place = place
            place.source, place.found = weakref.ref(known), found
        return known
