#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`reshardfs convert`: the tables that come along, those of the manual, and
tables and models with a fault each.

The yardstick for what is made of genuine models is tests/data/weights; models
that are made up have no contents, and have to come back as they were."""

import glob
import json
import math
import os
import re
import sys
import tempfile

SRC = os.environ.get("srcdir", ".")
TOP = os.environ.get("top_srcdir", os.path.join(SRC, ".."))
sys.path.insert(0, os.path.join(SRC, "lib"))

import packed  # noqa: E402
import random_models  # noqa: E402
from demands import check, content, write  # noqa: E402
from rsh_cli import GOOD, INPUT, NO, USAGE, good, run  # noqa: E402
from rsh_mount import Tap  # noqa: E402
from safetensors_format import safetensors_bytes  # noqa: E402

WEIGHTS = os.path.join(SRC, "data", "weights")
TABLES = os.path.join(TOP, "tables")
ENV = {"RESHARDFS_TABLES": os.path.abspath(TABLES)}
NAMES = sorted(os.path.basename(p)[:-len(".rules")] for p in glob.glob(f"{TABLES}/*.rules"))
DTYPES = {"Float32": "F32", "Float16": "F16", "BFloat16": "BF16", "Float8E4M3FN": "F8_E4M3"}


def convert(*words, **env):
    return run("convert", *words, env={**ENV, **env})


def convert_json(*words, status=GOOD):
    got = convert(*words, "--json")
    check(got.status == status, got)
    return json.loads(got.out)


# ---- made-up models ----

HEADS, GROUPS, HEAD, HIDDEN, MLP, WORDS, EXPERTS, LAYERS = 6, 2, 4, 12, 10, 18, 3, 2
CONFIG = {"num_attention_heads": HEADS, "num_key_value_heads": GROUPS,
          "num_hidden_layers": LAYERS, "n_routed_experts": EXPERTS,
          "num_local_experts": EXPERTS, "multi_query_group_num": GROUPS, "kv_channels": HEAD}


def made_model(path, shapes, config=None):
    """A model without contents: {name: shape}."""
    values = {name: ("BF16", tuple(shape), bytes(2 * math.prod(shape)))
              for name, shape in shapes.items()}
    write(os.path.join(path, "model.safetensors"), safetensors_bytes(values))
    if config is not None:
        write(os.path.join(path, "config.json"), json.dumps(config).encode())
    return path


def weight(shapes, name, *shape, bias=False):
    shapes[name + ".weight"] = shape
    if bias:
        shapes[name + ".bias"] = shape[:1]


def attention(shapes, prefix, bias=False, norms=False, out="o_proj", out_bias=False):
    for letter, heads in ("q", HEADS), ("k", GROUPS), ("v", GROUPS):
        weight(shapes, f"{prefix}.{letter}_proj", heads * HEAD, HIDDEN, bias=bias)
    weight(shapes, f"{prefix}.{out}", HIDDEN, HEADS * HEAD, bias=out_bias)
    for letter in "qk" if norms else "":
        weight(shapes, f"{prefix}.{letter}_norm", HEAD)


def gated(shapes, prefix, gate="gate_proj", up="up_proj", down="down_proj"):
    weight(shapes, f"{prefix}.{gate}", MLP, HIDDEN)
    weight(shapes, f"{prefix}.{up}", MLP, HIDDEN)
    weight(shapes, f"{prefix}.{down}", HIDDEN, MLP)


def ends(shapes, head=True, bias=False):
    weight(shapes, "model.embed_tokens", WORDS, HIDDEN)
    weight(shapes, "model.norm", HIDDEN, bias=bias)
    if head:
        weight(shapes, "lm_head", WORDS, HIDDEN)


def dense(bias=False, norms=False, head=True, inv_freq=False):
    shapes = {}
    ends(shapes, head)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for norm in "input_layernorm", "post_attention_layernorm":
            weight(shapes, f"{at}.{norm}", HIDDEN)
        attention(shapes, f"{at}.self_attn", bias, norms)
        gated(shapes, f"{at}.mlp")
        if inv_freq:
            shapes[f"{at}.self_attn.rotary_emb.inv_freq"] = (HEAD // 2,)
    return shapes


def starcoder():
    shapes = {}
    ends(shapes, head=False, bias=True)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for norm in "input_layernorm", "post_attention_layernorm":
            weight(shapes, f"{at}.{norm}", HIDDEN, bias=True)
        attention(shapes, f"{at}.self_attn", bias=True, out_bias=True)
        weight(shapes, f"{at}.mlp.c_fc", MLP, HIDDEN, bias=True)
        weight(shapes, f"{at}.mlp.c_proj", HIDDEN, MLP, bias=True)
    return shapes


def glm_moe():
    """One dense layer, one of experts, one of prediction."""
    shapes = {}
    ends(shapes)
    for layer in range(LAYERS + 1):
        at = f"model.layers.{layer}"
        for norm in "input_layernorm", "post_attention_layernorm":
            weight(shapes, f"{at}.{norm}", HIDDEN)
        attention(shapes, f"{at}.self_attn", bias=True, norms=True)
        if layer == 0:
            gated(shapes, f"{at}.mlp")
            continue
        weight(shapes, f"{at}.mlp.gate", EXPERTS, HIDDEN)
        shapes[f"{at}.mlp.gate.e_score_correction_bias"] = (EXPERTS,)
        gated(shapes, f"{at}.mlp.shared_experts")
        for expert in range(EXPERTS):
            gated(shapes, f"{at}.mlp.experts.{expert}")
    for name, shape in (("embed_tokens", (WORDS, HIDDEN)), ("shared_head.head", (WORDS, HIDDEN)),
                        ("shared_head.norm", (HIDDEN,)), ("enorm", (HIDDEN,)),
                        ("hnorm", (HIDDEN,)), ("eh_proj", (HIDDEN, 2 * HIDDEN))):
        weight(shapes, f"{at}.{name}", *shape)
    return shapes


def chatglm():
    shapes = {}
    weight(shapes, "transformer.embedding.word_embeddings", WORDS, HIDDEN)
    weight(shapes, "transformer.encoder.final_layernorm", HIDDEN)
    weight(shapes, "transformer.output_layer", WORDS, HIDDEN)
    shapes["transformer.rotary_pos_emb.inv_freq"] = (HEAD // 2,)
    for layer in range(LAYERS):
        at = f"transformer.encoder.layers.{layer}"
        for norm in "input_layernorm", "post_attention_layernorm":
            weight(shapes, f"{at}.{norm}", HIDDEN)
        weight(shapes, f"{at}.self_attention.query_key_value", (HEADS + 2 * GROUPS) * HEAD,
               HIDDEN, bias=True)
        weight(shapes, f"{at}.self_attention.dense", HIDDEN, HEADS * HEAD)
        weight(shapes, f"{at}.mlp.dense_h_to_4h", 2 * MLP, HIDDEN)
        weight(shapes, f"{at}.mlp.dense_4h_to_h", HIDDEN, MLP)
    return shapes


def glm():
    shapes = {}
    ends(shapes)
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for norm in "input_layernorm", "post_attention_layernorm":
            weight(shapes, f"{at}.{norm}", HIDDEN)
        attention(shapes, f"{at}.self_attn", bias=True)
        weight(shapes, f"{at}.mlp.gate_up_proj", 2 * MLP, HIDDEN)
        weight(shapes, f"{at}.mlp.down_proj", HIDDEN, MLP)
    return shapes


def deepseek_v4():
    """Its own names; only what tables treat in ways of their own is complete."""
    shapes = {"hc_head_base": (4,), "hc_head_fn": (4, HIDDEN), "hc_head_scale": (1,)}
    weight(shapes, "embed", WORDS, HIDDEN)
    weight(shapes, "norm", HIDDEN)
    weight(shapes, "head", WORDS, HIDDEN)
    for at in [f"layers.{layer}" for layer in range(LAYERS)] + ["mtp.0"]:
        for name in "attn_norm", "ffn_norm", "attn.q_norm", "attn.kv_norm":
            weight(shapes, f"{at}.{name}", HIDDEN)
        for name in "attn.wq_a", "attn.wq_b", "attn.wkv", "attn.wo_a", "attn.wo_b":
            weight(shapes, f"{at}.{name}", HIDDEN, HIDDEN)
        shapes[f"{at}.attn.attn_sink"] = (HEADS,)
        for name in "hc_attn", "hc_ffn":
            shapes.update({f"{at}.{name}_base": (4,), f"{at}.{name}_fn": (4, HIDDEN),
                           f"{at}.{name}_scale": (3,)})
        weight(shapes, f"{at}.ffn.gate", EXPERTS, HIDDEN, bias=True)
        for expert in ["shared_experts"] + [f"experts.{e}" for e in range(EXPERTS)]:
            gated(shapes, f"{at}.ffn.{expert}", "w1", "w3", "w2")
    for name in "enorm", "hnorm", "norm":
        weight(shapes, f"mtp.0.{name}", HIDDEN)
    for name in "e_proj", "h_proj":
        weight(shapes, f"mtp.0.{name}", HIDDEN, HIDDEN)
    return shapes


MADE_UP = {
    "chatglm": chatglm(), "chatglm-rope": chatglm(), "glm": glm(), "deepseek_v4": deepseek_v4(),
    "llama": dense(bias=True, inv_freq=True), "llama-concat": dense(bias=True, inv_freq=True),
    "megatron": dense(bias=True, norms=True), "megatron-layers": dense(head=False),
    "qwen3": dense(norms=True), "qwen3-plain": dense(bias=True, norms=True, head=False),
}


def there_and_back(table, shapes, directory, config=None):
    """Checks the table against the model, and against what it makes of it."""
    model = made_model(os.path.join(directory, "hf"), shapes, config or CONFIG)
    said = convert_json("check", table, model)
    check(said["from"] == "hf" and not said["findings"], said["findings"])
    used = {t["name"] for made in said["tensors"] for t in made["of"]}
    passed = {t["name"] for t in said["passed"]}
    check(used | passed == set(shapes) and not used & passed, set(shapes) ^ (used | passed))
    other = made_model(os.path.join(directory, "mindspore"),
                       {t["name"]: t["shape"] for t in said["tensors"]})
    back = convert_json("check", "--config", model, table, other)
    check(back["from"] == "mindspore", back["from"])
    again = {t["name"]: tuple(t["shape"]) for t in back["tensors"]}
    # What is skipped is not made; copies are.
    lost = {name for name in passed if "inv_freq" in name}
    check(again == {n: s for n, s in shapes.items() if n not in lost}, again)
    return said


# ---- the tests ----

def test_list(tap, directory):
    with tap.test("list has each table, with its title and the models that it suits"):
        listed = convert_json("list")["tables"]
        check([t["name"] for t in listed] == NAMES, listed)
        check(all(t["title"] and t["reason"] is None for t in listed), listed)
        suits = {t["name"]: t["architectures"] for t in listed}
        check(suits["qwen3"] == ["Qwen3ForCausalLM"] and suits["megatron"] == [], suits)
        said = convert("list")
        check(said.status == GOOD and all(n in said.out for n in NAMES), said)
    with tap.test("of several tables that suit a model the usual one comes first"):
        first = {}
        for table in (t for t in listed if not t["group"]):
            for model in table["architectures"]:
                first.setdefault(model, table["name"])
        check(not [n for n in first.values() if "-" in n], first)
    with tap.test("a directory of one's own is looked at first, and what is wrong told"):
        own = os.path.join(directory, "own")
        write(os.path.join(own, "qwen3.rules"), b"# Mine\na = b\n")
        write(os.path.join(own, "bad.rules"), b"# Bad\na = \n")
        said = run("convert", "list", "--json", env={"RESHARDFS_TABLES": own})
        check(said.status == NO, said)
        by_name = {t["name"]: t for t in json.loads(said.out)["tables"]}
        check(by_name["qwen3"]["title"] == "Mine", by_name)
        check("bad.rules:2" in by_name["bad"]["reason"], by_name["bad"])


def test_show(tap):
    with tap.test("show prints the file, by name or by path"):
        path = os.path.join(TABLES, "qwen3.rules")
        text = content(path).decode()
        for word in "qwen3", path:
            said = convert("show", word)
            check(said.status == GOOD and said.out == text, said)
    with tap.test("a name that is none is told the nearest one, and what lists all"):
        said = convert("show", "qwen33")
        check(said.status == INPUT and "did you mean qwen3?" in said.err and
              "`reshardfs convert list` lists all" in said.err, said)


def test_words(tap):
    for words, told in (
            ((), "list, show or check is missing"), (("lost",), "expected list, show or check"),
            (("list", "x"), "too many operands"), (("show",), "TABLE is missing"),
            (("check",), "TABLE is missing"), (("check", "qwen3", "a", "b"), "too many operands"),
            (("check", "auto"), "auto needs SOURCE"),
            (("check", "qwen3", "--from", "hf"), "--from needs SOURCE"),
            (("check", "qwen3", "--select", "mtime"), "--select needs SOURCE"),
            (("show", "qwen3", "--json"), "convert show has no option --json"),
            (("check", "qwen3", "x", "--from", "torch"), "hf")):
        said = convert(*words)
        tap.ok(said.status == USAGE and told in said.err, f"convert {' '.join(words)}: {told}",
               said)


def test_shipped(tap):
    for name in NAMES:
        with tap.test(f"{name} is right in itself"):
            said = convert("check", name)
            check(said.status == GOOD and said.out.endswith(": good\n"), said)
            text = content(os.path.join(TABLES, f"{name}.rules")).decode()
            wide = [line for line in text.splitlines() if line.startswith("#") and
                    len(line) > 80 and line != text.splitlines()[0]]
            check(text.startswith("# ") and not wide, wide)


def test_genuine(tap):
    cases = json.loads(content(os.path.join(WEIGHTS, "cases.json")))
    for name, case in cases.items():
        if case["from"] != "hf" or "expect" not in case:
            continue
        with tap.test(f"{name}: names, types and shapes are those of the genuine one"):
            said = convert_json("check", case["table"],
                                os.path.join(WEIGHTS, "models", case["model"]))
            made = {t["name"]: [DTYPES[t["dtype"]], t["shape"]] for t in said["tensors"]}
            check(made == {n: e[:2] for n, e in case["expect"].items()}, made)


def test_ranks(tap, directory):
    """What the ranks hold is put together by their strategy before."""
    model = os.path.join(WEIGHTS, "models", "qwen3")
    strategy = os.path.join(WEIGHTS, "strategies", "qwen3.qwen3.dp2mp2.ckpt")
    ranks = os.path.join(directory, "ranks")
    with tap.test("a tree of ranks with its strategy"):
        good("export", "--index-cache", "off", "--convert", "qwen3", "--from", "hf",
             "--dst-strategy", strategy, model, ranks, env=ENV)
        back = convert_json("check", "--src-strategy", strategy, "--config",
                            os.path.join(model, "config.json"), "qwen3", ranks)
        whole = convert_json("check", "qwen3", model)
        made = {t["name"]: t["shape"] for t in back["tensors"]}
        check(made == {t["name"]: t["shape"] for made in whole["tensors"] for t in made["of"]},
              made)
    with tap.test("without config.json heads cannot be told apart"):
        said = convert("check", "-q", "--src-strategy", strategy, "qwen3", ranks)
        check(said.status == NO and "says what g is" in said.out, said)


def test_made_up(tap, directory):
    for table, shapes in MADE_UP.items():
        with tap.test(f"{table} there and back"):
            there_and_back(table, shapes, os.path.join(directory, table))
    for table in random_models.FAMILIES:
        for seed in 1, 2:
            model = random_models.Model(seed, table)
            with tap.test(f"{model} there and back"):
                there_and_back(table, {name: t[1] for name, t in model.tensors.items()},
                               os.path.join(directory, f"{table}.{seed}"), model.config)
    # Those of a group have random models in mount/model_names.py.
    alone = {t["name"] for t in convert_json("list")["tables"] if not t["group"]}
    families = {case["table"] for case in
                packed.expected("model_names", ("bridge.json",)).values()}  # megatron_families.py
    tap.equal(alone - set(random_models.KINDS) - families, set(), "every table has random models")


def test_auto(tap, directory):
    """The table that a mount with --convert auto uses."""
    model = os.path.join(WEIGHTS, "models", "qwen3_moe")
    with tap.test("auto checks the table of the model's architecture"):
        said = convert("check", "auto", model)
        check(said.status == GOOD and "qwen3_moe.rules: " in said.out, said)
        check(convert_json("check", "auto", model) == convert_json("check", "qwen3_moe", model),
              said)
    with tap.test("of several tables, auto checks the first that converts all of SOURCE"):
        for table, seed in ("llama", 1), ("llama-concat", 2), ("qwen2", 3):
            made = random_models.Model(seed, "qwen2")
            at = os.path.join(directory, "auto", table)
            hf = made_model(os.path.join(at, "hf"),
                            {name: t[1] for name, t in made.tensors.items()}, made.config)
            other = made_model(os.path.join(at, "ms"), {
                t["name"]: t["shape"] for t in convert_json("check", table, hf)["tensors"]})
            chosen = convert_json("check", "--config", hf, "auto", other)
            check(os.path.basename(chosen["table"]) == f"{table}.rules", chosen["table"])
    with tap.test("auto prefers the table of the model_type"):
        for kind in "qwen2", "llama":
            made = random_models.Model(4, kind)
            hf = made_model(os.path.join(directory, "auto", "type", kind),
                            {name: t[1] for name, t in made.tensors.items()},
                            {**made.config, "model_type": kind})
            chosen = convert_json("check", "auto", hf)["table"]
            check(os.path.basename(chosen) == f"{kind}.rules", chosen)
    with tap.test("auto without config.json, and for a model that no table supports"):
        at = os.path.join(directory, "auto", "none")
        made_model(at, {"a.weight": (2,)})
        said = convert("check", "auto", at)
        check(said.status == INPUT and "use --config" in said.err, said)
        made_model(at, {"a.weight": (2,)}, {"architectures": ["XForCausalLM"]})
        said = convert("check", "auto", at)
        check(said.status == INPUT and "no table supports XForCausalLM" in said.err, said)
    with tap.test("no tables are installed"):
        empty = os.path.join(directory, "auto", "empty")
        os.makedirs(empty)
        for words in ("list",), ("list", "--json"), ("show", "qwen3"), ("check", "auto", at):
            said = convert(*words, RESHARDFS_TABLES=empty)
            # A directory of the installation may have some.
            if f"there are no rule tables in {empty}" in said.err:
                check(said.status == INPUT and said.out == "", said)
            else:
                check(words[0] != "list" or "qwen3" in said.out, said)


def examples_of_manual():
    page = content(os.path.join(TOP, "man", "reshardfs-tables.5")).decode()
    part = re.search(r"^\.Sh EXAMPLES\n(.*?)^\.Sh ", page, re.M | re.S).group(1)
    return [text.replace("\\&", "") for text in
            re.findall(r"^\.Bd -literal\n(.*?)^\.Ed", part, re.M | re.S)]


def test_manual(tap, directory):
    examples = examples_of_manual()
    models = [("names alone", starcoder()), ("fused tensors", dense()),
              ("experts and prediction", glm_moe())]
    tap.equal(len(examples), len(models), "the manual has three examples")
    for text, (name, shapes) in zip(examples, models):
        with tap.test(f"the manual's example of {name} works there and back"):
            at = os.path.join(directory, "manual", name)
            path = write(os.path.join(at, "my.rules"), text.encode())
            there_and_back(path, shapes, at)


def test_faults(tap, directory):
    shapes = dense(norms=True)
    layer = "model.layers.1.self_attn"
    for name, change, told in (
            ("a tensor is missing", lambda s: s.pop(f"{layer}.k_proj.weight"), "k_proj"),
            ("one too many", lambda s: s.update({"model.more": (1,)}), "no rule of"),
            ("another shape", lambda s: s.update({f"{layer}.k_proj.weight": (7, HIDDEN)}), "[7,"),
    ):
        with tap.test(f"{name}: a sentence and status 1"):
            other = dict(shapes)
            change(other)
            model = made_model(os.path.join(directory, "faults", name), other, CONFIG)
            said = convert("check", "-q", "qwen3", model)
            check(said.status == NO and told in said.out and len(said.out.splitlines()) == 1, said)
            rows = convert("check", "qwen3", model)
            check(rows.status == NO and "1 error" in rows.out, rows)
            found = convert_json("check", "qwen3", model, status=NO)["findings"]
            check(len(found) == 1 and found[0]["wrong"] and told in found[0]["sentence"], found)
    with tap.test("--unlisted lets it pass"):
        model = os.path.join(directory, "faults", "one too many")
        for word in "drop", "copy":
            said = convert("check", "--unlisted", word, "qwen3", model)
            check(said.status == GOOD, said)
    with tap.test("a name in two lines, and a let that is used nowhere"):
        path = write(os.path.join(directory, "faults", "two.rules"),
                     b"let n = layers\na.{l} = b.{l}\nc = b.{l}\nd = e\nf = e\n")
        said = convert("check", path)
        check(said.status in (NO, INPUT), said)
        path = write(os.path.join(directory, "faults", "two.rules"),
                     b"let n = layers\na.{l} = b.{l}\nd = e\nf = e\n")
        said = convert("check", path)
        check(said.status == NO and "two.rules:4" in said.out and "line 3" in said.out and
              "remark: " in said.out, said)
    with tap.test("a line that is none is told with its number"):
        path = write(os.path.join(directory, "faults", "bad.rules"), b"# A\n\nundre a = b.{l}\n")
        said = convert("check", path)
        check(said.status == INPUT and "bad.rules:3" in said.err, said)


def main():
    tap = Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-tables-") as directory:
        test_list(tap, directory)
        test_show(tap)
        test_words(tap)
        test_shipped(tap)
        test_genuine(tap)
        test_ranks(tap, directory)
        test_made_up(tap, directory)
        test_auto(tap, directory)
        test_manual(tap, directory)
        test_faults(tap, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
