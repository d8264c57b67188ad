"""Dismissed findings: kept with the run, changed only with the token, and bounded."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stepscope.server.routes.dismissals import Dismissals

SAMPLES = Path(__file__).parent.parent / "samples" / "run" / "stepscope-0.1.0"
FINDING = {"rule": "launch_bound", "culprit": "", "source": "", "reason": "planned for the next release"}


@pytest.fixture
def ask(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    served = server(SAMPLES)
    path = f"api/runs/{served.run('resnet50_h200')}/dismissed"

    def request(body: Any = None, **more: Any) -> Any:
        headers = {"Content-Type": "application/json"}
        return served.ask(path, "GET" if body is None else "POST", body if body is None else json.dumps(body), headers, **more)

    return request


def test_a_dismissed_finding_is_kept_with_its_reason_until_it_is_restored(ask: Callable[..., Any], tmp_path: Path) -> None:
    assert ask().json() == {"dismissed": [], "kept": True, "can_change": True}
    rows = ask(FINDING).json()["dismissed"]
    assert [{name: row[name] for name in FINDING} for row in rows] == [FINDING]
    # Another reason replaces the first one.
    assert [row["reason"] for row in ask(FINDING | {"reason": "known"}).json()["dismissed"]] == ["known"]
    assert [row["reason"] for row in ask().json()["dismissed"]] == ["known"]
    (file,) = (tmp_path / "cache" / "dismissed").iterdir()
    assert file.stat().st_mode & 0o077 == 0
    assert ask(FINDING | {"undo": True}).json()["dismissed"] == []


def test_nothing_is_dismissed_without_the_token(ask: Callable[..., Any], server: Any) -> None:
    assert ask(FINDING, bearer=False).status == 401
    served = server(SAMPLES, token=None)
    path = f"api/runs/{served.run('resnet50_h200')}/dismissed"
    answer = served.ask(path, "POST", json.dumps(FINDING), {"Content-Type": "application/json"})
    assert (answer.status, served.ask(path).json()["can_change"]) == (403, False)


@pytest.mark.parametrize(
    "body",
    [{}, {"rule": 3}, {"rule": "a", "reason": "x" * 501}, {"rule": "a", "path": "/etc"}, {"rule": "a", "undo": "yes"}],
)
def test_what_is_no_finding_is_refused(ask: Callable[..., Any], body: dict[str, Any]) -> None:
    answer = ask(body)
    assert answer.status == 400 and answer.json()["kind"] == "usage"


def test_the_number_of_dismissed_findings_is_bounded(ask: Callable[..., Any]) -> None:
    for number in range(200):
        assert ask(FINDING | {"culprit": str(number)}).status == 200
    assert ask(FINDING | {"culprit": "one more"}).status == 400
    assert ask(FINDING | {"culprit": "7", "undo": True}).status == 200


def test_without_a_cache_they_last_as_long_as_the_server(tmp_path: Path) -> None:
    dismissals = Dismissals(use_cache=False)
    assert dismissals.change(tmp_path, dict(FINDING))["kept"] is False
    assert len(dismissals.answer(tmp_path)["dismissed"]) == 1


def test_a_damaged_file_is_an_error_that_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ask: Callable[..., Any]) -> None:
    ask(FINDING)
    (file,) = (tmp_path / "cache" / "dismissed").iterdir()
    file.write_text("[{")
    answer = ask()
    assert answer.status == 409 and str(file) in answer.json()["error"]


def test_without_a_usable_cache_they_last_as_long_as_the_server(ask: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder of the cache would be")
    assert ask().json() == {"dismissed": [], "kept": False, "can_change": True}
    changed = ask(FINDING).json()
    assert ([row["rule"] for row in changed["dismissed"]], changed["kept"]) == (["launch_bound"], False)
    assert ask().json()["dismissed"] == changed["dismissed"]


def test_two_runs_of_one_folder_have_their_own(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    sample = SAMPLES.parents[1] / "chrome" / "torch-2.13.0" / "cpu_training.json.gz"
    (tmp_path / "runs").mkdir()
    for name in ("first_rank0", "first_rank1", "second_rank0", "second_rank1"):
        shutil.copy(sample, tmp_path / "runs" / f"{name}.json.gz")
    served = server(tmp_path / "runs")
    runs = {row["name"]: row for row in served.ask("api/runs").json()["runs"]}
    assert sorted(runs) == ["first", "second"] and len({row["path"] for row in runs.values()}) == 1
    headers = {"Content-Type": "application/json"}
    paths = {name: f"api/runs/{row['id']}/dismissed" for name, row in runs.items()}
    assert served.ask(paths["first"], "POST", json.dumps(FINDING), headers).status == 200
    assert {name: len(served.ask(path).json()["dismissed"]) for name, path in paths.items()} == {"first": 1, "second": 0}
