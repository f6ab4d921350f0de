# SPDX-License-Identifier: Apache-2.0
"""Sources that are open once in a process, for all who read the same."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Iterator, Optional, Tuple

from ._library import Path, Source, placed
from ._options import words

_DEPTH = 3  # directories below a source that are looked at


class _Place:
    """What is open of a source with its options, and how it was found."""

    def __init__(self) -> None:
        # Guards the others.  Who wants the same waits until it is open.
        self.lock = threading.Lock()
        self.source: Optional["weakref.ref[_Shared]"] = None
        self.found: Any = None


class _Shared(Source):
    place: _Place  # is kept as long as it is open


_lock = threading.Lock()  # guards _places
_places: "weakref.WeakValueDictionary[Any, _Place]" = \
    weakref.WeakValueDictionary()


def _after_fork() -> None:
    """Threads that held the locks are the parent's, as sources are."""
    global _lock, _places
    _lock = threading.Lock()
    _places = weakref.WeakValueDictionary()


os.register_at_fork(after_in_child=_after_fork)


def _entries(path: str, depth: int) -> Iterator[Tuple[Any, ...]]:
    """What tells whether files at `path` or below are others than before."""
    try:
        s = os.stat(path)
        yield path, s.st_dev, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns
        if depth:
            for name in sorted(os.listdir(path)):
                yield from _entries(os.path.join(path, name), depth - 1)
    except OSError:
        pass  # Where it is no file the library says so.


def shared(source: Path, **options: Any) -> Source:
    """An open source: one that is open already if nothing has changed of it
    since; one at an address is not listed anew.  It is closed when nobody has it
    any more."""
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
