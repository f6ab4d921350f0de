# SPDX-License-Identifier: Apache-2.0
"""A C program on libreshard, as it was built."""

import os
import subprocess
import tempfile

from demands import check
from ms_formats import read_checkpoint
from rsh_cli import PLAIN
from rsh_mount import TIMEOUT_SCALE, Mounted

BUILD = os.path.dirname(os.path.abspath(os.environ["RESHARDFS"]))
LIBRARY = os.path.join(BUILD, ".libs")
PROGRAM = os.path.abspath("mount/libreshard")


def run(*words, status=0):
    got = subprocess.run([PROGRAM, *words], capture_output=True, check=False, text=True,
                         stdin=subprocess.DEVNULL, timeout=300 * TIMEOUT_SCALE,
                         env={**PLAIN, "LD_LIBRARY_PATH": LIBRARY})
    check(got.returncode == status, f"{words}: {got}")
    return got.stdout if status < 2 else got.stderr


def content(*parts):
    with open(os.path.join(*parts), "rb") as f:
        return f.read()


def listed(text):
    """[(rank, name, size, [(name, dtype, bytes, offset, stored, dims)])]"""
    files = []
    for line in text.splitlines():
        kind, *words = line.split(" ")
        if kind == "file":
            files.append((int(words[0]), words[1], int(words[2]), []))
        else:
            numbers = [int(w) for w in words[2:]]
            files[-1][3].append((words[0], words[1], *numbers[:3], tuple(numbers[3:])))
    return files


def tree(path):
    return sorted(os.path.relpath(os.path.join(at, name), path)
                  for at, _, names in os.walk(path) for name in names)


def compare(work, source, src, dst, *more):
    """The library's files and the mount's; what it lists is returned."""
    options = [f"src_strategy={src or 'none'}", f"dst_strategy={dst or 'none'}", *more]
    copies = tempfile.mkdtemp(dir=work)
    run("copy", copies, source, *options)
    run("contents", copies, source, *options)
    files = listed(run("list", source, *options))
    with Mounted(source, src_strategy=src, dst_strategy=dst,
                 extra=[w for o in more for w in ("-o", o.replace(",", "\\,"))]) as m:
        check(sorted(f[1] for f in files) == tree(m.path), f"{files} and not {tree(m.path)}")
        for i, (rank, name, size, _) in enumerate(files):
            shown = content(m.path, name)
            check(rank in (i, 2**32 - 1), f"{name} is of rank {rank}")
            check(len(shown) == size, f"{name}: {size} and not {len(shown)}")
            check(content(copies, str(i)) == shown, f"{name} differs")
    return files, copies


def check_records(files, copies):
    for i, (_, name, size, records) in enumerate(files):
        expected = read_checkpoint(os.path.join(copies, str(i)))
        check([r[0] for r in records] == list(expected), f"{name}: other names")
        end = 0
        whole = content(copies, str(i))
        for n, (record, dtype, n_bytes, offset, stored, dims) in enumerate(records):
            e = expected[record]
            check((dtype, dims, n_bytes) == (e.dtype, tuple(e.dims), len(e.content)),
                  f"{name}: {record} is {dtype} {dims}")
            check(offset == end, f"{name}: {record} is not at {offset}")
            end = offset + stored
            check(whole[end - n_bytes:end] == e.content, f"{name}: {record} ends elsewhere")
            check(content(copies, f"{i}.{n}") == e.content, f"{name}: {record} loads otherwise")
        check(end == size, f"{name} goes on after its records")


def check_parts(files, copies):
    """Of safetensors."""
    for i, (_, name, size, records) in enumerate(files):
        whole = content(copies, str(i))
        spans = sorted((r[3], r[3] + r[4]) for r in records)
        check(all(a[1] == b[0] for a, b in zip(spans, spans[1:])), spans)
        check(spans[-1][1] == size and all(r[2] == r[4] for r in records), name)
        for n, (record, _, n_bytes, offset, _, _) in enumerate(records):
            check(content(copies, f"{i}.{n}") == whole[offset:offset + n_bytes], record)
