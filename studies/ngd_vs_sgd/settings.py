"""The settings of the study at either scale."""

from __future__ import annotations

from typing import Any

from basinscope.runs.study import Settings

PARTS = ("sizes", "judged", "convolutions", "smoothing", "branches", "epochs", "overfitting", "variants")


class NgdVsSgdSettings(Settings):
    """Settings of the study; the defaults are those of the authors' published code.

    Attributes:
        parts: which parts to run: `sizes` (Fig. 1), `epochs` (Fig. 2), `smoothing` (Fig. 3), `branches` (Fig. 4–6),
            `overfitting` (Fig. 7–8); beyond the paper's, `judged` (the first networks of `sizes`, measured in full),
            `convolutions` (LeNet-5 and deeper ones), `variants` (Fig. 2 for three natural gradients).
        data: data sets of the comparison of sizes; the first one serves the other parts but the branches.
        networks: `LAYERSxWIDTH`, for the comparison of sizes.
        convolutional: `lenet5`, or `lenet5+1` and so on with more convolutions.
        kinds: optimizers compared there.
        network: for all other parts but the variants.
        variant_network: small enough for the exact Fisher matrix.
        samples: training samples to use; 0 for all.
        variant_samples: the same for the variants.
        seeds: repetitions of the comparison of sizes.
        few_seeds: repetitions in all other parts.
        full_seeds: how many variants are measured in full, with the calibrated λ̂ and soft ranks, at the end.
        batch_size: of training.
        lr: learning rate of SGD and of the online natural gradient.
        unscaled_lr: of KFAC and the exact one, whose steps do not keep the gradient's norm.
        momentum: Nesterov's, of all optimizers.
        size_alpha: smoothing α of the comparison of sizes.
        alpha: smoothing α elsewhere.
        epsilon: floor ε.
        epochs: of sizes and variants.
        measured: epochs of the comparison of sizes after which λ̂ is measured, besides the last two.
        curve_epochs: of the network that is followed epoch by epoch.
        alphas: α that are swept, at ε = `epsilon`.
        epsilons: ε that are swept, at α = 0.
        sweep_epochs: epochs of the sweeps.
        trunks: of the branches, each as "data rate split end branch branch …": trained with SGD at the rate until the
            epoch `split`, and from there with every branch, `optimizer@rate`, until the epoch `end`.
        branch_every: epochs between two measurements of trunks and branches.
        overfit_samples, overfit_epochs, overfit_lr, overfit_every: of the part that trains too long.
        label_noise: share of its labels that are drawn anew.
        draws: of the paper's SGLD, in each of two chains.
        gamma: localisation γ of every measurement.
        sampler, chains, budget, rtol: of the calibrated λ̂, as for `bs.llc`; 0 chains: as many as it chooses.
    """

    parts: tuple[str, ...] = PARTS
    data: tuple[str, ...] = ("mnist",)
    networks: tuple[str, ...] = ("1x64", "2x256", "2x64", "1x256", "1x128", "2x128")
    convolutional: tuple[str, ...] = ("lenet5", "lenet5+1", "lenet5+2")
    kinds: tuple[str, ...] = ("sgd", "online", "accurate")
    network: str = "2x256"
    variant_network: str = "1x64"
    samples: int = 0
    variant_samples: int = 20_000
    seeds: int = 30
    few_seeds: int = 5
    full_seeds: int = 3
    batch_size: int = 128
    lr: float = 1e-2
    unscaled_lr: float = 1e-3
    momentum: float = 0.9
    size_alpha: float = 1e-2
    alpha: float = 1e-1
    epsilon: float = 1e-10
    epochs: int = 20
    measured: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 10, 13, 16)
    curve_epochs: int = 30
    alphas: tuple[float, ...] = (0.0, 1e-4, 1e-3, 1e-2, 1e-1, 5e-1, 1.0, 2.0, 5.0, 10.0, 50.0)
    epsilons: tuple[float, ...] = (1e-2, 1e-3, 1e-4, 1e-5, 5e-7, 1e-10, 1e-13, 1e-19)
    sweep_epochs: int = 30
    trunks: tuple[str, ...] = (
        "mnist 1e-4 15 50 sgd@1e-4 online@1e-4 online@5e-4 online@1e-3 online@1e-2 sgd@1e-3 sgd@1e-2",
        "mnist 1e-2 20 60 sgd@1e-2 online@1e-2",
        "mnist 1e-4 30 80 sgd@1e-4 online@1e-3 online@1e-2",
        "mnist 1e-3 30 80 sgd@1e-3 online@1e-3",
        "mnist 1e-2 30 80 sgd@1e-2 online@1e-2",
        "fashion_mnist 1e-2 15 80 sgd@1e-2 online@1e-2",
        "fashion_mnist 1e-3 30 80 sgd@1e-3 online@1e-3",
    )
    branch_every: int = 5
    overfit_samples: int = 0
    overfit_epochs: int = 60
    overfit_lr: float = 1e-2
    overfit_every: int = 4
    label_noise: float = 0.0
    draws: int = 1000
    gamma: float = 100.0
    sampler: str = "auto"
    chains: int = 0
    budget: float = 2.0
    rtol: float = 0.1


SCALES: dict[str, dict[str, Any]] = {
    "smoke": {
        "data": ["digits"], "networks": ["1x8", "1x16", "2x16"], "convolutional": ["lenet5"], "network": "2x16",
        "variant_network": "1x8", "samples": 400, "batch_size": 32, "variant_samples": 400, "seeds": 3, "few_seeds": 2,
        "full_seeds": 2, "lr": 0.02, "unscaled_lr": 0.01, "epochs": 20, "measured": [2, 5, 10],
        "curve_epochs": 20, "draws": 200, "alphas": [1e-2, 1e-1, 1.0, 50.0],
        "epsilons": [1e-10, 1e-5, 1e-3, 1e-1], "sweep_epochs": 12,
        "trunks": ["digits 0.02 12 24 sgd@0.02 online@0.02",
                   "digits 0.005 16 32 sgd@0.005 online@0.005 online@0.02 sgd@0.02"],
        "branch_every": 4, "overfit_samples": 300, "overfit_epochs": 60, "overfit_lr": 0.02, "overfit_every": 6,
        "label_noise": 0.2, "sampler": "hmc", "chains": 4, "budget": 0.1, "rtol": 0.1,
    },
    "paper": {},
}  # fmt: skip
