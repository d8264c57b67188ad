"""Summarise a recording that comes with stepscope: four training steps of GPT-2 on an NVIDIA H200."""

import argparse
import sys
from pathlib import Path

from stepscope.cli import summary

RECORDING = Path(__file__).parent.parent / "data" / "gpt2_h200"


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    summary.add_format(parser)


def run(args: argparse.Namespace) -> int:
    if args.format == "text":
        sys.stdout.write("Four training steps of GPT-2 on an NVIDIA H200, recorded by stepscope:\n\n")
    args = argparse.Namespace(path=RECORDING, partial=False, step_name=None, rank=None, no_cache=False, format=args.format)
    return summary.run(args)
