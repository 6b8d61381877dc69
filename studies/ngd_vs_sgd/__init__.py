"""Does natural gradient find less degenerate solutions than SGD?

The figures of papers 000/001, and beyond.
"""
