"""The local posterior ∝ exp(−nβ L_n(w) − (γ/2)‖w − w*‖²) and the chains that sample it."""
