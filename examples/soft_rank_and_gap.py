"""Does the soft rank foretell the generalization gap? Networks trained on fewer and more samples, as one program."""

import torch
from sklearn.datasets import load_digits

import basinscope as bs
from basinscope.training import Member, Population
from basinscope.zoo import models

digits = load_digits()
x = torch.tensor(digits.data / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
decay = 1e-3
sizes = (100, 200, 400, 800)
grid = [Member(seed=k, lr=0.01, weight_decay=decay, batch_size=50, subset=range(n)) for n in sizes for k in (0, 1)]
population = Population(lambda: models.ffnn([64, 8, 10]), grid, (x[:1000], y[:1000]))
population.train(400, progress=False)

print(f"{'n':>4} {'seed':>4} {'soft rank':>10} {'soft rank / n':>14} {'measured gap':>13}")
for i, member in enumerate(grid):
    land = population.landscape(i)
    rank = bs.soft_rank(land, weight_decay=decay, matrix="fisher", progress=False)
    held_out = bs.Landscape(population.model(i), "cross_entropy", (x[1000:], y[1000:]))
    gap = float(held_out.per_sample().mean() - land.per_sample().mean())
    print(f"{land.n:4d} {member.seed:4d} {rank.value:10.1f} {rank.value / land.n:14.4f} {gap:13.4f}")
