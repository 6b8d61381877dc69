"""Worker: λ̂ by devinterp 1.x from so many gradients on all data."""

from __future__ import annotations

from typing import Any

import torch
from devinterp.optim import SGLD
from devinterp.slt.sampler import estimate_learning_coeff_with_summary
from torch.utils.data import DataLoader

from samplers.peers.attending import attend
from samplers.peers.kept import Kept

CHAINS = 4


def estimate(path: str, settings: dict[str, Any]) -> float:
    kept = Kept.load(path)
    torch.manual_seed(settings["seed"])
    # One "sample" that stands for all data: a step is a gradient on all of it.
    loader = DataLoader([(torch.zeros(1), torch.zeros(1))], batch_size=1)
    steps = settings["gradients"] // CHAINS
    with torch.no_grad():
        start = kept.loss(kept.model)
    found = estimate_learning_coeff_with_summary(
        kept.model,
        loader,
        evaluate=lambda model, batch: kept.loss(model),
        sampling_method=SGLD,
        optimizer_kwargs={"lr": settings["step_size"], "nbeta": settings["nbeta"], "localization": settings["gamma"]},
        num_chains=CHAINS,
        num_draws=steps - steps // 4,
        num_burnin_steps=steps // 4,
        init_loss=start,
        seed=settings["seed"],
        verbose=False,
    )
    return float(found["llc/mean"])


if __name__ == "__main__":
    attend(estimate)
