"""A small network with dropout, its data, and every optimizer that training must be able to resume."""

import torch
from torch import nn

from basinscope.optim import KFAC, EntropySGD, ExactNGD, OnlineNGD

f64 = torch.float64


def network(dtype=torch.float32, seed=0, dropout=0.2):
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(dropout), nn.Linear(6, 3)).to(dtype)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=f64) / 2)
    return net


def data(n=53, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 4, generator=generator, dtype=f64)
    noise = 0.3 * torch.randn(n, 3, generator=generator, dtype=f64)
    return x, (x[:, :3].sin() + noise).argmax(1)


OPTIMIZERS = {
    "sgd": lambda net: torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, nesterov=True),
    "adam": lambda net: torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-3),
    "exact dual": lambda net: ExactNGD(net, lr=0.05, alpha=1.0, solve="dual", momentum=0.5),
    "exact primal": lambda net: ExactNGD(net, lr=0.05, alpha=1.0, eta=0.5, update_period=3),
    "kfac": lambda net: KFAC(net, lr=0.02, alpha=0.5, update_period=3, momentum=0.5),
    "online": lambda net: OnlineNGD(net.parameters(), lr=0.05, momentum=0.5),
    "online kaldi": lambda net: OnlineNGD(net.parameters(), lr=0.05, alpha=4.0, eta=None, rank=(3, 2), delta=1e-5),
    "entropy": lambda net: EntropySGD(net.parameters(), lr=0.8, inner_steps=5, inner_lr=0.05, noise=1e-2),
    "entropy momentum": lambda net: EntropySGD(net.parameters(), lr=0.2, inner_steps=5, inner_lr=0.05, momentum=0.9),
}
