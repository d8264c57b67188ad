"""Write a trace in another format.

A format may have its own flags: `stepscope export --to FORMAT --help`.
"""

import argparse
import sys
from pathlib import Path

from stepscope import exporters
from stepscope.cli.shared.arguments import (
    PATH_HELP,
    OneOf,
    add_parameters,
    add_reading,
    check_ending,
    example_text,
    open_trace,
    set_parameters,
)
from stepscope.cli.shared.layout import clean
from stepscope.model.parameters import listing

EXAMPLES = """\
stepscope export trace.json.gz --to perfetto -o perfetto.json.gz
stepscope export runs/job-17/ --to parquet -o run --rank 0
stepscope export trace.json.gz --to csv -o tables --analyses
stepscope export --to chrome --help
"""
_OTHER_ENDINGS = {
    *(".csv", ".db", ".gz", ".htm", ".html", ".json", ".ods", ".parquet"),
    *(".pb", ".pdf", ".sqlite", ".tsv", ".txt", ".xls", ".xlsx", ".zip"),
}


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help=PATH_HELP)
    formats = exporters.names()
    parser.add_argument("--to", required=True, type=OneOf("format", formats), metavar="FORMAT", help=f"Write {listing(formats)}. Required.")
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="OUT", help="Write to this file or folder. Required.")
    parser.add_argument("--force", action="store_true", help="Replace OUT if it is an export of this kind. Default: refuse.")
    add_reading(parser)
    if name := next((word.removeprefix("--to=") for word in words if word.removeprefix("--to=") in formats), None):
        exporter = exporters.exporter(name)
        parser.description = exporter.about
        out = (exporter.file or name).replace("_%Y%m%d%H%M%S", "")
        parser.epilog = example_text(f"stepscope export trace.json.gz --to {name} -o {out}")
        add_parameters(parser, name, exporter.parameters)


def run(args: argparse.Namespace) -> int:
    exporter = exporters.exporter(args.to)
    content = "one file for each rank" if exporter.file else "a folder"
    check_ending(args.output, exporter.endings, f"{args.to} writes {content}", _OTHER_ENDINGS)
    exporters.check_output(args.output, overwrite=args.force)  # before the trace is read
    trace = open_trace(args.path, args)
    exporter.function(trace, args.output, overwrite=args.force, **set_parameters(args, exporter.parameters))
    if sys.stderr.isatty():
        sys.stderr.write(f"wrote {clean(str(args.output))}\n")
    return 0
