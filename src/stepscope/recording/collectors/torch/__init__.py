"""PyTorch collector."""
