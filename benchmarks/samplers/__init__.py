"""Samplers beside each other on landscapes with exact answers: error against the number of gradients."""
