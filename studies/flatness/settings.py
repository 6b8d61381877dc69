"""The settings of the study at either scale."""

from __future__ import annotations

from typing import Any

from basinscope.runs.study import Settings

PARTS = ("grid", "folds")
ARCHITECTURES = ("mlp", "bigmlp", "cnn")


class FlatnessSettings(Settings):
    """Settings of the study.

    Attributes:
        parts: `grid` trains and measures every network; `folds` is the k-fold cross-validation of some of them.
        arms: of `ARMS`. A network of several arms is trained once.
        architectures: of `mlp`, `bigmlp`, `cnn`.
        data: data sets, seen as 7 × 7 grey images.
        samples: sizes n of the training set.
        decays: of the arms' decays only these; all of them if empty.
        batch_sizes, lrs, steps: of Adam.
        width: of the hidden layers of `mlp` and `bigmlp`.
        channels: of the hidden layers of `cnn`.
        test_samples: at most so many samples decide what the gap is; 0 for all.
        test_matrices: on at most so many of these are F and C taken; 0 for all.
        relations: whether to take E[JᵀE[Σ]J] and E[JᵀE[B]J] too (figures 5 to 7), which triples the work.
        polish: of networks whose rates fell to zero, at most so many steps to a minimum on all samples, and as many
            once more from where they led.
        folds: k of the cross-validation.
        folds_batch_sizes, folds_lrs: which part of the grid is cross-validated.
        draws: kept draws of the local posterior at each of two temperatures, by HMC on all data; 0 for no sampling.
        warmup: iterations before them. Both count trajectories of `leapfrogs` steps.
        leapfrogs: steps of a trajectory.
        gamma: γ₀, by which the localisation γ is more than nβ times the weight decay.
        seed: of everything.
    """

    parts: tuple[str, ...] = PARTS
    arms: tuple[str, ...] = ("printed", "standardized", "hundredth", "thousandth", "hole-free", "annealed")
    architectures: tuple[str, ...] = ARCHITECTURES
    data: tuple[str, ...] = ("mnist", "cifar10", "svhn")
    samples: tuple[int, ...] = (5_000, 10_000, 20_000)
    decays: tuple[float, ...] = ()
    batch_sizes: tuple[int, ...] = (64, 256, 512)
    lrs: tuple[float, ...] = (0.01, 0.005, 0.001)
    steps: int = 200_000
    width: int = 70
    channels: tuple[int, ...] = (15, 20)
    test_samples: int = 0
    test_matrices: int = 5_000
    relations: bool = False
    polish: int = 60
    folds: int = 5
    folds_batch_sizes: tuple[int, ...] = (64,)
    folds_lrs: tuple[float, ...] = (0.01,)
    draws: int = 0
    warmup: int = 80
    leapfrogs: int = 8
    gamma: float = 100.0
    seed: int = 0


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "arms": ["hole-free"], "data": ["digits"], "samples": [300, 900], "decays": [1e-1, 1.0, 1e1, 1e2],
        "batch_sizes": [64], "lrs": [0.01, 0.001], "steps": 3000, "width": 10, "channels": [4, 6], "relations": True,
        "folds": 3, "draws": 60, "warmup": 60, "leapfrogs": 6,
    },
    "paper": {},
}  # fmt: skip
