"""Worker: chains by devinterp 2.x of a linear regression, in the Zarr store that it writes; answers with its λ̂.

A "sequence" is (i, 0) with i the number of a sample, and the loss of its one predicted "token" is that sample's loss.
"""

from __future__ import annotations

from typing import Any

import torch
from datasets import Dataset
from devinterp.slt.llc import llc

from samplers.peers.attending import attend
from samplers.peers.kept import Kept


def estimate(path: str, settings: dict[str, Any]) -> float:
    kept = Kept.load(path)
    kind = getattr(torch, settings["dtype"])
    inputs, target = kept.inputs.to(kind), kept.target.to(kind)
    data = Dataset.from_dict({"input_ids": [[i, 0] for i in range(len(target))]}).with_format("torch")

    def loss(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        chosen = tokens[:, 0]
        return 0.5 * (model(inputs[chosen]) - target[chosen]).square().sum(1, keepdim=True)

    found = llc(
        kept.model.to(kind),
        data,
        {},
        loss_fn=loss,
        device="cpu",
        output_path=settings["chains_path"],
        lr=settings["step"],
        n_beta=settings["nbeta"],
        localization=settings["gamma"],
        num_chains=settings["chains"],
        num_draws=settings["steps"],
        num_burnin_steps=settings["burn_in"],
        batch_size=settings["batch"],
        num_init_loss_batches=max(1, len(target) // settings["batch"]),
        init_noise=settings["apart"] or None,
        init_seed=settings["seed"],
    )
    return float(found["llc_mean"])


if __name__ == "__main__":
    attend(estimate)
