# SPDX-License-Identifier: Apache-2.0
"""Random cases in several processes, one TAP line each.

A program gives one function that makes a process ready and one that judges the
case of a seed; a failure names the seed that repeats it.
"""

import argparse
import collections
import concurrent.futures
import multiprocessing
import os
import time
import traceback
import typing

from rsh_mount import Tap
from run_seed import run_seed, share

# Few cases may happen to be of one kind.
ENOUGH_TO_JUDGE = 50


class Outcome(typing.NamedTuple):
    passed: bool
    kind: str               # what became of it
    description: str        # of the case
    why: str | None = None  # it failed
    counted: tuple = ()     # kinds to count where there are several


def failure(case):
    """The outcome of a case that fails, or of which check() lists something wrong; else
    None."""
    try:
        wrong = case.check()
    except Exception:  # one verdict each, whatever happens
        return Outcome(False, "failed", str(case), traceback.format_exc())
    return Outcome(False, "differs", str(case), "\n".join(wrong[:20])) if wrong else None


def parser(doc, pairs):
    """RSH_ORACLE_PAIRS takes the place of the program's own number of pairs.  Of few a
    second process would take longer to begin than to judge them: most import MindSpore."""
    if pairs is not None:
        pairs = int(os.environ.get("RSH_ORACLE_PAIRS", share(pairs)))
    result = argparse.ArgumentParser(description=doc.splitlines()[0])
    result.add_argument("--seed", type=int, default=None)
    result.add_argument("--pairs", type=int, default=pairs)
    few = pairs is not None and pairs < ENOUGH_TO_JUDGE
    result.add_argument("--jobs", type=int, default=1 if few else 2)
    return result


def last_line(found):
    """What a failed case says in the line of its verdict: the exception's first
    line, as logs are often cut after it."""
    lines = [line for line in (found.why or "").splitlines()
             if line and not line[0].isspace()]
    return f" ({lines[1][:300]})" if not found.passed and len(lines) > 1 else ""


def outcomes(options, seeds, start_worker, run_pair, initargs):
    """Yields (seed, Outcome) in order.  A worker that dies takes the whole pool
    with it: the oracle has bugs that no Python code can catch.  Then a new pool
    goes on from the first case without a verdict, and a case at which that
    happens twice has failed."""
    seeds = list(seeds)
    dead_at = None
    while seeds:
        with concurrent.futures.ProcessPoolExecutor(
                options.jobs, multiprocessing.get_context("spawn"), start_worker,
                initargs) as pool:
            try:
                for found in pool.map(run_pair, seeds):
                    yield seeds[0], found
                    seeds.pop(0)
                continue
            except concurrent.futures.process.BrokenProcessPool:
                print(f"# seed {seeds[0]} or the next one: a worker died", flush=True)
        if dead_at == seeds[0]:
            yield seeds.pop(0), Outcome(False, "failed", "its worker died twice")
        else:
            dead_at = seeds[0]


def run(options, start_worker, run_pair, *, initargs=(), judge=None, always=(), skipped=None):
    """Runs options.pairs seeds from options.seed on; returns the exit status.

    run_pair(seed) gives an Outcome; judge(tap, counts) tests the mixture of
    kinds, and is left out when there are too few; with it come the seeds of always,
    which have kinds that a draw may miss.  skipped says why which part of
    every case is left out.
    """
    seed = options.seed
    if seed is None:
        seed = run_seed()
    judge = judge if options.pairs >= ENOUGH_TO_JUDGE else None
    tap = Tap()
    tap.diag(f"--seed {seed} --pairs {options.pairs}")
    counts = collections.Counter()
    started = time.monotonic()
    seeds = [*(always if judge else ()), *range(seed, seed + options.pairs)]
    for number, found in outcomes(options, seeds, start_worker, run_pair, initargs):
        counts.update(found.counted or [found.kind])
        tap.ok(found.passed, f"seed {number}: {found.description}: {found.kind}"
               f"{last_line(found)}", found.why)
    if judge:
        judge(tap, counts)
    for name, why in (skipped or {}).items():
        tap.skip(name, why)
    for kind, count in counts.most_common():
        tap.diag(f"{kind}: {count}")
    tap.diag(f"{(time.monotonic() - started) / options.pairs:.2f} s per pair")
    return tap.finish()
