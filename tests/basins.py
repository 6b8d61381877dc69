"""Small landscapes whose answers are known in closed form, shared by the tests."""

import torch
from torch import nn

import basinscope as bs

f64 = torch.float64


def quadratic(curvatures, n=200, offset=None, noise=0.0, seed=0, dtype=torch.float32):
    """Linear regression whose mean loss is exactly L(w*) + Σ (g_i δ_i + σ_i δ_i²/2) with g_i = σ_i · offset_i.

    The inputs have orthogonal columns, so the Hessian is diag(curvatures). `noise` is the standard deviation of the
    residuals, which are made orthogonal to the inputs: they leave minimum and Hessian where they are.
    """
    generator = torch.Generator().manual_seed(seed)
    sigma = torch.tensor(curvatures, dtype=f64)
    basis, _ = torch.linalg.qr(torch.randn(n, len(sigma), generator=generator, dtype=f64))
    x = basis * sigma.sqrt() * n**0.5
    residual = noise * torch.randn(n, 1, generator=generator, dtype=f64)
    residual -= basis @ (basis.T @ residual)
    net = nn.Linear(len(sigma), 1, bias=False, dtype=dtype)
    with torch.no_grad():
        net.weight.fill_(1.0)
        y = x @ net.weight.double().T + residual
        if offset is not None:
            net.weight += torch.tensor(offset, dtype=dtype)
    return bs.Landscape(net, "mse", (x, y))


def white(n, width, seed=0):
    """Inputs (n, width) whose second moment is exactly the identity."""
    generator = torch.Generator().manual_seed(seed)
    basis, _ = torch.linalg.qr(torch.randn(n, width, generator=generator, dtype=f64))
    return basis * n**0.5


def classifier(n=40, inputs=3, hidden=4, classes=3, seed=0, dtype=f64):
    """A small tanh network with random weights and labels: nothing about it is quadratic."""
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, classes)).to(dtype)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=f64) / 2)
    x = torch.randn(n, inputs, generator=generator, dtype=f64)
    y = torch.randint(classes, (n,), generator=generator)
    return bs.Landscape(net, "cross_entropy", (x, y))


def saddle():
    """A linear 4-3-4 network whose target has two components, of which it has learned one."""
    x = white(60, 4)
    net = nn.Sequential(nn.Linear(4, 3, bias=False), nn.Linear(3, 4, bias=False)).double()
    for layer in net:
        nn.init.zeros_(layer.weight)
        layer.weight.data[0, 0] = 1.0
    return bs.Landscape(net, "mse", (x, x * torch.tensor([1.0, 0.5, 0.0, 0.0], dtype=f64)))


class Product(nn.Module):
    """w₁ w₂ x: the hyperbola when inputs are one and targets zero."""

    def __init__(self, first=0.0, second=0.0, dtype=torch.float32):
        super().__init__()
        self.first = nn.Parameter(torch.tensor(first, dtype=dtype))
        self.second = nn.Parameter(torch.tensor(second, dtype=dtype))

    def forward(self, x):
        return self.first * self.second * x
