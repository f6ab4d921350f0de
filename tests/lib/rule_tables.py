# SPDX-License-Identifier: Apache-2.0
"""Rule tables and what they make of tensors, by the plainest arithmetic there is.

A second reading of the language that shares nothing with the program: every element
of every tensor is moved by itself.  Tensors are {name: (type, shape, bytes)}, with
types as safetensors has them, and sides are "hf" and "mindspore".

    Table(text).convert(tensors, config, "hf")
"""

import itertools
import json
import math
import os
import re
import struct
from array import array

from layouts import region
from make_tree import cut as cut_out
from ms_formats import read_checkpoint
from quantised import decoded, encoded
from safetensors_format import Tensors, values_in, values_of

TABLES = os.environ.get("RESHARDFS_TABLES") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..", "tables")
SIDES = ("hf", "mindspore")
CODES = {1: "B", 2: "H", 4: "I", 8: "Q"}
BYTES = {"F32": 4, "BF16": 2, "F16": 2, "I32": 4, "I64": 8, "F8_E4M3": 1, "I8": 1, "U8": 1}
# What a training checkpoint holds beside weights.
BOOKKEEPING = re.compile(
    r"(adam_[mv]|moments|accu_grads)\.|(global_step|loss_scale|learning_rate|scale_sense|"
    r"epoch_num|step_num|current_iterator_step|last_overflow_iterator_step)$")


class TableError(ValueError):
    """A table and tensors that do not go together."""


# ---- a table taken apart ----

class Name:
    """A name with holes: {l}, or {L+i} for numbers from L on."""

    def __init__(self, text):
        parts = re.split(r"\{(?:(\w+)\+)?(\w+)\}", text)
        self.texts, self.least, self.letters = parts[0::3], parts[1::3], parts[2::3]

    def match(self, name, known):
        """{letter: number} of a name, or None."""
        pattern = "(0|[1-9][0-9]*)".join(re.escape(text) for text in self.texts)
        found = re.fullmatch(pattern, name)
        if not found:
            return None
        numbers = {}
        for letter, least, text in zip(self.letters, self.least, found.groups()):
            number = int(text) - (known[least] if least else 0)
            if number < 0 or numbers.setdefault(letter, number) != number:
                return None
        return numbers

    def fill(self, numbers, known):
        result = self.texts[0]
        for letter, least, text in zip(self.letters, self.least, self.texts[1:]):
            result += f"{numbers[letter] + (known[least] if least else 0)}{text}"
        return result


class Dimension:
    """A product of factors; one of them may be a list of alternative products."""

    def __init__(self, text):
        before, inner, after = re.fullmatch(r"([^()]*)(?:\((.*)\)(.*))?", text.strip()).groups()
        self.before = self._product(before)
        self.alternatives = [self._product(part) for part in inner.split("|")] if inner else None
        self.after = self._product(after or "")

    @staticmethod
    def _product(text):
        return [factor for factor in text.split() if factor != "1"]

    def letters(self):
        return {*self.before, *self.after, *itertools.chain(*self.alternatives or ())}

    def size(self, sizes):
        def product(factors):
            return math.prod(sizes[factor] for factor in factors)
        middle = sum(map(product, self.alternatives)) if self.alternatives else 1
        return product(self.before) * middle * product(self.after)

    def solve(self, size, sizes):
        """The one factor that is not known, from the size of the dimension."""
        unknown = [letter for letter in self.letters() if letter not in sizes]
        if len(unknown) != 1:
            return
        # A letter stands once in a product, so the size is linear in it.
        at0, at1 = (self.size({**sizes, unknown[0]: value}) for value in (0, 1))
        value, rest = divmod(size - at0, at1 - at0)
        if rest or value < 0:
            raise TableError(f"a dimension of {size} does not divide")
        sizes[unknown[0]] = value

    def strides(self, which, sizes, unit):
        """({letter: stride}, offset) of one alternative, of which `unit` is the stride
        of the dimension."""
        strides, offset = {}, 0

        def lay(factors, unit):
            for letter in reversed(factors):
                strides[letter] = unit
                unit *= sizes[letter]
            return unit
        unit = lay(self.after, unit)
        if self.alternatives:
            parts = [math.prod(sizes[letter] for letter in part) for part in self.alternatives]
            offset = unit * sum(parts[:which])
            lay(self.alternatives[which], unit)
            unit *= sum(parts)
        lay(self.before, unit)
        return strides, offset


class Tensor:
    """One tensor of a rule: its name, its dimensions or None, and whether it is an earlier
    one of its side again."""

    def __init__(self, text, prefix=""):
        self.again = text.startswith("again ")
        text = text.removeprefix("again ")
        name, dims = re.fullmatch(r"([^\[\]]+)(?:\[(.*)\])?", text.strip()).groups()
        self.name = Name(prefix + name.strip())
        self.dims = None if dims is None else [Dimension(dim) for dim in dims.split(",")]

    def letters(self):
        return set().union(*(dim.letters() for dim in self.dims or ()))

    def alternatives(self):
        """How many alternatives it has; 0: it is not such a list."""
        return max((len(dim.alternatives or ()) for dim in self.dims or ()), default=0)

    def shape(self, sizes):
        return tuple(dim.size(sizes) for dim in self.dims)

    def strides(self, which, sizes):
        strides, offset, unit = {}, 0, 1
        for dim in reversed(self.dims):
            more, further = dim.strides(which, sizes, unit)
            strides.update(more)
            offset += further
            unit *= dim.size(sizes)
        return strides, offset


def plus(tensor, number):
    """A tensor with a number added to each element."""
    dtype, shape, content = tensor
    size = BYTES[dtype]
    return dtype, shape, b"".join(
        encoded(decoded(content[at:at + size], dtype) + number, dtype)
        for at in range(0, len(content), size))


class Rule:
    def __init__(self, text, prefixes=("", ""), when=None):
        text, self.adds, _ = text.partition(" add 1")
        self.text = text
        self.says = [part.split(" is ") for part in when.split(" and ")] \
            if when and " is " in when else []
        self.layer = re.findall(r"\{(\w+)\}", prefixes[0])
        self.when = when and not self.says and dict(zip(
            SIDES, (Name(prefix + name) for prefix, name in zip(prefixes, when.split(" = ")))))
        self.sides = {side: [Tensor(part, prefix) for part in half.split(" + ") if part]
                      for side, half, prefix in zip(SIDES, text.split(" = "), prefixes)}

    def holds(self, numbers, config):
        """Does config.json say what a `when` wants of the layer with these numbers?"""
        for key, word in self.says:
            value = config[key]
            value = value[numbers[self.layer[0]]] if isinstance(value, list) else value
            if word != (str(value).lower() if isinstance(value, bool) else str(value)):
                return False
        return True

    def stacked(self, side):
        """Letters of holes that are axes of the other side."""
        other = SIDES[1 - SIDES.index(side)]
        axes = set().union(*(tensor.letters() for tensor in self.sides[other]))
        return {letter for tensor in self.sides[side] for letter in tensor.name.letters} & axes


class Table:
    def __init__(self, text):
        self.suits, self.lets, self.states, self.rules = [], {}, [], []
        self.also, self.skipped, self.pads, self.tied = [], [], [], []
        self.rests, self.configs, self.group = [], [], None
        unders, fresh, self.when = [("", "")], False, None
        for line in text.splitlines():
            word, _, rest = (line := line.split("#")[0].strip()).partition(" ")
            if word == "under":
                unders = (unders if fresh else []) + [tuple(rest.split(" = "))]
                self.when = None
            elif line:
                self._take(word, rest, line, unders)
            fresh = word == "under"

    def _take(self, word, rest, line, unders):
        if word == "for":
            self.suits += rest.split()
        elif word == "let":
            name, terms = rest.split(" = ")
            self.lets[name] = terms
        elif word == "state":
            self.states.append(rest.split(" = "))
        elif word == "pad":
            name, what = rest.split(" = ")
            self.pads.append((name, *what.split()))
        elif word == "tied":
            self.tied.append(rest.split(" = "))
        elif word == "rest":
            self.rests.append([half.strip() for half in rest.split("=")])
        elif word == "group":
            self.group = rest
        elif word == "config":
            self.configs.append(rest.split(" = "))
        elif word == "when":
            self.when = rest
        else:
            kinds = {"also": (self.also, rest), "skip": (self.skipped, f"{rest} = ")}
            rules, text = kinds.get(word, (self.rules, line))
            if not text.startswith("."):
                unders = [("", "")]
            rules += [Rule(text, prefixes, text.startswith(".") and self.when)
                      for prefixes in unders]

    def numbers(self, config):
        """{name: number} of all `let` whose keys are there."""
        known = {}
        for name, terms in self.lets.items():
            for term in terms.split("|"):
                value = _evaluate(term.split(), {**config, **known})
                if value is not None:
                    known[name] = value
                    break
        return known

    def convert(self, tensors, config, source, unlisted="error", multiple=None, untie=False):
        """The tensors of the other side; `multiple` is --vocab-multiple."""
        tensors = dequantised(tensors, config)
        known = self.numbers({**config, **({"vocab_multiple": multiple} if multiple else {})})
        if source == "mindspore":
            tensors = self._padded(tensors, known, cut)
        elif untie:
            tensors = self._untied(tensors)
        made = Conversion(self, tensors, config, source).result(unlisted)
        if source == "hf":
            return self._padded(made, known, grown)
        if config.get("tie_word_embeddings"):
            gone = self._tied_names()
            return {name: t for name, t in made.items()
                    if all(head.match(name, known) is None for head in gone)}
        return self._untied(made) if untie else made

    def _tied_names(self):
        """Hugging Face's names of tied heads, and of what `also` makes of them."""
        copies = {copy for copy, _ in self.tied}
        heads = {right for left, right in (rule.text.split(" = ") for rule in self.rules)
                 if left in copies}
        return [Name(copy) for copy in copies] + \
            [rule.sides["hf"][0].name for rule in self.also
             if rule.text.split(" = ")[1] in heads]

    def _untied(self, tensors):
        return {**{copy: tensors[of] for copy, of in self.tied if of in tensors}, **tensors}

    def _padded(self, tensors, known, change):
        """With the rows of padded tensors changed by a function."""
        made = dict(tensors)
        for name, rows, multiple, way in self.pads:
            for prefix in ["", *(right for _, right in self.states)]:
                if multiple in known and prefix + name in made:
                    made[prefix + name] = change(made[prefix + name], known[rows],
                                                 known[multiple], way)
        return made


def grown(tensor, rows, multiple, way):
    """A tensor with rows of padding."""
    dtype, shape, content = tensor
    more = -shape[0] % multiple
    row = len(content) // shape[0]
    padding = content[-row:] if way == "last" else bytes(row)
    return dtype, (shape[0] + more, *shape[1:]), content + more * padding


def cut(tensor, rows, multiple, way):
    """A tensor without its rows of padding."""
    dtype, shape, content = tensor
    if shape[0] not in (rows, rows + -rows % multiple):
        raise TableError(f"{shape[0]} rows are not {rows}, padded to {multiple}")
    return dtype, (rows, *shape[1:]), content[:len(content) // shape[0] * rows]


def table_path(name):
    return os.path.join(TABLES, name + ".rules")


def load_table(name):
    with open(table_path(name), encoding="utf-8") as f:
        return Table(f.read())


def _evaluate(words, values):
    """A term of operands between operators, or None if a key is missing."""
    def number(word):
        if "." in word:
            found = [values]
            for part in word.split("."):
                found = [v for o in found for k, v in o.items() if part in (k, "*")]
            return found[0] if found and found.count(found[0]) == len(found) else None
        return int(word) if word.isdigit() else values.get(word)
    operands = [number(word) for word in words[0::2]]
    if not all(isinstance(value, int) for value in operands):
        return None
    sums, sign = [operands[0]], words[1::2]
    for operator, value in zip(sign, operands[1:]):
        if operator in "+-":
            sums.append(value if operator == "+" else -value)
        elif operator == "*":
            sums[-1] *= value
        elif value == 0 or sums[-1] % value:
            return None
        else:
            sums[-1] //= value
    return sum(sums)


# ---- a table laid over tensors ----

class Conversion:
    def __init__(self, table, tensors, config, source):
        self.table, self.tensors, self.source = table, tensors, source
        self.target = SIDES[1 - SIDES.index(source)]
        self.known, self.config = table.numbers(config), config
        self.left = set(tensors)
        self.made = {}
        self.counted = {}  # numbers that stand in holes, by their letter

    def result(self, unlisted):
        self._pass_over()
        for prefixes in [("", "")] + self.table.states:
            self.prefixes = dict(zip(SIDES, prefixes))
            for rule in self.table.rules:
                self._apply(rule)
        if self.source == "mindspore":
            self.left = {name for name in self.left if not BOOKKEEPING.match(name)}
            self._make_copies()
        for name in sorted(self.left):
            self._keep(name)
        if self.left and unlisted == "error":
            raise TableError(f"{sorted(self.left)[0]}: no rule names it")
        if unlisted == "copy":
            self.made.update((name, self.tensors[name]) for name in sorted(self.left))
        return self.made

    def _keep(self, name):
        """By the first `rest` line that fits."""
        side = SIDES.index(self.source)
        for prefixes in self.table.rests:
            before, after = prefixes[side], prefixes[1 - side]
            if name == before or not before or name.startswith(before + "."):
                new = ".".join(part for part in (after, name[len(before):].lstrip(".")) if part)
                if new in self.made:
                    raise TableError(f"{new} is made twice")
                self.made[new] = self.tensors[name]
                self.left.discard(name)
                return

    def _holes(self, tensor):
        """Can the holes of its name be told, or has the config no such number?"""
        return all(least is None or least in self.known for least in tensor.name.least)

    def _pass_over(self):
        if self.source == "hf":
            for rule in self.table.skipped + self.table.also:
                name = rule.sides["hf"][0].name
                for before in ("", *(left for left, _ in self.table.states)):
                    self.left = {n for n in self.left if not n.startswith(before) or
                                 name.match(n[len(before):], self.known) is None}

    def _make_copies(self):
        for rule in self.table.also:
            copy, (of,) = rule.sides["hf"][0].name, rule.sides["mindspore"]
            for numbers in self._counts(set(copy.letters) - set(of.name.letters)):
                for name, tensor in self.tensors.items():
                    found = of.name.match(name, self.known)
                    if found is not None:
                        self.made[copy.fill({**numbers, **found}, self.known)] = tensor

    def _counts(self, letters):
        ways = [[(letter, number) for number in self.counted.get(letter, ())]
                for letter in sorted(letters)]
        return [dict(way) for way in itertools.product(*ways)]

    def _apply(self, rule):
        """The rule for each set of tensors that it names."""
        stacked, groups = rule.stacked(self.source), {}
        for number, tensor in enumerate(rule.sides[self.source]):
            for name in sorted(self.left) if self._holes(tensor) and not tensor.again else ():
                prefix = self.prefixes[self.source]
                found = name.startswith(prefix) and \
                    tensor.name.match(name[len(prefix):], self.known)
                if isinstance(found, dict):
                    places = tuple((k, v) for k, v in found.items() if k in stacked)
                    rest = tuple((k, v) for k, v in found.items() if k not in stacked)
                    groups.setdefault(rest, {})[number, places] = name
        for numbers, names in groups.items():
            if rule.when and rule.when[self.source].fill(
                    dict(numbers), self.known) not in self.tensors:
                continue
            if not rule.holds(dict(numbers), self.config):
                continue
            for number, tensor in enumerate(rule.sides[self.source]):
                for (of, places), name in list(names.items()) if tensor.again else ():
                    if rule.sides[self.source][of].name.texts == tensor.name.texts:
                        names[number, places] = name
            Instance(self, rule, dict(numbers), names).make()
            self.left -= set(names.values())
            for letter, number in numbers:
                if any(least for tensor in rule.sides["hf"]
                       for l, least in zip(tensor.name.letters, tensor.name.least)
                       if l == letter):
                    self.counted.setdefault(letter, set()).add(number)


class Instance:
    """A rule, and one set of tensors: {(which of the rule, places in stacks): name}."""

    def __init__(self, conversion, rule, numbers, names):
        self.of, self.rule, self.numbers, self.names = conversion, rule, numbers, names
        self.sources = rule.sides[conversion.source]
        self.targets = rule.sides[conversion.target]
        self.tensors = {key: conversion.tensors[name] for key, name in names.items()}

    def make(self):
        types = {tensor[0] for tensor in self.tensors.values()}
        if len(types) > 1:
            raise TableError(f"{self.rule.text}: tensors of {sorted(types)}")
        self.type = types.pop()
        if self.sources[0].dims is None:
            tensor = next(iter(self.tensors.values()))
            if self.rule.adds:
                tensor = plus(tensor, 1 if self.of.target == "hf" else -1)
            return self._put(self.targets[0], {}, *tensor[1:])
        self.sizes = self._sizes()
        self._check_all_there()
        self._move()

    def _put(self, tensor, places, shape, content):
        name = self.of.prefixes[self.of.target] + \
            tensor.name.fill({**self.numbers, **places}, self.of.known)
        if name in self.of.made:
            raise TableError(f"{name} is made twice")
        self.of.made[name] = (self.type, tuple(shape), bytes(content))

    def _sizes(self):
        sizes = {letter: self.of.known[letter]
                 for tensor in self.sources + self.targets for letter in tensor.letters()
                 if letter in self.of.known}
        for _, places in self.names:
            for letter, number in places:
                if letter not in self.of.known:
                    sizes[letter] = max(sizes.get(letter, 0), number + 1)
        dims = [(dim, size) for (number, _), (_, shape, _) in self.tensors.items()
                for dim, size in itertools.zip_longest(self.sources[number].dims, shape)]
        if any(dim is None or size is None for dim, size in dims):
            raise TableError(f"{self.rule.text}: another number of dimensions")
        for _ in dims:
            for dim, size in dims:
                dim.solve(size, sizes)
        for dim, size in dims:
            if dim.size(sizes) != size:
                raise TableError(f"{self.rule.text}: {size} is not {dim.size(sizes)}")
        return sizes

    def _places(self, side, tensor):
        """All places of a tensor in the stacks of its rule."""
        letters = [l for l in tensor.name.letters if l in self.rule.stacked(side)]
        return [tuple(zip(letters, numbers)) for numbers in
                itertools.product(*(range(self.sizes[letter]) for letter in letters))]

    def _check_all_there(self):
        wanted = {(number, places) for number, tensor in enumerate(self.sources)
                  for places in self._places(self.of.source, tensor)}
        if wanted != set(self.names):
            raise TableError(f"{self.rule.text}: {sorted(wanted ^ set(self.names))[:3]} "
                             f"are missing or too many")

    def _move(self):
        """Each element from its place on one side to that on the other."""
        code = CODES[BYTES[self.type]]
        held = {key: memoryview(content).cast(code)
                for key, (_, _, content) in self.tensors.items()}
        made = {(number, places): (array(code, bytes(BYTES[self.type] * math.prod(shape))),
                                   bytearray(math.prod(shape)), shape)
                for number, tensor in enumerate(self.targets)
                for shape in [tensor.shape(self.sizes)]
                for places in self._places(self.of.target, tensor)}
        for source, target in itertools.product(held, made):
            for ways in self._ways(source, target):
                self._move_box(source, held[source], target, *made[target][:2], ways)
        for (number, places), (content, times, shape) in made.items():
            if set(times) > {1}:
                raise TableError(f"{self.rule.text}: elements are made {set(times)} times")
            if not self.targets[number].again:
                self._put(self.targets[number], dict(places), shape, content.tobytes())

    def _ways(self, source, target):
        """The pairs of alternatives, of the source and of the target, that are moved."""
        lists = [tensor.alternatives() for tensor in (self.sources[0], self.targets[0])]
        if all(lists):
            return [(which, which) for which in range(lists[0])]
        return [(target[0], source[0])]

    def _move_box(self, source, held, target, made, times, ways):
        theirs, their_offset = self.sources[source[0]].strides(ways[0], self.sizes)
        mine, my_offset = self.targets[target[0]].strides(ways[1], self.sizes)
        fixed = dict(source[1] + target[1])
        if set(theirs) | set(dict(source[1])) != set(mine) | set(dict(target[1])):
            raise TableError(f"{self.rule.text}: its sides have other axes")
        axes = [(letter, (fixed[letter],) if letter in fixed else range(self.sizes[letter]))
                for letter in sorted(set(theirs) | set(mine))]
        for i, j in zip(_places_along(axes, theirs, their_offset),
                        _places_along(axes, mine, my_offset)):
            made[j] = held[i]
            times[j] += 1


def _places_along(axes, strides, offset):
    """Of every element of a box, in the order of its axes, the place in a tensor."""
    result = [offset]
    for letter, numbers in axes:
        stride = strides.get(letter, 0)
        result = [place + stride * number for place in result for number in numbers]
    return result


# ---- fp8 ----

def _e4m3(byte):
    exponent, mantissa = byte >> 3 & 15, byte & 7
    if byte & 0x7f == 0x7f:
        return math.nan
    size = (8 + mantissa) * 2.0 ** (exponent - 10) if exponent else mantissa * 2.0 ** -9
    return -size if byte & 0x80 else size


E4M3 = [_e4m3(byte) for byte in range(256)]


def bfloat16(values):
    """float32 numbers, rounded to the nearest; NaN keeps its sign."""
    result = array("H")
    for bits in memoryview(array("f", values)).cast("B").cast("I"):
        if bits & 0x7fffffff > 0x7f800000:
            result.append(bits >> 16 | 0x40)
        else:
            result.append(bits + 0x7fff + (bits >> 16 & 1) >> 16)
    return result.tobytes()


def dequantised(tensors, config):
    """Block-scaled fp8 weights in BFloat16, and their scales left out."""
    quantised = config.get("quantization_config") or {}
    rows, columns = quantised.get("weight_block_size", (128, 128))
    result = {}
    for name, (dtype, shape, content) in tensors.items():
        scale = tensors.get(name + "_scale_inv")
        if dtype == "F8_E4M3" and scale:
            m, n = shape
            wide = -(-n // columns)
            factors = struct.unpack(f"<{len(scale[2]) // 4}f", scale[2])
            values = (E4M3[content[i * n + j]] * factors[i // rows * wide + j // columns]
                      for i in range(m) for j in range(n))
            result[name] = ("BF16", shape, bfloat16(values))
        elif not (name.endswith("_scale_inv") and name[:-10] in tensors):
            result[name] = (dtype, shape, content)
    return result


# ---- models and slices ----

def read_file(path):
    with open(path, "rb") as f:
        return Tensors(f.read()).values()


def read_model(path):
    """(tensors, config) of a model's directory, in one file or in parts."""
    config, file = {}, os.path.join(path, "config.json")
    if os.path.exists(file):
        with open(file, encoding="utf-8") as f:
            config = json.load(f)
    return values_in(path), config


def read_ranks(path):
    """{rank: tensors} of a tree of rank files."""
    found = {}
    for name in os.listdir(path):
        if name.startswith("rank_"):
            (file,) = os.listdir(os.path.join(path, name))
            file = os.path.join(path, name, file)
            found[int(name[5:])] = read_file(file) if file.endswith(".safetensors") else \
                values_of(read_checkpoint(file))
    return found


def slice_of(tensor, layout, rank):
    """The part of a tensor that a rank holds; with no layout all of it."""
    dtype, shape, content = tensor
    if layout is None:
        return tensor
    part = region(layout, shape, rank)
    sizes = [p.stop - p.start for p in part]
    return (dtype, tuple(sizes), bytes(cut_out(content, list(shape), BYTES[dtype],
                                               [p.start for p in part], sizes)))
