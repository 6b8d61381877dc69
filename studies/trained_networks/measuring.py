"""What a job measures of a trained network."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap

import basinscope as bs

from .cases import digits, half_square, network, noisy, one_hot, trained

Row = dict[str, Any]

NULL = 1e-13  # eigenvalues below this share of the largest are rounding
RATE = 5e-3
_PIECE = 64  # samples whose Jacobians are computed at once


def census(widths: Sequence[int], steps: int, samples: int, nbeta: float, budget: float, seed: int) -> Row:
    """Null directions of a trained classifier, and λ̂ at the minimum of the squared distance to its own outputs.

    So w* is the true parameter, and a minimum, whatever training left undone. `proved` counts the directions that are
    flat by symmetry or because nothing depends on them; `null` the zero eigenvalues of the Fisher matrix JᵀJ/n.
    """
    x, labels, _, _ = digits()
    net = trained(network(widths, seed), lambda out: nn.functional.cross_entropy(out, labels), x, steps, RATE)
    with torch.no_grad():
        target = net(x)
    few = x[:samples]
    land = bs.Landscape(net, half_square, (few, target[:samples]))
    estimate = bs.llc(land, nbeta=nbeta, gamma=1.0, budget=bs.Nominal(budget), seed=seed, progress=False)
    flat = bs.symmetries(land, seed=seed)
    spectrum = fisher(net, few)
    return {
        "parameters": land.dimension, "accuracy": float((target.argmax(1) == labels).double().mean()),
        "proved": flat.count, "idle": flat.kinds.get("idle", 0), "rescaling": flat.kinds.get("rescaling", 0),
        "null": land.dimension - int((spectrum > NULL * spectrum.max()).sum()),
        "half_soft_rank": half(spectrum, nbeta, 1.0), "llc": estimate.value, "llc_stderr": estimate.stderr,
        "verdict": estimate.verdict,
    }  # fmt: skip


def descent(width: int, samples: int, noise: float, steps: int, gamma: float, budget: float, seed: int) -> Row:
    """Losses of a network of one hidden layer trained by least squares, and where training ended λ̂ and its basin."""
    x, y = noisy(samples, noise, seed)
    net = trained(network([width], seed), lambda out: half_square(out, y).mean(), x, steps, RATE)
    _, _, unseen, labels = digits()
    with torch.no_grad():
        predicted = net(unseen)
        train_loss = float(half_square(net(x), y).mean())
    nbeta = samples / math.log(samples)
    land = bs.Landscape(net, half_square, (x, y))
    estimate = bs.llc(land, nbeta=nbeta, gamma=gamma, budget=bs.Nominal(budget), seed=seed, progress=False)
    return {
        "parameters": land.dimension, "train_loss": train_loss,
        "test_loss": float(half_square(predicted, one_hot(labels)).mean()),
        "test_error": float((predicted.argmax(1) != labels).double().mean()),
        "half_soft_rank": half(fisher(net, x), nbeta, gamma), "nbeta": nbeta, "llc": estimate.value,
        "llc_stderr": estimate.stderr, "verdict": estimate.verdict, "basin": estimate.basin.value,
        "at_minimum": estimate.at_minimum,
    }  # fmt: skip


def fisher(net: nn.Module, x: Tensor) -> NDArray[np.float64]:
    """Eigenvalues of JᵀJ/n, those of the smaller of JᵀJ and JJᵀ: J has a row for each output of each sample."""
    named = {name: value.detach() for name, value in net.named_parameters()}

    def outputs(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
        return functional_call(net, parameters, (one,))

    dimension = sum(value.numel() for value in named.values())
    gram, rows = torch.zeros(dimension, dimension, dtype=torch.float64), []
    wide = dimension > len(x) * outputs(named, x[0]).numel()
    for piece in x.split(_PIECE):
        each = vmap(jacrev(outputs), (None, 0))(named, piece)
        jacobian = torch.cat([value.flatten(2) for value in each.values()], 2).flatten(0, 1)
        if wide:
            rows.append(jacobian)
        else:
            gram += jacobian.T @ jacobian
    if wide:
        whole = torch.cat(rows)
        gram = whole @ whole.T
    return np.asarray((torch.linalg.eigvalsh(gram) / len(x)).clamp(min=0).numpy(), dtype=np.float64)


def half(spectrum: NDArray[np.float64], nbeta: float, gamma: float) -> float:
    """½ Σ nβσ/(nβσ + γ)."""
    return float(0.5 * (nbeta * spectrum / (nbeta * spectrum + gamma)).sum())
