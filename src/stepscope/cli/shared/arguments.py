"""Arguments that several commands share, and errors that suggest a correction."""

import argparse
import contextlib
import functools
import inspect
import itertools
import math
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from stepscope.errors import UsageError
from stepscope.model import units
from stepscope.model.parameters import check_word, nearest, steps, suggestion, type_of, value
from stepscope.process import heap

if TYPE_CHECKING:
    from stepscope.io.cache import Pins
    from stepscope.io.unwritten import Unwritten
    from stepscope.model.trace import Trace

PATH_HELP = "Open a trace file, a run folder, or a folder of ranks."
PATHS_HELP = "Open these files or folders. Default: the current folder."


# What argparse says, and how this program says it.
_MESSAGES = (
    (re.compile(r"the following arguments are required: (.+)"), r"missing \1"),
    (re.compile(r"argument (\S+): invalid int value: (.+)"), r"\1 is \2; expected a whole number"),
    (re.compile(r"argument (\S+): invalid float value: (.+)"), r"\1 is \2; expected a number"),
    (re.compile(r"argument (\S+): expected (?:one argument|at least one argument)"), r"\1 needs a value"),
)


class Several(argparse._AppendAction):
    """A flag for several values: it may be repeated, and with `--` after them one flag takes all words up to it."""


class Parser(argparse.ArgumentParser):
    """An argparse parser that raises UsageError and suggests flags."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{_plain(message)} (see `{self.prog} --help`)")

    def refuse(self, extra: list[str], words: Sequence[str] = ()) -> NoReturn:
        """Raise an error for words that no argument accepts; `words` are all words of the command."""
        if flag := next((word.split("=")[0] for word in extra if self._is_flag(word)), None):
            near = nearest(flag, self.flags, 0.8 if self._runs_script else 0.6)  # it may be a flag of the script
            hint = self._script_hint(flag, words, " Flags" if near else "; flags") if self._runs_script else ""
            self.error(f"no flag {flag}{near}{hint}")
        places = " ".join(str(action.metavar) for action in self._actions if not action.option_strings)
        output = f"; to write to it, use -o {extra[0]}" if "-o" in self.flags else ""
        self.error(f"unexpected argument '{extra[0]}': {self.prog} accepts {places or 'only flags'}{output}")

    def parse_anywhere(self, words: list[str]) -> tuple[argparse.Namespace, list[str]]:
        """Parse with flags before, between and behind the positional arguments, which argparse wants in one row."""
        if self._runs_script:
            return self.parse_known_args(words)
        flags, places = self.split(words)
        if "" in places:  # as a path it would be the current folder
            self.error("an argument is empty: is a variable of the shell unset?")
        return self.parse_known_args([*flags, *(["--"] if any(word.startswith("-") for word in places) else []), *places])

    @property
    def _runs_script(self) -> bool:
        """Do the words behind a script belong to the script?"""
        return any(action.nargs == argparse.REMAINDER for action in self._actions)

    def _script_hint(self, flag: str, words: Sequence[str], subject: str) -> str:
        """Where flags of a script belong, with the probably intended command."""
        at = next((at for at, word in enumerate(words) if word.split("=")[0] == flag), 0)
        script = next((place for place in range(at + 1, len(words)) if _is_script(words[place])), None)
        intended = [*words[:at], *words[script:], *words[at:script]] if script else [*words[:at], "SCRIPT", flag, "..."]
        return f"{subject} of the script follow the script: {self.prog} {shlex.join(intended)}"

    def split(self, words: list[str]) -> tuple[list[str], list[str]]:
        """Flags with their values, and all other words."""
        flags, places = list[str](), list[str]()
        several = ""  # the flag whose values end at --
        rest = iter(words)
        for word in rest:
            if word == "--":
                places += rest
            elif not self._is_flag(word):
                if several:
                    flags += [several, word]
                else:
                    places.append(word)
            else:
                flags.append(word)
                action = self._option_string_actions.get(word)
                if action is not None and action.nargs != 0:
                    flags += itertools.islice(rest, 1)
                several = word if isinstance(action, Several) and "--" in words else ""
        return flags, places

    def _is_flag(self, word: str) -> bool:
        """As argparse decides: a single dash, a negative number and a text with blanks (SQL that begins with a comment) are not flags."""
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


def _plain(message: str) -> str:
    """A message of argparse in the words of all other errors."""
    for pattern, words in _MESSAGES:
        if match := pattern.fullmatch(message):
            return match.expand(words)
    return message


def _is_script(word: str) -> bool:
    return word == "-m" or word.endswith((".py", ".sh")) or (not word.startswith("-") and shutil.which(word) is not None)


def size_of(flag: str) -> Callable[[str], int]:
    """An argument type: a size in bytes, such as 500kB, 20MB or 2GiB."""

    def size(word: str) -> int:
        try:
            return units.parse_size(word)
        except (ValueError, OverflowError):
            raise UsageError(f"{flag} is '{word}'; expected a size such as 500kB, 20MB or 2GB") from None

    return size


def seconds(word: str) -> float:
    """An argument type: a positive number of seconds."""
    with contextlib.suppress(ValueError):
        if 0 < (number := float(word)) < math.inf:
            return number
    raise UsageError(f"--seconds is '{word}'; expected a number greater than 0")


def factor(word: str) -> float:
    """An argument type: how many times as long."""
    with contextlib.suppress(ValueError):
        if 1 < (number := float(word)) < math.inf:
            return number
    raise UsageError(f"--keep-slow is '{word}'; expected a number above 1")


def check_ending(output: Path, accepted: Sequence[str], reason: str, others: Collection[str] | None = None) -> None:
    """Refuse a name whose ending means another format: one of `others`, or any that is not accepted."""
    ending = output.suffix.lower()
    if ending and ending not in accepted and (others is None or ending in others):
        expected = suggestion(ending, accepted) if accepted else "; expected the name of a folder, without an ending"
        raise UsageError(f"-o {output}: {reason}, not '{ending}'{expected}")


class OneOf:
    """An argument type: one of some words."""

    def __init__(self, noun: str, words: Iterable[str]) -> None:
        self.noun, self.words = noun, list(words)

    def __call__(self, word: str) -> str:
        return check_word(self.noun, word, self.words)


def add_format(parser: argparse.ArgumentParser, *formats: str) -> None:
    text = f"Write {' or '.join(formats)}. Default: {formats[0]}."
    parser.add_argument("--format", type=OneOf("format", formats), default=formats[0], metavar="FORMAT", help=text)


def add_reading(parser: argparse.ArgumentParser) -> None:
    group = add_read_options(parser)
    group.add_argument("--rank", type=int, metavar="N", help="Read only rank N. Default: all.")
    group.add_argument("--steps", type=steps, metavar="A:B", help="Select steps A to B (inclusive), or one step A. Default: all.")


def add_read_options(parser: argparse.ArgumentParser) -> "argparse._ArgumentGroup":
    """The options of reading that the pages do not offer."""
    group = parser.add_argument_group("reading")
    group.add_argument(
        "--partial", action="store_true", help="Read the intact part of a damaged file and report the losses. Default: refuse."
    )
    group.add_argument(
        "--step-name",
        metavar="NAME",
        help="Mark steps by [annotation:|function:|operator:|kernel:]NAME; * and ? match. Default: the markers of the recording.",
    )
    group.add_argument("--no-cache", action="store_true", help="Do not store the converted trace. Default: store it for the next time.")
    return group


pins: list["Pins"] = []  # the cache entries that the command uses
unwritten: list["Unwritten"] = []  # and the entries that are written after its answer


def open_trace(path: Path, args: argparse.Namespace) -> "Trace":
    """The trace at a path, read with the reading flags; a terminal shows progress if it takes long."""
    heap.return_early()
    from stepscope.io.cache import Pins
    from stepscope.io.conversion import large_apart
    from stepscope.io.open_run import open
    from stepscope.io.unwritten import Unwritten

    options = {"partial": args.partial, "step_name": args.step_name, "rank": args.rank, "cache": not args.no_cache}
    with progress_bar("reading", in_bytes=True) as progress, large_apart() as read:
        pins.append(Pins())
        unwritten.append(Unwritten(pins[-1]))
        trace = open(path, **options, progress=progress, read=read, pins=pins[-1], unwritten=unwritten[-1])
    step_range: tuple[int, int] | None = getattr(args, "steps", None)  # `list` and `demo` have no --steps
    return trace.of_steps(*step_range) if step_range else trace


def add_parameters(parser: argparse.ArgumentParser, title: str, parameters: dict[str, inspect.Parameter]) -> None:
    """Flags for the keyword-only parameters of a function, typed by their annotations."""
    if not parameters:
        return
    group = parser.add_argument_group(title)
    for name, parameter in parameters.items():
        flag, kind, default = name.replace("_", "-"), type_of(parameter), parameter.default
        if kind is bool:
            switch, text = (
                (f"--no-{flag}", f"Turn off {name}. Default: on.") if default else (f"--{flag}", f"Turn on {name}. Default: off.")
            )
            group.add_argument(switch, dest=name, action="store_const", const=not default, default=argparse.SUPPRESS, help=text)
        else:
            text = "Required." if default is parameter.empty else f"Default: {'not set' if default is None else default}."
            convert = functools.partial(value, kind, f"--{flag}")
            group.add_argument(
                f"--{flag}", dest=name, type=convert, metavar=kind.__name__.upper(), default=argparse.SUPPRESS, help=f"Set {name}. {text}"
            )


def example_text(lines: str) -> str:
    """The end of a help text: commands to copy."""
    return "examples:\n" + "\n".join(f"  {line}" for line in lines.strip().splitlines())


def set_parameters(args: argparse.Namespace, parameters: Iterable[str]) -> dict[str, Any]:
    """The parameters that the command line sets."""
    return {name: getattr(args, name) for name in parameters if hasattr(args, name)}


@contextlib.contextmanager
def progress_bar(title: str, *, in_bytes: bool) -> Iterator[Callable[[int, int], None]]:
    """A callback for what is done and what there is in all. A terminal shows a bar after half a second."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    began, stack = time.monotonic(), contextlib.ExitStack()
    bar: Any = None

    def report(done: int, total: int) -> None:
        nonlocal bar
        if bar is None and time.monotonic() - began > 0.5:
            from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

            from stepscope.cli.shared.terminal import console

            amount = DownloadColumn(binary_units=True) if in_bytes else MofNCompleteColumn()
            columns = (title, BarColumn(), amount, TimeRemainingColumn())
            bar = stack.enter_context(Progress(*columns, console=console(stderr=True), transient=True))
            bar.add_task("", total=total)
        if bar is not None:
            bar.update(bar.task_ids[0], completed=done, total=total)

    with stack:
        yield report
