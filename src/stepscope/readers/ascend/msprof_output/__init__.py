"""Exports of msprof."""
