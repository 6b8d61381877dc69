import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn

import basinscope as bs
from basinscope.curvature import ghost
from basinscope.curvature.ghost import layer_traces
from basinscope.curvature.gradients import Gradients
from basinscope.curvature.operators import Dense, operator
from basinscope.curvature.piecewise import piecewise_affine
from basinscope.curvature.trace import MIN_PROBES, Hutchinson, XTrace, estimate_trace, exact_trace
from chance import FALSE_ALARM, assert_within
from gradient_cases import CASES

f64 = torch.float64
MANY = 192  # draws


def random_matrix(values, seed=0):
    generator = torch.Generator().manual_seed(seed)
    frame = torch.linalg.qr(torch.randn(len(values), len(values), dtype=f64, generator=generator)).Q
    return (frame * values.double()) @ frame.T


# ---------------------------------------------------------------------- exact traces from gradient norms


class Normalized(nn.Module):
    """Every kind of normalization, a convolution along a line, and one normalization used twice."""

    def __init__(self):
        super().__init__()
        self.plane = nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.GroupNorm(2, 4)
        )
        self.line = nn.Conv1d(4, 6, 3, padding="same", dilation=2, groups=2)
        self.layer, self.mean_square, self.out = nn.LayerNorm(6), nn.RMSNorm(6), nn.Linear(6, 3)

    def forward(self, x):
        h = self.line(self.plane(x).flatten(2)).transpose(1, 2)
        return self.out(self.layer(self.mean_square(self.layer(h).tanh())).mean(1))


def normalized(frozen=False):
    torch.manual_seed(0)
    net = Normalized().double().eval()
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    net.plane[1].running_var.uniform_(0.5, 2)
    net.plane[1].running_mean.normal_()
    if frozen:
        net.line.weight.requires_grad_(False)
        net.layer.bias.requires_grad_(False)
    return bs.Landscape(net, "cross_entropy", (torch.randn(7, 2, 5, 5), torch.randint(3, (7,))))


NETWORKS = {**{name: lambda build=build: build(f64) for name, build in CASES.items()},
            "normalized": normalized, "partly frozen": lambda: normalized(frozen=True)}  # fmt: skip


@pytest.mark.parametrize(("matrix", "closed"), [("fisher", True), ("fisher", False), ("covariance", False)])
@pytest.mark.parametrize("name", NETWORKS)
def test_layer_traces_are_sums_of_the_diagonal(name, matrix, closed, monkeypatch):
    land = NETWORKS[name]()
    if not closed:
        monkeypatch.setattr(ghost, "stack_traces", lambda *args, **options: None)
    diagonal = (operator(land, matrix) @ torch.eye(land.dimension, dtype=f64)).diagonal()
    for memory in (None, 30_000):
        traces = layer_traces(land, matrix, memory=memory)
        assert traces.stderr == 0
        assert traces.value == pytest.approx(float(diagonal.sum()), rel=1e-10, abs=1e-14)
        for block, part in zip(traces.blocks, land.unflatten(diagonal.clone()).values(), strict=True):
            assert block == (pytest.approx(float(part.sum()), rel=1e-10, abs=1e-14), 0.0)


def test_normalizations_are_layers_too():
    assert Gradients(normalized(), "fisher").unstructured == []
    assert Gradients(normalized(frozen=True), "covariance").unstructured == []


@pytest.fixture
def sampled(monkeypatch):
    """Traces are sampled wherever they can be, by so many draws that their standard errors are well known."""
    monkeypatch.setattr(ghost, "MAX_ROOTS", 0)
    monkeypatch.setattr(ghost, "DRAWS_AT_ONCE", MANY)


def test_many_outputs_are_sampled(monkeypatch, sampled, seed):
    land = CASES["transformer"](f64)
    with monkeypatch.context() as patch:
        patch.setattr(ghost, "MAX_ROOTS", 128)
        truth = layer_traces(land, "fisher")
    traces = layer_traces(land, "fisher", rtol=0.02, seed=seed)
    assert truth.stderr == 0 < traces.stderr <= 0.02 * traces.value
    assert_within(traces.value, truth.value, traces.stderr, traces.freedom)
    pairs = [(*block, exact) for block, (exact, _) in zip(traces.blocks, truth.blocks, strict=True)]
    values, errors, exact = zip(*pairs, strict=True)
    assert_within(values, exact, errors, traces.freedom, bias=1e-12)


def test_draws_are_added_until_the_error_is_met(monkeypatch, seed):
    monkeypatch.setattr(ghost, "MAX_ROOTS", 0)
    traces = layer_traces(CASES["transformer"](f64), "fisher", rtol=0.02, seed=seed)
    assert traces.stderr <= 0.02 * traces.value
    assert traces.spent % ghost.DRAWS_AT_ONCE == 0


@pytest.mark.parametrize("name", ["gaussian", "bernoulli"])
def test_random_roots_of_other_families(name, monkeypatch, sampled, seed):
    land = CASES[name](f64)
    truth = layer_traces(land, "fisher").value  # in closed form
    monkeypatch.setattr(ghost, "stack_traces", lambda *args, **options: None)
    estimate = layer_traces(land, "fisher", rtol=0.02, seed=seed)
    assert estimate.method == "sampled gradient norms"
    assert_within(estimate.value, truth, estimate.stderr, estimate.freedom, bias=1e-9 * truth)


class Gaussian:
    """The squared error as a loss of one's own."""

    def __call__(self, output, target):
        return (output - target).square().sum(1) / 2

    def sample(self, output, generator):
        return output + torch.randn(output.shape, generator=generator, dtype=output.dtype)


def test_own_likelihood_gets_drawn_labels(sampled, seed):
    x = torch.randn(60, 3, dtype=f64)
    land = bs.Landscape(nn.Linear(3, 2).double(), Gaussian(), (x, x[:, :2]))
    estimate = layer_traces(land, "fisher", rtol=0.05, seed=seed)
    truth = 2 * float(x.square().sum(1).mean() + 1)
    assert_within(estimate.value, truth, estimate.stderr, estimate.freedom)
    assert 0 < estimate.stderr <= 0.05 * estimate.value


# ---------------------------------------------------------------------- traces from probes


def test_xtrace_is_the_mean_over_probes_left_out(seed):
    whole, k = random_matrix(torch.linspace(-1, 3, 30) ** 3), 6
    run = XTrace(Dense(whole), seed)
    run.grow(8)
    run.grow(4)  # in two steps: the basis of the first is kept
    probes = run._probes
    estimates = []
    for i in range(k):
        others = torch.cat([probes[:, :i], probes[:, i + 1 :]], 1)
        frame = torch.linalg.qr(whole @ others).Q
        left = probes[:, i] - frame @ (frame.T @ probes[:, i])
        estimates.append((frame.T @ whole @ frame).trace() + (30 - k + 1) * left @ whole @ left / (left @ left))
    assert run.products == 12
    assert run.summary()[0] == pytest.approx(float(torch.stack(estimates).mean()), rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, f64])
def test_low_rank_is_exact(dtype, seed):
    whole = random_matrix(torch.cat([torch.tensor([4.0, 2.0, 1.0]), torch.zeros(97)])).to(dtype)
    run = XTrace(Dense(whole), seed)
    run.grow(24)
    value, stderr, _ = run.summary()
    assert abs(value - 7) < 1e-3
    assert stderr < 1e-2


@pytest.mark.parametrize("method", [Hutchinson, XTrace])
def test_values_are_unbiased_and_standard_errors_cover_the_truth(method, seed):
    values, repeats = 0.9 ** torch.arange(120.0), 100
    truth, whole = float(values.sum()), Dense(random_matrix(values), psd=True)
    summaries = []
    for k in range(repeats):
        run = method(whole, seed + k)
        run.grow(24)
        summaries.append(run.summary())
    value, stderr, freedom = np.array(summaries).T
    spread = value.std(ddof=1)
    assert_within(value.mean(), truth, spread / math.sqrt(repeats), repeats - 1)
    assert (repeats - 1) * spread**2 < stats.chi2.isf(FALSE_ALARM, repeats - 1) * np.square(stderr).mean()
    # The jackknife covers more than the 90 % that are wanted, and reads up to about twice too high.
    inside = np.abs(value - truth) <= stats.t.ppf(0.95, freedom) * stderr
    assert inside.sum() >= stats.binom.ppf(FALSE_ALARM, repeats, 0.9)
    assert stderr.mean() < (1.5 if method is Hutchinson else 3) * spread


def test_deflation_beats_plain_probes_where_it_should(seed):
    values = torch.arange(1, 301.0) ** -1.5
    estimate = estimate_trace(Dense(random_matrix(values)), rtol=0.01, max_products=250, seed=seed)
    assert estimate.method == "xtrace"
    assert estimate.spent < 200  # Hutchinson alone: over a thousand
    assert_within(estimate.value, float(values.sum()), estimate.stderr, estimate.freedom)
    signed = torch.cat([values, -values / 3])
    estimate = estimate_trace(Dense(random_matrix(signed)), rtol=0.02, max_products=400, seed=seed)
    assert estimate.method == "xtrace"
    assert_within(estimate.value, float(signed.sum()), estimate.stderr, estimate.freedom)


def test_few_probes_suffice_for_an_easy_matrix(seed):
    values = torch.linspace(0.9, 1.1, 400)
    whole = random_matrix(values)
    estimate = estimate_trace(Dense(whole), rtol=0.01, seed=seed)
    assert (estimate.method, estimate.spent) == ("hutchinson", MIN_PROBES)
    assert_within(estimate.value, float(values.sum()), hutchinson_error(whole, estimate.spent))


def hutchinson_error(whole, probes, sizes=None):
    """Standard errors of Σ_{i in block} s_i (A s)_i, the pairs i < j in it once or twice, over Rademacher vectors s."""
    sizes = [len(whole)] if sizes is None else sizes
    inside = torch.block_diag(*(torch.ones(1, size, dtype=f64) for size in sizes))
    pairs = (inside[:, :, None] + inside[:, None, :]) * (whole - whole.diagonal().diag())
    return (pairs.square().sum((1, 2)) / 2 / probes).sqrt().squeeze()


def test_small_or_stubborn_matrices_are_summed_up(seed):
    assert estimate_trace(Dense(torch.eye(5)), rtol=0.01).method == "exact"
    values = torch.tensor([1.0, -1.0]).repeat(20) * torch.linspace(1, 2, 40)
    estimate = estimate_trace(Dense(random_matrix(values)), rtol=0.001, sizes=[15, 25], seed=seed)
    assert (estimate.method, estimate.stderr) == ("exact", 0.0)
    assert estimate.value == pytest.approx(float(values.sum()))
    assert sum(value for value, _ in estimate.blocks) == pytest.approx(estimate.value)


def test_blocks_come_from_the_same_probes(seed):
    whole, sizes, probes = random_matrix(torch.linspace(0.5, 1.5, 200)), [50, 150], 128
    run = Hutchinson(Dense(whole), seed, sizes)
    run.grow(probes)
    truth, exact_errors = exact_trace(Dense(whole), sizes), hutchinson_error(whole, probes, sizes)
    (values, errors), (exact, _) = (torch.tensor(blocks, dtype=f64).T for blocks in (run.blocks(), truth.blocks))
    assert_within(values, exact, exact_errors)
    # A sample variance of nearly normal terms: its relative standard error is √(2/(probes − 1)).
    assert_within((errors / exact_errors).square(), 1.0, math.sqrt(2 / (probes - 1)))
    assert float(values.sum()) == pytest.approx(run.summary()[0])
    estimate = estimate_trace(Dense(whole), rtol=0.01, sizes=sizes, seed=seed)
    assert sum(value for value, _ in estimate.blocks) == pytest.approx(estimate.value)


def test_the_tolerance_counts_what_is_known_already(seed):
    whole = Dense(random_matrix(torch.linspace(-1, 1, 300)))
    assert estimate_trace(whole, rtol=0.01, offset=1e6, seed=seed).spent == MIN_PROBES
    assert estimate_trace(whole, rtol=0.01, offset=30.0, max_products=200, seed=seed).spent > MIN_PROBES


def test_zero_operator_and_spent_products(seed):
    assert estimate_trace(Dense(torch.zeros(50, 50)), rtol=0.01).value == 0
    hard = Dense(random_matrix(torch.linspace(-1, 1, 500)))
    estimate = estimate_trace(hard, rtol=1e-6, max_products=40, seed=seed)
    assert estimate.spent <= 40
    assert estimate.stderr > 0
    assert estimate_trace(hard, rtol=0.01, max_products=4).spent == 4
    balanced = estimate_trace(hard, rtol=0.01, offset=0.0, max_products=30, seed=seed)  # the trace itself is zero
    assert_within(balanced.value, 0.0, balanced.stderr, balanced.freedom)
    broken = estimate_trace(Dense(torch.full((20, 20), math.nan)), rtol=0.01)
    assert math.isnan(broken.value)


def test_wide_operators_stay_within_memory(seed):
    whole = Dense(random_matrix(torch.arange(1, 301.0) ** -1.5), psd=True)
    estimate = estimate_trace(whole, rtol=0.01, max_products=200, memory=100_000, seed=seed)
    assert estimate.method == "hutchinson"


# ---------------------------------------------------------------------- piecewise affine networks


class Residual(nn.Module):
    def __init__(self, repeat=False):
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)
        self.shift, self.out, self.repeat = nn.Parameter(torch.randn(4, 1, 1)), nn.Linear(4, 3), repeat

    def forward(self, x):
        h = self.norm(self.first(x)).relu()
        h = h + 0.5 * self.second(h) + self.shift
        if self.repeat:
            h = h + self.second(h)
        return self.out(nn.functional.max_pool2d(h, 2).mean((2, 3)))


class Squared(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = self.first(x)
        return self.out(h * h)


class Written(nn.Module):
    """Writes what depends on parameters into a tensor that did not."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        h = torch.zeros_like(x)
        h[:] = self.first(x)
        return self.out(h.tanh())


class Hidden(nn.Module):
    """A smooth function where no torch function is seen."""

    def __init__(self):
        super().__init__()
        self.first, self.out = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(_Cube.apply(self.first(x)))


class _Cube(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        with torch._C.DisableTorchFunction():
            return x * x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 3 * x * x * gradient


def shared():
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 3))
    net[2].weight = net[0].weight
    return net


images, rows = (9, 2, 6, 6), (9, 4)
VERDICTS = [
    (lambda: nn.Linear(4, 3), rows, True),
    (lambda: nn.Sequential(nn.Linear(4, 5), nn.LeakyReLU(), nn.Dropout(), nn.Linear(5, 3)), rows, True),
    (Residual, images, True),
    (lambda: nn.Sequential(nn.Linear(4, 5), nn.GELU(), nn.Linear(5, 3)), rows, False),
    (lambda: nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5), nn.Linear(5, 3)), rows, False),
    (lambda: Residual(repeat=True), images, False),
    (shared, rows, False),
    (Squared, rows, False),
    (Written, rows, False),
    (Hidden, rows, False),
]


@pytest.mark.parametrize(("build", "shape", "verdict"), VERDICTS)
def test_piecewise_affine_networks_are_told_from_others(build, shape, verdict):
    torch.manual_seed(0)
    land = bs.Landscape(build().double().eval(), "cross_entropy", (torch.randn(shape), torch.randint(3, shape[:1])))
    assert piecewise_affine(land) is verdict
    eye = torch.eye(land.dimension, dtype=f64)
    gap = float((operator(land, "hessian") @ eye - operator(land, "fisher") @ eye).trace())
    assert (abs(gap) < 1e-12) is verdict


def test_part_of_a_smooth_network_may_be_affine():
    net = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    land = bs.Landscape(net, "cross_entropy", (torch.randn(9, 4), torch.randint(3, (9,))))
    last = land.restrict("2.*")
    eye = torch.eye(last.dimension, dtype=f64)
    assert math.isclose((operator(last, "hessian") @ eye).trace(), (operator(last, "fisher") @ eye).trace())
    assert piecewise_affine(last)
    assert not piecewise_affine(land)
