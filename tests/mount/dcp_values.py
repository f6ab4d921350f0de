#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Values of the type bytes come through when torch files are shown as a DCP."""

import os
import pickle
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

from dcp_trees import archive, rebuilt, pickled  # noqa: E402
from demands import content, write  # noqa: E402
from rsh_cli import GOOD, run  # noqa: E402
from rsh_mount import Tap  # noqa: E402

VALUES = {"high": b"\x00\xff\x80", "empty": b"", "text": b"abc", "latin": b"\xc3\xa9",
          "tree": (b"a\x00b", {"k": b"\n"}), "number": 7}


def shown(directory):
    """The values in the last file of a DCP: each is a stored pickle of protocol 2."""
    data = content(max((os.path.join(directory, n) for n in os.listdir(directory)
                        if n.endswith(".distcp")), key=lambda n: (len(n), n)))
    found, at = [], data.find(b"\x80\x02")
    while at >= 0:
        try:
            found.append(pickle.loads(data[at:]))
        except (pickle.UnpicklingError, EOFError, ValueError, KeyError, IndexError,
                AttributeError, TypeError, ImportError):
            pass
        at = data.find(b"\x80\x02", at + 1)
    return found


if __name__ == "__main__":
    TAP = Tap()
    DATA = b"\1\2\3\4"
    with tempfile.TemporaryDirectory(prefix="reshardfs-values-") as top:
        file, out = os.path.join(top, "model.pt"), os.path.join(top, "out")
        write(file, archive([("data.pkl", pickled({**VALUES, "w": rebuilt("F32", (1,), DATA)}, 2)),
                             ("data/0", DATA), ("version", b"3\n")]))
        got = run("export", "--format", "dcp", file, out)
        TAP.ok(got.status == GOOD, "a file with bytes is shown as a DCP", f"{got}")
        if got.status == GOOD:
            values = shown(out)
            for name in ("high", "empty", "text", "latin", "number"):
                TAP.ok(VALUES[name] in values, f"{name}: {VALUES[name]!r}", f"{values}")
    sys.exit(TAP.finish())
