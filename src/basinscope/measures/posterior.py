"""A local posterior that one can hold: its chains, sampled once, and draws for whatever is asked of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor

from ..checks import positive, whole
from ..errors import InputError
from ..landscape import Landscape, check_landscape
from ..progress import Report, tracked
from ..sampling.calibration import resolution
from ..sampling.chains import ChainLosses
from ..sampling.draws import draws as onward
from ..sampling.local import Outcome, Sampler, Settings
from ..sampling.plan import Plan
from .checks import Balance, balance_of
from .settings import Sampling, checked, refuse_settings, takes_settings

if TYPE_CHECKING:
    from .observables import Observation

ENOUGH = 2000  # draws of all chains together, unless the user says otherwise
MEMORY = 2**30  # bytes, for what is kept of every draw
_FEWEST = 16  # draws per chain
DRAWING = ("auto", "hmc", "minibatch")  # samplers whose chains go on to give draws


@dataclass(frozen=True)
class Ran:
    """What those who judge draws need to know of the run before them.

    Attributes:
        sampler, step_size, batch_size: what ran.
        burn_in: draws of the run itself.
        excess: E[L_n(w) − L_n(w*)].
        rtol: wanted standard error, relative.
        slope: relative bias of the mean excess loss at the step of the draws.
        interrupted: whether somebody stopped it.
        balance: its virial ratio.
        schedule: what its clock answered.
    """

    sampler: str
    step_size: float
    batch_size: int | None
    burn_in: int
    excess: float
    rtol: float
    slope: float
    interrupted: bool
    balance: Balance
    schedule: Mapping[str, Any] | None

    def to_dict(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return asdict(self) | {"balance": self.balance._asdict()}


class Posterior:
    """The local posterior ∝ exp(−nβ L_n(w) − (γ/2)‖w − w*‖²) of a landscape, sampled: what `posterior` returns.

    The chains have run; means over the whole run, such as λ̂, are known. Draws for everything else are taken when they
    are first needed, by the same chains going on, and are the same whoever asks: they are kept as far as `memory`
    allows, else the chains take the same steps again.

    Attributes:
        land: the landscape.
        nbeta, gamma: the resolution (nβ, γ).
        sampler: the sampler, with its settings and the curvature that it measured.
        outcome: what its run gave.
        memory: bytes that kept draws may take.
    """

    def __init__(self, sampler: Sampler, outcome: Outcome, *, draws: int | None = None, memory: float = MEMORY) -> None:
        self.land = sampler.land
        self.nbeta, self.gamma = outcome.at.nbeta, outcome.at.gamma
        self.sampler, self.outcome = sampler, outcome
        self.memory = memory
        self._draws = draws
        self._positions: list[tuple[Tensor, Tensor]] = []
        self.known: dict[str, Any] = {}  # what measures have worked out of all draws, for the next that asks

    @property
    def settings(self) -> Settings:
        return self.sampler.settings

    @property
    def plan(self) -> Plan:
        """How it was to be sampled, and what that was to cost."""
        assert self.outcome.plan is not None  # every run has one
        return self.outcome.plan

    @property
    def losses(self) -> ChainLosses:
        """The losses of many chains at once."""
        return self.sampler.losses

    @property
    def ran(self) -> Ran:
        """What is to be known of the run."""
        outcome, run = self.outcome, self.outcome.main
        return Ran(
            outcome.sampler, run.step_size, outcome.batch_size, run.trace.draws, outcome.excess, self.settings.rtol,
            outcome.slope, outcome.interrupted, balance_of(outcome),
            None if outcome.schedule is None else outcome.schedule.to_dict(),
        )  # fmt: skip

    @property
    def chains(self) -> int:
        return len(self.outcome.displacement)

    @property
    def count(self) -> int:
        """Draws per chain: as many as asked for, else enough of them, but no more work than the run took.

        Few, where somebody stopped the run and waits for an answer.
        """
        if self.outcome.interrupted:
            return min(self._draws or _FEWEST, _FEWEST)
        if self._draws is not None:
            return self._draws
        steps = 1 if self.outcome.batch_size is None else 2 * self.thin  # a draw's own, and its pass over all data
        return max(_FEWEST, min(math.ceil(ENOUGH / self.chains), self.outcome.main.trace.draws // steps))

    @property
    def thin(self) -> int:
        """Steps per draw: a pass over all data should not cost more than the steps between."""
        if self.outcome.batch_size is None:
            return 1
        return max(1, math.ceil(self.land.n / (3 * self.outcome.batch_size)))

    def draws(self, count: int | None = None) -> Iterator[tuple[Tensor, Tensor]]:
        """δ = w − w* of all chains (C, d), and which of them are alive (C,), draw by draw.

        Args:
            count: draws per chain; those that every measure looks at unless given.
        """
        self.refuse_diverged()
        count = self.count if count is None else whole("count", count, 1)
        if len(self._positions) >= count:
            for delta, alive in self._positions[:count]:
                yield delta.to(self.land.device), alive
            return
        displacement = self.outcome.displacement
        keeps = count * displacement.numel() * displacement.element_size() <= self.memory
        positions: list[tuple[Tensor, Tensor]] = []
        walk = onward(self.sampler, self.outcome, count, seed=self.settings.seed + 2, thin=self.thin)
        for delta, alive in walk:
            if keeps:
                positions.append((delta.cpu(), alive))
            yield delta, alive
        self._positions = positions

    def observe(self, observable: Any = None, *, progress: bool = True) -> Observation:
        """E[φ] over the posterior with standard errors, for losses on any data or any function of the network.

        Args:
            observable: φ: data, for the loss of each of their samples; or a function from the parameters, a dict of
                tensors by name, to a tensor; the losses of the training samples unless given.
            progress: show a bar when it takes over a second.

        Examples:
            >>> import torch, basinscope as bs
            >>> x = torch.randn(50, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
            >>> net = torch.nn.Linear(1, 1, bias=False).double()
            >>> _ = torch.nn.init.ones_(net.weight)
            >>> post = bs.posterior(bs.Landscape(net, "mse", (x, x)), gamma=1.0, draws=50)
            >>> weight = post.observe(lambda w: w["weight"])
            >>> bool(abs(weight.mean[0] - 1.0) < 6 * weight.stderr[0])
            True
        """
        from .observables import observe

        with tracked("observables", progress) as report:
            return observe(self, observable, report)

    def save(self, path: str | Path, *, weights: bool = True, progress: bool = True, **observables: Any) -> Path:
        """Write the draws to a Zarr store, draw by draw, in the layout that devinterp 2 and ArviZ read.

        Args:
            path: a new folder whose name ends in `.zarr`.
            weights: keep δ = w − w* of every draw, 4 bytes for each parameter, chain and draw (8 in float64); without
                them the observables are kept, but the posterior cannot be loaded again.
            progress: show a bar when it takes over a second.
            observables: φ by name, as for `observe`: data, or a function of the parameters; None for the training
                samples, whose losses are then ArviZ's `log_likelihood`, too.

        Examples:
            >>> import tempfile, torch, basinscope as bs
            >>> x = torch.randn(50, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
            >>> net = torch.nn.Linear(1, 1, bias=False).double()
            >>> land = bs.Landscape(net, "mse", (x, x))
            >>> post = bs.posterior(land, gamma=1.0, draws=20)
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     path = post.save(f"{folder}/run.zarr", train=None, weight=lambda w: w["weight"])
            ...     again = bs.Posterior.load(path, land)
            ...     bool((again.observe().mean == post.observe().mean).all())
            True
        """
        from .kept import save

        with tracked("saving draws", progress) as report:
            return save(self, Path(path), observables, weights, report)

    @staticmethod
    def load(path: str | Path, land: Landscape, *, memory: float = MEMORY) -> Posterior:
        """The posterior that `save` wrote, for whatever asks for draws.

        Args:
            path: of the Zarr store.
            land: the landscape that was sampled; other data, other weights are refused.
            memory: bytes that the draws may take; beyond it they are read again each time.
        """
        from .kept import load

        check_landscape(land)
        return load(path, land, positive("memory", memory))

    def refuse_diverged(self, alive: Tensor | None = None) -> None:
        """Chains that all went to infinity have no draws, before drawing or, as `alive` tells, while drawing."""
        dead = self.outcome.diverged if alive is None else int((~alive).sum())
        finite = bool(torch.isfinite(self.outcome.displacement).all()) and math.isfinite(self.outcome.excess)
        if not finite or self.chains - dead < 2:
            raise InputError(
                f"the chains diverged: {dead} of {self.chains} — train longer, raise gamma={self.gamma:.3g} or lower "
                f"nbeta"
            )

    def __repr__(self) -> str:
        return (
            f"Posterior at nβ = {self.nbeta:.4g}, γ = {self.gamma:.3g} of {self.land.dimension:,} parameters on "
            f"{self.land.n:,} samples: {self.chains} chains of {self.outcome.sampler}, "
            f"split-R̂ {self.outcome.rhat:.3f}"
        )


@takes_settings
def posterior(
    land: Landscape, *, memory: float = MEMORY, progress: bool = True, **settings: Unpack[Sampling]
) -> Posterior:
    """Sample the local posterior ∝ exp(−nβ L_n(w) − (γ/2)‖w − w*‖²) once, for as many measures as will follow.

    `llc`, `wbic`, `waic`, `loo`, `fluctuation`, `criteria`, `log_likelihood`, `free_energy`, `influence` and `measure`
    take it in the place of a landscape. With a landscape they sample for themselves, and take the settings below.

    Nothing needs to be set. Curvature from Lanczos scales every direction; Hamiltonian Monte Carlo on all data runs
    where it is affordable, otherwise Langevin chains with momentum on minibatches at two step sizes, extrapolated to
    zero. `plan` tells beforehand which, and what it costs.

    Args:
        land: the landscape.
        memory: bytes that the draws may take.
        progress: show a bar when it takes over a second.
        nbeta: inverse temperature nβ. Unless given it is n/log n, Watanabe's temperature, at which λ̂ and WBIC are
            defined; criteria of prediction that sample for themselves take n, so that β = 1.
        gamma: localisation γ, the precision of a Gaussian prior around w*; d/‖w*‖² unless given.
        sampler: `auto`, `hmc` (all data), `minibatch` (extrapolated), `lean` (the network's own weights, for λ̂ of
            large networks, which `llc` takes under `auto` from 20 million parameters on), or a plain kernel with
            nothing corrected: `sgld`, `rmsprop-sgld`, `leimkuhler-matthews`, `baoab`, `sgnht`, `mala`. Plain kernels
            give λ̂ and WBIC alone.
        chains: how many.
        draws: per chain: so long is the run, burn-in included, instead of until `rtol` is met; criteria look at as
            many draws after it. Criteria that sample for themselves let the chains converge first, then take so many.
        step_size, batch_size, burn_in: of the sampler; burn_in is a fraction of the run. Chosen unless given.
        rtol: wanted standard error relative to λ̂.
        budget: most seconds on this machine, everything counted. A few transitions are made whatever they cost; where
            they do not suffice, the verdict says so. `bs.Nominal(60)` counts arithmetic instead, so that a seed gives
            the same bits every time; a `bs.Schedule`, as `diagnostics["schedule"]` holds it, repeats a run bit for bit.
            Draws for criteria take about as much again at most; criteria that sample for themselves share the budget
            between both.
        seed: of all random numbers.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> net = torch.nn.Linear(3, 1, bias=False)
        >>> _ = torch.nn.init.ones_(net.weight)
        >>> post = bs.posterior(bs.Landscape(net, "gaussian", (x, x.sum(1, keepdim=True)), sigma=1.0), seed=0)
        >>> abs(bs.llc(post).value - 1.5) < 0.15, bs.wbic(post).verdict
        (True, 'ok')
    """
    check_landscape(land)
    positive("memory", memory)
    with tracked("posterior", progress) as report:
        return sampled(land, settings, report, memory=memory)


@takes_settings
def plan(land: Landscape, **settings: Unpack[Sampling]) -> Plan:
    """How `posterior` and `llc` would sample a landscape with these settings, and what it would cost: told beforehand.

    The price of a gradient is measured (with `bs.Nominal`, counted), and nothing else is computed.

    Args:
        land: the landscape.
        settings: those of `posterior`.

    Returns:
        A `Plan`: sampler, chains and batch size with the reason for them, the seconds that the run is expected to take
        at most, and the least useful ones, below which only a few transitions can be made.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(500, 3, generator=torch.Generator().manual_seed(0))
        >>> land = bs.Landscape(torch.nn.Linear(3, 1), "mse", (x, x.sum(1, keepdim=True)))
        >>> sampling = bs.plan(land, budget=bs.Nominal(10))
        >>> sampling.sampler, sampling.seconds <= 10, sampling.warning
        ('hmc', True, None)
    """
    check_landscape(land)
    nbeta, gamma, chosen = checked(settings)
    resolution(land, nbeta, gamma)  # is checked as a run would check it
    return Sampler(land, chosen).plan()


def sampled(land: Landscape, settings: Mapping[str, Any], report: Report, *, memory: float = 0) -> Posterior:
    """The posterior of a landscape with these settings; its draws are not kept unless `memory` says so."""
    nbeta, gamma, chosen = checked(settings)
    sampler = Sampler(land, chosen)
    return Posterior(sampler, sampler.run(resolution(land, nbeta, gamma), report), draws=chosen.draws, memory=memory)


def sampled_for_draws(land: Landscape, settings: Mapping[str, Any], report: Report) -> Posterior:
    """The posterior of a landscape whose draws are what counts: chains converge with half the budget, for draws to take
    as much again, and a number of draws is that of those alone."""
    count = settings.get("draws")
    if count is not None:
        whole("draws", count, 2)
    nbeta, gamma, chosen = checked({**settings, "draws": None})
    refuse_plain(chosen.sampler)
    sampler = Sampler(land, replace(chosen, budget=chosen.budget / 2))
    return Posterior(sampler, sampler.run(resolution(land, nbeta, gamma), report), draws=count, memory=0)


def refuse_plain(sampler: str) -> None:
    """Refuse a plain kernel, whose chains give no draws of the posterior."""
    if sampler not in DRAWING:
        raise InputError(f"unknown sampler {sampler!r} of draws: expected one of {', '.join(DRAWING)}")


def posterior_of(source: Any, settings: Mapping[str, Any], report: Report) -> Posterior:
    """The posterior that a measure was given, or that of the landscape that it was given."""
    if isinstance(source, Posterior):
        refuse_settings(settings, "a posterior sampled already")
        return source
    check_landscape(source)
    return sampled(source, settings, report)


def landscape_of(source: Any) -> Landscape:
    """The landscape that a measure was given, itself or with its posterior."""
    if isinstance(source, Posterior):
        return source.land
    check_landscape(source)
    land: Landscape = source
    return land
