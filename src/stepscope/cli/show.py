"""Show an analysis, or a table of the trace, as a table, CSV, JSON or Parquet.

Without arguments: what there is to show. Each analysis has flags of its own: `stepscope show ANALYSIS --help`.
"""

import argparse
import shlex
from pathlib import Path

from stepscope.cli import _output
from stepscope.cli._arguments import TRACE, Parser, add_parameters, add_reading, example_text, given, open_trace
from stepscope.errors import UsageError
from stepscope.parameters import nearest

EXAMPLES = """\
stepscope show
stepscope show operators trace.json.gz --limit 10 --columns name,calls,total_ns
stepscope show kernels runs/job-17/ --rank 1 --sort calls -o kernels.csv
stepscope show gaps --help
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("analysis", nargs="?", metavar="ANALYSIS", help="An analysis or a table. Default: list them.")
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help=TRACE)
    add_reading(parser)
    _output.add_arguments(parser)
    from stepscope.cli.completion import analyses

    if name := next((word for word in _places(parser, words) if word in analyses()), None):
        from stepscope.trace import analysis

        found = analysis(name)
        parser.description = f"{found.question}\n\n{found.function.__doc__ or ''}"
        parser.epilog = example_text(f"stepscope show {name} trace.json.gz\nstepscope show {name} runs/job-17/ --rank 0 -o {name}.csv")
        add_parameters(parser, name, found.parameters)


def _places(parser: argparse.ArgumentParser, words: list[str]) -> list[str]:
    return parser.split(words)[1] if isinstance(parser, Parser) else words


def run(args: argparse.Namespace) -> int:
    from stepscope import schema
    from stepscope.trace import analysis, analysis_names

    if args.analysis is None:
        _list()
        return 0
    name, names, known = args.analysis, analysis_names(), {*analysis_names(), *schema.TABLES}
    if name not in known and str(args.path) in known:  # in the other order
        name, args.path = str(args.path), Path(name)
    if name not in known:
        if args.path is None and Path(name).exists():
            raise UsageError(
                f"missing ANALYSIS: stepscope show operators {shlex.quote(name)}; `stepscope show` lists what there is to show"
            )
        hint = nearest(name, known) or "; `stepscope show` lists them"
        raise UsageError(f"no analysis or table '{name}'{hint}")
    if args.path is None:
        raise UsageError(f"missing PATH: stepscope show {name} PATH")
    _output.check_output(args)
    trace = open_trace(args.path, args)
    about = {"analysis": name, "source": trace.meta.source}
    if name in names:
        found = analysis(name)
        frame = trace.analyse(name, **given(args, found.parameters)).lazy()
        _output.put(frame, args, trace, about, found.question)
    else:
        _output.put(trace.table(name), args, trace, about)
    return 0


def _list() -> None:
    import sys

    from stepscope import schema
    from stepscope.trace import analysis, analysis_names

    wide = max(map(len, [*analysis_names(), *schema.TABLES]))
    lines = ["analyses", *(f"  {name:<{wide}}  {analysis(name).question.splitlines()[0]}" for name in analysis_names())]
    lines += ["", "tables", *(f"  {name:<{wide}}  {', '.join(columns)}" for name, columns in schema.TABLES.items())]
    sys.stdout.write("\n".join(lines) + "\n")
