"""Linear regression with a Gaussian prior: every criterion in closed form at every temperature."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Conjugate:
    """y ~ N(x·w, s²), w ~ N(0, τ² I); the posterior at β is N(m, P)."""

    x: np.ndarray
    y: np.ndarray
    s2: float
    t2: float
    beta: float

    @property
    def covariance(self):
        return np.linalg.inv(self.beta * self.x.T @ self.x / self.s2 + np.eye(self.x.shape[1]) / self.t2)

    @property
    def mean(self):
        return self.beta * self.covariance @ self.x.T @ self.y / self.s2

    @property
    def v(self):
        return np.einsum("ij,jk,ik->i", self.x, self.covariance, self.x)

    @property
    def e(self):
        return self.y - self.x @ self.mean

    def log_moment(self, power):
        """log E_w p^power, for each observation."""
        e, v, s2 = self.e, self.v, self.s2
        return (
            -power / 2 * np.log(2 * np.pi * s2) - 0.5 * np.log1p(power * v / s2) - power * e**2 / (2 * (s2 + power * v))
        )

    @property
    def gibbs(self):
        return np.mean(0.5 * np.log(2 * np.pi * self.s2) + (self.e**2 + self.v) / (2 * self.s2))

    @property
    def bayes(self):
        return -self.log_moment(1.0).mean()

    @property
    def variances(self):
        return self.e**2 * self.v / self.s2**2 + self.v**2 / (2 * self.s2**2)

    @property
    def third(self):
        """Third cumulant of log p."""
        return -(3 * self.e**2 * self.v**2 + self.v**3) / self.s2**3

    @property
    def waic(self):
        return self.bayes + self.beta * self.variances.mean()

    @property
    def loo(self):
        return -(self.log_moment(1 - self.beta) - self.log_moment(-self.beta)).mean()

    @property
    def free_energy(self):
        """−log ∫ Π p^β φ."""
        n, d = self.x.shape
        quadratic = self.beta * self.y @ self.y / self.s2 - self.mean @ np.linalg.solve(self.covariance, self.mean)
        determinants = d * np.log(self.t2) - np.linalg.slogdet(self.covariance)[1]
        return 0.5 * (n * self.beta * np.log(2 * np.pi * self.s2) + quadratic + determinants)

    def draws(self, count, seed=0):
        """Exact posterior draws (count, d)."""
        root = np.linalg.cholesky(self.covariance)
        return self.mean + np.random.default_rng(seed).normal(size=(count, len(root))) @ root.T

    def log_likelihood(self, weights):
        """(draws, n)."""
        return -0.5 * np.log(2 * np.pi * self.s2) - (self.y - weights @ self.x.T) ** 2 / (2 * self.s2)

    def without(self, i):
        """The same regression without observation i."""
        keep = np.arange(len(self.y)) != i
        return Conjugate(self.x[keep], self.y[keep], self.s2, self.t2, self.beta)


def six(beta=1.0):
    """Six points on a line: x = −2..3, unit noise, prior variance 4."""
    x = np.stack([np.ones(6), np.arange(-2.0, 4.0)], axis=1)
    return Conjugate(x, np.array([-1.1, -0.3, 0.2, 1.4, 1.9, 3.2]), 1.0, 4.0, beta)


# β, GtL, BtL, V, WAIC, CvL, F, nE[L_n]
KNOWN = {
    1.0: (1.0981328452, 1.0695717442, 0.4427976301, 1.1433713492, 1.1537630002, 9.4710514223, 6.5887970714),
    0.5: (1.2519807834, 1.1672593851, 1.5694766127, 1.2980491028, 1.2747989621, 5.9964792538, 7.5118847006),
    1 / np.log(6): (1.2205859384, 1.1489709948, 1.2832573221, 1.2683375861, 1.2529542012, 6.4273354481, 7.3235156306),
}
