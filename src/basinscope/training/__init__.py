"""Training: one loop that measures on the way, can be interrupted at any moment, and branched from any checkpoint."""

from .checkpoint import load_checkpoint, save_checkpoint
from .hooks import Below, EarlyStop, Every, Flat, Measure
from .loop import branch, train
from .population import Evaluation, Member, Population
from .runs import Run, histories, matched

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
