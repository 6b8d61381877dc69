"""Criteria of a candidate, beside definitions, finite differences and the library."""

import math

import numpy as np
import pytest
import torch

import basinscope as bs
from studies.wbic_selection import mixtures
from studies.wbic_selection.mixtures import MixtureTruth
from studies.wbic_selection.quadrature import integrated
from studies.wbic_selection.scoring import bayes_error, fitted, gradients, maximum, posteriors, row
from studies.wbic_selection.sums import sums
from studies.wbic_selection.truths import TRUTHS

REGRESSIONS = [name for name, truth in TRUTHS.items() if not isinstance(truth, MixtureTruth)]


@pytest.mark.parametrize("name", REGRESSIONS)
def test_gradients_are_differences(name, seed):
    truth, rng = TRUTHS[name], np.random.default_rng(seed)
    candidates, outputs = truth.candidates, truth.values.shape[1]
    node, outer = rng.normal(size=(2, candidates.inner)), rng.normal(size=(2, outputs))
    x = truth.places[:5]

    def values(weights):
        inner = weights[: node.size].reshape(node.shape)
        return candidates.features(inner[None], x)[0] @ weights[node.size :].reshape(outer.shape)

    point = np.concatenate([node.ravel(), outer.ravel()])
    steps = 1e-6 * np.eye(len(point))
    expected = np.stack([(values(point + step) - values(point - step)) / 2e-6 for step in steps], -1)
    assert gradients(candidates, node, outer, x) == pytest.approx(expected, abs=1e-7)
    assert candidates.parameters(2, outputs) == len(point)


@pytest.mark.parametrize("name", REGRESSIONS)
def test_the_fit_is_a_minimum(name):
    truth = TRUTHS[name]
    at, y = truth.draw(100, 1)
    data = sums(truth, at, y, 1.0)
    *_, (_, rung) = posteriors(truth.candidates, 2, data, 50, 1, [0])
    node, outer = fitted(truth.candidates, 2, data, rung.posterior)
    x = truth.places[at]
    residual = truth.candidates.features(node[None], x)[0] @ outer - y
    slope = np.einsum("nk,nkd->d", residual, gradients(truth.candidates, node, outer, x))
    slope += np.concatenate([node.ravel(), outer.ravel()])
    assert abs(slope).max() < 1e-3
    gaussian = 0.5 * (residual**2).sum() + 0.5 * y.size * math.log(2 * math.pi)
    assert maximum(truth.candidates, 2, (node, outer), x, y, 1.0)[0] == pytest.approx(gaussian)


def test_criteria_of_a_polynomial_are_those_of_the_library():
    truth = TRUTHS["regular"]
    at, y = truth.draw(80, 2)
    own = row(truth, 3, 80, 1.0, 0, 0, 2)
    phi = truth.candidates.features(np.zeros((1, 3, 0)), truth.places[at])[0]
    net = torch.nn.Linear(3, 1, bias=False).double()
    weights = np.linalg.solve(phi.T @ phi + np.eye(3), phi.T @ y)
    with torch.no_grad():
        net.weight.copy_(torch.as_tensor(weights.T))
    land = bs.Landscape(net, "gaussian", (torch.as_tensor(phi.copy()), torch.as_tensor(y)), sigma=1.0)
    penalty = 80 * bs.tic(land, weight_decay=1 / 80, progress=False).value
    loss = float(land.per_sample().sum())
    # The library's C contains the prior's pull on every sample, (∇l + Λθ)(∇l + Λθ)ᵀ: of order 1/n.
    assert own["tic"] - loss == pytest.approx(penalty, rel=0.05)
    assert own["aic"] == pytest.approx(loss + 3)
    assert own["bic"] == pytest.approx(loss + 1.5 * math.log(80))


def test_the_error_of_a_normal_prediction_is_its_divergence():
    # One linear model: at a place with mean m and variance v, KL(N(f, 1) ‖ N(m, 1 + v)).
    truth = TRUTHS["regular"]
    at, y = truth.draw(40, 3)
    data = sums(truth, at, y, 1.0)
    (rung,) = integrated(truth.candidates, 3, data, (1.0,), 0.0)
    phi = truth.candidates.features(np.zeros((1, 3, 0)), truth.places)[0]
    covariance = np.linalg.inv((phi.T * data.counts) @ phi + np.eye(3))
    mean = phi @ covariance @ phi.T @ data.totals
    variance = np.einsum("mh,hj,mj->m", phi, covariance, phi)
    expected = 0.5 * (np.log1p(variance) + (1 + (truth.values - mean)[:, 0] ** 2) / (1 + variance) - 1)
    assert bayes_error(truth, rung.posterior) == pytest.approx(expected.mean(), rel=1e-6)


def test_true_sizes_hold_the_truth_and_smaller_ones_do_not():
    for truth in map(TRUTHS.get, REGRESSIONS):
        if truth.candidates.inner != 1 and truth.size is not None:
            phi = (
                truth.candidates.features(np.zeros((1, truth.size, 0)), truth.places)[0]
                if not truth.candidates.inner
                else truth.places[:, : truth.size]
            )
            for columns, exact in ((truth.size, True), (truth.size - 1, False)):
                rest = truth.values - phi[:, :columns] @ np.linalg.lstsq(phi[:, :columns], truth.values, rcond=None)[0]
                assert (abs(rest).max() < 1e-9) == exact


def test_scores_of_mixtures_are_slopes(seed):
    means = np.random.default_rng(seed).normal(size=3)
    own = mixtures.components(means).mean(0)
    assert own.sum() == pytest.approx(1)
    steps = 1e-6 * np.eye(3)
    up, down = (np.log([mixtures.components(means + sign * step).mean(0) for step in steps]) for sign in (1, -1))
    assert mixtures.scores(means) == pytest.approx((up - down).T / 2e-6, abs=1e-7)


def test_criteria_of_a_known_mixture():
    # A posterior on the truth alone: no variance, no error, and both losses are that of the truth.
    truth = TRUTHS["singular-mixture"]
    counts, means = truth.draw(60, 0), np.array(truth.means)
    known = mixtures.Posterior(means[None], np.log(truth.probabilities)[None], np.ones(1), 0.0)
    loss = -counts @ np.log(truth.probabilities)
    assert mixtures.predictive(truth, known, counts) == pytest.approx(
        {"waic": loss, "loo": loss, "error": 0.0}, abs=1e-9
    )
    best = mixtures.fitted(known, counts, 1.0)
    assert abs(best - mixtures.scores(best).T @ counts).max() < 1e-3
    fit = mixtures.maximum(best, counts, 1.0)
    assert fit["bic"] - fit["aic"] == pytest.approx(math.log(60) - 2)
    assert 0 < fit["tic"] - fit["aic"] + 2 < 3


def test_leave_one_out_of_a_mixture_is_a_refit():
    truth, counts = TRUTHS["singular-mixture"], np.zeros(len(mixtures.PLACES))
    counts[[9, 12, 14]] = 2, 1, 3
    posterior = mixtures.integrated(2, counts, 1.0, 1.0, 0.5)
    refits = []
    for place in np.flatnonzero(counts):
        without = counts - np.eye(len(counts))[place]
        rest = mixtures.integrated(2, without, 1.0, 1.0, 0.5)
        refits.append(-counts[place] * np.log(rest.weights @ np.exp(rest.log_probabilities[:, place])))
    assert mixtures.predictive(truth, posterior, counts)["loo"] == pytest.approx(sum(refits), rel=1e-3)
