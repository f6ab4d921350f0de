# SPDX-License-Identifier: Apache-2.0
"""The converter of MindSpeed-LLM out of the directory RSH_MINDSPEED_LLM, a checkout, run by a
Python that has torch, transformers, safetensors and tqdm.

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


if __name__ == "__main__":
    converter().main()
