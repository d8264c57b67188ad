"""MindInsight `profiler` folders."""
