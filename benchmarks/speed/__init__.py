"""Basinscope side by side with devinterp: time per draw, and error against time."""
