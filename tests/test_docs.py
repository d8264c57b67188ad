"""Everything a user can say is documented, and what the documents say is so."""

import argparse
import importlib.util
import itertools
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

import stepscope
from stepscope import exporters, readers, schema
from stepscope.cli import COMMANDS, command, parser
from stepscope.cli.demo import RECORDING
from stepscope.trace import analysis, analysis_names

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
REFERENCE = (DOCS / "reference.md").read_text()
HEADINGS = set(re.findall(r"^### (.+)$", REFERENCE, re.MULTILINE))


def test_the_reference_is_what_make_docs_would_write() -> None:
    assert _script("generate").reference() == REFERENCE, "run `make docs`"


def test_the_answers_shown_are_those_the_program_gives() -> None:
    page = (DOCS / "cli.md").read_text()
    assert _script("generate").answered(page) == page, "run `make docs`"


def test_the_python_shown_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exporters.exporter("chrome").function(stepscope.open(RECORDING, cache=False), tmp_path / "trace.json.gz")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```", (DOCS / "python.md").read_text(), re.DOTALL | re.MULTILINE):
        exec(block, names)
    assert (tmp_path / "operators.csv").exists()


@pytest.mark.parametrize("name", analysis_names())
def test_every_analysis_is_documented_with_its_parameters_and_columns(name: str) -> None:
    found = analysis(name)
    section = re.split(r"^### ", REFERENCE.split(f"\n### {name}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    assert found.question.endswith("?"), "the module's docstring is a question"
    assert found.question in section
    for word in [*found.parameters, *found.columns]:
        assert f"| `{word}` |" in section


@pytest.mark.parametrize("name", [*schema.TABLES, *readers.names(), *exporters.names()])
def test_every_table_reader_and_exporter_is_documented(name: str) -> None:
    assert name in HEADINGS


@pytest.mark.parametrize("name", readers.names())
def test_every_reader_says_what_becomes_of_what(name: str) -> None:
    assert f"(`{name}`)" in (DOCS / "formats.md").read_text()


def test_every_column_of_every_table_is_documented() -> None:
    for columns in schema.TABLES.values():
        for column in columns:
            assert f"| `{column}` |" in REFERENCE


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_with_its_options_and_shown_in_use(name: str) -> None:
    section = re.split(r"^##", REFERENCE.split(f"\n### stepscope {name}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    own = argparse.ArgumentParser(add_help=False)
    command(name).add_arguments(own, [])
    for option in own._option_string_actions:
        assert re.search(rf"^\| `([^`]*, )?{option}\b", section, re.MULTILINE), option
    assert f"$ stepscope {name}" in (DOCS / "cli.md").read_text()


def test_every_page_of_the_web_ui_is_in_the_table_of_pages() -> None:
    section = (DOCS / "web.md").read_text().split("\n## The pages\n")[1].split("\n## ")[0]
    for path in (ROOT / "frontend" / "src" / "pages").glob("*.tsx"):
        name = re.search(r'"en": "([^"]+)"', path.read_text().partition("\n")[0])
        assert name and f"| **{name[1]}** |" in section, path.name


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_command_line_in_the_documents_is_one_that_stepscope_takes() -> None:
    """Examples go stale first."""
    lines = [line for page in PAGES for line in re.findall(r"^\$ stepscope (.+)$", page.read_text(), re.MULTILINE)]
    assert len(lines) > 10
    for line in lines:
        words = list(itertools.takewhile(lambda word: word not in ("|", ">"), shlex.split(line, comments=True)))
        parser(words).parse_args(words)


def test_every_decision_says_context_choice_and_price() -> None:
    pages = sorted((DOCS / "decisions").glob("*.md"))
    assert [page.name[:3] for page in pages] == [f"{number:03}" for number in range(1, len(pages) + 1)]
    for page in pages:
        for part in ("**Context.**", "**Choice.**", "**Price.**"):
            assert part in page.read_text(), page.name


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_key_that_the_help_lists_for_the_timeline_is_in_its_page() -> None:
    manual = (ROOT / "frontend" / "src" / "manual.tsx").read_text()
    timeline = manual.partition('["timeline", [')[2].partition("]],")[0]
    page = (ROOT / "docs" / "timeline.md").read_text()
    known = set(re.findall(r"`([^`]+)`", page))
    listed = {key for group in re.findall(r'^    \["([^"]+)", \{', timeline, re.MULTILINE) for key in group.replace(" · ", " ").split()}
    assert len(listed) > 20
    assert listed - known - {"wheel", "drag"} == set()
