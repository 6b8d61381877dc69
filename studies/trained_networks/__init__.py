"""Trained ReLU networks on the digits: a census of null directions, and double descent over width."""
