"""Learning coefficients known in closed form: λ as a fraction, with its multiplicity θ.

The free energy of a model at sample size n is nL_n(w*) + λ log n − (θ − 1) log log n + O(1). Every function returns
the pair (λ, θ), but for `polynomial`, which may have to answer with an upper bound. `finite` holds the values λ_t that
a perfect sampler would find at finite n, which lie below λ.
"""

from . import finite
from ._checks import Coefficient
from .bounds import hessian_bounds
from .linear import deep_linear, deep_linear_local
from .mixtures import normal_mixture
from .polyhedra import newton
from .polynomials import brieskorn, curve_squared, normal_crossing, regular
from .regression import reduced_rank
from .relu import relu_kink_pair, relu_three_layer
from .rules import power_rule, product_rule, sum_rule
from .symbolic import Bound, polynomial
from .vandermonde import tanh_one_input

__all__ = [
    "Bound",
    "Coefficient",
    "brieskorn",
    "curve_squared",
    "deep_linear",
    "deep_linear_local",
    "finite",
    "hessian_bounds",
    "newton",
    "normal_crossing",
    "normal_mixture",
    "polynomial",
    "power_rule",
    "product_rule",
    "reduced_rank",
    "regular",
    "relu_kink_pair",
    "relu_three_layer",
    "sum_rule",
    "tanh_one_input",
]
