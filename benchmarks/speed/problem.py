"""A network with its data, in a file that every environment can read. Needs torch and numpy only."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Problem:
    """A fully connected network at w* and its data."""

    model: nn.Sequential
    inputs: Tensor
    target: Tensor

    @property
    def loss(self) -> str:
        return "mse" if self.target.is_floating_point() else "cross_entropy"

    def losses(self, model: nn.Module, inputs: Tensor, target: Tensor) -> Tensor:
        """One negative log-likelihood per sample."""
        if self.loss == "mse":
            return 0.5 * (model(inputs) - target).square().sum(1)
        return functional.cross_entropy(model(inputs), target, reduction="none")

    def save(self, path: Path) -> None:
        weights = {f"parameter {name}": tensor.numpy() for name, tensor in self.model.state_dict().items()}
        relu = any(isinstance(layer, nn.ReLU) for layer in self.model)
        np.savez(path, inputs=self.inputs.numpy(), target=self.target.numpy(), relu=relu, **weights)

    @staticmethod
    def load(path: str | Path) -> Problem:
        with np.load(path) as arrays:
            weights = {
                name.removeprefix("parameter "): torch.tensor(array)
                for name, array in arrays.items()
                if name.startswith("parameter ")
            }
            inputs, target = torch.tensor(arrays["inputs"]), torch.tensor(arrays["target"])
            relu = bool(arrays["relu"])
        matrices = [tensor for name, tensor in weights.items() if name.endswith("weight")]
        widths = [matrices[0].shape[1], *(len(matrix) for matrix in matrices)]
        model = fully_connected(widths, relu=relu, bias=any(name.endswith("bias") for name in weights))
        model.load_state_dict(weights)
        return Problem(model, inputs, target)


def fully_connected(widths: list[int], *, relu: bool, bias: bool) -> nn.Sequential:
    """Linear layers, with ReLU between them or nothing."""
    layers: list[nn.Module] = []
    for sizes in pairwise(widths):
        layers += [nn.ReLU()] if layers and relu else []
        layers.append(nn.Linear(*sizes, bias=bias))
    return nn.Sequential(*layers)
