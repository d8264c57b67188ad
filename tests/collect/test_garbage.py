"""Collections of Python's garbage collector in recordings, compared with the times that the program itself measured."""

import json
import sys
from pathlib import Path

import programs
import stepscope

JOB = """
    import gc, json, os, sys, time
    import numpy as np
    import stepscope

    class Node:
        def __init__(self):
            self.me = self

    def garbage():
        for _ in range(100_000):
            Node()

    gc.disable()
    before = list(gc.callbacks)
    profiler = stepscope.Profiler(output_path="recording", host_interval_ms=0, activities=ACTIVITIES)
    times = []
    for step in range(3):
        garbage()
        if step == 1:
            begin = time.perf_counter_ns()
            gc.collect()
            times.append(time.perf_counter_ns() - begin)
            gc.collect(0)  # nothing to do: shorter than what is recorded
            child = os.fork()
            if not child:
                os._exit(gc.callbacks != before)
            times.append(os.waitpid(child, 0)[1])
        profiler.step()
    profiler.stop()
    json.dump({"collected_ns": times[0], "child": times[1], "after": gc.callbacks == before}, open("times.json", "w"))
"""


def record(folder: Path, activities: str) -> dict[str, int]:
    programs.script(folder, JOB.replace("ACTIVITIES", activities))
    done = programs.run_command(folder, sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    times: dict[str, int] = json.loads((folder / "times.json").read_text())
    return times


def test_a_collection_is_a_span_as_long_as_the_program_measured(tmp_path: Path) -> None:
    times = record(tmp_path, "[stepscope.ProfilerActivity.CPU]")
    trace = stepscope.open(programs.only(programs.recordings(tmp_path / "recording")), cache=False)
    (span,) = trace.spans.filter(category="gc").collect().to_dicts()
    assert span["name"] == "GC"
    assert span["step"] == 1
    assert 0.5 * times["collected_ns"] < span["dur_ns"] <= times["collected_ns"]


def test_nothing_is_left_in_the_program_or_a_forked_child(tmp_path: Path) -> None:
    times = record(tmp_path, "[stepscope.ProfilerActivity.CPU]")
    assert times["after"]
    assert times["child"] == 0


def test_without_cpu_activity_collections_are_not_recorded(tmp_path: Path) -> None:
    record(tmp_path, "[stepscope.ProfilerActivity.NPU]")
    trace = stepscope.open(programs.only(programs.recordings(tmp_path / "recording")), cache=False)
    assert trace.spans.filter(category="gc").collect().is_empty()
