# SPDX-License-Identifier: Apache-2.0
"""What is loaded when it is needed first, perhaps while another thread forks."""

from __future__ import annotations

import importlib
import os
import threading
from typing import Any, Dict

# A fork waits until no thread has it: the child would inherit the locks of an
# unfinished import, and hang in its own.
lock = threading.RLock()
_modules: Dict[str, Any] = {}  # lock held to write

os.register_at_fork(before=lock.acquire, after_in_parent=lock.release,
                    after_in_child=lock.release)


def imported(name: str) -> Any:
    """The module of that name."""
    module = _modules.get(name)
    if module is None:
        with lock:
            module = _modules[name] = importlib.import_module(name)
    return module
