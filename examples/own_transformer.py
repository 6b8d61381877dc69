"""A small transformer on modular addition: λ̂ of all of it, and soft ranks layer by layer."""

import torch

import basinscope as bs
from basinscope.training import train
from basinscope.zoo import data, models

addition = data.modular_addition(7, fraction=0.6, seed=0)
net = models.transformer(8, 3, layers=1, width=16, heads=2, predict="last")
run = train(
    net,
    addition.train,
    lambda net: torch.optim.AdamW(net.parameters(), lr=0.01, weight_decay=0.1),
    epochs=100,
    batch_size=64,
    progress=False,
)
land = bs.Landscape(run.model.eval(), "cross_entropy", addition.train)
print(land, "loss", round(float(land.per_sample().mean()), 4))
print(bs.llc(land, rtol=0.1, budget=10, progress=False))
layers = sorted({name.rsplit(".", 1)[0] for name in land.parameters})
for layer in layers:
    part = land.restrict(f"{layer}.*", layer)
    found = bs.soft_rank(part, weight_decay=1e-2, matrix="fisher", progress=False)
    print(f"{layer:>32}: {found.value:6.2f} of {part.dimension} directions")
