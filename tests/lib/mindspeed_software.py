# SPDX-License-Identifier: Apache-2.0
"""The converter of MindSpeed-LLM (convert_ckpt_v2.py) out of the directory
RSH_MINDSPEED_LLM, which has its source of 2026-08, under a Python that has torch,
transformers, safetensors and tqdm.

    git clone https://gitcode.com/Ascend/MindSpeed-LLM DIRECTORY
    mindspeed_software.py WORD...    the words of convert_ckpt_v2.py
"""

import os
import sys
import types


def package(name, path=None, **more):
    """A package without what its __init__ imports: parts for training on Ascend."""
    module = types.ModuleType(name)
    module.__dict__.update(more)
    if path:
        module.__path__ = [path]
    sys.modules[name] = module


def converter():
    """convert_ckpt_v2, whose main() takes its words from sys.argv."""
    root = os.environ["RSH_MINDSPEED_LLM"]
    sys.path.insert(0, root)
    for name in "mindspeed_llm", "mindspeed_llm.tasks", "mindspeed_llm.tasks.checkpoint":
        package(name, os.path.join(root, *name.split(".")))
    package("mindspeed_llm.training")
    package("mindspeed_llm.training.utils", auto_coverage=lambda function: function)
    import convert_ckpt_v2
    return convert_ckpt_v2


def convert(source, target, model, to, *words):
    """From a tree ("mg") to a Hugging Face directory ("hf"), or the other way; converter()
    was called before."""
    import logging

    import convert_ckpt_v2
    logging.getLogger().setLevel(logging.WARNING)
    sys.argv = ["convert_ckpt_v2.py", "--load-model-type", "mg" if to == "hf" else "hf",
                "--save-model-type", to, "--load-dir", source, "--save-dir", target,
                "--model-type-hf", model, *map(str, words)]
    convert_ckpt_v2.main()


if __name__ == "__main__":
    converter().main()
