"""Rules for copies of data."""
