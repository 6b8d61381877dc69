"""Networks, each a plain `nn.Module` with the weights that torch's random state gives it."""

from .convolutional import lenet5
from .feedforward import deep_linear, ffnn
from .flatness import flatness_big_mlp, flatness_cnn, flatness_mlp
from .heads import head_pattern, split_heads
from .normalization import FrozenNorm, calibrate, freeze_batch_norm
from .resnet import resnet
from .transformer import transformer

__all__ = [
    "FrozenNorm",
    "calibrate",
    "deep_linear",
    "ffnn",
    "flatness_big_mlp",
    "flatness_cnn",
    "flatness_mlp",
    "freeze_batch_norm",
    "head_pattern",
    "lenet5",
    "resnet",
    "split_heads",
    "transformer",
]
