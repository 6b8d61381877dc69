"""Does flatness tell how well a network generalizes?

The table and figures of paper 004, and beyond.
"""
