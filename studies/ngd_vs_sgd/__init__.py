"""Does natural gradient find less degenerate solutions than SGD?

The figures of Saghir et al., and beyond.
"""
