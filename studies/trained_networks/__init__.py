"""Null directions and double descent of ReLU networks on the digits."""
