"""What ran on each device of each rank that has steps, as interval sets by kind, and when its steps are."""

from collections.abc import Iterator

import polars as pl

from stepscope import intervals
from stepscope.analyses._coverage import coverage
from stepscope.trace import Trace


def device_steps(trace: Trace) -> pl.DataFrame:
    """Per rank, by start: each step as the device has it, with `total_ns`, its time on the host, and `clock`.

    `clock` is device where the source draws steps on the device, too; elsewhere the device's step is the host's.
    """
    known = pl.col("device_start_ns").is_not_null().all().over("rank")
    steps: pl.DataFrame = (
        trace.steps.sort("rank", "start_ns")
        .select(
            "rank",
            "step",
            start_ns=pl.when(known).then("device_start_ns").otherwise("start_ns"),
            end_ns=pl.when(known).then("device_end_ns").otherwise("end_ns"),
            total_ns=pl.col("end_ns") - pl.col("start_ns"),
            clock=pl.when(known).then(pl.lit("device")).otherwise(pl.lit("host")),
        )
        .collect()
    )
    return steps


def ranks(trace: Trace) -> Iterator[tuple[int, pl.DataFrame, dict[str, intervals.Set]]]:
    """Every device of every rank with known work: the rank, its steps as `device_steps` has them, and what ran on the device, by kind.

    Computation is `kernel`: device kernels, or host operators of a rank without a device. Transfers that no device runs, as those over
    gloo, are `transfer` on a rank that has one: the device is idle meanwhile.
    """
    known = ["kernel", "communication", "copy", "set"]
    work = _work(trace, pl.col("kind").is_in(known))
    data = coverage(trace).data
    on_host = [rank for rank, what in data.items() if what == "host"]
    # Most of what there is are operators: they are read only where they are needed.
    work |= _work(trace, (pl.col("kind") == "op") & pl.col("rank").is_in(on_host)) if on_host else {}
    for (rank,), rows in device_steps(trace).group_by("rank", maintain_order=True):
        recorded = data[int(str(rank))]
        if recorded is None:  # nothing here is known to be work: silence is truer than "idle"
            continue
        of_rank = [(device, kind, part) for (of, device, kind), part in work.items() if of == rank]
        devices = {device for device, kind, _ in of_rank if kind in ("kernel", "op")}
        for device in sorted(devices - {None}, key=str) or [None]:
            mine = [(kind, part) for of, kind, part in of_rank if of in (device, None)]
            busy = {kind: intervals.join(*(part for of, part in mine if of == kind)) for kind, _ in mine}
            if recorded == "host":
                # Transfers of a host-only job run on threads of their own; an operator that waits for one is not computing.
                busy["kernel"] = busy.get("op", intervals.NONE)
                busy["communication"] = intervals.join(busy.get("communication", intervals.NONE), busy.pop("transfer", intervals.NONE))
            yield int(str(rank)), rows, {"kernel": intervals.NONE, **busy}


def _work(trace: Trace, which: pl.Expr) -> dict[tuple[int, int | None, str], intervals.Set]:
    """When something of these spans ran, by rank, device and kind."""
    tracks = (
        trace.tracks.select("rank", "track", "device", pl.col("kind").cast(pl.String).alias("place")).unique(["rank", "track"]).collect()
    )
    # Of some spans only sums or means are known: they have a length, but no place in time.
    nowhere = tracks.filter(pl.col("place") == "other")
    spans = trace.spans.filter(which)
    spans = spans.join(nowhere.lazy(), on=["rank", "track"], how="anti") if nowhere.height else spans
    # By track, of which there are few, so that words and devices are looked up for those and not for every span.
    found = spans.select("rank", "track", "kind", "start_ns", end_ns=pl.col("start_ns") + pl.col("dur_ns")).collect()
    several = dict(tracks.group_by("rank").agg(pl.col("device").drop_nulls().n_unique()).iter_rows())
    lanes = {(rank, track): (device, place) for rank, track, device, place in tracks.iter_rows()}
    parts: dict[tuple[int, int | None, str], list[intervals.Set]] = {}
    for (rank, track, kind), part in found.partition_by("rank", "track", "kind", as_dict=True).items():
        device, place = lanes.get((rank, track), (None, "stream"))
        word = "transfer" if kind == "communication" and place not in ("stream", "communication") else str(kind)
        parts.setdefault((int(rank), device if several.get(rank, 0) > 1 else None, word), []).append(_merged(part))
    return {key: intervals.join(*sets) for key, sets in parts.items()}


def _merged(rows: pl.DataFrame) -> intervals.Set:
    return intervals.merge(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
