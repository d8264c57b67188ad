"""The server of `stepscope view`: finds runs, opens them and serves the tables of the analyses. It computes nothing."""

# The pages of one run, in the order of the menu, which a report and a notebook can open. A test compares them with the front end.
RUN_PAGES = (
    *("overview", "steps", "operators", "flame", "functions", "kernels", "flops", "data", "timeline"),
    *("cpu", "memory", "cluster", "hangs", "communication", "advice", "files"),
)
