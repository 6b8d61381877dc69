"""Which sampler, with how many chains, and what that costs: said before anything is spent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..errors import InputError
from ..landscape import Landscape
from ..progress import duration
from . import adjusted, unadjusted
from .calibration import (
    CURVATURE_POINTS,
    CURVATURE_SHARE,
    FEWEST_PRODUCTS,
    FEWEST_SAMPLES,
    PRODUCT_PRICE,
    affordable_effort,
)
from .cost import Cost
from .minibatches import CONTROL_PRICE

if TYPE_CHECKING:
    from .local import Settings

_TRANSITIONS = 100  # of Hamiltonian chains that a budget must allow for these to be chosen
_LEAST_TRANSITIONS = 30  # and below which nothing useful comes of them, tuning included
_STEPS = 800  # of minibatch chains that a budget should allow, or there are fewer chains on smaller batches
_LEAST_STEPS = 200
_FEWEST_CHAINS, _MOST_CHAINS = 6, 48  # of Hamiltonian chains
_FEWEST_NOISY, _USUAL_NOISY, _MOST_NOISY = 4, 12, 24  # of minibatch chains
_LEAST_BATCH = 32
_PLAIN_CHAINS = 4
FEWEST_GRADIENTS = 8  # on all data, of the descent to ŵ


@dataclass(frozen=True)
class Plan:
    """How a landscape is to be sampled.

    Attributes:
        sampler: that was chosen.
        chains: that run at once.
        batch_size: samples of a batch to begin with; None where all data are used.
        seconds: that it is expected to take at most: the budget, or the least useful cost where that is more.
        least_seconds: below which nothing useful comes of it.
        gradients: of all data, or of batches, in a transition.
        reason: why this sampler.
    """

    sampler: str
    chains: int
    batch_size: int | None
    seconds: float
    least_seconds: float
    gradients: int
    reason: str

    @property
    def warning(self) -> str | None:
        """What there is to say of a budget below the least useful cost."""
        if self.seconds > self.least_seconds:
            return None
        return f"the least useful cost is about {duration(self.least_seconds)}, which is more than the budget"

    def __str__(self) -> str:
        on = "all data" if self.batch_size is None else f"batches of {self.batch_size}"
        text = (
            f"{self.sampler}: {self.chains} chains on {on}, {self.gradients} gradients a step, at most "
            f"{duration(self.seconds)}, of use from {duration(self.least_seconds)} on\n{self.reason}"
        )
        return text if self.warning is None else f"{text}\n{self.warning}"


def planned(land: Landscape, settings: Settings, price: Cost, seconds: float) -> Plan:
    """The plan of `settings`, where evaluations have that price."""
    hamiltonian = _hamiltonian(land, settings, price, seconds)
    sampler = settings.sampler if settings.sampler != "auto" else _chosen(settings, hamiltonian, price, land.n, seconds)
    _refuse_unused(settings, sampler)
    if sampler == "hmc":
        return hamiltonian
    if sampler == "minibatch":
        minibatch = _minibatch(land, settings, price, seconds)
        if not _suits_minibatches(minibatch.chains):
            raise InputError(
                f"chains on minibatches run at {len(unadjusted.FRACTIONS)} step sizes, at least two of them at each: "
                f"chains must be a multiple of {len(unadjusted.FRACTIONS)} from {2 * len(unadjusted.FRACTIONS)} on, "
                f"got {minibatch.chains}"
            )
        if settings.sampler == "auto" and settings.batch_size is None:
            return replace(minibatch, reason=f"{minibatch.reason}, and {hamiltonian.reason.partition('allows ')[2]}")
        return minibatch
    batch = min(settings.batch_size or unadjusted.USUAL_BATCH, land.n)
    return Plan(sampler, settings.chains or _PLAIN_CHAINS, batch, seconds, 0.0, 1, "as asked")


def _chosen(settings: Settings, hamiltonian: Plan, price: Cost, n: int, seconds: float) -> str:
    """Metropolis-adjusted on all data where the budget allows some 100 transitions, else minibatches.

    Draws, a step size, a burn-in or a number of chains that minibatches cannot have can only be meant for the first,
    a batch size only for the second.
    """
    if settings.batch_size is not None:
        return "minibatch"
    if any(value is not None for value in (settings.draws, settings.step_size, settings.burn_in)):
        return "hmc"
    if settings.chains is not None and not _suits_minibatches(settings.chains):
        return "hmc"
    needed = _TRANSITIONS * hamiltonian.gradients * price.of(n, hamiltonian.chains)
    return "hmc" if needed <= seconds else "minibatch"


def _suits_minibatches(chains: int) -> bool:
    """Whether there are at least two chains, and as many, at each step size."""
    return chains % len(unadjusted.FRACTIONS) == 0 and chains >= 2 * len(unadjusted.FRACTIONS)


def _hamiltonian(land: Landscape, settings: Settings, price: Cost, seconds: float) -> Plan:
    chains = settings.chains or price.affordable_chains(land.n, _FEWEST_CHAINS, _MOST_CHAINS)
    complete = affordable_effort(land, 1, price, CURVATURE_SHARE * seconds).products is None
    gradients, each = adjusted.expected_gradients(land.dimension, complete), price.of(land.n, chains)
    least = least_seconds(land, price) + _LEAST_TRANSITIONS * min(gradients, adjusted.SHORTEST_PATH) * each
    reason = f"the budget allows {seconds / (gradients * each):,.0f} transitions on all {land.n:,} samples"
    return Plan("hmc", chains, None, max(seconds, least), least, gradients, reason)


def _minibatch(land: Landscape, settings: Settings, price: Cost, seconds: float) -> Plan:
    """Fewer chains, then smaller batches, where the budget would allow few steps only."""
    groups = len(unadjusted.FRACTIONS)
    usual = price.affordable_chains(unadjusted.USUAL_BATCH, _USUAL_NOISY, _MOST_NOISY) // groups * groups
    fewest = settings.chains or _FEWEST_NOISY
    smallest = min(land.n, settings.batch_size or _LEAST_BATCH)

    def each(batch: int, chains: int) -> float:
        return CONTROL_PRICE * price.of(batch, chains)

    chains, batch = settings.chains or usual, min(land.n, settings.batch_size or unadjusted.USUAL_BATCH)
    while chains > fewest and _STEPS * each(batch, chains) > seconds:
        chains = max(fewest, chains // (2 * groups) * groups)
    while batch > smallest and _STEPS * each(batch, chains) > seconds:
        batch = max(smallest, batch // 2)
    least = least_seconds(land, price) + _LEAST_STEPS * each(smallest, fewest)
    reason = f"the budget allows {seconds / each(batch, chains):,.0f} steps on batches of {batch}"
    return Plan("minibatch", chains, batch, max(seconds, least), least, 1, reason)


def least_seconds(land: Landscape, price: Cost) -> float:
    """What the least curvature costs, at w* and where the chains are, and the least descents to ŵ, from both."""
    return 2 * FEWEST_GRADIENTS * price.of(land.n, 1) + sum(
        PRODUCT_PRICE * FEWEST_PRODUCTS * (points * price.fixed + price.each * min(land.n, FEWEST_SAMPLES))
        for points in (1, CURVATURE_POINTS)
    )


def _refuse_unused(settings: Settings, sampler: str) -> None:
    """A setting that would change nothing is a misunderstanding."""
    unused = {"hmc": ("batch_size",), "minibatch": ("draws", "step_size", "burn_in"), "mala": ("batch_size",)}
    for name in unused.get(sampler, ()):
        if getattr(settings, name) is not None:
            raise InputError(
                f"{name}={getattr(settings, name)} has no meaning for sampler '{sampler}', which chooses it — "
                f"leave it out, or name another sampler"
            )
