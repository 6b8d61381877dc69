"""The studies that come with Basinscope, by name. Nothing is loaded before it is asked for."""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """A study that can be run by name: where it is, and what it asks."""

    reference: str
    title: str


CATALOGUE = {
    "quadratics": Known("basinscope.studies.quadratics:STUDY", "λ̂ of quadratic basins beside its exact value"),
}
