"""Samplers of other packages, each run by a worker in an environment of its own."""
