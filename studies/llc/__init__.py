"""The learning coefficient from toy models to transformers.

The experiments of paper 003, and beyond.

`study` declares it for `basinscope study`; `python -m studies.llc` runs the same jobs with little but torch and
NumPy, for machines that have no more.
"""
