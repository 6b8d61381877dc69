"""What each job finds: influence beside exact values, beside retraining, and of heads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional

import basinscope as bs
from basinscope.exact.finite import Observable, covariance
from basinscope.zoo.models import head_pattern, split_heads

from .cases import attention_to_repeats, classifier, copying, fitted, images, regression, sequences

Array = NDArray[np.float64]
Row = dict[str, Any]


def beside_exact(samples: int, width: int, noise: float, method: Any, draws: int, seed: int) -> Row:
    """Influence of every sample on every other, beside −Cov(ℓ_i, ℓ_j) of the Gaussian posterior."""
    net, x, y = regression(samples, width, noise, 0)
    land = bs.Landscape(net, "mse", (x, y))
    at = {"nbeta": float(samples), "gamma": 1.0}
    post = bs.posterior(land, sampler="hmc", chains=32, draws=draws, budget=bs.Nominal(60), seed=seed, progress=False, **at)
    found = bs.influence(post, method=method, progress=False)
    residual = (y - net(x)).detach()[:, 0].numpy()
    inputs, hessian = x.numpy(), (x.T @ x / samples).numpy()
    sigma = np.linalg.inv(samples * hessian + np.eye(width))
    kernel = inputs @ sigma @ inputs.T
    truth = -(np.outer(residual, residual) * kernel + 0.5 * kernel**2)
    first, second = (
        Observable((-residual[i] * inputs[i]).tolist(), np.outer(inputs[i], inputs[i]).tolist()) for i in (0, 1)
    )
    assert np.isclose(-truth[0, 1], covariance(first, second, hessian.tolist(), at["nbeta"], at["gamma"]))
    scores = (found.values - truth) / found.stderr
    return {
        "correlation": float(np.corrcoef(found.values.ravel(), truth.ravel())[0, 1]),
        "relative_error": float(np.sqrt(np.mean((found.values - truth) ** 2) / np.mean(truth**2))),
        "spread_of_scores": float(np.sqrt(np.mean(scores**2))), "verdict": found.verdict,
    }  # fmt: skip


def attributions(
    net: nn.Module, x: Tensor, y: Tensor, queries: tuple[Tensor, Tensor] | None, gamma: float, draws: int, budget: float,
    seed: int,
) -> Mapping[str, Array]:  # fmt: skip
    """How each training sample moves each query's loss, by every method; of the samples themselves without queries."""
    land = bs.Landscape(net, "cross_entropy", (x, y))
    settings: Any = {"nbeta": float(len(x)), "gamma": gamma, "progress": False}
    post = bs.posterior(land, draws=draws, budget=budget, seed=seed, **settings)
    gradients, others = slopes(net, x, y), slopes(net, *(queries or (x, y)))
    return {
        "draws": bs.influence(post, queries, progress=False).values,
        "draws, controlled": bs.influence(post, queries, method="controlled", progress=False).values,
        "EK-FAC": bs.influence(land, queries, method="ekfac", **settings).values,
        "gradients": -(gradients @ others.T).double().numpy(),
    }


def slopes(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """The gradient of every sample's loss, (n, d)."""
    weights = {name: tensor.detach() for name, tensor in net.named_parameters()}

    def loss(point: Mapping[str, Tensor], one: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(functional_call(net, point, (one[None],)), label[None])

    rows = vmap(grad(loss), (None, 0, 0))(weights, x, y)
    return torch.cat([row.flatten(1) for row in rows.values()], 1)


def beside_retraining(
    data: str, samples: int, hidden: int, decay: float, share: float, subsets: int, queries: int, steps: int,
    gamma: float, draws: int, budget: float, seed: int,
) -> list[Row]:  # fmt: skip
    """The linear datamodeling score: over subsets of the data, the rank correlation of each query's loss after training
    on the subset with the sum of the influences of the subset's samples; a mean over queries.

    Args:
        gamma: of the localiser, in units of n · decay, with which the posterior is that of the penalised loss.
        share: of the data in each subset.
    """
    x, y, unseen, labels = images(data, samples, queries)
    start = classifier(x.shape[1], hidden, seed)
    net = fitted(start, x, y, torch.ones(1, samples), decay, steps)[0]
    draw = torch.Generator().manual_seed(seed)
    chosen = torch.rand(subsets, samples, generator=draw).argsort(1) < round(share * samples)
    losses = np.stack([
        functional.cross_entropy(each(unseen), labels, reduction="none").detach().double().numpy()
        for each in fitted(start, x, y, chosen, decay, steps)
    ])  # fmt: skip
    found = attributions(net, x, y, (unseen, labels), gamma * samples * decay, draws, budget, seed)
    inside = chosen.double().numpy()
    accuracy = float((net(unseen).argmax(1) == labels).double().mean())
    rows = []
    for method, values in found.items():
        scores = [float(spearmanr(predicted, actual)[0]) for predicted, actual in zip((inside @ values).T, losses.T, strict=True)]
        rows.append({
            "method": method, "score": float(np.mean(scores)),
            "score_stderr": float(np.std(scores, ddof=1) / np.sqrt(len(scores))), "accuracy": accuracy,
        })  # fmt: skip
    return rows


def mislabelled(
    data: str, samples: int, hidden: int, decay: float, flipped: float, steps: int, gamma: float, draws: int,
    budget: float, seed: int,
) -> list[Row]:  # fmt: skip
    """The share of samples with a wrong label among those that influence their own loss the most."""
    x, y, _, _ = images(data, samples, 100)
    draw = torch.Generator().manual_seed(seed)
    count = round(flipped * samples)
    wrong = torch.zeros(samples, dtype=torch.bool)
    wrong[torch.randperm(samples, generator=draw)[:count]] = True
    labels = torch.where(wrong, (y + torch.randint(1, 10, y.shape, generator=draw)) % 10, y)
    net = fitted(classifier(x.shape[1], hidden, seed), x, labels, torch.ones(1, samples), decay, steps)[0]
    found = attributions(net, x, labels, None, gamma * samples * decay, draws, budget, seed)
    marks = {name: -np.diag(values) for name, values in found.items()}
    marks["loss"] = functional.cross_entropy(net(x), labels, reduction="none").detach().double().numpy()
    truth = wrong.numpy()
    return [
        {"method": name, "precision": float(truth[np.argsort(-mark)[:count]].mean()), "flipped": count}
        for name, mark in marks.items()
    ]


def kernel(
    data: str, samples: int, duplicates: int, hidden: int, decay: float, steps: int, draws: int, budget: float, seed: int
) -> tuple[Row, Mapping[str, Array]]:
    """The loss kernel of a classifier some of whose images are there twice, in the order of their classes."""
    x, y, _, _ = images(data, samples, 100)
    x, y = torch.cat([x, x[:duplicates]]), torch.cat([y, y[:duplicates]])
    net = fitted(classifier(x.shape[1], hidden, seed), x, y, torch.ones(1, len(x)), decay, steps)[0]
    land = bs.Landscape(net, "cross_entropy", (x, y))
    found = bs.loss_kernel(
        land, nbeta=float(len(x)), gamma=len(x) * decay, draws=draws, budget=budget, seed=seed, progress=False
    )
    pairs = {(i, i + samples) for i in range(duplicates)}
    nearest = {(i, j) for i, j, *_ in found.pairs(duplicates)}
    same = (y[:, None] == y).numpy() & ~np.eye(len(y), dtype=bool)
    for i, j in pairs:
        same[i, j] = same[j, i] = False
    other = (y[:, None] != y).numpy()
    clusters = found.clusters(10)
    top = np.argsort(-np.where(np.eye(len(y), dtype=bool), -np.inf, found.values), axis=1)[:, :5]
    return {
        "within": float(found.values[same].mean()), "between": float(found.values[other].mean()),
        "duplicates_found": len(pairs & nearest), "duplicates": duplicates,
        "neighbours_of_the_class": float((y.numpy()[top] == y.numpy()[:, None]).mean()),
        "clusters": len(set(clusters.tolist())), "verdict": found.verdict,
    }, {"values": found.values[np.argsort(y.numpy(), kind="stable")][:, np.argsort(y.numpy(), kind="stable")],
        "labels": np.sort(y.numpy()).astype(float)}  # fmt: skip


def heads(
    layers: int, count: int, width: int, steps: int, samples: int, gamma: float, budget: float, head: tuple[int, int],
    seed: int,
) -> list[Row]:  # fmt: skip
    """The susceptibility of one head to text that repeats itself and to text that does not, with its prefix matching."""
    net = copying(layers, count, width, steps, seed)
    repeated = sequences(200, 10_001, repeated=True)
    matching = attention_to_repeats(net, repeated[0])[head]
    loss = functional.cross_entropy(net(repeated[0]).movedim(-1, 1), repeated[1], reduction="none")
    half = loss.shape[1] // 2
    mixed = [sequences(samples // 2, 10_002 + both, repeated=both) for both in (True, False)]
    data = tuple(torch.cat(each) for each in zip(*mixed, strict=True))
    land = bs.Landscape(split_heads(net), "cross_entropy", data)
    probes = {name: sequences(samples // 2, 10_004 + both, repeated=both) for name, both in (("repeated", True), ("plain", False))}
    found = bs.susceptibilities(
        land, {"head": head_pattern(*head)}, probes, gamma=gamma, budget=budget, seed=seed, progress=False
    )
    facts = found.facts["parts"]["head"]
    return [
        {
            "layer": head[0], "number": head[1], "probe": probe, "value": float(found.values[0, column]),
            "stderr": float(found.stderr[0, column]), "matching": float(matching), "verdict": found.verdict,
            "warnings": "; ".join(found.warnings), "first_loss": float(loss[:, :half].mean()), "second_loss": float(loss[:, half + 1 :].mean()),
            "llc": facts["llc"], "sampler": facts["sampler"],
        }
        for column, probe in enumerate(found.columns)
    ]  # fmt: skip
