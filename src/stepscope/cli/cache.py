"""Show what is kept of files that were read, or remove it (`stepscope cache clear`).

STEPSCOPE_CACHE names another folder, STEPSCOPE_CACHE_LIMIT the most to keep, such as 500MB or 20GiB (default 20GiB).
Entries that a process uses stay.
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
        count, size, in_use = cache.clear()
        stay = f"; {in_use:,} {'is' if in_use == 1 else 'are'} in use and stay{'s' if in_use == 1 else ''}" if in_use else ""
        sys.stdout.write(f"removed {units.count(count, 'entry', 'entries')}, {units.size(size)}{stay}\n")
        return 0
    known = cache.entries()
    used = f"{units.size(sum(entry.size for entry in known))} of at most {units.size(cache.limit())}"
    folder = _text.clean(str(cache.folder()))
    sys.stdout.write(f"{folder}\n{units.count(len(known), 'entry', 'entries')}, {used}\n")
    if cache.is_open_to_others():
        sys.stderr.write(f"stepscope: others can look into {folder}; the entries in it are closed to them (chmod 700 closes it)\n")
    for entry in reversed(known):
        sys.stdout.write(f"  {units.size(entry.size):>10}  {_text.moment(entry.used)}  {_text.clean(entry.source)}\n")
    return 0
