# SPDX-License-Identifier: Apache-2.0
"""mindformers' own converters of Hugging Face weights, in a process of stand-ins.

What of its wheel is imported are the loader's tables of Qwen3, Qwen3-MoE and
DeepSeek-V4 with their operations, both ways, and what the scripts of LLaMA and of
ChatGLM do to names and arrays; the rest is not imported (see mindformers_loader.py).
Tensors are {name: (type, shape, bytes)} with safetensors' types; elements are numbers
of as many bytes, since their values mean nothing here.  Runs under RSH_ORACLE_PYTHON.
"""

import importlib
import math
import os
import sys
import types

import mindformers_loader

# Which module and class has the table, by what it is called here.
LOADERS = {"qwen3": ("qwen3", "Qwen3PreTrainedModel"),
           "qwen3-plain": ("qwen3", "Qwen3PreTrainedModel"),
           "qwen3_moe": ("qwen3_moe", "Qwen3MoePreTrainedModel"),
           "deepseek_v4": ("deepseek4", "DeepseekV4PreTrainedModel")}
_NUMPY = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


class _Kept:
    """In place of MindSpore's Parameter, which knows no bits without a meaning."""

    def __init__(self, data, name):
        self.data, self.name = data, name


def _stand_in():
    module = mindformers_loader.module
    models = os.path.join(mindformers_loader.directory(), "mindformers", "models")
    mindformers_loader.stand_in()
    config = "parallel_core.transformer_config"
    for name in ("parallel_core", "parallel_core.utils"):
        module(f"mindformers.{name}", "")
    module(f"mindformers.{config}", TransformerConfig=object)
    module(f"mindformers.{config}_utils", convert_to_transformer_config=None)
    module("mindformers.parallel_core.utils.model_mixin", ModelMixin=object)
    module("mindformers.models", models)
    module("mindformers.models.modeling_utils",
           PreTrainedModel=type("PreTrainedModel", (), {}))
    for name, stem, made in (("qwen3", "qwen3", "Qwen3Config"),
                             ("qwen3_moe", "qwen3_moe", "Qwen3MoeConfig"),
                             ("deepseek3", "deepseek_v3", "DeepseekV3Config"),
                             ("deepseek4", "deepseek_v4", "DeepseekV4Config")):
        module(f"mindformers.models.{name}", os.path.join(models, name))
        module(f"mindformers.models.{name}.configuration_{stem}", **{made: object})


def template(name, config):
    """The loader's table of that name, told what a model's config.json says."""
    if "mindformers.models" not in sys.modules:
        _stand_in()
    place, owner = LOADERS[name]
    module = importlib.import_module("mindformers.checkpoint.converter.template")
    module.Parameter = _Kept
    table = importlib.import_module(f"mindformers.models.{place}.utils")
    result = module.WeightTemplate(
        weight_converters=getattr(table, owner).weight_converters)
    heads = config["num_attention_heads"]
    experts = next((config[key] for key in ("num_experts", "num_local_experts",
                                            "n_routed_experts") if key in config), 1)
    result.set_model_config(types.SimpleNamespace(
        num_attention_heads=heads, num_query_groups=config.get("num_key_value_heads", heads),
        kv_channels=config.get("head_dim", config["hidden_size"] // heads),
        hidden_size=config["hidden_size"], num_moe_experts=experts,
        moe_ffn_hidden_size=config.get("moe_intermediate_size"),
        use_interleaved_weight_layout_mlp=not name.endswith("-plain"),
        tensor_model_parallel_size=1, expert_model_parallel_size=1))
    for converter in result.weight_converters:
        converter.optimizer_parallel_size = 1
    return result


def _arrays(tensors):
    import numpy
    return {name: numpy.frombuffer(content, _NUMPY[len(content) // math.prod(shape)])
            .reshape(shape) for name, (_, shape, content) in tensors.items()}


def load(template, arrays):
    """{name: array} of MindSpore's form; what the table does not know is left out."""
    experts, fused, state = {}, {}, {}
    count = template.mf_config.num_moe_experts
    for name, array in arrays.items():
        if template.get_convert_op(name, template.hf_name_to_converter) is None:
            continue
        if template.check_weights_for_experts(name) or template.check_weights_for_qkv(name):
            name, array = template.preprocess_hf_weights(name, array, experts, fused, count)
            if array is None:
                continue
        state[name] = array
    return {name: kept.data for name, kept in template.get_mf_state_dict(state).items()}


def forward(table, config, tensors):
    """{name: (shape, bytes)} of MindSpore's form, without what mindformers loses; None
    where the wheel has no converter."""
    if table in LOADERS:
        return _plain(load(template(table, config), _arrays(tensors)))
    if table in SCRIPTS:
        return _plain(SCRIPTS[table](config, _arrays(tensors)))
    return None


def back(table, config, tensors):
    """{name: (shape, bytes)} of Hugging Face's form, or None."""
    if table not in LOADERS:
        return None
    return _plain(template(table, config).get_hf_state_dict(_arrays(tensors)))


def _plain(arrays):
    result = {}
    for name, array in arrays.items():
        if hasattr(array, "asnumpy"):
            array = array.asnumpy()
        result[name] = (tuple(array.shape), array.tobytes())
    return result


# ---- scripts ----

def _script(name):
    """The module of a model's script, without what it has no need of here."""
    if "mindformers.models" not in sys.modules:
        _stand_in()
    module, root = mindformers_loader.module, mindformers_loader.directory()
    module(f"mindformers.models.{name}", os.path.join(root, "mindformers", "models", name))
    module("mindformers.models.glm2.glm2_config", ChatGLM2Config=object)
    sys.modules["mindformers.utils"].__path__ = [os.path.join(root, "mindformers", "utils")]
    vars(sys.modules["mindformers.tools"]).update(
        MindFormerConfig=None, MindFormerRegister=None, MindFormerModuleType=None)
    absent = {"torch": {"bfloat16": None}, "tqdm": {"tqdm": None},
              "transformers": {"AutoModel": None}}
    for package, members in absent.items():
        module(package, **members)
    try:
        return importlib.import_module(f"mindformers.models.{name}.convert_weight")
    finally:
        for package in absent:
            del sys.modules[package]


def _llama(_, arrays):
    replace = _script("llama").name_replace
    return {replace(name): array for name, array in arrays.items()}


def _llama_concat(config, arrays):
    import numpy
    named, script = _llama(config, arrays), _script("llama")
    heads = config["num_attention_heads"]
    groups = config.get("num_key_value_heads", heads)
    for name in [n for n in named if ".attention.wq." in n]:
        parts = [named.pop(name.replace(".wq.", f".{part}.")) for part in ("wq", "wk", "wv")]
        named[name.replace(".wq.", ".w_qkv.")] = script.qkv_concat_hf2mg(
            numpy.concatenate(parts), heads, groups, config["hidden_size"])
    for name in [n for n in named if ".feed_forward.w1." in n]:
        parts = [named.pop(name.replace(".w1.", f".{part}.")) for part in ("w1", "w3")]
        named[name.replace(".w1.", ".w_gate_hidden.")] = script.ffn_concat_hf2mg(
            numpy.concatenate(parts), len(parts[0]))
    return named


class _Torch:
    """What the script of ChatGLM asks a tensor of torch."""
    dtype = "its own"

    def __init__(self, array):
        self.numpy = lambda: array


def _chatglm_rope(config, arrays):
    script = _script("glm2")
    script.npy2ms = lambda array, dtype: array
    words = types.SimpleNamespace(
        multi_query_attention=True, use_rearrange_rope=True, qkv_concat=False,
        kv_channels=config["kv_channels"], num_attention_heads=config["num_attention_heads"],
        multi_query_group_num=config["multi_query_group_num"],
        ffn_hidden_size=config["ffn_hidden_size"])
    found = [{"name": name.replace("word_embeddings.weight", "embedding_weight"),
              "data": _Torch(array)} for name, array in arrays.items()]
    script.attn_split(found, words, None)
    script.mlp_split(found, words, None)
    return {item["name"]: item["data"].numpy() if isinstance(item["data"], _Torch)
            else item["data"] for item in found}


SCRIPTS = {"llama": _llama, "llama-concat": _llama_concat, "chatglm-rope": _chatglm_rope}
