import time

import pytest

from basinscope import progress
from basinscope.progress import part, tracked


@pytest.fixture
def at_once(monkeypatch):
    """Progress appears as soon as a job begins."""
    monkeypatch.setattr(progress, "_MIN_SECONDS", 0.0)


def until(condition):
    ends = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


def test_short_jobs_are_silent(monkeypatch, capfd):
    monkeypatch.setattr(progress, "_MIN_SECONDS", 3600.0)
    with tracked("job") as report:
        report(0.5, "half way")
    assert capfd.readouterr() == ("", "")


def test_it_can_be_switched_off(at_once, capfd):
    with tracked("job", enabled=False) as report:
        report(0.5, "half way")
    assert capfd.readouterr() == ("", "")


def test_a_file_gets_plain_lines_from_the_first_second_to_the_end(at_once, monkeypatch, capfd):
    monkeypatch.setattr(progress, "_SELDOM", -1.0)
    written = ""

    def begun():
        nonlocal written
        written += capfd.readouterr().err
        return "job: 0% after" in written

    with tracked("job") as report:
        until(begun)  # though nothing has been reported
        report(0.5, "λ̂ 3.1 ± 0.2, at most 5 s left")
        report(0.4, "bars do not go back")
    output, errors = capfd.readouterr()
    assert output == ""
    lines = (written + errors).splitlines()
    assert [line.split(" after ")[0] for line in lines] == ["job: 0%", "job: 50%", "job: 50%", "job: 100%"]
    assert lines[1].endswith("λ̂ 3.1 ± 0.2, at most 5 s left")
    assert "\x1b" not in written + errors


def test_a_file_gets_few_lines(at_once, monkeypatch, capfd):
    monkeypatch.setattr(progress, "_SELDOM", 3600.0)
    with tracked("job") as report:
        until(lambda: "0%" in capfd.readouterr().err)
        for step in range(100):
            report(step / 50, "on the way")  # what takes longer than was thought stays at 100 %
    assert [line.split(" after ")[0] for line in capfd.readouterr().err.splitlines()] == ["job: 100%"]


def test_long_jobs_show_a_bar_that_ends_at_all_of_it(at_once, monkeypatch, capfd):
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, as far as rich can tell
    ended = []
    monkeypatch.setattr(progress._Bar, "end", lambda self: ended.append((self._bar.stop(), self._furthest)))
    with tracked("measuring") as report:
        report(0.5, "half way")
        report(2.0, "beyond the end")
    output, errors = capfd.readouterr()
    assert output == ""
    assert "measuring" in errors
    assert ended == [(None, 1.0)]


def test_the_parts_of_a_job_share_its_bar(at_once, monkeypatch, capfd):
    monkeypatch.setattr(progress, "_SELDOM", -1.0)
    with tracked("measure") as whole:
        until(lambda: "0%" in capfd.readouterr().err)
        with part(whole, 0.0, 0.5), tracked("llc") as report:
            report(0.5, "chains")
        with part(whole, 0.5, 1.0), tracked("curvature") as report:
            report(0.5, "trace")
    lines = [line.split(" after ") for line in capfd.readouterr().err.splitlines()]
    assert [share for share, _ in lines] == ["measure: 25%", "measure: 75%", "measure: 100%"]
    assert lines[0][1].endswith("llc: chains")


def test_an_interruption_passes_and_the_bar_goes(at_once, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")

    def job():
        with tracked("job") as report:
            report(0.1, "on the way")
            raise KeyboardInterrupt

    for _ in range(2):  # a bar left behind would forbid the next one
        with pytest.raises(KeyboardInterrupt):
            job()
