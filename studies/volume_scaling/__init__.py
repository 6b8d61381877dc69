"""λ̂ from how volumes shrink, and samplers, beside exact values."""
