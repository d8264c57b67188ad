"""Texts use plain American English and the words of the field; modules are named after what they contain."""

import argparse
import ast
import io
import json
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from stepscope.cli import parser

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "stepscope"
STRINGS = ROOT / "frontend" / "src" / "strings" / "en.json"
WRITTEN_BY_PROGRAMS = {ROOT / "docs" / "reference.md", ROOT / "benchmarks" / "RESULTS.md"}  # their texts are scanned where they are written
PAGES = sorted({*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("benchmarks/*.md")} - WRITTEN_BY_PROGRAMS)
PACKAGES = sorted({path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()})

# Not clean yet: packages in src/stepscope, pages of the documentation, "help" (of the command line), "strings" (of the web pages).
# Delete an entry when it is clean.
NOT_YET: set[str] = set()

_STEMS = "organ|optim|recogn|synchron|summar|normal|util|initial|serial|visual|minim|maxim|special|categor|general|parallel|vector|token"
WORDS = {
    rf"\w*(?:{_STEMS})is(?:e|es|ed|er|ers|ing|ations?)": "British spelling; write -ize, -ization",
    r"(?:behavi|col|fav|neighb|lab|hon)our\w*|artefacts?|grey|centres?|catalogues?|licence|whilst": "British spelling",
    "(?:cancel|label|model|signal)l(?:ed|ing)": "British spelling; write one l",
    r"\w+n['\u2019]t|(?:it|that|there|what|let)['\u2019]s|(?:we|you|they|I)['\u2019](?:re|ve|ll|d|m)": "contraction; write it in full",
    "(?:stands?|stood|standing) (?:idle|in|on|at|first|last|above|below|beside|behind|before|against|here|there)": "things do not stand; "
    "write where they are, or: is idle",
    r"that cannot be(?=\s*[(,.;:]|$)": "write what is wrong: invalid timestamps, a negative duration",
    "what (?:is|are|was|were) (?:to be|there|meant|in it|of it)|what (?:becomes|became|has become) of": "name the thing",
    "told|heard|said|(?:says?|tells?) so": "data does not speak; write: is reported, is listed, contains",
    "nobody|somebody|someone|whoever": "name the user, the process or the tool",
    "those that|of which|of whom|what of|so many|so much|for so long": "pronoun chain; name the noun",
    "(?:come|comes|came) by|(?:hold|holds|held|hang|hangs|hung) up|(?:do|does|did|done) without|taken for|(?:give|gives|gave) way|"
    "(?:go|goes|went) on|for ever": "idiom; use the plain verb: get, block, close, omit, continue, always",
    "lanes?": "the glossary has: track",
    "moments?": "the glossary has: timestamp; also: time, point in time",
    "anew|meanwhile|thereof|wherein|whereby|henceforth": "archaic; write: again, at the same time",
}
PATTERNS = {re.compile(rf"(?<![\w-])(?:{words})(?![\w-])", re.IGNORECASE): reason for words, reason in WORDS.items()}

MODULES = {
    r"\w+ing": "a module is a noun of the domain, not a gerund",
    "told|heard|said|found|given|kept|written": "a module is a noun of the domain, not a participle",
    "endings|facts|here|together|one|own|what|misc|utils?|helpers?": "the name does not show what the module contains",
}
NOUNS = {"recording", "nesting", "encoding", "mapping"}  # gerunds that are nouns of the field

# Names of functions, classes, parameters, variables and attributes that do not show the value.
NAMES = re.compile("_*(?:found|said|told|heard|asked|given|own|one|stands?|together|here|what|placed|described)")
# A function is named after what it returns or does, with a noun.
FUNCTIONS = re.compile("_*(?:said|asked|awaited|drawn|given|held|kept|linked|shown|typed|understood|meant|sent|seen)")
ALLOWED_NAMES = {
    "errors.py: what": "the column `what` of the table `problems`",
    "readers/common/problems.py: what": "the column `what` of the table `problems`",
    "readers/common/wire.py: what": "becomes the column `what` of the table `problems`",
    "readers/capture/reader.py: what": "the key in the header of a capture",
}


@pytest.mark.parametrize(
    "text",
    [
        "synchronise two clocks", "an initialised device", "colours", "an artefact", "it doesn't open", "the device stands idle",
        "what is to be run?", "tasks with times that cannot be.", "the reader is told", "nobody asked", "kernels of which",
        "what becomes of it", "others are held up", "the job goes on", "the server hangs up", "a lane", "the moment of a sample",
        "read anew", "a cancelled job",
    ],
)  # fmt: skip
def test_a_text_in_other_words_is_found(text: str) -> None:
    assert list(_violations(text))


@pytest.mark.parametrize(
    "text",
    [
        "standard output",
        "the wait is long",
        "a precise, otherwise idle device",
        "an advised model",
        "initialized",
        "the kernel is excellent",
        "plane",
    ],
)
def test_a_plain_text_is_accepted(text: str) -> None:
    assert list(_violations(text)) == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_documentation_uses_plain_words(page: Path) -> None:
    _skip_if_not_yet_clean(str(page.relative_to(ROOT)))
    assert list(_violations(_prose(page.read_text()))) == []


def test_help_texts_use_plain_words() -> None:
    _skip_if_not_yet_clean("help")
    assert [found for text in _help_texts(parser([])) for found in _violations(text)] == []


def test_texts_of_the_web_pages_use_plain_words() -> None:
    _skip_if_not_yet_clean("strings")
    assert [found for text in _leaves(json.loads(STRINGS.read_text())) for found in _violations(text)] == []


def test_sources_of_the_web_pages_have_american_spelling() -> None:
    """Names and comments, too; texts are in strings/."""
    sources = [path for path in STRINGS.parents[1].rglob("*") if path.suffix in (".ts", ".tsx", ".css")]
    assert len(sources) > 100
    british = [pattern for pattern, reason in PATTERNS.items() if reason.startswith("British")]
    found = [f"{path.relative_to(ROOT)}: {match[0]}" for path in sources for word in british for match in word.finditer(path.read_text())]
    assert found == []


@pytest.mark.parametrize("package", PACKAGES)
def test_docstrings_and_messages_use_plain_words(package: str) -> None:
    _skip_if_not_yet_clean(package)
    texts = [(f"{path.relative_to(ROOT)}:{line}: ", text) for path in _modules(package) for line, text in _texts(path)]
    assert [place + found for place, text in texts for found in _violations(text)] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_modules_are_named_after_what_they_contain(package: str) -> None:
    _skip_if_not_yet_clean(package)
    names = {part.strip("_") for path in _modules(package) for part in path.relative_to(SOURCE).with_suffix("").parts} - NOUNS
    assert {name: reason for name in names for words, reason in MODULES.items() if re.fullmatch(words, name)} == {}


def test_names_show_their_values() -> None:
    names = {f"{path.relative_to(SOURCE)}: {name}" for path in SOURCE.rglob("*.py") for name in _names(path) if NAMES.fullmatch(name)}
    assert names - ALLOWED_NAMES.keys() == set()


def test_functions_are_not_bare_participles() -> None:
    trees = {path: ast.parse(path.read_text()) for path in SOURCE.rglob("*.py")}
    names = {(path.name, node.name) for path, tree in trees.items() for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    assert {(file, name) for file, name in names if FUNCTIONS.fullmatch(name)} == set()


@pytest.mark.parametrize(
    "code",
    [
        "def said(): ...", "def read(what): ...", "found = 1", "a, told = 1, 2", "for one in rows: ...", "[1 for own in rows]",
        "self._own = 1", "import a as here", "with a as told: ...", "class C:\n    what: str", "(found := 1)", "lambda one: 1",
    ],
)  # fmt: skip
def test_a_name_that_does_not_show_its_value_is_found(code: str, tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text(code)
    assert [name for name in _names(path) if NAMES.fullmatch(name)]


def test_columns_and_attributes_that_are_read_are_no_names(tmp_path: Path) -> None:
    path = tmp_path / "code.py"
    path.write_text("rows.select(what=problem.what)")
    assert not [name for name in _names(path) if NAMES.fullmatch(name)]


def test_the_list_of_what_is_not_yet_clean_names_things_that_exist() -> None:
    assert {*PACKAGES, "help", "strings", *(str(page.relative_to(ROOT)) for page in PAGES)} >= NOT_YET


def _skip_if_not_yet_clean(name: str) -> None:
    if name in NOT_YET:
        pytest.skip(f"{name} is not yet clean: see NOT_YET")


def _violations(text: str) -> Iterator[str]:
    for pattern, reason in PATTERNS.items():
        for match in pattern.finditer(text):
            around = text[max(match.start() - 30, 0) : match.end() + 30].replace("\n", " ")
            yield f"{match[0]!r} ({reason}) in: {around}"


def _prose(page: str) -> str:
    """A Markdown page without code and without the targets of links."""
    page = re.sub(r"^```.*?^```", "", page, flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"\]\([^)]*\)", "]", _without_code(page))


def _without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "`code`", text)


def _help_texts(command: argparse.ArgumentParser) -> Iterator[str]:
    yield from map(_without_code, (command.description or "", command.epilog or ""))
    for action in command._actions:
        yield _without_code(action.help or "")
        if isinstance(action, argparse._SubParsersAction):
            yield from (choice.help or "" for choice in action._choices_actions)
            for subcommand in action.choices.values():
                yield from _help_texts(subcommand)


def _modules(package: str) -> Iterator[Path]:
    yield from sorted((SOURCE / package).rglob("*.py"))
    if (SOURCE / f"{package}.py").exists():
        yield SOURCE / f"{package}.py"


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Docstrings, the literals with a space in them (messages, help, notes), and comments."""
    text = path.read_text()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, _without_code(node.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], _without_code(token.string)


def _names(path: Path) -> Iterator[str]:
    """The names that a module gives: functions, classes, parameters, variables and attributes; not columns or names of others."""
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name) | ast.arg(arg=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield name
            case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
                yield name


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
