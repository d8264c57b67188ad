"""The input pipeline and the CPU as MindData's monitor writes them, see `readers/_minddata`: milliseconds and their fractions."""

import json
from pathlib import Path
from typing import Any

import polars as pl

from stepscope.trace import Trace

_MACHINE = {
    "user_utilization": ("cpu user", 100.0),
    "sys_utilization": ("cpu system", 100.0),
    "io_utilization": ("cpu io", 100.0),
    "idle_utilization": ("cpu idle", 100.0),
    "runnable_process": ("run queue", 1.0),
    "context_switch_count": ("context switches", 1.0),
}
_TIMES = {"push time": 1, "batch time": 2, "pipeline time": 0}


def write(trace: Trace, rank: int, folder: Path, origin: int, *, on_gpu: bool) -> None:
    samples = trace.counters.select("at_ns", "value", pl.col("name").cast(pl.String)).sort("at_ns", maintain_order=True).collect()
    series = {str(name): rows for (name,), rows in samples.group_by("name", maintain_order=True)}
    operators = trace.analyse("data_pipeline")
    _batches(trace, series, rank, folder, origin)
    _on_device(series, rank, folder, origin, on_gpu=on_gpu)
    _pipeline(operators, series, rank, folder, origin)


def _batches(trace: Trace, series: dict[str, pl.DataFrame], rank: int, folder: Path, origin: int) -> None:
    """Each batch that was taken: `0 kind batch ms at` for the times, `1 capacity batch rows at` for the queue."""
    queues = {row["queue"]: row for row in trace.analyse("data_queues", per_step=False).iter_rows(named=True)}
    files = {"device queue": "device_queue_profiling", "iterator": "dataset_iterator_profiling"}
    for where, name in files.items():
        times = {word: series[f"{word} {where}"] for word in _TIMES if f"{word} {where}" in series}
        queue = where
        depth = series.get(f"queue {where}")
        if where == "iterator" and depth is None and not times:
            # PyTorch: of several loaders the one that is asked most often, as MindInsight knows one.
            loaders = [row for key, row in queues.items() if key.startswith("DataLoader ")]
            if not loaders:
                continue
            most = max(loaders, key=lambda row: row["batches"])
            number, queue = str(most["queue"]).rpartition(" ")[2], str(most["queue"])
            depth = series.get(f"queue {number} depth")
            if (waits := series.get(f"queue {number} wait")) is not None:
                times = {"pipeline time": waits.with_columns(pl.col("value") / 1e6)}
        if depth is None and not times:
            continue
        times = _all_times(times)
        capacity = (queues.get(queue) or {}).get("capacity") or 0
        parts = [
            rows.select(batch=pl.int_range(1, pl.len() + 1), order=pl.lit(order), first=pl.lit(0), second=pl.lit(_TIMES[word]),
                        value=pl.format("{}", pl.col("value")), at="at_ns")
            for order, (word, rows) in enumerate(times.items())
        ]  # fmt: skip
        if depth is not None:
            rows = depth.with_columns(pl.col("value").round().cast(pl.Int64, strict=False))
            parts.append(
                rows.select(batch=pl.int_range(1, pl.len() + 1), order=pl.lit(9), first=pl.lit(1), second=pl.lit(capacity),
                            value=pl.format("{}", pl.col("value")), at="at_ns")
            )  # fmt: skip
        lines = pl.concat(parts, how="vertical_relaxed").sort("batch", "order").select(
            pl.format("{} {} {} {} {}", "first", "second", "batch", "value", _milliseconds(pl.col("at") - origin))
        )  # fmt: skip
        (folder / f"{name}_{rank}.txt").write_text("\n".join(lines.to_series()) + "\n")


def _all_times(times: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """MindInsight wants all three of a batch: what its source does not tell follows from the others."""
    if not times:
        return times
    known = times.get("pipeline time", times.get("batch time", next(iter(times.values()))))
    push = times.get("push time", known.with_columns(value=pl.lit(0.0)))
    whole = times.get("batch time", known)
    if "batch time" not in times and push.height == known.height:
        whole = known.with_columns(value=known["value"] + push["value"])
    return {"push time": push, "batch time": whole, "pipeline time": known}


def _on_device(series: dict[str, pl.DataFrame], rank: int, folder: Path, origin: int, *, on_gpu: bool) -> None:
    """What the device itself takes: `GetNext start end rows`; nanoseconds on a GPU, microseconds on Ascend."""
    depth, time = series.get("queue device"), series.get("batch time device")
    if depth is None:
        return
    took = time["value"] * 1e6 if time is not None and time.height == depth.height else pl.Series([0.0] * depth.height)
    scale = 1.0 if on_gpu else 1e3
    lines = [
        f"GetNext_dequeue_wait {(at - origin - length) / scale} {(at - origin) / scale} {round(rows)}"
        for (at, rows), length in zip(depth.select("at_ns", "value").iter_rows(), took, strict=True)
    ]
    name = "minddata_getnext_profiling" if on_gpu else "minddata_aicpu"
    (folder / f"{name}_{rank}.txt").write_text("\n".join(lines) + "\n")


def _pipeline(operators: pl.DataFrame, series: dict[str, pl.DataFrame], rank: int, folder: Path, origin: int) -> None:
    rows = operators.to_dicts()
    queues = {row["op_id"]: _queue(row, series) for row in rows}
    used = {row["op_id"]: _used(row, series) for row in rows}
    at = _moments([queue for queue in queues.values() if queue is not None], [one for both in used.values() for one in both], series)
    if not rows and not at:
        return
    interval = max(round((at[-1] - at[0]) / 1e6 / (len(at) - 1)), 1) if len(at) > 1 else 1
    children: dict[int, list[int]] = {}
    for row in rows:
        if row["parent"] is not None:
            children.setdefault(row["parent"], []).append(row["op_id"])
    listed: list[dict[str, Any]] = []
    for row in rows:
        queue = queues[row["op_id"]]
        sizes = [round(value) for value in queue["value"]] if queue is not None else []
        held = {"output_queue": {"length": row["queue_capacity"], "size": sizes}} if row["queue_capacity"] and sizes else None
        listed.append(
            {"op_id": row["op_id"], "op_type": row["op_type"], "num_workers": row["workers"] or 0, "children": children.get(row["op_id"]),
             "metrics": held}
        )  # fmt: skip
    _write_json(folder / f"pipeline_profiling_{rank}.json", {"sampling_interval": interval, "op_info": listed})
    if rows:
        _table(rows, listed, interval, children).write_csv(folder / f"minddata_pipeline_raw_{rank}.csv")
    if at:
        _cpu(rows, used, series, at, origin, interval, folder / f"minddata_cpu_utilization_{rank}.json")


def _table(rows: list[dict[str, Any]], listed: list[dict[str, Any]], interval: int, children: dict[int, list[int]]) -> pl.DataFrame:
    """The same as a table, with the means that MindInsight draws."""
    made = []
    for row, one in zip(rows, listed, strict=True):
        sizes = (one["metrics"] or {}).get("output_queue", {}).get("size") or []
        mean = sum(sizes) / len(sizes) if sizes else None
        made.append(
            {
                "op_id": row["op_id"], "op_type": row["op_type"], "num_workers": one["num_workers"],
                "output_queue_size": json.dumps(sizes) if sizes else None, "output_queue_average_size": mean,
                "output_queue_length": row["queue_capacity"] if sizes else None,
                "output_queue_usage_rate": mean / row["queue_capacity"] if mean is not None else 0.0, "sample_interval": interval,
                "parent_id": row["parent"], "children_id": json.dumps(found) if (found := children.get(row["op_id"])) else None,
            }
        )  # fmt: skip
    columns: dict[str, Any] = dict.fromkeys(made[0], pl.Int64) | {
        **dict.fromkeys(("op_type", "output_queue_size", "children_id"), pl.String),
        **dict.fromkeys(("output_queue_average_size", "output_queue_usage_rate"), pl.Float64),
    }
    return pl.DataFrame(made, columns)


def _queue(row: dict[str, Any], series: dict[str, pl.DataFrame]) -> pl.DataFrame | None:
    number = row["op_id"]
    names = (f"queue {number} {row['op_type'] or ''}".strip(), f"queue {number} depth", f"queue {number}")
    return next((series[name] for name in names if name in series), None)


def _used(row: dict[str, Any], series: dict[str, pl.DataFrame]) -> tuple[pl.DataFrame | None, pl.DataFrame | None]:
    end = f" {row['op_id']} {row['op_type'] or ''}".rstrip()
    return series.get(f"cpu user{end}"), series.get(f"cpu system{end}")


def _moments(queues: list[pl.DataFrame], used: list[pl.DataFrame | None], series: dict[str, pl.DataFrame]) -> list[int]:
    """When the monitor took its samples: one clock for queues and CPU; where it took none, when the machine's use was sampled."""
    for some in ([one for one in used if one is not None], [series["cpu user"]] if "cpu user" in series else [], queues):
        if some:
            return max(some, key=lambda one: one.height)["at_ns"].to_list()
    return []


def _cpu(
    rows: list[dict[str, Any]],
    used: dict[int, tuple[pl.DataFrame | None, pl.DataFrame | None]],
    series: dict[str, pl.DataFrame],
    at: list[int],
    origin: int,
    interval: int,
    file: Path,
) -> None:
    """MindInsight's page fails where a series is missing, so that each is there: a moment has the last sample up to it, or 0."""
    cores = float(series["cpu cores"]["value"][0]) if "cpu cores" in series else 1.0
    processes = [name.removesuffix(" cpu user") for name in series if name.startswith("process ") and name.endswith(" cpu user")]
    of_process = {
        key: _summed([series[f"{process} cpu {word}"] for process in processes if f"{process} cpu {word}" in series], at, 100 / cores)
        for key, word in (("user_utilization", "user"), ("sys_utilization", "system"))
    }
    machine = {key: _as_of(series.get(name), at, factor) for key, (name, factor) in _MACHINE.items()}
    machine["context_switch_count"] = [value * interval / 1000 for value in machine["context_switch_count"]]
    said = {
        "sampling_interval": interval,
        "cpu_processor_num": int(cores),
        "time_stamp": [float(f"{(one - origin) / 1e6:.6f}") for one in at],
        "device_info": machine,
        "process_info": of_process,
        "op_info": [
            {
                "op_id": row["op_id"],
                "metrics": {"user_utilization": _as_of(user, at, 1.0), "sys_utilization": _as_of(system, at, 1.0)},
            }
            for row in rows
            for user, system in [used[row["op_id"]]]
        ],
    }
    _write_json(file, said)


def _summed(parts: list[pl.DataFrame], at: list[int], factor: float) -> list[float]:
    columns = [_as_of(part, at, factor) for part in parts]
    return [sum(values) for values in zip(*columns, strict=True)] if columns else [0.0] * len(at)


def _as_of(rows: pl.DataFrame | None, at: list[int], factor: float) -> list[float]:
    if rows is None:
        return [0.0] * len(at)
    moments = pl.DataFrame({"at_ns": at}, {"at_ns": pl.Int64})
    found = moments.join_asof(rows.select("at_ns", "value").set_sorted("at_ns"), on="at_ns", check_sortedness=False)
    return [round(value * factor, 6) for value in found["value"].fill_null(0.0)]


def _milliseconds(ns: pl.Expr) -> pl.Expr:
    """Exactly: the nanoseconds are the six digits behind the point."""
    return pl.format("{}.{}", ns // 1_000_000, (ns % 1_000_000).cast(pl.String).str.zfill(6))


def _write_json(file: Path, value: object) -> None:
    file.write_text(json.dumps(value), "utf-8")
