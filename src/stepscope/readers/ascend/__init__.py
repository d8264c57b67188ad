"""Formats of Ascend's tools."""
