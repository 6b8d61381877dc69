"""The models and the data that the studies use."""

from . import data, models

__all__ = ["data", "models"]
