#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Random conversions of safetensors trees, against MindSpore's own converter.

Pairs are drawn as random_pairs.py draws them.  MindSpore saves the source
twice, as .ckpt and as .safetensors.  Of the safetensors tree three mounts are
compared:

  --format safetensors   with transform_checkpoints(output_format="safetensors")
                         file by file, byte for byte but for the order of the
                         metadata's entries, which the library leaves to chance
  --format safetensors   of the .ckpt tree, with ckpt_to_safetensors of what the
                         reference makes of it
  --format ckpt          of the safetensors tree, by value

and everything by value with naive_reshard.py, which reads the .ckpt tree.  Where
the converter's data are known to be wrong it is compared with the mount under
--compat mindspore.  Every file shown is also opened with the safetensors package.

    safetensors_pairs.py [--seed N] [--pairs N] [--jobs N]
"""

import os
import re
import shutil
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib")]
import random_cases  # noqa: E402
import random_pairs  # noqa: E402
import rsh_mount  # noqa: E402
from safetensors_format import SUFFIX, Tensors, values_of  # noqa: E402

# What the converter says where it cannot serve, besides what it says of .ckpt.
REFUSALS = random_pairs.REFUSALS + (
    (r"The param: .* in rank \d+ is missing", "destination stages of one device"),
    (r"safetensor file of rank\d+ is needed", "one of several stages by itself"),
    (r"file type should be one of json or protobuf", "stages in JSON to one stage"),
)


class SafetensorsPair(random_pairs.Pair):
    """A pair whose parameters safetensors files can hold."""

    def _draw_devices(self):
        super()._draw_devices()
        # Of stages the converter makes processes, which get more wrong.
        if self.chance(0.65):
            self.stages = {side: 1 for side in self.stages}
            src, dst = self.devices["src"], self.devices["dst"]
            if src and dst and src % dst and dst % src:
                self.devices["dst"] = self.rng.choice((src, 2 * src if src < 32 else 16))

    def _draw_saving(self):
        super()._draw_saving()
        # The checksum of a safetensors file cannot be made over BFloat16.
        self.crc = False
        self.old_release = False
        self.appended.pop("note", None)
        # Stages are converted by processes of their own, and of a record that
        # several of them hold the last to end wins.
        self.on_other_stages = False


class Workshop(random_pairs.Workshop):
    """Saves, converts and compares one pair after another."""

    drawn = SafetensorsPair

    def __init__(self, *given):
        super().__init__(*given)
        write_what_was_meant()
        convert_in_this_process()

    def save(self, pair, path, parameters):
        super().save(pair, path, parameters)
        twin = path.replace("/source/", "/twin/").replace(".ckpt", SUFFIX)
        os.makedirs(os.path.dirname(twin), exist_ok=True)
        self.ms.save_checkpoint(parameters, twin, format="safetensors",
                                append_dict=dict(pair.appended) or None)

    def judge(self, pair, root):
        source, twin = os.path.join(root, "source"), os.path.join(root, "twin")
        self.save_source(pair, source)
        src_file, src = self.write_strategy(pair, "src", root)
        dst_file, dst = self.write_strategy(pair, "dst", root)
        conversion = self.naive.Reshard(source, src, dst, pair.prefix)
        if pair.lost_ranks:
            self.lose_ranks(pair, source, conversion)
            for rank in set(os.listdir(twin)) - set(os.listdir(source)):
                shutil.rmtree(os.path.join(twin, rank))
        try:
            reference = conversion.converted()
        except self.naive.ReshardError:
            rsh_mount.expect_failure(twin, src_strategy=src, dst_strategy=dst)
            return "refused"
        wanted = {name: self.values(data) for name, data in reference.items()}
        sides = {"src_strategy": src, "dst_strategy": dst, "prefix": pair.prefix}

        shown = self.shown(pair, twin, sides, "safetensors")
        alike = conversion.cuts_alike()
        assert alike or not pair.alike, "the reference does not see that both cut alike"
        if alike:
            self.check_itself(pair, twin, shown)
            shown = self.shown(pair, twin, {**sides, "compat": True}, "safetensors")
        else:
            self.check_values(shown, wanted)
        self.check_format_of_ckpt(pair, root, source, sides, reference,
                                  None if alike else shown)
        self.check_ckpt(pair, twin, sides, wanted)
        kind = self.check_converter(pair, conversion, twin, root, sides, src_file, dst_file,
                                    shown)
        return f"cut alike, the file itself; under --compat: {kind}" if alike else kind

    @staticmethod
    def check_itself(pair, twin, shown):
        for name, data in shown.items():
            own = os.path.join(twin, os.path.dirname(name), "net-1_10" + SUFFIX)
            with open(own, "rb") as f:
                assert data == f.read(), f"{name} is not the rank's own file"
        assert len(shown) == len(list(pair.source_ranks())), sorted(shown)

    def values(self, data):
        return values_of(self.formats.parse_checkpoint(data))

    def shown(self, pair, source, sides, form):
        reading = pair.reading(os.path.dirname(source))
        with rsh_mount.Mounted(source, **sides, extra=["--format", form] + reading) as mount:
            return self.read_tree(mount.path)

    @staticmethod
    def read_tree(root):
        from safetensors import safe_open
        found = {}
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                with open(path, "rb") as f:
                    found[os.path.relpath(path, root)] = f.read()
                if name.endswith(SUFFIX):
                    with safe_open(path, framework="np") as f:
                        list(f.keys())
        return found

    @staticmethod
    def check_values(shown, wanted):
        expected = {name.replace(".ckpt", SUFFIX): v for name, v in wanted.items()}
        assert set(shown) == set(expected), f"{sorted(shown)} is not {sorted(expected)}"
        for name, data in shown.items():
            found = Tensors(data).values()
            different = [n for n in set(found) | set(expected[name])
                         if found.get(n) != expected[name].get(n)]
            assert not different, f"{name}: {different} differ from the reference"

    def check_format_of_ckpt(self, pair, root, source, sides, reference, of_twin):
        """A .ckpt source shown as safetensors is ckpt_to_safetensors of the
        .ckpt that would be shown."""
        shown = self.shown(pair, source, sides, "safetensors")
        # Nothing to compare where the twin's files are shown as they are.
        for name, data in shown.items() if of_twin is not None else ():
            assert data == of_twin.get(name), f"{name} differs between the source's formats"
        name = sorted(reference)[-1]
        if 0 in {d for r in self.formats.parse_checkpoint(reference[name]).values()
                 for d in r.dims}:
            return  # MindSpore loses these while loading
        path = os.path.join(root, "reference.ckpt")
        with open(path, "wb") as f:
            f.write(reference[name])
        out = os.path.join(root, "rewritten")
        self.ms.ckpt_to_safetensors(path, out)
        with open(os.path.join(out, "reference" + SUFFIX), "rb") as f:
            expected = Tensors(f.read())
        found = Tensors(shown[name.replace(".ckpt", SUFFIX)])
        assert found.comparable() == expected.comparable(), \
            f"{name}: {found.header} is not {expected.header}"

    def check_ckpt(self, pair, twin, sides, wanted):
        shown = self.shown(pair, twin, sides, "ckpt")
        assert {n: self.values(d) for n, d in shown.items()} == wanted, \
            "shown as .ckpt it is not the reference"

    # The converter.

    def check_converter(self, pair, conversion, twin, root, sides, src_file, dst_file, shown):
        target = os.path.join(root, "converted")
        try:
            self.ms.transform_checkpoints(twin, target, pair.prefix, src_file, dst_file,
                                          output_format="safetensors")
        except Exception as error:
            text = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) \
                else str(error)
            for pattern, kind in REFUSALS:
                if re.search(pattern, text):
                    return f"reference only, the converter raised: {kind}"
            raise
        reasons = pair.known_wrong(conversion) - {
            "empty tensor lost", "NaN of BFloat16 made canonical", "'_part' file names"}
        converted = self.read_tree(target)
        unknown = set(converted) - set(shown)
        assert not unknown, f"the mount lacks {sorted(unknown)}"
        kind = "identical"
        if reasons:
            kind = f"{', '.join(sorted(reasons))}: under --compat identical"
            # How stages that disagree are ordered merging leaves to chance.
            sides = {**sides, "dst_strategy": dst_file, "compat": True}
            shown = self.shown(pair, twin, sides, "safetensors")
        faults = set()
        # It starts processes, and does not notice when they end by an error.
        if set(shown) - set(converted):
            faults.add("a process of the converter died")
        for name, data in converted.items():
            faults |= self.explain(pair, name, Tensors(shown[name]), Tensors(data))
        return f"{kind} but for: {', '.join(sorted(faults))}" if faults else \
            f"{kind} to the converter"

    @staticmethod
    def explain(pair, file, found, expected):
        """Why a file may differ from the converter's; raises if nothing does."""
        if found.comparable() == expected.comparable():
            return set()
        parameters = {p.name: p for p in pair.parameters}
        reasons = set()
        notes = {n: t for n, t in expected.metadata.items() if n not in found.metadata}
        if pair.stages["dst"] > 1 and notes and \
                all(t == "Int4" and parameters[n].dtype == "Int4" for n, t in notes.items()):
            reasons.add("Int4 noted in every file")
        elif found.metadata != expected.metadata:
            raise AssertionError(f"{file}: {found.metadata} is not {expected.metadata}")
        found, expected = found.values(), expected.values()
        for name in set(found) | set(expected):
            if found.get(name) == expected.get(name):
                continue
            p = parameters.get(name)
            listed = p is not None and all(p.listed(side) for side in pair.sides())
            shared = any(len(q.layouts["dst"]) > 1 for q in pair.parameters)
            if name not in expected and listed and len(p.layouts["dst"]) > 1:
                reasons.add("shared parameter left to its first stage")
            elif shared and not listed:
                # The last parameter of a stage says where these come from.
                reasons.add("shared parameter left to its first stage")
            elif name == pair.on_some_ranks and not listed and name not in expected:
                reasons.add("record left out that the chosen rank lacks")
            elif pair.stages["src"] > 1 and pair.stages["dst"] == 1 and name not in expected:
                reasons.add("a process of the converter died")
            elif pair.stages["src"] > 1 and pair.stages["dst"] == 1 and \
                    (not listed or len(p.layouts["src"]) > 1):
                reasons.add("record of several stages from the one that ended last")
            else:
                raise AssertionError(f"{file}: {name} is not the converter's: "
                                     f"{found.get(name)} is not {expected.get(name)}")
        assert reasons, f"{file}: the header is not the converter's"
        return reasons


def write_what_was_meant():
    """The library (0.8) takes the memory of an array for its elements, also
    where the array is a part of a larger one, and the converter gives it such
    parts: their elements are wrong then.  Here it gets whole arrays."""
    import numpy
    from mindspore.parallel import transform_safetensors
    save_file = transform_safetensors.save_file

    def save_whole(tensors, *args, **kwargs):
        return save_file({name: numpy.array(t, order="C") for name, t in tensors.items()},
                         *args, **kwargs)
    transform_safetensors.save_file = save_whole


class _Call:
    """What a process of the converter would do, at once and here.  An error
    ends it as it would end the process, unnoticed."""

    def __init__(self, target, args=()):
        self._target, self._args = target, args

    def start(self):
        try:
            self._target(*self._args)
        except Exception:
            pass

    def join(self):
        pass


def convert_in_this_process():
    """The converter forks, which is no good where the library's and MindSpore's
    threads have been at work: the child may wait for one of them forever."""
    from mindspore.parallel import transform_safetensors
    transform_safetensors.mp = types.SimpleNamespace(
        Process=_Call, Manager=lambda: types.SimpleNamespace(list=list))


def judge_mixture(tap, counts):
    # Some but for a reason, or under --compat: there were converter's bytes to compare.
    same = sum(n for kind, n in counts.items() if "identical" in kind)
    pairs = sum(counts.values())
    tap.ok(2 * same > pairs, "the converter gave bytes for most pairs",
           f"it did for {same} of {pairs}")


def main():
    options = random_cases.parser(__doc__, 60).parse_args()
    return random_pairs.run(options, Workshop, judge=judge_mixture)


if __name__ == "__main__":
    sys.exit(main())
