"""Toy models of superposition: k-gons whose λ is known, and trainings that jump from one to the next."""
