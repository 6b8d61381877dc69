"""Transformers growing up: on text, and on linear regression in context."""
