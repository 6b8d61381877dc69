"""Attention heads with parameters of their own."""

import torch

import basinscope as bs
from basinscope.sampling.chains import ChainLosses
from basinscope.zoo.models import head_pattern, split_heads, transformer


def test_heads_have_parameters_of_their_own():
    torch.manual_seed(0)
    net = transformer(8, 6, layers=2, width=8, heads=2)
    parts = split_heads(net)
    tokens = torch.randint(8, (5, 6), generator=torch.Generator().manual_seed(0))
    assert torch.allclose(parts(tokens), net(tokens), atol=1e-6)
    data = (tokens, tokens.roll(-1, 1))
    land = bs.Landscape(parts, "cross_entropy", data)
    assert land.dimension == sum(p.numel() for p in net.parameters())
    one = land.restrict(head_pattern(1, 0))
    assert one.dimension == 3 * 4 * 8 + 3 * 4 + 8 * 4
    silent = {name: torch.zeros_like(tensor) for name, tensor in one.parameters.items()}
    moved = {**land.parameters, **silent}
    with torch.no_grad():
        head_off = net.blocks[1].attention
        head_off.output.weight[:, :4] = 0  # the columns that read head 0
        exact = bs.Landscape(net, "cross_entropy", data).per_sample()
    assert torch.allclose(land.per_sample(moved), exact, atol=1e-5)
    assert ChainLosses(one).batched
