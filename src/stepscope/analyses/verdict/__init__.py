"""Conclusions of all pages and of the terminal, one module per topic."""
