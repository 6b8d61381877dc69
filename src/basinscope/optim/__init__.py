"""Optimizers that torch does not have: natural gradient with three Fisher matrices, and Entropy-SGD."""

from .entropy import EntropySGD
from .exact import ExactNGD
from .kfac import KFAC
from .natural import NaturalGradient
from .online import OnlineNGD
from .presets import PRESETS, preset

__all__ = ["KFAC", "PRESETS", "EntropySGD", "ExactNGD", "NaturalGradient", "OnlineNGD", "preset"]
