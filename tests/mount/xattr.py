#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Extended attributes of virtual files: where they come from, by what make_tree.py's
strategies mean.
"""

import os
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from demands import check, error_of, write  # noqa: E402
from ms_formats import (Layout, Record, StageFile, checkpoint_bytes,  # noqa: E402
                        strategy_bytes)
from rsh_cli import demo_tree, run_json  # noqa: E402
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402

PREFIX = "user.reshardfs."
LISTED = ["sources", "replicas", "step", "record_count"]


def get(path, name):
    return os.getxattr(path, PREFIX + name).decode()


def halves(root, name, n=8):
    """A vector in two halves, each saved by two ranks; (source, strategy)."""
    for rank in range(4):
        half = Record((n,), "UInt8", (bytes(range(rank % 2, 251)) * (n // 250 + 1))[:n])
        write(f"{root}/{name}/rank_{rank}/net-3_40.ckpt", checkpoint_bytes({"w": half}))
    layouts = {"w": Layout([2, 2], [0])}
    return f"{root}/{name}", write(f"{root}/{name}.ckpt", strategy_bytes(StageFile(0, layouts)))


def where_it_comes_from(root):
    source, strategy = halves(root, "halves")
    with Mounted(source, src_strategy=strategy) as m:
        path = m.rank_file(0)
        check(sorted(os.listxattr(path)) == sorted(PREFIX + n for n in LISTED),
              os.listxattr(path))
        check(get(path, "sources").split("\n") ==
              [f"{source}/rank_{r}/net-3_40.ckpt" for r in (0, 1)], get(path, "sources"))
        check(get(path, "replicas") == "rank 0: 2\nrank 1: 3", get(path, "replicas"))
        check(get(path, "step") == "epoch 3 step 40", get(path, "step"))
        check(get(path, "record_count") == "1", get(path, "record_count"))
        check(os.listxattr(m.path) == [PREFIX + "step"], "the root")
        check(get(m.path, "step") == "epoch 3 step 40", get(m.path, "step"))
        check(os.listxattr(f"{m.path}/rank_0") == [], "another directory")
    os.remove(f"{source}/rank_0/net-3_40.ckpt")
    with Mounted(source, src_strategy=strategy) as m:
        path = m.rank_file(0)
        check(get(path, "replicas") == "rank 1: 3\nrank 2: 0", get(path, "replicas"))
        check(get(path, "sources").endswith("/rank_2/net-3_40.ckpt"), get(path, "sources"))


def as_plan_says(root):
    source, src, dst = demo_tree(f"{root}/demo")
    plan = run_json("plan", source, "--src-strategy", src, "--dst-strategy", dst)
    replicas = {s["rank"]: s["replicas"] for s in plan["sources"]}
    paths = {s["rank"]: s["path"] for s in plan["sources"]}
    with Mounted(source, src_strategy=src, dst_strategy=dst) as m:
        for f in plan["files"]:
            path = f"{m.path}/rank_{f['rank']}/checkpoint_{f['rank']}.ckpt"
            ranks = [s["rank"] for s in f["sources"]]
            check(get(path, "sources").split("\n") == [paths[r] for r in ranks], path)
            check(get(path, "replicas").split("\n") ==
                  [" ".join([f"rank {r}:", *map(str, replicas[r])]) for r in ranks], path)
            check(get(path, "record_count") == str(f["records"]), path)
            check(get(path, "step") == plan["step"], path)


def other_trees(root):
    source, strategy = halves(root, "others")
    with Mounted(source, resume=True) as m:
        path = f"{m.path}/rank_3/net-3_40.ckpt"
        check(sorted(os.listxattr(path)) == [PREFIX + "sources", PREFIX + "step"],
              os.listxattr(path))
        check(get(path, "sources") == f"{source}/rank_3/net-3_40.ckpt", get(path, "sources"))
        check(get(path, "step") == "net-3_40.ckpt", get(path, "step"))
        check(get(m.path, "step") == "net-3_40.ckpt", "the root")
    with Mounted(source, src_strategy=strategy, extra=["--format=hf"]) as m:
        check(os.listxattr(f"{m.path}/model.safetensors.index.json") == [PREFIX + "step"], "map")
    plain = f"{root}/odd\nname\\"
    shutil.copytree(f"{source}/rank_0", f"{plain}/rank_0")
    with Mounted(plain) as m:
        path = m.rank_file(0)
        check(get(path, "sources") == f"{root}/odd\\x0aname\\\\/rank_0/net-3_40.ckpt",
              get(path, "sources"))
        check(PREFIX + "replicas" not in os.listxattr(path), "no strategy, no replicas")
        check(error_of(lambda: get(path, "replicas")) == "ENODATA", "ENODATA")


def by_getfattr(root):
    source, strategy = halves(root, "getfattr")
    with Mounted(source, src_strategy=strategy) as m:
        path = m.rank_file(0)
        dump = subprocess.run(["getfattr", "--absolute-names", "-d", path], capture_output=True,
                              text=True, check=True).stdout
        check('user.reshardfs.replicas="rank 0: 2\\012rank 1: 3"' in dump, dump)
        check('user.reshardfs.record_count="1"' in dump, dump)
        one = subprocess.run(["getfattr", "--absolute-names", "--only-values", "-n",
                              PREFIX + "step", path], capture_output=True, text=True, check=True)
        check(one.stdout == get(path, "step"), one)
    # Short lines look like bytes to getfattr, which shows them in base64.
    source, src, dst = demo_tree(f"{root}/many")
    with Mounted(source, src_strategy=src, dst_strategy=dst) as m:
        dump = subprocess.run(["getfattr", "--absolute-names", "-d",
                               m.rank_file(0)], capture_output=True,
                              text=True, check=True).stdout
        check('user.reshardfs.replicas="rank 0:\\012rank 1:\\012' in dump, dump)


SIZES = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
path = sys.argv[1].encode()
for name in sys.argv[2:]:
    name = name.encode()
    buf = ctypes.create_string_buffer(65536)
    n = libc.getxattr(path, name, None, ctypes.c_size_t(0))
    assert n > 0, (name, ctypes.get_errno())
    assert libc.getxattr(path, name, buf, ctypes.c_size_t(n)) == n, name
    if n == 1:
        continue  # no room at all asks for the size
    assert libc.getxattr(path, name, buf, ctypes.c_size_t(n - 1)) == -1, name
    assert ctypes.get_errno() == 34, ctypes.get_errno()  # ERANGE
n = libc.listxattr(path, None, ctypes.c_size_t(0))
assert libc.listxattr(path, buf, ctypes.c_size_t(n)) == n
assert buf.raw[:n].count(b"\\0") == len(sys.argv[2:]), buf.raw[:n]
assert libc.listxattr(path, buf, ctypes.c_size_t(n - 1)) == -1 and ctypes.get_errno() == 34
"""


def sizes_are_asked_first(root):
    source, strategy = halves(root, "sizes")
    with Mounted(source, src_strategy=strategy) as m:
        path = m.rank_file(0)
        done = subprocess.run([sys.executable, "-c", SIZES, path,
                               *[PREFIX + n for n in LISTED]], capture_output=True,
                              text=True, check=False)
        check(done.returncode == 0, done.stderr)


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-") as root:
        for test in (where_it_comes_from, as_plan_says, other_trees, sizes_are_asked_first):
            with tap.test(test.__name__.replace("_", " ")):
                test(root)
        if not shutil.which("getfattr"):
            tap.skip("by getfattr", "there is no getfattr")
        else:
            with tap.test("by getfattr"):
                by_getfattr(root)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
