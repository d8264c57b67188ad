"""Arguments of tools: their JSON schemas, from the parameters of analyses, and the check of what a client sends."""

import inspect
from collections.abc import Mapping
from typing import Any

from stepscope.errors import UsageError
from stepscope.model import parameters
from stepscope.model.trace import analysis, analysis_names
from stepscope.server.agents.rows import MOST_ROWS, ROWS

Schema = dict[str, Any]
_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
}
RUN: Schema = {"type": "string", "description": "Id of a run from list_runs, or its path. Default: the only run."}
RANK: Schema = {"type": "integer", "description": "Use only this rank. Default: all."} | dict(
    zip(("minimum", "maximum"), parameters.BOUNDS["rank"], strict=True)
)
STEPS: Schema = {"type": "string", "pattern": r"^\d{1,9}(:\d{1,9})?$", "description": "Steps A:B (inclusive), or one step A. Default: all."}
SELECTION = {"run": RUN, "rank": RANK, "steps": STEPS}
OFFSET: Schema = {"type": "integer", "minimum": 0, "maximum": parameters.BOUNDS["offset"][1], "description": "Skip rows. Default: 0."}
LIMIT: Schema = {"type": "integer", "minimum": 0, "maximum": MOST_ROWS, "description": f"Return at most this many rows. Default: {ROWS}."}
PAGE = {"offset": OFFSET, "limit": LIMIT}
TABLE: dict[str, Schema] = {
    "columns": {"type": "array", "items": {"type": "string"}, "description": "Return only these columns. Default: all."},
    "sort": {"type": "string", "description": "Sort by this column. Default: the order of the analysis."},
    "descending": {"type": "boolean", "description": "Sort the largest first. Default: true."},
    "find": {"type": "string", "description": "Return only rows with all of these words in their texts, or that match /regex/."},
    **PAGE,
}


def of_analysis(name: str) -> dict[str, Schema]:
    """The schemas of the parameters of an analysis."""
    return {key: _schema(key, item) for key, item in analysis(name).parameters.items()}


def of_all_analyses() -> Schema:
    """One object with the parameters of all analyses. Each description names the analyses that have the parameter."""
    merged: dict[str, Schema] = {}
    for name in analysis_names():
        for key, schema in of_analysis(name).items():
            entry = merged.setdefault(key, {"type": [], "description": "Of "} | {k: v for k, v in schema.items() if k in _LIMITS})
            if schema["type"] not in entry["type"]:
                entry["type"].append(schema["type"])
            entry["description"] += ("" if entry["description"] == "Of " else ", ") + name
    for entry in merged.values():
        entry["type"] = entry["type"][0] if len(entry["type"]) == 1 else entry["type"]
        if entry["type"] not in ("integer", "number"):
            entry |= {"description": entry["description"]}
            for limit in _LIMITS:
                entry.pop(limit, None)
    return {
        "type": "object",
        "properties": merged,
        "additionalProperties": False,
        "description": "Parameters of this analysis; `describe` explains them.",
    }


_LIMITS = ("minimum", "maximum")


def _schema(name: str, parameter: inspect.Parameter) -> Schema:
    schema: Schema = {"type": _TYPES[parameters.type_of(parameter)]} | parameters.bounds(name, parameter)
    return schema | ({"default": parameter.default} if parameter.default not in (None, parameter.empty) else {})


def checked(tool: str, arguments: Mapping[str, Any], properties: Mapping[str, Schema], required: tuple[str, ...] = ()) -> dict[str, Any]:
    """The arguments without nulls. An unknown, missing or wrong one raises an error that says what is expected."""
    values = {name: value for name, value in arguments.items() if value is not None}
    for name, value in values.items():
        if name not in properties:
            accepted = parameters.suggestion(name, properties) or "; it has no parameters"
            raise UsageError(f"{tool} has no parameter {_value_text(name)}{accepted}")
        _check(name, value, properties[name])
    for name in required:
        if name not in values:
            raise UsageError(f"{tool}: missing {name}; expected {properties[name]['description'].rstrip('.')}")
    return values


def _check(name: str, value: Any, schema: Schema) -> None:
    types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    if not any(_is_a(value, kind) for kind in types):
        raise UsageError(f"{name} is {_value_text(value)}; expected {parameters.listing(map(_article, types))}{_range(schema)}")
    if "minimum" in schema and not schema["minimum"] <= value <= schema["maximum"]:
        raise UsageError(f"{name} is {_value_text(value)}; expected a number{_range(schema)}")
    if "enum" in schema:
        parameters.check_word(name, value, schema["enum"])
    if isinstance(value, list):
        if not value:
            raise UsageError(f"{name} is empty; expected at least one item")
        for item in value:
            _check(f"an item of {name}", item, schema["items"])


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _PYTHON_TYPES[kind]) or (kind == "integer" and isinstance(value, float) and value.is_integer())


def _article(kind: str) -> str:
    words = {"integer": "a whole number", "array": "a list", "object": "an object", "boolean": "true or false"}
    return words.get(kind, f"a {kind}")


def _range(schema: Schema) -> str:
    return f" from {schema['minimum']} to {schema['maximum']}" if "minimum" in schema else ""


def _value_text(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}…"
