"""Tr H by the peers, run by curvature.py in their own environment.

    python curvature_peers.py CASE.npz SECONDS

CASE holds x, y, the weights of a 784-256-10 network in order, its activation and the true trace. For every peer and
method, at most about SECONDS of CPU time are spent per network; one line of JSON each comes out:

* one probe at a time (Hutchinson): the spread σ of single probes gives the number (0.6745 σ / 1 %)² of them at which
  the median error over seeds is 1 %, and the time is that number times the time of one;
* a fixed number of products (Hutch++, XTrace): the smallest of 12, 24, 48, … whose median error over the seeds is
  below 1 %, and the median time of those calls.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version

import numpy as np
import torch
from torch import Tensor, nn

ACTIVATIONS = {"tanh": nn.Tanh, "relu": nn.ReLU}
SEEDS = 5
MEDIAN = 0.6745  # |z| of a normal variable in the median
Case = tuple[nn.Module, Tensor, Tensor, float]


def read(path: str) -> Case:
    stored = np.load(path)
    weights = [torch.tensor(stored[f"w{i}"]) for i in range(4)]
    inside, outside = weights[0].shape[1], weights[2].shape[0]
    width = weights[0].shape[0]
    net = nn.Sequential(nn.Linear(inside, width), ACTIVATIONS[str(stored["activation"])](), nn.Linear(width, outside))
    for parameter, weight in zip(net.parameters(), weights, strict=True):
        parameter.data.copy_(weight)
    return net, torch.tensor(stored["x"]), torch.tensor(stored["y"]), float(stored["truth"])


def single(name: str, package: str, truth: float, seconds: float, probes: Callable[[int], list[float]]) -> None:
    """`probes(k)` gives vᵀHv of k probes."""
    probes(2)  # what is made once and kept
    found: list[float] = []
    seconds = min(seconds, 4)
    began = time.process_time()
    while len(found) < 10 or time.process_time() - began < seconds:
        found += probes(10)
    each = (time.process_time() - began) / len(found)
    spread = float(np.std(found, ddof=1)) / abs(truth)
    needed = max(1, round((MEDIAN * spread / 0.01) ** 2))
    row = {"products": needed, "seconds": needed * each, "ms_per_product": 1e3 * each, "spread": spread}
    mean, error = float(np.mean(found)), float(np.std(found, ddof=1)) / len(found) ** 0.5
    write(name, package, {**row, "mean": mean, "mean_stderr": error, "probes_drawn": len(found)})


def fixed(name: str, package: str, truth: float, seconds: float, trace: Callable[[int, int], float]) -> None:
    """`trace(products, seed)` gives Tr H."""
    trace(6, 0)
    began, products = time.process_time(), 12
    while True:
        errors, times = [], []
        for seed in range(SEEDS):
            start = time.process_time()
            errors.append(abs(trace(products, seed) / truth - 1))
            times.append(time.process_time() - start)
        reached = float(np.median(errors)) <= 0.01
        left = seconds - (time.process_time() - began)
        if reached or left < sum(times):
            row = {"products": products, "seconds": float(np.median(times)), "median_error": float(np.median(errors))}
            write(name, package, {**row, "reached": reached})
            return
        products *= 2


def write(name: str, package: str, row: dict[str, object]) -> None:
    print(json.dumps({"peer": name, "version": version(package), **row}), flush=True)


def pyhessian(case: Case, seconds: float) -> None:
    from pyhessian import hessian

    net, x, y, truth = case
    computer = hessian(net, nn.CrossEntropyLoss(), data=(x, y), cuda=False)
    # A negative tolerance switches off its stopping rule, which looks at the running mean's last move.
    single("PyHessian", "pyhessian", truth, seconds, lambda k: computer.trace(maxIter=k, tol=-1.0))
    errors = [abs(float(np.mean(computer.trace())) / truth - 1) for _ in range(SEEDS)]
    row = {"median_error": float(np.median(errors)), "worst_error": max(errors)}
    write("PyHessian at its defaults", "pyhessian", row)


def curvlinops(case: Case, seconds: float) -> None:
    from curvlinops import HessianLinearOperator, hutchinson_trace, hutchpp_trace, xtrace

    net, x, y, truth = case
    parameters = list(net.parameters())
    operator = HessianLinearOperator(net, nn.CrossEntropyLoss(), parameters, [(x, y)], check_deterministic=False)

    def seeded(method: Callable[..., Tensor]) -> Callable[[int, int], float]:
        def trace(products: int, seed: int) -> float:
            torch.manual_seed(seed)
            return float(method(operator, products))

        return trace

    fixed("curvlinops, Hutch++", "curvlinops-for-pytorch", truth, seconds, seeded(hutchpp_trace))
    fixed("curvlinops, XTrace", "curvlinops-for-pytorch", truth, seconds, seeded(xtrace))
    # Ten at a time, as fast as one call for all of them and without its memory.
    scores: Callable[[int], list[float]] = lambda k: [float(hutchinson_trace(operator, 1)) for _ in range(k)]  # noqa: E731
    single("curvlinops, Hutchinson", "curvlinops-for-pytorch", truth, seconds / 2, scores)


def eigenthings(case: Case, seconds: float) -> None:
    from hessian_eigenthings import HessianOperator, hutchinson, supervised_loss, trace

    net, x, y, truth = case
    operator = HessianOperator(net, [(x, y)], supervised_loss(nn.CrossEntropyLoss()))
    seeds = iter(range(10**9))
    fixed(
        "hessian-eigenthings, Hutch++", "hessian-eigenthings", truth, seconds,
        lambda products, seed: trace(operator, num_matvecs=products, seed=seed).estimate,
    )  # fmt: skip
    single(
        "hessian-eigenthings, Hutchinson", "hessian-eigenthings", truth, seconds / 2,
        lambda k: hutchinson(operator, num_samples=k, seed=next(seeds)).samples.tolist(),
    )  # fmt: skip


def laplace(case: Case, seconds: float) -> None:
    from laplace.curvature.backpack import BackPackGGN

    net, x, y, truth = case
    backend = BackPackGGN(net, "classification")
    times = []
    for _ in range(SEEDS):
        start = time.process_time()
        value = float(backend.diag(x, y)[1].sum()) / len(x)
        times.append(time.process_time() - start)
    row = {
        "seconds": float(np.median(times)),
        "median_error": abs(value / truth - 1),
        "reached": abs(value / truth - 1) < 0.01,
    }
    write("laplace-torch, diagonal of the GGN", "laplace-torch", row)


def main() -> None:
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    path, seconds = sys.argv[1], float(sys.argv[2])
    for peer in (pyhessian, curvlinops, eigenthings, laplace):
        try:
            peer(read(path), seconds)
        except Exception as problem:  # a peer that fails is a row too
            print(
                json.dumps({"peer": peer.__name__, "failed": f"{type(problem).__name__}: {problem}"[:200]}), flush=True
            )


if __name__ == "__main__":
    main()
