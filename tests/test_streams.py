"""Constants made on the device itself, and functions captured where there is a GPU."""

import pytest
import torch

from basinscope.streams import Captured, FilledConstants


@pytest.mark.parametrize("value", [0.0, -3.5, 2, True, float("inf")])
@pytest.mark.parametrize("dtype", [None, torch.float64])
def test_constants_are_what_torch_tensor_makes(value, dtype):
    expected = torch.tensor(value, dtype=dtype, device="cpu")
    with FilledConstants():
        tensor = torch.tensor(value, dtype=dtype, device="cpu")
    assert torch.equal(tensor, expected)
    assert tensor.dtype == expected.dtype
    assert tensor.shape == ()


def test_other_tensors_are_left_alone():
    with FilledConstants():
        tensor = torch.tensor([[1.0, 2.0]], requires_grad=True)
    assert tensor.shape == (1, 2)
    assert tensor.requires_grad


def test_constants_under_vmap_and_autograd():
    def half(x):
        return (x * torch.tensor(0.5, dtype=x.dtype)).sum()

    x = torch.ones(3, 2, requires_grad=True)
    with FilledConstants():
        (slope,) = torch.autograd.grad(torch.func.vmap(half)(x).sum(), x)
    assert torch.equal(slope, torch.full((3, 2), 0.5))


def test_without_a_gpu_a_captured_function_is_the_function():
    calls = []

    def both(x):
        calls.append(x)
        return x, 2 * x

    twice = Captured(both)
    argument = torch.tensor([1.0, 2.0])
    same, double = twice(argument)
    assert same is argument
    assert torch.equal(double, 2 * argument)
    assert len(calls) == 1
