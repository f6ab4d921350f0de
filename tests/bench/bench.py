#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measure reshardfs against what it is compared with, and print the ratios.

    RESHARDFS=PROGRAM bench.py --reader bench_read [options]

`make bench` calls it so; make's variables are the options' defaults, as in
`make bench BENCH_ROWS="contiguous inner" BENCH_SIZE=512M`.  Both sides of a row
take turns in the same run, and each turn gives one value, so a machine that is
busy for a while spoils both.  Bytes that are compared are proved equal first.

The exit status says whether all rows could be measured, not how they came out.
Standard library only; rows that need MindSpore use $RSH_ORACLE_PYTHON.
"""

import argparse
import dataclasses
import json
import os
import platform
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                os.pardir, "lib"))

from rsh_mount import reshardfs_program  # noqa: E402

from bench_plot import plot  # noqa: E402
import bench_cache_rows  # noqa: E402,F401
import bench_object_rows  # noqa: E402,F401
import bench_program_rows  # noqa: E402,F401
import bench_quantised_rows  # noqa: E402,F401
import bench_adapter_rows  # noqa: E402,F401
import bench_ranks_rows  # noqa: E402,F401
import bench_megatron_rows  # noqa: E402,F401
import bench_mapped_rows  # noqa: E402,F401
import bench_versions_rows  # noqa: E402,F401
from bench_rows import ROWS  # noqa: E402
from bench_tools import Bench, Measured, Skip  # noqa: E402
from bench_trees import LARGEST, SMALLEST  # noqa: E402


def size(text):
    match = re.fullmatch(r"(\d+)([KMG]?)(i?B)?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no size like 512M or 2G")
    bytes_ = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
    if not SMALLEST <= bytes_ <= LARGEST:
        raise argparse.ArgumentTypeError(
            f"{text} is not from {SMALLEST >> 20}M to {LARGEST >> 30}G")
    return bytes_


def row_names(text):
    names = text.split()
    unknown = set(names) - {row.name for row in ROWS}
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no row {' '.join(sorted(unknown))}; there are "
            + " ".join(row.name for row in ROWS))
    return names


def parse(argv):
    def option(name, default, **how):
        given = os.environ.get("BENCH_" + name.upper().replace("-", "_"))
        parser.add_argument("--" + name, default=given or default, **how)

    parser = argparse.ArgumentParser(
        description="Measure reshardfs against its peers.",
        epilog="Rows: " + " ".join(row.name for row in ROWS))
    option("rows", "", type=row_names, help="names of rows; all unless given")
    option("size", "2G", type=size, help="bytes of a source (2G)")
    option("repeats", "7", type=int, help="of a row, at most (7)")
    option("row-seconds", "60", type=float, help="no repeat begins later (60)")
    option("ranks", "1024", type=int, help="of the largest job (1024)")
    option("parameters", "2000", type=int, help="of each of these ranks (2000)")
    option("big-tree", "", help="make the tree of the largest job here, once, and "
           "leave it (a temporary one)")
    option("dir", "bench-data", help="where trees are made, on a local disk")
    option("out", ".", help="directory of bench.json and bench.svg")
    option("cpus", "", help="pin readers to these, as in 0,1")
    option("mount-options", "", type=str.split, help="for every mount")
    option("reader", "bench_read", help="the program bench_read")
    option("against", "", help="another reshardfs: each row compares with it, "
           "what is greater than 1 is more of the program under test")
    parser.add_argument("--keep", action="store_true",
                        default=bool(os.environ.get("BENCH_KEEP")),
                        help="leave the trees")
    settings = parser.parse_args(argv)
    if settings.repeats < 1:
        parser.error("--repeats is at least 1")
    settings.reader = os.path.abspath(settings.reader)
    settings.dir = os.path.abspath(settings.dir)
    settings.against = settings.against and os.path.abspath(settings.against)
    return settings


# ---- the machine ----

def first_line(*command):
    try:
        done = subprocess.run(command, check=False, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL)
    except OSError:
        return ""
    return done.stdout.strip().split("\n")[0]


def value_in(path, key):
    with open(path, encoding="utf-8", errors="replace") as f:
        for text in f:
            if text.startswith(key):
                return text.split(":", 1)[1].strip()
    return "unknown"


def commit():
    here = os.path.dirname(os.path.abspath(__file__))
    found = first_line("git", "-C", here, "rev-parse", "--short=12", "HEAD")
    if found and first_line("git", "-C", here, "status", "--porcelain", "-uno"):
        found += " and changes"
    return found or "unknown"


def machine(settings):
    said = subprocess.run([reshardfs_program(), "--version"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout.split("\n")
    existing = settings.dir
    while not os.path.isdir(existing):
        existing = os.path.dirname(existing)
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": value_in("/proc/cpuinfo", "model name"),
        "memory": value_in("/proc/meminfo", "MemTotal"),
        "kernel": platform.release(),
        "libfuse": next((t.split()[1] for t in said if t.startswith("libfuse")), ""),
        "bindfs": first_line("bindfs", "--version") or "none",
        "file system": first_line("stat", "-f", "-c", "%T", existing),
        "load": " ".join(f"{x:.2f}" for x in os.getloadavg()),
        "program": said[0],
        "commit": commit(),
    }


# ---- running ----

def blank(row):
    """A row as it goes into the JSON file, before it is measured."""
    return {"name": row.name, "title": row.title, "peer": row.peer,
            "unit": row.unit, "reach": row.reach and list(row.reach),
            "plot": row.plot, "status": "broken", "why": "interrupted",
            "values": [], "min": None, "median": None, "max": None, "notes": [],
            "mount": [], "compared": [], "seconds": 0}


def figure(result):
    """What one measurement of a row says of the program: its rate, or its value."""
    rated = [sample.rate for sample in result.mount if sample.bytes]
    return statistics.median(rated) if rated else result.median()


def measure_against(bench, row):
    """The row with both programs in turn; each turn gives the ratio of their figures."""
    compared = Measured()
    programs = [reshardfs_program(), bench.settings.against]
    for i in bench.each_repeat():
        figures = {}
        # The program that comes second has the warmer machine.
        for program in programs[::-1] if i % 2 else programs:
            bench.use_program(program, repeats=1)
            try:
                figures[program] = figure(row.function(bench))
            finally:
                bench.use_program(programs[0], repeats=bench.settings.repeats)
        compared.values.append(figures[programs[0]] / figures[programs[1]])
    return compared


def run_row(bench, row):
    if bench.settings.against and not row.plot:
        row = dataclasses.replace(row, peer="the other program", reach=None, unit="",
                                  function=lambda bench, of=row: measure_against(bench, of))
    entry = blank(row)
    start = time.monotonic()
    try:
        result = row.function(bench)
    except Skip as skip:
        entry.update(status="skipped", why=str(skip))
        return entry
    except Exception as error:  # other rows may still be measured
        traceback.print_exc()
        entry.update(status="broken", why=f"{type(error).__name__}: {error}")
        return entry
    finally:
        entry["seconds"] = round(time.monotonic() - start, 1)
    entry.update(status="measured", why=None, values=result.values,
                 notes=result.notes,
                 mount=[dataclasses.asdict(s) for s in result.mount],
                 compared=[dataclasses.asdict(s) for s in result.peer])
    if result.values:
        entry.update(min=min(result.values), max=max(result.values),
                     median=result.median())
        if row.reach:
            entry["status"] = "reached" if row.reached(entry["median"]) else "missed"
    return entry


def run(bench, rows):
    """Entries in the order of `rows`; run tree by tree, to keep few of them."""
    trees = list(dict.fromkeys(row.tree for row in rows))
    entries = {row.name: blank(row) for row in rows}
    try:
        for row in sorted(rows, key=lambda row: trees.index(row.tree)):
            bench.keep_trees([row.tree])
            print(f"# {row.name}", end="", file=sys.stderr, flush=True)
            entry = entries[row.name] = run_row(bench, row)
            print(f": {entry['status']} after {entry['seconds']} s", file=sys.stderr)
    except KeyboardInterrupt:
        print(": interrupted, what follows is not measured", file=sys.stderr)
    return list(entries.values())


# ---- the table ----

def number(value):
    if value is None:
        return ""
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}" if value >= 10 \
        else f"{value:.2f}"


def cells(entry):
    reach = entry["reach"]
    limit = f"{reach[0]} {reach[1]:g}{entry['unit'] and ' ' + entry['unit']}" \
        if reach else ""
    said = {"missed": "MISSED", "broken": "BROKEN", "measured": ""}
    verdict = said.get(entry["status"], entry["status"])
    if entry["why"]:
        verdict += ": " + entry["why"].split("\n")[0]
    return [entry["title"], entry["peer"], limit, number(entry["median"]),
            number(entry["min"]), number(entry["max"]), str(len(entry["values"])),
            verdict]


def print_table(entries):
    head = ["row", "compared with", "reach", "median", "min", "max", "n", ""]
    lines = [head] + [cells(e) for e in entries]
    widths = [max(len(one[i]) for one in lines) for i in range(len(head) - 1)]
    lines.insert(1, ["-" * width for width in widths] + [""])
    for one in lines:
        padded = [cell.rjust(width) if 3 <= i <= 6 else cell.ljust(width)
                  for i, (cell, width) in enumerate(zip(one, widths))]
        print("  ".join([*padded, one[-1]]).rstrip())
    print()
    for entry in entries:
        if entry["notes"]:
            print(f"{entry['title']}, {entry['peer']}: "
                  f"{'; '.join(entry['notes'])}" if entry["peer"]
                  else f"{entry['title']}: {'; '.join(entry['notes'])}")


def warn_of_missing():
    if not shutil.which("bindfs"):
        print("# bindfs is missing: `apt-get install bindfs`, or rows that compare "
              "with it are skipped", file=sys.stderr)
    if not os.environ.get("RSH_ORACLE_PYTHON"):
        print("# RSH_ORACLE_PYTHON names no Python with mindspore: rows that compare "
              "with it are skipped", file=sys.stderr)


def interrupt(*_):
    """Once: what is under way has to clean up after itself."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def main(argv):
    settings = parse(argv)
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    warn_of_missing()
    facts = machine(settings)
    for key, value in facts.items():
        print(f"{key + ':':13}{value}")
    print(f"{'source:':13}{settings.size / 2**30:.3g} GiB, "
          f"up to {settings.repeats} repeats\n", flush=True)
    bench = Bench(settings)
    try:
        entries = run(bench, [row for row in ROWS
                              if not settings.rows or row.name in settings.rows])
        facts["mindspore"] = bench.oracle_version()
    finally:
        bench.close()
    print_table(entries)
    os.makedirs(settings.out, exist_ok=True)
    path = os.path.join(settings.out, "bench.json")
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"version": 1, "machine": facts,
                   "settings": {"size": settings.size, "repeats": settings.repeats,
                                "mount_options": settings.mount_options,
                                "cpus": settings.cpus},
                   "rows": entries, "plots": bench.plots}, f, indent=1)
        f.write("\n")
    print(f"\n{path}")
    if bench.plots:
        path = os.path.join(settings.out, "bench.svg")
        plot(path, bench.plots, f"{facts['program']} ({facts['commit']}), "
             f"{facts['cores']} cores, kernel {facts['kernel']}")
        print(path)
    return any(entry["status"] == "broken" for entry in entries)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
