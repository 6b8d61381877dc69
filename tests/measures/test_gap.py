import math

import pytest
import torch
from torch import nn

import basinscope as bs
from basins import classifier
from basinscope.curvature.dense import dense
from basinscope.measures.held_out import measured_gap
from chance import SAMPLED, assert_within

f64 = torch.float64


def balanced(n=20, d=3, seed=0):
    """Logistic regression at w = 0 where each input comes with both labels: calibrated, C = F = H exactly."""
    x = torch.randn(n, d, dtype=f64, generator=torch.Generator().manual_seed(seed))
    data = torch.cat([x, x]), torch.cat([torch.zeros(n, 1), torch.ones(n, 1)])
    land = bs.Landscape(nn.Linear(d, 1, bias=False).double(), "bernoulli", data)
    return land.at({"weight": torch.zeros(1, d)}), x.T @ x / n / 4


def fitted(n=80, seed=0, decay=0.05):
    """A small classifier at a minimum of its regularised loss."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    x = torch.randn(n, 3, dtype=f64, generator=generator)
    chance = (x @ torch.randn(3, 3, dtype=f64, generator=generator)).softmax(1)
    y = torch.multinomial(chance, 1, generator=generator)[:, 0]
    optimizer = torch.optim.LBFGS(
        net.parameters(), max_iter=500, tolerance_grad=1e-12, tolerance_change=1e-15, line_search_fn="strong_wolfe"
    )

    def closure():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(net(x), y) + decay / 2 * sum((p**2).sum() for p in net.parameters())
        loss.backward()
        return loss

    optimizer.step(closure)
    return bs.Landscape(net, "cross_entropy", (x, y))


def matrices(land, decay):
    theta = land.flatten(land.parameters)
    shift = decay * theta
    noise = dense(land, "covariance") - torch.outer(shift, shift)  # C_Λ at a minimum
    eye = torch.eye(land.dimension, dtype=f64)
    fisher = dense(land, "fisher")
    return noise, fisher, torch.linalg.inv(fisher + decay * eye)


def test_calibrated_model_makes_all_predictions_agree():
    land, fisher = balanced()
    projection = fisher @ torch.linalg.inv(fisher + 0.1 * torch.eye(3, dtype=f64))
    rank, second = float(projection.trace()), float((projection @ projection).trace())
    assert bs.soft_rank(land, weight_decay=0.1).value == pytest.approx(rank)
    assert bs.tic(land, weight_decay=0.1).value == pytest.approx(rank / land.n)
    for method in ("soft_rank", "tic"):
        estimate = bs.gap(land, weight_decay=0.1, method=method)
        assert estimate.value == pytest.approx(rank / land.n)
        assert estimate.diagnostics["calibrated"]
        assert estimate.diagnostics["error_uncertainty"] == pytest.approx(1)
        assert estimate.verdict == "ok"
    assert bs.gap(land, method="trace_ratio").value == pytest.approx(1 / land.n)
    assert bs.gap(land, method="trace_ratio_rank").value == pytest.approx(3 / land.n)
    assert bs.loss_distance(land, weight_decay=0.1).value == pytest.approx(second / land.n)
    assert bs.loss_distance(land, weight_decay=0.1).diagnostics["calibrated"] == pytest.approx(second / land.n)
    assert bs.information_distance(land, weight_decay=0.1).value == pytest.approx(second / 2 / land.n)
    error = bs.parameter_error(land, weight_decay=0.1)
    inverse = torch.linalg.inv(fisher + 0.1 * torch.eye(3, dtype=f64))
    assert error.value == pytest.approx(float((fisher @ inverse @ inverse).trace()) / land.n)
    assert error.value < error.diagnostics["calibrated"] == pytest.approx(float(inverse.trace()) / land.n)


def test_ridge_gap_at_fixed_design_is_the_soft_rank(seed):
    """E[gap] = (σ₀²/s²) rank_λ(F)/n exactly; here by simulation of noise and the prediction from one fit."""
    n, d, model, true, decay = 40, 5, 0.7, 0.9, 0.3
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, dtype=f64, generator=torch.Generator().manual_seed(0))
    fisher = x.T @ x / n / model**2
    solve = torch.linalg.solve(fisher + decay * torch.eye(d, dtype=f64), x.T / n / model**2)
    land = bs.Landscape(nn.Linear(d, 1, bias=False).double(), "gaussian", (x, x[:, :1]), sigma=model)
    rank = bs.soft_rank(land, weight_decay=decay).value
    assert rank == pytest.approx(float((x @ solve).trace()))  # the trace of the hat matrix
    truth = x @ torch.ones(d, 1, dtype=f64)
    train, test = (truth + true * torch.randn(n, 20_000, dtype=f64, generator=generator) for _ in range(2))
    fit = x @ (solve @ train)
    gaps = ((test - fit).square() - (train - fit).square()).mean(0) / 2 / model**2
    predicted = (true / model) ** 2 * rank / n
    assert_within(gaps.mean(), predicted, gaps.std() / math.sqrt(20_000))

    # The factor σ₀²/s² is the trace ratio, which held-out data tell.
    y = train[:, :1]
    inputs = x.repeat(500, 1)
    fresh = (x @ torch.ones(d, 1, dtype=f64)).repeat(500, 1) + true * torch.randn(
        500 * n, 1, dtype=f64, generator=generator
    )
    net = nn.Linear(d, 1, bias=False).double()
    with torch.no_grad():
        net.weight.copy_(torch.ones(1, d))
    here = bs.Landscape(net, "gaussian", (x, y), sigma=model)
    there = bs.Landscape(net, "gaussian", (inputs, fresh), sigma=model)
    estimate = bs.gap(here, weight_decay=decay, held_out=there)
    assert estimate.stderr < 0.05 * predicted
    assert_within(estimate.value, predicted, estimate.stderr, SAMPLED)
    assert estimate.diagnostics["data"] == "held_out"


def test_tic_is_its_definition():
    land = fitted()
    noise, _, inverse = matrices(land, 0.05)
    estimate = bs.tic(land, weight_decay=0.05)
    assert estimate.value == pytest.approx(float((noise @ inverse).trace()) / land.n, rel=1e-6)
    assert estimate.verdict == "ok"
    assert estimate.diagnostics["decrement"] < 1e-10
    hessian = bs.tic(land, weight_decay=0.05, matrix="hessian")
    full = torch.linalg.inv(dense(land, "hessian") + 0.05 * torch.eye(land.dimension, dtype=f64))
    assert hessian.value == pytest.approx(float((noise @ full).trace()) / land.n, rel=1e-6)


def test_distances_are_their_definitions():
    land = fitted()
    noise, fisher, inverse = matrices(land, 0.05)
    mixed = noise @ inverse
    assert bs.parameter_error(land, weight_decay=0.05).value == pytest.approx(
        float((mixed @ inverse).trace()) / land.n, rel=1e-6
    )
    assert bs.loss_distance(land, weight_decay=0.05).value == pytest.approx(
        float((mixed @ mixed).trace()) / land.n, rel=1e-6
    )
    assert bs.information_distance(land, weight_decay=0.05).value == pytest.approx(
        float((fisher @ inverse @ mixed).trace()) / 2 / land.n, rel=1e-6
    )
    hessian = bs.information_distance(land, weight_decay=0.05, matrix="hessian")
    assert hessian.value == pytest.approx(bs.information_distance(land, weight_decay=0.05).value, rel=0.5)


@pytest.mark.parametrize("decay", [0.05, {"*bias": 0.2, "*": 0.05}])
def test_tic_by_lanczos(decay, seed):
    land = fitted()
    exact = bs.tic(land, weight_decay=decay, method="exact").value
    found = bs.tic(land, weight_decay=decay, method="lanczos", rtol=0.05, seed=seed)
    assert found.stderr <= 0.1 * exact
    assert_within(found.value, exact, found.stderr, found.freedom, bias=1e-3 * exact)
    assert found.bounds[0] < found.value < found.bounds[1]


def test_eq_8_is_ratio_times_rank():
    land = fitted()
    _, fisher, _ = matrices(land, 0.05)
    ratio = float(dense(land, "covariance").trace() / fisher.trace())
    estimate = bs.gap(land, weight_decay=0.05)
    rank = bs.soft_rank(land, weight_decay=0.05).value
    assert estimate.diagnostics["ratio"] == pytest.approx(ratio)
    assert estimate.diagnostics["rank"] == rank
    assert estimate.value == pytest.approx(ratio * rank / land.n)
    assert estimate.stderr > 0
    kfac = bs.gap(land, weight_decay=0.05, rank_method="kfac")
    assert kfac.verdict == "doubtful"
    assert kfac.diagnostics["computed_by"] == "kfac"


def test_learned_by_heart_is_not_believed():
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    x, y = torch.randn(30, 5, generator=generator), torch.randint(2, (30,), generator=generator)
    net = nn.Sequential(nn.Linear(5, 30), nn.Tanh(), nn.Linear(30, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.03)
    for _ in range(300):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x), y).backward()
        optimizer.step()
    land = bs.Landscape(net, "cross_entropy", (x, y))
    estimate = bs.gap(land, weight_decay=1e-3)
    assert not estimate.diagnostics["calibrated"]
    assert estimate.verdict == "doubtful"
    assert "by heart" in estimate.warnings[0]
    new = torch.randn(300, 5, generator=generator), torch.randint(2, (300,), generator=generator)
    held_out = bs.gap(land, weight_decay=1e-3, held_out=bs.Landscape(net, "cross_entropy", new))
    assert held_out.diagnostics["error_uncertainty"] > 2
    assert "not calibrated" in held_out.warnings[0]
    assert held_out.value > 10 * estimate.value


def test_away_from_a_minimum_is_not_believed():
    land = fitted()
    moved = land.at({name: tensor + 0.5 for name, tensor in land.parameters.items()})
    for estimate in (bs.tic(moved, weight_decay=0.05), bs.loss_distance(moved, weight_decay=0.05)):
        assert estimate.verdict == "doubtful"
        assert "not at a minimum" in estimate.warnings[0]


def test_sequences_and_other_families_have_a_ratio():
    tokens = torch.randint(5, (6, 4))
    target = torch.randint(5, (6, 4))
    target[0, 0] = -100
    land = bs.Landscape(nn.Embedding(5, 5).double(), "cross_entropy", (tokens, target))
    assert bs.gap(land, weight_decay=0.1).diagnostics["error_uncertainty"] > 0

    def huber(output, target):
        return nn.functional.huber_loss(output, target, reduction="none").sum(1)

    land = bs.Landscape(nn.Linear(2, 1).double(), huber, (torch.randn(9, 2), torch.zeros(9, 1)))
    estimate = bs.gap(land, weight_decay=0.1, method="tic", matrix="hessian")
    assert not estimate.diagnostics["calibrated"]
    with pytest.raises(bs.InputError, match="huber"):
        bs.gap(land, weight_decay=0.1)


def test_a_vocabulary_at_every_position_is_sampled(seed):
    torch.manual_seed(0)
    tokens = torch.randint(80, (40, 3))
    land = bs.Landscape(
        nn.Sequential(nn.Embedding(80, 2), nn.Linear(2, 80)).double(), "cross_entropy", (tokens, tokens)
    )
    exact = float(dense(land, "covariance").trace() / dense(land, "fisher").trace())
    estimate = bs.gap(land, method="trace_ratio", seed=seed)  # 237 roots
    assert_within(estimate.diagnostics["ratio"], exact, estimate.diagnostics["ratio_stderr"], SAMPLED)


def test_a_model_sure_of_everything_has_no_prediction():
    land = bs.Landscape(nn.Linear(2, 1), "cross_entropy", (torch.randn(4, 2), torch.zeros(4, dtype=torch.long)))
    estimate = bs.gap(land, weight_decay=0.1)
    assert estimate.verdict == "failed"
    assert math.isnan(estimate.value)


def test_bad_arguments():
    land, _ = balanced()
    with pytest.raises(bs.InputError, match="needs a weight_decay"):
        bs.gap(land)
    with pytest.raises(bs.InputError, match="method"):
        bs.gap(land, weight_decay=0.1, method="magic")
    with pytest.raises(bs.InputError, match="same network"):
        bs.gap(land, weight_decay=0.1, held_out=land.at({"weight": torch.ones(1, 3)}))
    for measure in (bs.tic, bs.parameter_error, bs.loss_distance, bs.information_distance):
        with pytest.raises(bs.InputError, match="one weight decay"):
            measure(land, weight_decay=[0.1, 0.2])
        with pytest.raises(bs.InputError, match="positive"):
            measure(land, weight_decay=0.0)
        with pytest.raises(bs.InputError, match="matrix must be"):
            measure(land, weight_decay=0.1, matrix="covariance")
    with pytest.raises(bs.InputError, match="method"):
        bs.tic(land, weight_decay=0.1, method="kfac")
    big = bs.Landscape(nn.Linear(10_001, 1, bias=False), "mse", (torch.ones(2, 10_001), torch.ones(2, 1)))
    with pytest.raises(bs.InputError, match="restrict"):
        bs.parameter_error(big, weight_decay=0.1)


def test_indefinite_hessian_is_refused_by_name():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    land = bs.Landscape(net, "cross_entropy", (torch.randn(20, 3), torch.randint(3, (20,))))
    for method in ("exact", "lanczos"):
        with pytest.raises(bs.InputError, match="eigenvalue -"):
            bs.tic(land, weight_decay=1e-4, matrix="hessian", method=method)


# ---------------------------------------------------------------------- measured


def test_the_measured_gap_is_the_difference_of_the_mean_losses():
    land = classifier(n=60, hidden=2)
    x, y = torch.randn(40, *land.samples.inputs.shape[1:]).to(land.dtype), torch.randint(3, (40,))
    there = land.on((x, y))
    estimate = measured_gap(land, (x, y))
    losses = there.per_sample()
    assert estimate.value == pytest.approx(float(losses.mean() - land.per_sample().mean()))
    assert estimate.stderr == pytest.approx(float(losses.std()) / math.sqrt(40))
    hits = (land.outputs(land.parameters, there.samples.inputs).argmax(1) == y).double().mean()
    assert estimate.diagnostics["held_out_accuracy"] == pytest.approx(float(hits))
    assert measured_gap(land, there).value == estimate.value


def test_one_held_out_sample_has_no_standard_error():
    land = classifier(n=60, hidden=2)
    estimate = measured_gap(land, land.subset([0]))
    assert estimate.verdict == "doubtful"
    assert math.isnan(estimate.stderr)


def test_held_out_data_are_taken_as_they_come():
    land = classifier(n=60, hidden=2)
    x, y = land.samples.inputs[:30], land.samples.target[:30]
    by_landscape = bs.gap(land, weight_decay=0.1, held_out=land.subset(range(30)))
    assert bs.gap(land, weight_decay=0.1, held_out=(x, y)).value == by_landscape.value
    with pytest.raises(bs.InputError, match="same parameters"):
        measured_gap(land, land.at({name: 2 * weight for name, weight in land.parameters.items()}))


def test_a_report_has_the_measured_gap_beside_the_predicted_one():
    land = classifier(n=60, hidden=2)
    report = bs.measure(land, held_out=(land.samples.inputs[:30], land.samples.target[:30]), budget=0.2, progress=False)
    assert report["measured_gap"].value == pytest.approx(
        float(land.subset(range(30)).per_sample().mean() - land.per_sample().mean())
    )
    assert report["gap"].diagnostics["data"] == "held_out"
    assert "held_out=…" in report.command
    assert "measured gap" in report.to_html()
