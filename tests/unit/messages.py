#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every message that the program can print is looked for by a test, or is in the list
unit/data/messages below the reason why not.

The list is for what tests print but do not look at, and, below reasons that begin with
"Not reached: ", for what they do not print; tests/reached.sh says which these are.  With
--missing: print what is to be listed or looked for, as lines of the list.
"""

import json
import os
import sys

TOP = os.environ.get("top_srcdir", os.path.join(os.path.dirname(__file__), "..", ".."))
sys.path.insert(0, os.path.join(TOP, "tests", "lib"))

from messages import NOT_REACHED, Quotes, listed, messages, texts_of  # noqa: E402
from rsh_mount import Tap  # noqa: E402

def main():
    tests = Quotes(texts_of(os.path.join(TOP, "tests")))
    every = {(path, text): line for path, line, text in messages(TOP)}
    unseen = {(path, text): line for (path, text), line in every.items() if not tests.have(text)}
    known = listed(TOP)
    missing = {m: line for m, line in unseen.items() if m not in known}
    if sys.argv[1:] == ["--missing"]:
        for path, text in missing:
            print(f"{path}: {json.dumps(text)}")
        return 0
    tap = Tap()
    tap.ok(len(every) > 1000, "the messages are found")
    few = Quotes(['check("3 files are " "damaged")', "look for 7 other words"])
    tap.equal([few.have(text) for text in ("%u files are damaged", "%s: look for %u words",
                                           "%u files are complete")], [True, False, False],
              "words of a test are found, others are not")
    tap.ok(not missing, "a test looks for each message, or it is in the list",
           "\n".join(f'{path}:{line}: "{text}"' for (path, text), line in missing.items()))
    done = [f'{path}: "{text}"' for (path, text), reason in known.items() if (path, text) not in
            (every if reason.startswith(NOT_REACHED) else unseen)]
    tap.ok(not done, "what is in the list can be printed, and no test looks for it",
           "\n".join(done))
    tap.ok(all(len(reason) > 20 for reason in known.values()), "the list has reasons",
           [m for m, reason in known.items() if len(reason) <= 20])
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
