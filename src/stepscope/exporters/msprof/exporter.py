"""The output folder of Ascend's msprof (mindstudio_profiler_output), for any trace: timelines, tables and a README.txt.

Columns without data contain N/A. Tables are split after a million rows. A trace of several ranks becomes a folder of such folders.
"""

import datetime
import json
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import polars as pl

from stepscope.errors import DataError, UsageError
from stepscope.exporters import draft_output
from stepscope.exporters.msprof import iterations, marks, memory, readme, summaries, timeline
from stepscope.exporters.msprof.tasks import work
from stepscope.model.columns import span_details
from stepscope.model.parameters import check_word, nearest
from stepscope.model.trace import Trace
from stepscope.process import heap

_ROWS = 1_000_000
_OURS = re.compile(r"README\.txt|[a-z_0-9]+_\d{14}\.(csv|json)")


def export(
    trace: Trace,
    out: Path,
    *,
    overwrite: bool = False,
    model_id: int | None = None,
    iteration_id: int | None = None,
    summary_format: str = "csv",
    reports: Path | None = None,
) -> None:
    """`model_id` and `iteration_id` select one iteration of a model; `summary_format` is csv or json. `reports` is a JSON file that
    selects the layers of the timeline."""
    if (model_id is None) != (iteration_id is None):
        raise UsageError("model_id and iteration_id select one iteration together: give both or neither")
    wanted = timeline_layers(Path(reports)) if reports else None
    check_word("format of tables", summary_format, ("csv", "json"))
    if overwrite and out.is_dir() and not all(map(_is_ours, out.iterdir())):
        raise UsageError(f"{out} contains more than the files of msprof, so it is not replaced; choose another name")
    ranks = trace.meta.ranks or [0]
    with draft_output(out, overwrite=overwrite) as draft:
        draft.mkdir()
        for rank in ranks:
            folder = draft if len(ranks) == 1 else draft / f"rank_{rank}"
            folder.mkdir(exist_ok=True)
            rank_trace = trace if len(ranks) == 1 else trace.of_rank(rank)
            _write(
                rank_trace if model_id is None else _select_iteration(rank_trace, model_id, iteration_id), folder, summary_format, wanted
            )
        if not any(file.name != "README.txt" for file in draft.rglob("*.*")):
            raise DataError(Path(trace.meta.source), "no data for the files of msprof: no calls, tasks or iterations")


def _is_ours(path: Path) -> bool:
    if path.is_dir():
        return re.fullmatch(r"rank_\d+", path.name) is not None and all(map(_is_ours, path.iterdir()))
    return _OURS.fullmatch(path.name) is not None


# The layers of msprof's `reports_sample_config.json`, and one for all other counters.
_LAYERS = (
    *("ascend", "cann", "communication", "step_trace", "overlap_analyse", "msproftx", "device_tx", "os_runtime_api", "freq"),
    *("npu_mem", "hbm", "ddr", "llc", "hccs", "pcie", "nic", "roce", "sio", "qos", "ub", "ccu", "acc_pmu", "biu_perf", "block_detail"),
    *("stars_soc", "stars_chip_trans", "cpu_usage", "memory_usage", "disk_usage", "network_usage", "counters"),
)


def timeline_layers(file: Path) -> set[str]:
    """The selected layers of the timeline, with the names of msprof's `reports_sample_config.json`."""
    try:
        config = json.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file} is not JSON: {error}") from error
    layers = config.get("json_process") if isinstance(config, dict) else None
    if not isinstance(layers, dict) or not all(isinstance(on, bool) for on in layers.values()):
        raise UsageError(f'{file} has no object "json_process" of layers that are true or false')
    if unknown := next((name for name in layers if name not in _LAYERS), None):
        raise UsageError(f"{file}: unknown layer '{unknown}' of the timeline; layers are {', '.join(_LAYERS)}{nearest(unknown, _LAYERS)}")
    return {name for name, on in layers.items() if on}


def _select_iteration(trace: Trace, model: int, iteration: int | None) -> Trace:
    """The spans of one iteration of one model. An error lists the models or iterations of the trace."""
    rows = span_details.iterations(trace)
    rows_of_model = rows.filter(pl.col("model") == model)
    if rows_of_model.is_empty():
        models = ", ".join(map(str, rows["model"].unique().sort())) or "none"
        raise UsageError(f"no model {model} has iterations; models: {models}")
    numbers = rows_of_model["iteration"].to_list()
    if iteration not in numbers:
        raise UsageError(f"model {model} has no iteration {iteration}; {_iteration_range(numbers)}")
    step = rows_of_model["step"][numbers.index(iteration)]
    return trace.of_steps(step, step)


def _iteration_range(numbers: list[int]) -> str:
    return f"it has only {numbers[0]}" if len(numbers) == 1 else f"it has {min(numbers)} to {max(numbers)}"


def _write(trace: Trace, folder: Path, summary_format: str, wanted: set[str] | None) -> None:
    spans = trace.spans.select(pl.len()).collect().item()
    heap.give_back(spans)
    contents = work(trace)
    heap.give_back(spans)
    at = datetime.datetime.now().strftime("%Y%m%d%H%M%S")

    def write_timelines() -> None:
        _timeline(iterations.step_events(contents), folder / f"step_trace_{at}.json")
        _timeline(timeline.events(contents, wanted), folder / f"msprof_{at}.json")

    with ThreadPoolExecutor(1) as other:  # while this thread writes the tables; most of both is done by Polars
        timelines = other.submit(write_timelines)
        more = {"msprof_tx": marks.table(contents), **memory.tables(trace)}
        for name, portions in (summaries.tables(contents) | {name: iter([rows]) for name, rows in more.items()}).items():
            taken = summary_format == "json" and name == "step_trace"  # the timeline has this name
            _table(portions, folder, f"{name}_summary" if taken else name, at, summary_format)
        timelines.result()
    (folder / "README.txt").write_text(readme.text({_kind(file) for file in folder.iterdir()}), encoding="utf-8")


def _kind(file: Path) -> str:
    """The kind of a file: `op_summary.csv` for op_summary_slice_0_20261115021201.csv."""
    return re.sub(r"(_slice_\d+)?_\d{14}", "", file.name)


def _timeline(portions: Iterator[pl.Series], path: Path) -> None:
    with path.open("wb") as file:
        for lines in portions:
            if lines.len():
                file.write(b"[\n" if file.tell() == 0 else b",\n")
                file.write(lines.str.join(",\n").item().encode())
        if file.tell():
            file.write(b"\n]\n")
    if path.stat().st_size == 0:
        path.unlink()


def _table(portions: Iterator[pl.DataFrame], folder: Path, name: str, at: str, summary_format: str) -> None:
    """Write a file, or several slices for more than a million rows."""
    files: list[Path] = []
    rows = 0
    for portion in portions:
        start = 0
        while start < portion.height:
            if rows % _ROWS == 0:
                files.append(folder / f"{name}_slice_{len(files)}_{at}.{summary_format}")
            part = portion[start : start + _ROWS - rows % _ROWS]
            with files[-1].open("ab") as file:
                _append(part, file, summary_format)
            rows, start = rows + part.height, start + part.height
    for path in files if summary_format == "json" else []:
        with path.open("ab") as file:
            file.write(b"]\n")
    if len(files) == 1:
        files[0].rename(folder / f"{name}_{at}.{summary_format}")


def _append(rows: pl.DataFrame, file: BinaryIO, summary_format: str) -> None:
    first = file.tell() == 0
    if summary_format == "json":
        file.write((b"[" if first else b",\n") + rows.write_json().encode()[1:-1])
        return
    if first:  # columns with equal names have a number as suffix, which is not written
        file.write((",".join(name.partition("#")[0] for name in rows.columns) + "\n").encode())
    rows.write_csv(file, include_header=False, null_value="N/A")
