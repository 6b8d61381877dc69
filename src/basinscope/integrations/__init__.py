"""Basinscope inside other tools; each needs an extra of its own."""
