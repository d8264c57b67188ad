"""Summarize the ranks of a job into one small run folder: `stepscope cluster summarize PATH`.

Each rank is read once, in several processes of this machine, or on a Ray cluster (--engine ray). The result has figures of every rank and
step, and no spans: `summary`, `show` and `view` open it in seconds, also with thousands of ranks.
PATH and OUT may be addresses such as s3://bucket/job: pip install 'stepscope[cluster]'.
"""

import argparse
import sys
from pathlib import PurePath

from stepscope.cli.shared.arguments import OneOf, progress_bar, size_of
from stepscope.cli.shared.layout import clean
from stepscope.model import units

EXAMPLES = """\
stepscope cluster summarize runs/job-17 -o job-17-summary
stepscope cluster summarize s3://traces/job-17 --workers 8 --memory-per-worker 2GiB
stepscope cluster summarize /shared/job-17 --engine ray --address auto
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("action", type=OneOf("action", ["summarize"]), metavar="summarize", help="Write the summary of a job.")
    parser.add_argument("path", metavar="PATH", help="Read this folder of ranks, or this address.")
    text = "Write the summary to this folder or address. Default: PATH's name with -summary, in the current folder."
    parser.add_argument("-o", "--output", metavar="OUT", help=text)
    parser.add_argument("--force", action="store_true", help="Replace OUT if it is a summary. Default: refuse.")
    text = "Run on pool (processes of this machine) or ray (a Ray cluster). Default: pool."
    parser.add_argument("--engine", type=OneOf("engine", ["pool", "ray"]), default="pool", metavar="ENGINE", help=text)
    text = "Use the Ray cluster at auto, HOST:PORT or ray://HOST:PORT. Default: local, a new one on this machine."
    parser.add_argument("--address", metavar="ADDRESS", help=text)
    parser.add_argument("--workers", type=int, metavar="N", help="Run N processes. Default: one for each core.")
    text = "Leave out a rank that needs more memory than this in a process. Default: 700MiB."
    parser.add_argument("--memory-per-worker", type=size_of("--memory-per-worker"), metavar="SIZE", help=text)


def run(args: argparse.Namespace) -> int:
    from stepscope.cluster.summaries import summarize

    output = args.output or f"{PurePath(args.path.rstrip('/')).name}-summary"
    with progress_bar("ranks", in_bytes=False) as report:
        trace = summarize(
            args.path,
            output,
            engine=args.engine,
            address=args.address,
            workers=args.workers,
            memory_per_worker=args.memory_per_worker,
            overwrite=args.force,
            on_progress=report,
        )
    if sys.stderr.isatty():
        ranks = f"{units.count(len(trace.meta.ranks), 'rank')}: " if trace else ""
        sys.stderr.write(f"{ranks}wrote {clean(output)}\n")
    return 0
