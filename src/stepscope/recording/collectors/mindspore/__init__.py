"""MindSpore collector."""
