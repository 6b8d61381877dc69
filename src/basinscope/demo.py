"""The demonstration: train a small network on data that ship with scikit-learn, and measure it."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from .demo_figure import draw
from .errors import BasinscopeError, InputError
from .estimates import Estimate
from .landscape import Landscape
from .measures.measurement import measurement
from .progress import tracked
from .report.measure import assembled
from .report.report import Point, Report

SHUFFLED = 0.2  # of the labels: without noise a classifier has no minimum, its weights grow for ever
PIXELS = 16
CLASSES = 10


@dataclass(frozen=True)
class Digits:
    """Handwritten digits on 4 × 4 pixels, centred, a fifth of the labels replaced by random ones."""

    inputs: Tensor  # (n, 16) float64
    labels: Tensor  # (n,), partly shuffled: what the network is trained on
    truth: Tensor  # (n,)


@dataclass(frozen=True)
class Trained:
    """A network at a minimum of its loss."""

    network: nn.Sequential
    loss: float
    accuracy: float  # on the true labels
    gradient: float  # ‖∇L_n‖
    seconds: float


@dataclass(frozen=True)
class Demo:
    """What was trained and measured."""

    digits: Digits
    trained: Trained
    llc: Estimate
    wbic: Estimate
    curve: list[tuple[float, float]]  # γ, half the soft rank of the Hessian at γ/(nβ)
    seconds: float
    report: Report | None = None


def run(*, hidden: int = 8, samples: int | None = None, budget: float = 20.0, seed: int = 0) -> Demo:
    """Train, then measure everything there is to say of the minimum."""
    with _one_thread():
        return _run(hidden, samples, budget, seed)


@contextmanager
def _one_thread() -> Iterator[None]:
    """Matrices this small gain nothing from a second thread, and lose much where another program wants the core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _run(hidden: int, samples: int | None, budget: float, seed: int) -> Demo:
    started = time.perf_counter()
    digits = load_digits(samples)
    trained = train(digits, hidden, seed)
    land = Landscape(trained.network, "cross_entropy", (digits.inputs.float(), digits.labels))
    found = measurement(land, budget=budget, seed=seed)
    title = f"Digits, {PIXELS}-{hidden}-{CLASSES} with ReLU"
    report = assembled(
        [Point("w*", found)], {"budget": budget, "seed": seed}, _command(hidden, samples, budget, seed), title
    )
    free_energy = found.estimates["wbic"]
    return Demo(digits, trained, found.llc, free_energy, list(found.curve), time.perf_counter() - started, report)


def _command(hidden: int, samples: int | None, budget: float, seed: int) -> str:
    given = "" if samples is None else f" --samples {samples}"
    return f"basinscope demo --hidden {hidden}{given} --budget {budget:g} --seed {seed}"


def load_digits(samples: int | None = None, seed: int = 0) -> Digits:
    """The data, or their first `samples`; the same for every seed of the demonstration."""
    try:
        from sklearn import datasets
    except ImportError:
        raise BasinscopeError(
            "the demo's data come with scikit-learn, which is not installed — pip install 'basinscope[demo]'"
        ) from None
    bunch = datasets.load_digits()
    count = len(bunch.target) if samples is None else samples
    if not 50 <= count <= len(bunch.target):
        raise InputError(f"samples must lie in 50..{len(bunch.target)}, got {samples}")
    images = torch.tensor(bunch.images[:count], dtype=torch.float64)[:, None] / 16
    inputs = functional.avg_pool2d(images, 2).flatten(1)
    truth = torch.tensor(bunch.target[:count])
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(count, generator=generator) < SHUFFLED
    labels = torch.where(chosen, torch.randint(CLASSES, (count,), generator=generator), truth)
    return Digits(inputs - inputs.mean(0), labels, truth)


def train(digits: Digits, hidden: int, seed: int) -> Trained:
    """Adam to a good basin, then L-BFGS in double precision to its bottom, where the gradient no longer counts."""
    started = time.perf_counter()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(PIXELS, hidden), nn.ReLU(), nn.Linear(hidden, CLASSES)).double()
    weights = list(network.parameters())
    with tracked("training") as report:

        def descend(optimizer: torch.optim.Optimizer, name: str, steps: int) -> Callable[[], float]:
            done = 0

            def closure() -> float:
                nonlocal done
                done += 1
                optimizer.zero_grad()
                loss = functional.cross_entropy(network(digits.inputs), digits.labels)
                loss.backward()
                report(done / steps, f"{name}, loss {loss.item():.4f}")
                return loss.item()

            return closure

        adam = torch.optim.Adam(weights, lr=0.02)
        closure = descend(adam, "Adam", 300)
        for _ in range(300):
            adam.step(closure)
        lbfgs = torch.optim.LBFGS(
            weights,
            max_iter=1500,
            max_eval=2000,
            history_size=50,
            line_search_fn="strong_wolfe",
            tolerance_grad=1e-9,
            tolerance_change=1e-14,
        )
        closure = descend(lbfgs, "L-BFGS", 2000)
        lbfgs.step(closure)
        loss = closure()
    gradient = math.sqrt(sum(float(weight.grad.square().sum()) for weight in weights if weight.grad is not None))
    with torch.no_grad():
        correct = network(digits.inputs).argmax(1) == digits.truth
    seconds = time.perf_counter() - started
    return Trained(network.float(), loss, float(correct.double().mean()), gradient, seconds)


def write(demo: Demo, folder: Path) -> list[Path]:
    """Write the report, the summary, the weights and, with matplotlib, a figure; the paths of what was written."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [] if demo.report is None else [demo.report.write(folder / "report.html")]
    written += [_write_summary(demo, folder), _write_weights(demo.trained.network, folder)]
    try:
        figure = draw(demo.llc, demo.curve)
    except ImportError:
        return written
    path = folder / "figure.png"
    _atomically(path, lambda part: figure.savefig(part, dpi=150, format="png"))
    return [*written, path]


def _write_summary(demo: Demo, folder: Path) -> Path:
    summary = {
        "data": {"n": len(demo.digits.labels), "shuffled": SHUFFLED},
        "network": [layer.out_features for layer in demo.trained.network if isinstance(layer, nn.Linear)],
        "training": {
            "loss": demo.trained.loss,
            "accuracy": demo.trained.accuracy,
            "gradient": demo.trained.gradient,
            "seconds": demo.trained.seconds,
        },
        "llc": demo.llc.to_dict(),
        "wbic": {**demo.wbic.to_dict(), "diagnostics": "those of llc: one run gives both"},
        "half_soft_rank": [{"gamma": gamma, "value": value} for gamma, value in demo.curve],
        "seconds": demo.seconds,
    }
    path = folder / "summary.json"
    text = json.dumps(summary, indent=1, default=str) + "\n"
    _atomically(path, lambda part: part.write_text(text))
    return path


def _write_weights(network: nn.Module, folder: Path) -> Path:
    try:
        from safetensors.torch import save
    except ImportError:
        path = folder / "model.npz"
        arrays: dict[str, Any] = {name: tensor.numpy() for name, tensor in network.state_dict().items()}

        def write_arrays(part: Path) -> None:
            with part.open("wb") as stream:
                np.savez(stream, **arrays)

        _atomically(path, write_arrays)
        return path
    path = folder / "model.safetensors"
    data = save(network.state_dict())
    _atomically(path, lambda part: part.write_bytes(data))
    return path


def _atomically(path: Path, write_to: Callable[[Path], Any]) -> None:
    part = path.with_name(path.name + ".part")
    write_to(part)
    os.replace(part, path)
