"""Steps and work of each device of each rank, as interval sets by kind."""

import polars as pl

from stepscope.analyses.shared.steps.coverage import coverage
from stepscope.model import intervals
from stepscope.model.memo import memoized
from stepscope.model.steps.step_assignment import DEVICE_WORK
from stepscope.model.trace import Trace


def device_steps(trace: Trace) -> pl.DataFrame:
    """Per rank, by start: each step on the device, with `total_ns`, its time on the host, and `clock`.

    `clock` is device if the source also has steps on the device; otherwise the step on the device is that on the host.
    """
    on_device = pl.col("device_start_ns").is_not_null().all().over("rank")
    steps: pl.DataFrame = (
        trace.steps.sort("rank", "start_ns")
        .select(
            "rank",
            "step",
            start_ns=pl.when(on_device).then("device_start_ns").otherwise("start_ns"),
            end_ns=pl.when(on_device).then("device_end_ns").otherwise("end_ns"),
            total_ns=pl.col("end_ns") - pl.col("start_ns"),
            clock=pl.when(on_device).then(pl.lit("device")).otherwise(pl.lit("host")),
        )
        .collect()
    )
    return steps


@memoized
def device_times(trace: Trace) -> list[tuple[int, pl.DataFrame, dict[str, intervals.Set]]]:
    """Every device of every rank with known work: the rank, its steps as in `device_steps`, and the times of its work, by kind.

    Computation is `kernel`: device kernels, or host operators of a rank without a device. Transfers that no device runs, such as those
    over gloo, are `transfer` on a rank with a device, which is idle at that time.
    """
    work = _work(trace, pl.col("kind").is_in(DEVICE_WORK))
    data = coverage(trace).data
    on_host = [rank for rank, recorded in data.items() if recorded == "host"]
    # Most spans are operators: they are read only where they are needed.
    times: list[tuple[int, pl.DataFrame, dict[str, intervals.Set]]] = []
    work |= _work(trace, (pl.col("kind") == "op") & pl.col("rank").is_in(on_host)) if on_host else {}
    for (rank,), rows in device_steps(trace).group_by("rank", maintain_order=True):
        recorded = data[int(str(rank))]
        if recorded is None:  # no span is known to be work: neither busy nor idle
            continue
        rank_work = [(device, kind, part) for (number, device, kind), part in work.items() if number == rank]
        devices = {device for device, kind, _ in rank_work if kind in ("kernel", "op")}
        for device in sorted(devices - {None}, key=str) or [None]:
            parts = [(kind, part) for number, kind, part in rank_work if number in (device, None)]
            busy = {kind: intervals.join(*(part for name, part in parts if name == kind)) for kind, _ in parts}
            if recorded == "host":
                # Transfers of a host-only job run on separate threads; an operator that waits for one is not computing.
                busy["kernel"] = busy.get("op", intervals.NONE)
                busy["communication"] = intervals.join(busy.get("communication", intervals.NONE), busy.pop("transfer", intervals.NONE))
            times.append((int(str(rank)), rows, {"kernel": intervals.NONE, **busy}))
    return times


def _work(trace: Trace, selected: pl.Expr) -> dict[tuple[int, int | None, str], intervals.Set]:
    """The times of the selected spans, by rank, device and kind."""
    tracks = (
        trace.tracks.select("rank", "track", "device", pl.col("kind").cast(pl.String).alias("track_kind"))
        .unique(["rank", "track"])
        .collect()
    )
    # Spans of sums or means have a duration, but no timestamps.
    without_times = tracks.filter(pl.col("track_kind") == "other")
    spans = trace.spans.filter(selected)
    spans = spans.join(without_times.lazy(), on=["rank", "track"], how="anti") if without_times.height else spans
    # There are few tracks: kinds and devices are looked up per track, not per span.
    rows = spans.select("rank", "track", "kind", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).collect()
    several = dict(tracks.group_by("rank").agg(pl.col("device").drop_nulls().n_unique()).iter_rows())
    places = {(rank, track): (device, kind) for rank, track, device, kind in tracks.iter_rows()}
    parts: dict[tuple[int, int | None, str], list[intervals.Set]] = {}
    for (rank, track, kind), part in rows.partition_by("rank", "track", "kind", as_dict=True).items():
        device, track_kind = places.get((rank, track), (None, "stream"))
        word = "transfer" if kind == "communication" and track_kind not in ("stream", "communication") else str(kind)
        times = intervals.merge(part["start_ns"].to_numpy(), part["end_ns"].to_numpy())
        parts.setdefault((int(rank), device if several.get(rank, 0) > 1 else None, word), []).append(times)
    return {key: intervals.join(*sets) for key, sets in parts.items()}
