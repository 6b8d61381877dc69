"""λ̂ against exact posterior means, as near as chance allows, and with standard errors that allow little."""

import importlib
import json
import math
import re
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from torch import nn

import basinscope as bs
from basins import Product, classifier, quadratic, white
from chance import SAMPLED, assert_within

f64 = torch.float64
CHEAP = {"rtol": 0.02, "budget": 5.0, "progress": False}
SHARP = {"rtol": 0.004, "budget": 20.0, "progress": False}  # an error of 5 % is beyond chance
SIGMA = [1.0, 1.0, 0.1, 0.01, 1e-4]
N = 200
T = N / math.log(N)


def right(estimate, exact, precision=0.02):
    """Right but for chance, with a standard error of at most `precision`, and the rounding of weights in float32."""
    assert 0 < estimate.stderr <= precision * abs(exact)
    assert_within(estimate.value, exact, estimate.stderr, SAMPLED, bias=1e-3 * abs(exact))


def quadratic_value(sigma, nbeta, gamma, gradient=None):
    """½ Σ tσ/a − Σ t²g²(tσ/2 + γ)/a² with a = tσ + γ, written out."""
    total = 0.0
    for s, g in zip(sigma, gradient or [0.0] * len(sigma), strict=True):
        a = nbeta * s + gamma
        total += 0.5 * nbeta * s / a - nbeta**2 * g**2 * (nbeta * s / 2 + gamma) / a**2
    return total


# ---------------------------------------------------------------------- exact values


@pytest.fixture
def estimate(seed):
    return bs.llc(quadratic(SIGMA), gamma=1.0, seed=seed, **SHARP)


def test_quadratic_basin(estimate):
    right(estimate, quadratic_value(SIGMA, T, 1.0), precision=0.005)
    low, high = estimate.interval(0.9)
    assert low < estimate.value < high


def test_diagnostics_of_the_quadratic(estimate):
    found = estimate.diagnostics
    assert found["nbeta"] == pytest.approx(T)
    assert found["gamma"] == 1.0
    assert (found["n"], found["dimension"]) == (N, 5)
    assert found["diverged"] == 0
    assert not found["interrupted"]
    assert found["drop"] == pytest.approx(0.0, abs=1e-6)
    assert found["largest_eigenvalue"] == pytest.approx(1.0, rel=1e-4)
    assert found["half_soft_rank"] == pytest.approx(quadratic_value(SIGMA, T, 1.0), rel=1e-4)
    assert 0.5 < found["acceptance"] <= 1
    assert_within(found["virial"], 1.0, found["virial_stderr"], SAMPLED, bias=0.01)
    # (nβ)² Var L = ½ Σ (tσ/a)² = κ₂ and E‖δ‖² = Σ 1/a. With cumulants κ₄ = 3 Σ (tσ/a)⁴ and Var ‖δ‖² = 2 Σ 1/a², from as
    # many independent draws as the ESS promises.
    shares, spreads = np.array([(T * s / (T * s + 1), 1 / (T * s + 1)) for s in SIGMA]).T
    capacity, excess = 0.5 * (shares**2).sum(), 3 * (shares**4).sum()
    draws = found["ess"]
    assert draws > 100
    stderr = math.sqrt((excess + 2 * capacity**2) / draws)
    assert_within(found["heat_capacity"], capacity, stderr, SAMPLED)
    assert_within(found["distance"] ** 2, spreads.sum(), math.sqrt(2 * (spreads**2).sum() / draws), SAMPLED)
    assert np.isfinite(found["trace"]).all()
    assert found["trace"].shape[0] == found["chains"]


def slope_in_gamma(sigma, nbeta, gamma):
    """∂/∂log γ of ½ Σ tσ/(tσ + γ): −½ Σ tσγ/(tσ + γ)²."""
    return -0.5 * sum(nbeta * s * gamma / (nbeta * s + gamma) ** 2 for s in sigma)


def test_slope_in_gamma(estimate):
    slope, stderr = estimate.diagnostics["gamma_slope"], estimate.diagnostics["gamma_slope_stderr"]
    exact = slope_in_gamma(SIGMA, T, 1.0)
    assert 0 < stderr < 0.3 * abs(exact)
    assert_within(slope, exact, stderr, SAMPLED)


@pytest.mark.slow
def test_slope_in_gamma_on_minibatches(seed):
    sigma = [1.0, 0.5, 0.1, 0.02]
    land = quadratic(sigma, n=5000, noise=1.0)
    found = bs.llc(land, nbeta=100.0, gamma=5.0, sampler="minibatch", seed=seed, **CHEAP).diagnostics
    exact = slope_in_gamma(sigma, 100.0, 5.0)
    assert 0 < found["gamma_slope_stderr"] < 0.3 * abs(exact)
    bias = 0.1 * abs(exact)  # of the smallest step
    assert_within(found["gamma_slope"], exact, found["gamma_slope_stderr"], SAMPLED, bias=bias)


@pytest.mark.slow
def test_condition_number_of_a_million(seed):
    sigma = [10.0, 1.0, 0.1, 0.01, 1e-3, 1e-4, 1e-5]
    found = bs.llc(quadratic(sigma, dtype=f64), nbeta=1e5, gamma=1e-3, seed=seed, **SHARP)
    right(found, quadratic_value(sigma, 1e5, 1e-3), precision=0.005)


@pytest.mark.slow
def test_hyperbola(seed):
    # Two valleys cross at w*, where the Hessian is zero: no curvature shows this λ̂.
    x = torch.ones(20, 1)
    land = bs.Landscape(Product(), "mse", (x, 0 * x))
    found = bs.llc(land, nbeta=80.0, seed=seed, **CHEAP)
    right(found, bs.exact.finite.hyperbola(80.0, 1.0), precision=0.08)
    assert found.diagnostics["half_soft_rank"] == pytest.approx(0.0, abs=1e-6)
    assert found.diagnostics["gamma"] == 1.0


@pytest.mark.slow
def test_deep_linear_network_at_the_origin(seed):
    # K = ‖AB‖²/2 for white inputs: the singular point of a 3-2-3 network that has nothing to learn.
    x = white(30, 3)
    net = nn.Sequential(nn.Linear(3, 2, bias=False), nn.Linear(2, 3, bias=False))
    for layer in net:
        nn.init.zeros_(layer.weight)
    found = bs.llc(bs.Landscape(net, "mse", (x, 0 * x)), nbeta=50.0, gamma=1.0, seed=seed, **CHEAP)
    right(found, bs.exact.finite.matrix_product(3, 2, 3, 50.0, 1.0), precision=0.03)


@pytest.mark.slow
def test_part_of_the_weights(seed):
    # Two blocks of a regression; restricted to one of them only its own curvatures count.
    class Blocks(nn.Module):
        def __init__(self):
            super().__init__()
            self.left, self.right = nn.Linear(2, 1, bias=False), nn.Linear(3, 1, bias=False)

        def forward(self, inputs):
            return self.left(inputs[:, :2]) + self.right(inputs[:, 2:])

    x = white(N, 5).float() * torch.tensor([1.0, 0.3, 1.0, 1.0, 1.0])
    net = Blocks()
    with torch.no_grad():
        land = bs.Landscape(net, "mse", (x, net(x)))
    found = bs.llc(land.restrict("left.*"), gamma=1.0, seed=seed, **SHARP)
    right(found, quadratic_value([1.0, 0.09], T, 1.0), precision=0.005)


@pytest.mark.slow
def test_minibatches_on_noisy_data(seed):
    # Residuals of size one: minibatch gradients are noise of trace nβ²/m Tr H, which extrapolation has to remove.
    sigma = [1.0, 0.5, 0.1, 0.02]
    land = quadratic(sigma, n=5000, noise=1.0)
    found = bs.llc(land, nbeta=100.0, gamma=1.0, sampler="minibatch", batch_size=128, seed=seed, **CHEAP)
    right(found, quadratic_value(sigma, 100.0, 1.0), precision=0.1)
    assert found.diagnostics["sampler"] == "minibatch"
    assert found.diagnostics["batch_size"] == 128
    longer, shorter = found.diagnostics["step_sizes"]
    assert shorter == pytest.approx(longer / 2)
    json.dumps(found.to_dict())


def test_one_sample_with_a_temperature(seed):
    x = torch.ones(1, 1)
    net = nn.Linear(1, 1, bias=False)
    nn.init.ones_(net.weight)
    land = bs.Landscape(net, "mse", (x, x))
    found = bs.llc(land, nbeta=10.0, gamma=1.0, seed=seed, draws=200, **CHEAP)
    right(found, quadratic_value([1.0], 10.0, 1.0), precision=0.06)
    with pytest.raises(bs.InputError, match="at least 3 samples, got n=1 — pass nbeta"):
        bs.llc(land, **CHEAP)


def test_prior_dominated_values_are_doubted(seed):
    # tσ ≪ γ in every direction: λ̂ ≈ t Tr H/(2γ) is the localiser's doing.
    found = bs.llc(quadratic([1e-3, 1e-3]), gamma=10.0, seed=seed, **CHEAP)
    assert found.verdict != "ok"
    assert any("prior-dominated" in warning for warning in found.warnings)


def test_nothing_to_measure(seed):
    # One class: the loss is zero everywhere, and so is λ.
    land = bs.Landscape(nn.Linear(3, 1), "cross_entropy", (torch.randn(20, 3), torch.zeros(20, dtype=torch.long)))
    found = bs.llc(land, seed=seed, draws=16, chains=2, **(CHEAP | {"budget": 0.5}))
    assert found.value == 0
    assert found.verdict == "doubtful"
    (warning,) = found.warnings
    assert warning.startswith("constant: the loss is the same wherever the chains went")


# ---------------------------------------------------------------------- plain kernels


PLAIN = ["sgld", "rmsprop-sgld", "leimkuhler-matthews", "baoab", "sgnht", "mala"]


@pytest.mark.parametrize("sampler", PLAIN)
def test_plain_kernels_report_what_they_did(sampler, seed):
    # At a minimum without noise, as a network that fits its data is.
    sigma = [1.0, 0.5]
    found = bs.llc(quadratic(sigma), gamma=5.0, sampler=sampler, chains=32, draws=600, seed=seed, **CHEAP)
    exact = quadratic_value(sigma, T, 5.0)
    # Half of the inverse stiffness as step: SGLD's bias is below 1/(1 − 1/8), gradient noise of exact data tiny.
    assert_within(found.value, 1.075 * exact, found.stderr, SAMPLED, bias=0.075 * exact)
    # About 2.5 %, itself known to 13 % from 32 chains: by chance it is not twice as much.
    assert found.stderr < (0.1 if sampler == "rmsprop-sgld" else 0.05) * exact
    assert found.diagnostics["sampler"] == sampler
    assert found.diagnostics["chains"] == 32
    assert found.diagnostics["draws"] == 600
    assert found.diagnostics["burn_in"] == 300
    assert len(found.diagnostics["step_sizes"]) == 1
    json.dumps(found.to_dict())


def test_sgld_with_the_papers_settings_has_the_bias_of_its_formula(seed):
    # Per mode of curvature a = tσ + γ: variance (1 + εN/4)/(a(1 − εa/4)), N = t²c/m with c = s²σ for residuals of
    # size s, so λ̂ = ½ Σ tσ · variance. The noise of the displacement itself adds s² → s² + 2L_excess, here 1 %.
    sigma, noise, batch, gamma = [1.0, 0.6, 0.3], 1.0, 32, 10.0
    land = quadratic(sigma, n=1000, noise=noise)
    t = 1000 / math.log(1000)
    eps = 0.4 / (t + gamma)
    residual = 2 * float(land.per_sample().mean())
    biased = 0.0
    for s in sigma:
        a, gradient_noise = t * s + gamma, t**2 * residual * s / batch
        biased += 0.5 * t * s * (1 + eps * gradient_noise / 4) / (a * (1 - eps * a / 4))
    exact = quadratic_value(sigma, t, gamma)
    assert biased > 1.3 * exact
    found = bs.llc(
        land, gamma=gamma, sampler="sgld", step_size=eps, batch_size=batch, chains=200, draws=800, seed=seed, **CHEAP
    )
    kept = found.diagnostics["trace"]
    by_chance = kept[:, kept.shape[1] // 2 :].mean(1).std(ddof=1) / math.sqrt(200)
    assert by_chance < 0.01 * biased
    assert_within(found.value, biased, by_chance, SAMPLED, bias=0.02 * biased)
    assert abs(found.value - exact) < 4 * found.stderr, "the virial, which the same steps lift, is charged"
    assert found.diagnostics["step_sizes"] == [eps]
    assert found.diagnostics["batch_size"] == batch
    assert found.verdict != "ok", "a value 30 % too large must not pass: the virial ratio shows it"


@pytest.mark.parametrize("sampler", ["sgld", "leimkuhler-matthews", "sgnht", "baoab"])
def test_diverged_chains_never_pass(sampler, seed):
    found = bs.llc(quadratic(SIGMA), gamma=1.0, sampler=sampler, step_size=1e3, draws=64, seed=seed, **CHEAP)
    assert found.verdict == "failed"
    assert math.isnan(found.value)
    assert any(re.search(r"diverged: 4 of 4 chains.*smaller step_size", warning) for warning in found.warnings)
    assert found.diagnostics["diverged"] == 4
    json.dumps(found.to_dict())


@pytest.mark.parametrize("sampler", ["mala", "hmc"])
def test_steps_that_are_never_accepted_never_pass(sampler, seed):
    cheaper = CHEAP | {"budget": 0.5}
    found = bs.llc(quadratic(SIGMA), gamma=1.0, sampler=sampler, step_size=1e3, draws=64, seed=seed, **cheaper)
    assert found.verdict != "ok"


@pytest.mark.slow
def test_a_steep_flat_basin_on_minibatches(seed):
    # K = 5·10⁵ ‖w‖⁴: flat at w*, a wall elsewhere. λ = d/4, within whatever standard error such chains can have.
    class Wall(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(3))

        def forward(self, inputs):
            return 1e3 * self.w.square().sum() * inputs

    x = torch.ones(50, 1)
    land = bs.Landscape(Wall(), "mse", (x, 0 * x))
    settings = CHEAP | {"nbeta": 80.0, "sampler": "minibatch", "batch_size": 16, "budget": 0.5}
    found = bs.llc(land, gamma=1e-3, seed=seed, **settings)
    assert found.stderr < 0.4
    assert_within(found.value, 0.75, found.stderr, SAMPLED)


def test_a_step_at_the_edge_of_stability_is_seen(seed):
    # εa = 3.8 of 4: the stiff variance is twenty times too large.
    settings = CHEAP | {"sampler": "sgld", "step_size": 3.8 / (T + 1), "draws": 400}
    found = bs.llc(quadratic([1.0, 1.0]), gamma=1.0, seed=seed, **settings)
    assert found.verdict != "ok"


@pytest.mark.parametrize("burn_in", [0.8, 0.95, 0.99])  # three draws have no standard error
def test_burn_in_that_leaves_too_few_draws_is_refused(burn_in):
    with pytest.raises(bs.InputError, match="burn_in"):
        bs.llc(quadratic(SIGMA), gamma=1.0, sampler="sgld", draws=16, burn_in=burn_in, seed=1, **CHEAP)


@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": "minibatch", "draws": 32},
        {"sampler": "minibatch", "step_size": 0.01},
        {"sampler": "minibatch", "burn_in": 0.1},
        {"sampler": "hmc", "draws": 16, "batch_size": 10},
        {"sampler": "mala", "batch_size": 10},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())),
)
def test_settings_that_would_change_nothing_are_refused(settings):
    *_, unused = settings
    with pytest.raises(bs.InputError, match=f"{unused}={settings[unused]} has no meaning for sampler"):
        bs.llc(quadratic([1.0, 0.5]), gamma=5.0, **CHEAP, **settings)


class Root(nn.Module):
    """√(w²) x, whose slope at w = 0 does not exist."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.zeros(1))
        self.shift = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.scale.square().sqrt() * x + self.shift


@pytest.mark.parametrize("settings", [{}, {"sampler": "minibatch"}, {"sampler": "sgld", "step_size": 1e-3}])
def test_a_gradient_that_does_not_exist_names_its_parameter(settings):
    with pytest.raises(bs.InputError, match="gradient in 'scale' at w"):
        bs.llc(bs.Landscape(Root(), "mse", (torch.ones(20, 1), torch.ones(20, 1))), **CHEAP, **settings)


@pytest.mark.parametrize("chains", [2, 5, 7])
def test_chains_that_two_step_sizes_cannot_share_are_refused(chains):
    with pytest.raises(bs.InputError, match=f"multiple of 2 from 4 on, got {chains}"):
        bs.llc(quadratic([1.0, 0.5]), gamma=5.0, sampler="minibatch", chains=chains, **CHEAP)


def test_all_chains_are_counted(seed):
    options = CHEAP | {"budget": 0.1, "rtol": 0.2}
    land = quadratic([1.0, 0.5], n=400, noise=1.0)
    found = bs.llc(land, gamma=5.0, sampler="minibatch", chains=10, batch_size=32, seed=seed, **options).diagnostics
    assert (found["chains"], found["started"]) == (10, 10)


def test_settings_are_followed():
    land, settings = quadratic([1.0, 0.5]), {"draws": 16, "step_size": 0.5, "burn_in": 0.1, "chains": 3}
    found = bs.llc(land, gamma=5.0, sampler="hmc", **CHEAP, **settings).diagnostics
    assert (found["draws"], found["burn_in"], found["step_sizes"], found["chains"]) == (16, 1, [0.5], 3)


# ---------------------------------------------------------------------- the run itself


QUICK = {"draws": 16, "chains": 4, "budget": 0.2, "progress": False}


def test_same_seed_same_bits():
    land = classifier(n=50)
    first, again, other = (bs.llc(land, sampler="hmc", seed=seed, **QUICK) for seed in (5, 5, 6))
    assert first.value == again.value
    assert first.stderr == again.stderr
    assert json.dumps(first.to_dict()) == json.dumps(again.to_dict())
    assert other.value != first.value


@pytest.mark.slow
def test_same_seed_same_bits_on_minibatches():
    land = quadratic([1.0, 0.5], n=400, noise=1.0)
    options = {"gamma": 5.0, "sampler": "minibatch", "batch_size": 32, "rtol": 0.2, "budget": 0.1, "progress": False}
    first, again = (bs.llc(land, seed=5, **options) for _ in range(2))
    assert json.dumps(first.to_dict()) == json.dumps(again.to_dict())
    sgld = {**QUICK, "sampler": "sgld", "batch_size": 8}
    one, two, three = (bs.llc(land, seed=seed, **sgld) for seed in (5, 5, 6))
    assert one.value == two.value != three.value


def test_the_global_random_state_has_no_say():
    land = quadratic([1.0, 0.5], n=400, noise=1.0)
    torch.manual_seed(0)
    first = bs.llc(land, sampler="sgld", **QUICK)
    torch.manual_seed(1)
    before = torch.get_rng_state()
    assert bs.llc(land, sampler="sgld", **QUICK).value == first.value
    assert torch.equal(torch.get_rng_state(), before)


def test_a_model_that_vmap_cannot_batch_gives_the_same_value():
    class Stubborn(nn.Sequential):
        def forward(self, inputs):
            hidden = super().forward(inputs)
            return hidden * (2 if hidden.sum().item() > 1e9 else 1)

    land = classifier(n=30)
    net = Stubborn(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(land.parameters[name])
    stubborn = bs.Landscape(net, "cross_entropy", (land.samples.inputs, land.samples.target))
    options = {**QUICK, "sampler": "mala", "seed": 2, "step_size": 1e-3}
    one, other = bs.llc(land, **options), bs.llc(stubborn, **options)
    assert one.diagnostics["batched"]
    assert not other.diagnostics["batched"]
    assert other.value == pytest.approx(one.value, rel=1e-6)


def test_a_model_that_checks_its_inputs_runs_on_minibatches():
    class Careful(nn.Linear):
        def forward(self, inputs):
            if not torch.isfinite(inputs).all():
                raise ValueError("inputs must be finite")
            return super().forward(inputs)

    x = white(100, 2).float()
    net = Careful(2, 1, bias=False)
    with torch.no_grad():
        land = bs.Landscape(net, "mse", (x, net(x)))
    assert math.isfinite(bs.llc(land, gamma=1.0, sampler="sgld", seed=1, **QUICK).value)


@contextmanager
def interrupting(*_):
    """A progress report that is interrupted after a hundred draws."""

    def report(fraction, text):
        count = re.match(r"(\d+) (draws|steps)", text)
        if count and int(count[1]) >= 100:
            raise KeyboardInterrupt

    yield report


@pytest.mark.parametrize("sampler", ["hmc", "minibatch", "sgld", "mala"])
def test_an_interrupted_run_returns_what_it_has(sampler, monkeypatch, seed):
    module = importlib.import_module("basinscope.measures.llc")
    monkeypatch.setattr(module, "tracked", interrupting)
    options = {**CHEAP, "rtol": 1e-6} | ({} if sampler == "minibatch" else {"draws": 2000})
    found = bs.llc(quadratic([1.0, 0.5], noise=1.0), gamma=5.0, sampler=sampler, seed=seed, **options)
    assert 100 <= found.diagnostics["draws"] < 1000
    assert found.diagnostics["interrupted"]
    assert found.verdict != "ok"
    assert any(warning.startswith("partial") for warning in found.warnings)
    exact = quadratic_value([1.0, 0.5], T, 5.0)
    assert_within(found.value, exact, found.stderr, SAMPLED, bias=0.15 * exact)  # of so few draws, from plain kernels
    json.dumps(found.to_dict())


def test_an_interruption_before_anything_was_sampled(monkeypatch):
    @contextmanager
    def at_once(*_):
        def report(fraction, text):
            raise KeyboardInterrupt

        yield report

    monkeypatch.setattr(importlib.import_module("basinscope.measures.llc"), "tracked", at_once)
    with pytest.raises(KeyboardInterrupt):
        bs.llc(quadratic([1.0]), sampler="hmc", **CHEAP)


def test_it_is_json(estimate):
    found = json.loads(json.dumps(estimate.to_dict(), allow_nan=False))
    assert found["value"] == estimate.value
    assert found["diagnostics"]["nbeta"] == pytest.approx(T)
    assert len(found["diagnostics"]["trace"]) == found["diagnostics"]["chains"]


# ---------------------------------------------------------------------- bad settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"gamma": 0}, "gamma must be a positive finite number, got 0"),
        ({"gamma": -1.0}, "gamma must be a positive finite number, got -1.0"),
        ({"gamma": math.inf}, "gamma must be a positive finite number, got inf"),
        ({"gamma": "wide"}, "gamma must be a positive finite number, got"),
        ({"nbeta": 0.0}, "nbeta must be a positive finite number, got 0.0"),
        ({"nbeta": math.nan}, "nbeta must be a positive finite number, got nan"),
        ({"nbeta": "cold"}, "nbeta must be a positive finite number, got"),
        ({"step_size": 0.0}, "step_size must be a positive finite number, got 0.0"),
        ({"step_size": -1e-4}, "step_size must be a positive finite number, got -0.0001"),
        ({"step_size": "small"}, "step_size must be a positive finite number, got"),
        ({"rtol": 0}, "rtol must be a positive finite number, got 0"),
        ({"budget": math.inf}, "budget must be a positive finite number, got inf"),
        ({"chains": 1}, "chains must be a whole number of at least 2, got 1"),
        ({"chains": 2.5}, "chains must be a whole number of at least 2, got 2.5"),
        ({"chains": math.nan}, "chains must be a whole number of at least 2, got nan"),
        ({"chains": "4"}, "chains must be a whole number of at least 2, got '4'"),
        ({"draws": 3}, "draws must be a whole number of at least 16, got 3"),
        ({"draws": math.inf}, "draws must be a whole number of at most .*, got inf"),
        ({"batch_size": 0}, "batch_size must be a whole number of at least 1, got 0"),
        ({"burn_in": 1.0}, "burn_in must be 0 or lie strictly between 0 and 1, got 1.0"),
        ({"burn_in": -0.1}, "burn_in must be 0 or lie strictly between 0 and 1, got -0.1"),
        ({"burn_in": "half"}, "burn_in must be 0 or lie strictly between 0 and 1, got"),
        ({"sampler": "nuts"}, "unknown sampler 'nuts': expected one of auto, hmc, minibatch, lean, sgld"),
        ({"sampler": None}, "unknown sampler None: expected one of auto, hmc, minibatch, lean, sgld"),
        ({"seed": 1.5}, "seed must be a whole number, got 1.5"),
        ({"seed": "a"}, "seed must be a whole number, got"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
def test_bad_settings(settings, message):
    with pytest.raises(bs.InputError, match=message):
        bs.llc(quadratic([1.0]), **(QUICK | settings))


@pytest.mark.parametrize("wrong", [nn.Linear(2, 1), None, (1, 2)], ids=["module", "nothing", "tuple"])
def test_it_takes_a_landscape(wrong):
    with pytest.raises(bs.InputError, match=r"Landscape.*got"):
        bs.llc(wrong)
