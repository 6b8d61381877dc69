import json

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import basinscope as bs
from basinscope import zoo
from basinscope.curvature.dense import dense
from basinscope.exact import deep_linear
from chance import SAMPLED, deviations

f64 = torch.float64


def randomized(net, seed=0, dtype=f64):
    generator = torch.Generator().manual_seed(seed)
    net = net.to(dtype)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator, dtype=f64) / 2)
    return net


def data(n, *shape, seed=1):
    return torch.randn(n, *shape, dtype=f64, generator=torch.Generator().manual_seed(seed))


def null_space(land, found):
    """F v for the certified directions, relative to the size of F and v."""
    fisher = dense(land, "fisher")
    rows = torch.tensor(found.directions.toarray())
    return float((fisher @ rows.T).norm(dim=0).div(rows.norm(dim=1)).max() / fisher.norm())


class Swish(nn.Module):
    def __init__(self, *shape):
        super().__init__()
        self.beta = nn.Parameter(torch.ones(shape))

    def forward(self, x):
        return x * torch.sigmoid(self.beta * x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_relu_units_can_be_rescaled(dtype):
    net = randomized(
        nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)), seed=6, dtype=dtype
    )
    x = data(5000, 3)
    land = bs.Landscape(net, "mse", (x, x[:, :2]))
    found = bs.symmetries(land)
    assert (found.count, found.kinds) == (9, {"rescaling": 9})
    assert found.bound == (land.dimension - 9) / 2
    assert found.residual < 200 * torch.finfo(dtype).eps
    assert found.warnings == ()
    if dtype == f64:
        assert null_space(land, found) < 1e-14
        rank = int((torch.linalg.eigvalsh(dense(land, "fisher")) > 1e-12).sum())
        assert rank <= land.dimension - found.count
    json.dumps(found.to_dict(), allow_nan=False)


def test_directions_are_those_of_lemma_1():
    net = randomized(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 1)))
    land = bs.Landscape(net, "mse", (data(50, 2), data(50, 1)))
    rows = bs.symmetries(land).directions.toarray()
    for j in range(2):
        field = {name: torch.zeros_like(tensor) for name, tensor in land.parameters.items()}
        field["0.weight"][j] = land.parameters["0.weight"][j]
        field["0.bias"][j] = land.parameters["0.bias"][j]
        field["2.weight"][:, j] = -land.parameters["2.weight"][:, j]
        np.testing.assert_array_equal(rows[j], land.flatten(field).numpy())


def test_the_loss_is_constant_along_the_whole_orbit():
    net = randomized(nn.Sequential(nn.Linear(3, 4), nn.LeakyReLU(), nn.Linear(4, 2)))
    land = bs.Landscape(net, "cross_entropy", (data(30, 3), torch.arange(30) % 2))
    found = bs.symmetries(land)
    assert found.kinds == {"rescaling": 4, "shift": 5}
    assert found.count == 9
    before = land.per_sample()
    c = torch.tensor([2.0, 0.25, 8.0, 0.5], dtype=f64)
    p = land.parameters
    moved = {
        "0.weight": c[:, None] * p["0.weight"],
        "0.bias": c * p["0.bias"],
        "2.weight": p["2.weight"] / c + 3.0,
        "2.bias": p["2.bias"] - 1.0,
    }
    torch.testing.assert_close(land.per_sample(moved), before, rtol=1e-12, atol=1e-12)


def test_learned_slopes_join_the_rescaling_and_fixed_ones_forbid_it():
    x, y = data(100, 2), data(100, 1)
    each = bs.Landscape(randomized(nn.Sequential(nn.Linear(2, 3), Swish(3), nn.Linear(3, 1))), "mse", (x, y))
    found = bs.symmetries(each)
    assert (found.count, found.kinds) == (3, {"rescaling": 3})
    assert found.residual < 1e-13
    assert null_space(each, found) < 1e-14
    shared = bs.Landscape(randomized(nn.Sequential(nn.Linear(2, 3), Swish(1), nn.Linear(3, 1))), "mse", (x, y))
    assert bs.symmetries(shared).count == 1
    assert null_space(shared, bs.symmetries(shared)) < 1e-14
    # SiLU: nothing is flat, and the Fisher matrix is regular indeed, unlike what the survey says of Lemma 2.
    silu = bs.Landscape(randomized(nn.Sequential(nn.Linear(2, 3), nn.SiLU(), nn.Linear(3, 1))), "mse", (x, y))
    assert bs.symmetries(silu).count == 0
    values = torch.linalg.eigvalsh(dense(silu, "fisher"))
    assert float(values[0] / values[-1]) > 1e-10
    relu = bs.Landscape(randomized(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1))), "mse", (x, y))
    values = torch.linalg.eigvalsh(dense(relu, "fisher"))
    assert float(values[2] / values[-1]) < 1e-14


def test_what_only_looks_like_a_symmetry_is_refused():
    class Shifted(Swish):
        def forward(self, x):
            return super().forward(x) + self.beta

    net = randomized(nn.Sequential(nn.Linear(2, 3), Shifted(3), nn.Linear(3, 1)))
    found = bs.symmetries(bs.Landscape(net, "mse", (data(100, 2), data(100, 1))))
    assert found.count == 0
    assert found.warnings == ("not a symmetry: 3 directions of 0 → 2 change the predictions, and are not counted",)


def test_linear_layers_can_be_mixed():
    widths = [3, 4, 2]
    net = randomized(nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 2, bias=False)))
    land = bs.Landscape(net, "mse", (data(60, 3), data(60, 2)))
    found = bs.symmetries(land)
    assert found.kinds == {"mixing": 16}
    # The orbit has dimension h² − (h − rank W₁)(h − rank W₂) = 16 − 1·2; here that is all of the fibre.
    assert found.count == 14
    assert found.bound == deep_linear(widths, rank=2)[0] == 3
    assert null_space(land, found) < 1e-14


def test_biases_between_linear_layers_can_be_shifted():
    net = randomized(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 4)))
    land = bs.Landscape(net, "mse", (data(60, 4), data(60, 4)))
    found = bs.symmetries(land)
    assert found.kinds == {"mixing": 9 + 3}
    assert found.bound == deep_linear([4, 3, 4], rank=3, bias=True)[0]
    assert null_space(land, found) < 1e-14


def test_three_linear_layers_share_a_factor():
    net = randomized(nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(3))))
    land = bs.Landscape(net, "mse", (data(40, 2), data(40, 2)))
    found = bs.symmetries(land)
    assert found.kinds == {"mixing": 8}
    assert found.count == 8
    assert found.bound == 2


def test_convolutions_pooling_and_flattening():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Conv2d(1, 3, 3), nn.Conv2d(3, 2, 2)
            self.head = nn.Linear(2 * 4, 3)

        def forward(self, x):
            x = functional.max_pool2d(functional.relu(self.first(x)), 2)
            x = torch.relu(self.second(x))
            return self.head(x.view(x.size(0), -1))

    land = bs.Landscape(randomized(Net()), "cross_entropy", (data(40, 1, 8, 8), torch.arange(40) % 3))
    found = bs.symmetries(land)
    assert found.kinds == {"rescaling": 5, "shift": 9}
    assert found.count == 14
    assert found.residual < 1e-13
    assert null_space(land, found) < 1e-14


def test_residual_branches_and_shared_weights_are_left_alone():
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.outer, self.head = nn.Linear(3, 4), nn.Linear(4, 3), nn.Linear(3, 1)

        def forward(self, x):
            return self.head(functional.relu(x + self.outer(functional.relu(self.inner(x)))))

    land = bs.Landscape(randomized(Residual()), "mse", (data(3000, 3), data(3000, 1)))
    assert bs.symmetries(land).kinds == {"rescaling": 4}  # of `inner`; `outer` is added to x

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.head = nn.Linear(3, 3), nn.Linear(3, 1)

        def forward(self, x):
            return self.head(functional.relu(self.layer(functional.relu(self.layer(x)))))

    land = bs.Landscape(randomized(Twice(), seed=6), "mse", (data(3000, 3), data(3000, 1)))
    assert bs.symmetries(land).count == 0


def test_held_weights_leave_no_freedom():
    net = randomized(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)))
    land = bs.Landscape(net, "mse", (data(50, 2), data(50, 1)))
    assert bs.symmetries(land.restrict("0.*")).count == 0


def test_idle_parameters():
    net = randomized(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    x = data(80, 3)
    x[:, 2] = 0  # an input that is always zero: four weights without effect
    with torch.no_grad():
        net[0].bias[1] = -100.0  # a dead unit: two more weights, its bias and two weights out
        net[2].weight[:, 3] = 0.0  # a unit that nothing reads: two weights and a bias
    land = bs.Landscape(net, "mse", (x, data(80, 2)))
    found = bs.symmetries(land)
    assert found.kinds == {"rescaling": 4, "idle": 4 + 5 + 3}
    assert found.count == 12 + 2  # rescaling of the two live units
    fisher = dense(land, "fisher")
    assert null_space(land, found) < 1e-14
    assert int((torch.linalg.eigvalsh(fisher) > 1e-12).sum()) <= land.dimension - found.count


def test_a_zero_derivative_is_no_flat_direction():
    from basins import Product

    land = bs.Landscape(Product(dtype=f64), "mse", (torch.ones(4, dtype=f64), torch.zeros(4, dtype=f64)))
    found = bs.symmetries(land)
    # At (0, 0) both derivatives vanish; one of the two can be changed freely, both together not. λ = 1/2 there.
    assert found.count == 1
    assert found.bound == 0.5


def test_networks_that_cannot_be_traced():
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(2, 1)

        def forward(self, x):
            return self.layer(x) if len(x) else x

    net = Odd()
    found = bs.symmetries(bs.Landscape(net, "mse", (torch.randn(9, 2), torch.randn(9, 1))))
    assert found.count == 0
    assert "cannot be traced" in found.warnings[0]


def test_networks_that_vmap_refuses():
    class Branching(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(2, 1), nn.Linear(2, 1)

        def forward(self, x):
            return self.first(x) if float(x.detach().abs().sum()) > 0 else self.second(x)

    net = randomized(Branching())
    found = bs.symmetries(bs.Landscape(net, "mse", (data(9, 2), data(9, 1))))
    assert found.kinds == {"idle": 3}  # the branch that is never taken


def test_lambda_hat_beside_the_bound(seed):
    net = randomized(nn.Sequential(nn.Linear(1, 3), nn.ReLU(), nn.Linear(3, 1)))
    x = data(300, 1)
    with torch.no_grad():
        y = net(x)
    land = bs.Landscape(net, "mse", (x, y))
    estimate = bs.llc(land, rtol=0.1, budget=1.0, seed=seed, progress=False)
    found = bs.symmetries(land, llc=estimate)
    assert found.bound == 3.5
    assert estimate.value < found.bound + deviations(SAMPLED) * estimate.stderr
    assert "λ̂ =" in str(found)
    assert bs.symmetries(land, llc=bs.Estimate("llc", 3.4, 0.1)).warnings == ()
    wrong = bs.symmetries(land, llc=bs.Estimate("llc", 4.5, 0.1))
    assert "exceeds the bound 3.5" in wrong.warnings[0]
    assert "exceeds" in wrong._repr_html_()


def test_a_network_of_the_zoo_and_bad_input():
    torch.manual_seed(0)
    x = torch.randn(40, 1, 28, 28)
    found = bs.symmetries(bs.Landscape(zoo.models.lenet5(), "cross_entropy", (x, torch.arange(40) % 10)))
    assert found.kinds["rescaling"] == 6 + 16 + 120 + 84
    assert found.kinds["shift"] == 85
    assert found.residual < 1e-4
    with pytest.raises(bs.InputError, match="must be a Landscape, got Linear"):
        bs.symmetries(nn.Linear(1, 1))
