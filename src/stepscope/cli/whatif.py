"""Predict the step time if some work took more or less time, by a replay of the recording.

Without a change, the replay repeats the recording. Not modeled: contention for memory bandwidth, caches and clocks.
"""

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stepscope.cli import _output, _terminal, _text
from stepscope.cli._arguments import PATH_HELP, OneOf, add_reading, open_trace
from stepscope.cli._terminal import Line
from stepscope.model import units
from stepscope.model.parameters import listing

EXAMPLES = """\
stepscope whatif trace.json.gz --scale aten::mm=0.5
stepscope whatif trace.json.gz --scale "aten::add*=0" --remove sync --remove launch_latency
stepscope whatif runs/job-17/ --infinite-bandwidth --format json
"""
_FORMATS = ("text", "table", "csv", "json", "parquet")
_NARROWEST = 60


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help=PATH_HELP)
    add_reading(parser)
    group = parser.add_argument_group("changes")
    text = "Multiply the time of a kernel, operator, module or function; * and ? match. Repeat for more. Default: none."
    group.add_argument("--scale", action="append", default=[], metavar="NAME=FACTOR", help=text)
    text = "Remove input_wait, sync, launch_latency, copy, communication, host or device. Repeat for more. Default: none."
    group.add_argument("--remove", action="append", default=[], metavar="TIME", help=text)
    text = "Let transfers between ranks take no time; waits for slow ranks remain. Default: off."
    group.add_argument("--infinite-bandwidth", action="store_true", help=text)
    text = f"Write {listing(_FORMATS)}. Default: text."
    parser.add_argument("--format", type=OneOf("format", _FORMATS), default="text", metavar="FORMAT", help=text)


def run(args: argparse.Namespace) -> int:
    trace = open_trace(args.path, args)
    scale, remove = ",".join(args.scale) or None, ",".join(args.remove) or None
    rows = trace.analyse("whatif", scale=scale, remove=remove, infinite_bandwidth=args.infinite_bandwidth)
    if args.format != "text":
        options = argparse.Namespace(
            format=args.format, output=None, force=False, limit=0, sort=None, ascending=False, columns=None, wide=True
        )
        _output.write_table(rows.lazy(), options, trace, {"analysis": "whatif", "source": trace.meta.source})
        return 0
    floors = trace.analyse("floors") if not any((args.scale, args.remove, args.infinite_bandwidth)) else None
    _terminal.write(page(rows.to_dicts(), floors.to_dicts() if floors is not None else [], max(_terminal.width(), _NARROWEST)))
    return 0


def page(rows: list[dict[str, Any]], floors: list[dict[str, Any]], width: int) -> Iterator[Line]:
    """A line per rank; without changes, the floors of the step."""
    if not rows:
        yield [("No complete step is recorded, so there is nothing to replay.", "bold")]
    for row in rows:
        who = f"rank {row['rank']}: " if len(rows) > 1 else ""
        gain = row["gain_ns"]
        change = f"{units.share(abs(row['gain_share'] or 0))} {'shorter' if gain > 0 else 'longer'}" if gain else "no change"
        yield [(f"{who}{units.duration(row['replayed_ns'])} to {units.duration(row['predicted_ns'])} per step, {change}", "bold")]
        details = [f"median of {units.count(row['steps'], 'step')}", f"measured {units.duration(row['step_ns'])}"]
        if row["bottleneck"]:
            details.append(f"then limited by: {row['bottleneck']} ({units.share(row['bottleneck_share'])} of the critical path)")
        yield from ([("    " + line, "dim")] for line in textwrap.wrap(_text.clean(" · ".join(details)), width - 4))
    for rank in dict.fromkeys(row["rank"] for row in floors):
        of_rank = [row for row in floors if row["rank"] == rank and row["floor"] != "measured"]
        texts = [f"{row['floor']} {units.duration(row['step_ns'])}{' (limits)' if row['limits'] else ''}" for row in of_rank]
        yield from ([("    " + line, "")] for line in textwrap.wrap("floors: " + ", ".join(texts), width - 4))
