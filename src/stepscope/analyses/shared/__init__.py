"""Building blocks of the analyses."""
