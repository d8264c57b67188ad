"""The process itself: worker processes, its memory, the recording clock, notices and control characters of the terminal."""
