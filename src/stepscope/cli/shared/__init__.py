"""Building blocks of the commands."""
