"""A trace as a picture: lanes of rows of events, and tiles of what can be seen of them at any zoom.

`lanes.build` makes a Timeline of a trace, `keeping` keeps a large one on disk, `tiles` writes what a client draws, `asking` answers it.
"""
