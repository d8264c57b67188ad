"""Record steps of a running job: one started with `stepscope run`, or one that uses DynamicProfilerMonitor.

PID is a process of the job, or the `stepscope run` that started it. JOB is the name that `stepscope jobs` lists. All ranks of the job on
this machine record the same steps.
"""

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stepscope.cli.recording.run import add_options, profiler_options
from stepscope.cli.shared import layout
from stepscope.cli.shared.arguments import seconds
from stepscope.errors import UsageError
from stepscope.model import units
from stepscope.model.parameters import steps

EXAMPLES = """\
stepscope attach 4242
stepscope attach train --steps 10 --memory --out data
stepscope attach 4242 --steps 100:109
stepscope attach 4242 --seconds 5
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("job", metavar="PID|JOB", help="Record this process or job; `stepscope jobs` lists them.")
    parser.add_argument("--steps", type=_steps, metavar="N|A:B", help="Record the next N steps, or steps A to B (inclusive). Default: 5.")
    parser.add_argument(
        "--from-step", type=int, metavar="A", help="With N steps: begin with step A, for ranks on several machines. Default: the next step."
    )
    parser.add_argument(
        "--seconds", type=seconds, metavar="S", help="Record for S seconds from now, for programs without steps. Default: record steps."
    )
    add_options(parser)


def run(args: argparse.Namespace) -> int:
    from stepscope.recording.attach import jobs

    if args.seconds and (args.steps or args.from_step is not None):
        raise UsageError("--seconds and --steps exclude one another; use one of them")
    first, count = args.steps or (None, 5)
    if first is not None and args.from_step is not None:
        raise UsageError("--steps A:B and --from-step exclude one another; use one of them")
    options = profiler_options(args)
    out = options.pop("output_path", args.out)
    ranks = jobs.members_of_job(args.job)
    first = args.from_step if first is None else first
    recording = jobs.record(ranks, count=None if args.seconds else count, seconds=args.seconds, first=first, options=options, out=out)
    elsewhere = ranks[0].state["world_size"] - len(ranks)
    if recording.first is not None:
        last = recording.first + count - 1
        sys.stderr.write(f"stepscope: recording steps {recording.first} to {last} of {units.count(len(ranks), 'rank')}\n")
        if elsewhere > 0:
            flag = f"--steps {recording.first}:{last}"
            sys.stderr.write(f"stepscope: {units.count(elsewhere, 'rank')} on other machines: run `stepscope attach {flag}` there\n")
    try:
        answers = recording.wait(_progress())
    except KeyboardInterrupt:
        recording.withdraw()
        raise
    return _report(answers)


def _report(answers: list[dict[str, Any]]) -> int:
    from stepscope.recording import launch

    paths = launch.run_paths([Path(answer["capture"]) for answer in answers if answer["capture"]])
    for answer in answers:
        if answer["problem"]:
            sys.stderr.write(f"stepscope: rank {answer['rank']}: {layout.clean(answer['problem'])}\n")
    for path in paths:
        sys.stdout.write(layout.clean(f"recorded {path}; open it with: stepscope view {shlex.quote(str(path))}") + "\n")
    return 0 if paths and not any(answer["problem"] for answer in answers) else 1


def _progress() -> Callable[[str], None]:
    """A line that changes, on a terminal; nothing on a pipe."""
    if not sys.stderr.isatty():
        return lambda text: None
    return lambda text: print(f"\rstepscope: {layout.clean(text)}\033[K", end="", file=sys.stderr, flush=True)  # noqa: T201


def _steps(word: str) -> tuple[int | None, int]:
    """The first step, if it is given, and the number of steps."""
    if ":" in word:
        first, last = steps(word)
        return first, last - first + 1
    if not word.isdigit() or int(word) < 1:
        raise UsageError(f"--steps is '{word}'; expected a number of steps, or A:B for the steps A to B")
    return None, int(word)
