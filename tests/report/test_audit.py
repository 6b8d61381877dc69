"""The auditor on chains that are sound, and on chains with one defect each."""

import json

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import basinscope as bs
from basinscope.adapters.chains import read_chains
from basinscope.cli import app

SIGMA = np.array([30.0, 10.0, 3.0, 1.0])  # curvatures of the quadratic
NBETA, GAMMA, INIT = 100.0, 100.0, 0.7
STIFF = NBETA * SIGMA + GAMMA
LLC = float(0.5 * np.sum(NBETA * SIGMA / STIFF))
TRACE = float(SIGMA.sum())


def sgld(seed, *, step=1e-4, steps=4000, chains=4, gamma=GAMMA, start=0.0, apart=None, noise=0.0):
    """Losses along exact SGLD chains of the quadratic, (chains, steps), from w* + start."""
    rng = np.random.default_rng(seed)
    delta = np.full((chains, len(SIGMA)), start)
    centre = np.zeros((chains, 1)) if apart is None else np.asarray(apart)[:, None]
    losses = np.empty((chains, steps))
    for t in range(steps):
        losses[:, t] = INIT + 0.5 * (SIGMA * delta**2).sum(1)
        slope = NBETA * (SIGMA * delta + noise * rng.normal(size=delta.shape)) + gamma * (delta - centre)
        delta = delta - 0.5 * step * slope + np.sqrt(step) * rng.normal(size=delta.shape)
    return losses


KNOWN = {"init_loss": INIT, "nbeta": NBETA, "gamma": GAMMA, "step_size": 1e-4}


def test_sound_chains_pass():
    for seed in range(20):
        found = bs.audit(sgld(seed), burn_in=400, hessian_trace=TRACE, noise_trace=0.0, **KNOWN)
        assert found.verdict == "ok", (seed, found.warnings)
        assert abs(found.llc.value / LLC - 1) < 0.3
        assert found.words.startswith("Sound: λ̂ =")


def rounded(steps, seed=0):
    """Losses along a chain whose weights are moved in bfloat16, and stored as they come."""
    generator = torch.Generator().manual_seed(seed)
    weights = torch.ones(4, 64, dtype=torch.bfloat16)
    losses = []
    for _ in range(steps):
        delta = weights - 1
        losses.append(INIT + (delta.float().square().sum(1) * 0.5).to(torch.bfloat16).float())
        weights -= (0.5 * 1e-5 * (NBETA + GAMMA) * delta).to(torch.bfloat16)
        weights += 1e-5**0.5 * torch.randn(weights.shape, generator=generator).to(torch.bfloat16)
    return torch.stack(losses, 1).to(torch.bfloat16).float().numpy()


DEFECTS = {
    "burn-in averaged in": lambda: (sgld(0, start=1.0, steps=2000), {}),
    "drift": lambda: (sgld(0) + np.linspace(0, 0.08, 4000), {"burn_in": 400}),
    "chains disagree": lambda: (sgld(0, apart=[0.0, 0.0, 0.5, 1.5]), {"burn_in": 400}),
    "too few effective draws": lambda: (sgld(0, chains=2, steps=8)[:, np.repeat(np.arange(8), 100)], {}),
    "diffusion instead of equilibrium": lambda: (
        sgld(0, step=1e-8, chains=64, gamma=0.0), {"gamma": 0.0, "step_size": 1e-8}
    ),
    "16-bit weights": lambda: (rounded(600), {"step_size": 1e-5, "weight_scale": 1.0, "burn_in": 300}),
    "step-size bias": lambda: (sgld(0, step=5e-4), {"step_size": 5e-4, "burn_in": 400, "hessian_trace": TRACE}),
}  # fmt: skip


@pytest.mark.parametrize("kind", DEFECTS)
def test_each_defect_is_named(kind):
    losses, facts = DEFECTS[kind]()
    found = bs.audit(losses, **{**KNOWN, **facts})
    assert kind in found.defects, found.warnings
    assert found.verdict != "ok"
    assert kind in found.words


def test_a_drift_is_not_excused_by_the_few_draws_that_it_leaves():
    for seed in range(4):
        found = bs.audit(sgld(seed, steps=2000) + np.linspace(0, 0.08, 2000), burn_in=200, **KNOWN)
        assert "drift" in found.defects, seed


def test_noise_of_batches_counts_as_bias():
    facts = {**KNOWN, "burn_in": 400, "hessian_trace": TRACE}
    quiet = bs.audit(sgld(0), noise_trace=0.0, batch_size=10, **facts)
    loud = bs.audit(sgld(0), noise_trace=3.0, batch_size=10, **facts)
    assert quiet.verdict == "ok"
    assert loud.defects == ("step-size bias",)


def test_diffusion_is_told_by_the_trace_of_the_hessian_alone():
    losses = sgld(0, step=1e-7, steps=50, chains=4, gamma=0.0)
    found = bs.audit(losses, hessian_trace=TRACE, **{**KNOWN, "gamma": 0.0, "step_size": 1e-7})
    assert found.defects[0] == "diffusion instead of equilibrium"
    assert "another localiser" in found.defects
    reached = found.facts["gamma_reached"]
    assert reached == pytest.approx(2 / (1e-7 * 51))
    assert "γ = 0" in found.resolution


def test_a_landscape_tells_what_the_file_does_not():
    x = torch.randn(200, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    net = torch.nn.Linear(4, 1, bias=False, dtype=torch.float64)
    land = bs.Landscape(net, "mse", (x, net(x).detach() + 0.1))
    losses = 0.005 + np.random.default_rng(0).gamma(2.0, 0.01, size=(4, 1000))
    found = bs.audit(losses, land, nbeta=50.0, gamma=1.0, step_size=1e-2)
    assert found.facts["init_loss"] == pytest.approx(0.005)
    assert found.facts["samples"] == 200
    assert "n/log n is 37.7" in found.resolution


def test_what_devinterp_1_returns_is_read(tmp_path):
    losses = sgld(1, start=1.0, steps=1000).astype(np.float32)
    given = {"llc/mean": NBETA * (losses.mean() - INIT), "llc/std": 0.1, "loss/trace": losses}
    found = bs.audit(given, **KNOWN)
    assert "burn-in averaged in" in found.defects
    path = tmp_path / "run.npz"
    np.savez(path, **{name.replace("/", "/"): value for name, value in given.items()})
    assert bs.audit(path, **KNOWN).defects == found.defects
    kept = tmp_path / "run.json"
    kept.write_text(json.dumps({"losses": losses.tolist(), **KNOWN}))
    assert bs.audit(kept).facts["nbeta"] == NBETA


def test_the_page_and_the_command(tmp_path):
    path = tmp_path / "losses.npy"
    np.save(path, sgld(0) + np.linspace(0, 0.08, 4000))
    page = tmp_path / "audit.html"
    options = ["--init-loss", str(INIT), "--nbeta", str(NBETA), "--burn-in", "400", "--out", str(page)]
    done = CliRunner().invoke(app, ["audit", str(path), *options])
    assert done.exit_code == 0, done.output
    assert "drift" in done.output
    text = page.read_text()
    assert "Audit of losses.npy" in text
    assert "<svg" in text
    done = CliRunner().invoke(app, ["audit", str(path), *options[:4], "--json"])
    assert json.loads(done.stdout)["verdict"] != "ok"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((2, 3, 4)), r"losses must have shape \(chains, steps\), got \(2, 3, 4\)"),
        ([[1.0, 2.0], [1.0]], "of one length"),
        (np.ones((2, 8)), "at least 16 steps"),
        (np.full((2, 100), np.nan), "losses must be finite, got 200 of 200"),
        ({"weights": 3}, "holds no losses along chains"),
        ("nowhere.zarr", "there are no chains at nowhere.zarr"),
    ],
)
def test_bad_chains_are_refused(given, message):
    with pytest.raises(bs.InputError, match=message):
        bs.audit(given)


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "losses.npy"
    np.save(path, np.ones((4, 1000)))
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(bs.InputError, match="cannot be read"):
        read_chains(path)
    (tmp_path / "a.json").write_text("[[1.0, 2.0")
    with pytest.raises(bs.InputError, match="cannot be read"):
        read_chains(tmp_path / "a.json")
    (tmp_path / "a.pkl").write_bytes(b"")
    with pytest.raises(bs.InputError, match="chains come as"):
        read_chains(tmp_path / "a.pkl")
    with pytest.raises(bs.InputError, match="dtype must be one of"):
        bs.audit(np.ones((2, 100)), dtype="int8")
