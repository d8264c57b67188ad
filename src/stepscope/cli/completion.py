"""Print the completion script of a shell: bash, zsh or fish."""

import argparse
import ast
import pkgutil
import sys
from pathlib import Path

from stepscope.cli._arguments import OneOf, Parser
from stepscope.parameters import listing

SHELLS = ("bash", "zsh", "fish")
EXAMPLES = """\
source <(stepscope completion bash)
source <(stepscope completion zsh)
stepscope completion fish | source
"""


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    parser.add_argument("shell", type=OneOf("shell", SHELLS), metavar="SHELL", help=f"{listing(SHELLS)}.")


def run(args: argparse.Namespace) -> int:
    sys.stdout.write({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell]())
    return 0


def analyses() -> list[str]:
    """The names of the analyses, without loading one."""
    return sorted(module.name for module in pkgutil.iter_modules([str(_FOLDER / "analyses")]) if not module.name.startswith("_"))


def _tables() -> list[str]:
    """The names of the tables, read off the schema for the same reason."""
    for node in ast.parse((_FOLDER / "schema.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target) == "TABLES" and isinstance(node.value, ast.Dict):
            return [key.value for key in node.value.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
    return []


_FOLDER = Path(__file__).parent.parent


def _parser(name: str) -> Parser:
    from stepscope import cli

    parser = Parser(prog=name)
    cli.command(name).add_arguments(parser, [])
    return parser


def _flags(name: str) -> dict[str, argparse.Action]:
    return {flag: action for flag, action in _parser(name).flags.items() if flag.startswith("--")}


def _values(name: str) -> dict[str, list[str]]:
    """The words that can follow a flag of a command, or the command itself."""
    actions = [action for action in _parser(name).actions if isinstance(action.type, OneOf)]
    words = {flag: action.type.words for action in actions for flag in action.option_strings or [name] if isinstance(action.type, OneOf)}
    return words | ({name: [*analyses(), *_tables()]} if name == "show" else {})


def _own_flags(name: str) -> list[str]:
    """The flags of an analysis, read off its source: loading it would load Polars, too slow for the start of a shell."""
    for node in ast.parse((_FOLDER / "analyses" / f"{name}.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            return [f"--{'no-' * _is_true(default)}{arg.arg.replace('_', '-')}" for arg, default in pairs]
    return []


def _is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def _bash() -> str:
    from stepscope import cli

    values = "\n".join(
        f'        "{name} {flag}") words="{" ".join(words)}" ;;' for name in cli.COMMANDS for flag, words in _values(name).items()
    )
    flags = "\n".join(f'            {name}) words="{" ".join(_flags(name))}" ;;' for name in cli.COMMANDS)
    own = "\n".join(f'            {name}) words="$words {" ".join(_own_flags(name))}" ;;' for name in analyses() if _own_flags(name))
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
{own}
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
        first = (cli.command(name).__doc__ or "").splitlines()[0]
        seen = f"-n '__fish_seen_subcommand_from {name}'"
        lines.append(f"complete -c stepscope -n __fish_use_subcommand -f -a {name} -d {_fish_quoted(first)}")
        lines += [f"complete -c stepscope {seen} -a '{' '.join(words)}'" for word, words in _values(name).items() if word == name]
        for flag, action in _flags(name).items():
            words = _values(name).get(flag)
            takes = f" -x -a '{' '.join(words)}'" if words else " -r" if action.nargs != 0 else ""
            lines.append(f"complete -c stepscope {seen} -l {flag[2:]}{takes} -d {_fish_quoted(action.help or '')}")
    for name in analyses():
        both = f"-n '__fish_seen_subcommand_from show; and __fish_seen_subcommand_from {name}'"
        lines += [f"complete -c stepscope {both} -l {flag[2:]}" for flag in _own_flags(name)]
    return "\n".join(lines) + "\n"


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
