"""How the posterior of each part of a network responds to each change of the data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, Unpack

import numpy as np
import torch

from ..errors import InputError
from ..estimates import Check
from ..landscape import Landscape, check_landscape
from ..progress import tracked
from ..sampling.calibration import resolution
from ..sampling.chains import ChainLosses
from .checks import check_draws
from .covariances import Covariances, Sums
from .evidence import posterior_for_draws
from .observables import Observable, Walk
from .posterior import MEMORY
from .settings import Sampling, takes_settings
from .virial_control import VirialControl


@takes_settings
def susceptibilities(
    land: Landscape,
    parts: Mapping[str, Any],
    probes: Any,
    *,
    method: Literal["draws", "controlled"] = "draws",
    memory: float = MEMORY,
    progress: bool = True,
    **settings: Unpack[Sampling],
) -> Covariances:
    """χ = −Cov(L_n(w) − L_n(w*), ℓ_x(w) − L_n(w)) over the posterior of each part of the weights, the rest held at w*.

    nβ times χ is the derivative of the part's mean excess loss as the data become a little like the probe:
    L_n → (1 − h) L_n + h ℓ_x at h = 0. A part that expresses what the probe has more of than the data has a negative
    χ; one that has nothing to do with it has χ near the variance of L_n, so that parts are compared on one probe, or
    probes on one part. (Baker et al. 2025, https://arxiv.org/abs/2504.18274, whose observable holds all other parts at
    w*, too; they measure the posterior of all weights besides, which shifts a whole row.)

    Args:
        land: the landscape; L_n is the mean loss over its data.
        parts: by name, each a pattern of parameter names as of `Landscape.restrict`, several, or a landscape restricted
            to the part.
        probes: data, a row of values for each of its samples; or a mapping of names to data, one value for the mean
            loss of each.
        method: `draws`, as they are; or `controlled`: with the virial as a control variate, which takes a gradient on
            all data and two derivatives of the probes' losses more for every draw, so that far fewer draws suffice.
        memory, progress: as for `covariance`.
        settings: those of `posterior`, each part's alike. nβ and γ are those of `land` unless given, and the budget is
            shared among the parts.

    Returns:
        Covariances (parts, probes) in squared nats, with standard errors; `rows` and `columns` name them.

    Examples:
        >>> import torch, basinscope as bs
        >>> x = torch.randn(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Tanh(), torch.nn.Linear(2, 1)).double()
        >>> land = bs.Landscape(net, "mse", (x, net(x).detach()))
        >>> found = bs.susceptibilities(
        ...     land, {"first": "0.*", "last": "2.*"}, {"wide": (3 * x, net(3 * x).detach())}, gamma=1.0, draws=50
        ... )
        >>> found.rows, found.columns, found.values.shape
        (('first', 'last'), ('wide',), (2, 1))
    """
    check_landscape(land)
    if method not in ("draws", "controlled"):
        raise InputError(f"method must be 'draws' or 'controlled', got {method!r}")
    pieces = {name: _part(land, name, part) for name, part in _named("parts", parts).items()}
    at = resolution(land, settings.get("nbeta"), settings.get("gamma"))
    given = {"budget": 60.0, **settings, "nbeta": at.nbeta, "gamma": at.gamma}
    if isinstance(given["budget"], (int, float)):
        given["budget"] = given["budget"] / len(pieces)
    values, stderrs, freedoms, checks, facts = [], [], [], [], {}
    columns: tuple[str, ...] = ()
    with tracked("susceptibilities", progress) as report:
        for number, (name, piece) in enumerate(pieces.items()):
            report(number / len(pieces), f"{name}: {number + 1} of {len(pieces)} parts")
            row, columns = _of_part(piece, probes, at.nbeta / land.n, given, memory, method)
            values.append(row.values[0])
            stderrs.append(row.stderr[0])
            freedoms.append(row.freedom)
            checks += [replace(check, reason=f"{name}: {check.trouble}") for check in row.checks]
            facts[name] = row.facts
    return Covariances(
        "susceptibilities", np.array(values), np.array(stderrs), min(freedoms), tuple(checks),
        {"nbeta": at.nbeta, "gamma": at.gamma, "draws": min(each["draws"] for each in facts.values()), "parts": facts},
        tuple(pieces), columns,
    )  # fmt: skip


def _of_part(
    land: Landscape, probes: Any, beta: float, settings: Any, memory: float, method: str
) -> tuple[Covariances, tuple[str, ...]]:
    """One row, and the names of its values."""
    with tracked("part", enabled=False) as report:
        post = posterior_for_draws(land, beta, settings, report)
        walk = Walk(post, report)
    losses, averaged = Observable(post.losses), isinstance(probes, Mapping)
    observables, columns = _probes(land, probes)
    sums = Sums(post.chains, 1, len(columns), memory, land.device)
    control = means = None
    if method == "controlled":
        control = VirialControl(post.losses, post.nbeta, post.gamma, [each.losses for each in observables])
        means = torch.zeros(post.chains, 1, len(columns), dtype=torch.float64, device=land.device)
    for delta in walk:
        excess = losses.at(delta)
        walk.note(delta, excess)
        mean = excess.mean(1, keepdim=True)
        values = [each.at(delta) for each in observables]
        probed = torch.cat([each.mean(1, keepdim=True) for each in values], 1) if averaged else values[0]
        if control is None or means is None:
            sums.add(mean, probed - mean)
            continue
        virial, bracket = control.at(delta, averaged)
        sums.add(mean - virial, probed - mean)
        means += bracket[:, None] / post.count
    matrix, stderr = sums.estimate(lambda matrix: -matrix, walk.alive, means=means)
    size, error = (float(np.sqrt(np.mean(each**2))) for each in (matrix, stderr))
    checks: tuple[Check, ...] = (*walk.checks(), check_draws(error, size, "the part's root mean square"))
    facts = walk.facts() | {"method": method}
    return Covariances("susceptibilities", matrix, stderr, float(walk.alive.sum() - 1), checks, facts), columns


def _probes(land: Landscape, probes: Any) -> tuple[list[Observable], tuple[str, ...]]:
    """The probes as observables, and a name for each of their values."""
    if isinstance(probes, Mapping):
        named = _named("probes", probes)
        return [Observable(ChainLosses(land.on(data)), None) for data in named.values()], tuple(named)
    one = Observable(ChainLosses(land.on(probes)), None)
    return [one], tuple(str(number) for number in range(one.size))


def _part(land: Landscape, name: str, part: Any) -> Landscape:
    """The landscape as a function of one part of the weights."""
    if isinstance(part, Landscape):
        if part.n != land.n or part.dimension > land.dimension:
            raise InputError(f"part {name!r} must be this landscape restricted to fewer parameters, got {part!r}")
        return part
    patterns = (part,) if isinstance(part, str) else tuple(part) if isinstance(part, (list, tuple)) else ()
    if not patterns:
        raise InputError(f"part {name!r} must be a pattern of parameter names or several, got {part!r}")
    return land.restrict(*patterns)


def _named(what: str, given: Any) -> Mapping[str, Any]:
    if not isinstance(given, Mapping) or not given or not all(isinstance(name, str) for name in given):
        raise InputError(f"{what} must map names to what they are, got {given!r}")
    return given
