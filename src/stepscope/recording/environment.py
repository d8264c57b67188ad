"""A profiler started by the environment variable MS_PROFILER_OPTIONS."""

import difflib
import json
import os
from collections.abc import Mapping
from typing import Any

from stepscope.errors import StepscopeError, UsageError
from stepscope.process.notices import say
from stepscope.recording.collectors.options import from_json
from stepscope.recording.process.runtime import runtime
from stepscope.recording.profiler import Profiler

VARIABLE = "MS_PROFILER_OPTIONS"


def from_environment(environ: Mapping[str, str] = os.environ) -> Profiler | None:
    """A profiler that records until the program ends. A mistake in the variable is reported, and the program continues."""
    text = environ.get(VARIABLE)
    if not text:
        return None
    try:
        settings = _settings(text)
        if settings is None:
            return None
        starts = settings.pop("start_profile", True)
        profiler = Profiler(**from_json(settings), start_profile=False)
        profiler.gives_way = True
        if starts:
            profiler.start()
    except (ValueError, RecursionError, StepscopeError) as error:
        end = " The" if str(error).endswith("?") else "; the"
        say(f"{VARIABLE}: {error}{end} program continues without being recorded")
        for listener in runtime.listeners:
            listener.refused()
        return None
    return profiler


def _settings(text: str) -> dict[str, Any] | None:
    """The arguments of the profiler, None where it does not start."""
    settings = json.loads(text)
    if not isinstance(settings, dict):
        raise UsageError("expected a JSON object")
    if "start" not in settings and (similar := difflib.get_close_matches("start", settings, 1)):
        raise UsageError(f"there is no option '{similar[0]}'; did you mean 'start'?")
    start = settings.pop("start", False)
    if not isinstance(start, bool):
        raise UsageError(f"start is {start!r}; expected true or false")
    for name in ("schedule", "on_trace_ready") if start else ():
        if settings.pop(name, None) is not None:
            raise UsageError(f"{name} cannot be set here")
    return settings if start else None
