# SPDX-License-Identifier: Apache-2.0
"""verl out of the directory RSH_VERL, which has the unpacked wheels of verl 0.9.1 and of
transformers 4.57.1 with huggingface_hub and tokenizers of that time, under a Python that
has torch and peft.

    pip install --no-deps --target DIRECTORY verl==0.9.1 transformers==4.57.1 \\
        'huggingface_hub<1.0' 'tokenizers<0.23' requests urllib3 idna charset_normalizer \\
        certifi ray omegaconf antlr4-python3-runtime==4.9.3 hydra-core tensordict codetiming \\
        torchdata orjson pillow msgpack click jsonschema protobuf attrs referencing rpds-py \\
        jsonschema-specifications cloudpickle pyvers importlib_metadata zipp
"""

import importlib.abc
import importlib.machinery
import os
import sys
import types

# What verl imports, and saving and merging do not use.
UNUSED = ("aiohttp", "cachetools", "datasets", "dill", "fastapi", "pandas", "pyarrow", "pybind11",
          "pylatexenc", "qwen_vl_utils", "tensorboard", "tensorboardX", "uvicorn", "wandb", "zmq")


class _Anything(type):
    """A class that has whatever it is asked for."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Anything(name, (), {"__init__": lambda *_, **__: None})


class _Unused(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The last finder: a package that is not there is one of classes without members."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in UNUSED:
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []

        def get(name):
            return _Anything.__getattr__(_Anything, name)
        module.__getattr__ = get
        return module

    def exec_module(self, module):
        pass


def enter():
    """To be called before verl or transformers is imported."""
    sys.path.insert(0, os.environ["RSH_VERL"])
    sys.meta_path.append(_Unused())
    os.environ.update(HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="",
                      TOKENIZERS_PARALLELISM="false")
