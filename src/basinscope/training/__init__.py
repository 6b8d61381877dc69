"""Training: one loop that measures on the way, can be interrupted at any moment, and branched from any checkpoint."""

from .branch import branch as branch
from .checkpoint import load_checkpoint as load_checkpoint
from .checkpoint import save_checkpoint as save_checkpoint
from .hooks import Below as Below
from .hooks import EarlyStop as EarlyStop
from .hooks import Every as Every
from .hooks import Flat as Flat
from .hooks import Measure as Measure
from .loop import train as train
from .matching import matched as matched
from .population import Evaluation as Evaluation
from .population import Member as Member
from .population import Population as Population
from .runs import Run as Run
from .runs import histories as histories

__all__ = [
    "Below",
    "EarlyStop",
    "Evaluation",
    "Every",
    "Flat",
    "Measure",
    "Member",
    "Population",
    "Run",
    "branch",
    "histories",
    "load_checkpoint",
    "matched",
    "save_checkpoint",
    "train",
]
