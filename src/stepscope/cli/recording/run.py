"""Record a job without changes to its code: stepscope run [flags] SCRIPT [arguments of the script].

SCRIPT is a Python script, `-m MODULE`, or a command that starts Python: torchrun, msrun, mpirun, a shell script.
Steps are counted from 0. A step ends with an optimizer step (PyTorch), with a step of Model.train or the call that contains the optimizer
(MindSpore), with jax.profiler.StepTraceAnnotation (JAX), with a batch of fit or the call that computes gradients (TensorFlow).
--step-on sets another end, for inference, compiled or unusual loops: --step-on function:__main__.train_step.
The exit code is that of the job.
"""

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from stepscope.cli.shared.arguments import factor, seconds
from stepscope.cli.shared.layout import clean
from stepscope.errors import UsageError
from stepscope.model.parameters import nearest, steps

_FACTOR = 1.5  # of --keep-slow
EXAMPLES = """\
stepscope run --steps 10:19 train.py --lr 0.1
stepscope run --steps 10:19 --memory --shapes -m package.train --lr 0.1
stepscope run --steps 10:19 torchrun --nproc-per-node 8 train.py
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    group = parser.add_argument_group("when to record")
    group.add_argument(
        "--steps", type=steps, metavar="A:B", help="Record steps A to B (inclusive), or one step A. Default: all, up to 1,000 steps."
    )
    group.add_argument(
        "--seconds", type=seconds, metavar="S", help="Record for S seconds from the first operator on. Default: record steps."
    )
    group.add_argument("--idle", action="store_true", help="Record nothing until `stepscope attach`. Default: record at once.")
    group.add_argument(
        "--step-on",
        metavar="WHAT",
        default=os.environ.get("STEPSCOPE_STEP_ON") or None,
        help="End a step at optimizer:NAME (class, or number in order of creation), function:MODULE.NAME, annotation:NAME, or dataloader;"
        " example: function:__main__.train_step. Default: STEPSCOPE_STEP_ON, else the steps of the framework.",
    )
    number: dict[str, Any] = {"type": factor, "metavar": "FACTOR"} if _has_factor(words) else {"action": "store_const", "const": _FACTOR}
    group.add_argument(
        "--keep-slow",
        **number,
        help="Record all steps, and keep only short windows with a step that takes more than FACTOR (or, without one, 1.5) times the median"
        " of the steps before it. Default: keep everything.",
    )
    add_options(parser)
    text = "Run a module, as python -m does. Default: run SCRIPT."
    parser.add_argument("-m", dest="module", nargs=argparse.REMAINDER, metavar="MODULE", help=text)
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="SCRIPT", help="Run this script or command with its arguments.")


def _has_factor(words: list[str]) -> bool:
    """Whether a number, and not the script, follows --keep-slow."""
    after = words[words.index("--keep-slow") + 1 :] if "--keep-slow" in words else []
    return "--keep-slow" not in words or bool(after and re.fullmatch(r"[-+\d.eE]+", after[0]))


def run(args: argparse.Namespace) -> int:
    from stepscope.recording import launch
    from stepscope.recording.steps import user_steps

    words = args.module or (args.words[1:] if args.words[:1] == ["--"] else args.words)
    if not words:
        raise UsageError("missing SCRIPT: stepscope run train.py (see `stepscope run --help`)")
    if sum(map(bool, (args.steps, args.seconds, args.idle))) > 1:
        raise UsageError("--steps, --seconds and --idle exclude one another; use one of them")
    if args.keep_slow and args.idle:
        raise UsageError("--keep-slow records all steps, and --idle none; use one of them")
    options = profiler_options(args) | ({"keep_slow": args.keep_slow} if args.keep_slow else {})
    settings = {"options": options, "out": options.pop("output_path", args.out or "data"), "steps": args.steps, "seconds": args.seconds}
    if args.step_on is not None:
        settings["step_on"] = str(user_steps.parse(args.step_on, "--step-on"))
    command = launch.command(words, module=bool(args.module))
    return launch.leave(launch.launch(command, settings | {"idle": args.idle}, name=Path(words[0]).stem))


def add_options(parser: argparse.ArgumentParser) -> None:
    """The flags that `run` and `attach` share."""
    group = parser.add_argument_group("what to record")
    group.add_argument("--memory", dest="profile_memory", action="store_true", help="Record allocations and live bytes. Default: off.")
    group.add_argument(
        "--shapes", dest="record_shapes", action="store_true", help="Record the shapes and types of operator inputs. Default: off."
    )
    group.add_argument("--stack", dest="with_stack", action="store_true", help="Record Python stacks. Default: off.")
    group.add_argument("--flops", dest="with_flops", action="store_true", help="Record floating-point operations. Default: off.")
    group.add_argument("--data", dest="data_process", action="store_true", help="Record the input pipeline. Default: off.")
    group.add_argument(
        "--level",
        dest="profiler_level",
        metavar="LEVEL",
        help="Set the level of detail on Ascend: LevelNone, Level0, Level1 or Level2. Default: Level0.",
    )
    group.add_argument(
        "--profiling-options",
        metavar="JSON",
        help="Set options in the format of Ascend's TensorFlow adapter or MS_PROFILER_OPTIONS. Default: none.",
    )
    group.add_argument("--out", metavar="DIR", help="Write the recording to a new folder below DIR. Default: data.")


def profiler_options(args: argparse.Namespace) -> dict[str, Any]:
    """The arguments of a Profiler that the flags set, checked."""
    from stepscope.recording.collectors.options import parse

    options = _parse_options(args.profiling_options) if args.profiling_options else {}
    for name in ("profile_memory", "record_shapes", "with_stack", "with_flops", "data_process", "profiler_level"):
        if getattr(args, name):
            options[name] = getattr(args, name)
    parse(options)
    return options


# profiling_options of Ascend's TensorFlow adapter, and our argument for each.
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
_ALWAYS = ("training_trace", "task_trace", "task_time", "hccl", "runtime_api", "ge_api")  # always recorded
_WITHOUT_EFFECT = (
    *("storage_limit", "aic_mode", "dvpp_freq", "llc_profiling", "host_sys_usage", "host_sys_usage_freq"),
    *("instr_profiling_freq", "power"),
)


def _parse_options(text: str) -> dict[str, Any]:
    """Options in JSON: in the words of Ascend, with on and off, or as arguments of a Profiler."""
    from stepscope.recording.collectors.options import Options, from_json

    try:
        settings = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--profiling-options is not valid JSON: {error}") from error
    if not isinstance(settings, dict):
        raise UsageError("--profiling-options: expected a JSON object")
    options: dict[str, Any] = {}
    for key, value in settings.items():
        name = _ASCEND.get(key, key)
        if key in _ALWAYS:
            continue
        if key in _WITHOUT_EFFECT:
            sys.stderr.write(f"stepscope: --profiling-options: {clean(key)} has no effect in stepscope\n")
        elif name in ("fp_start", "bp_end") and not value:
            continue
        elif name in Options.__dataclass_fields__ or name == "aicore_metrics":
            options[name] = _plain(name, value)
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
