"""Jobs as populations: trained as one program, followed epoch by epoch, and λ̂ of many moments measured at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import basinscope as bs
from basinscope.landscape import Landscape, Parameters
from basinscope.runs.study import Result
from basinscope.training import Measure, Member, Population
from basinscope.training.population.steps import BLOCK
from studies.common.measuring import columns, device

from .cases import data_of, network_of, seeded_network, stacked
from .jobs import Training
from .measuring import PAPER_CHAINS, bias_of_sgld, full, full_options, paper_llcs

Row = dict[str, Any]
TRUNK = "trunk"
MATCHED = ("sizes", "judged", "convolutions")  # parts in which SGD and natural gradient are compared at equal loss
BRANCHED = 1000  # added to the seed of a branch, whose minibatches are not to be those of its trunk again
_STRETCH = 10  # fewest steps between two looks at a population's losses, to find where two are equal
_LOOKS = 4  # most looks an epoch
_ENTRIES = 2**27  # positions of chains sampled at once, in numbers


@dataclass(frozen=True)
class Course:
    """What a member of a population is in the study.

    Attributes:
        job: its job.
        run: its name in the rows.
        start: the epoch it starts from.
        stop: the epoch after which it is no longer followed.
    """

    job: Training
    run: str
    start: int
    stop: int


@dataclass(frozen=True)
class Moment:
    """A population at one moment: its weights, the training loss of each member, and at ends of epochs more of both."""

    step: int
    parameters: Parameters
    loss: Tensor
    more: Mapping[str, Tensor]


@dataclass(frozen=True)
class Trained:
    """Members that were trained together, and the moments kept of them."""

    courses: Sequence[Course]
    moments: Sequence[Moment]
    lost: frozenset[int]
    per_epoch: int

    def after(self, member: int, epoch: int) -> Moment:
        """The moment at which a member has been through so many epochs, those before it started included."""
        step = (epoch - self.courses[member].start) * self.per_epoch
        return next(moment for moment in self.moments if moment.step == step)


def run_population(jobs: Sequence[Training]) -> list[Result]:
    """Jobs of a few optimizers: a row for every epoch, and one more at equal loss where two optimizers are compared.

    There, for every seed the training losses of SGD and natural gradient are compared: the one that ended lower is
    measured once more at the moment when its loss was nearest to where the other ended.
    """
    groups = {kind: _population([job for job in jobs if job.optimizer == kind]) for kind in _kinds(jobs)}
    rows = {
        job: history for group in groups.values() for job, history in zip(_jobs(group), rows_of(group), strict=True)
    }
    if jobs[0].part in MATCHED and len(groups) == 2:
        for one, other in zip(groups.values(), reversed(groups.values()), strict=True):
            for m, row in matched_rows(one, matching(one, other)).items():
                rows[one.courses[m].job].append(row)
    return [Result(rows[job]) for job in jobs]


def run_branches(jobs: Sequence[Training]) -> list[Result]:
    """Trunks trained with SGD, each to its own epoch, and all branches from there (figures 4–6)."""
    trunks = _followed(
        [Course(job, TRUNK, 0, job.trunk_epochs) for job in jobs], "sgd", [job.lr for job in jobs],
        lambda: network_of(jobs[0]), looks=1,
    )  # fmt: skip
    rows = dict(zip(jobs, rows_of(trunks), strict=True))
    ends = {
        job: {name: weights[m] for name, weights in trunks.after(m, job.trunk_epochs).parameters.items()}
        for m, job in enumerate(jobs)
        if m not in trunks.lost
    }
    every = [(job, *rate.partition("@")) for job in ends for rate in job.rates]
    for kind in dict.fromkeys(kind for _, kind, _, _ in every):
        raised = [(job, float(rate)) for job, of, _, rate in every if of == kind]
        courses = [Course(job, f"{kind}@{rate:g}", job.trunk_epochs, job.epochs) for job, rate in raised]
        networks = [_network(job, ends[job]) for job, _ in raised]
        group = _followed(courses, kind, [rate for _, rate in raised], networks, looks=1)
        for job, member_rows in zip(_jobs(group), rows_of(group), strict=True):
            rows[job] += member_rows
    return [Result(rows[job]) for job in jobs]


def _kinds(jobs: Sequence[Training]) -> list[str]:
    return list(dict.fromkeys(job.optimizer for job in jobs))


def _jobs(group: Trained) -> list[Training]:
    return [course.job for course in group.courses]


def _network(job: Training, weights: Parameters) -> nn.Module:
    network = network_of(job)
    network.load_state_dict({name: tensor.cpu() for name, tensor in weights.items()})
    return network


# ---------------------------------------------------------------------- training


def _population(jobs: Sequence[Training]) -> Trained:
    """Jobs of one optimizer, each from the weights of its seed; looked at often where losses are to be matched."""
    first = jobs[0]
    courses = [Course(job, job.optimizer, 0, job.epochs) for job in jobs]
    looks = max(1, min(_LOOKS, len(data_of(first).train[0]) // first.batch_size // _STRETCH))
    rates = [job.lr for job in jobs]
    return _followed(courses, first.optimizer, rates, lambda: network_of(first), looks if first.part in MATCHED else 1)


def _followed(
    courses: Sequence[Course],
    kind: str,
    rates: Sequence[float],
    networks: Callable[[], nn.Module] | Sequence[nn.Module],
    looks: int,
) -> Trained:
    """A population trained as long as its longest course, with its weights at so many moments of every epoch."""
    jobs = [course.job for course in courses]
    data, batch = data_of(jobs[0]), jobs[0].batch_size
    members = [
        Member(seed=course.job.seed + (BRANCHED if course.start else 0), lr=rate, batch_size=batch)
        for course, rate in zip(courses, rates, strict=True)
    ]
    group = Population(networks, members, data.train, optimizer=stacked(jobs, kind), device=device())
    per_epoch = math.ceil(len(data.train[0]) / batch)
    moments = [Moment(0, group.parameters, group.evaluate().loss, _evaluated(group, data.test))]
    for epoch in range(max(course.stop - course.start for course in courses)):
        losses: list[Tensor] = []
        for look in range(1, looks + 1):
            stop = epoch * per_epoch + round(look * per_epoch / looks)
            more = {}
            if look < looks:
                losses += _trained_to(group, stop)
            else:
                losses += _trained_to(group, stop - 1)
                before = group.parameters
                losses += _trained_to(group, stop)
                more = {**_evaluated(group, data.test), **_moved(before, group.parameters)}
                more["batch_loss"] = torch.stack(losses).mean(0).cpu()
            moments.append(Moment(stop, group.parameters, group.evaluate().loss, more))
    return Trained(courses, moments, frozenset(group.diverged), per_epoch)


def _trained_to(group: Population, stop: int) -> list[Tensor]:
    """Train to a step; the losses of the members on the last batch of each block."""
    losses = []
    while group.step < stop:
        group.train(min(stop, (group.step // BLOCK + 1) * BLOCK), progress=False)
        losses.append(group.batch_losses)
    return losses


def _evaluated(group: Population, test: Any) -> dict[str, Tensor]:
    evaluation = group.evaluate(test)
    assert evaluation.accuracy is not None  # all data have labels
    return {"validation_loss": evaluation.loss, "accuracy": evaluation.accuracy}


def _moved(before: Parameters, after: Parameters) -> dict[str, Tensor]:
    """The length of every member's last step; and the sum of its lengths in each tensor, as the authors have it."""
    lengths = torch.stack([(after[name] - old).flatten(1).norm(dim=1) for name, old in before.items()]).cpu()
    return {"update_norm": lengths.norm(dim=0), "update_norm_paper": lengths.sum(0)}


def matching(one: Trained, other: Trained) -> dict[int, Moment]:
    """The members of `one` that ended below their twins in `other`, each at the moment nearest to the twin's end."""
    nearest = {}
    for m, twin in enumerate(other.moments[-1].loss.tolist()):
        ended = float(one.moments[-1].loss[m])
        if ended < twin:  # never for diverged ones, whose loss is NaN
            nearest[m] = min(one.moments, key=lambda moment: abs(float(moment.loss[m]) - twin))
    return nearest


# ---------------------------------------------------------------------- rows


def rows_of(group: Trained) -> list[list[Row]]:
    """The rows of every member: one for each epoch, λ̂ in those that are to be measured; the last one is the end."""
    rows: list[list[Row]] = []
    wanted: dict[tuple[int, int], Moment] = {}  # by member and place in its rows
    for m, course in enumerate(group.courses):
        if m in group.lost:
            rows.append([{"run": course.run, "outcome": "diverged", "moment": "end"}])
            continue
        epochs = range(course.start + (course.start > 0), course.stop + 1)  # the end of the trunk is in its own rows
        rows.append([_row(group, m, epoch) for epoch in epochs])
        for place, epoch in enumerate(epochs):
            if epoch in course.job.measured or epoch > course.stop - 2:
                wanted[m, place] = group.after(m, epoch)
    ends = {(m, len(rows[m]) - 1) for m, _ in wanted}
    traced = [key in ends or group.courses[key[0]].job.traced for key in wanted]
    in_full = [key in ends for key in wanted]
    measurements = measured(group, [(m, moment) for (m, _), moment in wanted.items()], traced, in_full)
    for (m, place), row in zip(wanted, measurements, strict=True):
        rows[m][place] |= row
    return rows


def matched_rows(group: Trained, chosen: Mapping[int, Moment]) -> dict[int, Row]:
    """The rows of members at the moments of equal loss."""
    measurements = measured(group, list(chosen.items()), [True] * len(chosen), [True] * len(chosen))
    rows = {}
    for (m, moment), row in zip(chosen.items(), measurements, strict=True):
        what = {"run": group.courses[m].run, "outcome": "finished", "moment": "matched", "step": moment.step}
        what |= {"epoch": moment.step / group.per_epoch, "train_loss": float(moment.loss[m])}
        rows[m] = {**what, **{name: float(values[m]) for name, values in moment.more.items()}, **row}
    return rows


def _row(group: Trained, member: int, epoch: int) -> Row:
    course, moment = group.courses[member], group.after(member, epoch)
    return {
        "run": course.run, "outcome": "finished", "moment": "end" if epoch == course.stop else "training",
        "origin": course.start * group.per_epoch, "step": epoch * group.per_epoch, "epoch": float(epoch),
        "train_loss": float(moment.loss[member]),
        **{name: float(values[member]) for name, values in moment.more.items()},
    }  # fmt: skip


def measured(
    group: Trained, chosen: Sequence[tuple[int, Moment]], traced: Sequence[bool], in_full: Sequence[bool]
) -> list[Row]:
    """λ̂ and WBIC the paper's way of members at moments, as many together as fit; Tr H, and all else, where asked."""
    if not chosen:
        return []
    first = group.courses[0].job
    base = Landscape(seeded_network(first), "cross_entropy", data_of(first).train)
    size = max(1, _ENTRIES // (PAPER_CHAINS * base.dimension))
    rows: list[Row] = []
    for start in range(0, len(chosen), size):
        lands = [
            base.at({name: weights[m].to(base.device) for name, weights in moment.parameters.items()})
            for m, moment in chosen[start : start + size]
        ]
        for land, paper in zip(lands, paper_llcs(lands, draws=first.draws, gamma=first.gamma, seed=start), strict=True):
            place = len(rows)
            row = columns(paper)
            if traced[place]:
                row |= columns({"hessian_trace": bs.trace(land, rtol=0.02, progress=False)})
            job = group.courses[chosen[place][0]].job
            if in_full[place] and job.full:
                row |= Measure(full, options=full_options(job)).columns(land)
            rows.append(row)
        places = [place for place in range(len(lands)) if first.part == "judged" and in_full[start + place]]
        if places:
            biased = bias_of_sgld([lands[p] for p in places], draws=first.draws, gamma=first.gamma, seed=start)
            for place, estimates in zip(places, biased, strict=True):
                rows[start + place] |= columns(estimates)
    return rows
