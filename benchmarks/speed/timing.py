"""CPU seconds per draw of one chain of plain SGLD."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .job import Job
from .networks import deep_linear, perceptron, saved
from .tools import FIRST, OURS, SECOND, Tool

DRAWS = 4000  # over all chains, the same for everybody
PEER_CHAINS = 8
CHAINS = (4, 8, 32)  # ours: chains run as one batch
SHORT = 0.25  # of the draws: the difference of two runs leaves out what a call costs once
SETTINGS = {"nbeta": 100.0, "gamma": 1.0, "step_size": 1e-5}


@dataclass(frozen=True)
class Timing:
    """Milliseconds of CPU per chain draw, medians over repeats."""

    network: str
    parameters: int
    batch_size: int
    tool: str
    chains: int
    whole: float  # the whole call, divided by its draws
    marginal: float  # what one more draw costs
    lowest: float  # of the marginal costs
    highest: float
    remark: str = ""


@dataclass(frozen=True)
class Setup:
    network: str
    parameters: int
    batch_size: int
    problem: str


def setups(folder: Path) -> Iterator[Setup]:
    """The networks and batch sizes."""
    problem = perceptron()
    path = folder / "perceptron.npz"
    problem.save(path)
    parameters = sum(weight.numel() for weight in problem.model.parameters())
    for batch in (128, 512):
        yield Setup("784-128-10, ReLU", parameters, batch, str(path))
    for number, case in enumerate(deep_linear(3)):
        land = case.landscape()
        name = f"{'-'.join(map(str, case.widths))}, linear"
        yield Setup(name, land.dimension, 128, saved(land, folder, f"timed {number}"))


def measure(setup: Setup, repeats: int, draws: int = DRAWS) -> list[Timing]:
    """All tools by turns, `repeats` times, so that a busy spell of the machine hits them alike."""
    plans: list[tuple[Tool, int]] = [(FIRST, PEER_CHAINS), (SECOND, PEER_CHAINS), *((OURS, count) for count in CHAINS)]
    seen: dict[tuple[Tool, int], list[tuple[float, float]]] = {plan: [] for plan in plans}
    remarks: dict[tuple[Tool, int], str] = {}
    for _ in range(repeats):
        for tool, chains in plans:
            long, short = tool.run(_jobs(tool, setup, chains, draws))
            marginal = (long.cpu - short.cpu) / max(1, long.draws - short.draws)
            seen[tool, chains].append((1e3 * long.cpu / max(1, long.draws), 1e3 * marginal))
            remarks[tool, chains] = long.remark if long.value != long.value else ""
    return [
        Timing(
            setup.network,
            setup.parameters,
            setup.batch_size,
            tool.label,
            chains,
            statistics.median(whole for whole, _ in seen[tool, chains]),
            statistics.median(marginal for _, marginal in seen[tool, chains]),
            min(marginal for _, marginal in seen[tool, chains]),
            max(marginal for _, marginal in seen[tool, chains]),
            remarks[tool, chains],
        )
        for tool, chains in plans
    ]


def _jobs(tool: Tool, setup: Setup, chains: int, draws: int) -> list[Job]:
    common = {**SETTINGS, "chains": chains, "batch_size": setup.batch_size, "seed": 0}
    if tool is OURS:
        common |= {"sampler": "sgld", "burn_in": 0.0}
    each = draws // chains
    return [
        Job(setup.problem, {**common, "draws": each}, warm=True),
        Job(setup.problem, {**common, "draws": max(20, int(SHORT * each))}),
    ]
