"""Steps chosen after the recording: which ranges, functions, operators and kernels make which steps, and what belongs to them."""

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from programs import needs
from stepscope.cli import main
from stepscope.errors import UsageError
from stepscope.io import store
from stepscope.model.steps.step_choice import markers
from stepscope.model.trace import Trace

SAMPLES = Path(__file__).parent / "samples"
TRACKS = """
track kind   device label
0     thread -      main
1     thread -      worker
2     stream 0      stream
"""
# Two calls of train_step with an operator each, whose kernels run late; a third operator follows, without a link to its kernel.
SPANS = """
span track kind       name       start_ns dur_ns flow_in op
0    0     annotation train_step 10       30     -       -
1    0     op         aten::mm   12       6      -       -
2    0     api        launch     14       2      -       -
3    2     kernel     gemm       45       10     2       1
4    0     annotation train_step 50       30     -       -
5    0     op         aten::mm   52       6      -       -
6    0     api        launch     54       2      -       -
7    2     kernel     gemm       85       10     6       5
8    0     op         aten::add  96       2      -       -
9    2     kernel     add        97       3      -       -
"""


@pytest.fixture
def trace() -> Trace:
    return tiny.trace(spans=SPANS, tracks=TRACKS)


def step_of(trace: Trace) -> dict[int, int | None]:
    return dict(trace.spans.select("span", "step").collect().iter_rows())


def test_each_range_is_a_step_and_a_kernel_belongs_to_the_step_that_launched_it(trace: Trace) -> None:
    given = trace.with_steps("annotation:train_step")
    tiny.assert_rows(given.steps.collect(), "rank step start_ns end_ns how\n0 0 10 40 given\n0 1 50 80 given")
    # The kernel at 45 runs between the two ranges; the one at 97 has no launch, and nothing is at its time.
    assert step_of(given) == {0: 0, 1: 0, 2: 0, 3: 0, 4: 1, 5: 1, 6: 1, 7: 1, 8: None, 9: None}


def test_an_operator_begins_a_step_that_lasts_until_the_next_and_the_last_ends_with_the_last_span(trace: Trace) -> None:
    given = trace.with_steps("operator:aten::mm")
    tiny.assert_rows(given.steps.collect(), "step start_ns end_ns how\n0 12 52 given\n1 52 100 given")
    assert step_of(given) == {0: None, 1: 0, 2: 0, 3: 0, 4: 0, 5: 1, 6: 1, 7: 1, 8: 1, 9: 1}


def test_a_kernel_begins_a_step_where_its_operator_does_and_belongs_to_it(trace: Trace) -> None:
    given = trace.with_steps("kernel:gemm")
    tiny.assert_rows(given.steps.collect(), "step start_ns end_ns\n0 12 52\n1 52 100")
    assert (step_of(given)[3], step_of(given)[7]) == (0, 1)
    # Without a launch, the kernel's own start is all there is.
    tiny.assert_rows(trace.with_steps("kernel:add").steps.collect(), "step start_ns end_ns\n0 97 100")


def test_a_name_alone_means_the_first_kind_that_has_it_and_a_whole_name_comes_before_a_pattern() -> None:
    trace = tiny.trace(
        spans="""
        span track kind       name  start_ns dur_ns
        0    0     op         work  0        5
        1    0     op         work  10       5
        2    0     python     work  20       5
        3    0     annotation work* 30       5
        """,
        tracks=TRACKS,
    )
    assert trace.with_steps("work").steps.collect()["start_ns"].to_list() == [20]  # the function
    assert trace.with_steps("work*").steps.collect()["start_ns"].to_list() == [30]  # a whole name
    assert trace.with_steps("operator:w*k").steps.collect()["start_ns"].to_list() == [0, 10]
    assert trace.with_steps("w?rk").steps.collect()["start_ns"].to_list() == [20]


def test_only_the_outermost_of_nested_ranges_is_a_step() -> None:
    trace = tiny.trace(
        spans="""
        span track kind   name start_ns dur_ns
        0    0     python fit  0        10
        1    0     python fit  2        3
        2    0     python fit  10       10
        """,
        tracks=TRACKS,
    )
    tiny.assert_rows(trace.with_steps("function:fit").steps.collect(), "step start_ns end_ns\n0 0 10\n1 10 20")


def test_of_threads_that_run_at_once_the_one_with_most_makes_the_steps_and_problems_says_so() -> None:
    trace = tiny.trace(
        spans="""
        span track kind   name  start_ns dur_ns
        0    0     python serve 0        10
        1    1     python serve 5        10
        2    1     python serve 16       10
        """,
        tracks=TRACKS,
    )
    given = trace.with_steps("serve")
    tiny.assert_rows(given.steps.collect(), "step start_ns end_ns\n0 5 15\n1 16 26")
    assert given.problems.collect()["what"].to_list() == [
        "`serve` runs on 2 threads at once: steps are taken from one of them, 1 others are ignored"
    ]


def test_numbers_are_the_annotations_own_or_count_from_0() -> None:
    trace = tiny.trace(
        spans="""
        span track kind       name    start_ns dur_ns
        0    0     annotation epoch#7 0        10
        1    0     annotation epoch#9 10       10
        2    0     op         conv2d  1        2
        """,
        tracks=TRACKS,
    )
    assert trace.with_steps("epoch#*").steps.collect()["step"].to_list() == [7, 9]
    assert trace.with_steps("conv2d").steps.collect()["step"].to_list() == [0]


def test_links_go_with_the_operator_that_they_are_of() -> None:
    trace = tiny.trace(
        steps="rank step start_ns end_ns how\n0 0 0 100 whole",
        spans="""
        span track kind          name     start_ns dur_ns step
        0    0     annotation    part     0        40     0
        1    0     annotation    part     50       40     0
        2    0     communication reduce   55       5      0
        3    0     communication gather   10       5      0
        4    0     communication gather   60       5      0
        """,
        tracks=TRACKS,
        links="rank step op bytes\n0 0 reduce 1\n0 0 gather 2\n0 0 other 3",
    )
    links = trace.with_steps("part").table("links").collect()
    # `gather` ran in both: which of them moved these bytes is not known.
    tiny.assert_rows(links, "step op bytes\n1 reduce 1\n- gather 2\n- other 3")


def test_a_rank_without_the_marker_has_no_steps_and_problems_says_so() -> None:
    trace = tiny.trace(
        spans="""
        span rank track kind       name start_ns dur_ns
        0    0    0     annotation loop 0        10
        0    1    0     annotation rest 0        10
        """
    )
    given = trace.with_steps("loop")
    tiny.assert_rows(given.steps.collect(), "rank step start_ns end_ns\n0 0 0 10")
    tiny.assert_rows(given.spans.collect(), "rank span step\n0 0 0\n1 0 -")
    tiny.assert_rows(given.problems.select("rank").collect(), "rank\n1")
    assert given.problems.collect()["what"][0] == "nothing on this rank is named 'annotation:loop', so it has no steps"


def test_what_matches_nothing_is_refused_with_the_nearest_names(trace: Trace) -> None:
    with pytest.raises(UsageError, match=r"^nothing in the trace is named 'train_stop'; nearest: 'annotation:train_step'"):
        trace.with_steps("train_stop")
    with pytest.raises(UsageError, match=r"^no kernel in the trace is named 'gem'; nearest: 'kernel:gemm'"):
        trace.with_steps("kernel:gem")
    with pytest.raises(UsageError, match=r"^no function in the trace is named 'train_step'; nearest: 'annotation:train_step'"):
        trace.with_steps("function:train_step")


def test_markers_are_what_repeats_regularly_and_covers_the_recording() -> None:
    loops = "\n".join(
        f"- 0 annotation loop {at} 90\n- 0 op often {at + 1} 1\n- 0 op often {at + 2} 1\n- 0 op once {at + 5} 1"
        for at in range(0, 500, 100)
    )
    numbered = "\n".join(f"{number}{line.strip()[1:]}" for number, line in enumerate(loops.splitlines()))
    trace = tiny.trace(spans=f"span track kind name start_ns dur_ns\n{numbered}", tracks=TRACKS)
    tiny.assert_rows(
        trace.step_markers(),
        """
        choice          count median_interval_ns regularity covered
        annotation:loop 5     100                1.0        0.918367
        operator:once   5     100                1.0        0.989796
        operator:often  10    1                  0.016556   0.997959
        """,
    )
    assert [one.choice for one in markers(trace)] == ["annotation:loop", "operator:once", "operator:often"]
    assert trace.step_markers(top=1)["choice"].to_list() == ["annotation:loop"]


def test_ranges_that_are_numbered_are_one_marker() -> None:
    requests = "\n".join(f"{number} 0 annotation request{number} {number * 10} 9" for number in range(4))
    trace = tiny.trace(spans=f"span track kind name start_ns dur_ns\n{requests}", tracks=TRACKS)
    tiny.assert_rows(trace.step_markers(), "choice count\nannotation:request* 4")
    assert trace.with_steps("annotation:request*").steps.collect()["step"].to_list() == [0, 1, 2, 3]


@pytest.mark.parametrize("form", ["run folder", "capture"])
def test_recordings_of_our_own_are_cut_like_any_other(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = SAMPLES / "capture" / "stepscope-0.1.0" / "torch.capture"
    plain = stepscope.open(path, cache=False)
    if form == "run folder":
        path = tmp_path / "run"
        store.write(plain, path)
    marker = plain.spans.filter(pl.col("kind") == "op").select(pl.col("name").cast(pl.String)).collect()["name"].mode().sort()[0]
    starts = (
        plain.spans.filter((pl.col("name").cast(pl.String) == marker) & (pl.col("kind") == "op")).collect()["start_ns"].sort().to_list()
    )
    given = stepscope.open(path, cache=False, step_name=f"operator:{marker}")
    assert given.steps.collect()["start_ns"].to_list() == starts
    for command in (["show", "steps"], ["summary"], ["query"], ["export", "--to", "parquet", "-o", str(tmp_path / "out")]):
        words = [*command, str(path), *(["select count(*) from steps"] if command == ["query"] else [])]
        assert main([*words, "--step-name", f"operator:{marker}", "--no-cache"]) == 0
    assert stepscope.open(tmp_path / "out").steps.collect()["start_ns"].to_list() == starts
    assert f"{len(starts):,} steps" in capsys.readouterr().out


def test_a_choice_can_be_chosen_again_and_narrowed(trace: Trace) -> None:
    again = trace.with_steps("aten::mm").with_steps("train_step")
    assert step_of(again) == step_of(trace.with_steps("train_step"))
    assert again.of_steps(1, 1).spans.collect()["span"].to_list() == [4, 5, 6, 7]


def test_problems_names_a_marker_only_where_steps_are_missing_and_one_is_there(tmp_path: Path) -> None:
    plain = stepscope.open(SAMPLES / "xplane" / "jax-0.11.2-gpu-no-steps" / "plain.xplane.pb.gz", cache=False)
    assert plain.problems.collect()["what"].to_list() == [
        "no step markers: the whole trace is one step; steps could be cut at `PjitFunction(train)` (4 times): "
        "--step-name 'function:PjitFunction(train)'"
    ]
    assert plain.with_steps("function:PjitFunction(train)").problems.collect().height == 0
    marked = stepscope.open(SAMPLES / "chrome" / "torch-2.13.0" / "cpu_training.json.gz", cache=False)
    assert not any("--step-name" in what for what in marked.problems.collect()["what"])


_JAX = """
import sys
import jax, jax.numpy as jnp
from stepscope import Profiler

@jax.jit
def step(w, x):
    return w - 0.1 * jax.grad(lambda w: (jnp.tanh(x @ w) ** 2).mean())(w)

w, x = jnp.ones((64, 64)), jnp.ones((32, 64))
step(w, x).block_until_ready()
profiler = Profiler(output_path=sys.argv[1])
for _ in range(60):
    w = step(w, x).block_until_ready()
profiler.analyse()
"""


def test_sixty_calls_of_a_function_that_jax_compiled_are_sixty_steps_with_their_operations(tmp_path: Path) -> None:
    needs("jax")
    subprocess.run([sys.executable, "-c", _JAX, str(tmp_path)], check=True, capture_output=True, timeout=300)
    plain = stepscope.open(tmp_path)
    assert plain.steps.collect()["how"].cast(pl.String).to_list() == ["whole"]
    given = stepscope.open(tmp_path, step_name="PjitFunction(step)")
    assert given.steps.collect()["step"].to_list() == list(range(60))
    # Each call waits for its result, so that every operation runs in the step of its call.
    operations = given.spans.filter(pl.col("kind") == "op").collect()
    assert operations["step"].null_count() == 0
    assert operations.group_by("step").len()["len"].unique().len() == 1


def test_of_devices_that_run_alike_the_first_one_makes_the_steps() -> None:
    names = [f"k{number}" for number in range(8)]
    rows = [(7 + device, name, at + 10 * at * device) for device in (0, 1) for at, _ in enumerate("abcd") for name in names]
    spans = "\n".join(f"{track} kernel {name} {start * 100} 50" for track, name, start in rows)
    tracks = "track kind label device\n7 stream a 0\n8 stream b 1"
    found = tiny.trace(spans=f"track kind name start_ns dur_ns\n{spans}", tracks=tracks).step_markers()
    assert dict(found.select("name", "median_interval_ns").iter_rows()) == dict.fromkeys(names, 100)
