"""Budgets in seconds of a clock, in arithmetic, and as they once were."""

import json
import math

import pytest

import basinscope as bs
from basins import classifier, quadratic
from basinscope.sampling import clock as clocks
from basinscope.sampling import engine, local, unadjusted
from basinscope.sampling.calibration import Resolution
from basinscope.sampling.clock import Nominal, NominalClock, Schedule, WallClock, clock_of
from basinscope.sampling.cost import Cost, measured_cost
from basinscope.sampling.local import Sampler, Settings

AT = Resolution(40.0, 2.0)


def silent(fraction, text):
    """No report."""


class Machine:
    """A time source that goes on by a little at every look, and by more for every step that is taken."""

    def __init__(self, monkeypatch, step=0.01, look=1e-5):
        self.time, self._look = 100.0, look
        run = engine.Engine.run

        def slow(chains, steps):
            self.time += step * steps
            return run(chains, steps)

        monkeypatch.setattr(engine.Engine, "run", slow)
        monkeypatch.setattr(clocks, "default_clock", lambda seconds: WallClock(seconds, self))

    def __call__(self):
        self.time += self._look
        return self.time


def test_time_passes_only_while_something_is_measured():
    now = iter([1.0, 3.0, 10.0, 12.5]).__next__
    clock = WallClock(60.0, now)
    with clock.running(), clock.running():
        pass
    assert clock.spent() == pytest.approx(2.0)
    with clock.running():
        pass
    assert clock.left() == pytest.approx(60 - 4.5)


def test_a_clock_gives_its_answers_again():
    times = iter([0.0, 0.25, 1.0, 1.125, 2.0])
    wall = WallClock(10.0, times.__next__)
    work = []
    with wall.running():
        first = [wall.spent(), wall.price(lambda: work.append(1), lambda: 7.0)]
    first.append(wall.spent())
    assert first == [0.25, 0.125, 2.0]
    schedule = Schedule.from_dict(json.loads(json.dumps(wall.schedule.to_dict())))
    assert schedule == wall.schedule == Schedule(10.0, (0.25, 0.125, 2.0))
    replay = clock_of(schedule)
    assert [replay.spent(), replay.price(lambda: work.append(1), lambda: 7.0), replay.spent()] == first
    assert replay.left() == 0.0, "there is nothing left after the last answer"
    with pytest.raises(bs.InputError, match="of another landscape or other settings"):
        replay.price(lambda: None, lambda: 7.0)
    assert work == [
        1,
        1,
    ]


def test_nominal_seconds_are_counted():
    clock = clock_of(Nominal(3.0))
    clock.spend(1.0)
    assert (clock.left(), clock.schedule) == (2.0, None)
    assert clock.price(lambda: 1 / 0, lambda: 7.0) == 7.0, "nothing is timed"
    clock.renew(5.0)
    assert clock.left() == 5.0
    assert 0.25 * Nominal(8) == Nominal(2.0)
    assert type(0.25 * Nominal(8)) is Nominal


@pytest.mark.parametrize("budget", [0, -1.0, math.nan, math.inf, "60", Nominal(-1)])
def test_budgets_are_positive_numbers(budget):
    with pytest.raises(bs.InputError, match="budget must be a positive finite number"):
        Settings(budget=budget)


def test_what_samples_cost_is_found_from_what_evaluations_take():
    losses = Sampler(classifier(n=3000), Settings(budget=Nominal(1.0))).losses
    true = Cost(fixed=2e-3, each=1e-5)
    shapes = []

    class Timed(NominalClock):
        def price(self, work, nominal):
            minibatch = losses.minibatch
            losses.minibatch = lambda delta, indices: shapes.append(indices.shape) or minibatch(delta, indices)
            work()
            losses.minibatch = minibatch
            return true.of(shapes[-1][1], shapes[-1][0])

    found = measured_cost(losses, Timed(10.0))
    assert (found.fixed, found.each) == (pytest.approx(true.fixed), pytest.approx(true.each))
    assert max(samples for _, samples in shapes) < 3000, "no more samples than tell"


@pytest.mark.parametrize("sampler", ["hmc", "minibatch", "sgld"])
def test_a_run_ends_with_its_seconds(sampler, monkeypatch):
    machine = Machine(monkeypatch, step=4e-3)
    settings = Settings(sampler, rtol=1e-5, budget=1.0, seed=0)
    started = machine.time
    land = quadratic([1.0, 0.5, 0.1], n=200, noise=0.5)
    outcome = Sampler(land, settings).run(AT, silent)
    assert outcome.exhausted
    assert 0.8 < machine.time - started < 1.1
    assert outcome.seconds == pytest.approx(machine.time - started, abs=0.01)


@pytest.mark.parametrize("sampler", ["hmc", "minibatch"])
def test_a_schedule_repeats_a_run_bit_for_bit(sampler, monkeypatch):
    """The second machine is twice as fast, and does the same."""
    land = quadratic([1.0, 0.5, 0.1], n=200, noise=0.5)
    Machine(monkeypatch, step=8e-3)
    est = bs.llc(land, nbeta=40.0, gamma=2.0, sampler=sampler, rtol=1e-5, budget=1.0, progress=False)
    schedule = Schedule.from_dict(est.diagnostics["schedule"])
    assert len(schedule.answers) < 400, "compact"
    Machine(monkeypatch, step=4e-3)
    again = bs.llc(land, nbeta=40.0, gamma=2.0, sampler=sampler, rtol=1e-5, budget=schedule, progress=False)
    other = bs.llc(land, nbeta=40.0, gamma=2.0, sampler=sampler, rtol=1e-5, budget=1.0, progress=False)
    assert (again.value, again.stderr, again.diagnostics["draws"]) == (est.value, est.stderr, est.diagnostics["draws"])
    assert other.diagnostics["draws"] > est.diagnostics["draws"]
    assert Schedule.from_dict(again.diagnostics["schedule"]) == schedule


def test_every_run_of_a_sampler_has_the_budget(monkeypatch):
    machine = Machine(monkeypatch, step=5e-3)
    sampler = Sampler(quadratic([1.0, 0.5], n=200), Settings("hmc", rtol=1e-6, budget=1.0))
    for _ in range(2):
        started = machine.time
        sampler.run(AT, silent)
        assert 0.8 < machine.time - started < 1.2
        machine.time += 50.0  # somebody has a coffee


@pytest.mark.parametrize("sampler", ["hmc", "minibatch"])
def test_an_interrupted_run_returns_what_there_is(sampler, monkeypatch):
    """Whenever it comes after the first draws: minibatch chains may still be looking for the posterior then."""
    land = quadratic([1.0, 0.5, 0.1], n=2000, noise=0.5)
    texts = []

    def interrupt(fraction, text):
        texts.append(text)
        if "λ̂" in text:
            raise KeyboardInterrupt

    monkeypatch.setattr(unadjusted, "RELAXATIONS", 1e6)  # a search that takes its share of the time
    outcome = Sampler(land, Settings(sampler, rtol=1e-6, budget=2.0)).run(AT, interrupt)
    assert outcome.interrupted
    assert math.isfinite(outcome.excess)
    assert outcome.stderr > 0
    if sampler == "minibatch":
        assert "looking for the posterior" in texts[-2]
        assert len(outcome.runs) == 1


def test_progress_tells_the_phase_the_mean_and_the_time_left_and_ends_at_all_of_it():
    seen = []
    Sampler(quadratic([1.0, 0.5]), Settings("hmc", budget=2.0)).run(AT, lambda *told: seen.append(told))
    assert seen[-1] == (1.0, "done")
    assert any("draws, λ̂" in text and "±" in text and "left" in text for _, text in seen)
    shares = [share for share, _ in seen]
    assert shares == sorted(shares)


def test_a_plan_says_what_will_be_done_before_anything_is(monkeypatch):
    monkeypatch.setattr(local, "geometry", lambda *given: 1 / 0)
    land = classifier(n=3000)
    rich, poor = (Sampler(land, Settings(budget=budget)).plan() for budget in (60.0, 0.02))
    assert rich.sampler == "hmc"
    assert rich.warning is None
    assert "transitions on all 3,000 samples" in str(rich)
    assert poor.sampler == "minibatch"
    assert poor.seconds == poor.least_seconds > 0.02
    assert "least useful cost" in str(poor)
    many = Sampler(land, Settings("minibatch", budget=60.0)).plan()
    assert (many.batch_size, many.chains) == (512, 24)
    few = Sampler(land, Settings("minibatch", budget=0.5)).plan()
    assert few.batch_size * few.chains < many.batch_size * many.chains


def test_a_budget_below_the_least_useful_cost_is_told_of_at_once():
    seen = []
    sampler = Sampler(classifier(n=3000), Settings(budget=0.02))
    outcome = sampler.run(Resolution(100.0, 1.0), lambda *told: seen.append(told))
    assert "least useful cost" in seen[0][1]
    assert math.isfinite(outcome.excess), "the least is done"
