"""Problems: whether anything of the input was lost while it was read."""

from collections.abc import Iterator

from stepscope.analyses.verdict.topics.message import Message, Options
from stepscope.model.trace import Trace


def problem_messages(trace: Trace, options: Options) -> Iterator[Message]:
    """Of the whole run."""
    lost = trace.problems.select("lost").collect()["lost"].fill_null(0)
    if lost.is_empty():
        yield Message("problems", "problems-none", {}, severity="info")
    elif not lost.sum():
        yield Message("problems", "problems-remarks", {"remarks": len(lost)})
    else:
        yield Message("problems", "problems-lost", {"lost": int(lost.sum()), "problems": int((lost > 0).sum())}, severity="high")
