"""Worker: susceptibilities by devinterp 2.x from so many passes over all data; answers with their error.

A "sequence" is (i, 0) with i the number of a sample, and the loss of its one predicted "token" is that sample's loss.
The only part is the whole of the weights, and the samples are their own probes: what is computed is then
−Cov(L_n, ℓ_i − L_n), whose exact values are known. The passes of the unrestricted chains, which the package walks
besides, are not counted.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from devinterp.slt.susceptibilities import susceptibilities

from samplers.peers.attending import attend
from samplers.peers.kept import Kept

CHAINS = 4


def estimate(path: str, settings: dict[str, Any]) -> float:
    kept = Kept.load(path)
    with np.load(path) as arrays:
        exact = arrays["susceptibilities"]
    n = len(kept.target)
    data = Dataset.from_dict({"input_ids": [[i, 0] for i in range(n)]}).with_format("torch")

    def loss(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        chosen = tokens[:, 0]
        return 0.5 * (model(kept.inputs[chosen]) - kept.target[chosen]).square().sum(1, keepdim=True)

    steps = settings["passes"] // CHAINS // 2  # a draw takes a gradient, and a pass for its losses
    with tempfile.TemporaryDirectory() as folder:
        found = susceptibilities(
            kept.model,
            data,
            {"train": (data, 1)},
            {"full": None, "whole": {name: None for name, _ in kept.model.named_parameters()}},
            sampling_task="train",
            include_sampling_task=True,
            lr=settings["step_size"],
            n_beta=settings["nbeta"],
            localization=settings["gamma"],
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
        values = np.asarray(found["susceptibilities"].dataset["sus"])[:, 0]
        numbers = np.asarray(found["context"].dataset["input_ids"]).reshape(-1, 2)[:, 0]
    ordered = np.empty_like(values)
    ordered[numbers] = values
    return float(np.linalg.norm(ordered - exact) / np.linalg.norm(exact))


if __name__ == "__main__":
    attend(estimate)
