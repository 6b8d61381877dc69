"""Population training: time per step beside a loop over models, and on a GPU against the targets.

    python benchmarks/population.py                          on the CPU, one thread; writes results/population.md
    python benchmarks/population.py --gpu --out FOLDER       on a GPU; writes FOLDER/gpu_population.json
    python benchmarks/population.py --table                  only writes results/population.md again

The networks are those of "Flatness After All?" on random 7 × 7 images: the time of a step does not depend on the data.
CPU times are process time, the loop and the population taking turns, the best of several; GPU times are wall-clock
after synchronization, minibatches, optimizer and checks included. Exits with status 1 if a target is missed.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from basinscope.training.population import Member, Population
from basinscope.zoo import models

HERE = Path(__file__).parent
RESULTS = HERE / "results"
BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "MLP": lambda: models.ffnn([49, 70, 10]),
    "BigMLP": lambda: models.ffnn([49, 70, 70, 10]),
    "CNN": lambda: models.convnet([1, 15, 20, 10]),
}
SAMPLES = 20_000


def data(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(10, (SAMPLES,), generator=generator)
    centres = torch.rand(10, 1, 7, 7, generator=generator)
    images = centres[labels] + 0.5 * torch.rand(SAMPLES, 1, 7, 7, generator=generator)
    return images.to(dtype), labels


def members(count: int, batches: list[int]) -> list[Member]:
    """Members that differ in everything they can: batch sizes in equal shares."""
    return [
        Member(
            seed=i,
            lr=(0.01, 0.005, 0.001)[i % 3],
            weight_decay=10.0 ** (i % 7 - 6),
            batch_size=batches[i * len(batches) // count],
            subset=range((5_000, 10_000, 20_000)[i // 3 % 3]),
        )
        for i in range(count)
    ]


# ---------------------------------------------------------------------- on the CPU


def looped(build: Callable[[], nn.Module], count: int, batch: int, x: Tensor, y: Tensor) -> Callable[[int], None]:
    """The plain way: one model after another, torch's Adam."""
    nets = [build() for _ in range(count)]
    optimizers = [torch.optim.Adam(net.parameters(), lr=1e-3, weight_decay=1e-4) for net in nets]

    def run(steps: int) -> None:
        for _ in range(steps):
            for net, optimizer in zip(nets, optimizers, strict=True):
                few = torch.randint(len(x), (batch,))
                optimizer.zero_grad()
                nn.functional.cross_entropy(net(x[few]), y[few]).backward()
                optimizer.step()

    return run


def cpu() -> dict[str, Any]:
    torch.set_num_threads(1)
    x, y = data()
    rows = []
    for name, batch, target in (
        ("MLP", 32, 5.0),
        ("MLP", 128, None),
        ("MLP", 512, 2.0),
        ("BigMLP", 32, None),
        ("CNN", 32, None),
    ):
        build = BUILDERS[name]
        population = Population(build, members(64, [batch]), (x, y))
        loop = looped(build, 64, batch, x, y)
        steps = 32 if name != "CNN" else 16
        population.train(32, progress=False)
        loop(1)
        times: dict[str, list[float]] = {"loop": [], "population": []}
        for _ in range(4):
            began = time.process_time()
            loop(4)
            middle = time.process_time()
            population.train(population.step + steps, progress=False)
            times["loop"].append((middle - began) / 4)
            times["population"].append((time.process_time() - middle) / steps)
        alone, together = (1e3 * min(values) for values in times.values())
        row = {"network": name, "members": 64, "batch": batch, "loop_ms": alone, "population_ms": together}
        row |= {
            "ratio": alone / together,
            "target": target,
            "met": None if target is None else alone / together >= target,
        }
        rows.append(row)
        print(row, flush=True)
    return {"torch": torch.__version__, "python": platform.python_version(), "threads": 1, "rows": rows}


# ---------------------------------------------------------------------- on a GPU


def timed(name: str, count: int, batches: list[int], blocks: int = 10) -> tuple[Population, float]:
    population = Population(BUILDERS[name], members(count, batches), data(), device="cuda")
    population.train(64, progress=False)
    torch.cuda.synchronize()
    best = float("inf")
    for _ in range(3):
        began = time.perf_counter()
        population.train(population.step + 32 * blocks, progress=False)
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - began) / (32 * blocks))
    return population, 1e3 * best


def kernels(population: Population, most: int = 14) -> list[dict[str, Any]]:
    """Where a step's time goes: microseconds per step by kernel."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        population.train(population.step + 64, progress=False)
        torch.cuda.synchronize()
    found = sorted(recorded.key_averages(), key=lambda event: -event.self_device_time_total)[:most]
    return [
        {"us_per_step": event.self_device_time_total / 64, "calls": event.count / 64, "kernel": event.key[:110]}
        for event in found
    ]


def agreement(name: str) -> dict[str, float]:
    """Largest difference of weights between GPU and CPU after 64 steps in float64; whether a resumed run is equal."""
    x, y = data(torch.float64)
    few = members(6, [64, 32])

    def make(device: str) -> Population:
        return Population(lambda: BUILDERS[name]().double(), few, (x, y), device=device)

    here, there = make("cpu"), make("cuda")
    here.train(64, progress=False)
    there.train(64, progress=False)
    differences = [
        float((ours - theirs.cpu()).abs().max())
        for ours, theirs in zip(here.parameters.values(), there.parameters.values(), strict=True)
    ]
    there.train(150, progress=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "population.npz"
        make("cuda").train(96, checkpoint=path, progress=False)
        resumed = make("cuda")
        resumed.train(150, checkpoint=path, progress=False)
    same = all(torch.equal(ours, resumed.parameters[key]) for key, ours in there.parameters.items())
    return {"largest_difference": max(differences), "resumed_equal": float(same)}


def gpu(out: Path) -> dict[str, Any]:
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    found: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "rows": [],
        "kernels": {},
        "agreement": {},
    }

    def save() -> None:
        found["seconds"] = time.perf_counter() - began
        (out / "gpu_population.json").write_text(json.dumps(found, indent=1) + "\n")

    mixed = [64, 256, 512]
    mlp = float("nan")
    for name, count, batches, precision, limit in (
        ("MLP", 567, [512], "highest", 1.3),
        ("MLP", 567, [64], "highest", 0.35),
        ("CNN", 567, [512], "highest", None),
        ("BigMLP", 567, [512], "highest", None),
        ("MLP", 567, mixed, "highest", None),
        ("BigMLP", 567, mixed, "highest", None),
        ("CNN", 567, mixed, "highest", None),
        ("CNN", 567, [64], "highest", None),
        ("MLP", 63, [512], "highest", None),
        ("MLP", 567, [512], "high", None),
        ("CNN", 567, [512], "high", None),
        ("MLP", 1701, [512], "highest", None),
    ):
        torch.set_float32_matmul_precision(precision)
        torch.cuda.reset_peak_memory_stats()
        population, milliseconds = timed(name, count, batches)
        if (name, count, batches, precision) == ("MLP", 567, [512], "highest"):
            mlp = milliseconds
        if (name, count, batches, precision) == ("CNN", 567, [512], "highest"):
            limit = 6 * mlp
        row = {"network": name, "members": count, "batches": batches, "precision": precision, "ms": milliseconds}
        row |= {"target_ms": limit, "met": None if limit is None else milliseconds <= limit}
        row |= {"peak_gib": torch.cuda.max_memory_allocated() / 2**30, "program": type(population._program).__name__}
        found["rows"].append(row)
        print(row, flush=True)
        if precision == "highest" and batches in ([512], [64]) and count == 567:
            found["kernels"][f"{name} {count} x {batches[0]}"] = kernels(population)
        save()
        del population
        torch.cuda.empty_cache()
    torch.set_float32_matmul_precision("highest")
    for name in BUILDERS:
        found["agreement"][name] = agreement(name)
        print(name, found["agreement"][name], flush=True)
        save()
    return found


# ---------------------------------------------------------------------- the table


def table() -> str:
    lines = [
        "# Population training",
        "",
        'Made by `benchmarks/population.py`. Networks of "Flatness After All?": MLP 49-70-10, BigMLP 49-70-70-10, CNN',
        "1-15-20-10 channels of 3 × 3 on 7 × 7 images; Adam, every member with its own learning rate, weight decay,",
        "subset, seed and minibatches.",
        "",
    ]
    here = RESULTS / "population.json"
    if here.is_file():
        found = json.loads(here.read_text())
        lines += [f"## CPU, one thread, torch {found['torch']}", "", "Milliseconds per step of all 64 networks.", ""]
        lines += [
            "| network | batch | loop over models | population | ratio | target | met |",
            "|---|---|---|---|---|---|---|",
        ]
        for row in found["rows"]:
            target = "" if row["target"] is None else f"≥ {row['target']:g}"
            lines.append(
                f"| {row['network']} | {row['batch']} | {row['loop_ms']:.1f} | {row['population_ms']:.2f} | "
                f"{row['ratio']:.1f} | {target} | {_met(row['met'])} |"
            )
        lines.append("")
    there = RESULTS / "gpu" / "gpu_population.json"
    if there.is_file():
        found = json.loads(there.read_text())
        lines += [f"## {found['device']}, torch {found['torch']}", ""]
        lines += [
            "Milliseconds per step of all members, minibatches, optimizer and checks included; `high` is TF32.",
            "",
        ]
        lines += [
            "| network | members | batch | precision | ms | target | met | peak GiB |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for row in found["rows"]:
            target = "" if row["target_ms"] is None else f"≤ {row['target_ms']:.3g}"
            batch = "/".join(map(str, row["batches"]))
            lines.append(
                f"| {row['network']} | {row['members']:,} | {batch} | {row['precision']} | {row['ms']:.3f} | "
                f"{target} | {_met(row['met'])} | {row['peak_gib']:.1f} |"
            )
        lines += [
            "",
            "Same weights as on the CPU after 64 steps in float64, and a resumed run against an undisturbed one:",
            "",
        ]
        lines += ["| network | largest difference | resumed equal, bit for bit |", "|---|---|---|"]
        for name, row in found["agreement"].items():
            lines.append(f"| {name} | {row['largest_difference']:.1e} | {'yes' if row['resumed_equal'] else 'NO'} |")
        lines.append("")
    return "\n".join(lines)


def _met(met: bool | None) -> str:
    return "" if met is None else "yes" if met else "NO"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpu", action="store_true", help="measure on the GPU")
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu", help="folder for the GPU's figures")
    parser.add_argument("--table", action="store_true", help="only write the table from the figures there are")
    options = parser.parse_args()
    if options.gpu:
        found = gpu(options.out)
    elif options.table:
        found = {"rows": []}
    else:
        found = cpu()
        (RESULTS / "population.json").write_text(json.dumps(found, indent=1) + "\n")
    if not options.gpu:
        (RESULTS / "population.md").write_text(table())
    sys.exit(any(row["met"] is False for row in found["rows"]))


if __name__ == "__main__":
    main()
