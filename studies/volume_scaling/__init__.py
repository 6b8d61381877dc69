"""Learning coefficients from how volumes shrink, beside exact ones; and NUTS and the engine beside exact moments."""
