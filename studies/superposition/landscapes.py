"""The model as a landscape, and its training by gradient descent with noise, all seeds at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

import basinscope as bs

from .kgons import BY_NAME, FEATURES, place


class Superposition(nn.Module):
    """relu(WᵀWx + b)."""

    def __init__(self, weights: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.weights, self.bias = nn.Parameter(weights.clone()), nn.Parameter(bias.clone())

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.weights.T @ self.weights + self.bias)


def inputs(each: int) -> Tensor:
    """All inputs μe_i, with `each` values of μ: the midpoints of as many equal parts of [0, 1]."""
    sizes = (torch.arange(each, dtype=torch.float64) + 0.5) / each
    return torch.cat([torch.outer(sizes, row) for row in torch.eye(FEATURES, dtype=torch.float64)])


def squared(output: Tensor, target: Tensor) -> Tensor:
    """‖f(x) − x‖² of every sample."""
    return ((output - target) ** 2).sum(1)


def landscape(weights: Tensor, bias: Tensor, each: int) -> bs.Landscape:
    """The mean of ‖f(x) − x‖² over all inputs."""
    x = inputs(each)
    return bs.Landscape(Superposition(weights, bias), squared, (x, x))


def at_kgon(name: str, each: int) -> bs.Landscape:
    """The landscape at a k-gon, moved to the minimum that finitely many inputs have close by."""
    weights, bias = (torch.from_numpy(each).requires_grad_() for each in place(BY_NAME[name]))
    x = inputs(each)
    descent = torch.optim.LBFGS(
        [weights, bias], max_iter=200, tolerance_grad=1e-12, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def loss() -> Tensor:
        descent.zero_grad()
        value = squared(torch.relu(x @ weights.T @ weights + bias), x).mean()
        value.backward()
        return value

    descent.step(loss)
    return landscape(weights.detach(), bias.detach(), each)


def start(kind: str, seed: int) -> tuple[Tensor, Tensor]:
    """(W, b) from which a training begins: `random`, with entries of W from a standard normal distribution; or near
    the k-gon of a name, with 0.05 times as much added and the biases of dead features at −0.2, near to waking up."""
    drawn = torch.randn(2, FEATURES, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    if kind == "random":
        return drawn, torch.zeros(FEATURES, dtype=torch.float64)
    weights, bias = (torch.from_numpy(each) for each in place(BY_NAME[kind]))
    return weights + 0.05 * drawn, torch.where(weights.norm(dim=0) > 0, bias, bias.clamp(min=-0.2))


def trained(
    kind: str, seed: int, moments: Sequence[int], rate: float, noise: float, each: int
) -> list[tuple[Tensor, Tensor]]:
    """(W, b) at these steps of w ← w − rate · (∇L + noise · ξ), with ξ standard normal.

    The noise stands for that of minibatches: without it, gradient descent never leaves a minimum.
    """
    weights, bias = start(kind, seed)
    weights.requires_grad_()
    bias.requires_grad_()
    generator = torch.Generator().manual_seed(seed + 1_000_003)
    x = inputs(each)
    checkpoints = []
    for step in range(max(moments) + 1):
        if step in moments:
            checkpoints.append((weights.detach().clone(), bias.detach().clone()))
        loss = squared(torch.relu(x @ weights.T @ weights + bias), x).mean()
        gradients = torch.autograd.grad(loss, (weights, bias))
        with torch.no_grad():
            for parameter, gradient in zip((weights, bias), gradients, strict=True):
                shake = torch.randn(gradient.shape, generator=generator, dtype=torch.float64)
                parameter -= rate * (gradient + noise * shake)
    return checkpoints


def shape(weights: Tensor, bias: Tensor) -> str:
    """Which k-gon a point looks like: corners are columns longer than ½, and a feature whose bias is over 1/(4c) has
    its mean.

    Examples:
        >>> weights, bias = (torch.from_numpy(each) for each in place(BY_NAME["5+"]))
        >>> shape(weights, bias)
        '5+'
    """
    corners = weights.norm(dim=0) > 0.5
    means = ~corners & (bias > 1 / (4 * FEATURES))
    return f"{int(corners.sum())}{'+' * int(means.sum())}"


def moments(first: int, last: int, count: int) -> tuple[int, ...]:
    """Steps at equal ratios, those that round to the same left out.

    Examples:
        >>> moments(1, 100, 5)
        (1, 3, 10, 32, 100)
    """
    return tuple(dict.fromkeys(int(step) for step in np.geomspace(first, last, count).round()))
