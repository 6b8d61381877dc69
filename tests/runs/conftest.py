"""The kills are shared with the benchmark, whose modules are found through their folder."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
