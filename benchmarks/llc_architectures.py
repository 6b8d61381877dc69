"""Time and memory of chain draws for every architecture, and of a 100 M-parameter network.

Plain SGLD, chains as one batch; devinterp 2.0.1 beside it on a small GPT-2, where its environment exists. On a GPU the
memory of the calibrated estimator on the large network with 4 chains is measured, too. Exits with status 1 if that
takes more than 40 GB.

    python benchmarks/llc_architectures.py                      on the CPU, or the GPU where there is one
    python benchmarks/llc_architectures.py --peers              devinterp, too (makes its environment on first use)
    python benchmarks/llc_architectures.py --peers --unpacked F devinterp and what it needs, unpacked in the folder F
    python benchmarks/llc_architectures.py --millions 100       size of the large network
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from speed.environments import TWO
from speed.job import BENCHMARKS, ONE_THREAD

import basinscope as bs
from basinscope.sampling.calibration import resolution

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from studies.common.measuring import device
from studies.llc.cases import timed_network
from studies.llc.costs import draw_time
from studies.llc.jobs import Timing

LIMIT = 40.0  # GB
GPT2 = {"vocab_size": 512, "n_positions": 64, "n_embd": 64, "n_layer": 2, "n_head": 4, "bos_token_id": 0,
        "eos_token_id": 0}  # fmt: skip
SEQUENCES, BATCH = 1024, 32


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when the large network fits."""
    options = _parser().parse_args(arguments)
    if options.peers and device().type == "cpu":
        torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for case in options.cases:
        job = Timing(case=case, seed=0, chains=options.chains, draws=options.draws, millions=options.millions)
        rows.append({"architecture": case, "tool": "basinscope", **timed(job)})
        print(rows[-1], flush=True)
        if case == "gpt2" and options.peers:
            rows.append({"architecture": case, "tool": TWO.label, "chains": options.chains, "batch": BATCH,
                         "milliseconds": by_devinterp(options)})  # fmt: skip
            print(rows[-1], flush=True)
    large = calibrated_memory(options.millions) if device().type == "cuda" and "large" in options.cases else None
    if large is not None:
        rows.append({"architecture": "large", "tool": "bs.llc, calibrated", **large})
    text = markdown(rows)
    print(text)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(text)
    return 1 if large is not None and large["gigabytes"] > LIMIT else 0


def timed(job: Timing) -> dict[str, Any]:
    """Milliseconds per chain draw, and the GPU's peak memory."""
    land, batch = landscape(job)
    cuda = land.device.type == "cuda"
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    milliseconds = draw_time(land, resolution(land), job, batch)
    return {
        "parameters": land.dimension, "chains": job.chains, "batch": batch, "milliseconds": milliseconds,
        "gigabytes": torch.cuda.max_memory_allocated() / 1e9 if cuda else None,
    }  # fmt: skip


def landscape(job: Timing) -> tuple[bs.Landscape, int]:
    if job.case != "gpt2":
        net, data, batch = timed_network(job.case, job.millions)
        return bs.Landscape(net, "cross_entropy", data), batch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    net = GPT2LMHeadModel(GPT2Config(**GPT2)).to(device()).eval()
    return bs.Landscape.from_pretrained(net, torch.randint(512, (SEQUENCES, 64))), BATCH


def calibrated_memory(millions: float) -> dict[str, Any]:
    """Peak memory of `bs.llc` with 4 chains, as it calibrates itself on the large network."""
    net, data, _ = timed_network("large", millions)
    land = bs.Landscape(net, "cross_entropy", data)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    estimate = bs.llc(land, sampler="minibatch", chains=6, batch_size=128, budget=10.0, progress=False)
    return {
        "parameters": land.dimension, "chains": 4, "batch": 128, "seconds": time.perf_counter() - began,
        "gigabytes": torch.cuda.max_memory_allocated() / 1e9, "verdict": estimate.verdict,
    }  # fmt: skip


def by_devinterp(options: argparse.Namespace) -> float:
    """Milliseconds per chain draw of the same GPT-2."""
    asked = {"config": GPT2, "sequences": SEQUENCES, "length": 64, "chains": options.chains, "draws": options.draws,
             "batch": BATCH, "device": str(device())}  # fmt: skip
    path = os.pathsep.join(str(folder.resolve()) for folder in (BENCHMARKS, options.unpacked) if folder is not None)
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": path, "PYTHONWARNINGS": "ignore"}
    python = sys.executable if options.unpacked else TWO.ready()
    done = subprocess.run(
        [python, "-m", "speed.devinterp_2_language"], input=json.dumps(asked), env=environment, text=True,
        capture_output=True,
    )  # fmt: skip
    if done.returncode:
        print(done.stderr[-2000:], file=sys.stderr)
        return float("nan")
    return float(json.loads(done.stdout.splitlines()[-1])["milliseconds"])


def markdown(rows: list[dict[str, Any]]) -> str:
    """The table with where it comes from."""
    where = torch.cuda.get_device_name() if device().type == "cuda" else f"{platform.machine()} CPU"
    columns = ("architecture", "tool", "parameters", "chains", "batch", "milliseconds", "gigabytes", "seconds")
    lines = [
        "# Chain draws, architecture by architecture", "",
        f"- basinscope {bs.__version__}, torch {torch.__version__}, Python {platform.python_version()}, {where}",
        "- milliseconds of wall-clock per draw and chain; peak GB of the GPU", "",
        "| " + " | ".join(columns) + " |", "|" + "---|" * len(columns),
    ]  # fmt: skip
    for row in rows:
        lines.append("| " + " | ".join(_cell(row.get(name)) for name in columns) + " |")
    return "\n".join(lines) + "\n"


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["mlp", "lenet5", "resnet", "text", "gpt2", "large"])
    parser.add_argument("--chains", type=int, default=4)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--millions", type=float, default=100.0)
    parser.add_argument("--peers", action="store_true", help="devinterp, too")
    parser.add_argument("--unpacked", type=Path, default=None, help="packages for --peers where none can be installed")
    parser.add_argument("--out", type=Path, default=None)
    return parser


if __name__ == "__main__":
    sys.exit(main())
