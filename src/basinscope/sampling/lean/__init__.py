"""The lean walk: chains of a large network, one after another on its own weights, with two arrays of its size."""
