"""Basin and drop away from minima, beside references; and both along a training.

Points are moved off their minimum on purpose, or come from a training that was stopped early. ŵ of the reference is
found by L-BFGS in float64 until the gradient vanishes; E[L] is ½ Tr nβH A⁻¹ + nβL(ŵ) on quadratics, and comes from a
Hamiltonian sampler of its own otherwise: float64, all data, whitened by the Hessian at ŵ, hundreds of thousands of
draws. The last table follows a small network on digits from its initialisation on. Budgets are in seconds of processor
time, so that a busy machine changes nothing.

    python benchmarks/displaced.py                     writes benchmarks/results/displaced.md and .csv, and two figures
    python benchmarks/displaced.py --only references   or training; the other part of the page is then left out
    python benchmarks/displaced.py --resume            go on from the rows in displaced.csv
"""

from __future__ import annotations

import argparse
import copy
import math
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import ledger
import torch
from clocks import own_time
from torch import Tensor, nn
from torch.func import grad, jacrev, vmap

import basinscope as bs
from basinscope.files import write_whole
from basinscope.zoo.data import load

RESULTS = Path(__file__).parent / "results"
FIGURES = Path(__file__).parents[1] / "docs" / "images"
f64 = torch.float64
CHAINS, WARM = 32, 200


@dataclass(frozen=True)
class Case:
    """A landscape, and the loss of a flat vector of weights in float64, which the reference works with."""

    name: str
    land: bs.Landscape
    loss: Callable[[Tensor], Tensor]
    nbeta: float
    gamma: float
    draws: int  # of each chain of the reference; 0 for the closed form


@dataclass(frozen=True)
class Reference:
    """Basin and drop by independent means."""

    basin: float
    basin_stderr: float
    drop: float


def white(n: int, width: int, seed: int = 0) -> Tensor:
    """Inputs whose second moment is exactly the identity."""
    basis, _ = torch.linalg.qr(torch.randn(n, width, generator=torch.Generator().manual_seed(seed), dtype=f64))
    return basis * n**0.5


def quadratics() -> Iterator[Case]:
    """Linear regressions, w* between a little and far from the minimum."""
    for number, (curvatures, distance) in enumerate(
        [([1.0, 0.5, 0.1], 0.1), ([1.0, 1.0, 0.1, 0.01, 1e-4], 3.0), (torch.logspace(0, -5, 40).tolist(), 1.0)]
    ):
        n, sigma = 500, torch.tensor(curvatures, dtype=f64)
        x = white(n, len(sigma), number) * sigma.sqrt()
        net = nn.Linear(len(sigma), 1, bias=False)
        generator = torch.Generator().manual_seed(number)
        offset = distance * torch.randn(len(sigma), generator=generator, dtype=f64)
        net.weight.data = (1 + offset).float()[None]
        land = bs.Landscape(net, "mse", (x.float(), x.sum(1, keepdim=True).float()))

        def loss(w: Tensor, sigma: Tensor = sigma) -> Tensor:
            return 0.5 * (sigma * (w - 1) ** 2).sum()

        yield Case(f"quadratic of {len(sigma)}, {distance:g} off", land, loss, n / math.log(n), 1.0, 0)


def deep_linear() -> Iterator[Case]:
    """Linear networks with white inputs, whose loss is ½‖W₂W₁ − T‖² exactly, moved off a minimum."""
    for number, (widths, rank, distance) in enumerate([((5, 3, 4), 2, 0.1), ((6, 4, 5), 2, 0.3), ((8, 6, 8), 3, 0.2)]):
        n, (a, h, b) = 300, widths
        generator = torch.Generator().manual_seed(number)
        left, right = (torch.randn(shape, generator=generator, dtype=f64) for shape in ((b, rank), (rank, a)))
        teacher = left @ right / math.sqrt(a * rank)
        u, s, v = torch.linalg.svd(teacher, full_matrices=False)
        first, second = torch.zeros(h, a, dtype=f64), torch.zeros(b, h, dtype=f64)
        first[:rank], second[:, :rank] = s[:rank, None].sqrt() * v[:rank], u[:, :rank] * s[:rank].sqrt()
        first, second = (w + distance * torch.randn(w.shape, generator=generator, dtype=f64) for w in (first, second))
        net = nn.Sequential(nn.Linear(a, h, bias=False), nn.Linear(h, b, bias=False))
        net[0].weight.data, net[1].weight.data = first.float(), second.float()
        x = white(n, a, number)
        land = bs.Landscape(net, "mse", (x.float(), (x @ teacher.T).float()))

        def loss(w: Tensor, a: int = a, h: int = h, b: int = b, teacher: Tensor = teacher) -> Tensor:
            product = w[h * a :].view(b, h) @ w[: h * a].view(h, a)
            return 0.5 * ((product - teacher) ** 2).sum()

        name = f"deep linear {'-'.join(map(str, widths))} of rank {rank}, {distance:g} off"
        yield Case(name, land, loss, n / math.log(n), 1.0, 4000)


def digits(hidden: int, epochs: Sequence[int]) -> dict[int, nn.Sequential]:
    """A tanh network trained on digits by Adam, at these epochs."""
    x, y = images()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, hidden), nn.Tanh(), nn.Linear(hidden, 10))
    optimizer = torch.optim.Adam(net.parameters(), lr=3e-3)
    generator = torch.Generator().manual_seed(0)
    points = {}
    for epoch in range(max(epochs) + 1):
        if epoch in epochs:
            points[epoch] = copy.deepcopy(net)
        for batch in torch.randperm(len(x), generator=generator).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
    return points


def images() -> tuple[Tensor, Tensor]:
    """Images of digits as rows, and their labels."""
    x, y = load("digits").train
    return x.reshape(len(x), -1), y


def stopped_early() -> Iterator[Case]:
    """The network on digits after six epochs, far from any minimum at n/log n."""
    hidden = 8
    x, y = images()
    net = digits(hidden, (6,))[6]
    land = bs.Landscape(net, "cross_entropy", (x, y))
    rows, first, second = x.double(), hidden * 64, hidden * 64 + hidden

    def loss(w: Tensor) -> Tensor:
        inner = torch.tanh(rows @ w[:first].view(hidden, 64).T + w[first:second])
        outputs = inner @ w[second : second + 10 * hidden].view(10, hidden).T + w[second + 10 * hidden :]
        return nn.functional.cross_entropy(outputs, y)

    gamma = land.dimension / float(land.flatten(land.parameters).double().square().sum())
    yield Case(f"digits, 64-{hidden}-10 after 6 epochs", land, loss, land.n / math.log(land.n), gamma, 400)


def reference(case: Case) -> Reference:
    """Basin and drop from the loss of a flat vector alone."""
    centre = case.land.flatten(case.land.parameters).double()

    def energy(w: Tensor) -> Tensor:
        return case.nbeta * case.loss(w) + 0.5 * case.gamma * ((w - centre) ** 2).sum()

    bottom = lowest(energy, centre)
    values, vectors = torch.linalg.eigh(jacrev(grad(energy))(bottom))
    assert float(values[0]) > 0, "the reference's point is no minimum"
    drop = case.nbeta * float(case.loss(centre) - case.loss(bottom))
    if case.draws == 0:
        curvature = jacrev(grad(case.loss))(bottom)
        basin = 0.5 * case.nbeta * float(torch.trace(curvature @ vectors / values @ vectors.T))
        return Reference(basin, 0.0, drop)
    root = vectors / values.sqrt()
    means = hamiltonian(energy, lambda w: case.nbeta * (case.loss(w) - case.loss(bottom)), bottom, root, case.draws)
    return Reference(float(means.mean()), float(means.std()) / math.sqrt(len(means)), drop)


def lowest(energy: Callable[[Tensor], Tensor], start: Tensor) -> Tensor:
    """The minimum that L-BFGS leads to."""
    point = start.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [point], max_iter=20_000, tolerance_grad=1e-9, tolerance_change=0, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = energy(point)
        value.backward()
        return value

    optimizer.step(closure)
    return point.detach()


def hamiltonian(
    energy: Callable[[Tensor], Tensor], statistic: Callable[[Tensor], Tensor], bottom: Tensor, root: Tensor, draws: int
) -> Tensor:
    """The mean of a statistic over each of `CHAINS` chains: leapfrog steps in w = bottom + root z, Metropolis."""
    generator = torch.Generator().manual_seed(1)
    moved = vmap(lambda z: energy(bottom + root @ z))
    force = vmap(grad(lambda z: energy(bottom + root @ z)))
    measured = vmap(lambda z: statistic(bottom + root @ z))
    z = torch.zeros(CHAINS, len(bottom), dtype=f64)  # where the loss is steep, draws of the Gaussian would be stuck
    size, sums = 0.5 * len(bottom) ** -0.25, torch.zeros(CHAINS, dtype=f64)
    level = moved(z)
    for draw in range(WARM + draws):
        momentum = torch.randn(z.shape, dtype=f64, generator=generator)
        length = math.pi * (0.5 + float(torch.rand(1, generator=generator)))
        start, there = level + 0.5 * momentum.square().sum(1), z
        momentum = momentum - 0.5 * size * force(there)
        steps = max(1, round(0.5 * length / size))
        for step in range(steps):
            there = there + size * momentum
            momentum = momentum - (0.5 if step == steps - 1 else 1.0) * size * force(there)
        reached = moved(there)
        gain = start - reached - 0.5 * momentum.square().sum(1)
        accepted = torch.rand(CHAINS, dtype=f64, generator=generator).log() < gain
        z, level = torch.where(accepted[:, None], there, z), torch.where(accepted, reached, level)
        if draw < WARM:
            size *= 1.05 if float(accepted.double().mean()) > 0.8 else 0.95
        else:
            sums += measured(z)
    return sums / draws


@dataclass(frozen=True)
class Row:
    """A displaced point, measured and by reference."""

    case: str
    parameters: int
    llc: float
    verdict: str
    at_minimum: str
    basin: float
    basin_stderr: float
    reference_basin: float
    reference_stderr: float
    drop: float
    drop_stderr: float
    reference_drop: float

    @property
    def basin_off(self) -> float:
        return self.basin / self.reference_basin - 1

    @property
    def drop_off(self) -> float:
        return self.drop / self.reference_drop - 1


def compared(budget: float, table: Path, resume: bool) -> list[Row]:
    """Every displaced point, kept in a table as soon as it is known."""
    rows = ledger.read(table, Row) if resume else []
    ledger.keep(table, rows)
    for case in (*quadratics(), *deep_linear(), *stopped_early()):
        if case.name in {row.case for row in rows}:
            continue
        exact = reference(case)
        found = bs.llc(case.land, nbeta=case.nbeta, gamma=case.gamma, budget=budget, rtol=0.01, seed=0, progress=False)
        rows.append(Row(
            case.name, case.land.dimension, found.value, found.verdict, found.at_minimum, found.basin.value,
            found.basin.stderr, exact.basin, exact.basin_stderr, found.drop.value, found.drop.stderr, exact.drop,
        ))  # fmt: skip
        ledger.add(table, rows[-1])
        print(rows[-1], flush=True)
    return rows


def followed(budget: float) -> tuple[bs.LlcAlong, bs.ResolutionCurve]:
    """Both readings of the network on digits from its initialisation to its end, and one point over resolutions."""
    x, y = images()
    nets = digits(8, (0, 1, 2, 4, 6, 10, 20, 40, 80))
    lands = {f"{epoch}": bs.Landscape(net, "cross_entropy", (x, y)) for epoch, net in nets.items()}
    run = bs.llc_along(lands, budget=budget, seed=0, progress=False)
    print(run)
    return run, bs.resolution_curve(lands["6"], budget=9 * budget, seed=0, progress=False)


def markdown(rows: Sequence[Row], run: bs.LlcAlong | None, curve: bs.ResolutionCurve | None) -> str:
    """The results as a page."""
    text = ["# Away from minima: basin and drop", ""]
    if rows:
        basin, drop = (max(abs(getattr(row, name)) for row in rows) for name in ("basin_off", "drop_off"))
        text += [
            f"On {len(rows)} points off their minimum, basins are at most {basin:.1%} and drops at most {drop:.2%} away"
            f" from references found by independent means; 3 % and 5 % are allowed.",
            "",
        ]
    if run is not None:
        points = [*run.fine, *run.common]
        sound = sum(point.basin.verdict == "ok" and point.basin.value > 0 for point in points)
        text += [
            f"Through a training, {sound} of {len(points)} readings have a positive basin and the verdict `ok`.",
            "",
        ]
    if rows:
        text += [
            "| point | parameters | λ̂ | verdict | w* a minimum | basin | reference | off | drop | reference | off |",
            "|---|--:|--:|---|---|--:|--:|--:|--:|--:|--:|",
        ]
        text += [
            f"| {row.case} | {row.parameters} | {row.llc:.2f} | {row.verdict} | {row.at_minimum} "
            f"| {row.basin:.3f} ± {row.basin_stderr:.3f} | {row.reference_basin:.3f} ± {row.reference_stderr:.3f} "
            f"| {row.basin_off:+.2%} | {row.drop:.3f} | {row.reference_drop:.3f} | {row.drop_off:+.3%} |"
            for row in rows
        ]
        text += [""]
    if run is not None:
        text += [
            "## Through a training",
            "",
            "A 64-8-10 tanh network on 1,437 digits, by Adam; γ is that of the end.",
            "",
        ]
        text += [
            "| epoch | reading | nβ | λ̂ | basin | drop | w* a minimum | verdict |", "|--:|---|--:|--:|--:|--:|---|---|",
        ]  # fmt: skip
        for reading, points in (("fine", run.fine), ("common", run.common)):
            for name, point in zip(run.names, points, strict=False):
                text.append(
                    f"| {name} | {reading} | {point.diagnostics['nbeta']:.3g} | {point.value:.2f} ± {point.stderr:.2f} "
                    f"| {point.basin.value:.2f} ± {point.basin.stderr:.2f} | {point.drop.value:.2f} "
                    f"| {point.at_minimum} | {point.verdict} |"
                )
        text += ["", "![](../../docs/images/llc_along.png)", ""]
    if curve is not None:
        text += [
            f"After six epochs, over four decades of nβ: {curve}.",
            "",
            "![](../../docs/images/resolution_curve.png)",
            "",
        ]
    text += [
        f"basinscope {bs.__version__}, torch {torch.__version__}, Python {platform.python_version()}, one thread, "
        f"{platform.machine()}. Made by `python benchmarks/displaced.py`, which says how the references come about.",
        "",
    ]  # fmt: skip
    return "\n".join(text)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=("references", "training"))
    parser.add_argument("--budget", type=float, default=20.0, help="seconds of processor time of every reading")
    parser.add_argument("--resume", action="store_true", help="go on from the rows beside --out")
    parser.add_argument("--out", type=Path, default=RESULTS / "displaced")
    options = parser.parse_args()
    own_time()
    table = options.out.with_suffix(".csv")
    rows = compared(options.budget, table, options.resume) if options.only != "training" else []
    run, curve = followed(options.budget) if options.only != "references" else (None, None)
    if run is not None and curve is not None:
        run.plot().savefig(FIGURES / "llc_along.png", dpi=130)
        curve.plot().savefig(FIGURES / "resolution_curve.png", dpi=130)
    write_whole(options.out.with_suffix(".md"), markdown(rows, run, curve).encode())


if __name__ == "__main__":
    main()
