"""What criteria are computed from: log-likelihoods at posterior draws, a user's own or a landscape's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..checks import positive, whole, whole_seed
from ..deprecated import warn_renamed
from ..errors import InputError
from ..estimates import Check
from ..landscape import Landscape
from ..progress import Report
from ..sampling.calibration import resolution
from ..sampling.diagnostics import split_rhat
from ..sampling.draws import draws as onward
from ..sampling.local import Outcome, Sampler, Settings
from .checks import check_completion, check_mixing, check_survival
from .pointwise import Stream, as_chains, streamed
from .psis import Tails

ENOUGH = 2000  # draws of all chains together, unless the user says otherwise
MAX_DRAW_BIAS = 0.05  # share of the mean excess loss by which the smallest minibatch step may still move it
MEMORY = 2**30  # bytes, for what is kept of every draw
_FEWEST = 16  # draws per chain
Keep = Callable[[NDArray[np.float64], int], None]
_SAMPLERS = ("auto", "hmc", "minibatch")


@dataclass(frozen=True)
class LogLikelihood:
    """log p(x_i | w_s) at draws of a landscape's posterior.

    Attributes:
        values: (chains, draws, n).
        beta: inverse temperature of the draws.
        checks: whether they are those of the posterior.
        facts: settings and diagnostics of the chains.
    """

    values: NDArray[np.float64]
    beta: float
    checks: tuple[Check, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def to_arviz(self) -> Any:
        """As an ArviZ `DataTree` with groups `log_likelihood` and `posterior` (the mean over samples)."""
        try:
            from arviz_base import from_dict
        except ModuleNotFoundError as error:
            raise InputError("ArviZ objects need arviz-base — install basinscope[arviz]") from error
        return from_dict(
            {
                "posterior": {"mean_log_likelihood": self.values.mean(2)},
                "log_likelihood": {"target": self.values},
            },
            dims={"target": ["observation"]},
            check_conventions=False,  # more chains than draws are usual here
        )


@dataclass(frozen=True)
class Evidence:
    """Log-likelihoods at posterior draws, as far as they are kept, and what was checked of the draws.

    Attributes:
        stream: sums over draws, a group per chain.
        alive: the groups that count.
        tails: the largest importance weights, where smoothing was asked for.
        trace: mean log-likelihood of every draw, (chains, draws).
        checks: whether the draws are those of the posterior.
        facts: settings and diagnostics.
        sampler, outcome: of a landscape's chains.
    """

    stream: Stream
    alive: NDArray[np.bool_]
    tails: Tails | None
    trace: NDArray[np.float64]
    checks: tuple[Check, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    sampler: Sampler | None = None
    outcome: Outcome | None = None


def temperature(source: Any, nbeta: float | None, beta: float | None) -> float:
    """Inverse temperature β of draws of a landscape, or of log-likelihoods (…, n): nβ/n, or 1 unless given.

    Args:
        source: the landscape or log-likelihoods, which know n.
        nbeta: nβ.
        beta: β, as it was once asked for.

    Examples:
        >>> temperature(np.zeros((4, 100, 20)), 10.0, None), temperature(np.zeros((4, 100, 20)), None, None)
        (0.5, 1.0)
    """
    if beta is not None:
        warn_renamed("beta", "nbeta, which is n·beta", above=2)
        if nbeta is not None:
            raise InputError(f"nbeta is n times beta, got nbeta={nbeta!r} and beta={beta!r} — pass nbeta alone")
        return positive("beta", beta)
    if nbeta is None:
        return 1.0
    rows = source.values if isinstance(source, LogLikelihood) else source
    n = rows.n if isinstance(rows, Landscape) else as_chains(rows).shape[2]
    return positive("nbeta", nbeta) / n


@dataclass(frozen=True)
class Asked:
    """How to draw from a landscape's posterior; None means: choose."""

    beta: float = 1.0
    gamma: float | None = None
    sampler: str = "auto"
    chains: int | None = None
    draws: int | None = None
    batch_size: int | None = None
    rtol: float = 0.02
    budget: float = 60.0
    seed: int = 0

    def __post_init__(self) -> None:
        positive("beta", self.beta)
        if self.sampler not in _SAMPLERS:
            raise InputError(f"unknown sampler {self.sampler!r}: expected one of {', '.join(_SAMPLERS)}")
        if self.draws is not None:
            whole("draws", self.draws, 2)
        positive("budget", self.budget)
        whole_seed(self.seed)

    @property
    def settings(self) -> Settings:
        """Of the run that finds the posterior; the draws may then take as much work again."""
        return Settings(
            self.sampler,
            chains=self.chains,
            batch_size=self.batch_size,
            rtol=self.rtol,
            budget=self.budget / 2,
            seed=self.seed,
        )


def gather(
    source: Any, asked: Asked, report: Report, *, memory: float | None = None, keep: Keep | None = None
) -> Evidence:
    """Evidence from a landscape or from a matrix of log-likelihoods.

    Args:
        source: the landscape or the matrix.
        asked: how to draw.
        report: progress.
        memory: what the smoothing of LOO may take; None for no smoothing.
        keep: called with the log-likelihoods (chains, n) of every draw of a landscape, and how many there will be.
    """
    if isinstance(source, Landscape):
        return _sampled(source, asked, report, memory, keep)
    for name in ("gamma", "chains", "draws", "batch_size"):
        if getattr(asked, name) is not None:
            raise InputError(
                f"{name} is about drawing from a landscape, got log-likelihoods of draws made — leave it out"
            )
    known: tuple[Check, ...] = ()
    if isinstance(source, LogLikelihood):
        if not math.isclose(source.beta, asked.beta):
            n = source.values.shape[2]
            raise InputError(
                f"these draws are at nbeta={n * source.beta:g}, got nbeta={n * asked.beta:g} — pass theirs"
            )
        known, source = source.checks, source.values
    rows = as_chains(source)
    chains, draws, n = rows.shape
    tails = None
    if memory is not None:
        tails = Tails(n, chains * draws, beta=asked.beta, memory=memory)
        tails.add(rows)
    stream = streamed(rows, asked.beta)
    trace = rows.mean(2).numpy()
    rhat = mixing(trace) if chains > 1 and draws >= 8 else math.nan
    own = () if math.isnan(rhat) else (check_mixing(rhat, "draw longer chains"),)
    facts = {"n": n, "beta": asked.beta, "chains": chains, "draws": draws, "rhat": rhat}
    return Evidence(stream, np.ones(stream.groups, bool), tails, trace, known or own, facts)


def chains_of(land: Landscape, asked: Asked, report: Report) -> tuple[Sampler, Outcome]:
    """Chains of the posterior at β that have converged, or have tried."""
    sampler = Sampler(land, asked.settings)
    at = resolution(land, asked.beta * land.n, asked.gamma)
    return sampler, sampler.run(at, report)


def refuse_diverged(outcome: Outcome, alive: torch.Tensor | None = None) -> None:
    """Chains that all went to infinity have no draws, whether they did before or, as `alive` tells, while drawing."""
    lost = outcome.diverged if alive is None else int((~alive).sum())
    finite = bool(torch.isfinite(outcome.displacement).all()) and math.isfinite(outcome.excess)
    if not finite or len(outcome.displacement) - lost < 2:
        raise InputError(
            f"the chains diverged: {lost} of {len(outcome.displacement)} — train longer, raise gamma="
            f"{outcome.at.gamma:.3g} or lower beta"
        )


def count_draws(outcome: Outcome, asked: Asked, chains: int) -> int:
    """Draws per chain: as many as asked, else enough of them, but no more work than convergence took."""
    if asked.draws is not None:
        return asked.draws
    return max(_FEWEST, min(math.ceil(ENOUGH / chains), outcome.main.trace.draws))


def thinning(outcome: Outcome, n: int) -> int:
    """Steps per draw: a pass over all data should not cost more than the steps between."""
    if outcome.batch_size is None:
        return 1
    return max(1, math.ceil(n / (3 * outcome.batch_size)))


def _sampled(land: Landscape, asked: Asked, report: Report, memory: float | None, keep: Keep | None) -> Evidence:
    sampler, outcome = chains_of(land, asked, report)
    refuse_diverged(outcome)
    chains = len(outcome.displacement)
    count = count_draws(outcome, asked, chains)
    stream = Stream(land.n, beta=asked.beta, groups=chains, device=land.device)
    tails = None
    if memory is not None:
        tails = Tails(land.n, chains * count, beta=asked.beta, memory=memory, device=land.device)
    trace = np.empty((chains, count))
    alive = torch.ones(chains, dtype=torch.bool)
    thin = thinning(outcome, land.n)
    for number, (delta, living) in enumerate(onward(sampler, outcome, count, seed=asked.seed + 2, thin=thin)):
        rows = -sampler.losses.per_sample(delta)
        stream.add(rows)
        if tails is not None:
            tails.add(rows)
        if keep is not None:
            keep(rows.cpu().numpy(), count)
        trace[:, number] = rows.mean(1).cpu().numpy()
        alive = living
        report(number / count, f"{number + 1} of {count} draws")
    refuse_diverged(outcome, alive)
    kept = alive.cpu().numpy()
    if not kept.all():
        tails = None  # the largest weights of a dead chain cannot be told from those of the others
    rhat = mixing(trace[kept])
    facts = facts_of(sampler, outcome) | {
        "rhat": rhat,
        "beta": asked.beta,
        "chains": chains,
        "draws": count,
        "thin": thin,
    }
    return Evidence(stream, kept, tails, trace[kept], checks_of(outcome, kept, rhat), facts, sampler, outcome)


def facts_of(sampler: Sampler, outcome: Outcome) -> dict[str, Any]:
    """Settings and diagnostics of the chains."""
    land, run = sampler.land, outcome.main
    return {
        "n": land.n,
        "dimension": land.dimension,
        "nbeta": outcome.at.nbeta,
        "gamma": outcome.at.gamma,
        "loss": float(sampler.losses.base.mean()),
        "llc": outcome.at.nbeta * outcome.excess,
        "sampler": outcome.sampler,
        "step_size": run.step_size,
        "batch_size": outcome.batch_size,
        "slope": outcome.slope,
        "burn_in": run.trace.draws,
        "interrupted": outcome.interrupted,
    }


def checks_of(outcome: Outcome, alive: NDArray[np.bool_], rhat: float) -> tuple[Check, ...]:
    """Whether the draws are those of the posterior; `rhat` is of the draws themselves."""
    slope = abs(outcome.slope)
    return (
        check_survival(int((~alive).sum()), len(alive), "raise gamma"),
        check_completion(outcome.interrupted, "the chains had converged"),
        check_mixing(rhat, "raise draws and budget"),
        Check(
            "step-size bias", f"{slope:.1%} of the mean excess loss", f"at most {MAX_DRAW_BIAS:.0%}",
            not slope > MAX_DRAW_BIAS, "raise budget or batch_size",
            reason=f"biased draws: the smallest minibatch step still moves the mean excess loss by {outcome.slope:.0%}",
        ),
    )  # fmt: skip


def mixing(trace: NDArray[np.float64]) -> float:
    """Split-R̂ of a trace (chains, draws)."""
    half = trace.shape[1] // 2
    halves = np.concatenate([trace[:, :half], trace[:, half : 2 * half]])
    return split_rhat(halves.mean(1), float(halves.var(1).mean()), half)
