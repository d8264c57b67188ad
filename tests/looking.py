"""What users do with a recording: look at the summary, ask questions, write it in another form."""

import random
from pathlib import Path
from typing import Any

import stepscope
from stepscope import exporters
from stepscope.cli import summary
from stepscope.errors import StepscopeError
from stepscope.tables import json_text
from stepscope.trace import analysis, analysis_names

QUESTIONS = 2  # of each recording
# Questions that need no parameter.
ANALYSES = [name for name in analysis_names() if all(one.default is not one.empty for one in analysis(name).parameters.values())]


def looked_at(path: Path, room: Path, chance: random.Random) -> list[dict[str, Any]]:
    """Its problems. Only a StepscopeError may come of it, in a line."""
    trace = stepscope.open(path, cache=False, partial=chance.random() < 0.5)
    found = summary.figures(trace)
    assert json_text(found)
    assert list(summary._page(found, path, 100))
    assert all(0 <= row["lost"] < 2**62 for row in found["problems"])
    for name in chance.sample(ANALYSES, QUESTIONS):
        try:
            trace.analyse(name)
        except StepscopeError as error:
            assert "\n" not in str(error)
    if chance.random() < 0.3:
        name = chance.choice(exporters.names())
        try:
            exporters.exporter(name).function(trace, room / f"exported to {name}")
        except StepscopeError as error:
            assert "\n" not in str(error)
    problems: list[dict[str, Any]] = found["problems"]
    return problems
