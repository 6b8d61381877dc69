"""The lean walk as a strategy: what it finds out first, the chains one after another, and what they tell together."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import InputError
from ...landscape import Landscape
from ...language.model import LanguageModel, surely
from ...progress import Report
from ...samples import Samples, tensors
from ..calibration import Resolution
from ..clock import Clock, Schedule, clock_of
from ..convergence import PRECISE
from ..equilibrium import Mean
from .borrowed import Borrowed
from .means import Chain, Extrapolated, Virial, bottom_of, extrapolated, virial_of
from .noise import CounterNoise, counter
from .passes import Passes
from .subject import Batch, Copied, Walkable
from .team import Replicas
from .tuning import FRACTIONS, LeanPace, equilibration, paced, scales_of, stiffest
from .walk import PAIRED_EVERY, VIRIAL_EVERY, ChainRecord, LeanWalk, all_losses
from .weights import Step, Weights

if TYPE_CHECKING:
    from ..local import Settings

LARGE = 20_000_000  # parameters from which on `auto` walks lean
CHAINS, FEWEST_CHAINS = 6, 4
BURN_IN = 0.5
LEAST_STEPS, MOST_STEPS = 32, 200_000
PILOT_SHARE, RESERVE = 0.08, 0.1  # of the budget
_BASE_SHARE = 0.1  # of the budget, that all losses at w* may take to be kept
PAIRS = 4  # of gradients, whose differences tell their noise
_FORWARD = 1 / 3  # of the cost of a step
TIMED = 3
TRIALS, HEAVY = 6, 4.0  # of the pilot; data part of the virial over d, from which on chains do not hold
_SAME = 2e-3  # relative difference that two calls may have in low precision
_RATE = {"cpu": 2e10, "cuda": 1e14}  # nominal arithmetic a second
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Options:
    """How to walk; None means: choose.

    Attributes:
        delta: how δ is kept, see `Weights`.
        moments: root mean squares of the tensors' gradients by name, as an optimizer keeps them: P follows.
        drop: whether to look for ŵ by a chain without heat.
        momentum: whether chains may have momentum, for 4 bytes a parameter more.
        replicas: whether other processes have copies of the network, and take chains.
    """

    delta: str | None = None
    moments: dict[str, float] | None = None
    drop: bool = True
    momentum: bool | None = None
    replicas: bool = False


USUAL = Options()


@dataclass(frozen=True)
class Walked:
    """What a lean walk found.

    Attributes:
        at: the resolution (nβ, γ) that was asked for.
        pace: how chains went, with the γ that they could reach.
        chains: without burn-in.
        result, virial: of all chains; None where too few of them came to an end.
        names: of the tensors.
        batch, micro: samples of a batch, and of them at once in memory.
        losses_kept: whether the losses at w* were kept for all samples.
        loss: mean of l(w*), of all samples or of one batch.
        curvature: the largest whitened eigenvalue.
        drop: nβ(L(w*) − L(ŵ)); None where it was not looked for.
        diverged: chains that went to infinity.
        bytes: that weights, w* and all else of their size take.
    """

    at: Resolution
    pace: LeanPace
    chains: list[Chain]
    result: Extrapolated | None
    virial: Virial | None
    names: list[str]
    batch: int
    micro: int
    losses_kept: bool
    loss: float
    curvature: float
    drop: Mean | None
    diverged: int
    interrupted: bool
    bytes: int
    step_seconds: float
    seconds: float = math.nan
    schedule: Schedule | None = None


def is_lean(land: Landscape | LanguageModel, sampler: str) -> bool:
    """Whether a landscape is walked lean: if asked for, where its module is in place, or under `auto` from `LARGE`
    parameters on."""
    if isinstance(land, LanguageModel) and sampler not in ("auto", "lean"):
        raise InputError(
            f"sampler={sampler!r} needs a copy of the network: a language model in place is walked by 'lean' alone — "
            f"use bs.Landscape.from_pretrained(model, tokens)"
        )
    return sampler == "lean" or isinstance(land, LanguageModel) or (sampler == "auto" and land.dimension >= LARGE)


def walked(
    land: Landscape | LanguageModel, settings: Settings, at: Resolution, report: Report, options: Options = USUAL
) -> Walked:
    """Walk lean at a resolution. The network's weights are w* again afterwards, to the bit, whatever happens."""
    subject: Walkable = Borrowed(land) if isinstance(land, LanguageModel) else Copied(land)
    weights = Weights(subject.leaves, options.delta, subject.slices)
    clock = weights.team.timed(clock_of(settings.budget))
    with clock.running(), subject.borrowed():
        size = settings.batch_size or subject.usual_batch
        passes = Passes(subject, weights, size)
        try:
            with passes.listening():
                walk = _Strategy(subject, weights, passes, at, settings, options, clock, report).run(size)
        finally:
            surely(weights.restore)
    report(1.0, "done")
    return replace(walk, seconds=clock.spent(), schedule=clock.schedule)


class _Strategy:
    """One lean walk: first what it must know, then the chains."""

    def __init__(
        self, subject: Walkable, weights: Weights, passes: Passes, at: Resolution, settings: Settings,
        options: Options, clock: Clock, report: Report,
    ) -> None:  # fmt: skip
        self.subject, self.weights, self.passes = subject, weights, passes
        self.at, self.settings, self.options = at, settings, options
        self.clock, self.report = clock, report
        self.replicas = Replicas(options.replicas)

    def run(self, size: int) -> Walked:
        """All of it."""
        self.walk = LeanWalk(self.subject, self.weights, self.passes, self.at.nbeta, size)
        first = next(self._batches(0)).samples
        self.passes.fit(first)
        loss = self._checked_losses(first)
        price = self._price()
        self._keep_base(price)
        scales = self._scales(first)
        curvature = stiffest(self.walk, first, scales, self._random(0))
        noise = self._noise(self._batches(1))
        pilot, noise = self.replicas.told(self._pilot(scales, curvature, noise, price))
        chains, diverged, interrupted = self._chains(pilot)
        pace = pilot
        enough = len(chains) >= FEWEST_CHAINS
        virial = virial_of(chains, self.weights.sizes, self._moving()) if enough else None
        return Walked(
            self.at, pace, chains, extrapolated(chains, virial) if virial else None, virial, self.weights.names,
            self.walk.batch, self.passes.micro, self.walk.base is not None, loss, curvature,
            None if interrupted or not enough else self.replicas.told(self._cold(pace, noise)), diverged, interrupted,
            self._bytes(), price,
        )  # fmt: skip

    # ------------------------------------------------------------------ first

    def _batches(self, number: int) -> Iterator[Batch]:
        return self.subject.batches(self.walk.batch, counter(self.settings.seed, number, 1))

    def _random(self, number: int) -> CounterNoise:
        return CounterNoise(self.settings.seed, number, self.weights.team.rank)

    def _moving(self) -> list[bool]:
        return [number not in self.passes.unused for number in range(len(self.weights.names))]

    def _checked_losses(self, batch: Samples) -> float:
        """The mean loss at w*, of a network that gives the same again."""
        once, again = self.passes.losses(batch), self.passes.losses(batch)
        if not bool(torch.isfinite(once).all()):
            raise InputError(
                "the loss is NaN or infinite at w* — check the checkpoint, the data, and the range of its number type"
            )
        if not torch.allclose(once, again, rtol=_SAME, atol=1e-6):
            raise InputError(
                f"the model changes between calls: the loss of one batch at w* is {float(once.sum()):.8g} and then "
                f"{float(again.sum()):.8g} — switch off dropout and other random parts"
            )
        return float(once.mean())

    def _price(self) -> float:
        """Seconds of a step, after a first one that compiles and fills caches."""
        still = Step(0.0, 0.0, [1.0] * len(self.weights.names))
        batches = self._batches(2)

        def work() -> float:
            return float(self.walk.chain(still, VIRIAL_EVERY, CounterNoise(0, 0), batches).excess.sum())

        work()
        return median(self.clock.price(work, self._nominal) for _ in range(TIMED)) / VIRIAL_EVERY

    def _nominal(self) -> float:
        """Seconds of these steps by their arithmetic: six operations a parameter and sample."""
        kind = self.weights.leaves[0].device.type
        positions = max(tensor[0].numel() for tensor in tensors(next(self._batches(2)).samples.inputs))
        return VIRIAL_EVERY * (
            1e-3 + 6 * sum(self.weights.sizes) * (self.walk.batch * positions) / _RATE.get(kind, 2e10)
        )

    def _keep_base(self, price: float) -> None:
        """All losses at w*, where a pass over the data costs little beside the chains that will use it."""
        cost = _FORWARD * price * self.subject.n / self.walk.batch
        if self.subject.indexable and cost <= _BASE_SHARE * self.clock.seconds:
            self.walk.base = all_losses(self.subject, self.passes, self.walk.batch)
            self.clock.spend(cost)

    def _scales(self, batch: Samples) -> list[float]:
        if self.options.moments is not None:
            return scales_of([self.options.moments[name] for name in self.weights.names], self.weights.sizes)
        rows = equilibration(self.walk, batch, self._random(0))
        return scales_of(rows, self.weights.sizes)

    def _noise(self, batches: Iterator[Batch]) -> Array:
        return self.walk.noise_traces(batches, PAIRS)

    def _paced(self, scales: list[float], curvature: float, noise: Array, energy: float, steps: int) -> LeanPace:
        momentum = self.options.momentum
        if momentum is None:  # where gradients are let go as they arrive, there is room for it
            momentum = not self.passes.keeps_gradients and self.passes.micro >= self.walk.batch
        return paced(
            scales=scales, sizes=self.weights.sizes, curvature=curvature, noise=float(np.dot(scales, noise)),
            energy=energy, gamma=self.at.gamma, steps=steps, momentum=momentum, size=self.settings.step_size,
        )  # fmt: skip

    def _pilot(self, scales: list[float], curvature: float, noise: Array, price: float) -> tuple[LeanPace, Array]:
        """The pace of the chains, from a short one that tells how large nβ·excess and the noise will be there.

        Before it, half the trace of the whitened curvature over its largest eigenvalue is the least that nβ·excess
        can be expected to be; nβ/B times the curvature is the noise of a network that fits its data.
        """
        per = price * (1.0 if self.walk.base is not None else 1 + _FORWARD / PAIRED_EVERY)
        total = float(np.dot(scales, noise))
        least = max(0.5, 0.5 * total * self.walk.batch / (self.at.nbeta * max(curvature, 1e-300)))
        steps = max(LEAST_STEPS, int(PILOT_SHARE * self.clock.seconds / per))
        if self.settings.draws is not None:
            steps = min(steps, max(LEAST_STEPS, self.settings.draws // 4))
        pace, energy, before = self._paced(scales, curvature, noise, least, steps), least, self.clock.left()
        for _ in range(TRIALS):
            record = self._one(pace.step, steps, 1)
            late = record.after(0.75)
            energy = float(late.excess.mean()) - pace.lift
            heavy = float(late.data.sum(1).mean()) > HEAVY * sum(self.weights.sizes)
            if record.finished and not heavy and math.isfinite(energy):
                noise = self._noise(self._batches(3)) if self.walk.noisy else noise
                break
            pace = replace(pace, step=replace(pace.step, size=pace.step.size / 4))
            curvature, before = curvature * 4, self.clock.left()
        self.clock.spend(per * steps)
        per = max(per, (before - self.clock.left()) / steps)  # of a machine that has other work, too
        count = self.settings.draws or self._affordable(per)
        return self._paced(scales, curvature, noise, max(energy, least), count), noise

    def _affordable(self, per: float) -> int:
        """Steps of a chain of the larger size, so that all chains and the one without heat fit."""
        seconds = self.clock.left() - RESERVE * self.clock.seconds
        parts = (self.settings.chains or CHAINS) * sum(1 / fraction for fraction in FRACTIONS) / len(FRACTIONS)
        parts = parts / self.replicas.size + self.options.drop
        return int(min(MOST_STEPS, max(LEAST_STEPS, seconds / (per * parts))))

    # ------------------------------------------------------------------ chains

    def _one(self, step: Step, steps: int, number: int) -> ChainRecord:
        """One chain; once more with smaller micro-batches, where it has run out of memory."""
        while True:
            try:
                return self.walk.chain(step, steps, self._random(number), self._batches(10 + number))
            except torch.OutOfMemoryError as error:
                self.passes.shrink(error)

    def _chains(self, pace: LeanPace) -> tuple[list[Chain], int, bool]:
        """Chains of both sizes in turn, until their mean is known well enough or all are done.

        Replicas have a pair of them each in turn, and all are done.
        """
        most, interrupted = self.settings.chains or CHAINS, False
        seen: dict[int, tuple[ChainRecord, Array]] = {}
        try:
            for number in range(most):
                if number // len(FRACTIONS) % self.replicas.size != self.replicas.rank:
                    continue
                self.report(number / (most + 1), f"chain {number + 1} of {most}")
                record = self._one(*pace.of(FRACTIONS[number % len(FRACTIONS)]), number + 2)
                trace = self._noise(self._batches(1000 + number)) if record.finished else np.zeros(0)
                seen[number] = record.after(self._burn_in), trace
                records, traces = _finished(seen)
                if not self.replicas.shared and (
                    self._precise(records, traces) or (self.clock.left() < 0 and is_level(records))
                ):
                    break
        except KeyboardInterrupt:
            if self.replicas.shared or len(_finished(seen)[0]) < FEWEST_CHAINS:
                raise
            interrupted = True
        seen = self.replicas.together(seen)
        records, traces = _finished(seen)
        return _chained(records, traces), len(seen) - len(records), interrupted

    @property
    def _burn_in(self) -> float:
        return BURN_IN if self.settings.burn_in is None else self.settings.burn_in

    def _precise(self, records: list[ChainRecord], traces: list[Array]) -> bool:
        """Whether the standard error target is met, by as many chains of both sizes."""
        if self.settings.chains is not None or not is_level(records):
            return False
        chains = _chained(records, traces)
        mean = extrapolated(chains, virial_of(chains, self.weights.sizes, self._moving())).mean
        return mean.stderr <= PRECISE * self.settings.rtol * mean.value  # by few chains: more than asked for

    def _cold(self, pace: LeanPace, noise: Array) -> Mean | None:
        """nβ(L(w*) − L(ŵ)) from a chain without heat."""
        if not self.options.drop or self.replicas.rank > 0:
            return None
        self.report(0.9, "descent")
        step, steps = pace.of(1.0)
        record = self._one(replace(step, heat=0.0), steps, 0)
        lift = Chain(record, noise).lifts.sum()
        return bottom_of(record, float(lift)) if record.finished else None

    def _bytes(self) -> int:
        """Memory of the size of the weights that was held at the most: besides w and w* momenta, or else gradients."""
        each = zip(self.weights.sizes, self.weights.leaves, strict=True)
        return self.weights.bytes() + sum(size * (leaf.element_size() + 4) for size, leaf in each)


def _finished(seen: dict[int, tuple[ChainRecord, Array]]) -> tuple[list[ChainRecord], list[Array]]:
    """The chains that came to an end, and the noise that they saw."""
    pairs = [pair for pair in seen.values() if pair[0].finished]
    return [record for record, _ in pairs], [trace for _, trace in pairs]


def is_level(records: list[ChainRecord]) -> bool:
    """Whether there are enough chains, as many of each size."""
    return len(records) >= FEWEST_CHAINS and len(records) % len(FRACTIONS) == 0


def _chained(records: list[ChainRecord], traces: list[Array]) -> list[Chain]:
    """Chains with the noise that all of them saw."""
    if not records:
        return []
    noise = np.mean(traces, axis=0)
    return [Chain(record, noise) for record in records]
