"""The generalization gap that data show which the network was not trained on."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..errors import InputError
from ..estimates import Check, Estimate
from ..landscape import Landscape

MIN_SAMPLES = 2  # of held-out data, fewer than which have no standard error


def measured_gap(land: Landscape, held_out: Any) -> Estimate:
    """The mean loss on held-out data less that on the landscape's own, at the same weights.

    The standard error is that of the mean over the held-out samples; the loss on the training data is what it is.

    Args:
        land: the landscape of the training data.
        held_out: `(x, y)`, a data set or batches, or a `Landscape` of the same network on data it was not trained on.

    Examples:
        >>> import torch, basinscope as bs
        >>> land = bs.Landscape(torch.nn.Linear(1, 1), "mse", (torch.zeros(3, 1), torch.zeros(3, 1)))
        >>> land = land.at({"weight": torch.zeros(1, 1), "bias": torch.zeros(1)})
        >>> measured_gap(land, (torch.zeros(2, 1), torch.tensor([[0.0], [2.0]]))).value
        1.0
    """
    other = landscape_on(land, held_out)
    losses, before = other.per_sample(), float(land.per_sample().mean())
    value, stderr = float(losses.mean()), float(losses.std() / math.sqrt(other.n)) if other.n > 1 else math.nan
    accuracies = {"training_accuracy": accuracy(land), "held_out_accuracy": accuracy(other)}
    return Estimate(
        name="measured_gap",
        value=value - before,
        stderr=stderr,
        checks=(check_size(other.n),),
        diagnostics={"training_loss": before, "held_out_loss": value, "samples": other.n, **accuracies},
        freedom=max(1, other.n - 1),
    )


def landscape_on(land: Landscape, held_out: Any) -> Landscape:
    """The landscape of held-out data at the same weights."""
    return _same_point(land, held_out) if isinstance(held_out, Landscape) else land.on(held_out)


def accuracy(land: Landscape) -> float | None:
    """The share of samples whose class the network names; None where outputs are no scores of one class a sample."""
    if land.loss.family != "categorical":
        return None
    hits = 0
    for batch in land.batches(4096):
        with torch.no_grad():
            scores = land.outputs(land.parameters, batch.inputs)
        if not isinstance(scores, torch.Tensor) or scores.ndim != 2 or batch.target.ndim != 1:
            return None
        hits += int((scores.argmax(1) == batch.target).sum())
    return hits / land.n


def check_size(count: int) -> Check:
    """Whether there are enough held-out samples for a standard error."""
    return Check(
        "held-out samples", f"{count}", f"at least {MIN_SAMPLES}", count >= MIN_SAMPLES, "pass more held_out data",
        reason=f"too few: {count} held-out samples have no standard error",
    )  # fmt: skip


def _same_point(land: Landscape, other: Landscape) -> Landscape:
    same = land.parameters.keys() == other.parameters.keys() and all(
        tensor.shape == other.parameters[name].shape and torch.allclose(tensor, other.parameters[name].to(tensor))
        for name, tensor in land.parameters.items()
    )
    if not same:
        raise InputError(
            "held_out must be a Landscape of the same network at the same parameters, with other data — pass (x, y), "
            "or build it from the same model"
        )
    return other
