"""λ from formulas beside λ̂ from samples: depth, ReLU groups, and what γ decides."""
