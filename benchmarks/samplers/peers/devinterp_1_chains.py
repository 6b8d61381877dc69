"""Worker: chains by devinterp 1.x of a linear regression, kept in a file as it returns them; answers with its λ̂."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from devinterp.optim import SGLD
from devinterp.slt.sampler import estimate_learning_coeff_with_summary
from torch.utils.data import DataLoader, TensorDataset

from samplers.peers.attending import attend
from samplers.peers.kept import Kept


def estimate(path: str, settings: dict[str, Any]) -> float:
    torch.manual_seed(settings["seed"])
    kept = Kept.load(path)
    kind = getattr(torch, settings["dtype"])
    kept = replace(kept, model=kept.model.to(kind), inputs=kept.inputs.to(kind), target=kept.target.to(kind))
    loader = DataLoader(TensorDataset(kept.inputs, kept.target), batch_size=settings["batch"], shuffle=True)

    def evaluate(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        x, y = batch
        return 0.5 * (model(x) - y).square().sum(1).mean()

    found = estimate_learning_coeff_with_summary(
        kept.model,
        loader,
        evaluate=evaluate,
        sampling_method=SGLD,
        optimizer_kwargs={"lr": settings["step"], "nbeta": settings["nbeta"], "localization": settings["gamma"]},
        num_chains=settings["chains"],
        num_draws=settings["steps"],
        num_burnin_steps=settings["burn_in"],
        init_loss=settings["init_loss"],
        seed=settings["seed"],
        verbose=False,
    )
    np.savez(settings["chains_path"], **{name: np.asarray(value) for name, value in found.items()})
    return float(found["llc/mean"])


if __name__ == "__main__":
    attend(estimate)
