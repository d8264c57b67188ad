"""The tools: each has a name, a schema of its arguments, and a function that returns a small answer."""

import functools
import importlib.util
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import polars as pl

from stepscope.errors import UsageError
from stepscope.model import parameters
from stepscope.model.output import tables
from stepscope.model.trace import analysis_names
from stepscope.server.agents import arguments, documents, places
from stepscope.server.agents.arguments import PAGE, SELECTION, TABLE, Schema
from stepscope.server.agents.library import Library, OpenRun, Report
from stepscope.server.agents.rows import ROWS, small
from stepscope.server.agents.summary import summary
from stepscope.server.answers import Question

Call = Callable[[Library, dict[str, Any], Report], Awaitable[dict[str, Any]]]
_ROWS: Schema = {
    "columns": {"type": "object", "additionalProperties": {"type": "string"}},
    "rows": {"type": "array", "items": {"type": "object"}},
    "row_count": {"type": "integer"},
    "left_out": {"type": ["string", "null"]},
}
_PLACE: Schema = {
    "type": "object",
    "properties": {key: {"type": "string"} for key in ("link", "server", "how")},
    "required": ["link", "server"],
}
_NOTES: Schema = {"type": "array", "items": {"type": "string"}}
_LARGEST_QUERY = 100_000  # characters
_PART = 8_000  # bytes of each table of a comparison


class Tool(msgspec.Struct, frozen=True):
    name: str
    description: str
    properties: dict[str, Schema]
    call: Call
    required: tuple[str, ...] = ()
    answer: dict[str, Schema] | None = None  # None: rows of a run

    @property
    def input_schema(self) -> Schema:
        return {"type": "object", "properties": self.properties, "required": list(self.required), "additionalProperties": False}

    @property
    def output_schema(self) -> Schema:
        answer = self.answer or _ROWS | {"run": {"type": "string"}, "notes": _NOTES, "open": _PLACE}
        return {"type": "object", "properties": answer, "required": list(answer)}

    async def answer_to(self, library: Library, words: dict[str, Any], report: Report) -> dict[str, Any]:
        return await self.call(library, arguments.checked(self.name, words, self.properties, self.required), report)


def all_tools() -> dict[str, Tool]:
    """The tools by name. Those of an analysis exist where the analysis does."""
    return {tool.name: tool for tool in _tools()}


def _tools() -> Iterator[Tool]:
    yield Tool(
        "list_runs",
        "List the recorded training runs below the served folders: id, path, format, framework, state, size. Start here.",
        {"path": {"type": "string", "description": "Only runs at or below this path. Default: all."}, "find": TABLE["find"], **PAGE},
        _list_runs,
        answer=_ROWS | {"folders": {"type": "array", "items": {"type": "string"}}, "open": _PLACE},
    )
    yield Tool(
        "summary",
        "Summarize a run: conclusions in sentences, time per step, idle and input shares, largest operators and kernels, memory peaks.",
        SELECTION,
        _summary,
        answer={"run": {"type": "string"}, "conclusions": {"type": "object"}, "overview": {"type": "object"}, "open": _PLACE},
    )
    for name, text in _OF_ANALYSES.items():
        if name in analysis_names():
            properties = SELECTION | arguments.of_analysis(name) | TABLE
            yield Tool(name, text, properties, functools.partial(_of_analysis, name))
    if importlib.util.find_spec(_COMPARISON):
        yield Tool(
            "compare",
            "Compare two runs, or several runs per side: how much the step changed, whether that is more than noise, and which operators.",
            _COMPARED,
            _compare,
            ("a", "b"),
            answer={"a": _NOTES, "b": _NOTES, "conclusions": {"type": "object"}, "waterfall": {"type": "object"}, "open": _PLACE},
        )
    yield Tool(
        "analysis",
        "Return the rows of any analysis of a run. `describe` lists the analyses and explains columns and parameters.",
        {"analysis": {"type": "string", "enum": analysis_names(), "description": "Name of the analysis."}}
        | {"parameters": arguments.of_all_analyses()}
        | SELECTION
        | TABLE,
        _analysis,
        ("analysis",),
    )
    yield Tool(
        "sql",
        "Answer a read-only SQL query (DuckDB dialect) over the tables and analyses of one run: every name in `describe` is a table. "
        "Files and the network cannot be reached.",
        {"sql": {"type": "string", "description": "One SELECT statement."}} | SELECTION | PAGE,
        _sql,
        ("sql",),
    )
    yield Tool(
        "describe",
        "Explain a table or an analysis: its columns with units, and its parameters. Without a name, list all of them.",
        {"name": {"type": "string", "description": "A table or an analysis. Default: list all."}},
        _describe,
        answer={"name": {"type": "string"}, "text": {"type": "string"}},
    )


_COMPARISON = "stepscope.comparison"
_RUNS: Schema = {"type": "array", "items": {"type": "string"}}
_COMPARED: dict[str, Schema] = {
    "a": _RUNS | {"description": "Runs of the baseline, by id or path."},
    "b": _RUNS | {"description": "Runs to compare with it."},
    "by": {
        "type": "string",
        "enum": ["operator", "family", "kernel", "shape", "phase", "module"],
        "description": "Match operators by this. Default: operator.",
    },
    "rank": SELECTION["rank"],
    "steps": SELECTION["steps"],
    **PAGE,
}

_OF_ANALYSES = {
    "advice": "Return what to do about a run: findings by predicted gain, each with culprit, evidence, gain and fix. Use after summary.",
    "whatif": "Predict the duration of a step by replay if operators, modules or kernels were faster or slower, or waits were removed.",
}


async def _list_runs(library: Library, words: dict[str, Any], report: Report) -> dict[str, Any]:
    place = library.below(words["path"]) if "path" in words else None
    runs = [run for run in await library.runs() if place is None or run.path.is_relative_to(place) or place.is_relative_to(run.path)]
    rows = [run.row() for run in runs]
    frame = pl.DataFrame(
        {
            "id": [run.id for run in runs],
            "name": [run.name for run in runs],
            "path": [str(run.path) for run in runs],
            "format": [run.format for run in runs],
            "state": [run.state for run in runs],
            "framework": [row.get("framework") for row in rows],
            "ranks": [len(row["ranks"]) if isinstance(row.get("ranks"), list) else row.get("ranks") for row in rows],
            "bytes": [run.bytes for run in runs],
            "modified_ns": [run.modified_ns for run in runs],
            "error": [row.get("error") for row in rows],
        }
    )
    frame = tables.matching(frame.lazy(), words["find"]).collect() if "find" in words else frame
    folders = [str(folder) for folder in library.folders]
    server = {"link": "#/", "server": f"stepscope view {' '.join(folders)}", "how": "Start the server and open the address that it prints."}
    return small(frame, **_page(words)) | {"folders": folders, "open": server}


async def _summary(library: Library, words: dict[str, Any], report: Report) -> dict[str, Any]:
    opened = await library.open(words.get("run"), report)

    async def analyse(name: str, **options: Any) -> pl.DataFrame:
        return await library.analysis(opened, _question(name, words, options))

    figures = await summary(opened.info, analyse)
    return {"run": opened.run.id, "path": str(opened.run.path), **figures} | _place(opened, "overview", words)


async def _analysis(library: Library, words: dict[str, Any], report: Report) -> dict[str, Any]:
    name = words["analysis"]
    options = arguments.checked(name, words.get("parameters", {}), arguments.of_analysis(name))
    return await _of_analysis(
        name, library, {key: word for key, word in words.items() if key not in ("analysis", "parameters")} | options, report
    )


async def _of_analysis(name: str, library: Library, words: dict[str, Any], report: Report) -> dict[str, Any]:
    options = {key: words[key] for key in arguments.of_analysis(name) if key in words}
    question = _question(name, words, options)
    opened = await library.open(words.get("run"), report)
    frame = await library.analysis(opened, question)

    def choose() -> pl.DataFrame:
        chosen = tables.matching(frame.lazy(), words["find"]) if "find" in words else frame.lazy()
        columns = ",".join(words["columns"]) if "columns" in words else None
        return tables.chosen(chosen, sort=words.get("sort"), descending=words.get("descending", True), columns=columns).collect()

    rows = small(await library.threaded(choose), **_page(words))
    notes = _notes(opened)
    if not frame.height:
        notes.append(f"{name} has no rows: the recording lacks the data; `describe` explains what it needs")
    place = places.of_analysis(opened.run, name, words.get("rank"), words.get("steps"))
    return {"run": opened.run.id, **rows, "notes": notes, "open": place}


async def _sql(library: Library, words: dict[str, Any], report: Report) -> dict[str, Any]:
    sql = words["sql"]
    if len(sql) > _LARGEST_QUERY:
        raise UsageError(f"the query has {len(sql):,} characters; at most {_LARGEST_QUERY:,} are allowed")
    opened = await library.open(words.get("run"), report)
    frame = await library.query(opened, sql, words.get("rank"), words.get("steps"))
    place = places.of_page(opened.run, "query", rank=words.get("rank"), steps=words.get("steps"), sql=sql)
    return {"run": opened.run.id, **small(frame, **_page(words)), "notes": _notes(opened), "open": place}


async def _compare(library: Library, words: dict[str, Any], report: Report) -> dict[str, Any]:
    compare = importlib.import_module(f"{_COMPARISON}.compare").compare
    sides = [[await library.open(word, report) for word in words[side]] for side in ("a", "b")]
    steps = parameters.steps(words["steps"]) if "steps" in words else None

    def tables_of() -> dict[str, Any]:
        comparison = compare(*([opened.trace for opened in side] for side in sides), rank=words.get("rank"), steps=steps)
        verdict = comparison.verdict.select("kind", "severity", "text")
        return {
            "conclusions": small(verdict),
            "summary": small(comparison.summary),
            "waterfall": small(comparison.waterfall, budget=_PART),
            "operators": small(comparison.operators(words.get("by", "operator")), budget=_PART, **_page(words)),
        }

    first, second = (side[0].run for side in sides)
    place = places.of_page(second, "compare", **{"with": first.id}, rank=words.get("rank"), steps=words.get("steps"))
    names = {side: [opened.run.id for opened in runs] for side, runs in zip(("a", "b"), sides, strict=True)}
    return {**names, **await library.threaded(tables_of), "open": place}


async def _describe(library: Library, words: dict[str, Any], report: Report) -> dict[str, Any]:
    name = words.get("name", "")
    return {"name": name, "text": documents.describe(name) if name else documents.index()}


def _question(name: str, words: dict[str, Any], options: dict[str, Any]) -> Question:
    steps = parameters.steps(words["steps"]) if "steps" in words else None
    return Question("analyses", name, options, words.get("rank"), steps)


def _page(words: dict[str, Any]) -> dict[str, int]:
    return {"offset": int(words.get("offset", 0)), "limit": int(words.get("limit", ROWS))}


def _place(opened: OpenRun, page: str, words: dict[str, Any]) -> dict[str, Any]:
    return {"open": places.of_page(opened.run, page, rank=words.get("rank"), steps=words.get("steps"))}


def _notes(opened: OpenRun) -> list[str]:
    """What limits every figure of the run."""
    notes = []
    if (problems := opened.info["problem_count"]) > 0:
        first = opened.info["problems"][0]
        notes.append(f"the recording has {problems} problems, such as {first['file'] or ''}: {first['what']}; select * from problems")
    if opened.run.state == "live":
        notes.append("the run is being recorded: figures change")
    return notes
