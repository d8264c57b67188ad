"""Windows: what is recorded from start to stop, by which collectors, and when."""
