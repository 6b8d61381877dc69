"""Mean losses by integration beside other integrations, and the page that follows from them."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from basinscope.runs.driver import run
from basinscope.runs.results import Results
from basinscope.runs.settings import resolved
from basinscope.runs.store import Store
from studies.temperature_regression.cases import NETWORKS, Network, landscape
from studies.temperature_regression.measuring import _data, features, integrated, networks, quadrature
from studies.temperature_regression.report import answer
from studies.temperature_regression.study import STUDY
from studies.temperature_regression.tables import summary


def test_features_are_those_of_the_module(seed):
    generator = torch.Generator().manual_seed(seed)
    for network in (NETWORKS["relu-3"], NETWORKS["silu-5"]):
        net = network.module()
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.normal_(generator=generator)
        x = torch.randn(7, 2, generator=generator, dtype=torch.float64)
        inner = torch.cat([net[0].weight, net[0].bias[:, None]], 1).detach().numpy()
        outer = torch.cat([net[2].weight[0], net[2].bias]).detach().numpy()
        values = outer @ features(network, inner[None], x.numpy())[0]
        assert values == pytest.approx(net(x).detach().numpy()[:, 0])
        assert network.parameters == sum(parameter.numel() for parameter in net.parameters())


def test_the_pentagon_is_what_its_weights_say():
    network = NETWORKS["relu-5-pentagon"]
    noisy, plain = network.draw(50, 3)[1], NETWORKS["relu-5"].draw(50, 3)
    angles = [math.pi / 5 - 2 * math.pi * k / 5 for k in range(5)]
    expected = sum(torch.relu(plain[0] @ torch.tensor([math.cos(a), math.sin(a)]).double() - 0.3) for a in angles)
    assert torch.allclose(noisy - plain[1], expected[:, None], atol=1e-6)


def test_a_network_at_one_place_is_a_mean_with_a_random_prior(seed):
    # At x = 0 a network with one unit is q·relu(b) + c: given b a constant with variance 1 + relu(b)² a priori.
    beta, n = 0.3, 40
    y = np.random.default_rng(0).normal(size=(n, 1)) + 1
    b = np.linspace(-8, 8, 4001)
    prior = 1 + np.maximum(b, 0) ** 2
    spread = 1 / (n * beta + 1 / prior)
    centre = spread * n * beta * y.mean()
    log_weight = -0.5 * b**2 + 0.5 * np.log(spread / prior) + 0.5 * centre**2 / spread
    loss = 0.5 * (((y - centre) ** 2).sum(0) + n * spread) + 0.5 * n * math.log(2 * math.pi)
    expected = np.average(loss, weights=np.exp(log_weight - log_weight.max()))
    halves = networks(Network("", 1), np.zeros((n, 2)), y, [beta], 40_000, seed)[:, 0]
    assert np.ptp(halves) < 0.1
    assert halves.mean() == pytest.approx(expected, abs=0.05)  # the losses of draws differ by 0.5


def test_quadrature_of_averaged_data_is_that_of_all():
    # Every place holds the same number of observations: a quarter as many at β are averages at β/4 … times four.
    land, each = landscape("mixture", 50, 0)
    x, y = _data(land)
    doubled = np.concatenate([x, x])
    assert each == 1.0
    assert quadrature("mixture", doubled, doubled, 0.2) == pytest.approx(2 * quadrature("mixture", x, y, 0.4), rel=1e-3)


def test_slopes_of_a_regular_direction():
    rows = integrated("tanh", 10**6, 0, [1 / (step * math.log(10**6)) for step in (0.5, 2.0)], 0)
    assert rows[0]["slope"] == pytest.approx(2 / 3, abs=0.1)
    assert rows[1]["mean"] > rows[0]["mean"]


def _stored():
    rows = []
    for model, slope in (("mixture", 0.75), ("relu-5", 1.5)):
        for method in ("exact", "engine"):
            for seed in range(2):
                for beta in (0.1, 0.2):
                    own = slope + (0.1 if method == "engine" else 0.0)
                    error = 0.0 if method == "exact" else 0.1
                    rows.append({
                        "model": model, "samples": 1000, "method": method, "seed": seed, "beta": beta,
                        "mean": own / beta, "stderr": 0.0 if method == "exact" else 1.0, "slope": own,
                        "slope_stderr": error, "r_squared": 0.999, "rhat": 1.0, "divergences": 0,
                    })  # fmt: skip
    return pd.DataFrame(rows)


def test_the_answer_follows_the_numbers():
    made = summary(_stored())
    text = answer(made)
    assert text.startswith("Sometimes: for 1 of 2 models whose λ is known, the slope of the loss in temperature is λ ")
    assert "For the other 1 it is 3.0 times λ (ReLU 2–5–1, truth zero), although" in text
    assert text.endswith("in 2 of 2 cases whose chains have mixed (R̂ < 1.05).")
    apart = made.assign(rhat=made["rhat"].where(made["model"] != "relu-5", 1.2))
    assert answer(apart).endswith("in 1 of 1 cases whose chains have mixed (R̂ < 1.05). In 1 further cases they have "
                                  "not, and nothing is concluded from these.")  # fmt: skip
    own = made.set_index(["model", "method"]).loc[("mixture", "engine")]
    assert own["slope_off"] == pytest.approx(1.0)
    assert own["means_off"] == pytest.approx(math.sqrt((1 + 0.25) / 2))


@pytest.mark.slow
def test_a_small_study_from_end_to_end(tmp_path):
    settings = {"engine_draws": 20}
    assert run(STUDY, tmp_path / "store", scale="smoke", settings=settings, progress=False).complete
    results = Results(STUDY, resolved(STUDY, "smoke", settings), Store(tmp_path / "store"))
    written = results.write(tmp_path / "out")
    assert [path.name for path in written[-3:]] == ["summary.csv", "slopes.png", "README.md"]
    assert "the slope of the loss in temperature is " in written[-1].read_text().splitlines()[2]
