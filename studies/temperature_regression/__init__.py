"""λ̂ as the slope of the loss in temperature, beside exact values."""
