"""Data sets: real ones by name, checked by hash, and synthetic ones made from a seed."""

from .catalogue import names as names
from .fetching import fetch as fetch
from .loading import load as load
from .sets import DataSet as DataSet
from .shrinking import shrink as shrink
from .synthetic import deep_linear as deep_linear
from .synthetic import mixture as mixture
from .synthetic import modular_addition as modular_addition
from .synthetic import reduced_rank as reduced_rank
from .text import characters as characters
from .text import decode as decode
from .text import story as story
from .views import seven_by_seven as seven_by_seven

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
