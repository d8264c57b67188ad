"""The server behind `stepscope view`: it finds runs, opens them, and hands out what the analyses say. It computes nothing itself."""

# The pages that one run fills, in the order of the menu: what a report and a notebook can open. A test compares them with the front end.
RUN_PAGES = (
    *("overview", "steps", "operators", "functions", "kernels", "flops", "data", "timeline"),
    *("cpu", "memory", "communication", "advice", "files"),
)
