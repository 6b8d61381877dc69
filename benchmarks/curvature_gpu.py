"""Curvature measures on a GPU: a 9,180-parameter network at n = 20,000, and a 5 M-parameter ResNet.

    python benchmarks/curvature_gpu.py --out benchmarks/results/gpu [--data DATA] [--only mlp resnet lanczos]

DATA holds mnist/*.gz and, for the ResNet, cifar1000.npz (x: 1000 × 3 × 32 × 32 in [0, 1], y: labels) or
cifar10/cifar-10-binary-20k.tar.gz; what is missing is replaced by synthetic images of the same shape. Writes
gpu_curvature.json anew after every measurement, so that a run cut short keeps what it has. Times are wall-clock after
synchronization. `lanczos` is the ResNet's soft rank once more by the method that larger data would need.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gpu import mlp
from torch import Tensor, nn

import basinscope as bs
from curvature import digits, folder, pictures

PARTS = ("mlp", "resnet", "lanczos")


class Block(nn.Module):
    """A basic residual block with frozen batch normalization."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
            nn.BatchNorm2d(outside),
            nn.ReLU(),
            nn.Conv2d(outside, outside, 3, 1, 1, bias=False),
            nn.BatchNorm2d(outside),
        )
        self.skip = (
            nn.Identity()
            if (inside, stride) == (outside, 1)
            else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.skip(x))


def resnet(width: int, blocks: int = 3) -> nn.Sequential:
    """ResNet for 32 × 32 images: three stages of `blocks` blocks, widths w, 2w, 4w."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    inside = width
    for stage in range(3):
        for number in range(blocks):
            outside = width * 2**stage
            layers.append(Block(inside, outside, 2 if stage > 0 and number == 0 else 1))
            inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 10))


def fitted(net: nn.Module, x: Tensor, y: Tensor, steps: int, batch: int) -> nn.Module:
    """Adam for `steps` steps, then evaluation mode."""
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(steps):
        chosen = torch.randint(len(x), (batch,), device=x.device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[chosen]), y[chosen]).backward()
        optimizer.step()
    return net.eval()


class Journal:
    """Results that are on disk as soon as they exist."""

    def __init__(self, path: Path, device: str) -> None:
        self.path, self.device = path, device
        self.found: dict[str, Any] = json.loads(path.read_text()) if path.is_file() else {}
        self.found |= {
            "device": torch.cuda.get_device_name() if device == "cuda" else platform.processor(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "basinscope": bs.__version__,
        }

    def start(self, part: str, about: dict[str, Any]) -> None:
        self.found[part] = [about]
        self.save()

    def save(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(json.dumps(self.found, indent=1))

    def timed(self, part: str, name: str, call: Callable[[], Any]) -> None:
        """Run `call` and note its time, memory and results; a failure is noted too."""
        self.wait()
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        row: dict[str, Any] = {"name": name}
        try:
            result = call()
            self.wait()
            every = result if isinstance(result, list) else [result]
            row |= {"seconds": time.perf_counter() - began, "results": [self.describe(each) for each in every]}
        except Exception as problem:
            traceback.print_exc()
            row |= {"seconds": time.perf_counter() - began, "failed": f"{type(problem).__name__}: {problem}"[:500]}
        if self.device == "cuda":
            row["peak_gib"] = torch.cuda.max_memory_allocated() / 2**30
            torch.cuda.empty_cache()
        print(row, flush=True)
        self.found[part].append(row)
        self.save()

    @staticmethod
    def describe(estimate: bs.Estimate) -> dict[str, Any]:
        found = estimate.to_dict()
        kept = {key: value for key, value in found["diagnostics"].items() if np.isscalar(value)}
        return {**{key: found[key] for key in ("name", "value", "stderr", "verdict", "warnings", "bounds")}, **kept}

    def wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def small(journal: Journal) -> None:
    """Four measures of a 9,180-parameter network at n = 20,000."""
    torch.manual_seed(0)
    x, y, source = digits(20000)
    x = nn.functional.adaptive_avg_pool2d(x.view(-1, 1, 28, 28), 7).flatten(1).to(journal.device)
    y = y.to(journal.device)
    net = fitted(mlp(49, 70, 70, 10).to(journal.device), x, y, 3000, 512)

    def measures() -> list[bs.Estimate]:
        land = bs.Landscape(net, data=(x, y))  # a fresh one: nothing is kept from call to call
        return [
            bs.soft_rank(land, weight_decay=1 / land.n, progress=False),
            bs.log_det(land, weight_decay=1 / land.n, progress=False),
            bs.trace(land, progress=False),
            bs.operator_norm(land, progress=False),
        ]

    journal.start("mlp_9180", {"n": len(x), "images": source, "target_seconds": 2})
    for name in ("first", "second", "third"):
        journal.timed("mlp_9180", name, measures)


def large(journal: Journal, parts: list[str], width: int, n: int) -> None:
    """Trace and soft rank of a ResNet."""
    torch.manual_seed(0)
    x, y, source = images(n)
    x, y = x.to(journal.device), y.to(journal.device)
    net = fitted(resnet(width).to(journal.device), x, y, 200, min(n, 128))
    land = bs.Landscape(net, data=(x, y))
    print(land, flush=True)
    about = {"parameters": land.dimension, "n": land.n, "images": source, "loss": float(land.per_sample().mean())}
    settings: dict[str, Any] = {"weight_decay": 1e-3, "rtol": 0.03, "progress": False}
    if "resnet" in parts:
        journal.start("resnet", {**about, "target_seconds": 120})
        journal.timed("resnet", "hessian_trace", lambda: bs.trace(land, rtol=0.03, progress=False))
        journal.timed("resnet", "soft_rank", lambda: bs.soft_rank(land, **settings))
    if "lanczos" in parts:
        journal.start("lanczos", about)
        journal.timed("lanczos", "soft_rank", lambda: bs.soft_rank(land, method="lanczos", **settings))


def images(n: int) -> tuple[Tensor, Tensor, str]:
    source = folder()
    if source is not None and (source / "cifar1000.npz").is_file():
        stored = np.load(source / "cifar1000.npz")
        return torch.tensor(stored["x"][:n]).float(), torch.tensor(stored["y"][:n]).long(), "CIFAR-10"
    return pictures(n)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--width", type=int, default=69, help="of the ResNet's first stage; 69 gives 5 M parameters")
    parser.add_argument("--images", type=int, default=1000)
    options = parser.parse_args()
    if options.data is not None:
        os.environ["BASINSCOPE_DATA"] = str(options.data)
    journal = Journal(options.out / "gpu_curvature.json", options.device)
    if "mlp" in options.only:
        small(journal)
    if {"resnet", "lanczos"} & set(options.only):
        large(journal, options.only, options.width, options.images)


if __name__ == "__main__":
    main()
