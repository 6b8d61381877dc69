"""All eigenvalues of a curvature matrix at once, exact or of a cheap stand-in, and what they bound."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ..errors import InputError
from ..landscape import Landscape
from ..progress import Report
from .dense import dense, gram, layers, restricted
from .gradients import Gradients, Outer
from .kronecker import Sharing, diagonal, ekfac, kfac
from .likelihood import count
from .tiles import memory_bound

Bound = Literal["exact", "upper", "neither"]
_BOUNDS: dict[str, Bound] = {  # what a concave trace function of a method's eigenvalues is
    "exact": "exact", "dual": "exact", "block": "upper", "diagonal": "upper", "kfac": "neither", "ekfac": "upper",
}  # fmt: skip
MAX_DIMENSION = 10_000  # largest matrix whose eigenvalues are all computed unless asked for
MAX_ROOTS = 2_000  # outputs of a sample, each a backward pass
MAX_PRODUCTS = {"cpu": 1e13, "cuda": 1e15}  # a few minutes' worth of multiplications
MAX_HESSIAN_DIMENSION = 3_000  # written out column by column, a Hessian costs as many products as it has columns


@dataclass(frozen=True)
class Eigenvalues:
    """Eigenvalues of Λ^(−1/2) A Λ^(−1/2) up to zeros, and whether a concave trace function of them is exact,
    an upper bound or neither."""

    values: Tensor
    bound: Bound
    method: str


# Eigenvalues are only d numbers and are kept as long as their landscape lives, so that soft rank, log-det and gap of
# one network factorize once.
_cache: weakref.WeakKeyDictionary[Landscape, dict[tuple[object, ...], Eigenvalues]] = weakref.WeakKeyDictionary()


def eigenvalues(
    land: Landscape,
    matrix: str,
    method: str,
    whitening: Tensor | None = None,
    sharing: Sharing = "expand",
    report: Report = lambda fraction, text: None,
) -> Eigenvalues:
    """The eigenvalues by `method`: exact, dual, block, diagonal, kfac or ekfac."""
    if method not in _BOUNDS:
        raise InputError(f"method must be 'auto', 'lanczos' or one of {', '.join(map(repr, _BOUNDS))}, got {method!r}")
    if matrix == "hessian" and method not in ("exact", "block"):
        raise InputError(
            f"method={method!r} needs gradient rows, which a Hessian does not have: expected 'exact', 'block' or "
            f"'lanczos' — or take matrix='fisher'"
        )
    roots = 1 if matrix == "hessian" else count(land, matrix)
    if roots > MAX_ROOTS:
        raise InputError(
            f"method={method!r} would go back through the network {roots:,} times, once for each output of a sample — "
            f"take method='lanczos'"
        )
    if whitening is not None:
        return _compute(land, matrix, method, whitening, sharing, report)
    cache = _cache.setdefault(land, {})
    point = tuple((id(tensor), tensor._version) for tensor in land.parameters.values())
    key = (matrix, method, sharing if method in ("kfac", "ekfac") else "", point)
    if key not in cache:
        cache[key] = _compute(land, matrix, method, None, sharing, report)
    return cache[key]


def choose(land: Landscape, matrix: str) -> str:
    """The method that `auto` stands for: an exact one while that takes minutes at most, else Lanczos."""
    if matrix == "hessian":
        return "exact" if land.dimension <= MAX_HESSIAN_DIMENSION else "lanczos"
    roots = count(land, matrix)
    if roots > MAX_ROOTS:
        return "lanczos"
    rows = land.n * roots
    if (
        rows < land.dimension
        and rows <= MAX_DIMENSION
        and (land.dimension <= MAX_DIMENSION or _affordable(land, matrix, rows))
    ):
        return "dual"
    return "exact" if land.dimension <= MAX_DIMENSION else "lanczos"


def _affordable(land: Landscape, matrix: str, rows: int) -> bool:
    """Whether the products of the gradient rows fit in memory and time.

    Those of layers with many positions are written out a few columns at a time. Outer products are kept by their two
    sides, which must fit together with the rest.
    """
    pieces = Gradients(land, matrix).of(land.take(torch.arange(1)))
    sides = [sum(piece.index.shape) for piece in pieces if isinstance(piece, Outer) and piece.single]
    written = sum(piece.index.numel() for piece in pieces if not (isinstance(piece, Outer) and piece.single))
    side_bytes = rows * max(sides, default=0) * torch.finfo(land.dtype).bits // 8
    fits = side_bytes <= memory_bound(land, None) // 2
    return fits and rows**2 * written <= MAX_PRODUCTS.get(land.device.type, 1e13)


def _compute(
    land: Landscape, matrix: str, method: str, whitening: Tensor | None, sharing: Sharing, report: Report
) -> Eigenvalues:
    if method == "exact":
        values = _exact(land, matrix, whitening, report)
    elif method == "dual":
        values = torch.linalg.eigvalsh(gram(land, matrix, whitening, report=report))
    elif method == "block":
        values = _block(land, matrix, whitening, report)
    elif method == "diagonal":
        values = diagonal(land, matrix, whitening)
    else:
        values = (ekfac if method == "ekfac" else kfac)(land, matrix, whitening, sharing)
    return Eigenvalues(values.cpu() if matrix == "hessian" else values.cpu().clamp(min=0), _BOUNDS[method], method)


def _exact(land: Landscape, matrix: str, whitening: Tensor | None, report: Report) -> Tensor:
    whole = dense(land, matrix, whitening, report=report)
    # Dead units and constant inputs leave empty rows, which need no factorization.
    nonzero = whole.diagonal() != 0 if matrix != "hessian" else (whole != 0).any(0)
    return torch.linalg.eigvalsh(whole[nonzero][:, nonzero])


def _block(land: Landscape, matrix: str, whitening: Tensor | None, report: Report) -> Tensor:
    """The exact eigenvalues of every layer by itself.

    Together they have never fewer soft dimensions than the whole matrix (Shoham, Mor-Yosef and Avron 2025,
    https://arxiv.org/abs/2506.17809, Proposition 6.1).
    """
    values, done = [], 0
    for names in layers(land):
        part, scale = restricted(land, names, whitening)
        values.append(_exact(part, matrix, scale, lambda fraction, text: None))
        done += part.dimension
        report(done / land.dimension, names[0])
    return torch.cat(values)
