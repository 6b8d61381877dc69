"""Data sets: real ones by name, checked by hash, and synthetic ones made from a seed."""

from .catalogue import names
from .fetching import fetch
from .loading import load, seven_by_seven, shrink
from .sets import DataSet
from .synthetic import deep_linear, mixture, modular_addition, reduced_rank
from .text import characters, decode, story

__all__ = [
    "DataSet",
    "characters",
    "decode",
    "deep_linear",
    "fetch",
    "load",
    "mixture",
    "modular_addition",
    "names",
    "reduced_rank",
    "seven_by_seven",
    "shrink",
    "story",
]
