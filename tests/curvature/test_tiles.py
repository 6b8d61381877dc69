"""Planning tiles leaves nothing behind."""

import gc

import torch
from torch import nn

import basinscope as bs
from basinscope.curvature.tiles import activation_bytes


def test_what_a_forward_pass_would_keep_is_not_kept():
    """A tensor that the node which made it holds in a hook is a cycle that neither Python nor torch frees."""
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    land = bs.Landscape(net, "mse", (torch.randn(8, 3), torch.randn(8, 1)))

    def tensors():
        gc.collect()
        return sum(type(each) is torch.Tensor for each in gc.get_objects())

    activation_bytes(land)
    before = tensors()
    for _ in range(5):
        assert activation_bytes(land) >= 64
    assert tensors() == before
