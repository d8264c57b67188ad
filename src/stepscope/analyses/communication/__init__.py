"""Communication and ranks."""
