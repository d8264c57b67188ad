"""Exports for speedscope: flame graphs that speedscope's own rules accept, with the times of the trace."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

import stepscope
import tiny
from conftest import ROOT
from stepscope.errors import UsageError
from stepscope.exporters import speedscope

SAMPLES = ROOT / "tests" / "samples"


def sums(profile: dict[str, Any], names: list[str]) -> dict[str, int]:
    """Time in each frame, after speedscope's rules: times never go back, and only the innermost open frame can close."""
    stack: list[tuple[int, int]] = []
    found: dict[str, int] = {}
    last = profile["startValue"]
    for event in profile["events"]:
        assert event["at"] >= last
        last = event["at"]
        if event["type"] == "O":
            stack.append((event["frame"], event["at"]))
        else:
            frame, began = stack.pop()
            assert frame == event["frame"]
            found[names[frame]] = found.get(names[frame], 0) + event["at"] - began
    assert not stack and last == profile["endValue"]
    return found


def exported(path: Path) -> dict[str, dict[str, int]]:
    data = path.read_bytes()
    document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
    names = [frame["name"] for frame in document["shared"]["frames"]]
    for profile in document["profiles"]:
        assert profile["type"] == "evented" and profile["unit"] == "nanoseconds"
    return {profile["name"]: sums(profile, names) for profile in document["profiles"]}


def test_each_thread_and_stream_is_a_flame_graph_with_the_times_of_its_spans(tmp_path: Path) -> None:
    trace = tiny.trace(
        spans="""
            kind    name    track  start_ns  dur_ns
            python  main    0      1000      900
            op      linear  0      1100      400
            op      mm      0      1100      300
            op      relu    0      1500      100
            kernel  gemm    1      1300      50
            kernel  gemm    1      1350      70
        """,
        tracks="""
            track  label   group  kind
            0      main    host   thread
            1      "s_7"   GPU    stream
        """,
    )
    speedscope.export(trace, tmp_path / "t.json")
    assert exported(tmp_path / "t.json") == {
        "host · main": {"main": 900, "linear": 400, "mm": 300, "relu": 100},
        "GPU · s 7": {"gemm": 120},
    }


def test_spans_that_overlap_are_shortened_and_those_without_a_duration_left_out(tmp_path: Path) -> None:
    spans = "kind name track start_ns dur_ns\nkernel a 0 0 100\nkernel b 0 60 100\nkernel c 0 150 50\nkernel d 0 170 0"
    speedscope.export(tiny.trace(spans=spans, tracks="track label kind\n0 s stream"), tmp_path / "t.json.gz")
    [found] = exported(tmp_path / "t.json.gz").values()
    assert set(found) == {"a", "b", "c"}
    assert found["a"] == 100 and found["b"] <= 100 and found["c"] <= 50


@pytest.mark.parametrize(
    "name", ["chrome/torch-2.11/h200_modules.json.gz", "xplane/jax-0.11.2-gpu", "chrome/torch-2.13.0/cpu_training.json.gz"]
)
def test_real_recordings_are_strictly_nested(name: str, tmp_path: Path) -> None:
    speedscope.export(stepscope.open(SAMPLES / name), tmp_path / "t.json")
    assert all(exported(tmp_path / "t.json").values())


def test_several_ranks_are_a_folder_of_one_file_each(tmp_path: Path) -> None:
    trace = tiny.trace(
        spans="rank kind name start_ns dur_ns\n0 op a 0 10\n1 op b 0 20", tracks="rank track label kind\n0 0 m thread\n1 0 m thread"
    )
    with pytest.raises(UsageError, match="2 ranks"):
        speedscope.export(trace, tmp_path / "t.json")
    speedscope.export(trace, tmp_path / "both")
    assert [exported(path) for path in sorted((tmp_path / "both").iterdir())] == [{"m": {"a": 10}}, {"m": {"b": 20}}]
