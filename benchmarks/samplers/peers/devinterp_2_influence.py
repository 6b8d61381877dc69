"""Worker: influences by devinterp 2.x, its `bif`, from so many passes over all data; answers with their error.

A "sequence" is (i, 0) with i the number of a sample, and the loss of its one predicted "token" is that sample's loss.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from devinterp.slt.bif import bif

from samplers.peers.attending import attend
from samplers.peers.kept import Kept

CHAINS = 4


def estimate(path: str, settings: dict[str, Any]) -> float:
    kept = Kept.load(path)
    with np.load(path) as arrays:
        exact = arrays["exact"]
    n = len(kept.target)
    data = Dataset.from_dict({"input_ids": [[i, 0] for i in range(n)]}).with_format("torch")

    def loss(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        chosen = tokens[:, 0]
        return 0.5 * (model(kept.inputs[chosen]) - kept.target[chosen]).square().sum(1, keepdim=True)

    steps = settings["passes"] // CHAINS // 2  # a draw takes a gradient, and a pass for its losses
    with tempfile.TemporaryDirectory() as folder:
        found = bif(
            kept.model,
            data,
            {"train": (data, 1)},
            lr=settings["step_size"],
            n_beta=settings["nbeta"],
            localization=settings["gamma"],
            correlation_method="sequence",
            compute_covariance=True,
            loss_fn=loss,
            num_chains=CHAINS,
            num_draws=steps - steps // 4,
            num_burnin_steps=steps // 4,
            batch_size=n,
            num_init_loss_batches=1,
            init_seed=settings["seed"],
            device="cpu",
            output_path=Path(folder) / "samples.zarr",
        )
        numbers = np.asarray(found["input_ids"])[:, 0]
        matrix = np.asarray(found["influences"])
    ordered = np.empty_like(matrix)
    ordered[np.ix_(numbers, numbers)] = matrix
    return float(np.linalg.norm(ordered - exact) / np.linalg.norm(exact))


if __name__ == "__main__":
    attend(estimate)
