"""The check of the documentation's words finds what it should, and finds nothing in this repository."""

import doctest
import importlib.util

import pytest

from documented import ROOT

spec = importlib.util.spec_from_file_location("readability", ROOT / "docs" / "readability.py")
readability = importlib.util.module_from_spec(spec)
spec.loader.exec_module(readability)


def test_its_examples_run():
    assert doctest.testmod(readability).failed == 0


def test_pages_and_warnings_can_be_read():
    assert [*readability.everything()] == []


@pytest.mark.parametrize(
    ("text", "trouble"),
    [
        ("One " + "more " * 40 + "word.", "42 words"),
        ("One " + "`code and more` " * 40 + "word.", "42 words"),
        ("The XYZW is small.", "XYZW is not in the glossary"),
        ("The WAIC is small. It is " + "very " * 36 + "small.", None),
    ],
)
def test_what_cannot_be_read_is_found(text, trouble):
    found = [finding.trouble for finding in readability.findings("page", 1, text, {"WAIC"})]
    assert all(each.startswith(trouble) for each in found) if trouble else found == []
    assert len(found) == (trouble is not None)


def test_every_abbreviation_of_a_warning_is_looked_at():
    source = "check_precision(1.0, 2.0, 'the XYZW', 'raise budget' if deep else 'lower ZZZZ')"
    assert {text for _, text in readability.warnings(source)} == {"the XYZW", "raise budget", "lower ZZZZ"}
