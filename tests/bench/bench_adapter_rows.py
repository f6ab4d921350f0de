# SPDX-License-Identifier: Apache-2.0
"""The row of a model with an adapter merged, on one processor."""

import os
import time

from bench_quantised_rows import one_processor, shown_in
from bench_rows import row
from bench_tools import MIB, Measured, Sample, other_python, status_field


def peft(*words):
    return other_python("RSH_HF_PYTHON", "bench_adapter.py", words)


@row("lora", "one processor: mount with an adapter of rank 16 merged, read whole",
     "PEFT loads, merges and saves, one thread", (">=", 1.0), "x", tree="adapter")
def lora(bench):
    tree = bench.tree("adapter")
    result, target = Measured(), os.path.join(bench.work, "merged.safetensors")
    with one_processor():
        for _ in bench.each_repeat():
            peer = peft("merge", tree.source, tree.adapter, target)["seconds"]
            start = time.perf_counter()
            with bench.mounted_at(tree.source, None, None, ["--format", "hf", "--lora",
                                                            tree.adapter],
                                  described=True) as mount:
                path = shown_in(mount)
                bench.read([path])
                mine = time.perf_counter() - start
                memory = status_field(mount.process.pid, "VmHWM") / MIB
                bench.once("verified lora", lambda _: peft("same", target, path))
            os.remove(target)
            result.mount.append(Sample(mine, tree.bytes))
            result.peer.append(Sample(peer, tree.bytes))
            result.values.append(peer / mine)
            result.note(f"mount {mine:.2f} s, PEFT {peer:.2f} s of {tree.bytes / MIB:.0f} MiB; "
                        f"VmHWM of the daemon {memory:.0f} MiB")
    return result
