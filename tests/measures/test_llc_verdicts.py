"""Verdicts of λ̂ on constructed chains: exact draws of a Gaussian posterior, whole or spoilt in one way."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from basins import quadratic
from basinscope.measures.llc import estimate_of
from basinscope.sampling.calibration import Resolution
from basinscope.sampling.local import Outcome, Sampler, Settings
from basinscope.sampling.runs import Run
from basinscope.sampling.target import Target
from basinscope.sampling.trace import STATISTICS, Trace

AT = Resolution(nbeta=50.0, gamma=1.0)
SAMPLER = Sampler(quadratic([1.0, 0.5]), Settings())
TARGET = Target(SAMPLER.losses, AT.nbeta, AT.gamma, SAMPLER.geometry.whitening(AT))
DRAWS, CHAINS = 400, 8
EXACT = 0.5 * sum(50.0 * s / (50.0 * s + 1.0) for s in (1.0, 0.5))


def exact_draws():
    """The statistics of independent draws, each (draws, chains)."""
    position = torch.randn(DRAWS * CHAINS, 2, generator=torch.Generator().manual_seed(0))
    here = TARGET.full(position)
    columns = {
        "excess": here.excess,
        "virial": (position * here.gradient).sum(1),
        "soft_virial": TARGET.controls(position, here.gradient)[1],
        "distance": here.distance,
        "excess_distance": here.excess * here.distance,
        "acceptance": torch.full((DRAWS * CHAINS,), 0.8),
    }
    return {name: values.double().numpy().reshape(DRAWS, CHAINS) for name, values in columns.items()}


def outcome(columns):
    data = np.zeros((DRAWS, CHAINS, len(STATISTICS)))
    for name, values in (columns | {"excess_squared": columns["excess"] ** 2}).items():
        data[:, :, STATISTICS.index(name)] = values
    trace = Trace(CHAINS)
    trace.append(data)
    run = Run(TARGET, trace, np.ones(CHAINS, bool), torch.zeros(CHAINS, 2), 0.1)
    return Outcome(AT, "hmc", [run], *run.excess(), slope=0.0)


def spoilt(name, change):
    columns = exact_draws()
    return outcome(columns | {name: change(columns[name])})


def verdict(found):
    """Verdict and the first words of its reasons."""
    estimate = estimate_of(SAMPLER, found)
    return estimate.verdict, [warning.split(":")[0] for warning in estimate.warnings]


def test_exact_draws_are_believed():
    estimate = estimate_of(SAMPLER, outcome(exact_draws()))
    assert estimate.value == pytest.approx(EXACT, rel=1e-3)
    assert (estimate.verdict, estimate.warnings) == ("ok", ())


@pytest.mark.parametrize(
    ("name", "change", "reason"),
    [
        ("excess", lambda rows: rows + 0.02 * (np.arange(CHAINS) % 2), "not converged"),  # chains apart: R̂
        ("excess", lambda rows: rows + np.linspace(0, 0.1, DRAWS)[:, None], "not converged"),  # all drift
        ("acceptance", lambda rows: 0.05 + 0 * rows, "not converged"),
        ("virial", lambda rows: 1.3 * rows, "not in equilibrium"),
    ],
    ids=["chains apart", "drift", "acceptance", "virial"],
)
def test_spoilt_chains_are_doubted(name, change, reason):
    decision, reasons = verdict(spoilt(name, change))
    assert decision == "doubtful"
    assert reason in reasons


def test_lower_ground_fails():
    decision, reasons = verdict(spoilt("excess", lambda rows: rows - 1.0))
    assert decision == "failed"
    assert "not in a basin" in reasons


def test_what_the_run_itself_says_is_doubted():
    whole = outcome(exact_draws())
    lost = replace(whole.main, alive=np.arange(CHAINS) > 0)
    assert verdict(replace(whole, runs=[lost])) == ("doubtful", ["diverged chains"])
    assert verdict(replace(whole, runs=[replace(whole.main, interrupted=True)])) == ("doubtful", ["partial"])
    assert verdict(replace(whole, sampler="minibatch", slope=0.2)) == ("doubtful", ["step-size bias"])
    assert verdict(replace(whole, sampler="sgld", slope=np.nan)) == ("doubtful", ["step-size bias"])
    assert verdict(replace(whole, stderr=0.2 * whole.excess)) == ("doubtful", ["imprecise"])


def test_a_localiser_that_decides_is_told():
    whole = outcome(exact_draws())
    assert estimate_of(SAMPLER, whole).verdict == "ok", "directions are stiffer than γ"
    columns = exact_draws()
    steep = {"excess_distance": columns["excess"] * columns["distance"] + 0.8 * 2 * EXACT / AT.nbeta}
    falling = replace(outcome(columns | steep), at=Resolution(AT.nbeta, 100.0))
    assert estimate_of(SAMPLER, falling).diagnostics["gamma_slope"] == pytest.approx(-0.8 * EXACT, rel=0.1)
    assert any(warning.startswith("prior-dominated") for warning in estimate_of(SAMPLER, falling).warnings)
