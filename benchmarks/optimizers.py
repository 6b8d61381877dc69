"""Time of a training step by optimizer, and how often it makes the program wait for the device.

    python benchmarks/optimizers.py [--device cuda] [--widths 64 256 512] [--layers 2] [--steps 200] [--out FILE]

Networks 784-width-…-10 on random images, batches of 128, through `basinscope.training.train`. Times are wall-clock
after synchronization, as the difference between a long and a short run, so that what happens once does not count;
beside them the ratio to SGD. `waits` counts synchronizations a step, on a GPU only.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import SGD, Adam, Optimizer

from basinscope.optim import KFAC, EntropySGD, ExactNGD, OnlineNGD, preset
from basinscope.training import Every, train

Build = Callable[[nn.Module], Optimizer]

OPTIMIZERS: dict[str, Build] = {
    "SGD": lambda net: SGD(net.parameters(), lr=1e-2),
    "Adam": lambda net: Adam(net.parameters(), lr=1e-3),
    "OnlineNGD (paper)": lambda net: OnlineNGD(net.parameters(), **preset("saghir-2024")),
    "OnlineNGD (kaldi)": lambda net: OnlineNGD(net.parameters(), lr=1e-2, **preset("kaldi")),
    "KFAC": lambda net: KFAC(net, lr=1e-3, alpha=1.0),
    "KFAC, every 10": lambda net: KFAC(net, lr=1e-3, alpha=1.0, eta=0.05, update_period=10),
    "ExactNGD": lambda net: ExactNGD(net, lr=1e-3, alpha=1.0),
    "EntropySGD (20 batches)": lambda net: EntropySGD(net.parameters(), inner_lr=1e-2),
}


def network(width: int, layers: int, device: torch.device) -> nn.Module:
    """A ReLU network 784-width-…-10."""
    torch.manual_seed(0)
    sizes = [784, *[width] * layers]
    parts: list[nn.Module] = []
    for inside, outside in pairwise(sizes):
        parts += [nn.Linear(inside, outside), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, 10)).to(device)


def seconds(net: nn.Module, data: tuple[Tensor, Tensor], build: Build, steps: int) -> float:
    """Wall-clock of one run."""
    started = time.perf_counter()
    train(net, data, build, steps=steps, record=Every(steps=10**9), progress=False)
    if data[0].is_cuda:
        torch.cuda.synchronize()
    return time.perf_counter() - started


def waits(net: nn.Module, data: tuple[Tensor, Tensor], build: Build, steps: int) -> float | None:
    """Synchronizations a step, by the warnings that torch gives about them."""
    if not data[0].is_cuda:
        return None
    counts = []
    for length in (20, 20 + steps):
        torch.cuda.set_sync_debug_mode("warn")
        try:
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                seconds(net, data, build, length)
        finally:
            torch.cuda.set_sync_debug_mode("default")
        counts.append(sum("synchroniz" in str(warning.message) for warning in found))
    return (counts[1] - counts[0]) / steps


def measured(width: int, layers: int, steps: int, device: torch.device) -> list[dict[str, Any]]:
    """A row an optimizer."""
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(6400, 784, generator=generator)
    # Labels that can be learned: no optimizer should be timed on a diverging run.
    labels = (images @ torch.randn(784, 10, generator=generator)).argmax(1)
    data = images.to(device), labels.to(device)
    net, rows, base = network(width, layers, device), [], 0.0
    for name, build in OPTIMIZERS.items():
        seconds(net, data, build, 15)
        spent = min((seconds(net, data, build, 20 + steps) - seconds(net, data, build, 20)) / steps for _ in range(3))
        base = base or spent
        row = {"width": width, "layers": layers, "optimizer": name, "ms": 1e3 * spent, "to_sgd": spent / base}
        rows.append({**row, "waits": waits(net, data, build, min(steps, 64))})
        print(*(f"{value:.3g}" if isinstance(value, float) else value for value in rows[-1].values()), sep="\t")
    return rows


def main() -> None:
    """Measure and print; write JSON where asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--widths", type=int, nargs="+", default=[64, 256, 512])
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = torch.device(options.device)
    if device.type == "cpu":
        torch.set_num_threads(1)
    rows = [row for width in options.widths for row in measured(width, options.layers, options.steps, device)]
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.machine()
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"device": where, "torch": torch.__version__, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
