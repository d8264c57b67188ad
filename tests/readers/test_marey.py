"""MindInsight's Marey timeline: all devices of a step on one clock."""

import json
from pathlib import Path

import polars as pl
import pytest

import stepscope
from stepscope.cli import main
from stepscope.errors import DataError

SAMPLE = Path(__file__).parents[1] / "samples" / "marey" / "by-hand" / "ascend_marey_timeline_1.json"
OWN = Path(__file__).parents[3] / "shared" / "data" / "mindinsight" / "marey_graph"


def test_each_device_is_a_rank_with_its_operators_and_transfers_in_one_step() -> None:
    trace = stepscope.open(SAMPLE, cache=False)
    spans = (
        trace.spans.filter(pl.col("kind") != "step")
        .collect()
        .sort("start_ns", "rank")
        .select("rank", pl.col("kind", "name", "op_type").cast(pl.String), "start_ns", "dur_ns")
    )
    assert spans.rows() == [
        (0, "kernel", "Conv2D-op1", "Conv2D", 1_000_500, 40_250),
        (0, "communication", "AllReduce-op2", "AllReduce", 1_041_000, 20_000),
        (1, "communication", "Receive-op4", "Receive", 1_060_000, 6_000),
        (0, "communication", "Send-op3", "Send", 1_061_000, 4_500),
        (1, "kernel", "MatMul-op5", "MatMul", 1_066_000, 30_125),
    ]
    assert trace.steps.collect().sort("rank").select("rank", "step", "start_ns", "end_ns").rows() == [
        (0, 1, 1_000_500, 1_065_500),
        (1, 1, 1_060_000, 1_096_125),
    ]
    assert trace.meta.extra["stages"] == {"stage0": ["device0"], "stage1": ["device1"]}


def test_the_step_is_the_files_own_and_not_said_to_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    assert stepscope.open(SAMPLE, cache=False).overview()["steps_how"].to_list() == ["marker", "marker"]
    assert main(["summary", str(SAMPLE), "--no-cache"]) == 0
    assert "step-name" not in capsys.readouterr().out


def test_calls_that_the_file_leaves_out_are_neither_idle_nor_exposed_time() -> None:
    trace = stepscope.open(SAMPLE, cache=False)
    shares = trace.overview().select("busy_share", "compute_share", "communication_share", "idle_share", "exposed_communication_share")
    assert set(shares.unpivot()["value"]) == {None}
    assert trace.gap_causes().is_empty()
    headline, *_ = trace.verdict(topic="overview")["text"]
    assert headline == "NPU: some kernels are not recorded, so busy and idle time are unknown."


def test_the_map_beside_it_tells_the_scopes_and_the_name_of_the_file_the_step(tmp_path: Path) -> None:
    (tmp_path / "ascend_marey_timeline_7.json").write_text(SAMPLE.read_text())
    (tmp_path / "scope_map_7.json").write_text(json.dumps({"scope_map": {"Conv2D-op1": "/net/conv1"}}))
    trace = stepscope.open(tmp_path, cache=False)
    assert trace.spans.filter(pl.col("scope") == "net/conv1").collect()["name"].to_list() == ["Conv2D-op1"]
    assert set(trace.steps.collect()["step"]) == {7}


def test_b10_a_step_in_which_nothing_ran_is_said_to_be_empty(tmp_path: Path) -> None:
    """MindInsight answers it with `Infinity`, which is no JSON."""
    file = tmp_path / "empty.json"
    file.write_text('{"maps": {"device0": {}}, "minT": Infinity, "maxT": 0, "stage_data": {}}')
    with pytest.raises(DataError, match="no device has operators"):
        stepscope.open(file, cache=False)


def test_an_operator_without_times_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    file = tmp_path / "damaged.json"
    file.write_text('{"maps": {"device0": {"a-op1": {"st": 1}, "b-op2": {"st": 1, "ed": 2}}, "device1": 5}}')
    trace = stepscope.open(file, cache=False)
    assert trace.spans.filter(pl.col("kind") != "step").collect()["name"].to_list() == ["b-op2"]
    assert trace.problems.collect()["lost"].sum() == 1


@pytest.mark.skipif(not OWN.exists(), reason="MindInsight's test data is not here")
def test_the_timeline_of_mindinsights_own_tests_has_every_operator_of_every_device() -> None:
    trace = stepscope.open(OWN, cache=False)
    maps = json.loads((OWN / "ascend_marey_timeline_1.json").read_text())["maps"]
    call_counts = {int(name.removeprefix("device")): len(calls) for name, calls in maps.items()}
    found = trace.spans.filter(pl.col("kind") != "step").group_by("rank").len().collect()
    assert dict(found.iter_rows()) == call_counts and sum(call_counts.values()) > 1000
    assert trace.spans.filter(pl.col("scope").is_not_null()).collect().height > 100


def with_map(folder: Path, scope: str, name: str = "scope_map_7.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(json.dumps({"scope_map": {"Conv2D-op1": scope}}))
    return folder / name


def scopes(file: Path) -> set[str | None]:
    found = stepscope.open(file).spans.filter(pl.col("name").cast(pl.String) == "Conv2D-op1").select("scope").unique().collect()
    return set(found["scope"].cast(pl.String))


def test_a_map_that_changes_is_read_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    file = tmp_path / "ascend_marey_timeline_7.json"
    file.write_text(SAMPLE.read_text())
    assert scopes(file) == {None}
    with_map(tmp_path, "/net/one")
    assert scopes(file) == {"net/one"}
    with_map(tmp_path, "/net/two_")
    assert scopes(file) == {"net/two_"}
    (tmp_path / "scope_map_7.json").unlink()
    assert scopes(file) == {None}


def test_a_map_that_is_a_link_out_of_the_folder_is_not_read_and_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    served = tmp_path / "served"
    served.mkdir()
    file = served / "ascend_marey_timeline_7.json"
    file.write_text(SAMPLE.read_text())
    (served / "scope_map_7.json").symlink_to(with_map(tmp_path / "secret", "/secret"))
    assert scopes(file) == {None}
    call_counts = dict(stepscope.open(file).problems.select("where", "what").collect().iter_rows())
    assert call_counts["scope_map_7.json"] == "a link that leads out of its folder, which is not followed"
    (served / "scope_map_7.json").unlink()
    (served / "scope_map_7.json").symlink_to(with_map(served / "maps", "/net/inside"))
    assert scopes(file) == {"net/inside"}


def test_the_recording_itself_may_be_a_link(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies beside the link counts, not what lies beside the file that it leads to."""
    monkeypatch.setenv("STEPSCOPE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "ascend_marey_timeline_7.json").symlink_to(SAMPLE)
    with_map(tmp_path / "links", "/net/own")
    assert scopes(tmp_path / "links" / "ascend_marey_timeline_7.json") == {"net/own"}
