"""Files of MindData's monitor: the operators of the input pipeline, their queues and CPU use, and the time of each batch.

    pipeline_profiling_R.json             op_info: op_id, op_type, num_workers, children, metrics.output_queue: length, size per sample
    minddata_cpu_utilization_R.json       time_stamp per sample; op_info: op_id, metrics: user_utilization, sys_utilization per sample
    dataset_iterator_profiling_R.txt      type extra batch value time: type 0 is a time in ms (extra 0 pipeline, 1 push, 2 batch),
    device_queue_profiling_R.txt          type 1 the rows in the last queue (extra is its capacity)
Times are milliseconds since the machine's start.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl

from stepscope import units
from stepscope.readers._documents import decoded, exact, files, listed, mapped

_COUNTERS = {"name": pl.String, "at_ns": pl.Int64, "value": pl.Float64, "unit": pl.String}


def pipeline(folder: Path, rank: str = "*") -> pl.DataFrame:
    """The operators: op_id, op_type, workers, parent, queue_capacity."""
    operators = _operators(_json(folder, f"pipeline_profiling_{rank}.json", []))  # what cannot be read is said with the samples
    parents = {child: one["op_id"] for one in operators for child in listed(one.get("children")) if isinstance(child, int)}
    rows = [
        {
            "op_id": one["op_id"],
            "op_type": str(one.get("op_type") or ""),
            "workers": _small(one.get("num_workers")),
            "parent": parents.get(one["op_id"]),
            "queue_capacity": _small(_queue(one).get("length")),
        }
        for one in operators
    ]
    columns = {"op_id": pl.Int32, "op_type": pl.String, "workers": pl.Int32, "parent": pl.Int32, "queue_capacity": pl.Int32}
    return pl.DataFrame(rows, columns)


def counters(
    folder: Path, header: dict[str, Any], problems: list[tuple[str, str, int]], rank: str = "*", since: int | None = None
) -> list[pl.DataFrame]:
    """Samples on the clock of everything else: rows in queues, CPU use of operators in percent, milliseconds of batches.

    `since` is the moment of the first sample where the samples have no times.
    """
    offset = int((header.get("monotonic_offset_ns") or [0])[0])
    cpu = _json(folder, f"minddata_cpu_utilization_{rank}.json", problems)
    at = _stamps(cpu, offset)
    series: list[tuple[str, str, list[float | None]]] = []
    types = {}
    queues = _json(folder, f"pipeline_profiling_{rank}.json", problems)
    if not at and queues:  # without CPU use, only the interval of the samples is known
        longest = max((len(_values(_queue(one).get("size"))) for one in _operators(queues)), default=0)
        every = _interval(queues) or 1
        first = offset if since is None else since
        at = [round(nth * every * 1_000_000) + first for nth in range(longest)]
    for one in _operators(queues):
        types[one["op_id"]] = str(one.get("op_type") or "")
        series.append((f"queue {one['op_id']} {types[one['op_id']]}".strip(), "rows", _values(_queue(one).get("size"))))
    for one in _operators(cpu):
        for word, key in (("user", "user_utilization"), ("system", "sys_utilization")):
            name = f"cpu {word} {one['op_id']} {types.get(one['op_id'], '')}".strip()
            series.append((name, "percent", _values(mapped(one.get("metrics")).get(key))))
    if lost := len(listed(cpu.get("time_stamp"))) - len(_stamps(cpu, offset)):
        problems.append(
            (
                folder.name,
                f"the times of {units.count(lost, 'sample')} of the input pipeline are not numbers, or behind one that is none",
                lost,
            )
        )
    for document in (queues, cpu):
        if lost := len(listed(document.get("op_info"))) - len(_operators(document)):
            problems.append((folder.name, f"{units.count(lost, 'operator')} of the input pipeline without a number", lost))
    if odd := [name for name, _, values in series if values and len(values) != len(at)]:
        problems.append(
            (
                folder.name,
                f"{len(odd)} series with more or fewer samples than there are times, such as {odd[0]}: taken from the first on",
                0,
            )
        )
    frames = [
        pl.DataFrame(
            {"name": name, "at_ns": pl.Series(at[: len(values)], dtype=pl.Int64), "value": values[: len(at)], "unit": unit},
            _COUNTERS,
            strict=False,
        )
        for name, unit, values in series
    ]
    waits = bool(header.get("waits"))
    names = ("device_queue_profiling", "dataset_iterator_profiling")
    return frames + [_batches(file, offset, waits, problems) for name in names for file in files(folder, f"{name}_{rank}.txt")]


_PROCESS = {"user_utilization": "process cpu user", "sys_utilization": "process cpu system"}
_MACHINE = {
    "user_utilization": ("cpu user", "share", 0.01),
    "sys_utilization": ("cpu system", "share", 0.01),
    "io_utilization": ("cpu io", "share", 0.01),
    "idle_utilization": ("cpu idle", "share", 0.01),
    "runnable_process": ("run queue", "processes", 1.0),
    "runable_processes": ("run queue", "processes", 1.0),  # as some versions spell it
    "context_switch_count": ("context switches", "1/s", 1.0),
}


def machine(folder: Path, rank: str, offset: int) -> list[pl.DataFrame]:
    """The CPU use of machine and process as MindData's monitor samples it, for recordings without one of our own; some may be missing."""
    cpu = _json(folder, f"minddata_cpu_utilization_{rank}.json", [])
    at = _stamps(cpu, offset)
    given = mapped(cpu.get("device_info"))
    series = {key: [value for value in _values(given.get(key)) if value is not None][: len(at)] for key in _MACHINE}
    shares = [values for key, values in series.items() if _MACHINE[key][1] == "share" and values]
    # Shares that are all zero were not taken: MindSpore 2.10 writes so every second time, and the next are about the time of both.
    taken = [nth for nth in range(len(at)) if not shares or any(values[nth] for values in shares if nth < len(values))]
    since = {nth: before for before, nth in pairwise([-1, *taken])}
    frames = []
    for key, (name, unit, factor) in _MACHINE.items():
        rows: list[tuple[int, float]] = []
        for nth, value in enumerate(series[key]):
            if unit == "processes":
                rows.append((at[nth], value * factor))
            elif nth in since:
                passed = (at[nth] - at[max(since[nth], 0)]) / 1e9 or _interval(cpu) / 1000 or 1.0
                rows.append((at[nth], value / passed if unit == "1/s" else value * factor))
        columns = {"at_ns": [moment for moment, _ in rows], "value": [value for _, value in rows]}
        frames.append(pl.DataFrame({"name": [name] * len(rows), **columns, "unit": [unit] * len(rows)}, _COUNTERS, strict=False))
    own = mapped(cpu.get("process_info"))
    for key, name in _PROCESS.items():  # of which every sample is taken
        parts = [None if value is None else value / 100 for value in _values(own.get(key))][: len(at)]
        samples = {"name": [name] * len(parts), "at_ns": at[: len(parts)], "value": parts, "unit": ["share"] * len(parts)}
        frames.append(pl.DataFrame(samples, _COUNTERS, strict=False).drop_nulls())
    if (cores := _small(cpu.get("cpu_processor_num"))) is not None and at:
        frames.append(pl.DataFrame({"name": ["cpu cores"], "at_ns": at[:1], "value": [float(cores)], "unit": ["cores"]}, _COUNTERS))
    return frames


def _batches(file: Path, offset: int, waits: bool, problems: list[tuple[str, str, int]]) -> pl.DataFrame:
    """Where the loop's own waits were recorded, MindData's times of the same batches, in whole milliseconds, would only blur them."""
    where = "device queue" if file.name.startswith("device_queue") else "iterator"
    # Some versions leave out the time of a row; ours has fractions of a millisecond.
    lines = pl.DataFrame({"line": file.read_text("utf-8", "replace").splitlines()}, {"line": pl.String})
    lines = lines.filter(pl.col("line").str.strip_chars() != "")
    fields = lines.select(pl.col("line").str.strip_chars().str.replace_all(r"\s+", " ").str.splitn(" ", 6)).unnest("line")
    whole = {name: pl.col(f"field_{at}").cast(pl.Int64, strict=False) for at, name in enumerate(("type", "extra", "batch"))}
    rows = fields.select(**whole, value=pl.col("field_3").cast(pl.Float64, strict=False), at=milliseconds(pl.col("field_4").fill_null("0")))
    if lost := rows.height - rows.drop_nulls().height:
        broken = rows.select(pl.any_horizontal(pl.all().is_null()).arg_max()).item()
        problems.append(
            (file.name, f"{units.count(lost, 'line is', 'lines are')} not five numbers, such as '{lines['line'][broken][:80]}'", lost)
        )
        rows = rows.drop_nulls()
    time = pl.col("extra").replace_strict({0: "pipeline time", 1: "push time", 2: "batch time"}, default=None, return_dtype=pl.String)
    timed = time.is_not_null() & (not waits or where != "iterator")
    return rows.filter((pl.col("type") == 1) | timed).select(
        name=pl.when(pl.col("type") == 1).then(pl.lit(f"queue {where}")).otherwise(pl.format("{} {}", time, pl.lit(where))),
        at_ns=pl.col("at") + offset,
        value="value",
        unit=pl.when(pl.col("type") == 1).then(pl.lit("rows")).otherwise(pl.lit("ms")),
    )


def milliseconds(text: pl.Expr) -> pl.Expr:
    """Milliseconds as text in nanoseconds, exactly."""
    parts = text.str.extract_groups(r"^(\d+)(?:\.(\d*))?$").struct
    digits = parts.field("2").fill_null("").str.slice(0, 7).str.pad_end(7, "0")
    exact = parts.field("1").cast(pl.Int64, strict=False) * 1_000_000 + (digits.cast(pl.Int64, strict=False) + 5) // 10
    return pl.coalesce(exact, (text.cast(pl.Float64, strict=False) * 1e6).round().cast(pl.Int64, strict=False))


def _operators(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [one for one in listed(document.get("op_info")) if isinstance(one, dict) and _small(one.get("op_id")) is not None]


def _queue(operator: dict[str, Any]) -> dict[str, Any]:
    return mapped(mapped(operator.get("metrics")).get("output_queue"))


def _stamps(document: dict[str, Any], offset: int) -> list[int]:
    """When samples were taken; from the first that says nothing on, all are left out, as each is the next one's neighbour."""
    stamps = []
    for stamp in listed(document.get("time_stamp")):
        try:
            stamps.append(exact(stamp, 1_000_000) + offset)
        except ValueError:
            break
    return stamps


def _interval(document: dict[str, Any]) -> float:
    """Milliseconds between samples; 0 where it is not said."""
    said = document.get("sampling_interval")
    return said if isinstance(said, (int, float)) and 0 < said < 2**31 else 0


def _values(samples: Any) -> list[float | None]:
    return [float(one) if isinstance(one, (int, float)) and abs(one) < 2**62 else None for one in listed(samples)]


def _small(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31 else None


def _json(folder: Path, pattern: str, problems: list[tuple[str, str, int]]) -> dict[str, Any]:
    file = next(iter(files(folder, pattern)), None)
    if file is None:
        return {}
    try:
        return mapped(decoded(file.read_bytes()))
    except (ValueError, RecursionError) as error:
        problems.append((file.name, f"not JSON ({error})", 1))
        return {}
