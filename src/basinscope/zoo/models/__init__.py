"""Networks, each a plain `nn.Module` with the weights that torch's random state gives it."""

from .convolutional import lenet5 as lenet5
from .feedforward import deep_linear as deep_linear
from .feedforward import ffnn as ffnn
from .flatness import flatness_big_mlp as flatness_big_mlp
from .flatness import flatness_cnn as flatness_cnn
from .flatness import flatness_mlp as flatness_mlp
from .heads import head_pattern as head_pattern
from .heads import split_heads as split_heads
from .normalization import FrozenNorm as FrozenNorm
from .normalization import calibrate as calibrate
from .normalization import freeze_batch_norm as freeze_batch_norm
from .resnet import resnet as resnet
from .transformer import transformer as transformer

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
