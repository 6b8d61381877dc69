"""All criteria of model selection side by side."""

from __future__ import annotations

import html
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack

from ..errors import InputError
from ..estimates import Estimate
from ..landscape import Landscape
from ..progress import tracked
from ..sampling.calibration import Resolution, resolution
from ..verdict import Verdict, worst_of
from . import loo, waic
from .evidence import Evidence, gather, temperature
from .free_energy import free_energy
from .pointwise import Pointwise
from .posterior import MEMORY, Posterior, landscape_of, refuse_plain
from .posterior_statistic import posterior_statistic
from .settings import Sampling, checked, refuse_settings, takes_settings
from .tic import tic
from .wbic import is_watanabe, wbic

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

    @property
    def verdict(self) -> Verdict:
        """The worst of all criteria."""
        return worst_of(self.estimates.values())

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


@takes_settings
def criteria(
    source: Any,
    *,
    only: Sequence[str] | None = None,
    memory: float = MEMORY,
    progress: bool = True,
    beta: float | None = None,
    **settings: Unpack[Sampling],
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
        source: a landscape, its `posterior`, or log-likelihoods (draws, n) or (chains, draws, n). The last leave out
            aic, tic, bic, wbic and free_energy; a posterior gives wbic if it is at nβ = n/log n, and free_energy, which
            takes chains at other temperatures too, where it is asked for.
        only: names of the criteria to compute; all that there can be unless given.
        memory: bytes that the smoothing of loo may take.
        progress: show a bar when it takes over a second.
        beta: former name of `nbeta`, for β.
        settings: as for `waic`; `gamma` is the same for all, and `budget` that of the draws, of wbic and of free_energy
            each.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
        >>> land = bs.Landscape(torch.nn.Linear(2, 1), "gaussian", (x, x[:, :1]), sigma=1.0)
        >>> table = bs.criteria(land, only=["waic", "aic", "bic"], budget=2.0)
        >>> list(table), table.aic.stderr
        (['waic', 'aic', 'bic'], 0.0)
    """
    at = temperature(source, settings.get("nbeta"), beta)
    names = _names(only, source)
    estimates: dict[str, Estimate] = {}
    if any(name in DRAWS or name in ("waic", "loo") for name in names):
        with tracked("criteria", progress) as report:
            evidence = gather(source, at, settings, report, memory=memory if "loo" in names else None)
        estimates |= _of_draws(evidence, names)
    if isinstance(source, (Landscape, Posterior)):
        estimates |= _of_landscape(source, at, settings, names, progress)
    return Criteria({name: estimates[name] for name in names})


def _names(only: Sequence[str] | None, source: Any) -> list[str]:
    all_names = possible = [*PREDICTIVE, *EVIDENCE, *DRAWS]
    if not isinstance(source, (Landscape, Posterior)):
        possible = [name for name in all_names if name not in OF_A_LANDSCAPE]
    if only is None:
        if not isinstance(source, Posterior):
            return possible
        elsewhere = {"free_energy"} if is_watanabe(source.land.n, source.nbeta) else {"free_energy", "wbic"}
        return [name for name in possible if name not in elsewhere]
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


def _of_landscape(
    source: Landscape | Posterior, beta: float, settings: Sampling, names: Sequence[str], progress: bool
) -> dict[str, Estimate]:
    land = landscape_of(source)
    loss, d, n = float(land.per_sample().mean()), land.dimension, land.n
    common = {"n": n, "dimension": d, "loss": loss}
    estimates: dict[str, Estimate] = {
        "aic": Estimate("aic", loss + d / n, 0.0, diagnostics=common),
        "bic": Estimate("bic", n * loss + 0.5 * d * math.log(n), 0.0, diagnostics=common),
    }
    if isinstance(source, Posterior):
        refuse_settings(settings, "a posterior sampled already")
        at, seed = source.outcome.at, source.settings.seed
    else:
        _, gamma, chosen = checked({**settings, "draws": None})
        refuse_plain(chosen.sampler)
        at, seed = resolution(land, beta * land.n, gamma), chosen.seed
    others = Sampling(**{name: value for name, value in settings.items() if name not in ("nbeta", "draws")})  # type: ignore
    if "tic" in names:
        estimates["tic"] = _takeuchi(land, at, seed, loss, progress)
    if "wbic" in names:
        estimates["wbic"] = wbic(source, progress=progress, **others)
    if "free_energy" in names:
        estimates["free_energy"] = free_energy(source, progress=progress, **others)
    return estimates


def _takeuchi(land: Landscape, decay: Resolution, seed: int, loss: float, progress: bool) -> Estimate:
    has_density = land.loss.family != "custom" or land.loss.sample is not None
    gap = tic(
        land,
        weight_decay=decay.gamma / decay.nbeta,
        matrix="fisher" if has_density else "hessian",
        seed=seed,
        progress=progress,
    )
    return replace(gap, value=loss + gap.value, diagnostics={**gap.diagnostics, "gap": gap.value}, bounds=None)
