# SPDX-License-Identifier: Apache-2.0
"""What lib/behaviour.py asks a program about: genuine trees, and random ones of every
kind, each with the options that it is shown with.

A tree lies in a directory of its own, in which the program runs: all names are relative.
The same kind and seed make the same bytes, and the same mtimes.
"""

import dataclasses
import glob
import json
import os
import random
import shutil
import sys

LIB = os.path.dirname(os.path.abspath(__file__))
DATA = os.path.join(os.path.dirname(LIB), "data")
sys.path[:0] = [LIB, os.path.join(os.path.dirname(LIB), "oracle")]

import all_sources  # noqa: E402
import checkpoint2_random  # noqa: E402
import dcp_trees  # noqa: E402
import deepspeed_trees  # noqa: E402
import framework_formats  # noqa: E402
import genuine  # noqa: E402
import genuine_pairs  # noqa: E402
import genuine_sets  # noqa: E402
import make_tree  # noqa: E402
import megatron_random  # noqa: E402
import mistakes  # noqa: E402
import random_jobs  # noqa: E402
import rank_pickles  # noqa: E402
import rank_trees  # noqa: E402
import version_chains  # noqa: E402
import weights_random  # noqa: E402
from demands import content, write  # noqa: E402
from ms_formats import Record, checkpoint_bytes  # noqa: E402
from safetensors_format import safetensors_bytes  # noqa: E402
from small_job import Job  # noqa: E402

LONG_AGO = 1_700_000_000


@dataclasses.dataclass
class Case:
    """said        what it is, for people
    source      below the directory
    options     words for plan, export and verify; None: it is shown by mount --resume
    strategies  files and directories that ls shows
    """
    said: str
    source: str
    options: list
    strategies: tuple = ()

    def relative(self, directory):
        """The same, of names below the directory instead of whole ones."""
        def short(word):
            return word.replace(directory + os.sep, "")
        self.source = short(self.source)
        self.options = None if self.options is None else [short(str(o)) for o in self.options]
        self.strategies = tuple(short(path) for path in self.strategies)
        return self


def both(src, dst):
    return ["--src-strategy", src or "none", "--dst-strategy", dst or "none"]


def words_of(keywords):
    """Those of the program for the module's keywords."""
    return [f"--{name.rstrip('_').replace('_', '-')}={value}" for name, value in keywords.items()]


def settle(directory):
    """Times that follow from names alone; what a tree was given already stays."""
    number = 0
    for folder, folders, names in os.walk(directory):
        folders.sort()
        for name in sorted(names):
            path = os.path.join(folder, name)
            if os.stat(path, follow_symlinks=False).st_mtime > LONG_AGO + 10 ** 7:
                os.utime(path, (LONG_AGO + number, LONG_AGO + number), follow_symlinks=False)
            number += 1
        os.utime(folder, (LONG_AGO, LONG_AGO))


# ---- how it is shown ----

def shown_words(numbers, whole):
    """Of the options that say what is shown, mostly none."""
    words = []

    def some(part, *more):
        if numbers.random() < part:
            words.extend(numbers.choice(more))
    some(0.45, ["--format", "safetensors"], ["--format", "checkpoint2"],
         ["--format", "hf", "--part-size", "30KB"] if whole else ["--format", "safetensors"])
    some(0.06, ["--cast", "float16"], ["--cast", "bfloat16"], ["--cast", "float32"])
    some(0.08, ["--only", "layers"], ["--drop", "adam_|moments|exp_avg"], ["--drop", "0"])
    some(0.06, ["--unlisted", "drop"], ["--unlisted", "error"])
    some(0.1, ["--prefix", "net_"], ["--compat", "mindspore"], ["--remove-redundancy"],
         ["--replicas", "off"], ["--check", "structure"], ["--check", "full"])
    some(0.15, ["--allow-missing"])
    return words


# ---- random trees ----

def _job(numbers):
    network, way, stages = random_jobs.random_job(numbers)
    for part, add in ((0.1, network.add_statistics), (0.1, network.add_loads),
                      (0.1, network.add_tables)):
        if numbers.random() < part:
            add()
    if network.layouts(way) is not None:
        stages = network.layouts(way)
    return network, way, {stage: {name: layout for name, layout in held.items()}
                          for stage, held in stages.items()}


def _other(numbers, network, way):
    """The layouts of another job of the network, or None."""
    pp = numbers.choice([n for n in (1, 1, 2, 4) if n <= network.layers])
    cards = numbers.choice([n for n in (1, 2, 3, 4, 6, 8, 16) if n * pp <= 32])
    return network.layouts(random_jobs.ways_of(
        numbers, cards, pp=pp, experts=network.experts,
        like=way if numbers.random() < 0.3 else None))


def _form(numbers):
    return numbers.choice(("protobuf", "merged", "json"))


def _rank_files(numbers, directory, suffix, lose=False, wrong=False):
    network, way, stages = _job(numbers)
    shapes = {p.name: (p.shape, p.dtype) for p in network.parameters}
    tree = random_jobs.Tree(numbers, stages, {name: shapes[name] for held in stages.values()
                                              for name in held})
    tree.private = network.private
    said, wanted = str(way), None
    if numbers.random() < 0.85:
        wanted = stages if numbers.random() < 0.15 else _other(numbers, network, way)
    if wrong:
        kind, stages, wanted = mistakes.Mistakes(numbers, network, way).draw()
        said += f", wrong: {kind}"
    without = {}
    if lose:
        for rank in numbers.sample(tree.ranks(), min(len(tree.ranks()), numbers.choice((1, 1, 2)))):
            names = sorted(tree.held(rank))
            without[rank] = None if numbers.random() < 0.6 else \
                numbers.sample(names, numbers.randrange(1, len(names) + 1))
        said += f", without {sorted(without)}"
    source = os.path.join(directory, "source")
    tree.save(source, suffix=suffix, crc=numbers.random() < 0.3, without=without)
    # json has no nested maps.
    nested = way.form == "nested"
    src = random_jobs.write_strategy(os.path.join(directory, "src"), stages,
                                     "merged" if nested else _form(numbers))
    dst = wanted and random_jobs.write_strategy(os.path.join(directory, "dst"), wanted,
                                                "protobuf" if nested else _form(numbers))
    return Case(said, source, both(src, dst) + shown_words(numbers, not dst),
                tuple(path for path in (src, dst) if path))


def ranks(numbers, directory):
    return _rank_files(numbers, directory, ".ckpt")


def ranks_safetensors(numbers, directory):
    return _rank_files(numbers, directory, ".safetensors")


def ranks_lost(numbers, directory):
    return _rank_files(numbers, directory, numbers.choice((".ckpt", ".safetensors")), lose=True)


def ranks_mistaken(numbers, directory):
    return _rank_files(numbers, directory, ".ckpt", wrong=True)


def meshes(numbers, directory):
    make_tree.write_tree(directory, *make_tree.random_tree(numbers, 6, 1 << 17), numbers)
    shutil.rmtree(os.path.join(directory, "expected"))
    shutil.rmtree(os.path.join(directory, "whole"))
    dst = numbers.choice((os.path.join(directory, "wanted.ckpt"), None))
    return Case("meshes", os.path.join(directory, "source"),
                both(os.path.join(directory, "source.ckpt"), dst) + shown_words(numbers, not dst))


def checkpoint2(numbers, directory):
    case = checkpoint2_random.Case(numbers.getrandbits(31), directory)
    dst = case.strategy(*case.wanted, case.parameters()) if case.wanted else None
    return Case(str(case), case.source, ["--dst-strategy", dst or "none",
                                         *shown_words(numbers, not dst)])


def distributed(numbers, directory):
    tree = dcp_trees.random_tree(numbers.getrandbits(31))
    source = os.path.join(directory, "source")
    tree.write(source)
    if tree.held and numbers.random() < 0.2:
        os.unlink(os.path.join(source, numbers.choice(sorted(tree.held))))
    words = numbers.choice((["--format", "safetensors"], ["--format", "hf", "--part-size", "500"],
                            []))
    return Case(tree.describe(), source, [*both(None, None), *words, *shown_words(numbers, True)])


def torch_ranks(numbers, directory):
    """A file of torch.save() for each rank, one of which may be lost."""
    tree = rank_trees.random_tree(numbers.getrandbits(31))
    source = os.path.join(directory, "source")
    tree.write(source)
    if numbers.random() < 0.2:
        os.unlink(os.path.join(source, min(tree.files(numbers.randrange(tree.world)))))
    words = numbers.choice(([], ["--optimizer", "keep"], ["--format", "dcp"]))
    return Case(tree.describe(), source, [*both(None, None), *words, *shown_words(numbers, True)])


def megatron(numbers, directory):
    """A directory for each model parallel rank, one of which may be lost."""
    tree = megatron_random.Tree(numbers.getrandbits(31))
    source = os.path.join(directory, "source")
    tree.write(source)
    if numbers.random() < 0.2:
        os.unlink(numbers.choice(sorted(glob.glob(os.path.join(source, "*", "*", "*.pt")))))
    words = numbers.choice(([], ["--optimizer", "keep"], ["--format", "dcp"]))
    return Case(tree.describe(), source, [*both(None, None), *words, *shown_words(numbers, True)])


def deepspeed(numbers, directory):
    """Files of ZeRO, one of which may be lost."""
    tree = deepspeed_trees.random_tree(numbers.getrandbits(31))
    source = os.path.join(directory, "source")
    tree.write(source)
    if numbers.random() < 0.2:
        os.unlink(numbers.choice([path for path in _files(source) if path.endswith(".pt")]))
    words = numbers.choice(([], ["--optimizer", "keep"], ["--format", "dcp"]))
    return Case(tree.describe(), source, [*both(None, None), *words, *shown_words(numbers, True)])


def versions(numbers, directory):
    """A chain of deltas, of which a file may be lost, with the model that it began with."""
    chain = version_chains.RandomChain(numbers.getrandbits(31))
    source, base = chain.write(directory)
    if numbers.random() < 0.3:
        os.unlink(numbers.choice(list(_files(source))))
    words = numbers.choice(([], ["--base", base], ["--base", base], ["--base", base, "--select",
                                                                     "step=1"]))
    return Case(chain.describe(), source, [*both(None, None), *words, *shown_words(numbers, True)])


def _model(numbers, directory):
    return weights_random.Case(numbers.getrandbits(31), directory)


def models(numbers, directory):
    """In parts or in one file, as they are, or in MindSpore's form for ranks or one."""
    case = _model(numbers, directory)
    way = numbers.choice(("as it is", "whole", "ranks"))
    if way == "as it is":
        return Case(f"{case}, {way}", case.root, both(None, None) + [
            *numbers.choice((["--format", "hf", "--part-size", "4000"],
                             ["--format", "safetensors"], [])), *shown_words(numbers, True)])
    dst = case.tree("wanted")[1] if way == "ranks" else None
    words = case.words("hf") if numbers.random() < 0.8 else ["--convert", "auto"]
    return Case(f"{case}, {way}", case.root,
                [*both(None, dst), *words, *shown_words(numbers, not dst)])


def models_back(numbers, directory):
    """Ranks of MindSpore's form, of which one may be lost, as the model."""
    case, without = _model(numbers, directory), {}
    lost = numbers.random() < 0.3
    tree, strategy = case.tree("saved", None, lost)
    if lost:
        without = {numbers.choice(tree.ranks()): None}
    root = os.path.join(directory, "tree")
    tree.save(root, without=without, suffix=numbers.choice((".ckpt", ".safetensors")))
    words = case.words("mindspore", "--config", os.path.join(case.root, "config.json"))
    if numbers.random() < 0.8:
        words += ["--format", "hf", "--part-size", numbers.choice(("2000", "9000", "5GB"))]
    return Case(f"{case}, back{', a rank lost' if lost else ''}", root,
                both(strategy, None) + words)


def sources(numbers, directory):
    kind = numbers.choice(all_sources.all_sources(directory, numbers.getrandbits(31)))
    source = kind.source
    options = dict(kind.options)
    if source.startswith(DATA):
        source = shutil.copytree(source, os.path.join(directory, "genuine"))
    for name in ("config", "dst_strategy"):
        if options.get(name, "").startswith(DATA):
            options[name] = shutil.copy(options[name], os.path.join(directory, f"genuine.{name}"))
    return Case(kind.name, source, words_of(options))


def _framework_file(numbers, suffix):
    content = numbers.randbytes(100)
    if suffix == ".pt":
        return framework_formats.torch_zip([content, content[:20]], zip64=True)
    if suffix == ".safetensors":
        return safetensors_bytes({"w": ("F32", (5, 5), content)})
    return checkpoint_bytes({"w": Record((5, 5), "Float32", content)})


def resume(numbers, directory):
    """Steps of jobs of several frameworks, some of which are not whole."""
    job = Job(directory)
    kind = numbers.choice(("rank_{rank}/net-{epoch}_{step}.ckpt",
                           "rank_{rank}/net-{epoch}_{step}.safetensors",
                           "global_step{step}/mp_rank_{rank:02}_model_states.pt",
                           "iter_{step:07}/mp_rank_{rank:02}/model_optim_rng.pt",
                           "epoch_{epoch}-step_{step}_rank_{rank}.pt", "checkpoint-{step}.pt"))
    n_ranks, clock, paths = numbers.choice((1, 2, 4)), LONG_AGO, []
    for step in sorted(numbers.sample(range(1, 60), numbers.randrange(1, 6))):
        for rank in range(n_ranks):
            if numbers.random() < 0.08:
                continue
            path = os.path.join(job.source, kind.format(rank=rank, step=step, epoch=step // 10))
            write(path, _framework_file(numbers, os.path.splitext(kind)[1]))
            clock += numbers.choice((0, 1, 10))
            os.utime(path, (clock, clock))
            if paths and numbers.random() < 0.06:
                os.truncate(path, numbers.randrange(os.path.getsize(path)))
            paths.append(path)
    return Case(f"{kind}, {n_ranks} ranks, {len(paths)} files", job.source, None)


# ---- hostile files ----

def _files(directory):
    return sorted(path for path in glob.glob(os.path.join(directory, "**"), recursive=True,
                                             include_hidden=True) if os.path.isfile(path))


def _truncated(numbers, path, _all):
    os.truncate(path, numbers.randrange(os.path.getsize(path) + 1))


def _flipped(numbers, path, _all):
    """Some bytes, mostly of the beginning, where headers are."""
    data = bytearray(content(path))
    for _ in range(numbers.choice((1, 2, 8)) if data else 0):
        end = len(data) if numbers.random() < 0.4 else min(len(data), 200)
        data[numbers.randrange(end)] = numbers.randrange(256)
    write(path, bytes(data))


def _longer(numbers, path, _all):
    with open(path, "ab") as f:
        f.write(numbers.randbytes(numbers.randrange(1, 50)))


def _renamed(numbers, path, _all):
    folder, name = os.path.split(path)
    os.rename(path, os.path.join(folder, numbers.choice((
        "net-9_99.ckpt", name + ".tmp", name[:-1], "rank_7.safetensors", "no\nname.ckpt",
        name.replace("1", "2", 1) + "x"))))


def _exchanged(numbers, path, every):
    """One file's content under another's name."""
    shutil.copyfile(numbers.choice(every), path + ".copy")
    os.replace(path + ".copy", path)


def _a_directory(_numbers, path, _all):
    os.unlink(path)
    os.mkdir(path)


def _lost(_numbers, path, _all):
    os.unlink(path)


def _rubbish(numbers, path, _all):
    write(path, numbers.choice((b"", b"{}", b"[]", b"null", b"\x80\x04.", b"\xff" * 40,
                                numbers.randbytes(300), b'{"a":' * 500)))


WAYS = (_truncated, _truncated, _flipped, _flipped, _flipped, _longer, _renamed, _exchanged,
        _a_directory, _lost, _rubbish)


def hostile(numbers, directory):
    """A tree of another kind in which one to three files are not what they were."""
    kind = numbers.choice((ranks, ranks_safetensors, meshes, checkpoint2, checkpoint2, distributed,
                           distributed, models, models_back, resume, torch_ranks,
                           megatron, deepspeed, versions))
    case, said = kind(numbers, directory), []
    for _ in range(numbers.choice((1, 1, 2, 3))):
        # Strategies and tables as well.
        every = _files(directory)
        names = every if numbers.random() < 0.15 else _files(case.source)
        if not names:
            break
        path, way = numbers.choice(names), numbers.choice(WAYS)
        os.chmod(path, 0o600)
        way(numbers, path, every)
        said.append(f"{os.path.relpath(path, directory)} {way.__name__.strip('_')}")
    case.said = f"{kind.__name__}: {case.said}: {', '.join(said)}"
    return case


# How often each kind comes, of as many cases as these are together.
RANDOM = {ranks: 8, ranks_safetensors: 4, ranks_lost: 5, ranks_mistaken: 4, meshes: 2,
          checkpoint2: 5, distributed: 5, models: 5, models_back: 4, sources: 1, resume: 3,
          hostile: 8, torch_ranks: 4, megatron: 4, deepspeed: 4, versions: 4}
_TURNS = [kind for kind, often in RANDOM.items() for _ in range(often)]


def random_case(seed, directory):
    """(its key, the Case) of a seed: kinds come in turn."""
    kind = _TURNS[seed * 19 % len(_TURNS)]
    case = kind(random.Random(f"{kind.__name__} {seed}"), directory)
    settle(directory)
    return f"{kind.__name__}/{seed}", case.relative(directory)


# ---- genuine trees ----

def _pair_source(name, directory):
    """The rank files of a genuine set's job, by random_jobs, which needs no MindSpore."""
    known = genuine_sets.GenuineSet(name, directory)
    shapes = {n: (shape, dtype) for n, shape, dtype in known.parameters}
    stages = {stage: {n: genuine_sets.in_dimensions_of(layout, shapes[n][0])
                      for n, layout in held.items() if n in shapes}
              for stage, held in known.stages.items()}
    numbers = random.Random(name)
    tree = random_jobs.Tree(numbers, stages, shapes)
    tree.scalars = {n: Record(tuple(shape), dtype, tree.whole[n])
                    for n, (shape, dtype) in shapes.items() if not known.listed(n)}
    return tree


def _strategy(directory, name):
    return None if name is None else shutil.copytree(
        os.path.join(genuine_sets.STRATEGIES, name), os.path.join(directory, name),
        ignore=shutil.ignore_patterns("parameters.json"), dirs_exist_ok=True)


def pairs_of(source, destinations):
    """A genuine set shown under others: makes [(key, Case)], one tree for all."""
    def make(directory):
        tree = _pair_source(source or destinations[0], directory)
        root = os.path.join(directory, "source")
        if source is None:
            write(os.path.join(root, "rank_0", "net-1_10.ckpt"), checkpoint_bytes({
                n: Record(tuple(shape), dtype, tree.whole[n])
                for n, (shape, dtype) in tree.shapes.items()}))
        else:
            tree.save(root)
        src = _strategy(directory, source)
        found = []
        for name in destinations:
            dst = _strategy(directory, name)
            words = both(src, dst)
            found.append((f"pairs/{source}:{name}", Case(
                f"{source} -> {name}", root, words, tuple(p for p in (src, dst) if p))))
            found.append((f"pairs/{source}:{name}/compat", Case(
                f"{source} -> {name}", root, words + ["--compat", "mindspore"])))
        settle(directory)
        return [(key, case.relative(directory)) for key, case in found]
    return make


def _copied(path, directory):
    return shutil.copytree(path, os.path.join(directory, "source"))


def genuine_trees(key, path, many_words):
    """A tree of tests/data with each of these lists of words, for genuine_makers()."""
    def make(directory):
        source = _copied(path, directory)
        found = []
        for words in many_words:
            # What is not of the tree itself is given by its name in the data.
            local = [shutil.copytree(w, os.path.join(directory, "of", os.path.relpath(w, DATA)),
                                     dirs_exist_ok=True) if os.path.isdir(w) and w.startswith(DATA)
                     else shutil.copy(w, os.path.join(directory, os.path.basename(w)))
                     if w.startswith(DATA) else w for w in words]
            case = Case(f"{key} {' '.join(os.path.basename(w) for w in words)}", source, local)
            found.append((f"{key}/{' '.join(os.path.basename(w) for w in words)}",
                          case.relative(directory)))
        settle(directory)
        return found
    return f"{key}/", make


FORMS = [[], ["--format", "safetensors"], ["--format", "hf", "--part-size", "20KB"],
         ["--format", "checkpoint2"]]


def _genuine_checkpoint2():
    strategies = glob.glob(os.path.join(genuine.CHECKPOINT2, "strategies", "*"))
    wanted = [["--dst-strategy", s] for s in ("none", *sorted(strategies))]
    for name in genuine.checkpoint2_names():
        yield genuine_trees(f"checkpoint2/{name}", genuine.checkpoint2(name),
                            [[*dst, *form] for dst in wanted for form in FORMS])


def _genuine_distributed():
    for name in genuine.dcp_names():
        strategy = genuine.dcp_strategy(name)
        wanted = [both(None, None)] + ([both(None, strategy)] if strategy else [])
        yield genuine_trees(f"dcp/{name}", genuine.dcp(name),
                            [[*dst, *form] for dst in wanted for form in FORMS])
    for name in genuine.hyper_parallel_names():
        yield genuine_trees(f"dcp/{name}", genuine.checkpoint2(name),
                            [[*both(None, None), *form] for form in FORMS])


def _genuine_models():
    strategies = sorted(glob.glob(genuine.weights("strategies", "*.ckpt")))
    for path in sorted(glob.glob(genuine.weights("models", "*"))):
        name = os.path.basename(path)
        tables = sorted({os.path.basename(s).split(".")[1] for s in strategies
                         if os.path.basename(s).startswith(name + ".")})
        many = [[*both(None, None), *form] for form in FORMS]
        for table in tables:
            mine = [s for s in strategies if os.path.basename(s).startswith(f"{name}.{table}.")]
            many += [[*both(None, dst), "--convert", table, *form]
                     for dst in ("none", *mine) for form in FORMS]
        yield genuine_trees(f"models/{name}", path, many)
        back = genuine.weights("mindspore", name)
        if os.path.isdir(back):
            yield genuine_trees(f"models/{name}/back", back, [
                [*both(None, None), "--convert", "auto", "--from", "mindspore", "--unlisted",
                 "drop", "--config", os.path.join(path, "config.json"), *form] for form in FORMS])


def _demo():
    demo = os.path.join(DATA, "demo")
    src, dst = (os.path.join(demo, f"strategy_{n}_cards.ckpt") for n in (8, 4))
    yield genuine_trees("demo", os.path.join(demo, "checkpoint"), [
        both(s, d) + form for s, d in ((src, dst), (src, None), (src, src), (dst, src))
        for form in FORMS])


def genuine_makers():
    """(with what all keys begin, what makes [(key, Case)] in an empty directory) of all
    genuine trees and pairs."""
    for _, (source, destinations) in genuine_pairs.all_tasks(None, None):
        if source is None:
            # Of each by itself, what it has is the destination's.
            yield from ((f"pairs/None:{name}", pairs_of(None, [name])) for name in destinations)
        else:
            yield f"pairs/{source}:", pairs_of(source, destinations)
    for made in (_demo, _genuine_checkpoint2, _genuine_distributed, _genuine_models):
        yield from made()


def kind_of(key):
    return key.split("/")[0]
