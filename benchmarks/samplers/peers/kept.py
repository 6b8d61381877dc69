"""A landscape of the leaderboard as every environment with torch can read it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn


class Monomial(nn.Module):
    """f(x) = Π w_i^{k_i} · x."""

    def __init__(self, size: int, powers: list[int]) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.zeros(size))
        self.powers = powers

    def forward(self, x: Tensor) -> Tensor:
        product = x
        for index, power in enumerate(self.powers):
            product = product * self.w[index] ** power
        return product


class Superposition(nn.Module):
    """f(x) = ReLU(WᵀWx + b)."""

    def __init__(self, features: int, dimensions: int) -> None:
        super().__init__()
        self.w, self.b = nn.Parameter(torch.zeros(dimensions, features)), nn.Parameter(torch.zeros(features))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x @ self.w.T @ self.w + self.b)


@dataclass(frozen=True)
class Kept:
    """The model at w* and its data; the loss of a sample is ½‖f(x) − y‖²."""

    model: nn.Module
    inputs: Tensor
    target: Tensor

    def loss(self, model: nn.Module) -> Tensor:
        """The mean loss over all data."""
        return 0.5 * (model(self.inputs) - self.target).square().sum(1).mean()

    @staticmethod
    def load(path: str | Path) -> Kept:
        with np.load(path) as arrays:
            weights = {name[7:]: torch.tensor(arrays[name]) for name in arrays.files if name.startswith("weight ")}
            kind, powers = str(arrays["kind"]), arrays["powers"].tolist()
            inputs, target = torch.tensor(arrays["inputs"]), torch.tensor(arrays["target"])
        model: nn.Module
        if kind == "monomial":
            model = Monomial(len(weights["w"]), powers)
        elif kind == "superposition":
            model = Superposition(*weights["w"].T.shape)
        else:
            widths = [inputs.shape[1], *(len(matrix) for matrix in weights.values())]
            model = nn.Sequential(*(nn.Linear(*sizes, bias=False) for sizes in pairwise(widths)))
            weights = {f"{index}.weight": matrix for index, matrix in enumerate(weights.values())}
        model.load_state_dict(weights)
        return Kept(model, inputs, target)
