"""Devices: peaks of chips, and what kernels compute, by their names."""
