"""Files of MindData's monitor: the operators of the input pipeline, their queues and CPU use, and the time of each batch.

    pipeline_profiling_R.json             op_info: op_id, op_type, num_workers, children, metrics.output_queue: length, size per sample
    minddata_cpu_utilization_R.json       time_stamp per sample; op_info: op_id, metrics: user_utilization, sys_utilization per sample
    dataset_iterator_profiling_R.txt      type extra batch value time: type 0 is a time in ms (extra 0 pipeline, 1 push, 2 batch),
    device_queue_profiling_R.txt          type 1 the rows in the last queue (extra is its capacity)
Times are milliseconds since the machine's start.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl

from stepscope.model import units
from stepscope.model.columns.counters import COLUMNS
from stepscope.readers.common.documents import as_dict, as_list, files, parse_json, to_int
from stepscope.readers.common.problems import FileProblems

_BATCH_TIMES = {0: "pipeline time", 1: "push time", 2: "batch time"}


class Series(NamedTuple):
    name: str
    series: str
    owner: str | None
    number: int | None
    unit: str
    values: list[float | None]

    def frame(self, at_ns: list[int]) -> pl.DataFrame:
        count = min(len(at_ns), len(self.values))
        constants = {"name": self.name, "series": self.series, "owner": self.owner, "number": self.number, "unit": self.unit}
        columns = {"at_ns": at_ns[:count], "value": self.values[:count]} | {key: [value] * count for key, value in constants.items()}
        return pl.DataFrame({key: columns[key] for key in COLUMNS}, COLUMNS, strict=False)


def queue_series(operator: object, op_type: str, sizes: list[float | None]) -> Series:
    """The rows in the output queue of an operator, over time."""
    name = f"queue {operator} {op_type}".strip()
    if not re.fullmatch("[0-9]{1,9}", str(operator)):  # damaged
        return Series(name, name, None, None, "rows", sizes)
    return Series(name, "depth", "operator", int(str(operator)), "rows", sizes)


def pipeline(folder: Path, rank: str = "*") -> pl.DataFrame:
    """The operators: op_id, op_type, workers, parent, queue_capacity."""
    operators = _operators(_load_json(folder, f"pipeline_profiling_{rank}.json", []))  # `counters` reports the problems of this file
    parents = {child: operator["op_id"] for operator in operators for child in as_list(operator.get("children")) if isinstance(child, int)}
    rows = [
        {
            "op_id": operator["op_id"],
            "op_type": str(operator.get("op_type") or ""),
            "workers": _int32(operator.get("num_workers")),
            "parent": parents.get(operator["op_id"]),
            "queue_capacity": _int32(_queue(operator).get("length")),
        }
        for operator in operators
    ]
    columns = {"op_id": pl.Int32, "op_type": pl.String, "workers": pl.Int32, "parent": pl.Int32, "queue_capacity": pl.Int32}
    return pl.DataFrame(rows, columns)


def counters(folder: Path, header: dict[str, Any], problems: FileProblems, rank: str = "*", since: int | None = None) -> list[pl.DataFrame]:
    """Samples on the clock of the recording: rows in queues, CPU use of operators in percent, milliseconds of batches.

    `since` is the time of the first sample where the samples have no times.
    """
    offset = int((header.get("monotonic_offset_ns") or [0])[0])
    cpu = _load_json(folder, f"minddata_cpu_utilization_{rank}.json", problems)
    queues = _load_json(folder, f"pipeline_profiling_{rank}.json", problems)
    series = [*_queue_series(queues), *_cpu_series(cpu, queues)]
    at = stamps = _timestamps(cpu, offset)
    if not at and queues:  # without CPU use, only the interval of the samples is known
        longest = max((len(_values(_queue(operator).get("size"))) for operator in _operators(queues)), default=0)
        first, interval_ns = offset if since is None else since, (_interval_ms(queues) or 1) * 1_000_000
        at = [round(nth * interval_ns) + first for nth in range(longest)]
    if lost := len(as_list(cpu.get("time_stamp"))) - len(stamps):
        message = f"{units.count(lost, 'sample')} of the input pipeline without a usable time, or after such a sample"
        problems.append((folder.name, message, lost))
    for document in (queues, cpu):
        if lost := len(as_list(document.get("op_info"))) - len(_operators(document)):
            problems.append((folder.name, f"{units.count(lost, 'operator')} of the input pipeline without a number", lost))
    if unequal := [item.name for item in series if item.values and len(item.values) != len(at)]:
        message = f"{len(unequal)} series with more or fewer samples than there are times, such as {unequal[0]}: matched from the first on"
        problems.append((folder.name, message, 0))
    has_waits = bool(header.get("waits"))
    texts = [file for name in ("device_queue", "dataset_iterator") for file in files(folder, f"{name}_profiling_{rank}.txt")]
    return [*(item.frame(at) for item in series), *(_load_batches(file, offset, has_waits, problems) for file in texts)]


def _queue_series(queues: dict[str, Any]) -> list[Series]:
    return [
        queue_series(operator["op_id"], str(operator.get("op_type") or ""), _values(_queue(operator).get("size")))
        for operator in _operators(queues)
    ]


def _cpu_series(cpu: dict[str, Any], queues: dict[str, Any]) -> list[Series]:
    types = {operator["op_id"]: str(operator.get("op_type") or "") for operator in _operators(queues)}
    return [
        Series(
            f"cpu {word} {operator['op_id']} {types.get(operator['op_id'], '')}".strip(),
            f"cpu {word}",
            "operator",
            operator["op_id"],
            "percent",
            _values(as_dict(operator.get("metrics")).get(key)),
        )
        for operator in _operators(cpu)
        for word, key in (("user", "user_utilization"), ("system", "sys_utilization"))
    ]


_PROCESS = {"user_utilization": "cpu user", "sys_utilization": "cpu system"}
_MACHINE = {
    "user_utilization": ("cpu user", "share", 0.01),
    "sys_utilization": ("cpu system", "share", 0.01),
    "io_utilization": ("cpu io", "share", 0.01),
    "idle_utilization": ("cpu idle", "share", 0.01),
    "runnable_process": ("run queue", "processes", 1.0),
    "runable_processes": ("run queue", "processes", 1.0),  # the spelling of some versions
    "context_switch_count": ("context switches", "1/s", 1.0),
}


def machine_counters(folder: Path, rank: str, offset: int) -> list[pl.DataFrame]:
    """The CPU use of machine and process as MindData's monitor samples it, for recordings without stepscope's host counters."""
    cpu = _load_json(folder, f"minddata_cpu_utilization_{rank}.json", [])
    at = _timestamps(cpu, offset)
    machine, process = as_dict(cpu.get("device_info")), as_dict(cpu.get("process_info"))
    samples = {key: [value for value in _values(machine.get(key)) if value is not None][: len(at)] for key in _MACHINE}
    shares = [values for key, values in samples.items() if _MACHINE[key][1] == "share" and values]
    # Shares that are all zero are no samples: MindSpore 2.10 writes them every second time, and the next sample covers both intervals.
    sampled = [nth for nth in range(len(at)) if not shares or any(values[nth] for values in shares if nth < len(values))]
    previous = {nth: before for before, nth in pairwise([-1, *sampled])}
    frames = []
    for key, (name, unit, factor) in _MACHINE.items():
        times, values = list[int](), list[float | None]()
        for nth, value in enumerate(samples[key]):
            if unit == "processes" or nth in previous:
                times.append(at[nth])
                values.append(value * factor)
            if unit == "1/s" and nth in previous:
                values[-1] = value / ((at[nth] - at[max(previous[nth], 0)]) / 1e9 or _interval_ms(cpu) / 1000 or 1.0)
        frames.append(Series(name, name, None, None, unit, values).frame(times))
    for key, name in _PROCESS.items():
        process_shares = [None if value is None else value / 100 for value in _values(process.get(key))]
        counter = Series(f"process {name}", name, "process", None, "share", process_shares)
        frames.append(counter.frame(at).drop_nulls("value"))
    if (cores := _int32(cpu.get("cpu_processor_num"))) is not None:
        frames.append(Series("cpu cores", "cpu cores", None, None, "cores", [float(cores)]).frame(at))
    return frames


def _load_batches(file: Path, offset: int, has_waits: bool, problems: FileProblems) -> pl.DataFrame:
    """Queue sizes and times of batches. `has_waits`: the waits of the loop were recorded, with more precision than MindData's times."""
    place = "device queue" if file.name.startswith("device_queue") else "iterator"
    # Some versions leave out the time of a row; stepscope's has fractions of a millisecond.
    lines = pl.DataFrame({"line": file.read_text("utf-8", "replace").splitlines()}, {"line": pl.String})
    lines = lines.filter(pl.col("line").str.strip_chars() != "")
    fields = lines.select(pl.col("line").str.strip_chars().str.replace_all(r"\s+", " ").str.splitn(" ", 6)).unnest("line")
    whole = {name: pl.col(f"field_{at}").cast(pl.Int64, strict=False) for at, name in enumerate(("type", "extra", "batch"))}
    at = parse_milliseconds(pl.col("field_4").fill_null("0"))
    rows = fields.select(**whole, value=pl.col("field_3").cast(pl.Float64, strict=False), at=at)
    if lost := rows.height - rows.drop_nulls().height:
        broken = rows.select(pl.any_horizontal(pl.all().is_null()).arg_max()).item()
        message = f"{units.count(lost, 'line is', 'lines are')} not five numbers, such as '{lines['line'][broken][:80]}'"
        problems.append((file.name, message, lost))
        rows = rows.drop_nulls()
    time = pl.col("extra").replace_strict(_BATCH_TIMES, default=None, return_dtype=pl.String)
    is_queue, is_time = pl.col("type") == 1, time.is_not_null() & (not has_waits or place != "iterator")
    return rows.filter(is_queue | is_time).select(
        name=pl.when(is_queue).then(pl.lit(f"queue {place}")).otherwise(pl.format("{} {}", time, pl.lit(place))),
        at_ns=pl.col("at") + offset,
        value="value",
        unit=pl.when(is_queue).then(pl.lit("rows")).otherwise(pl.lit("ms")),
        series=pl.when(is_queue).then(pl.lit("depth")).otherwise(time),
        owner=pl.lit(place),
        number=pl.lit(None, pl.Int64),
    )


def parse_milliseconds(text: pl.Expr) -> pl.Expr:
    """Milliseconds as text in nanoseconds, exactly."""
    parts = text.str.extract_groups(r"^([0-9]+)(?:\.([0-9]*))?$").struct
    digits = parts.field("2").fill_null("").str.slice(0, 7).str.pad_end(7, "0")
    exact = parts.field("1").cast(pl.Int64, strict=False) * 1_000_000 + (digits.cast(pl.Int64, strict=False) + 5) // 10
    return pl.coalesce(exact, (text.cast(pl.Float64, strict=False) * 1e6).round().cast(pl.Int64, strict=False))


def _operators(document: dict[str, Any]) -> list[dict[str, Any]]:
    operators = as_list(document.get("op_info"))
    return [operator for operator in operators if isinstance(operator, dict) and _int32(operator.get("op_id")) is not None]


def _queue(operator: dict[str, Any]) -> dict[str, Any]:
    return as_dict(as_dict(operator.get("metrics")).get("output_queue"))


def _timestamps(document: dict[str, Any], offset: int) -> list[int]:
    """The times of samples up to the first unusable one: each sample covers the time since the one before."""
    stamps = []
    for stamp in as_list(document.get("time_stamp")):
        try:
            stamps.append(to_int(stamp, 1_000_000) + offset)
        except ValueError:
            break
    return stamps


def _interval_ms(document: dict[str, Any]) -> float:
    """Milliseconds between samples; 0 where the document does not contain them."""
    interval = document.get("sampling_interval")
    return interval if isinstance(interval, (int, float)) and 0 < interval < 2**31 else 0


def _values(samples: Any) -> list[float | None]:
    return [float(value) if isinstance(value, (int, float)) and abs(value) < 2**62 else None for value in as_list(samples)]


def _int32(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**31 else None


def _load_json(folder: Path, pattern: str, problems: FileProblems) -> dict[str, Any]:
    file = next(iter(files(folder, pattern)), None)
    if file is None:
        return {}
    try:
        return as_dict(parse_json(file.read_bytes()))
    except (ValueError, RecursionError) as error:
        problems.append((file.name, f"not JSON ({error})", 1))
        return {}
