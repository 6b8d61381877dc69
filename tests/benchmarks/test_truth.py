"""The yardstick of the ground-truth benchmark: its landscapes, its references and its arithmetic."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import ground_truth
import numpy as np
import pytest
import torch
from truth import gibbs, quadrature
from truth.case import Case, default_resolution
from truth.convergence import gibbs_mean, split_rhat, standard_error
from truth.crossing import Crossing
from truth.network import Network
from truth.references import ReferenceBook
from truth.regression import Regression
from truth.scores import Limits, Score, goals
from truth.suite import FULL_BATCH, MINIBATCH, NETWORKS

from basinscope import Estimate, Landscape, exact
from chance import SAMPLED, assert_within

SMALL = [case for case in FULL_BATCH if case.landscape().dimension <= 1000]


# ---------------------------------------------------------------------- the landscapes


def test_there_are_enough_of_every_kind() -> None:
    names = [case.name for case in FULL_BATCH]
    assert len(set(names)) == len(names) >= 70
    networks = [case for case in NETWORKS if isinstance(case, Network)]
    assert {len(case.widths) - 1 for case in networks} == {2, 3, 4, 5, 6}
    assert {case.noise for case in networks} == {"none", "unexplained", "fitted"}
    assert min(case.rank for case in networks) == 0
    assert any(case.rank == min(case.widths) for case in networks)
    sizes = [sum(a * b for a, b in zip(case.widths, case.widths[1:], strict=False)) for case in networks]
    assert min(sizes) == 50
    assert max(sizes) == 10_000
    assert all(case.n == 100_000 for case in MINIBATCH)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_the_point_is_a_minimum(case: Case) -> None:
    """What a Newton step could still gain in nβL, ½ (tg)ᵀ(tH + γ)⁻¹(tg), is far below λ_t."""
    land = case.landscape()
    nbeta, gamma = default_resolution(land)
    point = land.flatten({name: tensor.double() for name, tensor in land.parameters.items()})
    samples = type(land.samples)(land.samples.inputs.double(), land.samples.target.double(), land.n)
    slope = torch.func.grad(lambda w: nbeta * land.losses(land.unflatten(w), samples).mean())
    gradient, times_hessian = torch.func.vjp(slope, point)
    # Conjugate gradients; rounding errors of w* lie in the stiff directions, which these find first.
    step, residual = torch.zeros_like(point), gradient.clone()
    direction = residual.clone()
    for _ in range(20):
        if residual.norm() <= 1e-10 * gradient.norm():
            break
        image = times_hessian(direction)[0] + gamma * direction
        length = residual @ residual / (direction @ image)
        step, left = step + length * direction, residual - length * image
        direction = left + (left @ left) / (residual @ residual) * direction
        residual = left
    assert 0 <= 0.5 * float(gradient @ step) < (1e-12 if case.double else 2e-5)


def test_the_same_bits_every_time() -> None:
    case = Network((5, 4, 5), 4, "generic", "fitted")
    one, two = case.landscape(), case.landscape()
    assert torch.equal(one.samples.target, two.samples.target)
    assert all(torch.equal(one.parameters[name], two.parameters[name]) for name in one.parameters)


def test_the_hessian_has_the_spectrum_asked_for() -> None:
    x = Regression(6, 1e4, top=10, double=True).landscape().samples.inputs
    eigenvalues = torch.linalg.eigvalsh(x.T @ x / len(x))
    assert eigenvalues.flip(0).tolist() == pytest.approx(np.geomspace(10, 1e-3, 6).tolist(), rel=1e-9)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (Regression(7, 10, flat=3, outputs=2), Fraction(4)),
        (Crossing((2, 1)), Fraction(1, 4)),
        (Crossing((2, 1), (0, 1)), Fraction(1, 4)),
        (Crossing((2, 1), (1, 0)), Fraction(1, 2)),
        (Crossing((1, 1, 1), (1, 1, 1)), Fraction(1, 2)),
        (Network((2, 2, 2), 0, "origin"), Fraction(3, 2)),
        (Network((2, 2, 2), 0, "generic"), Fraction(2)),  # W_2 has rank 2: the true set is smooth there
        (Network((5, 3, 5), 3, "generic", "fitted", bias=True), Fraction(3 * 10 - 9, 2) + Fraction(5, 2)),
        (Network((4, 6, 5, 3), 1, "generic"), Fraction(6)),  # every layer above W_1 is onto: regular in W_1
        (Network((4, 3, 3, 4), 1, "generic"), None),
    ],
    ids=lambda value: value.name if isinstance(value, Case) else str(value),
)
def test_coefficients(case: Case, expected: Fraction | None) -> None:
    assert case.coefficient() == expected


@pytest.mark.parametrize("case", [case for case in SMALL if isinstance(case, Network)], ids=lambda case: case.name)
def test_planted_ranks(case: Network) -> None:
    star = [tensor.double() for name, tensor in case.landscape().parameters.items() if name.endswith("weight")]
    product = star[0]
    for factor in star[1:]:
        product = factor @ product

    def rank(matrix: torch.Tensor) -> int:
        return int(torch.linalg.matrix_rank(matrix, rtol=1e-5))

    assert rank(product) == case.rank
    assert rank(star[0]) == case.rank
    if case.point == "balanced":
        assert all(rank(factor) == case.rank for factor in star)
    if case.point == "generic" and case.rank < min(case.widths):
        assert all(rank(factor) == min(factor.shape) for factor in star[1:])


# ---------------------------------------------------------------------- quadrature


@pytest.mark.parametrize("powers", [(1, 1), (2, 1), (3, 1), (1, 1, 1), (2, 1, 1)])
def test_quadrature_agrees_with_the_mellin_integral(powers: tuple[int, ...]) -> None:
    value = quadrature.crossing(powers, (0.0,) * len(powers), 0.0, 1.3, nbeta=587, gamma=0.5)
    assert value == pytest.approx(exact.finite.monomial_localized(powers, 587, 0.5, scale=0.65), rel=1e-10)


def test_quadrature_far_from_the_crossing_is_regular() -> None:
    """A narrow localiser sees one valley only: ½ tσ/(tσ + γ) with σ = |∇f|² = 2."""
    value = quadrature.crossing((1, 1), (1.0, 1.0), 1.0, 1.0, nbeta=1e8, gamma=1e5)
    assert value == pytest.approx(0.5 * 2e8 / (2e8 + 1e5), rel=1e-4)


# ---------------------------------------------------------------------- the Gibbs sampler


def posterior_of(factors: list[np.ndarray], t: float, gamma: float, second_moment: np.ndarray) -> gibbs.LinearPosterior:
    product = factors[0]
    for factor in factors[1:]:
        product = factor @ product
    return gibbs.LinearPosterior(second_moment, product @ second_moment, tuple(factors), t, gamma)


@pytest.mark.parametrize("widths", [(1, 1, 1), (2, 2, 2), (3, 2, 2), (2, 5, 3)])
def test_gibbs_agrees_with_quadrature_at_the_origin(widths: tuple[int, int, int], seed: int) -> None:
    inputs, hidden, outputs = widths
    factors = [np.zeros((hidden, inputs)), np.zeros((outputs, hidden))]
    found = gibbs_mean(posterior_of(factors, 1e4, 1.0, np.eye(inputs)), seed=seed, target=0.003)
    expected = exact.finite.matrix_product(outputs, hidden, inputs, nbeta=1e4, gamma=1.0)
    assert_within(found.value, expected, found.stderr, SAMPLED)
    assert found.stderr <= 0.003 * found.value
    assert found.split_rhat < 1.01


@pytest.mark.parametrize(("point", "target"), [((1.0, 0.0), 0.0), ((1.5, 2.0), 3.0)])
def test_gibbs_agrees_with_quadrature_elsewhere(point: tuple[float, float], target: float, seed: int) -> None:
    factors = [np.array([[value]]) for value in point]
    found = gibbs_mean(posterior_of(factors, 145.0, 2.0, np.eye(1)), seed=seed, target=0.003)
    expected = quadrature.crossing((1, 1), point, target, 1.0, nbeta=145.0, gamma=2.0)
    assert_within(found.value, expected, found.stderr, SAMPLED)


@pytest.mark.parametrize(("ranks", "expected"), [((1, 3), 4.4955), ((1, 2), 3.887), ((1, 1), 3.653)])
def test_gibbs_at_local_points_of_3_3_3(ranks: tuple[int, int], expected: float, seed: int) -> None:
    """Regular part plus core, which is exact as γ/t → 0: at γ/t = 1e-3 the coupling of the two is below 0.2 %."""
    factors = [np.diag([1.0] * rank + [0.0] * (3 - rank)) for rank in ranks]
    found = gibbs_mean(posterior_of(factors, 1e5, 100.0, np.eye(3)), seed=seed, target=0.002)
    assert_within(found.value, expected, found.stderr, SAMPLED, bias=0.002 * expected)


@pytest.mark.parametrize("case", [Network((4, 3, 3, 5), 2), Network((5, 3, 4, 5), 3, "generic", "fitted", bias=True)])
def test_the_posterior_has_the_landscape_s_loss(case: Network) -> None:
    land = case.landscape()
    posterior = case.posterior(land, 100.0, 2.0)
    rng = np.random.default_rng(0)
    state = [factor[None] + 0.1 * rng.standard_normal((1, *factor.shape)) for factor in posterior.centre]
    names = [name for name in land.parameters if name.endswith("weight")]
    moved = {name: torch.tensor(factor[0]).float() for name, factor in zip(names, state, strict=True)}
    there, here = land.per_sample({**land.parameters, **moved}).mean(), land.per_sample().mean()
    assert float(posterior.energies(state)[0]) - posterior.offset == pytest.approx(100 * float(there - here), rel=1e-4)


def noisy_posterior(t: float) -> gibbs.LinearPosterior:
    """Three layers, w* no minimum, a hidden layer as narrow as the rank: nothing is special about it."""
    rng = np.random.default_rng(5)
    factors = [rng.standard_normal(shape) for shape in ((2, 4), (3, 2), (2, 3))]
    clean = posterior_of(factors, t, 2.0, np.diag([2.0, 1.0, 0.5, 0.1]))
    return replace(clean, cross=clean.cross + 0.1 * rng.standard_normal(clean.cross.shape))


def test_virial_identity(seed: int) -> None:
    """E[δ·∇U] = d for U = tL + γ‖δ‖²/2, whatever the loss: an error in any conditional would show."""
    posterior = noisy_posterior(t=50.0)
    rng = np.random.default_rng(seed)
    state = posterior.start(64)
    record = []
    for index in range(500):
        gibbs.sweep(posterior, state, rng, upward=index % 2 == 0)
        residual = state[2] @ state[1] @ state[0] @ posterior.second_moment - posterior.cross
        total = np.zeros(64)
        above, below = gibbs._products_above(state), gibbs._products_below(state)
        for a, factor, b, star in zip(above, state, below, posterior.centre, strict=True):
            slope = residual if a is None else a.swapaxes(1, 2) @ residual
            slope = slope if b is None else slope @ b.swapaxes(1, 2)
            total += np.sum((factor - star) * (posterior.t * slope + posterior.gamma * (factor - star)), axis=(1, 2))
        record.append(total)
    values = np.array(record[50:])
    assert_within(values.mean(), posterior.dimension, standard_error(values), SAMPLED)
    assert standard_error(values) < 0.01 * posterior.dimension


def test_hidden_layer_moves_change_neither_the_map_nor_the_law(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    posterior = noisy_posterior(t=5.0)  # warm enough for plain Gibbs to cross between signs
    rng = np.random.default_rng(0)
    state = [factor + 0.3 * rng.standard_normal(factor.shape) for factor in posterior.start(16)]
    before, energies = [factor.copy() for factor in state], posterior.energies(state)
    for move in (gibbs.draw_shear, gibbs.draw_scales, gibbs.flip_signs):
        for index in range(2):
            move(posterior, state, index, rng)
    assert posterior.energies(state) == pytest.approx(energies, rel=1e-9)
    assert not np.allclose(before[0], state[0])

    def energies(seed: int) -> np.ndarray:
        rng, state = np.random.default_rng(seed), posterior.start(64)
        return np.array([gibbs.sweep(posterior, state, rng, upward=index % 2 == 0) for index in range(400)])[50:]

    mixed = energies(seed)
    for name in ("draw_shear", "draw_scales", "flip_signs"):
        monkeypatch.setattr(gibbs, name, lambda *arguments: None)
    plain = energies(seed + 1)
    error = math.hypot(standard_error(mixed), standard_error(plain))
    assert_within(mixed.mean(), plain.mean(), error, SAMPLED)
    assert error < 0.03


@pytest.mark.parametrize("move", [gibbs.draw_shear, gibbs.draw_scales, gibbs.flip_signs])
def test_each_hidden_layer_move_keeps_the_localiser(move: Callable[..., None], seed: int) -> None:
    """The moves do not see the loss, so the localiser N(w*, 1/γ), which can be drawn exactly, must be stationary."""
    posterior = replace(noisy_posterior(t=1.0), gamma=0.3)  # wide enough for flips to happen
    rng = np.random.default_rng(seed)
    draws = 20_000
    state = [f + rng.standard_normal(f.shape) / np.sqrt(posterior.gamma) for f in posterior.start(draws)]
    before = [factor.copy() for factor in state]
    for _ in range(20):
        move(posterior, state, 0, rng)
    assert np.mean(np.any(state[0] != before[0], axis=(1, 2))) > 0.5
    for factor, star in zip(state[:2], posterior.centre, strict=False):
        away = factor - star
        square = posterior.gamma * np.sum(away**2, axis=(1, 2))
        along = np.sqrt(posterior.gamma) * np.sum(away * star, axis=(1, 2)) / np.linalg.norm(star)
        assert_within(square.mean(), star.size, np.sqrt(2 * star.size / draws), freedom=100)  # squares are skew
        assert_within(along.mean(), 0.0, 1 / np.sqrt(draws))
        assert_within((along**2).mean(), 1.0, np.sqrt(2 / draws), freedom=100)


def test_convergence_statistics(seed: int) -> None:
    rng = np.random.default_rng(seed)
    draws = np.zeros((4000, 100))
    for index in range(1, 4000):  # autoregression with integrated autocorrelation time (1 + ρ)/(1 − ρ) = 3
        draws[index] = 0.5 * draws[index - 1] + rng.standard_normal(100)
    # The larger of two that chance takes up to 6/√200 above or below, which half as many chains would show.
    assert standard_error(draws) == pytest.approx(np.sqrt(1 / 0.75 * 3 / draws.size), rel=0.45)
    assert split_rhat(draws) < 1.003
    draws[:, :50] += 1
    assert split_rhat(draws) > 1.05


# ---------------------------------------------------------------------- the benchmark itself


def perfect(land: Landscape, seed: int) -> Estimate:
    nbeta, gamma = default_resolution(land)
    value = Regression.reference(Regression(land.dimension, 1), land, nbeta, gamma).value
    return Estimate("llc", value * (1 + 0.001 * seed), 0.01 * value, diagnostics={"nbeta": nbeta, "gamma": gamma})


def crashing(land: Landscape, seed: int) -> Estimate:
    raise FloatingPointError("diverged")


def test_a_run_from_end_to_end(tmp_path: Path) -> None:
    out, kept = tmp_path / "truth.md", tmp_path / "references.json"
    where = ["--only", "quadratic 5x1", "--out", str(out), "--references", str(kept)]
    assert ground_truth.main([*where, "--seeds", "2"], perfect) == 0
    assert len(json.loads(kept.read_text())) == 2
    page = out.read_text()
    assert "| quadratic 5x1 condition 10, noiseless, n 500 | 1 | 5 | 500 | 2.5 |" in page
    assert "missed" not in page
    assert len(out.with_suffix(".csv").read_text().splitlines()) == 5
    assert ground_truth.main(where, crashing) == 1
    assert "crashed" in out.read_text()


def test_references_are_computed_once_per_resolution(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Regression(3, 10)
    land = case.landscape()
    calls = []
    original = Regression.reference
    monkeypatch.setattr(Regression, "reference", lambda *a: calls.append(a) or original(*a))
    path = tmp_path / "references.json"
    first = ReferenceBook(path).lookup(case, land, 100.0, 1.0)
    assert ReferenceBook(path).lookup(case, land, 100.0, 1.0 + 1e-9) == first
    assert len(calls) == 1
    ReferenceBook(path).lookup(case, land, 100.0, 2.0)
    ReferenceBook(path).lookup(replace(case, condition=20), land, 100.0, 1.0)
    assert len(calls) == 3
    again = ReferenceBook(path, recompute=True)
    again.lookup(case, land, 100.0, 1.0)
    again.lookup(case, land, 100.0, 1.0)
    assert len(calls) == 4


def test_goals() -> None:
    good = Score("a", 0, 5, 100, 20.0, 1.0, 2.5, 2.0, 0.0, 2.02, 0.05, True, "ok", 1.0)
    limits = Limits(median=0.02, tail=0.06, coverage=0.85, ok=0.9, seconds=90.0)
    assert all(goal.met for goal in goals([good] * 20, limits))
    assert good.error_of_limit == pytest.approx(2.02 / 2.5 - 1)

    def missed(*bad: Score) -> set[str]:
        return {goal.text for goal in goals([good] * 17 + list(bad), limits) if not goal.met}

    assert missed(replace(good, value=math.nan, verdict="failed")) == {
        "95th percentile of |relative error| ≤ 6.0%",
        "no NaN, no crash",
    }
    assert missed(replace(good, value=2.5)) == {
        "95th percentile of |relative error| ≤ 6.0%",
        "no `ok` with an error above 15%",
    }
    assert missed(*[replace(good, covered=False)] * 4) == {"90 % intervals cover ≥ 85%"}
    assert missed(*[replace(good, verdict="doubtful")] * 2) == {"`ok` ≥ 90%"}
    assert missed(replace(good, seconds=91.0)) == {"seconds of each case ≤ 90 s"}
    assert missed(*[replace(good, value=2.1)] * 18) == {"median |relative error| ≤ 2.0%"}
    worst = Limits(median=0.02, worst=0.04)
    assert {goal.text for goal in goals([good] * 17 + [replace(good, value=2.1)], worst) if not goal.met} == {
        "worst |relative error| ≤ 4%"
    }


def test_a_run_that_was_cut_short_goes_on_where_it_stopped(tmp_path: Path) -> None:
    out, kept = tmp_path / "truth.md", tmp_path / "references.json"
    where = ["--only", "quadratic 5x1", "--out", str(out), "--references", str(kept), "--resume"]
    ground_truth.main([*where, "--minutes", "0"], perfect)
    table = out.with_suffix(".csv")
    first = table.read_text().splitlines()
    assert len(first) == 2  # the heading and one score
    table.write_text("\n".join(first) + "\nquadratic 5x1 cond")  # killed while it wrote
    assert ground_truth.main(where, perfect) == 0
    rows = table.read_text().splitlines()
    assert rows[:2] == first
    assert len(rows) == 3
