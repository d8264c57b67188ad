"""A training folder that MindInsight 2.3.1 lists and shows, also for recordings of other frameworks: the files of its `profiler` folder.

Device work fills its Ascend pages or its GPU pages. Its CPU pages have only operators, so a recording of the CPU alone also fills the GPU
pages, with operators of the side Host; `--pages cpu` fills the CPU pages instead. The parent folder of OUT is MindInsight's
`--summary-base-dir`. Each rank has its own files.
"""

from pathlib import Path
from typing import Any

import msgspec
import polars as pl

from stepscope.errors import UsageError
from stepscope.exporters import chrome, draft_output
from stepscope.exporters.common.json_lines import write_json
from stepscope.exporters.mindinsight import input_pipeline, operators, side_files, steps
from stepscope.model.parameters import check_word
from stepscope.model.trace import Trace

_PAGES = ("ascend", "gpu", "cpu")


def export(trace: Trace, out: Path, *, overwrite: bool = False, pages: str | None = None) -> None:
    if pages is not None:
        check_word("MindInsight pages", pages, _PAGES)
    if overwrite and out.exists() and not (out.is_dir() and [entry.name for entry in out.iterdir()] == ["profiler"]):
        raise UsageError(f"{out} contains more than a profiler folder, so it is not replaced; choose another name")
    # MindInsight computes with floats of milliseconds: times count from just before the first one, and `diff_time` has that time.
    origin = trace.ends()[0] // 1000 * 1000 - 1_000_000
    with draft_output(out, overwrite=overwrite) as draft:
        folder = draft / "profiler"
        folder.mkdir(parents=True)
        waits = side_files.wait_times(trace)
        for rank in trace.meta.ranks or [0]:
            rank_trace = trace.of_rank(rank)
            rank_pages = pages or _default_pages(rank_trace)
            _write_info(rank_trace, len(trace.meta.ranks), rank, folder, origin)
            steps.write_steps(rank_trace, rank, folder, origin)
            operators.write_operators(rank_trace, rank, rank_pages, folder, origin)
            _write_timeline(rank_trace, rank, rank_pages, folder)
            input_pipeline.write(rank_trace, rank, folder, origin, on_gpu=rank_pages != "ascend")
            side_files.write_communication(rank_trace, rank, folder, waits)
            if rank_pages == "ascend":
                side_files.write_memory(rank_trace, rank, folder)


def _default_pages(trace: Trace) -> str:
    kinds = set(trace.devices.select(pl.col("kind").cast(pl.String)).collect().to_series())
    return "ascend" if kinds & {"aicore", "aicpu"} else "gpu"


def _write_info(trace: Trace, ranks: int, rank: int, folder: Path, origin: int) -> None:
    meta = trace.meta
    info: dict[str, Any] = {
        # MindInsight shows the step trace only for this mode, and not for heterogeneous training.
        "context_mode": "graph",
        "is_heterogeneous": False,
        "rank_id": str(rank),
        "rank_size": str(meta.world_size or ranks or 1),
        "parallel_mode": meta.extra.get("parallel_mode") or "data_parallel",
        "stage_num": meta.extra.get("stage_num") or 1,
        "diff_time": -(origin // 1000),
        "all_export": False,
    }
    if version := meta.versions.get("mindspore"):
        info["ms_version"] = version
    write_json(folder / f"profiler_info_{rank}.json", info)
    # Read by our own reader only.
    (folder / f"stepscope_{rank}.json").write_bytes(msgspec.json.encode(chrome.trace_header(trace, rank)))


def _write_timeline(trace: Trace, rank: int, pages: str, folder: Path) -> None:
    """The download of MindInsight's timeline page: a list of Chrome events. MindInsight looks for none on its CPU pages."""
    prefix = "" if pages == "cpu" else f"{pages}_"
    with (folder / f"{prefix}timeline_display_{rank}.json").open("wb") as file:
        file.write(b"[")
        chrome.write_events(trace, file)
        file.write(b"]\n")
    if not prefix:
        return
    kinds = ["kernel", "communication", "copy", "set"] if trace.analyse("kernels").height else ["op", "communication"]
    work = trace.spans.filter(pl.col("kind").is_in(kinds))
    summary = work.select(
        total_time=pl.col("dur_ns").sum() / 1e6,
        num_of_streams=pl.col("track").n_unique(),
        num_of_ops=pl.col("name").n_unique(),
        op_exe_times=pl.len(),
        max_scope_name_num=0,
    )
    write_json(folder / f"{prefix}timeline_summary_{rank}.json", summary.collect().row(0, named=True))
