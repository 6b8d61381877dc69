"""Train a small network of one's own on handwritten digits, then ask how complex it is."""

import torch
from sklearn.datasets import load_digits

import basinscope as bs

digits = load_digits()
x = torch.tensor(digits.data[:300] / 16, dtype=torch.float32)
y = torch.tensor(digits.target[:300])

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(64, 4), torch.nn.Tanh(), torch.nn.Linear(4, 10))
optimizer = torch.optim.Adam(net.parameters(), lr=0.02, weight_decay=1e-3)
for _ in range(300):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()

land = bs.Landscape(net, "cross_entropy", (x, y))
print(land)
llc = bs.llc(land, rtol=0.1, budget=0.5, progress=False)
print(llc, "at nβ =", round(llc.diagnostics["nbeta"], 1), "and γ =", round(llc.diagnostics["gamma"], 2))
for reason in llc.warnings:
    print("  ", reason)
resolution = llc.diagnostics["gamma"] / llc.diagnostics["nbeta"]
half = bs.soft_rank(land, weight_decay=resolution, matrix="hessian", progress=False).value / 2
print(f"half the soft rank at the same resolution: {half:.1f} of at most {land.dimension / 2:.0f}")
print("first layer alone:", bs.soft_rank(land.restrict("0.*"), weight_decay=resolution, progress=False))
