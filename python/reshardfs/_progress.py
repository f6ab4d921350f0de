# SPDX-License-Identifier: Apache-2.0
"""Long calls of the library: how far they are, and how they are stopped."""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from typing import Any, Callable, Iterator, List, Optional, Union

# Is called with the bytes that are there and those that are wanted; what it
# raises stops the load.
Moved = Callable[[int, int], object]
# True: a bar on standard error.
Progress = Union[None, bool, Moved]
# Is called with the same, and returns whether to stop.
Tell = Callable[[int, int], bool]

_SMALL = 1 << 16  # bytes, for which a thread is not worth its time
_MIB = 1 << 20
_WIDTH = 30
_PATIENCE = 2.0  # seconds, with reads that are under way when a load is stopped


class _Bar:
    """A line on standard error that says how much is there."""

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
    """A call in a thread of its own, since Python handles a signal, such as
    that of Ctrl-C, in the main thread alone, and not within a call."""

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
            # The error's traceback has this frame, and that all buffers.
            del failed
        finally:
            self._ended.set()

    def _cancel(self) -> None:
        """The call still fills memory: nothing is over before it ends, unless
        nobody else has that memory, and it can be left to reads that hang."""
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
        # No attribute: frames of the call have this object, by _tell.
        failed: List[BaseException] = []
        # The end of the program does not wait for reads that hang, either.
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
    """Whom to tell: for True a bar, which ends with the block."""
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
    """Run `call`, which loads `whole` bytes, so that `progress` is told and a
    signal's exception stops it.  Reads that hang are waited for, unless the
    memory that is filled is all of `kept`, which is given to nobody then."""
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
