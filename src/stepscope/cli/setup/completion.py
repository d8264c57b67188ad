"""Print the completion script of a shell: bash, zsh or fish."""

import argparse
import ast
import sys
from pathlib import Path

from stepscope import analyses
from stepscope.cli.shared.arguments import OneOf, Parser
from stepscope.model.parameters import listing

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """\
source <(stepscope completion bash)
source <(stepscope completion zsh)
stepscope completion fish | source
"""
_SCHEMAS = [Path(__file__).parents[2] / "model" / name for name in ("schema.py", "ascend_tables.py", "rank_tables.py")]


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("shell", type=OneOf("shell", SHELLS), metavar="SHELL", help=f"Print the script for {listing(SHELLS)}.")


def run(args: argparse.Namespace) -> int:
    sys.stdout.write({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]())
    return 0


def _parser(command: str) -> Parser:
    from stepscope import cli

    parser = Parser(prog=command)
    cli.command(command).add_arguments(parser, [])
    return parser


def _flags(command: str) -> dict[str, argparse.Action]:
    return {flag: action for flag, action in _parser(command).flags.items() if flag.startswith("--")}


def _values(command: str) -> dict[str, list[str]]:
    """The words that can follow a flag of a command, or the command itself."""
    actions = [action for action in _parser(command).actions if isinstance(action.type, OneOf)]
    words = {flag: action.type.words for action in actions for flag in action.option_strings or [command] if isinstance(action.type, OneOf)}
    return words | ({command: [*analyses.names(), *_tables()]} if command == "show" else {})


def _tables() -> list[str]:
    """The names of the tables, parsed from the schema: importing it would load Polars, which is too slow for the start of a shell."""
    nodes = [node for file in _SCHEMAS for node in ast.parse(file.read_text(encoding="utf-8")).body]
    tables = [node.value for node in nodes if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "TABLES"]
    keys = [key for table in tables if isinstance(table, ast.Dict) for key in table.keys]
    return [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]


def analysis_flags() -> dict[str, list[str]]:
    """The flags of each analysis that has some, parsed from its source for the same reason."""
    flags: dict[str, list[str]] = {}
    for name, file in analyses.files().items():
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name == name and node.args.kwonlyargs:
                pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                flags[name] = [f"--{'no-' * _is_true(default)}{arg.arg.replace('_', '-')}" for arg, default in pairs]
    return flags


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _bash() -> str:
    from stepscope import cli

    values = "\n".join(
        f'        "{name} {flag}") words="{" ".join(words)}" ;;' for name in cli.COMMANDS for flag, words in _values(name).items()
    )
    flags = "\n".join(f'            {name}) words="{" ".join(_flags(name))}" ;;' for name in cli.COMMANDS)
    more = "\n".join(f'            {name}) words="$words {" ".join(words)}" ;;' for name, words in analysis_flags().items())
    return f"""\
_stepscope() {{
    local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
    case "${{COMP_WORDS[1]}} $prev" in
{values}
    esac
    if [[ "$COMP_CWORD" -eq 1 ]]; then words="{" ".join(cli.COMMANDS)} --help --version"; fi
    if [[ "$cur" == -* && "$COMP_CWORD" -gt 1 ]]; then
        case "${{COMP_WORDS[1]}}" in
{flags}
        esac
        case "${{COMP_WORDS[2]}}" in
{more}
        esac
    fi
    COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _stepscope stepscope
"""


def _zsh() -> str:
    return f"autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n{_bash()}"


def _fish() -> str:
    from stepscope import cli

    lines = []
    for name in cli.COMMANDS:
        about = (cli.command(name).__doc__ or "").splitlines()[0]
        condition = f"-n '__fish_seen_subcommand_from {name}'"
        lines.append(f"complete -c stepscope -n __fish_use_subcommand -f -a {name} -d {_fish_quoted(about)}")
        values = _values(name)
        lines += [f"complete -c stepscope {condition} -a '{' '.join(values[name])}'"] if name in values else []
        for flag, action in _flags(name).items():
            value = f" -x -a '{' '.join(values[flag])}'" if flag in values else " -r" if action.nargs != 0 else ""
            lines.append(f"complete -c stepscope {condition} -l {flag[2:]}{value} -d {_fish_quoted(action.help or '')}")
    for name, flags in analysis_flags().items():
        condition = f"-n '__fish_seen_subcommand_from show; and __fish_seen_subcommand_from {name}'"
        lines += [f"complete -c stepscope {condition} -l {flag[2:]}" for flag in flags]
    return "\n".join(lines) + "\n"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
