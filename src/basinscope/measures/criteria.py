"""All criteria of model selection side by side."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import InputError
from ..estimates import Estimate
from ..landscape import Landscape
from ..progress import tracked
from ..sampling.calibration import resolution
from . import loo, waic
from .evidence import MEMORY, Asked, Evidence, gather, temperature
from .free_energy import free_energy
from .pointwise import Pointwise
from .posterior_statistic import posterior_statistic
from .tic import tic
from .wbic import wbic

# Loss per sample on new data, as each criterion predicts it; free energy in nats; what draws say of themselves.
PREDICTIVE = ("waic", "loo", "aic", "tic")
EVIDENCE = ("bic", "wbic", "free_energy")
DRAWS = ("bayes_training_loss", "gibbs_training_loss", "functional_variance", "fluctuation", "y1", "y2", "y3")
OF_A_LANDSCAPE = ("aic", "tic", *EVIDENCE)


@dataclass(frozen=True)
class Criteria(Mapping[str, Estimate]):
    """Estimates by name, in the order in which they were asked for.

    Examples:
        >>> import numpy as np, basinscope as bs
        >>> table = bs.criteria(np.random.default_rng(0).normal(-1.0, 0.1, size=(4, 500, 20)))
        >>> list(table)[:2], round(table["waic"].value, 2), table.fluctuation.verdict
        (['waic', 'loo'], 1.0, 'ok')
    """

    estimates: Mapping[str, Estimate]

    def __getitem__(self, name: str) -> Estimate:
        return self.estimates[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.estimates)

    def __len__(self) -> int:
        return len(self.estimates)

    def __getattr__(self, name: str) -> Estimate:
        try:
            return self.__dict__["estimates"][name]
        except KeyError:
            raise AttributeError(f"no criterion {name!r} here: there are {', '.join(self.estimates)}") from None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain Python values, ready for JSON."""
        return {name: estimate.to_dict() for name, estimate in self.items()}

    def __str__(self) -> str:
        return "\n".join(str(estimate) for estimate in self.values())

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{estimate.value:.6g}</td><td>{estimate.stderr:.2g}</td>"
            f"<td title='{html.escape(' '.join(estimate.warnings))}'>{estimate.verdict}</td></tr>"
            for name, estimate in self.items()
        )
        return f"<table><tr><th>criterion</th><th>value</th><th>± draws</th><th>verdict</th></tr>{rows}</table>"


def criteria(
    source: Any,
    *,
    only: Sequence[str] | None = None,
    nbeta: float | None = None,
    memory: float = MEMORY,
    gamma: float | None = None,
    sampler: str = "auto",
    chains: int | None = None,
    draws: int | None = None,
    batch_size: int | None = None,
    rtol: float = 0.02,
    budget: float = 60.0,
    seed: int = 0,
    progress: bool = True,
    beta: float | None = None,
) -> Criteria:
    """Every criterion, from one set of draws as far as draws decide it.

    Predicted loss per sample on new data:

        waic  BtL + (β/n) V                  loo  −(1/n) Σ_i log E[p_i^(1−β)]/E[p_i^(−β)], Pareto-smoothed
        aic   L_n(w*) + d/n                  tic  L_n(w*) + (1/n) Tr(C H_Λ⁻¹), Λ = γ/(nβ)

    Free energy in nats:

        bic   n L_n(w*) + (d/2) log n        wbic  E[n L_n(w)] at β = 1/log n
        free_energy  ∫₀¹ E_b[n L_n(w)] db

    And of the draws: bayes_training_loss, gibbs_training_loss, functional_variance V, fluctuation ν̂ = βV/2, and y1, y2,
    y3, the mean cumulants of −log p. AIC and BIC count every parameter; they hold at a minimum of a regular model.

    Args:
        source: a landscape, or log-likelihoods (draws, n) or (chains, draws, n); the latter leave out aic, tic, bic,
            wbic and free_energy.
        only: names of the criteria to compute; all unless given.
        nbeta: inverse temperature nβ of the draws; n unless given, so that β = 1. Its former name is `beta`, for β.
        memory: bytes that the smoothing of loo may take.
        gamma: localisation γ, the same for all; d/‖w*‖² unless given.
        budget: most work of the draws, of wbic and of free_energy each, in seconds.
        sampler, chains, draws, batch_size, rtol, seed, progress: as for `waic`.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> land = bs.Landscape(torch.nn.Linear(2, 1), "gaussian", (x, x[:, :1]), sigma=1.0)
        >>> table = bs.criteria(land, only=["waic", "aic", "bic"], budget=2.0)
        >>> list(table), table.aic.stderr
        (['waic', 'aic', 'bic'], 0.0)
    """
    land = source if isinstance(source, Landscape) else None
    names = _names(only, land)
    asked = Asked(temperature(source, nbeta, beta), gamma, sampler, chains, draws, batch_size, rtol, budget, seed)
    estimates: dict[str, Estimate] = {}
    if any(name in DRAWS or name in ("waic", "loo") for name in names):
        with tracked("criteria", progress) as report:
            evidence = gather(source, asked, report, memory=memory if "loo" in names else None)
        estimates |= _of_draws(evidence, names)
    if land is not None:
        estimates |= _of_landscape(land, asked, names, progress)
    return Criteria({name: estimates[name] for name in names})


def _names(only: Sequence[str] | None, land: Landscape | None) -> list[str]:
    all_names = [*PREDICTIVE, *EVIDENCE, *DRAWS]
    possible = all_names if land is not None else [name for name in all_names if name not in OF_A_LANDSCAPE]
    if only is None:
        return possible
    if isinstance(only, str) or not all(name in all_names for name in only):
        raise InputError(f"only must list names among {', '.join(all_names)}, got {only!r}")
    missing = [name for name in only if name not in possible]
    if missing:
        raise InputError(
            f"{', '.join(missing)} need a landscape, got log-likelihoods at draws — pass bs.Landscape(...)"
        )
    return list(only)


def _of_draws(evidence: Evidence, names: Sequence[str]) -> dict[str, Estimate]:
    statistics = {
        "bayes_training_loss": lambda pooled: pooled.bayes_training_loss,
        "gibbs_training_loss": lambda pooled: pooled.gibbs_training_loss,
        "functional_variance": lambda pooled: pooled.functional_variance,
        "fluctuation": lambda pooled: pooled.fluctuation,
        **{f"y{k + 1}": _cumulant(k) for k in range(3)},
    }
    estimates = {
        name: posterior_statistic(name, evidence, statistic) for name, statistic in statistics.items() if name in names
    }
    if "waic" in names:
        estimates["waic"] = waic.from_evidence(evidence)
    if "loo" in names:
        estimates["loo"] = loo.from_evidence(evidence)
    return estimates


def _cumulant(order: int) -> Any:
    def statistic(pooled: Pointwise) -> float:
        return pooled.cumulants[order]

    return statistic


def _of_landscape(land: Landscape, asked: Asked, names: Sequence[str], progress: bool) -> dict[str, Estimate]:
    loss, d, n = float(land.per_sample().mean()), land.dimension, land.n
    common = {"n": n, "dimension": d, "loss": loss}
    estimates: dict[str, Estimate] = {
        "aic": Estimate("aic", loss + d / n, 0.0, diagnostics=common),
        "bic": Estimate("bic", n * loss + 0.5 * d * math.log(n), 0.0, diagnostics=common),
    }
    shared: dict[str, Any] = {"gamma": asked.gamma, "sampler": asked.sampler, "chains": asked.chains}
    work: dict[str, Any] = {"rtol": asked.rtol, "budget": asked.budget, "seed": asked.seed, "progress": progress}
    if "tic" in names:
        estimates["tic"] = _takeuchi(land, asked, loss, progress)
    if "wbic" in names:
        estimates["wbic"] = wbic(land, batch_size=asked.batch_size, **shared, **work)
    if "free_energy" in names:
        estimates["free_energy"] = free_energy(land, **shared, **work)
    return estimates


def _takeuchi(land: Landscape, asked: Asked, loss: float, progress: bool) -> Estimate:
    decay = resolution(land, asked.beta * land.n, asked.gamma)
    has_density = land.loss.family != "custom" or land.loss.sample is not None
    gap = tic(
        land,
        weight_decay=decay.gamma / decay.nbeta,
        matrix="fisher" if has_density else "hessian",
        seed=asked.seed,
        progress=progress,
    )
    return replace(gap, value=loss + gap.value, diagnostics={**gap.diagnostics, "gap": gap.value}, bounds=None)
