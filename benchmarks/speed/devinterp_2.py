"""Worker: estimates by devinterp 2.x, through its `llc`.

It takes language models only: a data set of token sequences and a loss per predicted token. A generic network is
dressed as one: the "sequence" is (i, 0) with i the number of a sample, and the loss of its one predicted "token" is
that sample's loss.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from datasets import Dataset
from devinterp.slt.llc import llc

from speed.job import Job, Result, serve, timed
from speed.problem import Problem

NAMES = {
    "step_size": "lr",
    "gamma": "localization",
    "nbeta": "n_beta",
    "chains": "num_chains",
    "draws": "num_draws",
    "burn_in": "num_burnin_steps",
    "batch_size": "batch_size",
    "seed": "init_seed",
    "sampling_method": "sampling_method",
}


def estimate(job: Job, result: Result) -> None:
    problem = Problem.load(job.problem)
    numbers = Dataset.from_dict({"input_ids": [[i, 0] for i in range(len(problem.target))]}).with_format("torch")

    def loss(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
        chosen = tokens[:, 0]
        return problem.losses(model, problem.inputs[chosen], problem.target[chosen])[:, None]

    settings = {NAMES[name]: value for name, value in job.settings.items()}
    chains, draws = settings.get("num_chains", 4), settings.get("num_draws", 200)
    result.draws = chains * (draws + settings.get("num_burnin_steps", 0))
    with tempfile.TemporaryDirectory() as folder, timed(result):
        found = llc(
            problem.model,
            numbers,
            {},
            loss_fn=loss,
            device="cpu",
            output_path=Path(folder) / "samples.zarr",
            **settings,
        )
        result.value = float(found["llc_mean"])


if __name__ == "__main__":
    serve(estimate)
