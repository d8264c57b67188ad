"""Commands that show, compare and query results."""
