"""Sessions of torch.profiler: their control, their size, and their events on disk."""
