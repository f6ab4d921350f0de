#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What config.json says beside weights, as transformers takes it.

RSH_HF_PYTHON names a Python that has transformers and torch.  Models that are shown are
loaded with from_pretrained(): nothing is missing, nothing left over, and the type is that
of the weights.  With a config.json of another model transformers makes up tensors or
leaves some out, and the mount is refused.  And no class of transformers is refused with
the config.json that it has by default: its weights are headers, of which the bytes are a
hole in the file.

    config_says.py                          the test
    config_says.py make|load|defaults ...   what the other Python does for it
"""

import contextlib
import json
import os
import shutil
import signal
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
LIB = os.path.join(HERE, "..", "lib")
DATA = os.path.join(HERE, "..", "data", "weights", "models")
sys.path[:0] = [LIB, HERE]

from transformers_opens import make, other_python  # noqa: E402

CASTS = ("float32", "bfloat16", "float16")
SIZES = ("num_hidden_layers", "hidden_size", "vocab_size", "intermediate_size",
         "num_attention_heads", "num_key_value_heads", "head_dim")
ROPED = ("rope_parameters", "layer_types")
SECONDS_A_CLASS = 30


# ---- under RSH_HF_PYTHON ----

def load_one(path):
    """What transformers finds wrong, or [types of the parameters]."""
    import torch
    from transformers import AutoModelForCausalLM
    model, said = AutoModelForCausalLM.from_pretrained(path, dtype="auto",
                                                       output_loading_info=True)
    wrong = {key: sorted(map(str, value)) for key, value in said.items() if value}
    # Some classes have parameters that are float32, whatever the type is.
    kept = {*(model._keep_in_fp32_modules or ()), *(model._keep_in_fp32_modules_strict or ())}
    return wrong or sorted({str(p.dtype).removeprefix("torch.")
                            for name, p in model.named_parameters()
                            if p.dtype != torch.float32 or not any(part in name for part in kept)})


def load(paths):
    said = []
    for path in json.loads(paths):
        try:
            said.append(load_one(path))
        except Exception as error:  # one verdict each
            said.append(f"{type(error).__name__}: {error}"[:500])
    print("\n" + json.dumps(said))


def all_classes():
    """{class: model_type} of what there is of language models and their parts."""
    from transformers.models.auto import modeling_auto as auto
    classes = {}
    for mapping in (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
                    auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, auto.MODEL_MAPPING_NAMES):
        for kind, names in mapping.items():
            for name in [names] if isinstance(names, str) else names:
                classes[name] = kind
    return classes


def write_default(path, name, kind):
    """The class as a model directory without bytes."""
    import torch
    import transformers
    from safetensors.torch import _TYPES
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    types = {dtype: name for name, dtype in _TYPES.items()}
    config = CONFIG_MAPPING[kind]()
    with torch.device("meta"):
        model = getattr(transformers, name)(config)
    config.architectures = [name]
    tied = set(getattr(model, "all_tied_weights_keys", None) or {})
    header, at = {}, 0
    for key, value in model.state_dict().items():
        if key not in tied:
            end = at + value.numel() * value.element_size()
            header[key] = {"dtype": types[value.dtype], "shape": list(value.shape),
                           "data_offsets": [at, end]}
            at = end
    os.makedirs(path)
    config.to_json_file(os.path.join(path, "config.json"), use_diff=False)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(path, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)


def defaults(root):
    """Those that cannot be made without more than there is are told."""
    def late(*_):
        raise TimeoutError

    signal.signal(signal.SIGALRM, late)
    for name, kind in all_classes().items():
        path = os.path.join(root, name)
        signal.alarm(SECONDS_A_CLASS)
        try:
            write_default(path, name, kind)
        except Exception as error:  # of any class's own making
            shutil.rmtree(path, ignore_errors=True)
            print(f"{name}: {type(error).__name__}: {error}"[:160].replace("\n", " "))
        finally:
            signal.alarm(0)


# ---- the test ----

def loaded(paths):
    return json.loads(other_python(__file__, "load", json.dumps(paths)).splitlines()[-1])


def refused(source, beside):
    """The sentence, also that no name is one of the model; "" where it is not."""
    from rsh_cli import INPUT, run
    got = run("plan", "--src-strategy", "none", "--dst-strategy", "none", "--format", "hf",
              "--model-files", beside, source)
    return got.err if got.status == INPUT or "no weight has a name" in got.err else ""


def wrong_configs(path):
    """(key, config) of those that another model could have."""
    with open(os.path.join(path, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    for key in SIZES:
        # Latent attention has no use for a head's size.
        if isinstance(config.get(key), int) and \
                not (key == "head_dim" and "kv_lora_rank" in config):
            # What stands for layers one by one goes, so that nothing else is wrong.
            yield key, {**{k: v for k, v in config.items() if k not in ROPED},
                        key: config[key] * 2}
    tied = config["tie_word_embeddings"]
    yield "tie_word_embeddings", {**config, "tie_word_embeddings": not tied}


def test_right(tap, root, models):
    from rsh_mount import Mounted
    with contextlib.ExitStack() as stack:
        shown, names = [], []
        for name in models:
            for cast in CASTS:
                shown.append(stack.enter_context(Mounted(
                    os.path.join(root, name), extra=[
                        "--format", "hf", "--cast", cast, "--model-files",
                        os.path.join(root, name)])).path)
                names.append((name, cast))
        for (name, cast), said in zip(names, loaded(shown)):
            tap.ok(said == [cast], f"{name} as {cast}: loads whole, in that type", str(said))


def test_dequantised(tap, root):
    from rsh_cli import GOOD, run
    from rsh_mount import Mounted
    model = os.path.join(DATA, "deepseek_v3-fp8")
    ranks = os.path.join(root, "ranks")
    got = run("export", "--convert", "deepseek_v3", "--from", "hf", "--dst-strategy", "none",
              model, ranks)
    assert got.status == GOOD, repr(got)
    with Mounted(ranks, extra=["--convert", "deepseek_v3", "--from", "mindspore", "--config",
                               os.path.join(model, "config.json")]) as mount:
        said = loaded([mount.path])
    # Its bias of experts stays in float32, whatever the type is.
    tap.ok("bfloat16" in said[0] and isinstance(said[0], list),
           "weights that were quantised load as what they are", str(said))


def test_wrong(tap, root, models):
    """Transformers finds something wrong, or makes it up; the mount is refused."""
    paths, what = [], []
    for name in models:
        source = os.path.join(root, name)
        for key, config in wrong_configs(source):
            path = os.path.join(root, "wrong", f"{name}.{key}")
            os.makedirs(path)
            for file in os.listdir(source):
                if "safetensors" in file:
                    os.symlink(os.path.join(source, file), os.path.join(path, file))
            with open(os.path.join(path, "config.json"), "w", encoding="utf-8") as f:
                json.dump(config, f)
            paths.append(path)
            what.append((name, key))
    for (name, key), path, said in zip(what, paths, loaded(paths)):
        sentence = refused(os.path.join(root, name), path)
        harmless = isinstance(said, list)
        tap.ok(f'"{key}"' in sentence if sentence else harmless,
               f"{name} with another {key}: "
               f"{'refused' if sentence else 'the same model'}", f"{said}\n{sentence}")


def test_defaults(tap, root):
    where = os.path.join(root, "defaults")
    os.mkdir(where)
    left = other_python(__file__, "defaults", where).splitlines()
    names = sorted(os.listdir(where))
    said = {name: refused(os.path.join(where, name), os.path.join(where, name))
            for name in names}
    said = {name: sentence for name, sentence in said.items() if sentence}
    for line in left:
        print(f"# {line}")
    tap.ok(not said and len(names) > 100,
           f"none of {len(names)} classes is refused with its own config.json "
           f"({len(left)} could not be made)", "\n".join(said.values()))


def main():
    if sys.argv[1:2] == ["make"]:
        return make(*sys.argv[2:])
    if sys.argv[1:2] == ["load"]:
        return load(*sys.argv[2:])
    if sys.argv[1:2] == ["defaults"]:
        return defaults(*sys.argv[2:])
    import rsh_mount
    rsh_mount.require_named("RSH_HF_PYTHON", "a Python that has transformers")
    rsh_mount.require_mount()
    tap = rsh_mount.Tap()
    with tempfile.TemporaryDirectory(prefix="reshardfs-hf-") as root:
        other_python(__file__, "make", root)
        models = [n for n in sorted(os.listdir(root)) if n != "deepseek-v4"]
        test_right(tap, root, models)
        test_wrong(tap, root, models)
        test_dequantised(tap, root)
        test_defaults(tap, root)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
