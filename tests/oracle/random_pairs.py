#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random conversions, byte for byte against MindSpore's own converter.

Every pair is drawn from a seed: a network, a source and a destination
strategy.  MindSpore saves the source's rank files and converts them with
transform_checkpoints; the mount of the same source must then show the same
names and, file by file, the same sha256.  Where the converter raises or crashes, or is
known to give wrong data, the mount is held against naive_reshard.py instead,
and against the converter once more under `--compat mindspore`.  So it is where
both strategies cut everything alike, which a share of the pairs is drawn to do:
then the mount has to show the source files themselves.

    random_pairs.py [--seed N] [--pairs N] [--jobs N] [--subject mount|naive]

Every sixth pair is mounted a second time, with what the first mount has left
in an index cache, and that is the mount that is compared.

`--subject naive` leaves the mount out: the reference alone is compared with
the converter.  It is the reference's own test, wanted before it may judge.
Pair i is drawn from seed N + i, so `--seed S --pairs 1` repeats any of them,
but for the blocks that other pairs have left in a shared --cache-dir.  How a
mount reads its source (read_modes.py) is drawn from the seed as well.
At the end the pairs of each kind are counted.
"""

import dataclasses
import hashlib
import math
import os
import random
import re
import shutil
import sys
import tempfile
import time
import threading
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]
import layouts  # noqa: E402
import random_cases  # noqa: E402
import read_modes  # noqa: E402
import rsh_mount  # noqa: E402
from random_cases import Outcome  # noqa: E402

DEVICE_COUNTS = (1, 2, 2, 3, 4, 4, 4, 6, 8, 8, 8, 12, 16, 16, 24, 32)
MOST_DEVICES = 32
MOST_ELEMENTS = 20000
INDEXED_PAIRS = 6  # one in so many is mounted with an index cache

FLOATS = ("Float32", "Float32", "Float16", "BFloat16", "Float64")
OTHERS = ("Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64", "Bool")

MODULES = ("attention.wq.weight", "attention.wk.weight", "attention.wo.weight",
           "attention_norm.weight", "feed_forward.w1.weight", "feed_forward.w2.weight",
           "feed_forward.w1.bias", "ffn.experts.weight1")

# Kinds of result that are counted together.
IDENTICAL = "identical to the converter"
COMPAT = "reference, and the converter under --compat: "

# What the converter says where it cannot serve, and what to call it.  Any
# other exception makes the pair fail: a new one has to be understood first.
REFUSALS = (
    (r"Cannot transform device_num from", "device counts in no multiple relation"),
    (r"tensor map dimensions must match", "expanded tensor map"),
    (r"too many values to unpack|invalid literal for int\(\) with base 10: '[^']+'",
     "name with '-'"),
    (r"'str' object has no attribute 'data'", "str record"),
    (r"^KeyError: \d+$", "unlisted record missing on the chosen rank"),
    (r"cannot be divided by (needed opt|current) sharding",
     "optimizer shard over part of the axes"),
    (r"Infer tensor redistribution failed", "no common refinement that divides"),
    (r"is not a valid redistrbution op|Device shape does not match the size of the device list",
     "expanded tensor map"),
    (r"The checkpoint (file )?of rank \d+ is missing|Rank \d+ is not in the current stage",
     "destination stages of one device"),
    (r"list index out of range|invalid literal for int\(\) with base 10: ''|"
     r"None of the parameters in checkpoint file are in either",
     "a stage without any parameter of the source"),
)


# --- drawing a pair -------------------------------------------------------

class Parameter:
    """One record of the job, known before any rank holds a part of it."""

    def __init__(self, name, dtype, shape=()):
        self.name = name
        self.dtype = dtype
        self.shape = tuple(shape)
        self.layouts = {"src": {}, "dst": {}}   # side -> {stage: Layout}
        self.saved = True

    def listed(self, side):
        return bool(self.layouts[side])


class Pair:
    """A drawn conversion.  Everything random about it is decided here."""

    def __init__(self, seed):
        self.seed = seed
        self.rng = random.Random(f"pair {seed}")
        self.readings = []
        self._draw_devices()
        self._draw_forms()
        self._draw_parameters()
        self._draw_saving()

    def chance(self, probability):
        return self.rng.random() < probability

    # Devices, stages and file forms of both sides.

    def _draw_devices(self):
        rng = self.rng
        # Both sides cut alike, each in a drawing of its own.
        self.alike = self.chance(0.15)
        n_src = rng.choice(DEVICE_COUNTS)
        related = [n for n in DEVICE_COUNTS if n % n_src == 0 or n_src % n == 0]
        unrelated = [n for n in DEVICE_COUNTS if n % n_src and n_src % n]
        n_dst = rng.choice(unrelated if unrelated and self.chance(0.2) else related)
        self.devices = {"src": n_src, "dst": n_dst}
        self.stages = {side: rng.choice([s for s in (1, 1, 1, 2, 2, 3, 4)
                                         if s * count <= MOST_DEVICES])
                       for side, count in self.devices.items()}
        if self.alike:
            self.devices["dst"] = self.devices["src"]
            self.stages["dst"] = self.stages["src"]
        elif self.chance(0.12):
            side = rng.choice(("src", "dst"))
            self.devices[side] = None
            self.stages[side] = 1

    def sides(self):
        return [side for side in ("src", "dst") if self.devices[side] is not None]

    def _draw_forms(self):
        """Which file form each strategy has, and how it is given."""
        self.json, self.merged, self.directory, self.nested, self.mesh = {}, {}, {}, {}, {}
        for side in self.sides():
            self.json[side] = self.chance(0.25)
            self.merged[side] = self.stages[side] > 1 or self.chance(0.2)
            self.directory[side] = self.merged[side] and self.chance(0.5)
            # The converter refuses nested maps in JSON.
            self.nested[side] = self.chance(0.15 if self.json[side] else 0.35)
            self.mesh[side] = self._draw_mesh(self.devices[side])
        self.own_meshes = self.chance(0.35)
        self.own_stage_layouts = self.chance(0.3)
        # One stage of a pipeline turned into a part of a larger network.
        self.part = self.stages == {"src": 1, "dst": 1} and len(self.sides()) == 2 \
            and not self.alike and self.chance(0.12)
        self.part_of = 0
        if self.part and not self.merged["src"]:
            self.part_of = self.rng.choice((0, 0, 1, 2))

    def _draw_mesh(self, count):
        rng = self.rng
        mesh = []
        while count > 1:
            factor = rng.choice([f for f in range(2, count + 1) if count % f == 0])
            mesh.append(factor)
            count //= factor
        while not mesh or self.chance(0.12):
            mesh.insert(rng.randint(0, len(mesh)), 1)
        return mesh

    # Parameters and their layouts.

    def _draw_parameters(self):
        rng = self.rng
        self.nan = self.chance(0.1)
        int4 = self.chance(0.03)
        self.parameters = []
        for index, name in enumerate(self._draw_names()):
            dtype = rng.choice(FLOATS if self.chance(0.75) else OTHERS)
            if int4 and self.chance(0.3):
                dtype = "Int4"
            parameter = Parameter(name, dtype)
            self.parameters.append(parameter)
            self._draw_layouts(parameter, self._draw_listing(index), index)
            # Strategies list gradients and caches that no checkpoint holds.
            parameter.saved = index < 2 or not self.chance(0.03)
        for side in self.sides():
            self._cover_stages(side)
        if self.alike:
            for parameter in self.parameters:
                parameter.layouts["dst"] = {
                    stage: self._draw_again(layout)
                    for stage, layout in parameter.layouts["src"].items()}
        rng.shuffle(self.parameters)
        self._add_unlisted()

    def _draw_names(self):
        rng = self.rng
        count = rng.randint(max(3, *self.stages.values()), 9)
        names = []
        while len(names) < count:
            name = f"layers.{rng.randint(0, 3)}.{rng.choice(MODULES)}"
            # The one that makes a larger network must not be optimizer state.
            if self.chance(0.3) and not (self.part and len(names) == 1):
                name = rng.choice(("adam_m.", "adam_v.", "moments.", "accu_grads.")) + name
            if name not in names:
                names.append(name)
        if self.chance(0.02):
            names[-1] = "lora-" + names[-1]
        return names

    def _draw_listing(self, index):
        """Which strategies list a parameter: some have to be in both."""
        sides = self.sides()
        if index == 0:
            return sides
        if self.part:
            return ["dst"] if index == 1 or self.chance(0.3) else sides
        if len(sides) == 1 or self.alike:
            return sides if self.chance(0.9) else []
        return self.rng.choices((sides, ["src"], ["dst"], []), (82, 6, 6, 6))[0]

    def _draw_layouts(self, parameter, sides, index):
        rng = self.rng
        rank = rng.choice((0, 1, 1, 2, 2, 2, 2, 3, 4))
        while True:
            for side in sides:
                parameter.layouts[side] = self._draw_stage_layouts(side, rank, index)
            cuts = [self.naive.cuts(layout)
                    for side in sides for layout in parameter.layouts[side].values()]
            shape = [math.lcm(*(c[d] for c in cuts)) * rng.choice((1, 1, 2, 3))
                     for d in range(rank)]
            if math.prod(shape) <= MOST_ELEMENTS:
                break
        if rank and self.chance(0.01):
            # Large enough for reads of several requests.
            shape[rng.randrange(rank)] *= 20 * MOST_ELEMENTS // math.prod(shape)
        parameter.shape = tuple(shape)
        for side in sides:
            for layout in parameter.layouts[side].values():
                layout.shape = shape

    def _draw_stage_layouts(self, side, rank, index):
        count = self.stages[side]
        stages = [index % count if index < count else self.rng.randrange(count)]
        if count > 1 and self.chance(0.2):
            stages = sorted(self.rng.sample(range(count), self.rng.randint(2, count)))
        layout = self._draw_layout(side, rank)
        return {stage: self._draw_layout(side, rank)
                if self.own_stage_layouts else layout for stage in stages}

    def _draw_layout(self, side, rank):
        rng = self.rng
        mesh = list(self.mesh[side])
        if self.own_meshes:
            mesh = self._draw_mesh(self.devices[side])
        axes = list(range(len(mesh)))
        rng.shuffle(axes)
        nested = rank > 0 and self.nested[side] and self.chance(0.6)
        tensor_map = []
        for _ in range(rank):
            take = rng.choice((0, 1, 1, 2, 3) if nested else (0, 1, 1))
            entry = [axes.pop() for _ in range(min(take, len(axes)))]
            tensor_map.append((entry or [-1]) if nested else entry[0] if entry else -1)
        layout = self.formats.Layout(mesh, tensor_map)
        group = layouts.replica_group(layout, 0)
        if rank and len(group) > 1 and self.chance(0.35):
            sizes = [n for n in range(2, len(group) + 1) if len(group) % n == 0]
            layout.opt_size = rng.choice([-1] * len(sizes) + sizes)
            layout.opt_step = (group[-1] - group[0]) // (len(group) - 1)
        return layout

    def _draw_again(self, layout):
        """The same slices on the same ranks, with another axis of size 1 or one
        that splits nothing in two."""
        again = dataclasses.replace(layout, dev_matrix=list(layout.dev_matrix))
        mesh, used = again.dev_matrix, set(self.naive.used_axes(layout))
        at = self.rng.randint(0, len(mesh))
        free = at < len(mesh) and len(mesh) - 1 - at not in used and not layout.opt_size
        if not self.chance(0.5):
            return again
        # Axes count from the end: those before the new one move on.
        moved = len(mesh) - at
        mesh.insert(at, 1)
        if free and mesh[at + 1] % 2 == 0:
            mesh[at:at + 2] = [2, mesh[at + 1] // 2]
        again.tensor_map = [[a + (a >= moved) for a in entry] if isinstance(entry, list)
                            else entry + (entry >= moved) for entry in layout.tensor_map]
        return again

    def _cover_stages(self, side):
        """Every stage of a pipeline holds something, or it is not one."""
        held = {s for p in self.parameters for s in p.layouts[side]}
        candidates = [p for p in self.parameters if p.listed(side)]
        for stage in set(range(self.stages[side])) - held:
            parameter = self.rng.choice(candidates)
            parameter.layouts[side][stage] = next(iter(parameter.layouts[side].values()))

    def _add_unlisted(self):
        """Records that no strategy lists, at places of their own in the file."""
        extra = [Parameter(*scalar) for scalar in
                 (("global_step", "Int32", (1,)), ("learning_rate", "Float32"),
                  ("scale_sense", "Float32")) if self.chance(0.4)]
        if not all(p.saved for p in self.parameters):
            # A rank file without any record is damaged, which is another test.
            extra.append(Parameter("loss_scale", "Float32"))
        if self.chance(0.03):
            shape = self.rng.choice(((0,), (3, 0), (0, 4)))
            extra.append(Parameter("kv_cache.empty", "Float32", shape))
        for parameter in extra:
            self.parameters.insert(self.rng.randint(0, len(self.parameters)), parameter)

    # What the rank files hold.

    def _draw_saving(self):
        rng = self.rng
        self.crc = self.chance(0.2)
        # Ranks that save in an order of their own show in which order the
        # converter reads them; replicas that differ show which it takes.
        self.own_order = self.chance(0.3)
        self.own_replicas = self.chance(0.3)
        self.old_release = self.chance(0.03)
        # An older step beside the one to take.
        self.older_step = self.chance(0.05)
        # For destination stages of one device the converter asks for more
        # ranks than it uses.
        self.lost_ranks = self.chance(0.15) and self.devices["dst"] != 1
        self.prefix = rng.choice(("checkpoint_", "checkpoint_", "net", "llama_7b_rank_"))
        self.appended = {}
        if self.chance(0.4):
            self.appended = {"epoch_num": rng.randint(1, 99), "step_num": rng.randint(1, 10 ** 6)}
        if self.chance(0.03):
            self.appended["note"] = "naïve résumé"
        unlisted = [p.name for p in self.parameters if not p.listed("src")]
        self.on_some_ranks = rng.choice(unlisted) if unlisted and self.chance(0.05) else None
        if not all(p.saved for p in self.parameters):
            self.on_some_ranks = None
        # Tied weights that a stage saves though another one owns them.
        self.on_other_stages = self.chance(0.05)

    def source_ranks(self):
        """(rank, stage, local rank) of every file of the source."""
        count = self.devices["src"] or 1
        for rank in range(count * self.stages["src"]):
            yield rank + self.part_of * count, rank // count, rank % count

    def describe(self):
        def side(name):
            if self.devices[name] is None:
                return "none"
            text = str(self.devices[name])
            if self.stages[name] > 1:
                text += f"x{self.stages[name]}"
            if self.json[name]:
                text += " json"
            if self.directory[name]:
                text += " dir"
            return text

        return f"{side('src')} -> {side('dst')}"

    def reading(self, root):
        """Options of the next mount: how it reads and keeps its source.  Bytes
        do not depend on it, so it is drawn apart from all else.  Blocks are kept
        in a directory of the pair's mounts or in one that all pairs share."""
        numbers = random.Random(f"{len(self.readings)} of pair {self.seed}")
        blocks = numbers.choice((self.blocks, os.path.join(root, "blocks")))
        self.readings.append(read_modes.draw(numbers, blocks))
        if self.own_replicas:
            # There are no replicas then, whatever the strategy says.
            self.readings[-1].append("--check=structure")
        return self.readings[-1]

    def failure(self):
        """What to print where an exception made the pair fail."""
        return traceback.format_exc() + "mounted with:\n" + "".join(
            f"  {' '.join(words)}\n" for words in self.readings)

    def known_wrong(self, conversion):
        """Why the converter's bytes, if it gives any, need not be right."""
        reasons = set()
        # The layouts as read: JSON has no nested maps of one axis each.
        strategies = [s for s in (conversion.src, conversion.dst) if s is not None]
        if any(self.naive.converter_misplaces(layout)
               for strategy in strategies for _, _, layout in strategy.entries):
            reasons.add("optimizer shard misplaced")
        if conversion.by_stage():
            reasons.add("'_part' file names")
        for p in self.parameters:
            if p.dtype == "Int4":
                reasons.add("Int4 becomes Int8")
            if 0 in p.shape:
                reasons.add("empty tensor lost")
            if p.dtype == "BFloat16" and self.nan:
                reasons.add("NaN of BFloat16 made canonical")
            later = [(l.dev_matrix, l.tensor_map, l.opt_size)
                     for stage, l in p.layouts["dst"].items() if stage > 0]
            if any(l != later[0] for l in later):
                reasons.add("layout of another stage taken")
        return reasons


# --- saving, converting, mounting, comparing ------------------------------

class Workshop:
    """One worker process: MindSpore imported once, one pair after another."""

    drawn = Pair

    def __init__(self, blocks, subject="mount"):
        os.environ["GLOG_v"] = "4"
        # MindSpore asks for the slow one unless told otherwise.
        os.environ.setdefault("PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION", "upb")
        import mindspore
        import numpy
        import ms_formats
        import naive_reshard
        from mindspore.common.np_dtype import bfloat16
        self.ms, self.np, self.bfloat16 = mindspore, numpy, bfloat16
        self.naive, self.formats = naive_reshard, ms_formats
        Pair.naive, Pair.formats, Pair.blocks = naive_reshard, ms_formats, blocks
        self.subject = subject

    # Data.

    def random_content(self, generator, pair, dtype, shape):
        """Elements as unsigned integers: any bits, if the type takes any."""
        np = self.np
        width = self.formats.ELEMENT_BYTES[dtype]
        bits = np.frombuffer(generator.bytes(width * math.prod(shape)), f"<u{width}")
        if dtype == "Bool":
            bits = bits & 1
        elif dtype == "Int4":
            bits = bits & 7
        elif dtype == "BFloat16" and not pair.nan:
            # Exponents of all ones stand for infinities and NaNs.
            bits = np.where(bits & 0x7f80 == 0x7f80, bits & 0xbfff, bits)
        return bits.reshape(shape)

    def tensor(self, bits, dtype):
        np, ms = self.np, self.ms
        if dtype == "BFloat16":
            return ms.Tensor(bits.view(self.bfloat16))
        if dtype == "Int4":
            return ms.Tensor(bits.view(np.int8), dtype=ms.qint4x2)
        return ms.Tensor(bits.view(np.dtype(dtype.lower())))

    # Source files.

    def save_source(self, pair, root):
        generator = self.np.random.default_rng(pair.seed)
        wholes = {p.name: self.random_content(generator, pair, p.dtype, p.shape)
                  for p in pair.parameters}
        for rank, stage, local in pair.source_ranks():
            held = {}
            for p in pair.parameters:
                bits = self.held_by(pair, p, wholes[p.name], stage, local, generator)
                if bits is not None:
                    held[p.name] = self.tensor(self.np.array(bits, copy=True, order="C"), p.dtype)
            names = list(held)
            if pair.own_order:
                generator.shuffle(names)
            folder = os.path.join(root, f"rank_{rank}")
            os.makedirs(folder)
            records = [{"name": name, "data": held[name]} for name in names]
            self.save(pair, os.path.join(folder, "net-1_10.ckpt"), records)
            if pair.older_step:
                self.save(pair, os.path.join(folder, "net-0_25.ckpt"), records[:1])

    def held_by(self, pair, p, whole, stage, local, generator):
        """What one source rank saves of a parameter, None for nothing."""
        if not p.saved:
            return None
        if pair.devices["src"] is None:
            return whole
        if not p.listed("src"):
            if p.name == pair.on_some_ranks and generator.random() < 0.5:
                return None
            # Whatever the rank has: nobody says that these are equal.
            return self.random_content(generator, pair, p.dtype, p.shape)
        layout = p.layouts["src"].get(stage)
        if layout is None and not pair.on_other_stages:
            return None
        layout = layout or next(iter(p.layouts["src"].values()))
        part = whole[self.naive.region(layout, p.shape, local)]
        if pair.own_replicas:
            part = self.random_content(generator, pair, p.dtype, part.shape)
        return part

    def save(self, pair, path, parameters):
        empty = any(0 in p["data"].shape for p in parameters)
        # Only the asynchronous writer keeps tensors without elements.
        self.ms.save_checkpoint(parameters, path, crc_check=pair.crc,
                                append_dict=dict(pair.appended) or None,
                                async_save="thread" if empty else False)
        for thread in threading.enumerate():
            if thread.name == "asyn_save_ckpt":
                thread.join()
        if pair.old_release:
            self.make_old(path, pair.crc)

    def make_old(self, path, crc):
        """As releases up to 2.2 wrote it: scalars of dimension [0], BFloat16
        in the upper halves of four-byte elements."""
        records = self.formats.read_checkpoint(path)
        for record in records.values():
            if record.dtype == "BFloat16":
                bits = self.np.frombuffer(record.content, "<u2").astype("<u4")
                record.content = (bits << 16).tobytes()
            if record.dims == ():
                record.dims = (0,)
        os.chmod(path, 0o600)
        with open(path, "wb") as f:
            f.write(self.formats.checkpoint_bytes(records, crc))

    # Strategies.

    def write_strategy(self, pair, side, root):
        """(file for the converter, path for the mount), both None for none."""
        if pair.devices[side] is None:
            return None, None
        rng = random.Random(f"{pair.seed} {side}")
        suffix = "json" if pair.json[side] else "ckpt"
        write = self.formats.strategy_json if pair.json[side] else self.formats.strategy_bytes
        folder = os.path.join(root, side)
        os.makedirs(folder)
        for stage in range(pair.stages[side]):
            items = [(p.name, p.layouts[side][stage])
                     for p in pair.parameters if stage in p.layouts[side]]
            rng.shuffle(items)
            said = pair.part_of if side == "src" and pair.part else stage
            content = write(self.formats.StageFile(said, dict(items)))
            # One file for each stage, or one for each rank with much the same.
            for copy in range(rng.choice((1, 1, 2)) if pair.directory[side] else 1):
                single = os.path.join(folder, f"strategy_{stage}_{copy}.{suffix}")
                with open(single, "wb") as f:
                    f.write(content)
        if pair.merged[side]:
            single = os.path.join(root, f"{side}_strategy.{suffix}")
            self.ms.merge_pipeline_strategys(folder, single)
        return single, folder if pair.directory[side] else single

    # One pair.

    def run(self, seed):
        pair = self.drawn(seed)
        root = tempfile.mkdtemp(prefix="reshardfs-pair-")
        try:
            kinds = self.judge(pair, root)
        except Exception:
            return Outcome(False, "failed", pair.describe(), pair.failure())
        finally:
            shutil.rmtree(root, ignore_errors=True)
        kinds = [kinds] if isinstance(kinds, str) else kinds
        return Outcome(True, ", ".join(dict.fromkeys(kinds)), pair.describe(), counted=kinds)

    def judge(self, pair, root):
        """Compare one pair; return the kind of result, or several, or raise."""
        source = os.path.join(root, "source")
        self.save_source(pair, source)
        src_file, src = self.write_strategy(pair, "src", root)
        dst_file, dst = self.write_strategy(pair, "dst", root)
        conversion = self.naive.Reshard(source, src, dst, pair.prefix)
        if pair.lost_ranks:
            self.lose_ranks(pair, source, conversion)
        try:
            reference, expected = (
                {name: (len(data), hashlib.sha256(data).hexdigest())
                 for name, data in files.items()}
                for files in (conversion.converted(), conversion.files()))
        except self.naive.ReshardError as error:
            reference, why = None, error
        converted, refusal = self.convert(pair, source, root, src_file, dst_file)

        if reference is None:
            if refusal is None:
                raise AssertionError("the reference alone refuses") from why
            if self.subject == "mount":
                # An older checkpoint beside it may be one that can be shown.
                rsh_mount.expect_failure(source, src_strategy=src, dst_strategy=dst,
                                         extra=["--fallbacks", "0"])
            return f"refused by all: {self.kind_of_refusal(why)}"
        reasons = pair.known_wrong(conversion)
        different = refusal is None and self.check_reference(
            converted, reference, reasons, pair.part_of)
        if conversion.cuts_alike():
            reasons.add("cut alike, the file itself")
            different |= expected != reference
        elif pair.alike:
            raise AssertionError("the reference does not see that both cut alike")
        if self.subject == "mount":
            self.compare(pair, root, src, dst, expected)
            if refusal is None and (reasons or pair.chance(0.05)):
                # What the converter makes of stages that disagree depends on
                # their order in the file, which merging leaves to chance.
                self.compare(pair, root, src, dst_file, converted, compat=True)
        if refusal is not None:
            return f"reference only, converter raised: {refusal}"
        if different:
            return COMPAT + ", ".join(sorted(reasons))
        return IDENTICAL

    @staticmethod
    def kind_of_refusal(error):
        for kind in ("no parameter is in both strategies", "can be folded in several ways"):
            if kind in str(error):
                return kind
        raise error

    def check_reference(self, converted, reference, reasons, stage):
        """Whether the reference differs, for a reason, from the converter."""
        different = rsh_mount.tree_difference(converted, reference)
        if different and reasons == {"'_part' file names"}:
            renamed = {name.replace(f"_part{stage}.ckpt", ".ckpt"): value
                       for name, value in converted.items()}
            unexplained = rsh_mount.tree_difference(renamed, reference)
        else:
            unexplained = [] if reasons else different
        if unexplained:
            raise AssertionError("the reference is not the converter:\n" +
                                 "\n".join(unexplained))
        return bool(different)

    def lose_ranks(self, pair, source, conversion):
        """Remove rank directories that no destination rank needs."""
        try:
            needed = set().union(*(conversion.needed_files(r) for r in conversion.ranks()))
        except self.naive.ReshardError:
            return
        for rank, _, _ in pair.source_ranks():
            if rank not in needed and pair.chance(0.5):
                shutil.rmtree(os.path.join(source, f"rank_{rank}"))

    def convert(self, pair, source, root, src_file, dst_file):
        """(hashes of the converter's tree, None) or (None, why it raised).  What it has begun
        and not ended when the pair is run again has killed the worker."""
        target = os.path.join(root, "converted")
        begun = os.path.join(os.path.dirname(Pair.blocks), f"begun-{pair.seed}")
        if os.path.exists(begun):
            return None, "it crashed"
        with open(begun, "x", encoding="ascii"):
            pass
        try:
            self.ms.transform_checkpoints(source, target, pair.prefix, src_file, dst_file)
        except Exception as error:
            text = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) \
                else str(error)
            for pattern, kind in REFUSALS:
                if re.search(pattern, text):
                    return None, kind
            raise
        finally:
            os.unlink(begun)
        return rsh_mount.hash_tree(target), None

    @staticmethod
    def store_indexes(source, folder, **words):
        """Mount once with an index cache, to which files that were written
        just now are too new."""
        newest = max(os.stat(os.path.join(root, name)).st_ctime
                     for root, _, names in os.walk(source) for name in names)
        time.sleep(max(0, newest + 3.1 - time.time()))
        with rsh_mount.Mounted(source, **words):
            pass
        if not os.listdir(folder):
            raise AssertionError("the index cache is empty")

    def compare(self, pair, root, src, dst, expected, compat=False):
        source = os.path.join(root, "source")
        extra = pair.reading(root)
        indexed = pair.seed % INDEXED_PAIRS == 0
        if indexed:
            folder = source + ".index"
            extra = extra + ["--index-cache", folder, "--log-level", "info"]
        words = {"src_strategy": src, "dst_strategy": dst,
                 "prefix": pair.prefix, "compat": compat, "extra": extra}
        if indexed:
            self.store_indexes(source, folder, **words)
        with rsh_mount.Mounted(source, **words) as mount:
            if indexed and ", 0 of them read," not in mount.log():
                raise AssertionError(f"headers were read again:\n{mount.log()}")
            found = rsh_mount.hash_tree(mount.path, odd_blocks=pair.chance(0.2))
            different = rsh_mount.tree_difference(expected, found)
            if different:
                raise AssertionError(
                    f"the {'compat' if compat else 'default'} mount differs:\n" +
                    "\n".join(different) + f"\nlog:\n{mount.log()}")


_workshop = None


def start_worker(workshop, *given):
    global _workshop
    _workshop = workshop(*given)


def run_pair(seed):
    return _workshop.run(seed)


def run(options, workshop, subject="mount", **words):
    """Run the pairs of a kind of workshop; returns the exit status."""
    rsh_mount.require_oracle()
    if subject == "mount":
        rsh_mount.require_mount()
    with tempfile.TemporaryDirectory(prefix="reshardfs-pairs-") as shared:
        return random_cases.run(
            options, start_worker, run_pair,
            initargs=(workshop, os.path.join(shared, "blocks"), subject), **words)


def judge_mixture(tap, counts):
    served = sum(n for kind, n in counts.items()
                 if kind == IDENTICAL or kind.startswith(COMPAT))
    pairs = sum(counts.values())
    tap.ok(2 * served > pairs, "the converter gave bytes for most pairs",
           f"it did for {served} of {pairs}")


def main():
    parser = random_cases.parser(__doc__, 120)
    parser.add_argument("--subject", choices=("mount", "naive"), default="mount")
    options = parser.parse_args()
    return run(options, Workshop, options.subject, judge=judge_mixture)


if __name__ == "__main__":
    sys.exit(main())
