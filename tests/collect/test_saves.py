"""Checkpoints and compute threads of PyTorch in recordings."""

import json
import sys
from pathlib import Path

import polars as pl

import programs
import stepscope

JOB = """
    import json
    import torch
    import stepscope

    save = torch.save
    profiler = stepscope.Profiler(output_path="recording")
    for step in range(4):
        (torch.ones(4) * 2).sum()
        if step == 2:
            torch.save({"weight": torch.ones(4)}, "last.pt")
        profiler.step()
    profiler.stop()
    loaded = torch.load("last.pt")["weight"].tolist()
    json.dump({"restored": torch.save is save, "loaded": loaded, "threads": torch.get_num_threads()}, open("result.json", "w"))
"""


def test_a_save_is_a_range_in_its_step_and_the_compute_threads_are_a_counter(tmp_path: Path) -> None:
    programs.needs("torch")
    programs.script(tmp_path, JOB)
    done = programs.run_command(tmp_path, sys.executable, "train.py")
    assert done.returncode == 0, done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["restored"] and result["loaded"] == [1.0] * 4
    trace = stepscope.open(tmp_path / "recording", cache=False)
    saves = trace.spans.filter(pl.col("name").cast(pl.String) == "torch.save").select("step", kind=pl.col("kind").cast(pl.String)).collect()
    assert saves.rows() == [(2, "annotation")]
    counter = trace.counters.filter(pl.col("name").cast(pl.String) == "compute threads").select("value").collect()
    assert counter["value"].to_list() == [result["threads"]]
