"""All measures of trained networks: a row each."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from basinscope.landscape import watanabe_nbeta
from basinscope.runs.scratch import Scratch, Unfinished
from basinscope.runs.study import Result

from .cases import landscapes, network_of
from .fitting import Fitted, cross_validated, fitted
from .jobs import Network, batches, cost, training
from .matrices import Outputs, matrices, outputs
from .polishing import polished
from .posterior import Chains, Posterior
from .spectra import Basis, bases, numbers, regularized

Row = dict[str, Any]


def measured(jobs: Sequence[Network], fit: Fitted, numbers_of: Sequence[int]) -> list[Row]:
    """The rows of jobs on the same data; `numbers_of` are their places in the fit. Polished first, where they are."""
    rows: list[Row] = []
    fit, descents = polished(jobs, fit, numbers_of)
    turned: dict[int, list[Basis]] = {}
    for place, (job, number) in enumerate(zip(jobs, numbers_of, strict=True)):
        row: Row = {"weight_decay": job.weight_decay, "train_seconds": fit.seconds, **descents.get(number, {})}
        if fit.diverged[number] >= 0:
            rows.append({**row, "outcome": "diverged"})
            continue
        began = time.monotonic()
        values, turned[place] = curvature(job, fit, number)
        rows.append({**row, "outcome": "finished", **values, "curvature_seconds": time.monotonic() - began})
    sampled = [place for place in turned if jobs[place].draws]
    if sampled:
        began = time.monotonic()
        networks, points = [jobs[place] for place in sampled], fit.weights[[numbers_of[place] for place in sampled]]
        for place, more in zip(sampled, samplings(networks, points, [turned[place] for place in sampled]), strict=True):
            rows[place] |= more
            for name in ("llc", "llc_bayes"):
                rows[place][f"{name}_remainder"] = more[name] - rows[place][f"half_soft_rank_{name}"]
        for place in sampled:
            rows[place]["sampling_seconds"] = (time.monotonic() - began) / len(sampled)
    return rows


def curvature(job: Network, fit: Fitted, number: int) -> tuple[Row, list[Basis]]:
    """Everything but sampling: columns end in `_train`, `_test` or `_held`, after the samples they are taken on.

    Those of F and C on test data are taken on the first `test_matrices` samples of the test set, all others on all.
    `gap` is the test loss less the training loss, `gap_held` the loss on samples held out from the source of the
    training samples less it; the penalty of the regularised loss is the same in all and cancels.
    `half_soft_rank_llc` and `half_soft_rank_llc_bayes` are ½ Tr F (F + Λ)⁻¹ at the resolutions Λ = γ/nβ of λ̂, and
    `half_tic_fluctuation` is ½ Tr C (F + Λ)⁻¹ at that of ν̂: what they would be in quadratic basins. They are there
    where there is sampling.
    """
    lands = landscapes(job, fit.point(number, network_of(job)))
    row: Row = {}
    turned: list[Basis] = []
    for part in ("train", "test"):
        seen = outputs(lands[part])
        few = slice(job.test_matrices or None) if part == "test" else slice(None)
        land = lands[part].subset(few)
        whole = matrices(land, Outputs(seen.scores[few], seen.labels[few]), job.relations)
        turned_here = bases(whole.fisher, whole.layers)
        point = land.flatten(land.parameters)
        row |= {f"{name}_{part}": value for name, value in seen.numbers().items()}
        values = numbers(whole, turned_here, job.weight_decay, job.samples, point)
        row |= {f"{name}_{part}": value for name, value in values.items()}
        if part == "train":
            turned = turned_here
            row["weight_norm"] = float(point.double().norm())
            for name, nbeta in temperatures(job).items() if job.draws else ():
                penalized = regularized(whole.fisher, job.weight_decay + job.gamma / nbeta)
                row[f"half_soft_rank_{name}"] = penalized.soft_rank / 2
                if name == "llc_bayes":
                    row["half_tic_fluctuation"] = penalized.trace_with(whole.covariance) / 2
        del whole
    left_out = outputs(lands["held"]).numbers()
    row |= {f"{name}_held": left_out[name] for name in ("loss", "accuracy")}
    row |= {"gap": row["loss_test"] - row["loss_train"], "gap_held": row["loss_held"] - row["loss_train"]}
    return row, turned


def temperatures(job: Network) -> dict[str, float]:
    """nβ of λ̂ and WBIC, β = 1/log n; and of ν̂ and WAIC, β = 1."""
    return {"llc": watanabe_nbeta(job.samples), "llc_bayes": float(job.samples)}


def samplings(jobs: Sequence[Network], points: torch.Tensor, turned: Sequence[Sequence[Basis]]) -> list[Row]:
    """λ̂ and WBIC at β = 1/log n, ν̂ and WAIC at β = 1, of networks on the same data."""
    first = jobs[0]
    land = landscapes(first, _point(first, points[0]))["train"]
    target = Posterior(land, points, turned, [job.weight_decay for job in jobs], first.gamma)
    rows: list[Row] = [{} for _ in jobs]
    for name, nbeta in temperatures(first).items():
        chains = target.sample(
            nbeta, draws=first.draws, warmup=first.warmup, leapfrogs=first.leapfrogs, seeds=[job.seed for job in jobs]
        )
        for number, row in enumerate(rows):
            row |= _columns(name, nbeta, chains, number, float(target.gammas(nbeta)[number]))
            if name == "llc":
                row["wbic"] = float(first.samples * (target.base[number].mean() + chains.excess[number].mean()))
            else:
                variance = float(chains.functional_variance[number])
                row |= {
                    "fluctuation": variance / 2,
                    "waic": float(chains.bayes_loss[number]) + variance / first.samples,
                    "bayes_train_loss": float(chains.bayes_loss[number]),
                    "gibbs_train_loss": float(chains.gibbs_loss[number]),
                }
    return rows


def _point(job: Network, row: torch.Tensor) -> dict[str, torch.Tensor]:
    return Fitted(row[None], [-1], 0.0).point(0, network_of(job))


def _columns(name: str, nbeta: float, chains: Chains, number: int, gamma: float) -> Row:
    return {
        name: nbeta * float(chains.excess[number].mean()),
        f"{name}_stderr": nbeta * chains.stderr(number),
        f"{name}_verdict": chains.verdict(number),
        f"{name}_virial": float(chains.virial[number].mean()),
        f"{name}_acceptance": float(chains.acceptance[number]),
        f"{name}_gamma": gamma,
    }


def run_population(jobs: Sequence[Network], scratch: Scratch) -> Iterator[Mapping[int, Result]]:
    """Hand out the results of the wanted jobs as they come, by their places; `Unfinished` when the time is up.

    Unfinished training and the weights are kept, and networks measured before are not measured again.
    """
    if jobs[0].part == "folds":
        rows = cross_validated(jobs, scratch.folder, scratch.seconds_left)
        yield {place: Result([row]) for place, row in enumerate(rows)}
        return
    fit = fitted(jobs, scratch.folder, scratch.seconds_left)
    speed = 1.0
    for places in batches(jobs, scratch.wanted):
        networks = [jobs[place] for place in places]
        expected = sum(cost(job) - training(job) for job in networks)
        if speed * expected > scratch.seconds_left:
            raise Unfinished
        started = time.monotonic()
        rows = measured(networks, fit, places)
        speed = (time.monotonic() - started) / max(1e-9, expected)
        yield {place: Result([row]) for place, row in zip(places, rows, strict=True)}
