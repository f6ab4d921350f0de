#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""reshardfs.load_checkpoint on random conversions, against MindSpore's of the mount.

Pairs are drawn as random_pairs.py draws them, with more strings and Int4.  Of some
ranks the module's load_checkpoint must give what mindspore.load_checkpoint gives of
the file that a mount shows: the same names in the same order, and parameters that
are equal in every attribute; with a net, nets whose parameters are.  How the module
reads, and the form of what is shown, is drawn as well.  What a mount refuses the
module refuses with the same sentence.

    loads_into_program.py [--seed N] [--pairs N] [--jobs N]

Three times RSH_ORACLE_PAIRS are run: nothing is converted by MindSpore here.
"""

import os
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "lib"), os.path.join(HERE, "..", "..", "python")]
import random_cases  # noqa: E402
import random_pairs  # noqa: E402
import rsh_mount  # noqa: E402
from demands import check  # noqa: E402
from run_seed import share  # noqa: E402

PAIRS = 3 * int(os.environ.get("RSH_ORACLE_PAIRS", share(60)))
MOST_RANKS = 3  # of a pair

WAYS = ("all", "all", "chosen", "in parts", "in the background", "net", "net", "net")
NOTES = ("naïve résumé", "x", "several\nlines", "終わり")


class LoadingPair(random_pairs.Pair):
    def _draw_parameters(self):
        super()._draw_parameters()
        if self.chance(0.1):
            self.rng.choice(self.parameters[:3]).dtype = "Int4"

    def _add_unlisted(self):
        super()._add_unlisted()
        for p in self.parameters:
            # MindSpore takes [0] for a scalar of old releases, and makes up its value.
            p.shape = (0, 2) if p.shape == (0,) else p.shape

    def _draw_saving(self):
        super()._draw_saving()
        if self.chance(0.2):
            self.appended["note"] = self.rng.choice(NOTES)


class Workshop(random_pairs.Workshop):
    drawn = LoadingPair

    def __init__(self, *given):
        super().__init__(*given)
        os.environ["XDG_CACHE_HOME"] = os.path.join(os.devnull, "cache")
        os.environ["LIBRESHARD"] = os.path.join(
            os.path.dirname(rsh_mount.reshardfs_program()), ".libs", "libreshard.so.0")
        import reshardfs
        self.module = reshardfs
        self.names = self.info_names = ()
        self._learn_attributes()

    # ---- what parameters are compared by ----

    def _learn_attributes(self):
        """All that a parameter says of itself in plain values."""
        sample = self.ms.Parameter(self.ms.Tensor(self.np.zeros((3, 4), "float32")), "sample")
        self.names = plain_names(sample)
        self.info_names = plain_names(sample.param_info)
        check({"name", "dtype", "shape", "requires_grad", "layerwise_parallel",
               "parallel_optimizer", "is_init", "sliced"} <= set(self.names), self.names)

    def said_by(self, value):
        if isinstance(value, str):
            return value
        array = value.asnumpy()
        said = {name: getattr(value, name) for name in self.names}
        said.update(("info " + name, getattr(value.param_info, name)) for name in self.info_names)
        # Those without a name are counted.
        for name in ("name", "info name"):
            said[name] = re.sub(r"^Parameter#\d+$", "Parameter#", said[name])
        said["type"] = type(value)
        said["array"] = array.dtype, array.shape, array.flags.c_contiguous
        said["content"] = array.tobytes()
        return said

    def demand_same(self, found, expected, what):
        check(list(found) == list(expected), f"{what}: {list(found)} is not {list(expected)}")
        for name, value in expected.items():
            one, other = self.said_by(found[name]), self.said_by(value)
            check(one == other, f"{what}: {name}: {differences(one, other)}")

    # ---- a pair ----

    def judge(self, pair, root):
        source = os.path.join(root, "source")
        self.save_source(pair, source)
        _, src = self.write_strategy(pair, "src", root)
        _, dst = self.write_strategy(pair, "dst", root)
        if pair.lost_ranks:
            self.lose_ranks(pair, source, self.naive.Reshard(source, src, dst, pair.prefix))
        form = pair.rng.choice(("ckpt", "ckpt", "safetensors"))
        sides = {"src_strategy": src, "dst_strategy": dst, "prefix": pair.prefix,
                 "compat": pair.chance(0.1)}
        reading = pair.reading(root)
        options = {"src_strategy": src or "none", "dst_strategy": dst or "none",
                   "prefix": pair.prefix, "format": form, **keywords(reading)}
        if sides["compat"]:
            options["compat"] = "mindspore"
        extra = ["--format", form, *reading]
        try:
            files = self.module.files(source, **options)
        except self.module.Error as error:
            _, said = rsh_mount.expect_failure(source, **sides, extra=extra)
            from reshardfs._options import spoken
            check(str(error) in spoken(said), f"{error} is not in {said}")
            return "refused"
        ranks = pair.rng.sample(range(len(files)), min(len(files), MOST_RANKS))
        with rsh_mount.Mounted(source, **sides, extra=extra) as mount:
            check(len(os.listdir(mount.path)) == len(files), files)
            for rank in ranks:
                # MindSpore maps safetensors.
                shutil.copy(os.path.join(mount.path, files[rank].name),
                            os.path.join(root, f"shown_{rank}.{form}"))
        ways = []
        for rank in ranks:
            one = Loaded(self, pair, source, rank, options,
                         os.path.join(root, f"shown_{rank}.{form}"))
            ways += [form, one.compare(pair.rng.choice(WAYS))]
        return ways


class Loaded:
    """The file of a rank, loaded by both."""

    def __init__(self, shop, pair, source, rank, options, shown):
        self.shop, self.rng, self.source, self.rank = shop, pair.rng, source, rank
        self.options, self.shown = options, shown

    def expected(self, **more):
        return self.shop.ms.load_checkpoint(self.shown, format=self.options["format"], **more)

    def found(self, **more):
        more = {"threads": self.rng.choice((0, 0, 1, 2, 5)), **more}
        return self.shop.module.load_checkpoint(self.source, self.rank, **more, **self.options)

    def compare(self, way):
        getattr(self, way.replace(" ", "_"))(self.expected())
        return way

    def same(self, found, expected, way):
        self.shop.demand_same(found, expected, f"rank {self.rank}, {way}")

    def all(self, expected):
        self.same(self.found(), expected, "all")

    def chosen(self, expected):
        names = set(self.rng.sample(list(expected), self.rng.randint(1, len(expected))))
        self.same(self.found(choice_func=names.__contains__),
                  self.expected(choice_func=names.__contains__), "chosen")

    def in_parts(self, expected):
        """Parameters stay as they are when others are loaded."""
        names = list(expected)
        result = {}
        for part in (names[::2], names[1::2]):
            if part:
                result.update(self.found(choice_func=part.__contains__, progress=lambda *_: None))
        self.same({name: result[name] for name in names}, expected, "in parts")

    def in_the_background(self, expected):
        future = self.shop.module.load_checkpoint_async(self.source, self.rank, **self.options)
        self.same(future.result(), expected, "in the background")
        check(future.done() and not future.cancel(), "a result can be cancelled")

    # ---- into a net ----

    def net(self, expected):
        """Two nets that are alike and fit, more or less."""
        drawn = self.draw_parameters(expected)
        strict = self.rng.random() < 0.3
        mine, its = new_net(self.shop, drawn), new_net(self.shop, drawn)
        try:
            self.expected(net=its, strict_load=strict)
            refused = False
        except (RuntimeError, ValueError):
            refused = True
        before = [self.shop.said_by(p) for p in mine.get_parameters()]
        try:
            loaded = self.found(net=mine, strict_load=strict)
        except self.shop.module.Error as error:
            check(refused, f"MindSpore loads it: {error}")
            check(before == [self.shop.said_by(p) for p in mine.get_parameters()],
                  "refused, and the net has changed")
            return
        check(not refused, "MindSpore refuses it")
        self.reshape(its, drawn)
        self.same({p.name: p for p in mine.get_parameters()},
                  {p.name: p for p in its.get_parameters()}, "net")
        for name, parameter in loaded.items():
            check(any(parameter is p and p.name == name for p in mine.get_parameters()), name)

    def reshape(self, net, drawn):
        """MindSpore lets parameters of a net have more dimensions after a load than
        before; the module does not."""
        for p, (_, shape, _) in zip(net.get_parameters(), drawn):
            if tuple(p.shape) != shape:
                p.set_data(self.shop.ms.Tensor(p.asnumpy().reshape(shape), p.dtype), True)
                p.sliced = False

    def draw_parameters(self, expected):
        """[(name, shape, type)]"""
        rng, drawn = self.rng, []
        prefix = rng.choice([name.partition(".")[0] + "." for name in expected]) \
            if rng.random() < 0.3 else None
        odd = rng.random() < 0.4
        for name, value in expected.items():
            if isinstance(value, str) or rng.random() < 0.3:
                continue
            shape, kind = tuple(value.shape), value.dtype
            if prefix:
                name = name[len(prefix):] if name.startswith(prefix) else name
            if odd and rng.random() < 0.2:
                kind = rng.choice(self.alike(kind))
            if odd and shape[-1:] == (1,) and rng.random() < 0.5:
                shape = shape[:-1]
            if odd and rng.random() < 0.05:
                kind = self.shop.ms.bool_
            if odd and rng.random() < 0.03:
                shape += (2,)
            # In a net that has a name twice MindSpore fails on its own list.
            if name not in (known for known, _, _ in drawn):
                drawn.append((name, shape, kind))
        for name in ("accu_grads.more", "only.here"):
            if rng.random() < 0.2:
                drawn.append((name, (2, 3), self.shop.ms.float32))
        rng.shuffle(drawn)
        return drawn or [("only.here", (1,), self.shop.ms.float32)]

    def alike(self, kind):
        ms = self.shop.ms
        for kinds in ((ms.float16, ms.float32, ms.float64, ms.bfloat16),
                      (ms.int8, ms.int16, ms.int32, ms.int64)):
            if kind in kinds:
                return kinds
        return (kind,)


def plain_names(thing):
    plain = (bool, int, float, str, type(None), tuple, list)
    return [name for name in dir(thing) if not name.startswith("__")
            and (name == "dtype" or isinstance(getattr(thing, name), plain))]


def differences(one, other):
    if isinstance(one, str) or isinstance(other, str):
        return f"{one!r} is not {other!r}"
    return "; ".join(f"{name} {str(one[name])[:200]} is not {str(value)[:200]}"
                     for name, value in other.items() if one[name] != value)


def keywords(words):
    """Options of the program as those of the module, which has no kernel between."""
    given = " ".join(words).replace("=", " ").split()
    return {name[2:].replace("-", "_"): value for name, value in zip(given[::2], given[1::2])
            if name != "--io-mode"}


def new_net(shop, drawn):
    ms, np = shop.ms, shop.np

    class Net(ms.nn.Cell):
        def __init__(self):
            super().__init__()
            for number, (name, shape, kind) in enumerate(drawn):
                array = np.zeros(shape, "int8" if kind == ms.qint4x2 else "float32")
                setattr(self, f"p{number}", ms.Parameter(ms.Tensor(array, kind), name))
    return Net()


def judge_mixture(tap, counts):
    missing = [kind for kind in ("refused", "ckpt", "safetensors", *WAYS) if not counts[kind]]
    tap.ok(not missing, "every way was tried", f"not {missing}: {counts}")


def main():
    parser = random_cases.parser(__doc__, None)
    parser.set_defaults(pairs=PAIRS, jobs=1)
    return random_pairs.run(parser.parse_args(), Workshop, judge=judge_mixture)


if __name__ == "__main__":
    sys.exit(main())
