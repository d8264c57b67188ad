"""The input pipeline and the CPU as MindData's monitor writes them, see `readers/common/minddata`: milliseconds as decimals."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stepscope.exporters.common.json_lines import write_json
from stepscope.model.trace import Trace

_MACHINE = {
    "user_utilization": ("cpu user", 100.0),
    "sys_utilization": ("cpu system", 100.0),
    "io_utilization": ("cpu io", 100.0),
    "idle_utilization": ("cpu idle", 100.0),
    "runnable_process": ("run queue", 1.0),
    "context_switch_count": ("context switches", 1.0),
}
_TIMES = {"push time": 1, "batch time": 2, "pipeline time": 0}
_FILES = {"device queue": "device_queue_profiling", "iterator": "dataset_iterator_profiling"}
Key = tuple[str, str | None, int | None]  # series, owner and number of a counter
Series = dict[Key, pl.DataFrame]


def write(trace: Trace, rank: int, folder: Path, origin: int, *, on_gpu: bool) -> None:
    samples = trace.counters.select("at_ns", "value", pl.col("series", "owner").cast(pl.String), "number").collect()
    groups = samples.sort("at_ns", maintain_order=True).group_by("series", "owner", "number", maintain_order=True)
    series: Series = {(str(name), owner, number): rows for (name, owner, number), rows in groups}
    _write_batches(trace, series, rank, folder, origin)
    _write_device_queue(series, rank, folder, origin, on_gpu=on_gpu)
    _write_pipeline(trace.analyse("data_pipeline").to_dicts(), series, rank, folder, origin)


def _write_batches(trace: Trace, series: Series, rank: int, folder: Path, origin: int) -> None:
    """Each batch that was fetched: `0 kind batch ms at` for the times, `1 capacity batch rows at` for the queue."""
    queues = {row["queue"]: row for row in trace.analyse("data_queues", per_step=False).iter_rows(named=True)}
    for name, file in _FILES.items():
        queue = name
        times = {word: series[word, name, None] for word in _TIMES if (word, name, None) in series}
        depth = series.get(("depth", name, None))
        if name == "iterator" and depth is None and not times:
            queue, depth, times = _loader(queues, series)
        if depth is None and not times:
            continue
        parts = [_batch_lines(rows, order, 0, _TIMES[word]) for order, (word, rows) in enumerate(_complete_times(times).items())]
        if depth is not None:
            rows = depth.with_columns(pl.col("value").round().cast(pl.Int64, strict=False))
            parts.append(_batch_lines(rows, 9, 1, (queues.get(queue) or {}).get("capacity") or 0))
        lines = pl.concat(parts, how="vertical_relaxed").sort("batch", "order")
        at = _milliseconds(pl.col("at_ns") - origin)
        text = lines.select(pl.format("{} {} {} {} {}", "first", "second", "batch", "value", at)).to_series()
        (folder / f"{file}_{rank}.txt").write_text("\n".join(text) + "\n")


def _loader(queues: dict[str, dict[str, Any]], series: Series) -> tuple[str, pl.DataFrame | None, dict[str, pl.DataFrame]]:
    """PyTorch: the DataLoader with the most batches, as MindInsight shows one."""
    loaders = [row for name, row in queues.items() if name.startswith("DataLoader ")]
    if not loaders:
        return "", None, {}
    name = str(max(loaders, key=lambda row: row["batches"])["queue"])
    number = int(name.rpartition(" ")[2])
    waits = series.get(("wait", "loader", number))
    times = {} if waits is None else {"pipeline time": waits.with_columns(pl.col("value") / 1e6)}
    return name, series.get(("depth", "loader", number)), times


def _batch_lines(rows: pl.DataFrame, order: int, first: int, second: int) -> pl.DataFrame:
    value = pl.format("{}", pl.col("value"))
    numbers = {"order": pl.lit(order), "first": pl.lit(first), "second": pl.lit(second)}
    return rows.select("at_ns", batch=pl.int_range(1, pl.len() + 1), value=value, **numbers)


def _complete_times(times: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """MindInsight needs all three times of a batch: missing ones are computed from the others."""
    if not times:
        return times
    pipeline = times.get("pipeline time", times.get("batch time", next(iter(times.values()))))
    push = times.get("push time", pipeline.with_columns(value=pl.lit(0.0)))
    batch = times.get("batch time", pipeline)
    if "batch time" not in times and push.height == pipeline.height:
        batch = pipeline.with_columns(value=pipeline["value"] + push["value"])
    return {"push time": push, "batch time": batch, "pipeline time": pipeline}


def _write_device_queue(series: Series, rank: int, folder: Path, origin: int, *, on_gpu: bool) -> None:
    """Batches that the device fetched: `GetNext start end rows`; nanoseconds on a GPU, microseconds on Ascend."""
    depth, time = series.get(("depth", "device", None)), series.get(("batch time device", None, None))
    if depth is None:
        return
    durations = time["value"] * 1e6 if time is not None and time.height == depth.height else pl.Series([0.0] * depth.height)
    scale = 1.0 if on_gpu else 1e3
    lines = [
        f"GetNext_dequeue_wait {(at - origin - duration) / scale} {(at - origin) / scale} {round(rows)}"
        for (at, rows), duration in zip(depth.select("at_ns", "value").iter_rows(), durations, strict=True)
    ]
    name = "minddata_getnext_profiling" if on_gpu else "minddata_aicpu"
    (folder / f"{name}_{rank}.txt").write_text("\n".join(lines) + "\n")


class _Operator(NamedTuple):
    """An operator of the pipeline with its samples."""

    row: dict[str, Any]
    children: list[int]
    queue: pl.DataFrame | None
    user: pl.DataFrame | None
    system: pl.DataFrame | None

    def sizes(self) -> list[int]:
        return [round(value) for value in self.queue["value"]] if self.queue is not None else []

    def entry(self) -> dict[str, Any]:
        """The operator in pipeline_profiling."""
        capacity, sizes = self.row["queue_capacity"], self.sizes()
        metrics = {"output_queue": {"length": capacity, "size": sizes}} if capacity and sizes else None
        number = {"op_id": self.row["op_id"], "op_type": self.row["op_type"], "num_workers": self.row["workers"] or 0}
        return number | {"children": self.children or None, "metrics": metrics}

    def table_row(self, interval: int) -> dict[str, Any]:
        """The operator in minddata_pipeline_raw, with the means that MindInsight draws."""
        capacity = self.row["queue_capacity"]
        sizes = self.sizes() if capacity else []
        mean = sum(sizes) / len(sizes) if sizes else None
        return {
            "op_id": self.row["op_id"], "op_type": self.row["op_type"], "num_workers": self.row["workers"] or 0,
            "output_queue_size": json.dumps(sizes) if sizes else None, "output_queue_average_size": mean,
            "output_queue_length": capacity if sizes else None,
            "output_queue_usage_rate": mean / capacity if mean is not None else 0.0, "sample_interval": interval,
            "parent_id": self.row["parent"], "children_id": json.dumps(self.children) if self.children else None,
        }  # fmt: skip


def _write_pipeline(rows: list[dict[str, Any]], series: Series, rank: int, folder: Path, origin: int) -> None:
    operators = [_operator(row, rows, series) for row in rows]
    at = _sample_times(operators, series)
    if not rows and not at:
        return
    interval = max(round((at[-1] - at[0]) / 1e6 / (len(at) - 1)), 1) if len(at) > 1 else 1
    entries = [operator.entry() for operator in operators]
    write_json(folder / f"pipeline_profiling_{rank}.json", {"sampling_interval": interval, "op_info": entries})
    if rows:
        texts = dict.fromkeys(("op_type", "output_queue_size", "children_id"), pl.String)
        floats = dict.fromkeys(("output_queue_average_size", "output_queue_usage_rate"), pl.Float64)
        table = [operator.table_row(interval) for operator in operators]
        columns: dict[str, Any] = dict.fromkeys(table[0], pl.Int64) | texts | floats
        pl.DataFrame(table, columns).write_csv(folder / f"minddata_pipeline_raw_{rank}.csv")
    if at:
        write_json(folder / f"minddata_cpu_utilization_{rank}.json", _cpu_use(operators, series, at, origin, interval))


def _operator(row: dict[str, Any], rows: list[dict[str, Any]], series: Series) -> _Operator:
    number = row["op_id"]
    queue = series.get(("depth", "operator", number), series.get(("depth", "loader", number)))
    children = [child["op_id"] for child in rows if child["parent"] == number]
    return _Operator(row, children, queue, *(series.get((name, "operator", number)) for name in ("cpu user", "cpu system")))


def _sample_times(operators: list[_Operator], series: Series) -> list[int]:
    """The times of the monitor's samples, which queues and CPU share; without the monitor, those of the machine's CPU use."""
    used = [samples for operator in operators for samples in (operator.user, operator.system) if samples is not None]
    queues = [operator.queue for operator in operators if operator.queue is not None]
    for candidates in (used, [series["cpu user", None, None]] if ("cpu user", None, None) in series else [], queues):
        if candidates:
            return max(candidates, key=lambda samples: samples.height)["at_ns"].to_list()
    return []


def _cpu_use(operators: list[_Operator], series: Series, at: list[int], origin: int, interval: int) -> dict[str, Any]:
    """MindInsight's page fails if a series is missing, so all exist: each time has the last sample before it, or 0."""
    cores = float(series["cpu cores", None, None]["value"][0]) if ("cpu cores", None, None) in series else 1.0
    process_info = {
        key: _sum([rows for (name, owner, _), rows in series.items() if (name, owner) == (counter, "process")], at, 100 / cores)
        for key, counter in (("user_utilization", "cpu user"), ("sys_utilization", "cpu system"))
    }
    machine = {key: _last_values(series.get((name, None, None)), at, factor) for key, (name, factor) in _MACHINE.items()}
    machine["context_switch_count"] = [value * interval / 1000 for value in machine["context_switch_count"]]
    return {
        "sampling_interval": interval,
        "cpu_processor_num": int(cores),
        "time_stamp": [float(f"{(time - origin) / 1e6:.6f}") for time in at],
        "device_info": machine,
        "process_info": process_info,
        "op_info": [
            {
                "op_id": operator.row["op_id"],
                "metrics": {
                    "user_utilization": _last_values(operator.user, at, 1.0),
                    "sys_utilization": _last_values(operator.system, at, 1.0),
                },
            }
            for operator in operators
        ],
    }


def _sum(parts: list[pl.DataFrame], at: list[int], factor: float) -> list[float]:
    columns = [_last_values(part, at, factor) for part in parts]
    return [sum(values) for values in zip(*columns, strict=True)] if columns else [0.0] * len(at)


def _last_values(samples: pl.DataFrame | None, at: list[int], factor: float) -> list[float]:
    if samples is None:
        return [0.0] * len(at)
    times = pl.DataFrame({"at_ns": at}, {"at_ns": pl.Int64})
    values = times.join_asof(samples.select("at_ns", "value").set_sorted("at_ns"), on="at_ns", check_sortedness=False)["value"]
    return [round(value * factor, 6) for value in values.fill_null(0.0)]


def _milliseconds(ns: pl.Expr) -> pl.Expr:
    """Exact: the nanoseconds are the six digits after the point."""
    return pl.format("{}.{}", ns // 1_000_000, (ns % 1_000_000).cast(pl.String).str.zfill(6))
