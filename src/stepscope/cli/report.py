"""Write the pages into one HTML file that opens anywhere, without a server and without a network."""

import argparse
import sys
from pathlib import Path

from stepscope import exporters, units
from stepscope.cli._arguments import TRACE, OneOf, add_reading, check_ending, open_trace, size_of
from stepscope.cli._text import clean
from stepscope.web import RUN_PAGES

EXAMPLES = """\
stepscope report trace.json.gz
stepscope report runs/job-17/ --steps 10:12 --page memory --max-size 30MB -o job-17.html
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help=TRACE)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("report.html"), metavar="FILE", help="Write to FILE. Default: report.html."
    )
    parser.add_argument("--force", action="store_true", help="Replace FILE if it exists.")
    parser.add_argument(
        "--page",
        type=OneOf("page", RUN_PAGES),
        default="overview",
        metavar="PAGE",
        help=f"Open with PAGE: {', '.join(RUN_PAGES)}. Default: overview.",
    )
    parser.add_argument(
        "--max-size",
        type=size_of("--max-size"),
        default=10_000_000,
        metavar="SIZE",
        help="Leave out the largest tables until the file is at most SIZE, such as 20MB. Default: 10MB.",
    )
    add_reading(parser)


def run(args: argparse.Namespace) -> int:
    check_ending(args.output, (".html", ".htm"), "a report is one HTML file")
    exporters.check_output(args.output, overwrite=args.force)  # before anything is read
    from stepscope.web.report import report

    trace = open_trace(args.path, args)
    made = report(trace, name=args.path.resolve().name, page=args.page, max_bytes=args.max_size)
    with exporters.whole(args.output, overwrite=args.force) as draft:
        draft.write_text(made.page, "utf-8")
    sys.stdout.write(f"{clean(str(args.output))}: {units.decimal_size(len(made.page.encode()))}\n")
    if made.left_out:
        sys.stderr.write(f"stepscope: left out for size: {', '.join(made.left_out)}; --max-size allows more\n")
    return 0
