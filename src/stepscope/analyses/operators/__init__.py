"""Operators, kernels, modules and FLOPs."""
