"""Traces, spectra and soft ranks: accuracy, time and memory, beside the peers.

    python benchmarks/curvature.py                      all parts
    python benchmarks/curvature.py --only smooth memory  some of them
    python benchmarks/curvature.py --no-peers           without the other packages

Parts: smooth and relu (traces), coverage, softrank, bracket, memory, resnet. The peers run in an environment that the
first run makes, benchmarks/.peers/curvature. Images come from $BASINSCOPE_DATA (mnist/ and cifar10/) if set, else they
are synthetic. Times are CPU seconds of one thread. Writes results/curvature.md and .csv; parts that were not run keep
their rows. Exits with status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import os
import platform
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

import basinscope as bs
from basinscope.curvature.bracket import nodes_of
from basinscope.curvature.functions import SOFT_RANK
from basinscope.curvature.lanczos import LanczosRuns
from basinscope.curvature.operators import Dense, hessian
from basinscope.curvature.trace import exact_trace

T = TypeVar("T")

HERE = Path(__file__).parent
RESULTS = HERE / "results" / "curvature.md"
PEERS = HERE / ".peers" / "curvature"
TORCH = "torch==2.13.0"
# Without their dependencies, which would bring in torchvision and a CUDA torch; these are what they really need.
PACKAGES = ["pyhessian", "curvlinops-for-pytorch>=3,<4", "hessian-eigenthings>=1.0.0a5", "laplace-torch"]
NEEDED = ["numpy", "scipy", "tqdm", "einops", "einconv", "unfoldNd", "linear_operator", "jaxtyping", "wadler-lindig",
          "opt-einsum", "backpack-for-pytorch", "torchmetrics", "lightning-utilities", "packaging",
          "asdfghjkl==0.1a4"]  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One line of the results; `met` is yes, no or empty where there is no target."""

    part: str
    what: str
    value: str
    target: str = ""
    met: str = ""


def row(part: str, what: str, value: str, target: str = "", met: bool | None = None) -> Row:
    return Row(part, what, value, target, "" if met is None else "yes" if met else "NO")


# ---------------------------------------------------------------------- data and networks


def folder() -> Path | None:
    found = os.environ.get("BASINSCOPE_DATA")
    return Path(found) if found else None


def digits(n: int) -> tuple[Tensor, Tensor, str]:
    """n MNIST images as rows of 784, or clusters of that shape."""
    source = folder()
    if source is not None and (source / "mnist").is_dir():
        images = gzip.decompress((source / "mnist" / "train-images-idx3-ubyte.gz").read_bytes())
        labels = gzip.decompress((source / "mnist" / "train-labels-idx1-ubyte.gz").read_bytes())
        x = np.frombuffer(images, np.uint8, n * 784, 16).reshape(n, 784) / 255.0
        return torch.tensor(x, dtype=torch.float32), torch.tensor(list(labels[8 : 8 + n])), "MNIST"
    y = torch.arange(n) % 10
    generator = torch.Generator().manual_seed(0)
    centres = torch.rand(10, 784, generator=generator) * (torch.rand(10, 784, generator=generator) < 0.2)
    return (centres[y] + 0.3 * torch.rand(n, 784, generator=generator)).float(), y, "synthetic images"


def pictures(n: int) -> tuple[Tensor, Tensor, str]:
    """n CIFAR-10 images (n, 3, 32, 32), or noise around class means."""
    source = folder()
    archive = None if source is None else source / "cifar10" / "cifar-10-binary-20k.tar.gz"
    if archive is not None and archive.is_file():
        with tarfile.open(archive) as packed:
            member = next(each for each in packed if each.name.endswith("data_batch_1.bin"))
            opened = packed.extractfile(member)
            assert opened is not None
            records = np.frombuffer(opened.read(n * 3073), np.uint8).reshape(n, 3073)
        x = torch.tensor(records[:, 1:].reshape(n, 3, 32, 32) / 255.0, dtype=torch.float32)
        return (x - 0.47) / 0.25, torch.tensor(records[:, 0].astype(np.int64)), "CIFAR-10"
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(n) % 10
    means = torch.randn(10, 3, 4, 4, generator=generator)
    x = nn.functional.interpolate(means[y], (32, 32)) + torch.randn(n, 3, 32, 32, generator=generator)
    return x, y, "synthetic images"


def mlp(activation: type[nn.Module], *widths: int) -> nn.Sequential:
    inside, hidden, outside = widths
    return nn.Sequential(nn.Linear(inside, hidden), activation(), nn.Linear(hidden, outside))


class Skipping(nn.Module):
    """A smooth network whose trace has no closed form: a skip connection over its second layer."""

    def __init__(self, inside: int, width: int, outside: int) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(inside, width), nn.Linear(width, width), nn.Linear(width, outside)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x).tanh()
        return self.out(hidden + self.second(hidden).tanh())


def fitted(net: nn.Module, x: Tensor, y: Tensor, steps: int, batch: int | None = None, rate: float = 1e-3) -> nn.Module:
    optimizer = torch.optim.Adam(net.parameters(), lr=rate)
    for step in range(steps):
        few = slice(None) if batch is None else torch.arange(step * batch, (step + 1) * batch) % len(x)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[few]), y[few]).backward()
        optimizer.step()
    return net.eval()


def closed_form(net: nn.Module, x: Tensor, y: Tensor) -> float:
    """Tr H of a network with one hidden layer and cross-entropy, in float64.

    Tr F = mean of (1 + ‖a‖²) Tr B + (1 + ‖x‖²) Σ_j φ'(u_j)² (Vᵀ B V)_jj with B = diag(p) − p pᵀ, and
    Tr(H − F) = mean of (1 + ‖x‖²) Σ_j φ''(u_j) (Vᵀ (p − y))_j: the outputs are affine in each output weight.
    """
    w, b, v, c = (parameter.detach().double() for parameter in net.parameters())
    x = x.double()
    u = x @ w.T + b
    if isinstance(net[1], nn.Tanh):  # type: ignore[index]
        a = u.tanh()
        slope, bend = 1 - a**2, -2 * a * (1 - a**2)
    else:
        a = u.relu()
        slope, bend = (u > 0).double(), torch.zeros_like(u)
    p = (a @ v.T + c).softmax(1)
    spread = p @ v**2 - (p @ v) ** 2
    outer = (1 + a.square().sum(1)) * (1 - p.square().sum(1))
    error = p - nn.functional.one_hot(y, p.shape[1])
    inner = (1 + x.square().sum(1)) * (slope**2 * spread + bend * (error @ v)).sum(1)
    return float((outer + inner).mean())


def timed(call: Callable[[], T]) -> tuple[float, T]:
    """CPU seconds, and what came out."""
    began = time.process_time()
    found = call()
    return time.process_time() - began, found


# ---------------------------------------------------------------------- the parts


def trace(activation: str, target: int, peers: bool, budget: float) -> list[Row]:
    """Time to a true 1 % error of Tr H."""
    x, y, source = digits(1000)
    rows = []
    torch.manual_seed(0)
    net = fitted(mlp({"tanh": nn.Tanh, "relu": nn.ReLU}[activation], 784, 256, 10), x, y, 120, 250)
    truth = closed_form(net, x, y)
    part = f"trace, {activation} 784-256-10, n = 1000, {source}"

    def measured(seed: int) -> tuple[float, bs.Estimate]:
        land = bs.Landscape(net, data=(x, y))  # nothing kept from the last seed
        return timed(partial(bs.trace, land, rtol=0.01, seed=seed, progress=False))

    measured(99)
    runs = [measured(seed) for seed in range(20)]
    lines = ask_peers(net, activation, x, y, truth, budget) if peers else []
    runs += [measured(seed) for seed in range(20, 40)]  # half before, half after: the machine's load drifts
    ours = statistics.median(took for took, _ in runs)
    errors = [abs(found.value / truth - 1) for _, found in runs]
    products = statistics.median(found.diagnostics["products"] for _, found in runs)
    loss = float(bs.Landscape(net, data=(x, y)).per_sample().mean())
    rows.append(row(part, f"Tr H in closed form, after 120 steps of Adam to a loss of {loss:.2g}", f"{truth:.5g}"))
    text = f"{ours:.4f} s, {products:.0f} products, error {statistics.median(errors):.2%}"
    text += f" (median), {max(errors):.2%} (worst of {len(runs)} seeds)"
    rows.append(row(part, "basinscope, rtol=0.01", text, "median error < 1 %", statistics.median(errors) < 0.01))
    return rows + (beside(part, lines, truth, ours, target) if peers else [])


def ask_peers(net: nn.Module, activation: str, x: Tensor, y: Tensor, truth: float, budget: float) -> list[str]:
    """What curvature_peers.py prints about the same network."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "case.npz"
        weights = {f"w{i}": parameter.detach().numpy() for i, parameter in enumerate(net.parameters())}
        np.savez(path, x=x.numpy(), y=y.numpy(), truth=truth, activation=activation, **weights)
        command = [PEERS / "bin" / "python", HERE / "curvature_peers.py", path, str(budget)]
        return subprocess.run(command, check=True, capture_output=True, text=True, env=alone()).stdout.splitlines()


def beside(part: str, lines: list[str], truth: float, ours: float, target: int) -> list[Row]:
    """The peers on the same network."""
    rows, best, exact = [], ("", float("inf")), ("", float("inf"))
    for found in map(json.loads, lines):
        name = f"{found['peer']} {found.get('version', '')}"
        if "failed" in found:
            rows.append(row(part, name, f"failed: {found['failed']}"))
            continue
        if "seconds" not in found:
            text = f"error {found['median_error']:.1%} (median), {found['worst_error']:.1%} (worst)"
            rows.append(row(part, name, text))
            continue
        reached = found.get("reached", True)
        text = f"{found['seconds']:.2f} s"
        if "products" in found:
            text += f", {found['products']} products"
        text += f", {found['seconds'] / ours:.1f} × ours"
        if not reached:
            text += f", error still {found['median_error']:.1%}"
        elif "products" not in found:
            text += ", exact: Tr H = Tr GGN here, which the package does not say"
            exact = name, found["seconds"]
        elif found["seconds"] < best[1]:
            best = name, found["seconds"]
        rows.append(row(part, name, text))
        if "mean" in found:
            text = f"{found['mean']:.5g} ± {found['mean_stderr']:.2g} from {found['probes_drawn']} probes"
            sound = abs(found["mean"] - truth) < 4 * found["mean_stderr"]
            rows.append(row(part, f"mean of all probes, {found['peer']}", text, "closed form within 4 σ", sound))
    ratio = best[1] / ours
    rows.append(
        row(part, f"best peer's estimate ({best[0]}) / ours", f"{ratio:.1f} ×", f"≥ {target} ×", ratio >= target)
    )
    if exact[0]:
        rows.append(row(part, f"{exact[0]} / ours", f"{exact[1] / ours:.1f} ×"))
    return rows


def coverage() -> list[Row]:
    """How often the 95 % interval holds the truth."""
    torch.manual_seed(0)
    x = torch.randn(60, 20)
    y = (x @ torch.randn(20, 5)).argmax(1)
    net = fitted(Skipping(20, 18, 5), x, y, 60, None, 1e-2)
    land = bs.Landscape(net.double(), data=(x.double(), y))
    truth = exact_trace(hessian(land)).value
    part = f"coverage, tanh 20-18-18-5 with a skip connection, {land.dimension} parameters, n = 60"
    rows = []
    for rtol in (0.01, 0.003):
        inside, exact, products = 0, 0, []
        for seed in range(200):
            found = bs.trace(land, rtol=rtol, seed=seed, progress=False)
            low, high = found.interval(0.95)
            inside += low - 1e-9 * abs(truth) <= truth <= high + 1e-9 * abs(truth)
            exact += found.stderr == 0
            products.append(found.diagnostics["products"])
        text = f"{inside / 2:.1f} % of 200 seeds, {statistics.median(products):.0f} products"
        text += f" ({exact} of them exact)" if exact else ""
        what = f"95 % interval holds the trace written out, rtol={rtol}, {found.diagnostics['method']}"
        rows.append(row(part, what, text, "95 ± 4 %", 91 <= inside / 2 <= 99))
    return rows


def naive_soft_rank(net: nn.Module, x: Tensor, decay: float) -> float:
    """F = (1/n) Σ_i Σ_k p_ik ∇log p_ik ∇log p_ikᵀ from gradients written out, then its eigenvalues."""
    point = {name: parameter.detach() for name, parameter in net.named_parameters()}

    def scores(parameters: dict[str, Tensor], one: Tensor) -> Tensor:
        return torch.func.functional_call(net, parameters, (one[None],))[0].log_softmax(-1)

    size = sum(tensor.numel() for tensor in point.values())
    fisher = torch.zeros(size, size, dtype=x.dtype)
    for few in x.split(500):
        rows = torch.func.vmap(torch.func.jacrev(scores), (None, 0))(point, few)
        flat = torch.cat([part.flatten(2) for part in rows.values()], 2)
        chances = net(few).detach().softmax(1).sqrt()
        flat = (flat * chances[:, :, None]).flatten(0, 1)
        fisher += flat.T @ flat / len(x)
    values = torch.linalg.eigvalsh(fisher)
    return float((values / (values + decay)).sum())


def softrank() -> list[Row]:
    """Exact soft rank against the naive route."""
    x, y, source = digits(5000)
    x = nn.functional.adaptive_avg_pool2d(x.view(-1, 1, 28, 28), 7).flatten(1)
    torch.manual_seed(0)
    net = fitted(mlp(nn.ReLU, 49, 70, 10), x, y, 200, 500, 3e-3)
    rows = []
    for kind in (torch.float32, torch.float64):
        name = str(kind).removeprefix("torch.")
        part = f"soft rank, 49-70-10, n = 5000, λ = 1e-3, {source}, {name}"
        net, x = net.to(kind), x.to(kind)
        land = bs.Landscape(net, data=(x, y))
        ours, found = timed(partial(bs.soft_rank, land, weight_decay=1e-3, method="exact", progress=False))
        naive, value = timed(partial(naive_soft_rank, net, x, 1e-3))
        text = f"{found.value:.6f} in {ours:.1f} s; naive {value:.6f} in {naive:.1f} s"
        close = abs(found.value / value - 1) < (1e-3 if kind == torch.float32 else 1e-9)
        rows.append(row(part, "exact, against the naive dense route", text, "same value", close))
        rows.append(row(part, "naive / ours", f"{naive / ours:.1f} ×", "≥ 3 ×", naive >= 3 * ours))
    return rows


def bracket() -> list[Row]:
    """Whether the Lanczos bracket holds the exact value."""
    held = sharp = 0
    widths = []
    for case in range(50):
        torch.manual_seed(case)
        inside, hidden, outside = (int(torch.randint(low, high, ())) for low, high in ((8, 25), (15, 40), (3, 10)))
        x = torch.randn(int(torch.randint(60, 300, ())), inside, dtype=torch.float64)
        y = torch.randint(outside, (len(x),))
        net = mlp([nn.Tanh, nn.ReLU][case % 2], inside, hidden, outside).double()
        land = bs.Landscape(fitted(net, x, y, 30, None, 1e-2), data=(x, y))
        decay = 10 ** float(torch.empty(()).uniform_(-4, -1))
        exact = bs.soft_rank(land, weight_decay=decay, method="exact", progress=False).value
        found = bs.soft_rank(land, weight_decay=decay, method="lanczos", seed=case, progress=False)
        assert found.bounds is not None
        held += found.bounds[0] <= exact <= found.bounds[1]
        widths.append((found.bounds[1] - found.bounds[0]) / exact)
        # The quadrature alone, vector by vector and after a few steps only.
        spectrum = torch.rand(200, dtype=torch.float64).pow(6) * 10
        frame = torch.linalg.qr(torch.randn(200, 200, dtype=torch.float64)).Q
        operator = Dense(frame @ torch.diag(spectrum) @ frame.T, psd=True)
        starts = torch.randn(200, 4, dtype=torch.float64)
        runs = LanczosRuns(operator, starts)
        runs.grow(5 + case % 20)
        low, high = SOFT_RANK.at(decay).bracket(nodes_of(runs.tridiagonal, 0.0))
        true = ((frame.T @ starts).square() * (spectrum / (spectrum + decay))[:, None]).sum(0)
        sharp += bool(((low <= true * (1 + 1e-12)) & (true <= high * (1 + 1e-12))).all())
    part = "bracket of the soft rank by Lanczos, 50 random networks"
    text = f"{held} of 50, median width {statistics.median(widths):.2%}"
    return [
        row(part, "bounds hold the exact soft rank", text, "50 of 50", held == 50),
        row(
            part, "Gauss and Gauss–Radau rules hold zᵀf(A)z, 4 vectors each", f"{sharp} of 50", "50 of 50", sharp == 50
        ),
    ]


def memory(peers: bool) -> list[Row]:
    """Growth of the resident set over 1,000 probes."""
    part = "memory, tanh 784-200-200-10 with a skip connection (199,210 parameters), n = 500"
    grown, products = json.loads(run_self("--measure-memory"))
    text = f"{grown / 2**20:.0f} MiB"
    rows = [row(part, f"peak growth of the resident set, {products} probes", text, "< 1 GB", grown < 1e9)]
    if peers:
        command = [PEERS / "bin" / "python", "-W", "ignore", "-c", PEER_MEMORY]
        found = subprocess.run(command, check=True, capture_output=True, text=True, env=alone()).stdout
        rows.append(row(part, "curvlinops, Hutchinson, 100 probes, 784-256-10", f"{float(found) / 2**20:.0f} MiB"))
    return rows


def resident(field: str) -> int:
    """VmHWM (peak) or VmRSS of this process in bytes; Linux only."""
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in status if line.startswith(field))


def measure_memory() -> None:
    torch.manual_seed(0)
    x, y, _ = digits(500)
    land = bs.Landscape(Skipping(784, 200, 10), data=(x, y))
    land.per_sample()
    before = resident("VmRSS")
    found = bs.trace(land, rtol=1e-6, max_products=1000, progress=False)
    print(json.dumps([resident("VmHWM") - before, found.diagnostics["products"]]))


PEER_MEMORY = """
import torch
from torch import nn
from curvlinops import HessianLinearOperator, hutchinson_trace

def resident(field):
    return next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith(field))

net = nn.Sequential(nn.Linear(784, 256), nn.Tanh(), nn.Linear(256, 10))
x, y = torch.rand(500, 784), torch.arange(500) % 10
operator = HessianLinearOperator(
    net, nn.CrossEntropyLoss(), list(net.parameters()), [(x, y)], check_deterministic=False
)
hutchinson_trace(operator, 1)
before = resident("VmRSS")
hutchinson_trace(operator, 100)
print(resident("VmHWM") - before)
"""


class Block(nn.Module):
    """Two 3 × 3 convolutions with a shortcut that drops every other pixel and pads channels with zeros."""

    def __init__(self, inside: int, outside: int) -> None:
        super().__init__()
        self.step, self.extra = (1, 0) if inside == outside else (2, outside - inside)
        self.first = nn.Conv2d(inside, outside, 3, self.step, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outside), nn.BatchNorm2d(outside)])

    def forward(self, x: Tensor) -> Tensor:
        short = nn.functional.pad(x[:, :, :: self.step, :: self.step], (0, 0, 0, 0, 0, self.extra))
        return torch.relu(short + self.norms[1](self.second(torch.relu(self.norms[0](self.first(x))))))


def resnet20() -> nn.Sequential:
    widths = [16, 16, 16, 16, 32, 32, 32, 64, 64, 64]
    blocks = [Block(a, b) for a, b in pairwise(widths)]
    start = [nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    return nn.Sequential(*start, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def resnet() -> list[Row]:
    """Trace and soft rank of a ResNet-20."""
    x, y, source = pictures(500)
    torch.manual_seed(0)
    net = fitted(resnet20(), x, y, 16, 125, 3e-3)
    land = bs.Landscape(net, data=(x, y))
    part = f"ResNet-20, {land.dimension:,} parameters, frozen statistics, 500 images ({source})"
    first, found = timed(partial(bs.trace, land, rtol=0.03, progress=False))
    text = f"{found.value:.5g} ± {found.stderr:.2g} in {first:.0f} s"
    rows = [row(part, f"Tr H ({found.diagnostics['method']})", text)]
    second, found = timed(partial(bs.soft_rank, land, weight_decay=1e-3, rtol=0.03, progress=False))
    assert found.bounds is not None
    text = f"{found.value:.2f} ± {found.stderr:.2g} in [{found.bounds[0]:.2f}, {found.bounds[1]:.2f}], {second:.0f} s"
    rows.append(row(part, f"soft rank, λ = 1e-3 ({found.diagnostics['method']})", text))
    both = first + second
    rows.append(row(part, "both, CPU seconds of one thread", f"{both:.0f} s", "< 600 s", both < 600))
    return rows


# ---------------------------------------------------------------------- running and writing


def alone() -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def run_self(*arguments: str) -> str:
    command = [sys.executable, __file__, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=alone()).stdout


def prepare_peers() -> None:
    """Make the peers' environment if it is not there."""
    stamp = PEERS / ".installed"
    if stamp.is_file():
        return
    venv.create(PEERS, with_pip=True)
    pip = [PEERS / "bin" / "python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
    subprocess.run([*pip, TORCH], check=True)
    subprocess.run([*pip, "--no-deps", *PACKAGES, *NEEDED], check=True)
    stamp.touch()


PARTS: dict[str, Callable[[argparse.Namespace], list[Row]]] = {
    "smooth": lambda options: trace("tanh", 4, options.peers, options.budget),
    "relu": lambda options: trace("relu", 50, options.peers, options.budget),
    "coverage": lambda options: coverage(),
    "softrank": lambda options: softrank(),
    "bracket": lambda options: bracket(),
    "memory": lambda options: memory(options.peers),
    "resnet": lambda options: resnet(),
}
TITLES = {  # how the names of a part's sections begin
    "smooth": "trace, tanh",
    "relu": "trace, relu",
    "coverage": "coverage,",
    "softrank": "soft rank,",
    "bracket": "bracket ",
    "memory": "memory,",
    "resnet": "ResNet-20,",
}


def save(path: Path, part: str, fresh: list[Row]) -> list[Row]:
    """Replace the rows of one part, in the order of the parts."""
    table = path.with_suffix(".csv")
    kept: list[Row] = []
    if table.is_file():
        with table.open(newline="") as lines:
            kept = [Row(**line) for line in csv.DictReader(lines)]
    every = [each for each in kept if not each.part.startswith(TITLES[part])] + fresh
    order = list(TITLES.values())
    every.sort(key=lambda each: next(place for place, title in enumerate(order) if each.part.startswith(title)))
    path.parent.mkdir(parents=True, exist_ok=True)
    with table.open("w", newline="") as lines:
        writer = csv.DictWriter(lines, [field.name for field in fields(Row)])
        writer.writeheader()
        writer.writerows(map(asdict, every))
    path.write_text(markdown(every))
    return every


NOTES = [  # on the run whose results are kept
    "Both networks are plain stacks of linear layers, whose traces basinscope has in closed form: one pass through the",
    "network and back, exact, with a standard error of 0. Nearly half of its time is the forward pass itself. Networks",
    "outside of that (skip connections, attention, …) get Tr F from gradient norms and Tr (H − F) from random probes;",
    "the parts on coverage and memory use one. On the ReLU network the margin is thin: earlier versions, under other",
    "load, came to 48, 52 and 50 × where this run has 57 ×. laplace-torch's diagonal, exact there too, takes 4 to 5 ×.",
]


def markdown(rows: list[Row]) -> str:
    text = [
        "# Curvature",
        "",
        f"basinscope {bs.__version__}, torch {torch.__version__}, Python {platform.python_version()}, one thread.",
        "Times are CPU seconds. `make bench-curvature` reruns it all, with `ARGS='--only smooth'` one part.",
        "",
        "Peers run on the same networks in an environment of their own, installed without their declared dependencies:",
        "those would bring in torchvision and a CUDA torch, which nothing here needs. A peer is charged for the number",
        "of products at which its median error over seeds is 1 %, which a user would have to know before. The true",
        "trace is a closed form in float64, checked by long runs of the peers' own probes. Hutch++ and XTrace are",
        "tried with 12, 24, 48, … products on 5 seeds each: their rows are coarse. Parts may come from separate runs.",
        "",
        *NOTES,
    ]
    last = ""
    for each in rows:
        if each.part != last:
            text += [
                "",
                f"## {each.part[0].upper()}{each.part[1:]}",
                "",
                "| | found | target | met |",
                "|---|---|---|---|",
            ]
            last = each.part
        text.append(f"| {each.what} | {each.value} | {each.target} | {each.met} |")
    return "\n".join(text) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), metavar="PART")
    parser.add_argument("--peers", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--budget", type=float, default=60.0, help="CPU seconds for each method of a peer")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--measure-memory", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.measure_memory:
        measure_memory()
        return 0
    if options.peers and {"smooth", "relu", "memory"} & set(options.only):
        prepare_peers()
    missed = False
    for part in options.only:
        rows = PARTS[part](options)
        save(options.out, part, rows)
        missed |= any(each.met == "NO" for each in rows)
        for each in rows:
            print(f"{each.part} | {each.what} | {each.value} | {each.target} {each.met}", flush=True)
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
