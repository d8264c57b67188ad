"""Arguments that several commands share, and errors that suggest what was meant."""

import argparse
import contextlib
import functools
import inspect
import itertools
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from stepscope import units
from stepscope.errors import UsageError
from stepscope.parameters import check_word, nearest, steps, suggestion, type_of, value

if TYPE_CHECKING:
    from stepscope.cache import Pins
    from stepscope.trace import Trace


TRACE = "A trace file, a run folder, or a folder of ranks."


class Parser(argparse.ArgumentParser):
    """Argparse that raises UsageError and suggests flags."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (`{self.prog} --help` says more)")

    def refuse(self, extra: list[str], words: Sequence[str] = ()) -> NoReturn:
        """Say what is wrong with words that no argument took, of all words of the command."""
        if flag := next((word.split("=")[0] for word in extra if self._is_flag(word)), None):
            near = nearest(flag, self.flags, 0.8 if self._runs_script else 0.6)  # a script has flags of its own
            self.error(
                f"no flag {flag}" + near + (self._script_hint(flag, words, " Flags" if near else "; flags") if self._runs_script else "")
            )
        places = " ".join(str(action.metavar) for action in self._actions if not action.option_strings)
        output = f"; to write to it, use -o {extra[0]}" if "-o" in self.flags else ""
        self.error(f"unexpected argument '{extra[0]}': {self.prog} takes {places or 'only flags'}{output}")

    def parse_anywhere(self, words: list[str]) -> tuple[argparse.Namespace, list[str]]:
        """Parse with flags before, between and behind the other arguments; argparse itself wants those that belong together in a row."""
        if self._runs_script:
            return self.parse_known_args(words)
        flags, places = self.split(words)
        return self.parse_known_args([*flags, *(["--"] if any(word.startswith("-") for word in places) else []), *places])

    @property
    def _runs_script(self) -> bool:
        """Whether what follows a script is the script's."""
        return any(action.nargs == argparse.REMAINDER for action in self._actions)

    def _script_hint(self, flag: str, words: Sequence[str], flags: str) -> str:
        """Where flags of a script belong, with the command as it was probably meant."""
        at = next((at for at, word in enumerate(words) if word.split("=")[0] == flag), 0)
        script = next((place for place in range(at + 1, len(words)) if _is_script(words[place])), None)
        meant = [*words[:at], *words[script:], *words[at:script]] if script else [*words[:at], "SCRIPT", flag, "..."]
        return f"{flags} of the script follow the script: {self.prog} {shlex.join(meant)}"

    def split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Flags with their values, and all other words."""
        flags, places = list[str](), list[str]()
        left = iter(words)
        for word in left:
            if word == "--":
                places += left
            elif not self._is_flag(word):
                places.append(word)
            else:
                flags.append(word)
                action = self._option_string_actions.get(word)
                if action is not None and action.nargs != 0:
                    flags += itertools.islice(left, 1)
        return flags, places

    def _is_flag(self, word: str) -> bool:
        """As argparse judges: a lone dash, a negative number and a text with blanks (such as SQL that begins with a remark) are none."""
        return word.startswith("-") and word != "-" and not re.fullmatch(r"-\d+|-\d*\.\d+|[^=]*\s.*", word, re.DOTALL)

    @property
    def flags(self) -> dict[str, argparse.Action]:
        return dict(self._option_string_actions)

    @property
    def commands(self) -> "dict[str, Parser]":
        """The parser of each command."""
        action = next(action for action in self._actions if isinstance(action, argparse._SubParsersAction))
        return dict(action.choices)

    @property
    def actions(self) -> list[argparse.Action]:
        return list(self._actions)


def _is_script(word: str) -> bool:
    return word == "-m" or word.endswith((".py", ".sh")) or (not word.startswith("-") and shutil.which(word) is not None)


def size_of(flag: str) -> Callable[[str], int]:
    """A type of argument: a size in bytes, such as 500kB, 20MB or 2GiB."""

    def size(word: str) -> int:
        try:
            return units.parse_size(word)
        except (ValueError, OverflowError):
            raise UsageError(f"{flag} is '{word}'; expected a size such as 500kB, 20MB or 2GB") from None

    return size


def check_ending(output: Path, accepted: Sequence[str], why: str, others: Collection[str] | None = None) -> None:
    """Refuse a name whose ending promises another format: one of `others`, or any that is not accepted."""
    ending = output.suffix.lower()
    if ending and ending not in accepted and (others is None or ending in others):
        expected = suggestion(ending, accepted) if accepted else "; expected the name of a folder, without an ending"
        raise UsageError(f"-o {output}: {why}, not '{ending}'{expected}")


class OneOf:
    """A type of argument: one of these words."""

    def __init__(self, what: str, words: Iterable[str]) -> None:
        self.what, self.words = what, list(words)

    def __call__(self, word: str) -> str:
        return check_word(self.what, word, self.words)


def add_reading(parser: argparse.ArgumentParser) -> None:
    group = add_how(parser)
    group.add_argument("--rank", type=int, metavar="N", help="Read only this rank. Default: all.")
    group.add_argument(
        "--steps",
        type=steps,
        metavar="FIRST:LAST",
        help="Keep only these steps, the last one included; one number is one step. Default: all.",
    )


def add_how(parser: argparse.ArgumentParser) -> "argparse._ArgumentGroup":
    """How to read; what of it is for the pages to choose."""
    group = parser.add_argument_group("reading")
    group.add_argument("--partial", action="store_true", help="Read the intact part of a damaged file, and say what was lost.")
    group.add_argument(
        "--step-name",
        metavar="NAME",
        help="Mark steps by [annotation:|function:|operator:|kernel:]NAME; * and ? match. Default: the markers of the recording.",
    )
    group.add_argument("--no-cache", action="store_true", help="Do not keep what was read for the next time.")
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
            about = f"Turn off {name}. Default: on." if parameter.default else f"Turn on {name}. Default: off."
            group.add_argument(
                positive, dest=name, action="store_const", const=not parameter.default, default=argparse.SUPPRESS, help=about
            )
        else:
            shown = "Required." if parameter.default is parameter.empty else f"Default: {_default(parameter.default)}."
            group.add_argument(
                f"--{flag}",
                dest=name,
                type=functools.partial(value, kind, f"--{flag}"),
                metavar=kind.__name__.upper(),
                default=argparse.SUPPRESS,
                help=shown,
            )


def example_text(lines: str) -> str:
    """The end of a help text: commands to copy."""
    return "examples:\n" + "\n".join(f"  {line}" for line in lines.strip().splitlines())


def _default(given: object) -> str:
    return "not set" if given is None else str(given)


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
