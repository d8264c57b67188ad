"""Captures: what a recording of ours leaves."""
