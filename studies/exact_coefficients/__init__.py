"""Learning coefficients from formulas beside λ̂ from samples: depth, the additive rule of ReLU, and what γ decides."""
