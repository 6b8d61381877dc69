"""Degenerate landscapes whose λ̂ is known exactly: right, refused, or not ok; never a wrong number that is `ok`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from scipy import ndimage
from torch import Tensor, nn

import basinscope as bs
from hostile.outcomes import Case, honest, refused, works

Energy = Callable[[Tensor], Tensor]
HMC = {"sampler": "hmc", "chains": 4, "draws": 128, "budget": 1, "progress": False}
SLOW = ("absolute value", "step", "quartic", "narrow and wide", "cosine")


class Basin(nn.Module):
    """A network whose output is an energy of its weights."""

    def __init__(self, energy: Energy, at: Sequence[float], dtype: torch.dtype) -> None:
        super().__init__()
        self.energy, self.w = energy, nn.Parameter(torch.tensor(at, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return self.energy(self.w).expand(len(x))


def basin(energy: Energy, at: Sequence[float], n: int = 400, dtype: torch.dtype = torch.float64) -> bs.Landscape:
    zeros = torch.zeros(n, dtype=dtype)
    return bs.Landscape(Basin(energy, at, dtype), lambda o, t: o + 0 * t, (zeros[:, None], zeros))


def quadrature(energy: Energy, at: Sequence[float], nbeta: float, gamma: float, barrier: float | None = None) -> float:
    """nβ(E[K] − K(w*)) over exp(−nβK − γ‖w − w*‖²/2), on a grid of one or two axes.

    With a `barrier` only over where that many nats above w* lead: another basin that chains cannot reach does not count.
    """
    centre, reach = torch.tensor(at, dtype=torch.float64), 12 / gamma**0.5
    count = 400_001 if len(at) == 1 else 1201
    axes = [torch.linspace(float(c) - reach, float(c) + reach, count, dtype=torch.float64) for c in centre]
    grid = axes[0][None] if len(at) == 1 else torch.stack(torch.meshgrid(*axes, indexing="ij"))
    excess = energy(grid) - energy(centre)
    squares = sum((grid[i] - centre[i]) ** 2 for i in range(len(at)))
    nats = nbeta * excess + gamma / 2 * squares
    if barrier is not None:
        places, _ = ndimage.label((nats < barrier).numpy())
        nats = nats.masked_fill(torch.as_tensor(places != places[(count // 2,) * len(at)]), float("inf"))
    weights = (-nats).flatten().softmax(0)
    return float(nbeta * (weights * excess.flatten()).sum())


def spectrum(values: Sequence[float] | Tensor) -> Callable[[float, float], float]:
    """½ Σ nβσ/(nβσ + γ) of a quadratic basin."""
    sigma = torch.as_tensor(values, dtype=torch.float64)
    return lambda nbeta, gamma: float((nbeta * sigma / (nbeta * sigma + gamma)).sum()) / 2


def known(
    name: str,
    energy: Energy,
    at: Sequence[float],
    *,
    exact: Any = None,
    n: int = 400,
    dtype: Any = torch.float64,
    slow: bool = False,
    **options: Any,
) -> Case:
    """λ̂ beside its exact value: by formula, or by quadrature."""

    def attempt(_: Path) -> Any:
        measured = bs.llc(basin(energy, at, n, dtype), **{**HMC, "gamma": 1.0, **options})
        where = measured.diagnostics["nbeta"], measured.diagnostics["gamma"]
        return measured, exact(*where) if exact else quadrature(energy, at, *where)

    return honest(name, attempt, slow=slow)


def regression(
    name: str, design: Tensor, *, dtype: torch.dtype = torch.float64, slow: bool = False, **options: Any
) -> Case:
    """Linear regression at its least squares; λ̂ follows from the eigenvalues of XᵀX/n."""

    def attempt(_: Path) -> Any:
        x = design.double()
        target = x.sum(1, keepdim=True) + 0.1 * torch.sin(torch.arange(len(x), dtype=torch.float64))[:, None]
        net = nn.Linear(x.shape[1], 1, bias=False).to(dtype)
        with torch.no_grad():
            net.weight.copy_(torch.linalg.lstsq(x, target, driver="gelsd").solution.T)
        measured = bs.llc(bs.Landscape(net, "mse", (x.to(dtype), target.to(dtype))), **{**HMC, **options})
        eigenvalues = torch.linalg.eigvalsh(x.T @ x / len(x)).clamp(min=0)
        return measured, spectrum(eigenvalues)(measured.diagnostics["nbeta"], measured.diagnostics["gamma"])

    return honest(name, attempt, slow=slow)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def separable(norm: float) -> Callable[[Path], Any]:
    """Logistic regression of separable classes, which has no minimum, at weights of some size: by quadrature."""

    def attempt(_: Path) -> Any:
        x = normal(60, 2)
        y = (x[:, 0] > 0).long()
        x[:, 0] += 0.5 * (2 * y - 1)
        signs = (2 * y - 1).double()
        net = nn.Linear(2, 1, bias=False).double()
        with torch.no_grad():
            net.weight.copy_(torch.tensor([[norm, 0.0]]))
        measured = bs.llc(bs.Landscape(net, "bernoulli", (x, y.double()[:, None])), **HMC)

        def energy(w: Tensor) -> Tensor:
            return (
                sum(nn.functional.softplus(-s * (w[0] * a + w[1] * b)) for s, (a, b) in zip(signs, x, strict=True)) / 60
            )

        where = measured.diagnostics["nbeta"], measured.diagnostics["gamma"]
        return measured, quadrature(energy, [norm, 0.0], *where)

    return attempt


def dead(gamma: float) -> Callable[[Path], Any]:
    """A dead unit v·relu(ux) at (−1, 1), which comes alive where the localiser lets it."""

    class Unit(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([-1.0, 1.0], dtype=torch.float64))

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.w[0] * x) * self.w[1]

    def attempt(_: Path) -> Any:
        x = torch.linspace(0.5, 1.5, 200, dtype=torch.float64)[:, None]
        measured = bs.llc(
            bs.Landscape(Unit(), "mse", (x, torch.zeros_like(x))), **{**HMC, "gamma": gamma, "draws": 400}
        )
        second = float(x.square().mean())
        return measured, quadrature(
            lambda w: 0.5 * (torch.relu(w[0]) * w[1]) ** 2 * second, [-1.0, 1.0], measured.diagnostics["nbeta"], gamma
        )

    return attempt


def no_inputs(_: Path) -> Any:
    """All inputs zero: the bias alone counts."""
    net = nn.Linear(3, 1).double()
    with torch.no_grad():
        net.bias.zero_()
    land = bs.Landscape(net, "mse", (torch.zeros(50, 3), torch.zeros(50, 1)))
    measured = bs.llc(land, **{**HMC, "gamma": 1.0})
    return measured, spectrum([1.0, 0, 0, 0])(measured.diagnostics["nbeta"], 1.0)


def unbounded(sampler: str, **options: Any) -> Callable[[Path], Any]:
    """−‖w‖⁴: without a posterior, whatever the localiser; no number may be ok, and none is right."""

    def attempt(_: Path) -> Any:
        land = basin(lambda w: -((w**2).sum(0) ** 2), [0.1, 0.0])
        measured = bs.llc(land, sampler=sampler, gamma=1.0, budget=2, progress=False, **options)
        assert measured.verdict == "failed", f"{measured.verdict} with {measured.value:.3g}"
        return measured, float("nan")

    return attempt


def stuck(_: Path) -> Any:
    """Proposals that are never accepted say nothing of lower losses."""
    measured = bs.llc(
        basin(lambda w: w[0] ** 2, [0.0]), sampler="mala", step_size=1e9, gamma=1.0, draws=50, chains=4, progress=False
    )
    assert "lower loss" not in " ".join(measured.warnings), measured.warnings
    assert measured.verdict != "ok"


def curved(kind: str) -> Energy:
    return {
        "constant": lambda w: 0 * w[0],
        "saddle": lambda w: 0.5 * w[0] ** 2 - 0.1 * w[1] ** 2,
        "shallow saddle": lambda w: 0.5 * w[0] ** 2 - 1e-3 * w[1] ** 2,
        "maximum": lambda w: -1e-3 * (w[0] ** 2 + w[1] ** 2),
        "slope": lambda w: 0.05 * w[0],
        "steep slope": lambda w: 10.0 * w[0],
        "quartic": lambda w: w[0] ** 4,
        "degenerate cross": lambda w: (w[0] * w[1]) ** 2,
        "absolute value": lambda w: w[0].abs(),
        "step": lambda w: 0.1 * (w[0].abs() > 0.3).to(w.dtype) + 0 * w[0],
        "double well, left": lambda w: (w[0] ** 2 - 1) ** 2,
        "narrow and wide": lambda w: 1 - (-500 * w[0] ** 2).exp() + 1e-3 * w[0] ** 2,
        "cosine": lambda w: 0.05 * (1 - (5 * w[0]).cos()),
        "banana": lambda w: (w[0] - w[1] ** 2) ** 2 + 0.01 * w[1] ** 2,
    }[kind]  # type: ignore[no-any-return]


def stiff(condition: float) -> Energy:
    return lambda w: 0.5 * (condition * w[0] ** 2 + w[1] ** 2)


def stiff_at(w: float) -> Energy:
    return lambda v: 0.5 * (1e12 * (v[0] - w) ** 2 + (v[1] - w) ** 2)


def rotated(condition: float) -> Energy:
    return lambda w: 0.25 * (condition * (w[0] + w[1]) ** 2 + (w[0] - w[1]) ** 2)


def rounded(step: float) -> Energy:
    """½‖w‖² of weights rounded to multiples of a step, with the gradient of those that are not."""
    return lambda w: 0.5 * (w + (step * torch.round(w / step) - w).detach()).square().sum(0)


def tripled(w: Tensor) -> Tensor:
    """½‖w‖² with three times its gradient."""
    energy = 0.5 * w.square().sum(0)
    return 3 * energy - 2 * energy.detach()


def other_gradient(energy: Energy, **options: Any) -> Callable[[Path], Any]:
    """Chains that follow another function than the loss: not ok, for that reason."""

    def attempt(_: Path) -> Any:
        measured = bs.llc(basin(energy, [0.0, 0.0]), **{**HMC, "gamma": 1.0, **options})
        assert measured.verdict != "ok", measured
        assert "gradients of something else" in " ".join(measured.warnings), measured.warnings

    return attempt


CASES = [
    known("constant loss", curved("constant"), [0.3], exact=lambda *_: 0.0),
    *(known(f"{kind} at its top", curved(kind), [0.0, 0.0]) for kind in ("saddle", "shallow saddle", "maximum", "degenerate cross", "banana")),
    *(known(kind, curved(kind), [0.0], slow=kind in SLOW) for kind in ("slope", "steep slope", "quartic", "absolute value", "step", "narrow and wide", "cosine")),
    known("one of two wells", curved("double well, left"), [1.0], gamma=10.0),
    known("the ridge between two wells", curved("double well, left"), [0.0], gamma=10.0),
    known("a saddle that the localiser outweighs", curved("saddle"), [0.0, 0.0], gamma=100.0),
    known("far from a quadratic minimum", lambda w: 0.5 * w[0] ** 2, [3.0]),
    *(known(f"condition {c:g}, {dtype}", stiff(c), [0.0, 0.0], exact=spectrum([c, 1]), dtype=dtype) for c in (1e6, 1e12) for dtype in (torch.float32, torch.float64)),
    *(known(f"condition {c:g}, rotated, {dtype}", rotated(c), [0.0, 0.0], exact=spectrum([c, 1]), dtype=dtype, slow=c > 1e6) for c in (1e6, 1e12) for dtype in (torch.float32, torch.float64)),
    known("condition 1e12 away from the origin, float32", lambda w: 0.5 * (1e12 * (w[0] - 1) ** 2 + (w[1] - 1) ** 2), [1.0, 1.0], exact=spectrum([1e12, 1]), dtype=torch.float32),
    *(known(f"condition 1e12 at {w:g}, float32, nothing else set", stiff_at(w), [w, w], exact=spectrum([1e12, 1]), dtype=torch.float32, chains=None, draws=None) for w in (0.0, 1.0)),
    known("one steep direction of twenty", lambda w: 0.5 * 1e6 * w[0] ** 2 + 0 * w.sum(0), [0.0] * 20, exact=spectrum([1e6] + [0] * 19)),
    known("curvatures from 1e-6 to 1e6", lambda w: 0.5 * ((10.0 ** torch.arange(-6, 7, dtype=w.dtype)) * w**2).sum(), [0.0] * 13, exact=spectrum([10.0**k for k in range(-6, 7)])),
    *(known(f"n = {n}", lambda w: 0.5 * w[0] ** 2, [0.0], exact=spectrum([1.0]), n=n) for n in (3, 4, 5)),
    *(refused(f"n = {n}", lambda _, n=n: bs.llc(basin(lambda w: 0.5 * w[0] ** 2, [0.0], n), **HMC), "at least 3") for n in (1, 2)),
    regression("far more weights than samples", normal(10, 100)),
    regression("every sample thirty times", normal(5, 4).repeat(30, 1)),
    regression("a feature twice", normal(100, 3)[:, [0, 1, 2, 2]]),
    regression("a feature of zeros", normal(100, 3) * torch.tensor([1.0, 1.0, 0.0])),
    regression("features of sizes 1 and 1e5", normal(100, 2) * torch.tensor([1.0, 1e5])),
    regression("features of sizes 1 and 1e5, float32", normal(100, 2) * torch.tensor([1.0, 1e5]), dtype=torch.float32),
    regression("one sample of great leverage, minibatches", normal(500, 3) * torch.tensor([300.0] + [1.0] * 499)[:, None], sampler="minibatch", chains=None, draws=None, slow=True),
    *(honest(f"separable classes at ‖w‖ = {norm:g}", separable(norm), slow=True) for norm in (5.0, 20.0, 100.0)),
    *(honest(f"a dead unit, γ = {gamma:g}", dead(gamma), slow=gamma < 1) for gamma in (10.0, 0.2)),
    honest("all-zero inputs", no_inputs),
    works("unbounded below: HMC has failed", lambda _: unbounded("hmc", chains=4, draws=200)(_) and None),
    works("unbounded below: minibatches have failed", lambda _: unbounded("minibatch")(_) and None, slow=True),
    works("unbounded below: SGLD has failed", lambda _: unbounded("sgld", chains=4, draws=200)(_) and None),
    *(known(f"weights rounded to multiples of {step:g}, straight through", rounded(step), [0.0, 0.0]) for step in (0.01, 0.05, 0.1, 0.2, 0.4)),
    *(works(f"rounded to multiples of {step:g}: gradients of something else", other_gradient(rounded(step))) for step in (0.2, 0.4)),
    works("rounded, on minibatches: gradients of something else", other_gradient(rounded(0.2), sampler="minibatch", chains=None, draws=None), slow=True),
    works("a backward pass three times too large", other_gradient(tripled)),
    works("a stuck sampler does not speak of lower losses", stuck),
]  # fmt: skip
