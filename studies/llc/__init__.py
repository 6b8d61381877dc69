"""The learning coefficient from toy models to transformers.

The experiments of Lau et al. (2023), and beyond.
"""
