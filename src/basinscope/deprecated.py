"""Names that have changed: the old ones still work, and say what they are called now."""

from __future__ import annotations

import warnings


def warn_renamed(old: str, new: str, above: int = 1) -> None:
    """Warn the caller of the function that is so many calls above this one.

    Examples:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     warn_renamed("curvature", "matrix")
        >>> str(caught[0].message)
        'curvature is now called matrix: use that name, the old one will go'
    """
    warnings.warn(
        f"{old} is now called {new}: use that name, the old one will go", DeprecationWarning, stacklevel=2 + above
    )
