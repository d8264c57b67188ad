"""Sentences of `verdict` and `advice`, in each language."""
