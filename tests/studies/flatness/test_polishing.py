"""Polishing against Newton's method written out in float64, and what becomes of the networks of a unit."""

import math

import pytest
import torch
from torch.func import functional_call, grad, jacrev

from basinscope.landscape import Landscape
from basinscope.runs.settings import overrides, resolved
from basinscope.zoo.models import ffnn
from studies.flatness.cases import landscapes, network_of
from studies.flatness.fitting import fitted
from studies.flatness.matrices import matrices, outputs
from studies.flatness.measuring import measured
from studies.flatness.polishing import descended, polished
from studies.flatness.spectra import newton
from studies.flatness.stacks import Stack
from studies.flatness.study import STUDY

ANNEALED = [
    "arms=[annealed]", "parts=[grid]", "steps=1500", "samples=[800]", "decays=[1.0, 100.0]", "lrs=[0.01]", "width=4",
    "draws=0", "polish=100", "architectures=[mlp]",
]  # fmt: skip


def classifier(seed=0):
    """Softmax regression with overlapping classes, whose penalized loss has a single minimum; three starts."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(40, 4, generator=generator)
    y = (x[:, :3] + torch.randn(40, 3, generator=generator)).argmax(1)
    net = ffnn([4, 3])
    land = Landscape(net, "cross_entropy", (x, y))
    return land, torch.randn(3, land.dimension, generator=generator)


def minimum(land, decay):
    """The minimum by Newton's method in float64, with autograd's Hessian."""
    net, (x, y) = land.module, (land.samples.inputs.double(), land.samples.target)

    def loss(flat):
        point = land.unflatten(flat)
        return torch.nn.functional.cross_entropy(functional_call(net, point, (x,)), y) + decay / 2 * flat @ flat

    point = torch.zeros(land.dimension, dtype=torch.float64)
    for _ in range(30):
        point = point - torch.linalg.solve(jacrev(grad(loss))(point), grad(loss)(point))
    return point


def prepared(land, weights, decays):
    steps = []
    for row, decay in zip(weights, decays, strict=True):
        moved = land.at(land.unflatten(row))
        steps.append(newton(matrices(moved, outputs(moved), relations=False), decay, land.n, row))
    return torch.stack([step.inverse.inverse for step in steps]), steps


def test_every_start_ends_at_the_minimum_of_newtons_method():
    land, weights = classifier()
    decays = [0.3, 0.03, 0.003]
    inverses, _ = prepared(land, weights, decays)
    done = descended(Stack(land, weights), torch.tensor(decays), inverses, torch.full((3,), 1e-10), 200)
    for row, decay in zip(done.points, decays, strict=True):
        truth = minimum(land, decay)
        assert torch.allclose(row, truth, atol=1e-4 * float(truth.norm()))
    assert (done.decrements < 1e-9).all()


def test_a_network_is_left_alone_once_it_met_its_aim_and_steps_are_counted():
    land, weights = classifier(1)
    decays = [0.1] * 3
    inverses, _ = prepared(land, weights, decays)
    aims = torch.tensor([1e9, 1e-6, 1e-6])
    done = descended(Stack(land, weights), torch.tensor(decays), inverses, aims, 100)
    assert torch.equal(done.points[0].float(), weights[0])
    assert done.steps[0] == 0
    assert (done.decrements <= aims).all()
    few = descended(Stack(land, weights), torch.tensor(decays), inverses, aims, 1)
    assert few.steps.tolist() == [0, 1, 1]


def test_a_step_that_gains_too_little_is_halved():
    """With a preconditioner thirty times too large the first steps fly off."""
    land, weights = classifier(2)
    inverses = 30 * prepared(land, weights, [0.1] * 3)[0]
    done = descended(Stack(land, weights), torch.tensor([0.1] * 3), inverses, torch.full((3,), 1e-6), 200)
    truth = minimum(land, 0.1)
    assert (done.points - truth).norm(dim=1).max() < 1e-2 * truth.norm()


@pytest.mark.slow
def test_annealed_networks_are_at_a_minimum_by_the_measured_decrement(tmp_path):
    jobs = list(STUDY.jobs(resolved(STUDY, "smoke", overrides(ANNEALED))))
    assert [job.polish for job in jobs] == [100] * 2
    fit = fitted(jobs, tmp_path)
    rows = measured(jobs, fit, range(len(jobs)))
    after, _ = polished(jobs, fit, range(len(jobs)))
    assert rows[0]["polish_decrement"] > 0.1 * rows[0]["tic_train"]  # where it was no minimum before
    assert rows[0]["polish_steps"] > 0
    for number, (job, row) in enumerate(zip(jobs, rows, strict=True)):
        assert row["decrement_train"] <= 0.1 * row["tic_train"]
        # the decrement from its definition: Jacobians by autograd in float64
        land = landscapes(job, after.point(number, network_of(job)))["train"]
        net, x, y = network_of(job).double(), land.samples.inputs.double(), land.samples.target
        point = {name: part.double() for name, part in land.parameters.items()}
        jacobian = jacrev(lambda p: functional_call(net, p, (x,)))(point)  # noqa: B023
        rows_of = torch.cat([part.flatten(2) for part in jacobian.values()], 2)
        chances = functional_call(net, point, (x,)).softmax(1)
        errors = chances - torch.nn.functional.one_hot(y, 10)
        fisher = torch.zeros(land.dimension, land.dimension, dtype=torch.float64)
        for j, p in zip(rows_of, chances, strict=True):
            fisher += j.T @ (torch.diag(p) - torch.outer(p, p)) @ j / len(y)
        residual = torch.einsum("nkd,nk->d", rows_of, errors) / len(y) + job.weight_decay * land.flatten(point)
        whole = fisher + job.weight_decay * torch.eye(land.dimension, dtype=torch.float64)
        expected = float(residual @ torch.linalg.solve(whole, residual))
        assert row["decrement_train"] == pytest.approx(expected, rel=0.02)
        moved = after.weights[number].double() - fit.weights[number].double()
        assert row["polish_distance"] == pytest.approx(float(moved.norm()), rel=1e-3)
        assert math.isclose(row["weight_norm"], float(after.weights[number].norm()), rel_tol=1e-5)


def test_polishing_leaves_out_networks_that_diverged_and_those_of_constant_rates(tmp_path):
    jobs = list(STUDY.jobs(resolved(STUDY, "smoke", overrides(ANNEALED))))
    fit = fitted(jobs, tmp_path)
    fit.diverged[0] = 5
    after, columns = polished(jobs, fit, [0, 1])
    assert set(columns) == {1}
    assert torch.equal(after.weights[0], fit.weights[0])
    constant = list(STUDY.jobs(resolved(STUDY, "smoke", overrides([*ANNEALED, "arms=[standardized]"]))))
    assert polished(constant, fit, [0, 1]) == (fit, {})
