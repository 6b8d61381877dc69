"""The list of landscapes."""

from __future__ import annotations

from .case import Case
from .crossing import Crossing
from .network import Network
from .regression import Displaced, Regression

QUADRATICS: tuple[Case, ...] = (
    Regression(2, 1),
    Regression(2, 1e6, double=True),
    Regression(5, 10, noise=0, n=500),
    Regression(5, 1e3, size=0),
    Regression(10, 1e2, size=0.1),
    Regression(10, 1e4, top=1e4),
    Regression(10, 1e6, top=1e6, n=5000),
    Regression(20, 1e6, noise=0),
    Regression(20, 1e6, top=1e3, n=2000, double=True),
    Regression(20, 10, flat=8),
    Regression(50, 1, size=3),
    Regression(50, 1e3),
    Regression(50, 1e6, top=1e4, noise=0, n=5000),
    Regression(100, 1e2, flat=50, noise=0),
    Regression(100, 1e4, n=5000),
    Regression(100, 1e6, top=1e2),
    Regression(10, 1e2, outputs=10),
    Regression(20, 1e4, top=10, outputs=20, n=2000),
    Regression(200, 1e5, top=1e2, n=2000),
    Regression(300, 10, n=3000, size=0.3),
    Regression(500, 1, n=2000, noise=0),
    Regression(500, 1e6, top=1e3, n=5000),
)

CROSSINGS: tuple[Case, ...] = (
    Crossing((1, 1)),
    Crossing((1, 1), n=5000, noise=0),
    Crossing((1, 1), n=60000, double=True),
    Crossing((2, 1)),
    Crossing((2, 2), noise=0),
    Crossing((3, 1)),
    Crossing((1, 1, 1)),
    Crossing((2, 1, 1), n=5000),
    Crossing((2, 2, 1), noise=0),
    Crossing((3, 2, 1), double=True),
    Crossing((1, 1), (1, 0)),
    Crossing((1, 1), (1, 1)),
    Crossing((1, 1), (4, 0.25), n=5000),
    Crossing((2, 1), (0, 1)),
    Crossing((1, 1, 1), (1, 0, 0)),
    Crossing((1, 1, 1), (1, 1, 1), noise=0),
)

PRODUCTS: tuple[Case, ...] = (
    Network((2, 1, 1), 0, "origin"),
    Network((2, 2, 2), 0, "origin"),
    Network((3, 2, 2), 0, "origin", noise="none"),
    Network((3, 2, 3), 0, "origin", n=5000),
    Network((2, 6, 3), 0, "origin"),
    Network((8, 2, 8), 0, "origin", double=True),
    Network((10, 4, 12), 0, "origin", n=5000),
)

NETWORKS: tuple[Case, ...] = (
    # two layers
    Network((5, 5, 5), 0, "origin", noise="none"),
    Network((5, 5, 5), 1, size=4, double=True),
    Network((5, 5, 5), 2, "generic"),
    Network((5, 5, 5), 5, "generic", "fitted"),
    Network((10, 5, 10), 3),
    Network((10, 5, 10), 3, bias=True),
    Network((10, 5, 10), 5, "generic", "fitted", n=500),
    Network((10, 10, 10), 10, "balanced", "fitted", condition=1e4, size=2),
    Network((20, 10, 20), 0, "origin", condition=1e4),
    Network((20, 10, 20), 4, condition=1e4, size=3),
    Network((20, 10, 20), 10, "generic", "fitted", condition=1e4, n=2000),
    Network((30, 20, 10), 0, "generic"),
    Network((30, 20, 10), 5, "generic", "none"),
    Network((50, 50, 50), 0, "origin"),
    Network((50, 50, 50), 25, n=5000),
    Network((100, 40, 60), 20, "generic", n=5000),
    Network((70, 70, 70), 70, "generic", "fitted", n=5000),
    # three
    Network((5, 4, 4, 5), 0, "origin"),
    Network((6, 6, 6, 6), 2, size=3),
    Network((8, 4, 4, 8), 4, "generic", "fitted", double=True),
    Network((8, 8, 8, 8), 8, "balanced", "fitted", bias=True),
    Network((10, 20, 20, 5), 5, "generic", "fitted"),
    Network((10, 10, 10, 10), 0, "origin", condition=1e4),
    Network((10, 10, 10, 10), 4, "generic", "none", n=500),
    Network((20, 20, 20, 20), 10, n=2000, size=2),
    Network((40, 40, 40, 40), 20, "balanced", "none", n=3000),
    Network((57, 57, 57, 57), 57, "generic", "fitted", n=5000),
    # four
    Network((4, 4, 4, 4, 4), 1, "balanced", "none", size=2),
    Network((10, 8, 6, 8, 10), 6, "generic", "fitted"),
    Network((10, 10, 10, 10, 10), 5, condition=1e4, size=2),
    Network((15, 15, 15, 15, 15), 0, "origin"),
    Network((50, 50, 50, 50, 50), 25, n=5000),
    Network((50, 50, 50, 50, 50), 0, "origin", noise="none"),
    # five
    Network((5, 5, 5, 5, 5, 5), 0, "origin", noise="none", double=True),
    Network((8, 8, 8, 8, 8, 8), 3),
    Network((12, 10, 8, 8, 10, 12), 8, "generic", "fitted"),
    Network((20, 20, 20, 20, 20, 20), 20, "balanced", "fitted", condition=1e4, n=2000),
    # six
    Network((3, 3, 3, 3, 3, 3, 3), 0, "origin"),
    Network((5, 5, 5, 5, 5, 5, 5), 2, size=4),
    Network((10, 10, 10, 10, 10, 10, 10), 10, "balanced", "fitted", n=2000),
    Network((20, 20, 20, 20, 20, 20, 20), 10, n=2000),
    Network((40, 40, 40, 40, 40, 40, 40), 10, n=5000, size=3),
)

FULL_BATCH: tuple[Case, ...] = QUADRATICS + CROSSINGS + PRODUCTS + NETWORKS

LARGE = 100_000

MINIBATCH: tuple[Case, ...] = (
    Regression(50, 1e2, n=LARGE),
    Regression(200, 1e3, n=LARGE, top=10),
    Regression(400, 10, n=LARGE, size=0.3),
    Regression(40, 1e4, n=LARGE, outputs=50),
    Network((5, 5, 5), 0, "origin", n=LARGE),
    Network((10, 5, 10), 5, "generic", "fitted", n=LARGE),
    Network((10, 10, 10), 3, n=LARGE),
    Network((20, 20, 20), 20, "balanced", "fitted", n=LARGE, condition=1e2),
    Network((30, 30, 30), 10, n=LARGE, size=2),
    Network((10, 10, 10, 10), 5, n=LARGE),
    Network((12, 12, 12, 12, 12), 12, "balanced", "fitted", n=LARGE),
)

# Fifty to six hundred parameters on 20,000 samples, to be localised with γ = 1.
DEEP: tuple[Case, ...] = (
    Network((5, 5, 5), 2, n=20_000),
    Network((8, 4, 8), 0, "origin", n=20_000),
    Network((10, 5, 10), 5, "generic", "fitted", n=20_000),
    Network((6, 6, 6, 6), 2, "generic", n=20_000),
    Network((10, 8, 10), 4, "generic", n=20_000),
    Network((8, 6, 6, 6, 8), 4, n=20_000),
    Network((14, 10, 14), 7, n=20_000),
    Network((12, 10, 10, 12), 6, "generic", n=20_000),
    Network((16, 12, 16), 0, "origin", n=20_000),
    Network((20, 15, 20), 10, n=20_000, condition=1e2),
)

# What intervals are tried on: slow modes among thousands of directions, points that are no minimum, crossings.
COVERAGE: tuple[Case, ...] = (
    Regression(12, 1e4, n=2000),
    Regression(40, 1e2, flat=15, n=2000),
    Regression(1100, 1e5, n=1500),
    Regression(10, 1e3, outputs=6, n=5000),
    Displaced(20, 10, n=2000),
    Displaced(1100, 1e3, n=1500),
    Crossing((1, 1)),
    Crossing((2, 1)),
    Crossing((2, 2, 1), noise=0),
    Crossing((1, 1), (4, 0.25), n=5000),
    Network((5, 5, 5), 2, "generic"),
    Network((8, 2, 8), 0, "origin"),
    Network((10, 5, 10), 3, n=5000),
    Network((6, 6, 6, 6), 2, size=3),
)


def select(cases: tuple[Case, ...], pattern: str | None) -> tuple[Case, ...]:
    """The cases whose name contains the pattern."""
    return tuple(case for case in cases if pattern is None or pattern in case.name)
