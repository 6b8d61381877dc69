import json
import math

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from scipy.stats import genpareto
from torch import nn

import basinscope as bs
import lacking
from basins import quadratic
from basinscope.measures.pointwise import Stream
from basinscope.measures.psis import Tails, pareto_fit, reliable_shape, tail_length
from chance import SAMPLED, assert_within
from conjugate import KNOWN, Conjugate, six

arviz_stats = lacking.package("arviz_stats")

# az.waic and az.loo (reff=1) of arviz 0.23.4 on the draws of `heavy()`; later releases have no waic.
ARVIZ = {
    "elpd_waic": -10.866239021694868,
    "p_waic": 3.2373423677670456,
    "waic_se": 1.0032078292367939,
    "elpd_loo": -11.123427358763802,
    "largest_k": 0.7852596794532215,
}
QUICK = {"rtol": 0.05, "budget": 1.0, "progress": False}


def line(dtype=torch.float64):
    """The six-point regression as a landscape whose localiser at w* = 0, γ = 1/4, is the prior."""
    model = six()
    net = nn.Linear(1, 1).to(dtype)
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    x, y = torch.tensor(model.x[:, 1:], dtype=dtype), torch.tensor(model.y[:, None], dtype=dtype)
    return bs.Landscape(net, "gaussian", (x, y), sigma=1.0)


def heavy(draws=1600, n=30, seed=0):
    rng = np.random.default_rng(seed)
    return -rng.gamma(1.0, size=(4, draws // 4, n)) * rng.uniform(0.05, 0.5, n)


@pytest.mark.parametrize(
    ("beta", "dtype"),
    [*(pytest.param(beta, torch.float64, marks=pytest.mark.slow) for beta in KNOWN), (1.0, torch.float32)],
)
def test_the_sampled_line_gives_the_known_vector(beta, dtype, seed):
    gibbs, bayes, v, waic, loo, *_ = KNOWN[beta]
    land = line(dtype)
    found = bs.waic(land, nbeta=land.n * beta, gamma=0.25, draws=300, seed=seed, **QUICK)
    assert found.stderr < 0.02
    assert_within(found.value, waic, found.stderr, SAMPLED)
    for name, exact, scale in (
        ("bayes_training_loss", bayes, 1),
        ("gibbs_training_loss", gibbs, 1),
        ("functional_variance", v, 6),
    ):
        assert_within(found.diagnostics[name], exact, scale * found.stderr, SAMPLED)
    assert found.diagnostics["fluctuation"] == pytest.approx(beta * found.diagnostics["functional_variance"] / 2)
    left_out = bs.loo(land, nbeta=land.n * beta, gamma=0.25, draws=300, seed=seed, **QUICK)
    assert left_out.stderr < 0.04
    assert_within(left_out.value, loo, left_out.stderr, SAMPLED)
    json.dumps(left_out.to_dict(), allow_nan=False)


def test_loo_is_arviz_on_the_same_draws():
    stats = arviz_stats.base.array_stats
    for rows in (heavy(), heavy(104), six().log_likelihood(six().draws(4000)).reshape(4, 1000, 6)):
        found = bs.loo(rows)
        for i in range(rows.shape[2]):
            elpd, shape, _ = stats._loo(rows[:, :, i])
            assert -found.diagnostics["pointwise"]["loo"][i] == pytest.approx(elpd, abs=1e-12)
            assert found.diagnostics["pointwise"]["shape"][i] == pytest.approx(shape, abs=1e-12)


def test_loo_and_waic_are_those_of_arviz_0_23():
    rows = heavy()
    found = bs.waic(rows)
    assert -30 * found.value == pytest.approx(ARVIZ["elpd_waic"], abs=1e-8)
    assert found.diagnostics["functional_variance"] == pytest.approx(ARVIZ["p_waic"], abs=1e-8)
    terms = found.diagnostics["pointwise"]["waic"]
    assert math.sqrt(30) * terms.std() == pytest.approx(ARVIZ["waic_se"], abs=1e-8)
    assert found.diagnostics["sampling_stderr"] == pytest.approx(ARVIZ["waic_se"] / 30, abs=1e-8)
    left_out = bs.loo(rows)
    assert -30 * left_out.value == pytest.approx(ARVIZ["elpd_loo"], abs=1e-8)
    assert left_out.diagnostics["pointwise"]["shape"].max() == pytest.approx(ARVIZ["largest_k"], abs=1e-8)


def test_loo_against_refits(seed):
    # Exact draws of a regression, leave-one-out by brute force: a posterior fitted without each observation.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(25, 3))
    model = Conjugate(x, x @ [1.0, -1.0, 0.5] + rng.normal(size=25), 1.0, 10.0, 1.0)
    refits = []
    for i in range(25):
        rest = model.without(i)
        v, e = x[i] @ rest.covariance @ x[i], model.y[i] - x[i] @ rest.mean
        refits.append(0.5 * np.log(2 * np.pi * (1 + v)) + e**2 / (2 * (1 + v)))
    assert model.loo == pytest.approx(np.mean(refits), abs=1e-14)
    found = bs.loo(model.log_likelihood(model.draws(30_000, seed=seed)).reshape(30, 1000, 25))
    assert found.stderr < 0.005
    assert_within(found.value, np.mean(refits), found.stderr, freedom=29)
    np.testing.assert_allclose(found.diagnostics["pointwise"]["loo"], refits, atol=0.05)


@pytest.mark.parametrize("beta", [0.5, 1.0, 2.0])
def test_streamed_tails_are_those_of_the_whole_matrix(beta):
    rows = heavy(1000, 5).reshape(1000, 5)
    whole = Tails(5, 1000, beta=beta)
    whole.add(rows)
    pieces = Tails(5, 1000, beta=beta)
    for part in np.split(rows, [1, 2, 50, 600, 999]):
        pieces.add(part)
    for a, b in zip(whole.smoothed(), pieces.smoothed(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12)
    # By hand: sort all weights, smooth the tail with scipy's quantiles, put them back.
    m = tail_length(1000)
    for i in range(5):
        order = np.argsort(-beta * rows[:, i])
        weights = np.exp(-beta * rows[order, i])
        top = weights.max()
        (k,), (sigma,) = pareto_fit((weights[-m:] - weights[-m - 1])[None] / top)
        weights[-m:] = np.minimum(
            top, weights[-m - 1] + top * genpareto.ppf((np.arange(m) + 0.5) / m, float(k), scale=float(sigma))
        )
        expected = logsumexp(rows[order, i], b=weights) - np.log(weights.sum())
        assert whole.smoothed().log_leave_one_out[i] == pytest.approx(expected, rel=1e-10)
        assert whole.smoothed().shape[i] == pytest.approx(k)


def test_pareto_fit_finds_the_shape():
    for shape in (-0.3, 0.1, 0.5, 0.9):
        rows = np.sort(genpareto.rvs(shape, scale=2.0, size=(40, 2000), random_state=1), axis=1)
        k, sigma = pareto_fit(rows)
        assert k.mean() == pytest.approx(shape, abs=0.02)
        assert sigma.mean() == pytest.approx(2.0, rel=0.03)


def test_equal_weights_need_no_smoothing():
    rows = np.random.default_rng(0).normal(-1, 0.1, size=(400, 3))
    rows[:, 1] = -2.0
    found = bs.loo(rows)
    assert found.diagnostics["pointwise"]["loo"][1] == pytest.approx(2.0, abs=1e-12)
    assert found.diagnostics["pointwise"]["shape"][1] == -math.inf
    assert found.diagnostics["unreliable"] == 0
    json.dumps(found.to_dict(), allow_nan=False)


def test_wild_weights_are_told():
    rows = heavy()
    rows[:, :, 3] *= 20
    found = bs.loo(rows)
    assert found.verdict == "doubtful"
    assert any("unreliable weights" in warning and "worst at [3" in warning for warning in found.warnings)
    assert any("outliers" in warning for warning in bs.waic(rows).warnings)
    bad = bs.loo(20 * heavy() - 0.1)
    hopeless = bs.loo(-5 * np.random.default_rng(0).gamma(1.0, size=(4, 250, 6)))
    assert bad.diagnostics["unreliable"] > 0
    assert hopeless.verdict == "failed"
    assert math.isnan(hopeless.value)
    assert math.isnan(hopeless.stderr)
    assert "every one of 6 samples" in hopeless.warnings[0]
    assert math.isfinite(hopeless.diagnostics["unreliable_value"])
    json.dumps(hopeless.to_dict(), allow_nan=False)


def test_too_few_draws_for_a_tail():
    found = bs.loo(np.random.default_rng(0).normal(-1, 0.1, size=(20, 3)))
    assert found.verdict == "failed"
    assert np.isinf(found.diagnostics["pointwise"]["shape"]).all()


def test_plain_importance_is_never_sure():
    rows = heavy()
    found = bs.loo(rows, method="importance")
    assert found.verdict == "doubtful"
    assert found.value == bs.loo(rows).diagnostics["importance"]


def test_memory_is_a_stated_budget():
    with pytest.raises(bs.InputError, match="largest weights of 30 observations, 0 MiB, more than memory=0 MiB"):
        bs.loo(heavy(), memory=1000)
    bs.loo(heavy(), memory=1000, method="importance")


def test_streaming_holds_no_matrix():
    n, draws = 100, 3000
    stream, tails = Stream(n), Tails(n, draws)
    rng = np.random.default_rng(0)
    for _ in range(draws):
        row = rng.normal(-1, 0.1, size=(1, n))
        stream.add(row)
        tails.add(row)
    kept = sum(
        part.numel() for part in (*vars(stream).values(), *vars(tails).values()) if isinstance(part, torch.Tensor)
    )
    assert kept < 16 * n + n * (tail_length(draws) + 2)
    assert tails.smoothed().shape.max() < reliable_shape(draws)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nbeta": 0}, "nbeta must be a positive finite number, got 0"),
        ({"nbeta": -1.0}, "nbeta must be a positive finite number, got -1"),
        ({"gamma": 1.0}, "gamma=1.0 is about drawing from a landscape"),
        ({"draws": 10}, "draws=10 is about drawing from a landscape"),
        ({"sampler": "sgld"}, "sampler=.sgld. is about drawing from a landscape"),
    ],
)
def test_bad_arguments(arguments, message):
    for measure in (bs.waic, bs.loo):
        with pytest.raises(bs.InputError, match=message):
            measure(heavy(), **arguments)


def test_bad_draws():
    for measure in (bs.waic, bs.loo):
        with pytest.raises(bs.InputError, match="at least 2 draws, got 1"):
            measure(np.zeros((1, 5)))
        with pytest.raises(bs.InputError, match="−∞"):
            measure(np.full((3, 5), -np.inf))
    with pytest.raises(bs.InputError, match="method must be 'psis' or 'importance', got 'exact'"):
        bs.loo(heavy(), method="exact")
    with pytest.raises(bs.InputError, match="draws must be a whole number of at least 2, got 1"):
        bs.waic(line(), draws=1)


def test_one_sample_and_same_bits(seed):
    net = nn.Linear(1, 1, bias=False).double()
    nn.init.zeros_(net.weight)
    land = bs.Landscape(net, "gaussian", (torch.ones(1, 1), torch.ones(1, 1)), sigma=1.0)
    found = bs.waic(land, gamma=1.0, draws=200, seed=seed, **QUICK)
    exact = Conjugate(np.ones((1, 1)), np.ones(1), 1.0, 1.0, 1.0)
    assert_within(found.value, exact.waic, found.stderr, SAMPLED)
    assert bs.waic(land, gamma=1.0, draws=200, seed=seed, **QUICK).value == found.value


def test_minibatch_chains_agree_with_the_closed_form(seed):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 2))
    model = Conjugate(x, x @ [1.0, -1.0] + rng.normal(size=300), 1.0, 1.0, 1.0)
    net = nn.Linear(2, 1, bias=False).double()
    nn.init.zeros_(net.weight)
    land = bs.Landscape(net, "gaussian", (torch.tensor(x), torch.tensor(model.y[:, None])), sigma=1.0)
    found = bs.waic(land, gamma=1.0, sampler="minibatch", batch_size=100, draws=150, seed=seed, **QUICK)
    assert found.diagnostics["thin"] == 1
    assert_within(found.value, model.waic, found.stderr, SAMPLED, bias=0.1 * model.variances.mean())


# ---------------------------------------------------------------------- WAIC at β = 1 from the chains of WBIC


def regular(n, seed=0):
    """A regression whose least squares are at zero, with unit noise and a prior too wide to matter."""
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, 3)), rng.normal(size=n)
    y = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return {beta: Conjugate(x, y, 1.0, 100.0, beta) for beta in (1.0, 1 / math.log(n))}


def tempered_by_hand(model):
    """(1 − β) L_n(w*) + β GtL + (β/2n) V of the closed form."""
    n, beta = len(model.y), model.beta
    loss = np.mean(0.5 * np.log(2 * np.pi) + model.y**2 / 2)
    return (1 - beta) * loss + beta * model.gibbs + beta / (2 * n) * model.variances.sum()


@pytest.mark.parametrize("n", [50, 200, 800])
def test_tempered_waic_is_waic_up_to_the_second_order(n):
    warm, cold = (regular(n)[beta] for beta in (1 / math.log(n), 1.0))
    gap = cold.waic - np.mean(0.5 * np.log(2 * np.pi) + cold.y**2 / 2)
    off = abs(tempered_by_hand(warm) - cold.waic)
    assert off < 60 / n**2
    assert off < 0.3 * gap


@pytest.mark.slow
def test_tempered_waic_from_the_chains_of_wbic(seed):
    n = 200
    warm = regular(n)[1 / math.log(n)]
    net = nn.Linear(3, 1, bias=False).double()
    nn.init.zeros_(net.weight)
    land = bs.Landscape(net, "gaussian", (torch.tensor(warm.x), torch.tensor(warm.y[:, None])), sigma=1.0)
    post = bs.posterior(land, gamma=0.01, chains=16, draws=400, seed=seed, **QUICK)
    found = bs.waic(post, method="tempered")
    assert found.verdict == "ok", found.warnings
    assert found.stderr < 0.03 * 3 / n
    assert_within(found.value, tempered_by_hand(warm), found.stderr, SAMPLED)
    assert found.diagnostics["llc"] == pytest.approx(bs.llc(post).value, rel=0.1)
    alone = bs.waic(land, method="tempered", gamma=0.01, chains=16, draws=400, seed=seed, **QUICK)
    assert alone.diagnostics["nbeta"] == post.nbeta
    assert_within(alone.value, found.value, math.hypot(alone.stderr, found.stderr), SAMPLED)


def test_where_the_minimum_is_not_regular_it_is_said(seed):
    x = torch.ones(50, 1, dtype=torch.float64)

    class Fourth(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(1, dtype=torch.float64))

        def forward(self, inputs):
            return 100 * inputs * self.w**2

    land = bs.Landscape(Fourth(), "mse", (x, 0 * x))
    found = bs.waic(land, method="tempered", gamma=1.0, draws=100, seed=seed, **QUICK)
    assert found.verdict == "doubtful"
    assert any(warning.startswith("not regular: λ̂ = 0.2") for warning in found.warnings)
    displaced = bs.waic(quadratic([1.0, 0.5], n=200, offset=[0.1, 0.1], noise=1.0), method="tempered", gamma=0.01,
                        draws=100, seed=seed, **QUICK)  # fmt: skip
    assert any(warning.startswith("not at a minimum: the drop from w*") for warning in displaced.warnings)
    with pytest.raises(bs.InputError, match="method must be 'direct' or 'tempered', got 'cold'"):
        bs.waic(land, method="cold")
    with pytest.raises(bs.InputError, match="expected a landscape or its posterior, got ndarray"):
        bs.waic(np.zeros((4, 10, 5)), method="tempered")
