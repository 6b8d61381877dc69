"""Predictive accuracies in ArviZ's own form, for its tables and plots."""

from __future__ import annotations

import math
from typing import Any

from ..errors import InputError
from ..estimates import Estimate


def elpd(estimate: Estimate) -> Any:
    """An `ELPDData` of a `waic` or `loo` estimate, as `arviz_stats.compare` and `arviz_plots.plot_khat` take it.

    elpd = −n·value on the log scale, with its standard error over observations.

    Examples:
        >>> import numpy as np, basinscope as bs
        >>> rows = np.random.default_rng(0).normal(-1.0, 0.1, size=(4, 100, 5))
        >>> data = elpd(bs.loo(rows))
        >>> data.kind, round(data.elpd, 1), data.n_data_points
        ('loo', -5.0, 5)
    """
    diagnostics = estimate.diagnostics
    if estimate.name not in ("waic", "loo") or "pointwise" not in diagnostics:
        raise InputError(f"elpd takes an estimate of bs.waic or bs.loo, got {estimate.name!r}")
    try:
        import xarray
        from arviz_stats.utils import ELPDData
    except ImportError as error:
        raise InputError("ArviZ objects need arviz-stats and xarray — install basinscope[arviz]") from error

    def labelled(values: Any) -> Any:
        return xarray.DataArray(values, dims=["observation"])

    terms, n = diagnostics["pointwise"][estimate.name], diagnostics["n"]
    shape = diagnostics["pointwise"].get("shape")
    shapes: Any = None if shape is None else labelled(shape)
    return ELPDData(
        kind=estimate.name,
        elpd=-n * estimate.value,
        se=n * diagnostics["sampling_stderr"],
        p=n * (estimate.value - diagnostics["bayes_training_loss"]),
        n_samples=diagnostics["chains"] * diagnostics["draws"],
        n_data_points=n,
        scale="log",
        warning=estimate.verdict != "ok",
        good_k=diagnostics.get("reliable_shape", math.nan),
        elpd_i=labelled(-terms),
        pareto_k=shapes,
    )
