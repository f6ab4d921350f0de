# SPDX-License-Identifier: Apache-2.0
"""Megatron-LM out of the directory RSH_MEGATRON, which has its source at the tag
core_v0.16.1, and the packages einops and six, under a Python that has torch.  No GPU and no
TransformerEngine: calls of torch.cuda are turned to the processor, and nothing of the code
that saves is changed.

    git clone --depth 1 --branch core_v0.16.1 https://github.com/NVIDIA/Megatron-LM DIRECTORY
    pip install --no-deps --target DIRECTORY einops six
"""

import contextlib
import dataclasses
import os
import random
import sys
import types
import warnings

OPTIONS = """--seq-length 16 --max-position-embeddings 16 --micro-batch-size 1
    --global-batch-size 8 --tokenizer-type NullTokenizer --transformer-impl local
    --use-cpu-initialization --no-persist-layer-norm --no-gradient-accumulation-fusion
    --no-bias-swiglu-fusion --no-bias-gelu-fusion --no-masked-softmax-fusion --no-rope-fusion
    --no-bias-dropout-fusion --distributed-backend gloo --lr 1e-3 --train-iters 9
    --no-async-tensor-model-parallel-allreduce --no-one-logger --save-interval 1
    --ckpt-format torch_dist --no-load-rng --no-load-optim --no-save-rng""".split()


class _Stream:
    def __init__(self, *_, **__):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def __call__(self, *_, **__):
        return self

    def wait_stream(self, *_):
        pass


def _on_processor(function):
    def call(*args, **more):
        args = tuple("cpu" if isinstance(a, str) and a.startswith("cuda") else a for a in args)
        if str(more.get("device", "")).startswith("cuda"):
            more["device"] = "cpu"
        return function(*args, **more)
    return call


def enter():
    """To be called before Megatron is imported."""
    warnings.filterwarnings("ignore")
    os.environ.update(CUDA_DEVICE_MAX_CONNECTIONS="1", TOKENIZERS_PARALLELISM="false")
    sys.path.insert(0, os.environ["RSH_MEGATRON"])
    import torch
    torch.set_num_threads(1)
    cuda = torch.cuda
    cuda.current_device = lambda: "cpu"
    cuda.device_count = lambda: 1
    cuda.is_initialized = lambda: False
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.get_device_properties = lambda *_: types.SimpleNamespace(
        major=9, minor=0, name="cpu", total_memory=1 << 34, multi_processor_count=1)
    cuda.get_rng_state = lambda *_, **__: torch.get_rng_state()
    cuda.set_rng_state = lambda state, *_, **__: torch.set_rng_state(state)
    for name in "set_device", "synchronize", "empty_cache", "manual_seed":
        setattr(cuda, name, lambda *_: None)
    for name in "memory_allocated", "max_memory_allocated":
        setattr(cuda, name, lambda *_: 0)
    cuda.Stream = _Stream
    for name in "current_stream", "stream", "default_stream":
        setattr(cuda, name, _Stream)
    for name in "FloatTensor", "LongTensor", "IntTensor", "ByteTensor", "BFloat16Tensor":
        setattr(cuda, name, getattr(torch, name))
    for name in ("tensor", "empty", "zeros", "ones", "full", "arange", "empty_like",
                 "zeros_like", "randn", "rand"):
        setattr(torch, name, _on_processor(getattr(torch, name)))
    torch.Tensor.to = _on_processor(torch.Tensor.to)
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *_, **__: self
    kind = torch.Tensor.type

    def of_cuda(self, *args, **more):
        found = kind(self, *args, **more)
        return found.replace("torch.", "torch.cuda.", 1) \
            if isinstance(found, str) and "cuda" not in found else found
    torch.Tensor.type = of_cuda
    without_kernels()


def without_kernels():
    """What has no weights is not there without TransformerEngine and grouped GEMM."""
    import megatron.core.transformer.moe.grouped_gemm_util as grouped
    import megatron.core.transformer.multi_latent_attention as latent
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    grouped.assert_grouped_gemm_is_available = lambda: None
    grouped.grouped_gemm_is_available = lambda: True
    for name in "TELinear", "TEColumnParallelLinear", "TELayerNormColumnParallelLinear":
        if not isinstance(getattr(latent, name, None), type):
            setattr(latent, name, type(name, (), {}))
    made = DotProductAttention.__init__

    def make(self, *args, k_channels=None, v_channels=None, **more):
        made(self, *args, **more)
    DotProductAttention.__init__ = make


def start(rank, world, port, options):
    """The arguments, and the models of this process."""
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), LOCAL_RANK=str(rank),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    import torch
    torch.distributed.init_process_group("gloo", rank=rank, world_size=world,
                                         init_method=f"tcp://127.0.0.1:{port}")
    sys.argv = ["megatron", *OPTIONS, *options]
    from megatron.core import mpu, tensor_parallel
    from megatron.core.num_microbatches_calculator import init_num_microbatches_calculator
    from megatron.training import arguments, global_vars
    args = arguments.parse_args()
    arguments.validate_args(args)
    args.padded_vocab_size = args.padded_vocab_size or args.vocab_size
    global_vars.set_args(args)
    mpu.initialize_model_parallel(
        args.tensor_model_parallel_size, args.pipeline_model_parallel_size,
        args.virtual_pipeline_model_parallel_size,
        expert_model_parallel_size=args.expert_model_parallel_size,
        expert_tensor_parallel_size=args.expert_tensor_parallel_size,
        create_gloo_process_groups=True)
    random.seed(7)
    torch.manual_seed(7 + 100 * mpu.get_pipeline_model_parallel_rank())
    tensor_parallel.random.initialize_rng_tracker()
    tracker = tensor_parallel.get_cuda_rng_tracker()
    tracker.reset()
    tracker.fork = lambda *_, **__: contextlib.nullcontext()
    init_num_microbatches_calculator(rank, None, args.global_batch_size, args.micro_batch_size,
                                     args.data_parallel_size)
    return args, _models(args)


def _models(args):
    from functools import partial

    import gpt_builders
    import megatron.training.training as training
    import model_provider
    from megatron.core.enums import ModelType
    return training.get_model(partial(model_provider.model_provider, gpt_builders.gpt_builder),
                              ModelType.encoder_or_decoder)


def draw(models, seed):
    """Random weights."""
    import torch
    numbers = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for model in models:
            buffers = [b for n, b in model.named_buffers() if n.endswith("expert_bias")]
            for tensor in (*model.parameters(), *buffers):
                tensor.copy_(torch.randn(tensor.shape, generator=numbers).to(tensor.dtype))


def train(args, models):
    """An optimizer after a step with gradients that follow from the weights."""
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.training.training import get_optimizer_param_scheduler
    optimizer = get_megatron_optimizer(OptimizerConfig(**{
        f.name: getattr(args, f.name) for f in dataclasses.fields(OptimizerConfig)
        if hasattr(args, f.name)}), models)
    scheduler = get_optimizer_param_scheduler(optimizer)
    for model in models:
        for p in model.parameters():
            if hasattr(p, "main_grad"):
                p.main_grad.copy_(p.data.float() * 0.1)
            else:
                p.grad = p.data * 0.1
    optimizer.step()
    scheduler.step(8)
    return optimizer, scheduler


def load(models):
    from megatron.training import checkpointing
    checkpointing.load_checkpoint(models, None, None)


def save(args, models, directory, step, form, optimizer=None, scheduler=None, release=False):
    from megatron.training import checkpointing
    args.save, args.ckpt_format, args.use_dist_ckpt = directory, form, form != "torch"
    args.no_save_optim = optimizer is None
    args.dist_ckpt_optim_fully_reshardable = True
    checkpointing.save_checkpoint(step, models, optimizer, scheduler, 1234567,
                                  release=release)


def state_of(models):
    from megatron.training.checkpointing import unwrap_model
    return {name: value for name, value in
            unwrap_model(models)[0].state_dict_for_save_checkpoint().items()
            if hasattr(value, "shape")}
