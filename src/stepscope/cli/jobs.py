"""List the jobs on this machine that `stepscope attach` can record: process, rank, program, step and state."""

import argparse
import json
import sys

from stepscope.cli import _text
from stepscope.cli._arguments import OneOf

EXAMPLES = """\
stepscope jobs
stepscope jobs --format json
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument(
        "--format", type=OneOf("format", ["table", "json"]), default="table", metavar="FORMAT", help="Write table or json. Default: table."
    )


def run(args: argparse.Namespace) -> int:
    from stepscope import jobs

    said = [member.said for member in jobs.members()]
    if args.format == "json":
        sys.stdout.write(json.dumps(said, indent=1) + "\n")
        return 0
    if not said:
        sys.stderr.write("stepscope: no job listens here; `stepscope run --idle SCRIPT` starts one that does\n")
        return 0
    names = ("job", "pid", "rank", "program", "step", "step time", "state")
    rows = [
        [
            _text.clean(str(one["job"])),
            str(one["pid"]),
            f"{one['rank']} of {one['world_size']}",
            _text.clean(str(one["program"])),
            str(one["step"]),
            f"{one['step_s'] * 1000:.1f} ms" if one["step_s"] else "",
            str(one["state"]),
        ]
        for one in said
    ]
    right = {"pid", "step", "step time"}
    columns = [
        _text.Column(name, name in right, max(_text.width(cell) for cell in [name, *(row[index] for row in rows)]))
        for index, name in enumerate(names)
    ]
    sys.stdout.write(_text.heading(columns) + "\n")
    sys.stdout.writelines(line + "\n" for line in _text.lines(columns, rows))
    return 0
