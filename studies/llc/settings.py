"""The settings of the study at either scale."""

from __future__ import annotations

from typing import Any

from basinscope.runs.study import Settings

PARTS = ("truth", "resolution", "atlas", "entropy", "beyond", "cost")


class LlcSettings(Settings):
    """Settings of the study.

    Attributes:
        parts: which parts to run: `truth` (deep linear networks against exact λ), `resolution` (λ_t over decades of
            nβ), `atlas` (plain SGLD over its settings), `entropy` (Entropy-SGD against SGD), `beyond` (residual
            network, transformer, grokking), `cost` (time and memory of a chain draw).
        decades: exponents of the sizes of deep linear networks: 2 stands for 10² to 10³ parameters.
        networks: how many of each.
        hidden_layers: fewest and most hidden layers.
        minibatch_samples: of deep linear networks measured on minibatches, or their number of inputs where that is
            more. On all data there are as many samples as inputs: they are orthogonal, so that more of them with the
            same stiffness have the same posterior, and only cost more.
        truth_gamma: γ there, in units of the mean width. The published γ is 1.
        truth_stiffness: nβσ of their inputs' second moment σ, in units of γ, for each of the decades: how fine the
            resolution is. Far from w* the factors have singular values of some truth_gamma^(−½), so that the steepest
            directions of L layers are T = truth_stiffness·truth_gamma^(1−L) times as steep as the localiser.
        truth_minibatch: how many networks of each of the decades are also measured on minibatches alone.
        truth_budgets: nominal seconds of sampling for each of the decades; on minibatches alone 60 at least.
        published_samples, published_draws: of the published chain; draws for each of the decades.
        published_batch: samples of its batches.
        rungs: values of nβ of the ladders; the real network's end at n/log n, as many decades below.
        ladder_cases: `quadratic`, `chain`, `network` (deep linear, the last two) and `real`.
        ladder_gamma, ladder_budget: γ, and nominal seconds a rung.
        atlas_cases: `small`, `real`.
        factors: values of γ, nβ and ε on the maps, in units of the calibrated ones.
        lengths: of chains on the maps; the calibrated one is 2,000.
        batches: sizes on the maps; the calibrated one is 512 or all samples.
        atlas_chains, atlas_budget: chains a cell, and nominal seconds of each reference.
        data: of the real networks, of Entropy-SGD and of the atlas.
        atlas_widths: hidden widths of the real network of atlas and ladder.
        atlas_samples, atlas_epochs: what it is trained on, and how long.
        entropy_widths: hidden widths.
        entropy_samples, entropy_seeds, entropy_batch, entropy_lr: of both optimizers; 0 samples: all. `entropy_lr` is
            that of Entropy-SGD's outer loop, `entropy_inner_steps` the length of its inner one.
        entropy_looks: epochs after which λ̂ is measured; training ends with the last.
        entropy_full: seeds that get the calibrated λ̂ at the end.
        entropy_draws: of the paper's SGLD (4 chains, γ = 100, ε = 1e-5), and `entropy_step` its ε.
        entropy_budget: nominal seconds of the calibrated λ̂.
        beyond_cases: `resnet`, `text`, `grokking`.
        beyond_size: `small` or `full` networks and data.
        beyond_epochs, beyond_moments: of residual network and transformer, and how many times λ̂ is measured on the way.
        grokking_epochs, grokking_moments: the same of the other.
        beyond_budget, grokking_budget: nominal seconds of each λ̂.
        beyond_sampler, beyond_chains, beyond_draws: as for `bs.llc`, of all three; 0 for what it chooses.
        cost_cases: architectures that are timed.
        cost_draws, cost_chains: of the timing.
        large: parameters, in millions, of the network whose memory is measured.
        seed: of the first of everything.
    """

    parts: tuple[str, ...] = PARTS
    decades: tuple[int, ...] = (2, 3, 4, 5, 6, 7)
    networks: tuple[int, ...] = (14, 14, 14, 10, 5, 3)
    hidden_layers: tuple[int, ...] = (1, 5)
    minibatch_samples: int = 2000
    truth_gamma: float = 0.5
    # By Gibbs sampling a perfect sampler is then below λ by 1 % (median) and 12 % (95th percentile) in decade 2, 0 and
    # 9 % in decade 3, at most 5 % in decade 4, 0 and 5 % in decade 5. Finer than that, chains do not reach equilibrium.
    truth_stiffness: tuple[float, ...] = (6000.0, 1000.0, 1000.0, 300.0, 300.0, 300.0)
    truth_minibatch: tuple[int, ...] = (4, 4, 3, 2, 1, 0)
    truth_budgets: tuple[float, ...] = (20.0, 40.0, 120.0, 30.0, 45.0, 100.0)
    published_samples: int = 20_000
    published_draws: tuple[int, ...] = (10_000, 10_000, 10_000, 50_000, 10_000, 10_000)
    published_batch: int = 500
    rungs: tuple[float, ...] = (10.0, 31.6, 100.0, 316.0, 1000.0, 3162.0, 10_000.0, 31_623.0, 100_000.0)
    ladder_cases: tuple[str, ...] = ("quadratic", "chain", "network", "real")
    ladder_gamma: float = 1.0
    ladder_budget: float = 5.0
    atlas_cases: tuple[str, ...] = ("small", "real")
    factors: tuple[float, ...] = (0.0625, 0.25, 1.0, 4.0, 16.0)
    lengths: tuple[int, ...] = (125, 500, 2000, 8000)
    batches: tuple[int, ...] = (32, 128, 512, 2048)
    atlas_chains: int = 4
    atlas_budget: float = 2.0
    data: str = "mnist"
    atlas_widths: tuple[int, ...] = (128,)
    atlas_samples: int = 10_000
    atlas_epochs: int = 30
    entropy_widths: tuple[int, ...] = (1024, 1024)
    entropy_samples: int = 0
    entropy_seeds: int = 80
    entropy_looks: tuple[int, ...] = (2, 5, 10, 20, 50, 200)
    entropy_batch: int = 512
    entropy_lr: float = 0.01
    entropy_inner_steps: int = 5
    entropy_full: int = 5
    entropy_draws: int = 400
    entropy_step: float = 1e-5
    entropy_budget: float = 8.0
    beyond_cases: tuple[str, ...] = ("resnet", "text", "grokking")
    beyond_size: str = "full"
    beyond_epochs: int = 60
    beyond_moments: int = 5
    grokking_epochs: int = 1500
    grokking_moments: int = 20
    beyond_budget: float = 6.0
    grokking_budget: float = 15.0
    beyond_sampler: str = "auto"
    beyond_chains: int = 0
    beyond_draws: int = 0
    cost_cases: tuple[str, ...] = ("mlp", "lenet5", "resnet", "text", "large")
    cost_draws: int = 200
    cost_chains: int = 4
    large: float = 100.0
    seed: int = 0


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "decades": [2], "networks": [3], "minibatch_samples": 400, "hidden_layers": [1, 2], "truth_budgets": [1.0],
        "truth_minibatch": [0], "truth_gamma": 4.0, "truth_stiffness": [100.0],
        "published_samples": 400, "published_draws": [1000],
        "rungs": [10.0, 100.0, 1000.0, 10_000.0, 100_000.0], "ladder_budget": 1.0,
        "ladder_cases": ["quadratic", "chain", "real"], "atlas_cases": ["small"], "factors": [0.25, 1.0, 4.0],
        "lengths": [125, 500], "batches": [32, 128],
        "atlas_chains": 2, "atlas_budget": 0.5, "data": "digits", "atlas_widths": [8], "atlas_samples": 400,
        "atlas_epochs": 60, "entropy_widths": [16], "entropy_samples": 400, "entropy_seeds": 5,
        "entropy_looks": [5, 20, 60], "entropy_batch": 32, "entropy_lr": 0.02, "entropy_full": 2,
        "entropy_draws": 100, "entropy_step": 1e-4,
        "entropy_budget": 0.5,
        "beyond_size": "small", "beyond_epochs": 20, "beyond_moments": 4, "grokking_epochs": 1200,
        "grokking_moments": 4,
        "beyond_budget": 0.3, "grokking_budget": 0.3,
        "beyond_sampler": "sgld", "beyond_chains": 2, "beyond_draws": 100,
        "cost_cases": ["mlp", "text", "large"], "cost_draws": 4, "cost_chains": 2, "large": 1.0,
    },
    "paper": {},
}  # fmt: skip
