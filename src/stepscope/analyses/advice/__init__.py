"""Advice: what costs time, how much the step gains without it, and how to fix it. One rule per file in `rules`."""
