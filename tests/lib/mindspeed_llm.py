# SPDX-License-Identifier: Apache-2.0
"""The converter of MindSpeed-LLM (convert_ckpt_v2.py) out of the directory
RSH_MINDSPEED_LLM, which has its source of 2026-08, under a Python that has torch and tqdm.

    git clone https://gitcode.com/Ascend/MindSpeed-LLM DIRECTORY
"""

import os
import sys
import types


def _module(name, path=None, **members):
    """A package of which only modules that are asked for are imported."""
    module = types.ModuleType(name)
    module.__dict__.update(members)
    if path:
        module.__path__ = [os.path.join(os.environ["RSH_MINDSPEED_LLM"], path)]
    sys.modules[name] = module


def enter():
    sys.path.insert(0, os.environ["RSH_MINDSPEED_LLM"])
    for path in "mindspeed_llm", "mindspeed_llm/tasks", "mindspeed_llm/tasks/checkpoint":
        _module(path.replace("/", "."), path)
    _module("mindspeed_llm.training")
    _module("mindspeed_llm.training.utils", auto_coverage=lambda function: function)
    import convert_ckpt_v2  # noqa: F401


def convert(source, target, model, to, *words):
    """From a tree to a Hugging Face directory, or the other way."""
    import logging

    import convert_ckpt_v2
    logging.getLogger().setLevel(logging.WARNING)
    sys.argv = ["convert_ckpt_v2.py", "--load-model-type", "mg" if to == "hf" else "hf",
                "--save-model-type", to, "--load-dir", source, "--save-dir", target,
                "--model-type-hf", model, *map(str, words)]
    convert_ckpt_v2.main()
