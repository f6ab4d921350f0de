#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes optimizer_states: the parameters of a network and of each optimizer of
MindSpore 2.10.0, and of those that need an Ascend to be made: their names are
from the sources of MindSpore and of mindformers 2.1.0.  A line is "= OPTIMIZER", or the name
and shape of a weight ("w"), or of a parameter of the optimizer ("o")."""
import os

os.environ["GLOG_v"] = "4"

import mindspore as ms  # noqa: E402
import mindspore.experimental.optim as experimental  # noqa: E402
import mindspore.mint.optim as mint  # noqa: E402
from mindspore import nn  # noqa: E402


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(6, 4)
        self.layers = nn.SequentialCell([nn.Dense(4, 4), nn.LayerNorm((4,))])
        self.head = nn.Dense(4, 3)
        self.logit_scale = ms.Parameter(ms.Tensor([1.0], ms.float32))


def shape(p):
    return ",".join(map(str, p.shape)) or "-"


def cases():
    rate = {"Momentum": (0.1, 0.9), "Lamb": (0.1,)}
    for name in ("Adadelta Adagrad Adam AdaMax AdamWeightDecay AdamOffload "
                 "ASGD FTRL Lamb LazyAdam Momentum ProximalAdagrad Rprop SGD "
                 "RMSProp AdaFactor").split():
        make = getattr(nn, name)
        yield "nn." + name, lambda p, m=make, a=rate.get(name, ()): m(p, *a)
    yield "nn.Adam(use_amsgrad)", lambda p: nn.Adam(p, use_amsgrad=True)
    yield "nn.RMSProp(centered)", lambda p: nn.RMSProp(p, centered=True)
    yield "nn.AdaFactor(beta1)", lambda p: nn.AdaFactor(p, beta1=0.9)
    yield "nn.LARS", lambda p: nn.LARS(nn.Momentum(p, 0.1, 0.9))
    for where, of in ("experimental", experimental), ("mint", mint):
        for name in sorted(dir(of)):
            make = getattr(of, name)
            if (isinstance(make, type) and issubclass(make, nn.Cell) and
                    name != "Optimizer"):
                yield where + "." + name, lambda p, m=make: m(p, lr=0.01)


READ = {
    "mint.FusedAdamW": ["exp_avg.", "exp_avg_sq.", "max_exp_avg_sq."],
    "mindformers AdamW": ["adam_m.", "adam_v."],
    "mindformers FusedAdamW(amsgrad)": [
        "exp_avg.", "exp_avg_sq.", "max_exp_avg_sq."],
    "mindformers PmaAdamW": ["adam_m.", "adam_v.", "pma_weight_ema."],
    "mindformers Muon": ["muon_m.", "adam_m.", "adam_v."],
    "mindformers Came": ["exp_avg.", "exp_avg_sq_row_", "exp_avg_sq_col_",
        "exp_avg_insta_row_", "exp_avg_insta_col_", "exp_avg_sq_"],
    "mindformers pynative AdamW": ["adam_m.", "adam_v.", "max_exp_avg_sq.",
        "main_param."],
}
print("# Written by make_optimizer_states.py, MindSpore", ms.__version__)
for title, make in cases():
    net = Net()
    weights = list(net.get_parameters())
    try:
        made = make(net.trainable_params())
    except (TypeError, ValueError, RuntimeError) as e:
        assert title in READ, e
        continue
    print("=", title)
    for p in weights:
        print("w", p.name, shape(p))
    own = {p.name for p in weights}
    for _, p in made.parameters_and_names():
        if p.name not in own:
            print("o", p.name, shape(p))
for title, prefixes in READ.items():
    print("=", title)
    net = Net()
    for p in net.get_parameters():
        print("w", p.name, shape(p))
    for prefix in prefixes:
        for p in net.get_parameters():
            print("o", prefix + p.name, shape(p))
    print("o global_step 1")
