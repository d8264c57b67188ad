"""What recording adds to a step is told apart from the job's own idle time."""

import json
from pathlib import Path

import msgspec
import pytest
from polars.testing import assert_frame_equal

import stepscope
import tiny
from stepscope.cli import main
from stepscope.exporters import chrome
from stepscope.model.trace import Trace, UnprofiledSteps, combine

SHARED = Path(__file__).parents[3] / "shared" / "data"
# Three steps of 200 ns. The device works 100 ns in each; the host was slow to launch, and waited 50 ns for data in the last.
TRACKS = """
    track  kind    device
    0      thread  -
    1      stream  0
"""
SPANS = """
    span  track  kind    name   start_ns  dur_ns  flow_in
    0     0      step    s0     0         200     -
    1     0      step    s1     200       200     -
    2     0      step    s2     400       200     -
    10    0      api     go     90        5       -
    11    0      api     go     290       5       -
    12    0      data    next   480       50      -
    13    0      api     go     530       5       -
    20    1      kernel  k      100       100     10
    21    1      kernel  k      300       100     11
    22    1      kernel  k      540       60      13
    23    1      kernel  k      410       40      11
"""
STEPS = """
    step  start_ns  end_ns  how
    0     0         200     marker
    1     200       400     marker
    2     400       600     marker
"""


def recorded(median_ns: int, p90_ns: int, *, how: str = "marker", count: int = 10) -> Trace:
    trace = tiny.trace(tracks=TRACKS, spans=SPANS, steps=STEPS.replace("marker", how))
    steps = UnprofiledSteps(rank=0, count=count, median_ns=median_ns, p10_ns=median_ns - 5, p90_ns=p90_ns)
    return Trace(trace.tables, msgspec.structs.replace(trace.meta, unprofiled_steps=[steps]))


def test_unprofiled_idle_time_is_the_unprofiled_step_without_the_work_of_the_device() -> None:
    tiny.assert_rows(
        recorded(125, 130).recording_overhead(),
        """
        rank  steps  step_ns  unprofiled_steps  unprofiled_step_ns  unprofiled_p90_ns  overhead_share  idle_share  idle_unprofiled_share  overhead
        0     3      200      10                125                 130                0.6             0.5         0.2                    "most_of_the_idle_time"
        """,  # noqa: E501
    )
    tiny.assert_rows(
        recorded(160, 170).overview(),
        """
        step_ns  busy_share  unprofiled_step_ns  idle_unprofiled_share  overhead
        200      0.5         160                 0.375                  "part_of_the_idle_time"
        """,
    )


def test_unprofiled_idle_time_has_the_range_of_the_unprofiled_steps() -> None:
    """Of 125 ns, or of 120 to 160 ns, the device works 100."""
    for table in (recorded(125, 160).recording_overhead(), recorded(125, 160).overview()):
        row = table.row(0, named=True)
        assert row["idle_unprofiled_low_share"] == pytest.approx(1 / 6)
        assert row["idle_unprofiled_high_share"] == pytest.approx(3 / 8)
    verdict = recorded(125, 160).verdict(topic="overview")
    assert "about 20.0 % unprofiled (16.7 % to 37.5 %, as unprofiled steps vary)." in " ".join(verdict["text"])
    shortest = recorded(95, 96).recording_overhead().row(0, named=True)
    assert (shortest["idle_unprofiled_low_share"], shortest["idle_unprofiled_high_share"]) == (0, 0)


def test_a_device_that_works_longer_than_an_unprofiled_step_was_never_idle_in_it() -> None:
    assert recorded(101, 110).recording_overhead()["idle_unprofiled_share"].item() == pytest.approx(1 / 101)
    assert recorded(80, 90).recording_overhead()["idle_unprofiled_share"].item() == 0


@pytest.mark.parametrize(("median_ns", "p90_ns"), [(191, 195), (150, 205), (210, 220)])
def test_steps_that_differ_no_more_than_unprofiled_ones_do_are_no_warning(median_ns: int, p90_ns: int) -> None:
    """5 % more, or within nine in ten of the unprofiled steps, or faster."""
    assert recorded(median_ns, p90_ns).recording_overhead()["overhead"].item() == "small"


@pytest.mark.parametrize("how", ["given", "inferred", "whole"])
def test_steps_that_were_not_marked_are_not_compared_with_those_that_the_recording_timed(how: str) -> None:
    row = recorded(125, 130, how=how).recording_overhead().row(0, named=True)
    assert (row["unprofiled_step_ns"], row["idle_unprofiled_share"], row["overhead"]) == (None, None, None)


def test_steps_of_another_kind_are_not_compared() -> None:
    """An epoch that a callback timed is no step of the device."""
    assert recorded(20_000, 21_000).recording_overhead()["idle_unprofiled_share"].item() is None


def test_a_rank_without_unprofiled_steps_has_none() -> None:
    one = recorded(125, 130)
    both = combine([one, tiny.trace(tracks=TRACKS, spans=SPANS, steps=STEPS).as_rank(1), one.as_rank(2)])
    tiny.assert_rows(
        both.recording_overhead(),
        """
        rank  unprofiled_step_ns  idle_share  idle_unprofiled_share  overhead
        0     125                 0.5         0.2                    "most_of_the_idle_time"
        1     -                   0.5         -                      -
        2     125                 0.5         0.2                    "most_of_the_idle_time"
        """,
    )
    assert both.gap_causes(rank=1)["unprofiled_share"].null_count() == both.gap_causes(rank=1).height


def test_without_a_device_the_steps_are_slower_and_idle_time_is_not_known() -> None:
    trace = tiny.trace(
        spans="""
        kind  name  start_ns  dur_ns
        op    a     0         100
        op    a     200       100
        """,
        steps="""
        step  start_ns  end_ns  how
        0     0         200     marker
        1     200       400     marker
        """,
    )
    steps = [UnprofiledSteps(rank=0, count=5, median_ns=150, p10_ns=149, p90_ns=151)]
    row = Trace(trace.tables, msgspec.structs.replace(trace.meta, unprofiled_steps=steps)).recording_overhead().row(0, named=True)
    assert (row["overhead"], row["idle_share"], row["idle_unprofiled_share"]) == ("steps", None, None)


def test_the_causes_share_the_remaining_idle_time_and_a_data_wait_keeps_its_duration() -> None:
    """Of 3 x 125 ns 75 are idle, all of it the wait for data, which took 90; of 3 x 160 ns 180 are, so 90 are left to the host."""
    trace = recorded(125, 130)
    causes = trace.gap_causes()
    tiny.assert_rows(
        causes,
        """
        cause             total_ns  share
        host-bound        200       0.333333
        "data_wait"       90        0.15
        "launch_latency"  10        0.016667
        """,
    )
    assert causes["unprofiled_share"].sum() == pytest.approx(0.2)
    assert causes["unprofiled_share"].to_list() == pytest.approx([0.0, 75 / 375, 0.0])
    roomy = recorded(160, 170).gap_causes()
    assert roomy["unprofiled_share"].to_list() == pytest.approx([90 / 480 * 200 / 210, 90 / 480, 90 / 480 * 10 / 210])
    assert trace.gap_causes(per_step=True)["unprofiled_share"].null_count() == trace.gap_causes(per_step=True).height
    assert recorded(160, 170).gap_causes(min_ns=50)["unprofiled_share"].to_list() == pytest.approx([90 / 480 * 200 / 210, 90 / 480])


def test_the_options_that_slow_the_host_are_listed_with_and_without_a_header(tmp_path: Path) -> None:
    def traced(events: list[dict[str, object]], **header: object) -> str | None:
        file = tmp_path / "trace.json"
        device = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 5, "dur": 3, "args": {"device": 0, "stream": 7}}
        step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 9, "tid": 9, "ts": 0, "dur": 10}
        file.write_text(json.dumps({"schemaVersion": 1, **header, "traceEvents": [step, device, *events]}))
        row = stepscope.open(file, cache=False).recording_overhead().row(0, named=True)
        assert row["overhead"] == ("likely" if row["slowed_by"] else None)
        found: str | None = row["slowed_by"]
        return found

    def host(cat: str, name: str, args: dict[str, object]) -> dict[str, object]:
        return {"ph": "X", "cat": cat, "name": name, "pid": 9, "tid": 9, "ts": 1, "dur": 2, "args": args}

    assert traced([host("cpu_op", "aten::mm", {})]) is None
    assert traced([host("cpu_op", "aten::mm", {"Input Dims": [[2, 3]]})]) == "shapes"
    assert traced([host("python_function", "train.py(3): main", {"Python id": 1})]) == "stacks"
    memory = {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": 9, "tid": 9, "ts": 2, "s": "t"}
    assert traced([memory | {"args": {"Addr": 8, "Bytes": 64, "Device Type": 1, "Device Id": 0, "Total Allocated": 64}}]) == "memory"
    assert traced([], with_stack=1, record_shapes=1, profile_memory=1) == "stacks, shapes, memory"


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")
def test_an_imported_trace_with_stacks_is_not_called_host_bound_without_mentioning_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["summary", str(next((SHARED / "tracelens" / "mi300").glob("gaunernst*.json.gz"))), "--no-cache"]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "Recording stacks, shapes and memory slows the host: without it, the device may be idle for less time." in words
    assert "compare with a run recorded without it, or record a few steps with stepscope run --steps" in words


def test_the_summary_gives_the_idle_time_of_the_unprofiled_job_beside_the_recorded_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from stepscope.io import store

    store.write(recorded(125, 130), tmp_path / "run")
    assert main(["summary", str(tmp_path / "run")]) == 0
    words = " ".join(capsys.readouterr().out.split())
    assert "125 ns per step unprofiled, 200 ns while recorded (+60 %): idle time here is mostly profiling overhead." in words
    assert "is idle 50.0 % of each step while recorded, about 20.0 % unprofiled (16.7 % to 23.1 %, as unprofiled steps vary)." in words
    store.write(recorded(191, 195), tmp_path / "quick")
    assert main(["summary", str(tmp_path / "quick")]) == 0
    assert "overhead" not in capsys.readouterr().out


def test_an_export_as_chrome_json_keeps_what_is_known_of_unprofiled_steps(tmp_path: Path) -> None:
    trace = recorded(125, 130)
    chrome.export(trace, tmp_path / "trace.json")
    back = stepscope.open(tmp_path / "trace.json", cache=False)
    assert_frame_equal(back.recording_overhead(), trace.recording_overhead())
    assert_frame_equal(back.gap_causes(), trace.gap_causes())
