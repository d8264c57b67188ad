"""Check limits on a run against a baseline, for CI: exit code 0 pass, 3 slower (or another limit exceeded), 4 cannot tell.

"Cannot tell" means that the noise is larger than the limit, or that a figure is not recorded. Figures are those of `overview`.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from stepscope import exporters
from stepscope.cli.analysis.compare import markdown_table
from stepscope.cli.shared import layout
from stepscope.cli.shared.arguments import OneOf
from stepscope.cli.shared.sides import add_sides, compared, side_paths, title
from stepscope.errors import UsageError
from stepscope.model.output.tables import json_text

if TYPE_CHECKING:
    from stepscope.comparison.compare import Comparison
    from stepscope.comparison.gate import Check

EXAMPLES = """\
stepscope gate --baseline main.json.gz branch.json.gz --max-slowdown 5%
stepscope gate --baseline 'main/*' 'branch/*' --max peak_memory_bytes=+5% --max idle_share=+2pp
stepscope gate --baseline main/1 main/2 main/3 -- branch/1 branch/2 branch/3 --format junit -o gate.xml
stepscope gate --baseline main.json.gz branch.json.gz --max step_ns=25ms --min utilization=-1pp
"""
FORMATS = ("text", "markdown", "junit", "json")
_ENDINGS = {".md": "markdown", ".xml": "junit", ".json": "json"}


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    add_sides(parser)
    group = parser.add_argument_group("limits")
    text = "Allow the median step to be longer by LIMIT. Default: 5%%, if there is no other limit."
    group.add_argument("--max-slowdown", metavar="LIMIT", help=text)
    text = "Limit a figure of overview: +5%% of A, +2pp of a share, +200MB, or a value such as 25ms. Repeat it for more. Default: none."
    group.add_argument("--max", action="append", default=[], metavar="FIGURE=LIMIT", help=text)
    text = "Require at least this, in the form of --max; a change has a minus: -1pp. Repeat it for more. Default: none."
    group.add_argument("--min", action="append", default=[], metavar="FIGURE=LIMIT", help=text)
    group = parser.add_argument_group("output")
    text = "Write text, markdown, junit or json. Default: by the ending of FILE, else text."
    group.add_argument("--format", type=OneOf("format", FORMATS), metavar="FORMAT", help=text)
    group.add_argument("-o", "--output", type=Path, metavar="FILE", help="Write the report to FILE. Default: standard output.")
    group.add_argument("--force", action="store_true", help="Replace FILE if it exists. Default: refuse.")


def run(args: argparse.Namespace) -> int:
    from stepscope.analyses.steps.overview import COLUMNS
    from stepscope.comparison import gate

    known = [name for name, dtype in COLUMNS.items() if dtype.is_numeric() and name != "rank"]
    limits = [gate.slowdown_limit(args.max_slowdown)] if args.max_slowdown is not None else []
    limits += [gate.parse_limit(text, known, "--max") for text in args.max] + [gate.parse_limit(text, known, "--min") for text in args.min]
    limits = limits or [gate.slowdown_limit("5%")]
    baseline, sets = side_paths(args)
    if len(sets) > 1:
        raise UsageError("gate checks one run, or one set of runs with --baseline A1 A2 -- B1 B2")
    if args.output is not None:
        exporters.check_output(args.output, overwrite=args.force)
    comparison = compared(baseline, sets[0], args)
    checks = [gate.check(comparison, limit) for limit in limits]
    code = gate.result(checks)
    format_name = args.format or (_ENDINGS.get(args.output.suffix.lower(), "text") if args.output else "text")
    names = title(baseline), title(sets[0])
    report = {"text": _plain, "markdown": _markdown, "junit": _junit, "json": _json}[format_name](comparison, checks, names, code)
    if args.output is None:
        sys.stdout.writelines(line + "\n" for line in report)
        return code
    with exporters.draft_output(args.output, overwrite=args.force) as draft:
        draft.write_text("".join(line + "\n" for line in report), encoding="utf-8")
    sys.stdout.writelines(line + "\n" for line in _plain(comparison, checks, names, code))
    return code


_Names = tuple[str, str]


def _plain(comparison: "Comparison", checks: "list[Check]", names: _Names, code: int) -> Iterator[str]:
    from stepscope.comparison import gate

    yield layout.clean(comparison.verdict["text"][0])
    for check in checks:
        yield f"{gate.RESULTS[check.code].upper():<11}  {layout.clean(gate.text(check))}"
    if code:
        yield from (f"  {layout.clean(line)}" for line in _reasons(comparison))


def _reasons(comparison: "Comparison") -> list[str]:
    """The causes and the notices, for a limit that is not kept."""
    rows = comparison.verdict.to_dicts()
    return [
        row["text"]
        for row in rows
        if (row["kind"] == "verdict" and row["position"]) or (row["severity"] in ("medium", "high") and row["kind"] == "notice")
    ]


def _markdown(comparison: "Comparison", checks: "list[Check]", names: _Names, code: int) -> Iterator[str]:
    from stepscope.comparison import gate

    icons = {gate.PASS: "✅", gate.SLOWER: "❌", gate.CANNOT_TELL: "❔"}
    yield f"### {icons[code]} Performance gate: {gate.RESULTS[code]}"
    yield from ("", layout.clean(comparison.verdict["text"][0]), "")
    cells = [[f"`{check.limit.figure}`", *_check_cells(check), gate.RESULTS[check.code]] for check in checks]
    yield from markdown_table(["figure", "A", "B", "limit", "result"], cells)
    yield from ("", f"A: `{names[0]}`, B: `{names[1]}`", "")
    yield from (f"- {layout.clean(line)}" for line in _reasons(comparison))


def _check_cells(check: "Check") -> list[str]:
    from stepscope.comparison import gate

    values = [gate.value_text(check.limit.figure, value) for value in (check.a, check.b)]
    return [*values, f"{'max' if check.limit.largest else 'min'} {check.limit.text}"]


def _junit(comparison: "Comparison", checks: "list[Check]", names: _Names, code: int) -> Iterator[str]:
    """A test per limit: exceeded is a failure, cannot tell an error."""
    from stepscope.comparison import gate

    counts = {
        word: sum(check.code == number for check in checks) for word, number in (("failures", gate.SLOWER), ("errors", gate.CANNOT_TELL))
    }
    attributes = {"tests": str(len(checks)), **{word: str(count) for word, count in counts.items()}}
    root = ElementTree.Element("testsuites", {"name": "stepscope gate", **attributes})
    suite = ElementTree.SubElement(root, "testsuite", {"name": "stepscope gate", **attributes, "skipped": "0", "time": "0"})
    details = "\n".join([comparison.verdict["text"][0], *_reasons(comparison)])
    for check in checks:
        kind = "max" if check.limit.largest else "min"
        name = _xml_text(f"{check.limit.figure} {kind} {check.limit.text}")
        case = ElementTree.SubElement(suite, "testcase", {"classname": "stepscope.gate", "name": name, "time": "0"})
        message = _xml_text(gate.text(check))
        if check.code == gate.PASS:
            ElementTree.SubElement(case, "system-out").text = message
            continue
        word, type_name = ("failure", "exceeded") if check.code == gate.SLOWER else ("error", "cannot tell")
        ElementTree.SubElement(case, word, {"message": message, "type": type_name}).text = _xml_text(details)
    ElementTree.indent(root)
    yield '<?xml version="1.0" encoding="UTF-8"?>'
    yield ElementTree.tostring(root, encoding="unicode")


def _xml_text(text: str) -> str:
    """Names in a trace may contain characters that XML cannot."""
    return "".join(
        char if char in "\t\n" or (char >= " " and not "\ud800" <= char <= "\udfff" and char not in "\ufffe\uffff") else "?"
        for char in text
    )


def _json(comparison: "Comparison", checks: "list[Check]", names: _Names, code: int) -> Iterator[str]:
    from stepscope.comparison import gate

    rows: list[dict[str, Any]] = [
        {
            "figure": check.limit.figure,
            "limit": check.limit.text,
            "kind": "max" if check.limit.largest else "min",
            "of": check.limit.kind,
            "result": gate.RESULTS[check.code],
            **{name: getattr(check, name) for name in ("a", "b", "measured", "low", "high", "reason")},
            "text": gate.text(check),
        }
        for check in checks
    ]
    summary = comparison.summary.row(0, named=True)
    values = {"result": gate.RESULTS[code], "exit_code": code, "a": names[0], "b": names[1], "checks": rows, "summary": summary}
    yield layout.clean(json_text(values | {"verdict": comparison.verdict.to_dicts()}))
