#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One model in two forms of names: files of transformers 4 and 5, torchtitan, Meta, names
with the words of wrappers, and adapters of experts.

Genuine models in both forms, and random ones that a second reading of the tables converts.
"""

import json
import math
import os
import random
import shutil
import sys
import tempfile

HERE = os.environ.get("srcdir", ".")
sys.path.insert(0, os.path.join(HERE, "lib"))

import packed  # noqa: E402
import rule_tables  # noqa: E402
from adapters import PREFIX  # noqa: E402
from demands import check, content, demand, write  # noqa: E402
from rsh_cli import GOOD, INPUT, good, refused, run, run_json  # noqa: E402
from rsh_mount import Alone, Tap, require_mount  # noqa: E402
from run_seed import half_if_sanitized, random_bytes, seed_and_cases  # noqa: E402
from safetensors_format import safetensors_bytes, values_in  # noqa: E402
from shown_model import changed_model, hashes, model_hashes, same  # noqa: E402
from tuned_experts import Tuned  # noqa: E402

CASES = packed.expected("model_names")
OTHER = {"left": "right", "right": "left"}
FROM = {"left": "hf", "right": "mindspore"}
A_TEST = 6


def words_of(case, side, trees):
    """The options that convert a side of a genuine model."""
    words = ["--unwrap"] if case["table"] == "unwrap" else ["--convert", case["table"]]
    if case.get("config"):
        words += ["--config", os.path.join(trees, case["config"])]
    words += ["--format", "peft"] if case.get("adapter") else []
    return words + (["--from", FROM[side]] if case.get("from") else [])


def exported(directory, source, *words):
    """(hashes, config.json, what was said); the directory of the output goes."""
    to = tempfile.mkdtemp(dir=directory)
    os.rmdir(to)
    got = good("export", *words, source, to)
    config = next((os.path.join(to, n) for n in os.listdir(to) if n.endswith("config.json")), "")
    found = (hashes(values_in(to)) if "peft" in words else model_hashes(to),
             os.path.exists(config) and json.loads(content(config)))
    shutil.rmtree(to)
    return *found, got.err


def refuse(source, *parts, extra=()):
    refused(run("plan", *extra, source), INPUT, *parts)


# ---- genuine models ----

def run_genuine(tap, trees, directory):
    for name, case in CASES.items():
        for side, path in case["sides"].items():
            source = os.path.join(trees, path)
            words = words_of(case, side, trees)
            if case.get("refuse"):
                with tap.test(f"{name}: refused"):
                    refuse(source, "module.a._orig_mod.weight and module.a.weight would both be "
                           "a.weight without the words of wrappers", extra=words)
                continue
            if OTHER[side] not in case["to"]:
                continue
            with tap.test(f"{name}: {side}"):
                found, config, _ = exported(directory, source, *words)
                same(found, case["to"][OTHER[side]], name)
                if case.get("adapter"):
                    wanted = case.get("says", {}).get(OTHER[side], {})
                    check({k: config[k] for k in wanted} == wanted, config)
                    continue
                given = os.path.join(trees, case.get("config") or path)
                given = given if given.endswith(".json") else os.path.join(given, "config.json")
                if os.path.exists(given):
                    check(config and config["architectures"] ==
                          json.loads(content(given))["architectures"], config)
    with tap.test("ls says which form a model has"):
        note = "note: it has names of transformers {}: --convert hf5 shows names of transformers {}"
        for name in ("mixtral", "llava"):
            for side, other in (("left", 4), ("right", 5)):
                said = run("ls", os.path.join(trees, name, side)).out
                demand(said, note.format(other, 9 - other))
        for name in ("gpt_oss/left", "titan-llama3/left"):
            check("note: it has" not in run("ls", os.path.join(trees, name)).out, name)
    with tap.test("transformers 4 wants num_experts"):
        source = os.path.join(trees, "qwen3_moe", "right")
        config = json.loads(content(os.path.join(source, "config.json")))
        check("num_experts" not in config, config)
        shown = exported(directory, source, "--convert", "hf5")[1]
        check(shown.pop("num_experts") == config["num_local_experts"] and
              set(config) <= set(shown), shown)
        left = os.path.join(trees, "qwen3_moe", "left")
        check(exported(directory, left, "--convert", "hf5")[1] ==
              json.loads(content(os.path.join(left, "config.json"))), "the other side")
    for name, side in (("qwen3_moe", "right"), ("llava", "left"), ("wrapped-ddp-compile", "left"),
                       ("titan-llama3", "right")):
        case = CASES[name]
        with tap.test(f"{name}: through a mount"), \
                Alone(os.path.join(trees, case["sides"][side]),
                      extra=words_of(case, side, trees)) as mount:
            same(model_hashes(mount.path), case["to"][OTHER[side]], name)
    with tap.test("as a distributed checkpoint, and back"):
        left, dcp = os.path.join(trees, "titan-llama3", "left"), os.path.join(directory, "dcp")
        good("export", "--convert", "titan", "--format", "dcp", left, dcp)
        found = exported(directory, dcp, "--convert", "titan", "--config", left)[0]
        same(found, CASES["titan-llama3"]["to"]["left"], "titan")


# ---- random models ----

class Drawn:
    """A model with the names of a table's left side."""

    def __init__(self, seed):
        numbers = self.numbers = random.Random(seed)
        names = sorted(n[:-len(".rules")] for n in os.listdir(rule_tables.TABLES))
        self.name = numbers.choice([n for n in names if n.startswith("hf5-")])
        self.table = rule_tables.load_table(self.name)
        self.config = {"architectures": [numbers.choice(self.table.suits)],
                       "vision_config": {"num_attention_heads": 2}}
        self.sizes = {"two": 2, "n": 2, "e": numbers.choice((1, 2, 3, 12))}
        key = numbers.choice(("num_experts", "num_local_experts", "n_routed_experts"))
        if "e" in self.table.lets:
            self.config[key] = self.sizes["e"]
        self.tensors = {}
        for layer in range(numbers.choice((1, 2, 11))):
            if numbers.random() < 0.7:
                self.layer(layer)
        rights = [right for _, right in self.table.rests]
        for i, rest in enumerate(self.table.rests):
            # Back, the first line with a prefix decides.
            if rest[1] in rights[:i]:
                continue
            for k in range(numbers.choice((0, 1, 2))):
                # With a name of its own: PREFIX.NAME would be a state of the weight NAME.
                name = f"{'part' if rest[0] else 'plain'}{k}.{numbers.choice('xyz')}"
                self.add(".".join(p for p in (rest[0], name) if p),
                         (numbers.randint(1, 4),) * numbers.choice((0, 1, 2)))
        self.add("never.vision.weight", (3,))  # "vision_config" wants one

    def add(self, name, shape):
        data = random_bytes(self.numbers, 4 * math.prod(shape))
        self.tensors[name] = ("F32", tuple(shape), data)

    def layer(self, layer):
        """All tensors of the rules of a layer; with two prefixes the first has them."""
        done = set()
        for rule in self.table.rules:
            if rule.text in done:
                continue
            done.add(rule.text)
            sizes = {**{letter: self.numbers.randint(1, 5) for tensor in rule.sides["hf"]
                        for letter in tensor.letters()}, **self.sizes}
            for tensor in rule.sides["hf"]:
                shape = tensor.shape(sizes) if tensor.dims is not None else (2, 3)
                for expert in range(self.sizes["e"] if "e" in tensor.name.letters else 1):
                    self.add(tensor.name.fill({"l": layer, "e": expert}, {}), shape)

    def save(self, directory, tensors):
        root = tempfile.mkdtemp(dir=directory)
        write(os.path.join(root, "config.json"), json.dumps(self.config).encode())
        write(os.path.join(root, "model.safetensors"), safetensors_bytes(tensors))
        return root


def one(seed, directory):
    model = Drawn(seed)
    sided = ["--from", "hf"], ["--from", "mindspore"]
    left = model.save(directory, model.tensors)
    made = model.table.convert(model.tensors, model.config, "hf")
    right = model.save(directory, made)
    back = model.table.convert(made, model.config, "mindspore")
    check(set(back) == set(model.tensors), f"{model.name}: the second reading")
    word = model.numbers.choice(("hf5", model.name))
    for source, wanted, side in ((left, made, 0), (right, back, 1)):
        # Without a tensor that one side alone has, names do not tell.
        told = rule_tables_sides(model, wanted if side else made)
        words = ["--convert", word] + ([] if told and model.numbers.random() < 0.7 else sided[side])
        same(exported(directory, source, *words)[0], hashes(wanted),
             f"{model.name}: {' '.join(words)}")


def rule_tables_sides(model, made):
    """Whether most names that differ are those of rules."""
    return set(made) != set(model.tensors) and any(
        ".experts." in name for name in model.tensors) and model.name not in (
            "hf5-qwen3_vl_moe", "hf5-gpt_oss", "hf5-granitemoe")


def run_random(tap, directory, seed, cases, what, one_case):
    for begin in range(0, cases, A_TEST):
        wrong = []
        for case in half_if_sanitized(range(begin, min(begin + A_TEST, cases))):
            with tempfile.TemporaryDirectory(dir=directory) as own:
                try:
                    one_case(seed + case, own)
                except AssertionError as error:
                    wrong.append(f"--seed {seed + case} --cases 1: {error}")
        tap.ok(not wrong, f"random {what} {begin} to {begin + A_TEST - 1}", "\n".join(wrong))


# ---- adapters ----

def one_adapter(seed, directory):
    tuned = Tuned(seed)
    base = tuned.save_model(os.path.join(directory, "base"))
    apart = tuned.save(directory, "apart", tuned.apart, target_modules=[
        "q_proj", *(tuned.parts[i] for i in tuned.adapted)])
    words = ["--convert", "hf5", "--format", "peft", "--config", base]
    wanted, shown = hashes(values_in(base)), os.path.join(directory, "shown")
    good("export", *words, apart, shown)
    same(hashes(values_in(shown)), hashes(tuned.fused), "fused")
    # Merged and then stacked is stacked and then merged.
    merged = exported(directory, base, "--lora", apart)[0]
    check(merged != wanted, "nothing is merged")
    stack, joined = (os.path.join(directory, name) for name in ("stack", "joined"))
    for words_of, to in ((["--convert", "hf5", base], stack), (["--lora", apart, base], joined)):
        good("export", *words_of, to)
    same(exported(directory, stack, "--lora", shown)[0],
         exported(directory, joined, "--convert", "hf5")[0], "the fused adapter, merged")
    back = os.path.join(directory, "back")
    good("export", *words, shown, back)
    check(set(values_in(back)) == set(tuned.apart), sorted(values_in(back)))
    same(exported(directory, base, "--lora", back)[0], merged, "back, merged")
    with Alone(apart, extra=words) as mount:
        same(hashes(values_in(mount.path)), hashes(tuned.fused), "through a mount")


def run_adapters(tap, trees, directory):
    place = os.path.join(trees, "adapter-qwen3_moe")
    words = ["--convert", "hf5", "--format", "peft", "--config", os.path.join(place, "base")]
    with tap.test("ls says what an adapter is"):
        for side, form in (("left", "apart"), ("right", "stacked")):
            said = run("ls", os.path.join(place, side)).out
            demand(said, "an adapter: ", f"it is an adapter of PEFT, and its experts are {form}: "
                   "--lora DIR merges it", "--convert hf5 --format peft --config MODEL shows")
            check("next:" not in said, said)
    with tap.test("an adapter is shown alone"):
        for extra in ([], ["--convert", "hf5"], [*words, "--lora-alpha", "4"]):
            got = run("plan", *extra, os.path.join(place, "left"))
            check(got.status != GOOD and "it is an adapter: --lora DIR merges it" in got.err,
                  repr(got))
    with tap.test("an export goes on if adapter_config.json is the same"):
        source, to = (os.path.join(directory, name) for name in ("own", "own-shown"))
        shutil.copytree(os.path.join(place, "left"), source)
        export = ["export", *words, source, to]
        for said in ("2 files of", "2 already existed"):
            demand(run(*export).out, said)
        config = os.path.join(source, "adapter_config.json")
        changed = json.loads(content(config))
        changed["lora_alpha"] += 1
        write(config, json.dumps(changed).encode())
        got = run(*export)
        check(got.status != GOOD and "is not of this conversion" in got.err, repr(got))
        check(run(*export, "--overwrite").status == GOOD, "--overwrite")
        shown = json.loads(content(os.path.join(to, "adapter_config.json")))
        check(shown["lora_alpha"] == changed["lora_alpha"], shown)
    expert = PREFIX + "model.layers.0.mlp.experts."
    for what, side, change, said in (
            ("gate without up", "left", lambda t, _: [t.pop(n) for n in list(t) if "up_proj" in n],
             "experts.0.up_proj.weight is missing"),
            ("half an adapter", "left", lambda t, _: t.pop(expert + "1.up_proj.lora_B.weight"),
             "1.up_proj.lora_B.weight is missing"),
            ("ranks that differ", "left", lambda t, c: (c.update(rank_pattern={"up_proj": 1}), [
                t.update({n: (t[n][0], (1, t[n][1][1]), t[n][2][:4 * t[n][1][1]])})
                if "_A" in n else t.update({n: (t[n][0], (t[n][1][0], 1), t[n][2][
                    :4 * t[n][1][0]])}) for n in list(t) if "up_proj" in n]),
             "become one, but have ranks 2 and 1"),
            ("scalings that differ", "left", lambda t, c: c.update(alpha_pattern={"up_proj": 9}),
             "become one, but have ranks 2 and 2 and scalings 2 and 4.5"),
            ("another rank", "left", lambda t, c: c.update(r=3), "has 2 rows, its other matrix has "
             "2 columns, and the rank in adapter_config.json is 3"),
            ("no parameters", "right", lambda t, c: c.update(target_parameters=[]),
             'is not the name of a parameter that "target_parameters" of'),
            ("another tensor", "left", lambda t, c: t.update({
                expert + "0.up_proj.lora_magnitude_vector": ("F32", (1,), b"\0\0\0\0")}),
             "lora_magnitude_vector is a part of an adapter that is not supported"),
            ("no prefix", "left", lambda t, c: t.update({"x": ("F32", (1,), b"\0\0\0\0")}),
             "x does not begin with base_model.model.")):
        with tap.test(f"an adapter that has no other form: {what}"):
            tensors = values_in(os.path.join(place, side))
            config = json.loads(content(os.path.join(place, side, "adapter_config.json")))
            change(tensors, config)
            with tempfile.TemporaryDirectory(dir=directory) as own:
                write(os.path.join(own, "adapter_model.safetensors"), safetensors_bytes(tensors))
                write(os.path.join(own, "adapter_config.json"), json.dumps(config).encode())
                refuse(own, said, extra=words)


# ---- two layouts under the same names ----

def vision_experts(directory, hidden, ffn, side, sizes=True):
    """Qwen3-VL-MoE with these sizes, as published or as transformers 5 saves it."""
    numbers = random.Random(hidden + ffn)
    root = tempfile.mkdtemp(dir=directory)
    values, turned = {}, {}
    for name, rows, columns in (("gate_up_proj", hidden, 2 * ffn), ("down_proj", ffn, hidden)):
        expert = [[numbers.randrange(1 << 16) for _ in range(columns)] for _ in range(rows)]
        for to, matrix in ((values, expert), (turned, list(zip(*expert)))):
            to["model.language_model.layers.0.mlp.experts." + name] = (
                "F16", (1, len(matrix), len(matrix[0])),
                b"".join(x.to_bytes(2, "little") for row in matrix for x in row))
    text = {"hidden_size": hidden, "moe_intermediate_size": ffn} if sizes else {}
    write(os.path.join(root, "config.json"), json.dumps(
        {"architectures": ["Qwen3VLMoeForConditionalGeneration"], "text_config": text}).encode())
    sides = (values, turned) if side == "left" else (turned, values)
    write(os.path.join(root, "model.safetensors"), safetensors_bytes(sides[0]))
    return root, hashes(sides[1])


def run_layouts(tap, trees, directory):
    hf5 = ["--convert", "hf5"]
    case = CASES["qwen3_vl_moe"]
    for side, other in OTHER.items():
        with tap.test(f"sizes say which layout the names hide: {side}"):
            source = os.path.join(trees, "qwen3_vl_moe", side)
            with Alone(source, extra=hf5) as mount:
                same(model_hashes(mount.path), case["to"][other], side)
            for hidden, ffn in ((4, 2), (2, 2), (4, 4), (6, 5), (4, 8)):
                root, wanted = vision_experts(directory, hidden, ffn, side)
                same(exported(directory, root, *hf5)[0], wanted, f"{side} {hidden} {ffn}")
                refuse(root, "_proj has shape", "is not what the rule says",
                       extra=[*hf5, "--from", FROM[other]])
            root, wanted = vision_experts(directory, 4, 3, side, sizes=False)
            refuse(root, "names and shapes of the tensors are those of both sides of", "--from hf "
                   "is the left one, --from mindspore the right one", extra=hf5)
            same(exported(directory, root, *hf5, "--from", FROM[side])[0], wanted, "--from")


# ---- what is refused ----

def without(trees, directory, case, change):
    """A copy of a genuine model with other tensors."""
    return changed_model(directory, os.path.join(trees, case), change)


def run_refused(tap, trees, directory):
    hf5 = ["--convert", "hf5"]
    left, right = (os.path.join(trees, "qwen3_moe", side) for side in ("left", "right"))
    expert = "model.layers.1.mlp.experts.{}.{}_proj.weight"
    for what, gone, words in (
            ("the last expert", [expert.format(2, p) for p in ("gate", "up", "down")],
             ["experts.2.gate_proj.weight is missing"]),
            ("an expert between", [expert.format(1, p) for p in ("gate", "up", "down")],
             ["experts.1.gate_proj.weight is missing"]),
            ("one half", [expert.format(0, "up")], ["experts.0.up_proj.weight is missing"])):
        with tap.test(f"without {what}"):
            root = without(trees, directory, "qwen3_moe/left",
                           lambda v, gone=gone: [v.pop(n) for n in gone])
            refuse(root, *words, extra=hf5)
    with tap.test("experts apart beside the same layer's stack"):
        stack = values_in(right)["model.layers.1.mlp.experts.gate_up_proj"]
        root = without(trees, directory, "qwen3_moe/left",
                       lambda v: v.update({"model.layers.1.mlp.experts.gate_up_proj": stack}))
        refuse(root, "gate_up_proj is made twice", extra=hf5)
    with tap.test("the wrong side"):
        refuse(left, "names of the other side of", "--from is wrong",
               extra=[*hf5, "--from", "mindspore"])
        refuse(right, "names of the other side of", "--from is wrong", extra=[*hf5, "--from", "hf"])
    with tap.test("names of both forms"):
        def rename(v):
            for n in list(v):
                if n.startswith("language_model.model."):
                    v["model.language_model." + n[len("language_model.model."):] + "x"] = v[n]
        root = without(trees, directory, "llava/left", rename)
        refuse(root, "of the tensors have names of the left side", extra=hf5)
    with tap.test("a model that no table of the group is for"):
        refuse(os.path.join(trees, "titan-llama3", "left"),
               "no table of hf5 supports LlamaForCausalLM", extra=hf5)
        refuse(os.path.join(trees, "wrapped-ddp", "left"), "--convert hf5 needs the model's "
               "config.json", extra=hf5)
        for table, source in (("hf5-mixtral", left), ("hf5-mixtral", right),
                              ("hf5-qwen2_moe", os.path.join(trees, "mixtral", "right"))):
            refuse(source, f"{table}.rules is not for", "of which it would keep names",
                   extra=["--convert", table])
    with tap.test("a stacked source with tables for experts apart"):
        for words in (["qwen3_moe", "--dst-strategy", "none"], ["titan"], [
                "megatron-moe", "--format", "megatron", "--dst-mesh", "tp=1"]):
            refuse(right, "no rule of", "names tensor model.layers.1.mlp.experts.down_proj",
                   extra=["--convert", *words])
            refuse(right, "nothing that the rule names is below model.layers.1.mlp.experts, and "
                   "model.layers.1.mlp.experts.down_proj has its place: --unlisted drop would "
                   "leave it out", extra=["--convert", *words, "--unlisted", "drop"])
    with tap.test("an adapter of the other form"):
        tuned = Tuned(3)
        own = tempfile.mkdtemp(dir=directory)
        base = tuned.save_model(os.path.join(own, "base"))
        apart = tuned.save(own, "apart", tuned.apart, target_modules=[
            "q_proj", *(tuned.parts[i] for i in tuned.adapted)])
        peft = [*hf5, "--format", "peft", "--config", base]
        stack, fused = os.path.join(own, "stack"), os.path.join(own, "fused")
        for words in ([*hf5, base, stack], [*peft, apart, fused]):
            check(run("export", *words).status == GOOD, words)
        for model, adapter in ((base, fused), (stack, apart)):
            for more in ([], hf5):
                refuse(model, "changes model.layers.0.", ".weight, which is not in the source",
                       extra=["--lora", adapter, *more])
        for adapter, side in ((apart, "mindspore"), (fused, "hf")):
            refuse(adapter, "of the tensors have names of the other side of", "--from is wrong",
                   extra=[*peft, "--from", side])
    with tap.test("a strategy has no place"):
        got = run("plan", *hf5, "--dst-strategy", os.path.join(
            HERE, "data", "demo", "strategy_4_cards.ckpt"), left)
        check(got.status != GOOD and "hf5 converts whole models: a strategy cannot list" in got.err,
              repr(got))
    with tap.test("a group is no table"):
        got = run("convert", "show", "titan")
        check(got.status != GOOD and "titan is a group of tables" in got.err, repr(got))
        groups = {t["name"]: t["group"] for t in run_json("convert", "list")["tables"]}
        check(groups["hf5-mixtral"] == "hf5" and groups["qwen3"] is None, groups)
    with tap.test("convert check says what is made, on either side"):
        for side, words in (("left", "25 tensors of the right side are made of 32"),
                            ("right", "32 tensors of the left side are made of 25")):
            demand(run("convert", "check", "hf5", os.path.join(trees, "qwen3_moe", side)).out,
                   words + "; 0 are not converted: good")
    with tap.test("convert check any says which tables fit, and who loads the result"):
        for model, wanted in (
                ("mixtral/left", {"mixtral": ("hf", "MindSpore Transformers"),
                                  "hf5-mixtral": ("hf", "transformers 5")}),
                ("qwen3_moe/right", {"qwen3_moe": (None, None),
                                     "hf5-qwen2_moe": ("mindspore", "transformers 4 and 5"),
                                     "titan-qwen3": (None, None)})):
            said = run_json("convert", "check", "any", os.path.join(trees, model))["tables"]
            check({t["table"]: (t["from"], t["loads"]) for t in said} == wanted, said)
            check(all(bool(t["reason"]) == (t["from"] is None) for t in said), said)
        demand(run("convert", "check", "any", os.path.join(trees, "gpt_oss", "left")).out, "either",
               "RESULT IS FOR", "OR NOT, BECAUSE")
        got = run("convert", "check", "any")
        check(got.status != GOOD and "any needs SOURCE" in got.err, repr(got))
        got = run("convert", "check", "any", os.path.join(trees, "wrapped-ddp", "left"))
        check(got.status == INPUT and "needs the model's config.json" in got.err, repr(got))
    with tap.test("tables of other models are not parsed"):
        tables = os.path.join(directory, "tables")
        write(os.path.join(tables, "bad.rules"), b"for OtherForCausalLM\na = \n")
        found = run("plan", "--convert", "auto", left, env={"RESHARDFS_TABLES": tables})
        check(found.status == INPUT and "bad.rules" not in found.err, repr(found))
        write(os.path.join(tables, "bad.rules"), b"for Qwen3MoeForCausalLM\na = \n")
        demand(run("plan", "--convert", "auto", left, env={"RESHARDFS_TABLES": tables}).err,
               "bad.rules:2")
        write(os.path.join(tables, "good.rules"), b"a = b\n")
        demand(run("plan", *hf5, left, env={"RESHARDFS_TABLES": tables}).err,
               'there is no table or group "hf5", unless this one has it: ',
               "bad.rules:2: the line")
    with tap.test("a table of two groups"):
        table = write(os.path.join(directory, "two.rules"), b"group x\ngroup y\nrest =\n")
        refuse(left, "two.rules:2: a table is in one group only", extra=["--convert", table])
    with tap.test("a prefix that is all of a name"):
        table = write(os.path.join(directory, "whole.rules"),
                      b"# whole\ngroup x\nrest lm_head.weight =\nrest =\n")
        refuse(left, "lm_head.weight would have no name by", extra=["--convert", table])


def main():
    require_mount()
    words = seed_and_cases(30)
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        trees = packed.unpack("model_names", os.path.join(directory, "trees"))
        run_genuine(tap, trees, directory)
        run_random(tap, directory, words.seed, words.cases, "models", one)
        run_random(tap, directory, words.seed, words.cases, "adapters", one_adapter)
        run_adapters(tap, trees, directory)
        run_layouts(tap, trees, directory)
        run_refused(tap, trees, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
