"""What the jobs measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

import basinscope as bs
from basinscope.exact.finite import Observable, covariance
from basinscope.measures.classical import sample_gradients

from . import chains
from .cases import (
    attention_to_what_followed,
    flipped,
    images,
    induction,
    network,
    repeating,
    row_losses,
    story,
    trained,
)

Row = dict[str, Any]
Array = NDArray[np.float64]
CONTEXT, PERIOD = 32, 12  # tokens of a sequence, and of what repeats


# ---------------------------------------------------------------------- against exact values


def regression(samples: int, inputs: int, queries: int, draws: int, seed: int) -> list[Row]:
    """Influence of every sample of a linear regression on every query, beside the exact one, by both ways."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(samples + queries, inputs, generator=generator, dtype=torch.float64)
    x *= torch.linspace(0.3, 1.5, inputs, dtype=torch.float64)
    y = x.sum(1, keepdim=True) + 0.5 * torch.randn(len(x), 1, generator=generator, dtype=torch.float64)
    net = torch.nn.Linear(inputs, 1, bias=False, dtype=torch.float64)
    fit = torch.linalg.lstsq(x[:samples], y[:samples]).solution
    with torch.no_grad():
        net.weight.copy_(fit.T)
    land = bs.Landscape(net, "mse", (x[:samples], y[:samples]))
    nbeta, gamma = float(samples), 1.0
    truth = -_exact(x, (y - x @ fit)[:, 0], samples, nbeta, gamma)
    post = bs.posterior(land, nbeta=nbeta, gamma=gamma, chains=48, draws=draws, seed=seed, budget=bs.Nominal(30),
                        progress=False)  # fmt: skip
    rows = []
    for method in ("draws", "controlled"):
        result = bs.influence(post, (x[samples:], y[samples:]), method=method, progress=False)
        scores = (result.values - truth) / result.stderr
        rows.append({
            "method": method, "entries": truth.size, "correlation": _correlation(result.values, truth),
            "z_spread": float(scores.std()), "z_mean": float(scores.mean()),
            "error": float(np.linalg.norm(result.values - truth) / np.linalg.norm(truth)), "verdict": result.verdict,
        })  # fmt: skip
    return rows


def _exact(x: Tensor, residual: Tensor, samples: int, nbeta: float, gamma: float) -> Array:
    """Cov(ℓ_i, ℓ_j) for ℓ_i = ½(r_i − x_iᵀδ)²: r_i r_j x_iᵀΣx_j + ½ (x_iᵀΣx_j)²."""
    rows, train = x.numpy(), x[:samples].numpy()
    hessian = train.T @ train / samples
    sigma = np.linalg.inv(nbeta * hessian + gamma * np.eye(rows.shape[1]))
    between = train @ sigma @ rows[samples:].T
    covariances: Array = np.outer(residual[:samples], residual[samples:]) * between + 0.5 * between**2
    first, last = (
        Observable((-float(residual[k]) * rows[k]).tolist(), np.outer(rows[k], rows[k]).tolist()) for k in (0, -1)
    )
    check = covariance(first, last, hessian.tolist(), nbeta, gamma)
    assert abs(check - covariances[0, -1]) < 1e-9 * (1 + abs(check))  # the library's own exact answer
    return covariances


# ---------------------------------------------------------------------- against retraining


def retraining(
    data: str, samples: int, queries: int, subsets: int, decay: float, steps: int, damping: float,
    dampings: Sequence[float], draws: int, seed: int,
) -> list[Row]:  # fmt: skip
    """Linear datamodeling scores: over random halves of the data, the rank correlation of a query's loss after training
    on a half with the sum of the influences of its samples; the mean over queries."""
    train, test = images(data, samples, queries, seed)
    generator = torch.Generator().manual_seed(seed)
    halves = torch.rand(subsets, samples, generator=generator).argsort(1) < samples // 2
    every = torch.cat([torch.ones(1, samples), halves.float()])
    weights = trained(train, every, decay, steps, seed)
    losses = row_losses(weights, *test)[1:].double().numpy()
    land = bs.Landscape(network({name: each[0] for name, each in weights.items()}), "cross_entropy", train)
    accuracy = float((land.outputs(land.parameters, test[0]).argmax(1) == test[1]).double().mean())
    rows = []
    for method, dampened, influences in _influences(land, test, decay, damping, dampings, draws, seed):
        scores = [_rank(halves.double().numpy() @ influences[:, q], losses[:, q]) for q in range(queries)]
        stderr = float(np.std(scores) / np.sqrt(queries))
        rows.append({"method": method, "dampened": dampened, "score": float(np.mean(scores)), "stderr": stderr,
                     "accuracy": accuracy, "parameters": land.dimension})  # fmt: skip
    return rows


def _influences(
    land: bs.Landscape, test: Any, decay: float, damping: float, dampings: Sequence[float], draws: int, seed: int
) -> Iterator[tuple[str, float, Array]]:
    """Those of every method, (samples, queries): the localiser is `damping` times the decay, as nβ counts it."""
    gradients = [sample_gradients(each) for each in (land, land.on(test))]
    yield "gradients", np.nan, -(gradients[0] @ gradients[1].T).double().numpy()
    nbeta = float(land.n)
    for each in dampings:
        result = bs.influence(land, test, method="ekfac", nbeta=nbeta, gamma=each * nbeta * decay, progress=False)
        yield "EK-FAC", each, result.values
    post = drawn(land, damping * decay, draws, seed)
    yield "draws", damping, bs.influence(post, test, progress=False).values
    yield "controlled", damping, bs.influence(post, test, method="controlled", progress=False).values


def drawn(land: bs.Landscape, share: float, draws: int, seed: int) -> bs.Posterior:
    """The posterior at nβ = n, its localiser so large a share of nβ, by Hamiltonian chains."""
    return bs.posterior(
        land, nbeta=float(land.n), gamma=share * land.n, sampler="hmc", chains=32, draws=draws, seed=seed,
        budget=bs.Nominal(600), progress=False,
    )  # fmt: skip


# ---------------------------------------------------------------------- wrong labels


def mislabelled(
    data: str, samples: int, share: float, decay: float, steps: int, damping: float, draws: int, seed: int
) -> list[Row]:  # fmt: skip
    """Among as many samples as are wrong, those of the largest self-influence: how many of them are wrong."""
    (x, labels), _ = images(data, samples, 1, seed)
    given, wrong = flipped(labels, share, seed)
    weights = trained((x, given), torch.ones(1, samples), decay, steps, seed)
    land = bs.Landscape(network({name: each[0] for name, each in weights.items()}), "cross_entropy", (x, given))
    nbeta, gamma = float(samples), damping * samples * decay
    classical = bs.influence(land, method="ekfac", nbeta=nbeta, gamma=gamma, progress=False)
    result = {
        "draws": drawn(land, damping * decay, draws, seed).observe(progress=False).variance,
        "EK-FAC": -classical.values.diagonal(),
        "gradients": sample_gradients(land).square().sum(1).double().numpy(),
        "loss": land.per_sample().double().numpy(),
    }
    count, true = int(wrong.sum()), wrong.numpy()
    return [
        {"method": method, "precision": float(true[np.argsort(-values)[:count]].mean())}
        for method, values in result.items()
    ]


# ---------------------------------------------------------------------- the kernel


def kernel(samples: int, duplicates: int, decay: float, steps: int, damping: float, draws: int, seed: int) -> list[Row]:
    """The loss kernel of digits, some of them twice: its mean between classes, and how well it tells them apart."""
    (x, y), _ = images("digits", samples - duplicates, 1, seed)
    x, y = torch.cat([x, x[:duplicates]]), torch.cat([y, y[:duplicates]])
    weights = trained((x, y), torch.ones(1, samples), decay, steps, seed)
    land = bs.Landscape(network({name: each[0] for name, each in weights.items()}), "cross_entropy", (x, y))
    result = bs.loss_kernel(drawn(land, damping * decay, draws, seed), progress=False)
    classes = y.numpy()
    rows: list[Row] = []
    first, second = np.triu_indices(samples, 1)
    twice = second - first == samples - duplicates
    value, same = result.values[first, second], classes[first] == classes[second]
    for one in range(10):
        for other in range(one, 10):
            pair = ~twice & (np.minimum(classes[first], classes[second]) == one)
            pair &= np.maximum(classes[first], classes[second]) == other
            rows.append({"one": one, "other": other, "value": float(value[pair].mean())})
    top = {(row, column) for row, column, *_ in result.pairs(duplicates)}
    planted = {(place, place + samples - duplicates) for place in range(duplicates)}
    rows.append({
        "within": float(value[same & ~twice].mean()), "between": float(value[~same].mean()),
        "twice": float(value[twice].mean()), "planted": duplicates, "found": len(top & planted),
        "apart": _above(value[same & ~twice], value[~same]), "verdict": result.verdict,
        "stderr": float(np.sqrt(np.mean(result.stderr**2))),
    })  # fmt: skip
    return rows


# ---------------------------------------------------------------------- heads


def heads(
    width: int, count: int, samples: int, steps: int, nbeta: float, gamma: float, walkers: int, draws: int,
    budget: float, seed: int,
) -> list[Row]:  # fmt: skip
    """Susceptibilities of each head of a small transformer to text that repeats and to text that does not, beside how
    much it attends to what followed."""
    net = induction(story(4000, CONTEXT, seed), 29, width, count, steps, seed)
    pieces, other = story(4000, CONTEXT, seed)[:samples], story(2 * samples, CONTEXT, seed + 1)
    periods = torch.full((samples,), CONTEXT)
    periods[: samples // 2] = PERIOD
    again = repeating(other[:samples], torch.full((samples,), PERIOD), CONTEXT)
    land = bs.Landscape(net, "cross_entropy", _shifted(repeating(pieces, periods, CONTEXT)))
    known = {part.name: part.name for part in land.parts("head")}
    probes = {"repeating": _shifted(again), "not repeating": _shifted(other[samples:])}
    result = bs.susceptibilities(
        land, known, probes, nbeta=nbeta, gamma=gamma, sampler="minibatch", batch_size=samples // 2, chains=walkers,
        draws=draws, budget=bs.Nominal(budget * len(known)), seed=seed, progress=False,
    )  # fmt: skip
    attends = attention_to_what_followed(net, again, PERIOD).flatten().tolist()
    return [
        {
            "head": name, "attends": attends[row], "probe": probe, "value": float(result.values[row, column]),
            "stderr": float(result.stderr[row, column]), "verdict": result.verdict,
        }
        for row, name in enumerate(result.rows)
        for column, probe in enumerate(result.columns)
    ]  # fmt: skip


def _shifted(rows: Tensor) -> tuple[Tensor, Tensor]:
    return rows[:, :-1], rows[:, 1:]


# ---------------------------------------------------------------------- the auditor


def audited(kind: str, seeds: int, seed: int) -> list[Row]:
    """Chains with one defect, or sound ones: what the auditor says of each."""
    rows = []
    for number in range(seed, seed + seeds):
        losses, facts = (chains.sgld(number), chains.SOUND) if kind == "sound" else chains.DEFECTS[kind](number)
        result = bs.audit(losses, **{**chains.KNOWN, **facts})
        right = result.verdict == "ok" if kind == "sound" else kind in result.defects
        rows.append({"right": right, "verdict": result.verdict, "said": "; ".join(result.defects),
                     "llc": result.llc.value, "exact": chains.LLC})  # fmt: skip
    return rows


def _correlation(one: Array, other: Array) -> float:
    return float(np.corrcoef(one.ravel(), other.ravel())[0, 1])


def _rank(one: Array, other: Array) -> float:
    """Spearman's correlation."""
    return _correlation(rankdata(one), rankdata(other))


def _above(one: Array, other: Array) -> float:
    """The chance that a value of the first is above one of the second: ½ if nothing tells them apart."""
    ranks = rankdata(np.concatenate([one, other]))[: len(one)]
    return float((ranks.sum() - len(one) * (len(one) + 1) / 2) / (len(one) * len(other)))
