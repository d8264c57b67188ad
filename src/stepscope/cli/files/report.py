"""Write the pages of a trace to one HTML file, which opens without a server or network."""

import argparse
import sys
from pathlib import Path

from stepscope import exporters
from stepscope.cli.shared.arguments import PATH_HELP, OneOf, add_reading, check_ending, open_trace, size_of
from stepscope.cli.shared.layout import clean
from stepscope.model import units
from stepscope.server import RUN_PAGES

EXAMPLES = """\
stepscope report trace.json.gz
stepscope report runs/job-17/ --steps 10:12 --page memory --max-size 30MB -o job-17.html
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help=PATH_HELP)
    text = "Write to FILE. Default: report.html."
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="FILE", help=text)
    parser.add_argument("--force", action="store_true", help="Replace FILE if it exists. Default: refuse.")
    text = f"Open with PAGE: {', '.join(RUN_PAGES)}. Default: overview."
    parser.add_argument("--page", type=OneOf("page", RUN_PAGES), default="overview", metavar="PAGE", help=text)
    text = "Leave out the largest tables until the file is at most SIZE, such as 20MB. Default: 10MB."
    parser.add_argument("--max-size", type=size_of("--max-size"), default=10_000_000, metavar="SIZE", help=text)
    add_reading(parser)


def run(args: argparse.Namespace) -> int:
    check_ending(args.output, (".html", ".htm"), "a report is one HTML file")
    exporters.check_output(args.output, overwrite=args.force)  # before the trace is read
    from stepscope.server.report import report

    trace = open_trace(args.path, args)
    result = report(trace, name=args.path.resolve().name, page=args.page, max_bytes=args.max_size)
    with exporters.draft_output(args.output, overwrite=args.force) as draft:
        draft.write_text(result.page, "utf-8")
    sys.stdout.write(f"{clean(str(args.output))}: {units.decimal_size(len(result.page.encode()))}\n")
    if result.left_out:
        sys.stderr.write(f"stepscope: left out because of --max-size: {', '.join(result.left_out)}\n")
    return 0
