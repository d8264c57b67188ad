"""Where the pages of `stepscope view` show what a tool answered."""

import shlex
from typing import Any
from urllib.parse import quote, urlencode

from stepscope.server.runs import Run

# The page of each analysis; others are shown by the query page.
_PAGES = {
    "advice": ("advice", "floors", "whatif"),
    "communication": ("cluster_steps", "communication", "links", "strategy"),
    "cpu": ("cpu", "cpu_use"),
    "data": ("data_pipeline", "data_queues", "queue_samples", "queues"),
    "flops": ("flops", "flops_by_scope", "roofline"),
    "functions": ("annotations", "hot_functions", "hot_paths"),
    "kernels": ("kernels", "launches"),
    "memory": ("allocations_by_op", "live_tensors", "memory", "memory_by_category", "memory_peaks"),
    "operators": ("callers", "durations", "instances", "operator_steps", "operator_types", "operators", "totals"),
    "overview": ("gap_causes", "gaps", "overview", "verdict"),
    "steps": ("overlap", "reduces", "reduces_per_step", "step_markers", "step_operators", "step_times", "step_trace"),
}
_PAGE_OF = {name: page for page, names in _PAGES.items() for name in names}


def of_analysis(run: Run, name: str, rank: int | None, steps: str | None) -> dict[str, str]:
    if name in _PAGE_OF:
        return of_page(run, _PAGE_OF[name], rank=rank, steps=steps)
    return of_page(run, "query", rank=rank, steps=steps, sql=f"select * from {name}")


def of_page(run: Run, page: str, **parameters: Any) -> dict[str, str]:
    """The link to a page, and the command that serves it. The server prints an address; the link is added to it."""
    filled = {name: value for name, value in sorted(parameters.items()) if value not in (None, "")}
    query = urlencode(filled, quote_via=quote, safe=":,")
    return {
        "link": f"#/{quote(run.id)}/{page}" + (f"?{query}" if query else ""),
        "server": f"stepscope view {shlex.quote(str(run.root))}",
        "how": "Start the server, then add the link to the address that it prints.",
    }
