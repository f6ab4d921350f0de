#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Families of models in distributed checkpoints of Megatron-Bridge, and in trees of
MindSpeed-LLM, both ways.

Genuine models (data/model_names/bridge.*), and random ones: layers of several kinds, norms
that are one less, layers of prediction.  A second reading of the tables makes the same.
"""

import json
import math
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import packed  # noqa: E402
import rule_tables  # noqa: E402
from demands import check, content, write  # noqa: E402
from megatron_files import read_step, same_files  # noqa: E402
from megatron_trees import step_of  # noqa: E402
from rsh_cli import GOOD, INPUT, good, refused, run  # noqa: E402
from rsh_mount import Alone, Tap, require_mount  # noqa: E402
from run_seed import half_if_sanitized, random_bytes, seed_and_cases  # noqa: E402
from safetensors_format import safetensors_bytes, values_in  # noqa: E402
from shown_model import (changed_model, hashes, model_hashes, same,  # noqa: E402
                         without_copies)

CASES = packed.expected("model_names", ("bridge.json",))
RANK = ["--dst-strategy", "none", "--format", "safetensors"]


def exported(directory, *words):
    to = tempfile.mkdtemp(dir=directory)
    good("export", *words, os.path.join(to, "to"))
    return os.path.join(to, "to")


def refuse(source, *parts, extra=()):
    refused(run("plan", *extra, source), INPUT, *parts)


def flat(config):
    """The keys of text_config stand at the top too, as in `let`."""
    return {**config.get("text_config", {}), **config}


def one(tap, directory, name, case, left, right):
    made, table = case["to"], case["table"]
    with tap.test(f"{name}: to Megatron"):
        to = exported(directory, "--convert", table, "--from", "hf", *RANK, left)
        values = values_in(os.path.join(to, "rank_0"))
        same(hashes(values), made["right"], name)
        config = flat(json.loads(content(os.path.join(left, "config.json"))))
        read = rule_tables.load_table(table)
        same(hashes(read.convert(values_in(left), config, "hf")), made["right"], "second reading")
        same(without_copies(hashes(read.convert(values, config, "mindspore"))), made["left"],
             "second reading, back")
    with tap.test(f"{name}: to Hugging Face, and as a distributed checkpoint"):
        words = ["--convert", table, "--config", left]
        with Alone(right, extra=words) as mount:
            same(without_copies(model_hashes(mount.path)), made["left"], name)
        dcp = exported(directory, "--convert", table, "--from", "hf", "--format", "dcp", left)
        same(without_copies(model_hashes(exported(directory, *words, dcp))), made["left"], "dcp")


def run_trees(tap, trees):
    """What is shown for a mesh is file by file what MindSpeed-LLM's converter writes."""
    for name, case in CASES.items():
        if not name.startswith("mindspeed-"):
            continue
        tensor = 1 if "qwen" in name else 2
        words = ["--convert", case["table"], "--from", "hf", "--format", "megatron", "--prefix",
                 "iter_0000001", "--dst-mesh", f"tp={tensor},ep=2"]
        left, right = (os.path.join(trees, case["sides"][side]) for side in ("left", "right"))
        with tap.test(f"{name}: as the tree"):
            if tensor == 1:
                refuse(left, "A_log: nothing says how it is divided over ranks", extra=words)
                continue
            with Alone(left, extra=words) as mount:
                same_files(read_step(step_of(mount.path)), read_step(step_of(right)), name)


# ---- random models ----

class Drawn:
    """A model with the names of a table's left side: each layer has linear attention or
    another one, and experts or an MLP, where the table has both."""

    def __init__(self, seed):
        numbers = self.numbers = random.Random(seed)
        self.name = numbers.choice(sorted({case["table"] for case in CASES.values()}))
        self.table = rule_tables.load_table(self.name)
        pick = numbers.choice
        self.layers, self.kind = pick((1, 2, 3, 11)), pick(("F32", "BF16", "F16"))
        groups, keys = pick((1, 2, 3)), pick((1, 2, 3))
        self.config = {
            "num_hidden_layers": self.layers, "vocab_size": 7, "n_routed_experts": pick((1, 3, 12)),
            "q_lora_rank": pick((1, 2, 3)), "vision_config": {"num_heads": pick((1, 2, 3))},
            "num_key_value_heads": groups, "num_attention_heads": groups * pick((1, 2)),
            "linear_num_key_heads": keys, "linear_num_value_heads": keys * pick((1, 2, 3)),
            "linear_key_head_dim": pick((1, 2, 3)), "linear_value_head_dim": pick((1, 2, 3))}
        self.config["num_experts"] = self.config["n_routed_experts"]
        self.config["layer_types"] = [pick(("sliding_attention", "full_attention"))
                                      for _ in range(self.layers)]
        self.config["attention_k_eq_v"] = pick((False, True))
        if pick((False, True)):
            self.config["num_global_key_value_heads"] = \
                pick((1, groups, self.config["num_attention_heads"]))
        self.known = self.table.numbers(self.config)
        self.tensors = {}
        for rule in self.table.rules:
            if not any(tensor.name.letters for tensor in rule.sides["hf"]):
                self.add(rule, {})
        for layer in range(self.layers):
            kinds = pick(("linear_attn.", "self_attn.")), pick(("mlp.gate_proj", "mlp.gate."))
            for rule in self.table.rules:
                name = rule.sides["hf"][0].name
                if "l" in name.letters and not name.texts[0].startswith("mtp."):
                    self.of_layer(rule, layer, kinds)
        for left, _ in self.table.rests:
            self.put(left + ".part.weight", (2, 3))

    def of_layer(self, rule, layer, kinds):
        """Adds the tensors of a rule, unless the layer is of another kind."""
        begin, name = (rule.sides["hf"][0].name.texts[i] for i in (0, -1))
        if ".visual." in begin:
            return self.add(rule, {"l": layer})
        has = {text for text in ("linear_attn.", "self_attn.") if self.has(text)}
        attends = kinds[0] if kinds[0] in has else next(iter(has))
        thinks = kinds[1] if self.has(kinds[1]) else \
            "mlp.gate." if self.has("mlp.gate.") else "mlp.gate_proj"
        dense = any(part in name for part in ("mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"))
        if any(text in name for text in has - {attends}) or (
                ".mlp." in name and dense != (thinks == "mlp.gate_proj")):
            return
        if rule.holds({"l": layer}, self.config) and (
                not rule.when or
                rule.when["hf"].fill({"l": layer}, self.known) in self.tensors):
            self.add(rule, {"l": layer})
        return None

    def has(self, text):
        return any(text in t.name.texts[-1] for rule in self.table.rules
                   for t in rule.sides["hf"])

    def add(self, rule, numbers):
        letters = {x for side in rule.sides.values() for t in side for x in t.letters()}
        sizes = {**{x: self.numbers.randint(1, 4) for x in sorted(letters)}, **self.known}
        shape = self.numbers.randint(1, 5), self.numbers.randint(1, 5)
        for tensor in rule.sides["hf"]:
            for expert in range(sizes["e"] if "e" in tensor.name.letters else 1):
                name = tensor.name.fill({**numbers, "e": expert}, self.known)
                if name not in self.tensors:
                    self.put(name, tensor.shape(sizes) if tensor.dims is not None else shape)

    def put(self, name, shape):
        count = math.prod(shape)
        # No exponent is that of infinity.
        data = bytearray(random_bytes(self.numbers, rule_tables.BYTES[self.kind] * count))
        for at in range(rule_tables.BYTES[self.kind] - 1, len(data), rule_tables.BYTES[self.kind]):
            data[at] &= 0xbf
        self.tensors[name] = (self.kind, tuple(shape), bytes(data))

    def save(self, directory, tensors):
        root = tempfile.mkdtemp(dir=directory)
        write(os.path.join(root, "config.json"), json.dumps(self.config).encode())
        write(os.path.join(root, "model.safetensors"), safetensors_bytes(tensors))
        return root


def run_random(tap, directory, seed, cases):
    for case in half_if_sanitized(range(cases)):
        model = Drawn(seed + case)
        with tap.test(f"random {model.name}, {model.layers} layers, --seed {seed + case} "
                      "--cases 1"), tempfile.TemporaryDirectory(dir=directory) as own:
            made = model.table.convert(model.tensors, model.config, "hf")
            back = model.table.convert(made, model.config, "mindspore")
            check(set(back) == set(model.tensors), "the second reading")
            words = ["--convert", model.name, "--from", "hf", *RANK]
            to = exported(own, *words, model.save(own, model.tensors))
            same(hashes(values_in(os.path.join(to, "rank_0"))), hashes(made), "to Megatron")
            same(model_hashes(exported(own, "--convert", model.name, "--from", "mindspore",
                                       model.save(own, made))), hashes(back), "back")


def run_refused(tap, trees, directory):
    left = os.path.join(trees, "bridge-qwen3_5", "left")
    words = ["--convert", "megatron-bridge-qwen3_5", "--from", "hf", *RANK]
    norm = next(n for n in values_in(left) if n.endswith("linear_attn.norm.weight"))
    with tap.test("1 is added to no other type"):
        refuse(left, "self_attention.out_norm.weight", "1 is added to its elements",
               "be done beside a change of their type", extra=[*words, "--cast", "float32"])
        check(run("plan", *words, "--cast", "bfloat16", left).status == GOOD, "the same type")
    with tap.test("a state of a weight to which 1 is added"):
        root = changed_model(directory, left, lambda v: v.update(
            {"optimizer.state.exp_avg." + norm: v[norm]}))
        refuse(root, f"optimizer.state.exp_avg.{norm} is the state of a weight to which 1 is "
               "added, and is not converted: --drop leaves it out", extra=words)
        good("plan", *words, "--drop", "optimizer", root)
    with tap.test("a layer of no kind"):
        root = changed_model(directory, left, lambda v: [
            v.pop(n) for n in list(v) if norm.partition("linear_attn")[0] in n and
            "layernorm" not in n])
        refuse(root, "names tensor", "input_layernorm.weight", extra=words)
    gemma = os.path.join(trees, "bridge-gemma4_moe", "left")
    words = ["--convert", "megatron-bridge-gemma4_moe", "--from", "hf", *RANK]
    with tap.test("config.json says of which kind a layer is"):
        for change, said in (
                (lambda c: c.pop("layer_types"), 'does not say what "layer_types" is there'),
                (lambda c: c["layer_types"].pop(), 'does not say what "layer_types" is there'),
                (lambda c: c.pop("attention_k_eq_v"), 'say what "attention_k_eq_v" is there'),
                (lambda c: c.update(attention_k_eq_v=False), "v_proj.weight is missing")):
            root = changed_model(directory, gemma, lambda v: None)
            path = os.path.join(root, "config.json")
            config = json.loads(content(path))
            change(config)
            write(path, json.dumps(config).encode())
            refuse(root, said, extra=words)
        key = next(n for n in values_in(gemma) if n.endswith("layers.1.self_attn.k_proj.weight"))
        root = changed_model(directory, gemma, lambda v: v.update(
            {key.replace("k_proj", "v_proj"): v[key]}))
        refuse(root, "names tensor model.layers.1.self_attn.v_proj.weight", extra=words)
    with tap.test("a table of another family"):
        refuse(left, "no rule of", "megatron-bridge-qwen3_next.rules names tensor",
               extra=["--convert", "megatron-bridge-qwen3_next", "--from", "hf", *RANK])


def main():
    require_mount()
    words = seed_and_cases(24)
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        trees = packed.unpack("model_names", os.path.join(directory, "trees"), ("bridge.tar.xz",))
        for name, case in CASES.items():
            one(tap, directory, name, case,
                *(os.path.join(trees, case["sides"][side]) for side in ("left", "right")))
        run_trees(tap, trees)
        run_random(tap, directory, words.seed, words.cases)
        run_refused(tap, trees, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
