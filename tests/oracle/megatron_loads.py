#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What --format megatron shows, loaded by Megatron-LM itself.

RSH_MEGATRON names a checkout of NVIDIA/Megatron-LM (0.16), and RSH_HF_PYTHON a Python with
torch and what Megatron-LM imports (einops, six, pydantic).  It runs on the CPU: calls of
torch.cuda are turned there.  The processes of a mesh load what is shown of a Hugging Face
model that is made up by load_checkpoint(), and save it in Megatron's distributed form; one
process without a mesh loads that.  So Megatron-LM has joined the slices, and each tensor is
compared with the whole one that --format dcp shows.

    megatron_loads.py [--seed N] [--cases N]
    megatron_loads.py rank R WORLD STEP JOB         what a process does
"""

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import types

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "lib"), os.path.join(HERE, "..", "..", "python")]
os.environ["RESHARDFS_TABLES"] = os.path.abspath(os.path.join(HERE, "..", "..", "tables"))
LATENT = "megatron-deepseek3", "megatron-deepseek3-mtp"
MADE = ("megatron-dense", "megatron-moe-local", *LATENT, "megatron-dense", "megatron-moe",
        LATENT[1])
# Names of Megatron-Core without TransformerEngine, of those with it.
CORE = ((".linear_q_up_proj.layer_norm_weight", ".q_layernorm.weight"),
        (".linear_kv_up_proj.layer_norm_weight", ".kv_layernorm.weight"),
        ("mtp_model_layer", "transformer_layer"),
        (".mlp.linear_fc1.layer_norm_weight", ".pre_mlp_layernorm.weight"),
        (".experts.experts.linear_fc1.weight[e, (f | f), h]",
         ".experts.local_experts.{e}.linear_fc1.weight[(f | f), h]"),
        (".experts.experts.linear_fc2.weight[e, h, f]",
         ".experts.local_experts.{e}.linear_fc2.weight[h, f]"))


# ---- a process of Megatron-LM ----

def turn_to_cpu():
    """What Megatron-LM calls of torch.cuda is done on the CPU."""
    import torch
    torch.set_num_threads(1)

    class Stream:
        def __init__(self, *words, **more):
            pass

        def __enter__(self):
            return self

        def __exit__(self, *words):
            pass

        def wait_stream(self, other):
            pass

    def gives(value):
        """One function for each name: torch looks them up by what they are."""
        return lambda *words, **more: value

    cuda = torch.cuda
    for name, value in {
            "current_device": gives("cpu"), "device_count": gives(1), "Stream": Stream,
            "get_rng_state": lambda *words, **more: torch.get_rng_state(),
            "set_rng_state": gives(None), "manual_seed": gives(None),
            "set_device": gives(None), "synchronize": gives(None), "empty_cache": gives(None),
            "is_initialized": gives(False), "memory_allocated": gives(0),
            "max_memory_allocated": gives(0), "get_device_capability": gives((9, 0)),
            "current_stream": lambda *words: Stream(),
            "default_stream": lambda *words: Stream(),
            "stream": lambda stream: stream if stream else Stream(),
            "get_device_properties": gives(types.SimpleNamespace(
                major=9, minor=0, name="cpu", total_memory=1 << 34,
                multi_processor_count=1))}.items():
        setattr(cuda, name, value)

    def on_cpu(function):
        def call(*words, **more):
            words = tuple("cpu" if isinstance(w, str) and w.startswith("cuda") else w
                          for w in words)
            if str(more.get("device", "")).startswith("cuda"):
                more["device"] = "cpu"
            return function(*words, **more)
        return call

    for name in ("tensor", "empty", "zeros", "ones", "full", "arange", "empty_like",
                 "zeros_like"):
        setattr(torch, name, on_cpu(getattr(torch, name)))
    torch.Tensor.to = on_cpu(torch.Tensor.to)
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *words, **more: self


def prepare(rank, world, meeting, words):
    """The arguments and groups of a run."""
    import torch
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK="0",
                      CUDA_DEVICE_MAX_CONNECTIONS="1")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world,
                                         init_method=f"file://{meeting}")
    sys.argv = ["run", *words]
    from megatron.core import mpu, tensor_parallel
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    from megatron.training import arguments, global_vars
    args = arguments.validate_args(arguments.parse_args())
    args.padded_vocab_size = args.padded_vocab_size or args.vocab_size
    args.vocab_file = None
    global_vars.set_args(args)
    mpu.initialize_model_parallel(
        args.tensor_model_parallel_size, args.pipeline_model_parallel_size,
        args.virtual_pipeline_model_parallel_size,
        expert_model_parallel_size=args.expert_model_parallel_size,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size,
        create_gloo_process_groups=True)
    tensor_parallel.random.initialize_rng_tracker()
    tracker = tensor_parallel.get_cuda_rng_tracker()
    tracker.fork = lambda *words, **more: contextlib.nullcontext()
    init_num_microbatches_calculator(rank, None, args.global_batch_size, args.micro_batch_size,
                                     args.data_parallel_size)
    return args


def models_of(args):
    from functools import partial
    import gpt_builders
    import megatron.training.training as training
    import model_provider
    from megatron.core.enums import ModelType
    return training.get_model(partial(model_provider.model_provider, gpt_builders.gpt_builder),
                              ModelType.encoder_or_decoder, wrap_with_ddp=False)


def run_rank(rank, world, step, job):
    """Loads a tree and saves it as torch_dist (mesh), or loads that (whole)."""
    # A program beside this one has the name of its package.
    sys.path[:] = [os.environ["RSH_MEGATRON"],
                   *(path for path in sys.path if os.path.abspath(path) != HERE)]
    with open(job, encoding="utf-8") as f:
        job = json.load(f)
    turn_to_cpu()
    import torch
    from megatron_software import without_kernels
    without_kernels()
    if step == "mesh":
        words = [*job["mesh"], "--load", job["shown"], "--save", job["joined"], "--ckpt-format",
                 "torch"]
    else:
        words = ["--load", job["joined"], "--ckpt-format", "torch_dist", "--no-load-optim",
                 "--no-load-rng"]
    args = prepare(int(rank), int(world), job["meeting"] + step, job["model"] + words)
    from megatron.training import checkpointing
    models = models_of(args)
    with torch.no_grad():
        for model in models:
            for value in [*model.parameters(), *model.buffers()]:
                value.fill_(7)
    checkpointing.load_checkpoint(models, None, None)
    if step == "mesh":
        args.ckpt_format, args.use_dist_ckpt, args.no_save_optim, args.no_save_rng = \
            "torch_dist", True, True, True
        checkpointing.save_checkpoint(1, models, None, None, 0)
        torch.distributed.barrier()
        return
    model = checkpointing.unwrap_model(models)[0]
    torch.save({name: value for name, value in model.state_dict_for_save_checkpoint().items()
                if isinstance(value, torch.Tensor)}, job["whole"])


# ---- a case ----

COMMON = """--seq-length 16 --max-position-embeddings 16 --micro-batch-size 1 --global-batch-size 8
--tokenizer-type NullTokenizer --transformer-impl local --use-cpu-initialization
--no-persist-layer-norm --no-gradient-accumulation-fusion --no-bias-swiglu-fusion
--no-bias-gelu-fusion --no-masked-softmax-fusion --no-rope-fusion --no-bias-dropout-fusion
--distributed-backend gloo --lr 1e-3 --train-iters 9 --no-one-logger --save-interval 1
--no-async-tensor-model-parallel-allreduce --position-embedding-type rope --swiglu
--normalization RMSNorm --disable-bias-linear --make-vocab-size-divisible-by 1
--no-save-optim --no-save-rng""".split()


def model_words(model):
    """The options of a run for a model that is made up."""
    c = model.config
    if model.table in LATENT:
        return latent_words(model)
    heads = c["num_attention_heads"]
    words = {"num-layers": model.layers, "hidden-size": model.hidden,
             "num-attention-heads": heads, "kv-channels": c["head_dim"],
             "num-query-groups": c.get("num_key_value_heads") or heads,
             "ffn-hidden-size": model.inner, "vocab-size": model.words}
    flags = ["--group-query-attention"]
    if not c["tie_word_embeddings"]:
        flags.append("--untie-embeddings-and-output-weights")
    if model.biases:
        flags.append("--add-qkv-bias")
    if model.architecture.startswith("Qwen3"):
        flags.append("--qk-layernorm")
    flags += {"BF16": ["--bf16"], "F16": ["--fp16"], "F32": []}[model.dtype]
    if model.kind == "qwen3_moe":
        dense = c["mlp_only_layers"]
        words.update({"num-experts": model.experts, "moe-ffn-hidden-size": model.small,
                      "moe-router-topk": 2, "moe-token-dispatcher-type": "alltoall",
                      "moe-router-load-balancing-type": "none",
                      "moe-layer-freq": "(" + "+".join(f"[{int(i not in dense)}]"
                                                       for i in range(model.layers)) + ")"})
        if model.table == "megatron-moe":
            flags += ["--moe-grouped-gemm", "--moe-use-legacy-grouped-gemm"]
    return COMMON + flags + [w for n, v in words.items() for w in (f"--{n}", str(v))]


def latent_words(model):
    """The same of a model with latent attention."""
    c = model.config
    flags = ["--multi-latent-attention", "--qk-layernorm", "--moe-router-enable-expert-bias"]
    if not c["tie_word_embeddings"]:
        flags.append("--untie-embeddings-and-output-weights")
    flags += {"BF16": ["--bf16"], "F16": ["--fp16"], "F32": []}[model.dtype]
    words = {"num-layers": model.layers, "hidden-size": model.hidden,
             "num-attention-heads": c["num_attention_heads"], "ffn-hidden-size": model.inner,
             "vocab-size": model.words, "q-lora-rank": c["q_lora_rank"],
             "kv-lora-rank": c["kv_lora_rank"], "qk-head-dim": c["qk_nope_head_dim"],
             "qk-pos-emb-head-dim": c["qk_rope_head_dim"], "v-head-dim": c["v_head_dim"],
             "num-experts": model.experts, "moe-ffn-hidden-size": model.small,
             "moe-router-topk": 2, "moe-token-dispatcher-type": "alltoall",
             "moe-router-load-balancing-type": "none", "moe-router-score-function": "sigmoid",
             "moe-shared-expert-intermediate-size": model.shared,
             "moe-layer-freq": "(" + "+".join(f"[{int(i >= c['first_k_dense_replace'])}]"
                                              for i in range(model.layers)) + ")"}
    if model.table == LATENT[1]:
        words["mtp-num-layers"] = c["num_nextn_predict_layers"]
    return COMMON + flags + [w for n, v in words.items() for w in (f"--{n}", str(v))]


def core_table(directory):
    """A table of DeepSeek-V3 with the names that Megatron-LM has on the CPU."""
    with open(os.path.join(os.environ["RESHARDFS_TABLES"],
                           "megatron-bridge-deepseek_v3.rules"), encoding="utf-8") as f:
        text = f.read()
    for name, of_core in CORE:
        text = text.replace(name, of_core)
    path = os.path.join(directory, "core.rules")
    with open(path, "w", encoding="utf-8") as f:
        f.write(text)
    return path


def mesh_of(chance, model):
    """Sizes that Megatron-LM takes on at most four processes."""
    c = model.config
    heads = c["num_attention_heads"]
    sizes = [heads, c.get("num_key_value_heads") or heads, model.words, model.inner]
    experts = getattr(model, "experts", 0)
    if experts:
        sizes.append(model.small)
    if model.table in LATENT:
        # Megatron-LM divides what queries and keys are compressed to.
        sizes += [model.shared, model.hidden, c["q_lora_rank"],
                  c["kv_lora_rank"] + c["qk_rope_head_dim"]]
    tp = chance.choice([n for n in (1, 2, 2) if all(s % n == 0 for s in sizes)])
    ep = chance.choice([n for n in (1, 2, 2) if experts % n == 0]) if experts else 1
    pp = chance.choice([n for n in (1, 2, 2) if model.layers % n == 0 and tp * ep * n <= 4])
    etp = 1 if experts and tp > 1 and ep >= tp and chance.random() < 0.5 else tp
    return {"tp": tp, "pp": pp, "ep": ep, "etp": etp}


def mesh_options(mesh):
    words = ["--tensor-model-parallel-size", mesh["tp"], "--pipeline-model-parallel-size",
             mesh["pp"], "--expert-model-parallel-size", mesh["ep"],
             "--expert-tensor-parallel-size", mesh["etp"]]
    return [str(w) for w in words]


def model_of(number):
    """A model that Megatron-LM has, and a mesh: rotary embeddings need heads of even size."""
    import random_models
    chance = random.Random(number)
    while True:
        model = random_models.Model(chance.randrange(1 << 30), MADE[number % len(MADE)])
        c = model.config
        said = str(model)
        if c.get("head_dim", 2) % 2 == 0 and model.layers <= 4 and "fp8" not in said and \
                "heads apart" not in said and "rotary" not in "".join(model.tensors) and \
                (model.table not in LATENT or model.hidden % c["num_attention_heads"] == 0):
            mesh = mesh_of(chance, model)
            if mesh["tp"] * mesh["pp"] * mesh["ep"] > 1:
                return model, mesh


def start(world, step, job, env):
    """Runs all processes of a step; a sentence if one fails."""
    logs = [open(f"{job}.{step}.{rank}", "w+b") for rank in range(world)]
    ranks = [subprocess.Popen([os.environ["RSH_HF_PYTHON"], "-W", "ignore", __file__, "rank",
                               str(rank), str(world), step, job], stdout=log,
                              stderr=subprocess.STDOUT, env=env, start_new_session=True)
             for rank, log in enumerate(logs)]
    said = ""
    try:
        for rank, process in enumerate(ranks):
            if not said and process.wait(1800):
                logs[rank].seek(0)
                said = logs[rank].read().decode()[-3000:]
    finally:
        # With those that Megatron-LM starts to save.
        for process in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for log in logs:
            log.close()
    return said


def run_case(tap, number, directory):
    from dcp_reader import Checkpoint
    from demands import check
    from rsh_cli import good
    from rsh_mount import Alone
    model, mesh = model_of(number)
    what = f"{model}, {mesh}, --seed {number} --cases 1"
    with tap.test(what), tempfile.TemporaryDirectory(dir=directory) as own:
        hf = model.save(os.path.join(own, "hf"))
        plain = os.path.join(own, "plain")
        words = ["--convert", core_table(own) if model.table in LATENT else model.table,
                 "--from", "hf"]
        good("export", "--format", "dcp", *words, hf, plain)
        job = os.path.join(own, "job")
        axes = ",".join(f"{axis}={n}" for axis, n in mesh.items())
        with Alone(hf, extra=["--format", "megatron", "--dst-mesh", axes, *words]) as mount:
            with open(job, "w", encoding="utf-8") as f:
                json.dump({"model": model_words(model), "shown": mount.path,
                           "mesh": mesh_options(mesh),
                           "joined": os.path.join(own, "joined"),
                           "meeting": os.path.join(own, "meeting"),
                           "whole": os.path.join(own, "whole.pt")}, f)
            env = dict(os.environ)
            world = mesh["tp"] * mesh["pp"] * mesh["ep"] if mesh["etp"] == mesh["tp"] else \
                mesh["pp"] * max(mesh["tp"], mesh["ep"] * mesh["etp"])
            said = start(world, "mesh", job, env)
            check(not said, said)
        said = start(1, "whole", job, env)
        check(not said, said)
        compare(os.path.join(own, "whole.pt"), dict(Checkpoint(plain).values()), model)


def compare(path, wanted, model):
    from demands import check
    from megatron_files import Archive, loads, tensor
    archive = Archive(path)
    found = {str(n): tensor(archive, v) for n, v in loads(archive.read("data.pkl")).items()}
    for name, (kind, shape, data) in wanted.items():
        # weight1 of one rank has another shape, and the same bytes.
        check(name in found, f"Megatron-LM has no {name}")
        check(found[name][0] == kind and found[name][2] == bytes(data), f"{name} differs")
    more = set(found) - set(wanted)
    check(all("rotary" in n or "inv_freq" in n for n in more), f"{sorted(more)} are not shown")


def main():
    if sys.argv[1:2] == ["rank"]:
        return run_rank(*sys.argv[2:])
    from rsh_mount import Tap, require_mount, require_named
    require_named("RSH_MEGATRON", "a checkout of Megatron-LM")
    require_named("RSH_HF_PYTHON", "a Python with torch")
    require_mount()
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=4)
    words = parser.parse_args()
    tap = Tap()
    with tempfile.TemporaryDirectory() as directory:
        for number in range(words.seed, words.seed + words.cases):
            run_case(tap, number, directory)
    return tap.finish()


if __name__ == "__main__":
    sys.exit(main())
