"""Worker: λ̂ by the microcanonical samplers of blackjax from so many gradients on all data: MCLMC, which is not
adjusted, and MAMS, which is (Robnik et al. 2025, https://arxiv.org/abs/2503.01707). Both tune themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import blackjax
import jax
import jax.numpy as jnp
import numpy as np

from samplers.peers.attending import attend

PER_STEP = 2  # gradients that a step of the integrator of McLachlan takes
TUNED = 0.3  # of the gradients
LEAPS = 2.0  # steps of a trajectory of MAMS, on average


def load(path: str) -> tuple[Callable[[Any], Any], Any]:
    """The mean loss over all data as a function of the parameters in a row, and w*."""
    with np.load(path) as arrays:
        weights = [jnp.asarray(arrays[name]) for name in arrays.files if name.startswith("weight ")]
        kind, powers = str(arrays["kind"]), arrays["powers"].tolist()
        x, y = jnp.asarray(arrays["inputs"]), jnp.asarray(arrays["target"])
    ends = np.cumsum([each.size for each in weights])[:-1].tolist()

    def output(row: Any) -> Any:
        parts = [piece.reshape(each.shape) for piece, each in zip(jnp.split(row, ends), weights, strict=True)]
        if kind == "monomial":
            product = x
            for index, power in enumerate(powers):
                product = product * parts[0][index] ** power
            return product
        if kind == "superposition":
            return jax.nn.relu(x @ parts[0].T @ parts[0] + parts[1])
        found = x
        for matrix in parts:
            found = found @ matrix.T
        return found

    return lambda row: 0.5 * ((output(row) - y) ** 2).sum(1).mean(), jnp.concatenate([each.ravel() for each in weights])


def mclmc(density: Any, start: Any, steps: int, key: Any) -> Any:
    """Log densities along one chain of so many steps, tuning not counted among them."""
    tune, begin, run = jax.random.split(key, 3)
    kernel = blackjax.mclmc.build_kernel()
    state = blackjax.mcmc.mclmc.init(start, density, begin)
    tuning = max(20, int(steps * TUNED))
    state, found, _ = blackjax.mclmc_find_L_and_step_size(
        kernel, tuning, state, tune, density, frac_tune1=1 / 3, frac_tune2=1 / 4, frac_tune3=1 / 3
    )

    def step(state: Any, key: Any) -> Any:
        state, _ = kernel(key, state, density, found.inverse_mass_matrix, found.L, found.step_size)
        return state, state.position

    return jax.lax.scan(step, state, jax.random.split(run, steps - tuning))[1]


def mams(density: Any, start: Any, steps: int, key: Any) -> Any:
    """The same with Metropolis's test after trajectories of some steps."""
    tune, begin, run = jax.random.split(key, 3)

    def length(key: Any, average: Any) -> Any:
        return jnp.ceil(jax.random.uniform(key) * (2 * average - 1)).astype("int32")

    kernel = blackjax.adjusted_mclmc_dynamic.build_kernel(integration_steps_fn=length)
    state = blackjax.mcmc.adjusted_mclmc_dynamic.init(start, density, begin)
    proposals = int(steps / LEAPS)
    tuning = max(20, int(proposals * TUNED))

    state, found, _ = blackjax.adjusted_mclmc_find_L_and_step_size(
        kernel, density, tuning, state, tune, target=0.9, frac_tune1=1 / 2, frac_tune2=1 / 2,
        target_num_integration_steps=LEAPS,
    )  # fmt: skip

    def step(state: Any, key: Any) -> Any:
        mass = found.inverse_mass_matrix
        state, _ = kernel(
            key, state, density, found.step_size, inverse_mass_matrix=mass, integration_steps_params=(LEAPS,)
        )
        return state, state.position

    return jax.lax.scan(step, state, jax.random.split(run, proposals - tuning))[1]


METHODS = {"mclmc": mclmc, "mams": mams}


@cache
def sampler(path: str, method: str, gradients: int, nbeta: float, gamma: float) -> Callable[[Any], Any]:
    """λ̂ as a compiled function of the random key."""
    loss, star = load(path)

    def density(row: Any) -> Any:
        return -nbeta * loss(row) - 0.5 * gamma * jnp.sum((row - star) ** 2)

    def value(key: Any) -> Any:
        positions = METHODS[method](density, star, gradients // PER_STEP, key)
        return nbeta * (jax.lax.map(loss, positions[len(positions) // 10 :]).mean() - loss(star))

    return jax.jit(value)


def estimate(path: str, settings: dict[str, Any]) -> float:
    resolution = settings["nbeta"], settings["gamma"]
    made = sampler(path, settings["method"], settings["gradients"], *resolution)
    return float(made(jax.random.key(settings["seed"])))


if __name__ == "__main__":
    attend(estimate)
