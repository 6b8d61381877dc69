"""The online natural gradient against a dense reference of its own recursion."""

import math

import pytest
import torch

from basinscope.optim import OnlineNGD
from basinscope.optim.lowrank import INITIAL_UPDATES, LowRank, _product_in_blocks, initial, preconditioned, updated

f64 = torch.float64


class Dense:
    """F kept as a D × D matrix; the leading directions of R T are taken from its singular value decomposition.

    R T = U Σ Vᵀ gives R' = Vᵀ and eigenvalues Σ: F' = VΣ'Vᵀ + ρ'(I − VVᵀ), and only R = the row space of V is kept.
    """

    def __init__(self, size, rank, alpha, eta, epsilon, delta):
        self.alpha, self.eta, self.epsilon, self.delta = alpha, eta, epsilon, delta
        rows = torch.zeros(rank, size, dtype=f64)
        for place in range(size):
            rows[place % rank, place] = 1.1 if place < rank else 1.0
        self.basis = rows / rows.norm(dim=1, keepdim=True)
        self.fisher = 2 * epsilon * self.basis.T @ self.basis + epsilon * (
            torch.eye(size, dtype=f64) - self.basis.T @ self.basis
        )

    def update(self, rows):
        size, rank = self.fisher.shape[0], len(self.basis)
        target = self.eta * rows.T @ rows / len(rows) + (1 - self.eta) * self.fisher
        _, sigma, right = torch.linalg.svd(self.basis @ target, full_matrices=False)
        rest = (target.trace() - sigma.sum()) / (size - rank)
        least = max(self.epsilon, self.delta * float(sigma.max()))
        spectrum = (sigma - rest).clamp_min(least)
        rest = max(float(rest), least)
        self.basis = right
        self.fisher = right.T @ torch.diag(spectrum) @ right + rest * torch.eye(size, dtype=f64)

    def apply(self, rows):
        size = len(self.fisher)
        smoothed = self.fisher + self.alpha / size * self.fisher.trace() * torch.eye(size, dtype=f64)
        return rows @ torch.linalg.inv(smoothed)


def matrix(state):
    size = state.basis.shape[-1]
    basis = state.basis.double()
    return basis.mT @ torch.diag_embed(state.spectrum) @ basis + state.floor * torch.eye(size, dtype=f64)


def gradients(steps, shape, seed=0, dtype=f64):
    generator = torch.Generator().manual_seed(seed)
    scale = torch.logspace(0, -2, shape[-1], dtype=f64)
    return [(torch.randn(shape, generator=generator, dtype=f64) * scale).to(dtype) for _ in range(steps)]


@pytest.mark.parametrize("eta", [0.1, 0.9])
@pytest.mark.parametrize(("rows", "size", "rank"), [(12, 7, 3), (3, 9, 5), (1, 6, 2), (5, 2, 1)])
def test_recursion_is_that_of_the_dense_matrix(rows, size, rank, eta):
    floors = {"epsilon": 1e-10, "delta": 5e-4}
    stream = gradients(8, (rows, size))
    reference = Dense(size, rank, 0.3, eta, **floors)
    state = initial(stream[0], rank, eta=eta, **floors)
    for _ in range(INITIAL_UPDATES):
        reference.update(stream[0])
    for batch in stream:
        truth = reference.apply(batch)
        direction = preconditioned(state, batch, alpha=0.3, rescale=False)
        # Both start at ε = 1e-10, where a basis is known to 1e-16/1e-11 only.
        assert torch.allclose(direction, truth, rtol=1e-5, atol=1e-6 * float(truth.abs().max()))
        scaled = preconditioned(state, batch, alpha=0.3, rescale=True)
        assert torch.allclose(scaled, truth * batch.norm() / truth.norm(), rtol=1e-5, atol=1e-6)
        state = updated(state, batch, eta=eta, **floors)
        reference.update(batch)
        assert torch.allclose(matrix(state), reference.fisher, rtol=1e-5, atol=1e-6 * float(reference.fisher.max()))
        assert torch.allclose(state.basis @ state.basis.mT, torch.eye(rank, dtype=f64), atol=1e-9)


def test_a_steady_stream_is_learned_exactly_where_it_has_low_rank():
    generator = torch.Generator().manual_seed(1)
    rows = torch.randn(20, 2, generator=generator, dtype=f64) @ torch.randn(2, 8, generator=generator, dtype=f64)
    state = initial(rows, 3, eta=0.5, epsilon=1e-10, delta=0.0)
    for _ in range(80):
        state = updated(state, rows, eta=0.5, epsilon=1e-10, delta=0.0)
    assert torch.allclose(matrix(state), rows.T @ rows / 20, atol=1e-8)


def test_many_matrices_at_once():
    streams = torch.stack([torch.stack(gradients(5, (6, 7), seed)) for seed in range(4)], 1)
    options = {"eta": 0.4, "epsilon": 1e-10, "delta": 1e-5}
    together = initial(streams[0], 3, **options)
    alone = [initial(streams[0, i], 3, **options) for i in range(4)]
    for batch in streams:
        direction = preconditioned(together, batch, alpha=0.1, rescale=True)
        for i in range(4):
            assert torch.allclose(direction[i], preconditioned(alone[i], batch[i], alpha=0.1, rescale=True), atol=1e-10)
            alone[i] = updated(alone[i], batch[i], **options)
        together = updated(together, batch, **options)


def test_single_precision_stays_orthonormal_and_close():
    double = single = None
    for batch in gradients(200, (20, 30)):
        options = {"eta": 0.9, "epsilon": 1e-10, "delta": 5e-4}
        if double is None:
            double, single = initial(batch, 10, **options), initial(batch.float(), 10, **options)
        double, single = updated(double, batch, **options), updated(single, batch.float(), **options)
    gram = single.basis.double() @ single.basis.double().mT
    assert torch.allclose(gram, torch.eye(10, dtype=f64), atol=1e-5)
    assert torch.allclose(matrix(single), matrix(double), atol=1e-2 * float(matrix(double).max()))


def test_zero_and_broken_gradients():
    options = {"eta": 0.5, "epsilon": 1e-10, "delta": 1e-5}
    rows = gradients(1, (5, 4))[0]
    state = initial(rows, 2, **options)
    faded = state
    for _ in range(300):
        faded = updated(faded, torch.zeros_like(rows), **options)
    assert all(torch.isfinite(part).all() for part in faded)
    assert torch.equal(preconditioned(faded, torch.zeros_like(rows), alpha=0.1, rescale=True), torch.zeros_like(rows))
    broken = rows.clone()
    broken[0, 0] = math.nan
    kept = updated(state, broken, **options)
    assert all(torch.equal(one, two) for one, two in zip(kept, state, strict=True))
    assert torch.isnan(preconditioned(state, broken, alpha=0.1, rescale=True)).any()


@pytest.mark.parametrize("rescale", [True, False])
def test_optimizer_goes_axis_by_axis(rescale):
    """A (3, 4, 5) tensor: each axis sees what the one before has made of the gradient."""
    weight = torch.nn.Parameter(torch.zeros(3, 4, 5, dtype=f64))
    optimizer = OnlineNGD([weight], lr=1.0, alpha=0.2, eta=0.3, rescale=rescale, update_period=3)
    references = {}
    for t, gradient in enumerate(gradients(17, (3, 4, 5))):
        expected = gradient
        for axis, size in enumerate((3, 4, 5)):
            rows = expected.transpose(axis, -1)
            flat = rows.reshape(-1, size)
            if axis not in references:
                references[axis] = Dense(size, (size + 1) // 2, 0.2, 0.3, 1e-10, 5e-4)
                for _ in range(3):
                    references[axis].update(flat)
            direction = references[axis].apply(flat)
            if t < 10 or t % 3 == 0:
                references[axis].update(flat)
            if rescale:
                direction = direction * flat.norm() / direction.norm()
            expected = direction.view(rows.shape).transpose(axis, -1)
        before = weight.detach().clone()
        weight.grad = gradient
        optimizer.step()
        assert torch.allclose(before - weight, expected, rtol=1e-5, atol=1e-7 * float(expected.abs().max()))


def test_ranks_scalars_and_groups():
    scalar = torch.nn.Parameter(torch.tensor(2.0))
    column = torch.nn.Parameter(torch.ones(3, 1))
    optimizer = OnlineNGD([{"params": [scalar], "lr": 0.5}, {"params": [column], "rank": (1, 1)}], lr=0.1)
    scalar.grad, column.grad = torch.tensor(1.0), torch.tensor([[3.0], [0.0], [4.0]])
    optimizer.step()
    assert scalar.item() == pytest.approx(1.5)
    assert float(optimizer.norms["direction"]) == pytest.approx(math.sqrt(26), rel=1e-6)
    assert float(optimizer.norms["update"]) == pytest.approx(math.sqrt(0.25 + 0.25), rel=1e-6)


def test_state_is_plain():
    assert LowRank._fields == ("basis", "spectrum", "floor")


@pytest.mark.parametrize("terms", [40, 256, 784])
def test_products_in_blocks_are_products(terms):
    generator = torch.Generator().manual_seed(0)
    one, other = torch.rand(2, 5, terms, generator=generator), torch.rand(2, terms, 3, generator=generator)
    exact = one.double() @ other.double()
    assert torch.allclose(_product_in_blocks(one, other).double(), exact, rtol=1e-6)
