"""Answers that are kept in the cache: the same text without reading, and a new one when anything changes."""

import ast
import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import polars as pl
import pytest

import stepscope
from programs import STEPSCOPE, environment
from stepscope.io import answers, cache
from stepscope.server.answers import Answers, Question

SAMPLES = Path(__file__).parent / "samples"
RESNET = SAMPLES / "run" / "stepscope-0.1.0" / "resnet50_h200"
KINETO = next((SAMPLES / "chrome" / "torch-2.11").glob("*.json*"))


@pytest.fixture(autouse=True)
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def summary(path: Path, folder: Path, *flags: str) -> tuple[str, bool]:
    """The text of the command, and whether it imported Polars."""
    code = "import sys; from stepscope.cli import main; code = main(sys.argv[1:]); print('polars' in sys.modules, file=sys.stderr)"
    variables = environment(folder) | {"STEPSCOPE_CACHE": str(folder / "cache")}
    job = subprocess.run([sys.executable, "-c", code, "summary", path, *flags], env=variables, capture_output=True, text=True, check=True)
    return job.stdout, job.stderr.strip().endswith("True")


@pytest.mark.parametrize("source", [RESNET, KINETO], ids=["run folder", "file"])
def test_a_second_summary_is_the_same_text_and_reads_nothing(tmp_path: Path, source: Path) -> None:
    path = tmp_path / "input" / source.name
    path.parent.mkdir()
    (shutil.copytree if source.is_dir() else shutil.copy)(source, path)
    first, was_computed = summary(path, tmp_path)
    assert was_computed
    assert summary(path, tmp_path) == (first, False)
    assert summary(path, tmp_path, "--no-cache") == (first, True)
    assert summary(path, tmp_path, "--steps", "1:1") != (first, False)  # another question
    assert summary(path, tmp_path, "--format", "json")[1] is False
    assert json.loads(summary(path, tmp_path, "--format", "json")[0])["framework"] == "pytorch"


computed: Counter[Path] = Counter()


def ask(path: Path, *options: object) -> str:
    """The answer, numbered by how often one was computed for the path."""

    def compute() -> str:
        computed[path] += 1
        return f"answer {computed[path]}"

    return answers.cached_answer(path, "question", options, compute)


def test_an_answer_is_computed_again_when_a_file_changes_or_another_appears(tmp_path: Path) -> None:
    folder = tmp_path / "ranks"
    folder.mkdir()
    file = folder / "rank_0.json"
    file.write_text("{}")
    assert [ask(file), ask(file), ask(file, "other"), ask(file)] == ["answer 1", "answer 1", "answer 2", "answer 1"]
    file.write_text("[]")
    assert ask(file) == "answer 3"
    (folder / "scope_map_1.json").write_text("{}")  # readers also read files beside a trace
    assert ask(file) == "answer 4"
    assert [ask(folder), ask(folder)] == ["answer 1", "answer 1"]
    (folder / "rank_1.json").write_text("{}")
    assert ask(folder) == "answer 2"
    (folder / "rank_1.json").unlink()
    assert ask(folder) == "answer 1"


def test_recordings_that_may_grow_and_links_to_other_folders_have_no_kept_answer(tmp_path: Path) -> None:
    (tmp_path / "job" / "rank0.capture").mkdir(parents=True)
    assert [ask(tmp_path / "job"), ask(tmp_path / "job")] == ["answer 1", "answer 2"]
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "elsewhere").symlink_to(tmp_path / "job")
    assert [ask(tmp_path / "linked"), ask(tmp_path / "linked")] == ["answer 1", "answer 2"]


def test_a_damaged_answer_is_computed_again(tmp_path: Path, cache_folder: Path) -> None:
    file = tmp_path / "input" / "a.json"
    file.parent.mkdir()
    file.write_text("{}")
    assert ask(file) == "answer 1"
    (kept,) = cache_folder.glob("*/answer.json")
    kept.write_text("{")
    assert [ask(file), ask(file)] == ["answer 2", "answer 2"]


def test_a_file_that_changes_while_the_answer_is_computed_leaves_no_answer(tmp_path: Path, cache_folder: Path) -> None:
    file = tmp_path / "input" / "a.json"
    file.parent.mkdir()
    file.write_text("{}")

    def compute() -> str:
        file.write_text("[1]")
        return "of two states"

    assert answers.cached_answer(file, "question", (), compute) == "of two states"
    assert not list(cache_folder.glob("*/answer.json"))


def test_without_a_cache_answers_are_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.json"
    file.write_text("{}")
    monkeypatch.setenv("STEPSCOPE_CACHE", str(file))  # no folder
    assert [ask(file), ask(file)] == ["answer 1", "answer 2"]


def test_errors_are_not_kept(tmp_path: Path, cache_folder: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text("{}")
    for _ in range(2):
        with pytest.raises(FileNotFoundError, match="gone"):
            answers.cached_answer(file, "question", (), lambda: (_ for _ in ()).throw(FileNotFoundError("gone")))
    assert not list(cache_folder.glob("*/answer.json"))


@pytest.mark.parametrize("name", ["overview", "verdict", "operators", "advice", "overlap"])
def test_a_table_of_the_pages_from_the_cache_is_the_computed_one(
    tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("stepscope.server.answers._KEPT_S", 0.0)
    trace, question = stepscope.open(RESNET), Question("analyses", name, {})
    expected = trace.analyse(name)
    assert Answers().analysis(trace, question, ("run",), ("run", "files")).equals(expected)
    assert len(list(cache_folder.glob("*/table.arrow"))) == 1
    empty = stepscope.Trace({})
    kept = Answers().analysis(empty, question, ("run",), ("run", "files"))
    assert kept.equals(expected)
    assert kept.schema == expected.schema
    assert not Answers().analysis(empty, question, ("run",), ("run", "other files")).equals(expected)
    (file,) = (path for path in cache_folder.glob("*/table.arrow") if pl.read_ipc(path.read_bytes()).equals(expected))
    os.truncate(file, 100)
    assert Answers().analysis(trace, question, ("run",), ("run", "files")).equals(expected)


def test_the_version_is_printed_without_the_modules_of_commands() -> None:
    code = (
        "import sys; from stepscope.cli import main; main(['--version']); print([n for n in sys.modules if n.startswith('stepscope.cli.')])"
    )
    text = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert ast.literal_eval(text.partition("\n")[2]) == ["stepscope.cli.shared", "stepscope.cli.shared.signals"]
    assert (
        subprocess.run([*STEPSCOPE, "--version"], capture_output=True, text=True, check=True).stdout
        == f"stepscope {stepscope.__version__}\n"
    )


def test_an_answer_counts_for_the_limit_of_the_cache(tmp_path: Path) -> None:
    file = tmp_path / "input" / "a.json"
    file.parent.mkdir()
    file.write_text("{}")
    ask(file)
    assert [entry.source for entry in cache.entries()] == [f"{file} (question)"]
    assert cache.clear().entries == 1
