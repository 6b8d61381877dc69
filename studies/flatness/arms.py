"""The arms of the study: which decays, inputs and learning rates the networks of one grid of 1,701 have."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Arm:
    """A grid.

    Attributes:
        decays: n times the weight decay.
        inputs: `raw` for pixels in [0, 1], `standardized` for those less their mean, over their standard deviation.
        schedule: `constant` learning rates, or `cosine` for rates that fall to zero, after which networks are polished
            to a minimum.
    """

    decays: tuple[float, ...]
    inputs: str = "raw"
    schedule: str = "constant"

    @property
    def training(self) -> tuple[str, str]:
        """What the networks of one population have in common."""
        return (self.inputs, self.schedule)


# The printed list has 1e5 and no 1e3. Divided by 100 and by 1,000 it shares networks with itself: raw inputs need the
# eleven decays 1e-5 … 1e5 in all, each trained once.
PRINTED = (1e-2, 1e-1, 1.0, 1e1, 1e2, 1e4, 1e5)
ARMS = {
    "printed": Arm(PRINTED),
    "standardized": Arm(PRINTED, inputs="standardized"),
    "hundredth": Arm((1e-4, 1e-3, 1e-2, 1e-1, 1.0, 1e2, 1e3)),
    "thousandth": Arm((1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e1, 1e2)),
    "annealed": Arm(PRINTED, inputs="standardized", schedule="cosine"),
    "hole-free": Arm((1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1e4)),
}


def select(table: pd.DataFrame, name: str) -> pd.DataFrame:
    """The rows of an arm. An arm may share networks with others."""
    arm = ARMS[name]
    chosen = (table["inputs"] == arm.inputs) & (table["schedule"] == arm.schedule) & table["decay"].isin(arm.decays)
    return table[chosen].reset_index(drop=True)
