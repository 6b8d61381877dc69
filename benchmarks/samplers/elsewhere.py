"""Samplers of other packages: a process in the package's own environment, open for as many jobs as there are."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from speed.environments import ONE, TWO, Peer
from speed.job import BENCHMARKS, ONE_THREAD

from .problem import Problem

CANONICAL = Peer("canonical-interp", "0.1.5", ("numpy", "pandas", "tqdm"))
BLACKJAX = Peer(
    "blackjax", "1.7.1", ("jax==0.10.2", "jaxlib==0.10.2", "optax", "scipy", "absl-py", "typing_extensions")
)


def elsewhere(peer: Peer, worker: str, problem: Problem, gradients: int, seed: int, **settings: str | float) -> float:
    """λ̂ by a worker."""
    given = {"nbeta": problem.nbeta, "gamma": problem.gamma, "gradients": gradients, "seed": seed, **settings}
    return answer(peer, worker, problem.path, given)


def answer(peer: Peer, worker: str, path: Path, settings: Mapping[str, str | float]) -> float:
    """What a worker answers to a job; NaN where the package fails, which is said."""
    process = opened(peer, worker)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps({"problem": str(path), "settings": settings}) + "\n")
    process.stdin.flush()
    line = process.stdout.readline()
    if not line:
        raise RuntimeError(f"the worker {worker} of {peer.label} ended: run it by hand to see why")
    value, remark = json.loads(line)
    if remark:
        print(f"  {peer.label}: {remark}", flush=True)
    return float(value)


@cache
def opened(peer: Peer, worker: str) -> subprocess.Popen[str]:
    """The worker's process, which ends when its input does."""
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(BENCHMARKS), "PYTHONWARNINGS": "ignore"}
    command = [str(peer.ready()), "-m", f"samplers.peers.{worker}"]
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )


__all__ = ["BLACKJAX", "CANONICAL", "ONE", "TWO", "answer", "elsewhere"]
