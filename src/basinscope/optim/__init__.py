"""Optimizers that torch does not have: natural gradient with three Fisher matrices, and Entropy-SGD."""

from .entropy import EntropySGD as EntropySGD
from .exact import ExactNGD as ExactNGD
from .kfac import KFAC as KFAC
from .natural import NaturalGradient as NaturalGradient
from .online import OnlineNGD as OnlineNGD
from .presets import PRESETS as PRESETS
from .presets import preset as preset

__all__ = ["KFAC", "PRESETS", "EntropySGD", "ExactNGD", "NaturalGradient", "OnlineNGD", "preset"]
