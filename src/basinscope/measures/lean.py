"""λ̂ by the lean walk, as an estimate like any other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..landscape import Landscape, watanabe_nbeta
from ..progress import Report
from ..sampling.calibration import Resolution
from ..sampling.diagnostics import split_rhat
from ..sampling.lean.strategy import USUAL, Options, Walked, is_lean, walked
from .basin import above_the_bottom
from .coefficient import LearningCoefficient, at_minimum
from .llc_checks import llc_checks
from .settings import checked

_TRACE_BLOCKS = 256
Array = NDArray[np.float64]


def walks_lean(land: Any, settings: Mapping[str, Any]) -> bool:
    """Whether λ̂ of a landscape with these settings is taken by the lean walk."""
    return isinstance(land, Landscape) and is_lean(land, settings.get("sampler", "auto"))


def lean_llc(
    land: Landscape, settings: Mapping[str, Any], report: Report, options: Options = USUAL
) -> LearningCoefficient:
    """λ̂ from chains that walk on the network's own weights, one after another."""
    nbeta, gamma, chosen = checked(settings)
    at = Resolution(nbeta or watanabe_nbeta(land.n), gamma or usual_gamma(land))
    return judged(land, walked(land, chosen, at, report, options), chosen.rtol, gamma is not None)


def usual_gamma(land: Landscape) -> float:
    """d/‖w*‖², tensor by tensor."""
    square = sum(float(value.square().sum(dtype=torch.float64)) for value in land.parameters.values())
    return land.dimension / square if square > 0 else 1.0


def judged(land: Landscape, found: Walked, rtol: float, asked: bool) -> LearningCoefficient:
    """The estimate with its verdict; `asked`: whether somebody asked for that γ."""
    diagnostics = _diagnostics(land, found, rtol)
    if asked:
        diagnostics["gamma_asked"] = found.pace.asked
    if found.result is None or not math.isfinite(found.result.mean.value):
        return LearningCoefficient("llc", math.nan, math.nan, llc_checks(math.nan, math.nan, diagnostics), diagnostics)
    value, stderr, freedom = found.result.mean
    if found.drop is not None:
        diagnostics |= {
            "basin": value + found.drop.value, "basin_stderr": math.hypot(stderr, found.drop.stderr),
            "drop": found.drop.value, "drop_stderr": found.drop.stderr,
        }  # fmt: skip
    diagnostics["at_minimum"] = at_minimum(value, diagnostics)
    if diagnostics["at_minimum"] == "no":
        diagnostics["note"] = above_the_bottom(found.at.nbeta, diagnostics)
    return LearningCoefficient("llc", value, stderr, llc_checks(value, stderr, diagnostics), diagnostics, freedom)


def _diagnostics(land: Landscape, found: Walked, rtol: float) -> dict[str, Any]:
    pace, started = found.pace, len(found.chains) + found.lost
    diagnostics: dict[str, Any] = {
        "nbeta": found.at.nbeta,
        "gamma": pace.step.gamma,
        "n": land.n,
        "dimension": land.dimension,
        "loss": found.loss,
        "sampler": "lean",
        "chains": len(found.chains),
        "started": started,
        "diverged": found.lost,
        "draws": pace.steps,
        "step_sizes": sorted({chain.record.step.size for chain in found.chains}, reverse=True),
        "batch_size": found.batch,
        "micro_batch": found.micro,
        "persistence": pace.step.kept,
        "losses_kept": found.kept,
        "curvature": found.curvature,
        "scales": dict(zip(found.names, pace.step.scales, strict=True)),
        "rtol": rtol,
        "interrupted": found.interrupted,
        "bytes_per_parameter": found.bytes / land.dimension,
        "seconds": found.seconds,
        "step_seconds": found.step_seconds,
        "schedule": None if found.schedule is None else found.schedule.to_dict(),
    }
    if found.result is None or found.virial is None:
        return diagnostics
    worst, ratio = found.virial.worst
    means = [(chain.record.step.size, chain.mean) for chain in found.chains]
    return diagnostics | {
        "rhat": _rhat(found),
        "virial": found.virial.ratio,
        "virial_stderr": found.virial.stderr,
        "virial_missing": found.virial.missing,
        "worst_tensor": found.names[worst],
        "worst_virial": ratio,
        "drift": _drift(found),
        "by_step_size": means,
        "lifts": sorted({float(chain.lifts.sum()) for chain in found.chains}, reverse=True),
        "slope": found.result.slope,
        "systematic": found.result.systematic,
        "trace": _trace(found),
    }


def _rows(found: Walked) -> Array:
    """nβ·excess of all chains, (chains, draws), those of smaller steps thinned, without the lift of their size."""
    length = min(len(chain.record.excess) for chain in found.chains)
    means: dict[float, list[float]] = {}
    for chain in found.chains:
        means.setdefault(chain.record.step.size, []).append(chain.mean)
    return np.stack([
        _thinned(chain.record.excess, length) - float(np.mean(means[chain.record.step.size])) for chain in found.chains
    ])  # fmt: skip


def _rhat(found: Walked) -> float:
    """Split-R̂ of the chains, each size about its own mean."""
    rows = _rows(found)
    half = rows.shape[1] // 2
    halves = rows[:, : 2 * half].reshape(2 * len(rows), half)
    return split_rhat(halves.mean(1), float(halves.var(1, ddof=1).mean()), half)


def _drift(found: Walked) -> float:
    """Mean of the second half of what counts, less that of the first."""
    halves = [np.array_split(chain.record.excess, 2) for chain in found.chains]
    return float(np.mean([second.mean() - first.mean() for first, second in halves]))


def _trace(found: Walked) -> Array:
    """nβ·excess of the chains, (chains, at most 256 block means)."""
    blocks = min(_TRACE_BLOCKS, *(len(chain.record.excess) for chain in found.chains))
    return np.stack([_thinned(chain.record.excess, blocks) for chain in found.chains])


def _thinned(values: Array, count: int) -> Array:
    """As so many means of neighbouring blocks."""
    width = len(values) // count
    means: Array = values[: width * count].reshape(count, width).mean(1)
    return means
