# SPDX-License-Identifier: Apache-2.0
"""Fresh memory for arrays: one allocation each, of huge pages if large."""

from __future__ import annotations

import ctypes
import importlib
import mmap
from typing import Any

HUGE = 2 << 20  # bytes of a huge page
_PAGE = mmap.PAGESIZE


def numpy() -> Any:
    """The module numpy: whoever asks for no array does without."""
    return importlib.import_module("numpy")


def fresh(size: int) -> Any:
    """A numpy array of `size` bytes that nobody else has.  What they hold is
    undefined; from 2 MiB on they begin where a huge page may."""
    np = numpy()
    if size < HUGE:
        return np.empty(size, np.uint8)
    mapping, start = _mapped(size)
    return np.frombuffer(mapping, np.uint8, size, start)


def _mapped(size: int) -> tuple[mmap.mmap, int]:
    """A mapping that ends with `size` bytes, and where they begin in it."""
    mapping = mmap.mmap(-1, size + HUGE - _PAGE,
                        mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(mapping)) % HUGE
    # The kernel may give a huge page for the last bytes as well, all of which
    # would count as this program's: the mapping ends with them.
    mapping.resize(start + size)
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE, start, size)
    except (AttributeError, OSError):
        pass  # This kernel has none; it is only slower.
    return mapping, start
