#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random chains of weight versions that the official software encodes, as the program shows
them.

RSH_DELTA_PYTHON names a Python that has numpy, safetensors, zstandard, xxhash and blake3.
With RSH_SLIME, a directory with slime's sources, slime's own functions encode and hash
(slime/utils/disk_delta.py).  The truth is what the trainer holds.

    versions_encoders.py [--seed S] [--chains N]
    versions_encoders.py make DIRECTORY SEED CHAINS      what the other Python does
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), os.path.join(HERE, "..", "..", "python")]

from shown_model import hashes, model_hashes, same  # noqa: E402
from version_chains import WIDTH, version_name, write_full, write_index  # noqa: E402

ENCODINGS = ("xor", "overwrite")
CHECKSUMS = ("xxh3-128", "blake3", "adler32")
A_TEST = 5


# ---- under a Python that has the software ----

def encoders():
    """(overwrite_encode, checksum) as slime has them."""
    if os.environ.get("RSH_SLIME"):
        import importlib.util
        spec = importlib.util.spec_from_file_location("disk_delta", os.path.join(
            os.environ["RSH_SLIME"], "slime", "utils", "disk_delta.py"))
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.overwrite_encode, module.checksum
    import blake3
    import numpy
    import xxhash
    import zlib

    def overwrite(new, mask):
        places = numpy.flatnonzero(mask).astype("<u4")
        return numpy.frombuffer(numpy.array([places.size], "<u4").tobytes() + places.tobytes() +
                                new[mask].tobytes(), numpy.uint8)

    sums = {"xxh3-128": lambda data: xxhash.xxh3_128(data).hexdigest(),
            "blake3": lambda data: blake3.blake3(data).hexdigest(),
            "adler32": lambda data: f"{zlib.adler32(data):08x}"}
    return overwrite, lambda form, data: sums[form](data)


def first_model(numbers, draw):
    import numpy
    tensors = {}
    for i in range(numbers.randint(2, 8)):
        dtype, rows = numbers.choice(sorted(WIDTH)), numbers.choice((0, 1, 7, 513, 70000))
        shape = numbers.choice(((rows,), (rows, 3), (2, rows), ()))
        size = int(numpy.prod(shape)) * WIDTH[dtype]
        # Weights of one magnitude: zstd finds repetitions in some of their bytes.
        tensors[f"model.layers.{i}.weight"] = (dtype, shape, draw.integers(
            0, numbers.choice((2, 16, 256)), size, dtype=numpy.uint8))
    return tensors


def trained(numbers, draw, tensors):
    """Some tensors with some other bytes."""
    import numpy
    now = {}
    for name, (dtype, shape, data) in tensors.items():
        if data.size and numbers.random() < 0.7:
            data = data.copy()
            places = draw.integers(0, data.size, numbers.choice(
                (1, 1, 2 + data.size // 200, 2 + data.size // 20, 4 * data.size)))
            data[places] = draw.integers(0, 256, places.size, dtype=numpy.uint8)
            if numbers.random() < 0.3:
                data[-1] ^= 255
        now[name] = dtype, shape, data
    return now


def write_version(root, number, old, new, how, ranks):
    """As slime's ranks and their rank 0 do."""
    import safetensors.numpy
    import zstandard
    import numpy
    (encoding, form), (overwrite, checksum) = how, encoders()
    directory = os.path.join(root, version_name(number))
    os.makedirs(directory)
    changed = [n for n in new if (new[n][2] != old[n][2]).any()]
    parts = [part for part in (changed[i::ranks] for i in range(ranks)) if part]
    weight_map = {}
    for at, names in enumerate(parts):
        file, frames, sums = f"model-{at:05}-of-{len(parts):05}.safetensors", {}, {}
        for name in names:
            data, before = new[name][2], old[name][2]
            content = data ^ before if encoding == "xor" else overwrite(data, data != before)
            frames[name] = numpy.frombuffer(zstandard.ZstdCompressor(level=1).compress(content),
                                            numpy.uint8)
            sums[name], weight_map[name] = checksum(form, data), file
        with open(os.path.join(directory, file), "wb") as f:
            f.write(safetensors.numpy.save(frames, metadata=sums))
    write_index(directory, {"version": f"{number:06d}", "base_version": f"{number - 1:06d}",
                            "delta_encoding": encoding, "compression_format": "zstd",
                            "checksum_format": form}, weight_map)


def make_chain(root, seed):
    import numpy
    numbers, draw = random.Random(seed), numpy.random.default_rng(seed)

    def plain(tensors):
        return {n: (d, s, v.tobytes()) for n, (d, s, v) in tensors.items()}

    now = first_model(numbers, draw)
    write_full(os.path.join(root, "base"), plain(now), numbers.choice((0, 1, 2, 3)))
    said = {"what": [], "versions": {}}
    for number in range(1, numbers.randint(1, 9) + 1):
        old, how = now, numbers.choice([(e, c) for e in ENCODINGS for c in CHECKSUMS])
        now = trained(numbers, draw, now)
        if numbers.random() < 0.15:
            how = ("full",)
            write_full(os.path.join(root, "run", version_name(number)), plain(now),
                       numbers.choice((0, 1, 2)))
        else:
            write_version(os.path.join(root, "run"), number, old, now, how,
                          numbers.choice((1, 2, 4)))
        said["what"].append("/".join(how))
        said["versions"][version_name(number)] = hashes(plain(now))
    return said


def make(directory, seed, chains):
    said = {n: make_chain(os.path.join(directory, str(n)), n) for n in range(seed, seed + chains)}
    with open(os.path.join(directory, "truth.json"), "w", encoding="utf-8") as f:
        json.dump(said, f)


# ---- under the Python of the tests ----

def compare(root, said, out):
    """Through mounts of all versions and of one, an export, and the library."""
    from demands import check
    from rsh_cli import GOOD, run
    from rsh_mount import Alone
    source, base = os.path.join(root, "run"), ("--base", os.path.join(root, "base"))
    last, what = max(said["versions"]), " ".join(said["what"])
    with Alone(source, extra=[*base, "--steps", "all"]) as mount:
        shown = sorted(n for n in os.listdir(mount.path) if n.startswith("weight_v"))
        check(shown == sorted(said["versions"]), f"{what}: {shown} are shown")
        for version in shown:
            same(model_hashes(os.path.join(mount.path, version)), said["versions"][version],
                 f"{what}: {version}")
    one = random.Random(root).choice(sorted(said["versions"]))
    with Alone(source, extra=[*base, "--select", f"step={int(one[8:])}"]) as mount:
        same(model_hashes(mount.path), said["versions"][one], f"{what}: --select {one}")
    got = run("export", *base, source, out)
    check(got.status == GOOD, f"{what}: {got!r}")
    same(model_hashes(out), said["versions"][last], f"{what}: export")
    got = run("verify", *base, source)
    check(got.status == GOOD, f"{what}: {got!r}")
    if "LIBRESHARD" in os.environ:
        import reshardfs
        from safetensors_format import Tensors
        with reshardfs.Source(source, base=base[1], src_strategy="none", dst_strategy="none",
                              format="safetensors") as opened:
            same(hashes(Tensors(bytes(opened.read(0))).values()), said["versions"][last],
                 f"{what}: the library")


def run_chains(tap, seed, chains):
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run([os.environ["RSH_DELTA_PYTHON"], os.path.abspath(__file__), "make",
                        directory, str(seed), str(chains)], check=True)
        with open(os.path.join(directory, "truth.json"), encoding="utf-8") as f:
            truth = json.load(f)
        with tap.test(f"--seed {seed} --chains {chains}"):
            for number, said in truth.items():
                compare(os.path.join(directory, number), said,
                        os.path.join(directory, f"out-{number}"))


def main():
    if sys.argv[1:2] == ["make"]:
        make(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return 0
    from rsh_mount import Tap, require_mount, require_named, reshardfs_program
    from run_seed import run_seed, share
    require_named("RSH_DELTA_PYTHON", "a Python that has zstandard")
    require_mount()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int)
    parser.add_argument("--chains", type=int, default=share(40))
    words = parser.parse_args()
    # Python does not load what has a sanitizer in it.
    if "sanitize" not in os.environ.get("SANITIZER_FLAGS", ""):
        os.environ["LIBRESHARD"] = os.path.join(os.path.dirname(reshardfs_program()), ".libs",
                                                "libreshard.so.0")
    tap = Tap()
    seed = run_seed() if words.seed is None else words.seed
    for first in range(seed, seed + words.chains, A_TEST):
        run_chains(tap, first, min(A_TEST, seed + words.chains - first))
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
