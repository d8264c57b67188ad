"""Building blocks of the exporters."""
