"""Influence, kernels and covariances against the exact ones of quadratics."""

import numpy as np
import pytest
import torch

import basinscope as bs
from basins import classifier, quadratic
from basinscope.curvature.kronecker import Inverse
from basinscope.exact.finite import Observable, covariance
from basinscope.measures.covariances import Covariances, Sums, normalised
from basinscope.sampling.chains import ChainLosses
from chance import assert_within

f64 = torch.float64
SIGMA = [1.0, 0.3, 0.05]
N, NBETA, GAMMA = 30, 20.0, 1.0
QUICK = {"nbeta": NBETA, "gamma": GAMMA, "sampler": "hmc", "rtol": 0.05, "budget": 1.0, "progress": False}
LAND = quadratic(SIGMA, n=N, noise=0.5, dtype=f64)


@pytest.fixture
def post(seed):
    return bs.posterior(LAND, chains=24, draws=150, seed=seed, **QUICK)


def of_losses():
    """ℓ_i = ½(r_i − x_iᵀδ)² as observables: gradient −r_i x_i, curvature x_i x_iᵀ."""
    x, y = LAND.samples.inputs.numpy(), LAND.samples.target.numpy()[:, 0]
    residual = y - x @ LAND.parameters["weight"].numpy()[0]
    return [Observable(list(-r * row), np.outer(row, row).tolist()) for r, row in zip(residual, x, strict=True)]


def exact(rows, columns):
    return exact_at(NBETA, rows, columns)


def exact_at(nbeta, rows, columns):
    hessian = np.diag(SIGMA).tolist()
    return np.array([[covariance(one, two, hessian, nbeta, GAMMA) for two in columns] for one in rows])


def test_influence_is_exact_but_for_its_error(post):
    truth = -exact(of_losses(), of_losses())
    found = bs.influence(post, progress=False)
    assert found.values.shape == (N, N)
    assert found.freedom == 23
    assert_within(found.values, truth, found.stderr, found.freedom)
    assert np.corrcoef(found.values.ravel(), truth.ravel())[0, 1] > 0.99
    scores = (found.values - truth) / found.stderr
    # 900 entries that move together in about six ways: their mean square is near 1, not exactly.
    assert 0.2 < np.mean(scores**2) < 4
    assert found.verdict == "ok", found.warnings
    one = found.estimate(3, 5)
    assert (one.value, one.name, one.freedom) == (found.values[3, 5], "influence", 23)


def test_queries_are_other_data_or_functions(post):
    x = torch.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], dtype=f64)
    outputs = [Observable(row.tolist()) for row in x]
    by_function = bs.influence(post, lambda w: LAND.outputs(w, x), progress=False)
    assert_within(by_function.values, -exact(of_losses(), outputs), by_function.stderr, 23)
    y = LAND.outputs(LAND.parameters, x) + 0.25
    losses = [Observable((-0.25 * row).tolist(), torch.outer(row, row).tolist()) for row in x]
    by_data = bs.influence(post, (x, y), progress=False)
    assert_within(by_data.values, -exact(of_losses(), losses), by_data.stderr, 23)
    same = bs.influence(post, LAND.on((x, y)), progress=False)
    assert np.array_equal(same.values, by_data.values)
    weights = bs.covariance(post, lambda w: w["weight"], progress=False)
    assert_within(weights.values, np.diag([1 / (NBETA * s + GAMMA) for s in SIGMA]), weights.stderr, 23)


def test_a_control_variate_is_exact_and_more_precise(seed):
    few = bs.posterior(LAND, chains=24, draws=60, seed=seed, **{**QUICK, "nbeta": 400.0})
    truth = -exact_at(400.0, of_losses(), of_losses())
    plain, controlled = (bs.influence(few, method=method, progress=False) for method in ("draws", "controlled"))
    assert_within(controlled.values, truth, controlled.stderr, controlled.freedom)
    assert np.mean(controlled.stderr**2) < 0.5 * np.mean(plain.stderr**2)
    assert controlled.facts["method"] == "controlled"


def test_ekfac_is_the_classical_influence_function():
    # One linear layer with one output: its Kronecker factors are exact.
    found = bs.influence(LAND, method="ekfac", nbeta=NBETA, gamma=GAMMA, progress=False)
    linear = [Observable(each.gradient) for each in of_losses()]
    assert found.values == pytest.approx(-exact(linear, linear), rel=1e-9)
    assert np.isnan(found.stderr).all()
    x = torch.tensor([[1.0, 2.0, -1.0]], dtype=f64)
    queried = bs.influence(LAND, lambda w: LAND.outputs(w, x), method="ekfac", nbeta=NBETA, gamma=GAMMA)
    assert queried.values == pytest.approx(-exact(linear, [Observable(x[0].tolist())]), rel=1e-9)


def test_the_approximate_inverse_is_symmetric_and_knows_every_parameter():
    tokens = torch.randint(5, (6, 4), generator=torch.Generator().manual_seed(0))
    net = bs.zoo.models.transformer(5, 3, layers=1, width=4, heads=2).double()
    lands = classifier(), bs.Landscape(net, "cross_entropy", (tokens[:, :-1], tokens[:, 1:]))
    for land in lands:
        inverse = Inverse.of(land, "fisher", 20.0, 2.0)
        matrix = inverse(torch.eye(land.dimension, dtype=f64))
        assert torch.allclose(matrix, matrix.T, atol=1e-12)
        values = torch.linalg.eigvalsh(matrix)
        assert 0 < values[0] <= values[-1] <= 0.5 + 1e-12
        # The trace of an EKFAC approximation is exact, whatever the layers: Tr F.
        assert float(((1 / values - 2) / 20).sum()) == pytest.approx(bs.trace(land, matrix="fisher").value, rel=1e-9)


def test_susceptibilities_are_minus_covariances_of_each_part(seed):
    net = torch.nn.Linear(3, 1, bias=False, dtype=f64)
    net.load_state_dict(dict(LAND.parameters))
    twin = torch.nn.ModuleDict({"a": net, "b": torch.nn.Linear(3, 1, bias=False, dtype=f64)})
    torch.nn.init.zeros_(twin["b"].weight)

    class Sum(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = twin

        def forward(self, x):
            return self.parts["a"](x) + 2 * self.parts["b"](x)

    x, y = LAND.samples.inputs, LAND.samples.target
    land = bs.Landscape(Sum(), "mse", (x, y))
    probe = 2 * x[:5], y[:5]
    settings = {**QUICK, "chains": 24, "draws": 300, "seed": seed}
    parts, probes = {"one": "parts.a.*", "two": "parts.b.*"}, {"wide": probe}
    found = bs.susceptibilities(land, parts, probes, **settings)
    controlled = bs.susceptibilities(
        land, parts, probes, method="controlled", **{**settings, "draws": 40, "budget": bs.Nominal(1)}
    )
    assert controlled.facts["parts"]["one"]["method"] == "controlled"
    assert (found.rows, found.columns, found.values.shape) == (("one", "two"), ("wide",), (2, 1))
    weights, hessian = LAND.parameters["weight"].numpy()[0], np.diag(SIGMA)
    inputs = probe[0].numpy()
    residual = probe[1].numpy()[:, 0] - inputs @ weights
    for row, factor in enumerate((1.0, 2.0)):
        own = factor**2 * hessian
        other = factor**2 * inputs.T @ inputs / 5 - own
        slope = -factor * (residual @ inputs) / 5
        truth = -covariance(
            Observable([0.0] * 3, own.tolist()), Observable(slope.tolist(), other.tolist()), own.tolist(), NBETA, GAMMA
        )
        assert_within(found.values[row, 0], truth, found.stderr[row, 0], found.freedom)
        assert_within(controlled.values[row, 0], truth, controlled.stderr[row, 0], controlled.freedom)
        assert controlled.stderr[row, 0] < found.stderr[row, 0]  # of a seventh of the draws
    each = bs.susceptibilities(land, {"one": ["parts.a.*"]}, probe, **{**settings, "draws": 40})
    assert each.values.shape == (1, 5)
    for parts, probes, message in (
        ({}, probe, "parts must map names"),
        ({"a": 3}, probe, "part 'a' must be a pattern"),
        ({"a": "*"}, {}, "probes must map names"),
        ({"a": LAND.subset(range(3))}, probe, "part 'a' must be this landscape restricted"),
    ):
        with pytest.raises(bs.InputError, match=message):
            bs.susceptibilities(land, parts, probes, **settings)
    with pytest.raises(bs.InputError, match="method must be 'draws' or 'controlled', got 'ekfac'"):
        bs.susceptibilities(land, parts, probes, method="ekfac", **settings)


def test_controlled_susceptibilities_are_the_same_where_losses_are_no_quadratics(seed):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1)).to(f64)
    x = torch.randn(40, 2, dtype=f64)
    land = bs.Landscape(net, "mse", (x, net(x).detach() + 0.3 * torch.randn(40, 1, dtype=f64)))  # not a minimum
    settings = {"nbeta": 20.0, "gamma": 4.0, "sampler": "hmc", "chains": 12, "draws": 40, "seed": seed}
    settings |= {"budget": bs.Nominal(1), "progress": False}
    parts, probe = {"first": "0.*"}, (2 * x[:4], net(x[:4]).detach())
    plain, other = (bs.susceptibilities(land, parts, probe, method=way, **settings) for way in ("draws", "controlled"))
    assert_within(other.values, plain.values, np.hypot(plain.stderr, other.stderr), plain.freedom)


def test_losses_along_a_direction_change_as_differences_say():
    torch.manual_seed(0)
    for net in (
        torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh(), torch.nn.Linear(3, 1)),
        torch.nn.Sequential(torch.nn.Unflatten(1, (1, 1, 2)), torch.nn.Conv2d(1, 2, 1), torch.nn.Tanh(),
                            torch.nn.Flatten(), torch.nn.Linear(4, 1)),
    ):  # fmt: skip
        x = torch.randn(5, 2, dtype=f64)
        losses = ChainLosses(bs.Landscape(net.to(f64), "mse", (x, x[:, :1])))
        delta, direction = (0.1 * torch.randn(3, losses.dimension, dtype=f64) for _ in range(2))
        differences = (losses.per_sample(delta + 1e-5 * direction) - losses.per_sample(delta - 1e-5 * direction)) / 2e-5
        assert torch.allclose(losses.along(delta, direction), differences, atol=1e-8)


def test_clusters_are_numbered_by_size():
    kernel = np.full((6, 6), 0.1)
    for group in ([0, 2, 4], [1, 5], [3]):
        kernel[np.ix_(group, group)] = 0.9
    np.fill_diagonal(kernel, 1.0)
    found = Covariances("loss kernel", kernel, np.zeros_like(kernel), facts={"draws": 1})
    assert found.clusters(3).tolist() == [0, 1, 0, 2, 0, 1]
    assert found.clusters(6).tolist() == list(range(6))
    with pytest.raises(bs.InputError, match="count must be a whole number of at most 6, got 7"):
        found.clusters(7)
    with pytest.raises(bs.InputError, match="clusters are those of a kernel"):
        Covariances("influence", kernel[:2], kernel[:2]).clusters(1)


def test_the_kernel_is_a_correlation(post):
    truth = exact(of_losses(), of_losses())
    truth = truth / np.sqrt(np.outer(truth.diagonal(), truth.diagonal()))
    kernel = bs.loss_kernel(post, progress=False)
    assert kernel.values.diagonal() == pytest.approx(1.0)
    assert kernel.stderr.diagonal() == pytest.approx(0.0, abs=1e-6)
    above = np.triu_indices(N, 1)
    # Near 1 the error is no longer normal: it may be a little larger than it says.
    assert_within(kernel.values[above], truth[above], kernel.stderr[above], 23, bias=0.02)
    largest = kernel.pairs(3)
    assert [value for *_, value, _ in largest] == sorted(kernel.values[above])[::-1][:3]
    assert all(i < j for i, j, *_ in largest)
    constant = normalised(torch.tensor([[4.0, 0.0], [0.0, 0.0]], dtype=f64))
    assert constant.tolist() == [[1.0, 0.0], [0.0, 0.0]]


def test_means_of_observables(post):
    weights = post.observe(lambda w: w["weight"], progress=False)
    spread = np.array([1 / (NBETA * s + GAMMA) for s in SIGMA])
    assert_within(weights.mean, 1.0, weights.stderr, 23)
    assert weights.variance == pytest.approx(spread, rel=0.3)
    assert weights.ess == pytest.approx(weights.variance / weights.stderr**2)
    draws = np.stack([delta.numpy() for delta, _ in post.draws()])
    apart = draws - draws.mean((0, 1))
    beside = (apart[1:] * apart[:-1]).mean((0, 1)) / apart.var((0, 1))
    assert weights.autocorrelation == pytest.approx(beside, abs=1e-9)
    losses = post.observe(progress=False)
    assert losses.mean.mean() == pytest.approx(bs.criteria(post, only=["y1"], progress=False).y1.value, rel=1e-9)
    assert losses.verdict == "ok", losses.warnings


def test_sums_are_the_covariances_of_all_draws_and_their_jackknife():
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(4, 50, 3)), rng.normal(size=(4, 50, 2))
    sums = Sums(5, 3, 2, 1e6, "cpu")
    for draw in range(50):
        dead = np.full((1, 1), 1e9)
        rows = [np.concatenate([each[:, draw], np.broadcast_to(dead, (1, each.shape[2]))]) for each in (first, second)]
        sums.add(*(torch.tensor(row) for row in rows))
    value, stderr = sums.estimate(lambda matrix: matrix, np.array([True] * 4 + [False]))

    def by_numpy(chains):
        return np.cov(first[chains].reshape(-1, 3).T, second[chains].reshape(-1, 2).T)[:3, 3:]

    left = np.array([by_numpy(np.delete(np.arange(4), g)) for g in range(4)])
    assert value == pytest.approx(by_numpy(np.arange(4)))
    assert stderr == pytest.approx(np.sqrt(3 * left.var(0)))


def test_bad_input():
    post = bs.posterior(LAND, chains=4, draws=16, **QUICK)
    shapes = iter([3, 2, 2, 2, 2])
    other = quadratic([1.0, 1.0, 1.0], n=N, dtype=f64).at({"weight": torch.zeros(1, 3)})
    for observable, message in (
        (lambda w: w["weight"] * float("nan"), "observables must be finite, got 3 that are not"),
        (lambda w: (w["weight"] - 1).sqrt(), "observables must be finite"),
        (lambda w: torch.zeros(next(shapes)), "must keep its shape: expected 3 entries as at w[*], got 2"),
        (lambda w: 3.0, "must return a tensor with real entries, got 3.0"),
        (other, "has other weights than the posterior"),
    ):
        with pytest.raises(bs.InputError, match=message):
            bs.influence(post, observable, progress=False)
        if observable is not other and message.startswith("observables"):
            with pytest.raises(bs.InputError, match=message):
                post.observe(observable, progress=False)
    with pytest.raises(bs.InputError, match=r"30 × 30 covariances of 4 chains take 0 MiB, more than memory=0 MiB"):
        bs.loss_kernel(post, memory=100, progress=False)
    with pytest.raises(bs.InputError, match="method must be 'draws', 'controlled' or 'ekfac', got 'exact'"):
        bs.influence(post, method="exact")
    with pytest.raises(bs.InputError, match="the gradients of 60 values in 3 parameters take"):
        bs.influence(post, method="ekfac", memory=100)
    with pytest.raises(bs.InputError, match="token losses are those of loss='cross_entropy'"):
        bs.token_losses(LAND)
    with pytest.raises(bs.InputError, match="draws must be a whole number of at least 2, got 1"):
        bs.influence(LAND, draws=1, **QUICK)
    with pytest.raises(bs.InputError, match="chains=8 is about drawing from a landscape, got a posterior"):
        bs.influence(post, chains=8)
