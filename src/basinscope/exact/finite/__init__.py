"""Exact values at finite sample size: what a perfect sampler of the local posterior would report.

With t = nβ and the posterior density ∝ exp(−tK(w)) φ(w), the estimator of the learning coefficient has the mean
λ_t = E[tK], which tends to λ as t grows, like λ − (θ − 1)/log t when the multiplicity exceeds one. The companions
`*_heat_capacity` give t²Var[K] = λ_t − t dλ_t/dt, which estimates λ without knowing K at the minimum. `covariance`
and `monomial_mean` give covariances of other observables, which influence functions and susceptibilities estimate.

Localised posteriors have φ ∝ exp(−γ‖w‖²/2) around the point w* = 0.
"""

from .chains import matrix_chain, matrix_chain_heat_capacity
from .closed_forms import hyperbola, hyperbola_heat_capacity, quadratic, quadratic_heat_capacity
from .covariances import Observable, covariance
from .matrices import matrix_product, matrix_product_heat_capacity
from .monomials import (
    monomial,
    monomial_heat_capacity,
    monomial_localized,
    monomial_localized_heat_capacity,
    monomial_mean,
)

__all__ = [
    "Observable",
    "covariance",
    "hyperbola",
    "hyperbola_heat_capacity",
    "matrix_chain",
    "matrix_chain_heat_capacity",
    "matrix_product",
    "matrix_product_heat_capacity",
    "monomial",
    "monomial_heat_capacity",
    "monomial_localized",
    "monomial_localized_heat_capacity",
    "monomial_mean",
    "quadratic",
    "quadratic_heat_capacity",
]
