#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mount --steps all with the other options of mount, and commands that get a step of it.

The directory of a step has the files, the bytes and the hashes that a mount of this step
alone with the same options has: each kind of source in each output format, converted,
dequantised, and with adapters.
"""

import errno
import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

from adapters import Adapter, Drawer  # noqa: E402
from demands import check, content, demand, within, write  # noqa: E402
from quantised import without_sizes  # noqa: E402
from rsh_cli import INPUT, good, refused, run  # noqa: E402
from rsh_mount import Mounted, Tests, hash_tree, require_mount, tree_difference  # noqa: E402
from savers import (DATA, SEED, Checkpoint2, Dcp, Fsdp, Megatron, Ranks,  # noqa: E402
                    RanksInSteps, Saver, TorchFiles, Trainer, TrainerInParts)

STEPS = ["--steps", "all"]
FORMATS = ("ckpt", "safetensors", "hf", "checkpoint2", "dcp")
test = Tests("steps")


class Copies(Saver):
    """A step is a directory of tests/data; the index of its parts is written last.  The
    sizes in some config.json are not those of the tensors."""

    def __init__(self, directory, *origin):
        super().__init__(directory)
        self.origin = os.path.join(DATA, *origin)

    def name(self, step):
        return f"step-{step}"

    def save(self, step):
        for name in sorted(os.listdir(self.origin), key=lambda n: n.endswith(".index.json")):
            if name != "expected.json":
                data = content(os.path.join(self.origin, name))
                if name == "config.json" and "quantised" in self.origin:
                    data = json.dumps(without_sizes(json.loads(data))).encode()
                for _ in self.put(f"{self.name(step)}/{name}", data):
                    yield False
        yield True


def saved(saver):
    for step in (1, 2):
        saver.all_of(step)
    return saver


def demand_same(saver, *words, to=None):
    """The first of two steps; `words` are options of the mount, `to` is a strategy."""
    name = saver.name(1)
    (source, *_), more = saver.alone(name)
    own = more.pop("extra", ())
    with Mounted(source, **{**more, "dst_strategy": to}, extra=[*own, *words]) as alone:
        wanted = hash_tree(alone.path)
    with Mounted(saver.source, **{**saver.options(), "dst_strategy": to},
                 extra=[*STEPS, *words]) as mount:
        found = hash_tree(os.path.join(mount.path, name))
    different = tree_difference(wanted, found)
    check(not different, f"{words}: {different}")


# What each kind may get beside a format.
OPTIONS = {
    Ranks: (["--cast", "float16"], ["--only", "up"], ["--prefix", "net"], ["--replicas", "off"],
            ["--check", "full"], ["--io-mode", "direct"], ["--cache", "off"],
            ["--index-cache", "off"], ["--sandbox", "off"]),
    RanksInSteps: (["--drop", "norm"], ["--unlisted", "drop"], ["--allow-missing"]),
    Checkpoint2: (["--cast", "float16"], ["--replicas", "off"]),
    Dcp: (["--format", "hf", "--part-size", "1KiB"],),
    Trainer: (["--format", "hf", "--optimizer", "keep"], ["--model-files", "none"]),
    TorchFiles: (["--cast", "bfloat16"],),
}
for _saver in (Ranks, RanksInSteps, Checkpoint2, Dcp, Fsdp, Megatron, Trainer, TrainerInParts,
               TorchFiles):
    def _case(directory, kind=_saver):
        saver = saved(kind(directory))
        for words in [["--format", form] for form in FORMATS] + [*OPTIONS.get(kind, ())]:
            demand_same(saver, *words)
    _case.__name__ = f"each format of {_saver.__name__}"
    test(_case)


@test
def quantised_weights(directory):
    for name in ("fp8-qwen3", "gpt_oss", "gptq", "ct-pack", "deepseek_v4"):
        saver = saved(Copies(os.path.join(directory, name), "quantised", name))
        for words in (["--format", "hf"], ["--dequantize", "bfloat16"],
                      ["--dequantize", "float32", "--format", "dcp"]):
            demand_same(saver, *words)


@test
def weights_in_another_form(directory):
    saver = saved(Copies(os.path.join(directory, "qwen3"), "weights", "models", "qwen3"))
    for words in ([], ["--format", "dcp"], ["--vocab-multiple", "7"]):
        demand_same(saver, "--convert", "auto", *words)
    demand_same(saver, "--convert", "auto", to=os.path.join(
        DATA, "weights", "strategies", "qwen3.qwen3.dp2mp2.ckpt"))
    saver = saved(Copies(os.path.join(directory, "back"), "weights", "mindspore", "qwen3"))
    demand_same(saver, "--convert", "auto", "--config",
                os.path.join(DATA, "weights", "models", "qwen3"))


@test
def adapters(directory):
    saver = saved(Trainer(directory))
    drawer, adapter = Drawer(random.Random(SEED)), Adapter()
    adapter.add("layer.0", drawer.matrix("F32", 4, 5), drawer.matrix("F32", 8, 4), 2)
    at = adapter.write(os.path.join(directory, "adapter"))
    for words in (["--lora", at], ["--lora", at + ":3", "--format", "dcp"]):
        demand_same(saver, *words)


def no_plan(mount, name):
    steps = json.loads(content(os.path.join(mount.path, ".reshardfs", "steps")))["steps"]
    return name not in [s["name"] for s in steps if s["planned"]]


def changes_of(directory):
    """(a saver, options of a mount, what is not in a step and changes, its other content)"""
    def named(number):
        return os.path.join(directory, f"{number}")

    def adapter(factor):
        drawer, made = Drawer(random.Random(factor)), Adapter()
        made.add("layer.0", drawer.matrix("F32", 4, 5), drawer.matrix("F32", 8, 4), 2)
        at = made.write(os.path.join(directory, f"adapter-{factor}"))
        return at, os.path.join(at, "adapter_model.safetensors")

    (at, used), (_, other) = adapter(1), adapter(2)
    yield Trainer(named(1)), ["--lora", at], used, content(other)
    names = named("names")
    ranks = Ranks(named(2))
    for step in range(6):
        ranks.all_of(step)
    got = good("ls", "--json", ranks.path(ranks.file(0, 1)))
    record = json.loads(got.out)["records"][0]["name"]
    write(names, json.dumps({record: record + "_a"}).encode())
    yield ranks, ["--rename", names], names, json.dumps({record: record + "_b"}).encode()
    files = named("files")
    write(os.path.join(files, "config.json"), b'{"hidden_size": 1}')
    yield (Trainer(named(3)), ["--format", "hf", "--model-files", files],
           os.path.join(files, "config.json"), b'{"hidden_size": 2}')


@test
def what_else_a_step_is_made_of(directory):
    """An adapter, names or config.json may change while the plan of a step is not in memory.
    Then the step is another one: an open file has the old bytes or none."""
    for saver, words, path, data in changes_of(directory):
        for step in range(7):
            saver.all_of(step)
        (source, *_), more = saver.alone(saver.name(1))
        own = more.pop("extra", ())

        def alone():
            with Mounted(source, **more, extra=[*own, *words]) as mount:  # noqa: B023
                return {name: content(os.path.join(mount.path, name))
                        for name in hash_tree(mount.path)}
        before = alone()
        with Mounted(saver.source, **saver.options(),
                     extra=[*STEPS, "--steps-interval", "3600", *words]) as mount:
            step = os.path.join(mount.path, saver.name(1))
            def visit_others():
                for number in (0, *range(2, 7)):
                    hash_tree(os.path.join(mount.path, saver.name(number)))  # noqa: B023
                return no_plan(mount, saver.name(1))  # noqa: B023

            was = before
            # The kernel keeps pages of files that are closed.
            for held, now in ((False, data), (True, content(path))):
                files = {name: open(os.path.join(step, name), "rb", buffering=0) for name in was}
                for name, file in files.items():
                    check(file.read(16) == was[name][:16], f"{words}: {name}")
                    if not held:
                        file.close()
                write(path, now)
                visit_others()
                after = alone()
                check(was != after, f"{words}: nothing has changed")
                for name, file in files.items() if held else ():
                    try:
                        check(os.pread(file.fileno(), len(was[name]), 0) == was[name],
                              f"{words}: {name} has other bytes now")
                    except OSError as e:
                        check(e.errno == errno.ESTALE, repr(e))
                    file.close()
                # Files are released some time after they are closed.
                within(20, visit_others, "its plan stays")
                for name, wanted in after.items():
                    check(content(os.path.join(step, name)) == wanted,
                          f"{words}: {name} is old, held: {held}")
                was = after


@test
def a_step_that_cannot_be_converted(directory):
    """The sentence of a mount of it alone is in .reshardfs/steps."""
    saver = saved(Copies(directory, "quantised", "deepseek_v4"))
    with Mounted(saver.source, extra=[*STEPS, "--format", "ckpt"], **saver.options()) as mount:
        try:
            os.listdir(os.path.join(mount.path, "step-1"))
        except OSError:
            pass
        else:
            check(False, "a step is shown that MindSpore cannot have")
        demand(run("steps", mount.path).out, "which MindSpore does not have; --drop leaves it out")


@test
def commands_get_a_step(directory):
    """It is a source as another directory."""
    saver = saved(Copies(directory, "weights", "models", "qwen3"))
    form = ["--format", "hf", "--model-files", "none"]
    with Mounted(saver.source, extra=STEPS + form, **saver.options()) as mount:
        step = os.path.join(mount.path, "step-1")
        wanted = hash_tree(step)
        for command in (["ls"], ["verify"], ["plan", *form]):
            good(*command, step)
        good("verify", *form, saver.path("step-1"), step)
        out = os.path.join(directory, "out")
        good("export", *form, step, out)
        for name, value in wanted.items():
            check(hash_tree(out).get(name) == value, f"{name} is exported wrong")
        with Mounted(step, described=True, extra=form) as inner:
            inner.demand_tree(wanted)
        # A mount of all steps is a directory of steps; a network, for its daemon.
        with Mounted(mount.path, extra=[*STEPS, *form, "--steps-interval", "1"],
                     described=True) as inner:
            check(sorted(os.listdir(inner.path)) == ["latest", "step-1", "step-2"],
                  str(os.listdir(inner.path)))
            check(not tree_difference(wanted, hash_tree(os.path.join(inner.path, "step-1"))),
                  "a mount of all")
            saver.all_of(3)
            within(20, lambda: "step-3" in os.listdir(inner.path), "a new step is shown")
        for command in ("stats", "steps", "umount"):
            check(run(command, step).status == INPUT, f"{command} of a step")
        refused(run("ls", mount.path), INPUT, " in it is a checkpoint")


if __name__ == "__main__":
    require_mount()
    sys.exit(test.run())
