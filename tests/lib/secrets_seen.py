# SPDX-License-Identifier: Apache-2.0
"""Who can see a secret of a mount: all that is told, shown, left on disk, or would
stand in a core file."""

import contextlib
import errno
import os
import re
import subprocess

from demands import content

PAGE = os.sysconf("SC_PAGESIZE")


def memory(pid, is_dumped):
    """What a core file of the process would have, or would not."""
    wanted, at = [], None
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as f:
        for line in f:
            if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
                at = line.split()
            elif line.startswith("VmFlags:") and "w" in at[1] and \
                    ("dd" in line.split()) != is_dumped:
                wanted.append([int(n, 16) for n in at[0].split("-")])
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as f:
        for first, end in wanted:
            yield readable(f.fileno(), first, end)


def readable(fd, first, end):
    """Bytes of an area of memory, without the guard pages of stacks: glibc 2.42 makes them
    by madvise(2), inside the area, and reading one is an error."""
    parts = []
    while first < end:
        try:
            part = os.pread(fd, end - first, first)
        except OSError as e:
            if e.errno != errno.EIO:
                raise
            part = b""
        parts.append(part)
        first += len(part) or PAGE
    return b"".join(parts)


def told(mount):
    """All that a mount shows but the contents of checkpoints."""
    for root, _, names in os.walk(mount.path):
        for path in [root, *(os.path.join(root, name) for name in names)]:
            for name in os.listxattr(path):
                yield name.encode() + os.getxattr(path, name)
            if ".reshardfs" in root and os.path.isfile(path):
                yield content(path)


def around(mount, *directories):
    """What the machine tells of a mount, and what it leaves on disk."""
    with open(f"/proc/{mount.process.pid}/task/{mount.process.pid}/children",
              encoding="ascii") as f:
        processes = [str(mount.process.pid), *f.read().split()]
    for process in processes:  # as ps(1) lists it
        yield content(f"/proc/{process}/environ")
        yield content(f"/proc/{process}/cmdline")
    yield content("/proc/self/mountinfo")
    yield subprocess.run(["df", mount.path], capture_output=True, check=True).stdout
    for directory in directories:
        for root, _, names in os.walk(directory):
            for name in names:
                # The mount may replace a file just now.
                with contextlib.suppress(FileNotFoundError):
                    yield name.encode() + content(os.path.join(root, name))


def found(mount, secret, *directories):
    """All texts that have it."""
    secret = secret.encode()
    seen = [text for text in (*told(mount), *around(mount, *directories),
                              mount.log().encode()) if secret in text]
    # What a sanitizer keeps for itself is too much to be read.
    if "sanitize" not in os.environ.get("SANITIZER_FLAGS", ""):
        has = [any(secret in area for area in memory(mount.process.pid, dumped))
               for dumped in (False, True)]
        if has != [True, False]:
            seen.append(f"secret memory, core file: {has}".encode())
    return seen
