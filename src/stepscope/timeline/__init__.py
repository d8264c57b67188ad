"""The timeline of a trace: tracks with rows of spans, and tiles that show them at any zoom.

`layout.build` makes a Timeline from a trace, `cache` stores large ones on disk, `tiles` encodes the parts that a client draws,
and `details`, `search`, `aggregate`, `arrows` and `critical_path` answer questions about it.
"""
