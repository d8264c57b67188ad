"""The overview in the terminal: how long a step is, where it goes, what takes the time, and what could not be read.

--format json gives the same figures to scripts.
"""

import argparse
import itertools
import shlex
import sys
import textwrap
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope import units
from stepscope.cli import _terminal, _text
from stepscope.cli._arguments import TRACE, OneOf, add_reading, open_trace
from stepscope.cli._terminal import Line
from stepscope.tables import finite, json_text

if TYPE_CHECKING:
    import polars as pl

    from stepscope.trace import Trace

EXAMPLES = """\
stepscope summary trace.json.gz
stepscope summary runs/job-17/ --rank 1 --steps 2:5
stepscope summary trace.json.gz --format json
"""
TOP = 8
_NOTHING: dict[str, Any] = {"count": 0, "rows": []}
_PROBLEMS_SHOWN = 10
# Cool is work, warm is time lost, grey is nothing. The signs differ too: colour never carries meaning alone.
_STAGES = (
    ("computing", "computing_ns", "█", "blue"),
    ("communication", "device_exposed_ns", "▓", "red"),
    ("copying", "copy_ns", "▒", "magenta"),
    ("idle", "free_ns", "░", "bright_black"),
)
_HOW = {
    "marker": "marked by the profiler",
    "given": "chosen marker",
    "inferred": "inferred from annotations",
    "whole": "no markers: the whole recording",
    "device ranges": "on the device from its own ranges",
}
_LEVELS = "▁▂▃▄▅▆▇█"
_LABEL, _BARS, _MEMORY_SHOWN, _NARROWEST = 14, 60, 4, 60


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help=TRACE)
    add_reading(parser)
    add_format(parser)


def add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--format", type=OneOf("format", ["text", "json"]), default="text", metavar="FORMAT", help="Write text or json. Default: text."
    )


def run(args: argparse.Namespace) -> int:
    trace = open_trace(args.path, args)
    found = figures(trace)
    if args.format == "json":
        sys.stdout.write((_text.clean(json_text(found)) if sys.stdout.isatty() else json_text(found)) + "\n")
    else:
        _terminal.write(_page(found, args.path, max(_terminal.width(), _NARROWEST)))
    return 0


def figures(trace: "Trace") -> dict[str, Any]:
    """What the summary says, as plain values: nothing here is computed but sums over ranks of what the analyses say."""
    import polars as pl

    from stepscope.analyses._warmup import counting_steps

    kernels = trace.analyse("kernels")
    names = ["overview", "operator_types", "memory_peaks", "overlap"]
    # Without a device, what is idle is the host, and why it does not compute is no question of launches.
    names += ["gap_causes"] if kernels.height else []
    with ThreadPoolExecutor(2) as pool:  # they spend their time in numpy and Polars, which let others run meanwhile
        answers = dict(zip(names, pool.map(trace.analyse, names), strict=True))
    overlap, types, peaks, causes = (
        answers.get(name, pl.DataFrame()) for name in ("overlap", "operator_types", "memory_peaks", "gap_causes")
    )
    parts = ["total_ns", "device_ns", "computing_ns", "communication_ns", "overlapped_ns", "exposed_ns", "device_exposed_ns"]
    recorded = overlap.filter("complete").join(counting_steps(trace, None), on=["rank", "step"], how="semi")
    average = recorded.select(pl.col(*parts, "copy_ns", "free_ns").mean())
    on_device = types.filter(pl.col("device") != "cpu")
    chosen = on_device if on_device.height else types
    return {
        "source": trace.meta.source,
        "format": trace.meta.format,
        "framework": trace.meta.framework,
        "versions": trace.meta.versions,
        "world_size": trace.meta.world_size,
        "ranks": trace.meta.ranks,
        "devices": trace.devices.select("name").drop_nulls().unique(maintain_order=True).collect()["name"].to_list(),
        "overview": _rows(answers["overview"]),
        "unprofiled_steps": [
            {"rank": one.rank, "count": one.count, "median_ns": one.median_ns, "p10_ns": one.p10_ns, "p90_ns": one.p90_ns}
            for one in trace.meta.unprofiled_steps
        ],
        "steps": _rows(overlap.select("rank", "step", "total_ns")),
        "average_step": _rows(average)[0] if recorded.height else None,
        # What the source itself says of a step whose device work is not recorded.
        "stages": _rows(trace.analyse("step_times").select("rank", "stage", "mean_ns")) if not recorded.height else [],
        "operator_types": _top(chosen, "type", "self_ns", ["device"]) | {"calls_of": sorted(chosen["calls_of"].unique())},
        "kernels": _top(kernels, "name", "total_ns"),
        "idle_causes": _top(causes, "cause", "total_ns", count="gaps") if causes.height else _NOTHING,
        # What stands in for operators where no rule knows what the spans are.
        "totals": _NOTHING if types.height or kernels.height else _top(trace.analyse("totals"), "name", "self_ns"),
        "memory_peaks": _rows(
            peaks.sort("peak_bytes", descending=True, nulls_last=True, maintain_order=True).unique(
                ["rank", "device"], keep="first", maintain_order=True
            )
        ),
        "problems": _rows(trace.problems.collect()),
    }


def _top(rows: "pl.DataFrame", name: str, time: str, keys: list[str] | None = None, count: str = "calls") -> dict[str, Any]:
    """The largest, over all ranks and devices together, with their share of all."""
    import polars as pl

    summed = rows.group_by(*(keys or []), name, maintain_order=True).agg(pl.col(count, time).sum())
    known = "share" not in rows.columns or rows["share"].null_count() == 0  # of an unknown whole there is no share
    share = pl.when(pl.lit(known)).then(pl.col(time) / pl.col(time).sum())
    shares = summed.with_columns(share=share).sort(time, descending=True, maintain_order=True)
    return {"count": summed.height, time: summed[time].sum(), "rows": _rows(shares.head(TOP))}


def _rows(frame: "pl.DataFrame") -> list[dict[str, Any]]:
    return finite(frame.lazy()).collect().to_dicts()


def _page(found: dict[str, Any], path: Path, width: int) -> Iterator[Line]:
    """The answer, then the evidence, then the rows."""
    yield from _head(found, path, width)
    yield from _verdict(found, width)
    yield from _step_lines(found, width)
    types, kernels, causes = found["operator_types"], found["kernels"], found["idle_causes"]
    device = ", ".join(dict.fromkeys(row["device"] for row in types["rows"]))
    of_kernels = ", calls of kernels" if types["calls_of"] == ["kernel"] else ""
    yield from _ranking(f"operator types on {device}{of_kernels}", types, "type", "self_ns", "calls", "blue", width)
    yield from _ranking("kernels", kernels, "name", "total_ns", "calls", "blue", width)
    yield from _ranking("spans", found["totals"], "name", "self_ns", "calls", "blue", width)
    yield from _ranking("idle because", causes, "cause", "total_ns", "gaps", "yellow", width)
    if causes["rows"] and (words := _idle_overhead(found)):
        yield from ([(line, "dim")] for line in textwrap.wrap(words.replace("*", "").replace("\xa0", " "), width))
    yield from _problem_lines(found["problems"], path, width)
    yield []
    first, *others = _next(found)
    command, rest = f"stepscope show {first} {_quoted(path)}", f"   or {', '.join(others)}"
    yield [("next  ", "dim"), (command, ""), (rest if len(command) + len(rest) + 6 <= width else "", "dim")]


def _head(found: dict[str, Any], path: Path, width: int) -> Iterator[Line]:
    ranks, world = found["ranks"], found["world_size"]
    of = f" of {world:,}" if world and world > len(ranks) else ""
    who = f"rank {ranks[0]}{of}" if len(ranks) == 1 else f"{len(ranks):,}{of} ranks{' recorded' if of else ''}"
    facts = [found["framework"], ", ".join(found["devices"]), who]
    about = " · ".join(_text.clean(fact) for fact in facts if fact)
    name = _text.clean(path.resolve().name)
    yield [(_text.shorten(name, max(width - _text.width(about) - 3, 20)), "bold"), ("   " + about, "dim")]


def _verdict(found: dict[str, Any], width: int) -> Iterator[Line]:
    """One or two sentences that a tired person can act on; only the figures are bold."""
    yield []
    medians = [row["step_ns"] for row in found["overview"] if row["step_ns"] is not None]
    if not medians:
        yield [("There are no steps in this recording.", "")]
        return
    whole = all(row["steps_how"] == "whole" for row in found["overview"])
    words = f"{'The recording' if whole else 'A step'} takes {_figure(_range(units.duration, min(medians), max(medians)))}. "
    data = {row["device_data"] for row in found["overview"]}
    known = any(row["idle_share"] is not None for row in found["overview"])
    words += _work(found["overview"], on_device=not data <= {"host", None}) if known or data <= {None} else _unrecorded(found, data)
    words += _recorded_steps(found["overview"]) if known else ""
    words += " " + _overhead(found) if found["kernels"]["rows"] else ""
    for line in textwrap.wrap(words, width):
        yield [(part.replace("\xa0", " "), "bold" if index % 2 else "") for index, part in enumerate(line.split("*"))]


def _work(overview: list[dict[str, Any]], *, on_device: bool) -> str:
    """What the device does in the steps, over all ranks; only where something in them is known to be work."""
    known = [row for row in overview if row["idle_share"] is not None]
    if not known:
        return "What of it is computation or communication is not known: these spans have no kind that stepscope knows."
    parts = []
    for word in ("compute", "communication", "copy", "idle"):
        shares = [row[f"{word}_share"] for row in known]
        if max(shares) >= 0.0005 or word == "compute":
            parts.append(f"{_figure(_range(units.share, min(shares), max(shares)))} {word}")
    ranks = f", over {len(known):,} ranks" if len(known) > 1 else ""
    return f"{'Device' if on_device else 'Host'}: {', '.join(parts)}{ranks}."


def _overhead(found: dict[str, Any]) -> str:
    """What recording adds to the step and to its idle time, where that is plain or likely."""
    words = _idle_overhead(found)
    rows = [row for row in found["overview"] if row["overhead"] in _OF_IDLE]
    if not rows:
        return words
    bare, more = [row["unprofiled_step_ns"] for row in rows], [row["step_ns"] / row["unprofiled_step_ns"] - 1 for row in rows]
    unprofiled = _figure(_range(units.duration, min(bare), max(bare)))
    return f"Unprofiled it takes {unprofiled} ({_range(_change, min(more), max(more))} while recorded). {words}"


_OF_IDLE = ("most of the idle time", "part of the idle time")
_MATTERS = 0.05  # of the step: less idle time needs no explanation


def _idle_overhead(found: dict[str, Any]) -> str:
    """What of the idle time comes from recording."""
    rows = [row for row in found["overview"] if row["overhead"] in _OF_IDLE]
    if rows:
        mostly = all(row["overhead"] == _OF_IDLE[0] for row in rows)
        idle, left = [1 - row["busy_share"] for row in rows], [row["idle_unprofiled_share"] for row in rows]
        measured, without = (_figure(_range(units.share, min(shares), max(shares))) for shares in (idle, left))
        part = "mostly" if mostly else "partly"
        return f"Idle time here is {part} profiling overhead: {measured} while recorded, about {without} unprofiled."
    idle_ranks = [row for row in found["overview"] if row["busy_share"] is not None and 1 - row["busy_share"] >= _MATTERS]
    slowed = [row for row in idle_ranks if row["overhead"] == "likely"]
    if not slowed:
        return ""
    *others, last = slowed[0]["slowed_by"].split(", ")
    names = f"{', '.join(others)} and {last}" if others else last
    return f"Recording {names} slows the host: without that the device may be idle for less."


def _unrecorded(found: dict[str, Any], data: set[str | None]) -> str:
    """What is known of steps whose device work is not recorded: what the source itself says of them."""
    if "none" not in data:
        return "No operator is recorded in these steps: what of them is computation is not known."
    means: dict[str, list[float]] = {}
    for row in found["stages"]:
        means.setdefault(row["stage"], []).append(row["mean_ns"])
    stages = [(means[stage], stage) for stage in ("forward and backward", "tail") if stage in means]
    parts = [f"{_figure(_range(units.duration, min(times), max(times)))} of {stage}" for times, stage in stages]
    return "Its kernels are not recorded: busy and idle time are not known." + (
        f" The step trace has {' and '.join(parts)}." if parts else ""
    )


def _recorded_steps(overview: list[dict[str, Any]]) -> str:
    """Which steps and ranks the shares of the device are of, where these are not all."""
    known = [row for row in overview if row["device_steps"]]
    partial = [row for row in known if row["device_steps"] < row["steps"]]
    words = ""
    if partial:
        which = {row["device_step_ranges"] for row in known}
        named = f"steps {partial[0]['device_step_ranges']} of {partial[0]['steps']:,}" if len(which) == 1 else "some of the steps"
        words += f" These shares are of {named}: only their device work is completely recorded."
    if len(known) < len(overview):
        words += f" {len(overview) - len(known):,} of {len(overview):,} ranks are left out: their device work is not recorded."
    return words


def _figure(text: str) -> str:
    """A number that stays on one line and is printed bold."""
    return f"*{text}*".replace(" ", "\xa0")


def _range(write: Callable[[float], str], low: float, high: float) -> str:
    return write(low) if write(low) == write(high) else f"{write(low)} to {write(high)}"


def _step_lines(found: dict[str, Any], width: int) -> Iterator[Line]:
    """Label and value, a line each: the steps, the average one, and what else is known of them."""
    overview, average, room = found["overview"], found["average_step"], min(width, 120) - _LABEL
    yield []
    if found["steps"]:
        yield from _steps(found, room)
    if average and average["device_ns"]:
        yield from _average(average, room, len(found["ranks"]))
    yield from _unprofiled(found, room)
    for label, column, write, after in (
        ("exposed", "exposed_communication_share", units.share, "of the step: communication that no computation hides"),
        ("input wait", "input_wait_share", units.share, _waits(overview)),
        ("compute", "flops_per_s", lambda value: units.rate(value, "FLOP/s"), "while in steps"),
        ("utilization", "utilization", units.share, "of the chip's peak"),
    ):
        values = [row[column] for row in overview if row[column] is not None]
        if values and (max(values) > 0 or label not in ("input wait", "exposed")):
            yield from _valued(label, _range(write, min(values), max(values)), after, room)
    for index, peak in enumerate(found["memory_peaks"][:_MEMORY_SHOWN]):
        where = _text.clean(peak["device"]) + (f" of rank {peak['rank']}" if len(found["ranks"]) > 1 else "")
        when = f", in step {peak['step']}" if peak["step"] is not None else ", outside the steps"
        held = f" ({units.size(peak['reserved_bytes'])} reserved)" if peak["reserved_bytes"] else ""
        by = f", by {_text.clean(peak['op'])}" if peak["op"] else ""
        most, told = peak["peak_bytes"], f"at most on {where}{held}{when}{by}"
        if most is None:  # a recording may say what was reserved, and not what of it was in use
            most, told = peak["reserved_bytes"] or 0, f"reserved at most on {where}{when}"
        yield from _valued("" if index else "memory", units.size(most), told, room)
    if (more := len(found["memory_peaks"]) - _MEMORY_SHOWN) > 0:
        yield [_label(""), (f"and {units.count(more, 'more device')}", "dim")]


def _waits(overview: list[dict[str, Any]]) -> str:
    waits = [row["input_wait_ns"] for row in overview if row["input_wait_ns"] is not None]
    time = f" ({_range(units.duration, min(waits), max(waits))})" if waits else ""
    return f"of the step{time}: the thread that runs it waits for data"


def _unprofiled(found: dict[str, Any], room: int) -> Iterator[Line]:
    """What recording costs: the median step of the ranks with and without it."""
    recorded = {row["rank"]: row["step_ns"] for row in found["overview"] if row["unprofiled_step_ns"]}
    rows = [row for row in found["unprofiled_steps"] if row["rank"] in recorded]
    if not rows:
        if options := next((row["slowed_by"] for row in found["overview"] if row["overhead"] == "likely"), None):
            after = "recorded besides, which slows the host, by how much is not known: compare with a run without it, "
            after += "or record a few steps with stepscope run --steps 10:20"
            yield from _valued("recording", options, after, room)
        return
    bare, slow = [row["median_ns"] for row in rows], [recorded[row["rank"]] for row in rows]
    more = [with_ / without - 1 for with_, without in zip(slow, bare, strict=True)]
    counts = _range(lambda value: f"{value:,}", min(row["count"] for row in rows), max(row["count"] for row in rows))
    while_recorded = f"{_range(units.duration, min(slow), max(slow))} while recorded ({_range(_change, min(more), max(more))})"
    after = f"per step unprofiled (median of {counts} steps), {while_recorded}"
    yield from _valued("recording", _range(units.duration, min(bare), max(bare)), after, room)


def _change(share: float) -> str:
    return f"{share * 100:+.0f} %"


def _steps(found: dict[str, Any], room: int) -> Iterator[Line]:
    """A bar per step from zero, of the slowest rank; many steps share a bar as high as the longest of them."""
    longest: dict[int, int] = {}
    for row in found["steps"]:
        longest[row["step"]] = max(longest.get(row["step"], 0), row["total_ns"])
    times = list(longest.values())
    each = -(-len(times) // min(room, _BARS))
    highest = [max(times[first : first + each]) for first in range(0, len(times), each)]
    bars = "".join(_LEVELS[min(time * len(_LEVELS) // max(times), len(_LEVELS) - 1)] for time in highest)
    overview = found["overview"]
    how = ", ".join(dict.fromkeys(_HOW.get(word, word) for row in overview for word in row["steps_how"].split(", ")))
    count = f"{len(times):,} {'step' if len(times) == 1 else 'steps'}"
    numbers = f" ({min(longest)} to {max(longest)})" if len(times) > 1 else ""
    slowest = " of the slowest rank" if len(found["ranks"]) > 1 else ""
    spread = f"   {_range(units.duration, min(times), max(times))}{slowest}" + (f"; a bar is the longest of {each}" if each > 1 else "")
    yield [_label("steps"), (bars, "blue"), (spread, "")]
    p90 = _range(units.duration, min(row["p90_ns"] for row in overview), max(row["p90_ns"] for row in overview))
    slow = [row["first_step_ns"] for row in overview if row["left_out"]]
    first = f"; the first ({_range(units.duration, min(slow), max(slow))}) is left out of the figures" if slow else ""
    for line in textwrap.wrap(f"{count}{numbers}, {how}; 90th percentile {p90}{first}", room):
        yield [_label(""), (line, "dim")]


def _average(average: dict[str, Any], room: int, ranks: int) -> Iterator[Line]:
    """The average step of the ranks, on the device: on the host it may be longer or shorter."""
    total, room = average["device_ns"], room - 10
    edges = [0, *itertools.accumulate(average[column] for _, column, _, _ in _STAGES)]
    cells = [round(edge * room / total) for edge in edges]
    pieces = [(sign * (cells[index + 1] - cells[index]), style) for index, (_, _, sign, style) in enumerate(_STAGES)]
    yield [_label("average step"), *pieces, (f" {units.duration(total)}", "bold")]
    legend: Line = [_label("")]
    for name, column, sign, style in _STAGES:
        value = average[column]
        if not value:
            continue
        piece = f" {name} {units.duration(value)} {units.share(value / total)}   "
        if sum(_text.width(text) for text, _ in legend) + len(piece) + 1 > room + _LABEL + 10:
            yield legend
            legend = [_label("")]
        legend += [(sign, style), (piece, "")]
    yield legend
    if ranks > 1:
        yield [_label(""), (f"mean over {ranks:,} ranks", "dim")]


def _ranking(title: str, found: dict[str, Any], name: str, time: str, count: str, style: str, width: int) -> Iterator[Line]:
    """The largest rows with bars scaled to the first, and how many there are in all."""
    rows = found["rows"]
    if not rows:
        return
    shown = [
        [_text.clean(row[name] or "(none)"), f"{row[count]:,}", units.duration(row[time]), units.cell("share", row["share"])]
        for row in rows
    ]
    widths = [max(_text.width(cells[index]) for cells in shown) for index in range(4)]
    widths = [widths[0], *(max(size, len(head)) for size, head in zip(widths[1:], (count, "time", "share"), strict=True))]
    bar = 16 if width < 110 else 24
    title = f"{title}, {len(rows)} of {found['count']:,}" if found["count"] > len(rows) else title
    widths[0] = min(max(widths[0], _text.width(title)), width - sum(widths[1:]) - bar - 2 * 4)
    yield []
    heads = (_text.pad(text, size, True) for text, size in zip((count, "time", "share"), widths[1:], strict=True))
    yield [(_text.pad(_text.shorten(title, widths[0]), widths[0], False), "bold"), ("  " + "  ".join(heads), "dim")]
    for row, cells in zip(rows, shown, strict=True):
        numbers = (_text.pad(text, size, True) for text, size in zip(cells[1:], widths[1:], strict=True))
        filled = max(round(row[time] * bar / rows[0][time]), 1) if rows[0][time] else 0
        yield [
            (_text.pad(_text.shorten(cells[0], widths[0]), widths[0], False), ""),
            ("  " + "  ".join(numbers) + "  ", ""),
            ("━" * filled, style),
        ]


def _problem_lines(problems: list[dict[str, Any]], path: Path, width: int) -> Iterator[Line]:
    if not problems:
        return
    lost = any(row["lost"] for row in problems)
    title = "not everything could be read" if lost else f"while reading, {len(problems):,} {'remark' if len(problems) == 1 else 'remarks'}"
    yield []
    yield [(title, "bold red" if lost else "bold")]
    for row in problems[:_PROBLEMS_SHOWN]:
        text = ": ".join(_text.clean(part) for part in (Path(row["file"] or "").name, row["where"], row["what"]) if part)
        for index, line in enumerate(textwrap.wrap(text, width - 2)):
            yield [("! " if row["lost"] and not index else "  ", "red"), (line, "")]
    if (more := len(problems) - _PROBLEMS_SHOWN) > 0:
        yield [(f"  and {more:,} more: stepscope show problems {_quoted(path)}", "dim")]


def _next(found: dict[str, Any]) -> list[str]:
    """Where to look next: at what the largest part of the lost time asks for, and at the operators."""
    average = found["average_step"]
    lost = {"gaps": "free_ns", "communication": "exposed_ns", "operators": "copy_ns"}
    if not average:
        return ["step_trace", "communication", "totals"] if found["stages"] else ["totals", "hot_paths"]
    first = max(lost, key=lambda word: average[lost[word]])
    return list(dict.fromkeys([first, "operators", "step_trace"]))


def _valued(label: str, figure: str, rest: str, room: int) -> Iterator[Line]:
    first, *others = textwrap.wrap(f"{figure} {rest}", room)
    yield [_label(label), (figure, "bold"), (first[len(figure) :], "dim")]
    yield from ([_label(""), (line, "dim")] for line in others)


def _label(text: str) -> tuple[str, str]:
    return text.ljust(_LABEL), "dim"


def _quoted(path: Path) -> str:
    return _text.clean(shlex.quote(str(path)))
