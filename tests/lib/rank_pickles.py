# SPDX-License-Identifier: Apache-2.0
"""Files of torch.save() taken apart and put together again without torch: what a pickle
names is a name, what it calls is a Called, and what it makes is an Object; so a file can be
changed in one place and is else byte for byte what torch wrote.
"""

import collections
import functools
import io
import pickle
import zipfile

import packed
from dcp_trees import Called, Named, Stored, _Pickler, archive

# Written by pickle as the instructions that made them.
KEPT = {("collections", "OrderedDict"): collections.OrderedDict,
        ("collections", "defaultdict"): collections.defaultdict,
        ("__builtin__", "set"): set, ("builtins", "set"): set}


@functools.lru_cache(maxsize=None)
def named(module, name):
    """One object for each name, as pickle writes a name once."""
    return KEPT.get((module, name)) or Named(module, name)


class Object:
    """What NEWOBJ makes of a class and its arguments, and BUILD gives a state."""

    def __init__(self, cls, args=(), state=None):
        self.cls, self.args, self.state = cls, args, state

    def __getitem__(self, key):
        return self.state[key]

    def __setitem__(self, key, value):
        self.state[key] = value

    def is_of(self, name):
        return self.cls.name == name


class Text(str):
    """A text of one character, of which Python has only one object otherwise."""


class _Loader(pickle._Unpickler):
    def load_binunicode(self):
        pickle._Unpickler.load_binunicode(self)
        if len(self.stack[-1]) < 2:
            self.stack[-1] = Text(self.stack[-1])

    def find_class(self, module, name):
        return named(module, name)

    def load_persid(self):
        # One object for each time it is written: pickle does not memoise them.
        self.append(Stored(*self.stack.pop()))

    def load_reduce(self):
        args, function = self.stack.pop(), self.stack[-1]
        self.stack[-1] = Called(function, *args) if isinstance(function, (Named, Called)) \
            else function(*args)

    def load_newobj(self):
        args, cls = self.stack.pop(), self.stack[-1]
        self.stack[-1] = Object(cls, args)

    def load_build(self):
        state, obj = self.stack.pop(), self.stack[-1]
        if isinstance(obj, (Object, Called)):
            obj.state = state
        else:
            vars(obj).update(state)

    dispatch = {**pickle._Unpickler.dispatch, pickle.BINUNICODE[0]: load_binunicode,
                pickle.REDUCE[0]: load_reduce,
                pickle.NEWOBJ[0]: load_newobj, pickle.BUILD[0]: load_build,
                pickle.BINPERSID[0]: load_persid}


class _Writer(_Pickler):
    """It also writes Objects, and the state of a Called."""

    def save_object(self, obj):
        self.save(obj.cls)
        self.save(obj.args)
        self.write(pickle.NEWOBJ)
        self.memoize(obj)
        if obj.state is not None:
            self.save(obj.state)
            self.write(pickle.BUILD)

    def save_called(self, obj):
        function, args = obj.call
        self.save(function)
        self.save(tuple(args))
        self.write(pickle.REDUCE)
        self.memoize(obj)
        if getattr(obj, "state", None) is not None:
            self.save(obj.state)
            self.write(pickle.BUILD)

    dispatch = {**_Pickler.dispatch, Object: save_object, Called: save_called,
                Text: pickle._Pickler.save_str}


def loads(data):
    return _Loader(io.BytesIO(data)).load()


def dumps(value, protocol=2):
    out = io.BytesIO()
    _Writer(out, protocol).dump(value)
    return out.getvalue()


class TorchFile:
    """A file of torch.save(): its value, its storages by key, and its other entries."""

    def __init__(self, path):
        with zipfile.ZipFile(path) as z:
            self.entries = [(n.split("/", 1)[1], z.read(n)) for n in z.namelist()]
            self.root = z.namelist()[0].split("/")[0]
        self.value = loads(dict(self.entries)["data.pkl"])

    def pickle(self):
        return dict(self.entries)["data.pkl"]

    def write(self, path, data=None):
        """With the value as it is now, or with a pickle of somebody's own."""
        data = dumps(self.value) if data is None else data
        with open(path, "wb") as f:
            f.write(archive([(n, data if n == "data.pkl" else c) for n, c in self.entries],
                            self.root))
        return path




expected = functools.partial(packed.expected, "torch_ranks")
unpack = functools.partial(packed.unpack, "torch_ranks")
