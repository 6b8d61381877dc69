"""Does flatness tell how well a network generalizes?

The table and figures of paper 004, and beyond.

`study` declares it for `basinscope study`; `python -m studies.flatness` runs the same jobs with little but torch and
NumPy, for machines that have no more.
"""
