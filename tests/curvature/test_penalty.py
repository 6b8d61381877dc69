import pytest
import torch
from torch import nn

import basinscope as bs


def blobs(n, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 3
    centres = torch.tensor([[1.0, 0.0], [-0.5, 0.9], [-0.5, -0.9]])
    return centres[labels] + 0.4 * torch.randn(n, 2, generator=generator), labels


def trained(seed, strength, kind="soft_rank"):
    torch.manual_seed(seed)
    net = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 3))
    x, y = blobs(120, 0)
    land = bs.Landscape(net, "cross_entropy", (x, y))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.02)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(150):
        batch = torch.randint(120, (12,), generator=generator)
        objective = nn.functional.cross_entropy(net(x), y)
        if strength:
            objective = objective + strength * bs.penalty(land, net, batch, weight_decay=1e-2, kind=kind)
        optimizer.zero_grad()
        objective.backward()
        optimizer.step()
    return bs.Landscape(net, "cross_entropy", (x, y))


@pytest.mark.parametrize("kind", ["soft_rank", "log_det"])
def test_training_against_it_lowers_the_soft_rank(kind, seed):
    plain, punished = trained(seed, 0.0), trained(seed, 0.02, kind)
    before, after = (float(bs.soft_rank(land, weight_decay=1e-2)) for land in (plain, punished))
    assert after < 0.8 * before
    # Not by giving up on the task.
    guess = punished.outputs(punished.parameters, punished.samples.inputs).argmax(1)
    assert float((guess != punished.samples.target).float().mean()) < 0.1


@pytest.mark.parametrize("decay", [0.05, {"*bias": 0.5, "*": 0.02}])
@pytest.mark.parametrize(("kind", "measure"), [("soft_rank", bs.soft_rank), ("log_det", bs.log_det)])
def test_the_mean_over_batches_bounds_the_whole(kind, measure, decay):
    x, y = blobs(36, 2)
    net = nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    land = bs.Landscape(net, "cross_entropy", (x, y))
    whole = float(measure(land, weight_decay=decay))
    for size in (4, 12, 36):
        batches = torch.arange(36).split(size)
        values = [bs.penalty(land, net, batch, weight_decay=decay, kind=kind).item() for batch in batches]
        assert sum(values) / len(values) >= whole - 1e-9
    assert values[0] == pytest.approx(whole, rel=1e-9)  # one batch is the whole


def test_its_gradient_is_that_of_the_soft_rank():
    x, y = blobs(5, 3)
    net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 3)).double()
    land = bs.Landscape(net, "cross_entropy", (x, y))
    bs.penalty(land, net, torch.arange(5), weight_decay=0.1).backward()
    gradient = torch.cat([parameter.grad.flatten() for parameter in net.parameters()])
    direction = torch.randn(land.dimension, dtype=torch.float64)
    point = land.flatten(land.parameters)
    ahead, behind = (
        float(bs.soft_rank(land.at(land.unflatten(point + step * direction)), weight_decay=0.1))
        for step in (1e-5, -1e-5)
    )
    assert float(gradient @ direction) == pytest.approx((ahead - behind) / 2e-5, rel=1e-5)


def test_bad_arguments():
    net = nn.Linear(2, 3)
    land = bs.Landscape(net, "cross_entropy", blobs(6, 0))
    few = torch.arange(2)
    with pytest.raises(bs.InputError, match="kind"):
        bs.penalty(land, net, few, weight_decay=0.1, kind="trace")
    with pytest.raises(bs.InputError, match="positive"):
        bs.penalty(land, net, few, weight_decay=0.0)
    with pytest.raises(bs.InputError, match="one weight decay"):
        bs.penalty(land, net, few, weight_decay=[0.1, 1.0])
    with pytest.raises(bs.InputError, match="missing"):
        bs.penalty(land, {"weight": net.weight}, few, weight_decay=0.1)
