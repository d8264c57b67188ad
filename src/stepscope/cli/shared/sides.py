"""The runs on the two sides of `compare` and `gate`."""

import argparse
import functools
from pathlib import Path
from typing import TYPE_CHECKING

from stepscope.cli.shared.arguments import Several, add_reading, open_trace
from stepscope.errors import UsageError
from stepscope.model.parameters import value

if TYPE_CHECKING:
    from stepscope.comparison.compare import Comparison


def add_sides(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("paths", nargs="*", metavar="PATH", help="Compare these runs; * and ? match files. The first is the baseline A.")
    text = "Compare with PATH, the baseline A. Repeat it, or end it with --, for several runs. Default: the first path."
    parser.add_argument("--baseline", action=Several, default=[], metavar="PATH", help=text)
    text = "Leave out the first N steps of each rank. Default: the first, if it is much slower."
    parser.add_argument("--warmup", type=functools.partial(value, int, "--warmup"), metavar="N", help=text)
    text = "Assume that two runs of one program differ by this share, where each side has one run. Default: 0.01."
    parser.add_argument("--run-noise", type=functools.partial(value, float, "--run-noise"), metavar="SHARE", help=text)
    add_reading(parser)


def side_paths(args: argparse.Namespace) -> tuple[list[Path], list[list[Path]]]:
    """The runs of the baseline, and those of each comparison with it: with --baseline all others are one set of runs."""
    from stepscope.comparison.compare import expand_paths

    if args.baseline:
        baseline, others = expand_paths(args.baseline), expand_paths(args.paths)
        if not others:
            raise UsageError(f"missing PATH: the runs to compare with the baseline, {args.parser.prog} --baseline A1 A2 -- B1 B2")
        return baseline, [others]
    paths = expand_paths(args.paths)
    if len(paths) < 2:
        raise UsageError(f"missing PATH: {args.parser.prog} A B, or {args.parser.prog} --baseline A1 A2 -- B1 B2")
    return paths[:1], [[path] for path in paths[1:]]


def compared(baseline: list[Path], others: list[Path], args: argparse.Namespace) -> "Comparison":
    from stepscope.comparison.compare import Comparison, side_of
    from stepscope.comparison.statistics import RUN_NOISE

    a, b = (side_of(label, [open_trace(path, args) for path in paths], args.warmup) for label, paths in (("A", baseline), ("B", others)))
    return Comparison(a, b, RUN_NOISE if args.run_noise is None else args.run_noise)


def title(paths: list[Path]) -> str:
    """base01, base02 and 10 more"""
    names = [str(path) for path in paths]
    return ", ".join(names) if len(names) <= 3 else f"{', '.join(names[:2])} and {len(names) - 2} more"
