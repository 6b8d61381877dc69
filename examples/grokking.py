"""λ̂ and soft rank through grokking: modular addition is learned by heart first, and understood much later."""

import torch

import basinscope as bs
from basinscope.training import Every, Measure, train
from basinscope.zoo import data

MODULUS = 11
addition = data.modular_addition(MODULUS, fraction=0.8, seed=0)


class Square(torch.nn.Module):
    def forward(self, x):
        return x.square()


def one_hot(pair):
    tokens, sums = pair
    return torch.nn.functional.one_hot(tokens[:, :2], MODULUS).flatten(1).float(), sums


torch.manual_seed(0)
net = torch.nn.Sequential(
    torch.nn.Linear(2 * MODULUS, 32, bias=False), Square(), torch.nn.Linear(32, MODULUS, bias=False)
)
run = train(
    net,
    one_hot(addition.train),
    lambda net: torch.optim.AdamW(net.parameters(), lr=0.01, betas=(0.9, 0.98), weight_decay=1.0),
    epochs=1600,
    batch_size=len(addition.train[1]),
    validation=one_hot(addition.test),
    record=Every(epochs=400, start=True),
    measures=[
        Measure(bs.soft_rank, Every(epochs=400), options={"weight_decay": 0.01}),
        Measure(bs.llc, Every(epochs=400), options={"gamma": 10.0, "rtol": 0.2, "budget": 0.1}),
    ],
    progress=False,
)
columns = ["epoch", "train_loss", "validation_loss", "soft_rank", "llc", "llc_stderr"]
print(run.history[columns].round(3).to_string(index=False, na_rep=""))
