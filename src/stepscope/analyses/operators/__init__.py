"""Operators, kernels and modules."""
