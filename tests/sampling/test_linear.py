"""Linear layers of many chains against the plain loop over them."""

import pytest
import torch
from torch.func import vmap
from torch.nn import functional

from basinscope.sampling import linear
from basinscope.sampling.linear import QuickLinear

CHAINS = 3


@pytest.fixture(autouse=True)
def every_layer(monkeypatch):
    monkeypatch.setattr(linear, "LARGE", 1)


def drawn(*shape, dtype):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("inner", [(5,), (2, 4), (1,)], ids=["rows", "tokens", "one row"])
@pytest.mark.parametrize("axes", [(0, 0), (None, 0), (0, None)], ids=["own samples", "shared samples", "fixed weights"])
def test_values_and_gradients_are_those_of_a_loop(dtype, bias, inner, axes):
    x = drawn(*([CHAINS] if axes[0] == 0 else []), *inner, 6, dtype=dtype).requires_grad_()
    weight = drawn(*([CHAINS] if axes[1] == 0 else []), 4, 6, dtype=dtype).requires_grad_()
    shift = drawn(CHAINS, 4, dtype=dtype).requires_grad_() if bias else None
    leaves = [tensor for tensor in (x, weight, shift) if tensor is not None]

    def one(rows, matrix, vector):
        return functional.linear(rows, matrix, vector).tanh()

    with QuickLinear():
        found = vmap(one, in_dims=(*axes, 0 if bias else None))(x, weight, shift)
    rows = [
        one(x if axes[0] is None else x[c], weight if axes[1] is None else weight[c], shift[c] if bias else None)
        for c in range(CHAINS)
    ]
    truth = torch.stack(rows)
    torch.testing.assert_close(found, truth)
    weights = drawn(*truth.shape, dtype=dtype)
    for mine, theirs in zip(
        torch.autograd.grad((found * weights).sum(), leaves),
        torch.autograd.grad((truth * weights).sum(), leaves),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)


def test_gradients_of_weights_lie_as_the_weights_do():
    x, weight = drawn(CHAINS, 5, 6, dtype=torch.float32), drawn(CHAINS, 4, 6, dtype=torch.float32).requires_grad_()
    with QuickLinear():
        found = vmap(functional.linear)(x, weight)
    (slope,) = torch.autograd.grad(found.sum(), weight)
    assert slope.is_contiguous()


@pytest.mark.parametrize("bias", [True, False])
def test_outside_vmap_nothing_changes(bias):
    layer = torch.nn.Linear(6, 4, bias=bias)
    x = drawn(2, 5, 6, dtype=torch.float32).requires_grad_()
    leaves = [x, *layer.parameters()]
    plain = torch.autograd.grad(layer(x).square().sum(), leaves)
    with QuickLinear():
        quick = torch.autograd.grad(layer(x).square().sum(), leaves)
    torch.testing.assert_close(plain, quick)
    with QuickLinear():
        torch.testing.assert_close(layer(x[0, 0]), layer(x)[0, 0])
