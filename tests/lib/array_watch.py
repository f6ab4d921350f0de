# SPDX-License-Identifier: Apache-2.0
"""What becomes of the arrays that the module makes, with the garbage collector off, and
loads that a signal stops at random moments."""

import contextlib
import gc
import os
import signal
import threading
import time
import weakref

from demands import within

LATEST = 0.06  # seconds after which a signal comes at the latest
LOST = 5.0  # seconds after which none comes: Python drops those that come in a __del__


class Arrays:
    """Those that were made, as long as they are there."""

    def __init__(self):
        self._made = []

    def made(self, array):
        self._made.append(weakref.ref(array))
        return array

    def left(self):
        """How many are there once no load goes on, of how many."""
        within(60, lambda: not any(t.name == "reshardfs-load" for t in threading.enumerate()),
               "no load goes on")
        return sum(array() is not None for array in self._made), len(self._made)


@contextlib.contextmanager
def watched(package):
    """Arrays: all that the package makes for what it loads."""
    arrays = Arrays()
    rooms = [package._tensors, package._library, package._mindspore]
    fresh = package._memory.fresh
    gc.collect()
    gc.disable()
    try:
        for room in rooms:
            room.fresh = lambda size: arrays.made(fresh(size))
        yield arrays
    finally:
        for room in rooms:
            room.fresh = fresh
        gc.enable()


def interrupted(numbers, function):
    """Call it, and send this program SIGINT at some moment; whether it came in time."""
    moment, ended = numbers.random() * LATEST, False

    def interrupt():
        time.sleep(moment)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    try:
        thread.start()
        function()
        ended = True
        time.sleep(LOST)
    except KeyboardInterrupt:
        pass
    thread.join()
    return not ended
