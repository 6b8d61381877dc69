"""What a job measures: the coin's laws, ν̂ on minibatches beside all samples, or flat directions beside λ̂."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn

import basinscope as bs
from basinscope.measures.fluctuation import Visits
from basinscope.measures.pointwise import Stream

from . import coin

Row = dict[str, Any]


def laws(kind: str, n: int, beta: float) -> Row:
    """n E[Bg], n E[Bt], n E[Gg], n E[Gt], E[V] and n(Bg + Cv) of the coin; and how far CvL and WAIC are apart."""
    return asdict(coin.means(kind, n, beta))


def digits(width: int = 16, steps: int = 400) -> bs.Landscape:
    """A network 64-width-10 trained on scikit-learn's digits to a minimum with a little weight decay."""
    x, y = load_digits(return_X_y=True)
    inputs, target = torch.tensor(x / 16, dtype=torch.float32), torch.tensor(y)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, width), nn.Tanh(), nn.Linear(width, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01, weight_decay=1e-4)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(inputs), target).backward()
        optimizer.step()
    return bs.Landscape(net, "cross_entropy", (inputs, target))


def fluctuation(beta: float, shares: Sequence[int], draws: int, seed: int) -> list[Row]:
    """ν̂ on m = n/share samples per draw, beside ν̂ of the same draws on all samples."""
    land = digits()
    chains = 16
    post = bs.posterior(
        land, nbeta=beta * land.n, gamma=10.0, sampler="hmc", chains=chains, budget=bs.Nominal(5.0), seed=seed,
        progress=False,
    )  # fmt: skip
    stream = Stream(land.n, beta=beta, groups=chains)
    parts = {size: Visits(chains, land.n, size, seed) for size in (math.ceil(land.n / share) for share in shares)}
    for delta, _ in post.draws(draws):
        losses = post.sampler.losses.per_sample(delta)
        stream.add(-losses)
        for part in parts.values():
            indices = part.next()
            part.add(indices, (losses - post.sampler.losses.base).gather(1, indices))
    full, error = stream.estimate(lambda each: each.fluctuation)
    rows = []
    for size, part in parts.items():
        value = 0.5 * beta * part.variance()
        left = [part.variance(np.delete(np.arange(chains), g)) for g in range(chains)]
        rows.append(
            {
                "samples": size, "of": land.n, "visits": draws * chains * size / land.n, "value": value,
                "stderr": 0.5 * beta * math.sqrt((chains - 1) * np.var(left)), "full": full, "full_stderr": error,
                "off": value / full - 1,
            }
        )  # fmt: skip
    return rows


ACTIVATIONS = {"relu": nn.ReLU, "linear": nn.Identity, "silu": nn.SiLU}


def symmetries(network: str, seed: int) -> Row:
    """Flat directions proved, the bound they give, and λ̂, for a network such as `relu 1-3-1` that is its own truth."""
    activation, _, layout = network.partition(" ")
    widths = [int(width) for width in layout.split("-")]
    generator = torch.Generator().manual_seed(seed)
    layers: list[nn.Module] = []
    for inner, outer in pairwise(widths):
        layers += [nn.Linear(inner, outer), ACTIVATIONS[activation]()]
    net = nn.Sequential(*layers[:-1]).double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=torch.float64))
        x = torch.randn(1000, widths[0], generator=generator, dtype=torch.float64)
        y = net(x)
    land = bs.Landscape(net, "mse", (x, y))
    llc = bs.llc(land, nbeta=1e4, gamma=1.0, rtol=0.05, budget=bs.Nominal(30.0), progress=False)
    result = bs.symmetries(land, llc=llc)
    return {
        "parameters": land.dimension,
        **{kind: result.kinds.get(kind, 0) for kind in ("rescaling", "mixing", "idle")},
        "flat": result.count, "residual": result.residual, "bound": result.bound, "llc": llc.value,
        "llc_stderr": llc.stderr, "verdict": llc.verdict,
    }  # fmt: skip
