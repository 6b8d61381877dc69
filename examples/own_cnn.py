"""A convolutional network: λ̂, and exact curvature beside its approximations."""

import torch
from sklearn.datasets import load_digits

import basinscope as bs

digits = load_digits()
x = torch.tensor(digits.images[:300] / 16, dtype=torch.float32).unsqueeze(1)
y = torch.tensor(digits.target[:300])

torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
    torch.nn.Conv2d(4, 6, 3, padding=1), torch.nn.ReLU(), torch.nn.AvgPool2d(4),
    torch.nn.Flatten(), torch.nn.Linear(6, 10),
)  # fmt: skip
optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
for _ in range(150):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(net(x), y).backward()
    optimizer.step()

land = bs.Landscape(net, "cross_entropy", (x, y))
print(land)
print(bs.llc(land, rtol=0.1, budget=10, progress=False))
print(bs.trace(land, rtol=0.1, progress=False))
for method in ("exact", "kfac", "diagonal"):
    print(f"{method:>9}:", bs.soft_rank(land, weight_decay=1e-2, matrix="fisher", method=method, progress=False))
print(
    "convolutions alone:", bs.soft_rank(land.restrict("0.*", "3.*"), weight_decay=1e-2, matrix="fisher", progress=False)
)
