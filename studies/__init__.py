"""Experiments: what papers report, and what is measured here beside it. One folder a study; results in `results/`."""
