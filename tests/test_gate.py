import json
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import polars as pl
import pytest

import stepscope
from stepscope.cli import main
from stepscope.comparison import gate
from stepscope.comparison.compare import Comparison
from stepscope.errors import UsageError
from stepscope.io import store
from stepscope.model.trace import Meta, Trace


def trace(step_ns: int, *, spread: float = 0.0, seed: int = 0, peak: int | None = None, steps: int = 40, name: str = "aten::mm") -> Trace:
    """Steps of one kernel, each followed by idle time of a tenth of the step."""
    times = (np.random.default_rng(seed).normal(1, spread, steps) * step_ns).round().astype(np.int64)
    ends = np.cumsum(times)
    number = np.arange(steps)
    spans = pl.DataFrame(
        {"span": number, "rank": 0, "track": 7, "kind": "kernel", "name": name, "start_ns": ends - times, "dur_ns": times * 9 // 10}
    )
    spans = spans.with_columns(pl.col("kind").cast(stepscope.model.schema.Kind), step=pl.Series(number), self_ns="dur_ns", depth=0)
    tracks = pl.DataFrame({"rank": [0], "track": [7], "device": [0], "kind": pl.Series(["stream"], dtype=stepscope.model.schema.TrackKind)})
    tables = {
        "spans": spans,
        "tracks": tracks,
        "steps": pl.DataFrame({"rank": 0, "step": number, "start_ns": ends - times, "end_ns": ends}),
    }
    if peak is not None:
        tables["counters"] = pl.DataFrame(
            {"rank": [0], "name": ["allocated gpu 0"], "at_ns": [5], "value": [float(peak)], "unit": ["bytes"], "series": ["allocated"]}
            | {"owner": ["gpu"], "number": [0]}
        )
    return Trace(tables, Meta(source="made", ranks=[0]))


def checked(a: Trace | list[Trace], b: Trace | list[Trace], text: str, flag: str = "--max") -> gate.Check:
    comparison: Comparison = stepscope.compare(a, b)
    limit = gate.slowdown_limit(text) if "=" not in text else gate.parse_limit(text, [text.partition("=")[0]], flag)
    return gate.check(comparison, limit)


@pytest.mark.parametrize(
    ("after", "limit", "code"),
    [
        (1_000_000, "5%", gate.PASS),
        (1_200_000, "5%", gate.SLOWER),
        (800_000, "5%", gate.PASS),
        (1_040_000, "5%", gate.PASS),  # 4 % +- 2.8 %: slower, but below the limit
        (1_060_000, "5%", gate.SLOWER),
        (1_000_000, "1%", gate.CANNOT_TELL),  # two runs may differ by 2.8 %
        (1_200_000, "1%", gate.SLOWER),  # and yet 20 % are more than 1 %
    ],
)
def test_a_step_passes_is_slower_or_cannot_be_judged(after: int, limit: str, code: int) -> None:
    assert checked(trace(1_000_000), trace(after), limit).code == code


def test_noise_larger_than_the_limit_cannot_be_judged() -> None:
    noisy = checked(trace(1_000_000, spread=0.4, seed=1), trace(1_040_000, spread=0.4, seed=2), "5%")
    assert (noisy.code, noisy.reason) == (gate.CANNOT_TELL, "noise")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("peak_memory_bytes=+5%", gate.SLOWER),  # 100 MB to 110 MB
        ("peak_memory_bytes=+10%", gate.PASS),
        ("peak_memory_bytes=+5MB", gate.SLOWER),
        ("peak_memory_bytes=+10MB", gate.PASS),
        ("peak_memory_bytes=105MB", gate.SLOWER),
        ("peak_memory_bytes=1GiB", gate.PASS),
        ("idle_share=+2pp", gate.PASS),
        ("idle_share=5%", gate.SLOWER),  # a tenth of the step is idle
        ("step_ns=1.1ms", gate.PASS),
        ("step_ns=900us", gate.SLOWER),
        ("step_ns=+50us", gate.PASS),
        ("utilization=+1pp", gate.CANNOT_TELL),  # not recorded
    ],
)
def test_every_figure_of_the_overview_can_be_limited(text: str, code: int) -> None:
    assert checked(trace(1_000_000, peak=100_000_000), trace(1_000_000, peak=110_000_000), text).code == code


def test_a_minimum_is_kept_from_below() -> None:
    a, b = trace(1_000_000), trace(1_000_000)
    assert checked(a, b, "busy_share=80%", "--min").code == gate.PASS
    assert checked(a, b, "busy_share=95%", "--min").code == gate.SLOWER
    assert checked(a, b, "busy_share=-1pp", "--min").code == gate.PASS


def test_a_figure_that_varies_between_runs_more_than_its_limit_cannot_be_judged() -> None:
    before = [trace(1_000_000, peak=peak) for peak in (90_000_000, 100_000_000, 110_000_000)]
    after = [trace(1_000_000, peak=peak) for peak in (92_000_000, 101_000_000, 112_000_000)]
    assert checked(before, after, "peak_memory_bytes=+2%").code == gate.CANNOT_TELL
    assert checked(before, after, "peak_memory_bytes=+60%").code == gate.PASS


def test_memory_that_is_recorded_on_one_side_only_is_not_recorded() -> None:
    found = checked(trace(1_000_000), trace(1_000_000, peak=5), "peak_memory_bytes=+5%")
    assert (found.code, found.reason, found.a) == (gate.CANNOT_TELL, "not recorded", None)
    assert gate.text(found) == "peak_memory_bytes: not recorded in A; the limit is at most +5%"


@pytest.mark.parametrize(
    "text",
    [
        "peak_memory_bytes",
        "peak_memory=+5%",
        "idle_share=+2%",
        "step_ns=25",
        "peak_memory_bytes=5%",
        "step_ns=x",
        "idle_share=5",
        "p90_ns=3MB",
    ],
)
def test_a_limit_that_means_nothing_is_refused_with_what_is_expected(text: str) -> None:
    known = ["peak_memory_bytes", "idle_share", "step_ns", "p90_ns"]
    with pytest.raises(UsageError, match=r"expected|no figure|pp for"):
        gate.parse_limit(text, known, "--max")


@pytest.mark.parametrize("text", ["5", "x%", "-5%", "", "1e3%"])
def test_a_slowdown_is_a_percentage(text: str) -> None:
    with pytest.raises(UsageError, match="expected a percentage"):
        gate.slowdown_limit(text)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, step, peak in (("main", 1_000_000, 100), ("same", 1_000_000, 100), ("slow", 1_200_000, 200)):
        store.write(trace(step, peak=peak), folder / name)
    for number in range(3):
        store.write(trace(1_000_000, spread=0.01, seed=number), folder / f"base{number}")
        store.write(trace(1_300_000, spread=0.01, seed=number), folder / f"new{number}")
    store.write(trace(1_000_000, name="evil <\x00&\x1b]]>"), folder / "odd")
    return folder


@pytest.mark.parametrize(("run", "code"), [("same", 0), ("slow", 3)])
def test_the_exit_code_says_the_result(runs: Path, run: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "--baseline", str(runs / "main"), str(runs / run), "--max-slowdown", "5%"]) == code
    assert ("PASS" if code == 0 else "FAIL") in capsys.readouterr().out
    assert main(["compare", str(runs / "main"), str(runs / run), "--fail-if-slower", "5%"]) == code


def test_the_exit_code_of_noise_larger_than_the_limit_is_4(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "--baseline", str(runs / "main"), str(runs / "same"), "--max-slowdown", "1%"]) == 4
    assert "CANNOT TELL" in capsys.readouterr().out
    # A limit that is exceeded counts more.
    assert main(["gate", str(runs / "main"), str(runs / "slow"), "--max", "utilization=+1pp", "--max", "step_ns=+5%"]) == 3


def test_sets_of_runs_are_separated_by_two_dashes_or_by_repeating_the_flag(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = ([str(runs / f"{name}{number}") for number in range(3)] for name in ("base", "new"))
    repeated = [word for path in base for word in ("--baseline", path)]
    for words in (["--baseline", *base, "--", *new], [*repeated, *new]):
        assert main(["gate", "--format", "json", *words]) == 3
        summary = json.loads(capsys.readouterr().out)["summary"]
        assert (summary["a_runs"], summary["b_runs"]) == (3, 3)
    assert main(["gate", "--format", "json", "--baseline", str(runs / "base*"), str(runs / "new*")]) == 3
    assert json.loads(capsys.readouterr().out)["summary"]["a_runs"] == 3


def test_junit_has_a_test_per_limit_with_failures_and_errors_counted(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "gate.xml"
    words = ["--max", "step_ns=+5%", "--max", "utilization=+1pp", "--max", "peak_memory_bytes=+500%", "-o", str(file)]
    assert main(["gate", "--baseline", str(runs / "main"), str(runs / "slow"), *words]) == 3
    root = ElementTree.parse(file).getroot()
    suite = root.find("testsuite")
    assert suite is not None
    assert [suite.get(name) for name in ("tests", "failures", "errors")] == ["3", "1", "1"]
    cases = suite.findall("testcase")
    assert [[child.tag for child in case] for case in cases] == [["failure"], ["error"], ["system-out"]]
    assert all(case.get("name") and case.get("classname") for case in cases)
    message = cases[0][0].get("message") or ""
    assert message.startswith("step_ns: 1.00 ms to 1.20 ms, +20.0 %")


def test_names_that_xml_and_terminals_cannot_hold_are_replaced(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gate.xml"
    assert main(["gate", "--baseline", str(runs / "slow"), str(runs / "odd"), "--max", "step_ns=1us", "-o", str(file)]) == 3
    ElementTree.parse(file)
    assert main(["compare", str(runs / "main"), str(runs / "odd"), "--format", "markdown"]) == 0
    assert "\x1b" not in capsys.readouterr().out


def test_markdown_has_one_table_with_the_result_of_each_limit(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gate", "--baseline", str(runs / "main"), str(runs / "slow"), "--format", "markdown"]) == 3
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("Performance gate: fail")
    assert "| `step_ns` | 1.00 ms | 1.20 ms | max +5% | fail |" in lines


def test_the_terminal_shows_one_screen_and_json_the_same_figures(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", str(runs / "main"), str(runs / "slow")]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert "B is 20.0 % slower per step: 1.20 ms against 1.00 ms (95 % interval 16.7 % to 23.4 %)." in text
    assert len(text.splitlines()) <= 50
    assert main([*words, "--format", "json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert sum(row["change_ns"] for row in values["waterfall"]) == values["change_ns"] == 200_000
    assert main([*words, "--format", "csv", "--table", "waterfall"]) == 0
    assert capsys.readouterr().out.startswith("position,part,operator")


def test_more_than_two_paths_are_each_compared_with_the_first(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *(str(runs / name) for name in ("main", "same", "slow")), "--format", "json"]) == 0
    assert [round(values["change_share"], 3) for values in json.loads(capsys.readouterr().out)] == [0.0, 0.2]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["compare", "{main}"], 2, "missing PATH"),
        (["gate", "--baseline", "{main}"], 2, "missing PATH"),
        (["compare", "{main}", "{damaged}"], 1, "damaged.json"),
        (["compare", "{main}", "{missing}"], 1, "missing"),
        (["gate", "{main}", "{same}", "--max", "idle=+2pp"], 2, "no figure 'idle'"),
        (["gate", "{main}", "{same}", "--max-slowdown", "fast"], 2, "expected a percentage"),
        (["gate", "{main}", "{same}", "--format", "xml"], 2, "junit"),
    ],
)
def test_wrong_use_and_damaged_files_are_one_line(
    runs: Path, tmp_path: Path, words: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "damaged.json").write_text('{"traceEvents": [{"ph": "X", "name"')
    places = {"main": runs / "main", "same": runs / "same", "damaged": tmp_path / "damaged.json", "missing": tmp_path / "missing"}
    assert main([word.format(**places) for word in words]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_run_without_steps_cannot_be_judged(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = trace(1_000_000)
    store.write(empty.with_tables(steps=empty.steps.head(0)), tmp_path / "empty")
    assert main(["gate", "--baseline", str(runs / "main"), str(tmp_path / "empty")]) == 4
    assert "step_ns: no steps in B" in capsys.readouterr().out
