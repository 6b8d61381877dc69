"""Functions of the network along the draws of a posterior: losses on any data, or whatever a function makes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..errors import InputError
from ..estimates import Check
from ..landscape import Landscape
from ..progress import Report
from ..sampling.chains import ChainLosses
from ..verdict import Checked
from .evidence import checks_of, facts_of
from .posterior import Posterior

Array = NDArray[np.float64]


class Observable:
    """Values φ(w) of shape (m,) at every chain's weights, each less that at w*, which keeps the digits of covariances.

    Args:
        losses: of the landscape.
        given: None for the losses of all training samples; other data, or a landscape of them at the same w*, for the
            losses there; or a function of the parameters (a dict from names to tensors) with tensors of one shape.

    Attributes:
        given: None, a landscape at the same w*, or a function.
        losses: of whose samples, unless it is a function.
    """

    def __init__(self, losses: ChainLosses, given: Any = None) -> None:
        self.land = losses.land
        self._function: Callable[[Mapping[str, Tensor]], Any] | None = None
        self.given = given
        if given is None:
            self.losses = losses
        elif callable(given) and not isinstance(given, Landscape):
            self._function = given
            self.base = self._of(self.land.parameters)
            return
        else:
            self.given = _same_point(self.land, given)
            self.losses = ChainLosses(self.given)
        self.base = self.losses.base

    @property
    def size(self) -> int:
        """m."""
        return len(self.base)

    def at(self, delta: Tensor) -> Tensor:
        """φ(w* + δ_c) − φ(w*) of all chains (C, m), float64."""
        if self._function is None:
            values = self.losses.per_sample(delta)
        else:
            origin = self.land.flatten(self.land.parameters)
            values = torch.stack([self._of(self.land.unflatten(origin + row)) for row in delta])
        bad = int((~torch.isfinite(values)).sum())
        if bad:
            raise InputError(
                f"observables must be finite, got {bad} of {values.numel()} that are not, at entries "
                f"{(~torch.isfinite(values)).any(0).nonzero()[:5, 0].tolist()} — leave those out, or raise gamma"
            )
        return values - self.base

    def _of(self, parameters: Mapping[str, Tensor]) -> Tensor:
        """The function's value, flat."""
        assert self._function is not None
        try:
            with torch.no_grad():
                value = self._function(parameters)
        except Exception as error:
            raise InputError(
                f"the observable cannot be called on parameters by name: {type(error).__name__}: {error} — try it on "
                f"land.parameters"
            ) from error
        if not isinstance(value, Tensor) or not value.numel() or value.is_complex():
            raise InputError(f"an observable must return a tensor with real entries, got {value!r:.200}")
        flat = value.detach().reshape(-1).to(torch.float64)
        if hasattr(self, "base") and len(flat) != len(self.base):
            raise InputError(
                f"an observable must keep its shape: expected {len(self.base)} entries as at w*, got {len(flat)}"
            )
        if not torch.isfinite(flat).all():
            raise InputError(f"observables must be finite, got {int((~torch.isfinite(flat)).sum())} that are not")
        return flat


def _same_point(land: Landscape, given: Any) -> Landscape:
    """A landscape of other data at the posterior's w*."""
    if not isinstance(given, Landscape):
        return land.on(given)
    same = given.parameters.keys() == land.parameters.keys() and all(
        torch.equal(tensor, given.parameters[name]) for name, tensor in land.parameters.items()
    )
    if not same:
        raise InputError("the observable's landscape has other weights than the posterior — pass its data alone")
    return given


@dataclass(frozen=True)
class Observation(Checked):
    """Means of an observable over a posterior.

    Attributes:
        mean, stderr: E[φ] and its Monte Carlo standard error, from the spread of the chains' own means, (m,).
        variance: Var[φ] over the posterior, (m,).
        ess: as many independent draws would have this standard error, (m,).
        autocorrelation: of one draw of a chain with the next, (m,).
        checks: whether the draws are those of the posterior.
        facts: settings and diagnostics of the chains.
    """

    mean: Array
    stderr: Array
    variance: Array
    ess: Array
    autocorrelation: Array
    checks: tuple[Check, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Observation of {len(self.mean)} values over {self.facts['draws']} draws per chain ({self.verdict})"


class Walk:
    """The draws of a posterior, with what checks need to know of them.

    Args:
        post: the posterior.
        report: progress.

    Attributes:
        alive: the chains that lived through all draws, once they have been walked.
        living: those that live at the present draw.
    """

    def __init__(self, post: Posterior, report: Report) -> None:
        if post.count < 2:
            raise InputError(f"observables need at least 2 draws of every chain, got draws={post.count} — draw more")
        self.post, self.report = post, report
        self.alive = np.ones(post.chains, dtype=bool)
        self.living = self.alive
        self._trace = np.empty((post.chains, post.count))

    def __iter__(self) -> Iterator[Tensor]:
        """δ (C, d) of every draw."""
        alive = torch.as_tensor(self.alive)
        for number, (delta, living) in enumerate(self.post.draws()):
            alive, self._number = living, number
            self.living = living.cpu().numpy()
            yield delta
            self.report(number / self.post.count, f"{number + 1} of {self.post.count} draws")
        self.post.refuse_diverged(alive)
        self.alive = alive.cpu().numpy()

    def note(self, delta: Tensor, values: Tensor | None = None) -> None:
        """The excess loss at the present draw: of its samples' `values`, if these are known, else computed."""
        excess = self.post.losses.excess(delta) if values is None else values.mean(1)
        self._trace[:, self._number] = excess.cpu().numpy()

    @property
    def latest(self) -> Array:
        """The excess losses that were noted last, (C,)."""
        return self._trace[:, self._number]

    def checks(self) -> tuple[Check, ...]:
        """Whether the draws are those of the posterior, by the loss along them."""
        return checks_of(self.post, self.alive, self._trace[self.alive])

    def facts(self) -> dict[str, Any]:
        """Settings and diagnostics of the chains."""
        return facts_of(self.post) | {"draws": self.post.count, "thin": self.post.thin}


def observe(post: Posterior, given: Any, report: Report) -> Observation:
    """Means of an observable over a posterior, in memory for one draw of it."""
    observable, walk = Observable(post.losses, given), Walk(post, report)
    shape = (post.chains, observable.size)
    total, squares, products = (torch.zeros(shape, dtype=torch.float64, device=post.land.device) for _ in range(3))
    first = last = None
    for delta in walk:
        values = observable.at(delta)
        walk.note(delta, values if given is None else None)
        total += values
        squares += values.square()
        if last is None:
            first = values
        else:
            products += last * values
        last = values
    if first is None or last is None:
        raise InputError("means of observables need at least 2 draws, got none")
    living = torch.as_tensor(walk.alive, device=total.device)
    count, means = post.count, total[living].mean(0) / post.count
    # Σ_t (x_t − m)(x_(t+1) − m) from sums, with the ends of each chain taken off
    moved = products - means * (2 * total - first - last) + (count - 1) * means.square()
    variance = (squares[living].mean(0) / count - means.square()).clamp(min=0)
    beside = moved[living].mean(0) / (count - 1)
    autocorrelation = torch.where(variance > 0, beside / variance, torch.zeros_like(variance))
    chain_means = (total[living] / count).cpu().numpy()
    square, spread = chain_means.var(0, ddof=1) / len(chain_means), variance.cpu().numpy()
    ess = np.divide(spread, square, out=np.full_like(spread, len(chain_means) * count), where=square > 0)
    mean = observable.base.cpu().numpy() + chain_means.mean(0)
    return Observation(
        mean, np.sqrt(square), spread, ess, autocorrelation.cpu().numpy(), walk.checks(), walk.facts()
    )  # fmt: skip
