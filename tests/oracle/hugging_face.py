#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Models saved by MindSpore, loaded by the Hugging Face tools.

RSH_HF_PYTHON names a Python that has transformers and torch.  It makes small
models, whose weights MindSpore saves under the same names, sharded over two
cards; the mount in Hugging Face's form, in many parts, is loaded with
from_pretrained(), and every tensor must be the original's, bit for bit.

    hugging_face.py                     the test
    hugging_face.py make|compare ...    what the other Python does for it
"""

import itertools
import os
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]
import rsh_mount  # noqa: E402
from demands import content, write  # noqa: E402
from ms_formats import Layout, StageFile, strategy_bytes  # noqa: E402
from safetensors_format import Tensors, read_model  # noqa: E402
from transformers_opens import compare, other_python  # noqa: E402

MODELS = ("gpt2", "llama")
DTYPES = ("float32", "bfloat16")
FORMATS = ("ckpt", "safetensors")
CARDS = 2
PART_BYTES = 20_000


# ---- under RSH_HF_PYTHON ----

def configuration(kind):
    from transformers import GPT2Config, LlamaConfig
    if kind == "gpt2":
        return GPT2Config(vocab_size=96, n_positions=32, n_embd=48, n_layer=2, n_head=4)
    return LlamaConfig(vocab_size=96, hidden_size=48, intermediate_size=80,
                       num_hidden_layers=2, num_attention_heads=4,
                       num_key_value_heads=2, max_position_embeddings=32)


def make(directory, kind, dtype):
    """The model as save_pretrained() leaves it."""
    import torch
    from transformers import AutoModelForCausalLM
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(configuration(kind))
    with torch.no_grad():
        # Biases and norms begin as zeros and ones.
        for parameter in model.parameters():
            parameter.normal_()
    model.to(getattr(torch, dtype)).save_pretrained(directory)


# ---- under RSH_ORACLE_PYTHON ----

class Saved:
    """One model: the original, and what MindSpore saved of it on two cards."""

    def __init__(self, root, kind, dtype):
        self.original = os.path.join(root, "original")
        self.root = root
        self.strategy = os.path.join(root, "strategy.ckpt")
        self.dtype = dtype
        other_python(__file__, "make", self.original, kind, dtype)
        self.weights = self.read_original()
        # The greater dimension is cut; vectors lie on both cards.
        self.cuts = {name: None if array.ndim < 2 else
                     int(array.shape[1] > array.shape[0])
                     for name, array in self.weights.items()}
        layouts = {name: Layout([CARDS], [0 if d == self.cuts[name] else -1
                                          for d in range(array.ndim)])
                   for name, array in self.weights.items()}
        write(self.strategy, strategy_bytes(StageFile(0, layouts)))

    def read_original(self):
        """{name: array}, BFloat16 in the type that MindSpore takes."""
        import numpy
        from mindspore.common.np_dtype import bfloat16
        types = {"F32": numpy.float32, "BF16": bfloat16}
        values = Tensors(content(os.path.join(self.original, "model.safetensors"))).values()
        return {name: numpy.frombuffer(data, numpy.uint8).view(types[dtype]).reshape(shape)
                for name, (dtype, shape, data) in values.items()}

    def save(self, suffix):
        import mindspore
        import numpy
        for rank in range(CARDS):
            records = []
            for name, array in self.weights.items():
                if self.cuts[name] is not None:
                    array = numpy.split(array, CARDS, self.cuts[name])[rank]
                records.append({"name": name, "data": mindspore.Tensor(array.copy())})
            folder = os.path.join(self.root, suffix, f"rank_{rank}")
            os.makedirs(folder, exist_ok=True)
            mindspore.save_checkpoint(records, os.path.join(folder, f"net-1_1.{suffix}"),
                                      format=suffix,
                                      append_dict={"epoch_num": 1, "step_num": 1})

    def check(self, suffix):
        """The mount with the model's configuration beside it."""
        directory = os.path.join(self.root, f"model-{suffix}")
        os.mkdir(directory)
        os.symlink(os.path.join(self.original, "config.json"),
                   os.path.join(directory, "config.json"))
        with rsh_mount.Mounted(
                os.path.join(self.root, suffix), src_strategy=self.strategy,
                extra=["--format", "hf", "--part-size", str(PART_BYTES),
                       "--drop", "^(epoch|step)_num$"]) as mount:
            for name in os.listdir(mount.path):
                os.symlink(os.path.join(mount.path, name), os.path.join(directory, name))
            index, _ = read_model(mount.path)
            parts = set(index["weight_map"].values())
            assert len(parts) > 3, f"only {sorted(parts)}"
            other_python(__file__, "compare", self.original, directory, self.dtype)


def main():
    if sys.argv[1:2] == ["make"]:
        return make(*sys.argv[2:])
    if sys.argv[1:2] == ["compare"]:
        return compare(*sys.argv[2:])
    rsh_mount.require_named("RSH_HF_PYTHON", "a Python that has transformers")
    rsh_mount.require_oracle()
    rsh_mount.require_mount()
    os.environ["GLOG_v"] = "4"
    tap = rsh_mount.Tap(len(MODELS) * len(DTYPES) * len(FORMATS))
    for kind, dtype in itertools.product(MODELS, DTYPES):
        with tempfile.TemporaryDirectory(prefix="reshardfs-hf-") as root:
            saved = Saved(root, kind, dtype)
            for suffix in FORMATS:
                with tap.test(f"{kind} in {dtype}, saved as {suffix}"):
                    saved.save(suffix)
                    saved.check(suffix)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
