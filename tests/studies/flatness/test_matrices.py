"""Every number of curvature against brute force: Jacobians by autograd, dense float64, eigenvalues."""

import math

import pytest
import torch
from torch.func import functional_call, jacrev

import basinscope as bs
from basinscope.curvature import tiles
from basinscope.curvature.calibration import error_uncertainty
from basinscope.errors import InputError
from basinscope.zoo.models import convnet, ffnn
from studies.flatness import spectra
from studies.flatness.matrices import Outputs, cosine, matrices, outputs

BUILDERS = {
    "mlp": lambda: ffnn([49, 4, 10]),
    "bigmlp": lambda: ffnn([49, 3, 3, 10]),
    "cnn": lambda: convnet([1, 2, 3, 10]),
}
DECAY = 0.03


def case(kind, n=7, dtype=torch.float64, seed=0):
    torch.manual_seed(seed)
    net = BUILDERS[kind]().to(dtype)
    shape = (n, 1, 7, 7) if kind == "cnn" else (n, 49)
    data = (torch.randn(shape, dtype=dtype), torch.randint(10, (n,)))
    return net, bs.Landscape(net, "cross_entropy", data)


def brute(net, land):
    """F, C, F̄, C̄ and the mean gradient, sample by sample, from the definitions."""
    parameters = {name: tensor.detach().double() for name, tensor in net.named_parameters()}
    wide = net.double()
    x, y = land.samples.inputs.double(), land.samples.target
    derivatives = jacrev(lambda p: functional_call(wide, p, (x,)))(parameters)
    jacobian = torch.cat([part.flatten(2) for part in derivatives.values()], 2)
    chances = functional_call(wide, parameters, (x,)).softmax(1)
    errors = chances - torch.nn.functional.one_hot(y, 10)
    sigma = torch.stack([torch.diag(p) - torch.outer(p, p) for p in chances])
    b = torch.stack([torch.outer(e, e) for e in errors])

    def mean(inner):
        return torch.stack([j.T @ m @ j for j, m in zip(jacobian, inner, strict=True)]).mean(0)

    apart = [each.mean(0).expand_as(each) for each in (sigma, b)]
    gradient = torch.stack([j.T @ e for j, e in zip(jacobian, errors, strict=True)]).mean(0)
    return mean(sigma), mean(b), mean(apart[0]), mean(apart[1]), gradient


@pytest.mark.parametrize("kind", BUILDERS)
@pytest.mark.parametrize(
    ("n", "dtype", "memory"),
    [(7, torch.float64, None), (7, torch.float32, None), (1, torch.float64, None), (7, torch.float64, 400_000)],
)
def test_matrices_equal_their_definitions(kind, n, dtype, memory, monkeypatch):
    if memory:
        monkeypatch.setattr(tiles, "DEFAULT_MEMORY", memory)  # tiles of a few samples, the last one smaller
    net, land = case(kind, n, dtype)
    result = matrices(land, outputs(land))
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    ours = (result.fisher, result.covariance, result.fisher_apart, result.covariance_apart, result.gradient)
    for mine, exact in zip(ours, brute(net, land), strict=True):
        assert float((mine - exact).abs().max()) <= tolerance * float(exact.abs().max())
    assert all(matrix.dtype == torch.float64 for matrix in ours)


@pytest.mark.parametrize("kind", BUILDERS)
def test_numbers_equal_those_of_the_spectrum_and_of_the_public_measures(kind):
    net, land = case(kind)
    result = matrices(land, outputs(land))
    point = land.flatten(land.parameters)
    row = spectra.numbers(result, spectra.bases(result.fisher, result.layers), DECAY, land.n, point)
    fisher, covariance, *_, gradient = brute(net, land)
    values = torch.linalg.eigvalsh(fisher).clamp(min=0)
    shares = values / (values + DECAY)
    inverse = torch.linalg.inv(fisher + DECAY * torch.eye(len(fisher), dtype=torch.float64))
    residual = gradient + DECAY * point
    # the second moment of ∇l + Λθ, sample by sample
    rows = torch.func.vmap(
        torch.func.grad(
            lambda p, x, y: torch.nn.functional.cross_entropy(functional_call(net, p, (x[None],)), y[None])
        ),
        in_dims=(None, 0, 0),
    )(dict(land.parameters), land.samples.inputs, land.samples.target)
    penalized = torch.cat([part.flatten(1) for part in rows.values()], 1) + DECAY * point
    wanted = {
        "trace_f": values.sum(), "trace_c": covariance.trace(), "norm_f": values[-1], "soft_rank": shares.sum(),
        "soft_rank_2": shares.square().sum(), "log_det": (values / DECAY).log1p().sum() / 2,
        "trace_ratio": covariance.trace() / values.sum(),
        "tic": (penalized * (penalized @ inverse)).sum(1).mean() / land.n,
        "tic_plain": (covariance * inverse).sum() / land.n, "decrement": residual @ inverse @ residual,
        "gradient_norm": residual.norm(), "thomas_rank": (values > 1e-3 * values[-1]).sum(),
        "size_c": covariance.norm(), "size_f": fisher.norm(),
    }  # fmt: skip
    large, vectors = (part[..., values > 1e-3 * values[-1]] for part in torch.linalg.eigh(fisher))
    wanted["thomas_tic"] = torch.trace(vectors.T @ covariance @ vectors @ torch.diag(1 / large)) / land.n
    for name, value in wanted.items():
        assert row[name] == pytest.approx(float(value), rel=1e-8), name
    for method, name in (("kfac", "kfac"), ("ekfac", "ekfac"), ("diagonal", "diagonal")):
        for measure, column in ((bs.soft_rank, "soft_rank"), (bs.log_det, "log_det")):
            public = measure(land, weight_decay=DECAY, method=method, progress=False).value
            assert row[f"{column}_{name}"] == pytest.approx(public, rel=1e-8)
        public = bs.soft_rank(land, weight_decay=DECAY, method=method, order=2, progress=False).value
        assert row[f"soft_rank_2_{name}"] == pytest.approx(public, rel=1e-8)
    assert row["tic"] == pytest.approx(bs.tic(land, weight_decay=DECAY, progress=False).value, rel=1e-8)
    assert row["cosine_cf"] == pytest.approx(float((covariance * fisher).sum() / covariance.norm() / fisher.norm()))


def test_stand_ins_that_keep_a_diagonal_are_upper_bounds():
    _, land = case("bigmlp", 12)
    result = matrices(land, outputs(land))
    row = spectra.numbers(
        result, spectra.bases(result.fisher, result.layers), DECAY, land.n, land.flatten(land.parameters)
    )
    assert row["soft_rank"] <= row["soft_rank_ekfac"] <= row["soft_rank_diagonal"] + 1e-9
    assert row["log_det"] <= row["log_det_ekfac"]


def test_leading_eigenvalues_of_a_large_matrix_are_those_of_its_spectrum(monkeypatch):
    monkeypatch.setattr(spectra, "_DENSE", 20)
    monkeypatch.setattr(spectra, "_BLOCK", 8)
    generator = torch.Generator().manual_seed(0)
    base = torch.linalg.qr(torch.randn(300, 300, generator=generator, dtype=torch.float64)).Q
    values = torch.logspace(0, -9, 300, dtype=torch.float64)
    matrix = base * values @ base.T
    eigenvalues, vectors = spectra.leading(matrix, 1e-3)
    exact = values[values > 1e-3]
    assert len(eigenvalues) == len(exact) == 100
    assert torch.allclose(eigenvalues, exact, rtol=1e-4)
    assert torch.allclose((matrix @ vectors - vectors * eigenvalues).norm(dim=0), torch.zeros(100).double(), atol=1e-5)


def test_the_whole_spectrum_is_taken_where_it_is_all_above():
    eigenvalues, _ = spectra.leading(torch.eye(1100, dtype=torch.float64), 1e-3)
    assert len(eigenvalues) == 1100


def test_a_weight_decay_must_be_positive():
    with pytest.raises(InputError, match="positive"):
        spectra.regularized(torch.eye(2, dtype=torch.float64), 0.0)
    with pytest.raises(InputError, match="not finite"):
        spectra.regularized(torch.full((2, 2), math.nan, dtype=torch.float64), 1.0)


def test_outputs_against_sums_by_hand():
    _, land = case("mlp", 40)
    seen = outputs(land)
    row = seen.numbers()
    chances = seen.scores.softmax(1)
    hits = torch.nn.functional.one_hot(land.samples.target, 10)
    assert row["loss"] == pytest.approx(float(land.per_sample().mean()))
    assert row["mse"] == pytest.approx(float((hits - chances).square().sum(1).mean()))
    assert row["uncertainty"] == pytest.approx(float((1 - chances.square().sum(1)).mean()))
    assert row["mse"] / row["uncertainty"] == pytest.approx(error_uncertainty(land).value)
    confidence, choice = chances.max(1)
    error = 0.0
    for place in range(15):
        inside = (confidence >= place / 15) & (confidence < (place + 1) / 15)
        if inside.any():
            share = (choice[inside] == land.samples.target[inside]).double().mean()
            error += float(inside.double().mean() * (share - confidence[inside].mean()).abs())
    assert row["calibration_error"] == pytest.approx(error)
    assert row["accuracy"] == pytest.approx(float((choice == land.samples.target).double().mean()))


def test_a_perfect_network_has_no_error_and_no_angle():
    seen = Outputs(torch.tensor([[800.0, 0.0], [0.0, 800.0]], dtype=torch.float64), torch.tensor([0, 1]))
    row = seen.numbers()
    assert row["mse"] == row["uncertainty"] == row["loss"] == 0
    assert math.isnan(row["cosine_b"])
    assert cosine(torch.eye(2), 2 * torch.eye(2)) == pytest.approx(1)
