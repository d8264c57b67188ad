"""Write the pages into one HTML file that opens anywhere, without a server and without a network."""

import argparse
import sys
from pathlib import Path

from stepscope.cli._arguments import add_reading, open_trace
from stepscope.errors import UsageError

_SIZES = {"kb": 1_000, "mb": 1_000_000, "gb": 1_000_000_000}


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("path", type=Path, metavar="PATH", help="a trace file, a run folder, or a folder of ranks")
    parser.add_argument("-o", "--output", type=Path, default=Path("report.html"), metavar="FILE", help="the file to write; report.html")
    parser.add_argument("--page", default="overview", metavar="PAGE", help="the page it opens with, such as operators; overview")
    parser.add_argument(
        "--max-size",
        type=_size,
        default=10_000_000,
        metavar="SIZE",
        help="such as 20MB: the largest tables that do not fit are left out; 10MB",
    )
    add_reading(parser)


def run(args: argparse.Namespace) -> int:
    from stepscope.exporters import whole
    from stepscope.web.report import report

    trace = open_trace(args.path, args)
    made = report(trace, name=args.path.resolve().name, page=args.page, max_bytes=args.max_size)
    with whole(args.output, overwrite=True) as draft:  # a full disk leaves what was there
        draft.write_text(made.page, "utf-8")
    sys.stdout.write(f"{args.output}: {len(made.page.encode()) / 1e6:.1f} MB\n")
    if made.left_out:
        sys.stderr.write(f"stepscope: left out for size: {', '.join(made.left_out)}; --max-size allows more\n")
    return 0


def _size(word: str) -> int:
    text = word.strip().lower()
    unit = _SIZES.get(text[-2:], 1)
    digits = text[:-2] if unit > 1 else text
    try:
        return int(float(digits) * unit)
    except ValueError:
        raise UsageError(f"--max-size is '{word}'; expected a size such as 500kB, 20MB") from None
