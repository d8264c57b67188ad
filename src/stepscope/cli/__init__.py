"""The command line: one module per command, in one folder per purpose. `shared` has their building blocks.

A command has `add_arguments(parser, words)` and `run(args)`; its docstring is the help.

Large libraries are only imported when a command runs, so that help, version and completion are fast.
"""

import contextlib
import importlib
import os
import signal
import sys

from stepscope import __version__
from stepscope.cli.shared import signals
from stepscope.errors import StepscopeError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from types import ModuleType

    from stepscope.cli.shared.arguments import Parser

# The commands of each folder, in the order of the help: the most used first.
_FOLDERS = {
    "recording": ("run", "attach", "jobs"),
    "analysis": ("view", "summary", "advise", "whatif", "compare", "gate", "show", "query"),
    "files": ("list", "export", "cluster", "msprof", "report"),
    "setup": ("mcp", "cache", "demo", "completion"),
}
COMMANDS = tuple(name for names in _FOLDERS.values() for name in names)
EXAMPLES = """\
stepscope demo
stepscope view trace.json.gz
stepscope run --steps 10:19 train.py --lr 0.1
"""
_ANALYSIS_LIBRARIES = ("polars", "msgspec", "rich")  # a training image may not have them
_TOP_FLAGS = ("--help", "-h", "--version")  # flags of `stepscope` itself
_PIPE_CLOSED = 141  # the exit code that a shell reports for SIGPIPE


def main(argv: list[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 for bad data, 2 for wrong use; `gate` and `compare` also 3 and 4."""
    words = sys.argv[1:] if argv is None else argv
    own_words = words[: _own_word_count(words)]
    debug = "--debug" in own_words or bool(os.environ.get("STEPSCOPE_DEBUG"))
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # escape characters that the terminal cannot show
    arrived: list[int] = []
    try:
        with signals.interrupting() as arrived:
            code = _run([*(word for word in own_words if word != "--debug"), *words[len(own_words) :]])
            sys.stdout.flush()
    except KeyboardInterrupt:
        return signals.exit_code(*arrived or [signal.SIGINT])
    except BrokenPipeError:
        _abandon_stdout()
        return _PIPE_CLOSED
    except Exception as error:  # noqa: BLE001  every error is printed here as one line
        from stepscope.cli.shared.layout import clean

        if debug:
            import traceback

            sys.stderr.writelines(clean(line) + "\n" for line in traceback.format_exc().splitlines())
        with contextlib.suppress(OSError):
            sys.stderr.write(f"stepscope: {clean(_message(error))}\n")
        if isinstance(error, OSError) and error.filename is None:
            _abandon_stdout()
        return error.exit_code if isinstance(error, StepscopeError) else 1
    return code


def _own_word_count(words: list[str]) -> int:
    """The number of words that cannot belong to a script: those up to `run`, or up to the flags of `msprof`."""
    at = _command_at(words)
    if words[at : at + 1] == ["run"]:
        return at + 1
    if words[at : at + 1] == ["msprof"]:
        return next((end for end in range(at + 1, len(words)) if not words[end].startswith("-")), len(words))
    return len(words)


def _command_at(words: list[str]) -> int:
    """The position of the command: the first word that is not a flag."""
    if not words or not words[0].startswith("-") or words[0] in _TOP_FLAGS:
        return 0
    return next((at for at, word in enumerate(words) if word in COMMANDS), 0)


def command(name: str) -> "ModuleType":
    folder = next(folder for folder, names in _FOLDERS.items() if name in names)
    return importlib.import_module(f"{__name__}.{folder}.{name}")


def parser(words: list[str]) -> "Parser":
    """The parser of a command line. The words select the flags of an analysis or exporter."""
    from stepscope.cli.shared.arguments import Parser, example_text

    top = Parser(
        prog="stepscope",
        description="Profile neural-network training: time, memory and communication.",
        epilog="PATH is a trace file (plain or gzip), a run folder, or a folder of ranks.\n"
        "--debug prints the traceback of an error. `stepscope COMMAND --help` describes a command.\n\n" + example_text(EXAMPLES),
    )
    top.add_argument("--version", action="version", version=f"stepscope {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    # The command alone where there is one: each module takes time to import.
    for name in words[:1] if words and words[0] in COMMANDS else COMMANDS:
        module = command(name)
        text = (module.__doc__ or "").strip()
        below = commands.add_parser(name, help=text.splitlines()[0], description=text, epilog=example_text(module.EXAMPLES))
        module.add_arguments(below, words[1:] if words[:1] == [name] else [])
        below.set_defaults(run=module.run, parser=below)
    return top


def _run(words: list[str]) -> int:
    if at := _command_at(words):
        words = [words[at], *words[:at], *words[at + 1 :]]
    if words and not words[0].startswith("-") and words[0] not in COMMANDS:
        raise UsageError(_unknown_command(words[0]))
    if words == ["--version"]:
        sys.stdout.write(f"stepscope {__version__}\n")
        return 0
    top = parser(words)
    if words and words[0].startswith("-") and words[0] not in top.flags:
        name = words[0].lstrip("-")
        raise UsageError(
            f"no flag {words[0]}; commands have no dashes: stepscope {name}"
            if name in COMMANDS
            else f"no flag {words[0]}; `stepscope --help` lists the commands"
        )
    try:
        if not words or words[0].startswith("-"):
            _, extra = top.parse_known_args(words)
            if extra:
                top.refuse(extra)
            top.print_help()
            return 0
        below = top.commands[words[0]]
        args, extra = below.parse_anywhere(words[1:])
    except SystemExit as end:  # --help and --version
        return int(end.code or 0)
    if extra:
        below.refuse(extra, words[1:])
    return _exit_code(args)


def _exit_code(args: "argparse.Namespace") -> int:
    """The exit code of a command. New cache entries are written after its answer, and those in use are released at its end."""
    from stepscope.cli.shared.arguments import pins, unwritten

    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except (BrokenPipeError, StepscopeError):
        for recordings in unwritten:
            recordings.write()
        raise
    else:
        for recordings in unwritten:
            recordings.write()
    finally:
        while unwritten:
            unwritten.pop().drop()
        while pins:
            pins.pop().release()
    return code


def _unknown_command(word: str) -> str:
    import shlex

    from stepscope.model.parameters import nearest

    if near := nearest(word, COMMANDS):
        return f"no command '{word}'{near}"
    if os.path.exists(word):  # noqa: PTH110 - any text, of any length
        return f"no command '{word}'; to open a trace: stepscope view {shlex.quote(word)}, or stepscope summary {shlex.quote(word)}"
    return f"no command '{word}'; `stepscope --help` lists the commands"


def _message(error: Exception) -> str:
    """Every error as one line, also those of other libraries."""
    if isinstance(error, StepscopeError):
        return str(error)
    line = (str(error).strip().splitlines() or [""])[0]
    if isinstance(error, OSError):
        return ": ".join(str(part) for part in (error.filename, error.strerror or line) if part)
    if isinstance(error, MemoryError):
        return "out of memory"
    if isinstance(error, ModuleNotFoundError) and error.name in _ANALYSIS_LIBRARIES:
        install = f"pip install {' '.join(_ANALYSIS_LIBRARIES)}"
        return f"{error.name} is not installed: recording works without it, opening a trace does not; {install}"
    polars = sys.modules.get("polars")
    if polars is not None and isinstance(error, polars.exceptions.PolarsError):
        store = sys.modules.get("stepscope.io.store")
        named = store.named_damage(error) if store is not None else error
        return str(named) if isinstance(named, StepscopeError) else line
    return f"internal error: {type(error).__name__}: {line} (--debug prints the traceback; please report it)"


def _abandon_stdout() -> None:
    """Discard buffered output: writing it would fail again when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
