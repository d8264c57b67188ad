"""Commands that find and write files."""
