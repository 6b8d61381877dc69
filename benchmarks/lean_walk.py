"""What the lean walk must show, part by part.

    python benchmarks/lean_walk.py draws                  draws of GPT-2's shape beside the bare loop, on a GPU
    python benchmarks/lean_walk.py draws --shape pythia-1.4b --batch 16 --length 256
    python benchmarks/lean_walk.py draws --shape pythia-6.9b --batch 4 --length 256 --alone
    python benchmarks/lean_walk.py rounding               δ in bfloat16 with stochastic rounding, on quadratics
    python benchmarks/lean_walk.py hmc                    against HMC on a transformer, over seeds
    python benchmarks/lean_walk.py linear                 against exact λ of deep linear networks
    python benchmarks/lean_walk.py heads                  all heads of a 4-layer, 8-head model in two ways
    python benchmarks/lean_walk.py budget                 bs.llc(budget=30) of a GPT-2 of 0.1 M parameters, on the CPU
    python benchmarks/lean_walk.py page                   the page of all rows that --out has collected
    python benchmarks/lean_walk.py trained                a GPT-2 of 124 M parameters, trained on text, over seeds

On a machine that does other things beside, `--own-time` counts budgets in seconds of the processor. Rows are printed as
they are known, and added to the file that `--out` names, one JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from clocks import one_thread
from lean import draws, heads, truth
from lean.page import page
from lean.shapes import SHAPES, language_model, trained
from lean.text import as_bytes, as_words

import basinscope as bs

RESULTS = Path(__file__).parent / "results"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one part."""
    options = _parser().parse_args(arguments)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cpu":
        one_thread(options.own_time)
    if options.part == "page":
        (RESULTS / "lean_walk.md").write_text(page(options.out or RESULTS / "lean_walk.jsonl"), encoding="utf-8")
        return 0
    for row in _PARTS[options.part](options, device):
        line = json.dumps({"part": options.part, **row, "on": _machine(device)}, default=float)
        print(line, flush=True)
        if options.out:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            with options.out.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
    return 0


def _draws(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    for batch in options.batch:
        yield draws.timed(options.shape, batch, options.length, options.steps, device, bare=not options.alone)


def _rounding(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    return truth.rounded(device, options.dimension)


def _hmc(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    return truth.against_hmc(
        options.width, options.layers, options.sequences, 32, options.seeds, options.budget, device, options.text,
        options.train,
    )  # fmt: skip


def _linear(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    return truth.against_theorems(options.width, options.layers, options.seeds, options.budget, device)


def _heads(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    return heads.compared(
        options.width, options.layers, 8, options.sequences, 32, options.budget, options.some, device, options.text,
        options.train,
    )  # fmt: skip


def _budget(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """Whether 30 seconds are kept: a GPT-2 of 0.1 M parameters on 500 sequences of 64 tokens, trained for a while."""
    net = language_model("tiny", device, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
    stream = as_bytes(500 * 64, options.text)
    loss = trained(net, stream, options.train, lr=3e-3, clock=time.process_time)
    ids = stream.view(500, 64)
    makers = {"copied": bs.Landscape.from_pretrained, "in place": bs.LanguageModel}
    for name, make in makers.items():
        for seed in range(options.seeds):
            began, own = time.perf_counter(), time.process_time()
            est = bs.llc(make(net, ids), budget=30, seed=seed, progress=False)
            yield {"case": name, "seed": seed, "loss": loss, **truth.row(est, began, own)}


def _trained(options: argparse.Namespace, device: torch.device) -> Iterator[dict[str, Any]]:
    """λ̂ of a network trained here on text, over seeds; the standard error that is wanted is 5 %."""
    stream, size = as_words(options.characters, SHAPES[options.shape][1]["vocab_size"])
    net = language_model(options.shape, device, vocab_size=size)
    low = torch.bfloat16 if device.type == "cuda" else None
    length = min(256, net.config.max_position_embeddings)
    loss = trained(net, stream, options.train, length=length, batch=64 if low else 8, lr=6e-4, autocast=low)
    land = bs.LanguageModel(net, stream, length=length, autocast=low, units="token")
    for seed in range(options.seeds):
        began, own = time.perf_counter(), time.process_time()
        est = bs.llc(land, budget=options.budget, rtol=0.05, seed=seed, progress=False)
        yield {
            "case": repr(land), "seed": seed, "loss": loss, "peak_gb": _peak(device),
            "tokens_per_second": est.diagnostics["tokens_per_second"], **truth.row(est, began, own),
        }  # fmt: skip


def _peak(device: torch.device) -> float:
    return torch.cuda.max_memory_allocated() / 1e9 if device.type == "cuda" else math.nan


def _machine(device: torch.device) -> str:
    name = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()} CPU, one thread"
    return f"{name}, torch {torch.__version__}"


_PARTS = {
    "draws": _draws, "rounding": _rounding, "hmc": _hmc, "linear": _linear, "heads": _heads, "budget": _budget,
    "trained": _trained,
}  # fmt: skip


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=[*_PARTS, "page"])
    parser.add_argument("--out", type=Path, help="file of JSON lines to add to")
    parser.add_argument("--device", help="cpu or cuda")
    parser.add_argument(
        "--own-time", action="store_true", help="budgets in seconds of the processor, where it is shared"
    )
    parser.add_argument("--shape", choices=list(SHAPES), default="gpt2")
    parser.add_argument("--batch", type=int, nargs="+", default=[16, 64], help="sequences of a batch")
    parser.add_argument("--length", type=int, default=256, help="tokens of a sequence")
    parser.add_argument("--steps", type=int, default=100, help="that are timed")
    parser.add_argument("--alone", action="store_true", help="without the bare loop, where memory is for one of them")
    parser.add_argument("--dimension", type=int, default=200_000, help="of the quadratic")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=500)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=60.0, help="seconds of a run")
    parser.add_argument("--train", type=float, default=20.0, help="seconds of training")
    parser.add_argument("--some", type=int, default=4, help="heads that are measured one by one")
    parser.add_argument("--characters", type=int, default=60_000_000, help="of text to train on")
    parser.add_argument("--text", type=Path, help="folder of text files; the installed packages unless given")
    return parser


if __name__ == "__main__":
    raise SystemExit(main())
