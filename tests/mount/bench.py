#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The benchmarks run, say what they must and notice wrong bytes.

Small and once: what is measured means nothing, and no figure is looked at.
"""

import json
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import content, flip, write  # noqa: E402
from rsh_mount import Tap, require_mount, reshardfs_program  # noqa: E402

BENCH = os.path.join(os.path.abspath(os.environ.get("srcdir", ".")), "bench")
READER = os.path.abspath("bench/bench_read")
SVG = "{http://www.w3.org/2000/svg}"
TINY = ["--size", "16M", "--repeats", "1", "--ranks", "16", "--parameters", "30"]

ROWS = """
    contiguous contiguous_two checkpoint2 inner inner_whole bindfs inner_bindfs identity
    weights_qkv weights_gate weights_experts weights_experts_read weights_stacked
    python_read load_checkpoint load_safetensors mindformers transform transform_memory dcp
    dcp_memory dcp_hf dcp_hf_memory dcp_load dcp_load_inner
    dcp_reader dcp_reader_inner dcp_reader_mount dcp_start dcp_start_memory
    convert_back convert_back_memory convert_rank export
    export_inner export_cp export_cp_inner read_once_rows read_once_columns cold cold_inner slow
    slow_inner crowded crowded_two memory random null_one null_two null_python
    copy_one copy_two
    big_mount big_list big_memory big_checkpoint2_first big_checkpoint2_mount big_checkpoint2_memory
    requests requests_inner sizes cache_trained cache_trained_processor cache_holds
    cache_holds_moments cache_again cache_disk cache_servers s3 s3_many s3_inner
    program_checkpoint program_checkpoint_inner program_network program_tensors
    program_tensors_inner program_numpy program_torch program_cold quantised_fp8 quantised_fp4 quantised_mxfp4 quantised_int4
    quantised_gptq quantised_awq quantised_first lora
    ranks_verl ranks_verl_first ranks_join ranks_join_first ranks_memory
    megatron_mindspeed megatron_mindspeed_first megatron_join megatron_join_first megatron_memory
    ranks_zero ranks_zero_first ranks_zero_lazy ranks_zero_lazy_first
    megatron_first megatron_all megatron_smaller megatron_mount_memory
    mapped mapped_many mapped_held mapped_held_many mapped_workers mapped_slices mapped_again
    s3_mapped from_pretrained engine engine_mount versions versions_memory versions_next""".split()

# What a machine, or a build, may lack: MindSpore, torch, bindfs, --fault, a disk, root.
MAY_SKIP = {"load_checkpoint", "load_safetensors", "mindformers", "transform",
            "transform_memory", "dcp", "dcp_memory", "dcp_hf", "dcp_hf_memory", "dcp_load",
            "dcp_load_inner", "dcp_reader", "dcp_reader_inner", "dcp_reader_mount",
            "dcp_start", "dcp_start_memory", "convert_back",
            "convert_back_memory", "convert_rank", "bindfs", "inner_bindfs", "random",
            "slow", "slow_inner", "crowded", "crowded_two", "read_once_rows",
            "read_once_columns", "cold", "cold_inner", "program_checkpoint",
            "program_checkpoint_inner", "program_network", "program_tensors",
            "program_tensors_inner", "program_numpy", "program_torch", "program_cold",
            "mapped", "mapped_many", "mapped_held", "mapped_held_many",
            "mapped_slices", "from_pretrained", "engine", "engine_mount", "s3",
            "s3_many", "s3_inner", "s3_mapped", "cache_again", "cache_servers", "big_mount",
            "big_list", "big_memory", "quantised_fp8", "quantised_fp4", "quantised_mxfp4",
            "quantised_int4", "quantised_gptq", "quantised_awq", "quantised_first",
            "lora", "ranks_verl", "ranks_verl_first", "ranks_join", "ranks_join_first",
            "ranks_memory", "ranks_zero", "ranks_zero_first",
            "ranks_zero_lazy", "ranks_zero_lazy_first", "megatron_mindspeed",
            "megatron_mindspeed_first", "megatron_join", "megatron_join_first", "megatron_memory",
            "versions", "versions_memory", "versions_next", "megatron_first", "megatron_all", "megatron_smaller", "megatron_mount_memory"}


def run_bench(work, *options):
    """(exit status, what bench.json holds, what was said)"""
    out = os.path.join(work, "out")
    path = os.path.join(out, "bench.json")
    if os.path.exists(path):
        os.remove(path)
    env = {k: v for k, v in os.environ.items()
           if k not in ("RSH_ORACLE_PYTHON", "RSH_HF_PYTHON", "RSH_DEEPSPEED_PYTHON",
                        "RSH_DELTA_PYTHON") and
           not k.startswith("BENCH_")}
    done = subprocess.run(
        [sys.executable, "-B", os.path.join(BENCH, "bench.py"), "--reader", READER,
         "--dir", os.path.join(work, "data"), "--out", out, *TINY, *options],
        env={**env, "RESHARDFS": reshardfs_program()}, check=False, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    found = None
    if os.path.exists(path):
        found = json.loads(content(path))
    return done.returncode, found, done.stdout


def strange(entry):
    """What is wrong with a row, None if nothing is."""
    status, values = entry["status"], entry["values"]
    if status == "skipped":
        if entry["name"] not in MAY_SKIP or not entry["why"] or values:
            return "skipped without a reason"
        return None
    if entry["plot"]:
        return status != "measured" and "a plot that is judged"
    if status not in ("reached", "missed", "measured"):
        return entry["why"]
    if (status == "measured") != (entry["reach"] is None):
        return "judged without a limit, or not with one"
    if len(values) != 1 or values[0] <= 0:
        return f"not one value: {values}"
    if not entry["min"] <= entry["median"] <= entry["max"]:
        return "minimum, median and maximum are not in order"
    if status != "measured":
        relation, limit = entry["reach"]
        good = entry["median"] >= limit if relation == ">=" else entry["median"] <= limit
        if good != (status == "reached"):
            return "misjudged"
    return None


def all_rows(tap, work):
    status, found, said = run_bench(work)
    if not tap.ok(status == 0 and found is not None, "all rows run", said):
        return
    tap.equal([row["name"] for row in found["rows"]], ROWS, "all rows are there")
    wrong = {row["name"]: strange(row) for row in found["rows"] if strange(row)}
    tap.ok(not wrong, "every row is measured and judged, or says why not",
           f"{wrong}\n{said}")
    missing = [row["title"] for row in found["rows"] if row["title"] not in said]
    tap.ok(not missing, "the table has every row", missing)
    tap.ok(all(found["machine"].get(fact) for fact in
               ("cores", "kernel", "libfuse", "commit", "program")),
           "the machine is described", found["machine"])
    lines = [line for plot in found["plots"].values() for line in plot.values()]
    tap.ok(sorted(found["plots"]) == ["requests", "sizes"] and len(lines) >= 5 and
           all(y > 0 for line in lines for _, y in line) and
           all([x for x, _ in line] == sorted({x for x, _ in line})
               for line in lines),
           "both plots have their lines", found["plots"])
    drawn = ET.parse(os.path.join(work, "out", "bench.svg")).getroot()
    tap.equal(len(drawn.findall(SVG + "polyline")), len(lines), "all lines are drawn")
    tap.equal(os.listdir(os.path.join(work, "data")), [], "nothing is left")


def wrong_bytes(tap, work):
    status, found, said = run_bench(work, "--rows", "contiguous random",
                                    "--mount-options", "--drop layers.9")
    tap.equal(status, 1, "bytes that differ are a failure")
    tap.ok(found and found["rows"][0]["status"] == "broken", "and no result", said)
    status, _, said = run_bench(work, "--rows", "no_such_row")
    tap.ok(status == 2 and "no_such_row" in said, "unknown rows are refused", said)


def reader(*words):
    return json.loads(subprocess.run([READER, *words], check=True,
                                     stdout=subprocess.PIPE).stdout)


def reads(tap, work):
    """What the figures rest on: bench_read."""
    lengths = [100000, 0, 1 << 20, 333]
    files = [os.path.join(work, f"file{i}") for i in range(len(lengths))]
    for path, length in zip(files, lengths):
        write(path, os.urandom(length))
    for words in (["-b", "4096"], ["-b", "333", "-j", "2"], ["-j", "7"], ["-m", "-j", "3"],
                  ["-m", "-b", "333", "-j", "21"]):
        tap.equal(reader(*words, *files)["bytes"], sum(lengths),
                  f"bench_read {' '.join(words)} reads all once")
    tap.equal(reader("-n", "5000", *files)["bytes"], 5000 + 5000 + 333,
              "-n limits what is read of a file")
    around = ["-r", "2000", "-j", "2", "-b", "4096", files[2]]
    first = reader(*around)
    tap.equal(first["reads"], 4000, "-r is the reads of each reader")
    tap.equal(reader(*around)["sum"], first["sum"], "the same places again")
    tap.ok(reader("-s", "9", *around)["sum"] != first["sum"], "other places with -s")
    flip(files[2], 500000)
    tap.ok(reader(*around)["sum"] != first["sum"], "one bit changes the sum")
    tap.equal(reader("-c", *files)["bytes"], sum(lengths), "-c counts")
    refused = subprocess.run([READER, "-b", "x", *files], check=False,
                             stderr=subprocess.DEVNULL)
    tap.equal(refused.returncode, 2, "wrong words are refused")


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-bench-test-") as work:
        reads(tap, work)
        all_rows(tap, work)
        wrong_bytes(tap, work)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
