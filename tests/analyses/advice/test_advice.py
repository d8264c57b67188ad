"""The order of findings, what they gain together, and what is reported where nothing is found or data is missing."""

import ast
import functools
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import kineto
import stepscope
import tiny
from stepscope.analyses.advice.advice import main_finding
from stepscope.analyses.advice.engine import findings, replays, results
from stepscope.analyses.advice.engine.findings import Evidence, Finding, scale_host, scale_work
from stepscope.analyses.advice.engine.needs import NEEDS
from stepscope.analyses.advice.engine.run import Run
from stepscope.analyses.advice.rules import Rule, rules
from stepscope.analyses.shared.replays.nodes import Graph
from stepscope.analyses.shared.replays.replay import Replay, replay
from stepscope.model.intervals import Ints
from stepscope.model.strings.messages import LANGUAGES, catalog, render
from stepscope.model.trace import Trace

ROOT = Path(__file__).parents[3]
SAMPLES = ROOT / "tests" / "samples"
TRACKS = "track kind label device\n0 thread main -\n7 stream s 0"


def two_problems() -> Trace:
    """The host needs 80 us to launch a kernel that runs for 60 us; both begin with the step of 100 us."""
    return tiny.trace(
        spans="""
            track  kind    name    start_ns  dur_ns  span  flow_in
            0      op      first   0         8000    1     -
            0      api     launch  1000      1000    2     -
            0      op      slow    10000     80000   3     -
            0      op      last    90000     10000   4     -
            7      kernel  k       4000      60000   5     2
        """,
        tracks=TRACKS,
        steps="step start_ns end_ns\n0 0 100000",
    )


def rule(name: str, find: object) -> Rule:
    return Rule(name, "device", "Symptom.", (), (), "", {}, (), False, False, False, find)  # type: ignore[arg-type]


def advised(trace: Trace, monkeypatch: pytest.MonkeyPatch, *given: Rule) -> results.Advice:
    monkeypatch.setattr(results, "rules", lambda: given)
    return results.advice_of(trace)


def slow_host(run: Run):  # type: ignore[no-untyped-def]
    yield Finding({}, Evidence("operators"), (scale_host(run.operators.filter(name="slow")),), "slow")


def slow_kernel(run: Run):  # type: ignore[no-untyped-def]
    yield Finding({}, Evidence("kernels"), (scale_work(run.work, 0.5),), "k")


def test_a_finding_that_another_one_hides_gains_nothing_now_and_something_later(monkeypatch: pytest.MonkeyPatch) -> None:
    # The host: 100 us, and 20 us without `slow`. The device: 4 to 64 us, and to 34 us with half of the kernel.
    advice = advised(two_problems(), monkeypatch, rule("kernel_rule", slow_kernel), rule("host_rule", slow_host))
    first, second = advice.findings
    assert (first.rule.name, first.gain_ns, first.severity) == ("host_rule", 36_000, "high")  # to 64 us, when the kernel ends
    assert (second.rule.name, second.gain_ns, second.later_ns, second.after) == ("kernel_rule", 0, 30_000, "host_rule")
    assert (second.severity, second.device_ns) == ("low", 30_000)
    assert [(fix.before_ns, fix.after_ns) for fix in advice.waterfall] == [(100_000, 64_000), (64_000, 34_000)]


def test_the_main_finding_is_the_first_row_of_the_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    def worded(run: Run, find: Callable[[Run], Iterator[Finding]]) -> Iterator[Finding]:
        for finding in find(run):
            yield finding._replace(code="advice-healthy", parameters={"checked": 2, "unchecked": 0, "step": 1})

    given = [rule(f"{find.__name__}_rule", functools.partial(worded, find=find)) for find in (slow_kernel, slow_host)]
    monkeypatch.setattr(results, "rules", lambda: given)
    main = main_finding(two_problems())
    assert main.select("position", "status", "rule", "gain_ns").rows() == [(0, "finding", "slow_host_rule", 36_000)]
    assert_frame_equal(main, two_problems().analyse("advice").head(1))


def test_a_run_without_findings_has_no_main_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "rules", list)
    assert two_problems().analyse("advice")["status"].to_list() == ["healthy"]
    assert main_finding(two_problems()).is_empty()


def test_the_same_changes_are_replayed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    replayed: list[Graph] = []

    def counted(graph: Graph, *durations: Ints) -> Replay:
        replayed.append(graph)
        return replay(graph, *durations)

    monkeypatch.setattr(replays, "replay", counted)
    advised(two_problems(), monkeypatch, rule("kernel_rule", slow_kernel), rule("host_rule", slow_host))
    assert len(replayed) == 4  # without a change, each change, and both: the waterfall begins with a change that is known


def test_gains_that_overlap_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    advice = advised(two_problems(), monkeypatch, rule("a", slow_host), rule("b", slow_host))
    assert [found.gain_ns for found in advice.findings] == [36_000, 36_000]
    assert [fix.before_ns - fix.after_ns for fix in advice.waterfall] == [36_000, 0]


def test_a_gain_below_one_percent_of_the_step_is_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def tiny_gain(run: Run):  # type: ignore[no-untyped-def]
        yield Finding({}, Evidence("operators"), (scale_host(run.operators.filter(name="last"), 0.95),), "last")  # 0.5 us of 100

    advice = advised(two_problems(), monkeypatch, rule("a", tiny_gain))
    assert advice.findings == []


@pytest.mark.parametrize(
    ("share", "word"), [(0.5, "high"), (0.1, "high"), (0.099, "medium"), (0.03, "medium"), (0.01, "low"), (0.0099, None)]
)
def test_severity_is_the_recoverable_share_of_the_step(share: float, word: str | None) -> None:
    assert results.severity(share) == word


def test_ranks_with_the_same_finding_are_one_row_with_the_changes_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    one = two_problems()
    both = Trace(
        {name: pl.concat([table, one.as_rank(1).table(name)]) for name, table in one.tables.items()},
        one.with_meta(ranks=[0, 1]).meta,
    )
    advice = advised(both, monkeypatch, rule("a", slow_host))
    (found,) = advice.findings
    assert (found.ranks, found.gain_ns, len(found.finding.changes)) == ([0, 1], 36_000, 2)


def test_a_run_without_findings_has_one_row_that_states_what_was_checked() -> None:
    trace = tiny.trace(
        spans="track kind name start_ns dur_ns\n0 op a 0 100000\n0 op a 100000 100000",
        tracks="track kind label\n0 thread main",
        steps="step start_ns end_ns\n0 0 100000\n1 100000 200000",
    )
    table = trace.advice()
    (row,) = table.filter(pl.col("status") == "healthy").to_dicts()
    parameters = json.loads(row["parameters"])
    assert parameters["checked"] > 0 and parameters["unchecked"] == table.filter(status="not checked").height
    assert row["title"].startswith(f"{parameters['checked']} rules checked, no finding")


def test_a_recording_without_steps_has_no_findings_and_no_healthy_row() -> None:
    trace = tiny.trace(spans="track kind name start_ns dur_ns\n0 op a 0 100", tracks=TRACKS)
    assert set(trace.advice()["status"]) == {"not checked"}
    assert trace.waterfall().height == 0


def test_every_rule_names_known_needs_and_has_messages_in_every_language() -> None:
    codes = {code for code in catalog("en") if code.startswith("advice-")}
    general = {"advice-healthy", "advice-not-checked", "advice-next", "advice-after", "advice-total"}
    own: set[str] = set()
    for each in rules():
        assert {*each.needs, *each.applies} <= NEEDS.keys(), each.name
        assert each.symptom.splitlines()[0].endswith("."), each.name
        assert each.link.startswith("https://"), each.name
        mine = {code for code in codes if re.fullmatch(rf"advice-{each.name}(-[a-z-]+)?", code)}
        assert mine, each.name
        own |= mine
    assert codes - general == own
    for language in LANGUAGES:
        assert codes <= catalog(language).keys()


def test_every_message_code_in_a_rule_is_in_the_catalog() -> None:
    for file in (ROOT / "src/stepscope/analyses/advice/rules").glob("*/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.fullmatch(r"advice(-[\w-]+)+[a-z]", node.value):
                assert node.value in catalog("en"), (file, node.value)


@pytest.mark.parametrize(
    "path", ["capture/stepscope-0.1.0/torch.capture", "chrome/torch-2.11", "xplane/jax-0.11.2-gpu", "run/stepscope-0.1.0/resnet50_h200"]
)
def test_every_row_of_a_sample_renders_in_every_language(path: str) -> None:
    table = stepscope.open(SAMPLES / path).advice()
    assert table.height
    for row in table.iter_rows(named=True):
        parameters = json.loads(row["parameters"])
        assert render(row["code"], parameters) == row["title"]
        chinese = render(row["code"], parameters, "zh")
        assert re.search("[\u4e00-\u9fff]", chinese) and not re.search(r"[{}\[\]]", chinese)
        if row["fix_code"]:
            assert not re.search(r"[{}\[\]]", render(row["fix_code"], parameters, "zh"))


@pytest.mark.parametrize("file", [file for file in kineto.FILES if file.startswith("torch_h200")])
def test_the_launch_problem_comes_first_in_eager_trainings_on_a_fast_gpu(shared: Path, file: str) -> None:
    """GPT-2 and ResNet-50 on an H200: their devices are idle 33 % and 73 to 77 % of the step, because of launches."""
    table = kineto.opened(shared / file).advice()
    first = table.row(0, named=True)
    assert (first["rule"], first["severity"], first["position"]) == ("launch_bound", "high", 0)
    # No fix can gain more than what the device does not work.
    busy = kineto.opened(shared / file).overview()["busy_share"].item()
    assert first["gain_share"] <= 1 - busy + 0.02


def test_the_changes_of_a_finding_have_factors_that_shorten() -> None:
    frame = tiny.trace(spans="track kind name start_ns dur_ns\n0 op a 0 100").spans.select("rank", "span").collect()
    assert findings.scale_work(frame, 2.0).rows.height == 0
    assert findings.scale_work(frame, 0.5).rows["factor"].to_list() == [0.5]


def test_a_symptom_keeps_the_gain_that_its_causes_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    def symptom(run: Run):  # type: ignore[no-untyped-def]
        yield Finding({}, Evidence("operators"), (scale_host(run.steps),), "all", generic=True)

    # Without `slow`, the kernel ends last, at 64 us; without the program it starts 1 us earlier, when the step begins.
    alone = advised(two_problems(), monkeypatch, rule("a", symptom))
    assert [(found.rule.name, found.gain_ns) for found in alone.findings] == [("a", 37_000)]
    advice = advised(two_problems().with_meta(source="again"), monkeypatch, rule("a", symptom), rule("b", slow_host))
    assert [(found.rule.name, found.gain_ns) for found in advice.findings] == [("b", 36_000), ("a", 1_000)]


def test_notices_about_the_recording_follow_statements_about_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    def state(run: Run):  # type: ignore[no-untyped-def]
        yield Finding({}, Evidence("operators"), statement=True)

    notice = rule("a", state)._replace(notice=True)
    advice = advised(two_problems(), monkeypatch, notice, rule("b", state))
    assert [statement.rule.name for statement in advice.statements] == ["b", "a"]
