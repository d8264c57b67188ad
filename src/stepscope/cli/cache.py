"""Show what is kept of files that were read, or remove it (`stepscope cache clear`).

STEPSCOPE_CACHE names another folder, STEPSCOPE_CACHE_LIMIT the most bytes to keep.
"""

import argparse
import sys

from stepscope import cache, units
from stepscope.cli import _text
from stepscope.cli._arguments import OneOf

EXAMPLES = """\
stepscope cache
stepscope cache clear
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument(
        "action",
        nargs="?",
        type=OneOf("action", ["clear"]),
        metavar="clear",
        help="Remove everything that is kept. Default: show what is kept.",
    )


def run(args: argparse.Namespace) -> int:
    if args.action == "clear":
        count, size = cache.clear()
        sys.stdout.write(f"removed {units.count(count, 'entry', 'entries')}, {units.size(size)}\n")
        return 0
    known = cache.entries()
    used = f"{units.size(sum(entry.size for entry in known))} of at most {units.size(cache.limit())}"
    sys.stdout.write(f"{_text.clean(str(cache.folder()))}\n{units.count(len(known), 'entry', 'entries')}, {used}\n")
    for entry in reversed(known):
        sys.stdout.write(f"  {units.size(entry.size):>10}  {_text.moment(entry.used)}  {_text.clean(entry.source)}\n")
    return 0
