"""Advise what to fix first: findings with their culprit, their gain by replay and the fix; then what could not be checked.

A gain is what a replayed step gets shorter with the fix, on average. Gains overlap: the last line has all fixes together.
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
stepscope advise trace.json.gz
stepscope advise runs/job-17/ --rank 1 --steps 2:5 --all
stepscope advise trace.json.gz --format json
"""
_FORMATS = ("text", "table", "csv", "json", "parquet")
_TOP, _NARROWEST, _INDENT = 5, 60, 4
_OF_STEP = {"unprofiled": "of the unprofiled step of {}", "recorded": "of the step of {}", "mean": "of the mean step of {}"}
_STYLES = {"high": "bold red", "medium": "bold yellow", "low": "bold"}


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help=PATH_HELP)
    add_reading(parser)
    text = f"Show all findings with code and links, and every rule that was not checked. Default: the first {_TOP}."
    parser.add_argument("--all", action="store_true", help=text)
    text = f"Write {listing(_FORMATS)}. Default: text."
    parser.add_argument("--format", type=OneOf("format", _FORMATS), default="text", metavar="FORMAT", help=text)


def run(args: argparse.Namespace) -> int:
    trace = open_trace(args.path, args)
    rows = trace.analyse("advice")
    if args.format == "text":
        waterfall = trace.analyse("waterfall").to_dicts()
        width = max(terminal.width(), _NARROWEST)
        terminal.write(page(rows.to_dicts(), waterfall, args.path, width, everything=args.all))
        return 0
    options = argparse.Namespace(
        format=args.format, output=None, force=False, limit=0, sort=None, ascending=False, columns=None, wide=args.all
    )
    output.write_table(rows.lazy(), options, trace, {"analysis": "advice", "source": trace.meta.source})
    return 0


def headline(row: dict[str, Any]) -> str:
    """The title of a finding with its gain, as one line."""
    return f"{layout.clean(row['title'])} The fix gains {_gain(row)} ({row['confidence']} confidence)."


def page(rows: list[dict[str, Any]], waterfall: list[dict[str, Any]], path: Path, width: int, *, everything: bool) -> Iterator[Line]:
    """One screen: the findings, their sum, statements, and what was not checked."""
    findings = [row for row in rows if row["status"] in ("finding", "healthy")]
    statements = [row for row in rows if row["status"] == "statement"]
    unchecked = [row for row in rows if row["status"] == "not checked"]
    if not findings:
        yield [("No complete step is recorded, so no gain is known.", "bold")]
    shown = findings if everything else findings[:_TOP]
    for number, row in enumerate(shown, 1):
        yield from _finding(number, row, width, everything)
    if more := len(findings) - len(shown):
        yield [(f"{units.count(more, 'more finding')}: stepscope advise --all {shlex.quote(layout.clean(str(path)))}", "dim")]
    if len(waterfall) > 1:
        first, last = waterfall[0], waterfall[-1]
        before, after = first["step_before_ns"], last["step_after_ns"]
        share = units.share((before - after) / before) if before else ""
        base = "unprofiled" if first["of_step"] == "unprofiled" else "replayed"
        yield [
            ("all fixes   ", "dim"),
            (f"{units.duration(before)} to {units.duration(after)} per {base} step ({share} less)", "bold"),
        ]
    if statements:
        yield []
    for row in statements:
        yield from _wrapped(layout.clean(row["title"]), "", width, 0)
    if coverage := next((row["coverage"] for row in rows if row["coverage"]), None):
        yield [("replayed    ", "dim"), (layout.clean(coverage), "dim")]
    yield from _not_checked(unchecked, width, everything)


def _finding(number: int, row: dict[str, Any], width: int, everything: bool) -> Iterator[Line]:
    severity = row["severity"]
    lead = f"{number}  " if row["status"] == "finding" else ""
    first, *others = textwrap.wrap(layout.clean(row["title"]), width - _INDENT)
    yield [(lead.ljust(_INDENT) if lead else "", "dim"), (first, _STYLES.get(severity, "bold"))]
    yield from ([(" " * (_INDENT if lead else 0) + line, _STYLES.get(severity, "bold"))] for line in others)
    if row["status"] != "finding":
        return
    facts = [f"gain {_gain(row)}", f"{severity} severity", f"{row['confidence']} confidence"]
    facts += [f"then limited by: {row['next_bottleneck']}"] if row["next_bottleneck"] and row["gain_ns"] else []
    yield from _wrapped(" · ".join(facts), "dim", width, _INDENT)
    if row["fix"]:
        yield from _wrapped(layout.clean(row["fix"]), "", width, _INDENT)
    if row["snippet"] and (everything or number == 1):
        yield from ([(" " * _INDENT + layout.clean(line), "green")] for line in row["snippet"].splitlines())
    if everything and row["link"]:
        yield [(" " * _INDENT + row["link"], "dim")]
    yield []


def _gain(row: dict[str, Any]) -> str:
    if row["later_ns"] is not None:
        hidden = f" ({row['after']} hides it)" if row["after"] else ""
        frees = f"; it frees {units.duration(row['device_ns'])} of device time" if row["device_ns"] else ""
        return f"nothing now{hidden}{frees}; {units.duration(row['later_ns'])} per step once the findings above are fixed"
    of_step = _OF_STEP[row["of_step"]].format(units.duration(row["of_step_ns"]))
    return f"{units.duration(row['gain_ns'])} per step, {units.share(row['gain_share'])} {of_step}"


def _not_checked(rows: list[dict[str, Any]], width: int, everything: bool) -> Iterator[Line]:
    """The rules by what they need; with `everything` each rule."""
    if not rows:
        return
    yield []
    yield [(f"not checked: {units.count(len(rows), 'rule')}", "bold")]
    if everything:
        for row in rows:
            yield from _wrapped(layout.clean(f"{row['rule']}: {row['not_checked']}"), "dim", width, 2)
        return
    needs: dict[str, list[str]] = {}
    for row in rows:
        needs.setdefault(row["not_checked"], []).append(row["rule"])
    for need, names in sorted(needs.items(), key=lambda item: -len(item[1])):
        yield from _wrapped(layout.clean(f"{need} ({', '.join(names)})"), "dim", width, 2)


def _wrapped(text: str, style: str, width: int, indent: int) -> Iterator[Line]:
    yield from ([(" " * indent + line, style)] for line in textwrap.wrap(text, width - indent))
