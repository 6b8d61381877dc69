"""The errors of a posterior, relative to the truth: Bayes, Gibbs and leave-one-out."""

from __future__ import annotations

import numpy as np

from studies.common.integration.cases import Case, Posterior

Array = np.ndarray


def errors(case: Case, x: Array, y: Array, beta: float, fineness: float = 1.0) -> dict[str, float]:
    """n times every error.

    With p* = E_w[p(·|w)], L the mean over new data and L_n the mean over those seen:

        Bg = −L[log p*/p₀]           Gg = −L[E_w log p/p₀]
        Bt = −L_n[log p*/p₀]         Gt = −L_n[E_w log p/p₀]
        Cv = −L_n[log E_w[p^(1−β)]/E_w[p^(−β)]/p₀]      V = n L_n[Var_w log p]
    """
    posterior = case.integrate(x, y, beta, fineness)
    bayes, gibbs = _generalization(case, posterior, fineness)
    n, truth = len(x), case.log_truth(x, y)
    mean, variance = posterior.log_moments(x, y)
    seen = posterior.log_mean_power(1.0, x, y) - truth
    rest = posterior.log_mean_power(1 - beta, x, y) if beta != 1 else np.zeros(n)
    left_out = rest - posterior.log_mean_power(-beta, x, y) - truth
    return {
        "Bg": n * bayes,
        "Bt": -float(seen.sum()),
        "Cv": -float(left_out.sum()),
        "Gg": n * gibbs,
        "Gt": -float((mean - truth).sum()),
        "V": float(variance.sum()),
    }


def _generalization(case: Case, posterior: Posterior, fineness: float) -> tuple[float, float]:
    x, y, weights = case.truth(fineness)
    truth = case.log_truth(x, y)
    bayes = posterior.log_mean_power(1.0, x, y) - truth
    gibbs = posterior.log_moments(x, y)[0] - truth
    return -float(weights @ bayes), -float(weights @ gibbs)
