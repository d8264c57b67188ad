"""Rules for the precision of numbers."""
