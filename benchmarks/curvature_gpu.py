"""Curvature measures on a GPU: a 9,180-parameter network at n = 20,000, and a 5 M-parameter ResNet.

    python benchmarks/curvature_gpu.py --data DATA --out benchmarks/results/gpu

DATA holds mnist/*.gz and cifar1000.npz (x: 1000 × 3 × 32 × 32 in [0, 1], y: labels). Writes gpu_curvature.json; times
are wall-clock after synchronization, for a second call in the same process unless marked `first`.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from gpu import mlp, mnist
from torch import Tensor, nn

import basinscope as bs


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


def timed(name: str, call: Callable[[], object]) -> dict[str, object]:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    row = {
        "name": name,
        "seconds": time.perf_counter() - began,
        "peak_gib": torch.cuda.max_memory_allocated() / 2**30,
        "result": [str(each) for each in result] if isinstance(result, list) else str(result),
        "bounds": [list(each.bounds or ()) for each in (result if isinstance(result, list) else [result])],
    }
    print(row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results: dict[str, object] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "basinscope": bs.__version__,
    }
    torch.manual_seed(0)
    x, y = mnist(options.data)
    small = nn.functional.adaptive_avg_pool2d(x.view(-1, 1, 28, 28), 7).flatten(1)[:20000].cuda()
    y = y[:20000].cuda()
    land = bs.Landscape(fitted(mlp(49, 70, 70, 10).cuda(), small, y, 3000, 512), data=(small, y))
    decay = 1 / land.n

    def small_measures() -> list[object]:
        return [
            bs.soft_rank(land, weight_decay=decay, progress=False),
            bs.log_det(land, weight_decay=decay, progress=False),
            bs.hessian_trace(land, progress=False),
            bs.operator_norm(land, progress=False),
        ]

    print(land, flush=True)
    results["mlp_9180"] = [timed("first", small_measures), timed("second", small_measures)]

    def save() -> None:
        (options.out / "gpu_curvature.json").write_text(json.dumps(results, indent=1))

    save()
    stored = np.load(options.data / "cifar1000.npz")
    images, labels = torch.tensor(stored["x"]).cuda(), torch.tensor(stored["y"]).cuda()
    land = bs.Landscape(fitted(resnet(69, 3).cuda(), images, labels, 200, 128), data=(images, labels))
    print(land, flush=True)
    results["resnet"] = [
        {"parameters": land.dimension, "n": land.n, "loss": float(land.per_sample().mean())},
        timed("hessian_trace", lambda: bs.hessian_trace(land, rtol=0.03, progress=False)),
        timed("soft_rank", lambda: bs.soft_rank(land, weight_decay=1e-3, rtol=0.03, progress=False)),
    ]
    save()


if __name__ == "__main__":
    main()
