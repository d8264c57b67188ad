"""Python's stacks: sampled, and call by call."""

import cProfile
import os
import pstats
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import stepscope
from stepscope.model import captures
from stepscope.model.trace import Trace
from stepscope.process import clock
from stepscope.readers.capture.stacks import load_frames
from stepscope.recording.collectors import stacks
from stepscope.recording.collectors.options import Options

SOURCE = Path(stepscope.__file__).parent.parent
FILE = Path(__file__).name


def recorded(folder: Path, body: Callable[[], Any], header: dict[str, Any] | None = None, **options: Any) -> Trace:
    capture = captures.Capture(folder / "job.capture", {"rank": 0, "pid": 1, "program": "job"} | (header or {}))
    collector = stacks.Collector(Options(with_stack=True, **options))
    collector.start(capture)
    try:
        body()
        collector.step(1)
    finally:
        collector.stop()
        capture.finish()
    return stepscope.open(capture.folder, cache=False)


def frames(trace: Trace, name: str | None = None) -> pl.DataFrame:
    """The frames of functions of this file, with the name alone."""
    rows = trace.spans.filter(pl.col("kind") == "python").with_columns(pl.col("name").cast(pl.String)).collect()
    own = rows.filter(pl.col("name").str.contains(rf"{FILE}\(\d+\): ")).with_columns(pl.col("name").str.extract(r": (.*)$"))
    return (own if name is None else own.filter(pl.col("name") == name)).sort("start_ns")


LOOKS: list[int] = []  # when the sampler was through with each of its looks, however late it came to them


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    LOOKS.clear()
    sweep = stacks._Sampler._sample

    def noted(self: stacks._Sampler) -> None:
        sweep(self)
        LOOKS.append(clock.now_ns())

    monkeypatch.setattr(stacks._Sampler, "_sample", noted)
    return LOOKS


def seen(count: int = 2) -> None:
    """Returns when the sampler has looked so often; of two looks the second began after this call."""
    enough = len(LOOKS) + count
    while len(LOOKS) < enough:
        time.sleep(0.001)


def outer() -> None:
    inner()
    seen(5)


def inner() -> None:
    seen(10)


def test_a_frame_lasts_as_long_as_it_was_seen_and_stands_in_its_caller(tmp_path: Path, looks: list[int]) -> None:
    at: list[int] = []

    def outer() -> None:
        inner()
        at.append(len(looks))
        seen(5)
        at.append(len(looks))

    trace = recorded(tmp_path, outer)
    ((start, whole, span),) = frames(trace, "outer").select("start_ns", "dur_ns", "span").rows()
    ((from_, part, parent),) = frames(trace, "inner").select("start_ns", "dur_ns", "parent").rows()
    assert parent == span
    # A look that began after another had ended lies between that end and its own.
    first_after, last = looks[at[0] + 1], looks[at[1] - 2]
    assert start <= from_ < from_ + part <= first_after <= last <= start + whole
    assert part >= looks[at[0] - 2] - looks[at[0] - 9]  # of ten looks, the first may have begun before the call


def test_names_are_written_as_pytorch_writes_them(tmp_path: Path, looks: list[int]) -> None:
    trace = recorded(tmp_path, outer)
    line = outer.__code__.co_firstlineno
    names = trace.spans.filter(pl.col("kind") == "python").collect()["name"].cast(pl.String).unique().to_list()
    assert any(name.endswith(f"{FILE}({line}): outer") for name in names)


def test_frames_of_modules_are_named_from_where_they_are_looked_for(tmp_path: Path, looks: list[int]) -> None:
    waiting = threading.Event()

    def wake() -> None:
        while not waiting._cond._waiters:  # type: ignore[attr-defined]
            time.sleep(0.001)
        seen()
        waiting.set()

    def body() -> None:
        threading.Thread(target=wake).start()
        waiting.wait()

    trace = recorded(tmp_path, body)
    names = trace.spans.filter(pl.col("kind") == "python").collect()["name"].cast(pl.String).to_list()
    assert any(name.startswith("threading.py(") and name.endswith("): wait") for name in names)


def test_every_thread_has_a_lane_of_its_own_and_ours_have_none(tmp_path: Path, looks: list[int]) -> None:
    def body() -> None:
        thread = threading.Thread(target=inner, name="loader")
        thread.start()
        thread.join()
        seen()

    others = {thread.name for thread in threading.enumerate()}  # those of servers of other tests
    trace = recorded(tmp_path, body)
    tracks = trace.tracks.filter(pl.col("kind") == "thread").collect()
    assert "loader" in tracks["label"].to_list()
    assert not [label for label in tracks["label"] if label.startswith("stepscope") and label not in others]
    track = tracks.filter(pl.col("label") == "loader")["track"].item()
    ((own, end),) = frames(trace, "inner").select("track", pl.col("start_ns") + pl.col("dur_ns")).rows()
    ((other, whole),) = frames(trace, "body").select("track", pl.col("start_ns") + pl.col("dur_ns")).rows()
    assert own == track != other
    assert end < whole  # looked for after it had ended, and while the recording went on


def test_nothing_of_stepscope_is_recorded(tmp_path: Path, looks: list[int]) -> None:
    from stepscope import record_function

    @record_function("named")
    def marked() -> None:
        if hz:
            seen()

    for hz in (100, 0):
        trace = recorded(tmp_path / str(hz), marked, stack_hz=hz)
        names = trace.spans.filter(pl.col("kind") == "python").collect()["name"].cast(pl.String).to_list()
        assert any("marked" in name for name in names)
        assert not [name for name in names if "stepscope/" in name]


def test_that_times_have_the_resolution_of_the_samples_is_said(tmp_path: Path) -> None:
    trace = recorded(tmp_path, calls, stack_hz=50)
    assert (
        "Python's stacks are samples, 50 a second: times of Python functions are exact to 20 ms only"
        in trace.problems.collect()["what"].to_list()
    )


def test_a_framework_that_records_stacks_itself_is_left_to_it(tmp_path: Path) -> None:
    capture = captures.Capture(tmp_path / "job.capture", {"rank": 0, "base": "torch"})
    collector = stacks.Collector(Options(with_stack=True))
    collector.start(capture)
    assert not ours()
    collector.stop()
    assert capture.header["notices"] == []


def test_sampling_ends_where_a_framework_that_records_stacks_itself_begins(tmp_path: Path) -> None:
    capture = captures.Capture(tmp_path / "job.capture", {"rank": 0})
    collector = stacks.Collector(Options(with_stack=True))
    collector.start(capture)
    capture.header["base"] = "torch"
    thread = collector._recorder._thread  # type: ignore[union-attr]
    thread.join(300)
    assert not thread.is_alive()
    collector.stop()
    assert "up to where torch was imported" in capture.header["notices"][1]["what"]


def ours() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "stepscope stacks"]


def sleeping(seconds: float) -> None:
    time.sleep(seconds)


def calls() -> int:
    return sum(leaf(number) for number in range(50)) + recursive(6)


def leaf(number: int) -> int:
    return abs(number)


def recursive(depth: int) -> int:
    return recursive(depth - 1) + 1 if depth else 0


def test_exact_calls_are_those_that_cprofile_counts(tmp_path: Path) -> None:
    profile = cProfile.Profile()
    profile.runcall(calls)
    counted = {key[2]: value[1] for key, value in pstats.Stats(profile).stats.items() if key[0] == __file__}  # type: ignore[attr-defined]
    found = frames(recorded(tmp_path, calls, stack_hz=0))
    ours = dict(found.filter(pl.col("name").is_in(list(counted))).group_by("name").len().iter_rows())
    assert ours == counted
    assert counted["leaf"] == 50
    assert counted["recursive"] == 7


def test_exact_frames_nest_as_they_were_called(tmp_path: Path) -> None:
    found = frames(recorded(tmp_path, calls, stack_hz=0))
    chain = found.filter(pl.col("name") == "recursive")
    assert chain["parent"].to_list()[1:] == chain["span"].to_list()[:-1]
    callers = found.filter(pl.col("name") == "leaf").join(found, left_on="parent", right_on="span")["name_right"].unique().to_list()
    assert callers == ["<genexpr>"]
    began = clock.now_ns()
    length = frames(recorded(tmp_path / "again", lambda: sleeping(0.3), stack_hz=0), "sleeping")["dur_ns"].item()
    assert 0.3e9 <= length < clock.now_ns() - began


def test_exact_frames_that_raise_end_where_they_are_left(tmp_path: Path) -> None:
    def fails() -> None:
        raise ValueError

    def body() -> None:
        for _ in range(3):
            with pytest.raises(ValueError):
                fails()
        sleeping(0.05)

    found = frames(recorded(tmp_path, body, stack_hz=0))
    failed = found.filter(pl.col("name").str.ends_with("fails"))
    after = found.filter(pl.col("name") == "sleeping")
    assert failed.height == 3
    assert ((failed["start_ns"] + failed["dur_ns"]) < after["start_ns"].item()).all()
    assert after["depth"].item() == failed["depth"].min()


def test_what_ran_before_and_goes_on_after_is_there_as_long_as_it_was_recorded(tmp_path: Path) -> None:
    trace = recorded(tmp_path, calls, stack_hz=0)
    name = "test_what_ran_before_and_goes_on_after_is_there_as_long_as_it_was_recorded"
    (span,) = frames(trace, name)["span"].to_list()
    ancestors = set()
    rows = {row["span"]: row["parent"] for row in trace.spans.collect().iter_rows(named=True)}
    here = frames(trace, "calls")["span"].item()
    while (here := rows[here]) is not None:
        ancestors.add(here)
    assert span in ancestors


@pytest.mark.skipif(hasattr(sys, "monitoring"), reason="sys.monitoring has room for several")
def test_another_profiler_of_calls_is_left_alone(tmp_path: Path) -> None:
    profile = cProfile.Profile()
    profile.enable()
    try:
        with pytest.raises(RuntimeError, match="another profiler"):
            recorded(tmp_path, calls, stack_hz=0)
        assert sys.getprofile() is profile  # type: ignore[comparison-overlap]
    finally:
        profile.disable()


def test_no_profiler_is_left_behind(tmp_path: Path) -> None:
    before = sys.getprofile()
    recorded(tmp_path, calls, stack_hz=0)
    assert sys.getprofile() is before and not ours()
    if hasattr(sys, "monitoring"):
        assert [sys.monitoring.get_tool(number) for number in (2, 3, 4)].count("stepscope") == 0


def test_a_forked_child_records_nothing(tmp_path: Path) -> None:
    script = """
        import os, sys
        from pathlib import Path
        from stepscope.model import captures
        from stepscope.recording.collectors import stacks
        from stepscope.recording.collectors.options import Options
        collector = stacks.Collector(Options(with_stack=True, stack_hz=0))
        collector.start(captures.Capture(Path(sys.argv[1]), {"rank": 0}))
        events = collector._recorder._events
        def call(): pass
        child = os.fork()
        if child == 0:
            events.clear()
            for _ in range(100): call()
            os._exit(len(events))
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        collector.stop()
    """
    (tmp_path / "job.py").write_text(textwrap.dedent(script))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "job.py"), str(tmp_path / "job.capture")],
        check=True,
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )
    assert done.stdout == "0\n"


def test_recording_needs_numpy_alone(tmp_path: Path) -> None:
    script = """
        import sys
        for name in ("polars", "msgspec", "rich", "psutil"): sys.modules[name] = None
        from pathlib import Path
        from stepscope.model import captures
        from stepscope.recording.collectors import host, stacks
        from stepscope.recording.collectors.options import Options
        capture = captures.Capture(Path(sys.argv[1]), {"rank": 0})
        running = [kind.Collector(Options(with_stack=True)) for kind in (host, stacks)]
        for one in running: one.start(capture)
        for one in running: one.stop()
        capture.finish()
    """
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / "job.capture")],
        check=True,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
    )
    trace = stepscope.open(tmp_path / "job.capture", cache=False)
    assert trace.spans.collect().height > 0
    assert trace.counters.collect().height > 0


@pytest.mark.parametrize("hz", [0, 1000])
def test_recording_ends_at_the_bound_and_says_so(tmp_path: Path, hz: int) -> None:
    def body() -> None:
        until = time.monotonic() + 300
        while not collected.full and time.monotonic() < until:
            calls()

    capture = captures.Capture(tmp_path / "job.capture", {"rank": 0})
    collector = stacks.Collector(Options(with_stack=True, stack_hz=hz, max_events=50))
    collector.start(capture)
    collected: Any = collector._recorder
    body()
    collector.step(7)
    collector.stop()
    assert collector.full
    assert "recording ended early, at step 7: max_events=50 was reached" in [output["what"] for output in capture.header["notices"]]


@pytest.mark.parametrize("hz", [0, 200])
def test_a_killed_job_keeps_what_was_recorded(tmp_path: Path, hz: int) -> None:
    script = f"""
        import sys, time
        from pathlib import Path
        from stepscope.model import captures
        from stepscope.recording.collectors import stacks
        from stepscope.recording.collectors.options import Options
        stacks._FLUSH_S = 0.05
        capture = captures.Capture(Path(sys.argv[1]), {{"rank": 0}})
        stacks.Collector(Options(with_stack=True, stack_hz={hz})).start(capture)
        def busy():
            sum(range(100000))
        def train():
            while len(list(capture.folder.glob("stack_[sc]*.npz"))) < 4: busy()
            print(flush=True)
            time.sleep(600)
        train()
    """
    (tmp_path / "job.py").write_text(textwrap.dedent(script))
    folder = tmp_path / "job.capture"
    environment = os.environ | {"PYTHONPATH": str(SOURCE)}
    with subprocess.Popen([sys.executable, str(tmp_path / "job.py"), str(folder)], stdout=subprocess.PIPE, env=environment) as job:
        assert job.stdout
        job.stdout.readline()
        job.send_signal(signal.SIGKILL)
    names = stepscope.open(folder, cache=False).spans.collect()["name"].cast(pl.String).to_list()
    assert any(name.endswith("): train") for name in names)


def test_a_capture_without_stacks_has_none(tmp_path: Path) -> None:
    captures.Capture(tmp_path / "job.capture", {"rank": 0}).finish()
    assert load_frames(tmp_path / "job.capture").is_empty()


@pytest.mark.parametrize("left", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("table", ["stack_frames", "stack_samples", "stack_calls", "counters"])
def test_a_damaged_column_file_costs_its_rows_and_is_named(tmp_path: Path, table: str, left: float) -> None:
    recorded(tmp_path, calls, stack_hz=0 if table == "stack_calls" else 100)
    folder = tmp_path / "job.capture"
    if table == "counters":
        file = folder / "counters.000000.npz"
        file.write_bytes(next(folder.glob("stack_*.npz")).read_bytes())
    else:
        file = next(folder.glob(f"{table}.*.npz"))
    file.write_bytes(file.read_bytes()[: int(left * file.stat().st_size)])
    trace = stepscope.open(folder, cache=False)
    rows = trace.problems.filter(pl.col("lost") > 0).select("where", "what").collect().rows()
    assert [name for name, what in rows if "the column file is damaged" in what] == [file.name]
