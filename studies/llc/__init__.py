"""The learning coefficient from toy models to transformers.

The experiments of paper 003, and beyond.
"""
