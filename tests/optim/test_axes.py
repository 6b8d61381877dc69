"""Axes of several tensors at once, with their states in place."""

import pytest
import torch

import lacking
from basinscope.optim import OnlineNGD
from basinscope.optim.axes import Axes, AxisSettings, eigen_of

SETTINGS = AxisSettings(
    alpha=0.1, epsilon=1e-10, eta=0.9, history=2000.0, delta=5e-4, rank=None, rescale=True, single=False
)  # fmt: skip
SHAPES = [(6, 9), (6,), (3, 6, 2, 1), (3,)]


def gradients(step, device="cpu", lead=()):
    generator = torch.Generator().manual_seed(step)
    drawn = [torch.randn(*lead, *shape, generator=generator, dtype=torch.float64) for shape in SHAPES]
    return [tensor.to(device) for tensor in drawn]


def copies(states):
    return {place: [part.clone() for part in state] for place, state in states.items()}


def same(states, kept):
    return all(torch.equal(part, old) for place in kept for part, old in zip(states[place], kept[place], strict=True))


def test_gradients_pass_without_changing_states_and_renewing_twice_is_renewing_once():
    axes, settings = Axes({}), [SETTINGS] * len(SHAPES)
    axes.directions(gradients(0), settings, [True] * len(SHAPES))
    kept = copies(axes.states)
    _, updates = axes.precondition(gradients(1), settings, [True] * len(SHAPES))
    assert same(axes.states, kept)
    solved = eigen_of([update.gram for update in updates.values()])
    axes.renew(updates, solved)
    assert not same(axes.states, kept)
    renewed = copies(axes.states)
    axes.renew(updates, solved)
    assert same(axes.states, renewed)


def test_only_tensors_that_are_due_learn():
    axes, settings = Axes({}), [SETTINGS] * len(SHAPES)
    axes.directions(gradients(0), settings, [True] * len(SHAPES))
    kept = copies(axes.states)
    axes.directions(gradients(1), settings, [False, True, False, False])
    assert same(axes.states, {place: kept[place] for place in kept if place[0] != 1})
    assert not same(axes.states, {place: kept[place] for place in kept if place[0] == 1})


def test_members_side_by_side_are_members_alone():
    axes, settings = Axes({}, leading=1), [SETTINGS] * len(SHAPES)
    alone = [Axes({}) for _ in range(3)]
    for step in range(5):
        given = gradients(step, lead=(3,))
        directions = axes.directions(given, settings, [True] * len(SHAPES))
        for m, other in enumerate(alone):
            own = other.directions([tensor[m] for tensor in given], settings, [True] * len(SHAPES))
            for one, two in zip(directions, own, strict=True):
                torch.testing.assert_close(one[m], two, rtol=1e-9, atol=1e-12)


@lacking.GPU.mark
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_recorded_steps_on_a_card_are_steps_on_the_processor(momentum):
    trained = []
    for device in ("cpu", "cuda"):
        weights = [torch.nn.Parameter(torch.zeros(shape, dtype=torch.float64, device=device)) for shape in SHAPES]
        optimizer = OnlineNGD(weights, lr=0.1, momentum=momentum)
        for step in range(30):
            for weight, gradient in zip(weights, gradients(step, device), strict=True):
                weight.grad = gradient
            optimizer.step()
            if step == 17:  # a resumed optimizer goes on in the same way
                saved, optimizer = optimizer, OnlineNGD(weights, lr=0.1, momentum=momentum)
                optimizer.load_state_dict(saved.state_dict())
        trained.append([weight.detach().cpu() for weight in weights])
    for one, two in zip(*trained, strict=True):
        # Both start at ε = 1e-10, where a basis is known to 1e-16/1e-11 only.
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)
