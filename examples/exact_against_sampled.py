"""λ known in closed form beside λ̂ measured by sampling, for linear networks whose basin is singular."""

import torch

import basinscope as bs
from basinscope.zoo import models

generator = torch.Generator().manual_seed(0)
print(f"{'widths':>12} {'rank':>4} {'λ':>8} {'d/2':>6}   λ̂")
for widths, rank in (([4, 4], 4), ([5, 3, 5], 3)):
    x = torch.randn(1000, widths[0], generator=generator, dtype=torch.float64)
    net = models.deep_linear(widths).double()
    with torch.no_grad():  # a point of the solution set: identities of the given rank
        for layer in net:
            layer.weight.zero_()
            layer.weight[:rank, :rank] = torch.eye(rank)
    land = bs.Landscape(net, "mse", (x, net(x).detach()))
    exact, multiplicity = bs.exact.deep_linear(widths, rank)
    found = bs.llc(land, nbeta=1e6, gamma=1.0, rtol=0.03, budget=1, progress=False)
    print(f"{widths!s:>12} {rank:4d} {float(exact):8.2f} {land.dimension / 2:6.1f}   {found}")
