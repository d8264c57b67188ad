"""Comparison of two runs or sets of runs: what changed per step, by how much, and whether it is more than noise."""
