"""The trace of Chrome events as torch.profiler (Kineto) writes them."""
