"""Mean and variance of tK, and the mass of the posterior, from a Mellin–Barnes integral over the moments of K."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

# A trapezoidal sum with step h on a line at distance δ from the nearest pole errs by exp(−2πδ/h): here exp(−40).
LOG_ACCURACY = 40.0


def moments(log_moment: Callable[[Any], Any], strip: float, log_t: float) -> tuple[float, float]:
    """E[tK] and t²Var[K] of the density ∝ exp(−tK)φ, given log E_φ[K^(−s)], analytic for 0 < Re s < strip.

    E_φ[(tK)^j exp(−tK)] = (1/2πi) ∫ Γ(s + j) t^(−s) E_φ[K^(−s)] ds, hence E[tK] is the mean of s under the weight of
    the integral at j = 0, and E[(tK)²] that of s(s + 1).
    """
    s, weight, _ = _line(log_moment, strip, log_t)
    total = weight.real.sum()
    mean = float((s * weight).real.sum() / total)
    return mean, float((s * (s + 1) * weight).real.sum() / total) - mean**2


def log_mass(log_moment: Callable[[Any], Any], strip: float, log_t: float) -> float:
    """log E_φ[exp(−tK)], by the integral of `moments`."""
    _, weight, log_scale = _line(log_moment, strip, log_t)
    return log_scale + math.log(weight.real.sum())


def _line(log_moment: Callable[[Any], Any], strip: float, log_t: float) -> tuple[Any, Any, float]:
    """Points s on the upper half of the line of integration, their weights, and the log of what scales these.

    The line runs through the saddle point, where the integrand does not oscillate; Γ makes it decay like
    exp(−π|Im s|/2), so that a trapezoidal sum is exact to rounding.
    """
    import numpy as np
    from scipy.optimize import minimize_scalar
    from scipy.special import loggamma

    def exponent(s: Any) -> Any:
        return loggamma(s) - s * log_t + log_moment(s)

    saddle = minimize_scalar(exponent, bounds=(0, strip), method="bounded", options={"xatol": 1e-4 * strip})
    center = float(saddle.x)
    step = 2 * math.pi * min(center, strip - center) / LOG_ACCURACY
    s = center + 1j * np.arange(0, LOG_ACCURACY + 4 * center, step)
    weight = np.exp(exponent(s) - saddle.fun)
    weight[0] /= 2  # the lower half of the line is the complex conjugate of the upper one
    return s, weight, float(saddle.fun) + math.log(step / math.pi)
