#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The same strategy on both sides, of every genuine set: a rank's file is the one
that the rank saved, byte for byte.

Ranks save what their stage's strategy lists, weights and optimizer states, and
between those what no strategy lists and each rank keeps for itself, in an order
that is not the converter's; half of the sets with a CRC trailer, as safetensors
with metadata of each rank's own.  A lost or damaged rank is one that holds the
same slice of everything, and so is what is left of a file that fails while it is
read.

    identity_sets.py [SET...]
"""

import functools
import math
import os
import random
import shutil
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
sys.path[:0] = [os.path.join(HERE, "lib"), os.path.join(HERE, "oracle")]

import genuine_sets  # noqa: E402
import naive_reshard  # noqa: E402
from demands import check, content, write  # noqa: E402
from ms_formats import (ELEMENT_BYTES, Record, checkpoint_bytes,  # noqa: E402
                        parse_checkpoint)
from rsh_mount import Mounted, Tap, require_mount  # noqa: E402
from run_seed import half_if_sanitized  # noqa: E402
from safetensors_format import safetensors_bytes, values_of  # noqa: E402

FORMS = ("ckpt", "safetensors")
# Each rank keeps its own: counters, and what BatchNorm has seen.
OWN = (("epoch_num", (), "Int64"), ("bn.moving_mean", (37,), "Float32"),
       ("bn.moving_variance", (37,), "Float32"), ("loss_scale", (1,), "Float32"))
# Files of another form, and drawings with other axes, that mean the same.
ALIKE = (("dp2mp4", "dp2mp4_json"), ("dp2mp4_json", "dp2mp4_layout"),
         ("dp2mp4_layout_json", "dp2mp4"), ("pp2dp2mp2", "pp2dp2mp2_json"))


@functools.lru_cache(None)
def place(mesh, tensor_map, step, size, shape, local):
    """The part of a tensor that a rank of a stage holds."""
    entries = [list(e) if isinstance(e, tuple) else e for e in tensor_map]
    layout = naive_reshard.Layout(list(mesh), entries, step, size)
    return tuple((s.start, s.stop) for s in naive_reshard.region(layout, shape, local))


@functools.lru_cache(None)
def drawn(what, length):
    """The bytes of a slice, which replicas have alike."""
    return random.Random(what).randbytes(length)


class Tree:
    """What the ranks of a set save; files: {rank: bytes}."""

    def __init__(self, work, name, form, own=OWN):
        self.set = genuine_sets.GenuineSet(name, work)
        self.form = form
        self.source = os.path.join(work, "source")
        self.crc = len(name) % 2 == 0
        rng = random.Random(f"order of {name}")
        self.order = [p for p in self.set.parameters if rng.random() < 0.9] + list(own)
        rng.shuffle(self.order)
        self.ranks = range(self.set.device_count * len(self.set.stages))
        self.files = {rank: self.file(rank) for rank in self.ranks}

    def strategy(self):
        return self.set.directory() if self.set.is_pipeline else self.set.stage_files[0]

    @functools.cache
    def slices(self, rank):
        """{parameter: its part} of what the rank's stage lists."""
        stage, local = divmod(rank, self.set.device_count)
        found = {}
        for name, shape, _ in self.order:
            layout = self.set.stages[stage].get(name)
            if layout is None:
                continue
            layout = genuine_sets.in_dimensions_of(layout, shape)
            entries = tuple(tuple(e) if isinstance(e, list) else e for e in layout.tensor_map)
            found[name] = place(tuple(layout.dev_matrix), entries, layout.opt_step,
                                layout.opt_size, shape, local)
        return found

    def holders(self, rank):
        """The ranks that hold the same slice of everything, itself among them."""
        count = self.set.device_count
        return [r for r in self.ranks if r // count == rank // count
                and self.slices(r) == self.slices(rank)]

    def file(self, rank):
        slices, records = self.slices(rank), {}
        for name, shape, dtype in self.order:
            where = slices.get(name, f"rank {rank}")
            if name not in slices and self.set.listed(name):
                continue
            dims = tuple(b - a for a, b in slices[name]) if name in slices else shape
            length = ELEMENT_BYTES[dtype] * math.prod(dims)
            records[name] = Record(dims, dtype, drawn(f"{name} {where}", length))
        if self.form == "ckpt":
            return checkpoint_bytes(records, self.crc)
        return safetensors_bytes(values_of(records), {"format": "ms", "rank": f"{rank:02}"})

    def path(self, rank):
        return os.path.join(self.source, f"rank_{rank}", f"net-1_10.{self.form}")

    def save(self):
        shutil.rmtree(self.source, ignore_errors=True)
        for rank, data in self.files.items():
            write(self.path(rank), data)

    def mounted(self, *extra, destination=None, **words):
        return Mounted(self.source, src_strategy=self.strategy(),
                       dst_strategy=destination or self.strategy(),
                       extra=["--format", self.form, *extra], **words)

    def virtual(self, mount, rank):
        return os.path.join(mount.path, f"rank_{rank}", f"checkpoint_{rank}.{self.form}")

    def check(self, mount, others=None):
        """Demands each rank's own file, or one of these ranks'."""
        shown = os.listdir(mount.path)
        check(sorted(shown) == sorted(f"rank_{r}" for r in self.ranks), f"ranks {shown}")
        for rank in self.ranks:
            mine = (others or {}).get(rank, [rank])
            check(content(self.virtual(mount, rank)) in [self.files[r] for r in mine],
                  f"rank {rank} is not the file of ranks {mine}\n{mount.log()}")


def themselves(tree):
    tree.save()
    with tree.mounted() as mount:
        tree.check(mount)
    with tree.mounted("--io-mode", "direct", "--cache", "on") as mount:
        tree.check(mount)


def to_the_converter_anew(tree):
    """--compat gives the same records in the converter's order."""
    tree.save()
    with tree.mounted(compat=True) as mount:
        for rank in tree.ranks:
            found, own = content(tree.virtual(mount, rank)), tree.files[rank]
            check(found != own, f"rank {rank} is the file itself\n{mount.log()}")
            if tree.form == "ckpt":
                check(parse_checkpoint(found) == parse_checkpoint(own),
                      f"rank {rank} has other records\n{mount.log()}")


def lost_and_damaged(tree):
    """Every second rank that another one stands for, where there is one."""
    tree.save()
    gone = []
    for rank in tree.ranks:
        if rank % 2 == 0 and len(set(tree.holders(rank)) - {rank, *gone}) > 0:
            gone.append(rank)
    for number, rank in enumerate(gone):
        if number % 2:
            with open(tree.path(rank), "r+b") as f:
                f.truncate(len(tree.files[rank]) // 2)
        else:
            shutil.rmtree(os.path.dirname(tree.path(rank)))
    others = {rank: [r for r in tree.holders(rank) if r not in gone] for rank in gone}
    with tree.mounted() as mount:
        tree.check(mount, others)


def failing_while_read(name, form, work):
    """What is left of the file comes from one rank that holds the same.  Ranks have
    a large record of their own, beyond what is read at a time."""
    tree = Tree(work, name, form, [*OWN, ("bn.history", (1 << 20,), "Float32")])
    tree.save()
    for rank in tree.ranks[::3]:
        others = [r for r in tree.holders(rank) if r != rank]
        if not others:
            continue
        own, middle = tree.files[rank], len(tree.files[rank]) // 2
        with tree.mounted("--io-mode", "direct", "--cache", "off") as mount, \
                open(tree.virtual(mount, rank), "rb", buffering=0) as f:
            check(f.read(4096) == own[:4096], "wrong bytes before it fails")
            with open(tree.path(rank), "r+b") as source:
                source.truncate(4096)
            f.seek(middle)
            check(f.read() in [tree.files[r][middle:] for r in others],
                  f"what is left of rank {rank} is none of {others}\n{mount.log()}")
            check(content(tree.virtual(mount, rank)) in [tree.files[r] for r in others],
                  f"rank {rank} is none of {others} now\n{mount.log()}")
        write(tree.path(rank), own)


TESTS = (themselves, to_the_converter_anew, lost_and_damaged)


def run(tap, name, function):
    with tempfile.TemporaryDirectory(prefix="reshardfs-sets-") as work:
        try:
            function(work)
        except Exception as error:  # every failure becomes one TAP line
            tap.ok(False, name, f"{type(error).__name__}: {error}")
        else:
            tap.ok(True, name)


def test_form(tap, name, form):
    def all_tests(work):
        tree = Tree(work, name, form)
        for test in TESTS:
            test(tree)
    run(tap, f"{name} as {form}", all_tests)


def test_alike(tap, source, destination):
    def mount_one_as_the_other(work):
        tree = Tree(work, source, "ckpt")
        other = Tree(work, destination, "ckpt")
        tree.save()
        with tree.mounted(destination=other.strategy()) as mount:
            tree.check(mount)
    run(tap, f"{source} as {destination}", mount_one_as_the_other)


def main():
    require_mount()
    names = sys.argv[1:] or [n for f in genuine_sets.families().values() for n in f]
    tap = Tap()
    for number, name in enumerate(names):
        for form in half_if_sanitized(FORMS, number):
            test_form(tap, name, form)
    for form in FORMS:
        run(tap, f"failing while it is read, as {form}",
            functools.partial(failing_while_read, "dp2mp4", form))
    for source, destination in ALIKE:
        test_alike(tap, source, destination)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
