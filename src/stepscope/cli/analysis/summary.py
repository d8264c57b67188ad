"""Summarize a trace: the main finding, the time of a step and its parts, the largest operators and kernels, and problems.

--format json writes the same figures for scripts.
"""

import argparse
import itertools
import json
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.cli.analysis import advise
from stepscope.cli.shared import layout, terminal
from stepscope.cli.shared.arguments import PATH_HELP, add_format, add_reading, open_trace
from stepscope.cli.shared.terminal import Line
from stepscope.io.answers import cached_answer
from stepscope.model import units
from stepscope.model.output.tables import finite, json_text

if TYPE_CHECKING:
    import polars as pl

    from stepscope.model.trace import Trace

EXAMPLES = """\
stepscope summary trace.json.gz
stepscope summary runs/job-17/ --rank 1 --steps 2:5
stepscope summary trace.json.gz --format json
"""
TOP = 8
_NOTHING: dict[str, Any] = {"count": 0, "rows": []}
_PROBLEMS_SHOWN = 10
# Cool colors are work, warm ones lost time, gray is idle. The characters differ as well, for terminals without color.
_PARTS = (
    ("computing", "computing_ns", "█", "blue"),
    ("communication", "device_exposed_ns", "▓", "red"),
    ("copying", "copy_ns", "▒", "magenta"),
    ("idle", "free_ns", "░", "bright_black"),
)
_STEP_SOURCES = {
    "marker": "marked by the profiler",
    "given": "chosen marker",
    "inferred": "inferred",
    "device": "by the device work alone",
    "whole": "no markers: the whole recording",
    "device ranges": "device ranges on the device",
}
# The analysis with the details of a headline, by the start of its code.
_DETAILS = {
    "device-idle": "gaps",
    "recording-overhead": "recording_overhead",
    "device-exposed": "communication",
    "host-exposed": "communication",
    "host-input": "data_queues",
    "device-copy": "kernels",
    "device-not": "step_trace",
    "device-partly": "step_trace",
    "hang": "hangs",
    "straggler": "stragglers",
}
# By label: the topic of `verdict`, and the number of its sentences.
_CONCLUSIONS = {
    "operators": ("operators", 2),
    "kernels": ("kernels", 3),
    "compute": ("flops", 3),
    "memory": ("memory", 3),
    "communication": ("communication", 1),
    "ranks": ("cluster", 4),
    "input": ("input", 1),
    "CPU": ("host", 1),
}
# A summary has no line for what is not recorded.
_NOTHING_RECORDED = {
    *("operators-none", "kernels-none", "flops-none", "memory-none"),
    *("communication-none", "communication-one-rank", "cluster-one-rank", "input-unknown", "cpu-none", "cpu-unknown"),
}
_UNIT = re.compile(r"(?<=\d) (?=%|(?:[nµm]?s|[kMGTP]?(?:B|FLOP))\b)")
_BAR_LEVELS = "▁▂▃▄▅▆▇█"
_LABEL, _BARS, _RANKS_SHOWN, _NARROWEST = 14, 60, 4, 60


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help=PATH_HELP)
    add_reading(parser)
    add_format(parser, "text", "json")


def run(args: argparse.Namespace) -> int:
    values = json.loads(_figures_text(args))
    if args.format == "json":
        sys.stdout.write((layout.clean(json_text(values)) if sys.stdout.isatty() else json_text(values)) + "\n")
    else:
        terminal.write(page(values, args.path, max(terminal.width(), _NARROWEST)))
    return 0


def _figures_text(args: argparse.Namespace) -> str:
    """The figures as JSON, from the cache if the path was summarized before."""

    def compute() -> str:
        return json_text(figures(open_trace(args.path, args)))

    options = (args.partial, args.step_name, args.rank, getattr(args, "steps", None))
    return compute() if args.no_cache else cached_answer(args.path, "summary", options, compute)


def figures(trace: "Trace") -> dict[str, Any]:
    """The figures of the summary as plain values: rows of analyses, and sums of them over ranks."""
    from concurrent.futures import ThreadPoolExecutor

    import polars as pl

    from stepscope.analyses.advice.advice import main_finding
    from stepscope.analyses.operators.kernels import kernel_totals
    from stepscope.analyses.shared.steps.warmup import counting_steps

    kernels = _rows_or_none(trace, "kernels") if trace.meta.summary else kernel_totals(trace)
    names = ["overview", "operator_types", "memory_peaks", "overlap"]
    # Without a device, idle time is that of the host, and has no causes in launches.
    names += ["gap_causes"] if kernels.height else []
    with ThreadPoolExecutor(2) as pool:  # analyses spend their time in numpy and Polars, which release the interpreter lock
        tables = dict(zip(names, pool.map(trace.analyse, names), strict=True))
    overlap, types, peaks = tables["overlap"], tables["operator_types"], tables["memory_peaks"]
    parts = ["total_ns", "device_ns", "computing_ns", "communication_ns", "overlapped_ns", "exposed_ns", "device_exposed_ns"]
    recorded = overlap.filter("complete").join(counting_steps(trace, None), on=["rank", "step"], how="semi")
    average = recorded.select(pl.col(*parts, "copy_ns", "free_ns").mean())
    on_device = types.filter(pl.col("device") != "cpu")
    operators = on_device if on_device.height else types
    peaks = peaks.sort("peak_bytes", descending=True, nulls_last=True, maintain_order=True)
    meta, causes, verdict = trace.meta, tables.get("gap_causes"), trace.analyse("verdict")
    return {
        **{name: getattr(meta, name) for name in ("source", "format", "framework", "versions", "world_size", "ranks")},
        "devices": trace.devices.select("name").drop_nulls().unique(maintain_order=True).collect()["name"].to_list(),
        "verdict": _rows(verdict),
        "advice": [] if trace.meta.summary else _rows(main_finding(trace)),
        "overview": _rows(tables["overview"]),
        "unprofiled_steps": [
            {name: getattr(steps, name) for name in ("rank", "count", "median_ns", "p10_ns", "p90_ns")} for steps in meta.unprofiled_steps
        ],
        "steps": _rows(overlap.select("rank", "step", "total_ns")),
        "average_step": _rows(average)[0] if recorded.height else None,
        # The stages in the step trace of the source, where the device work of steps is not recorded.
        "stages": _rows(trace.analyse("step_times").select("rank", "stage", "mean_ns")) if not recorded.height else [],
        "operator_types": _top(operators, "type", "self_ns", ["device"]) | {"calls_of": sorted(operators["calls_of"].unique())},
        "kernels": _top(kernels, "name", "total_ns"),
        "idle_causes": _top(causes, "cause", "total_ns", count="gaps") if causes is not None and causes.height else _NOTHING,
        # In place of operators, where the kinds of spans are unknown.
        "totals": _NOTHING if types.height or kernels.height else _top(_lasting(_rows_or_none(trace, "totals")), "name", "self_ns"),
        "memory_peaks": _rows(peaks.unique(["rank", "device"], keep="first", maintain_order=True)),
        "problems": _rows(trace.problems.collect()),
    }


def _rows_or_none(trace: "Trace", name: str) -> "pl.DataFrame":
    """The table of an analysis; without rows where the trace is a summary of ranks, which has no data for it."""
    import polars as pl

    from stepscope.model.trace import analysis

    return pl.DataFrame(schema=analysis(name).columns) if trace.meta.summary else trace.analyse(name)


def _lasting(totals: "pl.DataFrame") -> "pl.DataFrame":
    """Without instants."""
    return totals.filter(totals["total_ns"] > 0)


def _top(rows: "pl.DataFrame", name: str, time: str, keys: list[str] | None = None, count: str = "calls") -> dict[str, Any]:
    """The largest rows over all ranks and devices, with their share of the total."""
    import polars as pl

    summed = rows.group_by(*(keys or []), name, maintain_order=True).agg(pl.col(count, time).sum())
    has_share = "share" not in rows.columns or rows["share"].null_count() == 0  # a null share: the total is unknown
    share = pl.when(pl.lit(has_share)).then(pl.col(time) / pl.col(time).sum())
    shares = summed.with_columns(share=share).sort(time, descending=True, maintain_order=True)
    return {"count": summed.height, time: summed[time].sum(), "rows": _rows(shares.head(TOP))}


def _rows(frame: "pl.DataFrame") -> list[dict[str, Any]]:
    return finite(frame.lazy()).collect().to_dicts()


def page(values: dict[str, Any], path: Path, width: int) -> Iterator[Line]:
    """The summary as text: the conclusions, the figures behind them, then the largest rows."""
    yield from _head(values, path, width)
    yield []
    headlines = _topic(values["verdict"], "overview")
    first, *others = dict.fromkeys(layout.clean(row["text"]) for row in headlines)
    yield from ([(line, "bold")] for line in _wrapped(first, width))
    yield from ([(line, "")] for line in _wrapped(" ".join(others), width))
    for row in values["advice"]:
        yield []
        yield from ([(line, "yellow")] for line in _wrapped(advise.headline(row), width))
    yield from _step_lines(values, width)
    types = values["operator_types"]
    device = ", ".join(dict.fromkeys(row["device"] for row in types["rows"]))
    of_kernels = ", calls of kernels" if types["calls_of"] == ["kernel"] else ""
    yield from _ranking(f"operator types on {device}{of_kernels}", types, "type", "self_ns", "calls", "blue", width)
    yield from _ranking("kernels", values["kernels"], "name", "total_ns", "calls", "blue", width)
    yield from _ranking("spans", values["totals"], "name", "self_ns", "calls", "blue", width)
    yield from _ranking("causes of idle time", values["idle_causes"], "cause", "total_ns", "gaps", "yellow", width)
    yield from _problem_lines(values["problems"], path, width)
    yield []
    fallback = "operators" if types["rows"] else "totals"
    details = next((name for start, name in _DETAILS.items() if headlines[0]["code"].startswith(start)), fallback)
    others = [name for name in ("operators", "step_trace", "verdict") if name != details]
    command, rest = f"stepscope show {details} {_quoted(path)}", f"   or {', '.join(others)}"
    if values["advice"]:
        command, rest = f"stepscope advise {_quoted(path)}", f"   or stepscope show {details}, {', '.join(others[:2])}"
    yield [("next  ", "dim"), (command, ""), (rest if len(command) + len(rest) + 6 <= width else "", "dim")]


def _topic(verdict: list[dict[str, Any]], topic: str) -> list[dict[str, Any]]:
    """The conclusions of a topic: those of the whole run where it has several ranks."""
    rows = [row for row in verdict if row["topic"] == topic]
    return [row for row in rows if row["rank"] is None] or rows


def _head(values: dict[str, Any], path: Path, width: int) -> Iterator[Line]:
    ranks, world = values["ranks"], values["world_size"]
    of_all = f" of {world:,}" if world and world > len(ranks) else ""
    rank_text = f"rank {ranks[0]}{of_all}" if len(ranks) == 1 else f"{len(ranks):,}{of_all} ranks{' recorded' if of_all else ''}"
    facts = [values["framework"], ", ".join(values["devices"]), rank_text]
    about = " · ".join(layout.clean(fact) for fact in facts if fact)
    name = layout.clean(path.resolve().name)
    yield [(layout.shorten(name, max(width - layout.width(about) - 3, 20)), "bold"), ("   " + about, "dim")]


def _step_lines(values: dict[str, Any], width: int) -> Iterator[Line]:
    """The steps, the average step, and further figures, one per line."""
    average, room = values["average_step"], min(width, 120) - _LABEL
    yield []
    if values["steps"]:
        yield from _steps(values, room)
    if average and average["device_ns"]:
        yield from _average(average, room, len(values["ranks"]))
    for label, (topic, most) in _CONCLUSIONS.items():
        rows = _topic(values["verdict"], topic)
        # The line of communication names the stragglers.
        yield from _conclusions(label, [row for row in rows if topic != "cluster" or not row["code"].startswith("straggler")], most, room)


def _conclusions(label: str, rows: list[dict[str, Any]], most: int, room: int) -> Iterator[Line]:
    """The first sentences of a topic and its coverage, of its main device; without a common conclusion, the headline of each rank."""
    if not rows or rows[0]["code"] in _NOTHING_RECORDED:
        return
    ranks = dict.fromkeys(row["rank"] for row in rows)
    if len(ranks) > 1:
        headlines = [(rank, next(row["text"] for row in rows if row["rank"] == rank)) for rank in ranks]
        texts = [f"rank {rank}: {text}" for rank, text in headlines[:_RANKS_SHOWN]]
        texts += [f"and {units.count(len(ranks) - _RANKS_SHOWN, 'more rank')}"] if len(ranks) > _RANKS_SHOWN else []
    else:
        rows = [row for row in rows if row["device"] == rows[0]["device"]]
        shown = [row for at, row in enumerate(rows) if at < most or row["code"].startswith("coverage")]
        texts = [" ".join(row["text"] for row in shown)]
    for text in texts:
        for line in _wrapped(layout.clean(text), room):
            yield [_label(label), (line, "")]
            label = ""


def _wrapped(sentences: str, width: int) -> list[str]:
    """Lines of this width. A number stays beside its unit."""
    joined = _UNIT.sub("\xa0", sentences)
    return [line.replace("\xa0", " ") for line in textwrap.wrap(joined, width)]


def _range(write: Callable[[float], str], numbers: Sequence[float]) -> str:
    low, high = write(min(numbers)), write(max(numbers))
    return low if low == high else f"{low} to {high}"


def _steps(values: dict[str, Any], room: int) -> Iterator[Line]:
    """A bar per step, of the slowest rank; a bar of several steps shows the longest of them."""
    longest: dict[int, int] = {}
    for row in values["steps"]:
        longest[row["step"]] = max(longest.get(row["step"], 0), row["total_ns"])
    times = list(longest.values())
    per_bar = -(-len(times) // min(room, _BARS))
    heights = [max(times[first : first + per_bar]) for first in range(0, len(times), per_bar)]
    highest = max(times) or 1  # damaged files have steps without a duration
    bars = "".join(_BAR_LEVELS[min(time * len(_BAR_LEVELS) // highest, len(_BAR_LEVELS) - 1)] for time in heights)
    overview = values["overview"]
    sources = ", ".join(dict.fromkeys(_STEP_SOURCES.get(word, word) for row in overview for word in row["steps_how"].split(", ")))
    numbers = f" ({min(longest)} to {max(longest)})" if len(times) > 1 else ""
    slowest = " of the slowest rank" if len(values["ranks"]) > 1 else ""
    spread = f"   {_range(units.duration, times)}{slowest}" + (f"; a bar is the longest of {per_bar}" if per_bar > 1 else "")
    yield [_label("steps"), (bars, "blue"), (spread, "")]
    p90 = _range(units.duration, [row["p90_ns"] for row in overview])
    first_steps = [row["first_step_ns"] for row in overview if row["left_out"]]
    left_out = f"; the first ({_range(units.duration, first_steps)}) is left out of the figures" if first_steps else ""
    for line in textwrap.wrap(f"{units.count(len(times), 'step')}{numbers}, {sources}; 90th percentile {p90}{left_out}", room):
        yield [_label(""), (line, "dim")]


def _average(average: dict[str, Any], room: int, ranks: int) -> Iterator[Line]:
    """The parts of the average step on the device; on the host it may be longer or shorter."""
    total, room = average["device_ns"], room - 10
    edges = [0, *itertools.accumulate(average[column] or 0 for _, column, _, _ in _PARTS)]
    cells = [round(edge * room / total) for edge in edges]
    pieces = [(sign * (cells[index + 1] - cells[index]), style) for index, (_, _, sign, style) in enumerate(_PARTS)]
    yield [_label("average step"), *pieces, (f" {units.duration(total)}", "bold")]
    legend: Line = [_label("")]
    for name, column, sign, style in _PARTS:
        value = average[column]
        if not value:
            continue
        piece = f" {name} {units.duration(value)} {units.share(value / total)}   "
        if sum(layout.width(text) for text, _ in legend) + len(piece) + 1 > room + _LABEL + 10:
            yield legend
            legend = [_label("")]
        legend += [(sign, style), (piece, "")]
    yield legend
    if ranks > 1:
        yield [_label(""), (f"mean over {ranks:,} ranks", "dim")]


def _ranking(title: str, table: dict[str, Any], name: str, time: str, count: str, style: str, width: int) -> Iterator[Line]:
    """The largest rows, with bars relative to the first, and the number of all rows."""
    rows = table["rows"]
    if not rows:
        return
    shown = [
        [layout.clean(row[name] or "(none)"), f"{row[count]:,}", units.duration(row[time]), units.cell("share", row["share"])]
        for row in rows
    ]
    title = f"{title}, {len(rows)} of {table['count']:,}" if table["count"] > len(rows) else title
    headings = [title, count, "time", "share"]
    widths = [max(map(layout.width, column)) for column in zip(headings, *shown, strict=True)]
    bar = 16 if width < 110 else 24
    widths[0] = min(widths[0], width - sum(widths[1:]) - bar - 2 * 4)

    def padded(cells: list[str]) -> tuple[str, str]:
        numbers = (layout.pad(text, size, True) for text, size in zip(cells[1:], widths[1:], strict=True))
        return layout.pad(layout.shorten(cells[0], widths[0]), widths[0], False), "  " + "  ".join(numbers)

    yield []
    first, numbers = padded(headings)
    yield [(first, "bold"), (numbers, "dim")]
    for row, cells in zip(rows, shown, strict=True):
        filled = max(round(row[time] * bar / rows[0][time]), 1) if rows[0][time] else 0
        first, numbers = padded(cells)
        yield [(first, ""), (numbers + "  ", ""), ("━" * filled, style)]


def _problem_lines(problems: list[dict[str, Any]], path: Path, width: int) -> Iterator[Line]:
    if not problems:
        return
    lost = any(row["lost"] for row in problems)
    yield []
    yield [
        (
            "not everything could be read" if lost else f"{units.count(len(problems), 'remark')} while reading",
            "bold red" if lost else "bold",
        )
    ]
    for row in problems[:_PROBLEMS_SHOWN]:
        text = ": ".join(layout.clean(part) for part in (Path(row["file"] or "").name, row["where"], row["what"]) if part)
        for index, line in enumerate(textwrap.wrap(text, width - 2)):
            yield [("! " if row["lost"] and not index else "  ", "red"), (line, "")]
    if (more := len(problems) - _PROBLEMS_SHOWN) > 0:
        yield [(f"  and {more:,} more: stepscope show problems {_quoted(path)}", "dim")]


def _label(text: str) -> tuple[str, str]:
    return text.ljust(_LABEL), "dim"


def _quoted(path: Path) -> str:
    return layout.clean(shlex.quote(str(path)))
