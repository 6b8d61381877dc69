"""Reports: one page that needs nothing else, tables for programs, and a live page over a store of runs."""

from .report import Report as Report

__all__ = ["Report"]
