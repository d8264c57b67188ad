"""Record a job that nobody edited: stepscope run [flags] SCRIPT [arguments of the script].

SCRIPT is a Python script, `-m MODULE`, or a command that starts some: torchrun, msrun, mpirun, a shell script.
Steps are counted from 0. A step ends when the optimizer has stepped (PyTorch), when Model.train's step or the call that holds the optimizer
ends (MindSpore), with jax.profiler.StepTraceAnnotation (JAX), with a batch of fit or the call that computes gradients (TensorFlow).
--step-on names another end, for inference, compiled or unusual loops: --step-on function:__main__.train_step.
The exit code is the job's own.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any

from stepscope.cli._text import clean
from stepscope.errors import UsageError
from stepscope.parameters import nearest

EXAMPLES = """\
stepscope run --steps 10:20 train.py --lr 0.1
stepscope run --steps 10:20 --memory --shapes -m package.train --lr 0.1
stepscope run --steps 10:20 torchrun --nproc-per-node 8 train.py
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    group = parser.add_argument_group("when to record")
    group.add_argument("--steps", type=_steps, metavar="A:B", help="Record steps A to B-1. Default: all, up to 1,000 steps.")
    group.add_argument("--seconds", type=_seconds, metavar="S", help="Record for so long, from the first work on. Default: record steps.")
    group.add_argument("--idle", action="store_true", help="Record nothing for now: wait for `stepscope attach`.")
    group.add_argument(
        "--step-on",
        metavar="WHAT",
        default=os.environ.get("STEPSCOPE_STEP_ON") or None,
        help="End steps here: optimizer:NAME (class, or number in order of creation), function:MODULE.NAME, annotation:NAME, or dataloader;"
        " example: function:__main__.train_step. Default: STEPSCOPE_STEP_ON, else as the framework shows.",
    )
    add_options(parser)
    parser.add_argument(
        "-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help="Run a module, as python -m does. Default: run SCRIPT."
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="SCRIPT", help="A script or a command, and its arguments.")


def run(args: argparse.Namespace) -> int:
    from stepscope import launching, step_on

    words = args.module or (args.words[1:] if args.words[:1] == ["--"] else args.words)
    if not words:
        raise UsageError("missing SCRIPT: stepscope run train.py (`stepscope run --help` says more)")
    if sum(map(bool, (args.steps, args.seconds, args.idle))) > 1:
        raise UsageError("--steps, --seconds and --idle exclude one another; give one")
    options = chosen(args)
    settings = {"options": options, "out": options.pop("output_path", args.out or "data"), "steps": args.steps, "seconds": args.seconds}
    if args.step_on is not None:
        settings["step_on"] = str(step_on.parse(args.step_on, "--step-on"))
    command = launching.command(words, module=bool(args.module))
    return launching.leave(launching.launch(command, settings | {"idle": args.idle}, name=Path(words[0]).stem))


def add_options(parser: argparse.ArgumentParser) -> None:
    """What to record: the flags that `run` and `attach` share."""
    group = parser.add_argument_group("what to record")
    group.add_argument("--memory", dest="profile_memory", action="store_true", help="Record allocations and the memory in use.")
    group.add_argument("--shapes", dest="record_shapes", action="store_true", help="Record the shapes and types of operators' inputs.")
    group.add_argument("--stack", dest="with_stack", action="store_true", help="Record Python stacks.")
    group.add_argument("--flops", dest="with_flops", action="store_true", help="Record floating-point operations.")
    group.add_argument("--data", dest="data_process", action="store_true", help="Record the input pipeline.")
    group.add_argument(
        "--level",
        dest="profiler_level",
        metavar="LEVEL",
        help="Set the level of detail on Ascend: LevelNone, Level0, Level1 or Level2. Default: Level0.",
    )
    group.add_argument(
        "--profiling-options",
        metavar="JSON",
        help="Take options as Ascend's TensorFlow adapter and MS_PROFILER_OPTIONS spell them. Default: none.",
    )
    group.add_argument("--out", metavar="DIR", help="Write recordings below this folder, each job into a folder of its own. Default: data.")


def chosen(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a Profiler that the flags give, checked."""
    from stepscope.collect.options import parse

    options = _converted(args.profiling_options) if args.profiling_options else {}
    for name in ("profile_memory", "record_shapes", "with_stack", "with_flops", "data_process", "profiler_level"):
        if getattr(args, name):
            options[name] = getattr(args, name)
    parse(options)
    return options


# profiling_options of Ascend's TensorFlow adapter: the argument of ours, or why there is none.
_ASCEND = {
    "output": "output_path",
    "fp_point": "fp_start",
    "bp_point": "bp_end",
    "aic_metrics": "aic_metrics",
    "aicpu": "data_process",
    "l2": "l2_cache",
    "msproftx": "mstx",
    "sys_hardware_mem_freq": "hbm_ddr",
    "sys_io_sampling_freq": "sys_io",
    "sys_interconnection_freq": "sys_interconnection",
    "host_sys": "host_sys",
}
_ALWAYS = ("training_trace", "task_trace", "task_time", "hccl", "runtime_api", "ge_api")  # recorded in any case
_NOWHERE = (
    "storage_limit",
    "aic_mode",
    "dvpp_freq",
    "llc_profiling",
    "host_sys_usage",
    "host_sys_usage_freq",
    "instr_profiling_freq",
    "power",
)


def _converted(text: str) -> dict[str, Any]:
    """Either spelling: Ascend's words, with on and off, or the arguments of a Profiler as JSON."""
    from stepscope.collect.options import Options, from_json

    try:
        said = json.loads(text)
    except ValueError as error:
        raise UsageError(f"--profiling-options is no JSON: {error}") from error
    if not isinstance(said, dict):
        raise UsageError("--profiling-options: expected a JSON object")
    options: dict[str, Any] = {}
    for key, value in said.items():
        ours = _ASCEND.get(key, key)
        if key in _ALWAYS:
            continue
        if key in _NOWHERE:
            sys.stderr.write(f"stepscope: --profiling-options: {clean(key)} has no effect here\n")
        elif ours in ("fp_start", "bp_end") and not value:
            continue
        elif ours in Options.__dataclass_fields__ or ours == "aicore_metrics":
            options[ours] = _plain(ours, value)
        elif key != "start":
            raise UsageError(f"--profiling-options has no '{key}'" + nearest(key, [*_ASCEND, *_ALWAYS, *Options.__dataclass_fields__]))
    return from_json(options)


def _plain(name: str, value: Any) -> Any:
    if value in ("on", "off"):
        return value == "on"
    if name == "host_sys" and isinstance(value, str):
        return [part.strip() for part in value.split(",")]
    if name in ("hbm_ddr", "sys_io", "sys_interconnection"):  # Ascend gives a frequency
        return bool(value) if isinstance(value, (int, bool)) else value not in ("", "0")
    return value


def _steps(word: str) -> tuple[int, int]:
    first, colon, end = word.partition(":")
    if not colon or not first.isdigit() or not end.isdigit() or int(first) >= int(end):
        raise UsageError(f"--steps is '{word}'; expected A:B, such as 10:20 for the steps 10 to 19, counted from 0")
    return int(first), int(end)


def _seconds(word: str) -> float:
    try:
        seconds = float(word)
    except ValueError:
        seconds = 0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"--seconds is '{word}'; expected a number greater than 0")
    return seconds
