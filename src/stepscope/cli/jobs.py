"""List the jobs on this machine that `stepscope attach` can record."""

import argparse
import json
import sys

from stepscope.cli import _text
from stepscope.cli._arguments import add_format

EXAMPLES = """\
stepscope jobs
stepscope jobs --format json
"""
_RIGHT = {"pid", "step", "step time"}


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    add_format(parser, "table", "json")


def run(args: argparse.Namespace) -> int:
    from stepscope.recording.attach import jobs

    states = [member.state for member in jobs.members()]
    if args.format == "json":
        sys.stdout.write(json.dumps(states, indent=1) + "\n")
        return 0
    if not states:
        sys.stderr.write("stepscope: no job on this machine can be recorded; start one with `stepscope run --idle SCRIPT`\n")
        return 0
    rows = [
        {
            "job": _text.clean(str(state["job"])),
            "pid": str(state["pid"]),
            "rank": f"{state['rank']} of {state['world_size']}",
            "program": _text.clean(str(state["program"])),
            "step": str(state["step"]),
            "step time": f"{state['step_s'] * 1000:.1f} ms" if state["step_s"] else "",
            "state": str(state["state"]),
        }
        for state in states
    ]
    columns = [_text.Column(name, name in _RIGHT, max(map(_text.width, [name, *(row[name] for row in rows)]))) for name in rows[0]]
    sys.stdout.write(_text.heading(columns) + "\n")
    sys.stdout.writelines(line + "\n" for line in _text.lines(columns, (list(row.values()) for row in rows)))
    return 0
