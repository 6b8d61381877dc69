"""The networks on which everybody runs."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from truth.network import Network

import basinscope as bs

from .problem import Problem, fully_connected

SAMPLES = 10_000
SMALLEST, LARGEST = 200, 838  # parameters of the deep linear networks


def perceptron() -> Problem:
    """784-128-10 with ReLU, ten random classes, random weights and data: time does not depend on them."""
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = fully_connected([784, 128, 10], relu=True, bias=True)
    inputs = torch.rand(SAMPLES, 784, generator=generator)
    return Problem(model, inputs, torch.randint(10, (SAMPLES,), generator=generator))


def deep_linear(count: int = 6) -> list[Network]:
    """Random deep linear networks at a minimum whose λ a theorem gives, with and without noise in the targets.

    Depth 2 to 4, widths 5 to 21. By turns a generic point of full rank, and a balanced one of lower rank, which is as
    singular as a minimum can be.
    """
    rng = np.random.default_rng(2)  # the first seed on which the reference sampler converges on all six
    found: list[Network] = []
    while len(found) < count:
        widths = tuple(int(width) for width in rng.integers(5, 22, int(rng.integers(3, 6))))
        if not SMALLEST <= sum(rows * columns for rows, columns in pairwise(widths)) <= LARGEST:
            continue
        narrowest = min(widths)
        noise = "none" if len(found) % 4 < 2 else "unexplained"
        if len(found) % 2:
            rank = int(rng.integers((narrowest + 1) // 2, narrowest))
            found.append(Network(widths, rank, "balanced", noise, n=SAMPLES))
        else:
            found.append(Network(widths, narrowest, "generic", noise, n=SAMPLES))
    return found


def saved(land: bs.Landscape, folder: Path, name: str) -> str:
    """A deep linear landscape as a problem on disk."""
    matrices = list(land.parameters.values())
    model = fully_connected([matrices[0].shape[1], *(len(matrix) for matrix in matrices)], relu=False, bias=False)
    model.load_state_dict(land.parameters)
    path = folder / f"{name}.npz"
    Problem(model, land.samples.inputs, land.samples.target).save(path)
    return str(path)
