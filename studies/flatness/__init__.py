"""Does flatness tell how well a network generalizes?

The table and figures of Shoham et al., and beyond.
"""
