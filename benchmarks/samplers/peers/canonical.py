"""Worker: λ̂ by canonical-interp from so many gradients on all data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader

from samplers.peers.attending import attend
from samplers.peers.kept import Kept


def batched(items: Iterable[int], size: int) -> Iterator[tuple[int, ...]]:
    """What the package imports from the itertools of Python 3.12."""
    rest = iter(items)
    while batch := tuple(itertools.islice(rest, size)):
        yield batch


itertools.batched = getattr(itertools, "batched", batched)  # type: ignore[attr-defined]
from canonical_interp.slt import LLCEstimator  # noqa: E402

CHAINS = 4


def estimate(path: str, settings: dict[str, Any]) -> float:
    kept = Kept.load(path)
    loader = DataLoader([(kept.inputs, kept.target)], batch_size=None)
    steps = settings["gradients"] // CHAINS
    estimator = LLCEstimator(
        draws=steps - steps // 4,
        chains=CHAINS,
        burnin_steps=steps // 4,
        steps_bw_draws=1,
        learning_rate=settings["step_size"],
        localization=settings["gamma"],
        nbeta=settings["nbeta"],
    )
    return float(
        estimator.estimate_llc(
            kept.model,
            loader,
            criterion_fn=lambda output, target: 0.5 * (output - target).square().sum(1).mean(),
            seed=settings["seed"],
            compile=False,
            show_progress=False,
        )
    )


if __name__ == "__main__":
    torch._dynamo.config.disable = True  # its step is compiled, which needs a C compiler
    attend(estimate)
