#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What --format megatron shows, converted back by MindSpeed-LLM.

RSH_MINDSPEED_LLM names a checkout, and RSH_HF_PYTHON a Python with torch and transformers.
Its converter makes a Hugging Face model of a mount, which is an iteration for a mesh that is
drawn at random: it reads the arguments in the files, and joins their tensors.  Each tensor
has the bits of the model that was made up.
"""

import os
import random
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LIB = os.path.join(HERE, "..", "lib")
sys.path[:0] = [LIB, os.path.join(HERE, "..", "mount"), os.path.join(HERE, "..", "..", "python")]
os.environ["RESHARDFS_TABLES"] = os.path.abspath(os.path.join(HERE, "..", "..", "tables"))

import random_models  # noqa: E402
from demands import check  # noqa: E402
from megatron_output import random_mesh  # noqa: E402
from rsh_mount import Alone, Tap, require_mount, require_named  # noqa: E402
from run_seed import seed_and_cases  # noqa: E402
from shown_model import same, values_of_model  # noqa: E402

KINDS = {"LlamaForCausalLM": "llama2", "Qwen2ForCausalLM": "qwen25",
         "Qwen3ForCausalLM": "qwen3", "Qwen3MoeForCausalLM": "qwen3-moe"}
MADE = "megatron-dense", "megatron-moe", "megatron-moe-local"


def model_of(number):
    """A model that the converter has: dense layers come first in those with experts."""
    chance = random.Random(number)
    while True:
        model = random_models.Model(chance.randrange(1 << 30), MADE[number % len(MADE)])
        text = str(model)
        if model.architecture not in KINDS or "dense layers" in text or "fp8" in text or \
                any("rotary" in name for name in model.tensors):
            continue
        mesh, words = random_mesh(chance, model)
        # The converter reads no list of layers from the files.
        if len(words) == 2 and max(mesh.values()) > 1:
            return model, words


def run_case(tap, number, directory):
    model, words = model_of(number)
    with tap.test(f"{model}, {words[1]}, --seed {number} --cases 1"), \
            tempfile.TemporaryDirectory(dir=directory) as own:
        hf = model.save(os.path.join(own, "hf"))
        back = os.path.join(own, "back")
        with Alone(hf, extra=["--format", "megatron", "--prefix", "iter_0000001", *words,
                              "--convert", model.table, "--from", "hf"]) as mount:
            done = subprocess.run(
                [os.environ["RSH_HF_PYTHON"], "-W", "ignore",
                 os.path.join(LIB, "mindspeed_software.py"), "--load-model-type", "mg",
                 "--save-model-type", "hf", "--load-dir", mount.path, "--save-dir", back,
                 "--model-type-hf", KINDS[model.architecture],
                 *(["--moe-grouped-gemm"] if model.table == "megatron-moe" else [])],
                capture_output=True, text=True, check=False)
        check(done.returncode == 0, done.stderr[-2000:])
        same(values_of_model(back), model.tensors, model)


def main():
    require_named("RSH_MINDSPEED_LLM", "a checkout of MindSpeed-LLM")
    require_named("RSH_HF_PYTHON", "a Python with transformers")
    require_mount()
    words = seed_and_cases(6, seed=0)
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        for number in range(words.seed, words.seed + words.cases):
            run_case(tap, number, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
