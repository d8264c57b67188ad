"""Show an analysis or a table of a trace, as text, CSV, JSON or Parquet.

Without arguments, list the analyses and tables. Each analysis has its own flags: `stepscope show ANALYSIS --help`.
"""

import argparse
import shlex
import sys
from pathlib import Path

from stepscope.cli.shared import output
from stepscope.cli.shared.arguments import PATH_HELP, Parser, add_parameters, add_reading, example_text, open_trace, set_parameters
from stepscope.errors import UsageError
from stepscope.model.parameters import nearest

EXAMPLES = """\
stepscope show
stepscope show operators trace.json.gz --limit 10 --columns name,calls,total_ns
stepscope show kernels runs/job-17/ --rank 1 --sort calls -o kernels.csv
stepscope show gaps --help
"""


def add_arguments(parser: Parser, words: list[str]) -> None:
    parser.add_argument("analysis", nargs="?", metavar="ANALYSIS", help="Show this analysis or table. Default: list them.")
    parser.add_argument("path", nargs="?", type=Path, metavar="PATH", help=PATH_HELP)
    add_reading(parser)
    output.add_arguments(parser)
    from stepscope import analyses

    if name := next((word for word in parser.split(words)[1] if word in analyses.names()), None):
        from stepscope.model.trace import analysis

        about = analysis(name)
        parser.description = f"{about.question}\n\n{about.function.__doc__ or ''}"
        parser.epilog = example_text(f"stepscope show {name} trace.json.gz\nstepscope show {name} runs/job-17/ --rank 0 -o {name}.csv")
        add_parameters(parser, name, about.parameters)


def run(args: argparse.Namespace) -> int:
    from stepscope.model import schema
    from stepscope.model.trace import analysis, analysis_names

    if args.analysis is None:
        _list()
        return 0
    name, names = args.analysis, {*analysis_names(), *schema.TABLES}
    if name not in names and str(args.path) in names:  # in the other order
        name, args.path = str(args.path), Path(name)
    if name not in names:
        if args.path is None and Path(name).exists():
            example = f"stepscope show operators {shlex.quote(name)}"
            raise UsageError(f"missing ANALYSIS: {example}; `stepscope show` lists the analyses")
        raise UsageError(f"no analysis or table '{name}'{nearest(name, names) or '; `stepscope show` lists them'}")
    if args.path is None:
        raise UsageError(f"missing PATH: stepscope show {name} PATH")
    output.check_output(args)
    trace = open_trace(args.path, args)
    header = {"analysis": name, "source": trace.meta.source}
    if name in analysis_names():
        about = analysis(name)
        frame = trace.analyse(name, **set_parameters(args, about.parameters)).lazy()
        output.write_table(frame, args, trace, header, about.question)
    else:
        output.write_table(trace.table(name), args, trace, header)
    return 0


def _list() -> None:
    from stepscope.model import schema
    from stepscope.model.trace import analysis, analysis_names

    width = max(map(len, [*analysis_names(), *schema.TABLES]))
    lines = ["analyses", *(f"  {name:<{width}}  {analysis(name).question.splitlines()[0]}" for name in analysis_names())]
    lines += ["", "tables", *(f"  {name:<{width}}  {', '.join(columns)}" for name, columns in schema.TABLES.items())]
    sys.stdout.write("\n".join(lines) + "\n")
