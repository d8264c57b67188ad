"""Parallelism: which ranks do what, and how evenly."""
