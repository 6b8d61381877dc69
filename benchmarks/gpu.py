"""Speed and agreement on a GPU: chain draws of a large MLP, and a Metropolis-adjusted λ̂ of an MNIST network.

    python benchmarks/gpu.py --data DATA --out benchmarks/results/gpu

DATA holds mnist/*.gz. Writes gpu_llc_PART.json; every time is wall-clock after synchronization, the first call included
where it says `total`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import platform
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

import basinscope as bs
from basinscope.sampling.chains import ChainLosses
from basinscope.sampling.engine import Engine
from basinscope.sampling.kernels import SGLD
from basinscope.sampling.minibatches import minibatches
from basinscope.sampling.target import Target, Whitening


def mnist(folder: Path) -> tuple[Tensor, Tensor]:
    """The 60,000 training images as rows in [0, 1], and their labels."""

    def read(name: str, header: int) -> np.ndarray:
        return np.frombuffer(gzip.decompress((folder / "mnist" / name).read_bytes())[header:], dtype=np.uint8)

    images = read("train-images-idx3-ubyte.gz", 16).reshape(-1, 784)
    labels = read("train-labels-idx1-ubyte.gz", 8)
    return torch.tensor(images / 255.0, dtype=torch.float32), torch.tensor(labels.astype(np.int64))


def mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(pairwise(widths)):
        layers += [nn.Linear(a, b)] + ([nn.ReLU()] if i < len(widths) - 2 else [])
    return nn.Sequential(*layers)


def chain_draws(x: Tensor, y: Tensor, device: str) -> dict[str, float]:
    """Milliseconds per chain draw: 32 chains of a 784-1024-1024-10 network, batch 512, plain SGLD."""
    torch.manual_seed(0)
    land = bs.Landscape(mlp(784, 1024, 1024, 10).to(device), data=(x, y))
    target = Target(ChainLosses(land), 5453.0, 100.0, Whitening.identity(land.flatten(land.parameters)))
    generator = torch.Generator(device).manual_seed(0)
    evaluate = minibatches(target, 512, generator, None)
    start = torch.zeros(32, land.dimension, device=device)
    engine = Engine(SGLD(1e-7), evaluate, start, generator, 1e9)
    engine.run(20)
    torch.cuda.synchronize()
    began = time.perf_counter()
    engine.run(300)
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - began
    return {"dimension": land.dimension, "chains": 32, "batch": 512, "ms_per_chain_draw": elapsed / 300 / 32 * 1e3}


def trained(x: Tensor, y: Tensor, device: str, epochs: int) -> nn.Module:
    """A 784-256-256-10 network trained by SGD, batch 128, learning rate 0.05 with cosine decay."""
    torch.manual_seed(0)
    net = mlp(784, 256, 256, 10).to(device)
    x, y = x.to(device), y.to(device)
    steps = epochs * (len(x) // 128)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        batch = torch.randint(len(x), (128,), device=device)
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[batch]), y[batch]).backward()
        optimizer.step()
        schedule.step()
    return net


def measured(land: bs.Landscape, **settings: object) -> dict[str, object]:
    torch.cuda.synchronize()
    began = time.perf_counter()
    estimate = bs.llc(land, progress=False, **settings)  # type: ignore[arg-type]
    torch.cuda.synchronize()
    elapsed = time.perf_counter() - began
    found = {key: value for key, value in estimate.to_dict().items() if key != "diagnostics"}
    kept = {key: value for key, value in estimate.to_dict()["diagnostics"].items() if key != "trace"}
    print({**found, "seconds": round(elapsed, 2)}, kept, flush=True)
    return {**found, "total_seconds": elapsed, "settings": dict(settings), "diagnostics": kept}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--only", choices=("", "draws", "hmc", "minibatch"), default="")
    options = parser.parse_args()
    device = "cuda"
    x, y = mnist(options.data)
    results: dict[str, object] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "basinscope": bs.__version__,
    }
    options.out.mkdir(parents=True, exist_ok=True)

    def save() -> None:
        (options.out / f"gpu_llc_{options.only or 'all'}.json").write_text(json.dumps(results, indent=1))

    if options.only in ("", "draws"):
        results["chain_draws"] = chain_draws(x, y, device)
        print(results["chain_draws"], flush=True)
        save()
    if options.only == "draws":
        return
    land = bs.Landscape(trained(x, y, device, options.epochs), data=(x, y))
    print(land, "loss", float(land.per_sample().mean()), flush=True)
    for name, settings in {"hmc": {"rtol": 0.01}, "minibatch": {}}.items():
        if options.only in ("", name):
            results[name] = [measured(land, sampler=name, gamma=100.0, seed=seed, **settings) for seed in (0, 1)]
            save()


if __name__ == "__main__":
    main()
