#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a running mount tells about itself: the directory .reshardfs, the command
`stats`, and the signals SIGUSR1 and SIGUSR2."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

from demands import check, content, error_of, within, write  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes)
from rsh_cli import (GOOD, INPUT, IO, USAGE, demo_tree, good, refused, run, run_json,  # noqa: E402
                     run_on_terminal)
from rsh_mount import Mounted, Tap, hash_tree, require_mount  # noqa: E402

FILES = ["stats", "metrics", "log", "config"]
NOBODY = 65534
MANUAL = os.path.join(os.environ.get("top_srcdir", os.path.join(HERE, "..")), "man",
                      "reshardfs-control.5")


def read(path):
    return content(path).decode()


def control(m, name):
    return read(f"{m.path}/.reshardfs/{name}")


def told(m, name):
    return json.loads(control(m, name))


class Demo:
    """make_tree.py's source, and a mount of it."""

    def __init__(self, root):
        self.root = root
        self.source, self.src, self.dst = demo_tree(root)
        self.expected = hash_tree(f"{root}/expected")

    def mounted(self, *extra, source=None, **words):
        return Mounted(source or self.source, src_strategy=self.src, dst_strategy=self.dst,
                       extra=extra, **words)


def found_and_not_listed(demo):
    with demo.mounted() as m:
        check(sorted(os.listdir(m.path)) == [f"rank_{r}" for r in range(4)], os.listdir(m.path))
        check(os.stat(m.path).st_nlink == 6, "links of the root")
        here = f"{m.path}/.reshardfs"
        check(sorted(os.listdir(here)) == sorted(FILES + ["plan"]), os.listdir(here))
        check(sorted(os.listdir(f"{here}/plan")) == [f"rank_{r}.json" for r in range(4)], "plans")
        check(os.path.samefile(f"{here}/..", m.path) and
              os.path.samefile(f"{here}/plan/..", here), "the way up")
        check(os.stat(here).st_mode == 0o40500 and os.stat(f"{here}/plan").st_mode == 0o40500 and
              os.stat(here).st_uid == os.getuid(), "mode of the directories")
        for name in FILES + ["plan/rank_3.json"]:
            st = os.stat(f"{here}/{name}")
            check((st.st_mode, st.st_size, st.st_uid) == (0o100400, 0, os.getuid()), name)
            check(os.listxattr(f"{here}/{name}") == [], "attributes")
        numbers = {os.stat(os.path.join(d, n)).st_ino for d, _, names in os.walk(here)
                   for n in names}
        check(len(numbers) == 8, numbers)
        for name in ("statsx", "plan/rank_4.json", "plan/rank_03.json", "plan/rank_0",
                     "plan/rank_-1.json", "stats/x", "rank_0"):
            check(error_of(lambda p=f"{here}/{name}": os.stat(p)) in ("ENOENT", "ENOTDIR"), name)
        check(error_of(lambda: os.stat(f"{m.path}/rank_0/.reshardfs")) == "ENOENT", "elsewhere")
        for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC):
            check(error_of(lambda f=flags: os.open(f"{here}/stats", f)) == "EROFS", flags)
        check(os.statvfs(m.path).f_files == 9, "df")
        m.demand_tree(demo.expected)


def snapshots(demo):
    with demo.mounted() as m:
        path = f"{m.path}/.reshardfs/stats"
        with open(path, "rb", buffering=0) as f:
            first = f.read()
            content(m.rank_file(0))
            pieces = b"".join(os.pread(f.fileno(), 7, at) for at in range(0, len(first) + 50, 7))
            check(pieces == first, "an open file stays as it is")
            check(os.pread(f.fileno(), 10, 1 << 40) == b"", "far behind its end")
        check(control(m, "stats").encode() != first, "opened again it is new")


def counters_grow(demo):
    with demo.mounted("--io-mode=direct") as m:
        before = told(m, "stats")
        size = len(content(m.rank_file(1)))
        after = told(m, "stats")
        check(after["shown"]["bytes"] - before["shown"]["bytes"] == size, after["shown"])
        check(after["shown"]["reads"] > before["shown"]["reads"], after["shown"])
        check(after["fetched"]["reads"] > before["fetched"]["reads"] and
              after["fetched"]["bytes"] - before["fetched"]["bytes"] >= size * 0.9,
              after["fetched"])
        check(after["mount"]["uptime_seconds"] > before["mount"]["uptime_seconds"] >= 0, after)
        check(before["cache"] is None, before["cache"])
        check(after["pid"] == m.process.pid and after["source"] == demo.source and
              after["mountpoint"] == m.path and after["step"] == "epoch 3 step 40", after)
    with demo.mounted("--cache=on") as m:
        m.demand_tree(demo.expected)
        cache = told(m, "stats")["cache"]
        check(cache["bytes_loaded"] > 0 and 0 < cache["memory_bytes"] <= cache["memory_peak_bytes"],
              cache)


SAMPLE = re.compile(r'(reshardfs_[a-z_]+)(\{(?:,?[a-z]+="[^"]*")+\})? (\d+(?:\.\d+)?)')


def metrics_of(text):
    """{series: value} of the exposition format, held against its rules."""
    series, types, helped, last = {}, {}, set(), None
    for line in text.split("\n")[:-1]:
        word = line.split(" ", 3)
        if line.startswith("# HELP "):
            check(word[2] not in helped and word[3], line)
            helped.add(word[2])
        elif line.startswith("# TYPE "):
            check(word[2] in helped and word[2] not in types, line)
            check(word[3] == ("counter" if word[2].endswith("_total") else "gauge"), line)
            types[word[2]] = word[3]
            last = word[2]
        else:
            found = SAMPLE.fullmatch(line)
            check(found and found[1] == last, f"not a sample of {last}: {line}")
            check(found[1] + (found[2] or "") not in series, f"twice: {line}")
            series[found[1] + (found[2] or "")] = float(found[3])
    check(text.endswith("\n"), "the last line ends")
    return series


def metrics_are_prometheus(demo):
    with demo.mounted("--cache=on") as m:
        before = metrics_of(control(m, "metrics"))
        size = len(content(m.rank_file(2)))
        after = metrics_of(control(m, "metrics"))
        check(before.keys() == after.keys(), "the same series")
        check(after["reshardfs_read_bytes_total"] - before["reshardfs_read_bytes_total"] == size,
              after)
        check(all(after[name] >= before[name] for name in after if "_total" in name), "counters")
        check('reshardfs_cache_hits_total{store="plain"}' in after, after)
        stats, now = told(m, "stats"), metrics_of(control(m, "metrics"))
        check(stats["shown"]["bytes"] == now["reshardfs_read_bytes_total"] and
              stats["cache"]["misses"] == now["reshardfs_cache_misses_total"], "both say the same")
    with demo.mounted("--cache=off") as m:
        check(not any("cache" in name for name in metrics_of(control(m, "metrics"))), "no cache")


def the_log_of_a_replica(demo):
    """A source file that fails where another rank holds the same: the bytes are
    right, and the log tells."""
    halves = [bytes(range(100)), bytes(range(100, 200))]
    for rank in range(4):
        os.makedirs(f"{demo.root}/halves/rank_{rank}")
        with open(f"{demo.root}/halves/rank_{rank}/net-1_1.ckpt", "wb") as f:
            f.write(checkpoint_bytes({"w": Record((100,), "UInt8", halves[rank % 2])}))
    strategy = f"{demo.root}/halves.ckpt"
    write(strategy, strategy_bytes(StageFile(0, {"w": Layout([2, 2], [0])})))
    with Mounted(f"{demo.root}/halves", src_strategy=strategy,
                 extra=["--fault=eio@rank_1", "--io-mode=direct"]) as m:
        check(control(m, "log") == "", control(m, "log"))
        with open(m.rank_file(0), "rb") as f:
            check(f.read() == checkpoint_bytes({"w": Record((200,), "UInt8", b"".join(halves))}),
                  "the bytes")
        lines = control(m, "log").splitlines()
        check(len(lines) == 1 and "reshardfs: error: " in lines[0] and "/rank_1/" in lines[0],
              lines)
        stats = told(m, "stats")
        check(stats["fetched"]["failed_files"] == 1 and stats["log"]["errors"] == 1, stats)
        metrics = metrics_of(control(m, "metrics"))
        check(metrics['reshardfs_log_messages_total{level="error"}'] == 1 and
              metrics["reshardfs_source_read_failures_total"] >= 1, metrics)


def the_log_of_a_fault(demo):
    """The same without a replica."""
    with demo.mounted("--fault=eio@rank_1") as m:
        check(control(m, "log").count("error") == 0, control(m, "log"))
        failed = [rank for rank in range(4)
                  if error_of(lambda r=rank: hash_tree(f"{m.path}/rank_{r}")) is not None]
        lines = control(m, "log").splitlines()
        check(any(re.fullmatch(r"\d{4}-\d\d-\d\dT\S+ reshardfs: error: .*rank_1/.*", line)
                  for line in lines), lines)
        stats = told(m, "stats")
        check(stats["fetched"]["failed_files"] == 1 and stats["fetched"]["failed"] > 0, stats)
        check(stats["log"]["errors"] >= 1, stats)
        check(failed, "without a replica reads fail")


def the_log_of_a_quiet_mount(demo):
    """It has what standard error has not."""
    damaged = f"{demo.root}/damaged"
    shutil.copytree(demo.source, damaged)
    for rank in range(8):
        write(f"{damaged}/rank_{rank}/net_rank_{rank}-9_9.ckpt", b"no checkpoint")
    with demo.mounted("-q", source=damaged) as m:
        lines = control(m, "log").splitlines()
        check(any("reshardfs: warning: " in line and "9_9" in line for line in lines), lines)
        check(m.log() == "", m.log())
        check(told(m, "stats")["log"]["warnings"] >= 1 and
              told(m, "config")["log_level"] == "error", "counted all the same")
        check(told(m, "stats")["step"] == "epoch 3 step 40", "the step that was whole")


def config_in_effect(demo):
    with demo.mounted("--cache=on", "--cache-size=64M", "--io-mode=cached", "--prefix=p_",
                      "-o", "allow_missing,max_threads=3") as m:
        c = told(m, "config")
        check((c["src_strategy"], c["dst_strategy"], c["source"], c["mountpoint"]) ==
              (demo.src, demo.dst, demo.source, m.path), c)
        check((c["io_mode"], c["cached"], c["cache"]["memory_bytes"], c["cache"]["directory"]) ==
              ("cached", True, 64 << 20, None), c)
        check((c["prefix"], c["format"], c["resume"], c["step"], c["log_level"], c["log_to"]) ==
              ("p_", "ckpt", False, "epoch 3 step 40", "notice", "stderr"), c)
        check(c["options"]["allow-missing"] is True and c["options"]["max_threads"] == "3" and
              c["options"]["cache-size"] == "64M" and "drop" not in c["options"], c["options"])
    # Relative names are told as absolute ones.
    here = os.getcwd()
    os.chdir(demo.root)
    try:
        with Mounted("source", src_strategy=demo.src, dst_strategy="none",
                     extra=["--format=hf", "--cache=off", "--io-mode=direct"]) as m:
            c = told(m, "config")
            check((c["source"], c["format"], c["dst_strategy"], c["cache"], c["io_mode"]) ==
                  (os.path.realpath("source"), "hf", "none", None, "direct"), c)
    finally:
        os.chdir(here)


def plans_are_those_of_plan(demo):
    def same(found, *words):
        expected = run_json("plan", "--slices", demo.source, "--src-strategy", demo.src, *words)
        check(expected.pop("tensors") and "tensors" not in found, "the tensors of all ranks")
        for part in (found, expected):
            for seconds in [part["total"], *part["files"]]:
                seconds["seconds"] = round(seconds["seconds"], 4)
        check(found == expected, f"{found}\n{expected}")

    with demo.mounted() as m:
        for rank in range(4):
            same(told(m, f"plan/rank_{rank}.json"), "--dst-strategy", demo.dst, str(rank))
    with Mounted(demo.source, src_strategy=demo.src, extra=["--format=hf", "--part-size=5MB"]) as m:
        plans = os.listdir(f"{m.path}/.reshardfs/plan")
        check(len(plans) == len(os.listdir(m.path)) - 1 > 1, plans)
        same(told(m, "plan/rank_1.json"), "--dst-strategy=none", "--format=hf", "--part-size=5MB",
             "1")


def of_a_resumed_job(demo):
    with Mounted(demo.source, resume=True) as m:
        check(".reshardfs" not in os.listdir(m.path), os.listdir(m.path))
        check(sorted(os.listdir(f"{m.path}/.reshardfs")) == sorted(FILES), "no plan")
        check(error_of(lambda: control(m, "plan/rank_0.json")) == "ENOENT", "plan")
        c = told(m, "config")
        check(c["resume"] is True and c["step"] == "net_rank_0-3_40.ckpt" and c["format"] is None,
              c)
        check(metrics_of(control(m, "metrics"))["reshardfs_source_failed_files"] == 0, "metrics")
        check(run("stats", m.path).status == GOOD, "stats")


def at_the_same_time(demo):
    """Many who look while others read."""
    with demo.mounted() as m:
        wrong = []

        def look():
            try:
                for _ in range(30):
                    metrics_of(control(m, "metrics"))
                    told(m, "stats"), told(m, "plan/rank_0.json"), control(m, "log")
            except Exception as error:  # of any kind, in a thread
                wrong.append(error)

        threads = [threading.Thread(target=look) for _ in range(4)]
        for t in threads:
            t.start()
        m.demand_tree(demo.expected)
        for t in threads:
            t.join()
        check(not wrong, wrong)


AS_NOBODY = """
import errno, json, os, sys
os.setgroups([]); os.setgid({0}); os.setuid({0})
found = {{}}
def attempt(name, call):
    try:
        call()
        found[name] = "done"
    except OSError as e:
        found[name] = errno.errorcode[e.errno]
root = sys.argv[1]
attempt("list", lambda: os.listdir(root + "/.reshardfs"))
attempt("stats", lambda: open(root + "/.reshardfs/stats"))
attempt("plan", lambda: os.stat(root + "/.reshardfs/plan/rank_0.json"))
for rank in range(4):
    path = f"{{root}}/rank_{{rank}}/checkpoint_{{rank}}.ckpt"
    attempt(f"read {{rank}}", lambda: open(path))
    attempt(f"sources {{rank}}", lambda: os.getxattr(path, "user.reshardfs.sources"))
print(json.dumps(found))
""".format(NOBODY)


def others_see_no_more(demo):
    os.chmod(demo.root, 0o755)
    source = f"{demo.root}/mine"
    shutil.copytree(demo.source, source)
    os.chmod(source, 0o755)
    # Rank 5 is a source of rank 1.
    for rank in range(8):
        os.chmod(f"{source}/rank_{rank}/net_rank_{rank}-3_40.ckpt", 0o600 if rank == 5 else 0o644)
    where = f"{demo.root}/mnt"
    with demo.mounted("-o", "allow_other", source=source, mountpoint=where) as m:
        modes = {rank: os.stat(m.rank_file(rank)).st_mode & 0o777 for rank in range(4)}
        check(0o400 in modes.values(), modes)
        got = subprocess.run([sys.executable, "-c", AS_NOBODY, m.path], capture_output=True,
                             text=True, check=True)
        found = json.loads(got.stdout)
        check([found[n] for n in ("list", "stats", "plan")] == ["EACCES"] * 3, found)
        for rank, mode in modes.items():
            expected = "done" if mode & 4 else "EACCES"
            check({found[f"{n} {rank}"] for n in ("read", "sources")} == {expected},
                  f"{rank} {mode:o}: {found}")
        got = subprocess.run(["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
                              os.environ["RESHARDFS"], "stats", m.path], capture_output=True,
                             text=True, check=False)
        check(got.returncode == IO and "access denied: only the user" in got.stderr, got)


def the_command(demo):
    with demo.mounted("--cache=on") as m:
        m.demand_tree(demo.expected)
        got = run("stats", m.path)
        check(got.status == GOOD and not got.err, got)
        lines = got.out.splitlines()
        check(demo.source in lines[0] and "epoch 3 step 40" in lines[0] and
              str(m.process.pid) in lines[0], lines[0])
        check(lines[2].split() == ["FIGURE", "VALUE", "MEANING"], lines[2])
        refused(run("steps", m.path), INPUT, f"{m.path}: this mount shows one step: `reshardfs "
                "mount --steps all` shows each")
        said = run_json("stats", m.path)
        check(said.keys() == told(m, "stats").keys(), said)
        figures = [f"{group} {key}" for group, keys in said.items() if isinstance(keys, dict)
                   for key in keys]
        check([line.split("  ")[0] for line in lines[3:]] == figures, lines)
        wide = max(map(len, run_on_terminal("stats", m.path, "--color=never",
                                            columns=60).out.splitlines()[2:]))
        check(wide <= 60, wide)
    refused(run("stats", m.path), INPUT, m.path, "No such file")
    plain = f"{demo.root}/plain"
    os.makedirs(f"{plain}/.reshardfs")
    refused(run("stats", plain), INPUT, plain, "reshardfs is not mounted there")
    refused(run("stats", "/proc"), INPUT, "/proc", "reshardfs is not mounted there")
    refused(run("stats", demo.src), INPUT, demo.src, "Not a directory")
    for text in ("", "{", "[1]", '{"version": 1}', "x" * 100000):
        write(f"{plain}/.reshardfs/stats", text.encode())
        refused(run("stats", plain), INPUT, plain, "reshardfs is not mounted there")
    os.remove(f"{plain}/.reshardfs/stats")
    os.mkfifo(f"{plain}/.reshardfs/stats")
    refused(run("stats", plain), INPUT, plain, "reshardfs is not mounted there")
    refused(run("stats"), USAGE, "MOUNTPOINT is missing")
    refused(run("stats", "a", "b"), USAGE, "b")
    refused(run("stats", "--foreground", "a"), USAGE, "--foreground")


def signals_take_effect(pid, log, m_path, rank):
    """What SIGUSR1 and SIGUSR2 do to the log of one mount."""
    def statistics():
        return len(re.findall(r"notice: \d+ MiB served in \d+ reads", log()))

    before = statistics()
    os.kill(pid, signal.SIGUSR1)
    within(20, lambda: statistics() == before + 1, "statistics in the log")
    within(20, lambda: "MiB read in" in log(), "of the source as well")
    os.kill(pid, signal.SIGUSR2)
    within(20, lambda: "log level: debug" in log(), "debug")
    content(f"{m_path}/rank_{rank}/checkpoint_{rank}.ckpt")
    within(20, lambda: "debug: read " in log(), "requests in the log")
    check(json.loads(read(f"{m_path}/.reshardfs/stats"))["log_level"] == "debug", "told")
    os.kill(pid, signal.SIGUSR2)
    within(20, lambda: json.loads(read(f"{m_path}/.reshardfs/stats"))["log_level"] != "debug",
           "the level from before")
    quiet = len(log())
    content(f"{m_path}/rank_{rank}/checkpoint_{rank}.ckpt")
    check("debug: read " not in log()[quiet:], log()[quiet:])


def signals_in_the_foreground(demo):
    with demo.mounted() as m:
        signals_take_effect(m.process.pid, m.log, m.path, 0)
        m.demand_tree(demo.expected)
    with demo.mounted("-q", "--io-mode=direct") as m:
        signals_take_effect(m.process.pid, m.log, m.path, 0)
        check(told(m, "stats")["log_level"] == "error", "back to quiet")
        for _ in range(50):
            m.process.send_signal(signal.SIGUSR1)
            m.process.send_signal(signal.SIGUSR2)
        m.demand_tree(demo.expected)


def signals_to_a_daemon(demo):
    where, log = f"{demo.root}/daemon", f"{demo.root}/daemon.log"
    os.makedirs(where)
    good("mount", demo.source, where, "--src-strategy", demo.src, "--dst-strategy", demo.dst,
         "--io-mode=direct", f"--log-to=file:{log}")
    try:
        pid = json.loads(read(f"{where}/.reshardfs/stats"))["pid"]
        check(json.loads(read(f"{where}/.reshardfs/config"))["log_to"] == "file", "config")
        signals_take_effect(pid, lambda: read(log), where, 1)
    finally:
        check(run("umount", where).status == GOOD, "umount")


def the_manual_has_all(demo):
    manual = read(MANUAL)
    with demo.mounted("--cache=on") as m:
        metrics = control(m, "metrics")
        for name, text in re.findall(r"^# HELP (\S+) (.*)$", metrics, re.M):
            said = re.findall(rf"^\.It .* Sy {name}\b.*\n(.*)$", manual, re.M)
            check(name == "reshardfs_info" or set(said) == {text}, f"{name}: {text}, {said}")
        names = {name.split("{")[0] for name in metrics_of(metrics)}
        names |= set(FILES)
        for which in ("stats", "config"):
            for key, value in told(m, which).items():
                names.add(key)
                if isinstance(value, dict) and key != "options":
                    names |= value.keys()
        missing = [n for n in sorted(names) if not re.search(rf"\b{re.escape(n)}\b", manual)]
        check(not missing, f"the manual lacks {missing}")


def main():
    require_mount()
    tap = Tap()
    tests = [found_and_not_listed, snapshots, counters_grow, metrics_are_prometheus,
             the_log_of_a_replica, the_log_of_a_fault, the_log_of_a_quiet_mount, config_in_effect, plans_are_those_of_plan,
             of_a_resumed_job, at_the_same_time, the_command, signals_in_the_foreground,
             signals_to_a_daemon, the_manual_has_all]
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as root:
        demo = Demo(root)
        for test in tests:
            with tap.test(test.__name__.replace("_", " ")):
                test(demo)
        if os.getuid() == 0 and shutil.which("setpriv"):
            with tap.test("others see no more"):
                others_see_no_more(demo)
        else:
            tap.skip("others see no more", "needs root")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
