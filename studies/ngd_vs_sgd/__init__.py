"""Does natural gradient find less degenerate solutions than SGD?

The figures of papers 000/001, and beyond.

`study` declares it for `basinscope study`; `python -m studies.ngd_vs_sgd` runs the same jobs with little but torch and
NumPy, for machines that have no more.
"""
