"""The rows of a timeline under construction: from spans to columns."""
