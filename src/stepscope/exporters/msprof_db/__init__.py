"""msprof database."""
