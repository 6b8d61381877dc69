"""Every member of a population against the same network trained alone by torch's own optimizers."""

import math
import subprocess
import sys
import time
from dataclasses import replace

import pytest
import torch
from torch import nn

import basinscope as bs
import lacking
from basinscope.errors import InputError
from basinscope.training.population import SGD, Adam, Member, OnlineNGD, Population, steps
from basinscope.training.population.generic import Generic
from basinscope.training.population.stacked import Stacked
from basinscope.zoo import models
from basinscope.zoo.data import deep_linear, modular_addition

IMAGES = torch.rand(90, 1, 7, 7, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
LABELS = torch.randint(10, (90,), generator=torch.Generator().manual_seed(1))
MEMBERS = [
    Member(seed=3, lr=0.01, weight_decay=0.1, batch_size=8, subset=range(50)),
    Member(seed=4, lr=0.002, batch_size=5),
    Member(seed=3, lr=0.005, weight_decay=1e-3, batch_size=8, subset=torch.tensor([7, 3, 88, 15])),
    Member(seed=5, lr=0.01, batch_size=1, subset=[11]),
]
STEPS = 45  # over a block's end


def mlp():
    return models.ffnn([49, 70, 10])


def cnn():
    return models.convnet([1, 15, 20, 10])


def double(build):
    return lambda: build().double()


def twin(population, build, m, steps, make, loss, data):
    """The member trained alone: its seed, its batches, torch's optimizer, autograd."""
    torch.manual_seed(population.members[m].seed)
    net = build()
    member = population.members[m]
    optimizer = make(net.parameters(), lr=member.lr, weight_decay=member.weight_decay)
    for step in range(steps):
        few = population.batch(m, step)
        optimizer.zero_grad()
        loss(net(data[0][few]), data[1][few]).backward()
        optimizer.step()
    return net


def assert_equal_weights(net, other, **tolerance):
    for (name, ours), theirs in zip(net.named_parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, msg=lambda text, name=name: f"{name}: {text}", **tolerance)


NETWORKS = {
    "mlp": (mlp, Stacked),
    "big_mlp": (lambda: models.ffnn([49, 70, 70, 10]), Stacked),
    "cnn": (cnn, Stacked),
    "tanh": (lambda: models.ffnn([49, 6, 5, 10], "tanh"), Stacked),
    "sigmoid, no bias": (lambda: models.ffnn([49, 6, 10], "sigmoid", bias=False), Stacked),
    "softmax regression": (lambda: models.ffnn([49, 10]), Stacked),
    "conv then linear": (
        lambda: nn.Sequential(
            nn.Sequential(nn.Conv2d(1, 3, (2, 3)), nn.Tanh(), nn.Conv2d(3, 2, 1, bias=False)),
            nn.ReLU(),
            nn.Conv2d(2, 4, (3, 2)),
            nn.Flatten(),
            nn.Linear(64, 10),
        ),
        Stacked,
    ),
    "gelu": (lambda: models.ffnn([49, 6, 10], "gelu"), Generic),
    "padded": (lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Flatten(), nn.Linear(98, 10)), Generic),
    "pooled": (lambda: nn.Sequential(nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9, 10)), Generic),
    "resnet": (lambda: models.resnet(1, 2, channels=1, stages=2), Generic),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_each_member_ends_where_its_twin_does(name):
    build, program = NETWORKS[name]
    build = double(build)
    population = Population(build, MEMBERS, (IMAGES, LABELS))
    assert type(population._program) is program
    assert population.train(STEPS, progress=False)
    loss = nn.functional.cross_entropy
    for m in range(len(MEMBERS)):
        alone = twin(population, build, m, STEPS, torch.optim.Adam, loss, (IMAGES, LABELS))
        assert_equal_weights(population.model(m), alone, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("optimizer", "make"),
    [
        (SGD(), torch.optim.SGD),
        (SGD(momentum=0.9), lambda p, **k: torch.optim.SGD(p, momentum=0.9, **k)),
        (SGD(0.9, nesterov=True), lambda p, **k: torch.optim.SGD(p, momentum=0.9, nesterov=True, **k)),
        (Adam(betas=(0.5, 0.9), eps=1e-3), lambda p, **k: torch.optim.Adam(p, betas=(0.5, 0.9), eps=1e-3, **k)),
        ("adam", torch.optim.Adam),
        ("sgd", torch.optim.SGD),
    ],
)
def test_optimizers_are_torchs(optimizer, make):
    build = double(lambda: models.ffnn([49, 7, 10]))
    population = Population(build, MEMBERS, (IMAGES, LABELS), optimizer=optimizer)
    population.train(STEPS, progress=False)
    for m in range(len(MEMBERS)):
        alone = twin(population, build, m, STEPS, make, nn.functional.cross_entropy, (IMAGES, LABELS))
        assert_equal_weights(population.model(m), alone, rtol=1e-9, atol=1e-11)


def test_a_rate_that_falls_along_a_cosine_is_torchs_scheduler():
    build = double(lambda: models.ffnn([49, 7, 10]))
    population = Population(build, MEMBERS, (IMAGES, LABELS), optimizer=Adam(cosine=STEPS))

    class Annealed(torch.optim.Adam):
        def __init__(self, parameters, **own):
            super().__init__(parameters, **own)
            self._schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self, STEPS)

        def step(self, closure=None):
            if closure is None and self.state:
                self._schedule.step()
            super().step(closure)

    population.train(STEPS, progress=False)
    for m in range(len(MEMBERS)):
        alone = twin(population, build, m, STEPS, Annealed, nn.functional.cross_entropy, (IMAGES, LABELS))
        assert_equal_weights(population.model(m), alone, rtol=1e-9, atol=1e-11)
    before = {name: part.clone() for name, part in population.parameters.items()}
    population.train(STEPS + 5, progress=False)  # the rate is spent
    assert all(torch.equal(part, before[name]) for name, part in population.parameters.items())


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"alpha": 4.0, "eta": None, "rank": (3, 2), "momentum": 0.5},
        {"rescale": False, "update_period": 1, "eta": 0.1, "alpha": 1.0},
    ],
)
@pytest.mark.parametrize("build", [cnn, lambda: models.ffnn([49, 7, 10], "gelu")])
def test_online_natural_gradient_is_that_of_the_optimizer(settings, build):
    build = double(build)
    members = [replace(member, lr=0.1 * member.lr) for member in MEMBERS[:3]]
    population = Population(build, members, (IMAGES, LABELS), optimizer=OnlineNGD(**settings))
    population.train(STEPS, progress=False)

    def make(parameters, **own):
        return bs.optim.OnlineNGD(list(parameters), **settings, **own)

    for m in range(3):
        alone = twin(population, build, m, STEPS, make, nn.functional.cross_entropy, (IMAGES, LABELS))
        # eigenvalue problems and divisions by small numbers magnify rounding
        assert_equal_weights(population.model(m), alone, rtol=1e-4, atol=1e-6)
    assert population.diverged == {}


@pytest.mark.parametrize("loss", ["mse", "gaussian", "bernoulli", "custom"])
def test_other_losses(loss):
    data = deep_linear([5, 3, 2], rank=2, n=40, noise=0.1).train
    inputs, target = data
    if loss == "bernoulli":
        target = (target > 0).double()
    functions = {
        "mse": lambda output, wanted: (output - wanted).square().sum(1).mean() / 2,
        "gaussian": lambda output, wanted: (output - wanted).square().sum(1).mean() / (2 * 0.3**2),
        "bernoulli": lambda output, wanted: 2 * nn.functional.binary_cross_entropy_with_logits(output, wanted),
        "custom": lambda output, wanted: (output - wanted).abs().sum(1).mean(),
    }
    given = (lambda output, wanted: (output - wanted).abs().sum(1)) if loss == "custom" else loss
    build = double(lambda: models.deep_linear([5, 3, 2], bias=True))
    members = [Member(seed=s, lr=0.01, batch_size=7, weight_decay=0.01) for s in range(3)]
    sigma = 0.3 if loss == "gaussian" else None
    population = Population(build, members, (inputs, target), given, sigma=sigma)
    population.train(STEPS, progress=False)
    for m in range(3):
        alone = twin(population, build, m, STEPS, torch.optim.Adam, functions[loss], (inputs, target))
        assert_equal_weights(population.model(m), alone, rtol=1e-7, atol=1e-9)
    measured = population.evaluate()
    land = bs.Landscape(population.model(2), given, (inputs, target), sigma=sigma)
    assert measured.accuracy is None
    assert measured.loss[2].item() == pytest.approx(land.per_sample().mean().item(), rel=1e-12)


def test_a_transformer_population():
    data = modular_addition(5).train
    build = double(lambda: models.transformer(6, 3, layers=1, width=8, heads=2, predict="last"))
    members = [Member(seed=s, lr=0.01, batch_size=4) for s in (0, 1)]
    population = Population(build, members, data)
    population.train(40, progress=False)
    alone = twin(population, build, 1, 40, torch.optim.Adam, nn.functional.cross_entropy, data)
    assert_equal_weights(population.model(1), alone, rtol=1e-6, atol=1e-8)


def test_float32_stays_close_to_the_twin():
    data = (IMAGES.float(), LABELS)
    population = Population(cnn, MEMBERS, data)
    population.train(STEPS, progress=False)
    alone = twin(
        population,
        cnn,
        0,
        STEPS,
        torch.optim.Adam,
        nn.functional.cross_entropy,
        data,
    )
    assert_equal_weights(population.model(0), alone, rtol=1e-3, atol=1e-4)


def test_a_member_does_not_depend_on_its_company():
    build = double(lambda: models.ffnn([49, 5, 10]))
    together = Population(build, MEMBERS, (IMAGES, LABELS))
    together.train(STEPS, progress=False)
    for m, member in enumerate(MEMBERS):
        single = Population(build, [member], (IMAGES, LABELS))
        single.train(STEPS, progress=False)
        assert_equal_weights(together.model(m), single.model(0), rtol=1e-9, atol=1e-12)


def test_turns_within_a_memory_bound_change_nothing():
    build = double(cnn)
    whole = Population(build, MEMBERS, (IMAGES, LABELS))
    bounded = Population(build, MEMBERS, (IMAGES, LABELS), memory=1)
    whole.train(20, progress=False)
    bounded.train(20, progress=False)
    for m in range(len(MEMBERS)):
        assert_equal_weights(bounded.model(m), whole.model(m), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["mlp", "cnn", "gelu"])
def test_evaluation_is_that_of_the_landscape(name):
    build = double(NETWORKS[name][0])
    population = Population(build, MEMBERS, (IMAGES, LABELS))
    population.train(10, progress=False)
    own, everything = population.evaluate(), population.evaluate((IMAGES, LABELS))
    halves = population.evaluate((IMAGES[:30], LABELS[:30]), subsets=[range(10), None, [4], range(10, 30)])
    for m in range(len(MEMBERS)):
        land = population.landscape(m)
        assert own.loss[m].item() == pytest.approx(land.per_sample().mean().item(), rel=1e-10)
        net = population.model(m)
        full = bs.Landscape(net, data=(IMAGES, LABELS))
        assert everything.loss[m].item() == pytest.approx(full.per_sample().mean().item(), rel=1e-10)
        hits = (net(IMAGES).argmax(1) == LABELS).double()
        assert everything.accuracy[m].item() == pytest.approx(hits.mean().item())
        part = [range(10), range(30), [4], range(10, 30)][m]
        assert halves.loss[m].item() == pytest.approx(full.per_sample()[list(part)].mean().item(), rel=1e-10)
    assert population.landscape(0).n == 50


def test_parameters_are_stacked_in_the_members_order():
    population = Population(mlp, MEMBERS, (IMAGES.float(), LABELS))
    for m, member in enumerate(MEMBERS):
        torch.manual_seed(member.seed)
        fresh = mlp()
        for name, parameter in fresh.named_parameters():
            assert torch.equal(population.parameters[name][m], parameter)


def test_networks_may_be_given():
    nets = [mlp() for _ in MEMBERS]
    population = Population(nets, MEMBERS, (IMAGES.float(), LABELS))
    assert_equal_weights(population.model(2), nets[2])
    population.train(3, progress=False)
    assert not torch.equal(population.model(2)[1].weight, nets[2][1].weight)


def test_networks_held_partly_fixed():
    def build():
        net = models.ffnn([49, 4, 10]).double()
        nn.init.constant_(net[1].weight.requires_grad_(False), 0.1)
        return net

    population = Population(build, MEMBERS[:2], (IMAGES, LABELS))
    population.train(STEPS, progress=False)
    alone = twin(population, build, 0, STEPS, torch.optim.Adam, nn.functional.cross_entropy, (IMAGES, LABELS))
    assert_equal_weights(population.model(0), alone, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("build", [lambda: models.ffnn([49, 8, 10]), lambda: models.ffnn([49, 8, 10], "gelu")])
def test_members_that_diverge_are_frozen_and_reported(build):
    build = double(build)
    members = [Member(seed=1, lr=0.01), Member(seed=1, lr=1e8), Member(seed=2, lr=0.02), Member(seed=2, lr=1e4)]
    population = Population(build, members, (IMAGES, LABELS), optimizer="sgd")
    start = population.parameters
    population.train(100, progress=False)
    assert population.diverged.keys() == {1, 3}
    assert population.diverged[1] == 0
    measured = population.evaluate()
    assert torch.isnan(measured.loss).tolist() == [False, True, False, True]
    assert torch.isnan(measured.accuracy).tolist() == [False, True, False, True]
    for name, stacked in population.parameters.items():
        assert bool(torch.isfinite(stacked).all())
        assert torch.equal(stacked[1], start[name][1])
    alone = Population(build, members[:1], (IMAGES, LABELS), optimizer="sgd")
    alone.train(100, progress=False)
    assert_equal_weights(population.model(0), alone.model(0), rtol=1e-9, atol=1e-12)


def test_a_ceiling_catches_adam_which_never_overflows():
    members = [Member(seed=1, lr=0.01), Member(seed=1, lr=1e3)]
    population = Population(mlp, members, (IMAGES.float(), LABELS))
    population.train(64, progress=False)
    assert population.diverged == {1: 0}
    strict = Population(mlp, members, (IMAGES.float(), LABELS), ceiling=1e-3)
    strict.train(64, progress=False)
    assert strict.diverged == {0: 0, 1: 0}


@pytest.mark.parametrize(
    ("name", "optimizer"),
    [
        pytest.param("cnn", "adam", id="cnn-adam"),
        pytest.param("gelu", "adam", id="gelu-adam", marks=pytest.mark.slow),
        pytest.param("tanh", SGD(momentum=0.5), id="tanh-sgd"),
        pytest.param("tanh", OnlineNGD(momentum=0.5), id="tanh-online", marks=pytest.mark.slow),
    ],
)
def test_a_resumed_run_ends_in_the_same_bits(tmp_path, name, optimizer):
    build = NETWORKS[name][0]
    data = (IMAGES.float(), LABELS)
    members = [*MEMBERS, Member(seed=9, lr=1e9)]

    def make():
        return Population(build, members, data, optimizer=optimizer)

    undisturbed = make()
    undisturbed.train(150, progress=False)
    path = tmp_path / "run" / "population.npz"
    first = make()
    assert not first.train(150, checkpoint=path, seconds=1e-9, progress=False) or first.step == 150
    for stop in (64, 96):
        make().train(stop, checkpoint=path, progress=False)
    last = make()
    assert last.train(150, checkpoint=path, progress=False)
    assert undisturbed.step == last.step == 150
    for name, stacked in undisturbed.parameters.items():
        assert torch.equal(stacked, last.parameters[name])
    for slot, ours in undisturbed._state.slots.items():
        assert torch.equal(ours, last._state.slots[slot])
    assert undisturbed.diverged == last.diverged
    assert 4 in last.diverged
    assert [entry.name for entry in path.parent.iterdir()] == ["population.npz"]


KILLED = """
import sys, torch
from basinscope.training import Member, Population
from basinscope.zoo import models
torch.set_num_threads(1)
x = torch.linspace(0, 1, 60 * 49).view(60, 49)
members = [Member(seed=s, lr=0.01, batch_size=8) for s in range(3)]
population = Population(lambda: models.ffnn([49, 70, 10]), members, (x, torch.arange(60) % 10))
population.train(int(sys.argv[2]), checkpoint=sys.argv[1], save_every=1e-9, progress=False)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path):
    path = tmp_path / "population.npz"
    process = subprocess.Popen([sys.executable, "-c", KILLED, str(path), "10000000"])
    written = set()
    try:
        while len(written) < 3:  # in the middle of the run, and perhaps of the next checkpoint
            assert process.poll() is None, "the run ended by itself"
            if path.exists():
                written.add(path.stat().st_mtime_ns)
            time.sleep(0.001)
    finally:
        process.kill()
        process.wait()
    x = torch.linspace(0, 1, 60 * 49).view(60, 49)
    members = [Member(seed=s, lr=0.01, batch_size=8) for s in range(3)]
    resumed, undisturbed = (Population(mlp, members, (x, torch.arange(60) % 10)) for _ in range(2))
    resumed.load(path)
    stop = resumed.step + 40
    assert 0 < resumed.step < 10_000_000
    resumed.train(stop, checkpoint=path, progress=False)
    undisturbed.train(stop, progress=False)
    for name, stacked in undisturbed.parameters.items():
        assert torch.equal(stacked, resumed.parameters[name])


def test_a_population_can_go_back_to_a_checkpoint(tmp_path):
    population = Population(mlp, [Member(lr=0.01), Member(lr=1e3)], (IMAGES.float(), LABELS))
    population.save(tmp_path / "start.npz")
    population.train(40, progress=False)
    after = population.parameters
    assert population.diverged == {1: 0}
    population.load(tmp_path / "start.npz")
    assert population.step == 0
    assert population.diverged == {}
    population.train(40, progress=False)
    assert population.diverged == {1: 0}
    for name, stacked in population.parameters.items():
        assert torch.equal(stacked, after[name])


def test_checkpoints_of_others_are_refused(tmp_path):
    path = tmp_path / "population.npz"
    data = (IMAGES.float(), LABELS)
    Population(mlp, MEMBERS, data).train(2, checkpoint=path, progress=False)
    others = {
        "members: 4 there, 3 here": Population(mlp, MEMBERS[:3], data),
        "members: the first difference is at 0": Population(mlp, [MEMBERS[1], *MEMBERS[1:]], data),
        "data: ": Population(mlp, MEMBERS, (IMAGES.float() + 1, LABELS)),
        "optimizer: the first difference is at 0: Adam there, SGD here": Population(
            mlp, MEMBERS, data, optimizer="sgd"
        ),
        "parameters: ": Population(lambda: models.ffnn([49, 70, 70, 10]), MEMBERS, data),
    }
    for message, other in others.items():
        with pytest.raises(InputError, match=message):
            other.load(path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(InputError, match=r"population.npz is no checkpoint .* delete it to start afresh"):
        Population(mlp, MEMBERS, data).train(2, checkpoint=path, progress=False)
    with pytest.raises(InputError, match="is not there"):
        Population(mlp, MEMBERS, data).load(tmp_path / "nothing.npz")


def other_buffer():
    net = nn.Sequential(nn.Flatten(), nn.Linear(49, 10))
    net.register_buffer("scale", torch.rand(1))
    return net


class Reading(nn.Module):
    """Looks at the values of its input, which vmap cannot do."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(49, 10)

    def forward(self, x):
        return self.layer(x.flatten(1)) * (2.0 if x.sum().item() > 0 else 1.0)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda p: p(members=[]), "non-empty list of Member"),
        (lambda p: p(members=[{"seed": 1}]), "non-empty list of Member"),
        (lambda p: p(models=[mlp()]), "or 4 networks, got 1 networks"),
        (lambda p: p(models=mlp()), "got Sequential"),
        (lambda p: p(models=lambda: 3), "torch.nn.Modules, got int for member 0"),
        (
            lambda p: p(models=[mlp(), models.ffnn([49, 70, 70, 10]), *[mlp()] * 2]),
            "members must be of one architecture: member 1",
        ),
        (
            lambda p: p(models=[models.ffnn([49, 5, 10]), models.ffnn([49, 5, 10], "tanh")] * 2),
            "members must be of one architecture: member 1",
        ),
        (lambda p: p(models=other_buffer), "'scale' of member 1 differs"),
        (lambda p: p(models=lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(49, 10))), "dropout layer"),
        (lambda p: p(models=Reading), "cannot be batched over members"),
        (lambda p: p(members=[Member(subset=range(91))]), "sample numbers in 0..89, got torch.int64 .* values 0..90"),
        (lambda p: p(members=[Member(subset=[])]), "non-empty list of sample numbers"),
        (lambda p: p(members=[Member(subset=[0.5])]), "non-empty list of sample numbers"),
        (lambda p: p(members=[Member(subset="all")]), "must be sample numbers"),
        (lambda p: p(optimizer="lion"), "optimizer must be 'adam', 'sgd'"),
        (lambda p: p(optimizer=3), "got int"),
        (lambda p: p(memory=0), "memory must be a whole number of at least 1"),
        (lambda p: p(ceiling=-1), "ceiling must be a positive"),
        (lambda p: p().train(-1), "steps must be a whole number of at least 0"),
        (lambda p: p().train(1, seconds=0), "seconds must be a positive"),
        (lambda p: p().train(1, save_every=0), "save_every must be a positive"),
        (lambda p: p().model(4), "member must lie in 0..3, got 4"),
        (lambda p: p().evaluate(subsets=[None]), "one entry per member: expected 4, got 1"),
        (lambda p: Member(lr=0), "lr must be a positive finite number, got 0"),
        (lambda p: Member(lr=math.nan), "lr must be a positive finite number, got nan"),
        (lambda p: Member(weight_decay=-1), "weight_decay must be a finite number of at least 0, got -1"),
        (lambda p: Member(batch_size=0), "batch_size must be a whole number of at least 1, got 0"),
        (lambda p: Member(batch_size=2**22), "batch_size must be at most"),
        (lambda p: Member(seed=-1), "seed must be a whole number of at least 0"),
        (lambda p: Adam(betas=(0.9, 1.0)), "betas must be two numbers"),
        (lambda p: SGD(momentum=1.0), "momentum must lie in"),
        (lambda p: SGD(nesterov=True), "nesterov needs a momentum above 0"),
    ],
)
def test_bad_input(call, match):
    def make(models=mlp, members=MEMBERS, **settings):
        return Population(models, members, (IMAGES.float(), LABELS), **settings)

    with pytest.raises(InputError, match=match):
        call(make)


@pytest.mark.parametrize("name", ["mlp", "cnn"])
@pytest.mark.parametrize("held", [2**25, 22 * 5])
def test_the_order_of_work_on_a_gpu_changes_nothing(name, held, monkeypatch):
    """There the minibatches of many steps are drawn at once, and all rows take their step together."""
    monkeypatch.setattr(steps, "_MAX_INDICES", held)
    build = double(NETWORKS[name][0])
    here, there = (Population(build, MEMBERS, (IMAGES, LABELS)) for _ in range(2))
    here.train(64, progress=False)
    there._stepper._cuda = True
    for _ in range(2):
        there._stepper._block(32)
    assert there.step == 64
    for m in range(len(MEMBERS)):
        assert_equal_weights(there.model(m), here.model(m), rtol=1e-9, atol=1e-12)


@lacking.GPU.mark
@pytest.mark.parametrize("name", ["mlp", "cnn", "gelu"])
def test_cuda_graphs(tmp_path, name):
    build = double(NETWORKS[name][0])
    here, there, resumed = (
        Population(build, MEMBERS, (IMAGES, LABELS), device=device) for device in ("cpu", "cuda", "cuda")
    )
    here.train(STEPS, progress=False)
    there.train(STEPS, checkpoint=tmp_path / "population.npz", progress=False)
    for m in range(len(MEMBERS)):
        assert_equal_weights(there.model(m).cpu(), here.model(m), rtol=1e-6, atol=1e-8)
    there.train(100, progress=False)
    resumed.train(100, checkpoint=tmp_path / "population.npz", progress=False)
    for name, stacked in there.parameters.items():
        assert torch.equal(stacked, resumed.parameters[name])
