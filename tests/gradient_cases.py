"""Small networks that use their weights in every way the library claims to understand."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

import basinscope as bs

Build = Callable[[torch.dtype], bs.Landscape]


class Tied(nn.Module):
    """Embedding and output layer share a weight, one layer is used twice, and a normalization stands in between."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.mix, self.norm = nn.Embedding(7, 4), nn.Linear(4, 4), nn.LayerNorm(4)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.norm(self.mix(self.mix(self.embed(tokens)).relu()).mean(1)))


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.mix(self.mix(x).tanh()).tanh())


class Transformer(nn.Module):
    """A prediction at every position, attention included."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4, padding_idx=0)
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.out(self.layer(self.embed(tokens), src_key_padding_mask=tokens == 0))


class PositionsFirst(nn.Module):
    """Its first layer sees samples along the second axis, where no rule finds them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.out = nn.Linear(4, 5), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.first(x.transpose(0, 1)).tanh().mean(0))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.out = nn.LSTM(4, 3, batch_first=True), nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.rnn(x)[0][:, -1])


class Gain(nn.Module):
    """A network with a parameter of no dimension."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(6, 3)
        self.gain = nn.Parameter(torch.tensor(1.5))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * torch.tanh(self.inner(x))


def _of(make: Callable[[], nn.Module], loss: str, inputs: Tensor, target: Tensor, **options: float) -> Build:
    def build(dtype: torch.dtype) -> bs.Landscape:
        torch.manual_seed(0)
        return bs.Landscape(make().to(dtype), loss, (inputs, target), **options)

    return build


_random = torch.Generator().manual_seed(1)
_x = torch.randn(11, 6, generator=_random)
_labels = torch.randint(3, (11,), generator=_random)
_tokens = torch.randint(7, (11, 5), generator=_random)

CASES: dict[str, Build] = {
    "relu": _of(
        lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)), "cross_entropy", _x, _labels
    ),
    "gaussian": _of(
        lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2)), "gaussian", _x, _x[:, :2], sigma=0.5
    ),
    "bernoulli": _of(
        lambda: nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 1)), "bernoulli", _x, (_x[:, 0] > 0).float()
    ),
    "convolutions": _of(
        lambda: nn.Sequential(
            nn.Conv2d(2, 4, 3, padding="same", groups=2), nn.ReLU(),
            nn.Conv2d(4, 3, 2, stride=2, padding=1, dilation=2), nn.Flatten(), nn.Linear(12, 3),
        ), "cross_entropy", torch.randn(11, 2, 4, 4, generator=_random), _labels,
    ),
    "twice": _of(Twice, "cross_entropy", _x[:, :4], _labels),
    "tied": _of(Tied, "cross_entropy", _tokens, torch.randint(7, (11,), generator=_random)),
    "transformer": _of(Transformer, "cross_entropy", _tokens, torch.randint(3, (11, 5), generator=_random)),
    "positions first": _of(
        PositionsFirst, "cross_entropy", torch.randn(11, 5, 4, generator=_random), _labels
    ),
    "recurrent": _of(Recurrent, "cross_entropy", torch.randn(11, 5, 4, generator=_random), _labels),
    "scalar": _of(Gain, "cross_entropy", _x, _labels),
    "one class": _of(lambda: nn.Linear(6, 1), "cross_entropy", _x, torch.zeros(11, dtype=torch.long)),
    "one sample": _of(lambda: nn.Linear(6, 3), "cross_entropy", _x[:1], _labels[:1]),
}  # fmt: skip
