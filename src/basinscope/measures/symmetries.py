"""Continuous symmetries of a network at w*, each with its certificate, and the bound they put on λ."""

from __future__ import annotations

import html
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor
from torch.func import vjp, vmap

from ..curvature.samplewise import one_by_one, side_by_side
from ..estimates import Check, Estimate
from ..landscape import Landscape, check_landscape, math_attention
from ..losses import logits
from ..samples import Samples
from ..verdict import Checked
from .symmetry_graph import Candidate, Direction, candidates

MAX_EXCESS_STDERRS = 3.0  # standard errors by which λ̂ may exceed its bound
LIMIT = 4096  # directions whose independence is decided at once
_SAMPLES = 64  # on which a certificate is checked
_TOLERANCE = 1e3  # units of rounding by which a derivative may miss zero
_CHUNK = 64 * 2**20  # bytes of directions checked together
_SHAKES = (1.0, 0.03)  # random changes, relative to the weights, one of which idle parameters must leave unnoticed


@dataclass(frozen=True)
class Symmetries(Checked):
    """What could be proved flat at w*.

    Attributes:
        count: dimension k of the flat directions proved, dependent ones counted once.
        bound: (d − k)/2, which λ cannot exceed at a minimum.
        kinds: certified directions by kind: `rescaling`, `mixing`, `shift`, `idle`.
        residual: largest |J v| of a certified direction v, relative to that of its parts; of the order of rounding.
        directions: the directions, one per row (k', d), sparse.
        dimension: d.
        llc: λ̂ to stand beside, if one was given.
        checks: whether λ̂ keeps to the bound, if one was given.
        unproved: what was not proved, and why.
    """

    count: int
    bound: float
    kinds: Mapping[str, int]
    residual: float
    directions: sparse.csr_matrix
    dimension: int
    llc: Estimate | None = None
    checks: tuple[Check, ...] = ()
    unproved: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """What could not be proved, and where λ̂ exceeds the bound."""
        return (*self.unproved, *super().warnings)

    def to_dict(self) -> dict[str, Any]:
        """Everything but the directions as plain Python values, ready for JSON."""
        return {
            "count": self.count,
            "bound": self.bound,
            "kinds": dict(self.kinds),
            "residual": self.residual,
            "dimension": self.dimension,
            "llc": None if self.llc is None else self.llc.value,
            "warnings": list(self.warnings),
        }

    def __str__(self) -> str:
        beside = "" if self.llc is None else f", λ̂ = {self.llc.value:.5g} ± {self.llc.stderr:.2g}"
        return f"{self.count} flat directions of {self.dimension}: λ ≤ {self.bound:g}{beside}"

    def _repr_html_(self) -> str:
        reasons = "".join(f"<li>{html.escape(warning)}</li>" for warning in self.warnings)
        return f"<p><b>{html.escape(str(self))}</b></p><ul>{reasons}</ul>"


def symmetries(land: Landscape, *, llc: Estimate | None = None, seed: int = 0) -> Symmetries:
    """Directions at w* along which the network's predictions cannot change, and the bound λ ≤ (d − k)/2.

    Four kinds are looked for:

    * rescaling: w_in ∂/∂w_in + b ∂/∂b − w_out ∂/∂w_out of a unit whose activation is positively homogeneous, as ReLU
      (Lemma 1 of Seyoum 2025, "Singular Learning Theory: Generalization in Deep Networks"); also with learned slope,
      u·s(βu), where −β ∂/∂β joins. SiLU with a fixed slope has no such direction: u·s(u) is not homogeneous, and its
      Fisher matrix is regular at generic weights.
    * mixing: invertible maps between two linear layers, and shifts that the second one's bias makes up for.
    * shift: what adds one number to all logits of a softmax.
    * idle: parameters that nothing depends on at these data, near w*: those of units that are never active, of inputs
      that are always zero, of units that nothing reads.

    The network's graph tells the candidates; each is counted only if the derivative of the predictions along it, J v,
    vanishes to rounding (so that F v = 0, Lemma 2 there). Along them the loss is constant on a manifold of dimension
    k, hence L − L(w*) ≤ C·dist² to it, and λ ≤ (d − k)/2 where w* is a minimum. A symmetry that is not found makes the
    bound weaker, not wrong.

    Args:
        land: the landscape.
        llc: an estimate of λ to compare with.
        seed: of the random changes by which idle parameters are tried.

    Examples:
        >>> import torch, basinscope as bs
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.ReLU(), torch.nn.Linear(3, 1)).double()
        >>> x = torch.randn(100, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> with torch.no_grad():
        ...     for p in net.parameters():
        ...         _ = p.copy_(torch.linspace(-1, 1, p.numel()).view(p.shape) + 0.1)
        >>> result = bs.symmetries(bs.Landscape(net, "mse", (x, x[:, :1])))
        >>> result.count, result.bound, result.residual < 1e-13  # three units, 13 parameters
        (3, 5.0, True)
    """
    check_landscape(land)
    warnings: list[str] = []
    proposed = _proposed(land, warnings)
    few = land.samples.take(slice(0, min(land.n, _SAMPLES))).to(land.device)
    certified, residuals = _certified(land, few, proposed, warnings)
    idle = _idle(land, seed)
    kinds = Counter(candidate.kind for candidate in certified)
    if len(idle):
        kinds["idle"] = len(idle)
    directions = _rows(land, certified)
    count = len(idle) + _rank(directions, idle)
    if len(idle):
        units = sparse.csr_matrix((np.ones(len(idle)), (np.arange(len(idle)), idle)), shape=(len(idle), land.dimension))
        directions = sparse.vstack([directions, units]).tocsr()
    bound = (land.dimension - count) / 2
    checks = () if llc is None else (check_bound(llc, bound),)
    return Symmetries(
        count, bound, dict(kinds), max(residuals, default=0.0), directions, land.dimension, llc, checks, tuple(warnings)
    )


def check_bound(llc: Estimate, bound: float) -> Check:
    """Whether λ̂, but for its error, keeps to what symmetry allows at a minimum."""
    return Check(
        "λ̂ below its bound", f"{llc.value:.4g} ± {llc.stderr:.2g}",
        f"at most (d − k)/2, or {MAX_EXCESS_STDERRS:g} standard errors more",
        not llc.value - MAX_EXCESS_STDERRS * llc.stderr > bound, "train longer, or compare samplers",
        reason=f"above the bound: λ̂ = {llc.value:.4g} ± {llc.stderr:.2g} exceeds the bound {bound:g}: w* is no "
        f"minimum, or the sampler is biased",
    )  # fmt: skip


def _proposed(land: Landscape, warnings: list[str]) -> list[Candidate]:
    try:
        proposals = list(islice(candidates(land), LIMIT + 1))
    except Exception as error:  # tracing runs the model's own code, which may do anything
        warnings.append(
            f"structure unknown: the network's graph cannot be traced ({error}) — only idle parameters are counted"
        )
        return []
    if len(proposals) > LIMIT:
        warnings.append(f"many symmetries: the first {LIMIT} are counted, so that the bound is weaker than it could be")
    return proposals[:LIMIT]


def _certified(
    land: Landscape, few: Samples, proposed: Sequence[Candidate], warnings: list[str]
) -> tuple[list[Candidate], list[float]]:
    """The candidates along which predictions stand still, with |J v| relative to |J v_lead|."""
    certified: list[Candidate] = []
    residuals: list[float] = []
    refused: Counter[str] = Counter()
    tolerance = _TOLERANCE * torch.finfo(land.dtype).eps
    size = max(1, _CHUNK // (land.dimension * 8 * 2))
    for start in range(0, len(proposed), size):
        chunk = proposed[start : start + size]
        rows = torch.stack([_flat(land, candidate.direction) for candidate in chunk])
        lead = torch.stack(
            [_flat(land, {name: candidate.direction[name] for name in candidate.lead}) for candidate in chunk]
        )
        change, scale = _speeds(land, few, rows), _speeds(land, few, lead, centred=False)
        for candidate, moved, size_of in zip(chunk, change.tolist(), scale.tolist(), strict=True):
            residual = moved / size_of if size_of > 0 else (0.0 if moved == 0 else math.inf)
            if residual <= tolerance:
                certified.append(candidate)
                residuals.append(residual)
            else:
                refused[candidate.where] += 1
    warnings.extend(
        f"not a symmetry: {number} directions of {where} change the predictions, and are not counted"
        for where, number in refused.items()
    )
    return certified, residuals


def _speeds(land: Landscape, few: Samples, rows: Tensor, centred: bool = True) -> Tensor:
    """max |J v| over samples and outputs for each row v; logits of a softmax count up to a common shift."""
    softmax = land.loss.family == "categorical"

    def predictions(vector: Tensor) -> Tensor:
        scores = logits(land.outputs(land.unflatten(vector), few.inputs))
        return scores.movedim(land.loss.class_dimension(scores, few.target), -1) if softmax else scores

    here = land.flatten(land.parameters)
    with math_attention():
        # J v as the derivative of u ↦ Jᵀu, which is linear: every operation has a backward pass, few a forward one.
        scores, pull = vjp(predictions, here)[:2]
        push = vjp(lambda weights: pull(weights)[0], torch.zeros_like(scores))[1]
        moved = vmap(lambda row: push(row)[0])(rows)
    if softmax and centred:
        moved = moved - moved.mean(-1, keepdim=True)
    return moved.flatten(1).abs().amax(1)


def _idle(land: Landscape, seed: int) -> np.ndarray[Any, Any]:
    """Positions of parameters that no prediction depends on, however they change together.

    A zero derivative alone would not do: both factors of 0·0 have one. Candidates are tried together by random
    changes that must leave every prediction bit for bit, first all of them, then tensor by tensor.
    """
    still = _zero_derivative(land, seed)
    if _unmoved(land, still, seed):
        return np.flatnonzero(still.cpu().numpy())
    idle = torch.zeros_like(still)
    start = 0
    for tensor in land.parameters.values():
        part = torch.zeros_like(still)
        part[start : start + tensor.numel()] = True
        start += tensor.numel()
        if bool((part & still).any()) and _unmoved(land, idle | (part & still), seed):
            idle |= part & still
    return np.flatnonzero(idle.cpu().numpy())


def _zero_derivative(land: Landscape, seed: int) -> Tensor:
    """Which parameters have derivative exactly zero in every prediction on the data (d,)."""
    generator = torch.Generator(land.device).manual_seed(seed)
    largest = torch.zeros(land.dimension, dtype=land.dtype, device=land.device)
    size = max(1, min(256, _CHUNK // (8 * land.dimension)))
    for batch in land.batches(size):
        shape = logits(land.outputs(land.parameters, batch.inputs)).shape
        random = torch.randn(shape, generator=generator, device=land.device, dtype=land.dtype)
        largest = torch.maximum(largest, _pulled(land, batch, random).abs().amax(0))
    return largest == 0


def _pulled(land: Landscape, batch: Samples, weights: Tensor) -> Tensor:
    """Jᵀu of every sample by itself, (m, d)."""
    with math_attention():
        try:
            rows = side_by_side(land, "fisher", land.parameters, batch, weights[:, None])
        except Exception:  # whatever vmap or the model's own code raises, the plain loop is right
            rows = one_by_one(land, "fisher", land.parameters, batch, weights[:, None])
    return torch.cat([rows[name].flatten(1) for name in land.parameters], 1)


def _unmoved(land: Landscape, still: Tensor, seed: int) -> bool:
    """Whether random changes of all these parameters together leave every prediction bit for bit."""
    if not bool(still.any()):
        return True
    generator = torch.Generator(land.device).manual_seed(seed + 1)
    here = land.flatten(land.parameters)
    before = _predictions(land, here)
    noise = torch.randn(here.shape, generator=generator, device=here.device, dtype=here.dtype)
    spread = float(here.abs().mean()) or 1.0
    return any(torch.equal(before, _predictions(land, here + size * spread * noise * still)) for size in _SHAKES)


def _predictions(land: Landscape, vector: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.cat(
            [logits(land.outputs(land.unflatten(vector), batch.inputs)).cpu() for batch in land.batches(4096)]
        )


def _starts(land: Landscape) -> dict[str, int]:
    """Where each parameter begins in the flat vector."""
    ends = np.cumsum([tensor.numel() for tensor in land.parameters.values()])
    return dict(zip(land.parameters, [0, *ends[:-1].tolist()], strict=True))


def _flat(land: Landscape, direction: Direction) -> Tensor:
    vector = torch.zeros(land.dimension, dtype=land.dtype, device=land.device)
    starts = _starts(land)
    for name, (places, values) in direction.items():
        vector[starts[name] + places] = values
    return vector


def _rows(land: Landscape, certified: Sequence[Candidate]) -> sparse.csr_matrix:
    starts = _starts(land)
    entries = [
        (number, starts[name] + places.cpu().numpy(), values.double().cpu().numpy())
        for number, candidate in enumerate(certified)
        for name, (places, values) in candidate.direction.items()
    ]
    if not entries:
        return sparse.csr_matrix((0, land.dimension))
    rows = np.repeat([number for number, _, _ in entries], [len(places) for _, places, _ in entries])
    columns, values = (np.concatenate([entry[k] for entry in entries]) for k in (1, 2))
    return sparse.csr_matrix((values, (rows, columns)), shape=(len(certified), land.dimension))


def _rank(directions: sparse.csr_matrix, idle: np.ndarray[Any, Any]) -> int:
    """Dimension of the directions' span beyond the idle parameters, each direction taken with length one."""
    if not directions.shape[0]:
        return 0
    others = np.ones(directions.shape[1])
    others[idle] = 0
    lengths = np.sqrt(np.asarray(directions.multiply(directions).sum(1)).ravel())
    scaled = sparse.diags(1 / np.where(lengths > 0, lengths, 1)) @ directions @ sparse.diags(others)
    values = np.linalg.eigvalsh((scaled @ scaled.T).toarray())
    return int((values > 1e-10).sum())
