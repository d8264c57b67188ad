"""List the jobs on this machine that `stepscope attach` can record."""

import argparse
import json
import sys

from stepscope.cli.shared import layout
from stepscope.cli.shared.arguments import add_format

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
            "job": layout.clean(str(state["job"])),
            "pid": str(state["pid"]),
            "rank": f"{state['rank']} of {state['world_size']}",
            "program": layout.clean(str(state["program"])),
            "step": str(state["step"]),
            "step time": f"{state['step_s'] * 1000:.1f} ms" if state["step_s"] else "",
            "state": str(state["state"]),
        }
        for state in states
    ]
    columns = [layout.Column(name, name in _RIGHT, max(map(layout.width, [name, *(row[name] for row in rows)]))) for name in rows[0]]
    sys.stdout.write(layout.heading(columns) + "\n")
    sys.stdout.writelines(line + "\n" for line in layout.lines(columns, (list(row.values()) for row in rows)))
    return 0
