# SPDX-License-Identifier: Apache-2.0
"""MindSpore checkpoints as they would be under another sharding strategy.

With a mount, for whatever reads files:

    import mindspore, reshardfs

    with reshardfs.mounted("checkpoints", src_strategy="8cards.ckpt",
                           dst_strategy="4cards.ckpt") as m:
        params = mindspore.load_checkpoint(m.rank(0))

and without one, through libreshard:

    for f in reshardfs.files("checkpoints", src_strategy=..., dst_strategy=...):
        print(f.rank, f.name, f.size)
    head = reshardfs.read("checkpoints", 0, length=100, src_strategy=...,
                          dst_strategy=...)

Tensors come straight from the source's files, by several threads:

    with reshardfs.tensors("checkpoints", 0, src_strategy=...,
                           dst_strategy=...) as t:
        table = t["embedding.table"]                    # an array of numpy
        rows = t.get_slice("embedding.table")[:1000]    # reads these alone
        everything = t.load(progress=True)              # {name: array}

and from a whole model, with dst_strategy="none", as torch has them:

    weights = reshardfs.tensors("checkpoints", to="torch", src_strategy=...,
                                dst_strategy="none").load()

Parameters of MindSpore come the same way, and go into a net:

    params = reshardfs.load_checkpoint("checkpoints", 0, src_strategy=...,
                                       dst_strategy=...)
    reshardfs.load_checkpoint("checkpoints", 0, net, src_strategy=...,
                              dst_strategy=...)

A program of safetensors has reshardfs.tensors(...) for its safe_open(...).

Options are those of `reshardfs mount -o`, as keywords: src_strategy and
dst_strategy (or dst_mesh), select, format, only and so on; see reshardfs(1).
True stands for an option without a value, None for one that is not given, as
does False where there is no value, a list for one that is given several times.
The whole model is dst_strategy="none"; `from` is a word of the language:
from_="hf".

What goes wrong raises Error with the sentence that the program would have
printed, but for options, which are called as here.  A value of a type that an
option does not take is a TypeError.  What a mount promises holds: another rank's file is read where one
fails, after each read a file is looked at whether it is still the same, and an
array is given whole or not at all.  Only nothing is confined: landlock and
seccomp would bind the program as well.

Who loads several ranks, or the same one again, while any of it is open shares
one open source, as long as nothing has changed of it.  Other threads run while
one loads.  progress=True is a bar on standard error; or give what is called with
the bytes that are there and those that are wanted: what it raises stops the
load.  threads says how many read, 0 as many as pay.

Tensors need numpy, and torch if they go there; the rest needs nothing but
Python.

The library is what LIBRESHARD in the environment names, else the one in the
wheel that the module came with, else libreshard.so.0; the program is what
RESHARDFS names, else the one in the wheel, else reshardfs.
"""

from ._library import Error, File, Record, Source, files, read, records
from ._mindspore import load_checkpoint, load_checkpoint_async
from ._mounts import Mount, mounted
from ._tensors import Tensors, TensorSlice, tensors

__all__ = ["Error", "File", "Mount", "Record", "Source", "TensorSlice",
           "Tensors", "files", "load_checkpoint", "load_checkpoint_async",
           "mounted", "read", "records", "tensors"]

# Tracebacks and help() call them by the names that programs use.
for _public in __all__:
    globals()[_public].__module__ = __name__
del _public
