"""Every command, analysis and table is documented, and the documentation is correct."""

import importlib.util
import itertools
import json
import re
import shlex
from pathlib import Path
from types import ModuleType

import pytest

import stepscope
from stepscope import exporters, readers
from stepscope.cli import COMMANDS, command, parser
from stepscope.cli.setup.demo import RECORDING
from stepscope.cli.shared.arguments import Parser
from stepscope.model import schema
from stepscope.model.trace import analysis, analysis_names

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md")), *sorted((ROOT / "benchmarks").glob("*.md"))]
REFERENCE = (DOCS / "reference.md").read_text()
HEADINGS = set(re.findall(r"^### (.+)$", REFERENCE, re.MULTILINE))


def test_the_reference_is_what_make_docs_would_write() -> None:
    assert _script("generate").reference() == REFERENCE, "run `make docs`"


def test_the_table_of_rules_is_what_make_docs_would_write() -> None:
    page = (DOCS / "advice.md").read_text()
    assert _script("generate").with_rules(page) == page, "run `make docs`"


def test_the_command_output_shown_is_real() -> None:
    page = (DOCS / "cli.md").read_text()
    assert _script("generate").with_command_output(page) == page, "run `make docs`"


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
def test_every_reader_has_a_section_on_its_format(name: str) -> None:
    assert f"(`{name}`)" in (DOCS / "formats.md").read_text()


def test_every_column_of_every_table_is_documented() -> None:
    for columns in schema.TABLES.values():
        for column in columns:
            assert f"| `{column}` |" in REFERENCE


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_is_documented_with_its_options_and_shown_in_use(name: str) -> None:
    section = re.split(r"^##", REFERENCE.split(f"\n### stepscope {name}\n")[1], maxsplit=1, flags=re.MULTILINE)[0]
    own = Parser(add_help=False)
    command(name).add_arguments(own, [])
    for option in own.flags:
        assert re.search(rf"^\| `([^`]*, )?{option}\b", section, re.MULTILINE), option
    assert f"$ stepscope {name}" in (DOCS / "cli.md").read_text()


def test_every_page_of_the_web_ui_is_in_the_table_of_pages() -> None:
    section = (DOCS / "web.md").read_text().split("\n## Pages\n")[1].split("\n## ")[0]
    names = _web_pages()
    assert {path.stem for path in (ROOT / "frontend" / "src" / "pages").glob("*.tsx")} == set(names)
    assert [name for name in names.values() if f"| **{name}** |" not in section] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    for target, section in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", page.read_text()):
        path = page.parent / target if target else page
        assert target.startswith("https://") or path.exists(), target
        assert not section or target.startswith("https://") or section in _sections(path), f"{target}#{section}"


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached, rest = set[Path](), [ROOT / "README.md"]
    while rest:
        page = rest.pop()
        if page not in reached and page.suffix == ".md":
            reached.add(page)
            rest += [(page.parent / target).resolve() for target in re.findall(r"\]\(([^)#:]+)", page.read_text())]
    assert reached >= set(PAGES)


def test_the_index_of_the_documentation_links_every_page() -> None:
    listed = {(DOCS / target).resolve() for target in re.findall(r"\]\(([^)#:]+)", (DOCS / "README.md").read_text())}
    assert listed | {DOCS / "README.md"} >= set(PAGES)


def test_pages_and_commands_for_users_of_other_profilers_exist() -> None:
    page = (DOCS / "coming-from.md").read_text()
    assert set(re.findall(r"\*\*([^*]+)\*\*", page)) <= set(_web_pages().values())
    assert set(re.findall(r"`trace\.(\w+)\(\)`", page)) <= set(analysis_names())
    commands = re.findall(r"`stepscope ([^`]+ [^`]+)`", page)
    assert len(commands) > 80
    for line in commands:
        words = shlex.split(line)
        parser(words).parse_args(words)
        if words[0] == "show":
            assert words[1] in {*analysis_names(), *schema.TABLES}, line


def test_every_command_line_in_the_documents_is_one_that_stepscope_takes() -> None:
    """Examples go stale first."""
    lines = [line for page in PAGES for line in re.findall(r"^\$ stepscope (.+)$", page.read_text(), re.MULTILINE)]
    assert len(lines) > 10
    for line in lines:
        words = list(itertools.takewhile(lambda word: word not in ("|", ">"), shlex.split(line, comments=True)))
        parser(words).parse_args(words)


def test_every_decision_has_context_choice_and_price() -> None:
    pages = sorted((DOCS / "decisions").glob("*.md"))
    assert [page.name[:3] for page in pages] == [f"{number:03}" for number in range(1, len(pages) + 1)]
    for page in pages:
        for part in ("**Context.**", "**Choice.**", "**Price.**"):
            assert part in page.read_text(), page.name


def _web_pages() -> dict[str, str]:
    """The title of each page by its name."""
    titles: dict[str, str] = json.loads((ROOT / "frontend" / "src" / "strings" / "en.json").read_text())["pages"]
    return titles


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_key_that_the_help_lists_for_the_timeline_is_in_its_page() -> None:
    source = (ROOT / "frontend" / "src" / "help_content.tsx").read_text()
    timeline = source.partition("\n  timeline: {")[2].partition("\n  },")[0]
    page = (ROOT / "docs" / "timeline.md").read_text()
    known = set(re.findall(r"`([^`]+)`", page))
    listed = {key for group in re.findall(r'^    \w+: "([^"]+)"', timeline, re.MULTILINE) for key in group.replace(" · ", " ").split()}
    assert len(listed) > 20
    assert listed - known - {"wheel", "drag"} == set()


def _sections(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
