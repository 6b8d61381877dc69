import fnmatch
import re

import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.curvature import spectra
from chance import assert_share, assert_within

f64 = torch.float64


def classifier(n=60, dtype=f64, hidden=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(5, hidden), nn.Tanh(), nn.Linear(hidden, 3)).to(dtype)
    x, y = torch.randn(n, 5, generator=generator), torch.randint(3, (n,), generator=generator)
    return bs.Landscape(net, "cross_entropy", (x, y))


def regression(n=30, d=4, sigma=0.5, seed=0):
    x = torch.randn(n, d, dtype=f64, generator=torch.Generator().manual_seed(seed))
    net = nn.Linear(d, 1, bias=False).double()
    return bs.Landscape(net, "gaussian", (x, x[:, :1]), sigma=sigma), x.T @ x / n / sigma**2


def by_definition(matrix, decay):
    projection = matrix @ torch.linalg.inv(matrix + torch.diag(decay))
    return {
        "soft_rank": float(projection.trace()),
        "squared": float((projection @ projection).trace()),
        "log_det": 0.5 * float(torch.logdet(torch.eye(len(matrix), dtype=f64) + matrix / decay)),
    }


@pytest.mark.parametrize("method", ["exact", "dual", "block", "kfac", "ekfac"])
def test_linear_regression_in_closed_form(method):
    land, fisher = regression()
    truth = by_definition(fisher, torch.full((4,), 0.3, dtype=f64))
    assert bs.soft_rank(land, weight_decay=0.3, method=method).value == pytest.approx(truth["soft_rank"])
    assert bs.soft_rank(land, weight_decay=0.3, method=method, order=2).value == pytest.approx(truth["squared"])
    assert bs.log_det(land, weight_decay=0.3, method=method).value == pytest.approx(truth["log_det"])


@pytest.mark.parametrize("decay", [{"*bias": 0.3, "*": 0.01}, {"0.weight": 0.2, "0.*": 0.1, "2.*": 0.05}])
@pytest.mark.parametrize("matrix", ["fisher", "covariance"])
def test_weight_decay_of_each_parameter(matrix, decay):
    land = classifier()
    whole = spectra.dense(land, matrix)
    levels = levels_of(land, decay)
    truth = by_definition(whole, levels)
    for method in ("exact", "dual"):
        found = bs.soft_rank(land, weight_decay=decay, method=method, matrix=matrix)
        assert found.value == pytest.approx(truth["soft_rank"])
        found = bs.log_det(land, weight_decay=decay, method=method, matrix=matrix)
        assert found.value == pytest.approx(truth["log_det"])
    for method in ("block", "ekfac", "diagonal"):
        bound = bs.soft_rank(land, weight_decay=decay, method=method, matrix=matrix)
        assert bound.value >= truth["soft_rank"]
        assert bound.bounds == (0.0, bound.value)


def levels_of(land, decay):
    def of(name):
        return next(value for pattern, value in decay.items() if fnmatch.fnmatchcase(name, pattern))

    return torch.cat([torch.full((tensor.numel(),), of(name), dtype=f64) for name, tensor in land.parameters.items()])


def test_weight_decay_of_each_entry():
    land = classifier()
    given = {name: torch.rand(tensor.shape) + 0.01 for name, tensor in land.parameters.items()}
    truth = by_definition(spectra.dense(land, "fisher"), land.flatten(given).double())
    for method in ("exact", "dual"):
        assert bs.soft_rank(land, weight_decay=given, method=method).value == pytest.approx(truth["soft_rank"])


def test_methods_agree_and_bounds_are_labelled():
    land = classifier()
    exact = bs.soft_rank(land, weight_decay=0.01, method="exact")
    assert exact.diagnostics["bound"] == "exact"
    assert exact.bounds == (exact.value, exact.value)
    assert bs.soft_rank(land, weight_decay=0.01, method="dual").value == pytest.approx(exact.value)
    order = ["block", "diagonal"]
    values = [bs.soft_rank(land, weight_decay=0.01, method=method).value for method in order]
    assert exact.value < values[0] < values[1]
    for method, bound in (("block", "upper"), ("diagonal", "upper"), ("ekfac", "upper"), ("kfac", "neither")):
        for measure in (bs.soft_rank, bs.log_det):
            estimate = measure(land, weight_decay=0.01, method=method)
            assert estimate.diagnostics["bound"] == bound
            assert estimate.verdict == "doubtful"
        assert bs.soft_rank(land, weight_decay=0.01, method=method, order=2).diagnostics["bound"] == "neither"


@pytest.mark.parametrize("matrix", ["fisher", "covariance", "hessian"])
@pytest.mark.parametrize("order", [1, 2])
def test_lanczos_agrees_with_exact(matrix, order, seed):
    land = classifier(n=101)
    decay = 0.5 if matrix == "hessian" else 0.01
    exact = bs.soft_rank(land, weight_decay=decay, matrix=matrix, method="exact", order=order)
    found = bs.soft_rank(land, weight_decay=decay, matrix=matrix, method="lanczos", order=order, rtol=0.03, seed=seed)
    assert found.stderr < 0.3 + 0.1 * abs(exact.value)  # nearly zero where the probes agree, as they often do here
    assert_within(found.value, exact.value, found.stderr, found.freedom, bias=1e-3)
    assert found.diagnostics["bracket"][0] <= found.value <= found.diagnostics["bracket"][1]


@pytest.mark.slow
def test_lanczos_bounds_hold_the_exact_value(seed):
    inside = 0
    for number in range(50):
        land = classifier(n=20 + number, hidden=4 + number % 5, seed=number)
        decay = 10.0 ** -(1 + number % 3)
        exact = bs.soft_rank(land, weight_decay=decay, method="exact").value
        found = bs.soft_rank(land, weight_decay=decay, method="lanczos", seed=seed + number, rtol=0.1)
        inside += found.bounds[0] <= exact <= found.bounds[1]
    assert_share(inside, 50, 0.9999)


@pytest.mark.parametrize("decay", [0.05, {"*bias": 0.3, "*": 0.02}])
def test_lanczos_with_any_weight_decay_is_reproducible(decay, seed):
    land = classifier()
    first, again = (bs.log_det(land, weight_decay=decay, method="lanczos", seed=seed) for _ in range(2))
    assert first == again
    exact = bs.log_det(land, weight_decay=decay, method="exact").value
    assert_within(first.value, exact, first.stderr, first.freedom, bias=1e-3)


@pytest.mark.parametrize("method", ["exact", "dual", "kfac", "lanczos"])
def test_several_weight_decays_equal_separate_calls(method, seed):
    decays = [1e-3, 1e-2, 1.0]
    together = bs.soft_rank(classifier(), weight_decay=decays, method=method, seed=seed)
    for estimate, decay in zip(together, decays, strict=True):
        alone = bs.soft_rank(classifier(), weight_decay=decay, method=method, seed=seed)
        assert estimate.diagnostics["weight_decay"] == decay
        if method == "lanczos":  # the runs grow as far as the smallest weight decay asks
            together_stderr = estimate.stderr + alone.stderr
            assert_within(estimate.value, alone.value, together_stderr, min(estimate.freedom, alone.freedom), bias=1e-3)
        else:
            assert estimate.value == alone.value


def test_one_factorization_serves_all(monkeypatch):
    calls = []
    dense = spectra.dense
    monkeypatch.setattr(spectra, "dense", lambda *args, **options: calls.append(args) or dense(*args, **options))
    land = classifier()
    bs.soft_rank(land, weight_decay=[0.1, 0.2], method="exact")
    bs.log_det(land, weight_decay=0.1, method="exact")
    bs.soft_rank(land, weight_decay=0.1, method="exact", order=2)
    assert len(calls) == 1
    land.parameters["2.bias"].add_(1.0)  # a landscape that was changed after all is factorized again
    bs.soft_rank(land, weight_decay=0.1, method="exact")
    assert len(calls) == 2


def test_auto_chooses_by_size():
    assert bs.soft_rank(classifier(n=200), weight_decay=0.1).diagnostics["method"] == "exact"
    assert bs.soft_rank(classifier(n=5), weight_decay=0.1).diagnostics["method"] == "dual"
    assert bs.soft_rank(classifier(), weight_decay=2.0, matrix="hessian").diagnostics["method"] == "exact"
    net = nn.Sequential(nn.Linear(100, 120), nn.Tanh(), nn.Linear(120, 3))
    large = bs.Landscape(net, "cross_entropy", (torch.randn(6000, 100), torch.randint(3, (6000,))))
    assert spectra.choose(large, "fisher") == "lanczos"
    assert spectra.choose(large.subset(range(50)), "fisher") == "dual"
    assert spectra.choose(large, "hessian") == "lanczos"


def test_thousands_of_outputs_go_to_lanczos():
    land = bs.Landscape(nn.Linear(1, 2001).double(), "mse", (torch.ones(2, 1), torch.zeros(2, 2001)))
    assert spectra.choose(land, "fisher") == "lanczos"
    with pytest.raises(bs.InputError, match="2,001 times"):
        bs.soft_rank(land, weight_decay=1.0, method="kfac")
    assert bs.soft_rank(land, weight_decay=1.0).value == pytest.approx(2001 * 2 / 3, rel=0.05)  # σ = 2 and 0


def test_single_precision_agrees():
    for method in ("exact", "dual", "ekfac"):
        low = bs.soft_rank(classifier(dtype=torch.float32), weight_decay=1e-3, method=method).value
        assert low == pytest.approx(bs.soft_rank(classifier(), weight_decay=1e-3, method=method).value, rel=1e-4)


def test_limits():
    land = classifier()
    rank = int(torch.linalg.matrix_rank(spectra.dense(land, "fisher"), tol=1e-12))
    assert bs.soft_rank(land, weight_decay=1e-13).value == pytest.approx(rank, abs=0.1)
    trace = float(spectra.dense(land, "fisher").trace())
    assert bs.soft_rank(land, weight_decay=1e6).value == pytest.approx(trace / 1e6, rel=1e-4)
    one_class = bs.Landscape(nn.Linear(2, 1), "cross_entropy", (torch.randn(4, 2), torch.zeros(4, dtype=torch.long)))
    for method in ("exact", "dual", "kfac", "ekfac", "diagonal", "block", "lanczos"):
        assert bs.soft_rank(one_class, weight_decay=0.1, method=method).value == 0
    one_sample = bs.Landscape(nn.Linear(2, 3), "cross_entropy", (torch.ones(1, 2), torch.tensor([0])))
    assert bs.soft_rank(one_sample, weight_decay=1e-9).value == pytest.approx(2, abs=1e-6)


def test_half_the_hessians_soft_rank_is_the_learning_coefficient_of_a_quadratic():
    land, fisher = regression()
    t, gamma = 30 / 3.4, 0.25
    sigma = torch.linalg.eigvalsh(fisher)
    truth = 0.5 * float((t * sigma / (t * sigma + gamma)).sum())
    assert bs.soft_rank(land, weight_decay=gamma / t, matrix="hessian").value / 2 == pytest.approx(truth)


@pytest.mark.parametrize(
    "bad", [0.0, -1.0, float("nan"), float("inf"), [], [0.1, 0.0], {"*": -1.0}, {"0.*": 1.0}, "1", None]
)
def test_bad_weight_decay(bad):
    with pytest.raises(bs.InputError, match="weight_decay"):
        bs.soft_rank(classifier(), weight_decay=bad)


def test_bad_arguments():
    land = classifier()
    for options in ({"matrix": "jacobian"}, {"method": "guess"}, {"order": 3}, {"method": "lanczos", "rtol": 0.0}):
        with pytest.raises(bs.InputError, match=list(options)[-1]):
            bs.soft_rank(land, weight_decay=0.1, **options)
    with pytest.raises(bs.InputError, match="Hessian does not have"):
        bs.soft_rank(land, weight_decay=0.1, matrix="hessian", method="kfac")
    with pytest.raises(bs.InputError, match="shape"):
        bs.soft_rank(land, weight_decay={"*": torch.ones(2)})


@pytest.mark.parametrize("method", ["exact", "lanczos"])
def test_indefinite_hessian_names_the_eigenvalue(method):
    land = classifier()
    smallest = float(torch.linalg.eigvalsh(spectra.dense(land, "hessian"))[0])
    assert smallest < -0.01
    with pytest.raises(bs.InputError, match="raise the weight decay") as refusal:
        bs.soft_rank(land, weight_decay=1e-3, matrix="hessian", method=method)
    named = re.search(r"eigenvalue (\S+),", str(refusal.value))
    assert named
    assert float(named[1]) == pytest.approx(smallest, rel=0.05)
    estimate = bs.soft_rank(land, weight_decay=3.0, matrix="hessian", method=method)
    assert estimate.verdict == "doubtful"
    assert "no minimum" in " ".join(estimate.warnings)


def test_a_loss_without_likelihood_has_no_fisher():
    def distance(output, target):
        return (output - target).abs().sum(1)

    land = bs.Landscape(nn.Linear(2, 1).double(), distance, (torch.randn(9, 2), torch.zeros(9, 1)))
    for method in ("auto", "exact", "dual", "kfac", "diagonal", "lanczos"):
        with pytest.raises(bs.InputError, match="distance"):
            bs.soft_rank(land, weight_decay=0.1, method=method)
    assert bs.soft_rank(land, weight_decay=0.1, matrix="covariance").value > 0
