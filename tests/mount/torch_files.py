#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save() as a source of a whole model: genuine ones of all forms, one file or
a directory, whole and for the ranks of a strategy, and what each of them is refused for.

The yardstick is tests/data/torch/expected.json: type, shape and hash of the tensors before
they were saved.
"""

import argparse
import collections
import datetime
import decimal
import enum
import fractions
import functools
import json
import os
import pickle
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import uuid

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

from demands import check, content, demand, write  # noqa: E402
from rsh_cli import GOOD, NO, good, run, run_json  # noqa: E402
from rsh_mount import Alone, Mounted, Tap, expect_failure, require_mount  # noqa: E402
from safetensors_format import Tensors, read_model, safetensors_bytes  # noqa: E402
from shown_model import extra_state, model_hashes, same, values_of_model  # noqa: E402
from torch_zip import Call, Function, Tensor, torch_zip  # noqa: E402
from whole_sources import KEEP, exported_as_file, no_good, verified  # noqa: E402

DATA = os.path.abspath(os.path.join(HERE, "data", "torch"))
# Types that are not shown.
UNKNOWN = {"F8_E8M0"}


def expected():
    return json.loads(content(os.path.join(DATA, "expected.json")))


def source_of(case):
    path = os.path.join(DATA, case["path"])
    # Its metadata is another format's.
    return os.path.join(path, "_rank0_.safetensors") if path.endswith("hyperparallel-torch") \
        else path


def wanted_of(case):
    return {n: v[:3] for n, v in case["tensors"].items() if v[0] not in UNKNOWN}


def dropped(case):
    """Words that leave out what cannot be shown."""
    names = [n for n, v in case["tensors"].items() if v[0] in UNKNOWN]
    names += case.get("left out", [])
    return ["--drop", "^(" + "|".join(names) + ")$"] if names else []


def run_genuine(tap):
    for name, case in expected().items():
        if "refuse" in case or name == "tar":
            continue
        source = source_of(case)
        with tap.test(f"{name}: mounted"), \
                Alone(source, extra=[*KEEP, *dropped(case)]) as mount:
            same(model_hashes(mount.path), wanted_of(case), name)
        with tap.test(f"{name}: listed and verified"):
            said = run_json("ls", source)
            shapes = {t["name"]: t["shape"] for t in said["tensors"]}
            check(all(shapes[n] == v[1] for n, v in case["tensors"].items()), shapes)
            check(said["whole"], said)
            verified(source)
        with tap.test(f"{name}: one safetensors file"):
            same(exported_as_file(source, *dropped(case)), wanted_of(case), name)


def run_refused(tap, directory):
    words = {"consolidated2-2.15": "slices of one model", "module-2.15": "Linear",
             "script-2.15": "TorchScript", "tar": "tar archive"}
    for name, case in expected().items():
        if name in words:
            with tap.test(f"{name}: refused"):
                no_good(source_of(case), words[name])
    hostile = b"\x80\x02}X\x01\x00\x00\x00wcos\nsystem\nX\x04\x00\x00\x00true\x85Rs."
    file = os.path.join(directory, "evil.pth")
    with tap.test("a call is named and not made"):
        import zipfile
        with zipfile.ZipFile(file, "w") as z:
            z.writestr("evil/data.pkl", hostile)
        no_good(file, "os.system", "which weights never need")
        check(run("ls", file).status != GOOD, "it is listed")
    with tap.test("a file that was cut short"):
        data = content(os.path.join(DATA, "flat-2.15.pt"))
        write(file, data[:len(data) - 100])
        no_good(file, "evil.pth", "truncated")
    os.unlink(file)


def run_values(tap, directory):
    with tap.test("values that are plain data"), \
            Alone(os.path.join(DATA, "nested-2.15.pt")) as mount:
        found = extra_state(mount.path)
        check(found["step"] == 17 and found["lr"] == 0.125 and
              found["config.betas"] == [0.9, 0.999], found)
    with tap.test("the step is the state of the job, not of the optimizer"):
        path = os.path.join(directory, "lightning.ckpt")
        torch_zip(path, {"state_dict": {"a.weight": W}, "epoch": 3, "global_step": 120,
                         "loss_scale": 2.5, "optimizer": {"param_groups": [{"lr": 0.5}]}})
        with Alone(path) as mount:
            found = extra_state(mount.path)
        check(found == {"epoch": 3, "global_step": 120, "loss_scale": 2.5}, found)
        with Alone(path, extra=["--drop", "^global"]) as mount:
            check("global_step" not in extra_state(mount.path), "--drop")
        with Alone(path, extra=KEEP) as mount:
            check(extra_state(mount.path)["optimizer.param_groups.0.lr"] == 0.5, "kept")
    states = {0: {"exp_avg": W, "step": Tensor([[1]])}}
    for what, before, rest in (
            ("the tutorial of PyTorch", "model_state_dict.", {
                "model_state_dict": {"lm_head.weight": W, "model.norm.weight": W},
                "optimizer_state_dict": {"state": states}, "epoch": 3}),
            ("Lightning", "state_dict.model.", {
                "state_dict": {"model.lm_head.weight": W, "model.model.norm.weight": W},
                "optimizer_states": [{"state": states}], "epoch": 3,
                "lr_schedulers": [{"last_epoch": 2, "rate": W}],
                "callbacks": {"Best": {"score": W}}, "loops": {"fit": {"x": 1}}})):
        with tap.test(f"--unwrap of the form of {what}"):
            path = os.path.join(directory, "state.pt")
            torch_zip(path, rest)
            names = {"lm_head.weight", "model.norm.weight"}
            with Alone(path) as mount:
                check(set(model_hashes(mount.path)) == {before + n for n in names}, "names")
            with Alone(path, extra=["--unwrap"]) as mount:
                check(set(model_hashes(mount.path)) == names, model_hashes(mount.path))
                found = extra_state(mount.path)
                check(found["epoch"] == 3 and "lr_schedulers" not in rest or
                      found["lr_schedulers.0.last_epoch"] == 2, found)
            with Alone(path, extra=["--unwrap", *KEEP]) as mount:
                found = model_hashes(mount.path)
                check(names < set(found) and any(n.endswith(".exp_avg") for n in found), found)
    with tap.test("--unwrap says that it does nothing"):
        torch_zip(path, {"loops": {"w": W}, "callbacks": {"w": W}})
        with Alone(path, extra=["--unwrap"]) as mount:
            check(set(model_hashes(mount.path)) == {"loops.w", "callbacks.w"}, "names")
            demand(mount.log(), "--unwrap changes no name")
    with tap.test("values that are none"), \
            Alone(os.path.join(DATA, "namespace-2.15.pt")) as mount:
        demand(mount.log(), "no tensors are not shown, such as args")
        check("size" in extra_state(mount.path), "no size")
    with tap.test("arrays of numpy"), \
            Alone(os.path.join(DATA, "arrays-2.15.pt")) as mount:
        demand(mount.log(), "1 tensor that is no plain array is left out, such as model.w (an "
               "array of numpy)")
        check(list(model_hashes(mount.path)) == ["model.bias"], model_hashes(mount.path))
    with tap.test("tensors of another make"), \
            Alone(os.path.join(DATA, "odd-2.15.pt")) as mount:
        demand(mount.log(), "2 tensors that are no plain arrays are left out", "sparse")


W = Tensor([[1, 2, 3], [4, 5, 6]])


class Colour(enum.Enum):
    RED = "red"
    TWO = 2


class Wide(dict):
    pass


class Long(list):
    pass


class Named:
    """NEWOBJ_EX: an instance that is made with arguments that have names."""

    def __new__(cls, *_, **__):
        return object.__new__(cls)

    def __getnewargs_ex__(self):
        return (1,), {"b": 2}


class Version(str):
    pass


def values_of_all_sorts():
    """Values that Python pickles as calls, none of them a tensor."""
    child, parent = argparse.Namespace(), argparse.Namespace()
    child.parent, parent.child = parent, child
    partial = functools.partial(print, 1, end="")
    return {
        "enum of a text": Colour.RED, "enum of a number": Colour.TWO, "version": Version("2.15"),
        "partial": partial, "called": Call(partial, 2), "member": Call(getattr, Colour, "RED"),
        "generator": random.Random(3), "decimal": decimal.Decimal("1.5"), "uuid": uuid.uuid4(),
        "zone": datetime.timezone(datetime.timedelta(hours=8)), "pattern": re.compile("a+"),
        "fraction": fractions.Fraction(1, 3), "dictionary": Wide(a=1), "list": Long([1, 2]),
        "names": Named(), "method": "abc".upper, "large": 1 << 3000, "bytes": bytearray(b"x"),
        "each other": parent, "by BUILD": Call(Function("some.where", "Made"), 1, state={"a": [2]}),
        "chain": collections.ChainMap({"a": 1}), "set": {Colour.RED},
    }


def shown_of(path, directory, *words):
    to = os.path.join(directory, "out")
    shutil.rmtree(to, True)
    got = good("export", *words, path, to)
    return values_of_model(to), got.err


def run_calls(tap, directory):
    path = os.path.join(directory, "calls.pt")
    wanted = {"w": ("F32", [2, 3], W.data)}
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        with tap.test(f"calls that make values without tensors, protocol {protocol}"):
            for what, value in values_of_all_sorts().items():
                torch_zip(path, {"w": W, "x": value, "y": {"z": [value]}}, protocol)
                found, said = shown_of(path, directory)
                check({n: (t, list(d), b) for n, (t, d, b) in found.items()} == wanted, what)
                check(": warning: " not in said, f"{what}: {said}")
    made = Function("some.where", "make")
    one = Tensor([[7, 8]])
    with tap.test("calls with tensors are refused by name"):
        for what, value in (("argument", Call(made, 1, one)),
                            ("list", Call(made, [[{"a": (one,)}]])),
                            ("by BUILD", Call(made, state={"a": one})),
                            ("partial", functools.partial(print, one)),
                            ("called", Call(Call(made, 1), one)),
                            ("other framework's", Tensor([[7, 8]], rebuild=made))):
            torch_zip(path, {"w": W, "some": {"where": value}})
            no_good(path, "some.where has tensors, but is an object of ",
                    "which is not known: --drop leaves it out")
            found, _ = shown_of(path, directory, "--drop", "^some")
            check(list(found) == ["w"], f"{what}: {list(found)}")
    with tap.test("objects with tensors are left out, and the log says so"):
        for value, of in ((Wide(a=one), "Wide"), (Long([one]), "Long"),
                          (argparse.Namespace(a=[one]), "argparse.Namespace"),
                          (collections.deque([one]), "collections.deque")):
            torch_zip(path, {"w": W, "some": value})
            found, said = shown_of(path, directory)
            demand(said, "1 tensor that is no plain array is left out, such as some (an object of",
                   of)
            check(list(found) == ["w"], list(found))
    with tap.test("tensors without a name of their own are left out, and the rest is shown"):
        again = {"a": one}
        again["self"], again["list"] = again, [one]
        again["list"].append(again["list"])
        torch_zip(path, {"w": W, "some": again})
        found, said = shown_of(path, directory)
        check(sorted(found) == ["some.a", "some.list.0", "w"] and ": warning: " not in said,
              f"{list(found)} {said}")
        for value, name, why in (
                ({("x", 1): one}, "some.?", "its key is not a string"),
                ({2.5: {"a": [one]}}, "some.?.a.0", "its key is not a string"),
                ({"a.b": one, "a": {"b": one}}, "some.a.b", "another value has its name"),
                ({1: one, "1": one}, "some.1", "another value has its name"),
                ({"a\0": one}, "some.?", "its name is not UTF-8"),
                ({"a" * 4090: {"bcde": one}}, "some.aaa", "its name has more than 4096 bytes")):
            torch_zip(path, {"w": W, "some": value})
            no_good(path, f": {name}", f" is a tensor that cannot be shown ({why}): "
                    "--drop leaves it out")
            check("damaged" not in said, said)
            for words in ("--drop", "^some"), ("--only", "^w"):
                found, said = shown_of(path, directory, *words)
                check(list(found) == ["w"] and ": warning: " not in said, f"{list(found)} {said}")
    with tap.test("what only an attack calls is refused"):
        for call in (Call(exec, "1"), Call(eval, "1"), Call(open, "/etc/passwd"),
                     Call(subprocess.check_output, ["true"]), Call(os.system, "true")):
            torch_zip(path, {"w": W, "x": call})
            no_good(path, call.function.__name__, "which weights never need")


def run_npu(tap, directory):
    """torch_npu adds a format of the device to what torch writes of a tensor."""
    npu = Function("torch_npu.utils.storage", "_rebuild_npu_tensor")
    form = Function("torch_npu.npu._format", "Format")
    parameter = Function("torch._utils", "_rebuild_parameter")
    path = os.path.join(directory, "npu.pt")
    for what, more in (("ND", (2,)), ("NZ", (29,)), ("none", (-1,)), ("enum", (Call(form, 29),)),
                       ("bool", (False,)), ("absent", ())):
        with tap.test(f"a tensor of an NPU, its format {what}"):
            one = Tensor([[1, 2], [3, 4], [5, 6]], rebuild=npu, more=more)
            torch_zip(path, {"model": {"a": one, "b": Call(parameter, one, True,
                                                          collections.OrderedDict())}})
            found, _ = shown_of(path, directory)
            for name in "model.a", "model.b":
                kind, dims, data = found[name]
                check((kind, list(dims), data) == ("F32", [3, 2], one.data), name)


def run_beside(tap, directory):
    own = os.path.join(directory, "beside")
    os.mkdir(own)
    file = os.path.join(own, "model.pth")
    shutil.copyfile(os.path.join(DATA, "flat-2.15.pt"), file)
    with tap.test("written beside the file, not where it is"):
        check(run("export", file, os.path.join(own, "out")).status == GOOD, "refused")
        demand(run("export", file, own).err, "is SOURCE or in it")
    with tap.test("mounted beside the file"), \
            Mounted(file, described=True, mountpoint=os.path.join(own, "mnt")) as mount:
        same(model_hashes(mount.path), wanted_of(expected()["flat-2.15"]), "flat")


def beside_safetensors(root):
    """As transformers, which looks for safetensors by these names alone."""
    of_torch = os.path.join(root, "pytorch_model.bin")
    os.mkdir(root)
    torch_zip(of_torch, {"of.torch": Tensor([[1]])})
    for name, shadows in (("adapter_model.safetensors", False), ("value_head.safetensors", False),
                          ("model.fp16.safetensors", False), ("model.safetensors", True)):
        path = os.path.join(root, name)
        write(path, safetensors_bytes({"other": ("F32", (1,), bytes(4))}))
        with Alone(root) as mount:
            found = [n for file in os.listdir(mount.path)
                     if file.endswith(".safetensors") and (shadows or file != name)
                     for n in Tensors(content(os.path.join(mount.path, file))).values()]
            check(found == ["other" if shadows else "of.torch"], (name, found))
        os.unlink(path)


def twice_in_parts(root):
    parts = [f"pytorch_model-0000{n}-of-00002.bin" for n in (1, 2)]
    place = os.path.join(root, "pytorch_model.bin.index.json")
    os.mkdir(root)
    for part, first in zip(parts, (1, 5)):
        torch_zip(os.path.join(root, part), {
            f"only.{first}": Tensor([[first, 0]]), "both": Tensor([[first, 2]]),
            # Another order, or another shape, is another tensor.
            "sizes": Tensor([[first]] * first)})
    no_good(root, "may be a part of a model, and no pytorch_model.bin.index.json")
    demand(run("plan", os.path.join(root, parts[0])).err, "it is one part of a model")
    for both, sizes in (0, 1), (1, 0), (1, 1):
        write(place, json.dumps({"weight_map": {
            "only.1": parts[0], "only.5": parts[1],
            "both": parts[both], "sizes": parts[sizes]}}).encode())
        with Alone(root) as mount:
            _, shown = read_model(mount.path)
            found = {n: v for part in shown.values() for n, v in part.values().items()}
            check(found["both"][2] == struct.pack("<2f", (1, 5)[both], 2), found["both"])
            check(found["sizes"][2] == struct.pack("<f", (1, 5)[sizes]) * (1, 5)[sizes],
                  found["sizes"])
            check(sorted(found) == ["both", "only.1", "only.5", "sizes"], sorted(found))
            demand(mount.log(), "2 copies of tensors are in other parts than the map says")
        check({t["name"] for t in run_json("ls", root)["tensors"]} == set(found), "ls")
        check(len(run_json("ls", root)["tensors"]) == 4, "ls lists a copy")
    write(place, json.dumps({"weight_map": {
        "only.1": parts[0], "only.5": parts[1], "both": parts[1]}}).encode())
    no_good(root, "sizes is in two of its files", *parts)


def whole_and_in_parts(model, directory):
    """A model in one file and in parts: of two steps it is refused."""
    root = os.path.join(directory, "whole-and-parts")
    shutil.copytree(model, root, copy_function=shutil.copyfile)
    os.chmod(root, 0o755)
    place = os.path.join(root, "pytorch_model.bin.index.json")
    one = os.path.join(root, "pytorch_model.bin")
    wanted = {n: Tensor([[1, n], [2, 3]]) for n in range(3)}
    parts = sorted(set(json.loads(content(place))["weight_map"].values()))
    names = ["a", "b", "c"]
    write(place, json.dumps({"weight_map": {n: parts[i > 1] for i, n in enumerate(names)}})
          .encode())
    torch_zip(os.path.join(root, parts[0]), {"a": wanted[0], "b": wanted[1], "c": wanted[0]})
    torch_zip(os.path.join(root, parts[1]), {"c": wanted[2]})
    both = dict(zip(names, wanted.values()))
    torch_zip(one, both)
    with Alone(root, extra=["--log-level", "info"]) as mount:
        demand(mount.log(), "pytorch_model.bin is taken, as transformers does", "the same tensors")
    torch_zip(one, {**both, "c": wanted[0]})
    no_good(root, "there are two models", "c has other values in pytorch_model.bin than",
            parts[1], "as SOURCE")
    for source, value in (one, wanted[0]), (place, wanted[2]):
        found, _ = shown_of(source, directory)
        check(found["c"][2] == value.data, source)


def run_directories(tap, directory):
    model = os.path.join(DATA, "hf-bin-parts")
    with tap.test("what lies beside the parts"), Alone(model) as mount:
        check(content(os.path.join(mount.path, "config.json")) ==
              content(os.path.join(model, "config.json")), "config.json differs")
    with tap.test("one storage has two names"):
        said = run_json("ls", os.path.join(DATA, "hf-bin"))
        check([t["shares"] for t in said["tensors"] if "shares" in t] ==
              ["model.embed_tokens.weight"], "other tensors share")
    case = expected()["hyperparallel-torch"]
    with tap.test("HyperParallel's checkpoint, whose .safetensors are zips"), \
            Alone(os.path.join(DATA, case["path"]), extra=KEEP) as mount:
        same(model_hashes(mount.path), wanted_of(case), "its tensors")
        check(extra_state(mount.path).get("step") is not None, "no step")
    root = os.path.join(directory, "parts")
    shutil.copytree(model, root, copy_function=shutil.copyfile)
    os.chmod(root, 0o755)
    first = os.path.join(root, "pytorch_model-00001-of-00002.bin")
    second = os.path.join(root, "pytorch_model-00002-of-00002.bin")
    with tap.test("a part that the map does not know so"):
        data = content(first)
        write(first, content(second))
        write(second, data)
        no_good(root, "the map of its parts says")
        demand(run_json("ls", root, status=NO)["reason"], "the map of its parts says")
    with tap.test("pytorch_model.bin beside safetensors"):
        beside_safetensors(os.path.join(directory, "beside-safetensors"))
    with tap.test("a tensor in two parts: the map says which one is read"):
        twice_in_parts(os.path.join(directory, "twice"))
    with tap.test("a model in one file and in parts"):
        whole_and_in_parts(model, directory)
    with tap.test("a part that is missing"):
        os.unlink(second)
        no_good(root, os.path.basename(second))
    with tap.test("a map of another name"):
        other = os.path.join(directory, "other")
        shutil.copytree(model, other, copy_function=shutil.copyfile)
        os.chmod(other, 0o755)
        at = os.path.join(other, "diffusion_pytorch_model.bin.index.json")
        os.rename(os.path.join(other, "pytorch_model.bin.index.json"), at)
        for source in other, at:
            with Alone(source) as mount:
                same(model_hashes(mount.path), wanted_of(expected()["hf-bin-parts"]), source)
    for suffix, map_name in (("bin", "pytorch_model.bin.index.json"),
                             ("safetensors", "model.safetensors.index.json")):
        for stray in "recipe_state.pt", "trainer_state.pt", "ema.pt", "ema.safetensors":
            with tap.test(f"parts in .{suffix} without their map, and {stray}"), \
                    tempfile.TemporaryDirectory(dir=directory) as own:
                parts = [os.path.join(own, f"ft-model-0000{n}-of-00002.{suffix}")
                         for n in (1, 2)]
                for path in *parts, os.path.join(own, stray):
                    if path.endswith(".safetensors"):
                        write(path, safetensors_bytes({"w": ("F32", (1,), bytes(4))}))
                    else:
                        torch_zip(path, {"opt": {"state": {0: {"exp_avg": W}}}})
                write(os.path.join(own, "config.json"), b"{}")
                no_good(own, f"{os.path.basename(parts[0])} may be a part of a model, "
                        f"and no {map_name} is beside it")
    for name in "recipe_state.pt", "trainer_state.pt", "random_states_0.pt", "optim_state.pth":
        with tap.test(f"{name} alone is no model"), \
                tempfile.TemporaryDirectory(dir=directory) as own:
            torch_zip(os.path.join(own, name), {"opt": {"state": {0: {"exp_avg": W}}}})
            expect_failure(own)
            with Alone(os.path.join(own, name)):
                pass
    with tap.test("several files: one has to be named"):
        several = os.path.join(directory, "several")
        os.mkdir(several)
        for name in "flat-2.15.pt", "nested-2.15.pt":
            shutil.copyfile(os.path.join(DATA, name), os.path.join(several, name))
        _, said = expect_failure(several)
        demand(said, "give one of them as SOURCE")


def run_ranks(tap, directory):
    case = expected()["flat-2.15"]
    layout = {"dev_matrix": [2], "tensor_map": [0, -1]}
    items = {"layers.0.up.weight": [20, 12], "layers.1.down.weight": [12, 20]}
    strategy = write(os.path.join(directory, "dst.json"), json.dumps({
        "parallel_layout_item": {f"0-{n}": layout for n in items},
        "parallel_strategy_item": {"MatMul": {"stage": 0}}}).encode())
    with tap.test("safetensors for ranks"), \
            Mounted(source_of(case), dst_strategy=strategy,
                    extra=["--format", "safetensors", "--unlisted", "drop"]) as mount:
        _, parts = read_model_of(source_of(case), directory)
        for rank in range(2):
            (name,) = os.listdir(os.path.join(mount.path, f"rank_{rank}"))
            found = Tensors(content(os.path.join(mount.path, f"rank_{rank}", name))).values()
            for tensor, (rows, columns) in items.items():
                size = len(parts[tensor][2]) // 2
                check(found[tensor][1] == (rows // 2, columns) or
                      list(found[tensor][1]) == [rows // 2, columns], found[tensor][:2])
                check(found[tensor][2] == parts[tensor][2][rank * size:(rank + 1) * size],
                      f"{tensor} of rank {rank}")


def read_model_of(source, directory):
    to = os.path.join(directory, "whole")
    check(run("export", *KEEP, source, to).status == GOOD, "no export")
    index, parts = read_model(to)
    return index, {n: v for part in parts.values() for n, v in part.values().items()}


def main():
    require_mount()
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        run_genuine(tap)
        run_refused(tap, directory)
        run_values(tap, directory)
        run_calls(tap, directory)
        run_npu(tap, directory)
        run_beside(tap, directory)
        run_directories(tap, directory)
        run_ranks(tap, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
