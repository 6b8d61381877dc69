"""Networks, each a plain `nn.Module` with the weights that torch's random state gives it."""

from typing import Any

from ...deprecated import warn_renamed
from .convolutional import convnet, lenet5
from .feedforward import deep_linear, ffnn
from .normalization import FrozenNorm, calibrate, freeze_batch_norm
from .resnet import resnet
from .transformer import transformer

__all__ = [
    "FrozenNorm",
    "calibrate",
    "convnet",
    "deep_linear",
    "ffnn",
    "freeze_batch_norm",
    "lenet5",
    "resnet",
    "transformer",
]

# Networks of a study by their former names: what each is called now, and how it is made.
_FORMER = {
    "flatness_mlp": ("ffnn([49, width, 10])", lambda width=70: ffnn([49, width, 10])),
    "flatness_big_mlp": ("ffnn([49, width, width, 10])", lambda width=70: ffnn([49, width, width, 10])),
    "flatness_cnn": ("convnet([1, *channels, 10])", lambda channels=(15, 20): convnet([1, *channels, 10])),
}


def __getattr__(name: str) -> Any:
    if name not in _FORMER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    now, build = _FORMER[name]
    warn_renamed(name, now)
    return build
