"""Many small eigenvalue problems at once."""

import pytest
import torch

import lacking
from basinscope.optim.axes import eigen_of, shared_out


def symmetric(*shape, dtype=torch.float64):
    root = torch.randn(*shape, shape[-1], generator=torch.Generator().manual_seed(sum(shape)), dtype=dtype)
    return root @ root.mT


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_matrices_of_all_shapes_come_back_in_their_places(dtype):
    given = [symmetric(*shape, dtype=dtype) for shape in [(3,), (2, 5), (2, 2, 3), (1,), (4, 5)]]
    for matrix, (values, vectors) in zip(given, eigen_of(given), strict=True):
        assert torch.allclose(vectors @ (values[..., None] * vectors.mT), matrix, rtol=1e-4, atol=1e-4)
        assert torch.allclose(values, torch.linalg.eigvalsh(matrix), rtol=1e-4, atol=1e-5)


def test_nothing_is_nothing():
    assert eigen_of([]) == []


@pytest.mark.parametrize("count", [1, 2, 37])
def test_shares_are_what_one_call_gives(count):
    given = symmetric(count, 12)
    for shared, whole in zip(shared_out(given), torch.linalg.eigh(given), strict=True):
        assert torch.equal(shared, whole)


@lacking.GPU.mark
@pytest.mark.parametrize("size", [5, 80, 300])
def test_on_a_card(size):
    given = symmetric(7, size).cuda()
    ((values, vectors),) = eigen_of([given])
    assert values.device == vectors.device == given.device
    assert torch.allclose(vectors @ (values[..., None] * vectors.mT), given, rtol=1e-9, atol=1e-8)
