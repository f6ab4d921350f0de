#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sources on NFS, in a guest with a kernel of Debian's where this one has none: what
distributed.py demands."""

import os
import shutil
import subprocess
import sys

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

import guest  # noqa: E402
from engines import Nfs  # noqa: E402
from rsh_mount import TIMEOUT_SCALE, require_mount, require_named, skip_all  # noqa: E402

# A guest's processors are programs.
SLOW = 4


def main():
    require_mount()
    command = [sys.executable, "-B", os.path.join(HERE, "mount", "distributed.py"),
               Nfs.name()]
    if not Nfs.lacks():
        return subprocess.run(command, check=False).returncode
    kernel = require_named("RSH_GUEST_KERNEL", "a kernel with NFS")
    for program in (*guest.PROGRAMS, *Nfs.programs):
        if not shutil.which(program):
            skip_all(f"there is no {program}")
    os.environ["RSH_TIMEOUT_SCALE"] = str(SLOW * TIMEOUT_SCALE)
    return guest.run(kernel, ["nfsv4"], command)


if __name__ == "__main__":
    sys.exit(main())
