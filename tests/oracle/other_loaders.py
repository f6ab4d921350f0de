#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loaders of SGLang and of torchtitan, on the CPU.

A model out of ranks is mounted as Hugging Face's, and each loader finds in the mount what it
finds in the model itself.  RSH_HF_PYTHON names a Python that has torch; torchtitan loads with
torch's HuggingFaceStorageReader.  RSH_SGLANG is a directory with an unpacked wheel of sglang,
of which the file with its readers of weights is run; it imports nothing else of sglang that
reads.

    other_loaders.py
    other_loaders.py load HOW DIRECTORY      under that Python: hashes of all tensors
"""

import glob
import hashlib
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib")]
# How SGLang reads: its reader, and its options.
SGLANG = {"sglang": ("buffered_multi_thread_safetensors_weights_iterator", {"max_workers": 8}),
          "sglang, one thread": ("safetensors_weights_iterator", {}),
          "sglang --weight-loader-disable-mmap": ("safetensors_weights_iterator",
                                                  {"disable_mmap": True}),
          "sglang --weight-loader-prefetch-checkpoints": ("safetensors_weights_iterator",
                                                          {"prefetch": True})}


# ---- under RSH_HF_PYTHON ----

def sglang_readers():
    """Its file of readers, whose other imports of sglang are empty."""
    import importlib.abc
    import importlib.machinery
    import importlib.util
    from unittest.mock import MagicMock

    class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
        def find_spec(self, name, path, target=None):
            return importlib.machinery.ModuleSpec(name, self, is_package=True) \
                if name.split(".")[0] in ("sglang", "pydantic", "filelock") else None

        def create_module(self, spec):
            module = MagicMock(name=spec.name, BaseModel=object)
            module.__path__, module.__name__, module.__spec__ = [], spec.name, spec
            return module

        def exec_module(self, module):
            pass

    sys.meta_path.append(Empty())
    spec = importlib.util.spec_from_file_location("readers", os.path.join(
        os.environ["RSH_SGLANG"], "sglang", "srt", "model_loader", "weight_utils.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules["readers"] = module
    spec.loader.exec_module(module)
    return module


def torchtitan(directory):
    """As its checkpointer does with initial_load_in_hf."""
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import HuggingFaceStorageReader
    import torch
    metadata = HuggingFaceStorageReader(directory).read_metadata()
    state = {name: torch.zeros(one.size, dtype=one.properties.dtype)
             for name, one in metadata.state_dict_metadata.items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(directory), no_dist=True)
    return state.items()


def load(how, directory):
    import torch
    if how in SGLANG:
        reader, options = SGLANG[how]
        files = sorted(glob.glob(os.path.join(directory, "*.safetensors")))
        tensors = getattr(sglang_readers(), reader)(files, **options)
    else:
        tensors = torchtitan(directory)
    print(json.dumps({name: [str(t.dtype), list(t.shape), hashlib.sha256(
        t.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()).hexdigest()]
        for name, t in tensors}))


if sys.argv[1:2] == ["load"]:
    load(*sys.argv[2:])
    sys.exit(0)

import genuine  # noqa: E402
from demands import check  # noqa: E402
from rsh_cli import good  # noqa: E402
from rsh_mount import Mounted, Tap, require_named  # noqa: E402

MODEL = os.path.join(genuine.WEIGHTS, "models", "qwen3")
STRATEGY = os.path.join(genuine.WEIGHTS, "strategies", "qwen3.qwen3.mp2.ckpt")


def loaded(how, directory):
    done = subprocess.run([os.environ["RSH_HF_PYTHON"], os.path.abspath(__file__), "load", how,
                           directory], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=600, check=False)
    check(done.returncode == 0, done.stderr[-3000:])
    return json.loads(done.stdout.splitlines()[-1])


def main():
    require_named("RSH_HF_PYTHON", "a Python that has torch")
    loaders = ["torchtitan", *(SGLANG if os.environ.get("RSH_SGLANG") else ())]
    tap = Tap(1 + len(SGLANG))
    with tempfile.TemporaryDirectory() as directory:
        ranks = os.path.join(directory, "ranks")
        good("export", "--convert", "qwen3", "--from", "hf", "--format", "ckpt",
             "--dst-strategy", STRATEGY, MODEL, ranks)
        for how in loaders:
            with tap.test(how), Mounted(ranks, src_strategy=STRATEGY, extra=[
                    "--convert", "qwen3", "--format", "hf", "--model-files", MODEL]) as mount:
                wanted = loaded(how, MODEL)
                check(wanted and loaded(how, mount.path) == wanted, how)
        for how in SGLANG if len(loaders) == 1 else ():
            tap.skip(how, "RSH_SGLANG names no directory with sglang")
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
