"""Summarize a recording that comes with stepscope, and with --view show its pages: four training steps of GPT-2 on an NVIDIA H200."""

import argparse
import os
import sys
from pathlib import Path

from stepscope.cli import summary, view

RECORDING = Path(__file__).parent.parent / "data" / "gpt2_h200"

EXAMPLES = """\
stepscope demo
stepscope demo --view
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    summary.add_format(parser)
    parser.add_argument(
        "--view",
        action="store_true",
        help="Serve its web pages afterwards, until Ctrl-C. Without a terminal, or with CI set, only name the command.",
    )
    view.add_serving(parser)


def run(args: argparse.Namespace) -> int:
    if args.format == "text":
        sys.stdout.write("Four training steps of GPT-2 on an NVIDIA H200, recorded by stepscope:\n\n")
    how = {"partial": False, "step_name": None, "no_cache": False}
    code = summary.run(argparse.Namespace(path=RECORDING, rank=None, format=args.format, **how))
    if not args.view:
        return code
    if not sys.stdout.isatty() or os.environ.get("CI"):  # nobody is there to end it
        if args.format == "text":
            sys.stdout.write("\nstepscope demo --view serves its pages in a terminal.\n")
        return code
    sys.stdout.write("\nIts pages, until Ctrl-C:\n")
    return view.run(argparse.Namespace(**vars(args) | how, paths=[RECORDING]))
