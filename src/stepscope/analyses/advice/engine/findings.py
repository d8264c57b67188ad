"""What a rule finds: the culprit, the evidence, and the changes of the recording that a fix would make."""

from typing import Any, Literal, NamedTuple

import polars as pl


class Change(NamedTuple):
    """A change of durations for the replay. Made by the functions below, never by itself."""

    how: Literal["work", "host", "waits", "latency", "remove"]
    rows: pl.DataFrame
    word: str = ""


def scale_work(spans: pl.DataFrame, factor: float | pl.Expr = 0.0) -> Change:
    """Kernels, copies and transfers take `factor` of their time: rows with rank and span. The factor may differ by row."""
    return Change("work", _with_factor(spans.select("rank", "span", *_factor(factor))))


def scale_host(ranges: pl.DataFrame, factor: float | pl.Expr = 0.0) -> Change:
    """The program takes `factor` of its time within ranges: rows with rank, start_ns and end_ns. Waits for the device are no such time."""
    return Change("host", _with_factor(ranges.select("rank", "start_ns", "end_ns", *_factor(factor))))


def skip_waits(ranges: pl.DataFrame) -> Change:
    """Calls of the program that wait for the device, and start within ranges (rank, start_ns, end_ns), do not wait."""
    return Change("waits", ranges.select("rank", "start_ns", "end_ns"))


def no_launch_latency(spans: pl.DataFrame) -> Change:
    """Device work (rank, span) can start as soon as it is launched."""
    return Change("latency", spans.select("rank", "span"))


def remove_time(word: str, ranks: list[int]) -> Change:
    """One of `changes.REMOVABLE` (input_wait, sync, launch_latency, copy, communication, host, device) takes no time on these ranks."""
    return Change("remove", pl.DataFrame({"rank": ranks}, {"rank": pl.Int32}), word)


def _factor(factor: float | pl.Expr) -> list[pl.Expr]:
    return [(factor if isinstance(factor, pl.Expr) else pl.lit(factor, pl.Float64)).cast(pl.Float64).alias("factor")]


def _with_factor(rows: pl.DataFrame) -> pl.DataFrame:
    return rows.filter(pl.col("factor").is_between(0, 1))


class Evidence(NamedTuple):
    """Where a page finds the rows behind a finding: an analysis, its arguments, and the values by which its rows are filtered."""

    analysis: str
    arguments: dict[str, Any] = {}
    rows: dict[str, Any] = {}
    figures: dict[str, Any] = {}  # key figures by name; the suffix of a name is its unit: total_ns, share


class Finding(NamedTuple):
    """A finding of a rule. Its title is the message `advice-RULE` (or `code`) with the parameters, its fix `advice-RULE-fix` (or `fix`)."""

    parameters: dict[str, Any]
    evidence: Evidence
    changes: tuple[Change, ...] = ()
    culprit: str | None = None  # name of the operator, kernel, module, function, rank, ...
    source: str | None = None  # file:line
    spans: pl.DataFrame | None = None  # rank, step, span or rank, step, start_ns, end_ns: where to look on the timeline
    gain_ns: int | None = None  # per step: only of what no change can express, such as a pause in one of many steps
    confidence: Literal["high", "medium", "low"] = "high"
    code: str | None = None
    fix: str | None = None
    fix_code: dict[str, str] | None = None  # in place of the rule's FIX
    statement: bool = False  # states something without a gain: never ranked, always shown
    generic: bool = False  # names a symptom: it has only the gain that the causes beside it leave
