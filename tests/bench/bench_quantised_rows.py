# SPDX-License-Identifier: Apache-2.0
"""The rows of quantised models that are shown dense, each on one processor: what reads,
the daemon, and the official program in torch."""

import contextlib
import json
import os
import time

from bench_quantised_tree import SCHEMES
from bench_rows import rates, row
from bench_tools import MIB, Measured, Sample, other_python, status_field

@contextlib.contextmanager
def one_processor():
    """What starts in the block runs on one processor."""
    all_of = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(all_of)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of)


def official(*words):
    return other_python("RSH_HF_PYTHON", "bench_quantised.py", words)


def mounted(bench, tree):
    return bench.mounted_at(tree.source, None, None,
                            ["--format", "hf", "--dequantize", "bfloat16"], described=True)


def shown_in(mount):
    (name,) = [n for n in os.listdir(mount.path) if n.endswith(".safetensors")]
    return os.path.join(mount.path, name)


def against_cast(bench, scheme):
    tree = bench.tree("quantised_" + scheme)
    with one_processor(), mounted(bench, tree) as mount:
        path = shown_in(mount)
        bench.once(f"verified {tree.scheme}",
                   lambda _: official("same", scheme, tree.path, path))
        result = rates(bench.compare(
            lambda: bench.read(bench.forget([path])),
            lambda: Sample(**official("cast", scheme, tree.path)),
            warm=[tree.path]), peer="cast in memory")
        result.note(f"VmHWM of the daemon {status_field(mount.process.pid, 'VmHWM') / MIB:.0f} "
                    "MiB")
        return result


TITLES = {
    "fp8": ("fp8 with E8M0 scales of 128 x 128 read as BFloat16",
            "transformers' Fp8Dequantize"),
    "fp4": ("fp4 with E8M0 scales of 1 x 32 (DeepSeek-V4)", "transformers' Fp8Dequantize"),
    "mxfp4": ("mxfp4 (gpt-oss), transposed", "transformers' convert_moe_packed_tensors"),
    "int4": ("int4 in groups of 32 (Kimi)", "compressed-tensors' decompress"),
    "gptq": ("GPTQ, transposed", "the same steps in torch"),
    "awq": ("AWQ, transposed", "the same steps in torch"),
}
for _scheme in SCHEMES:
    _title, _peer = TITLES[_scheme]
    row("quantised_" + _scheme, f"one processor: {_title}",
        f"{_peer}, in memory, one thread", (">=", 4.0), "x",
        tree="quantised_" + _scheme)(
            lambda bench, scheme=_scheme: against_cast(bench, scheme))


def first_parameter(bench, tree):
    """Seconds from the start of a mount to the last byte of its first parameter."""
    start = time.perf_counter()
    with mounted(bench, tree) as mount:
        with open(shown_in(mount), "rb", buffering=0) as f:
            length = int.from_bytes(f.read(8), "little")
            head = json.loads(f.read(length))
            end = min(entry["data_offsets"][1] for name, entry in head.items()
                      if name != "__metadata__")
            while end > 0:
                end -= len(f.read(min(end, MIB)))
        return time.perf_counter() - start


@row("quantised_first", "one processor: mount of an fp4 model to its first parameter",
     "a script that converts the model in torch", (">=", 50.0), "x",
     tree="quantised_fp4")
def quantised_first(bench):
    tree = bench.tree("quantised_fp4")
    result, target = Measured(), os.path.join(bench.work, "converted.safetensors")
    with one_processor():
        for _ in bench.each_repeat():
            peer = official("convert", "fp4", tree.path, target)["seconds"]
            os.remove(target)
            mine = first_parameter(bench, tree)
            result.mount.append(Sample(mine, tree.bytes))
            result.peer.append(Sample(peer, tree.bytes))
            result.values.append(peer / mine)
            result.note(f"mount {mine * 1000:.0f} ms, script {peer:.2f} s of "
                        f"{tree.bytes / MIB:.0f} MiB")
    return result
