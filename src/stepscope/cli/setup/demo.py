"""Summarize a recording that is part of stepscope: four training steps of GPT-2 on an NVIDIA H200."""

import argparse
import os
import sys
from pathlib import Path

from stepscope.cli.analysis import summary, view
from stepscope.cli.shared.arguments import add_format

RECORDING = Path(__file__).parent / "demo_run" / "gpt2_h200"
EXAMPLES = """\
stepscope demo
stepscope demo --view
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    add_format(parser, "text", "json")
    text = "Serve its pages afterwards, until Ctrl-C. Without a terminal, or with CI set, only name the command. Default: off."
    parser.add_argument("--view", action="store_true", help=text)
    view.add_serving(parser)


def run(args: argparse.Namespace) -> int:
    if args.format == "text":
        sys.stdout.write("Four training steps of GPT-2 on an NVIDIA H200, recorded by stepscope:\n\n")
    options = {"partial": False, "step_name": None, "no_cache": False}
    code = summary.run(argparse.Namespace(path=RECORDING, rank=None, format=args.format, **options))
    if not args.view:
        return code
    if not sys.stdout.isatty() or os.environ.get("CI"):  # the server would never end
        if args.format == "text":
            sys.stdout.write("\nTo see its pages, run stepscope demo --view in a terminal.\n")
        return code
    sys.stdout.write("\nIts pages, until Ctrl-C:\n")
    return view.run(argparse.Namespace(**vars(args) | options, paths=[RECORDING]))
