#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What config.json says beside a model is what the weights are: types and quantisation
follow from them, sizes are held against them, and all else stays byte for byte.

The models are the genuine ones of tests/data/weights; what transformers makes of what
is shown is in oracle/config_says.py.
"""

import json
import os
import shutil
import sys
import tempfile

LIB = os.path.join(os.environ.get("srcdir", "."), "lib")
sys.path[:0] = [LIB]

import random_models  # noqa: E402
from demands import change, check, content, demand, write  # noqa: E402
from rsh_cli import INPUT, good, refused, run  # noqa: E402
from rsh_mount import Mounted, Tests, expect_failure, require_mount  # noqa: E402
from safetensors_format import SUFFIX, read_model, safetensors_bytes, values_in  # noqa: E402

DATA = os.path.abspath(os.path.join(LIB, "..", "data", "weights"))
WHOLE = ["--src-strategy", "none", "--dst-strategy", "none", "--format", "hf"]
HF_MAP = "model.safetensors.index.json"
test = Tests("config")


def model_of(name):
    return os.path.join(DATA, "models", name)


def config_of(name):
    return content(os.path.join(model_of(name), "config.json"))


def replaced(text, *pairs):
    """The text with each of these once replaced."""
    for old, new in pairs:
        old, new = (s if isinstance(s, bytes) else s.encode() for s in (old, new))
        check(text.count(old) == 1, f"{text.count(old)} times {old}")
        text = text.replace(old, new)
    return text


def values_of_model(name):
    return values_in(model_of(name))


class Beside:
    """A directory with these files, for --model-files."""

    def __init__(self, directory, files):
        self.path = tempfile.mkdtemp(dir=directory)
        for name, text in files.items():
            write(os.path.join(self.path, name), text)

    def shown(self, source, extra=()):
        """{name: text} of what is shown of them, and the log."""
        with Mounted(source, extra=["--format", "hf", "--model-files", self.path,
                                    "--log-level", "info", *extra]) as mount:
            return {name: content(os.path.join(mount.path, name))
                    for name in os.listdir(self.path)}, mount.log()

    def refused(self, source, *said, extra=()):
        _, log = expect_failure(source, extra=["--format", "hf", "--model-files", self.path,
                                               *extra])
        demand(log, *said)


def shown(directory, source, text, extra=(), name="config.json"):
    found, _ = Beside(directory, {name: text}).shown(source, extra)
    return found[name]


def expect(directory, source, text, wanted, extra=()):
    found = shown(directory, source, text, extra)
    check(found == wanted, f"{found.decode(errors='replace')}\nis not\n"
          f"{wanted.decode(errors='replace')}")


def changed(name, **keys):
    """The config with other values, None leaving a key out."""
    config = json.loads(config_of(name))
    for key, value in keys.items():
        if value is None:
            del config[key]
        else:
            config[key] = value
    return json.dumps(config, indent=2).encode()


# ---- what is right stays ----

@test
def right(directory):
    """the genuine configs stay byte for byte, with the directory of the weights itself"""
    for name in sorted(os.listdir(os.path.join(DATA, "models"))):
        expect(directory, model_of(name), config_of(name), config_of(name))
        with Mounted(model_of(name), extra=["--format", "hf", "--model-files",
                                            model_of(name)]) as mount:
            check(content(os.path.join(mount.path, "config.json")) == config_of(name), name)


ODD = ('\r\n {"architectures" :["LlamaForCausalLM"]\t,"model_type":"llama","\\u0061":"\u4e2d'
       '\\ud83d\\ude00\\/","vocab_size":7,"vocab_size" : 64 , "x":[NaN,-Infinity,1E5,{"dtype":'
       '"float32"}],"long":-100000000000000001988462483865600000000000,"most":1e999,'
       '"hidden_size":32,"num_hidden_layers":2,"intermediate_size":48,'
       '"num_attention_heads":4,"num_key_value_heads":2,"tie_word_embeddings":false,'
       '"torch_dtype"  :"float16","dtype" :"torch.float16", "":1}  \n\n')


@test
def odd(directory):
    """odd spacing, order, escapes, keys twice and what only Python writes stay"""
    text = ODD.encode()
    expect(directory, model_of("llama"), text, text)
    expect(directory, model_of("llama"), text, replaced(
        text, ('"torch_dtype"  :"float16"', '"torch_dtype"  :"float32"'),
        ('"dtype" :"torch.float16"', '"dtype" :"float32"')), ["--cast", "float32"])
    # The last of two counts, for Python and here.
    twice = replaced(text, ('"vocab_size":7', '"vocab_size":64'),
                     ('"vocab_size" : 64', '"vocab_size" : 7'))
    Beside(directory, {"config.json": twice}).refused(
        model_of("llama"), '"vocab_size" is 7, and the weights say 64')


@test
def no_config(directory):
    """what is no object of JSON stays, with a warning"""
    for text in (b"[]\n", b"{", b"", b"\xff"):
        found, log = Beside(directory, {"config.json": text}).shown(model_of("llama"))
        check(found["config.json"] == text, text)
        demand(log, "shown as it is, and was not compared with the weights")
    expect(directory, model_of("llama"), b"{}\n", b"{}\n")


# ---- types ----

@test
def types(directory):
    """dtype and torch_dtype are those of what is shown"""
    for cast in ("float16", "bfloat16", "float32"):
        for name in ("qwen3", "llama", "qwen3-tied"):
            text = config_of(name)
            said = json.loads(text)["dtype"]
            wanted = replaced(text, (f'"dtype": "{said}"', f'"dtype": "{cast}"'))
            expect(directory, model_of(name), text, wanted, ["--cast", cast])
            both = replaced(text, (f'"dtype": "{said}"',
                                   f'"dtype": null,\n  "torch_dtype": "{said}"'))
            expect(directory, model_of(name), both, replaced(
                both, ('"dtype": null', f'"dtype": "{cast}"'),
                (f'"torch_dtype": "{said}"', f'"torch_dtype": "{cast}"')), ["--cast", cast])
    # Whoever wrote it knows the one key or the other.
    for version, key in (("4.55.0", "torch_dtype"), ("4.56.0", "dtype"), ("5.1.0", "dtype")):
        text = changed("qwen3", dtype=None, transformers_version=version)
        expect(directory, model_of("qwen3"), text, replaced(
            text, ('"vocab_size": 64\n', f'"vocab_size": 64,\n  "{key}": "float16"\n')),
               ["--cast", "float16"])


# ---- quantisation ----

def ranks_of_fp8(directory):
    """The quantised model as MindSpore has it, without what quantised it."""
    to = os.path.join(directory, "ranks")
    good("export", "--convert", "deepseek_v3", "--from", "hf", "--dst-strategy", "none",
         model_of("deepseek_v3-fp8"), to)
    return to


@test
def dequantised(directory):
    """quantization_config is left out where nothing is quantised any more"""
    name = "deepseek_v3-fp8"
    text = config_of(name)
    at = text.index(b',\n  "quantization_config"')
    plain = text[:at] + b"\n}"
    with Mounted(ranks_of_fp8(directory), extra=[
            "--convert", "deepseek_v3", "--from", "mindspore", "--config",
            os.path.join(model_of(name), "config.json")]) as mount:
        check(content(os.path.join(mount.path, "config.json")) == plain, "not left out")
    first = replaced(changed("qwen3"), ('{\n  "arch', '{\n  "quantization_config": {"quant_'
                                        'method": "gptq", "bits": 4},\n  "arch'))
    expect(directory, model_of("qwen3"), first, changed("qwen3"))
    # Where they still are it stays, and has to be there.
    expect(directory, model_of(name), text, text)
    Beside(directory, {"config.json": plain}).refused(
        model_of(name), '"quantization_config" is not there, and the weights are quantised',
        "Float8E4M3FN", "_scale_inv")
    values = values_of_model("qwen3")
    values["model.layers.0.mlp.gate_proj.qweight"] = ("I32", (1, 2), bytes(8))
    root = os.path.join(directory, "packed")
    write(os.path.join(root, "model" + SUFFIX), safetensors_bytes(values))
    expect(directory, root, first, first)


# ---- sizes ----

WRONG = {
    "qwen3": {"num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 64,
              "intermediate_size": 48, "num_attention_heads": 8, "num_key_value_heads": 2,
              "head_dim": 8},
    "qwen3-tied": {"num_hidden_layers": 1, "hidden_size": 24, "vocab_size": 48,
                   "intermediate_size": 40, "num_attention_heads": 6,
                   "num_key_value_heads": 3, "head_dim": 4},
    "llama": {"num_hidden_layers": 2, "hidden_size": 32, "vocab_size": 64,
              "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
              "head_dim": None},
    "qwen3_moe": {"num_hidden_layers": 2, "hidden_size": 32, "num_local_experts": None,
                  "moe_intermediate_size": 24},
    "deepseek_v3": {"num_hidden_layers": 3, "n_routed_experts": None, "q_lora_rank": 12,
                    "kv_lora_rank": 16, "qk_rope_head_dim": 4, "qk_nope_head_dim": 8,
                    "v_head_dim": 8, "moe_intermediate_size": 16, "intermediate_size": 48,
                    "num_attention_heads": 4, "vocab_size": 64, "hidden_size": 32},
}


@test
def sizes(directory):
    """a size of another model is refused, with key, value and what the weights say"""
    for name, keys in WRONG.items():
        said = json.loads(config_of(name))
        for key in keys:
            for value in (said[key] + 1, said[key] * 2, max(1, said[key] // 2)):
                if value != said[key]:
                    Beside(directory, {"config.json": changed(name, **{key: value})}).refused(
                        model_of(name), "config.json: ", f'"{key}" ', str(value),
                        "and the weights say")


@test
def lacking(directory):
    """a key that is known is added at the end, spaced as the rest"""
    for name, keys in WRONG.items():
        for key, value in keys.items():
            if value is None:
                continue
            text = changed(name, **{key: None})
            expect(directory, model_of(name), text,
                   text[:-2] + f',\n  "{key}": {value}\n}}'.encode())
    text = json.dumps({**json.loads(changed("qwen3", vocab_size=None, hidden_size=None)),
                       "\u00e4": 1}, separators=(",", ":"), ensure_ascii=False).encode()
    expect(directory, model_of("qwen3"), text,
           text[:-1] + b',"vocab_size":64,"hidden_size":32}')
    # A size that all of transformers computes is none that lacks.
    text = changed("llama", head_dim=None)
    expect(directory, model_of("llama"), text, text)


@test
def tied(directory):
    """a head that is there or not is held against tie_word_embeddings"""
    key = "tie_word_embeddings"
    Beside(directory, {"config.json": changed("qwen3", **{key: True})}).refused(
        model_of("qwen3"), f'"{key}" is true, and the weights say false',
        "lm_head.weight is not model.embed_tokens.weight")
    Beside(directory, {"config.json": changed("qwen3-tied", **{key: False})}).refused(
        model_of("qwen3-tied"), f'"{key}" is false, and the weights have no lm_head.weight')
    # The same twice is what some tools write of a tied model.
    values = values_of_model("qwen3-tied")
    values["lm_head.weight"] = values["model.embed_tokens.weight"]
    root = os.path.join(directory, "twice")
    write(os.path.join(root, "model" + SUFFIX), safetensors_bytes(values))
    for text in (changed("qwen3-tied"), changed("qwen3-tied", **{key: False}),
                 changed("qwen3-tied", **{key: None})):
        expect(directory, root, text, text)


@test
def left_out(directory):
    """of tensors left out by intent it is told what the config has more"""
    text = config_of("qwen3")
    for words, said in ((["--drop", r"layers\.1\."], '"num_hidden_layers" is 2, and the '
                         "weights that are left say 1"),
                        (["--drop", "lm_head"], '"tie_word_embeddings" is false, and the '
                         "weights that are left have no lm_head.weight")):
        found, log = Beside(directory, {"config.json": text}).shown(model_of("qwen3"), words)
        check(found["config.json"] == text, words)
        demand(log, "warning", said)


# ---- other files, other sources ----

@test
def generation(directory):
    """generation_config.json is held against the weights where it repeats a size"""
    name = "generation_config.json"
    text = b'{"eos_token_id":2,"vocab_size":64 , "torch_dtype":"bfloat16","top_p":0.9}\n'
    check(shown(directory, model_of("llama"), text, name=name) ==
          replaced(text, ("bfloat16", "float16")), "not as it should be")
    Beside(directory, {name: replaced(text, (":64", ":65"))}).refused(
        model_of("llama"), f'{name}: "vocab_size" is 65, and the weights say 64')
    text = b'{"eos_token_id": 2, "_from_model_config": true}'
    check(shown(directory, model_of("llama"), text, ["--cast", "float32"], name) == text,
          "something was added")


@test
def converted(directory):
    """the same of what is made of MindSpore's form, for the file that is shown"""
    ranks = os.path.join(directory, "ranks")
    for name, table, key in (("qwen3", "qwen3", "num_attention_heads"),
                             ("llama", "llama-concat", "num_key_value_heads"),
                             ("deepseek_v3", "deepseek_v3", "n_routed_experts")):
        good("export", "--convert", table, "--from", "hf", "--dst-strategy", "none",
             model_of(name), ranks)
        words = ["--convert", table, "--from", "mindspore"]
        own = os.path.join(model_of(name), "config.json")
        said = json.loads(config_of(name))[key]
        with Mounted(ranks, extra=[*words, "--config", own, "--cast", "float32"]) as mount:
            text = content(os.path.join(mount.path, "config.json"))
            dtype = json.loads(config_of(name))["dtype"]
            check(text == replaced(config_of(name), (f'"dtype": "{dtype}"',
                                                     '"dtype": "float32"')), text)
        # Of another name, beside another config.json, and the other files of its directory.
        other = Beside(directory, {"v2.json": config_of(name), "config.json": b"{}",
                                   "tokenizer.json": b"[]"})
        words_v2 = [*words, "--config", os.path.join(other.path, "v2.json")]
        with Mounted(ranks, extra=words_v2) as mount:
            text = content(os.path.join(mount.path, "config.json"))
            check(text == config_of(name), text)
            check(content(os.path.join(mount.path, "tokenizer.json")) == b"[]", "tokenizer")
        with Mounted(ranks, extra=[*words_v2, "--model-files", "none"]) as mount:
            check("config.json" not in os.listdir(mount.path), "none")
        # One of the two options is enough.
        beside = Beside(directory, {"config.json": config_of(name)})
        with Mounted(ranks, extra=[*words, "--format", "hf", "--model-files",
                                   beside.path]) as mount:
            check(content(os.path.join(mount.path, "config.json")) == config_of(name), name)
            found = {n: v for p in read_model(mount.path)[1].values()
                     for n, v in p.values().items()}
            check(found == values_of_model(name), "--model-files without --config")
        for wrong in (said + 1, said * 2):
            beside = Beside(directory, {"config.json": changed(name, **{key: wrong})})
            _, log = expect_failure(ranks, extra=[*words, "--config", own, "--model-files",
                                                  beside.path])
            demand(log, f'"{key}"', str(wrong), "and the weights")
            _, log = expect_failure(ranks, extra=[
                *words, "--config", os.path.join(beside.path, "config.json")])
            # Of experts that are too many, the shapes are wrong.
            said_of = "hidden_size" if wrong == 8 and "experts" in key else f'"{key}" {wrong}'
            demand(log, said_of)
        for wrong_layers in (1, 5):
            beside = Beside(directory, {"config.json": changed(
                name, num_hidden_layers=wrong_layers)})
            _, log = expect_failure(ranks, extra=[*words, "--config", own, "--model-files",
                                                  beside.path])
            demand(log, f'"num_hidden_layers" is {wrong_layers}')
        # A number that the rules know.
        beside = Beside(directory, {"config.json": changed(name, **{key: None})})
        with Mounted(ranks, extra=[*words, "--config", own, "--model-files",
                                   beside.path]) as mount:
            found = json.loads(content(os.path.join(mount.path, "config.json")))
            check(found == json.loads(config_of(name)), f"{key}: {found.get(key)}")
        shutil.rmtree(ranks)


@test
def metadata(directory):
    """metadata of parts and index are those of what is shown"""
    root = os.path.join(directory, "meta")
    values = values_of_model("qwen3")
    write(os.path.join(root, "one" + SUFFIX), safetensors_bytes(
        values, {"format": "ms", "total_size": "7", "quantization": "fp8"}))
    write(os.path.join(root, HF_MAP), json.dumps(
        {"metadata": {"total_size": 7, "total_parameters": 7, "dtype": "bfloat16"},
         "weight_map": dict.fromkeys(values, "one" + SUFFIX)}).encode())
    for extra, factor in (([], 1), (["--cast", "float32"], 2)):
        with Mounted(root, extra=["--format", "hf", "--part-size", "10000", *extra]) as mount:
            index, parts = read_model(mount.path)
            size = factor * sum(len(v[2]) for v in values.values())
            check(index["metadata"] == {"total_size": size}, index["metadata"])
            check(size == sum(len(v[2]) for p in parts.values() for v in p.values().values()),
                  "another size")
            for name, part in parts.items():
                check(part.metadata == {"format": "pt"}, f"{name}: {part.metadata}")


@test
def exported(directory):
    """export writes what a mount shows, verify finds it so, and plan refuses as well"""
    beside = Beside(directory, {"config.json": config_of("qwen3")})
    to = os.path.join(directory, "out")
    words = [*WHOLE, "--model-files", beside.path, "--cast", "float16", model_of("qwen3")]
    good("export", *words, to)
    check(json.loads(content(os.path.join(to, "config.json")))["dtype"] == "float16", "another")
    for more in ([*words, to], [to]):
        good("verify", *more)
    write(os.path.join(beside.path, "config.json"), changed("qwen3", vocab_size=5))
    for command in (["export", *words, to + "2"], ["plan", *words]):
        refused(run(*command), INPUT, '"vocab_size" is 5, and the weights say 64')


# ---- a model as it is saved ----

@test
def as_saved(directory):
    """a wrong or odd config.json does not stop a mount that changes nothing"""
    model = os.path.join(directory, "saved")
    shutil.copytree(model_of("llama"), model, copy_function=shutil.copyfile)
    os.chmod(model, 0o755)
    path = os.path.join(model, "config.json")
    plain = config_of("llama").decode()
    for key, value in (("vocab_size", 99), ("num_hidden_layers", 7), ("hidden_size", 64),
                       ("num_key_value_heads", 1), ("tie_word_embeddings", True)):
        config = json.loads(plain)
        if key == "tie_word_embeddings" and config.get(key) is True:
            value = False
        change(path, json.dumps({**config, key: value}).encode())
        with Mounted(model, extra=["--format", "hf"]) as mount:
            demand(mount.log(), f'"{key}" is {json.dumps(value)}, and the weights ',
                   "; the model is shown as it is saved")
            check(json.loads(content(os.path.join(mount.path, "config.json")))[key] == value, key)
        # A mount that changes the weights has to know that the two fit.
        _, said = expect_failure(model, extra=["--format", "hf", "--cast", "float32"])
        demand(said, f'"{key}" is {json.dumps(value)}, and the weights ')


@test
def drafts(directory):
    """a draft of EAGLE has no head, also where its type changes"""
    for number, times in enumerate((2, 3, 2)):
        model = os.path.join(directory, f"draft{number}")
        os.makedirs(model)
        prefix = "model." if number == 2 else ""
        values = {f"{prefix}layers.0.self_attn.q_proj.weight": ("BF16", (16, 16), bytes(512)),
                  f"{prefix}fc.weight": ("BF16", (16, 16 * times), bytes(512 * times)),
                  f"{prefix}embed_tokens.weight": ("BF16", (64, 16), bytes(2048))}
        write(os.path.join(model, "model.safetensors"), safetensors_bytes(values))
        change(os.path.join(model, "config.json"), json.dumps({
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 16,
            "num_hidden_layers": 1, "vocab_size": 64, "tie_word_embeddings": False}).encode())
        for words in ([], ["--cast", "float32"]):
            with Mounted(model, extra=["--format", "hf", *words]) as mount:
                check("tie_word_embeddings" not in mount.log(), mount.log())


MISFIT = "no weight has a name that "


def says(root, *options):
    """What `ls` and `plan` say of the names of a model."""
    said = []
    for words in (["ls"], ["plan", *options]):
        got = good(*words, root)
        said.append([line for line in (got.out + got.err).splitlines() if MISFIT in line])
    return said


def named(root, names, architecture="LlamaForCausalLM"):
    write(os.path.join(root, "model" + SUFFIX),
          safetensors_bytes({n: ("F32", (2,), bytes(8)) for n in names}))
    change(os.path.join(root, "config.json"),
           json.dumps({"architectures": ["Mine", architecture], "model_type": "x"}).encode())
    return root


@test
def names_of_no_weight(directory):
    """a model whose architecture has none of the names is told, by ls too"""
    for number, names in enumerate((
            ["decoder.layers.0.mlp.linear_fc1.weight", "embedding.word_embeddings.weight"],
            ["model.model.layers.0.input_layernorm.weight", "model.model.norm.weight"],
            ["base_model.model.model.embed_tokens.weight"],
            ["student.lm_head.weight", "teacher.lm_head.weight"],
            ["state_dict.model.layers.1.mlp.up_proj.weight", "exp_avg.model.norm.weight"])):
        root = named(os.path.join(directory, str(number)), names)
        change(os.path.join(root, "config.json"), b'{"architectures": ["Qwen3ForCausalLM"]}')
        for lines in says(root):
            check(len(lines) == 1 and f'that "Qwen3ForCausalLM" has, such as {names[0]}: ' in
                  lines[0], lines)
        renames = os.path.join(directory, "renames.json")
        change(renames, json.dumps({names[0]: "model.norm.weight"}).encode())
        check(says(root, "--rename", renames)[1] == [], "renamed")
        check(says(root, "--only", names[0])[1] == [], "a part")


@test
def names_of_weights(directory):
    """and no other: those of quantised, draft and unknown models, states, random models"""
    quantised = os.path.join(os.path.dirname(DATA), "quantised")
    roots = [os.path.join(top, name) for top in (quantised, os.path.join(DATA, "models"))
             for name in sorted(os.listdir(top)) if os.path.isdir(os.path.join(top, name))]
    roots += [os.path.join(os.path.dirname(DATA), "torch", name)
              for name in ("hf-bin", "hf-bin-parts")]
    roots = [r for r in roots if os.path.exists(os.path.join(r, "config.json"))]
    check(len(roots) > 15, roots)
    for table in random_models.KINDS:
        for seed in range(3):
            roots.append(os.path.join(directory, f"{table}{seed}"))
            random_models.Model(seed, table).save(roots[-1])
    for number, names in enumerate((
            ["layers.0.self_attn.q_proj.qweight"], ["midlayer.norm", "lm_head.weight"],
            ["model.norm.weight", "vision.x"], ["embed_tokens.weight"])):
        roots.append(named(os.path.join(directory, f"own{number}"), names))
    roots.append(named(os.path.join(directory, "unknown"), ["a.b"], "MyLlamaForCausalLM"))
    for root in roots:
        check(says(root) == [[], []], f"{root}: {says(root)}")
    # What an optimizer keeps is no weight.
    states = named(os.path.join(directory, "states"), ["exp_avg.module.a", "exp_avg_sq.module.a",
                                                       "optimizer.state.0.step"])
    check(MISFIT not in run("ls", states).out, "states")
    for words in ([], ["--optimizer", "keep"]):
        check(MISFIT not in run("plan", *words, states).err, words)


if __name__ == "__main__":
    require_mount()
    sys.exit(test.run(name=lambda f: f.__doc__))
