"""msprof text export."""
