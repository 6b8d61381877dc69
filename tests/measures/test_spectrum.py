import json

import pytest
import torch
from torch import nn

import basinscope as bs
from basinscope.curvature.operators import operator
from chance import SAMPLED, assert_within

f64 = torch.float64


def written_out(land, matrix):
    return operator(land, matrix) @ torch.eye(land.dimension, dtype=land.dtype)


@pytest.fixture(scope="module")
def land():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 4)).double()
    return bs.Landscape(net, "cross_entropy", (torch.randn(50, 6), torch.randint(4, (50,))))


def spectrum(land, **options):
    return bs.spectrum(land, progress=False, **options)


@pytest.mark.parametrize("matrix", ["hessian", "fisher", "covariance"])
def test_ends_and_counts_against_the_dense_spectrum(land, matrix, seed):
    truth = torch.linalg.eigvalsh(written_out(land, matrix))
    found = spectrum(land, matrix=matrix, k=6, vectors=True, rtol=1e-5, seed=seed)
    assert found.verdict == "ok"
    norm = float(truth.abs().max())
    assert torch.allclose(found.largest, truth.flip(0)[:6], atol=1e-6 * norm)
    assert bool((found.largest_residuals < 1e-4 * norm).all())
    if matrix == "hessian":
        assert torch.allclose(found.smallest, truth[:6], atol=1e-6 * norm)
        assert found.smallest_vectors.shape == (land.dimension, 6)
    else:
        assert len(found.smallest) == 0
    whole = written_out(land, matrix)
    assert torch.allclose(whole @ found.largest_vectors, found.largest_vectors * found.largest, atol=1e-4 * norm)
    for level in (0.3 * norm, 0.03 * norm, 0.003 * norm):
        count = found.count(above=level)
        assert_within(count.value, int((truth > level).sum()), count.stderr, count.freedom, bias=1e-9)


def test_density_has_unit_mass_and_the_right_mean(land, seed):
    found = spectrum(land, seed=seed)
    grid = torch.linspace(-3, 6, 2000, dtype=f64)
    mean, stderr = found.density(grid, width=0.1)
    assert float(torch.trapezoid(mean, grid)) == pytest.approx(1, abs=1e-6)
    centre = float(torch.trapezoid(mean * grid, grid))
    whole = written_out(land, "hessian")
    assert centre == pytest.approx(float(whole.trace()) / land.dimension, abs=0.02)
    values = torch.linalg.eigvalsh(whole)
    bells = torch.exp(-(((grid - values[:, None]) / 0.1) ** 2) / 2).sum(0) / (0.1 * (2 * torch.pi) ** 0.5)
    assert_within(mean, bells / land.dimension, stderr, SAMPLED, bias=1e-3)


def test_fewer_parameters_than_asked_for():
    x = torch.tensor([[3.0, 0.0], [0.0, 1.0]])
    tiny = bs.Landscape(nn.Linear(2, 1, bias=False), "mse", (x, torch.zeros(2, 1)))
    found = spectrum(tiny, k=50)
    assert found.largest.tolist() == pytest.approx([4.5, 0.5])
    assert found.bulk.mass == 0
    assert found.count(0.0).to_dict()["value"] == 2
    found.plot()


def test_unconverged_ends_are_admitted(land, monkeypatch):
    from basinscope.measures import spectrum as module

    few = module.top_eigenpairs
    monkeypatch.setattr(module, "top_eigenpairs", lambda *args, **more: few(*args, **more, max_steps=7))
    found = spectrum(land, k=6)
    assert found.verdict == "doubtful"
    assert "lower k" in found.warnings[0]


@pytest.mark.parametrize("matrix", ["hessian", "fisher"])
def test_figure(land, matrix, tmp_path):
    found = spectrum(land, matrix=matrix)
    figure = found.plot()
    figure.savefig(tmp_path / "spectrum.png")
    assert (tmp_path / "spectrum.png").stat().st_size > 10_000
    left, right = figure.axes
    assert "eigenvalue" in left.get_xlabel()
    assert right.get_yscale() == "log"


def test_plain_values_survive_json(land):
    found = spectrum(land, k=2)
    again = json.loads(json.dumps(found.to_dict()))
    assert again["largest"] == found.largest.tolist()


@pytest.mark.parametrize("matrix", ["hessian", "fisher", "covariance"])
def test_operator_norm(land, matrix):
    found = bs.operator_norm(land, matrix=matrix, progress=False)
    truth = float(torch.linalg.eigvalsh(written_out(land, matrix)).abs().max())
    assert found.verdict == "ok"
    assert found.bounds[0] <= truth <= found.bounds[1]
    assert found.value == pytest.approx(truth, rel=1e-3)


def test_norm_of_an_indefinite_hessian_looks_at_both_ends():
    def hill(output, target):
        return -output.square().sum(1)

    x = torch.tensor([[1.0, 2.0], [3.0, 1.0]], dtype=f64)
    steep = bs.Landscape(nn.Linear(2, 1, bias=False).double(), hill, (x, x))
    found = bs.operator_norm(steep, matrix="hessian", progress=False)
    assert found.value == pytest.approx(float(torch.linalg.eigvalsh(x.T @ x).max()))
    assert found.diagnostics["eigenvalue"] < 0


def test_norm_of_nothing():
    dead = bs.Landscape(nn.Linear(3, 1), "cross_entropy", (torch.randn(5, 3), torch.zeros(5, dtype=torch.long)))
    assert bs.operator_norm(dead, progress=False).value == 0


def test_bad_arguments(land):
    for wrong in ({"k": 0}, {"matrix": "gram"}, {"probes": 1}, {"steps": 0}):
        with pytest.raises(bs.InputError, match=next(iter(wrong))):
            spectrum(land, **wrong)
    with pytest.raises(bs.InputError, match="width"):
        spectrum(land, k=1).density(torch.zeros(1), width=0.0)
    with pytest.raises(bs.InputError, match="rtol"):
        bs.operator_norm(land, rtol=0.0)
    unlikely = bs.Landscape(nn.Linear(2, 1), lambda z, y: (z - y).abs().sum(1), (torch.ones(3, 2), torch.ones(3, 1)))
    with pytest.raises(bs.InputError, match="likelihood"):
        bs.operator_norm(unlikely, progress=False)
    assert bs.operator_norm(unlikely, matrix="covariance", progress=False).value > 0
