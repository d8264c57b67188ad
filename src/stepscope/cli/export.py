"""Write a trace in another format.

A format may have flags of its own: `stepscope export --to FORMAT --help`.
"""

import argparse
import sys
from pathlib import Path

from stepscope import exporters
from stepscope.cli._arguments import TRACE, OneOf, add_parameters, add_reading, check_ending, example_text, given, open_trace
from stepscope.cli._text import clean
from stepscope.parameters import listing

EXAMPLES = """\
stepscope export trace.json.gz --to perfetto -o perfetto.json.gz
stepscope export runs/job-17/ --to parquet -o run --rank 0
stepscope export trace.json.gz --to csv -o tables --analyses
stepscope export --to chrome --help
"""
# What each format that is one file is called; the others are folders.
_OUTPUTS = {"chrome": "trace.json.gz", "perfetto": "trace.json.gz", "speedscope": "flames.speedscope.json", "msprof_db": "msprof.db"}
_ENDINGS = {
    "chrome": (".json", ".gz"),
    "perfetto": (".json", ".gz", ".pftrace", ".perfetto-trace"),
    "speedscope": (".json", ".gz"),
    "msprof_db": (".db", ".sqlite"),
}
_OTHERS = {
    ".csv",
    ".db",
    ".gz",
    ".htm",
    ".html",
    ".json",
    ".ods",
    ".parquet",
    ".pb",
    ".pdf",
    ".sqlite",
    ".tsv",
    ".txt",
    ".xls",
    ".xlsx",
    ".zip",
}


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help=TRACE)
    parser.add_argument(
        "--to", required=True, type=OneOf("format", exporters.names()), metavar="FORMAT", help=f"Write {listing(exporters.names())}."
    )
    parser.add_argument("-o", "--output", required=True, type=Path, metavar="OUT", help="Write to this file or folder.")
    parser.add_argument("--force", action="store_true", help="Replace OUT if it exists and is such an export.")
    add_reading(parser)
    if name := next((word for word in words if word.removeprefix("--to=") in exporters.names()), None):
        found = exporters.exporter(name.removeprefix("--to="))
        parser.description = found.about
        out = _OUTPUTS.get(found.name, found.name)
        parser.epilog = example_text(f"stepscope export trace.json.gz --to {found.name} -o {out}")
        add_parameters(parser, found.name, found.parameters)


def run(args: argparse.Namespace) -> int:
    found = exporters.exporter(args.to)
    _check_ending(args.to, args.output)
    exporters.check_output(args.output, overwrite=args.force)  # before anything is read
    trace = open_trace(args.path, args)
    found.function(trace, args.output, overwrite=args.force, **given(args, found.parameters))
    if sys.stderr.isatty():
        sys.stderr.write(f"wrote {clean(str(args.output))}\n")
    return 0


def _check_ending(form: str, output: Path) -> None:
    if form in _ENDINGS:
        check_ending(output, _ENDINGS[form], f"{form} writes one file for each rank", _OTHERS)
    else:
        check_ending(output, (), f"{form} writes a folder", _OTHERS)
