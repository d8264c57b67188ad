"""Record steps of a job that is running: one started with `stepscope run`, or that carries our DynamicProfilerMonitor.

PID is a process of the job, or the `stepscope run` that started it; JOB is its name as `stepscope jobs` shows it. All ranks of the job on
this machine record the same steps, beginning with one that none of them has reached.
"""

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope import units
from stepscope.cli import _text
from stepscope.cli.run import _seconds, add_options, chosen
from stepscope.errors import UsageError

EXAMPLES = """\
stepscope attach 4242
stepscope attach train --steps 10 --memory --out data
stepscope attach 4242 --seconds 5
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("job", metavar="PID|JOB", help="A process or a job; `stepscope jobs` lists them.")
    parser.add_argument("--steps", type=_count, metavar="N", help="Record so many steps. Default: 5.")
    parser.add_argument(
        "--from-step", type=int, metavar="STEP", help="Begin with this step, for ranks on several machines. Default: the next one."
    )
    parser.add_argument(
        "--seconds", type=_seconds, metavar="S", help="Record for so long from now on, for programs without steps. Default: record steps."
    )
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    from stepscope import jobs

    if args.seconds and (args.steps or args.from_step is not None):
        raise UsageError("--seconds and --steps exclude one another; give one")
    options = chosen(args)
    out = options.pop("output_path", args.out)
    ranks = jobs.of(args.job)
    count = None if args.seconds else args.steps or 5
    agreed = jobs.record(ranks, count=count, seconds=args.seconds, first=args.from_step, options=options, out=out)
    beyond = ranks[0].said["world_size"] - len(ranks)
    if agreed.first is not None:
        sys.stderr.write(f"stepscope: steps {agreed.first} to {agreed.first + (count or 0) - 1} of {units.count(len(ranks), 'rank')}\n")
        if beyond > 0:
            others = f"{units.count(beyond, 'rank')} on other machines"
            sys.stderr.write(f"stepscope: {others}: run `stepscope attach --from-step {agreed.first}` there, too\n")
    try:
        answers = agreed.wait(_progress())
    except KeyboardInterrupt:
        agreed.withdraw()
        raise
    return _report(answers)


def _report(answers: list[dict[str, Any]]) -> int:
    from stepscope import launching

    places = launching.places([Path(one["capture"]) for one in answers if one["capture"]])
    for one in answers:
        if one["problem"]:
            sys.stderr.write(f"stepscope: rank {one['rank']}: {_text.clean(one['problem'])}\n")
    for place in places:
        sys.stdout.write(_text.clean(f"recorded {place}; open it with: stepscope view {shlex.quote(str(place))}") + "\n")
    return 0 if places and not any(one["problem"] for one in answers) else 1


def _progress() -> Callable[[str], None]:
    """A line that changes, on a terminal; nothing on a pipe."""
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"\rstepscope: {_text.clean(text)}\033[K", end="", file=sys.stderr, flush=True)  # noqa: T201


def _count(word: str) -> int:
    if not word.isdigit() or int(word) < 1:
        raise UsageError(f"--steps is '{word}'; expected how many, 1 or more")
    return int(word)
