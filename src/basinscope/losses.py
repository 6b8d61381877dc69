"""Per-sample negative log-likelihoods, by name or from the user's own function."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .checks import positive
from .errors import InputError

PerSample = Callable[[Any, Any], Tensor]
Sampler = Callable[[Any, torch.Generator], Any]


@dataclass(frozen=True)
class Loss:
    """A per-sample loss −log p(y | x, w) and the exponential family it belongs to.

    `family` is `categorical`, `bernoulli`, `gaussian` or `custom`; a custom loss has no closed-form Fisher,
    but may bring `sample(output, generator) -> target`, a way to draw labels from the model. `class_axis` is where a
    categorical loss has its classes; None: where the shapes say.
    """

    name: str
    family: str
    per_sample: PerSample
    variance: float = 1.0
    sample: Sampler | None = None
    class_axis: int | None = None

    def class_dimension(self, scores: Tensor, target: Tensor) -> int:
        """The axis of `scores` that runs over classes."""
        return class_dimension(scores, target) if self.class_axis is None else self.class_axis


def logits(output: Any) -> Tensor:
    """The tensor inside a model's output: Hugging Face models wrap theirs in an object with `.logits`.

    Examples:
        >>> logits((torch.ones(1), None))
        Traceback (most recent call last):
        ...
        basinscope.errors.InputError: the model must return a tensor, or an object with one as .logits, got tuple — ...
    """
    scores = output if isinstance(output, Tensor) else getattr(output, "logits", None)
    if not isinstance(scores, Tensor):
        raise InputError(
            f"the model must return a tensor, or an object with one as .logits, got {type(output).__name__} — wrap it "
            f"in a module that returns the tensor alone"
        )
    return scores


def class_dimension(output: Tensor, target: Tensor) -> int:
    """The axis of `output` that runs over classes: last for `(m, T, K)` against `(m, T)`, second for `(m, K, …)`."""
    last = output.shape[:-1] == target.shape
    second = output.ndim >= 2 and (output.shape[0], *output.shape[2:]) == tuple(target.shape)
    if last and second and output.ndim > 2:
        raise InputError(
            f"cross_entropy cannot tell classes from positions: output has shape {tuple(output.shape)} and target "
            f"{tuple(target.shape)} — pass a callable loss that names the class axis"
        )
    if not (last or second):
        raise InputError(
            f"cross_entropy expects class indices of shape output.shape without the class axis: output has shape "
            f"{tuple(output.shape)}, target {tuple(target.shape)} — reshape the target or pass a callable loss"
        )
    return -1 if last else 1


def _sum_positions(values: Tensor) -> Tensor:
    """A sample's loss is the sum over its positions: the log-likelihood of a sequence adds up over tokens."""
    return values.flatten(1).sum(1) if isinstance(values, Tensor) and values.ndim > 1 else values


def _cross_entropy(output: Any, target: Tensor, class_axis: int | None = None) -> Tensor:
    scores = logits(output)
    axis = class_dimension(scores, target) if class_axis is None else class_axis
    return _sum_positions(functional.cross_entropy(scores.movedim(axis, 1), target.long(), reduction="none"))


def _matching(name: str, output: Any, target: Tensor) -> tuple[Tensor, Tensor]:
    """Output and target of one shape; an output with a last axis of one may meet a flat target."""
    scores = logits(output)
    if scores.shape != target.shape and scores.shape == (*target.shape, 1):
        scores = scores.squeeze(-1)
    if scores.shape != target.shape:
        raise InputError(
            f"{name} expects output and target of one shape: got {tuple(scores.shape)} and {tuple(target.shape)} — "
            f"reshape the target to the output's shape"
        )
    return scores, target


def _bernoulli(output: Any, target: Tensor) -> Tensor:
    scores, target = _matching("bernoulli", output, target)
    return _sum_positions(
        functional.binary_cross_entropy_with_logits(scores, target.to(scores.dtype), reduction="none")
    )


def _squared(name: str, output: Any, target: Tensor) -> Tensor:
    scores, target = _matching(name, output, target)
    return _sum_positions((scores - target).square())


def token_loss() -> Loss:
    """`cross_entropy` of scores of shape (m, T, classes), as language models return them: T may be equal to that."""
    return Loss("cross_entropy", "categorical", partial(_cross_entropy, class_axis=-1), class_axis=-1)


def named_loss(loss: str | PerSample | Loss, sigma: float | None) -> Loss:
    """Resolve a loss given by name, or wrap the user's callable `(output, target) -> (m,)`.

    `cross_entropy`  −log softmax(output)[target]
    `bernoulli`      −log p(target | sigmoid(output))
    `gaussian`       ‖output − target‖² / (2σ²) + (k/2) log 2πσ²
    `mse`            ‖output − target‖² / 2, a unit-variance Gaussian up to its constant
    """
    if sigma is not None and loss != "gaussian":
        raise InputError(f"sigma={sigma} belongs to loss='gaussian', got loss={loss!r} — drop sigma or change the loss")
    if isinstance(loss, Loss):
        return loss
    if callable(loss):
        function = loss

        def summed(output: Any, target: Any) -> Tensor:
            return _sum_positions(function(output, target))

        name = getattr(loss, "__name__", type(loss).__name__)
        return Loss(name, "custom", summed, sample=getattr(loss, "sample", None))
    if loss == "cross_entropy":
        return Loss(loss, "categorical", _cross_entropy)
    if loss == "bernoulli":
        return Loss(loss, "bernoulli", _bernoulli)
    if loss == "mse":
        return Loss(loss, "gaussian", lambda output, target: _squared("mse", output, target) / 2)
    if loss == "gaussian":
        variance = 1.0 if sigma is None else positive("sigma", sigma) ** 2
        if not 0 < variance < math.inf:
            raise InputError(f"sigma={sigma:g} has a square that no float holds — rescale the targets")

        def gaussian(output: Any, target: Tensor) -> Tensor:
            size = max(1, target[0].numel())
            constant = 0.5 * size * math.log(2 * math.pi * variance)
            return _squared("gaussian", output, target) / (2 * variance) + constant

        return Loss(loss, "gaussian", gaussian, variance)
    raise InputError(
        f"unknown loss {loss!r}: expected 'cross_entropy', 'gaussian', 'bernoulli', 'mse' or a callable "
        f"(output, target) -> per-sample negative log-likelihood"
    )


def check_labels(loss: Loss, output: Any, few: Any, target: Any) -> None:
    """Refuse targets outside the range the family can explain; `few` are the targets that belong to `output`."""
    if loss.family == "categorical":
        scores = logits(output)
        classes = scores.shape[loss.class_dimension(scores, few)]
        if target.is_floating_point():
            raise InputError(f"cross_entropy expects integer class labels, got {target.dtype} — convert with .long()")
        low, high = int(target.min()), int(target.max())
        ignored = target == -100  # torch's convention for positions that do not count
        labels = target[~ignored] if bool(ignored.any()) else target
        if not labels.numel():
            raise InputError("every label is -100, which marks positions that do not count — pass labels of classes")
        if int(labels.min()) < 0 or high >= classes:
            raise InputError(f"labels must lie in 0..{classes - 1} for {classes} classes, got values {low}..{high}")
    if loss.family == "bernoulli":
        least, most = float(target.min()), float(target.max())
        if least < 0 or most > 1:
            raise InputError(f"bernoulli targets must lie in [0, 1], got values {least:g}..{most:g}")


def check_values(values: Any, expected: int) -> None:
    """Refuse what is not one real number per sample."""
    if not isinstance(values, Tensor) or tuple(values.shape) != (expected,):
        raise InputError(_describe_scalar(values, expected))
    if not values.is_floating_point():
        raise InputError(
            f"loss must return real floating-point numbers, got {values.dtype} — take the squared modulus of complex "
            f"outputs, and no comparison as a loss"
        )


def _describe_scalar(values: Tensor, expected: int) -> str:
    """The message for a loss that was reduced: its shape, the expected one, and the remedy."""
    shape = tuple(values.shape) if torch.is_tensor(values) else type(values).__name__
    return f'loss must return one value per sample: expected shape ({expected},), got {shape} — pass reduction="none"'
