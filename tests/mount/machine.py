#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`list`, `umount --all` and `doctor`: what is mounted on this machine, and what it lacks.
It runs in a mount namespace of its own, where there are no mounts of other tests."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path.insert(0, LIB)

from demands import check, content  # noqa: E402
from rsh_cli import (GOOD, INPUT, IO, NO, USAGE, demo_tree, good, refused, run,  # noqa: E402
                     run_json, run_on_terminal)
from rsh_mount import Skipped, Tap, is_sanitized, require_mount  # noqa: E402

TOP = os.path.abspath(os.environ.get("top_srcdir", os.path.join(LIB, "..", "..")))
SECRET = "6f1d0c0ffee-not-to-be-shown"


class Machine:
    def __init__(self, directory):
        self.directory = directory
        self.source, self.src, self.dst = demo_tree(directory)

    def at(self, name):
        return os.path.join(self.directory, name)

    def mount(self, name, *options, source=None):
        os.makedirs(self.at(name), exist_ok=True)
        good("mount", "--log-to", "file:" + self.at("log"), "--src-strategy", self.src,
             *options, source or self.source, self.at(name))

    def listed(self):
        return {m["mountpoint"]: m for m in run_json("list")["mounts"]}


def lists(m):
    check(m.listed() == {}, "in a namespace of its own there is none")
    got = run("list")
    check(got.status == GOOD and got.out == "nothing is mounted\n", got)
    m.mount("four", "--dst-strategy", m.dst)
    m.mount("a whole one", "--dst-strategy", "none", "--prefix", "x_")
    found = m.listed()
    check(list(found) == [m.at("four"), m.at("a whole one")], found)
    one = found[m.at("a whole one")]
    check(one["source"] == m.source and one["state"] == "ready" and
          one["user"] == os.geteuid() and one["memory_bytes"] > 1 << 20, one)
    check(one["options"] == {"src-strategy": m.src, "dst-strategy": "none", "prefix": "x_",
                             "log-to": "file:" + m.at("log")}, one)
    check(one["pid"] == json.loads(open(m.at("a whole one/.reshardfs/stats"),
                                        encoding="utf-8").read())["pid"], one)
    rows = run("list").out.splitlines()
    check(len(rows) == 3 and rows[0].split() == [
        "MOUNTPOINT", "SOURCE", "STEP", "STATE", "PROCESS", "MEMORY", "OPTIONS"], rows)
    check("--dst-strategy none --prefix x_" in rows[2], rows)
    wide = [row for row in run_on_terminal("list", columns=100).out.splitlines()
            if len(re.sub(r"\x1b\[[\d;]*m", "", row)) > 100]
    check(not wide, wide)


def one_that_hangs(m):
    pid = m.listed()[m.at("four")]["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        found = m.listed()
    finally:
        os.kill(pid, signal.SIGCONT)
    check(found[m.at("four")]["state"] == "does not answer", found)
    check(found[m.at("four")]["pid"] is None and
          found[m.at("a whole one")]["state"] == "ready", found)


def one_whose_daemon_ended(m):
    os.kill(m.listed()[m.at("four")]["pid"], signal.SIGKILL)
    for _ in range(500):
        state = m.listed()[m.at("four")]["state"]
        if state == "its daemon has ended":
            break
    check(state == "its daemon has ended", state)
    refused(run("stats", m.at("four")), IO, "four: its daemon has ended; unmount it with "
            f"`reshardfs umount {m.at('four')}`")


def all_are_unmounted(m):
    m.mount("four/../inner", "--dst-strategy", "none")
    check(len(m.listed()) == 3, m.listed())
    with open(m.at("inner/.reshardfs/stats"), encoding="utf-8"):
        got = run("umount", "--all")
        check(got.status != GOOD and "in use" in got.err and m.at("inner") in got.err, got)
    check(list(m.listed()) == [m.at("inner")], "the others are unmounted")
    got = run("umount", "-a")
    check(got.status == GOOD and not got.out + got.err, got)
    check(m.listed() == {}, m.listed())
    check(run("umount", "--all").status == GOOD, "nothing is left to do")
    refused(run("umount"), USAGE, "MOUNTPOINT is missing; --all unmounts all mounts")
    refused(run("umount", "--all", m.at("four")), USAGE,
            "--all and MOUNTPOINT cannot be used together")


def what_is_below_stays(m):
    """A mount may cover another file system, which is not ours."""
    os.makedirs(m.at("covered"))
    if subprocess.run(["mount", "-t", "tmpfs", "none", m.at("covered")], check=False,
                      stderr=subprocess.DEVNULL).returncode:
        raise Skipped("a file system cannot be mounted")
    for _ in range(2):
        m.mount("covered", "--dst-strategy", "none", "--stack")
    got = run("umount", "--all")
    check(got.status == GOOD and m.listed() == {}, got)
    with open("/proc/self/mounts", encoding="utf-8") as f:
        left = [row.split()[2] for row in f if row.split()[1] == m.at("covered")]
    check(left == ["tmpfs"], left)
    subprocess.run(["umount", m.at("covered")], check=True)


@contextlib.contextmanager
def device(m, mode):
    """A /dev/fuse with this mode, on a file system that knows devices."""
    where = m.at("device")
    os.makedirs(where, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", where], check=True)
    try:
        try:
            os.mknod(f"{where}/fuse", 0o20600, os.stat("/dev/fuse").st_rdev)
        except PermissionError:
            raise Skipped("no device can be made") from None
        os.chmod(f"{where}/fuse", mode)
        subprocess.run(["mount", "--bind", f"{where}/fuse", "/dev/fuse"], check=True)
        try:
            yield
        finally:
            subprocess.run(["umount", "-l", "/dev/fuse"], check=True)
    finally:
        subprocess.run(["umount", "-l", where], check=True)


def a_users_mount(m):
    """Root sees what it is, although the kernel lets root not into it."""
    if os.geteuid() != 0:
        raise Skipped("only root becomes another user")
    where = m.at("of a user")
    os.makedirs(where)
    os.chown(where, 65534, 65534)
    subprocess.run(["chmod", "-R", "a+rX", m.source, m.src], check=True)
    user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    with device(m, 0o666):
        subprocess.run([*user, os.environ["RESHARDFS"], "mount", "--index-cache", "off",
                        "--src-strategy", m.src, "--dst-strategy", "none", m.source, where],
                       check=True)
    try:
        one = m.listed()[where]
        check(one["state"] == "ready" and one["user"] == 65534 and one["pid"] and
              one["options"]["dst-strategy"] == "none", one)
        refused(run("stats", where), IO, "only the user that mounted it can read its statistics, "
                "and root if it was mounted with -o allow_other")
    finally:
        check(run("umount", where).status == GOOD, "it is unmounted")


def another_user(m):
    m.mount("four", "--dst-strategy", "none")
    os.chmod(m.directory, 0o755)
    user = ["setpriv", "--reuid", "54321", "--clear-groups", os.environ["RESHARDFS"], "list",
            "--json"]
    if os.geteuid() != 0:
        raise Skipped("only root becomes another user")
    own = json.loads(subprocess.check_output(user))["mounts"]
    check(own == [], own)
    said = subprocess.check_output(user[:-1], encoding="utf-8")
    check(said == "nothing is mounted by this user; `reshardfs list --all` lists 1 of others\n",
          said)
    one, = json.loads(subprocess.check_output([*user, "--all"]))["mounts"]
    check(one["state"] == "of another user" and one["source"] == m.source and
          one["pid"] is one["options"] is None, one)
    check(run("umount", m.at("four")).status == GOOD, "it is unmounted")


def metrics_of_all(m):
    """What node_exporter's textfile collector reads; each metric is in one place."""
    for name in ("four", 'a "b"', "b\udcff"):
        m.mount(name, "--dst-strategy", "none")
    os.symlink(os.environ["RESHARDFS"], m.at("reshardfs"))
    example = os.path.join(TOP, "mount-helpers", "examples", "metrics.py")
    env = {**os.environ, "PATH": f"{m.directory}:{os.environ['PATH']}"}
    pid = m.listed()[m.at("four")]["pid"]
    subprocess.run([example, m.directory], env=env, check=True)
    os.kill(pid, signal.SIGSTOP)
    try:
        both = content(m.at("reshardfs.prom")).decode()
        subprocess.run([example, m.directory], env=env, check=True)
    finally:
        os.kill(pid, signal.SIGCONT)
    names = [line.split("{")[0] for line in both.splitlines() if line[0] != "#"]
    together = [n for i, n in enumerate(names) if i == 0 or names[i - 1] != n]
    check(len(together) == len(set(together)) > 20, together)
    helps = re.findall("^# HELP ([a-z_]+) ", both, re.M)
    check(sorted(helps) == sorted(set(names)), "each has one help")
    for name in ("four", 'a \\"b\\"'):
        check(f'reshardfs_mount_ready{{mountpoint="{m.at(name)}"}} 1\n' in both, both)
        check(re.search(rf'^reshardfs_uptime_seconds{{mountpoint="{re.escape(m.at(name))}"}} ',
                        both, re.M), both)
    one = content(m.at("reshardfs.prom")).decode()
    check(f'reshardfs_mount_ready{{mountpoint="{m.at("b")}\\\\xff"}} 0\n' in both, both)
    lost = subprocess.run([example, m.at("lost")], env=env, stderr=subprocess.PIPE, check=False,
                          encoding="utf-8")
    check(lost.returncode == 1 and
          lost.stderr == f"{m.at('lost/reshardfs.prom')}: No such file or directory\n", lost)
    check(f'reshardfs_mount_ready{{mountpoint="{m.at("four")}"}} 0\n' in one and
          one.count(m.at("four")) == 1, one)
    check(run("umount", "--all").status == GOOD, "unmounted")


def doctor(m):
    env = {"AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ACCESS_KEY_ID": SECRET,
           "https_proxy": f"http://user:{SECRET}@127.0.0.1:1", "HOME": m.directory,
           "XDG_CACHE_HOME": ""}
    got = run("doctor", env=env)
    check(got.status == GOOD and SECRET not in got.out + got.err, got)
    rows = {line[:14].strip(): line for line in got.out.splitlines()}
    check(run("--version").out.split()[1] in rows["program"], rows)
    check(os.uname().release in rows["system"], rows)
    check(f"possible; {len(m.listed())} now (reshardfs list)" in rows["mounts"], rows)
    check("libcurl, libexpat and libcrypto are there" in rows["object storage"], rows)
    check(f"{m.directory}/.cache/reshardfs/index: not made yet" in rows["index cache"], rows)
    fuse = subprocess.run(["grep", "-qx", "user_allow_other", "/etc/fuse.conf"], check=False)
    check(("-o allow_other is for root alone: /etc/fuse.conf has no line user_allow_other"
           if fuse.returncode else "-o allow_other is allowed to users (/etc/fuse.conf)")
          in rows["other users"], rows)
    check("AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY" in rows["variables"], rows)
    check("https_proxy" in rows["proxy"], rows)
    said = run_json("doctor")
    check(said.keys() == {"checks"} and {"about", "state", "says"} == said["checks"][0].keys(),
          said)
    check({c["state"] for c in said["checks"]} <= {"good", "none"}, said)
    bare = {"HOME": "", "XDG_CACHE_HOME": "", "RESHARDFS_TABLES": m.at("empty")}
    rows = {line[:14].strip(): line for line in run("doctor", env=bare).out.splitlines()}
    check("neither HOME nor XDG_CACHE_HOME is set" in rows["index cache"], rows)
    check("neither HOME nor AWS_SHARED_CREDENTIALS_FILE is set" in rows["credentials"], rows)
    elsewhere = {"HOME": m.at("no-home"), "XDG_CACHE_HOME": m.at("cache")}
    said = run("doctor", env=elsewhere).out
    check(m.at("cache/reshardfs/index: not made yet") in said, said)
    lost = {"HOME": m.at("no-home"), "XDG_CACHE_HOME": ""}
    row = [line for line in run("doctor", env=lost).out.splitlines() if "no-home/.cache" in line]
    check(" none " in row[0] and "No such file or directory" in row[0], row)
    # Where the program is installed, it has the tables of the installation.
    installed = run("convert", "list", env=bare).status == GOOD
    check(installed or "none in " in rows["rule tables"] and
          "RESHARDFS_TABLES names another directory" in rows["rule tables"], rows)
    if is_sanitized():  # it maps terabytes
        return
    limited = subprocess.run(
        ["sh", "-c", 'ulimit -v 600000; exec "$0" doctor', os.environ["RESHARDFS"]],
        stdout=subprocess.PIPE, encoding="utf-8", check=False)
    check(re.search("^memory  .*, of which limits leave [0-9.]+ MiB", limited.stdout, re.M),
          limited)


def doctor_of_a_user(m):
    """What root may and a user may not."""
    if os.geteuid():
        raise Skipped("only root takes rights away")
    home = m.at("home")
    os.makedirs(os.path.join(home, ".cache"), mode=0o700)
    os.chmod(m.directory, 0o755)
    as_user = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
               os.environ["RESHARDFS"], "doctor"]
    with device(m, 0o600):
        got = subprocess.run(as_user, stdout=subprocess.PIPE, encoding="utf-8", check=False,
                             env={**os.environ, "HOME": home, "XDG_CACHE_HOME": ""})
    rows = {line[:14].strip(): line for line in got.stdout.splitlines()}
    check(got.returncode == NO, got)
    check(" bad " in rows["mounts"] and "root lets all users mount with chmod 666 /dev/fuse"
          in rows["mounts"], rows)
    check(" none " in rows["index cache"] and "index: Permission denied" in rows["index cache"],
          rows)


def doctor_of_a_source(m):
    ls = run("ls", m.source)
    got = run("doctor", m.source)
    check(got.status == GOOD and got.out.endswith(f"$ reshardfs ls {m.source}\n{ls.out}"), got)
    said = run_json("doctor", m.source)
    check(said["source"] == run_json("ls", m.source) and said["error"] is None, said)
    lost = m.at("lost")
    got = run("doctor", lost)
    check(got.status == NO and f"{lost}: No such file" in got.err and "program" in got.out, got)
    said = json.loads(run("doctor", "--json", lost).out)
    check(said["source"] is None and f"{lost}: No such file" in said["error"], said)
    check(run("ls", lost).status == INPUT, "ls itself says more of it")
    os.makedirs(lost)
    with open(os.path.join(lost, "model.safetensors.index.json"), "w", encoding="utf-8") as f:
        f.write('{"weight_map":{"a":"model-00001-of-00001.safetensors"}}')
    said = json.loads(run("doctor", "--json", lost).out)
    check(said["source"] == run_json("ls", lost, status=NO) and said["error"] is None, said)


def sentences_are_whole(m):
    """On a narrow terminal a sentence continues on the next line; nothing of it is cut."""
    wide = run("doctor").out
    narrow = re.sub(r"\x1b\[[\d;]*m", "", run_on_terminal("doctor", columns=60).out)
    check("..." not in narrow and narrow.split() == wide.split(), narrow)
    check(len(narrow.splitlines()) > len(wide.splitlines()), narrow)


def no_device(m):
    """A machine on which nothing can be mounted."""
    hidden = subprocess.run(
        ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs tmpfs /dev && exec "$@"', "sh",
         os.environ["RESHARDFS"], "doctor"], stdout=subprocess.PIPE, encoding="utf-8",
        stdin=subprocess.DEVNULL, check=False)
    row, = [line for line in hidden.stdout.splitlines() if line.startswith("mounts ")]
    check(hidden.returncode == NO and " bad " in row and "there is no /dev/fuse" in row, hidden)


def main():
    require_mount()
    if not os.environ.get("RSH_OWN_MOUNTS"):
        alone = os.path.join(LIB, "own_mounts.sh")
        if subprocess.run([alone, "true"], stderr=subprocess.DEVNULL, check=False).returncode:
            print("1..0 # SKIP no mount namespace")
            return 0
        os.environ["RSH_OWN_MOUNTS"] = "yes"
        os.execv(alone, [alone, sys.executable, *sys.argv])
    # Whatever else is mounted on this machine is given up in this namespace alone.
    with open("/proc/self/mounts", encoding="utf-8") as f:
        ours = [row.split()[1] for row in f if row.split()[2] == "fuse.reshardfs"]
    for where in reversed(ours):
        subprocess.run(["umount", "-l", where.encode().decode("unicode_escape")], check=True)
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as directory:
        m = Machine(directory)
        try:
            for test in (lists, one_that_hangs, one_whose_daemon_ended, all_are_unmounted,
                         what_is_below_stays, another_user, a_users_mount, metrics_of_all,
                         doctor, doctor_of_a_user,
                         doctor_of_a_source, sentences_are_whole, no_device):
                with tap.test(test.__name__.replace("_", " ")):
                    test(m)
        finally:
            run("umount", "--all", "--lazy")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
