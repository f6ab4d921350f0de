# SPDX-License-Identifier: Apache-2.0
"""What programs that have torch do with a model, for the benchmarks.

    bench_loading.py make DIRECTORY BYTES     a Qwen3 model as transformers saves it
                          -> {"names": [...]}: MindSpore's names of its matrices
    bench_loading.py load DIRECTORY           from_pretrained(), and each page is touched
                          -> {"seconds": S, "bytes": N, "sum": X}
    bench_loading.py slices FILE I N          the I-th of N parts of each tensor
                          -> {"sum": X}
    bench_loading.py copy DIRECTORY           each tensor is copied, as an engine does whose
                                              files are mapped
    bench_loading.py weights SOURCE OPTIONS   the same out of reshardfs.weights()
                          -> {"seconds": S, "bytes": N, "sum": X}
"""

import json
import os
import sys
import time

HIDDEN = 2048
VOCABULARY = 32768


def make(directory, size):
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM
    torch.manual_seed(7)
    layer = 2 * (2 * HIDDEN ** 2 + HIDDEN ** 2 // 2 + 9 * HIDDEN ** 2)
    layers = max(1, (int(size) - 4 * VOCABULARY * HIDDEN) // layer)
    config = Qwen3Config(hidden_size=HIDDEN, intermediate_size=3 * HIDDEN,
                         num_hidden_layers=layers, num_attention_heads=16,
                         num_key_value_heads=8, head_dim=HIDDEN // 16,
                         vocab_size=VOCABULARY, tie_word_embeddings=False, dtype="bfloat16")
    with torch.device("meta"):
        model = Qwen3ForCausalLM(config).to(torch.bfloat16)
    model = model.to_empty(device="cpu")
    for parameter in model.parameters():
        parameter.data.view(torch.int16).random_(0x3c00, 0x3d00)
    model.save_pretrained(directory)
    names = ["embedding.word_embeddings.weight", "output_layer.weight"]
    for i in range(layers):
        names += [f"decoder.layers.{i}.{name}.weight" for name in (
            "self_attention.linear_qkv", "self_attention.linear_proj", "mlp.linear_fc1",
            "mlp.linear_fc2")]
    return {"names": names}


def touched(tensor):
    """A sum of one element of each page."""
    import torch
    flat = tensor.detach().reshape(-1).view(torch.uint8)
    return int(flat[::4096].sum(dtype=torch.int64))


def load(directory):
    from transformers import AutoModelForCausalLM
    start = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(directory, dtype="auto")
    found = sum(touched(parameter) for parameter in model.parameters())
    return {"seconds": time.perf_counter() - start, "sum": found,
            "bytes": sum(p.numel() * p.element_size() for p in model.parameters())}


def slices(path, i, n):
    from safetensors import safe_open
    i, n, found = int(i), int(n), 0
    with safe_open(path, framework="pt") as f:
        for name in f.keys():
            part = f.get_slice(name)
            rows = (part.get_shape() or [0])[0]
            found += touched(part[rows * i // n:rows * (i + 1) // n]) if rows >= n else 0
    return {"sum": found}


def mapped_tensors(directory):
    """The names and tensors of the files, as the loaders of engines give them by default."""
    from safetensors import safe_open
    for name in sorted(os.listdir(directory)):
        if name.endswith(".safetensors"):
            with safe_open(os.path.join(directory, name), framework="pt") as f:
                for key in f.keys():
                    yield key, f.get_tensor(key)


def copied(tensors):
    """Copies each tensor to the same memory, which stands for that of a device."""
    import torch
    memory, size, found = torch.ones(0, dtype=torch.uint8), 0, 0
    for _, tensor in tensors:
        content = tensor.reshape(-1).view(torch.uint8)
        if len(memory) < len(content):
            memory = torch.ones(len(content), dtype=torch.uint8)
        found += touched(memory[:len(content)].copy_(content))
        size += len(content)
    return size, found


def load_copied(tensors):
    import torch  # pylint: disable=unused-import  # its import is not measured
    import safetensors.torch  # pylint: disable=unused-import
    start = time.perf_counter()
    size, found = copied(tensors())
    return {"seconds": time.perf_counter() - start, "sum": found, "bytes": size}


def copy(directory):
    return load_copied(lambda: mapped_tensors(directory))


def weights(source, options):
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..",
                                 "python"))
    import reshardfs
    return load_copied(lambda: reshardfs.weights(source, **json.loads(options)))


def main():
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    verb, words = sys.argv[1], sys.argv[2:]
    print(json.dumps({"make": make, "load": load, "slices": slices, "copy": copy,
                      "weights": weights}[verb](*words)))


if __name__ == "__main__":
    main()
