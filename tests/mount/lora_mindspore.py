#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Adapters that a checkpoint of MindSpore has beside its weights: --lora-alpha.

    lora_mindspore.py [--seed S] [--cases N]

lib/adapters.py computes merged models in plain Python.  The adapter alone, as PEFT has
it, must have the rows that lib/rule_tables.py says, and give the same merged model.
"""

import json
import os
import random
import sys
import tempfile

sys.path.insert(0, os.path.join(os.environ.get("srcdir", "."), "lib"))

import rule_tables  # noqa: E402
from adapters import Drawer, PREFIX, added, product  # noqa: E402
from demands import check, content, write  # noqa: E402
from make_tree import Param, records, strategy  # noqa: E402
from ms_formats import checkpoint_bytes  # noqa: E402
from quantised import WIDTHS, f32  # noqa: E402
from rsh_cli import GOOD, INPUT, USAGE, good, refused, run  # noqa: E402
from rsh_mount import Mounted, Tap, Tests, require_mount  # noqa: E402
from run_seed import seed_and_cases  # noqa: E402
from safetensors_format import safetensors_bytes, values_in  # noqa: E402
from shown_model import same_values  # noqa: E402

DTYPES = {"BF16": "BFloat16", "F16": "Float16", "F32": "Float32"}
# The names of both matrices in mindformers.
NAMES = ((".lora_A.weight", ".lora_B.weight"), (".lora_a", ".lora_b"),
         (".mindpet_delta_lora_a", ".mindpet_delta_lora_b"),
         (".mindpet_delta_lora_A", ".mindpet_delta_lora_B"),
         (".tk_delta_lora_a", ".tk_delta_lora_b"))
LLAMA = (("model.embed_tokens.", "model.tok_embeddings.embedding_"), ("model.norm.", "model.norm_out."),
         ("input_layernorm", "attention_norm"), ("post_attention_layernorm", "ffn_norm"),
         ("self_attn.q_proj", "attention.wq"), ("self_attn.k_proj", "attention.wk"),
         ("self_attn.v_proj", "attention.wv"), ("self_attn.o_proj", "attention.wo"),
         ("mlp.gate_proj", "feed_forward.w1"), ("mlp.up_proj", "feed_forward.w3"),
         ("mlp.down_proj", "feed_forward.w2"))
test = Tests("lora")


def tree(directory):
    """{path: bytes} of all files of an export but its manifest."""
    return {os.path.relpath(os.path.join(at, name), directory): content(os.path.join(at, name))
            for at, _, names in os.walk(directory) for name in names if "manifest" not in name}


def export(source, out, *options):
    good("export", source, out, *options)
    return out


class Job:
    """A model of MindSpore's names with adapters, and the model that they make."""

    def __init__(self, directory, seed):
        self.rng = random.Random(seed)
        self.directory = directory
        self.drawer = Drawer(self.rng)
        self.table, shapes = self.family()
        self.model = {n: self.drawer.matrix(self.drawer.kind, *s) for n, s in shapes.items()}
        self.ends = self.rng.choice(NAMES)
        self.alpha, self.rank = self.rng.choice((1, 7, 16)), self.rng.choice((1, 2, 3, 8))
        self.adapters = self.draw()
        self.config = self.drawer.config()
        if self.table == "llama":
            self.config["architectures"] = ["LlamaForCausalLM"]

    def family(self):
        if self.rng.random() < 0.6:
            return "qwen3", self.drawer.mindspore_shapes()
        shapes = {}
        for name, shape in self.drawer.shapes().items():
            if "q_norm" in name or "k_norm" in name:
                continue
            for old, new in LLAMA:
                name = name.replace(old, new)
            shapes[name] = shape
        return "llama", shapes

    def draw(self):
        """{module: (A, B)}"""
        modules = [n[:-len(".weight")] for n, (_, s, _) in self.model.items()
                   if len(s) == 2 and n.endswith(".weight") and "embedding" not in n]
        made, kind = {}, self.rng.choice(("BF16", "F32"))
        for module in [m for m in modules if self.rng.random() < 0.6] or modules[:1]:
            rows, columns = self.model[module + ".weight"][1]
            made[module] = (self.drawer.matrix(kind, self.rank, columns),
                            self.drawer.matrix(kind, rows, self.rank))
        return made

    def matrices(self):
        return {module + end: matrix for module, both in self.adapters.items()
                for end, matrix in zip(self.ends, both)}

    def merged(self):
        made = dict(self.model)
        for module, (a, b) in self.adapters.items():
            name = module + ".weight"
            made[name] = added(made[name], product(b, a), f32(self.alpha / self.rank), False)
        return made

    def hugging_face(self, tensors):
        """The names and shapes of the other form, by the naive reading of the table."""
        return rule_tables.load_table(self.table).convert(tensors, self.config, "mindspore")

    def peft(self):
        """{name: tensor} of the adapter alone: rows of the weights are followed."""
        made = {}
        for module, (a, b) in self.adapters.items():
            rows, columns = b[1][0], a[1][1]
            numbers = b"".join(i.to_bytes(4, "little") * columns for i in range(rows))
            found = self.hugging_face({module + ".weight": ("I32", (rows, columns), numbers)})
            width = WIDTHS[b[0]] * self.rank
            for name, (_, shape, data) in found.items():
                at = [int.from_bytes(data[i:i + 4], "little")
                      for i in range(0, len(data), 4 * columns)]
                stem = PREFIX + name[:-len("weight")]
                made[stem + "lora_A.weight"] = a
                made[stem + "lora_B.weight"] = (b[0], (shape[0], self.rank), b"".join(
                    b[2][width * i:width * (i + 1)] for i in at))
        return made

    def write(self, name, tensors):
        """The tensors in one file, and how they are given as SOURCE."""
        at = os.path.join(self.directory, name)
        write(os.path.join(at, "model.safetensors"), safetensors_bytes(tensors))
        write(os.path.join(at, "config.json"), json.dumps(self.config).encode())
        return [at]

    def write_ranks(self, name, tensors):
        """The same as files of ranks."""
        at = os.path.join(self.directory, name)
        mesh = self.rng.choice(([2, 2], [4, 2], [1, 4]))
        split, params = {0: mesh[1], 1: mesh[0], -1: 1}, []
        for key, (kind, shape, _) in tensors.items():
            axes = self.rng.sample((0, 1, -1, -1), len(shape))
            axes = [a if n % split[a] == 0 else -1 for a, n in zip(axes, shape)]
            params.append(Param(key, list(shape), DTYPES[kind], axes))
        whole = {key: data for key, (_, _, data) in tensors.items()}
        for rank in range(mesh[0] * mesh[1]):
            write(f"{at}/rank_{rank}/net-1_1.ckpt",
                  checkpoint_bytes(records(params, whole, mesh, "source", rank)))
        write(at + ".ckpt", strategy(params, "source", mesh))
        write(at + "-config/config.json", json.dumps(self.config).encode())
        return [at, "--src-strategy", at + ".ckpt", "--config", at + "-config", "--model-files",
                "none"]


# ---- random models ----

def as_peft(job):
    """The adapter alone, from adapters with their weights or without."""
    tensors = {**(job.model if job.rng.random() < 0.5 else {}), **job.matrices()}
    source = job.rng.choice((job.write, job.write_ranks))("tuned", tensors)
    if "--model-files" in source:
        source = source[:-2]
    out = export(source[0], job.directory + "/peft", *source[1:], "--convert", job.table,
                 "--format", "peft", "--lora-alpha", str(job.alpha))
    wanted, got = job.peft(), values_in(out)
    check(sorted(got) == sorted(wanted), f"{sorted(got)} instead of {sorted(wanted)}")
    for name, tensor in wanted.items():
        check((got[name][0], tuple(got[name][1]), bytes(got[name][2])) == tensor,
              f"{name} differs")
    config = json.loads(content(out + "/adapter_config.json"))
    check((config["r"], config["lora_alpha"]) == (job.rank, job.alpha), config)
    check(sorted(config["target_modules"]) ==
          sorted({n[len(PREFIX):].rpartition(".lora_")[0] for n in wanted}), config)
    base = export(job.write("base", job.model)[0], job.directory + "/hf", "--convert", job.table)
    same(job, export(base, job.directory + "/both", "--format", "hf", "--lora", out))


def same(job, out):
    """The merged model in Hugging Face's form."""
    same_values(values_in(out), job.hugging_face(job.merged()))


def as_merged(job):
    """The weights with their adapter, and without it, in Hugging Face's form."""
    tuned = {**job.model, **job.matrices()}
    source = job.rng.choice((job.write, job.write_ranks))("tuned", tuned)
    words = [*source[1:], "--convert", job.table]
    same(job, export(source[0], job.directory + "/hf", *words, "--lora-alpha", str(job.alpha)))
    got = values_in(export(source[0], job.directory + "/base", *words, "--unlisted", "drop"))
    for name, (_, _, data) in job.hugging_face(job.model).items():
        check(bytes(got[name][2]) == bytes(data), f"{name} without adapters differs")


def as_ranks(job):
    """The merged weights under their own names, for other ranks."""
    tuned = job.write_ranks("tuned", {**job.model, **job.matrices()})[:3]
    mesh = [2, 2]
    params = [Param(n, list(s), DTYPES[k], None,
                    [0 if s[0] % 2 == 0 else -1] + [-1] * (len(s) - 1))
              for n, (k, s, _) in job.model.items()]
    write(job.directory + "/to.ckpt", strategy(params, "wanted", mesh))
    to = ["--dst-strategy", job.directory + "/to.ckpt", "--format",
          job.rng.choice(("ckpt", "safetensors")),
          # Slices of a few drawn elements may be equal, as copies are.
          "--check", "structure"]
    got = tree(export(*tuned[:1], job.directory + "/out", *tuned[1:], *to, "--lora-alpha",
                      str(job.alpha)))
    plain = job.write_ranks("plain", job.merged())[:3]
    wanted = tree(export(plain[0], job.directory + "/wanted", *plain[1:], *to))
    check(sorted(got) == sorted(wanted), f"{sorted(got)} instead of {sorted(wanted)}")
    for name in wanted:
        check(got[name] == wanted[name], f"{name} differs")


def as_mount(job):
    """Parts of a mounted adapter are those of the file."""
    source = job.write("tuned", {**job.model, **job.matrices()})
    with Mounted(source[0], described=True, extra=[
            "--convert", job.table, "--format", "peft", "--lora-alpha", "3"]) as mount:
        check(sorted(os.listdir(mount.path)) ==
              ["adapter_config.json", "adapter_model.safetensors"], os.listdir(mount.path))
        with open(mount.path + "/adapter_model.safetensors", "rb", buffering=0) as f:
            whole = content(mount.path + "/adapter_model.safetensors")
            for at in (job.rng.randrange(len(whole)) for _ in range(40)):
                check(os.pread(f.fileno(), 777, at) == whole[at:at + 777], f"at {at}")
        check({n: bytes(t[2]) for n, t in values_in(mount.path).items()} ==
              {n: t[2] for n, t in job.peft().items()}, "the mounted adapter differs")


WAYS = (as_peft, as_peft, as_merged, as_ranks, as_peft, as_mount)


def random_case(seed):
    way = WAYS[seed % len(WAYS)]
    with tempfile.TemporaryDirectory(prefix="reshardfs-lora-") as directory:
        try:
            way(Job(directory, seed))
        except Exception as error:
            raise type(error)(f"--cases 1 --seed {seed} ({way.__name__}): {error}") from error


# ---- what is wrong ----

def small(directory, change=None, weight=(6, 4), config=None):
    """A job of one weight, wq of layer 0, with an adapter of rank 2."""
    matrix = Drawer(random.Random(3)).matrix
    at = "model.layers.0.attention.wq"
    tensors = {at + ".weight": matrix("BF16", *weight),
               at + ".mindpet_delta_lora_a": matrix("F32", 2, 4),
               at + ".mindpet_delta_lora_b": matrix("F32", 6, 2)}
    if change:
        change(tensors, at, matrix)
    write(directory + "/model.safetensors", safetensors_bytes(tensors))
    write(directory + "/config.json", json.dumps(config or {}).encode())
    return directory


@test
def transposed(directory):
    """a weight that is stored transposed"""
    source = small(directory + "/source", weight=(4, 6))
    got = values_in(export(source, directory + "/out", "--lora-alpha", "4", "--format", "hf"))
    a, b, w = ((t[0], tuple(t[1]), bytes(t[2])) for _, t in sorted(values_in(source).items()))
    rows = [list(column) for column in zip(*product(b, a))]
    check(bytes(got["model.layers.0.attention.wq.weight"][2]) == added(w, rows, 2.0, False)[2],
          "the weight differs")


@test
def states(directory):
    """optimizer states of adapters are left out"""
    source = small(directory + "/source", lambda t, at, matrix: t.update({
        f"adam_m.{at}.mindpet_delta_lora_a": matrix("F32", 2, 4),
        f"adam_v.{at}.mindpet_delta_lora_b": matrix("F32", 6, 2)}))
    got = values_in(export(source, directory + "/out", "--convert", "llama", "--format", "peft",
                           "--lora-alpha", "4"))
    check(len(got) == 2, sorted(got))


@test
def digests_differ(directory):
    """an export with another lora_alpha is another conversion"""
    source, out = small(directory + "/source"), directory + "/out"
    words = ["--convert", "llama", "--format", "peft", "--lora-alpha"]
    export(source, out, *words, "4")
    check(run("verify", source, out, *words, "4").status == GOOD, "verify")
    check(run("export", source, out, *words, "5").status != GOOD, "another alpha")


@test
def wrong_adapters(directory):
    """adapters that cannot be shown or merged, each with a sentence"""
    at = "model.layers.0.attention.wq"
    a, b = at + ".mindpet_delta_lora_a", at + ".mindpet_delta_lora_b"
    both = ["--lora-alpha", "4"]
    peft = [*both, "--convert", "llama", "--format", "peft"]
    for i, (words, options, change) in enumerate((
            (f"{a} is there, but {b} is missing", both, lambda t, *_: t.pop(b)),
            (f"{b} is there, but {a} is missing", peft, lambda t, *_: t.pop(a)),
            ("SOURCE has no adapter: no tensor has a name such as", peft,
             lambda t, *_: (t.pop(a), t.pop(b))),
            (f"{a} has rank 3, and its other matrix 2", peft,
             lambda t, _, m: t.update({a: m("F32", 3, 4)})),
            (f"{a} is not a matrix", peft, lambda t, _, m: t.update({a: m("F32", 2, 4, 1)})),
            (f"{b} is Int8, and not BFloat16, Float16 or Float32, or is transposed", peft,
             lambda t, *_: t.update({b: ("I8", (6, 2), bytes(12))})),
            (f"{a} changes {at}.weight, which is not in the source", both,
             lambda t, *_: t.pop(at + ".weight")),
            (f"{a} and its other matrix give a product of [6,5], but {at}.weight has another "
             "shape", both, lambda t, _, m: t.update({a: m("F32", 2, 5)})),
            (f"{a} cannot be merged: {at}.weight is not stored as BFloat16, Float16 or Float32",
             both, lambda t, *_: t.update({at + ".weight": ("F64", (6, 4), bytes(192))})),
            ("mlp.experts.weight1_lora_a is a part of the adapter of experts, which is not "
             "supported", peft, lambda t, _, m: t.update(
                 {"decoder.layers.0.mlp.experts.weight1_lora_a": m("F32", 2, 4, 2)})),
            (f"the adapters of {at} and {at[:-2]}wk have different ranks, 2 and 1", peft,
             lambda t, _, m: t.update({a.replace("wq", "wk"): m("F32", 1, 4),
                                       b.replace("wq", "wk"): m("F32", 6, 1)})))):
        source = small(f"{directory}/{i}", change)
        refused(run("plan", source, *options, "--format", "hf" if options is both else "peft"),
                INPUT, words)


@test
def other_forms(directory):
    """weights of Hugging Face's form to which PEFT has no equal adapter"""
    matrix = Drawer(random.Random(4)).matrix
    peft = ["--format", "peft", "--lora-alpha", "4", "--convert"]
    for i, (words, table, weights) in enumerate((
            ("l.qkv.weight is made of several weights, and PEFT has one adapter for it",
             "l.qkv.weight[(q | k), h] = l.wq.weight[q, h] + l.wk.weight[k, h]",
             {"l.wq": (4, 6), "l.wk": (2, 6)}),
            ("l.q.weight has the columns of l.wq.weight in another order, so PEFT has no adapter "
             "that is equal", "l.q.weight[q, a two] = l.wq.weight[q, two a]", {"l.wq": (4, 6)}),
            ("l.q.weight has the columns of l.wq.weight in another order",
             "l.q.weight[h, q] = l.wq.weight[q, h]", {"l.wq": (4, 6)}),
            ("l.q is not the weight of a module", "l.q[q, h] = l.wq.weight[q, h]",
             {"l.wq": (4, 6)}))):
        at = f"{directory}/{i}"
        write(at + "/my.rules", f"# Mine\nfor X\nlet two = k2\n{table}\n".encode())
        write(at + "/model/config.json", b'{"k2": 2}')
        write(at + "/model/model.safetensors", safetensors_bytes(
            {f"{name}.lora_{end}": matrix("F32", *shape) for name, (rows, columns) in
             weights.items() for end, shape in (("a", (2, columns)), ("b", (rows, 2)))}))
        refused(run("plan", at + "/model", *peft, at + "/my.rules"), INPUT, words)


@test
def wrong_options(directory):
    """what is refused on the command line"""
    source = small(directory + "/source")
    refused(run("plan", source, "--format", "peft"), USAGE,
            "--format peft needs --convert and --lora-alpha")
    refused(run("plan", source, "--format", "peft", "--convert", "llama"), USAGE,
            "--format peft needs --convert and --lora-alpha")
    refused(run("plan", source, "--lora-alpha", "0"), USAGE, 'lora-alpha: "0" is not a number')
    refused(run("plan", source, "--lora-alpha", "4", "--dst-ranks", "2"), USAGE,
            "--dst-ranks and --lora-alpha cannot be used together")
    refused(run("plan", source, "--lora-alpha", "4", "--lora", source), USAGE,
            "--lora-alpha and --lora cannot be used together")
    head = small(directory + "/head", lambda t, at, matrix: [
        t.update({name.replace(at, "lm_head"): t.pop(name)}) for name in list(t)])
    words = ["--lora-alpha", "4", "--convert", "llama", "--format", "peft", "--from"]
    refused(run("plan", head, *words, "hf"), INPUT,
            "the weights of SOURCE have Hugging Face's names")
    check(run("plan", head, *words, "mindspore").status == GOOD, "an adapter of the head")


def main():
    chosen = seed_and_cases(48)
    require_mount()
    tap = Tap()
    test.each(tap, name=lambda f: f.__doc__)
    with tap.test(f"{chosen.cases} random models from --seed {chosen.seed} on"):
        for seed in range(chosen.seed, chosen.seed + chosen.cases):
            random_case(seed)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
