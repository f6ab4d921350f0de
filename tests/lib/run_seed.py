# SPDX-License-Identifier: Apache-2.0
"""The seed of a run that was given none, and random bytes.

tests/run.sh makes RSH_TEST_SEED of the tree that is tested, so that whoever runs the
tests of a commit draws the same cases, and each commit draws new ones.
"""

import argparse
import hashlib
import os
import sys


def run_seed():
    """32 bits that follow from RSH_TEST_SEED and the program's name, or any."""
    given = os.environ.get("RSH_TEST_SEED")
    if not given:
        return int.from_bytes(os.urandom(4), "big")
    name = os.path.basename(sys.argv[0])
    return int.from_bytes(hashlib.sha256(f"{given} {name}".encode()).digest()[:4], "big")


def seed_and_cases(cases, seed=None):
    """Those of --seed S --cases N on the command line; run_seed() and `cases` if not told."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=run_seed() if seed is None else seed)
    parser.add_argument("--cases", type=int, default=cases)
    return parser.parse_args()


def share(cases):
    """One in RSH_SHARE cases, a number or a list of them, at least one; which they are
    follows from the seed."""
    n = int(os.environ.get("RSH_SHARE", 1))
    if isinstance(cases, int):
        return -(-cases // n)
    cases = list(cases)
    return cases[run_seed() % min(n, len(cases))::n] if cases else cases


def half_if_sanitized(cases, number=0):
    """All cases, or every second one where the sanitizers look on, for which each takes
    several times as long; the plain build has all.  The seed and `number` say which."""
    if "sanitize" not in os.environ.get("SANITIZER_FLAGS", ""):
        return list(cases)
    return list(cases)[(run_seed() + number) % 2::2]


def random_bytes(numbers, count):
    """Those of numbers.randbytes(count), which Python 3.8 does not have."""
    return numbers.getrandbits(8 * count).to_bytes(count, "little") if count else b""
