# SPDX-License-Identifier: Apache-2.0
"""A C program on libreshard, as it was built."""

import os
import subprocess

from demands import check
from rsh_cli import PLAIN
from rsh_mount import TIMEOUT_SCALE

BUILD = os.path.dirname(os.path.abspath(os.environ["RESHARDFS"]))
LIBRARY = os.path.join(BUILD, ".libs")
PROGRAM = os.path.abspath("mount/libreshard")


def run(*words, status=0):
    got = subprocess.run([PROGRAM, *words], capture_output=True, check=False, text=True,
                         stdin=subprocess.DEVNULL, timeout=300 * TIMEOUT_SCALE,
                         env={**PLAIN, "LD_LIBRARY_PATH": LIBRARY})
    check(got.returncode == status, f"{words}: {got}")
    return got.stdout if status < 2 else got.stderr
