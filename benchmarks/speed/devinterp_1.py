"""Worker: estimates by devinterp 1.x, through its `estimate_learning_coeff_with_summary`."""

from __future__ import annotations

from typing import Any

import torch
from devinterp.optim import SGLD
from devinterp.slt.sampler import estimate_learning_coeff_with_summary
from torch.utils.data import DataLoader, TensorDataset

from speed.job import Job, Result, serve, timed
from speed.problem import Problem

NAMES = {"step_size": "lr", "gamma": "localization", "nbeta": "nbeta"}


def estimate(job: Job, result: Result) -> None:
    problem = Problem.load(job.problem)
    settings = job.settings
    seed = settings.get("seed", 0)
    torch.manual_seed(seed)
    loader = DataLoader(
        TensorDataset(problem.inputs, problem.target), batch_size=settings.get("batch_size", 128), shuffle=True
    )

    def evaluate(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        return problem.losses(model, *batch).mean()

    with torch.no_grad():
        start = problem.losses(problem.model, problem.inputs, problem.target).mean()
    chains, draws = settings.get("chains", 10), settings.get("draws", 100)
    result.draws = chains * (draws + settings.get("burn_in", 0))
    with timed(result):
        found = estimate_learning_coeff_with_summary(
            problem.model,
            loader,
            evaluate=evaluate,
            sampling_method=SGLD,
            optimizer_kwargs={NAMES[name]: settings[name] for name in NAMES if name in settings},
            num_chains=chains,
            num_draws=draws,
            num_burnin_steps=settings.get("burn_in", 0),
            init_loss=start,
            seed=seed,
            verbose=False,
        )
    result.value = float(found["llc/mean"])


if __name__ == "__main__":
    serve(estimate)
