"""The msprof command of Ascend's toolkit, without the toolkit: stepscope msprof --export=on --output=PROF_XXX.

DIR is a PROF_* directory or a folder of them; several are processed at the same time.

--export=on    decode, and write mindstudio_profiler_output and msprof_TIME.db (with --type=db, only the latter) into the directory
--parse=on     decode only, and print a summary
--query=on     list devices, models and their iterations, for --model-id and --iteration-id
--analyze=on   write analyze/communication.json and communication_matrix.json
--clear=on     finally remove the sqlite folders of Ascend's own parser

`stepscope msprof [--output=DIR] COMMAND` records a command as `stepscope run` does.
"""

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepscope.cli.shared.arguments import OneOf
from stepscope.cli.shared.layout import clean
from stepscope.errors import UsageError
from stepscope.model import units
from stepscope.model.parameters import nearest

if TYPE_CHECKING:
    from stepscope.recording.conversion.prof_folders import Request, Result

_RULES = ("communication", "communication_matrix")
# Collection options of msprof: the argument of our Profiler; "" for data that are always recorded, None for options without effect here.
_COLLECT: dict[str, str | None] = {
    "ascendcl": "",
    "runtime-api": "",
    "task-time": "",
    "task-trace": "",
    "hccl": "",
    "model-execution": "",
    "ge-api": "",
    "ai-core": "",
    "aic-metrics": "aic_metrics",
    "msproftx": "mstx",
    "aicpu": "data_process",
    "l2": "l2_cache",
    "task-memory": "profile_memory",
    "sys-hardware-mem": "hbm_ddr",
    "sys-io-profiling": "sys_io",
    "sys-interconnection-profiling": "sys_interconnection",
    "host-sys": "host_sys",
} | dict.fromkeys(
    (
        *("aic-mode", "aic-freq", "sys-hardware-mem-freq", "sys-io-sampling-freq", "sys-interconnection-freq", "sys-cpu-profiling"),
        *(
            "sys-cpu-freq",
            "sys-profiling",
            "sys-sampling-freq",
            "sys-pid-profiling",
            "sys-pid-sampling-freq",
            "dvpp-profiling",
            "dvpp-freq",
        ),
        *("llc-profiling", "host-sys-pid", "host-sys-usage", "host-sys-usage-freq", "instr-profiling", "instr-profiling-freq"),
        *("storage-limit", "environment", "delay", "sys-period", "sys-devices", "python-path"),
    )
)

EXAMPLES = """\
stepscope msprof --export=on --output=PROF_000001_20260605
stepscope msprof --query=on --output=profiler_data
stepscope msprof --output=data train.py
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    group = parser.add_argument_group("actions")
    for name, about in _ACTIONS.items():
        group.add_argument(f"--{name}", type=_switch, metavar="on|off", help=f"{about} Default: off.")
    group = parser.add_argument_group("input and output")
    group.add_argument(
        "--output",
        type=Path,
        metavar="DIR",
        help="Work on this PROF_* directory, or on those in this folder; record a command below it. Default: data, for a command.",
    )
    group.add_argument(
        "--type",
        type=OneOf("type", ("text", "db")),
        default="text",
        metavar="TYPE",
        help="Write text (JSON, CSV and the database) or db. Default: text.",
    )
    group.add_argument("--model-id", type=_number, metavar="N", help="Export only this model; with --iteration-id. Default: all.")
    group.add_argument("--iteration-id", type=_number, metavar="N", help="Export only this iteration of it. Default: all.")
    group.add_argument(
        "--summary-format",
        type=OneOf("format", ("csv", "json")),
        default="csv",
        metavar="FORMAT",
        help="Write tables as csv or json. Default: csv.",
    )
    group.add_argument(
        "--reports", type=Path, metavar="FILE", help="Write only the timeline layers of this JSON file (json_process). Default: all."
    )
    group.add_argument(
        "--rule", type=_rules, default=[*_RULES], metavar="A,B", help="Analyze communication, communication_matrix, or both. Default: both."
    )
    group = parser.add_argument_group("recording")
    group.add_argument("--application", metavar="COMMAND", help="Record this command, given as one word. Default: the words at the end.")
    group.add_argument("--duration", type=_number, metavar="S", help="Record this number of seconds. Default: all steps, up to 1,000.")
    group.add_argument("--dynamic", type=_switch, metavar="on|off", help=argparse.SUPPRESS)
    group.add_argument("--pid", metavar="PID", help=argparse.SUPPRESS)
    for name in _COLLECT:
        group.add_argument(f"--{name}", metavar="VALUE", help=argparse.SUPPRESS)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="COMMAND", help="A script or a command to record, and its arguments.")


_ACTIONS = {
    "export": "Decode, and write the files of msprof.",
    "parse": "Decode, and print a summary.",
    "query": "List devices, models and iterations.",
    "analyze": "Write the times of communication operators, and the links between ranks.",
    "clear": "Remove sqlite folders, if the other actions succeed.",
}


def run(args: argparse.Namespace) -> int:
    command = shlex.split(args.application) if args.application else args.words
    if command:
        return _record(command, args)
    if args.dynamic == "on" or args.pid:
        raise UsageError(f"record a running job with: stepscope attach {args.pid or 'PID'}")
    actions = [name for name in _ACTIONS if getattr(args, name) == "on"]
    if not actions:
        raise UsageError(_missing_action(args))
    if args.output is None:
        raise UsageError(f"--{actions[0]}=on needs --output=DIR, a PROF_* directory or a folder of them")
    if (args.model_id is None) != (args.iteration_id is None):
        raise UsageError("--model-id and --iteration-id select one iteration together; --query=on lists them")
    from stepscope.exporters.msprof.exporter import timeline_layers
    from stepscope.recording.conversion import prof_folders

    if args.reports:
        timeline_layers(args.reports)  # an error in it concerns all directories
    folders = prof_folders.below(args.output)
    if not folders:
        raise UsageError(f"{args.output}: no PROF_* directory here; expected one, or a folder of them")
    requests = [_request(folder, actions, args) for folder in folders]
    rows: list[list[str]] = []
    failed = 0
    for result in prof_folders.each(requests):
        name = [Path(result.folder).name] if len(folders) > 1 else []  # many have a device_0
        rows += [[*row[:2], "/".join([*name, row[2]]), *row[3:]] for row in result.table]
        failed += bool(result.failed)
        _print_result(result, silent=actions == ["query"])
    if rows:
        _print_table(prof_folders.HEADER, sorted(rows, key=lambda row: (row[0], row[3], row[2])))
    if len(folders) > 1:
        sys.stderr.write(f"stepscope: {len(folders) - failed} of {units.count(len(folders), 'directory', 'directories')} done\n")
    return 1 if failed else 0


def _request(folder: Path, actions: list[str], args: argparse.Namespace) -> "Request":
    from stepscope.recording.conversion.prof_folders import Request

    return Request(
        folder=str(folder),
        query=bool({"query", "parse"} & set(actions)),
        text="export" in actions and args.type == "text",
        # msprof itself writes its database with either type; of a single iteration it writes none.
        database="export" in actions and (args.type == "db" or args.model_id is None),
        rules=args.rule if "analyze" in actions else [],
        rule_type=args.type,
        clear="clear" in actions,
        model_id=args.model_id,
        iteration_id=args.iteration_id,
        summary_format=args.summary_format,
        reports=str(args.reports) if args.reports else None,
    )


def _missing_action(args: argparse.Namespace) -> str:
    if any(getattr(args, name.replace("-", "_")) is not None for name in _COLLECT):
        return "missing COMMAND to record; Ascend's own msprof, on a machine with an NPU, collects data of the whole system"
    return "missing action; --export=on --output=PROF_XXX exports a directory (`stepscope msprof --help` lists the actions)"


# Output


def _print_result(result: "Result", *, silent: bool) -> None:
    """Print the result for a directory; `silent` prints only an error."""
    name = clean(result.folder)
    if result.failed:
        sys.stderr.write(f"stepscope: {name}: {clean(result.failed)}\n")
    if silent:
        return
    lines = [f"{name}: {clean(result.content)}"] if result.content else [name] if result.notes else []
    lines += [f"  wrote {_file(file.path, result.folder)}  {_size(file.rows, file.bytes)}" for file in result.written]
    lines += [f"  {clean(note)}" for note in result.notes]
    lines += [f"  problem: {clean(problem)}" for problem in result.problem_lines]
    if result.lost:
        are = "is" if result.lost == 1 else "are"
        lines.append(f"  {units.count(result.lost, 'record')} {are} missing; `stepscope show problems {name}` lists them")
    if lines:
        seconds = f" in {result.seconds:.1f} s" if result.written else ""
        sys.stdout.write("\n".join([f"{lines[0]}{seconds}", *lines[1:]]) + "\n")
        sys.stdout.flush()


def _file(path: str, folder: str) -> str:
    return clean(str(Path(path).relative_to(folder)))


def _size(rows: int | None, size: int) -> str:
    return units.size(size) if rows is None else units.count(rows, "row")


def _print_table(header: tuple[str, ...], rows: list[list[str]]) -> None:
    """Columns as msprof prints them: padded, separated by tabs."""
    table = [list(header), *([clean(word) for word in row] for row in rows)]
    widths = [max(len(row[at]) for row in table) for at in range(len(header))]
    for row in table:
        sys.stdout.write("\t".join(word.ljust(width) for word, width in zip(row, widths, strict=True)).rstrip() + "\n")


# Recording


def _record(command: list[str], args: argparse.Namespace) -> int:
    """As `stepscope run` does."""
    from stepscope.cli.recording import run as recording

    options: dict[str, Any] = {}
    for name, ours in _COLLECT.items():
        value = getattr(args, name.replace("-", "_"))
        if value is None or value == "off":
            continue
        if ours is None:
            sys.stderr.write(f"stepscope: --{name} has no effect here\n")
        elif ours:
            options[ours] = value
    chosen = argparse.Namespace(
        profiling_options=json.dumps(options) if options else None,
        **dict.fromkeys(("profile_memory", "record_shapes", "with_stack", "with_flops", "data_process", "profiler_level", "module")),
        steps=None,
        step_on=None,
        seconds=args.duration,
        keep_slow=None,
        idle=False,
        out=str(args.output or "data"),
        words=command,
    )
    before = _recordings(args.output)
    code = recording.run(chosen)
    if _recordings(args.output) == before:
        sys.stderr.write(
            "stepscope: Python programs are recorded, with PyTorch, MindSpore or JAX; what calls Ascend's libraries itself is recorded by "
            "Ascend's own msprof, on a machine with an NPU, and exported here: stepscope msprof --export=on --output=PROF_XXX\n"
        )
    return code


def _recordings(output: Path | None) -> set[str]:
    folder = output or Path("data")
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


# Values of options


def _switch(word: str) -> str:
    if word not in ("on", "off"):
        raise UsageError(f"'{word}' is neither on nor off" + nearest(word, ["on", "off"]))
    return word


def _number(word: str) -> int:
    if not word.isdigit():
        raise UsageError(f"'{word}' is not a whole number")
    return int(word)


def _rules(text: str) -> list[str]:
    words = [word.strip() for word in text.split(",") if word.strip()]
    return [OneOf("rule", _RULES)(word) for word in words or _RULES]
