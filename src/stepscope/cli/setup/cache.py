"""Show the cache of converted traces, or clear it (`stepscope cache clear`).

STEPSCOPE_CACHE sets its folder. STEPSCOPE_CACHE_LIMIT sets its largest size, such as 500MB or 20GiB (default 20GiB).
Entries in use are never removed.
"""

import argparse
import sys

from stepscope.cli.shared import layout
from stepscope.cli.shared.arguments import OneOf
from stepscope.io import cache, cache_folder
from stepscope.model import units

EXAMPLES = """\
stepscope cache
stepscope cache clear
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    text = "Remove all entries that are not in use. Default: list the entries."
    parser.add_argument("action", nargs="?", type=OneOf("action", ["clear"]), metavar="clear", help=text)


def run(args: argparse.Namespace) -> int:
    if args.action == "clear":
        count, size, in_use = cache.clear()
        rest = f"; {units.count(in_use, 'entry', 'entries')} in use" if in_use else ""
        sys.stdout.write(f"removed {units.count(count, 'entry', 'entries')}, {units.size(size)}{rest}\n")
        return 0
    entries = cache.entries()
    used = f"{units.size(sum(entry.size for entry in entries))} of at most {units.size(cache.limit())}"
    folder = layout.clean(str(cache_folder.folder()))
    sys.stdout.write(f"{folder}\n{units.count(len(entries), 'entry', 'entries')}, {used}\n")
    if cache_folder.is_open_to_others():
        sys.stderr.write(f"stepscope: other users can list {folder} but not read its entries; to hide the list: chmod 700 {folder}\n")
    for entry in reversed(entries):
        sys.stdout.write(f"  {units.size(entry.size):>10}  {layout.local_time(entry.used)}  {layout.clean(entry.source)}\n")
    return 0
