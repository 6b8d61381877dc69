"""Entropy-SGD against SGD: what of the published difference of λ̂ is resolution, length, and step size."""
