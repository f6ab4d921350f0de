# SPDX-License-Identifier: Apache-2.0
"""Sources that are opened once in a process and shared."""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any, Iterator, List, Optional, Tuple

from ._library import Source, is_address, placed
from ._options import Options, Path, words

if TYPE_CHECKING:
    from typing_extensions import Unpack

_DEPTH = 5  # levels of directories below a source that are compared
# Prefixes of variables of the environment that decide what is opened.
_DECIDE = ("AWS_", "HF_", "HUGGINGFACE_", "RESHARDFS_", "XDG_")


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


def _state(source: str, said: Tuple[str, ...]) -> Optional[List[Any]]:
    """Values that differ if what the source is made from has changed; None: they are
    not known, as for the name of a model, whose revision may be another one now."""
    depth = _DEPTH
    found: List[Any] = []
    for name, _, value in (word.partition("=") for word in said):
        # An adapter may be followed by its scale.
        paths = [value] + [value.rpartition(":")[0]] * (name == "lora")
        paths = [path for path in paths if path and os.path.exists(path)]
        if name == "source_map" or (name in ("base", "lora", "config", "model_files") and
                                    not paths and not is_address(value) and value != "none"):
            return None
        if name in ("rank_dir", "file"):
            depth += value.count("/")
        for path in paths:
            found += _entries(path, 1)
    if not is_address(source):
        if not os.path.lexists(source):
            return None
        found += _entries(source, depth)
    return found


def shared(source: Path, **options: Unpack[Options]) -> Source:
    """An open source.  One that is already open is used if its files have not
    changed; an address is not listed again.  It is closed after its last use."""
    said = tuple(words(options))
    key = (placed(source), said, os.getcwd(),
           tuple(item for item in sorted(os.environ.items()) if item[0].startswith(_DECIDE)))
    with _lock:
        place = _places.setdefault(key, _Place())
    with place.lock:
        found = _state(key[0], said)
        known = place.source() if place.source else None
        if known is None or found is None or found != place.found:
            known = _Shared(source, **options)
            known.place = place
            place.source, place.found = weakref.ref(known), found
        return known
