"""The tables of checks in docs/trust.md, from the checks themselves: run it after a limit or a remedy has changed.

Nothing here is imported by the package. Every check is made of examples that do not pass it, so that the tables hold
the names, limits and remedies that a report shows, and nothing that is written a second time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

PAGE = Path(__file__).with_name("trust.md")
_TABLE = re.compile(r"(<!-- checks of (\w+) -->\n\n).*?(\n?<!-- end -->)", re.DOTALL)


def of_llc() -> Iterator[Any]:
    """Every check of λ̂, not passed."""
    from basinscope.measures.llc_checks import llc_checks

    seen = {
        "started": 8, "diverged": 1, "interrupted": True, "sampler": "hmc", "acceptance": 0.0, "rhat": 9.0,
        "drift": 9.0, "virial_stderr": 0.1, "slope": 1.0, "nbeta": 1.0, "gamma": 9.0, "largest_eigenvalue": 1.0,
        "gamma_slope": -1.0, "rtol": 0.02, "rounding": 1.0, "gradient_mismatch": 1.0,
    }  # fmt: skip
    nan = float("nan")
    shown = [
        *llc_checks(nan, nan, {**seen, "sampler": "minibatch"}),
        *llc_checks(nan, nan, {**seen, "sampler": "sgld"}),
        *llc_checks(nan, nan, {**seen, "diverged": 0}),
        *llc_checks(-1.0, 1.0, {**seen, "virial": 3.0})[:1],
        *llc_checks(0.0, 0.0, {**seen, "virial": 3.0})[:1],
        *llc_checks(1.0, 0.2, {**seen, "virial": 3.0})[1:],
        *llc_checks(1.0, 0.2, {**seen, "virial": 0.1, "sampler": "minibatch"}),
        *llc_checks(1.0, 0.2, {**seen, "sampler": "sgld"}),
        *llc_checks(1.0, 0.2, {**seen, "sampler": "lean", "gamma_asked": 1.0})[-1:],
    ]
    names = [check.name for check in shown]
    yield from sorted(shown, key=lambda check: names.index(check.name))  # those of one name side by side


def of_minimum() -> Iterator[Any]:
    """Every check behind `at_minimum`, not passed."""
    from basinscope.measures.coefficient import minimum_checks

    yield from minimum_checks(
        1.0, {"drop": 9.0, "drop_stderr": 0.0, "smallest_eigenvalue": -99.0, "nbeta": 1.0, "gamma": 9.0}
    )


def of_others() -> Iterator[tuple[str, Any]]:
    """Every check of the other measures, not passed, with the measures that make it."""
    from basinscope.curvature.averages import Average, check_positive, check_rounding
    from basinscope.curvature.calibration import Ratio
    from basinscope.curvature.eigen import EigenPairs
    from basinscope.curvature.functions import ROUNDING_REMEDY, check_method
    from basinscope.curvature.sandwich import SampleMean
    from basinscope.estimates import Estimate
    from basinscope.measures import (
        checks,
        evidence,
        free_energy,
        gap,
        held_out,
        loo,
        operator_norm,
        psis,
        quick,
        selftest,
        spectrum,
        symmetries,
        temperature,
        trace,
        volume,
        waic,
    )
    from basinscope.runs import chains
    from basinscope.sampling.tempered import TemperedMean

    draws = "waic, loo, fluctuation"
    moved, off = checks.Movement(9.0, 1.0, 1.0), checks.Balance(3.0, 0.1)
    seen: Any = {"dead": 1, "chains": 2, "interrupted": True, "rhat": 9.0, "slope": 1.0, "moved": moved, "balance": off}
    nan = float("nan")
    for check in (*evidence.draws_checks(**seen), checks.check_draws(1.0, 1.0), checks.check_draws(nan, 1.0)):
        yield draws, check
    yield "waic", waic.check_variances(np.array([9.0]))
    yield "waic (tempered)", waic.check_minimum(9.0, 1.0)
    yield "waic (tempered)", waic.check_regular(1.0, 9.0, 0.1, None)
    yield "loo", loo.check_weights(np.array([9.0, 0.0]), psis.MAX_SHAPE)
    yield "loo", loo.check_weights(np.array([9.0]), psis.MAX_SHAPE)
    yield "loo (method='importance')", loo.UNCHECKED_WEIGHTS
    rung = free_energy.Rung(1.0, 1.0, 1.0, 9.0, 9.0, off, 2, 1, exhausted=True, interrupted=True)
    for excess in (1.0, nan):
        for check in free_energy.free_energy_checks(1.0, 1.0, moved, [replace(rung, excess=excess)]):
            yield "free_energy", check
    mean = TemperedMean(1.0, 1.0, 1.0, 1.0, 9.0, 4, 10, 10, 40, "nuts", 9.0, *off)
    seen = {
        "data_sets": 1, "r_squared": 0.0, "divergences": 40, "sampler": "nuts", "drift": 99.0,
        "monte_carlo_stderr": 1.0, "rtol": 0.02,
    }  # fmt: skip
    for check in temperature.temperature_checks(-1.0, 1.0, [mean], seen):
        yield "temperature_regression", check
    law, better = volume.Law(1, 1.0, 1.0, 0.0, 99.0, 9), volume.Law(2, 1.0, 1.0, 0.0, 1.0, 9)
    for check in volume.volume_checks(law, better, 1.0, 99.0, 1.0, 0.01):
        yield "volume_scaling", check
    for error, stderr in ((0.1, 0.01), (1.0, 0.01), (0.0, 1.0), (0.01, 0.001), (nan, nan)):
        for check in selftest.selftest_checks(error, stderr, Estimate("llc", 1.0, 0.1), 1.0):
            yield "selftest", check
    yield "gap", gap.check_calibration(Ratio(0.1, 0.0), False)
    yield "gap", gap.check_smallness(99.0, 1)
    yield "tic, distances", SampleMean(1.0, None, 1.0, 9.0).check
    yield "soft_rank, log_det", check_method("ekfac", "upper", "soft_rank")
    yield "soft_rank, log_det", check_positive(-1.0)
    yield "soft_rank, log_det", check_rounding(1.0, 0.01, ROUNDING_REMEDY)
    wide = Average(1.0, 1.0, 9.0, (0.0, 2.0), (0.0, 2.0), False, 9, 9, 1.0, 0.0)
    for check in wide.checks(0.01):
        yield "soft_rank, log_det, tic by Lanczos", check
    yield "trace", trace.check_trace(1.0, 1.0, 0.01)
    yield "trace", trace.check_trace(float("inf"), 1.0, 0.01)
    yield "operator_norm", operator_norm.check_residual(1.0, 0.1, False)
    short = EigenPairs(torch.ones(1), torch.ones(1, 1), torch.ones(1), 1.0, 1.0, 9, False)
    yield "spectrum", spectrum.check_residuals(short, 0.01)
    yield "measured_gap", held_out.check_size(1)
    yield "quick", quick.check_samples(99, 400)
    yield "symmetries", symmetries.check_bound(Estimate("llc", 9.0, 0.1), 1.0)
    yield "parts on a cluster", chains.check_agreement(0.0, 1.0, 9.0)
    for check in _of_audit():
        yield "audit", check


def _of_audit() -> Iterator[Any]:
    """The checks of chains of other tools, not passed: two that drift apart, one alone, and six alike."""
    from basinscope.adapters.chains import ForeignChains
    from basinscope.measures.audit_checks import SamplingFacts, audit_checks

    losses = np.linspace(0.0, 1.0, 64) * np.array([[1.0], [2.0]])
    facts = {"nbeta": 10.0, "gamma": 1.0, "step_size": 1e-3, "complete": False, "recorded": losses.astype(np.float16)}
    alike = losses[0] * np.linspace(1.0, 1.01, 6)[:, None]
    for own in (losses, losses[:1], alike):
        chains = ForeignChains(own, "a file", init_loss=0.0, **facts)
        yield from (
            check for check in audit_checks(chains, SamplingFacts(1e6, 0.0, 9.0, "bfloat16")) if not check.passed
        )


def table(header: list[str], rows: Iterable[list[str]]) -> str:
    """A Markdown table, every row once."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *dict.fromkeys(f"| {' | '.join(map(_cell, row))} |" for row in rows)]) + "\n"


def tables() -> dict[str, str]:
    """The tables by name."""
    llc = [
        [check.name, check.wanted, check.trouble.partition(":")[0], check.remedy, _meaning(check)]
        for check in of_llc()
        if not check.passed
    ]
    minimum = [[check.name, check.wanted, check.remedy, "no"] for check in of_minimum()]
    others = [
        [measures, check.name, check.wanted, check.remedy, _meaning(check)]
        for measures, check in of_others()
        if not check.passed
    ]
    return {
        "llc": table(["check of λ̂", "wanted", "else a warning begins", "and says to", "verdict"], llc),
        "minimum": table(["check of w*", "wanted", "else", "at_minimum"], minimum),
        "others": table(["measure", "check", "wanted", "else", "verdict"], others),
    }


def filled(page: str) -> str:
    """The page with its tables made anew."""
    made = tables()
    return _TABLE.sub(lambda found: f"{found[1]}{made[found[2]]}{found[3]}", page)


def _meaning(check: Any) -> str:
    return {"doubt": "doubtful", "failure": "failed"}[check.severity]


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
