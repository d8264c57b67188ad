"""Marey graphs of MindInsight clusters."""
