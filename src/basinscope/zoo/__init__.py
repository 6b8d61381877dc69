"""The models and the data that the studies use."""

from . import data as data
from . import models as models

__all__ = ["data", "models"]
