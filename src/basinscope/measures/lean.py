"""λ̂ by the lean walk, as an estimate like any other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..landscape import Landscape, watanabe_nbeta
from ..language.model import LanguageModel
from ..progress import Report
from ..sampling.calibration import Resolution
from ..sampling.diagnostics import split_rhat
from ..sampling.lean.strategy import USUAL, Options, Walked, is_lean, walked
from ..sampling.lean.team import team_of
from ..sampling.lean.weights import local
from .basin import above_the_bottom
from .coefficient import LearningCoefficient, at_minimum
from .llc_checks import llc_checks
from .settings import checked

_TRACE_BLOCKS = 256
Array = NDArray[np.float64]


def walks_lean(land: Any, settings: Mapping[str, Any]) -> bool:
    """Whether λ̂ of a landscape with these settings is taken by the lean walk."""
    return isinstance(land, (Landscape, LanguageModel)) and is_lean(land, settings.get("sampler", "auto"))


def lean_llc(
    land: Landscape | LanguageModel, settings: Mapping[str, Any], report: Report, options: Options = USUAL
) -> LearningCoefficient:
    """λ̂ from chains that walk on the network's own weights, one after another."""
    nbeta, gamma, chosen = checked(settings)
    if isinstance(land, LanguageModel):
        options = replace(options, delta=land.delta, moments=land.moments(), replicas=land.replicas)
    at = Resolution(_nbeta(land, nbeta), gamma or usual_gamma(land))
    return estimate_of(land, walked(land, chosen, at, report, options), chosen.rtol, gamma is not None)


def _nbeta(land: Landscape | LanguageModel, asked: float | None) -> float:
    """nβ of the mean loss of a sample, from what was asked for in the landscape's units, or n/log n of these."""
    if isinstance(land, LanguageModel):
        return land.per_sequence(asked or watanabe_nbeta(land.count))
    return asked or watanabe_nbeta(land.n)


def usual_gamma(land: Landscape | LanguageModel) -> float:
    """d/‖w*‖², tensor by tensor."""
    tensors = list(land.parameters.values())
    squares = sum(local(tensor.detach()).square().sum(dtype=torch.float64) for tensor in tensors)
    square = float(team_of(tensors).summed(torch.as_tensor(squares)))
    return land.dimension / square if square > 0 else 1.0


def estimate_of(land: Landscape | LanguageModel, walk: Walked, rtol: float, asked: bool) -> LearningCoefficient:
    """The estimate with its verdict; `asked`: whether somebody asked for that γ."""
    diagnostics = _diagnostics(land, walk, rtol)
    if asked:
        diagnostics["gamma_asked"] = walk.pace.asked
    if walk.result is None or not math.isfinite(walk.result.mean.value):
        return LearningCoefficient("llc", math.nan, math.nan, llc_checks(math.nan, math.nan, diagnostics), diagnostics)
    value, stderr, freedom = walk.result.mean
    if walk.drop is not None:
        diagnostics |= {
            "basin": value + walk.drop.value, "basin_stderr": math.hypot(stderr, walk.drop.stderr),
            "drop": walk.drop.value, "drop_stderr": walk.drop.stderr,
        }  # fmt: skip
    diagnostics["at_minimum"] = at_minimum(value, diagnostics)
    if diagnostics["at_minimum"] == "no":
        diagnostics["note"] = above_the_bottom(walk.at.nbeta, diagnostics)
    return LearningCoefficient("llc", value, stderr, llc_checks(value, stderr, diagnostics), diagnostics, freedom)


def _diagnostics(land: Landscape | LanguageModel, walk: Walked, rtol: float) -> dict[str, Any]:
    pace, started = walk.pace, len(walk.chains) + walk.diverged
    diagnostics: dict[str, Any] = {
        "nbeta": walk.at.nbeta,
        "gamma": pace.step.gamma,
        "n": land.n,
        "dimension": land.dimension,
        "loss": walk.loss,
        "sampler": "lean",
        "chains": len(walk.chains),
        "started": started,
        "diverged": walk.diverged,
        "draws": pace.steps,
        "burn_in": 0,  # of the trace, which begins after it
        "step_sizes": sorted({chain.record.step.size for chain in walk.chains}, reverse=True),
        "batch_size": walk.batch,
        "micro_batch": walk.micro,
        "persistence": pace.step.persistence,
        "losses_kept": walk.losses_kept,
        "curvature": walk.curvature,
        "scales": dict(zip(walk.names, pace.step.scales, strict=True)),
        "rtol": rtol,
        "interrupted": walk.interrupted,
        "bytes_per_parameter": walk.bytes / land.dimension,
        "seconds": walk.seconds,
        "step_seconds": walk.step_seconds,
        "schedule": None if walk.schedule is None else walk.schedule.to_dict(),
    }
    if isinstance(land, LanguageModel):
        diagnostics |= _in_tokens(land, walk)
    if walk.result is None or walk.virial is None:
        return diagnostics
    worst, ratio = walk.virial.worst
    means = [(chain.record.step.size, chain.mean) for chain in walk.chains]
    return diagnostics | {
        "rhat": _rhat(walk),
        "virial": walk.virial.ratio,
        "virial_stderr": walk.virial.stderr,
        "virial_missing": walk.virial.missing,
        "worst_tensor": walk.names[worst],
        "worst_virial": ratio,
        "drift": _drift(walk),
        "by_step_size": means,
        "lifts": sorted({float(chain.lifts.sum()) for chain in walk.chains}, reverse=True),
        "slope": walk.result.slope,
        "systematic": walk.result.systematic,
        "trace": _trace(walk),
    }


def _in_tokens(land: LanguageModel, walk: Walked) -> dict[str, Any]:
    """What the settings mean in tokens and in sequences, and how fast it went."""
    each = land.tokens_per_sequence
    both = {"nbeta_per_sequence": walk.at.nbeta, "nbeta_per_token": walk.at.nbeta * each}
    return {
        "nbeta": both[f"nbeta_per_{land.units}"],
        "n": land.count,
        "loss": walk.loss / (each if land.units == "token" else 1.0),
        "units": land.units,
        **both,
        "sequences": land.n,
        "tokens": land.tokens,
        "loss_per_token": walk.loss / each,
        "tokens_per_second": walk.batch * land.length / walk.step_seconds,
    }


def _rows(walk: Walked) -> Array:
    """nβ·excess of all chains, (chains, draws), those of smaller steps thinned, without the lift of their size."""
    length = min(len(chain.record.excess) for chain in walk.chains)
    means: dict[float, list[float]] = {}
    for chain in walk.chains:
        means.setdefault(chain.record.step.size, []).append(chain.mean)
    return np.stack([
        _thinned(chain.record.excess, length) - float(np.mean(means[chain.record.step.size])) for chain in walk.chains
    ])  # fmt: skip


def _rhat(walk: Walked) -> float:
    """Split-R̂ of the chains, each size about its own mean; infinite where they are too short for one."""
    rows = _rows(walk)
    half = rows.shape[1] // 2
    if half < 2:
        return math.inf
    halves = rows[:, : 2 * half].reshape(2 * len(rows), half)
    return split_rhat(halves.mean(1), float(halves.var(1, ddof=1).mean()), half)


def _drift(walk: Walked) -> float:
    """Mean of the second half of what counts, less that of the first."""
    halves = [np.array_split(chain.record.excess, 2) for chain in walk.chains]
    return float(np.mean([second.mean() - first.mean() for first, second in halves]))


def _trace(walk: Walked) -> Array:
    """nβ·excess of the chains, (chains, at most 256 block means)."""
    blocks = min(_TRACE_BLOCKS, *(len(chain.record.excess) for chain in walk.chains))
    return np.stack([_thinned(chain.record.excess, blocks) for chain in walk.chains])


def _thinned(values: Array, count: int) -> Array:
    """As so many means of neighbouring blocks."""
    width = len(values) // count
    means: Array = values[: width * count].reshape(count, width).mean(1)
    return means
