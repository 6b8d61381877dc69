"""A training as a path through the space of functions: principal components of the outputs on fixed inputs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from ..landscape import Landscape, math_attention
from ..losses import logits
from .checkpoint_series import samples_of

Array = NDArray[np.float64]

_NUMBERS = 100_000  # of the outputs of a checkpoint that are kept
_INPUTS = 64


def outputs_on_fixed_inputs(land: Landscape, seed: int = 0) -> NDArray[np.float32]:
    """The outputs at w* on the first samples, or 100,000 numbers of them drawn at random, the same for a seed."""
    batch = samples_of(land, _INPUTS)
    with torch.no_grad(), math_attention():
        flat = logits(land.outputs(land.parameters, batch.inputs)).reshape(-1).float().cpu()
    if len(flat) > _NUMBERS:
        chosen = np.random.default_rng(seed).choice(len(flat), _NUMBERS, replace=False)
        flat = flat[torch.from_numpy(np.sort(chosen))]
    return flat.numpy()


def principal_components(rows: Sequence[NDArray[np.float32]], count: int = 3) -> tuple[Array, Array]:
    """Coordinates (K, count) of K points of a path along its principal axes, and the share of the variance of each.

    Of the centred rows X the coordinates are UΣ of the singular value decomposition UΣVᵀ, found from XXᵀ. The sign of
    an axis is such that the path ends on its positive side.

    Examples:
        >>> rows = [np.array([t, 2 * t, 0.0], dtype=np.float32) for t in range(4)]
        >>> where, share = principal_components(rows, 2)
        >>> where.shape, round(float(share[0]), 6), bool(where[-1, 0] > 0)
        ((4, 2), 1.0, True)
    """
    stacked = np.stack(rows)
    centred = stacked - stacked.mean(0)
    gram = np.asarray(centred @ centred.T, dtype=np.float64)
    values, vectors = np.linalg.eigh(gram)
    order = np.argsort(values)[::-1][:count]
    positive = np.maximum(values[order], 0.0)
    where = vectors[:, order] * np.sqrt(positive)
    signs = np.where(where[-1] < 0, -1.0, 1.0)
    total = max(float(np.trace(gram)), 1e-300)
    return where * signs, positive / total
