"""What criteria are computed from: log-likelihoods at posterior draws, a user's own or a landscape's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..checks import positive
from ..deprecated import warn_renamed
from ..errors import InputError
from ..estimates import Check
from ..landscape import Landscape
from ..progress import Report
from ..sampling.convergence import max_drift
from ..sampling.diagnostics import split_rhat, summarize
from .checks import (
    Balance,
    Movement,
    check_completion,
    check_drift,
    check_mixing,
    check_survival,
    check_virial,
)
from .pointwise import Stream, as_chains, streamed
from .posterior import Posterior, sampled_for_draws
from .psis import Tails
from .settings import Sampling, refuse_settings

MAX_DRAW_BIAS = 0.05  # share of the mean excess loss by which the smallest minibatch step may still move it
Keep = Callable[[NDArray[np.float64], int], None]


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
    """

    stream: Stream
    alive: NDArray[np.bool_]
    tails: Tails | None
    trace: NDArray[np.float64]
    checks: tuple[Check, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def temperature(source: Any, nbeta: float | None, beta: float | None) -> float:
    """Inverse temperature β of draws: that which they are known to be at, or nβ/n, or 1 unless given.

    Args:
        source: a posterior or landscape, or log-likelihoods (…, n), which know n.
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
        positive("beta", beta)
    if isinstance(source, Posterior):
        if beta is not None or nbeta is not None:
            other = nbeta if beta is None else beta * source.land.n
            raise InputError(
                f"this posterior is at nbeta={source.nbeta:.6g}, got nbeta={other:.6g} — leave it out, or sample "
                f"another with bs.posterior(land, nbeta={other:.6g})"
            )
        return source.nbeta / source.land.n
    if beta is not None:
        return float(beta)
    if nbeta is None:
        return source.beta if isinstance(source, LogLikelihood) else 1.0
    rows = source.values if isinstance(source, LogLikelihood) else source
    n = rows.n if isinstance(rows, Landscape) else as_chains(rows).shape[2]
    return positive("nbeta", nbeta) / n


def gather(
    source: Any,
    beta: float,
    settings: Sampling,
    report: Report,
    *,
    memory: float | None = None,
    keep: Keep | None = None,
) -> Evidence:
    """Evidence from a posterior, from a landscape whose posterior is sampled, or from a matrix of log-likelihoods.

    Args:
        source: the posterior, the landscape or the matrix.
        beta: inverse temperature of the draws.
        settings: how to sample a landscape.
        report: progress.
        memory: what the smoothing of LOO may take; None for no smoothing.
        keep: called with the log-likelihoods (chains, n) of every draw of a landscape, and how many there will be.
    """
    if isinstance(source, (Posterior, Landscape)):
        return of_posterior(posterior_for_draws(source, beta, settings, report), report, memory=memory, keep=keep)
    refuse_settings(settings, "log-likelihoods of draws made", allowed=("nbeta",))
    return _of_matrix(source, beta, memory)


def posterior_for_draws(source: Posterior | Landscape, beta: float, settings: Sampling, report: Report) -> Posterior:
    """The posterior that was given, or that of the landscape that was given, at β."""
    if isinstance(source, Posterior):
        refuse_settings(settings, "a posterior sampled already")
        return source
    return sampled_for_draws(source, {**settings, "nbeta": beta * source.n}, report)


def _of_matrix(source: Any, beta: float, memory: float | None) -> Evidence:
    checks: tuple[Check, ...] = ()
    if isinstance(source, LogLikelihood):
        if not math.isclose(source.beta, beta):
            n = source.values.shape[2]
            raise InputError(f"these draws are at nbeta={n * source.beta:g}, got nbeta={n * beta:g} — pass theirs")
        checks, source = source.checks, source.values
    rows = as_chains(source)
    chains, draws, n = rows.shape
    tails = None
    if memory is not None:
        tails = Tails(n, chains * draws, beta=beta, memory=memory)
        tails.add(rows)
    stream = streamed(rows, beta)
    trace = rows.mean(2).numpy()
    rhat = mixing(trace) if chains > 1 and draws >= 8 else math.nan
    agreement = () if math.isnan(rhat) else (check_mixing(rhat, "draw longer chains"),)
    facts = {"n": n, "beta": beta, "chains": chains, "draws": draws, "rhat": rhat}
    return Evidence(stream, np.ones(stream.groups, bool), tails, trace, checks or agreement, facts)


def of_posterior(post: Posterior, report: Report, *, memory: float | None = None, keep: Keep | None = None) -> Evidence:
    """The log-likelihoods at a posterior's draws, summed up; done once unless more of them is to be kept."""
    earlier: Evidence | None = post.known.get("evidence")
    if earlier is not None and keep is None and (memory is None or earlier.tails is not None):
        return earlier
    post.refuse_diverged()
    land, chains, count, beta = post.land, post.chains, post.count, post.nbeta / post.land.n
    stream = Stream(land.n, beta=beta, groups=chains, device=land.device)
    tails = None
    if memory is not None:
        tails = Tails(land.n, chains * count, beta=beta, memory=memory, device=land.device)
    trace = np.empty((chains, count))
    alive = torch.ones(chains, dtype=torch.bool)
    for number, (delta, living) in enumerate(post.draws()):
        rows = -post.losses.per_sample(delta)
        stream.add(rows)
        if tails is not None:
            tails.add(rows)
        if keep is not None:
            keep(rows.cpu().numpy(), count)
        trace[:, number] = rows.mean(1).cpu().numpy()
        alive = living
        report(number / count, f"{number + 1} of {count} draws")
    post.refuse_diverged(alive)
    living_chains = alive.cpu().numpy()
    if not living_chains.all():
        tails = None  # the largest weights of a dead chain cannot be told from those of the others
    checks = checks_of(post, living_chains, trace[living_chains])
    facts = facts_of(post) | {"rhat": mixing(trace[living_chains]), "beta": beta, "draws": count, "thin": post.thin}
    evidence = Evidence(stream, living_chains, tails, trace[living_chains], checks, facts)
    post.known["evidence"] = evidence
    return evidence


def facts_of(post: Posterior) -> dict[str, Any]:
    """Settings and diagnostics of the chains."""
    ran = post.ran
    return {
        "n": post.land.n,
        "dimension": post.land.dimension,
        "nbeta": post.nbeta,
        "gamma": post.gamma,
        "loss": float(post.losses.base.mean()),
        "llc": post.nbeta * ran.excess,
        "sampler": ran.sampler,
        "chains": post.chains,
        "step_size": ran.step_size,
        "batch_size": ran.batch_size,
        "slope": ran.slope,
        "burn_in": ran.burn_in,
        "interrupted": ran.interrupted,
        "schedule": ran.schedule,
    }


def checks_of(post: Posterior, alive: NDArray[np.bool_], trace: NDArray[np.float64]) -> tuple[Check, ...]:
    """Whether the draws are those of the posterior.

    Args:
        post: the posterior.
        alive: the chains that lived through the draws.
        trace: a mean over samples at every draw of those, (chains, draws), of the loss or the log-likelihood.
    """
    ran = post.ran
    return draws_checks(
        dead=int((~alive).sum()),
        chains=len(alive),
        interrupted=ran.interrupted,
        rhat=mixing(trace),
        slope=ran.slope,
        moved=movement(trace, ran.excess, ran.rtol),
        balance=ran.balance,
    )


def draws_checks(
    *,
    dead: int,
    chains: int,
    interrupted: bool,
    rhat: float,
    slope: float,
    moved: Movement,
    balance: Balance,
) -> tuple[Check, ...]:
    """The checks of draws, from what was seen of them.

    Args:
        dead, chains: how many chains did not stay finite, of how many.
        interrupted: whether somebody stopped the run.
        rhat: split-R̂ of the draws.
        slope: relative bias of the mean excess loss at the step of the draws.
        moved: by how much it moved from the draws' first half to their second.
        balance: the virial ratio of the run.
    """
    return (
        check_survival(dead, chains, "raise gamma"),
        check_completion(interrupted, "the chains had converged"),
        check_mixing(rhat, "raise draws and budget"),
        check_drift(moved, "the mean excess loss", "the draws", "raise draws and budget"),
        check_virial(balance),
        Check(
            "step-size bias", f"{abs(slope):.1%} of the mean excess loss", f"at most {MAX_DRAW_BIAS:.0%}",
            not abs(slope) > MAX_DRAW_BIAS, "raise budget or batch_size",
            reason=f"biased draws: the smallest minibatch step still moves the mean excess loss by {slope:.0%}",
        ),
    )  # fmt: skip


def mixing(trace: NDArray[np.float64]) -> float:
    """Split-R̂ of a trace (chains, draws)."""
    half = trace.shape[1] // 2
    halves = np.concatenate([trace[:, :half], trace[:, half : 2 * half]])
    return split_rhat(halves.mean(1), float(halves.var(1).mean()), half)


def movement(trace: NDArray[np.float64], mean: float, rtol: float) -> Movement:
    """How far the mean of a trace (chains, draws) moved from its first half to its second, and how far it may have."""
    half = trace.shape[1] // 2
    drift = float(trace[:, half:].mean() - trace[:, :half].mean())
    stderr = summarize(trace, trace**2, width=1).stderr
    return Movement(abs(drift), max_drift(stderr, mean, rtol), abs(mean))
