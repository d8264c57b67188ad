"""What is not recorded is not idle, and what is recorded as idle stays idle."""

import csv
import shutil
from pathlib import Path

import polars as pl
import pytest

import stepscope
import tiny
from stepscope.model.trace import Trace

TRACKS = """
    track  kind    label  device
    0      thread  main   -
    7      stream  s      0
"""
STEPS = """
    step  start_ns  end_ns
    1     0         100
    2     100       200
    3     200       300
    4     300       400
"""


def opened(shared: Path, folder: str) -> Trace:
    if not (shared / folder).exists():
        pytest.skip(f"no {folder}")
    return stepscope.open(shared / folder, cache=False)


def complete(trace: Trace) -> list[bool]:
    return trace.overlap()["complete"].to_list()


def test_a_step_without_work_between_steps_with_work_was_idle() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name  start_ns  dur_ns  step
            7      kernel  k     10        80      1
            7      kernel  k     310       90      4
        """,
        tracks=TRACKS,
        steps=STEPS,
    )
    assert complete(trace) == [True] * 4
    assert trace.overlap()["free_ns"].to_list() == [20, 100, 100, 10]
    tiny.assert_rows(
        trace.overview(warmup=0),
        """
        steps  device_data  device_steps  device_step_ranges  busy_share
        4      complete     4             -                   0.425
        """,
    )
    # Also when it is looked at alone: what tells is around it.
    alone = trace.analyse("overlap", steps=(2, 2))
    assert (alone["free_ns"].to_list(), alone["complete"].to_list()) == ([100], [True])


def test_steps_before_the_first_and_after_the_last_kernel_are_unknown_where_the_host_is_not_recorded() -> None:
    trace = tiny.trace(
        spans="""
            track  kind           name    start_ns  dur_ns  step
            7      communication  reduce  50        20      1
            7      kernel         k       110       80      2
            7      kernel         k       210       90      3
            7      communication  reduce  350       20      4
        """,
        tracks=TRACKS,
        steps=STEPS,
    )
    tiny.assert_rows(
        trace.overlap(),
        """
        step  total_ns  computing_ns  communication_ns  exposed_ns  free_ns  complete
        1     100       -             20                -           -        False
        2     100       80            0                 0           20       True
        3     100       90            0                 0           10       True
        4     100       -             20                -           -        False
        """.replace("False", "0").replace("True", "1"),
    )
    tiny.assert_rows(
        trace.overview(warmup=0),
        """
        steps  device_data  device_steps  device_step_ranges  busy_share  exposed_communication_share
        4      partial      2             2-3                 0.85        0.0
        """,
    )
    assert trace.gaps()["step"].unique().to_list() == [2, 3]
    assert trace.gap_causes(warmup=0)["share"].sum() == pytest.approx(0.15)
    assert trace.critical_path()["step"].unique().to_list() == [2, 3]
    busy = trace.activity(buckets=4)["busy_share"].to_list()
    assert busy == [None, 0.8, 0.9, None]
    # Transfers of all steps are not set against the kernels of two of them.
    assert trace.operators()["name"].to_list() == ["k"]
    # They stay where nothing is compared with kernels, and what hides them is not known.
    tiny.assert_rows(
        trace.communication(),
        """
        name    calls  total_ns  device_calls  overlapped_ns  exposed_ns
        reduce  2      40        0             -              -
        """,
    )


@pytest.mark.parametrize(("launched", "found"), [("", True), ("0 api cudaLaunchKernel 320 5 4 -", False)])
def test_a_step_after_the_last_kernel_was_idle_if_nothing_was_launched_in_it(launched: str, found: bool) -> None:
    trace = tiny.trace(
        spans=f"""
            track  kind    name              start_ns  dur_ns  step  flow_in
            0      api     cudaLaunchKernel  5         5       1     -
            0      api     cudaLaunchKernel  105       5       2     -
            0      api     cudaLaunchKernel  205       5       3     -
            7      kernel  k                 10        80      1     0
            7      kernel  k                 110       80      2     1
            7      kernel  k                 210       85      3     2
            {launched}
        """,
        tracks=TRACKS,
        steps=STEPS,
    )
    assert complete(trace) == [True, True, True, found]
    assert trace.overlap()["free_ns"].to_list() == [20, 20, 15, 100 if found else None]


def test_the_step_in_which_recording_stops_is_incomplete() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name  start_ns  dur_ns  step
            7      kernel  a     10        40      1
            7      kernel  b     50        45      1
            7      kernel  a     110       40      2
            7      kernel  b     150       45      2
            7      kernel  a     210       40      3
        """,
        tracks=TRACKS,
        steps=STEPS,
    )
    assert complete(trace) == [True, True, False, False]


def test_a_step_that_the_step_trace_has_and_no_kernel_shows_is_unknown_also_between_others() -> None:
    trace = tiny.trace(
        spans="""
            track  kind    name  start_ns  dur_ns  step
            7      kernel  k     10        85      1
            7      kernel  k     310       85      4
        """,
        tracks=TRACKS,
        steps="""
            step  start_ns  end_ns  fp_start_ns  bp_end_ns
            1     0         100     10           80
            2     100       200     110          180
            3     200       300     -            -
            4     300       400     310          380
        """,
    )
    assert complete(trace) == [True, False, True, True]


def test_operators_do_not_replace_kernels_that_were_launched_and_not_recorded() -> None:
    host = """
        track  kind  name              start_ns  dur_ns  step
        0      op    aten::mm          10        50      1
    """
    steps = "step  start_ns  end_ns\n1     0         100"
    on_host = tiny.trace(spans=host, steps=steps)
    assert on_host.overview().select("device_data", "device_steps", "busy_share").row(0) == ("host", 1, 0.5)
    launching = tiny.trace(spans=host.rstrip() + "\n0      api   cudaLaunchKernel  20        5       1", steps=steps)
    assert launching.overview().select("device_data", "device_steps", "busy_share").row(0) == ("none", 0, None)
    assert launching.gaps().is_empty()
    assert launching.activity().is_empty()


@pytest.mark.parametrize(
    ("operator", "data"),
    [
        ("aten::cudnn_convolution", "none"),
        ("aten::miopen_batch_norm", "none"),
        ("aten::_flash_attention_forward", "none"),
        ("aten::cudnn_is_acceptable", "host"),
        ("aten::_scaled_dot_product_flash_attention_for_cpu", "host"),
    ],
)
def test_operators_of_gpus_do_not_replace_kernels(operator: str, data: str) -> None:
    """A profiler without CUDA activities records no launch calls: operators only launch, and take no time of their own."""
    spans = f"track kind name start_ns dur_ns step\n0 op {operator} 10 50 1\n0 op aten::add 60 20 1"
    overview = tiny.trace(spans=spans, steps="step start_ns end_ns\n1 0 100").overview()
    assert overview["device_data"].item() == data
    assert overview["compute_share"].item() == (0.7 if data == "host" else None)


def _sentence(trace: Trace) -> str:
    """The conclusions of the summary."""
    rows = trace.verdict(topic="overview")
    run = rows.filter(pl.col("rank").is_null())
    return " ".join((run if run.height else rows)["text"])


def test_figures_of_a_device_are_of_the_steps_whose_operators_were_all_recorded(shared: Path) -> None:
    trace = opened(shared, "ascend/legacy/expected/run_1")
    folder = shared / "ascend/legacy/expected/run_1/normal_run/profiler"
    # By hand, from the raw texts: counts of 10 ns, milliseconds.
    steps = [
        (int(row["step_num"]), int(row["start_point"]) * 10, int(row["end_point"]) * 10, int(row["bp_point"]) * 10)
        for row in csv.DictReader((folder / "step_trace_raw_1_detail_time.csv").read_text().splitlines())
        if row["step_num"] not in ("0", "-")
    ]
    ran = []
    for line in (folder / "output_timeline_data_1.txt").read_text().splitlines()[1:]:
        _, _, start, length = line.rsplit(",", 3)
        ran.append((round(float(start) * 1e6), round((float(start) + float(length)) * 1e6)))
    last = max(end for _, end in ran)
    whole = [step for step in steps if step[3] <= last]  # operators are recorded beyond the end of its backward pass
    assert (len(steps), len(whole), max(number for number, *_ in whole)) == (322, 14, 14)
    row = trace.overview().row(0, named=True)
    assert (row["device_data"], row["steps"], row["device_steps"], row["device_step_ranges"]) == ("partial", 322, 14, "1-14")
    ns = sum(end - start for _, start, end, _ in whole)
    computing = 0
    for _, low, high, _ in whole:
        until = low
        for begin, end in sorted(ran):
            own = min(end, high) - max(begin, until)
            if own > 0:
                computing, until = computing + own, end
    overlap = trace.overlap().filter("complete")
    assert overlap["total_ns"].sum() == ns
    assert overlap["computing_ns"].sum() == pytest.approx(computing, rel=1e-6)
    assert row["busy_share"] > 0.99
    assert trace.gap_causes()["share"].sum() < 0.01
    device = trace.operators().filter(pl.col("device") != "cpu")
    assert device.filter(pl.col("name").str.starts_with("stream_"))["calls"].max() == 14
    assert device["device_steps"].unique().to_list() == [14]
    sentence = _sentence(trace)
    assert "14 of 322 steps (1-14)" in sentence
    assert "0.7 % idle" in sentence


def test_a_step_trace_without_kernels_is_not_idle(shared: Path) -> None:
    trace = opened(shared, "mindinsight/profiler")
    overview = trace.overview().filter(pl.col("rank") == 0).row(0, named=True)
    assert (overview["device_data"], overview["device_steps"], overview["busy_share"]) == ("none", 0, None)
    assert (overview["exposed_communication_share"], overview["utilization"]) == (None, None)
    overlap = trace.overlap().filter(pl.col("rank") == 0)
    # Transfers are in the step trace itself: 17,596 + 298,102 + 200,943 counts of 10 ns on one stream, and what the other adds to them.
    first = overlap.row(0, named=True)
    assert (first["communication_ns"], first["computing_ns"], first["exposed_ns"], first["free_ns"]) == (5_323_530, None, None, None)
    assert trace.gaps().is_empty()
    assert trace.gap_causes().is_empty()
    assert trace.activity()["busy_share"].null_count() == trace.activity().height
    assert trace.cluster_steps(per_step=False)["device_steps"].to_list() == [0, 0]
    sentence = _sentence(trace)
    assert "busy and idle time are unknown" in sentence
    assert "forward and backward take 17.1 ms" in sentence
    assert "host" not in sentence


def test_a_cluster_folder_of_step_traces_did_not_run_on_the_host(shared: Path, tmp_path: Path) -> None:
    source = shared / "mindinsight/profiler/step_trace_raw_0_detail_time.csv"
    if not source.exists():
        pytest.skip("no MindInsight data")
    for rank in (0, 1):
        shutil.copy(source, tmp_path / f"step_trace_raw_{rank}_detail_time.csv")
        cost = '{""AllReduce-op1"": [1, 3.5, 1.5, {}]}'
        (tmp_path / f"hccl_raw_{rank}.csv").write_text(
            f'step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n1,3.5,1.5,{{}},"{cost}"\n'
        )
    trace = stepscope.open(tmp_path, cache=False)
    assert trace.overview()["device_data"].to_list() == ["none", "none"]
    assert trace.overview()["busy_share"].null_count() == 2
    assert trace.gap_causes().is_empty()
    assert "computes" not in _sentence(trace)


def test_a_host_that_recorded_no_operator_in_its_step_is_not_idle(shared: Path) -> None:
    trace = opened(shared, "torch_public/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz")
    assert trace.overview().select("device_data", "device_steps", "busy_share").row(0) == ("host", 0, None)
    assert "unknown" in _sentence(trace)


@pytest.mark.parametrize(
    "file",
    [
        "torch_h200/resnet50_basic.json.gz",
        "torch_h200/gpt2_full.json.gz",
        "torch_h200/ddp_gloo_rank0.json.gz",
        "tracelens/inference/vllm_decode_full/capture_traces",  # most launches are captured into a graph and run nothing
        "ascend/prof_2023",
    ],
)
def test_a_recording_that_is_whole_has_all_its_steps(shared: Path, file: str) -> None:
    trace = opened(shared, file)
    assert trace.overlap()["complete"].all()
    assert set(trace.overview()["device_data"]) == {"complete"}


def test_a_gpu_recording_whose_kernels_end_early_is_partial(shared: Path) -> None:
    whole = opened(shared, "torch_h200/resnet50_basic.json.gz")
    steps = whole.steps.sort("start_ns").collect()
    # As CUPTI leaves it when its buffers are full: the host goes on, in the middle of the third step kernels stop.
    half = (steps["start_ns"][2] + steps["end_ns"][2]) // 2
    kept = whole.spans.filter(~pl.col("kind").is_in(["kernel", "copy", "set"]) | (pl.col("start_ns") < half))
    trace = Trace(whole.tables | {"spans": kept.collect()}, whole.meta)
    assert complete(trace) == [True, True, False, False]
    two = whole.overlap()[:2]
    assert trace.overlap().filter("complete").equals(two)
    busy = 1 - two["free_ns"].sum() / two["total_ns"].sum()
    assert trace.overview(warmup=0)["busy_share"][0] == pytest.approx(busy)


# As dropped buffers leave it: launches in the middle of step 2 have no kernel, those around it have.
LAUNCHED = """
    track  kind    name              start_ns  dur_ns  step  flow_in
    0      api     cudaLaunchKernel  5         1       1     -
    0      api     cudaLaunchKernel  50        1       1     -
    0      api     cudaLaunchKernel  105       1       2     -
    0      api     cudaLaunchKernel  120       1       2     -
    0      api     cudaLaunchKernel  150       1       2     -
    0      api     cudaLaunchKernel  205       1       3     -
    0      api     cudaLaunchKernel  250       1       3     -
    7      kernel  k                 10        30      1     0
    7      kernel  k                 55        40      1     1
    7      kernel  k                 110       10      2     2
    7      kernel  k                 155       40      2     4
    7      kernel  k                 210       30      3     5
    7      kernel  k                 255       40      3     6
"""
THREE_STEPS = """
    step  start_ns  end_ns
    1     0         100
    2     100       200
    3     200       300
"""


def test_a_step_is_incomplete_where_launches_in_the_middle_of_it_have_no_kernel() -> None:
    trace = tiny.trace(spans=LAUNCHED, tracks=TRACKS, steps=THREE_STEPS)
    assert complete(trace) == [True, False, True]
    tiny.assert_rows(
        trace.overlap(),
        """
        step  computing_ns  free_ns
        1     70            30
        2     -             -
        3     70            30
        """,
    )
    tiny.assert_rows(
        trace.overview(warmup=0),
        """
        steps  device_data  device_steps  device_step_ranges  idle_share
        3      partial      2             "1,_3"              0.3
        """,
    )
    gaps = trace.gaps()
    assert not gaps.filter((pl.col("start_ns") < 200) & (pl.col("start_ns") + pl.col("dur_ns") > 100)).height


def test_launches_that_a_graph_captures_have_no_kernel_and_lose_none() -> None:
    captured = """    0      api     cudaStreamBeginCapture_v10000  115  1  2  -
        0      api     cudaStreamEndCapture           125  1  2  -
    """
    trace = tiny.trace(spans=LAUNCHED + captured, tracks=TRACKS, steps=THREE_STEPS)
    assert complete(trace) == [True, True, True]


def test_a_gap_in_kernels_spoils_the_step_in_which_they_would_have_run() -> None:
    """The host launches all of it in step 1; the device runs it in steps 1 and 2. The kernels of launches 2 and 3 are lost."""
    trace = tiny.trace(
        spans="""
            track  kind    name              start_ns  dur_ns  step  flow_in
            0      api     cudaLaunchKernel  5         1       1     -
            0      api     cudaLaunchKernel  10        1       1     -
            0      api     cudaLaunchKernel  15        1       1     -
            0      api     cudaLaunchKernel  20        1       1     -
            0      api     cudaLaunchKernel  205       1       3     -
            7      kernel  k                 10        89      1     0
            7      kernel  k                 180       20      1     3
            7      kernel  k                 210       90      3     4
        """,
        tracks=TRACKS,
        steps=THREE_STEPS,
    )
    assert complete(trace) == [False, False, True]


def test_a_gpu_recording_that_lost_kernels_inside_a_step_is_partial(shared: Path) -> None:
    whole = opened(shared, "torch_h200/resnet50_basic.json.gz")
    steps = whole.steps.sort("start_ns").collect()
    # A fifth of the second step on the device, as Kineto draws it there.
    start, end = steps["device_start_ns"][1], steps["device_end_ns"][1]
    low, high = start + (end - start) * 2 // 5, start + (end - start) * 3 // 5
    lost = pl.col("kind").is_in(["kernel", "copy", "set"]) & pl.col("start_ns").is_between(low, high)
    trace = Trace(whole.tables | {"spans": whole.spans.filter(~lost).collect()}, whole.meta)
    assert complete(trace) == [True, False, True, True]
    others = whole.overlap().filter(pl.col("step") != steps["step"][1])
    assert trace.overlap().filter("complete").equals(others)
    assert trace.overview(warmup=0)["idle_share"][0] == pytest.approx(others["free_ns"].sum() / others["device_ns"].sum())
    assert "These shares cover" in _sentence(trace)


def test_tasks_that_the_ascend_recording_lost_spoil_their_steps(shared: Path) -> None:
    """Ascend's own exporter lists 24 operators of the undamaged twin and 19 of this one, all of the third iteration among them."""
    lost = shared / "ascend" / "synth" / "c12j_lost_records"
    if not lost.is_dir():
        pytest.skip("no Ascend data with lost records")
    listed = {}
    for folder in (lost, lost.parent / "c12_base"):
        (table,) = (folder / "expected").glob("op_summary_*.csv")
        with table.open() as file:
            rows = [row for row in csv.DictReader(file) if row["Op Name"] != "N/A"]
        listed[folder.name] = len(rows)
    (path,) = lost.glob("PROF_*")
    (base,) = (lost.parent / "c12_base").glob("PROF_*")
    assert listed == {"c12j_lost_records": 19, "c12_base": 24}
    assert complete(stepscope.open(base, cache=False)) == [True, True, True]
    assert complete(stepscope.open(path, cache=False)) == [False, False, True]


def test_a_recording_of_one_step_that_lost_kernels_does_not_call_the_device_idle() -> None:
    one_step = THREE_STEPS.strip().splitlines()[0] + "\n1 0 300"
    trace = tiny.trace(spans=LAUNCHED, tracks=TRACKS, steps=one_step)
    assert trace.overview().select("device_data", "device_steps", "idle_share").row(0) == ("none", 0, None)
    assert "some kernels are not recorded, so busy and idle time are unknown." in _sentence(trace)


def test_copies_alone_do_not_show_that_a_device_was_idle_where_kernels_were_launched() -> None:
    spans = """
        span  track  kind  name              start_ns  dur_ns  step  flow_in
        0     0      api   cudaMemcpyAsync   1         2       1     -
        1     7      copy  Memcpy            4         2       1     0
        2     0      api   cudaLaunchKernel  10        2       1     -
        3     0      api   cudaLaunchKernel  20        2       1     -
        4     0      api   cudaMemcpyAsync   90        2       1     -
        5     7      copy  Memcpy            95        3       1     4
    """
    steps = "step  start_ns  end_ns\n1  0  100"
    without_kernels = tiny.trace(spans=spans, tracks=TRACKS, steps=steps)
    assert complete(without_kernels) == [False]
    assert without_kernels.overview()["idle_share"].to_list() == [None]
    # Also next to transfers over gloo, which no kernel runs.
    gloo = spans.rstrip() + "\n6 3 communication gloo:allreduce 20 70 1 -"
    with_gloo = tiny.trace(spans=gloo, tracks=TRACKS.rstrip() + "\n3 thread gloo -", steps=steps)
    assert complete(with_gloo) == [False]
    assert "kernels are not recorded" in _sentence(with_gloo) and "some kernels" not in _sentence(with_gloo)
    # Without a launch, the copies are all that ran.
    copies = "\n".join(line for line in spans.splitlines() if "cudaLaunchKernel" not in line)
    assert complete(tiny.trace(spans=copies, tracks=TRACKS, steps=steps)) == [True]


def test_transfers_that_the_step_trace_and_the_timeline_have_count_once(shared: Path, tmp_path: Path) -> None:
    """322 rows of step_trace_raw_1_detail_time.csv, the last one the average, have the same transfers as timeline_display_1.json."""
    folder = shared / "ascend/legacy/expected/run_1"
    if not folder.is_dir():
        pytest.skip("no run_1")
    copy = Path(shutil.copytree(folder, tmp_path / "run_1", copy_function=shutil.copyfile))
    profiler = copy / "normal_run" / "profiler"
    (profiler / "output_timeline_data_1.txt").unlink()
    with (profiler / "step_trace_raw_1_detail_time.csv").open() as file:
        rows = list(csv.DictReader(file))
    (column,) = [name for name in rows[0] if "stream_540_parallel_0" in name and name.endswith("start_point")]
    steps = sum(row["step_num"] != "-" and int(float(row[column])) > 0 for row in rows)
    trace = stepscope.open(copy, cache=False)
    spans = trace.spans.filter(pl.col("name").cast(pl.String) == "stream_540_parallel_0").collect()
    assert spans.height == steps == 322
    assert "communication" in trace.verdict(topic="operators")["text"][0]
