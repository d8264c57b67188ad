"""CPU and Python functions."""
