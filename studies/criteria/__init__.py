"""Criteria and their asymptotic laws: what theory predicts beside what is found."""
