"""SQLite databases of Ascend's tools."""
