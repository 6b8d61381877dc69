"""Worker: λ̂ by devinterp 2.x from so many gradients on all data.

It takes sequences of tokens and a loss per predicted token. The one "sequence" stands for all data, and the loss of its
one predicted "token" is the mean loss over them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from devinterp.slt.llc import llc

from samplers.peers.attending import attend
from samplers.peers.kept import Kept

CHAINS = 4


def estimate(path: str, settings: dict[str, Any]) -> float:
    kept = Kept.load(path)
    data = Dataset.from_dict({"input_ids": [[0, 0]]}).with_format("torch")

    def loss(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        return kept.loss(model).expand(len(tokens), 1)

    steps = settings["gradients"] // CHAINS
    with tempfile.TemporaryDirectory() as folder:
        found = llc(
            kept.model,
            data,
            {},
            loss_fn=loss,
            device="cpu",
            output_path=Path(folder) / "samples.zarr",
            lr=settings["step_size"],
            n_beta=settings["nbeta"],
            localization=settings["gamma"],
            num_chains=CHAINS,
            num_draws=steps - steps // 4,
            num_burnin_steps=steps // 4,
            batch_size=1,
            num_init_loss_batches=1,
            init_seed=settings["seed"],
            sampling_method=settings["method"],
        )
        return float(found["llc_mean"])


if __name__ == "__main__":
    attend(estimate)
