"""One large measurement spread over workers: parts with chains and seeds of their own, merged into one estimate."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.special import chdtrc

from ..checks import whole
from ..errors import InputError
from ..estimates import Check, Estimate
from .study import Result

_SAME = ("nbeta", "gamma", "n", "dimension", "sampler")  # what parts of one measurement share
_COLUMNS = (*_SAME, "chains", "draws", "rhat")  # diagnostics that have a column of their own
_LONGEST = 64  # entries of a diagnostic that a row has room for
MIN_AGREEMENT = 1e-3  # probability below which parts that differ so much do not measure the same thing


def part_seed(seed: int, part: int) -> int:
    """The seed of a part: far from those of all others, and from their successors.

    Examples:
        >>> part_seed(0, 1) == part_seed(0, 1), part_seed(0, 1) == part_seed(1, 0)
        (True, False)
    """
    sequence = np.random.SeedSequence([whole("seed", seed, least=0), whole("part", part, least=0)])
    return int(sequence.generate_state(1, np.uint64)[0] >> 2)


def part_result(estimate: Estimate) -> Result:
    """A part's estimate as a result that a store can keep; its chains' traces become an array.

    Examples:
        >>> part_result(Estimate("llc", 2.0, 0.1, diagnostics={"gamma": 1.0})).rows[0]["gamma"]
        1.0
    """
    diagnostics = estimate.diagnostics
    row = {
        "name": estimate.name,
        "value": estimate.value,
        "stderr": estimate.stderr,
        "verdict": estimate.verdict,
        "warnings": "\n".join(estimate.warnings),
        **{name: diagnostics[name] for name in _COLUMNS if diagnostics.get(name) is not None},
        "estimate": json.dumps(estimate.to_dict(_LONGEST), ensure_ascii=False, allow_nan=False),
    }
    return Result([row], {"trace": diagnostics["trace"]} if "trace" in diagnostics else {})


def part_estimate(row: Mapping[str, Any]) -> Estimate:
    """A part's estimate from its row, without the trace; also from a row of a version that kept warnings alone.

    Examples:
        >>> part_estimate(part_result(Estimate("llc", 2.0, 0.1)).rows[0]).value
        2.0
    """
    if "estimate" in row:
        return Estimate.from_dict(json.loads(row["estimate"]))
    diagnostics = {name: row[name] for name in _COLUMNS if name in row}
    warnings = list(filter(None, row["warnings"].split("\n")))
    return Estimate.from_dict({**row, "warnings": warnings, "diagnostics": diagnostics})


def merged(parts: Sequence[Estimate]) -> Estimate:
    """One estimate from parts that were sampled with the same settings and seeds of their own.

    Parts are independent and count alike: λ̂ = Σλ̂_b/B with standard error √Σs_b²/B, which is the mean over all chains
    of all parts where these are as many and as long. It depends neither on where the parts ran nor on their order,
    to the bit. Whether they measure the same thing is tested by Q = Σ(λ̂_b − λ̂)²/s_b², χ² with B − 1 degrees of
    freedom; if they do not, the standard error is taken from their spread instead and the verdict is `doubtful`.

    Args:
        parts: their estimates; at least one.

    Returns:
        An `Estimate` with the verdict of the worst part; `diagnostics` holds the parts' values and Q's probability.

    Examples:
        >>> both = merged([Estimate("llc", 2.0, 0.3), Estimate("llc", 2.2, 0.4)])
        >>> print(both)
        llc = 2.1 ± 0.25 (ok)
    """
    if not parts:
        raise InputError("there is no part to merge — pass the estimates of at least one")
    _insist_on_one_measurement(parts)
    ordered = sorted(parts, key=lambda part: (part.value, part.stderr))
    values, errors = [part.value for part in ordered], [part.stderr for part in ordered]
    count = len(parts)
    value = math.fsum(values) / count
    stderr = math.sqrt(math.fsum(error**2 for error in errors)) / count
    agreement = _agreement(value, values, errors)
    if agreement < MIN_AGREEMENT:
        stderr = max(
            stderr, math.sqrt(math.fsum((part_value - value) ** 2 for part_value in values) / (count * (count - 1)))
        )
    diagnostics = {name: parts[0].diagnostics[name] for name in _SAME if name in parts[0].diagnostics}
    diagnostics |= {
        "parts": [(part.value, part.stderr) for part in ordered],
        "agreement": agreement,
        "chains": sum(int(part.diagnostics.get("chains", 1)) for part in parts),
        "rhat": max((part.diagnostics["rhat"] for part in parts if "rhat" in part.diagnostics), default=None),
    }
    agreed = check_agreement(agreement, min(values), max(values))
    not_passed = dict.fromkeys(check for part in ordered for check in part.checks if not check.passed)
    return Estimate(parts[0].name, value, stderr, (*not_passed, agreed), diagnostics)


def check_agreement(probability: float, low: float, high: float) -> Check:
    """Whether parts with values from `low` to `high` measure the same thing."""
    return Check(
        "probability of such a spread", f"{probability:.1g}", f"at least {MIN_AGREEMENT:g}",
        probability >= MIN_AGREEMENT, "run each part for longer",
        reason=f"parts disagree: values from {low:.4g} to {high:.4g} have probability {probability:.1g}",
    )  # fmt: skip


def _insist_on_one_measurement(parts: Sequence[Estimate]) -> None:
    for name, values in [("name", [part.name for part in parts])] + [
        (name, [part.diagnostics.get(name) for part in parts]) for name in _SAME
    ]:
        if any(value != values[0] for value in values):
            raise InputError(f"parts of one measurement must share {name}, got {sorted(set(map(str, values)))}")
    if len({part.value for part in parts}) < len(parts) and all(part.stderr > 0 for part in parts):
        raise InputError("two parts have the very same value — give each a seed of its own, as part_seed makes")


def _agreement(value: float, values: Sequence[float], errors: Sequence[float]) -> float:
    """The probability of a spread as large as this if all parts measure the same; 1 for one part or exact ones."""
    if len(values) < 2 or not all(math.isfinite(error) and error > 0 for error in errors):
        return 1.0
    spread = math.fsum(((part_value - value) / error) ** 2 for part_value, error in zip(values, errors, strict=True))
    return float(chdtrc(len(values) - 1, spread))
