"""The steps of a trace of torch.profiler, and the step of each span."""

import polars as pl

from stepscope.model.steps.step_assignment import DEVICE_WORK, NO_MARKERS, number_steps, steps_by_launch, steps_on_device
from stepscope.readers.common.problems import Problem

STEP_LIKE = r"(?i)^\W*(train(ing)?|eval(uation)?|inference|profiler?)?[\s_:#.-]*(step|iter|iteration|batch)[\s_:#.-]*\d*\W*$"
_CATEGORY = pl.col("category").cast(pl.String).str.to_lowercase()


def find_steps(spans: pl.DataFrame) -> tuple[pl.DataFrame, Problem | None]:
    """The steps, and a problem where the framework marked none."""
    on_gpu = (_CATEGORY == "gpu_user_annotation").fill_null(False) if "category" in spans.columns else pl.lit(False)
    end = pl.col("start_ns") + pl.col("dur_ns")
    ranges = spans.select("kind", pl.col("name").cast(pl.String), "start_ns", end_ns=end, on_gpu=on_gpu)
    if (marked := ranges.filter(pl.col("kind") == "step")).height:
        return number_steps(marked, "marker"), None
    step_like = ranges.filter((pl.col("kind") == "annotation") & pl.col("name").str.contains(STEP_LIKE))
    if step_like.height:
        drawn = step_like.filter("on_gpu").height == step_like.height
        step_like = step_like if drawn else step_like.filter(~pl.col("on_gpu"))
        pattern = pl.col("name").str.replace_all(r"\d+", "N")
        name = step_like.select(pattern.mode().sort().first()).item()
        chosen = step_like.filter(pattern == name)
        problem = Problem("", f"{NO_MARKERS}: each '{name}' annotation is taken as a step", 0)
        return number_steps(_until_next(chosen, ranges) if drawn else chosen, "device" if drawn else "inferred"), problem
    body = ranges.filter(pl.col("kind") != "other")
    body = body if body.height else ranges
    if body.is_empty():
        return number_steps(body, "whole"), Problem("", "the trace has no spans, so there are no steps", 0)
    whole = body.select(pl.col("start_ns").min(), pl.col("end_ns").max()).with_columns(name=pl.lit("0"))
    return number_steps(whole, "whole"), Problem("", f"{NO_MARKERS}: the whole trace is one step", 0)


def _until_next(drawn: pl.DataFrame, spans: pl.DataFrame) -> pl.DataFrame:
    """Ranges of steps on the GPU alone, each until the next one starts: they contain only a part of the work of their step."""
    last = spans.filter(pl.col("kind").is_in(DEVICE_WORK))["end_ns"].max()
    drawn = drawn.sort("start_ns")
    return drawn.with_columns(end_ns=pl.coalesce(pl.col("start_ns").shift(-1), pl.max_horizontal("end_ns", pl.lit(last, pl.Int64))))


def assign_steps(spans: pl.DataFrame, steps: pl.DataFrame) -> pl.DataFrame:
    """Spans with their step: by the start on the host, by the launch on a device."""
    return spans.with_columns(step=steps_by_launch(spans, steps))


def assign_device_steps(spans: pl.DataFrame, steps: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The steps, with their time on the device where Kineto also draws the profiler's steps there, and the spans with their step."""
    name = pl.col("name").cast(pl.String)
    markers = spans.filter(pl.col("kind") == "step")["name"]
    drawn = (
        spans.filter(pl.col("kind") == "annotation")
        .filter(_CATEGORY == "gpu_user_annotation", name.is_in(markers.cast(pl.String).implode()))
        .select("start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns"), step=name.str.extract(r"#([0-9]+)").cast(pl.Int32, strict=False))
        .filter(pl.col("step").is_in(steps["step"].implode()))
    )
    if drawn.is_empty() or not markers.is_unique().all():  # with repeated names, the step of a range is unknown
        return steps, assign_steps(spans, steps)
    work = pl.col("kind").is_in(["kernel", "copy", "set"]) | ((pl.col("kind") == "communication") & pl.col("correlation").is_not_null())
    steps, numbers = steps_on_device(spans, steps, drawn, work)
    return steps, spans.with_columns(step=numbers)
