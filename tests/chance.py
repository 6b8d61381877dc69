"""How far chance may carry a statistical test: every limit comes from one stated false-alarm probability.

The suite makes fewer than `MOST` statistical assertions. Each may fail by chance with probability at most
`FALSE_ALARM`, so that a run of the whole suite gives a false alarm with probability below one in a million, whatever
the seed.
"""

from __future__ import annotations

import math

import numpy as np
from scipy import stats

SUITE_FALSE_ALARM = 1e-6
MOST = 1000
FALSE_ALARM = SUITE_FALSE_ALARM / MOST
SAMPLED = 30  # degrees of freedom credited to a standard error that chains tell of themselves: known to an eighth


def deviations(freedom: float = math.inf, assertions: int = 1) -> float:
    """The number of standard errors that chance exceeds, on either side, with probability `FALSE_ALARM`.

    Args:
        freedom: degrees of freedom of the standard error, as in Student's t; infinite where it is known exactly.
        assertions: how many share that probability (Bonferroni).

    Examples:
        >>> round(deviations(), 2), round(deviations(30), 2)
        (6.11, 8.72)
    """
    law = stats.t(freedom) if math.isfinite(freedom) else stats.norm()
    return float(law.isf(FALSE_ALARM / (2 * assertions)))


def assert_within(value: object, truth: object, stderr: object, freedom: float = math.inf, bias: object = 0.0) -> None:
    """Assert that unbiased normal values lie as near to the truth as chance allows.

    Args:
        value: one estimate or an array of them; each counts as an assertion of its own, so the limit is widened by
            their number (Bonferroni).
        truth: what it estimates.
        stderr: its standard error.
        freedom: degrees of freedom of the standard error.
        bias: most that the estimate may be off systematically, such as a known discretization error.
    """
    value, truth, stderr, bias = np.broadcast_arrays(
        *(np.asarray(each, dtype=float) for each in (value, truth, stderr, bias))
    )
    limit = deviations(freedom, max(1, value.size))
    excess = np.abs(value - truth) - bias
    assert np.all(excess <= limit * stderr), (
        f"{value} is off {truth} by up to {np.max(excess / stderr):.1f} standard errors of {stderr}; "
        f"chance allows {limit:.1f}"
    )


def assert_share(successes: int, trials: int, probability: float) -> None:
    """Assert that a count of independent successes is one that chance allows: a binomial test on both sides.

    Args:
        successes: how many of the trials succeeded.
        trials: how many there were.
        probability: of a success, as claimed.
    """
    low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], trials, probability)
    assert low <= successes <= high, (
        f"{successes} of {trials} at probability {probability:g}; chance allows {low:.0f} to {high:.0f}"
    )
