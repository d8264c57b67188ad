"""MindInsight `profiler` folder."""
