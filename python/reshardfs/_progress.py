# SPDX-License-Identifier: Apache-2.0
"""Progress of long calls of the library, and how they are stopped."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Any, Callable, Iterator, List, Optional, Union

# Gets the bytes loaded so far and all bytes.  An exception in it stops the load.
Moved = Callable[[int, int], object]
# True: a bar on standard error.
Progress = Union[None, bool, Moved]
# Gets the same, and returns whether to stop.
Tell = Callable[[int, int], bool]

_SMALL = 1 << 16  # bytes; a smaller load starts no thread
_MIB = 1 << 20
_WIDTH = 30
_PATIENCE = 2.0  # seconds to wait for reads in progress when a load is stopped


class _Bar:
    """A line on standard error with the progress."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    def __call__(self, done: int, whole: int) -> None:
        seconds = max(time.monotonic() - self._since, 1e-3)
        full = _WIDTH * done // whole if whole else _WIDTH
        sys.stderr.write(f"\r[{'#' * full:{_WIDTH}}] {done / _MIB:.0f} of "
                         f"{whole / _MIB:.0f} MiB, "
                         f"{done / _MIB / seconds:.0f} MiB/s ")
        sys.stderr.flush()

    def end(self) -> None:
        sys.stderr.write("\n")


class _Watch:
    """A call in another thread.  Python handles signals, such as that of Ctrl-C, only
    in the main thread, and not during a call."""

    def __init__(self, call: Callable[[Optional[Tell]], None],
                 kept: Any) -> None:
        self._call = call
        self._kept = kept
        self._lock = threading.Lock()  # guards the next two
        self._begun = False
        self._cancelled = False
        self._ended = threading.Event()
        self._done = 0

    def _tell(self, done: int, _whole: int) -> bool:
        self._done = done
        return self._cancelled

    def _run(self, failed: List[BaseException]) -> None:
        with self._lock:
            if self._cancelled:
                return
            self._begun = True
        try:
            self._call(self._tell)
        except BaseException as error:  # pylint: disable=broad-except
            failed.append(error)
            # The error's traceback has this frame, which has all buffers.
            del failed
        finally:
            self._ended.set()

    def _cancel(self) -> None:
        """Stop the call, and wait for it, since it writes to memory.  If only this
        module has that memory, it is left to reads that hang."""
        with self._lock:
            self._cancelled = True
        while self._begun and not self._ended.is_set():
            try:
                self._ended.wait(_PATIENCE if self._kept else None)
            except BaseException:  # pylint: disable=broad-except
                pass
            if self._kept:
                return

    def run(self, told: Callable[[int], object]) -> None:
        # A local variable, since frames of the call reference this object.
        failed: List[BaseException] = []
        # A daemon thread: the end of the program does not wait for it.
        thread = threading.Thread(target=self._run, args=(failed,),
                                  name="reshardfs-load", daemon=True)
        try:
            thread.start()
            while not self._ended.wait(0.05):
                told(self._done)
        except BaseException:
            self._cancel()
            raise
        finally:
            if self._ended.is_set():
                thread.join()
        if failed:
            raise failed.pop()


@contextlib.contextmanager
def shown(progress: Progress) -> Iterator[Optional[Moved]]:
    """The function to call; for True a bar, which ends with the block."""
    if progress is not True:
        yield progress or None
        return
    bar = _Bar()
    try:
        yield bar
    finally:
        bar.end()


def watched(call: Callable[[Optional[Tell]], None], whole: int,
            progress: Progress, kept: Any = None) -> None:
    """Run `call`, which loads `whole` bytes, with calls of `progress`.  The exception
    of a signal stops it.  It waits for reads that hang, unless the memory that it
    fills is in `kept`, which no other code uses."""
    with shown(progress) as tell:
        _watched(call, whole, tell, kept)


def _watched(call: Callable[[Optional[Tell]], None], whole: int,
             tell: Optional[Moved], kept: Any) -> None:
    if tell:
        told = tell
        _Watch(call, kept).run(lambda done: told(done, whole))
        told(whole, whole)
    elif (whole >= _SMALL
          and threading.current_thread() is threading.main_thread()):
        _Watch(call, kept).run(lambda done: None)
    else:
        call(None)
