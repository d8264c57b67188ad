"""Rules for differences between steps."""
