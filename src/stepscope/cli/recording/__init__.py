"""Commands that record jobs."""
