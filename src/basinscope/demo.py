"""The demonstration: train a small network on data that ship with scikit-learn, and measure it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional

from .errors import BasinscopeError, InputError
from .files import write_whole
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

    @property
    def widths(self) -> str:
        """Units of each layer, as in "16-8-10"."""
        layers = [layer for layer in self.network if isinstance(layer, nn.Linear)]
        return "-".join(str(width) for width in (layers[0].in_features, *(layer.out_features for layer in layers)))


@contextmanager
def one_thread() -> Iterator[None]:
    """Matrices this small gain nothing from a second thread, and lose much where another program wants the core."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


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
    return Trained(network.float(), loss, float(correct.double().mean()), gradient)


def measure(trained: Trained, digits: Digits, budget: float, seed: int, command: str) -> Report:
    """Everything there is to say of the minimum; `command` is what the report names to make it again."""
    land = Landscape(trained.network, "cross_entropy", (digits.inputs.float(), digits.labels))
    result = measurement(land, budget=budget, seed=seed)
    return assembled(
        [Point("w*", result)], {"budget": budget, "seed": seed}, command, f"Digits, {trained.widths} with ReLU"
    )


def write(report: Report, network: nn.Module, folder: Path) -> list[Path]:
    """Write the report, as a page and as numbers, and the weights; the paths of what was written, the page first."""
    weights = folder / "model.safetensors"
    write_whole(weights, save(network.state_dict()))
    report.save(folder)
    return [folder / "report.html", folder / "report.json", weights]
