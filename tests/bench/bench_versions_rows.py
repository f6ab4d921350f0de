# SPDX-License-Identifier: Apache-2.0
"""Rows of weight versions of reinforcement learning: what a delta costs, and the next one."""

import os
import shutil
import statistics

from bench_rows import export_sample, once_took, row, smaller, sooner
from bench_tools import Measured, Sample, other_python
from bench_versions import DELTAS


def versions(*words):
    return other_python("RSH_DELTA_PYTHON", "bench_versions.py", words)


def source_of(bench):
    source = os.path.join(bench.work, "versions")
    bench.once("made versions", lambda _: versions("make", source, bench.settings.size))
    return source, ["--base", os.path.join(source, "base")], os.path.join(source, "run")


def files_of(directory):
    return [os.path.join(at, n) for at, _, names in os.walk(directory) for n in names
            if n.endswith(".safetensors")]


def out_of_deltas(bench):
    source, base, run = source_of(bench)
    target, other = (os.path.join(bench.work, name) for name in ("exported", "peer"))
    found = Measured()
    for i in bench.each_repeat(most=5):
        bench.read(files_of(source))
        for place in target, other:
            shutil.rmtree(place, ignore_errors=True)
        theirs = versions("apply", source, other)
        mine = export_sample(bench, *base, run, target)
        if not i:
            versions("same", other, target)
        found.mount.append(mine)
        found.peer.append(Sample(theirs["seconds"], memory=theirs["memory"]))
    return found


row("versions", f"weight version of {DELTAS} deltas, export", "zstandard, numpy and save_file",
    (">=", 1), "x", tree="versions", by=(once_took, out_of_deltas, "numpy", sooner))
row("versions_memory", "the same: memory", "zstandard, numpy and save_file", tree="versions",
    by=(once_took, out_of_deltas, "numpy", smaller))


def read_last(bench, base, run, warm):
    """A Sample of a read of the last version, after one of the version before it; its
    storage_bytes are those that the mount fetched from the source."""
    cache = os.path.join(bench.work, "no-cache")
    shutil.rmtree(cache, ignore_errors=True)
    with bench.mounted_at(run, None, None, [*base, "--steps", "all", "--cache-size", "256MiB",
                                            "--cache-dir", cache], described=True) as mount:
        def one(number):
            return bench.read(files_of(os.path.join(mount.path, f"weight_v{number:06}")))

        if warm:
            one(DELTAS - 1)
        before, sample = mount.stats(), one(DELTAS)
        sample.storage_bytes = mount.stats()["fetched"]["bytes"] - before["fetched"]["bytes"]
        return sample


@row("versions_next", "the last version, read after the one before it, --cache-dir",
     "bytes fetched to bytes shown", ("<=", 0.1), "", tree="versions")
def versions_next(bench):
    source, base, run = source_of(bench)
    result = Measured()
    for _ in bench.each_repeat(most=5):
        bench.read(files_of(source))
        result.peer.append(read_last(bench, base, run, False))
        result.mount.append(read_last(bench, base, run, True))
        result.values.append(result.mount[-1].storage_bytes / result.mount[-1].bytes)
    shutil.rmtree(os.path.join(bench.work, "no-cache"), ignore_errors=True)
    for who, samples in ("after it", result.mount), ("alone", result.peer):
        result.note(f"{who} {statistics.median(s.seconds for s in samples):.2f} s, "
                    f"{statistics.median(s.storage_bytes / s.bytes for s in samples):.2f} "
                    f"bytes fetched a byte")
    return result
