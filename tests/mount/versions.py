#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weight versions of reinforcement learning as a source: full ones and chains of deltas, each
shown as a whole model, and what is lost or damaged of them.

The yardstick is data/versions/expected.json, which has the hashes of what SGLang's reader
makes.  Random ones come from lib/version_chains.py; --seed S --cases N repeats some.
"""

import argparse
import json
import os
import random
import shutil
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
TOP = os.environ.get("top_srcdir", os.path.join(HERE, ".."))
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(TOP, "python")]

from demands import check, content, demand, flip, within, write  # noqa: E402
from rsh_cli import GOOD, IO, good, run  # noqa: E402
from rsh_mount import (Alone, Tap, expect_failure, require_mount,  # noqa: E402
                       reshardfs_program)
from safetensors_format import Tensors, safetensors_bytes  # noqa: E402
from shown_model import hashes, model_hashes, same  # noqa: E402
from version_chains import (INDEX, RandomChain, expected, frame, random_change,  # noqa: E402
                            random_model, unpack, version_name, write_delta, write_full)

CASES = expected()
RANDOM_A_TEST = 10
ALL = ("--steps", "all")
# Small tensors are compared with their checksums before anything is shown.
NOT_SHOWN = {"badsum": ("model.norm.weight has the checksum", "and the trainer wrote"),
             "nosum": ("model.norm.weight has no checksum",)}
REFUSED = {
    "absent": ("model.extra is not in the model that it changes: --base is not the model",),
    "algorithm": ('checksum_format "sha512" is not known (xxh3-128, blake3, adler32)',),
    "beyond": ("is damaged",),
    "bomb": ("changes 16777216 bytes of",),
    "compression": ('compression_format "lz4" is not known (zstd)',),
    "cut": ("is damaged",),
    "encoding": ('delta_encoding "sparse" is not known (xor, overwrite)',),
    "needsbase": ("weight_v000001 is a delta of the model that the run began with: give it "
                  "with --base DIR",),
    "number": ("weight_v000001: its index says version 2 of base 1",),
    "older": ("weight_v000001: its index says version 1 of base 7",),
    "onwrong": ("has another checksum than the trainer's: ", "wrongbase is not the model that "
                "the run began with, or it was changed"),
    "single": ("weight_v000002 is a delta of version 1 (xor, zstd); mount the directory above "
               "it, with --base and --select step=2",),
    "smaller": ("weight_v000001 changes 1600 bytes of model.embed_tokens.weight, and it has "
                "1568 in the base: not the model that the run began with",),
    "twice": ("model-00000-of-00002.safetensors has model.embed_tokens.weight, which the index "
              "gives to model-00001-of-00002.safetensors",),
}
LOST = {
    "gap": ("weight_v000003 builds on version 2, which is not there",),
    "half": ("weight_v000005 is still being written: it has no " + INDEX,),
    "half2": ("weight_v000005 is still being written: it has no " + INDEX,),
    "lostfile": ("weight_v000004: model-00000-of-00002.safetensors is missing",),
    "nobase": (),
}


def base_of(directory):
    return ("--base", directory) if directory else ()


def note_of(model):
    return json.loads(content(os.path.join(model, "config.json"))).get("note")


def steps_of(mount):
    return sorted(n for n in os.listdir(mount.path) if n.startswith("weight_v"))


def not_shown(source, words, extra):
    _, said = expect_failure(source, described=True, extra=extra)
    demand(said, *words)
    with Alone(source, extra=[*extra, *ALL]) as mount:
        check(steps_of(mount) == [], f"{source}: {steps_of(mount)} are shown")


# ---- genuine ones ----

def run_case(name, case, trees):
    source = os.path.join(trees, case["path"])
    base = base_of(case["base"] and os.path.join(trees, case["base"]))
    if name == "single":
        _, said = expect_failure(source, described=True, extra=base)
        demand(said, *REFUSED[name])
        return
    if case["refuse"] or name in NOT_SHOWN:
        not_shown(source, REFUSED.get(name) or NOT_SHOWN[name], base)
        return
    last = max(case["steps"])
    with Alone(source, extra=[*base, "--log-level", "info"]) as mount:
        same(model_hashes(mount.path), case["steps"][last], f"{name}: the newest")
        if name == "blake3":
            demand(mount.log(), "weight_v000002 is made of ", "and 2 deltas, ",
                   " tensors have changed")
        demand(mount.log(), *LOST.get(name, ()))
        check("two kinds" not in mount.log(), "the files of a version are its own")
    with Alone(source, extra=[*base, *ALL]) as mount:
        check(steps_of(mount) == sorted(case["steps"]), f"{name}: {steps_of(mount)}")
        for step, tensors in case["steps"].items():
            same(model_hashes(os.path.join(mount.path, step)), tensors, f"{name}: {step}")
            note = case.get("config", {}).get(step) or note_of(os.path.join(mount.path, step))
            check(note_of(os.path.join(mount.path, step)) == note, f"{name}: {step}: {note}")
    for step in sorted(case["steps"])[:-1]:
        with Alone(source, extra=[*base, "--select", f"step={int(step[8:])}"]) as mount:
            same(model_hashes(mount.path), case["steps"][step], f"{name}: --select {step}")


def run_genuine(tap, trees):
    for name, case in CASES.items():
        with tap.test(f"genuine: {name}"):
            run_case(name, case, trees)


# ---- commands and outputs ----

def run_outputs(tap, trees, directory):
    source, base = os.path.join(trees, "mixed"), base_of(os.path.join(trees, "base"))
    whole = CASES["mixed"]["steps"]["weight_v000006"]
    with tap.test("export and verify"):
        to = os.path.join(directory, "copy")
        good("export", *base, source, to)
        same(model_hashes(to), whole, "export")
        good("verify", *base, source)
    with tap.test("ranks"), Alone(source, extra=[*base, "--format", "safetensors",
                                                 "--dst-strategy", "none"]) as mount:
        (path,) = [os.path.join(at, n) for at, _, ns in os.walk(mount.path) for n in ns
                   if n.endswith(".safetensors")]
        same(hashes(Tensors(content(path)).values()), whole, path)
    with tap.test("plan"):
        good("plan", *base, source)
    with tap.test("--base is refused elsewhere"):
        got = run("plan", "--base", directory, os.path.join(trees, "base"))
        check(got.status != GOOD, got)
        demand(got.err, "--base is for a directory of weight versions, but SOURCE is a whole")
        for address in "https://host/x", "s3://", "s3://key@bucket/x":
            got = run("plan", "--base", address, source)
            demand(got.err, "base: the address of a model is s3://BUCKET/PREFIX")
        got = run("plan", "--base", os.path.join(directory, "none"), source)
        demand(got.err, "No such file or directory")
    with tap.test("ls"):
        got = good("ls", *base, source)
        demand(got.out, "complete; delta of 5 (overwrite, xxh3-128), 9 tensors changed",
               "complete; full", "delta of 1 (overwrite, blake3), 7 tensors changed")
    with tap.test("ls without a base"):
        got = run("ls", os.path.join(trees, "xor"))
        check(got.status != GOOD and "tried" not in got.err, got)
        demand(got.err, *REFUSED["needsbase"])
    for name, taken in ("lostfile", 3), ("half", 4), ("gap", 1):
        with tap.test(f"ls of what has lost its newest: {name}"):
            got = good("ls", *base, os.path.join(trees, name))
            demand(got.out, f"a mount takes {version_name(taken)}: ", *LOST[name])


def run_library(tap, trees):
    os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                            "libreshard.so.0")
    if "sanitize" in os.environ.get("SANITIZER_FLAGS", ""):
        return  # Python does not load what has a sanitizer in it
    import reshardfs
    with tap.test("the Python module"), \
            reshardfs.Source(os.path.join(trees, "mixed"), base=os.path.join(trees, "base"),
                             src_strategy="none", dst_strategy="none",
                             format="safetensors") as opened:
        same(hashes(Tensors(bytes(opened.read(0))).values()),
             CASES["mixed"]["steps"]["weight_v000006"], "mixed")


def run_objects(tap, trees, directory):
    import s3_trial
    if "built without" in run("ls", "s3://bucket/x").err:
        return
    root = os.path.join(directory, "s3")
    shutil.copytree(os.path.join(trees, "mixed"), os.path.join(root, "bucket", "run"))
    shutil.copytree(os.path.join(trees, "base"), os.path.join(root, "bucket", "base"))
    base = base_of(os.path.join(trees, "base"))
    with s3_trial.Server(root) as server:
        s3_trial.set_environment(server.port, directory)
        for source in os.path.join(trees, "mixed"), "s3://bucket/run":
            for extra in (), ("--sandbox=off",):
                with tap.test(f"--base s3://, {source} {extra}"), \
                        Alone(source, extra=["--base", "s3://bucket/base/", *ALL, *extra]) as mount:
                    for step, tensors in CASES["mixed"]["steps"].items():
                        same(model_hashes(os.path.join(mount.path, step)), tensors, step)
                    check(note_of(os.path.join(mount.path, version_name(2))) ==
                          note_of(os.path.join(trees, "base")), "config.json of the base")
        # Addresses that begin with one another.
        for at in "run-base", "ru", "above":
            shutil.copytree(os.path.join(trees, "base"), os.path.join(root, "bucket", at))
        shutil.copytree(os.path.join(trees, "mixed"), os.path.join(root, "bucket", "above", "run"))
        for source, at in ("run", "run-base"), ("run", "ru"), ("above/run", "above"):
            with tap.test(f"--base s3://bucket/{at}, s3://bucket/{source}"), \
                    Alone(f"s3://bucket/{source}",
                          extra=["--base", f"s3://bucket/{at}", *ALL]) as mount:
                same(model_hashes(os.path.join(mount.path, version_name(2))),
                     CASES["mixed"]["steps"][version_name(2)], at)
                check(note_of(os.path.join(mount.path, version_name(2))) ==
                      note_of(os.path.join(trees, "base")), "config.json of the base")
        with tap.test("s3://"), Alone("s3://bucket/run", extra=base) as mount:
            same(model_hashes(mount.path), CASES["mixed"]["steps"]["weight_v000006"], "s3")
            check(note_of(mount.path) == "v5", note_of(mount.path))
        with tap.test("s3://, all"), Alone("s3://bucket/run", extra=[*base, *ALL]) as mount:
            for step, tensors in CASES["mixed"]["steps"].items():
                same(model_hashes(os.path.join(mount.path, step)), tensors, f"s3: {step}")


def run_named(tap, trees, directory):
    """A base by its name in the cache of Hugging Face."""
    model = os.path.join(directory, "hub", "models--Qwen--Qwen3-4B")
    snapshot = os.path.join(model, "snapshots", "0123")
    os.makedirs(snapshot)
    os.makedirs(os.path.join(model, "blobs"))
    write(os.path.join(model, "refs", "main"), b"0123")
    for number, name in enumerate(os.listdir(os.path.join(trees, "base"))):
        shutil.copy(os.path.join(trees, "base", name), os.path.join(model, "blobs", str(number)))
        os.symlink(f"../../blobs/{number}", os.path.join(snapshot, name))
    os.environ["HF_HUB_CACHE"] = os.path.join(directory, "hub")
    for extra in (), ALL:
        with tap.test(f"--base by its name {extra}"), \
                Alone(os.path.join(trees, "xor"), extra=["--base", "Qwen/Qwen3-4B", *extra]) as mount:
            last = max(CASES["xor"]["steps"])
            at = os.path.join(mount.path, last) if extra else mount.path
            same(model_hashes(at), CASES["xor"]["steps"][last], last)
    with tap.test("the same name in another cache is another mount"):
        at = os.path.join(directory, "named")
        os.mkdir(at)
        shutil.copytree(os.path.join(directory, "hub"), os.path.join(directory, "other"),
                        symlinks=True)
        for cache, again in (("hub", False), ("hub", True), ("other", False)):
            got = run("mount", "--base", "Qwen/Qwen3-4B", os.path.join(trees, "xor"), at,
                      env={"HF_HUB_CACHE": os.path.join(directory, cache)})
            check(got.status == GOOD and ("same options" in got.err) == again, got)
        for _ in range(2):
            check(run("umount", at).status == GOOD, at)
    os.remove(os.path.join(model, "refs", "main"))
    with tap.test("a base by its name without a revision"):
        got = run("plan", "--base", "Qwen/Qwen3-4B", os.path.join(trees, "xor"))
        check(got.status != GOOD, got)
        demand(got.err, "base: ", "hf download")
    del os.environ["HF_HUB_CACHE"]


# ---- a run that goes on ----

def run_growing(tap, directory):
    draw = random.Random(5)
    root = os.path.join(directory, "growing")
    base = random_model(draw)
    base["model.norm.weight"] = ("BF16", (64,), bytes(128))
    one, two = random_change(draw, base), None
    two = random_change(draw, one)
    two["model.norm.weight"] = ("BF16", (64,), bytes(127) + b"\1")
    write_full(os.path.join(root, "base"), base)
    run_dir = os.path.join(root, "run")
    os.makedirs(run_dir)
    write_delta(run_dir, 2, one, two)
    with tap.test("a version that builds on one which comes later"), \
            Alone(run_dir, extra=[*base_of(os.path.join(root, "base")), *ALL,
                                  "--steps-interval", "1"]) as mount:
        check(steps_of(mount) == [], steps_of(mount))
        write_delta(root, 1, base, one)
        os.rename(os.path.join(root, version_name(1)), os.path.join(run_dir, version_name(1)))
        within(30, lambda: len(steps_of(mount)) == 2, "no versions")
        same(model_hashes(os.path.join(mount.path, version_name(2))), hashes(two), "2")
    with tap.test("a base that changes"), \
            Alone(run_dir, extra=base_of(os.path.join(root, "base"))) as mount:
        part = os.path.join(root, "base", "model-00001-of-00002.safetensors")
        flip(part, -1)
        try:
            found = model_hashes(mount.path)
        except OSError:
            found = None
        check(found is None, "bytes of a base that has changed")
        demand(mount.log(), "changed since it was mounted")


def run_alone(tap, directory):
    """Full mode removes what engines have loaded, so one version may be all that is there."""
    for parts in 0, 2:
        root = tempfile.mkdtemp(dir=directory)
        model = random_model(random.Random(parts + 1))
        write_full(os.path.join(root, "run", version_name(5)), model, parts)
        with tap.test(f"one full version, {parts} parts"):
            for extra in (), ("--base", root), ("--select", "step=5"):
                with Alone(os.path.join(root, "run"), extra=list(extra)) as mount:
                    same(model_hashes(mount.path), hashes(model), f"{extra}")


# ---- a version from the cache of one before it ----

def fetched(mount):
    return mount.stats()["fetched"]["bytes"]


def read_all(mount, name):
    """(what a version has, bytes that were read of the source for it)"""
    before = fetched(mount)
    found = model_hashes(os.path.join(mount.path, name))
    return found, fetched(mount) - before


def chain_of(root, megabytes, deltas):
    """A base of that size, and deltas that change all its tensors a little."""
    draw = random.Random(megabytes)
    sizes = {"model.a.weight": 10000, "model.b.weight": megabytes << 20, "model.c.weight": 60000}
    models = [{n: ("F8_E4M3", (s,), os.urandom(s)) for n, s in sizes.items()}]
    write_full(os.path.join(root, "base"), models[0], 1)
    for number in range(1, deltas + 1):
        new = {}
        for name, (dtype, shape, data) in models[-1].items():
            some = bytearray(data)
            some[draw.randrange(len(some))] ^= 1 + draw.randrange(255)
            some[-number] ^= 7
            new[name] = (dtype, shape, bytes(some))
        write_delta(os.path.join(root, "run"), number, models[-1], new, "overwrite")
        models.append(new)
    return models


def run_cached(tap, directory):
    """The second version reads its own delta and nothing else of the source."""
    for megabytes, cache in (12, ()), (12, ("--cache-size", "32MiB")), \
            (40, ("--cache-size", "96MiB")), (40, ("--cache-size", "32MiB")):
        root = tempfile.mkdtemp(dir=directory)
        models = chain_of(root, megabytes, 4)
        disk = ("--cache-dir", os.path.join(root, "cache")) if cache else ()
        extra = [*base_of(os.path.join(root, "base")), *cache, *disk, *ALL]
        source, whole = os.path.join(root, "run"), megabytes << 20
        with tap.test(f"the next one, {megabytes} MiB, {cache}"), \
                Alone(source, extra=extra) as mount:
            found, cost = read_all(mount, version_name(2))
            same(found, hashes(models[2]), "2")
            check(cost >= whole, f"{cost} bytes for the first version")
            # 4 comes from 2: 3 was not read.
            for number in 4, 3:
                found, cost = read_all(mount, version_name(number))
                same(found, hashes(models[number]), f"{number}")
                check(cost < whole // 4, f"{cost} bytes for version {number}")
        if disk:
            with tap.test(f"again after a mount, {megabytes} MiB, {cache}"), \
                    Alone(source, extra=[*extra[:-2], "--select", "step=4"]) as mount:
                same(model_hashes(mount.path), hashes(models[4]), "4")
                check(fetched(mount) < whole // 4, f"{fetched(mount)} bytes")
        shutil.rmtree(root)


# ---- large tensors ----

def big_chain(root, megabytes):
    """A tensor that is larger than the memory for it, with three deltas of both forms, the
    second one damaged in `wrong`."""
    size = megabytes << 20
    base = {"model.a.weight": ("BF16", (5000,), os.urandom(10000)),
            "model.big.weight": ("F8_E4M3", (size,), os.urandom(size)),
            "model.z.weight": ("BF16", (3000,), os.urandom(6000))}
    write_full(os.path.join(root, "base"), base, 1)
    models = [base]
    for number, form in enumerate(("xor", "overwrite", "xor"), 1):
        new = dict(models[-1])
        for name, (dtype, shape, data) in models[-1].items():
            some = bytearray(data)
            for _ in range(500):
                some[random.randrange(len(some))] ^= 1 + random.randrange(255)
            some[-1] ^= 7
            new[name] = (dtype, shape, bytes(some))
        write_delta(os.path.join(root, "run"), number, models[-1], new, form)
        models.append(new)
    return models


def run_large(tap, directory):
    root = os.path.join(directory, "large")
    os.makedirs(os.path.join(root, "run"))
    models = big_chain(root, 40)
    extra = [*base_of(os.path.join(root, "base")), "--cache-size", "32MiB"]
    with tap.test("a tensor larger than the memory for it"), \
            Alone(os.path.join(root, "run"), extra=extra) as mount:
        same(model_hashes(mount.path), hashes(models[3]), "3")
    with tap.test("backwards"), Alone(os.path.join(root, "run"), extra=extra) as mount:
        (path,) = [os.path.join(mount.path, n) for n in os.listdir(mount.path)
                   if n.startswith("model-")]
        whole = content(os.path.join(mount.path, path))
        fd = os.open(path, os.O_RDONLY)
        for at in range(len(whole) - 1, 0, -(7 << 20)):
            check(os.pread(fd, 70000, at) == whole[at:at + 70000], f"at {at}")
        os.close(fd)
    shutil.rmtree(root)


# ---- damage ----

def run_damage(tap, directory):
    """A damaged tensor alone cannot be read; the log says why."""
    draw = random.Random(7)
    base = {"model.a.weight": ("BF16", (60000,), draw.randbytes(120000)),
            "model.b.weight": ("BF16", (300000,), draw.randbytes(600000)),
            "model.c.weight": ("BF16", (60000,), draw.randbytes(120000))}
    new = {n: (d, s, bytes([v[0] ^ 1]) + v[1:-1] + bytes([v[-1] ^ 1]))
           for n, (d, s, v) in base.items()}
    cases = {
        "checksum": ({"sums": {"model.b.weight": "01234567"}}, "model.b.weight has the checksum"),
        "no checksum": ({"sums": {"model.b.weight": None}}, "model.b.weight has no checksum"),
        "cut": ({"frames": {"model.b.weight": lambda d: frame(d)[:-9]}},
                "the delta of model.b.weight is damaged"),
        "longer": ({"frames": {"model.b.weight": lambda d: frame(d) + b"x"}},
                   "the delta of model.b.weight is damaged"),
        "two frames": ({"frames": {"model.b.weight": lambda d: frame(d) + frame(b"")}},
                       "the delta of model.b.weight is damaged"),
        "window": ({"frames": {"model.b.weight": lambda d: frame(d, 20)}},
                   "the delta of model.b.weight is damaged"),
    }
    for form in "xor", "overwrite":
        for name, (damage, words) in cases.items():
            if form == "overwrite" and name == "window":
                continue  # a small frame needs no window
            root = tempfile.mkdtemp(dir=directory)
            write_full(os.path.join(root, "base"), base, 1)
            write_delta(os.path.join(root, "run"), 1, base, new, form, **damage)
            with tap.test(f"damage: {form}, {name}"), \
                    Alone(os.path.join(root, "run"),
                          extra=base_of(os.path.join(root, "base"))) as mount:
                bad, good = [], {}
                (path,) = [os.path.join(mount.path, n) for n in os.listdir(mount.path)
                           if n.startswith("model-")]
                with open(path, "rb", buffering=0) as f:
                    length = int.from_bytes(f.read(8), "little")
                    entries = json.loads(f.read(length))
                    for tensor in base:
                        begin, end = entries[tensor]["data_offsets"]
                        try:
                            # Not the page that the neighbour has too.
                            at = os.pread(f.fileno(), end - begin - 20000,
                                          8 + length + begin + 10000)
                            good[tensor] = at
                        except OSError:
                            bad.append(tensor)
                check(bad == ["model.b.weight"], bad)
                for tensor, data in good.items():
                    check(data == new[tensor][2][10000:10000 + len(data)] and data, tensor)
                demand(mount.log(), words)
                got = run("verify", *base_of(os.path.join(root, "base")),
                          os.path.join(root, "run"))
                check(got.status not in (GOOD, IO), got)
                demand(got.out + got.err, words)
            shutil.rmtree(root)


def run_misfits(tap, directory):
    """What fits in no way is said when the version is opened."""
    one = ("BF16", (9000,), bytes(18000))
    base = {"a.weight": one, "b.weight": one}
    new = {n: (d, s, v[:-1] + b"x") for n, (d, s, v) in base.items()}

    def refused(name, *words, change):
        root = tempfile.mkdtemp(dir=directory)
        write_full(os.path.join(root, "base"), base, 2)
        run_dir = os.path.join(root, "run")
        write_delta(run_dir, 1, base, new, ranks=1)
        change(root, os.path.join(run_dir, version_name(1)))
        with tap.test(f"refused: {name}"):
            not_shown(run_dir, words, base_of(os.path.join(root, "base")))

    def twice(root, _):
        for n in 1, 2:
            write(os.path.join(root, "base", f"model-0000{n}-of-00002.safetensors"),
                  safetensors_bytes(base, {"format": "pt"}))

    def dense(_, version):
        write(os.path.join(version, "model-00000-of-00001.safetensors"), safetensors_bytes(
            {n: ("F32", (1,), bytes(4)) for n in base}, {"format": "pt"}))

    def fewer(_, version):
        write(os.path.join(version, "model-00000-of-00001.safetensors"), safetensors_bytes(
            {"a.weight": ("U8", (4,), bytes(4))}, {"format": "pt"}))

    def elsewhere(_, version):
        index = json.loads(content(os.path.join(version, INDEX)))
        index["weight_map"]["a.weight"] = "../model.safetensors"
        write(os.path.join(version, INDEX), json.dumps(index).encode())

    def numbered(key, value):
        def change(_, version):
            index = json.loads(content(os.path.join(version, INDEX)))
            index["metadata"][key] = value
            write(os.path.join(version, INDEX), json.dumps(index).encode())
        return change

    def listed(_, version):
        index = json.loads(content(os.path.join(version, INDEX)))
        index["weight_map"] = ["a.weight"]
        write(os.path.join(version, INDEX), json.dumps(index).encode())

    def torch(root, _):
        index = json.loads(content(os.path.join(root, "base", INDEX)))
        index["weight_map"] = dict.fromkeys(base, "model.ckpt")
        write(os.path.join(root, "base", INDEX), json.dumps(index).encode())

    def empty(root, _):
        for name in os.listdir(os.path.join(root, "base")):
            os.remove(os.path.join(root, "base", name))

    refused("a tensor in two files", "a.weight is in model-00001-of-00002.safetensors, too",
            change=twice)
    refused("no compressed tensors", "is not a compressed tensor: UInt8 with one dimension",
            change=dense)
    refused("fewer than the index has", "its index names 2 tensors, and its files have 1",
            change=fewer)
    refused("a file elsewhere", 'the file of "a.weight" is not the name of a .safetensors file',
            change=elsewhere)
    refused("no number", '"version" is not a number', change=numbered("version", "one"))
    refused("a number that is none", '"base_version" is not a number',
            change=numbered("base_version", -1))
    refused("no map", '"weight_map" is not an object', change=listed)
    refused("a base of .ckpt files", "model.ckpt is not a .safetensors file", change=torch)
    refused("no base", "neither model.safetensors nor " + INDEX + " is there: --base is a model "
            "of Hugging Face in safetensors", change=empty)


# ---- random ones ----

def run_random(tap, directory, seeds):
    for first in range(0, len(seeds), RANDOM_A_TEST):
        some = seeds[first:first + RANDOM_A_TEST]
        with tap.test(f"random ones, --seed {some[0]} --cases {len(some)}"):
            for seed in some:
                chain = RandomChain(seed)
                root = tempfile.mkdtemp(dir=directory)
                source, base = chain.write(root)
                with Alone(source, extra=[*base_of(base), *ALL]) as mount:
                    check(steps_of(mount) == [version_name(i + 1) for i in
                                              range(len(chain.versions))],
                          f"{seed}: {steps_of(mount)}: {chain.describe()}")
                    for number, name in enumerate(steps_of(mount), 1):
                        same(model_hashes(os.path.join(mount.path, name)),
                             hashes(chain.model(number)),
                             f"{seed}: {name}: {chain.describe()}")
                shutil.rmtree(root)


def main():
    from run_seed import run_seed, share
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--cases", type=int, default=None)
    args = parser.parse_args()
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-versions-") as directory:
        if args.seed is None:
            trees = unpack(os.path.join(directory, "trees"))
            run_genuine(tap, trees)
            run_outputs(tap, trees, directory)
            run_named(tap, trees, directory)
            run_growing(tap, directory)
            run_alone(tap, directory)
            run_cached(tap, directory)
            run_large(tap, directory)
            run_damage(tap, directory)
            run_misfits(tap, directory)
            run_objects(tap, trees, directory)
            run_library(tap, trees)
        first = run_seed() if args.seed is None else args.seed
        run_random(tap, directory, range(first, first + (args.cases or share(40))))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
