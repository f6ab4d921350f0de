# SPDX-License-Identifier: Apache-2.0
"""New memory for arrays: one allocation for each, in huge pages if large."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

from ._imports import imported

HUGE = 2 << 20  # size of a huge page in bytes
_PAGE = mmap.PAGESIZE


def numpy() -> Any:
    """The module numpy, which is imported only if an array is needed."""
    try:
        return imported("numpy")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("arrays need numpy: pip install reshardfs[arrays]",
                                  name=error.name) from None


def fresh(size: int) -> Any:
    """A new numpy array of `size` bytes.  Its content is undefined.  From 2 MiB its
    start is aligned to a huge page."""
    np = numpy()
    if size < HUGE:
        return np.empty(size, np.uint8)
    mapping, start = _mapped(size)
    return np.frombuffer(mapping, np.uint8, size, start)


def _mapped(size: int) -> tuple[mmap.mmap, int]:
    """A mapping whose last `size` bytes are aligned, and their offset in it."""
    mapping = mmap.mmap(-1, size + HUGE - _PAGE,
                        mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    start = -ctypes.addressof(ctypes.c_char.from_buffer(mapping)) % HUGE
    # The kernel may use a huge page for the last bytes too, which would count as
    # memory of this program.  So the mapping ends with the last byte.
    mapping.resize(start + size)
    try:
        mapping.madvise(mmap.MADV_HUGEPAGE, start, size)
    except (AttributeError, OSError):
        pass  # The kernel has no huge pages; this is only slower.
    return mapping, start
