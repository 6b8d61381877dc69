"""Checkpoints of an image classifier: how well each does, and its λ̂."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

import basinscope as bs
from basinscope.zoo.data import DataSet

Row = dict[str, Any]
_PIECE = 2048


def measured(land: bs.Landscape, net: nn.Module, data: DataSet, how: Mapping[str, Any]) -> Row:
    """Losses on the measured samples and on test data, the share of these that is right, and λ̂."""
    images, labels = data.test
    losses = bs.Landscape(net, "cross_entropy", data.test).per_sample(land.parameters)
    with torch.no_grad():
        right = sum(
            int((land.outputs(land.parameters, x.to(land.device)).argmax(1) == y.to(land.device)).sum())
            for x, y in zip(images.split(_PIECE), labels.split(_PIECE), strict=True)
        )
    return {
        "parameters": land.dimension, "n": land.n, "train_loss": float(land.per_sample().mean()),
        "test_loss": float(losses.mean()), "test_loss_stderr": float(losses.std()) / len(labels) ** 0.5,
        "test_accuracy": right / len(labels), **bs.llc(land, progress=False, **how).columns("llc"),
    }  # fmt: skip
