"""Arguments that several commands share, and errors that suggest what was meant."""

import argparse
import contextlib
import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from stepscope.errors import UsageError
from stepscope.parameters import nearest, steps, type_of, value

if TYPE_CHECKING:
    from stepscope.cache import Pins
    from stepscope.trace import Trace


class Parser(argparse.ArgumentParser):
    """Argparse that raises UsageError and suggests flags."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (`{self.prog} --help` says more)")

    def refuse(self, extra: list[str]) -> NoReturn:
        """Say what is wrong with words that no argument took."""
        word = extra[0]
        if not word.startswith("-"):
            self.error(f"'{word}' is one argument too many")
        flag = word.split("=")[0]
        self.error(f"no flag {flag}" + nearest(flag, self.flags))

    @property
    def flags(self) -> dict[str, argparse.Action]:
        return dict(self._option_string_actions)

    @property
    def actions(self) -> list[argparse.Action]:
        return list(self._actions)


class OneOf:
    """A type of argument: one of these words."""

    def __init__(self, what: str, words: Iterable[str]) -> None:
        self.what, self.words = what, list(words)

    def __call__(self, word: str) -> str:
        if word not in self.words:
            raise UsageError(f"no {self.what} '{word}'" + (nearest(word, self.words) or f"; there are {', '.join(self.words)}"))
        return word


def add_reading(parser: argparse.ArgumentParser) -> None:
    group = add_how(parser)
    group.add_argument("--rank", type=int, metavar="N", help="only this rank")
    group.add_argument("--steps", type=steps, metavar="FIRST:LAST", help="only these steps, the last one included; one number is one step")


def add_how(parser: argparse.ArgumentParser) -> "argparse._ArgumentGroup":
    """How to read; what of it is for the pages to choose."""
    group = parser.add_argument_group("reading")
    group.add_argument("--partial", action="store_true", help="read what is whole of a truncated file, and say what was lost")
    group.add_argument(
        "--step-name", metavar="NAME", help="what marks a step: [annotation:|function:|operator:|kernel:]NAME; * and ? match"
    )
    group.add_argument("--no-cache", action="store_true", help="do not keep what was read for the next time")
    return group


pins: list["Pins"] = []  # what the command uses of the cache


def open_trace(path: Path, args: argparse.Namespace) -> "Trace":
    """The trace at a path, as the reading flags say; a terminal sees progress when it takes long."""
    from stepscope.cache import Pins
    from stepscope.opening import open
    from stepscope.reading import large_apart

    how = {"partial": args.partial, "step_name": args.step_name, "rank": args.rank, "cache": not args.no_cache}
    with _progress() as progress, large_apart() as read:
        pins.append(Pins())
        trace = open(path, **how, progress=progress, read=read, pins=pins[-1])
    asked: tuple[int, int] | None = getattr(args, "steps", None)  # not every command that opens has all flags of reading
    return trace.of_steps(*asked) if asked else trace


def add_parameters(parser: argparse.ArgumentParser, title: str, parameters: dict[str, inspect.Parameter]) -> None:
    """Flags from the keyword-only parameters of a function, typed by their annotations."""
    if not parameters:
        return
    group = parser.add_argument_group(title)
    for name, parameter in parameters.items():
        flag, kind = name.replace("_", "-"), type_of(parameter)
        if kind is bool:
            positive = f"--no-{flag}" if parameter.default else f"--{flag}"
            group.add_argument(positive, dest=name, action="store_const", const=not parameter.default, default=argparse.SUPPRESS)
        else:
            shown = "" if parameter.default in (None, parameter.empty) else f"default {parameter.default}"
            group.add_argument(
                f"--{flag}",
                dest=name,
                type=functools.partial(value, kind, f"--{flag}"),
                metavar=kind.__name__.upper(),
                default=argparse.SUPPRESS,
                help=shown,
            )


def given(args: argparse.Namespace, parameters: Iterable[str]) -> dict[str, Any]:
    """The parameters that the command line gave."""
    return {name: getattr(args, name) for name in parameters if hasattr(args, name)}


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[int, int], None]]:
    """A report of bytes done and bytes in all, drawn on a terminal's standard error after half a second."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    began, drawn = time.monotonic(), contextlib.ExitStack()
    bar: Any = None

    def report(done: int, total: int) -> None:
        nonlocal bar
        if bar is None and time.monotonic() - began > 0.5:
            from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

            from stepscope.cli._terminal import console

            columns = ("reading", BarColumn(), DownloadColumn(binary_units=True), TimeRemainingColumn())
            bar = drawn.enter_context(Progress(*columns, console=console(stderr=True), transient=True))
            bar.add_task("", total=total)
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done, total=total)

    with drawn:
        yield report
