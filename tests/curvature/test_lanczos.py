import pytest
import torch

import basinscope as bs
from basinscope.curvature.bracket import nodes_of
from basinscope.curvature.eigen import top_eigenpairs
from basinscope.curvature.lanczos import LanczosRuns, Tridiagonal
from basinscope.curvature.operators import Dense, hessian

f64 = torch.float64


def matrix_of(values, dtype=f64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    frame = torch.linalg.qr(torch.randn(len(values), len(values), dtype=f64, generator=generator)).Q
    whole = (frame * values.double()) @ frame.T
    return ((whole + whole.T) / 2).to(dtype)


SPECTRA = {
    "spread": torch.linspace(-1, 2, 60),
    "decaying": 0.8 ** torch.arange(80.0),
    "repeated": torch.linspace(1, 10, 8).repeat_interleave(9),
    "low rank": torch.cat([torch.tensor([5.0, 2.0, 1.0]), torch.zeros(60)]),
    "identity": torch.ones(40),
    "zero": torch.zeros(30),
    "negative": -torch.linspace(0.1, 3, 50),
    "one": torch.tensor([3.0]),
}


@pytest.mark.parametrize("dtype", [torch.float32, f64])
@pytest.mark.parametrize("name", SPECTRA)
def test_lanczos_relation_and_orthogonality(name, dtype):
    whole = matrix_of(SPECTRA[name], dtype)
    run = LanczosRuns(Dense(whole), torch.randn(len(whole), dtype=dtype))
    run.grow(25)
    matrix, basis, slack = run.tridiagonal.matrices[0], run.basis[0].double(), 1e3 * torch.finfo(dtype).eps
    assert matrix.dtype == f64
    assert float((basis @ basis.T - torch.eye(len(basis), dtype=f64)).abs().max()) < slack
    left_over = basis @ whole.double() - matrix @ basis
    assert float(left_over[:-1].abs().max() if len(basis) > 1 else 0.0) < 100 * slack
    assert float(left_over[-1].norm()) == pytest.approx(float(run.tridiagonal.off_diagonal[0, -1]), abs=100 * slack)


def test_lanczos_ends_with_its_krylov_space():
    steps = {"zero": 1, "identity": 1, "low rank": 4}  # three eigenvalues and zero
    for name, count in steps.items():
        run = LanczosRuns(Dense(matrix_of(SPECTRA[name])), torch.ones(len(SPECTRA[name])))
        run.grow(20)
        assert run.steps == count
        assert bool(run.exhausted)


def test_a_run_goes_on_beside_what_is_locked_and_after_its_krylov_space():
    values = torch.tensor([5.0, 2.0, 1.0, 1.0], dtype=f64)
    first = torch.eye(4, dtype=f64)[:1]
    run = LanczosRuns(Dense(torch.diag(values)), torch.ones(4, dtype=f64), locked=first)
    run.grow(9)
    assert run.tridiagonal.eigensystem[0].squeeze().tolist() == pytest.approx([1, 2])
    assert float(run.tridiagonal.squares) == pytest.approx(3)  # without the part that is locked
    run.restart(torch.tensor([1.0, 1.0, 2.0, -1.0], dtype=f64))
    run.grow(9)
    assert run.tridiagonal.eigensystem[0].squeeze().tolist() == pytest.approx([1, 1, 2])


def test_vectors_beyond_the_memory_are_not_kept():
    whole, start = matrix_of(SPECTRA["spread"]), torch.ones(60, dtype=f64)
    short, whole_run = (LanczosRuns(Dense(whole), start, memory=memory) for memory in (5 * 60 * 8, None))
    for run in (short, whole_run):
        run.grow(12)
    assert (short.basis.shape[1], whole_run.basis.shape[1]) == (5, 12)
    assert torch.allclose(short.tridiagonal.diagonal, whole_run.tridiagonal.diagonal)


def test_tridiagonal_matrices_entry_by_entry():
    diagonal, off_diagonal = torch.randn(2, 3, 5, dtype=f64, generator=torch.Generator().manual_seed(0))
    whole = Tridiagonal(diagonal, off_diagonal, torch.ones(3)).matrices
    for j in range(3):
        for row in range(5):
            for column in range(5):
                near = float(off_diagonal[j, min(row, column)]) if abs(row - column) == 1 else 0.0
                assert float(whole[j, row, column]) == (float(diagonal[j, row]) if row == column else near)


@pytest.mark.parametrize("name", ["spread", "decaying", "negative"])
def test_runs_side_by_side_take_the_steps_of_runs_alone(name):
    whole = matrix_of(SPECTRA[name])
    starts = torch.randn(len(whole), 3, dtype=f64, generator=torch.Generator().manual_seed(0))
    runs = LanczosRuns(Dense(whole), starts)
    runs.grow(12)
    for j in range(3):
        alone = LanczosRuns(Dense(whole), starts[:, j])
        alone.grow(12)
        values, _ = alone.tridiagonal.eigensystem
        nodes = nodes_of(runs.tridiagonal, -10.0).gauss[0][j]
        assert torch.allclose(nodes, values[0], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("which", ["largest", "smallest", "magnitude"])
@pytest.mark.parametrize("dtype", [torch.float32, f64])
@pytest.mark.parametrize("name", SPECTRA)
def test_eigenpairs_of_every_kind_of_spectrum(name, dtype, which, seed):
    whole = matrix_of(SPECTRA[name], dtype)
    rank = {"largest": lambda x: x, "smallest": lambda x: -x, "magnitude": torch.abs}[which]
    truth = rank(SPECTRA[name].double()).sort(descending=True).values
    norm = float(SPECTRA[name].abs().max())
    for k in (1, 3, 12):
        k = min(k, len(whole))
        pairs = top_eigenpairs(Dense(whole), k, which=which, tol=1e-4, seed=seed)
        assert pairs.converged
        assert float((rank(pairs.values) - truth[:k]).abs().max()) <= 1e-4 * norm
        frame = pairs.vectors.double()
        assert float((frame.T @ frame - torch.eye(k, dtype=f64)).abs().max()) < 1e-3
        true_residuals = (whole.double() @ frame - frame * pairs.values).norm(dim=0)
        assert bool((true_residuals <= pairs.residuals + 1e3 * torch.finfo(dtype).eps * max(norm, 1)).all())
        assert pairs.smallest >= float(SPECTRA[name].min()) - 1e-5 * norm
        assert pairs.largest <= float(SPECTRA[name].max()) + 1e-5 * norm


def test_known_eigenpairs_are_left_out(seed):
    operator = Dense(matrix_of(SPECTRA["spread"]))
    top = top_eigenpairs(operator, 4, tol=1e-6, seed=seed)
    rest = top_eigenpairs(operator, 3, tol=1e-6, deflated=top, seed=seed)
    assert torch.allclose(rest.values, SPECTRA["spread"].double().flip(0)[4:7], atol=1e-6)


def test_same_seed_same_bits(seed):
    operator = Dense(matrix_of(SPECTRA["decaying"], torch.float32))
    first, second = (top_eigenpairs(operator, 5, seed=seed) for _ in range(2))
    assert torch.equal(first.values, second.values)
    assert torch.equal(first.vectors, second.vectors)


def test_too_few_products_are_admitted():
    pairs = top_eigenpairs(Dense(matrix_of(torch.linspace(0, 1, 300))), 5, max_steps=8)
    assert not pairs.converged
    assert pairs.products == 8
    assert float(pairs.residuals.max()) > 1e-3


def test_repeated_eigenvalues_of_a_regression_with_many_outputs(seed):
    x = torch.randn(30, 4, dtype=f64, generator=torch.Generator().manual_seed(0))
    land = bs.Landscape(torch.nn.Linear(4, 6, bias=False).double(), "mse", (x, x[:, [0, 1, 2, 3, 0, 1]]))
    once = torch.linalg.eigvalsh(x.T @ x / 30).flip(0)
    pairs = top_eigenpairs(hessian(land), 9, tol=1e-6, seed=seed)
    assert torch.allclose(pairs.values, once.repeat_interleave(6)[:9], atol=1e-6)


def test_bad_arguments():
    operator = Dense(torch.eye(3))
    for wrong in ({"k": 0}, {"k": 4}, {"k": 1, "tol": 0.0}, {"k": 1, "which": "top"}):
        with pytest.raises(bs.InputError):
            top_eigenpairs(operator, **wrong)
    with pytest.raises(bs.InputError, match="square"):
        Dense(torch.ones(2, 3))
