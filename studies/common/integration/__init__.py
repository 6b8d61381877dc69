"""Posteriors of small singular models by exact integration."""
