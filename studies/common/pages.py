"""Sentences that the pages of several studies have."""

from __future__ import annotations

from collections.abc import Iterable


def data_and_scale(data: Iterable[str]) -> tuple[str, str]:
    """The names of the data sets, and what is to be said of the smoke scale where they are its own.

    Examples:
        >>> data_and_scale(["mnist", "svhn", "mnist"])
        ('mnist, svhn', '')
    """
    names = ", ".join(dict.fromkeys(data))
    small = " This is the smoke scale: it shows that the study runs, and settles nothing." if "digits" in names else ""
    return names, small
