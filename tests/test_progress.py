import pytest

from basinscope import progress
from basinscope.progress import tracked


def test_short_jobs_are_silent(capfd):
    with tracked("job") as report:
        report(0.5, "half way")
    assert capfd.readouterr() == ("", "")


def test_it_can_be_switched_off(monkeypatch, capfd):
    monkeypatch.setattr(progress, "_MIN_SECONDS", -1.0)
    with tracked("job", enabled=False) as report:
        report(0.5, "half way")
    assert capfd.readouterr() == ("", "")


def test_a_file_gets_no_bar(monkeypatch, capfd):
    monkeypatch.setattr(progress, "_MIN_SECONDS", -1.0)
    with tracked("job") as report:
        report(0.5, "half way")
    assert capfd.readouterr() == ("", "")


def test_long_jobs_show_a_bar_on_standard_error(monkeypatch, capfd):
    monkeypatch.setattr(progress, "_MIN_SECONDS", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, as far as rich can tell
    with tracked("measuring") as report:
        report(0.5, "half way")
        report(2.0, "beyond the end")
    output, errors = capfd.readouterr()
    assert output == ""
    assert "measuring" in errors


def test_an_interruption_passes_and_the_bar_goes(monkeypatch):
    monkeypatch.setattr(progress, "_MIN_SECONDS", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")

    def job():
        with tracked("job") as report:
            report(0.1, "on the way")
            raise KeyboardInterrupt

    for _ in range(2):  # a bar left behind would forbid the next one
        with pytest.raises(KeyboardInterrupt):
            job()
