"""Whether `budget=60` is sixty seconds: ten architectures, three budgets, on one thread of a CPU.

Each network is trained for a few steps on data of its kind, and measured by `bs.llc` with nothing set but the budget.
What `bs.plan` says beforehand is kept beside what the call took, by the clock and of processor time. On a machine that
does other things, `--own-time` counts budgets in seconds of processor time, which a clock shows on a quiet one.

    python benchmarks/budgets.py                       ten architectures by budgets of 3, 10 and 60 seconds
    python benchmarks/budgets.py --own-time --resume   the same on a busy machine, from where it stopped
    python benchmarks/budgets.py --only lstm           architectures whose name contains the text
    python benchmarks/budgets.py --report              only write the page again
"""

from __future__ import annotations

import argparse
import math
import platform
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import ledger
import torch
from clocks import one_thread
from torch import Tensor, nn

import basinscope as bs
from basinscope.files import write_whole
from basinscope.zoo.models import calibrate, ffnn, lenet5, resnet, transformer

OUT = Path(__file__).parent / "results" / "budgets.md"
BUDGETS = (3.0, 10.0, 60.0)
LIMIT = 1.2  # of the time taken over the budget, or over the least useful cost that was named
STEPS, RATE, BATCH = 100, 1e-3, 64  # of the training
LETTERS, LENGTH = 64, 32
LEAST, SMALL = 3.0, 400  # seconds that are enough for so many parameters

Case = tuple[nn.Module, str, Tensor, Tensor]  # network, loss, inputs, targets


class Lstm(nn.Module):
    """The last state of an LSTM, and a linear layer on it."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.out = nn.LSTM(12, 32, batch_first=True), nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.out(self.inner(x)[0][:, -1])
        return scores


class Vit(nn.Module):
    """Patches of an image as tokens, attention between them, and their mean."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Conv2d(3, 32, 4, 4)
        self.place = nn.Parameter(0.02 * torch.randn(16, 32))
        layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True, norm_first=True)
        self.inner, self.out = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.embed(x).flatten(2).transpose(1, 2) + self.place
        scores: Tensor = self.out(self.inner(tokens).mean(1))
        return scores


def images(channels: int, size: int, n: int) -> tuple[Tensor, Tensor]:
    """Noise on ten patterns, and which of them it is."""
    classes = torch.randint(10, (n,))
    return torch.randn(10, channels, size, size)[classes] + torch.randn(n, channels, size, size), classes


def text(n: int) -> Tensor:
    """Sequences in which a letter follows from the one before and from chance."""
    rows = [torch.randint(LETTERS, (n,))]
    for _ in range(LENGTH):
        rows.append(torch.where(torch.rand(n) < 0.5, (5 * rows[-1] + 1) % LETTERS, torch.randint(LETTERS, (n,))))
    return torch.stack(rows, 1)


def linear() -> Case:
    x = torch.randn(2000, 50)
    return nn.Linear(50, 1), "mse", x, x[:, :5].sum(1, keepdim=True) + torch.randn(2000, 1)


def mlp() -> Case:
    x = torch.randn(1000, 10)
    return ffnn([10, 17, 10], "tanh"), "cross_entropy", x, (x @ torch.randn(10, 10)).argmax(1)


def regression() -> Case:
    x = torch.rand(3000, 8)
    return ffnn([8, 64, 64, 1]), "mse", x, x.prod(1, keepdim=True) + 0.1 * torch.randn(3000, 1)


def lenet() -> Case:
    return lenet5(), "cross_entropy", *images(1, 28, 2000)


def resnet8() -> Case:
    x, y = images(3, 32, 1000)
    return calibrate(resnet(blocks=1), x[:256]), "cross_entropy", x, y


def lstm() -> Case:
    x = torch.randn(2000, 16, 12)
    return Lstm(), "cross_entropy", x, x.mean(1)[:, :5].argmax(1)


def by_letter() -> Case:
    rows = text(2000)
    return transformer(LETTERS, LENGTH, layers=1, width=32), "cross_entropy", rows[:, :-1], rows[:, 1:]


def deeper() -> Case:
    rows = text(2000)
    return transformer(LETTERS, LENGTH, layers=3, width=64), "cross_entropy", rows[:, :-1], rows[:, 1:]


def vit() -> Case:
    return Vit(), "cross_entropy", *images(3, 16, 2000)


def gpt2() -> Case:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=LETTERS, n_positions=LENGTH, n_embd=128, n_layer=5, n_head=4, bos_token_id=0,
                        eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)  # fmt: skip
    rows = text(1000)
    return Logits(GPT2LMHeadModel(config)), "cross_entropy", rows[:, :-1], rows[:, 1:]


class Logits(nn.Module):
    """The scores alone of a model of Hugging Face."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor) -> Tensor:
        scores: Tensor = self.model(tokens).logits
        return scores


CASES: dict[str, Callable[[], Case]] = {
    "linear regression": linear,
    "MLP 10-17-10": mlp,
    "regression 8-64-64-1": regression,
    "LSTM of 32": lstm,
    "LeNet-5": lenet,
    "ViT, 2 layers of width 32": vit,
    "transformer, 1 layer of width 32": by_letter,
    "transformer, 3 layers of width 64": deeper,
    "ResNet-8": resnet8,
    "GPT-2 of 5 layers, width 128": gpt2,
}


@dataclass(frozen=True)
class Row:
    """One call of `bs.llc`."""

    case: str
    parameters: int
    n: int
    budget: float
    sampler: str
    chains: int
    least: float  # least useful cost in seconds, as `bs.plan` names it beforehand
    clock: float  # seconds that the call took, by the clock
    processor: float  # and of processor time
    counted: float  # of these two the one that the budget was in
    value: float
    stderr: float
    verdict: str

    @property
    def over(self) -> float:
        """The time taken over the budget, or over the least useful cost where that is more."""
        return self.counted / max(self.budget, self.least)


def landscape(name: str) -> bs.Landscape:
    """The network of that name, trained for a little while: the same bits on every call."""
    torch.manual_seed(0)
    net, loss, x, y = CASES[name]()
    optimizer = torch.optim.Adam(net.parameters(), RATE)
    for _ in range(STEPS):
        rows = torch.randint(len(x), (BATCH,))
        output = net(x[rows])
        scores = output.flatten(0, -2) if y.dim() > 1 and loss == "cross_entropy" else output
        wanted = y[rows].flatten() if y.dim() > 1 and loss == "cross_entropy" else y[rows]
        value = nn.functional.cross_entropy(scores, wanted) if loss == "cross_entropy" else (output - wanted).square()
        optimizer.zero_grad()
        value.mean().backward()
        optimizer.step()
    return bs.Landscape(net, loss, (x, y))


def measured(name: str, land: bs.Landscape, budget: float, own_time: bool) -> Row:
    """A plan, then λ̂."""
    plan = bs.plan(land, budget=budget)
    clock, processor = time.perf_counter(), time.process_time()
    found = bs.llc(land, budget=budget, seed=0, progress=False)
    clock, processor = time.perf_counter() - clock, time.process_time() - processor
    return Row(
        name, land.dimension, land.n, budget, plan.sampler, plan.chains, plan.least_seconds, clock, processor,
        processor if own_time else clock, found.value, found.stderr, found.verdict,
    )  # fmt: skip


def page(rows: Sequence[Row]) -> str:
    """The report in Markdown."""
    late = [row for row in rows if row.over > LIMIT]
    small = [row.least for row in rows if row.parameters <= SMALL]
    shared = any(row.counted != row.clock for row in rows)
    kind = "seconds of processor time, for the machine was shared" if shared else "seconds by the clock"
    named = max(small, default=0.0)
    least = f" Networks of at most {SMALL} parameters need {named:.1f} s at least; {LEAST:g} s are wanted."
    lines = [
        "# Budgets",
        "",
        f"{len(rows) - len(late)} of {len(rows)} calls took at most {LIMIT:g} times their budget, or the least useful "
        f"cost that had been named. The largest ratio is {max(row.over for row in rows):.2f}."
        + (least if small else ""),
        "",
        f"Budgets are in {kind}. Each row is one call of `bs.llc` with nothing else set, on one thread. The ratio is "
        f"the time counted over the budget, or over the least useful cost that `bs.plan` named where that is more.",
        "",
        "| network | parameters | n | budget, s | sampler | least, s | clock, s | processor, s | ratio | λ̂ | verdict |",
        "|---|---:|---:|---:|---|---:|---:|---:|---:|---:|---|",
    ]
    for row in rows:
        value = f"{row.value:.4g} ± {row.stderr:.2g}" if math.isfinite(row.value) else "none"
        lines.append(
            f"| {row.case} | {row.parameters:,} | {row.n:,} | {row.budget:g} | {row.sampler}, {row.chains} chains "
            f"| {row.least:.2g} | {row.clock:.1f} | {row.processor:.1f} | {row.over:.2f} | {value} | {row.verdict} |"
        )
    known = {(row.case, row.budget) for row in rows}
    missing = [f"{name} with {budget:g} s" for name in CASES for budget in BUDGETS if (name, budget) not in known]
    if missing:
        lines += ["", f"Not measured yet: {', '.join(missing)}."]
    lines += [
        "",
        f"Measured with basinscope {bs.__version__}, torch {torch.__version__}, Python {platform.python_version()} on "
        f"one thread of {platform.machine()}, by `benchmarks/budgets.py`; every row is in `budgets.csv`.",
    ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 0 when every call keeps its budget."""
    options = _parser().parse_args(arguments)
    one_thread(options.own_time)
    table = options.out.with_suffix(".csv")
    rows = ledger.read(table, Row) if options.resume or options.report else []
    ledger.keep(table, rows)
    known = {(row.case, row.budget) for row in rows}
    until = time.monotonic() + 60 * options.minutes
    for name in () if options.report else (name for name in CASES if options.only in name.lower()):
        missing = [budget for budget in options.budgets if (name, budget) not in known]
        for budget in missing:
            rows.append(measured(name, landscape(name), budget, options.own_time))
            ledger.add(table, rows[-1])
            print(rows[-1], flush=True)
            if time.monotonic() > until:
                break
    places = list(CASES)
    rows.sort(key=lambda row: (places.index(row.case), row.budget))
    ledger.keep(table, rows)
    write_whole(options.out, page(rows).encode())
    return 0 if all(row.over <= LIMIT for row in rows) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="only architectures whose name contains TEXT")
    parser.add_argument("--budgets", type=float, nargs="+", default=BUDGETS, metavar="S", help="in seconds")
    parser.add_argument("--own-time", action="store_true", help="budgets in seconds of processor time")
    parser.add_argument("--minutes", type=float, default=math.inf, metavar="M", help="stop after so many")
    parser.add_argument("--resume", action="store_true", help="go on from the rows beside --out")
    parser.add_argument("--report", action="store_true", help="write the page from the rows there are")
    parser.add_argument("--out", type=Path, default=OUT, metavar="FILE", help="the page; its rows are kept beside it")
    return parser


if __name__ == "__main__":
    sys.exit(main())
