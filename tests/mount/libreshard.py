#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""libreshard: a C program on the shared library sees what a mount shows."""

import os
import random
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import make_tree  # noqa: E402
from dcp_trees import Tensor, Tree  # noqa: E402
from demands import check  # noqa: E402
from library_use import (LIBRARY, check_parts, check_records, compare,  # noqa: E402
                         content, run)
from rsh_cli import demo_tree  # noqa: E402
from rsh_mount import Tap, require_mount  # noqa: E402
from run_seed import random_bytes, run_seed  # noqa: E402

TOP = os.environ.get("top_srcdir", os.path.join(os.environ.get("srcdir", "."), ".."))
FIRST_NODE = "LIBRESHARD_0.1"
NODES = {"reshard_load": "LIBRESHARD_0.3"}  # of what came later


def exported():
    said = subprocess.run(["nm", "-D", "--defined-only", "--with-symbol-versions",
                           os.path.join(LIBRARY, "libreshard.so")],
                          capture_output=True, check=True, text=True).stdout
    # The nodes themselves are absolute.
    return {name for _, kind, name in map(str.split, said.splitlines()) if kind != "A"}


def declared():
    header = content(TOP, "include", "reshard.h").decode()
    return set(re.findall(r"^(?!\s|/|#)[a-z].*?\b(reshard_[a-z_]+)\(", header, re.M))


def refused(words, *options, source=None, code):
    said = run("list", source, *options, status=1)
    check(said.startswith(f"-{code} ") and said.count("\n") == 1, said)
    check(all(w in said for w in words), said)


def test_spoilt_loads(tap, numbers, source, options):
    """Each of a load's reads may fail: what it gives is right, or it fails."""
    seed = str(numbers.getrandbits(31))
    for faults, right in (("eio,p=0.1,times=3", None), ("short,p=0.5", 3), ("eio,times=1", 3),
                          ("truncate@rank_2/:5000-6000", None), ("delay=2ms", 3)):
        for more in ([], ["replicas=off"]):
            with tap.test(f"loads with {faults} {' '.join(more)}"):
                said = run("spoilt", seed, source, *options, *more, f"fault={faults}")
                check(right is None or said == f"{right} right\n", said)


def test_random_trees(tap, numbers, work):
    for i in range(2):
        directory = os.path.join(work, f"random-{i}")
        make_tree.write_tree(directory, *make_tree.random_tree(numbers, 6, 5 << 20), numbers)
        source, src, dst = (os.path.join(directory, name)
                            for name in ("source", "source.ckpt", "wanted.ckpt"))
        cast = numbers.choice((None, "cast=float32", "cast=bfloat16"))
        for more in ([], [cast] if cast else [], ["format=safetensors"]):
            with tap.test(f"a random tree: {' '.join(more)}"):
                files, copies = compare(work, source, src, dst, *more)
                (check_parts if "format=safetensors" in more else check_records)(files, copies)
                run("load", str(numbers.getrandbits(31)), source, f"src_strategy={src}",
                    f"dst_strategy={dst}", *more)
        with tap.test("a random tree that is shown as it is, without one of its files"):
            spare = [f"src_strategy={src}", f"dst_strategy={src}", "fault=eio@rank_1/"]
            run("spoilt", str(numbers.getrandbits(31)), source, *spare)


def main():
    require_mount()
    tap = Tap()
    numbers = random.Random(run_seed())
    with tempfile.TemporaryDirectory(prefix="reshardfs-library-") as work:
        source, src, dst = demo_tree(work)
        both = [f"src_strategy={src}", f"dst_strategy={dst}"]
        with tap.test("exported is what the header declares, and nothing else"):
            wanted = {f"{name}@@{NODES.get(name, FIRST_NODE)}" for name in declared()}
            check(len(wanted) >= 10, wanted)
            check(exported() == wanted, exported() ^ wanted)
        with tap.test("its soname is that of its version, and it needs no FUSE"):
            said = subprocess.run(["objdump", "-p", os.path.join(LIBRARY, "libreshard.so")],
                                  capture_output=True, check=True, text=True).stdout
            check(re.search(r"SONAME +libreshard\.so\.0$", said, re.M), said)
            check("NEEDED" in said and "fuse" not in said, said)
        with tap.test("files, and records as a reader of files finds them"):
            files, copies = compare(work, source, src, dst)
            check(len(files) == 4, files)
            check_records(files, copies)
        with tap.test("whole tensors, a prefix"):
            files, copies = compare(work, source, src, None, "prefix=p,q_")
            check(files[0][1] == "rank_0/p,q_0.ckpt", files[0])
            check_records(files, copies)
        with tap.test("safetensors: records lie behind each other up to the end"):
            files, copies = compare(work, source, src, dst, "format=safetensors")
            check_parts(files, copies)
        with tap.test("a model in parts, and its index"):
            files, _ = compare(work, source, src, None, "format=hf", "part_size=3MB")
            check(files[-1][:2] == (2**32 - 1, "model.safetensors.index.json"), files[-1])
            check(len(files) > 2 and not files[-1][3], files)
        with tap.test("what an item has in another order, row by row"):
            tensor = Tensor("F16", (32, 48), random_bytes(numbers, 32 * 48 * 2),
                            [((0, 0), (32, 48))], {0: (1, 0)})
            turned = os.path.join(work, "turned")
            Tree("torch", {"w": tensor}, {}, numbers).write(turned)
            _, copies = compare(work, turned, None, None, "format=dcp")
            check(content(copies, "0.0") == tensor.content, "other bytes")
        with tap.test("options that take no value, a step, the cache"):
            compare(work, source, src, dst, "remove_redundancy", "select=3_40", "cache=on")
        for name, more in (("", []), (" through the cache", ["cache=on", "cache_size=8M"])):
            with tap.test("random loads" + name):
                run("load", str(numbers.getrandbits(31)), source, *both, *more)
        test_spoilt_loads(tap, numbers, source, both)
        test_random_trees(tap, numbers, work)
        with tap.test("misuse, and errors of one thread alone"):
            run("misuse", source, *both)
        with tap.test("refusals in one sentence"):
            refused(["mountpoint_x"], *both, "mountpoint_x", source=source, code=22)
            refused(["allow_other"], *both, "allow_other", source=source, code=22)
            refused(["command line"], *both, "help", source=source, code=22)
            refused(["prefix"], *both, "prefix", source=source, code=22)
            refused(["dst-strategy"], both[0], source=source, code=22)
            refused(["absent"], *both, source=os.path.join(work, "absent"), code=2)
            refused(["no.ckpt"], both[0], "dst_strategy=no.ckpt", source=source, code=2)
        with tap.test("a read that fails names file and offset"):
            said = run("copy", work, source, *both, "fault=eio@rank_", "replicas=off",
                       status=2).splitlines()[-1]
            check("rank_0/checkpoint_0.ckpt at offset 0: Input/output error" in said, said)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
