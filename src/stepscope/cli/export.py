"""Write a trace in another format.

A format may have flags of its own: `stepscope export --to FORMAT --help`.
"""

import argparse
import sys
from pathlib import Path

from stepscope import exporters
from stepscope.cli._arguments import OneOf, add_parameters, add_reading, given, open_trace


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help="a trace file, a run folder, or a folder of ranks")
    parser.add_argument("--to", required=True, type=OneOf("format", exporters.names()), metavar="FORMAT", help=", ".join(exporters.names()))
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="OUT", help="the file or folder to write")
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists and is such an export")
    add_reading(parser)
    if name := next((word for word in words if word.removeprefix("--to=") in exporters.names()), None):
        found = exporters.exporter(name.removeprefix("--to="))
        parser.description = found.about
        add_parameters(parser, found.name, found.parameters)


def run(args: argparse.Namespace) -> int:
    found = exporters.exporter(args.to)
    trace = open_trace(args.path, args)
    found.function(trace, args.output, overwrite=args.force, **given(args, found.parameters))
    if sys.stderr.isatty():
        sys.stderr.write(f"wrote {args.output}\n")
    return 0
