# SPDX-License-Identifier: Apache-2.0
"""A process that does what lines of JSON on its standard input say.

Each line {"verb": V, ...} gets one in reply: what the function `V` returns, which is
given the rest by name, or {"error": sentence}.  The first line, {"version": ...}, comes
unasked.  Whatever libraries print goes to standard error.
"""

import gc
import json
import os
import sys


def serve(start, verbs):
    """start() returns the version, or raises ImportError."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    try:
        version = start()
    except ImportError as error:
        print(json.dumps({"error": str(error)}), file=replies)
        return 1
    print(json.dumps({"version": version}), file=replies)
    for line in sys.stdin:
        request = json.loads(line)
        try:
            reply = verbs[request.pop("verb")](**request)
        except Exception as error:  # whatever it is, the other side reports it
            reply = {"error": f"{type(error).__name__}: {error}"[:300]}
        gc.collect()  # or files stay mapped, and a mount is busy
        print(json.dumps(reply), file=replies)
    return 0
