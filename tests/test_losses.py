import math

import pytest
import torch

import basinscope as bs
from basinscope.losses import class_dimension, named_loss

f64 = torch.float64


def values(name, output, target, sigma=None):
    return named_loss(name, sigma).per_sample(torch.tensor(output, dtype=f64), torch.as_tensor(target)).tolist()


def test_cross_entropy_by_hand():
    # softmax of (0, log 3) is (1/4, 3/4).
    losses = values("cross_entropy", [[0.0, math.log(3)], [0.0, math.log(3)], [5.0, 5.0]], [0, 1, 1])
    assert losses == pytest.approx([math.log(4), math.log(4 / 3), math.log(2)], rel=1e-12)


def test_bernoulli_by_hand():
    # sigmoid(log 3) = 3/4; two outputs of a sample add up; soft targets mix the two costs.
    assert values("bernoulli", [math.log(3), math.log(3)], [1.0, 0.0]) == pytest.approx([math.log(4 / 3), math.log(4)])
    assert values("bernoulli", [[0.0, math.log(3)]], [[1.0, 0.0]]) == pytest.approx([math.log(2) + math.log(4)])
    soft = 0.25 * math.log(4 / 3) + 0.75 * math.log(4)
    assert values("bernoulli", [math.log(3)], [0.25]) == pytest.approx([soft])
    assert values("bernoulli", [[math.log(3)]], [1]) == pytest.approx([math.log(4 / 3)])


def test_mse_is_half_the_squared_distance():
    assert values("mse", [[1.0, 2.0], [0.0, 0.0]], [[4.0, 6.0], [0.0, 1.0]]) == [12.5, 0.5]


@pytest.mark.parametrize("sigma", [None, 1.0, 0.3, 7.0])
def test_gaussian_is_the_negative_log_density(sigma):
    output, target = torch.randn(4, 3, dtype=f64), torch.randn(4, 3, dtype=f64)
    density = torch.distributions.Normal(output, 1.0 if sigma is None else sigma)
    losses = named_loss("gaussian", sigma).per_sample(output, target)
    assert losses.tolist() == pytest.approx((-density.log_prob(target).sum(1)).tolist())


def test_gaussian_and_mse_differ_by_a_constant():
    output, target = torch.randn(5, 2, dtype=f64), torch.randn(5, 2, dtype=f64)
    gap = named_loss("gaussian", None).per_sample(output, target) - named_loss("mse", None).per_sample(output, target)
    assert gap.tolist() == pytest.approx([math.log(2 * math.pi)] * 5)


def test_flat_targets_meet_networks_with_one_output():
    assert values("mse", [[1.0], [2.0]], [3.0, 2.0]) == [2.0, 0.0]
    assert values("gaussian", [[1.0], [2.0]], [3.0, 2.0]) == pytest.approx([2.9189385, 0.9189385])


def test_positions_add_up_on_either_class_axis():
    torch.manual_seed(0)
    scores, target = torch.randn(2, 3, 5, dtype=f64), torch.randint(5, (2, 3))
    log_p = scores.log_softmax(2)
    by_hand = [-sum(float(log_p[i, t, target[i, t]]) for t in range(3)) for i in range(2)]
    loss = named_loss("cross_entropy", None).per_sample
    assert loss(scores, target).tolist() == pytest.approx(by_hand)
    assert loss(scores.movedim(2, 1), target).tolist() == pytest.approx(by_hand)
    # and with two position axes, as in segmentation
    image, labels = torch.randn(2, 4, 3, 2, dtype=f64), torch.randint(4, (2, 3, 2))
    expected = -image.log_softmax(1).gather(1, labels[:, None]).squeeze(1).flatten(1).sum(1)
    assert loss(image, labels).tolist() == pytest.approx(expected.tolist())
    assert loss(image.movedim(1, -1), labels).tolist() == pytest.approx(expected.tolist())


def test_ignored_positions_cost_nothing():
    scores, target = torch.randn(2, 3, 5, dtype=f64), torch.tensor([[1, -100, 4], [-100, -100, -100]])
    log_p = scores.log_softmax(2)
    by_hand = -float(log_p[0, 0, 1] + log_p[0, 2, 4])
    losses = named_loss("cross_entropy", None).per_sample(scores, target)
    assert losses.tolist() == pytest.approx([by_hand, 0.0])


def test_classes_and_positions_that_cannot_be_told_apart():
    with pytest.raises(bs.InputError, match=r"\(2, 3, 3\).*\(2, 3\).*callable loss"):
        class_dimension(torch.zeros(2, 3, 3), torch.zeros(2, 3))
    # Two axes are never ambiguous, not even when there are as many samples as classes.
    assert class_dimension(torch.zeros(3, 3), torch.zeros(3)) == -1


def test_a_callable_is_taken_as_it_is_and_its_positions_are_summed():
    def absolute(output, target):
        return (output - target).abs()

    loss = named_loss(absolute, None)
    assert loss.name == "absolute"
    assert loss.family == "custom"
    assert loss.per_sample(torch.ones(2, 3), torch.zeros(2, 3)).tolist() == [3.0, 3.0]
    assert loss.per_sample(torch.ones(2), torch.zeros(2)).tolist() == [1.0, 1.0]


def test_models_that_wrap_their_scores():
    class Wrapped:
        logits = torch.tensor([[0.0, math.log(3)]], dtype=f64)

    losses = named_loss("cross_entropy", None).per_sample(Wrapped(), torch.tensor([1]))
    assert losses.tolist() == pytest.approx([math.log(4 / 3)])


@pytest.mark.parametrize("sigma", [0.0, -1.0, math.nan, math.inf])
def test_sigma_must_be_a_width(sigma):
    with pytest.raises(bs.InputError, match=f"sigma must be a positive finite number, got {sigma}"):
        named_loss("gaussian", sigma)


def test_sigma_of_a_wrong_type():
    with pytest.raises(bs.InputError, match="sigma must be a positive finite number, got 'wide'"):
        named_loss("gaussian", "wide")


def test_sigma_belongs_to_the_gaussian():
    with pytest.raises(bs.InputError, match=r"sigma=2\.0 belongs to loss='gaussian', got loss='mse' — drop sigma"):
        named_loss("mse", 2.0)


@pytest.mark.parametrize("name", ["crossentropy", None, 3])
def test_unknown_losses(name):
    with pytest.raises(bs.InputError, match=f"unknown loss {name!r}: expected 'cross_entropy', .* or a callable"):
        named_loss(name, None)


@pytest.mark.parametrize("name", ["mse", "gaussian", "bernoulli"])
def test_shapes_are_never_broadcast(name):
    with pytest.raises(bs.InputError, match=rf"{name} .*\(4, 1\) and \(4, 3\) — reshape the target"):
        named_loss(name, None).per_sample(torch.zeros(4, 1), torch.zeros(4, 3))
    with pytest.raises(bs.InputError, match="reshape"):  # would broadcast to (4, 4)
        named_loss(name, None).per_sample(torch.zeros(4), torch.zeros(4, 1))


def test_cross_entropy_shapes():
    with pytest.raises(bs.InputError, match=r"output has shape \(4, 3\), target \(4, 1\) — reshape the target"):
        named_loss("cross_entropy", None).per_sample(torch.zeros(4, 3), torch.zeros(4, 1))
