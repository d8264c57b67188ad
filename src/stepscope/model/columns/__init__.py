"""Columns that need more than a type: counters, details of spans, and the comments of all."""
