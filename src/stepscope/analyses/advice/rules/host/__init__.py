"""Rules for the host: launches, synchronization, Python."""
