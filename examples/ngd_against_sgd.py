"""Natural gradient against SGD from the same start: which basin does each end in?"""

import torch
from sklearn.datasets import load_digits

import basinscope as bs
from basinscope.training import train

digits = load_digits()
x = torch.tensor(digits.data / 16, dtype=torch.float32)
y = torch.tensor(digits.target)
net = torch.nn.Sequential(torch.nn.Linear(64, 12), torch.nn.Tanh(), torch.nn.Linear(12, 10))
optimizers = {
    "SGD": lambda net: torch.optim.SGD(net.parameters(), lr=0.3),
    "NGD": lambda net: bs.optim.KFAC(net, lr=0.05),
}
print(f"{'':>4} {'train':>8} {'test':>8} {'soft rank':>10} {'predicted gap':>14} {'measured gap':>13}")
for name, build in optimizers.items():
    run = train(
        net, (x[:1000], y[:1000]), build, epochs=15, batch_size=100, validation=(x[1000:], y[1000:]), progress=False
    )
    last = run.history.iloc[-1]
    land = bs.Landscape(run.model.eval(), "cross_entropy", (x[:1000], y[:1000]))
    rank = bs.soft_rank(land, weight_decay=1e-3, matrix="fisher", progress=False)
    gap = bs.gap(land, weight_decay=1e-3, method="soft_rank", progress=False)
    seen = last["validation_loss"] - last["train_loss"]
    losses = f"{last['train_loss']:8.4f} {last['validation_loss']:8.4f}"
    print(f"{name:>4} {losses} {rank.value:10.1f} {gap.value:14.4f} {seen:13.4f}  prediction {gap.verdict}")
