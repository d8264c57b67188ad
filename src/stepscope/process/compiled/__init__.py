"""Compiled code for the loops that no array operation can express, each with a Python path that gives the same result."""
