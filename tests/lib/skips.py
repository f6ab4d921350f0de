#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the skipped tests of a build against those that are expected.

    skips.py BUILD/tests [LIST]

Prints a line for each test that was skipped; exits with 1 if the list (tests/skips)
does not expect one of them on this machine, with 2 if it is none.
"""

import ctypes
import fnmatch
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile

from cgroups import memory_cgroup

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIST = os.path.join(TOP, "tests", "skips")
# The directive of TAP: of one test, or of a plan of none.
SKIP = re.compile(r"^(?:ok\b\s*\d*\s*(?:- )?(?P<test>.*?)|1\.\.0)\s*# SKIP\b\s*(?P<why>.*)$",
                  re.MULTILINE)


def fails(*command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL, check=False).returncode != 0


def no_landlock():
    """Its version is what landlock_create_ruleset(NULL, 0, 1) returns."""
    return ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1) < 1


def no_passthrough():
    """Whether the kernel was built with it cannot always be seen."""
    release = [int(n) for n in re.findall(r"\d+", os.uname().release)[:2]]
    if release < [6, 9] or os.geteuid() != 0:
        return True
    try:
        with open(f"/boot/config-{os.uname().release}", encoding="utf-8") as f:
            return "CONFIG_FUSE_PASSTHROUGH=y" not in f.read()
    except OSError:
        return False


def fuse_is_roots():
    """Root opens it to others where it can have a namespace and a device for that."""
    mode = os.stat("/dev/fuse").st_mode
    return not mode & stat.S_IWOTH and (os.geteuid() != 0 or no_namespaces() or no_devices())


def no_devices():
    """Containers mostly may not make any."""
    with tempfile.TemporaryDirectory() as directory:
        try:
            os.mknod(os.path.join(directory, "null"), stat.S_IFCHR | 0o600, os.makedev(1, 3))
        except OSError:
            return True
    return False


def no_handles():
    """open_by_handle_at() takes CAP_DAC_READ_SEARCH."""
    with open("/proc/self/status", encoding="ascii") as f:
        return not int(re.search(r"^CapEff:\s*(\w+)", f.read(), re.M).group(1), 16) & 4


def few_file_systems():
    """Whether mount/identity_table.py may lack a file system of the kernel."""
    with open("/proc/filesystems", encoding="utf-8") as f:
        known = f.read().split()
    return not os.path.exists("/dev/loop-control") or not {
        "ext4", "xfs", "btrfs", "squashfs", "erofs", "overlay"} <= set(known)


def no_namespaces():
    return fails("unshare", "--mount", "true")


def fresh_fails(function):
    """Of lib/fresh.sh."""
    return fails("sh", "-c", f'top=$1; . "$top/tests/lib/fresh.sh"; {function}', "sh", TOP)


def no_memory_groups():
    with memory_cgroup(64 << 20) as group:
        return not group


def memory_disk():
    kind = subprocess.run(["stat", "-f", "-c", "%T", tempfile.gettempdir()],
                          capture_output=True, text=True, check=True).stdout.strip()
    return kind in ("tmpfs", "ramfs")


def conditions(build):
    """Functions of no argument, by the names that the list has for them."""
    def sanitizer():
        with open(os.path.join(build, "..", "config.h"), encoding="utf-8") as f:
            return "#define WITH_SANITIZER 1" in f.read()

    return {
        "no-oracle": lambda: not os.environ.get("RSH_ORACLE_PYTHON"),
        "no-auditwheel": lambda: not os.environ.get("RSH_AUDITWHEEL"),
        "no-matplotlib": lambda: not os.environ.get("RSH_PLOT_PYTHON"),
        "no-moto": lambda: not os.environ.get("RSH_MOTO_PYTHON"),
        "no-guest": lambda: not os.environ.get("RSH_GUEST_KERNEL"),
        "no-ceph": lambda: not shutil.which("ceph-fuse"),
        "no-mindformers": lambda: not os.environ.get("RSH_MINDFORMERS"),
        "no-hyperparallel": lambda: not os.environ.get("RSH_HYPER_PARALLEL"),
        "no-deepspeed": lambda: not os.environ.get("RSH_DEEPSPEED_PYTHON"),
        "no-delta": lambda: not os.environ.get("RSH_DELTA_PYTHON"),
        "no-sglang": lambda: not os.environ.get("RSH_SGLANG"),
        "no-vllm": lambda: not os.environ.get("RSH_VLLM_PYTHON"),
        "no-transformers-4": lambda: not os.environ.get("RSH_TRANSFORMERS_4"),
        "no-verl": lambda: not os.environ.get("RSH_VERL"),
        "no-megatron-lm": lambda: not os.environ.get("RSH_MEGATRON"),
        "no-mindspeed-llm": lambda: not os.environ.get("RSH_MINDSPEED_LLM"),
        "no-megatron-bridge": lambda: not os.environ.get("RSH_MEGATRON_BRIDGE"),
        "no-transformers": lambda: not os.environ.get("RSH_HF_PYTHON"),
        "no-megatron": lambda: fails(os.environ.get("RSH_HF_PYTHON", "false"), "-c",
                                     "import megatron.core"),
        "no-accelerate": lambda: fails(
            os.environ.get("RSH_HF_PYTHON", "false"), "-c", "import os, sys\nsys.path.append("
            "os.environ.get('RSH_ACCELERATE', ''))\nimport accelerate, psutil"),
        "no-peft": lambda: fails(os.environ.get("RSH_HF_PYTHON", "false"), "-c", "import peft"),
        "sanitizer": sanitizer,
        "no-clone": lambda: fails("git", "-C", TOP, "ls-files", "--error-unmatch", "README.md"),
        "no-mounts": lambda: fresh_fails("fresh_may_mount"),
        "no-mirror": lambda: fresh_fails("fresh_answers"),
        "no-ubuntu": lambda: fresh_fails("fresh_choose focal; fresh_answers"),
        "not-root": lambda: os.geteuid() != 0,
        "no-namespaces": no_namespaces,
        "no-devices": no_devices,
        "no-handles": no_handles,
        "few-file-systems": few_file_systems,
        # Containers have /proc/sys for reading.
        "no-user-limits": lambda: fails("unshare", "--user", "--map-root-user", "--mount", "test",
                                        "-w", "/proc/sys/user/max_inotify_watches"),
        "no-user-namespaces": lambda: fails("unshare", "-Urm", "true"),
        "fuse-is-roots": fuse_is_roots,
        "no-passthrough": no_passthrough,
        "no-landlock": no_landlock,
        "no-memory-groups": no_memory_groups,
        "no-splice": lambda: not hasattr(os, "splice"),
        "memory-disk": memory_disk,
    }


def read_list(path, known):
    """[(program, condition, reason)]; ValueError with a sentence."""
    found = []
    with open(path, encoding="utf-8") as f:
        for number, line in enumerate(f, 1):
            if not line.strip() or line.startswith("#"):
                continue
            words = line.split(maxsplit=2)
            if len(words) != 3 or words[1] not in known:
                raise ValueError(f"{path}:{number}: no program, condition and reason")
            found.append((words[0], words[1], words[2].strip()))
    return found


def skipped(build):
    """(program, test or "", reason) of each one in the logs of `make check`."""
    for folder, _, names in sorted(os.walk(build)):
        for name in sorted(n for n in names if n.endswith(".trs")):
            log = os.path.join(folder, name[:-len(".trs")])
            with open(log + ".log", encoding="utf-8", errors="replace") as f:
                for match in SKIP.finditer(f.read()):
                    yield os.path.relpath(log, build), match["test"] or "", match["why"].strip()


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    build = sys.argv[1]
    holds = conditions(build)
    try:
        expected = read_list(sys.argv[2] if len(sys.argv) > 2 else LIST, holds)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    status = 0
    for program, test, why in skipped(build):
        known = any(fnmatch.fnmatchcase(program, p) and fnmatch.fnmatchcase(why, w)
                    and holds[condition]() for p, condition, w in expected)
        status |= not known
        print(f"{program}: {test + ': ' if test else ''}{why}"
              f"{'' if known else ' (NOT EXPECTED HERE)'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
