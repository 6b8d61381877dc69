"""Worker: estimates by basinscope."""

from __future__ import annotations

import basinscope as bs
from speed.job import Job, Result, serve, timed
from speed.problem import Problem


def estimate(job: Job, result: Result) -> None:
    problem = Problem.load(job.problem)
    land = bs.Landscape(problem.model, problem.loss, (problem.inputs, problem.target))
    with timed(result):
        found = bs.llc(land, progress=False, **job.settings)
    result.value = found.value
    known = found.diagnostics
    result.draws = known["draws"] * known["chains"]
    result.remark = "; ".join(found.warnings)
    result.details = {
        "stderr": found.stderr,
        "verdict": found.verdict,
        **{name: known[name] for name in ("nbeta", "gamma", "sampler", "chains", "draws", "step_sizes", "batch_size")},
    }


if __name__ == "__main__":
    serve(estimate)
