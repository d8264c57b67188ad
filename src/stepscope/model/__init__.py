"""Data model: tables, Trace, intervals, units."""
