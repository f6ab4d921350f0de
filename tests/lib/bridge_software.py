# SPDX-License-Identifier: Apache-2.0
"""The mappings of Megatron-Bridge out of the directory RSH_MEGATRON_BRIDGE, which has its
source (src) and that of Megatron-LM of the same day (megatron), under a Python that has torch
and transformers 5.  No GPU and no TransformerEngine: its classes of mappings are run as they
are, for one rank, and what they import for training is not there.

    git clone https://github.com/NVIDIA-NeMo/Megatron-Bridge DIRECTORY     # 067f987d
    git clone https://github.com/NVIDIA/Megatron-LM lm                     # d98e8a64
    mv lm/megatron DIRECTORY/
"""

import importlib
import importlib.abc
import importlib.machinery
import os
import re
import sys
import types
import typing
import warnings

ABSENT = ("omegaconf", "wandb", "megatron.bridge.peft", "megatron.bridge.training",
          "megatron.bridge.diffusion", "megatron.bridge.models.qwen_vl.modelling_qwen3_vl")


class _Absent(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        made = type(name, (), {"__class_getitem__": classmethod(lambda kind, _: kind)})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if not any(name == word or name.startswith(word + ".") for word in ABSENT):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = _Absent(spec.name)
        module.__path__ = []
        return module

    def exec_module(self, module):
        pass


def _package(name, *paths):
    module = types.ModuleType(name)
    module.__path__ = list(paths)
    sys.modules[name] = module
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, module)


def enter():
    """To be called before Megatron-Bridge is imported."""
    warnings.filterwarnings("ignore")
    root = os.environ["RSH_MEGATRON_BRIDGE"]
    source = os.path.join(root, "src", "megatron")
    typing.override = getattr(typing, "override", lambda function: function)
    _package("megatron", source, os.path.join(root, "megatron"))
    models = os.path.join(source, "bridge", "models")
    _package("megatron.bridge", os.path.join(source, "bridge"))
    _package("megatron.bridge.models", models)
    for name in os.listdir(models):
        if os.path.isdir(os.path.join(models, name)):
            _package(f"megatron.bridge.models.{name}", os.path.join(models, name))
    sys.meta_path.insert(0, _Finder())
    importlib.import_module("megatron.bridge.training.fsdp_compat").MEGATRON_FSDP_TYPES = ()


def opened(module, name, config, names):
    """One of its classes for a model with these names."""
    kind = getattr(importlib.import_module(f"megatron.bridge.models.{module}"), name)
    bridge = kind.__new__(kind)
    fnmatch = importlib.import_module("fnmatch")
    source = types.SimpleNamespace(
        get_all_keys=lambda: list(names),
        has_glob=lambda pattern: any(fnmatch.fnmatch(n, pattern) for n in names))
    bridge.hf_config = config
    bridge.hf_pretrained = types.SimpleNamespace(
        config=config, state=types.SimpleNamespace(source=source))
    return bridge


def _module(config, weight):
    """A module of one rank, for which nothing is divided."""
    import torch
    module = torch.nn.Module()
    module.tensor_model_parallel = False
    module.config = config
    module.weight = torch.nn.Parameter(weight.detach().clone(), requires_grad=False)
    module.weight0 = module.weight
    return module


def provider(config, name=""):
    """What the mappings ask of Megatron's configuration of a tensor."""
    if name.startswith("vision_model."):
        vision = config.vision_config
        return types.SimpleNamespace(
            hidden_size=vision.hidden_size, num_attention_heads=vision.num_heads,
            num_query_groups=vision.num_heads,
            kv_channels=vision.hidden_size // vision.num_heads)
    text = getattr(config, "text_config", config)
    layer = re.search(r"decoder\.layers\.(\d+)", name)
    if "per_layer_config" in text.to_dict():
        text = text.per_layer_config[int(layer.group(1)) if layer else 0]
    get = lambda key: getattr(text, key, None)  # noqa: E731
    return types.SimpleNamespace(
        hidden_size=get("hidden_size"), num_attention_heads=get("num_attention_heads"),
        num_query_groups=get("num_key_value_heads"), kv_channels=get("head_dim"),
        attention_output_gate="linear_num_key_heads" in text.to_dict(),
        linear_key_head_dim=get("linear_key_head_dim"),
        linear_value_head_dim=get("linear_value_head_dim"),
        linear_num_key_heads=get("linear_num_key_heads"),
        linear_num_value_heads=get("linear_num_value_heads"))


def _numbers(pattern, names):
    """The numbers that a pattern of Hugging Face's names has in a model."""
    expression = re.compile(re.escape(pattern).replace(r"\*\*", "(.+)").replace(r"\*", r"(\d+)"))
    return {found.groups() for found in map(expression.fullmatch, names) if found}


def _resolved(mapping, names, experts):
    """The mapping for each set of numbers with which all its tensors exist."""
    patterns = list(mapping.hf_param.values()) if isinstance(mapping.hf_param, dict) else \
        [mapping.hf_param]
    wanted = mapping.megatron_param.replace("**", "*").count("*")
    for numbers in sorted(_numbers(patterns[0], names)):
        more = [()] if len(numbers) == wanted else [(str(e),) for e in range(experts)]
        for last in more:
            one = mapping.resolve(numbers + last) if numbers + last else mapping
            found = one.hf_param.values() if isinstance(one.hf_param, dict) else [one.hf_param]
            if set(found) <= set(names) or getattr(one, "allow_hf_name_mismatch", False):
                yield one


# Norms that are part of the module behind them, where Megatron has that module.
FUSED = (("self_attention.linear_qkv.layer_norm_weight", "input_layernorm.weight"),
         ("self_attention.in_proj.layer_norm_weight", "input_layernorm.weight"),
         ("self_attention.linear_q_up_proj.layer_norm_weight", "self_attention.q_layernorm.weight"),
         ("self_attention.linear_kv_up_proj.layer_norm_weight",
          "self_attention.kv_layernorm.weight"),
         ("mlp.linear_fc1.layer_norm_weight", "pre_mlp_layernorm.weight"))


def _norms(made, sparse):
    """Leaves the names of norms that Megatron's specification of a layer has.  With sparse
    attention latent norms are modules of their own."""
    for name in list(made):
        for fused, apart in (*FUSED, *(tuple(n.replace("weight", "bias") for n in pair)
                                       for pair in FUSED)):
            if name.endswith(fused):
                begin = name[:-len(fused)]
                weight = begin + re.sub("layer_norm_(weight|bias)", "weight", fused)
                if weight in made and not (sparse and "_up_proj" in fused):
                    made.pop(begin + apart, None)
                else:
                    del made[name]
    return made


def mapped(mappings, tensors, layers, experts=0, sparse=False):
    """{name of Megatron: mapping}; the decoder has so many layers, and others predict."""
    made = {}
    for mapping in mappings:
        # Other ways to have experts and prediction, and modules that no model has.
        if re.search(r"local_experts|\.transformer_layer\.|^mtp\.(?!layers)",
                     mapping.megatron_param):
            continue
        for one in _resolved(mapping, tensors, experts):
            layer = re.search(r"decoder\.layers\.(\d+)", one.megatron_param)
            if not layer or int(layer.group(1)) < layers:
                made.setdefault(one.megatron_param, one)
    return _norms(made, sparse)


def to_megatron(bridge, found, tensors, config):
    made = {}
    for name, mapping in found.items():
        if getattr(mapping, "allow_hf_name_mismatch", False):
            given = bridge.maybe_modify_loaded_hf_weight(mapping.hf_param, tensors)
        elif isinstance(mapping.hf_param, dict):
            given = {k: tensors[n] for k, n in mapping.hf_param.items()}
        else:
            given = tensors[mapping.hf_param]
        weight = next(iter(given.values())) if isinstance(given, dict) else given
        if re.search(r"experts\.linear_fc\d\.weight\d+$", name) and weight.dim() == 3:
            weight = weight[0]
        made[name] = mapping.hf_to_megatron(
            given, _module(provider(config, name), weight)).contiguous()
    return made


def to_hugging_face(bridge, found, tensors, config):
    """Experts that the mapping gives one by one are stacked again."""
    import torch
    made, stacks = {}, {}
    for name, mapping in found.items():
        given = mapping.megatron_to_hf(
            tensors[name], _module(provider(config, name), tensors[name]))
        if getattr(mapping, "allow_hf_name_mismatch", False):
            given = bridge.maybe_modify_converted_hf_weight(None, given, None)
        for key, value in given.items():
            if getattr(mapping, "is_grouped_export", False):
                expert = int(re.search(r"(\d+)$", name).group(1))
                stacks.setdefault(key, {})[expert] = value
            else:
                made[key] = value.contiguous()
    for key, experts in stacks.items():
        made[key] = torch.stack([experts[e] for e in range(len(experts))])
    return made


def distributed(tensors, config):
    """The names of a distributed checkpoint, as Megatron-Core 0.16 saves: experts in one
    tensor, and the projections of linear attention apart."""
    import torch
    has = provider(config)
    made, experts = {}, {}
    for name, value in tensors.items():
        found = re.fullmatch(r"(.*\.experts\.)(linear_fc\d)\.weight(\d+)", name)
        if found:
            stack = f"{found.group(1)}experts.{found.group(2)}.weight"
            experts.setdefault(stack, {})[int(found.group(3))] = value
        elif name.endswith((".in_proj.weight", ".conv1d.weight")):
            keys = has.linear_key_head_dim * has.linear_num_key_heads
            values = has.linear_value_head_dim * has.linear_num_value_heads
            heads = has.linear_num_value_heads
            sizes = {"query": keys, "key": keys, "value": values, "z": values, "beta": heads,
                     "alpha": heads}
            words = list(sizes)[:6 if ".in_proj." in name else 3]
            for word, part in zip(words, torch.split(value, [sizes[w] for w in words])):
                made[f"{name}.{word}"] = part.contiguous()
        else:
            made[name] = value
    for stack, parts in experts.items():
        made[stack] = torch.stack([parts[e] for e in range(len(parts))])
    return made
