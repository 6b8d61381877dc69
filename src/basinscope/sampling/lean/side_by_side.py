"""λ of many parts of one network, those of a layer together: tuned first, then walked at one resolution."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import torch
from numpy.typing import NDArray

from ...landscape import Landscape
from ...parts import Part
from ...progress import Report
from ..calibration import Resolution
from ..clock import Clock, clock_of
from ..convergence import PRECISE
from ..equilibrium import Mean
from ..local import Settings
from .means import Chain, bottom_of, extrapolated, virial_of
from .strategy import (
    BURN_IN,
    CHAINS,
    FEWEST_CHAINS,
    HEAVY,
    LEAST_STEPS,
    MOST_STEPS,
    PAIRS,
    PILOT_SHARE,
    RESERVE,
    TIMED,
    TRIALS,
    Walked,
    is_level,
)
from .together import Together, alike
from .tuning import FRACTIONS, LeanPace, paced, scales_of
from .walk import VIRIAL_EVERY, ChainRecord

Array = NDArray[np.float64]
_USUAL_BATCH = 64
_TUNING = 0.3  # of the progress bar


@dataclass
class _Group:
    """Parts that are walked together, and how."""

    walk: Together
    scales: Array
    curvature: Array
    noise: Array
    price: float
    paces: list[LeanPace]


def walked_side_by_side(
    land: Landscape, parts: Sequence[Part], settings: Settings, at: Resolution, report: Report
) -> list[Walked]:
    """What a lean walk finds of each part, all of them at one resolution: the finest that every one of them can reach.

    Parts of one layer that are alike have chains in one program. Tuning, batches and losses at w* are common.
    """
    clock = clock_of(settings.budget)
    batch = min(settings.batch_size or _USUAL_BATCH, land.n)
    with clock.running():
        base = land.per_sample(batch_size=batch)
        groups = []
        for number, members in enumerate(_grouped(parts)):
            report(_TUNING * number / len(parts), f"tuning {members[0].name}")
            walk = Together(land, members, at.nbeta, batch, base, settings.seed + number)
            groups.append(_tuned(walk, settings, at, clock, clock.seconds * len(members) / len(parts)))
        gamma = max(pace.step.gamma for group in groups for pace in group.paces)
        walks: dict[str, Walked] = {}
        for number, group in enumerate(groups):
            share = (clock.left() - RESERVE * clock.seconds) / (len(groups) - number)
            paces = _final(group, settings, at, gamma, share)
            walks |= _walked(group, paces, settings, at, clock, report, (number, len(groups)))
    report(1.0, "done")
    return [replace(walks[part.name], seconds=clock.spent() / len(parts)) for part in parts]


def _grouped(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts that are walked together: those of a layer, if they are alike."""
    layers: dict[int | str, list[Part]] = {}
    for part in parts:
        layers.setdefault(part.name if part.layer is None else part.layer, []).append(part)
    return [group for members in layers.values() for group in ([members] if alike(members) else [[m] for m in members])]


def _tuned(walk: Together, settings: Settings, at: Resolution, clock: Clock, seconds: float) -> _Group:
    """Stiffness, noise and pace of each part, from products with vectors and a short chain."""
    first = next(walk.batches(0))
    rows = walk.stiffness(first)
    scales = np.array([scales_of(each.tolist(), walk.sizes) for each in rows])
    curvature, noise = walk.stiffest(scales, first), walk.noise_traces(walk.star, 1, PAIRS)

    def work() -> None:
        for _ in range(VIRIAL_EVERY):
            walk.gradients(walk.star, first)

    def nominal() -> float:
        return VIRIAL_EVERY * 1e-9 * walk.batch * walk.land.dimension * len(walk.parts)

    price = median(clock.price(work, nominal) for _ in range(TIMED)) / VIRIAL_EVERY
    steps = max(LEAST_STEPS, int(PILOT_SHARE * seconds / price))
    if settings.draws is not None:
        steps = min(steps, max(LEAST_STEPS, settings.draws // 4))
    least = np.maximum(0.5, 0.5 * _whitened(scales, noise) * walk.batch / (at.nbeta * np.maximum(curvature, 1e-300)))
    group = _Group(walk, scales, curvature, noise, price, [])
    group.paces = _paces(group, settings, at, least, steps)
    energy = least
    for _ in range(TRIALS):
        records, ends = walk.chains([pace.step for pace in group.paces], steps, 1)
        clock.spend(price * steps)
        late = [record.after(0.75) for record in records]
        lifts = np.array([pace.lift for pace in group.paces])
        energy = np.array([float(record.excess.mean()) for record in late]) - lifts
        heavy = np.array([record.data.sum(1).mean() > HEAVY * sum(walk.sizes) for record in late])
        bad = heavy | ~np.isfinite(energy)
        if not bad.any():
            group.noise = walk.noise_traces(ends, 2, PAIRS)
            break
        group.curvature = np.where(bad, 4 * group.curvature, group.curvature)
        group.paces = _paces(group, settings, at, least, steps)
    group.paces = _paces(group, settings, at, np.maximum(energy, least), _steps(group, settings, 0.7 * seconds))
    return group


def _whitened(scales: Array, noise: Array) -> Array:
    total: Array = (scales * noise).sum(1)
    return total


def _paces(group: _Group, settings: Settings, at: Resolution, energy: Array, steps: int) -> list[LeanPace]:
    total = _whitened(group.scales, group.noise)
    return [
        paced(
            scales=group.scales[i].tolist(), sizes=group.walk.sizes, curvature=float(group.curvature[i]),
            noise=float(total[i]), energy=float(energy[i]), gamma=at.gamma, steps=steps, momentum=True,
            size=settings.step_size,
        )
        for i in range(len(group.walk.parts))
    ]  # fmt: skip


def _steps(group: _Group, settings: Settings, seconds: float) -> int:
    """Steps of a chain of the larger size, so that all chains and those without heat fit."""
    if settings.draws is not None:
        return settings.draws
    chains = (settings.chains or CHAINS) * sum(1 / fraction for fraction in FRACTIONS) / len(FRACTIONS)
    return int(min(MOST_STEPS, max(LEAST_STEPS, seconds / (group.price * (chains + 1)))))


def _final(group: _Group, settings: Settings, at: Resolution, gamma: float, seconds: float) -> list[LeanPace]:
    """The paces with the γ of all parts, and as many steps as there is time for."""
    steps = _steps(group, settings, seconds)
    return [replace(pace, step=replace(pace.step, gamma=gamma), steps=steps, asked=at.gamma) for pace in group.paces]


def _walked(
    group: _Group, paces: list[LeanPace], settings: Settings, at: Resolution, clock: Clock, report: Report,
    place: tuple[int, int],
) -> dict[str, Walked]:  # fmt: skip
    """The chains of a group, and what they tell of each part."""
    walk, burn_in = group.walk, BURN_IN if settings.burn_in is None else settings.burn_in
    records: list[list[ChainRecord]] = [[] for _ in walk.parts]
    traces: list[Array] = []
    diverged = [0] * len(walk.parts)
    most = settings.chains or CHAINS
    for number in range(most):
        report(
            _TUNING + (1 - _TUNING) * (place[0] + number / (most + 1)) / place[1],
            f"{walk.parts[0].name} and others, chain {number + 1} of {most}",
        )
        steps = [pace.of(FRACTIONS[number % len(FRACTIONS)]) for pace in paces]
        round_records, ends = walk.chains([step for step, _ in steps], steps[0][1], number + 2)
        clock.spend(group.price * steps[0][1])
        traces.append(walk.noise_traces(ends, 1000 + number, PAIRS))
        for i, record in enumerate(round_records):
            if record.finished:
                records[i].append(record.after(burn_in))
            else:
                diverged[i] += 1
        chains = [_chains(each, np.mean([t[i] for t in traces], 0)) for i, each in enumerate(records)]
        if settings.chains is None and all(_precise(each, walk.sizes, settings.rtol) for each in chains):
            break
    cold, _ = walk.chains([replace(pace.step, heat=0.0) for pace in paces], paces[0].steps, 1)
    loss = float(walk.base.mean())
    walks = {}
    for i, part in enumerate(walk.parts):
        mine, pace = chains[i], paces[i]
        virial = virial_of(mine, walk.sizes, [True] * len(walk.sizes)) if len(mine) >= FEWEST_CHAINS else None
        walks[part.name] = Walked(
            at, pace, mine, extrapolated(mine, virial) if virial else None, virial,
            [slot.parameter for slot in walk.slots], walk.batch, walk.batch, True, loss, float(group.curvature[i]),
            _bottom(cold[i], group.noise[i]), diverged[i], False, 12 * sum(walk.sizes), group.price,
        )  # fmt: skip
    return walks


def _chains(records: Sequence[ChainRecord], noise: Array) -> list[Chain]:
    finite = torch.tensor(noise).nan_to_num(0.0, 0.0).numpy()
    return [Chain(record, finite) for record in records]


def _bottom(cold: ChainRecord, noise: Array) -> Mean | None:
    return bottom_of(cold, float(Chain(cold, noise).lifts.sum())) if cold.finished else None


def _precise(chains: list[Chain], sizes: list[int], rtol: float) -> bool:
    """Whether the standard error of a part is what was asked for, by as many chains of both sizes."""
    if not is_level([chain.record for chain in chains]):
        return False
    mean = extrapolated(chains, virial_of(chains, sizes, [True] * len(sizes))).mean
    return mean.stderr <= PRECISE * rtol * mean.value and math.isfinite(mean.value)
