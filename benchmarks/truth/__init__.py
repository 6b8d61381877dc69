"""Landscapes whose local posterior mean is known: what `ground_truth.py` measures the estimators against."""
