"""Parameters of analyses, exporters and addresses of the server: typed by the function's annotations, and within their bounds.

Python, the command line and the server check numbers with `checked`. A name has the same meaning everywhere, so `BOUNDS` has each once.
"""

import difflib
import inspect
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from stepscope.errors import UsageError

_INT32, _INT64 = 2**31 - 1, 2**63 - 1
_ROWS = 2**32 - 1  # that a table of Polars can have
_TIME = 2**62 - 1  # nanoseconds from the first timestamp of a run; a sum of two of them is still an integer of 64 bits

# Minimum and maximum of every numeric parameter of an analysis, an exporter or a URL, by name.
BOUNDS: dict[str, tuple[int, int]] = {
    "rank": (-_INT32 - 1, _INT32),
    "step": (-_INT32 - 1, _INT32),
    "op": (-_INT32 - 1, _INT32),
    "warmup": (0, _INT32),
    "depth": (0, _INT32),
    "scopes": (0, _INT32),
    "model_id": (0, _INT64),
    "iteration_id": (0, _INT64),
    "top": (0, _INT32),
    "min_ns": (0, _INT64),
    "start_ns": (-_INT64 - 1, _INT64),
    "end_ns": (-_INT64 - 1, _INT64),
    "at_ns": (-_INT64 - 1, _INT64),
    "min_share": (0, 1),
    "max_frames": (1, 1_000_000),
    "track": (-_INT32 - 1, _INT32),
    "run_noise": (0, 1),  # of a step
    "buckets": (1, 100_000),  # each bucket is a row, even an empty one
    "pixels": (1, 1_000_000),
    "replica": (0, _INT32),
    "max_rows": (1, 4096),
    "max_columns": (1, 10_000),
    "offset": (0, _ROWS),
    "limit": (0, _ROWS),
    # of the timeline
    "t0": (-_TIME, _TIME),
    "t1": (-_TIME, _TIME),
    "at": (-_TIME, _TIME),
    "after": (-_TIME, _TIME),
    "before": (-_TIME, _TIME),
    "number": (0, _ROWS),
    "span": (-_INT64 - 1, _INT64),
    "lane": (0, _INT32),
    "row": (0, _INT32),
    "group": (0, _INT32),
    "level": (0, 52),  # one tile of the highest level covers 62 bits
    "index": (0, _TIME),
}

_WHOLE, _DECIMAL = re.compile(r"[+-]?[0-9]+"), re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
_LONGEST_NUMBER, _LONGEST_SHOWN = 40, 60  # characters
_SHORT_LIST = 24
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def of(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a function that users set: the keyword-only ones."""
    return {name: item for name, item in inspect.signature(function).parameters.items() if item.kind is item.KEYWORD_ONLY}


def type_of(parameter: inspect.Parameter) -> type:
    """int of `int`, `int | None` and `Optional[int]`."""
    annotation = parameter.annotation
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        annotation = next(member for member in typing.get_args(annotation) if member is not type(None))
    return annotation if isinstance(annotation, type) else str


def bounds(name: str, parameter: inspect.Parameter) -> dict[str, int]:
    """Minimum and maximum of a numeric parameter, as in its description; empty for others."""
    return dict(zip(("minimum", "maximum"), BOUNDS[name], strict=True)) if type_of(parameter) in (int, float) else {}


def value(kind: type, name: str, word: str) -> Any:
    """The text as a value of that type. The error for an invalid text names the parameter."""
    if kind is bool:
        if word.lower() in (*_YES, *_NO):
            return word.lower() in _YES
        raise UsageError(f"{name} is '{_shortened(word)}'; expected 1 or 0")
    if kind not in (int, float):
        return kind(word)
    # Stricter than int() and float(), which accept other digits, 1_000 and nan, and raise an error for very long numbers.
    if not (_WHOLE if kind is int else _DECIMAL).fullmatch(word):
        raise UsageError(f"{name} is '{_shortened(word)}'; expected {_range_text(kind, name)}")
    if len(word) > _LONGEST_NUMBER:
        raise UsageError(f"{name} is {_shortened(word)}; expected {_range_text(kind, name)}")
    return checked(kind, name, kind(word))


def checked(kind: type, name: str, number: Any) -> Any:
    """A number as that type, within the bounds of the parameter or flag. The error for another value names it."""
    if kind not in (int, float):
        return number
    low, high = BOUNDS[_key(name)]
    try:
        result = float(number) if kind is float else int(number) if _is_integral(number) else operator.index(number)
    except (TypeError, ValueError, OverflowError):
        result = None
    if result is None or not low <= result <= high:  # also for NaN
        raise UsageError(f"{name} is {_shortened(number)}; expected {_range_text(kind, name)}")
    return result


def all_checked(arguments: Mapping[str, Any], parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """Arguments of a function with their numbers checked. None stays where it is the default."""
    return {
        name: number
        if name not in parameters or (number is None and parameters[name].default is None)
        else checked(type_of(parameters[name]), name, number)
        for name, number in arguments.items()
    }


def values(words: Mapping[str, str], parameters: Mapping[str, inspect.Parameter], owner: str) -> dict[str, Any]:
    """The query of a URL as parameters of `owner`. An unknown or a missing parameter raises an error."""
    for name in words:
        if name not in parameters:
            raise UsageError(f"{owner} has no parameter '{_shortened(name)}'" + nearest(name, parameters))
    for name, parameter in parameters.items():
        if parameter.default is parameter.empty and name not in words:
            raise UsageError(f"{owner}: expected {name}")
    return {name: value(type_of(parameters[name]), name, word) for name, word in words.items()}


def steps(text: str) -> tuple[int, int]:
    """The first and the last step of `2:5`; `3` is that step alone."""
    first, colon, last = text.partition(":")
    if not _is_step(first) or (colon and not _is_step(last)) or int(first) > int(last or first):
        raise UsageError(f"steps is '{_shortened(text)}'; expected FIRST:LAST, such as 2:5 for the steps 2, 3, 4 and 5")
    return int(first), int(last or first)


def nearest(word: str, words: Iterable[str], least: float = 0.6) -> str:
    """The end of an error message: the most similar word, where one is similar enough."""
    near = difflib.get_close_matches(word.replace("-", "_") if not word.startswith("-") else word, list(words), 1, least)
    return f"; did you mean '{near[0]}'?" if near else ""


def suggestion(word: str, words: Iterable[str]) -> str:
    """The end of an error message: the most similar accepted word, and the list where it is short or nothing is similar."""
    accepted = list(words)
    near = nearest(word, accepted)
    if near:
        return f"{near} Accepted: {', '.join(accepted)}" if 1 < len(accepted) <= _SHORT_LIST else near
    return f"; expected {listing(accepted)}" if accepted else ""


def check_word(noun: str, word: str, words: Iterable[str]) -> str:
    """The word, if it is accepted; else a UsageError that lists the accepted words."""
    accepted = list(words)
    if word not in accepted:
        raise UsageError(f"no {noun} '{_shortened(word)}'" + suggestion(word, accepted))
    return word


def listing(words: Iterable[str]) -> str:
    """a, b or c"""
    *first, last = words
    return f"{', '.join(first)} or {last}" if first else last


def _is_step(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 10


def _is_integral(number: Any) -> bool:
    """1e6 is the usual way to write a million nanoseconds."""
    return isinstance(number, float) and number.is_integer()


def _key(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")


def _range_text(kind: type, name: str) -> str:
    low, high = BOUNDS[_key(name)]
    return f"{'a whole number' if kind is int else 'a number'} from {low} to {high}"


def _shortened(value: Any) -> str:
    try:
        text = str(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        return "a number of thousands of digits"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
