"""Predict the time of a step if some of its work took more or less time, by a replay of the recorded dependencies.

Several changes apply together, and each is also replayed alone: gains that overlap do not add up. Without a change, show what each kind of
time costs the step. Not modeled: contention for memory bandwidth, caches and clocks.
"""

import argparse
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepscope.cli.shared import layout, output, terminal
from stepscope.cli.shared.arguments import PATH_HELP, OneOf, add_reading, open_trace
from stepscope.cli.shared.terminal import Line
from stepscope.model import units
from stepscope.model.parameters import listing

EXAMPLES = """\
stepscope whatif trace.json.gz
stepscope whatif trace.json.gz --scale "aten::mm=0.5" --remove input_wait
stepscope whatif runs/job-17/ --infinite-bandwidth --scale "layer1/conv1=0" --format json
"""
_FORMATS = ("text", "table", "csv", "json", "parquet")
_NARROWEST, _LABEL, _RANKS = 60, 11, 8
# What limits a step, in words; the keys are those of the column `bottleneck`.
_LIMITS = {
    "host": "the host",
    "input": "the input pipeline",
    "launch": "waits between host and device",
    "kernel": "kernels",
    "copy": "copies",
    "communication": "communication",
}


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help=PATH_HELP)
    text = "Multiply the time of NAME by FACTOR: a kernel, the operator that launched it, a module or a host function; * matches any text."
    parser.add_argument("--scale", action="append", default=[], metavar="NAME=FACTOR", help=f"{text} Repeatable. Default: none.")
    text = "Set a kind of time to zero: input_wait, sync, launch_latency, copy, communication, host or device. Repeatable. Default: none."
    parser.add_argument("--remove", action="append", default=[], metavar="TIME", help=text)
    text = "Set the time of transfers between ranks to zero; waits for slow ranks remain. Default: off."
    parser.add_argument("--infinite-bandwidth", action="store_true", help=text)
    add_reading(parser)
    text = f"Write {listing(_FORMATS)}. Default: text."
    parser.add_argument("--format", type=OneOf("format", _FORMATS), default="text", metavar="FORMAT", help=text)


def run(args: argparse.Namespace) -> int:
    trace = open_trace(args.path, args)
    count = len(args.scale) + len(args.remove) + args.infinite_bandwidth
    chosen = count > 0
    changes: dict[str, Any] = {"scale": ",".join(args.scale) or None, "remove": ",".join(args.remove) or None}
    several = any("," in text for text in (*args.scale, *args.remove)) or count != 1
    if not chosen:
        from stepscope.analyses.shared.replays.changes import REMOVABLE

        changes["remove"] = ",".join(REMOVABLE)
    rows = trace.analyse("whatif", **changes, infinite_bandwidth=args.infinite_bandwidth, each=several)
    if args.format == "text":
        width = max(terminal.width(), _NARROWEST)
        if chosen:
            terminal.write(page(rows.to_dicts(), width, args.path))
        else:
            terminal.write(menu(rows.to_dicts(), trace.analyse("floors").to_dicts(), width, args.path))
        return 0
    options = argparse.Namespace(format=args.format, output=None, force=False, limit=0, sort=None, ascending=False, columns=None, wide=True)
    output.write_table(rows.lazy(), options, trace, {"analysis": "whatif", "source": trace.meta.source})
    return 0


def page(rows: list[dict[str, Any]], width: int, path: Path) -> Iterator[Line]:
    """The answer, the three times of the step, and each change alone."""
    combined = [row for row in rows if row["change"] is None]
    if not combined:
        yield from _nothing(path)
        return
    slowest = max(combined, key=lambda row: row["replayed_ns"])
    yield from _wrapped(_answer(slowest, len(combined)), "bold", width)
    yield from _wrapped(f"{_then(slowest)} limited by {_limit(slowest)}.", "", width)
    yield []
    yield from _times(slowest, width)
    alone = [row for row in rows if row["change"] is not None and row["rank"] == slowest["rank"]]
    if alone:
        yield []
        yield from _gains([*alone, slowest | {"change": "together"}], "change, alone", width)
    yield from _ranks(combined)


def menu(rows: list[dict[str, Any]], floors: list[dict[str, Any]], width: int, path: Path) -> Iterator[Line]:
    """The step as it is, and what it would gain without each kind of time."""
    combined = [row for row in rows if row["change"] is None]
    if not combined:
        yield from _nothing(path)
        return
    slowest = max(combined, key=lambda row: row["replayed_ns"])
    alone = [row for row in rows if row["change"] is not None and row["rank"] == slowest["rank"]]
    best = max(alone, key=lambda row: row["gain_ns"])
    rank = f" on rank {slowest['rank']}" if len(combined) > 1 else ""
    gain = f"{units.duration(best['gain_ns'])} less with --remove {_word(best['change'])}"
    answer = f"{units.duration(slowest['step_ns'])} per step{rank}; {gain}."
    yield from _wrapped(answer, "bold", width)
    yield []
    yield from _times(slowest | {"predicted_ns": None}, width)
    yield []
    yield from _gains(sorted(alone, key=lambda row: -row["gain_ns"]), "without", width)
    of_rank = [row for row in floors if row["rank"] == slowest["rank"] and row["floor"] != "measured"]
    texts = [f"{row['floor']} {units.duration(row['step_ns'])}{' (limits)' if row['limits'] else ''}" for row in of_rank]
    if texts:
        yield []
        yield from _wrapped(f"floors: {', '.join(texts)}", "", width)
    yield []
    quoted = shlex.quote(layout.clean(str(path)))
    yield from _wrapped(f'next  stepscope whatif {quoted} --scale "NAME=0.5" --remove {_word(best["change"])}', "dim", width)


def _nothing(path: Path) -> Iterator[Line]:
    yield [("No complete step is recorded, so there is nothing to replay.", "bold")]
    yield [(f"stepscope show step_trace {shlex.quote(layout.clean(str(path)))} lists the steps.", "dim")]


def _word(change: str) -> str:
    return change.removeprefix("remove ")


def _answer(row: dict[str, Any], ranks: int) -> str:
    gain, share = row["gain_ns"], row["gain_share"] or 0
    rank = f" on rank {row['rank']}" if ranks > 1 else ""
    word = "less" if gain > 0 else "more"
    replayed, predicted = units.duration(row["replayed_ns"]), units.duration(row["predicted_ns"])
    if replayed == predicted:
        exact = f" ({units.duration(abs(gain))} {word})" if gain else ""
        return f"{predicted} per step{rank}, as without the changes{exact}."
    return f"{predicted} per step{rank} instead of {replayed}: {units.duration(abs(gain))} {word} ({units.share(abs(share))})."


def _then(row: dict[str, Any]) -> str:
    return "The step is then" if row["gain_ns"] else "The step is"


def _limit(row: dict[str, Any]) -> str:
    if row["bottleneck"] is None:
        return "nothing that is recorded"
    return f"{_LIMITS.get(row['bottleneck'], row['bottleneck'])} ({units.share(row['bottleneck_share'])} of the critical path)"


def _times(row: dict[str, Any], width: int) -> Iterator[Line]:
    """The step as recorded, replayed and predicted, with bars of the same scale."""
    error = row["replayed_ns"] / row["step_ns"] - 1 if row["step_ns"] else 0.0
    sign = "+" if error > 0 else "-" if error < 0 else ""
    times = [
        ("measured", row["step_ns"], f"median of {units.count(row['steps'], 'step')} ({row['coverage']})", "bright_black"),
        ("replayed", row["replayed_ns"], f"without changes: {sign}{units.share(abs(error))} against measured", "bright_black"),
        ("predicted", row["predicted_ns"], "with the changes", "blue"),
    ]
    longest = max(time for _, time, _, _ in times if time is not None) or 1
    texts = [units.duration(time) if time is not None else "" for _, time, _, _ in times]
    room = max(min(width, 110) - _LABEL - max(map(len, texts)) - max(len(note) for _, _, note, _ in times) - 6, 8)
    for (label, time, note, style), text in zip(times, texts, strict=True):
        if time is None:
            continue
        bar = "━" * max(round(time * room / longest), 1 if time else 0)
        yield [
            (label.ljust(_LABEL), "dim"),
            (text.rjust(max(map(len, texts))) + "  ", "bold"),
            (bar.ljust(room), style),
            (f"  {note}", "dim"),
        ]


def _gains(rows: list[dict[str, Any]], title: str, width: int) -> Iterator[Line]:
    """The gain of each change by itself."""
    cells = [[layout.clean(_word(row["change"])), _signed(row["gain_ns"]), _share(row), _limit(row)] for row in rows]
    headings = [title, "gain", "share", "then limited by"]
    widths = [max(map(layout.width, column)) for column in zip(headings, *cells, strict=True)]
    widths[0] = max(min(widths[0], width - sum(widths[1:]) - 3 * 2), 12)
    for index, row in enumerate([headings, *cells]):
        first, gain, share, limit = row
        style = "dim" if index == 0 else "bold" if first == "together" else ""
        numbers = "  ".join(layout.pad(text, size, True) for text, size in ((gain, widths[1]), (share, widths[2])))
        yield [(f"{layout.pad(layout.shorten(first, widths[0]), widths[0], False)}  {numbers}  {limit}", style)]


def _ranks(rows: list[dict[str, Any]]) -> Iterator[Line]:
    if len(rows) < 2:
        return
    yield []
    yield [("rank     measured  predicted       gain", "dim")]
    for row in sorted(rows, key=lambda row: -row["predicted_ns"])[:_RANKS]:
        times = "  ".join(text.rjust(9) for text in (units.duration(row["step_ns"]), units.duration(row["predicted_ns"])))
        yield [(f"{row['rank']:<6} {times}  {_signed(row['gain_ns']):>9}", "")]
    if len(rows) > _RANKS:
        yield [(f"{len(rows) - _RANKS:,} more ranks: --format table", "dim")]


def _signed(gain: int) -> str:
    """A gain; a loss has a minus sign."""
    return ("-" if gain < 0 else "") + units.duration(abs(gain))


def _share(row: dict[str, Any]) -> str:
    share = row["gain_share"] or 0
    return ("-" if share < 0 else "") + units.share(abs(share))


def _wrapped(text: str, style: str, width: int) -> Iterator[Line]:
    yield from ([(line, style)] for line in textwrap.wrap(text, width))
