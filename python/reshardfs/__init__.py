# SPDX-License-Identifier: Apache-2.0
"""Read MindSpore checkpoints under another sharding strategy.

With a mount, for code that reads files:

    import mindspore, reshardfs

    with reshardfs.mounted("checkpoints", src_strategy="8cards.ckpt",
                           dst_strategy="4cards.ckpt") as m:
        params = mindspore.load_checkpoint(m.rank(0))

Without a mount, through libreshard:

    for f in reshardfs.files("checkpoints", src_strategy=..., dst_strategy=...):
        print(f.rank, f.name, f.size)
    head = reshardfs.read("checkpoints", 0, length=100, src_strategy=...,
                          dst_strategy=...)

Tensors are read directly from the source by several threads:

    with reshardfs.tensors("checkpoints", 0, src_strategy=...,
                           dst_strategy=...) as t:
        table = t["embedding.table"]                    # a numpy array
        rows = t.get_slice("embedding.table")[:1000]    # reads only these rows
        everything = t.load(progress=True)              # {name: array}

The whole model, for torch:

    weights = reshardfs.tensors("checkpoints", to="torch", src_strategy=...,
                                dst_strategy="none").load()

Parameters of MindSpore, and of a net:

    params = reshardfs.load_checkpoint("checkpoints", 0, src_strategy=...,
                                       dst_strategy=...)
    reshardfs.load_checkpoint("checkpoints", 0, net, src_strategy=...,
                              dst_strategy=...)

Weights one after the other, for an engine whose loader takes an iterator:

    for name, tensor in reshardfs.weights("checkpoints", src_strategy=...,
                                          convert="qwen3"):
        parameters[name].copy_(tensor)

Code for safetensors can use reshardfs.tensors(...) instead of safe_open(...).

Options are those of `reshardfs mount -o` as keywords: src_strategy and
dst_strategy (or dst_mesh), select, format, only and so on; see
reshardfs-mount(1).  True sets an option without a value.  None means not given,
and so does False for an option without a value.  A list gives an option several
times.  dst_strategy="none" is the whole model.  `from` is a keyword of Python:
write from_="hf".

Errors: failures raise Error with the message that the program would print, in
which options have the form of keywords.  A value of the wrong type raises
TypeError.  Replicas replace files that fail, a file that changed is detected
after each read, and an array is complete or an exception is raised.  Unlike a
mount, nothing is sandboxed: landlock and seccomp would restrict the whole
program.

Loads of several ranks of one source share one open source, while any of it is
open and unchanged.  Other Python threads run during a load.  progress=True
shows a bar on standard error.  progress can also be a function, which gets the
bytes loaded so far and all bytes; an exception in it stops the load.  threads
is the number of threads that read; with 0 the library decides.

Tensors need numpy (pip install reshardfs[arrays]), and torch for to="torch".  The
rest needs only Python.

LIBRESHARD in the environment is the path of the library; the default is that in
the wheel of this module, else libreshard.so.0.  RESHARDFS is the path of the
program; the default is that in the wheel of this module, else reshardfs.
"""

from ._library import Error, File, Record, Source, files, read, records
from ._mindspore import load_checkpoint, load_checkpoint_async
from ._mounts import Mount, mounted
from ._tensors import Tensors, TensorSlice, tensors
from ._weights import weights

__version__ = "0.3.0"
__all__ = ["Error", "File", "Mount", "Record", "Source", "TensorSlice",
           "Tensors", "files", "load_checkpoint", "load_checkpoint_async",
           "mounted", "read", "records", "tensors", "weights"]

# Tracebacks and help() then show the names that programs use.
for _public in __all__:
    globals()[_public].__module__ = __name__
del _public
