"""Step-size adaptation to a wanted acceptance rate."""

from __future__ import annotations

import math


class DualAveraging:
    """Nesterov's dual averaging of log h towards an acceptance rate (Hoffman and Gelman 2014, §3.2).

    Examples:
        >>> tuner = DualAveraging(1.0, target=0.8)
        >>> for _ in range(200):
        ...     tuner.update(acceptance=math.exp(-tuner.step_size))
        >>> round(tuner.final, 1)
        0.2
    """

    def __init__(self, step_size: float, target: float) -> None:
        self._centre = math.log(3 * step_size)
        self._target = target
        self._count = 0
        self._error = 0.0
        self._log_mean = 0.0
        self.step_size = step_size

    def update(self, acceptance: float) -> None:
        """Take in the mean acceptance of one step."""
        self._count += 1
        weight = 1 / (self._count + 10)
        self._error = (1 - weight) * self._error + weight * (self._target - acceptance)
        log_step = self._centre - math.sqrt(self._count) / 0.05 * self._error
        decay = self._count**-0.75
        self._log_mean = decay * log_step + (1 - decay) * self._log_mean
        self.step_size = math.exp(log_step)

    @property
    def final(self) -> float:
        """The averaged step size, to be used after warm-up."""
        return math.exp(self._log_mean)
