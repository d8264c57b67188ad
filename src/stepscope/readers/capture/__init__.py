"""Captures: the raw files of stepscope's own recordings."""
